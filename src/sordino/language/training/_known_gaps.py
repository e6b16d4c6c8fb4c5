"""A check before the first step: is the loss that trl computes the one that was meant?"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from sordino.errors import PrivacyError
from sordino.language.models._upstream import upstream
from sordino.language.models.completions import Completions, answer_log_probabilities, evaluating
from sordino.language.training.losses import debiased_preference_loss

__all__ = ["refuse_other_losses"]

_GAPS = (-1.5, 0.5, 3.0)  # of the rewards of a pair; two would do to tell one loss from another
_LOOKED_AT = 64  # pairs, of which the shortest is taken
_ATOL = 1e-3
_PROMPT, _ANSWERS = "prompt_ids", ("chosen_ids", "rejected_ids")


def refuse_other_losses(trainer: Any, flip_probability: float) -> None:
    """Compare the loss of a trainer with the debiased one, where the answer is known.

    The log-probabilities of one short pair are computed in another way than trl computes them,
    and the reference is set so that the gap of the rewards is a given number. With DeepSpeed the
    weights are in pieces before training starts, and nothing is checked.

    Args:
        trainer: A trainer of trl's DPO.
        flip_probability: Of its labels.

    Raises:
        PrivacyError: They differ, so training would follow another loss.

    Source:
        docs/local.md, "Debiased likelihood", with Δ = beta times the gap of the log ratios.
    """
    if trainer.is_deepspeed_enabled:
        return
    rows = trainer.train_dataset.select_columns([_PROMPT, *_ANSWERS])
    some = rows.select(range(min(_LOOKED_AT, len(rows))))
    row = min(some, key=lambda row: sum(map(len, row.values())))
    aux, trainer.aux_loss_enabled = trainer.aux_loss_enabled, False
    known, trainer.precompute_ref_logps = trainer.precompute_ref_logps, True
    try:
        with upstream(), torch.no_grad(), evaluating(trainer.model):
            _compare(trainer, row, flip_probability)
    finally:
        trainer.aux_loss_enabled, trainer.precompute_ref_logps = aux, known
        trainer._metrics["eval"].clear()  # noqa: SLF001 (they are of the check)


def _compare(trainer: Any, row: dict[str, list[int]], flips: float) -> None:
    """Compare the losses of one row at each gap."""
    device = next(trainer.model.parameters()).device
    chosen, rejected = answer_log_probabilities(trainer.model, _both(row, device)).float().chunk(2)
    size = float(chosen.abs() + rejected.abs()) * torch.finfo(trainer.model.dtype).eps
    batch = {name: part.to(device) for name, part in trainer.data_collator([row]).items()}
    for gap in _GAPS:
        batch["ref_chosen_logps"] = chosen - gap / trainer.beta
        batch["ref_rejected_logps"] = rejected
        found = float(trainer.compute_loss(trainer.model, dict(batch)))
        meant = float(debiased_preference_loss(torch.tensor(gap), flips))
        slope = (2 - 2 * flips) / (1 - 2 * flips)  # how fast the loss may change with the gap
        if not math.isclose(
            found, meant, abs_tol=slope * (_ATOL + 4 * trainer.beta * size), rel_tol=0
        ):
            raise PrivacyError(
                f"At a gap of {gap:g} the trainer's loss is {found:.6g}, and the debiased loss of "
                f"labels that are flipped with probability {flips:.6g} is {meant:.6g}. Nothing was "
                "trained. Use a version of trl that this library was tested with."
            )


def _both(row: dict[str, list[int]], device: Any) -> Completions:
    """Return both answers of a row after their prompt."""
    answers = [torch.tensor(row[name]) for name in _ANSWERS]
    prompts = torch.tensor([row[_PROMPT]] * 2)
    read = [torch.ones_like(answer) for answer in answers]
    parts = (
        prompts,
        torch.ones_like(prompts),
        pad_sequence(answers, batch_first=True),
        pad_sequence(read, batch_first=True),
    )
    return Completions(*(part.to(device) for part in parts))
