"""The private least squares inside policy optimization: what one is, and one without any noise.

An *oracle* is a recipe without a budget, which a user passes as ``oracle=``; calibrated for a
budget and for public bounds it is a *regression*, which turns one batch of rows and targets into
weights. Another oracle is another file with two classes of these shapes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, PrivacyError
from sordino.mechanisms.base import WorstCase, stated
from sordino.mechanisms.objective_perturbation import clipped as shortened
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_SPECIAL,
    Event,
    Guarantee,
    NeighboringRelation,
    NonPrivateEvent,
    Trust,
    Unit,
)

_SAME = 1e-12  # of the largest eigenvalue: below, a direction was not seen

Batch = tuple[np.ndarray, np.ndarray]
"""Rows and targets that were clipped."""


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
        _validate.settle(
            self,
            **dict.fromkeys(("feature_bound", "target_bound", "radius"), _validate.positive),
            rows=partial(_validate.integer, at_least=1, at_most=2**40),
        )

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
        return shortened(rows, self.feature_bound), np.asarray(clipped)

    def kept(self, weights: Float[np.ndarray, " d"], error: float) -> Regression:
        """Return weights pulled back to the radius; no error is larger than the ball allows."""
        length = float(np.linalg.norm(weights))
        within = Regression(weights=weights, error=min(error, self.widest))
        if length <= self.radius:
            return within
        return replace(within, weights=weights * (self.radius / length), projected=True)

    @property
    def widest(self) -> float:
        """Return how far apart two predictions within the radius may be: 2WB."""
        return 2 * self.radius * self.feature_bound


def slot_relation(neighbors: NeighboringRelation) -> NeighboringRelation:
    """Return a relation that fixed slots can promise."""
    # Source: docs/policy_optimization.md, "Setting and privacy unit".
    _validate.one_of("neighbors", neighbors, NeighboringRelation)
    if neighbors == ADD_OR_REMOVE_ONE:
        raise PrivacyError(
            "neighbors=ADD_OR_REMOVE_ONE promises nothing here: a batch has a fixed number of "
            "slots, and a user who is removed moves all later users to another slot. Nothing was "
            "spent. Use REPLACE_SPECIAL (the slot stays and is emptied), or REPLACE_ONE."
        )
    return neighbors


@dataclass(frozen=True)
class LeastSquares(RegressionTerms, ABC):
    """One private regression: public settings are fields, a batch is only ever an argument.

    Guarantee:
        None of its own: each regression states one, about one row of a batch. Shown by
        tests/soundness/test_least_squares_mechanism.py and its siblings.
    """

    # It does not know a ledger: whoever calls `release` on private data must have reserved `event`
    # first. One row of a batch is one slot; who sits in a slot, and that nobody sits in two, is the
    # business of the algorithm.

    _: KW_ONLY
    neighbors: NeighboringRelation  # the relation that `event` is about
    delta: float = 0.0  # failure probability at which `guarantee` states ε, in [0, 1); 0 is pure
    pure: ClassVar[bool] = False  # whether a δ of 0 can be stated

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.settle(self, delta=partial(_validate.failure_probability, zero=self.pure))
        slot_relation(self.neighbors)

    @property
    def event(self) -> Event:
        """Return what one release does under :attr:`neighbors`, for the ledger."""
        return self._event(self.neighbors)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one row (unit ``"record"``); δ is :attr:`delta`."""
        _validate.one_of("unit", unit, ("label", "record", "person"))
        if unit != "record":
            raise PrivacyError(
                f"A regression promises something about one row of a batch (unit='record'), not "
                f"with unit={unit!r}: it does not know whose rows they are. What assigns every "
                "person one slot of one batch may state the same loss for a person."
            )
        return stated(
            self._event(slot_relation(neighbors)),
            delta=self.delta,
            unit=unit,
            neighbors=neighbors,
            trust=trust,
            caveats=self._caveats,
        )

    def release(
        self, rows: Float[np.ndarray, "m d"], targets: Float[np.ndarray, " m"], *, entropy: Entropy
    ) -> Regression:
        """Return weights of norm at most ``radius``; the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        return self._solution(*self.batch(rows, targets), entropy)

    @abstractmethod
    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change can move what is noised."""

    @abstractmethod
    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring batches, targets in the last column, that are told apart best."""

    @abstractmethod
    def _event(self, neighbors: NeighboringRelation) -> Event:
        """Return what one release does under a relation."""

    @abstractmethod
    def _solution(self, rows: np.ndarray, targets: np.ndarray, entropy: Entropy) -> Regression:
        """Return the weights of a batch that was clipped."""

    @property
    def _caveats(self) -> tuple[str, ...]:
        return ()


class PlayedRegression(LeastSquares):
    """A regression that an auditor can play: what is seen of a batch, and how likely it is.

    Guarantee:
        As :class:`LeastSquares`; shown by tests/statistical/test_regression_audits.py.
    """

    def repeat(
        self, values: Float[np.ndarray, "m columns"], trials: int, *, entropy: Entropy
    ) -> Float[np.ndarray, "trials numbers"]:
        """Return all that is released of made-up rows, targets last, many times over.

        Guarantee:
            None for all of them together: each row is one release. Never call it on private data.
        """
        trials = _validate.integer("trials", trials, at_least=1)
        return self._seen(*self.batch(values[:, :-1], values[:, -1]), trials, entropy)

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials numbers"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        one, other = (self.batch(side[:, :-1], side[:, -1]) for side in (case.one, case.other))
        return self._log_ratio(np.asarray(outputs), one, other)

    @abstractmethod
    def _seen(
        self, rows: np.ndarray, targets: np.ndarray, trials: int, entropy: Entropy
    ) -> np.ndarray:
        """Return all that is released of a clipped batch, one release in each row."""

    @abstractmethod
    def _log_ratio(self, outputs: np.ndarray, one: Batch, other: Batch) -> np.ndarray:
        """Return how much likelier every output is under one clipped batch than another."""


class Oracle(ABC):
    """A recipe for private least squares, without a budget: what a user passes as ``oracle=``."""

    # Every oracle checks the public terms, and adds no noise at ε = ∞.

    @property
    @abstractmethod
    def name(self) -> str:
        """Return a short name, for tables and ledger entries."""

    def calibrated(
        self, terms: RegressionTerms, epsilon: float, delta: float, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return the regression of least noise that keeps (epsilon, delta) for one batch."""
        # Guarantee: What the regression states is at most (epsilon, delta): it was computed and
        # compared. At epsilon=inf nothing is promised.
        slot_relation(neighbors)
        if epsilon == math.inf:
            return self._without_noise(terms, neighbors)
        return self._within_budget(terms, epsilon, delta, neighbors)

    def _without_noise(
        self, terms: RegressionTerms, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return the regression without a promise, for comparison."""
        return PlainRegression(**vars(terms), neighbors=neighbors)

    @abstractmethod
    def _within_budget(
        self, terms: RegressionTerms, epsilon: float, delta: float, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return the regression that keeps a finite epsilon."""


def keeps(regression: LeastSquares, epsilon: float) -> bool:
    """Return whether what a regression states under its own relation is at most epsilon."""
    neighbors = regression.neighbors
    promise = regression.guarantee(unit="record", neighbors=neighbors, trust="central")
    return promise.epsilon <= epsilon


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
    within = terms.kept(turned, 0.0)
    # Noise spreads eigenvalues and hardly moves their sum; without its negative part a moment has
    # directions that no row has: of what noise added, the nearest with the trace as released.
    spectrum, trace = np.zeros_like(eigenvalues), float(np.trace(moment))
    if trace > 0:
        falling = eigenvalues[::-1]
        excess = (np.cumsum(falling) - trace) / np.arange(1, len(falling) + 1)
        last = int(np.flatnonzero(falling > excess)[-1])
        spectrum = np.maximum(eigenvalues - max(0.0, excess[last]), 0.0)
    shares = spectrum / np.where(seen, denominators, 1.0) ** 2
    # The error is an estimate of the root mean square of xᵀ(w − ŵ) over a batch. With M = Σxxᵀ, P =
    # M + ridge·I and noise E on M and z on ΣxA, w − ŵ is about P⁻¹(z − Ew − ridge·w), and its
    # square under M has the mean (v₂ + v₁‖w‖²/2)·tr Q + (v₁/2 + ridge²)·wᵀQw with Q = P⁻¹MP⁻¹.
    first, second = variances  # of E, of z
    square = within.weights * within.weights
    random = (second + first * float(square.sum()) / 2) * float(shares.sum())
    bent = (first / 2 + ridge * ridge) * float(shares @ square)
    error = math.sqrt((random + bent) / terms.rows)
    return replace(within, weights=basis @ within.weights, error=min(error, terms.widest))


@dataclass(frozen=True)
class PlainRegression(LeastSquares):
    """The least squares of a batch as it is, of least norm, pulled back to the radius.

    Guarantee:
        None: ε = ∞ for every relation. Only a ledger whose budget is infinite accepts it. Shown
        by tests/unit/mechanisms/test_least_squares.py.
    """

    _: KW_ONLY
    neighbors: NeighboringRelation = REPLACE_SPECIAL  # the relation, which says nothing here
    pure: ClassVar[bool] = True

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return infinity: nothing bounds what one change shows."""
        slot_relation(neighbors)
        return math.inf

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two batches, the target in the last column, that show as they are."""
        slot_relation(neighbors)
        one = np.zeros((self.rows, 2))
        other = one.copy()
        one[0] = self.feature_bound, self.target_bound
        return WorstCase(one, other)

    def _event(self, neighbors: NeighboringRelation) -> NonPrivateEvent:  # noqa: ARG002 (any)
        return NonPrivateEvent()

    def _solution(
        self,
        rows: np.ndarray,
        targets: np.ndarray,
        entropy: Entropy,  # noqa: ARG002 (nothing is drawn)
    ) -> Regression:
        """Return the weights of the batch."""
        return solved(self, rows.T @ rows, rows.T @ targets, ridge=0.0, variances=(0.0, 0.0))
