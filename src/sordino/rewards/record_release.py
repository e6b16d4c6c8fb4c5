"""Whole records as a release reads them: through sums alone, wherever the records are.

What a release of whole records promises and keeps, settled before a feature is read.

From raw pairs to released weights under record privacy: one tilted minimizer.

A record is one judgment with its prompt, its answers and its person: all of it is private. Under
ADD_OR_REMOVE_ONE so is how many there are, and nothing here depends on that number or tells it.

Whole records in many files: tasks clip and add up, this process alone tilts, pays and noises.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Integer

from sordino import _random, _validate
from sordino._random import Entropy, words_of_secret
from sordino.engines.engine import ChunkedRows, Engine
from sordino.errors import UsageError
from sordino.mechanisms.gaussian import SecondMoment
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.preferences.chunk_reading import judged_vectors, judgments
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunk, Chunks
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.privacy.events import UNDECIDED
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee
from sordino.privacy.ledger import Ledger

from .chunk_evidence import width_of
from .confidence import RecordEllipsoid, ReleasedMoment, record_ellipsoid, refuse_small_ridge
from .newton import ChunkedLoss, minimize_chunked
from .pair_losses import DebiasedLogistic
from .private_metrics import UNREAD, checked_rows
from .release_checks import (
    entropy_of,
    keeps_ellipsoid,
    record_differences,
    record_promise,
    refuse_unpaid,
)
from .solver import Solution, minimize_tilted, refuse_drowned, ridge_of, within_allowance


@runtime_checkable
class RecordSums(Protocol):
    """What a release asks of clipped records.

    Guarantee:
        None by itself: both answers are as secret as the records.
    """

    @property
    def width(self) -> int:
        """Return the number of features."""
        ...

    def outer(self, second_moment: SecondMoment) -> np.ndarray:
        """Return Σ xxᵀ in whole steps of the grid of a mechanism."""
        ...

    def minimize(
        self,
        tilt: Float[np.ndarray, " d"],
        mechanism: ObjectivePerturbation,
        *,
        ball: float,
        entropy: Entropy,
    ) -> Solution:
        """Return the certified minimizer of the tilted objective.

        Guarantee:
            None by itself: the minimizer is as secret as the records until it is noised.
        """
        ...


@dataclass(frozen=True, eq=False, repr=False)
class HeldRecords:
    """Records in memory."""

    # Feature differences x of the first answer and the second, clipped.
    records: Float[np.ndarray, "n d"]
    # 1 where the first was preferred, 0 where the second was, 2 where neither.
    labels: Integer[np.ndarray, " n"]

    @property
    def width(self) -> int:
        """Return the number of features."""
        return int(self.records.shape[1])

    def outer(self, second_moment: SecondMoment) -> np.ndarray:
        """Return Σ xxᵀ in whole steps."""
        return second_moment.total(self.records)

    def minimize(
        self,
        tilt: Float[np.ndarray, " d"],
        mechanism: ObjectivePerturbation,
        *,
        ball: float,
        entropy: Entropy,
    ) -> Solution:
        """Return the certified minimizer of the tilted objective, as :class:`RecordSums` says.

        Guarantee:
            None by itself: the minimizer is as secret as the records until it is noised.
        """
        targets = decided_labels(self.labels, entropy.words(len(self.labels)))
        loss = DebiasedLogistic(self.records, targets=targets, pull=-tilt)
        return minimize_tilted(loss, mechanism, ball=ball)


def clipped_records(
    differences: Float[np.ndarray, "n d"],
    mechanism: ObjectivePerturbation,
    second_moment: SecondMoment | None,
) -> Float[np.ndarray, "n d"]:
    """Return the feature difference of every record, clipped, and on the grid of the moment."""
    clipped = mechanism.clipped(differences)
    return clipped if second_moment is None else _on_grid(clipped, second_moment)


def _on_grid(
    records: Float[np.ndarray, "n d"], second_moment: SecondMoment
) -> Float[np.ndarray, "n d"]:
    """Return records rounded to the grid of the moment, none longer than its bound."""
    # The moment is then exactly that of the records that are fitted.
    step = second_moment.step
    room = second_moment.bound - step * math.sqrt(records.shape[1])
    lengths = np.linalg.norm(records, axis=1, keepdims=True)
    shrunk = records * (room / np.maximum(lengths, room))
    return np.asarray(np.rint(shrunk / step) * step)


def decided_labels(
    labels: Integer[np.ndarray, " n"], words: Integer[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return labels as 0 and 1; a fair coin decides each undecided one."""
    # A target of ½ would have slopes of both signs, for which the δ of the mechanism is not proved.
    coins = words & np.uint64(1)
    return np.where(labels == UNDECIDED, coins, labels).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class RecordTerms:
    """What a release of records is about to promise and keep; made before a feature is read."""

    mechanism: ObjectivePerturbation  # the tilt
    second_moment: SecondMoment | None  # what releases Σ xxᵀ too, or None
    promise: Guarantee  # what is promised
    ball: float  # bound on the norm of the minimizer
    ellipsoid: bool  # whether a confidence set is kept
    size: int | None  # how many records there are, with those dropped; None where that is private
    entropy: _random.Entropy  # source of 64-bit words

    @classmethod
    def of(
        cls,
        mechanism: ObjectivePerturbation,
        ledger: Ledger,
        second_moment: SecondMoment | None,
        *,
        size: int,
        ball: float,
        ellipsoid: bool | None,
        simulate_seed: int | None,
        features: Features | None,
    ) -> RecordTerms:
        """Return the terms of a release; the ledger is only read."""
        ball = _validate.workable("ball", ball)
        entropy = entropy_of(simulate_seed)
        promise = record_promise(mechanism, ledger, entropy, n=size, features=features)
        refuse_unpaid(second_moment, mechanism)
        return cls(
            mechanism=mechanism,
            second_moment=second_moment,
            promise=promise,
            ball=ball,
            ellipsoid=keeps_ellipsoid(second_moment, ellipsoid=ellipsoid),
            size=None if promise.neighbors == ADD_OR_REMOVE_ONE else size,
            entropy=entropy,
        )

    def refuse_useless(self, d: int) -> None:
        """Refuse settings with which nothing would be learned of so many features."""
        if self.second_moment:
            _validate.refuse_unholdable("dimension", d, 4 * d**2)  # sum, noise, steps, result
        if self.ellipsoid and self.second_moment:
            refuse_small_ridge(ridge_of(self.mechanism), self.second_moment, d=d, ball=self.ball)
        refuse_drowned(self.mechanism, d=d, ball=self.ball)


METHOD = "objective-perturbation"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordFit:
    """Weights released under record privacy; every field may be published."""

    weights: Float[np.ndarray, " d"]  # shape (d,), in units of log odds of being preferred
    features: Features | None  # turns prompt and answer into a vector; None for feature differences
    guarantee: Guarantee  # what the release promises
    ridge: float  # Λ
    ball: float  # B; the minimizer lies inside, the noise of the output is added to it
    gradient_norm: float  # bound on the gradient at the minimizer. What it was there is private.
    atol: float  # the same bound
    pairs: int | None  # how many records there are, with those dropped; None where that is private
    ellipsoid: RecordEllipsoid | None  # the confidence set that pessimistic policies need, or None
    moment: ReleasedMoment | None  # the noised second moment of the records, or None
    release_ids: tuple[str, ...]  # the ledger entry that paid
    artifact: str  # SHA-256 of what was released
    method: str = METHOD  # `"objective-perturbation"`

    def __repr__(self) -> str:
        """Return size and promise; no weights."""
        return f"RecordFit(d={len(self.weights)}, {self.guarantee})"


def fit_records(  # noqa: PLR0913 (each is one choice of the user)
    pairs: Pairs,
    mechanism: ObjectivePerturbation,
    *,
    ledger: Ledger,
    features: Features | None = None,
    ball: float,
    second_moment: SecondMoment | None = None,
    ellipsoid: bool | None = None,
    held_out: Bool[np.ndarray, " n"] | None = None,
    simulate_seed: int | None = None,
) -> RecordFit:
    """Return weights that hide every single record, after recording the spend.

    Guarantee:
        (ε, δ) of the mechanism for one record, under the relation of the ledger's budget and
        trust ``"central"``, weights and second moment together; caveat ``real-arithmetic``. Shown
        by tests/soundness/test_central_record.py.
    """
    # Minimizes Σ softplus(−θᵀz) + (Λ/2)‖θ‖² + bᵀθ over ‖θ‖ ≤ ball with a random b, where z is the
    # feature difference of the preferred answer and the other one, shrunk to the bound of the
    # mechanism. Each judgment is a record of its own, also a repeated one of the same person. A
    # fair coin decides each undecided one: whichever way it falls the promise holds, and so it
    # holds for the mixture.
    # Source: docs/central.md, "Objective perturbation".
    _refuse_other_types(pairs, mechanism, ledger)
    terms = RecordTerms.of(
        mechanism,
        ledger,
        second_moment,
        size=len(pairs) + pairs.dropped,
        ball=ball,
        ellipsoid=ellipsoid,
        simulate_seed=simulate_seed,
        features=features,
    )
    seen = _seen(pairs, held_out)
    rows = clipped_records(record_differences(seen, features), mechanism, second_moment)
    return spend_on_records(
        HeldRecords(rows, seen.labels),
        terms,
        ledger=ledger,
        features=features,
        details=None if held_out is None else dict(UNREAD),
    )


def spend_on_records(
    records: RecordSums,
    terms: RecordTerms,
    *,
    ledger: Ledger,
    features: Features | None,
    details: dict[str, object] | None = None,
) -> RecordFit:
    """Return weights that hide every single record, after recording the spend.

    Guarantee:
        That of :func:`fit_records`.
    """
    mechanism, ball = terms.mechanism, terms.ball
    terms.refuse_useless(records.width)
    released = ledger.charge(
        mechanism.event,
        lambda: _packed(records, terms),
        digest=lambda together: _digest(*_unpacked(together, records.width, terms)),
        promise=terms.promise,
        details=details,
    )
    weights, moment = _unpacked(released.value, records.width, terms)
    kept = None
    if terms.ellipsoid and moment is not None:
        kept = record_ellipsoid(weights, moment, mechanism, ball=ball)
    return RecordFit(
        weights=weights,
        features=features,
        guarantee=terms.promise,
        ridge=ridge_of(mechanism),
        ball=ball,
        gradient_norm=mechanism.atol,
        atol=mechanism.atol,
        pairs=terms.size,
        ellipsoid=kept,
        moment=moment,
        release_ids=(released.release_id,),
        artifact=released.artifact,
    )


def _packed(records: RecordSums, terms: RecordTerms) -> Float[np.ndarray, " all"]:
    """Return noised weights, and the noised moment behind them; draws noise."""
    weights, moment = release_records(
        records,
        terms.mechanism,
        ball=terms.ball,
        second_moment=terms.second_moment,
        entropy=terms.entropy,
    )
    return weights if moment is None else np.concatenate([weights, moment.matrix.ravel()])


def _unpacked(
    together: Float[np.ndarray, " all"], d: int, terms: RecordTerms
) -> tuple[Float[np.ndarray, " d"], ReleasedMoment | None]:
    """Return what :func:`_packed` put together."""
    if terms.second_moment is None:
        return together, None
    matrix = together[d:].reshape(d, d)
    return together[:d], ReleasedMoment(matrix=matrix, mechanism=terms.second_moment)


def release_records(
    records: RecordSums,
    mechanism: ObjectivePerturbation,
    *,
    ball: float,
    second_moment: SecondMoment | None,
    entropy: _random.Entropy,
) -> tuple[Float[np.ndarray, " d"], ReleasedMoment | None]:
    """Return noised weights and moment; draws noise, so the spend must already be on a ledger.

    Guarantee:
        That of the mechanism, for both together, if the records were clipped to its bound. Shown
        by tests/soundness/test_central_record.py.
    """
    moment = None
    if second_moment is not None:
        matrix = second_moment.release_total(records.outer(second_moment), entropy=entropy)
        moment = ReleasedMoment(matrix=matrix, mechanism=second_moment)

    def minimize(tilt: Float[np.ndarray, " d"]) -> Solution:
        # coins after the tilt: a seeded tilt is then the same for any number of records
        return records.minimize(tilt, mechanism, ball=ball, entropy=entropy)

    return mechanism.release(minimize, d=records.width, entropy=entropy), moment


def _refuse_other_types(pairs: object, mechanism: object, ledger: object) -> None:
    """Refuse what is no raw pairs, no tilt or no ledger."""
    if not isinstance(pairs, Pairs):
        raise UsageError(f"pairs must be raw judgments (Pairs), got {type(pairs).__name__}.")
    if not isinstance(mechanism, ObjectivePerturbation) or not isinstance(ledger, Ledger):
        raise UsageError("fit_records needs an ObjectivePerturbation and a Ledger.")


def _seen(pairs: Pairs, held_out: Bool[np.ndarray, " n"] | None) -> Pairs:
    """Return the records that the fit sees."""
    if held_out is None:
        return pairs
    return pairs.part(np.flatnonzero(~checked_rows(pairs, held_out)).tolist())


def _digest(weights: Float[np.ndarray, " d"], moment: ReleasedMoment | None) -> str:
    """Return the SHA-256 of what was released, and of nothing else."""
    digest = hashlib.sha256(weights.astype("<f8").tobytes())
    if moment is not None:
        digest.update(moment.matrix.astype("<f8").tobytes())
    return digest.hexdigest()


_SECRET: Final = 4  # words


def fit_record_chunks(  # noqa: PLR0913 (each is one choice of the user)
    survey: ChunkSurvey,
    mechanism: ObjectivePerturbation,
    *,
    ledger: Ledger,
    engine: Engine,
    features: Features | None = None,
    ball: float,
    second_moment: SecondMoment | None = None,
    ellipsoid: bool | None = None,
    simulate_seed: int | None = None,
) -> RecordFit:
    """Return weights that hide every single record of many files, after recording the spend.

    Guarantee:
        That of :func:`fit_records`, wherever and however often a task
        runs: tasks draw nothing. Each judgment is a record of its own, also a repeated one. That
        files overlap is refused, and that a record cannot be used, as when a single file is read:
        whoever sees those refusals holds the records. Shown by
        tests/soundness/test_chunked_records.py.
    """
    # The same as `fit_records`: each task clips the records it reads and adds them up; this process
    # alone writes to the ledger, tilts and draws noise. The coins of undecided records are a
    # function of a secret of this run and of their place, so that a task that is run again finds
    # the same ones.
    # Source: docs/central.md, "Objective perturbation".
    _refuse_other_features(mechanism, ledger)
    terms = RecordTerms.of(
        mechanism,
        ledger,
        second_moment,
        size=survey.n + survey.dropped,
        ball=ball,
        ellipsoid=ellipsoid,
        simulate_seed=simulate_seed,
        features=features,
    )
    width = width_of(survey.chunks, features)
    terms.refuse_useless(width)
    ledger.check(mechanism.event, promise=terms.promise)  # before the work on features
    read = _Records(survey.chunks, features, mechanism, second_moment)
    # Nobody is told how far it is: how many passes a minimizer takes depends on the records.
    rows = ChunkedRows(engine, survey.chunks.chunks, read, (survey.n, width))
    rows.fold(_ready, _both)
    return spend_on_records(ChunkedRecords(rows), terms, ledger=ledger, features=features)


@dataclass(frozen=True, eq=False, repr=False)
class ChunkedRecords:
    """Clipped records that an engine reads.

    Guarantee:
        None by itself; see :class:`~sordino.rewards.record_release.RecordSums`.
    """

    rows: ChunkedRows  # x, with labels beside them

    @property
    def width(self) -> int:
        """Return the number of features."""
        return self.rows.shape[1]

    def outer(self, second_moment: SecondMoment) -> np.ndarray:
        """Return Σ xxᵀ in whole steps: the same integers, whatever engine adds them."""
        return self.rows.fold(_Outer(second_moment), np.add)

    def minimize(
        self,
        tilt: Float[np.ndarray, " d"],
        mechanism: ObjectivePerturbation,
        *,
        ball: float,
        entropy: Entropy,
    ) -> Solution:
        """Return the certified minimizer of the tilted objective.

        Guarantee:
            None by itself: the minimizer is as secret as the records until it is noised.
        """
        secret = entropy.words(_SECRET).tobytes()
        decided = replace(self.rows, read=_Decided(self.rows.read, secret))
        [solution], _ = minimize_chunked(
            ChunkedLoss(decided, -tilt, decided=True),
            [ridge_of(mechanism)],
            ball=ball,
            atol=mechanism.atol,
            starts=np.zeros((1, self.width)),
            settles=True,
        )
        return within_allowance(solution, mechanism)


@dataclass(frozen=True)
class _Records:
    """From a chunk to its blocks of clipped records."""

    chunks: Chunks
    features: Features | None
    mechanism: ObjectivePerturbation
    second_moment: SecondMoment | None

    def __call__(self, chunk: Chunk) -> Iterator[tuple[str, Any, Integer[np.ndarray, " k"]]]:
        """Yield (the block's name, records, labels)."""
        nothing = np.zeros((0, width_of(self.chunks, self.features))), np.zeros(0, np.int8)
        for number, (differences, labels) in enumerate(chain([nothing], self._differences(chunk))):
            records = clipped_records(differences, self.mechanism, self.second_moment)
            yield f"{chunk.number} {number}", records, labels

    def _differences(self, chunk: Chunk) -> Iterator[tuple[Any, Integer[np.ndarray, " k"]]]:
        """Yield feature differences, and labels, of all records that carry a preference."""
        if self.features is None:
            yield from judged_vectors(self.chunks, chunk, None)
            return
        for pairs in judgments(self.chunks, chunk):
            if len(pairs):
                yield record_differences(pairs, self.features), pairs.labels


@dataclass(frozen=True)
class _Decided:
    """Blocks of records, each undecided one decided by a coin that its place decides."""

    read: Any
    secret: bytes

    def __call__(self, chunk: Chunk) -> Iterator[tuple[str, Any, Float[np.ndarray, " k"]]]:
        """Yield (the block's name, records, targets)."""
        for name, records, labels in self.read(chunk):
            yield (
                name,
                records,
                decided_labels(labels, words_of_secret(self.secret, name, len(labels))),
            )

    def __repr__(self) -> str:
        """Return the kind; no secret."""
        return "_Decided()"


@dataclass(frozen=True)
class _Outer:
    """The task: Σ xxᵀ of a block, in whole steps."""

    second_moment: SecondMoment

    def __call__(self, _name: str, records: Any, *_: Any) -> np.ndarray:
        """Return the sum over one block."""
        return self.second_moment.total(records)


def _ready(*_: Any) -> bool:
    """Return that a block could be read and its features made: so nothing is spent in vain."""
    return True


def _both(one: bool, other: bool) -> bool:  # noqa: FBT001 (parts of a sum)
    """Return the sum of two parts."""
    return one and other


def _refuse_other_features(mechanism: object, ledger: object) -> None:
    """Refuse what is no tilt or no ledger."""
    if not isinstance(mechanism, ObjectivePerturbation) or not isinstance(ledger, Ledger):
        raise UsageError(
            "fit_record_chunks needs an ObjectivePerturbation and a Ledger. Nothing was released."
        )
