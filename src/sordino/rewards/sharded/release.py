"""From labels in many files to one noised sum: the spend is written first, then noise is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.engines.engine import Engine, Taken
from sordino.errors import UsageError
from sordino.mechanisms.label_gaussian import LabelGaussian
from sordino.mechanisms.pieced_labels import PiecedLabels
from sordino.preferences.features import Features
from sordino.preferences.shard_survey import ShardSurvey
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards.label_release import digest_of_statistic, promise_of
from sordino.rewards.release_checks import entropy_of, warn_of_large_delta
from sordino.rewards.sharded.evidence import ShardEvidence, counted_vectors

__all__ = ["ReleasedShards", "release_shards"]


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
            mechanism's ``records_per_person``.
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

    Warns:
        PrivacyWarning: δ is 1/n or more.

    Guarantee:
        That of :func:`~sordino.rewards.label_release.release_labels`, wherever and however often
        a task runs: tasks draw nothing. Shown by tests/soundness/test_pieced_labels.py.
    """
    refuse_other_settings(survey, mechanism, ledger)
    entropy = entropy_of(simulate_seed)
    promise = promise_of(mechanism, ledger, entropy, linked=survey.linked, repeats=survey.repeats)
    digest = survey.public_digest if promise.unit == "label" else None
    ledger.check_data(None, digest)
    ledger.check(mechanism.event, promise=promise)  # before the work on public vectors
    warn_of_large_delta(promise, survey.n)
    rows = counted_vectors(survey, engine, features, taken=taken)
    design = PiecedLabels.prepare(mechanism, rows)
    most = mechanism.records_per_person
    reservation = ledger.reserve(
        mechanism.event,
        promise=promise,
        public_digest=digest,
        details=None if most is None else {"cap": most},
    )
    found = design.statistic(rows, entropy=entropy)
    artifact = digest_of_statistic(survey.public_digest, found.value)
    reservation.commit(artifact)
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
        ),
        guarantee=promise,
        release_ids=(reservation.release_id,),
        artifact=artifact,
        features=features,
    )


def refuse_other_settings(survey: ShardSurvey, mechanism: LabelGaussian, ledger: Ledger) -> None:
    """Refuse a survey that was made for another limit of one person's rows, and other kinds.

    Raises:
        UsageError: It was, or the mechanism or the ledger is something else.
    """
    if not isinstance(mechanism, LabelGaussian) or not isinstance(ledger, Ledger):
        raise UsageError("release_shards needs a LabelGaussian and a Ledger. Nothing was released.")
    if survey.most != mechanism.records_per_person:
        raise UsageError(
            f"The files were surveyed for most={survey.most!r} rows of one person, and the "
            f"mechanism has records_per_person={mechanism.records_per_person!r}. Nothing was "
            "released. Survey them for the same."
        )
