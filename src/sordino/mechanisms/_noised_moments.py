"""Σxxᵀ and ΣxA of a batch with Gaussian noise on both, exact on grids, and their joint loss.

Both sums are made of the same whole-number rows, so that what one record moves in the two together
is bounded exactly, and a record cannot move both as far as each alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from sordino._random import Entropy
from sordino.errors import UsageError
from sordino.mechanisms._grid import GRID_SLACK, STEPS_OF_NOISE, clipped_rows, with_noise
from sordino.mechanisms._regressions import slot_relation
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.second_moment import SecondMoment
from sordino.privacy.guarantee import REPLACE_ONE, NeighboringRelation

__all__ = ["NoisedMoments", "joint_loss", "split_noise", "worst_cosine"]

_BITS = 20  # of a bound, in steps; fewer where so many steps of noise fit no 64 bits
_LEAST_BITS = 10
_HALF = 10  # bits of a target that are multiplied at once, so that floats add exactly
_CHUNK = 1 << 18
_MOST = 2**62
_SMALLEST = 2.0**-900


@dataclass(frozen=True, kw_only=True)
class NoisedMoments:
    """The two sums that least squares needs, and their noise.

    Args:
        feature_bound: Norm to which every row is shortened (B).
        target_bound: Bound on the absolute value of a target (R).
        moment_deviation: Noise on the diagonal of Σxxᵀ (s₁); off it the variance is half of that.
        cross_deviation: Noise of every coordinate of ΣxA (s₂).

    Raises:
        UsageError: The noise fits no grid.

    Guarantee:
        GaussianEvent of μ from :meth:`mu`, for the two sums together; no arithmetic caveat. Shown
        by tests/soundness/test_least_squares_mechanism.py.

    Source:
        docs/policy_optimization.md, "Private least squares".
    """

    feature_bound: float
    target_bound: float
    moment_deviation: float
    cross_deviation: float

    def __post_init__(self) -> None:
        """Refuse noise that no grid holds."""
        _ = self._moment
        if not 2.0**-400 <= self.target_bound <= 2.0**400 or self._cross_step < _SMALLEST:
            raise UsageError(
                f"target_bound={self.target_bound!r} with feature_bound={self.feature_bound!r} is "
                "out of the range of floats."
            )
        if self._target_bits < 1 or self._cross_scale < STEPS_OF_NOISE[0]:
            raise UsageError(
                f"cross_deviation={self.cross_deviation!r} fits no grid with "
                f"feature_bound={self.feature_bound!r} and target_bound={self.target_bound!r}: "
                "it is far too small or too large."
            )

    def mu(self, neighbors: NeighboringRelation, *, eigenvalue: float = 0.0) -> float:
        """Return the loss of both sums, and of a least eigenvalue that costs μ = ``eigenvalue``."""
        moment, cross = self._losses
        return joint_loss(neighbors, moment, cross, eigenvalue) * GRID_SLACK

    def worst_rows(self, neighbors: NeighboringRelation, *, eigenvalue: float = 0.0) -> np.ndarray:
        """Return one row, target last, of each of two neighbors that are furthest apart."""
        moment, cross = self._losses
        one = [self.feature_bound, 0.0, self.target_bound]
        if slot_relation(neighbors) != REPLACE_ONE:
            return np.array([one, [0.0, 0.0, 0.0]])
        p = worst_cosine(moment, cross, eigenvalue)
        turned = self.feature_bound * p, self.feature_bound * math.sqrt(1 - p * p)
        return np.array([one, [*turned, -self.target_bound]])

    def release(
        self, rows: Float[np.ndarray, "m d"], targets: Float[np.ndarray, " m"], *, entropy: Entropy
    ) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, " d"]]:
        """Return both sums with noise; the spend must already be on a ledger.

        Guarantee:
            That of the class.
        """
        moment = self._moment.release(rows, entropy=entropy)
        return moment, self._noised(self._cross(rows, targets), entropy)

    def repeat(
        self,
        rows: Float[np.ndarray, "m d"],
        targets: Float[np.ndarray, " m"],
        trials: int,
        *,
        entropy: Entropy,
    ) -> Float[np.ndarray, "trials numbers"]:
        """Return independent releases of made-up rows: Σxxᵀ flat, then ΣxA.

        Guarantee:
            None for all of them together. Never call it on private data.
        """
        moments = self._moment.repeat(rows, trials, entropy=entropy)
        crosses = self._noised(np.tile(self._cross(rows, targets), trials), entropy)
        return np.hstack([moments, crosses.reshape(trials, -1)])

    def log_ratio(
        self, outputs: Float[np.ndarray, "trials numbers"], one: np.ndarray, other: np.ndarray
    ) -> Float[np.ndarray, " trials"]:
        """Return log P(output | one) − log P(output | other); targets in the last columns."""
        sides = [(side[:, :-1], side[:, -1]) for side in (one, other)]
        squares = one.shape[1] - 1
        squares *= squares
        case = WorstCase(sides[0][0], sides[1][0])
        moments = self._moment.log_ratio(outputs[:, :squares], case)
        first, second = (self._cross(*side) * self._cross_step for side in sides)
        difference = (first - second) / self.cross_deviation
        distance = (outputs[:, squares:] - (first + second) / 2) / self.cross_deviation
        return np.asarray(moments + distance @ difference)

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
        return _fitting((math.log2(STEPS_OF_NOISE[1]) - math.log2(size)) / 2)

    @property
    def _target_bits(self) -> int:
        """Return how many bits of steps the target bound has."""
        size = self.cross_deviation / self.feature_bound / self.target_bound
        return _fitting(math.log2(STEPS_OF_NOISE[1]) - math.log2(size) - self._bits)

    @property
    def _moment(self) -> SecondMoment:
        """Return the mechanism of Σxxᵀ; its own statement is about that sum alone."""
        return SecondMoment(
            self.moment_deviation,
            bound=self.feature_bound,
            unit="record",
            neighbors=REPLACE_ONE,
            delta=0.5,
            grid=math.ldexp(self.feature_bound, -max(self._bits, _LEAST_BITS)),
        )

    @property
    def _cross_step(self) -> float:
        """Return the step of ΣxA: that of a row times that of a target."""
        return self._moment.step * math.ldexp(self.target_bound, -self._target_bits)

    @property
    def _cross_scale(self) -> float:
        """Return the noise of ΣxA in steps."""
        return self.cross_deviation / self._cross_step

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
            total += _products(self.steps_of(rows[part]), whole[part])
        return np.clip(total, -_MOST, _MOST).astype(np.int64)

    @property
    def step(self) -> float:
        """Return the step that rows are rounded to."""
        return self._moment.step

    def steps_of(self, rows: Float[np.ndarray, "m d"]) -> Int64[np.ndarray, "m d"]:
        """Return rows in whole steps, none longer than the bound: those that all sums are of."""
        return clipped_rows(rows, 2 ** max(self._bits, _LEAST_BITS), self._moment.step)

    def _noised(self, total: Int64[np.ndarray, " n"], entropy: Entropy) -> Float[np.ndarray, " n"]:
        """Return steps with noise, as multiples of the step."""
        return with_noise(total, self._cross_scale, entropy).astype(np.float64) * self._cross_step


def joint_loss(
    neighbors: NeighboringRelation, moment: float, cross: float, eigenvalue: float = 0.0
) -> float:
    """Return the largest μ of one change in Σxxᵀ, ΣxA and λ_min(Σxxᵀ) together.

    Each argument is what one row costs alone. A row that is emptied moves all three at once. Of two
    rows x, z at the bound with cosine p and opposite targets, Σxxᵀ moves by √(2(1 − p²))·B², ΣxA
    by √(2(1 + p))·BR and the eigenvalue by at most √(1 − p²)·B² (Weyl), and shorter rows or
    smaller targets move nothing further: (2a² + e²)(1 − p²) + 2b²(1 + p) is maximized over p.

    Args:
        neighbors: What one change is.
        moment: a = B²/s₁.
        cross: b = BR/s₂.
        eigenvalue: e = B²/s₀; 0 if no eigenvalue is released.

    Source:
        docs/policy_optimization.md, "Private least squares". Differs: the published sensitivities
        of a replacement, √2·B² and 2BR, are never attained together.

    Example:
        >>> from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL
        >>> joint_loss(REPLACE_SPECIAL, 3.0, 4.0), joint_loss(REPLACE_ONE, 1.0, 2.0)
        (5.0, 4.0)
    """
    if slot_relation(neighbors) != REPLACE_ONE:
        return math.hypot(moment, cross, eigenvalue)
    p = worst_cosine(moment, cross, eigenvalue)
    apart = math.sqrt((1 - p) * (1 + p))
    turned = math.sqrt(2) * moment * apart, eigenvalue * apart
    return math.hypot(*turned, math.sqrt(2 * (1 + p)) * cross)


def worst_cosine(moment: float, cross: float, eigenvalue: float = 0.0) -> float:
    """Return the p of :func:`joint_loss`: how far apart the two worst rows point."""
    square, other = 2 * moment * moment + eigenvalue * eigenvalue, cross * cross
    return 1.0 if other >= square else other / square


def split_noise(
    mu: float, neighbors: NeighboringRelation, shares: tuple[float, ...]
) -> tuple[float, ...]:
    """Return what one row may cost in each sum, so that all together cost ``mu``.

    Args:
        mu: Loss of all together.
        neighbors: What one change is.
        shares: Of μ², for Σxxᵀ, ΣxA and, if there is a third one, the least eigenvalue, as if
            what one change moves in each were attained at once; as it is not, all costs are then
            raised by one factor.
    """
    replaced = slot_relation(neighbors) == REPLACE_ONE
    moved = (math.sqrt(2), 2.0, 1.0) if replaced else (1.0, 1.0, 1.0)
    costs = [math.sqrt(share) / size for share, size in zip(shares, moved, strict=False)]
    unit = joint_loss(neighbors, *costs)
    return tuple(mu * cost / unit for cost in costs)


def _fitting(bits: float) -> int:
    """Return whole bits, at most as many as are used."""
    return min(_BITS, math.floor(bits))


def _products(steps: Int64[np.ndarray, "n d"], targets: Int64[np.ndarray, " n"]) -> np.ndarray:
    """Return Σ xA in whole numbers: of 20 bits each, a target in two halves."""
    rows = steps.T.astype(np.float64)
    high, low = targets >> _HALF, targets & (2**_HALF - 1)
    top, bottom = (rows @ half.astype(np.float64) for half in (high, low))
    scaled = top.astype(np.int64).astype(object) * 2**_HALF
    return np.asarray(scaled + bottom.astype(np.int64).astype(object))
