"""What every stage does with a trainer: its settings, its run without a word, its last weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainerCallback

from sordino.language.models._loading import quiet
from sordino.language.models._upstream import upstream
from sordino.language.training.training_terms import PolicyTerms, TrainingTerms

__all__ = ["Progress", "adapters", "log_of", "save_policy", "silence"]

Progress = Callable[[int, int], None]


class _Reporter(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Tells a bar how many steps are done."""

    def __init__(self, progress: Progress) -> None:
        """Keep whom to tell."""
        self._progress = progress

    def on_step_end(self, args: Any, state: Any, control: Any, **ignored: Any) -> None:
        """Tell it."""
        del args, control, ignored
        self._progress(state.global_step, state.max_steps)


def silence(terms: TrainingTerms | PolicyTerms) -> dict[str, Any]:
    """Return what every trainer is told: no report, no bar of its own, no half-done checkpoint."""
    return {
        "seed": terms.seed,
        "logging_steps": terms.log_every,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def adapters(rank: int, task: str) -> Any:
    """Return low-rank adapters on every linear layer, or None for all weights."""
    if not rank:
        return None
    from peft import LoraConfig  # noqa: PLC0415 (slow to import)

    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type=task)


def log_of(
    trainer: Any, progress: Progress | None, *, resume: bool | None = None
) -> list[dict[str, Any]]:
    """Run a trainer; return its log, whose lines it prints nowhere else.

    Args:
        trainer: Ready to train.
        progress: Called with (steps done, steps).
        resume: Whether to go on from the last checkpoint in its folder.
    """
    trainer.remove_callback(PrinterCallback)
    if progress is not None:
        trainer.add_callback(_Reporter(progress))
    with upstream(), quiet():
        trainer.train(resume_from_checkpoint=resume)
    return [_plain_row(row) for row in trainer.state.log_history]


def save_policy(trainer: Any, folder: Path) -> None:
    """Write a policy, without the pickled settings that transformers adds: they name folders."""
    with quiet():
        trainer.save_model(str(folder))
    (folder / "training_args.bin").unlink(missing_ok=True)


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of the log without times, which differ from run to run."""
    timed = ("_runtime", "_per_second", "total_flos")
    return {name: value for name, value in row.items() if not name.endswith(timed)}
