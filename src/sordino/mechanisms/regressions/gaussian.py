"""Least squares from noised sums: Σxxᵀ and ΣxA of a batch, and a ridge that may be adapted.

Both sums are made of the same whole-number rows, so that what one record moves in the two together
is bounded exactly, and a record cannot move both as far as each alone. Where every direction was
seen often, the ridge only bends the weights; a third release, of the least eigenvalue of Σxxᵀ, says
when it can be left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int64

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import UsageError
from sordino.mechanisms.base import WorstCase, gaussian_log_ratio, least_that_keeps, usable_mu
from sordino.mechanisms.gaussian import SecondMoment
from sordino.mechanisms.grid import GRID_SLACK, STEPS_OF_NOISE, clipped_rows, with_noise
from sordino.privacy.guarantee import REPLACE_ONE, GaussianEvent, NeighboringRelation

from .base import (
    Batch,
    LeastSquares,
    Oracle,
    PlayedRegression,
    Regression,
    RegressionTerms,
    keeps,
    slot_relation,
    solved,
)

_BITS = 20  # of a bound, in steps; fewer where so many steps of noise fit no 64 bits
_LEAST_BITS = 10
_HALF = 10  # bits of a target that are multiplied at once, so that floats add exactly
_CHUNK = 1 << 18
_MOST = 2**62
_SMALLEST = 2.0**-900
_STEPS = 2.0**20  # of noise on the eigenvalue
_MOST_STEPS = 2.0**61  # of an eigenvalue
_DEVIATIONS = ("moment_deviation", "cross_deviation", "eigenvalue_deviation")


def _joint_loss(
    neighbors: NeighboringRelation, moment: float, cross: float, eigenvalue: float = 0.0
) -> float:
    """Return the largest μ of one change in Σxxᵀ, ΣxA and λ_min(Σxxᵀ) together."""
    # Each argument is what one row costs alone. A row that is emptied moves all three at once. Of
    # two rows x, z at the bound with cosine p and opposite targets, Σxxᵀ moves by √(2(1 − p²))·B²,
    # ΣxA by √(2(1 + p))·BR and the eigenvalue by at most √(1 − p²)·B² (Weyl), and shorter rows or
    # smaller targets move nothing further: (2a² + e²)(1 − p²) + 2b²(1 + p) is maximized over p.
    # Source: docs/policy_optimization.md, "Private least squares". Differs: the published
    # sensitivities of a replacement, √2·B² and 2BR, are never attained together.
    if slot_relation(neighbors) != REPLACE_ONE:
        return math.hypot(moment, cross, eigenvalue)
    p = _worst_cosine(moment, cross, eigenvalue)
    apart = math.sqrt((1 - p) * (1 + p))
    turned = math.sqrt(2) * moment * apart, eigenvalue * apart
    return math.hypot(*turned, math.sqrt(2 * (1 + p)) * cross)


def _worst_cosine(moment: float, cross: float, eigenvalue: float = 0.0) -> float:
    """Return the p of :func:`_joint_loss`: how far apart the two worst rows point."""
    square, other = 2 * moment * moment + eigenvalue * eigenvalue, cross * cross
    return 1.0 if other >= square else other / square


def _split_noise(
    mu: float, neighbors: NeighboringRelation, shares: tuple[float, ...]
) -> tuple[float, ...]:
    """Return what one row may cost in each sum, so that all together cost ``mu``."""
    replaced = slot_relation(neighbors) == REPLACE_ONE
    moved = (math.sqrt(2), 2.0, 1.0) if replaced else (1.0, 1.0, 1.0)
    costs = [math.sqrt(share) / size for share, size in zip(shares, moved, strict=False)]
    unit = _joint_loss(neighbors, *costs)
    return tuple(mu * cost / unit for cost in costs)


@dataclass(frozen=True)
class GaussianRegression(PlayedRegression):
    """Least squares from Σxxᵀ and ΣxA, each released with Gaussian noise.

    Guarantee:
        GaussianEvent of μ = Δ(1 + 2^-20), Δ from :meth:`sensitivity`, for one row and target, any
        finite values and any number of rows; noise is exact on grids, with no arithmetic caveat.
        Shown by tests/soundness/test_least_squares_mechanism.py.
    """

    # The noised Σxxᵀ loses its negative eigenvalues, and a ridge is added that exceeds its noise
    # but with the failure probability; what comes out is pulled back to the radius.
    # Source: docs/policy_optimization.md, "Private least squares".

    _: KW_ONLY
    # Noise on the diagonal of Σxxᵀ (s₁); off it the variance is half of that.
    moment_deviation: float
    cross_deviation: float  # noise of every coordinate of ΣxA (s₂)
    # That the ridge is smaller than the noise; no part of the promise.
    failure_probability: float = 0.05
    _bounds: ClassVar[int] = 1  # which share the failure probability

    def __post_init__(self) -> None:
        super().__post_init__()
        deviations = dict.fromkeys(_DEVIATIONS[:2], _validate.positive)
        _validate.settle(self, **deviations, failure_probability=_validate.fraction)
        _ = self._moment
        if not 2.0**-400 <= self.target_bound <= 2.0**400 or self._cross_step < _SMALLEST:
            raise UsageError(
                f"target_bound={self.target_bound!r} with feature_bound={self.feature_bound!r} is "
                "out of the range of floats."
            )
        if self._target_bits < 1 or self.cross_deviation / self._cross_step < STEPS_OF_NOISE[0]:
            raise UsageError(
                f"cross_deviation={self.cross_deviation!r} fits no grid with "
                f"feature_bound={self.feature_bound!r} and target_bound={self.target_bound!r}: "
                "it is far too small or too large."
            )

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves all sums, each in deviations of its noise, at most."""
        # √(B⁴/s₁² + B²R²/s₂²) if a row is emptied; for one that is replaced see `_joint_loss`.
        return self._mu(neighbors) / GRID_SLACK * (1 + 2.0**-50)  # rounded up

    def ridge(self, d: int) -> float:
        """Return λ = s₁(√(2d) + √(2 log(2/η))), η the failure probability of this bound."""
        spread = math.sqrt(2 * _validate.integer("d", d, at_least=1))
        return self.moment_deviation * (spread + self._tail)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring batches, targets in the last column, that attain the loss."""
        one, other = self._worst_rows(neighbors)
        empty = np.zeros((self.rows - 1, 3))
        return WorstCase(np.vstack([one, empty]), np.vstack([other, empty]))

    def steps_of(self, rows: Float[np.ndarray, "m d"]) -> Int64[np.ndarray, "m d"]:
        """Return rows in whole steps, none longer than the bound: those that all sums are of."""
        return clipped_rows(rows, 2 ** max(self._bits, _LEAST_BITS), self._moment.step)

    def _event(self, neighbors: NeighboringRelation) -> GaussianEvent:
        return GaussianEvent(self._mu(neighbors))

    def _mu(self, neighbors: NeighboringRelation) -> float:
        """Return the loss of all that is released."""
        return _joint_loss(neighbors, *self._losses) * GRID_SLACK

    def _worst_rows(
        self, neighbors: NeighboringRelation, *, eigenvalue: float = 0.0
    ) -> Float[np.ndarray, "2 3"]:
        """Return one row, target last, of each of two neighbors that are furthest apart."""
        one = [self.feature_bound, 0.0, self.target_bound]
        if slot_relation(neighbors) != REPLACE_ONE:
            return np.array([one, [0.0, 0.0, 0.0]])
        p = _worst_cosine(*self._losses, eigenvalue)
        turned = self.feature_bound * p, self.feature_bound * math.sqrt(1 - p * p)
        return np.array([one, [*turned, -self.target_bound]])

    def _solution(self, rows: np.ndarray, targets: np.ndarray, entropy: Entropy) -> Regression:
        """Return the weights of the noised sums."""
        ridge = self._used_ridge(rows, entropy)
        moment = self._moment.release(rows, entropy=entropy)
        cross = self._noised(self._cross(rows, targets), entropy)
        variances = self.moment_deviation**2, self.cross_deviation**2
        return solved(self, moment, cross, ridge=ridge, variances=variances)

    def _used_ridge(self, rows: np.ndarray, entropy: Entropy) -> float:  # noqa: ARG002 (no draw)
        """Return the ridge of a batch."""
        return self.ridge(rows.shape[1])

    def _seen(
        self, rows: np.ndarray, targets: np.ndarray, trials: int, entropy: Entropy
    ) -> np.ndarray:
        """Return Σxxᵀ flat, then ΣxA."""
        moments = self._moment.repeat(rows, trials, entropy=entropy)
        crosses = self._noised(np.tile(self._cross(rows, targets), trials), entropy)
        return np.hstack([moments, crosses.reshape(trials, -1)])

    def _log_ratio(self, outputs: np.ndarray, one: Batch, other: Batch) -> np.ndarray:
        squares = one[0].shape[1] ** 2
        moments = self._moment.log_ratio(outputs[:, :squares], WorstCase(one[0], other[0]))
        first, second = (self._cross(*side) * self._cross_step for side in (one, other))
        crosses = gaussian_log_ratio(outputs[:, squares:], first, second, self.cross_deviation)
        return np.asarray(moments + crosses)

    @property
    def _tail(self) -> float:
        """Return how many deviations hold but with one bound's share of the failure probability."""
        return math.sqrt(2 * math.log(2 * self._bounds / self.failure_probability))

    @property
    def _losses(self) -> tuple[float, float]:
        """Return what one row alone costs in each sum: B²/s₁ and BR/s₂."""
        size = self.feature_bound
        moment = (size / self.moment_deviation) * size
        return moment, (size / self.cross_deviation) * self.target_bound

    @property
    def _bits(self) -> int:
        """Return how many bits of steps the feature bound has, so that all noise fits."""
        size = self.moment_deviation / self.feature_bound / self.feature_bound
        return min(_BITS, math.floor((math.log2(STEPS_OF_NOISE[1]) - math.log2(size)) / 2))

    @property
    def _target_bits(self) -> int:
        """Return how many bits of steps the target bound has."""
        size = self.cross_deviation / self.feature_bound / self.target_bound
        return min(_BITS, math.floor(math.log2(STEPS_OF_NOISE[1]) - math.log2(size) - self._bits))

    @property
    def _moment(self) -> SecondMoment:
        """Return the mechanism of Σxxᵀ; its own statement is about that sum alone."""
        return SecondMoment(
            self.moment_deviation,
            bound=self.feature_bound,
            neighbors=REPLACE_ONE,
            delta=0.5,
            grid=math.ldexp(self.feature_bound, -max(self._bits, _LEAST_BITS)),
        )

    @property
    def _cross_step(self) -> float:
        """Return the step of ΣxA: that of a row times that of a target."""
        return self._moment.step * math.ldexp(self.target_bound, -self._target_bits)

    def _cross(
        self, rows: Float[np.ndarray, "m d"], targets: Float[np.ndarray, " m"]
    ) -> Int64[np.ndarray, " d"]:
        """Return the exact ΣxA in steps, of the very rows that Σxxᵀ is made of, cut to ±2^62."""
        most = 2**self._target_bits
        share = np.nan_to_num(np.clip(targets / self.target_bound, -1.0, 1.0))
        whole = np.rint(share * most).astype(np.int64)
        total = np.zeros(rows.shape[1], dtype=object)
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            # of 20 bits each: a target is multiplied in two halves
            steps = self.steps_of(rows[part]).T.astype(np.float64)
            for half, size in ((whole[part] >> _HALF, 2**_HALF), (whole[part] & (2**_HALF - 1), 1)):
                total += (steps @ half.astype(np.float64)).astype(np.int64).astype(object) * size
        return np.clip(total, -_MOST, _MOST).astype(np.int64)

    def _noised(self, total: Int64[np.ndarray, " n"], entropy: Entropy) -> Float[np.ndarray, " n"]:
        """Return steps with noise, as multiples of the step."""
        step = self._cross_step
        return with_noise(total, self.cross_deviation / step, entropy).astype(np.float64) * step


@dataclass(frozen=True)
class AdaptiveRegression(GaussianRegression):
    """Least squares from Σxxᵀ, ΣxA and the least eigenvalue of Σxxᵀ, each with Gaussian noise.

    Guarantee:
        GaussianEvent of μ from :meth:`sensitivity`, for one row and target and the three releases
        together; caveat ``real-arithmetic``, for the eigenvalue is computed in floating point (its
        usual error bound is part of μ). Shown by tests/soundness/test_least_squares_mechanism.py.
    """

    # With ν the bound on the noise of Σxxᵀ and l a lower bound on its least eigenvalue, both but
    # with the failure probability, the ridge is 2ν − l, at least 0 and at most ν.
    # Source: Wang 2018 (AdaSSP), Algorithm 2; docs/policy_optimization.md, "Private least squares".
    # Differs: Gaussian noise is accounted for exactly and jointly, and the ridge is at most that of
    # the Gaussian regression.

    _: KW_ONLY
    eigenvalue_deviation: float  # noise of the least eigenvalue (s₀)
    _bounds: ClassVar[int] = 2  # on the noise of Σxxᵀ, and on the eigenvalue

    def __post_init__(self) -> None:
        _validate.settle(self, eigenvalue_deviation=_validate.positive)
        super().__post_init__()

    def adapted_ridge(self, d: int, eigenvalue: float) -> float:
        """Return the ridge after a noised least eigenvalue: 2ν − l within [0, ν]."""
        most = self.ridge(d)  # ν = s₁(√(2d) + √(2 log(4/η)))
        low = eigenvalue - self.eigenvalue_deviation * self._tail
        return min(most, max(0.0, 2 * most - low))

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two neighboring batches, targets last, that attain the loss with many slots."""
        # The other slots fill every direction but the one in which the two rows differ most, so
        # that the least eigenvalue is where they differ.
        pair = self._worst_rows(neighbors, eigenvalue=self._eigenvalue_loss)
        p, rest = pair[1, :2] / self.feature_bound if neighbors == REPLACE_ONE else (0.0, 1.0)
        filler = np.array([p, 1 + rest]) / math.hypot(p, 1 + rest) * self.feature_bound
        others = np.tile([*filler, 0.0], (self.rows - 1, 1))
        return WorstCase(np.vstack([pair[:1], others]), np.vstack([pair[1:], others]))

    @property
    def _caveats(self) -> tuple[str, ...]:
        return ("real-arithmetic",)

    def _mu(self, neighbors: NeighboringRelation) -> float:
        """Return the loss of all three releases, with what rounding may add to the third."""
        # One step of the grid; and for each of two batches the error of the products, at most m
        # roundings of mB², and that of the eigenvalue, a small multiple of d of them. Of d only a
        # bound is public here: an eigenvalue above 0 needs d ≤ m, and all others are 0.
        rounding = 2.0**-52 * self.rows * (self.rows + 32 * self.rows + 64)
        more = self._step / self.feature_bound / self.feature_bound + rounding
        loss = self._eigenvalue_loss
        together = _joint_loss(neighbors, *self._losses, loss) * GRID_SLACK
        return math.hypot(together, loss * math.sqrt(more * (2 + more)) * GRID_SLACK)

    def _used_ridge(self, rows: np.ndarray, entropy: Entropy) -> float:
        """Return the ridge that a noised eigenvalue asks for."""
        least = float(self._noised_least(rows, 1, entropy)[0])
        return self.adapted_ridge(rows.shape[1], least)

    def _seen(
        self, rows: np.ndarray, targets: np.ndarray, trials: int, entropy: Entropy
    ) -> np.ndarray:
        """Return all three releases, the eigenvalue last."""
        sums = super()._seen(rows, targets, trials, entropy)
        return np.column_stack([sums, self._noised_least(rows, trials, entropy)])

    def _log_ratio(self, outputs: np.ndarray, one: Batch, other: Batch) -> np.ndarray:
        sums = super()._log_ratio(outputs[:, :-1], one, other)
        first, second = (
            np.array([self._steps_of_least(rows)]) * self._step for rows, _ in (one, other)
        )
        least = gaussian_log_ratio(outputs[:, -1:], first, second, self.eigenvalue_deviation)
        return np.asarray(sums + least)

    @property
    def _eigenvalue_loss(self) -> float:
        """Return B²/s₀: one row moves the least eigenvalue by B² at most, also if replaced."""
        return self.feature_bound / self.eigenvalue_deviation * self.feature_bound

    @property
    def _step(self) -> float:
        """Return the step of the grid of the eigenvalue."""
        return self.eigenvalue_deviation / _STEPS

    def _steps_of_least(self, rows: Float[np.ndarray, "m d"]) -> float:
        """Return the least eigenvalue of Σxxᵀ in whole steps; 0 with fewer rows than features."""
        if len(rows) < rows.shape[1]:
            return 0.0
        seen = self.steps_of(rows) * self._moment.step  # the rows that the sums are made of
        least = max(0.0, float(np.linalg.eigvalsh(seen.T @ seen)[0]))
        return float(np.rint(min(least / self._step, _MOST_STEPS)))

    def _noised_least(
        self, rows: Float[np.ndarray, "m d"], trials: int, entropy: Entropy
    ) -> Float[np.ndarray, " trials"]:
        """Return noised least eigenvalues of the same rows."""
        total = np.full(trials, int(self._steps_of_least(rows)), dtype=np.int64)
        return with_noise(total, _STEPS, entropy).astype(np.float64) * self._step


def _with_least_noise(
    kind: Callable[..., GaussianRegression],
    terms: RegressionTerms,
    budget: tuple[float, float],
    neighbors: NeighboringRelation,
    shares: tuple[float, ...],
) -> GaussianRegression:
    """Return the regression of least noise whose sums cost these shares of μ²."""
    mu = usable_mu(*budget) / GRID_SLACK
    costs = _split_noise(mu, neighbors, shares)
    bounds = (terms.feature_bound, terms.target_bound, terms.feature_bound)
    known = vars(terms) | {"neighbors": neighbors, "delta": budget[1]}

    def sized(factor: float) -> GaussianRegression:
        size = terms.feature_bound * factor
        noise = {
            name: size * bound / cost
            for name, bound, cost in zip(_DEVIATIONS, bounds, costs, strict=False)
        }
        return kind(**known, **noise)

    return least_that_keeps(1.0, sized, lambda made: keeps(made, budget[0]))


@dataclass(frozen=True)
class GaussianStatistics(Oracle):
    """The oracle of :class:`GaussianRegression`: Gaussian noise on Σxxᵀ and on ΣxA."""

    # Source: docs/policy_optimization.md, "Private least squares".

    name: ClassVar[str] = "gaussian-statistics"

    share: float = 0.5  # part of μ² that Σxxᵀ gets, in (0, 1)
    failure_probability: float = 0.05  # as for the regression

    def __post_init__(self) -> None:
        _validate.settle(self, share=_validate.fraction, failure_probability=_validate.fraction)

    def _within_budget(
        self, terms: RegressionTerms, epsilon: float, delta: float, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return noise of this share."""
        kind = partial(GaussianRegression, failure_probability=self.failure_probability)
        shares = (self.share, 1 - self.share)
        return _with_least_noise(kind, terms, (epsilon, delta), neighbors, shares)


@dataclass(frozen=True)
class AdaptiveStatistics(Oracle):
    """The oracle of :class:`AdaptiveRegression`: the ridge follows a noised least eigenvalue."""

    # Source: Wang 2018 (AdaSSP), Algorithm 2; docs/policy_optimization.md, "Private least squares".

    name: ClassVar[str] = "adaptive-statistics"

    failure_probability: float = 0.05  # as for the regression

    def __post_init__(self) -> None:
        _validate.settle(self, failure_probability=_validate.fraction)

    def _within_budget(
        self, terms: RegressionTerms, epsilon: float, delta: float, neighbors: NeighboringRelation
    ) -> LeastSquares:
        """Return noise that costs μ/√3 for each of three sums."""
        kind = partial(AdaptiveRegression, failure_probability=self.failure_probability)
        return _with_least_noise(kind, terms, (epsilon, delta), neighbors, (1 / 3, 1 / 3, 1 / 3))
