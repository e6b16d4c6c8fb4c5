"""A trainer that is audited before there are data: a model of the user, and a pair of nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sordino.auditing.findings import Audit
from sordino.cli._language_options import language_module
from sordino.engines.folders import passing_folder
from sordino.preferences.reading import read_pairs
from sordino.privacy.guarantee import NeighboringRelation
from sordino.privacy.ledger import Ledger

__all__ = ["audit_model"]

_UNITS = 100.0  # a number, as the settings ask for one; nothing here depends on it
_NOBODY = {"prompt": "Who?", "first": "Nobody.", "second": "No one.", "label": 1}


def audit_model(
    model: Path,
    *,
    policy: bool,
    lora: int,
    epsilon: float,
    delta: float,
    neighbors: NeighboringRelation,
    chance: float,
    steps: int,
    **settings: Any,
) -> Audit:
    """Return what attacks on the training of a model show, before anything is trained or paid.

    Args:
        model: A checkpoint.
        policy: Whether a policy is trained, by DPO; a reward otherwise.
        lora: Rank of adapters; 0 for all weights.
        epsilon: What all steps together are to cost.
        delta: Failure probability.
        neighbors: What one change is.
        chance: Of each record to take part in a step.
        steps: How many there are.
        settings: As for ``audit_training``.

    Raises:
        FileSystemError: There is no such folder.
        UsageError: A setting is out of range, or the model cannot be trained so.
    """
    privacy = language_module("central.privacy_terms").CentralPrivacy(
        epsilon,
        delta,
        unit="record",
        neighbors=neighbors,
        sampling_probability=chance,
        steps=steps,
        expected_batch=_UNITS * chance,
    )
    home, name = ("dpo_trainer", "DPO") if policy else ("reward_trainer", "Reward")
    module = language_module(f"central.{home}")
    task = "CAUSAL_LM" if policy else "SEQ_CLS"
    with passing_folder(None) as scratch:
        trainer = getattr(module, f"Central{name}Trainer")(
            str(model),
            args=getattr(module, f"Central{name}Config")(
                scratch, disable_tqdm=True, save_strategy="no"
            ),
            train_dataset=read_pairs([_NOBODY]),
            privacy=privacy,
            ledger=Ledger.open(Path(scratch) / "spend.db", data="nobody", budget=privacy.guarantee),
            peft_config=language_module("studies._training_runs").adapters(lora, task),
            declare_unread=True,  # nobody has said anything
        )
        from sordino.auditing.training.training_audit import (  # noqa: PLC0415 (needs the extra)
            audit_training,
        )

        return audit_training(trainer, **settings)
