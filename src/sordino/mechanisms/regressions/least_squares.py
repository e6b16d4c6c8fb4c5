"""The private least squares inside policy optimization: what one is, and the Gaussian one.

An *oracle* is a recipe without a budget, which a user passes as ``oracle=``; calibrated for a
budget and for public bounds it is a *regression*, which turns one batch of rows and targets into
weights. Another oracle is another file with two classes of these shapes.

Least squares whose ridge is chosen by a noised least eigenvalue: no ridge where none is needed.

Where every direction was seen often, the ridge of the Gaussian regression only bends the weights;
a third release, of the least eigenvalue of Σxxᵀ, says when it can be left out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.grid import GRID_SLACK, least_that_keeps, with_noise
from sordino.privacy.events import Event
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, NeighboringRelation, Trust, Unit

from .base import (
    PlainRegression,
    Regression,
    RegressionTerms,
    keeps,
    slot_relation,
    solved,
    usable_mu,
)
from .gaussian import GaussianRegression, split_noise


@runtime_checkable
class LeastSquares(Protocol):
    """One private regression: public settings are fields, a batch is only ever an argument.

    Guarantee:
        None of its own: each regression states one. Shown, for those of this file, by
        tests/soundness/test_least_squares_mechanism.py.
    """

    # Every regression has the fields `feature_bound`, `target_bound`, `radius`, `rows` and
    # `neighbors`. It does not know a ledger: whoever calls `release` on private data must have
    # reserved `event` first. One row of a batch is one slot; who sits in a slot, and that nobody
    # sits in two, is the business of the algorithm.

    @property
    def event(self) -> Event:
        """Return what one release does under ``neighbors``, for the ledger."""
        ...

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change can move what is noised."""
        ...

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one row (unit ``"record"``)."""
        ...

    def release(
        self,
        rows: Float[np.ndarray, "m d"],
        targets: Float[np.ndarray, " m"],
        *,
        entropy: Entropy,
    ) -> Regression:
        """Return weights of norm at most ``radius``; the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns. Shown by
            tests/soundness/test_least_squares_mechanism.py and its siblings.
        """
        ...

    def predicted_error(self, d: int) -> float:
        """Return, from public numbers alone, about how large ``Regression.error`` will be."""
        ...

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring batches, targets in the last column, that are told apart best."""
        ...


@runtime_checkable
class Oracle(Protocol):
    """A recipe for private least squares, without a budget: what a user passes as ``oracle=``."""

    @property
    def name(self) -> str:
        """Return a short name, for tables and ledger entries."""
        ...

    def calibrated(
        self,
        epsilon: float,
        *,
        delta: float,
        feature_bound: float,
        target_bound: float,
        radius: float,
        neighbors: NeighboringRelation,
        rows: int,
    ) -> LeastSquares:
        """Return the regression of least noise that keeps (epsilon, delta) for one batch."""
        ...


class RegressionOracle(ABC):
    """What every oracle does alike: it checks the public terms, and adds no noise at ε = ∞."""

    def calibrated(
        self,
        epsilon: float,
        *,
        delta: float,
        feature_bound: float,
        target_bound: float,
        radius: float,
        neighbors: NeighboringRelation,
        rows: int,
    ) -> LeastSquares:
        """Return the regression of least noise that keeps (epsilon, delta); see :class:`Oracle`.

        Guarantee:
            What the regression states is at most (epsilon, delta): it was computed and compared.
            At epsilon=inf nothing is promised.
        """
        terms = RegressionTerms(
            feature_bound=feature_bound, target_bound=target_bound, radius=radius, rows=rows
        )
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


@dataclass(frozen=True)
class GaussianStatistics(RegressionOracle):
    """The oracle of :class:`GaussianRegression`: Gaussian noise on Σxxᵀ and on ΣxA."""

    # Source: docs/policy_optimization.md, "Private least squares".

    share: float = 0.5  # part of μ² that Σxxᵀ gets, in (0, 1)
    failure_probability: float = 0.05  # as for the regression

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        for name in ("share", "failure_probability"):
            _validate.failure_probability(name, getattr(self, name), zero=False)

    @property
    def name(self) -> str:
        """Return a short name."""
        return "gaussian-statistics"

    def _within_budget(
        self, terms: RegressionTerms, epsilon: float, delta: float, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return noise of this share."""
        mu = usable_mu(epsilon, delta) / GRID_SLACK
        moment, cross = split_noise(mu, neighbors, (self.share, 1 - self.share))

        def make(factor: float) -> GaussianRegression:
            size = terms.feature_bound * factor
            return GaussianRegression(
                **vars(terms),
                moment_deviation=size * terms.feature_bound / moment,
                cross_deviation=size * terms.target_bound / cross,
                neighbors=neighbors,
                delta=delta,
                failure_probability=self.failure_probability,
            )

        return least_that_keeps(1.0, make, lambda made: keeps(made, epsilon))


_STEPS = 2.0**20  # of noise on the eigenvalue
_MOST = 2.0**61


@dataclass(frozen=True)
class AdaptiveRegression(GaussianRegression):
    """Least squares from Σxxᵀ, ΣxA and the least eigenvalue of Σxxᵀ, each with Gaussian noise.

    Guarantee:
        GaussianEvent of μ from :meth:`sensitivity`, for one row and target and the three
        releases together; caveat ``real-arithmetic``, for the eigenvalue is computed in floating
        point (its usual error bound is part of μ). Shown by
        tests/soundness/test_least_squares_mechanism.py.
    """

    # With ν the bound on the noise of Σxxᵀ and l a lower bound on its least eigenvalue, both but
    # with the failure probability, the ridge is 2ν − l, at least 0 and at most ν.
    # Source: Wang 2018 (AdaSSP), Algorithm 2; docs/policy_optimization.md, "Private least squares".
    # Differs: Gaussian noise is accounted for exactly and jointly, and the ridge is at most that of
    # the Gaussian regression.

    _: KW_ONLY
    eigenvalue_deviation: float  # noise of the least eigenvalue (s₀)

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        size = _validate.positive("eigenvalue_deviation", self.eigenvalue_deviation)
        object.__setattr__(self, "eigenvalue_deviation", size)
        super().__post_init__()

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one row, with its caveat; δ is :attr:`delta`."""
        promise = super().guarantee(unit=unit, neighbors=neighbors, trust=trust)
        return promise.with_caveats("real-arithmetic")

    def adapted_ridge(self, d: int, eigenvalue: float) -> float:
        """Return the ridge after a noised least eigenvalue: 2ν − l within [0, ν]."""
        most = self.ridge(d)
        low = eigenvalue - self.eigenvalue_deviation * self._tail
        return min(most, max(0.0, 2 * most - low))

    def ridge(self, d: int) -> float:
        """Return ν = s₁(√(2d) + √(2 log(4/η))), η the failure probability."""
        spread = math.sqrt(2 * _validate.integer("d", d, at_least=1))
        return self.moment_deviation * (spread + self._tail)

    def release(
        self,
        rows: Float[np.ndarray, "m d"],
        targets: Float[np.ndarray, " m"],
        *,
        entropy: Entropy,
    ) -> Regression:
        """Return noised weights; the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        rows, targets = self.batch(rows, targets)
        least = float(self._noised_least(rows, 1, entropy)[0])
        moment, cross = self._sums.release(rows, targets, entropy=entropy)
        ridge = self.adapted_ridge(len(cross), least)
        return solved(self, moment, cross, ridge=ridge, variances=self._variances)

    def predicted_error(self, d: int) -> float:
        """Return about what ``Regression.error`` will be if features point everywhere alike."""
        # As for the Gaussian regression, with the ridge that the eigenvalue mB²/d gives.
        least = self.rows / _validate.integer("d", d, at_least=1) * self.feature_bound**2
        return self._predicted(d, self.adapted_ridge(d, least))

    def repeat(
        self, values: Float[np.ndarray, "m columns"], trials: int, *, entropy: Entropy
    ) -> Float[np.ndarray, "trials numbers"]:
        """Return all three releases of made-up rows, the eigenvalue last, many times over.

        Guarantee:
            None for all of them together: each row is one release. Never call it on private data.
        """
        sums = super().repeat(values, trials, entropy=entropy)
        rows, _ = self.batch(values[:, :-1], values[:, -1])
        return np.column_stack([sums, self._noised_least(rows, trials, entropy)])

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials numbers"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        outputs = np.asarray(outputs)
        batches = (self.batch(side[:, :-1], side[:, -1]) for side in (case.one, case.other))
        one, other = (self._steps_of_least(rows) * self._step for rows, _ in batches)
        apart = (one - other) / self.eigenvalue_deviation
        distance = (outputs[:, -1] - (one + other) / 2) / self.eigenvalue_deviation
        return super().log_ratio(outputs[:, :-1], case) + apart * distance

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring batches, targets last, that attain the loss with many slots."""
        # The other slots fill every direction but the one in which the two rows differ most, so
        # that the least eigenvalue is where they differ.
        pair = self._sums.worst_rows(neighbors, eigenvalue=self._eigenvalue_loss)
        p, rest = pair[1, :2] / self.feature_bound if neighbors == REPLACE_ONE else (0.0, 1.0)
        filler = np.array([p, 1 + rest]) / math.hypot(p, 1 + rest) * self.feature_bound
        others = np.tile([*filler, 0.0], (self.rows - 1, 1))
        return WorstCase(np.vstack([pair[:1], others]), np.vstack([pair[1:], others]))

    def _mu(self, neighbors: NeighboringRelation) -> float:
        """Return the loss of all three releases, with what rounding may add to the third."""
        loss, more = self._eigenvalue_loss, self._allowance
        together = self._sums.mu(neighbors, eigenvalue=loss)
        return math.hypot(together, loss * math.sqrt(more * (2 + more)) * GRID_SLACK)

    @property
    def _eigenvalue_loss(self) -> float:
        """Return B²/s₀: one row moves the least eigenvalue by B² at most, also if replaced."""
        return self.feature_bound / self.eigenvalue_deviation * self.feature_bound

    @property
    def _allowance(self) -> float:
        """Return what rounding adds to a move of the eigenvalue, as a share of B²."""
        # One step of the grid; and for each of two batches the error of the products, at most m
        # roundings of mB², and that of the eigenvalue, a small multiple of d of them. Of d only a
        # bound is public here: an eigenvalue above 0 needs d ≤ m, and all others are 0.
        rounding = 2.0**-52 * self.rows * (self.rows + 32 * self.rows + 64)
        return self._step / self.feature_bound / self.feature_bound + rounding

    @property
    def _step(self) -> float:
        """Return the step of the grid of the eigenvalue."""
        return self.eigenvalue_deviation / _STEPS

    @property
    def _tail(self) -> float:
        """Return how many deviations hold but with half the failure probability."""
        return math.sqrt(2 * math.log(4 / self.failure_probability))

    def _steps_of_least(self, rows: Float[np.ndarray, "m d"]) -> float:
        """Return the least eigenvalue of Σxxᵀ in whole steps; 0 with fewer rows than features."""
        if len(rows) < rows.shape[1]:
            return 0.0
        seen = self._sums.steps_of(rows) * self._sums.step  # the rows that the sums are made of
        least = max(0.0, float(np.linalg.eigvalsh(seen.T @ seen)[0]))
        return float(np.rint(min(least / self._step, _MOST)))

    def _noised_least(
        self, rows: Float[np.ndarray, "m d"], trials: int, entropy: Entropy
    ) -> Float[np.ndarray, " trials"]:
        """Return noised least eigenvalues of the same rows."""
        total = np.full(trials, int(self._steps_of_least(rows)), dtype=np.int64)
        return with_noise(total, _STEPS, entropy).astype(np.float64) * self._step


@dataclass(frozen=True)
class AdaptiveStatistics(RegressionOracle):
    """The oracle of :class:`AdaptiveRegression`: the ridge follows a noised least eigenvalue."""

    # Source: Wang 2018 (AdaSSP), Algorithm 2; docs/policy_optimization.md, "Private least squares".

    failure_probability: float = 0.05  # as for the regression

    def __post_init__(self) -> None:
        """Refuse a setting that is out of range."""
        _validate.failure_probability("failure_probability", self.failure_probability, zero=False)

    @property
    def name(self) -> str:
        """Return a short name."""
        return "adaptive-statistics"

    def _within_budget(
        self, terms: RegressionTerms, epsilon: float, delta: float, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return noise that costs μ/√3 for each of three sums."""
        mu = usable_mu(epsilon, delta) / GRID_SLACK
        moment, cross, least = split_noise(mu, neighbors, (1 / 3, 1 / 3, 1 / 3))

        def make(factor: float) -> AdaptiveRegression:
            size = terms.feature_bound * factor
            return AdaptiveRegression(
                **vars(terms),
                moment_deviation=size * terms.feature_bound / moment,
                cross_deviation=size * terms.target_bound / cross,
                eigenvalue_deviation=size * terms.feature_bound / least,
                neighbors=neighbors,
                delta=delta,
                failure_probability=self.failure_probability,
            )

        return least_that_keeps(1.0, make, lambda made: keeps(made, epsilon))
