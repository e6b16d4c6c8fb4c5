"""One training run on randomized answers, step by step: check, cross, train, tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.cli._console import Bar, finish
from sordino.cli._language_answers import (
    Answers,
    AnswerTerms,
    made_private,
    planned_spend,
    read_answers,
)
from sordino.cli._language_options import language_module, refuse_folder
from sordino.cli._run import made_folder, spend_is_said
from sordino.cli._table import describe_promise, plan_rows
from sordino.errors import UsageError
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs
from sordino.preferences.private_pairs import PrivatePairs
from sordino.privacy.guarantee import Guarantee, never_less
from sordino.reporting.result import describe_guarantee_and_caveats

__all__ = [
    "Training",
    "check_reference",
    "promise_with_start",
    "refuse_ledger_within",
    "run_training",
]

Train = Callable[..., list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Training:
    """What one command asked for.

    Attributes:
        title: Of the command.
        stage: Which function of the pipeline trains.
        answers: The judgments, and what they may cost.
        model: Checkpoint to start from.
        settings: Fields of ``TrainingTerms``.
        sft: The text that the model was fine-tuned on, if it was said.
        strict: Whether that text is refused where it gives labels away.
    """

    title: str
    stage: str
    answers: AnswerTerms
    model: Path
    settings: dict[str, Any]
    sft: Path | None
    strict: bool


def check_reference(pairs: Comparisons, sft: Path | None, *, strict: bool) -> None:
    """Warn, or refuse, if the text that a reference was fine-tuned on gives labels away.

    Raises:
        PrivacyError: It does, and ``strict`` is set.
    """
    if sft is None:
        return
    documents = language_module("references.documents").read_documents(sft)
    language_module("references.label_free").warn_of_labels(documents, pairs, strict=strict)


def run_training(job: Training, *, dry_run: bool, as_json: bool) -> None:
    """Do the whole job and tell how it ended; whatever can be refused is refused first."""
    out = job.answers.out
    refuse_folder(out, force=job.answers.force)
    refuse_ledger_within(job.answers)
    pairs = read_answers(job.answers)
    pipeline = language_module("studies.pipeline")
    terms = pipeline.TrainingTerms(**job.settings)
    writes = job.stage == "train_policy"
    fitting = pipeline.count_fitting(pairs, job.model, terms, writes=writes)
    check_reference(pairs, job.sft, strict=job.strict)
    planned = planned_spend(job.answers, pairs)
    expected = _expected_promise(job, pairs, planned)
    if dry_run:
        planned |= describe_guarantee_and_caveats(expected)
        simulated = expected.simulated
        finish(job.title, plan_rows(planned), planned, as_json=as_json, simulated=simulated)
        return
    with made_folder(out):
        answers = made_private(job.answers, pairs)
        with nullcontext() if answers.ledger is None else spend_is_said(answers.ledger):
            log = _logged(getattr(pipeline, job.stage), job, answers, terms)
    promise = language_module("models.promises").CheckpointPromise.read(out).guarantee
    value = {
        **describe_guarantee_and_caveats(promise),
        **_told(job, answers, planned, log, left_out=len(pairs) - fitting),
    }
    rows = _rows(value, job.answers)
    finish(job.title, rows, value, as_json=as_json, simulated=promise.simulated)


def refuse_ledger_within(terms: AnswerTerms) -> None:
    """Refuse a ledger inside the checkpoint, which is published as a whole.

    Raises:
        UsageError: It is there.
    """
    if terms.ledger is not None and terms.ledger.resolve().is_relative_to(terms.out.resolve()):
        raise UsageError(
            f"--ledger {terms.ledger.name} lies inside {terms.out.name}, and a checkpoint is "
            "published as a whole. Nothing was done. Keep the ledger elsewhere."
        )


def _expected_promise(
    job: Training, pairs: Pairs | PrivatePairs, planned: dict[str, Any]
) -> Guarantee:
    """Return what the checkpoint will promise: of these answers, and of all that came before.

    Raises:
        PrivacyError: The model that is started from promises about other changes, so that no one
            promise covers both.
    """
    if isinstance(pairs, PrivatePairs):
        return _with_start(
            language_module("models.promises").CheckpointPromise.of(pairs, kind="policy"), job.model
        )
    return promise_with_start(
        Guarantee.from_dict(planned["guarantee"], planned["caveats"]), job.model
    )


def promise_with_start(promise: Guarantee, model: Path) -> Guarantee:
    """Return what a new promise comes to together with those of the model that is started from.

    Raises:
        PrivacyError: They are about other changes, so that no one promise covers both.
    """
    promises = language_module("models.promises")
    source = promises.Answers(guarantee=promise)
    return _with_start(promises.CheckpointPromise(kind="policy", sources=(source,)), model)


def _with_start(own: Any, model: Path) -> Guarantee:
    """Return what a checkpoint promises together with the one that it starts from."""
    before = language_module("training.policy_promises").folder_promises(model)
    guarantee: Guarantee = own.with_those_of(*before).guarantee
    return guarantee


def _logged(train: Train, job: Training, answers: Answers, terms: Any) -> list[dict[str, Any]]:
    """Train and return the log."""
    with Bar.shown("Training") as bar:
        return train(answers.private, job.model, job.answers.out, terms, progress=bar)


def _told(
    job: Training,
    answers: Answers,
    planned: dict[str, Any],
    log: list[dict[str, Any]],
    *,
    left_out: int,
) -> dict[str, Any]:
    """Return what the command answers as JSON."""
    ledger = answers.ledger
    losses = [row["loss"] for row in log if "loss" in row]
    return {
        "spend": planned["spend"],
        "pairs": len(answers.private),
        "dropped_identical": planned["dropped_identical"],
        "dropped_overlong": left_out,
        "loss": job.settings["loss"],
        "final_loss": losses[-1] if losses else None,
        "steps": log[-1].get("step", 0) if log else 0,
        "answers": answers.file and answers.file.name,
        "ledger": None
        if ledger is None
        else {"head": ledger.head.digest, "rows": ledger.head.rows},
    }


def _rows(value: dict[str, Any], terms: AnswerTerms) -> dict[str, str]:
    """Return the closing summary."""
    ledger, loss = value["ledger"], value["final_loss"]
    spent = "nothing" if not value["spend"] else f"epsilon={never_less(value['spend'])}"
    rows = {
        "written": terms.out.name,
        "guarantee": describe_promise(value["guarantee"]),
        "caveats": ", ".join(value["caveats"]) or "none",
        "spent": "everything (NOT PRIVATE)" if math.isinf(value["spend"]) else spent,
        "pairs": f"{value['pairs']:,}",
    }
    if value["dropped_overlong"]:
        rows["left out"] = f"{value['dropped_overlong']:,} with an answer that does not fit"
    if loss is not None:
        rows["loss"] = f"{loss:.4f} ({value['loss']}, last logged, on randomized answers)"
    if value["answers"]:
        rows["answers"] = f"{value['answers']} (train on it again: it spends nothing)"
    if ledger is not None:
        rows["ledger head"] = ledger["head"]
        rows["ledger rows"] = f"{ledger['rows']} (note the head elsewhere)"
    if ledger is not None and terms.ledger is None:
        rows["beware"] = "releases of the same judgments add up; only one shared --ledger sees it"
    return rows
