"""From raw pairs to released weights under record privacy: one tilted minimizer.

A record is one judgment with its prompt, its answers and its person: all of it is private. Under
ADD_OR_REMOVE_ONE so is how many there are, and nothing here depends on that number or tells it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from sordino import _random
from sordino.errors import UsageError
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.second_moment import SecondMoment
from sordino.preferences.features import Features
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger

from .paid_metrics import UNREAD, checked_rows
from .record_checks import record_differences
from .record_confidence import RecordEllipsoid, record_ellipsoid
from .record_sums import HeldRecords, RecordSums, clipped_records
from .record_terms import RecordTerms
from .released_moment import ReleasedMoment
from .solver import Solution
from .tilted_minimizer import ridge_of

__all__ = ["METHOD", "RecordFit", "fit_records", "release_records", "spend_on_records"]

METHOD = "objective-perturbation"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordFit:
    """Weights released under record privacy; every field may be published.

    Attributes:
        weights: Shape (d,), in units of log odds of being preferred.
        features: Turns prompt and answer into a vector; None for feature differences.
        guarantee: What the release promises.
        ridge: Λ.
        ball: B; the minimizer lies inside, the noise of the output is added to it.
        gradient_norm: Bound on the gradient at the minimizer. What it was there is private.
        atol: The same bound.
        pairs: How many records there are, with those dropped; None where that is private.
        ellipsoid: The confidence set that pessimistic policies need, or None.
        moment: The noised second moment of the records, or None.
        release_ids: The ledger entry that paid.
        artifact: SHA-256 of what was released.
        method: ``"objective-perturbation"``.
    """

    weights: Float[np.ndarray, " d"]
    features: Features | None
    guarantee: Guarantee
    ridge: float
    ball: float
    gradient_norm: float
    atol: float
    pairs: int | None
    ellipsoid: RecordEllipsoid | None
    moment: ReleasedMoment | None
    release_ids: tuple[str, ...]
    artifact: str
    method: str = METHOD

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

    Minimizes Σ softplus(−θᵀz) + (Λ/2)‖θ‖² + bᵀθ over ‖θ‖ ≤ ball with a random b, where z is the
    feature difference of the preferred answer and the other one, shrunk to the bound of the
    mechanism. Each judgment is a record of its own, also a repeated one of the same person. A
    fair coin decides each undecided one: whichever way it falls the promise holds, and so it
    holds for the mixture.

    Args:
        pairs: Raw judgments.
        mechanism: The tilt and its ridge; choose them before you look at the data.
        ledger: Where the spend is recorded before any noise is drawn; its budget is for records,
            and its relation is the one that is promised.
        features: Turns texts into vectors, each row by itself; left out for pairs made by
            ``from_features``.
        ball: Bound on the norm of the weights, chosen before the data are seen.
        second_moment: Also release Σ zzᵀ, which a confidence set needs. Both mechanisms come
            from :func:`sordino.mechanisms.second_moment.joint_mechanisms`, and one entry pays
            for both.
        ellipsoid: Whether to keep a confidence set; by default if there is a second moment.
        held_out: Records that are left for metrics, from
            :func:`~sordino.rewards.paid_metrics.held_out_rows`: the fit does not see them. How
            many they are is private, so ``pairs`` stays the number of all records.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        PrivacyError: The ledger counts labels or persons, or another relation; the second moment
            was not paid for by the mechanism; or other rows are held out.
        BudgetExceeded: The spend would pass the budget; no noise was drawn.
        UsageError: A setting is out of range, or the ridge is too small for a confidence set.
        DataError: Features are not finite. Which record it is is not said.

    Guarantee:
        (ε, δ) of the mechanism for one record, under the relation of the ledger's budget and
        trust ``"central"``, weights and second moment together; caveat ``real-arithmetic``. Shown
        by tests/soundness/test_central_record.py.

    Source:
        docs/central.md, "Objective perturbation".
    """
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

    Args:
        records: Clipped to the bound of the mechanism, and on the grid of the second moment.
        terms: What is promised and kept.
        ledger: Where the spend is recorded before any noise is drawn.
        features: Kept beside the weights.
        details: For the ledger entry.

    Raises:
        BudgetExceeded: The spend would pass the budget; no noise was drawn.
        UsageError: A setting is out of range, or the ridge is too small for a confidence set.

    Guarantee:
        That of :func:`fit_records`.
    """
    mechanism, ball = terms.mechanism, terms.ball
    terms.refuse_useless(records.width)
    reservation = ledger.reserve(mechanism.event, promise=terms.promise, details=details)
    together = reservation.drawn_once(lambda: _packed(records, terms))
    weights, moment = _unpacked(together, records.width, terms)
    artifact = _digest(weights, moment)
    reservation.commit(artifact)
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
        release_ids=(reservation.release_id,),
        artifact=artifact,
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

    Args:
        records: Clipped to the bound of the mechanism.
        mechanism: The tilt.
        ball: Bound on the norm of the minimizer.
        second_moment: What releases Σ xxᵀ too, or None.
        entropy: Source of 64-bit words.

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
    """Return the records that the fit sees.

    Raises:
        PrivacyError: Other rows are held out than the public rule says.
    """
    if held_out is None:
        return pairs
    return pairs.part(np.flatnonzero(~checked_rows(pairs, held_out)).tolist())


def _digest(weights: Float[np.ndarray, " d"], moment: ReleasedMoment | None) -> str:
    """Return the SHA-256 of what was released, and of nothing else."""
    digest = hashlib.sha256(weights.astype("<f8").tobytes())
    if moment is not None:
        digest.update(moment.matrix.astype("<f8").tobytes())
    return digest.hexdigest()
