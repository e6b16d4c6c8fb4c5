"""What all regressions of policy optimization share: their terms, and what comes out of them.

Least squares without any noise: for comparison, on a ledger that allows an infinite spend.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.base import WorstCase
from sordino.privacy.events import NonPrivateEvent
from sordino.privacy.gaussian import gaussian_mu
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

_SAME = 1e-12  # of the largest eigenvalue: below, a direction was not seen


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """The weights of one regression, and how far off privacy probably made them."""

    weights: Float[np.ndarray, " d"]  # w, of norm at most the radius. Shape (d,).
    # Estimate of the root mean square, over the rows of the batch, of xᵀw − xᵀŵ, where ŵ are the
    # weights that the same batch gives without privacy; in units of the targets. Made from public
    # and released numbers only, so it costs nothing and is no bound.
    error: float
    projected: bool = False  # whether the solution was outside the radius and was pulled back to it


@dataclass(frozen=True, kw_only=True)
class RegressionTerms:
    """What is public about a batch before anybody's row is read."""

    feature_bound: float  # norm to which every row is shortened (B), in units of the features
    target_bound: float  # every target is clipped to within plus and minus this (R)
    radius: float  # norm to which the weights are pulled back (W)
    rows: int  # number of slots in the batch (m); one user fills one

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        for name in ("feature_bound", "target_bound", "radius"):
            object.__setattr__(self, name, _validate.positive(name, getattr(self, name)))
        rows = _validate.integer("rows", self.rows, at_least=1, at_most=2**40)
        object.__setattr__(self, "rows", rows)

    def batch(
        self, rows: Float[np.ndarray, "m d"], targets: Float[np.ndarray, " m"]
    ) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, " m"]]:
        """Return rows shortened to the feature bound and targets clipped, each on its own."""
        rows = _validate.finite_array("rows", rows, ndim=2)
        targets = _validate.finite_array("targets", targets, ndim=1)
        if not len(rows) == len(targets) == self.rows or not rows.shape[1]:
            raise DataError(
                f"rows and targets must hold one row of at least one feature and one target for "
                f"each of {self.rows} slots, got shapes {rows.shape} and {targets.shape}. Nothing "
                "was released. A slot that nobody filled is a row of zeros."
            )
        clipped = np.clip(targets, -self.target_bound, self.target_bound)
        return _shortened(rows, self.feature_bound), np.asarray(clipped)

    def kept(self, weights: Float[np.ndarray, " d"], error: float) -> Regression:
        """Return weights pulled back to the radius; no error is larger than the ball allows."""
        length = float(np.linalg.norm(weights))
        found = Regression(weights=weights, error=min(error, self.widest))
        if length <= self.radius:
            return found
        return replace(found, weights=weights * (self.radius / length), projected=True)

    @property
    def widest(self) -> float:
        """Return how far apart two predictions within the radius may be: 2WB."""
        return 2 * self.radius * self.feature_bound


def slot_relation(neighbors: NeighboringRelation) -> NeighboringRelation:
    """Return a relation that fixed slots can promise."""
    _validate.one_of("neighbors", neighbors, NeighboringRelation)
    if neighbors == ADD_OR_REMOVE_ONE:
        raise PrivacyError(
            "neighbors=ADD_OR_REMOVE_ONE promises nothing here: a batch has a fixed number of "
            "slots, and a user who is removed moves all later users to another slot. Nothing was "
            "spent. Use REPLACE_SPECIAL (the slot stays and is emptied), or REPLACE_ONE."
        )
    return neighbors


def unit_of_slots(unit: Unit) -> None:
    """Refuse another unit than one row."""
    _validate.one_of("unit", unit, ("label", "record", "person"))
    if unit != "record":
        raise PrivacyError(
            f"A regression promises something about one row of a batch (unit='record'), not with "
            f"unit={unit!r}: it does not know whose rows they are. What assigns every person one "
            "slot of one batch may state the same loss for a person."
        )


def usable_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ that is (epsilon, delta)-private."""
    epsilon = _validate.positive("epsilon", epsilon)
    mu = gaussian_mu(epsilon, _validate.failure_probability("delta", delta, zero=False))
    if mu == 0:
        raise UsageError(f"delta={delta!r} is too small for Gaussian noise of any size.")
    return mu


def keeps(mechanism: Any, epsilon: float) -> bool:
    """Return whether what a regression states under its own relation is at most epsilon."""
    neighbors = mechanism.neighbors
    stated = mechanism.guarantee(unit="record", neighbors=neighbors, trust="central")
    return bool(stated.epsilon <= epsilon)


def solved(
    terms: RegressionTerms,
    moment: Float[np.ndarray, "d d"],
    cross: Float[np.ndarray, " d"],
    *,
    ridge: float,
    variances: tuple[float, float],
) -> Regression:
    """Return (M⁺ + ridge·I)⁻¹c within the radius, M⁺ the moment without negative eigenvalues."""
    eigenvalues, basis = np.linalg.eigh(moment)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    denominators = eigenvalues + ridge
    seen = denominators > _SAME * denominators.max(initial=0.0)
    turned = np.where(seen, basis.T @ cross / np.where(seen, denominators, 1.0), 0.0)
    found = terms.kept(turned, 0.0)
    shares = (
        _with_trace(eigenvalues, float(np.trace(moment))) / np.where(seen, denominators, 1.0) ** 2
    )
    error = privacy_error(shares, found.weights, ridge, variances, rows=terms.rows)
    return replace(found, weights=basis @ found.weights, error=min(error, terms.widest))


def privacy_error(
    shares: Float[np.ndarray, " d"],
    weights: Float[np.ndarray, " d"],
    ridge: float,
    variances: tuple[float, float],
    *,
    rows: int,
) -> float:
    """Return an estimate of the root mean square of xᵀ(w − ŵ) over a batch."""
    # With M = Σxxᵀ, P = M + ridge·I and noise E on M and z on ΣxA, w − ŵ is about P⁻¹(z − Ew −
    # ridge·w), and its square under M has the mean (v₂ + v₁‖w‖²/2)·tr Q + (v₁/2 + ridge²)·wᵀQw with
    # Q = P⁻¹MP⁻¹.
    moment, cross = variances
    square = weights * weights
    random = (cross + moment * float(square.sum()) / 2) * float(shares.sum())
    bent = (moment / 2 + ridge * ridge) * float(shares @ square)
    return math.sqrt((random + bent) / rows)


def _with_trace(eigenvalues: Float[np.ndarray, " d"], trace: float) -> Float[np.ndarray, " d"]:
    """Return eigenvalues less what noise added to them: the nearest with the trace as released."""
    # Noise spreads eigenvalues and hardly moves their sum; without its negative part a moment has
    # directions that no row has.
    if not trace > 0:
        return np.zeros_like(eigenvalues)
    falling = eigenvalues[::-1]
    excess = (np.cumsum(falling) - trace) / np.arange(1, len(falling) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(eigenvalues - max(0.0, excess[last]), 0.0))


def _shortened(rows: Float[np.ndarray, "m d"], most: float) -> Float[np.ndarray, "m d"]:
    """Return rows of norm at most ``most`` up to rounding; nothing in them can overflow."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    shape = rows / np.where(largest > 0, largest, 1.0)
    length = np.maximum(np.linalg.norm(shape, axis=1, keepdims=True), 1.0)
    with np.errstate(over="ignore"):  # a huge row is shortened all the same
        size = np.minimum(largest, most / length)
    return np.asarray(shape * size)


@dataclass(frozen=True)
class PlainRegression(RegressionTerms):
    """The least squares of a batch as it is, of least norm, pulled back to the radius.

    Guarantee:
        None: ε = ∞ for every relation. Only a ledger whose budget is infinite accepts it. Shown
        by tests/unit/mechanisms/test_least_squares.py.
    """

    _: KW_ONLY
    neighbors: NeighboringRelation = REPLACE_SPECIAL  # the relation, which says nothing here

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        slot_relation(self.neighbors)

    @property
    def event(self) -> NonPrivateEvent:
        """Return what one release does, for the ledger."""
        return NonPrivateEvent()

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return infinity: nothing bounds what one change shows."""
        slot_relation(neighbors)
        return math.inf

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return ε = ∞."""
        unit_of_slots(unit)
        slot_relation(neighbors)
        return Guarantee(math.inf, delta=0.0, unit=unit, neighbors=neighbors, trust=trust)

    def release(
        self,
        rows: Float[np.ndarray, "m d"],
        targets: Float[np.ndarray, " m"],
        *,
        entropy: Entropy,  # noqa: ARG002 (every regression takes it)
    ) -> Regression:
        """Return the weights of the batch; nothing is drawn.

        Guarantee:
            None: ε = ∞.
        """
        rows, targets = self.batch(rows, targets)
        return solved(self, rows.T @ rows, rows.T @ targets, ridge=0.0, variances=(0.0, 0.0))

    def predicted_error(self, d: int) -> float:  # noqa: ARG002 (every regression takes it)
        """Return 0: no privacy, no error of it."""
        return 0.0

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two batches, the target in the last column, that show as they are."""
        slot_relation(neighbors)
        one = np.zeros((self.rows, 2))
        other = one.copy()
        one[0] = self.feature_bound, self.target_bound
        return WorstCase(one, other)
