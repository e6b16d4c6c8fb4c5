"""From labels in many files to one noised sum: the spend is written first, then noise is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sordino._random import Entropy
from sordino.engines.engine import Engine, Taken
from sordino.engines.rows import PiecedRows
from sordino.errors import UsageError
from sordino.mechanisms.label_gaussian import LabelGaussian
from sordino.mechanisms.pieced_labels import PiecedLabels, PiecedStatistic
from sordino.preferences.features import Features
from sordino.preferences.shard_survey import ShardSurvey
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards.label_release import digest_of_statistic, entry_details, promise_of
from sordino.rewards.paid_metrics import UNREAD
from sordino.rewards.release_checks import entropy_of
from sordino.rewards.sharded.evidence import ShardEvidence, counted_vectors, verified

__all__ = [
    "ReleasedShards",
    "ShardSum",
    "checked_promise",
    "refuse_other_settings",
    "release_shards",
    "release_sum_of_shards",
]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedShards:
    """All that is known of labels in many files after their release; all use of it is free.

    Attributes:
        evidence: The sum, its noise, and the public vectors it is about.
        guarantee: What the release promises.
        release_ids: Ledger entries that paid.
        artifact: SHA-256 of the released sum.
        features: Turns texts into vectors; None for files of vectors.
    """

    evidence: ShardEvidence
    guarantee: Guarantee
    release_ids: tuple[str, ...]
    artifact: str
    features: Features | None

    def __repr__(self) -> str:
        """Return size and promise."""
        return f"ReleasedShards({self.evidence!r}, {self.guarantee})"


def release_shards(
    survey: ShardSurvey,
    mechanism: LabelGaussian,
    *,
    ledger: Ledger,
    engine: Engine,
    features: Features | None = None,
    simulate_seed: int | None = None,
    taken: Taken | None = None,
) -> ReleasedShards:
    """Return all labels of many files as one noised sum, after recording the spend.

    The same as :func:`~sordino.rewards.label_release.release_labels`: the engine's tasks add up
    whole numbers, and this process alone writes to the ledger and draws.

    Args:
        survey: What is public of the judgments, from
            :func:`~sordino.preferences.shard_survey.survey_shards` with ``most`` equal to the
            mechanism's ``records_per_person``; or its part for a fit, if metrics are measured
            on the rest.
        mechanism: The noise.
        ledger: Where the spend is recorded before noise is drawn.
        engine: Where the files are read.
        features: Turns texts into vectors; left out for files of vectors.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.
        taken: Called as pieces are done, once for each pass.

    Raises:
        PrivacyError: The ledger is about another unit.
        DataError: Features cannot be used, or the files changed while they were read.
        UsageError: A setting is out of range, or the survey was made for another limit.
        BudgetExceeded: The spend would pass the ledger's budget; no noise was drawn.
        LedgerMismatch: The ledger belongs to other prompts and answers.

    Guarantee:
        That of :func:`~sordino.rewards.label_release.release_labels`, wherever and however often
        a task runs: tasks draw nothing. Shown by tests/soundness/test_pieced_labels.py.
    """
    refuse_other_settings("release_shards", survey, mechanism, ledger)
    if survey.part == "held-out":
        raise UsageError("Held-out rows are for metrics. Nothing was released. Fit the others.")
    entropy = entropy_of(simulate_seed)
    promise = checked_promise(survey, mechanism, ledger, entropy)
    rows = counted_vectors(survey, engine, features, taken=taken)
    released = release_sum_of_shards(
        survey,
        mechanism,
        rows,
        promise=promise,
        details=UNREAD if survey.part == "fitted" else None,
        ledger=ledger,
        entropy=entropy,
    )
    found = released.statistic
    bound = found.longest / 2 if features is None else features.feature_bound
    return ReleasedShards(
        evidence=ShardEvidence(
            rows=rows,
            statistic=found.value,
            factor=found.factor,
            feature_bound=bound,
            # Of each row every coordinate is rounded by one step at most: twice a half.
            rounding=float(found.rows * np.sqrt(found.factor.shape[1]) / found.scale),
            squares=found.squares,
            longest=mechanism.longest,
        ),
        guarantee=promise,
        release_ids=(released.release_id,),
        artifact=released.artifact,
        features=features,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardSum:
    """One noised sum of labels times public vectors in many files, and the entry that paid.

    Attributes:
        statistic: The sum and its noise.
        release_id: The ledger entry.
        artifact: SHA-256 of the sum and what it is about.
    """

    statistic: PiecedStatistic
    release_id: str
    artifact: str


def release_sum_of_shards(
    survey: ShardSurvey,
    mechanism: LabelGaussian,
    rows: PiecedRows,
    *,
    promise: Guarantee,
    details: Mapping[str, str] | None,
    ledger: Ledger,
    entropy: Entropy,
) -> ShardSum:
    """Return Σ y v over the rows that count with noise, after recording the spend.

    Args:
        survey: Which rows count.
        mechanism: The noise.
        rows: v and labels, read anew in every pass; v is made without looking at a label.
        promise: From :func:`checked_promise`.
        details: Public words to keep with the entry.
        ledger: Where the spend is recorded before noise is drawn.
        entropy: Where noise comes from.

    Raises:
        DataError: No row has a vector different from 0, or the files changed.
        UsageError: The noise cannot be drawn on its grid.
        BudgetExceeded: The spend would pass the ledger's budget; no noise was drawn.
        LedgerMismatch: The ledger belongs to other prompts and answers.

    Guarantee:
        As :func:`release_shards` states it. Shown by tests/soundness/test_pieced_labels.py.
    """
    design = PiecedLabels.prepare(mechanism, rows)
    total = design.total(verified(rows, survey) if survey.linked else rows)
    reservation = ledger.reserve(
        mechanism.event,
        promise=promise,
        public_digest=_digest(survey, promise),
        details=entry_details(mechanism, details),
    )
    value = reservation.drawn_once(lambda: design.release_total(total, entropy=entropy).value)
    found = design.described(total, value)
    artifact = digest_of_statistic(survey.public_digest, value)
    reservation.commit(artifact)
    return ShardSum(statistic=found, release_id=reservation.release_id, artifact=artifact)


def checked_promise(
    survey: ShardSurvey, mechanism: LabelGaussian, ledger: Ledger, entropy: Entropy
) -> Guarantee:
    """Return what a release promises; refuse what the ledger would refuse.

    Raises:
        PrivacyError: The ledger is about another unit.
        BudgetExceeded: The spend would pass its budget.
        LedgerMismatch: It belongs to other prompts and answers.
    """
    linked, repeats = survey.linked, survey.repeats
    promise = promise_of(mechanism, ledger, entropy, linked=linked, repeats=repeats, n=survey.n)
    ledger.check_data(None, _digest(survey, promise))
    ledger.check(mechanism.event, promise=promise)  # before the work on public vectors
    return promise


def _digest(survey: ShardSurvey, promise: Guarantee) -> str | None:
    """Return the digest that binds a ledger of labels to all records, held out or not."""
    return survey.public_digest if promise.unit == "label" else None


def refuse_other_settings(
    asked: str, survey: ShardSurvey, mechanism: LabelGaussian, ledger: Ledger
) -> None:
    """Refuse a survey that was made for another limit of one person's rows, and other kinds.

    Args:
        asked: Name of the function, for messages.
        survey: What counts.
        mechanism: What should be noise for labels.
        ledger: What should be a ledger.

    Raises:
        UsageError: It was, or the mechanism or the ledger is something else.
    """
    if not isinstance(mechanism, LabelGaussian) or not isinstance(ledger, Ledger):
        raise UsageError(f"{asked} needs a LabelGaussian and a Ledger. Nothing was released.")
    if survey.most != mechanism.records_per_person:
        raise UsageError(
            f"The files were surveyed for most={survey.most!r} rows of one person, and the "
            f"mechanism has records_per_person={mechanism.records_per_person!r}. Nothing was "
            "released. Survey them for the same."
        )
