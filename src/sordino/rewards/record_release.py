"""From raw pairs to released weights under record privacy: one tilted minimizer.

A record is one judgment with its prompt, its answers and its person: all of it is private. Under
ADD_OR_REMOVE_ONE so is how many there are, and nothing here depends on that number or tells it.
Of files, tasks clip and add up; this process alone tilts, pays and noises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Integer

from sordino import _random, _validate
from sordino._random import Entropy, words_of_secret
from sordino._validate import Integers, Numbers, Table, Vector
from sordino.engines.engine import Rows
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.gaussian import SecondMoment
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.randomized_response import drawn_bits
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.chunks import Chunk, Chunks, judged_vectors, judgments, refuse_kind
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_SPECIAL, UNDECIDED
from sordino.privacy.ledger import Ledger, provenance
from sordino.privacy.ledger_chain import digest_of_array

from .confidence import ReleasedMoment, record_ellipsoid, refuse_small_ridge
from .evidence import width_of
from .model import RewardModel
from .pair_losses import DebiasedLogistic
from .release_checks import (
    UNREAD,
    held_out_rows,
    record_differences,
    record_promise,
    refuse_own_rows,
)
from .solver import ChunkedLoss, Objective, Solution, minimize_tilted, refuse_drowned, ridge_of

_SECRET: Final = 4  # words


def fit_records(  # noqa: PLR0913 (each is one choice of the user)
    records: Pairs | ChunkSurvey,
    mechanism: ObjectivePerturbation,
    *,
    ledger: Ledger,
    features: Features | None = None,
    ball: float,
    second_moment: SecondMoment | None = None,
    ellipsoid: bool | None = None,
    held_out: bool = False,
    simulate_seed: int | None = None,
) -> RewardModel:
    """Return a reward that hides every single record, after recording the spend.

    Guarantee:
        (ε, δ) of the mechanism for one record, under the relation of the ledger's budget and trust
        ``"central"``, weights and second moment together; caveat ``real-arithmetic``. Of files it
        holds wherever and however often a task runs: tasks draw nothing. That files overlap is
        refused, and that a record cannot be used, as when a single file is read: whoever sees those
        refusals holds the records. Shown by tests/soundness/test_central_record.py.
    """
    # Minimizes Σ softplus(−θᵀz) + (Λ/2)‖θ‖² + bᵀθ over ‖θ‖ ≤ ball with a random b, where z is the
    # feature difference of the preferred answer and the other one, shrunk to the bound of the
    # mechanism. Each judgment is a record of its own, also a repeated one of the same person. A
    # fair coin decides each undecided one: whichever way it falls the promise holds, and so it
    # holds for the mixture.
    # Source: docs/central.md, "Objective perturbation".
    if not isinstance(records, Pairs | ChunkSurvey):
        raise UsageError(f"pairs must be raw judgments (Pairs), got {type(records).__name__}.")
    if not isinstance(mechanism, ObjectivePerturbation) or not isinstance(ledger, Ledger):
        raise UsageError(
            "fit_records needs an ObjectivePerturbation and a Ledger. Nothing was released."
        )
    refuse_own_rows(held_out)
    if held_out and isinstance(records, ChunkSurvey):
        raise UsageError(
            "held_out is not there for records in many files. Nothing was spent. Leave it out, or "
            "read few enough of them into memory with sordino.read_pairs."
        )
    ball = _validate.workable("ball", ball)
    entropy = _random.entropy(simulate_seed)
    n = records.n + records.dropped
    promise = record_promise(mechanism, ledger, entropy, n=n, features=features)
    _refuse_unpaid(second_moment, mechanism)
    if ellipsoid and second_moment is None:
        raise UsageError(
            "A confidence set under record privacy needs a second moment: prompts and answers are "
            "private too. Nothing was spent. Make both mechanisms with joint_mechanisms."
        )
    keeps = ellipsoid is None or ellipsoid  # with a second moment
    ridge = ridge_of(mechanism)

    def refuse_useless(d: int) -> None:
        """Refuse settings with which nothing would be learned of so many features."""
        if second_moment:
            _validate.refuse_unholdable("dimension", d, 4 * d**2)  # sum, noise, steps, result
            if keeps:
                refuse_small_ridge(ridge, second_moment, d=d, ball=ball)
        refuse_drowned(mechanism, d=d, ball=ball)
        ledger.check(mechanism.event, promise=promise)  # before the work on many records

    source = _clipped(records, mechanism, second_moment, features, refuse_useless, unread=held_out)

    released = ledger.charge(
        mechanism.event,
        lambda: release_records(
            source, mechanism, ball=ball, second_moment=second_moment, entropy=entropy
        ),
        digest=digest_of_array,
        promise=promise,
        details=dict(UNREAD) if held_out else None,
    )
    d = source.shape[1]
    weights, moment, kept = released.value[:d], None, None
    if second_moment is not None:
        matrix = released.value[d:].reshape(d, d)
        moment = ReleasedMoment(matrix=matrix, mechanism=second_moment)
        if keeps:
            kept = record_ellipsoid(weights, moment, mechanism, ball=ball)
    return RewardModel(
        weights=weights,
        features=features,
        method="objective-perturbation",
        ridge=ridge,
        ball=ball,
        gradient_norm=mechanism.atol,  # a bound on it: what it was is private
        atol=mechanism.atol,
        pairs=None if promise.neighbors == ADD_OR_REMOVE_ONE else n,
        ellipsoid=kept,
        moment=moment,
        **provenance(released),
    )


def _refuse_unpaid(second_moment: SecondMoment | None, mechanism: ObjectivePerturbation) -> None:
    """Refuse a second moment that the event of the mechanism does not pay for."""
    ways = "Nothing was spent. Make both with joint_mechanisms."
    if second_moment is None:
        if mechanism.second_moment_mu > 0:
            raise UsageError(
                f"The mechanism pays for a second moment (second_moment_mu="
                f"{mechanism.second_moment_mu!r}) that was not given, and adds more noise for it. "
                "Nothing was spent. Pass second_moment, or build the mechanism without."
            )
        return
    if not second_moment.mu(REPLACE_SPECIAL) <= mechanism.second_moment_mu:
        raise PrivacyError(
            "The mechanism does not pay for this second moment: for one record its μ is "
            f"{second_moment.mu(REPLACE_SPECIAL)!r}, and "
            f"second_moment_mu={mechanism.second_moment_mu!r}. {ways}"
        )
    if second_moment.bound != mechanism.bound:
        raise UsageError(
            f"Both mechanisms must have one bound, got {mechanism.bound!r} and "
            f"{second_moment.bound!r}. {ways}"
        )


def _clipped(
    records: Pairs | ChunkSurvey,
    mechanism: ObjectivePerturbation,
    second_moment: SecondMoment | None,
    features: Features | None,
    refuse_useless: Callable[[int], None],
    *,
    unread: bool,
) -> Rows:
    """Return the clipped records that the fit may see; each could be read, or is refused here."""
    if isinstance(records, ChunkSurvey):
        width = width_of(records.chunks, features)
        refuse_useless(width)
        chunks = records.chunks
        read = partial(_clipped_blocks, chunks, features, mechanism, second_moment)
        # Nobody is told how far it is: how many passes a minimizer takes depends on the records.
        rows = Rows(records.engine, chunks, read, (records.n, width))
        rows.fold(_ready, max)
        return rows
    if unread:
        records = records.part(np.flatnonzero(~held_out_rows(records)).tolist())
    differences = record_differences(records, features)
    refuse_useless(differences.shape[1])
    return Rows.of(_clipped_records(differences, mechanism, second_moment), records.labels)


def release_records(
    records: Rows,
    mechanism: ObjectivePerturbation,
    *,
    ball: float,
    second_moment: SecondMoment | None,
    entropy: Entropy,
) -> Float[np.ndarray, " all"]:
    """Return noised weights, and the moment behind them; the spend must already be on a ledger.

    Records are feature differences x of the first answer and the second, clipped, with labels
    beside them: 1 where the first was preferred, 0 where the second was, 2 where neither.

    Guarantee:
        That of the mechanism, for both together, if the records were clipped to its bound. Shown
        by tests/soundness/test_central_record.py.
    """
    moment = np.zeros(0)
    if second_moment is not None:
        # Σ xxᵀ in whole steps: the same integers, whatever engine adds them
        total = records.fold(partial(_outer, second_moment), np.add)
        moment = second_moment.release_total(total, entropy=entropy).ravel()

    def minimize(tilt: Vector) -> Solution:
        # coins after the tilt: a seeded tilt is then the same for any number of records
        return minimize_tilted(tilted_loss(records, tilt, entropy), mechanism, ball=ball)

    weights = mechanism.release(minimize, d=records.shape[1], entropy=entropy)
    return np.concatenate([weights, moment])


def tilted_loss(records: Rows, tilt: Vector, entropy: Entropy) -> Objective:
    """Return the tilted objective without its ridge.

    Guarantee:
        None by itself: it is as secret as the records.
    """
    if records.held is not None:
        _, rows, labels = records.chunks[0]
        targets = _decided_labels(labels, entropy.words(len(labels)))
        return DebiasedLogistic(rows, targets=targets, pull=-tilt)
    # The coins of undecided records are a function of a secret of this run and of their place, so
    # that a task that is run again finds the same ones.
    secret = entropy.words(_SECRET).tobytes()
    decided = replace(records, read=_Decided(records.read, secret))
    return ChunkedLoss(decided, -tilt, decided=True)


def _clipped_records(
    differences: Table, mechanism: ObjectivePerturbation, second_moment: SecondMoment | None
) -> Table:
    """Return the feature difference of every record, clipped, and on the grid of the moment."""
    records = mechanism.clipped(differences)
    if second_moment is None:
        return records
    # Rounded to the grid of the moment, none longer than its bound: the moment is then exactly that
    # of the records that are fitted.
    step = second_moment.step
    room = second_moment.bound - step * math.sqrt(records.shape[1])
    lengths = np.linalg.norm(records, axis=1, keepdims=True)
    shrunk = records * (room / np.maximum(lengths, room))
    return np.asarray(np.rint(shrunk / step) * step)


def _decided_labels(labels: Integers, words: Integers) -> Numbers:
    """Return labels as 0 and 1; a coin decides each undecided one, and each level between."""
    # A target of ½ would have slopes of both signs, for which the δ of the mechanism is not proved.
    coins = words & np.uint64(1)
    return np.where(labels == UNDECIDED, coins, drawn_bits(labels, words)).astype(np.float64)


def _clipped_blocks(
    chunks: Chunks,
    features: Features | None,
    mechanism: ObjectivePerturbation,
    second_moment: SecondMoment | None,
    chunk: Chunk,
) -> Iterator[tuple[str, Any, Integer[np.ndarray, " k"]]]:
    """Yield (the block's name, records, labels) of all records that carry a preference."""
    refuse_kind(chunks, privatized=False)
    if features is None:
        blocks = judged_vectors(chunks, chunk)
    else:
        read = (pairs for pairs in judgments(chunks, chunk) if len(pairs))
        blocks = ((record_differences(pairs, features), pairs.labels) for pairs in read)
    nothing = np.zeros((0, width_of(chunks, features))), np.zeros(0, np.int8)
    for number, (differences, labels) in enumerate(chain([nothing], blocks)):
        clipped = _clipped_records(differences, mechanism, second_moment)
        yield f"{chunk.number} {number}", clipped, labels


@dataclass(frozen=True)
class _Decided:
    """Blocks of records, each undecided one decided by a coin that its place decides."""

    read: Callable[[Chunk], Iterable[tuple[Any, ...]]]
    secret: bytes

    def __call__(self, chunk: Chunk) -> Iterator[tuple[str, Any, Float[np.ndarray, " k"]]]:
        """Yield (the block's name, records, targets)."""
        for name, records, labels in self.read(chunk):
            coins = words_of_secret(self.secret, name, len(labels))
            yield name, records, _decided_labels(labels, coins)

    def __repr__(self) -> str:
        """Return the kind; no secret."""
        return "_Decided()"


def _outer(second_moment: SecondMoment, _name: str, records: np.ndarray, *_: object) -> np.ndarray:
    """Return Σ xxᵀ of a block, in whole steps."""
    return second_moment.total(records)


def _ready(*_: object) -> bool:
    """Return that a block could be read and its features made: so nothing is spent in vain."""
    return True
