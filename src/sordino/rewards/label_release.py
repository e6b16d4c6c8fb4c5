"""From raw judgments to one noised sum of them: the spend is written first, then noise is drawn.

From labels in many files to one noised sum: the spend is written first, then noise is drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64

from sordino import _random
from sordino._random import Entropy
from sordino.engines.engine import ChunkedRows, Engine, Taken
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.grid import Rows
from sordino.mechanisms.label_sum import (
    ChunkedLabels,
    ChunkedStatistic,
    LabelDesign,
    LabelGaussian,
    LabelStatistic,
)
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.preferences.rankings import Rankings
from sordino.preferences.records import person_key
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.randomization import refuse_unlinked

from .chunk_evidence import RawEvidence, counted_vectors, verified
from .evidence import LabelEvidence, known_feature_bound
from .private_metrics import UNREAD, checked_rows, refuse_one_sided
from .release_checks import entropy_of, refuse_large_delta


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedLabels:
    """All that is known of labels after their release: everything done with it is free."""

    evidence: LabelEvidence  # the sum, its noise, and the public vectors it is about
    guarantee: Guarantee  # what the release promises
    release_ids: tuple[str, ...]  # ledger entries that paid
    artifact: str  # SHA-256 of the released sum
    features: Features | None  # turns texts into vectors; None if pairs were made from features

    def __repr__(self) -> str:
        """Return size and promise."""
        return f"ReleasedLabels({self.evidence!r}, {self.guarantee})"


def release_labels(
    pairs: Pairs,
    mechanism: LabelGaussian,
    *,
    ledger: Ledger,
    features: Features | None = None,
    held_out: Bool[np.ndarray, " n"] | None = None,
    simulate_seed: int | None = None,
) -> ReleasedLabels:
    """Return all labels as one noised sum, after recording the spend.

    Guarantee:
        That of the mechanism, trust ``"central"``, under ``REPLACE_ONE``: unit ``"label"``, or
        unit ``"person"`` for all labels of one person (caveat ``labels-only``). Where persons are
        known and the unit is the label, the caveat is ``person-group``. Labels are read
        once, when the noise is added. Shown by tests/soundness/test_central_label.py.
    """
    # A repeat of one person to one question is the same observation and does not count. With
    # `records_per_person` the rows of a person that count are the first in the order of a digest of
    # person and question, which anybody can compute: no label and no coin decides.
    refuse_other_arguments("release_labels", pairs, mechanism, ledger)
    _checked_promise(pairs, mechanism, ledger, entropy_of(simulate_seed))
    rows = _unread_rows(pairs, held_out)
    differences = pairs.differences(features)
    found = release_sum(
        pairs,
        mechanism,
        vectors=differences,
        rows=rows,
        details=None if held_out is None else UNREAD,
        ledger=ledger,
        simulate_seed=simulate_seed,
    )
    return ReleasedLabels(
        evidence=_evidence(differences, found, features, mechanism.longest),
        guarantee=found.guarantee,
        release_ids=(found.release_id,),
        artifact=found.artifact,
        features=features,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelSum:
    """One noised sum of labels times public vectors, and the entry that paid for it."""

    statistic: LabelStatistic  # the sum and its noise
    scale: float  # standard deviation of the noise, in steps of its grid
    guarantee: Guarantee  # what the release promises
    release_id: str  # the ledger entry
    artifact: str  # SHA-256 of the sum and what it is about


def release_sum(
    pairs: Pairs,
    mechanism: LabelGaussian,
    *,
    vectors: Rows,
    rows: Sequence[int] | Int64[np.ndarray, " k"],
    details: Mapping[str, str] | None,
    ledger: Ledger,
    simulate_seed: int | None,
) -> LabelSum:
    """Return Σ y v over some rows with noise, after recording the spend.

    Guarantee:
        As :func:`release_labels` states it. Shown by tests/soundness/test_central_label.py.
    """
    entropy = entropy_of(simulate_seed)
    promise = _checked_promise(pairs, mechanism, ledger, entropy)
    design = _prepared(pairs, mechanism, vectors, rows)
    released = ledger.charge(
        design.event,
        lambda: mechanism.release(pairs.labels, design=design, entropy=entropy).value,
        digest=lambda value: digest_of_statistic(pairs.public_digest, value),
        promise=promise,
        public_digest=_public_digest(pairs, promise),
        details=entry_details(mechanism, details),
    )
    return LabelSum(
        statistic=LabelStatistic(released.value, factor=design.factor, used=design.used),
        scale=design.scale,
        guarantee=promise,
        release_id=released.release_id,
        artifact=released.artifact,
    )


def refuse_other_arguments(asked: str, pairs: Any, mechanism: Any, ledger: Any) -> None:
    """Refuse what is released already, or not in canonical order, and other settings."""
    if not isinstance(pairs, Pairs):
        raise PrivacyError(
            f"{asked} takes raw judgments; these are released already, so they can be used as "
            "they are."
        )
    if not isinstance(mechanism, LabelGaussian) or not isinstance(ledger, Ledger):
        raise UsageError(f"{asked} needs a LabelGaussian and a Ledger. Nothing was released.")
    pairs.refuse_other_order()
    if mechanism.records_per_person is not None and pairs.persons is None:
        refuse_unlinked(f"a limit of {mechanism.records_per_person} records of one person")


def label_promise(
    pairs: Pairs | Rankings,
    mechanism: LabelGaussian | RankingGaussian,
    ledger: Ledger,
    entropy: _random.Entropy,
) -> Guarantee:
    """Return what a release promises under the terms of a ledger, with every caveat."""
    linked = pairs.persons is not None
    repeats = not linked and len(set(pairs.keys)) < len(pairs)
    return promise_of(mechanism, ledger, entropy, linked=linked, repeats=repeats, n=len(pairs))


def promise_of(
    mechanism: LabelGaussian | RankingGaussian,
    ledger: Ledger,
    entropy: _random.Entropy,
    *,
    linked: bool,
    repeats: bool,
    n: int | None,
) -> Guarantee:
    """Return what a release promises, from what is public of the judgments."""
    promise = mechanism.guarantee(
        unit="person" if ledger.budget.unit == "person" else "label",
        neighbors=REPLACE_ONE,
        trust="central",
    )
    refuse_large_delta(promise, n)
    caveats = {
        "person-group": promise.unit == "label" and linked,
        "repeats-not-linked": repeats,
        "simulated": entropy.randomness == "simulated",
    }
    named = promise.with_caveats(*(name for name, applies in caveats.items() if applies))
    return replace(named, randomness=entropy.randomness)


def _checked_promise(
    pairs: Pairs, mechanism: LabelGaussian, ledger: Ledger, entropy: _random.Entropy
) -> Guarantee:
    """Return what the release promises; refuse what the ledger would refuse."""
    promise = label_promise(pairs, mechanism, ledger, entropy)
    ledger.check_data(None, _public_digest(pairs, promise))
    ledger.check(mechanism.event, promise=promise)  # before the work on public vectors
    return promise


def _public_digest(pairs: Pairs, promise: Guarantee) -> str | None:
    """Return the digest that binds a ledger of labels to all pairs, held out or not."""
    return pairs.public_digest if promise.unit == "label" else None


def entry_details(
    mechanism: LabelGaussian, details: Mapping[str, str] | None
) -> dict[str, Any] | None:
    """Return what the entry says besides, or None."""
    most = mechanism.records_per_person
    return {**({} if most is None else {"cap": most}), **(details or {})} or None


def _prepared(
    pairs: Pairs,
    mechanism: LabelGaussian,
    vectors: Rows,
    rows: Sequence[int] | Int64[np.ndarray, " k"],
) -> LabelDesign:
    """Return the release made ready; no label is read."""
    limited = mechanism.records_per_person is not None
    return mechanism.prepare(vectors, persons=pairs.persons if limited else None, rows=rows)


def _unread_rows(pairs: Pairs, held_out: Bool[np.ndarray, " n"] | None) -> Int64[np.ndarray, " k"]:
    """Return the rows that may count and are not held out, in order of preference."""
    rows = countable_rows(pairs)
    if held_out is None:
        return rows
    kept = checked_rows(pairs, held_out)
    refuse_one_sided(kept)
    return np.asarray(rows[~kept[rows]])


def countable_rows(pairs: Pairs | Rankings) -> Int64[np.ndarray, " k"]:
    """Return the rows that may count, in order of preference; it is a public rule."""
    # Each question of each person once, in the order of a digest of both: where the rows of one
    # person are limited, no file order and no person's habit decides which remain.
    once = np.flatnonzero(pairs.first_rows())
    if pairs.persons is None:
        return once
    return np.array(sorted(once, key=_ranks(pairs.keys, pairs.persons).__getitem__))


def _ranks(keys: Sequence[bytes], persons: Sequence[str]) -> list[bytes]:
    """Return the digest of person and question of every row."""
    both = zip(keys, persons, strict=True)
    return [hashlib.sha256(person_key(person) + key).digest() for key, person in both]


def digest_of_statistic(public_digest: str, statistic: Float[np.ndarray, " d"]) -> str:
    """Return the SHA-256 of a released sum together with what it is about."""
    return hashlib.sha256(
        f"{public_digest}\n".encode() + statistic.astype("<f8").tobytes()
    ).hexdigest()


def _evidence(
    differences: Any, found: LabelSum, features: Features | None, longest: float
) -> LabelEvidence:
    """Return what a fit sees of a release."""
    released = found.statistic
    rows = np.flatnonzero(released.used)
    # Of each row every coordinate is rounded by one step at most: twice a half.
    steps = len(rows) * np.sqrt(released.factor.shape[1])
    return LabelEvidence(
        differences=differences[rows],
        statistic=released.value,
        factor=released.factor,
        feature_bound=known_feature_bound(differences, features),
        rounding=float(steps / found.scale),
        longest=longest,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleasedChunks:
    """All that is known of labels in many files after their release; all use of it is free."""

    evidence: RawEvidence  # the sum, its noise, and the public vectors it is about
    guarantee: Guarantee  # what the release promises
    release_ids: tuple[str, ...]  # ledger entries that paid
    artifact: str  # SHA-256 of the released sum
    features: Features | None  # turns texts into vectors; None for files of vectors

    def __repr__(self) -> str:
        """Return size and promise."""
        return f"ReleasedChunks({self.evidence!r}, {self.guarantee})"


def release_chunks(
    survey: ChunkSurvey,
    mechanism: LabelGaussian,
    *,
    ledger: Ledger,
    engine: Engine,
    features: Features | None = None,
    simulate_seed: int | None = None,
    taken: Taken | None = None,
) -> ReleasedChunks:
    """Return all labels of many files as one noised sum, after recording the spend.

    Guarantee:
        That of :func:`~sordino.rewards.label_release.release_labels`, wherever and however often
        a task runs: tasks draw nothing. Shown by tests/soundness/test_chunked_labels.py.
    """
    # The same as `release_labels`: the engine's tasks add up whole numbers, and this process alone
    # writes to the ledger and draws.
    refuse_other_settings("release_chunks", survey, mechanism, ledger)
    if survey.part == "held-out":
        raise UsageError("Held-out rows are for metrics. Nothing was released. Fit the others.")
    entropy = entropy_of(simulate_seed)
    promise = checked_promise(survey, mechanism, ledger, entropy)
    rows = counted_vectors(survey, engine, features, taken=taken)
    released = release_sum_of_chunks(
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
    return ReleasedChunks(
        evidence=RawEvidence(
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
class ChunkSum:
    """One noised sum of labels times public vectors in many files, and the entry that paid."""

    statistic: ChunkedStatistic  # the sum and its noise
    release_id: str  # the ledger entry
    artifact: str  # SHA-256 of the sum and what it is about


def release_sum_of_chunks(
    survey: ChunkSurvey,
    mechanism: LabelGaussian,
    rows: ChunkedRows,
    *,
    promise: Guarantee,
    details: Mapping[str, str] | None,
    ledger: Ledger,
    entropy: Entropy,
) -> ChunkSum:
    """Return Σ y v over the rows that count with noise, after recording the spend.

    Guarantee:
        As :func:`release_chunks` states it. Shown by tests/soundness/test_chunked_labels.py.
    """
    design = ChunkedLabels.prepare(mechanism, rows)
    total = design.total(verified(rows, survey) if survey.linked else rows)
    released = ledger.charge(
        mechanism.event,
        lambda: total.release(entropy=entropy),
        digest=lambda value: digest_of_statistic(survey.public_digest, value),
        promise=promise,
        public_digest=_digest(survey, promise),
        details=entry_details(mechanism, details),
    )
    return ChunkSum(
        statistic=total.described(released.value),
        release_id=released.release_id,
        artifact=released.artifact,
    )


def checked_promise(
    survey: ChunkSurvey, mechanism: LabelGaussian, ledger: Ledger, entropy: Entropy
) -> Guarantee:
    """Return what a release promises; refuse what the ledger would refuse."""
    linked, repeats = survey.linked, survey.repeats
    promise = promise_of(mechanism, ledger, entropy, linked=linked, repeats=repeats, n=survey.n)
    ledger.check_data(None, _digest(survey, promise))
    ledger.check(mechanism.event, promise=promise)  # before the work on public vectors
    return promise


def _digest(survey: ChunkSurvey, promise: Guarantee) -> str | None:
    """Return the digest that binds a ledger of labels to all records, held out or not."""
    return survey.public_digest if promise.unit == "label" else None


def refuse_other_settings(
    asked: str, survey: ChunkSurvey, mechanism: LabelGaussian, ledger: Ledger
) -> None:
    """Refuse a survey that was made for another limit of one person's rows, and other kinds."""
    if not isinstance(mechanism, LabelGaussian) or not isinstance(ledger, Ledger):
        raise UsageError(f"{asked} needs a LabelGaussian and a Ledger. Nothing was released.")
    if survey.most != mechanism.records_per_person:
        raise UsageError(
            f"The files were surveyed for most={survey.most!r} rows of one person, and the "
            f"mechanism has records_per_person={mechanism.records_per_person!r}. Nothing was "
            "released. Survey them for the same."
        )
