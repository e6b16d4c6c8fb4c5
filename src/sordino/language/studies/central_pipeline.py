"""From raw pairs to a reward or a policy: noised sums of clipped gradients, paid for one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sordino._files import write_json
from sordino.language.central.dpo_trainer import CentralDPOConfig, CentralDPOTrainer
from sordino.language.central.privacy_terms import CentralPrivacy
from sordino.language.central.reward_trainer import CentralRewardConfig, CentralRewardTrainer
from sordino.language.central.unit_rows import units_of
from sordino.language.models.checkpoints import (
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.references.texts_read import TextsRead
from sordino.language.studies._training_runs import (
    Progress,
    adapters,
    log_of,
    save_policy,
    silence,
)
from sordino.language.studies.fitting import checkpoint_tokens
from sordino.language.studies.pipeline import TRAINING_LOG
from sordino.language.training.training_terms import TrainingTerms
from sordino.preferences.pairs import Pairs
from sordino.privacy.ledger import Ledger

__all__ = [
    "CentralPrivacy",
    "refuse_unusable",
    "train_policy_centrally",
    "train_reward_centrally",
]

_KEPT = 2  # checkpoints of a run that is under way


def refuse_unusable(
    pairs: Any,
    model: Path,
    terms: TrainingTerms,
    privacy: CentralPrivacy,
    *,
    writes: bool = False,
    declare_unread: bool = False,
) -> tuple[str, ...]:
    """Refuse pairs and a checkpoint that training would refuse; nothing is spent or written.

    Returns:
        What the promise is qualified by, as far as the checkpoint decides it.

    Args:
        pairs: Raw judgments.
        model: A checkpoint.
        terms: Of the training.
        privacy: Says whose pairs form a unit.
        writes: Whether it must be a model that writes: a reward's checkpoint will not do.
        declare_unread: Whether the user declares that it has read none of these records.

    Raises:
        DataError: An answer is empty or does not fit; which one is not said.
        FileSystemError: There is no such folder.
        PrivacyError: Persons are to be hidden, and are not known; or the checkpoint has read these
            records, or nobody knows what it has read.
        UsageError: The pairs are randomized already, or the checkpoint cannot be used.
    """
    tokens = checkpoint_tokens(model, terms, writes=writes)
    units_of(pairs, tokens, privacy)
    start = load_causal_model(model) if writes else load_reward_checkpoint(model)
    read = TextsRead.on(start, tokens.tokenizer)
    return read.caveats(TextsRead.of(pairs), declared=declare_unread)


def train_reward_centrally(  # noqa: PLR0913 (each is one choice of the user)
    pairs: Pairs,
    model: Path,
    folder: Path,
    terms: TrainingTerms,
    *,
    privacy: CentralPrivacy,
    ledger: Ledger,
    declare_unread: bool = False,
    simulate_seed: int | None = None,
    save_every: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Write a reward that was trained on raw pairs, and return the log: rates and spend alone.

    Args:
        pairs: Raw judgments.
        model: Checkpoint of a language model, or of a reward to go on from.
        folder: Where the reward goes, with ``training_log.json``.
        terms: How it is trained. Steps are those of ``privacy``; loss, epochs and ``batch_size``
            have no meaning here.
        privacy: What is promised, and what it takes.
        ledger: Its budget must be of the same unit and relation.
        declare_unread: Whether you declare that ``model`` has read none of these records before.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.
        save_every: Steps between two checkpoints within ``folder``; none are written without.
        resume: Whether to go on from the last of them; the steps after it are paid for anew.
        progress: Called with (steps done, steps), which are public.

    Raises:
        BudgetExceeded: The steps would pass the budget; nothing was drawn.
        PrivacyError: The ledger is about another unit or relation, persons are not known, or
            ``model`` has read these records, or nobody knows what it has read.
        UsageError: A setting, the model or the pairs cannot be used.
        DataError: An answer is empty or does not fit; which one is not said.

    Guarantee:
        What ``privacy`` says, trust ``"central"``, caveats ``real-arithmetic`` and ``timing``, and
        what the model it starts from promises, together; a run that was resumed promises what all
        its entries on the ledger do. Shown by tests/language/test_central_pipeline.py.

    Source:
        Abadi et al. (2016), Algorithm 1.
    """
    tokenizer, start = load_tokenizer(model), load_reward_checkpoint(model)
    trainer = CentralRewardTrainer(
        start,
        CentralRewardConfig(**_arguments(folder, terms, save_every)),
        train_dataset=pairs,
        privacy=privacy,
        ledger=ledger,
        processing_class=tokenizer,
        peft_config=adapters(terms.lora, "SEQ_CLS"),
        declare_unread=declare_unread,
        simulate_seed=simulate_seed,
    )
    log = log_of(trainer, progress, resume=resume)
    trainer.text_reward().save(folder, force=True)
    _close(folder, log)
    return log


def train_policy_centrally(  # noqa: PLR0913 (each is one choice of the user)
    pairs: Pairs,
    model: Path,
    folder: Path,
    terms: TrainingTerms,
    *,
    privacy: CentralPrivacy,
    ledger: Ledger,
    declare_unread: bool = False,
    simulate_seed: int | None = None,
    save_every: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Write a policy that DPO made of raw pairs, and return the log: rates and spend alone.

    Args:
        pairs: Raw judgments.
        model: Checkpoint of the reference, which must be label-free.
        folder: Where the policy goes, with ``training_log.json``.
        terms: As for :func:`train_reward_centrally`; ``temperature`` is the KL strength.
        privacy: What is promised, and what it takes.
        ledger: Its budget must be of the same unit and relation.
        declare_unread: Whether you declare that ``model`` has read none of these records before.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.
        save_every: Steps between two checkpoints within ``folder``; none are written without.
        resume: Whether to go on from the last of them; the steps after it are paid for anew.
        progress: Called with (steps done, steps), which are public.

    Raises:
        BudgetExceeded: The steps would pass the budget; nothing was drawn.
        PrivacyError: The ledger is about another unit or relation, persons are not known, or
            ``model`` has read these records, or nobody knows what it has read.
        UsageError: A setting, the model or the pairs cannot be used.
        DataError: An answer is empty or does not fit; which one is not said.

    Guarantee:
        As :func:`train_reward_centrally`. Shown by tests/language/test_central_pipeline.py.

    Source:
        Abadi et al. (2016), Algorithm 1.
    """
    tokenizer, start = load_tokenizer(model), load_causal_model(model)
    trainer = CentralDPOTrainer(
        start,
        args=CentralDPOConfig(
            **_arguments(folder, terms, save_every), temperature=terms.temperature
        ),
        train_dataset=pairs,
        privacy=privacy,
        ledger=ledger,
        processing_class=tokenizer,
        peft_config=adapters(terms.lora, "CAUSAL_LM"),
        declare_unread=declare_unread,
        simulate_seed=simulate_seed,
    )
    log = log_of(trainer, progress, resume=resume)
    save_policy(trainer, folder)
    _close(folder, log)
    return log


def _arguments(folder: Path, terms: TrainingTerms, save_every: int | None) -> dict[str, Any]:
    """Return what both trainers on raw pairs are told."""
    kept: dict[str, Any] = {}
    if save_every is not None:
        kept = {"save_strategy": "steps", "save_steps": save_every, "save_total_limit": _KEPT}
    return {
        "output_dir": str(folder),
        "learning_rate": terms.learning_rate,
        "max_length": terms.max_length,
        "overlong": terms.overlong,
        **silence(terms),
        **kept,
    }


def _close(folder: Path, log: list[dict[str, Any]]) -> None:
    """Write the log, and take away the pickled settings of checkpoints: they name folders."""
    write_json(folder / TRAINING_LOG, log, force=True)
    for path in folder.glob("checkpoint-*/training_args.bin"):
        path.unlink()
