"""The private least squares inside policy optimization: what one is, and the Gaussian one.

An *oracle* is a recipe without a budget, which a user passes as ``oracle=``; calibrated for a
budget and for public bounds it is a *regression*, which turns one batch of rows and targets into
weights. Another oracle is another file with two classes of these shapes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.mechanisms._calibration import least_that_keeps
from sordino.mechanisms._grid import GRID_SLACK
from sordino.mechanisms._noised_moments import split_noise
from sordino.mechanisms._regressions import (
    Regression,
    RegressionTerms,
    keeps,
    slot_relation,
    usable_mu,
)
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.gaussian_regression import GaussianRegression
from sordino.mechanisms.plain_regression import PlainRegression
from sordino.privacy.events import Event
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, Trust, Unit

__all__ = [
    "GaussianRegression",
    "GaussianStatistics",
    "LeastSquares",
    "Oracle",
    "Regression",
]


@runtime_checkable
class LeastSquares(Protocol):
    """One private regression: public settings are fields, a batch is only ever an argument.

    Every regression has the fields ``feature_bound``, ``target_bound``, ``radius``, ``rows`` and
    ``neighbors``. It does not know a ledger: whoever calls :meth:`release` on private data must
    have reserved :attr:`event` first. One row of a batch is one slot; who sits in a slot, and
    that nobody sits in two, is the business of the algorithm.

    Guarantee:
        None of its own: each regression states one. Shown, for those of this file, by
        tests/soundness/test_least_squares_mechanism.py.
    """

    @property
    def event(self) -> Event:
        """Return what one release does under ``neighbors``, for the ledger."""
        ...

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change can move what is noised.

        Raises:
            PrivacyError: For ``ADD_OR_REMOVE_ONE``, under which slots would shift.
        """
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

        Args:
            rows: One vector for each slot, shortened to ``feature_bound``; an empty slot is 0.
            targets: One number for each slot, clipped to ±``target_bound``.
            entropy: System entropy, or a seeded stream for study.

        Raises:
            DataError: A number is not finite (only its index is named), or the shapes do not fit.

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
        """Return the regression of least noise that keeps (epsilon, delta) for one batch.

        Args:
            epsilon: Bound on the privacy loss, above 0; infinity gives one without noise.
            delta: Failure probability, in (0, 1).
            feature_bound: Norm to which every row is shortened.
            target_bound: Targets are clipped to within plus and minus this.
            radius: Norm to which the weights are pulled back.
            neighbors: What one change is; ``REPLACE_SPECIAL`` or ``REPLACE_ONE``.
            rows: Number of slots in a batch.

        Raises:
            PrivacyError: ``neighbors`` is ``ADD_OR_REMOVE_ONE``.
            UsageError: A setting is out of range.
        """
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

        Raises:
            PrivacyError: ``neighbors`` is ``ADD_OR_REMOVE_ONE``.
            UsageError: A setting is out of range, or no noise keeps the promise.

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
    """The oracle of :class:`GaussianRegression`: Gaussian noise on Σxxᵀ and on ΣxA.

    Args:
        share: Part of μ² that Σxxᵀ gets, in (0, 1).
        failure_probability: As for the regression.

    Raises:
        UsageError: A setting is out of range.

    Source:
        docs/policy_optimization.md, "Private least squares".

    Example:
        >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
        >>> regression = GaussianStatistics().calibrated(
        ...     1.0, delta=1e-5, feature_bound=1.0, target_bound=2.0, radius=2.0,
        ...     neighbors=REPLACE_SPECIAL, rows=1000,
        ... )
        >>> round(regression.moment_deviation, 3), round(regression.cross_deviation, 3)
        (5.276, 10.552)
    """

    share: float = 0.5
    failure_probability: float = 0.05

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
