"""Least squares from two noised sums: the Gaussian regression inside policy optimization."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.mechanisms._grid import GRID_SLACK
from sordino.mechanisms._noised_moments import NoisedMoments
from sordino.mechanisms._regressions import (
    Regression,
    RegressionTerms,
    privacy_error,
    slot_relation,
    solved,
    unit_of_slots,
)
from sordino.mechanisms.base import WorstCase
from sordino.privacy import accounting
from sordino.privacy.events import GaussianEvent
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, Trust, Unit

__all__ = ["GaussianRegression"]


@dataclass(frozen=True)
class GaussianRegression(RegressionTerms):
    """Least squares from Σxxᵀ and ΣxA, each released with Gaussian noise.

    The noised Σxxᵀ loses its negative eigenvalues, and a ridge is added that exceeds its noise
    but with the failure probability; what comes out is pulled back to the radius.

    Args:
        feature_bound: As for every regression: see ``RegressionTerms``.
        target_bound: As there.
        radius: As there.
        rows: As there.
        moment_deviation: Noise on the diagonal of Σxxᵀ (s₁); off it the variance is half of that.
        cross_deviation: Noise of every coordinate of ΣxA (s₂).
        neighbors: The relation that :attr:`event` is about.
        delta: Failure probability at which :meth:`guarantee` states ε, in (0, 1).
        failure_probability: That the ridge is smaller than the noise; no part of the promise.

    Raises:
        UsageError: A setting is out of range, or the noise fits no grid.
        PrivacyError: ``neighbors`` is ``ADD_OR_REMOVE_ONE``.

    Guarantee:
        GaussianEvent of μ = Δ(1 + 2^-20), Δ from :meth:`sensitivity`, for one row and target, any
        finite values and any number of rows; noise is exact on grids, with no arithmetic caveat.
        Shown by tests/soundness/test_least_squares_mechanism.py.

    Source:
        docs/policy_optimization.md, "Private least squares".

    Example:
        >>> from sordino.privacy.guarantee import REPLACE_SPECIAL
        >>> regression = GaussianRegression(
        ...     feature_bound=1.0, target_bound=2.0, radius=2.0, rows=1000, delta=1e-5,
        ...     moment_deviation=4.0, cross_deviation=8.0, neighbors=REPLACE_SPECIAL,
        ... )
        >>> round(regression.event.mu, 4), round(regression.ridge(4), 2)
        (0.3536, 22.18)
    """

    _: KW_ONLY
    moment_deviation: float
    cross_deviation: float
    neighbors: NeighboringRelation
    delta: float
    failure_probability: float = 0.05

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        for name in ("moment_deviation", "cross_deviation"):
            object.__setattr__(self, name, _validate.positive(name, getattr(self, name)))
        for name in ("delta", "failure_probability"):
            value = _validate.failure_probability(name, getattr(self, name), zero=False)
            object.__setattr__(self, name, value)
        slot_relation(self.neighbors)
        _ = self._sums

    @property
    def event(self) -> GaussianEvent:
        """Return what one release does under :attr:`neighbors`, for the ledger."""
        return GaussianEvent(self._mu(self.neighbors))

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves both sums, each in deviations of its noise, at most.

        √(B⁴/s₁² + B²R²/s₂²) if a row is emptied; for one that is replaced see
        ``_noised_moments.joint_loss``.

        Raises:
            PrivacyError: For ``ADD_OR_REMOVE_ONE``.
        """
        return self._mu(neighbors) / GRID_SLACK * (1 + 2.0**-50)  # rounded up

    def ridge(self, d: int) -> float:
        """Return λ = s₁(√(2d) + √(2 log(2/η))), η the failure probability."""
        spread = math.sqrt(2 * _validate.integer("d", d, at_least=1))
        tail = math.sqrt(2 * math.log(2 / self.failure_probability))
        return self.moment_deviation * (spread + tail)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one row; δ is :attr:`delta`.

        Raises:
            PrivacyError: For another unit than ``"record"``, or for ``ADD_OR_REMOVE_ONE``.
        """
        unit_of_slots(unit)
        event = GaussianEvent(self._mu(neighbors))
        loss = accounting.composed_epsilon([(event, 1)], neighbors=neighbors, delta=self.delta)
        return Guarantee(loss, delta=self.delta, unit=unit, neighbors=neighbors, trust=trust)

    def release(
        self,
        rows: Float[np.ndarray, "m d"],
        targets: Float[np.ndarray, " m"],
        *,
        entropy: Entropy,
    ) -> Regression:
        """Return noised weights; the spend must already be on a ledger.

        Raises:
            DataError: A number is not finite (only its index is named), or the shapes do not fit.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        moment, cross = self._sums.release(*self.batch(rows, targets), entropy=entropy)
        ridge = self.ridge(len(cross))
        return solved(self, moment, cross, ridge=ridge, variances=self._variances)

    def predicted_error(self, d: int) -> float:
        """Return about what ``Regression.error`` will be if features point everywhere alike.

        That is for Σxxᵀ = (mB²/d)·I and weights at the radius: public numbers alone.
        """
        return self._predicted(d, self.ridge(d))

    def repeat(
        self, values: Float[np.ndarray, "m columns"], trials: int, *, entropy: Entropy
    ) -> Float[np.ndarray, "trials numbers"]:
        """Return both noised sums of made-up rows, targets in the last column, many times over.

        Guarantee:
            None for all of them together: each row is one release. Never call it on private data.
        """
        trials = _validate.integer("trials", trials, at_least=1)
        batch = self.batch(values[:, :-1], values[:, -1])
        return self._sums.repeat(*batch, trials, entropy=entropy)

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials numbers"], case: WorstCase
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        return self._sums.log_ratio(np.asarray(outputs), case.one, case.other)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring batches, targets in the last column, that attain the loss."""
        pair = self._sums.worst_rows(neighbors)
        empty = np.zeros((self.rows - 1, pair.shape[1]))
        return WorstCase(np.vstack([pair[:1], empty]), np.vstack([pair[1:], empty]))

    def _mu(self, neighbors: NeighboringRelation) -> float:
        """Return the loss of all that is released."""
        return self._sums.mu(neighbors)

    @property
    def _sums(self) -> NoisedMoments:
        """Return what noises the sums."""
        return NoisedMoments(
            feature_bound=self.feature_bound,
            target_bound=self.target_bound,
            moment_deviation=self.moment_deviation,
            cross_deviation=self.cross_deviation,
        )

    def _predicted(self, d: int, ridge: float) -> float:
        """Return the error where Σxxᵀ is a multiple of I and the weights are at the radius."""
        eigenvalue = self.rows / d * self.feature_bound**2
        shares = np.full(d, eigenvalue / (eigenvalue + ridge) ** 2)
        weights = np.full(d, self.radius / math.sqrt(d))
        error = privacy_error(shares, weights, ridge, self._variances, rows=self.rows)
        return min(error, self.widest)

    @property
    def _variances(self) -> tuple[float, float]:
        """Return the variances of the noise of both sums."""
        return self.moment_deviation**2, self.cross_deviation**2
