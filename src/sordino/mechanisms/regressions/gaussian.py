"""Σxxᵀ and ΣxA of a batch with Gaussian noise on both, exact on grids, and their joint loss.

Both sums are made of the same whole-number rows, so that what one record moves in the two together
is bounded exactly, and a record cannot move both as far as each alone.

Least squares from two noised sums: the Gaussian regression inside policy optimization.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Float, Int64

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import UsageError
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.gaussian import SecondMoment
from sordino.mechanisms.grid import GRID_SLACK, STEPS_OF_NOISE, clipped_rows, with_noise
from sordino.privacy import accounting
from sordino.privacy.events import GaussianEvent
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, NeighboringRelation, Trust, Unit

from .base import Regression, RegressionTerms, privacy_error, slot_relation, solved, unit_of_slots

_BITS = 20  # of a bound, in steps; fewer where so many steps of noise fit no 64 bits
_LEAST_BITS = 10
_HALF = 10  # bits of a target that are multiplied at once, so that floats add exactly
_CHUNK = 1 << 18
_MOST = 2**62
_SMALLEST = 2.0**-900


@dataclass(frozen=True, kw_only=True)
class NoisedMoments:
    """The two sums that least squares needs, and their noise.

    Guarantee:
        GaussianEvent of μ from :meth:`mu`, for the two sums together; no arithmetic caveat. Shown
        by tests/soundness/test_least_squares_mechanism.py.
    """

    # Source: docs/policy_optimization.md, "Private least squares".

    feature_bound: float  # norm to which every row is shortened (B)
    target_bound: float  # bound on the absolute value of a target (R)
    # Noise on the diagonal of Σxxᵀ (s₁); off it the variance is half of that.
    moment_deviation: float
    cross_deviation: float  # noise of every coordinate of ΣxA (s₂)

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
    """Return the largest μ of one change in Σxxᵀ, ΣxA and λ_min(Σxxᵀ) together."""
    # Each argument is what one row costs alone. A row that is emptied moves all three at once. Of
    # two rows x, z at the bound with cosine p and opposite targets, Σxxᵀ moves by √(2(1 − p²))·B²,
    # ΣxA by √(2(1 + p))·BR and the eigenvalue by at most √(1 − p²)·B² (Weyl), and shorter rows or
    # smaller targets move nothing further: (2a² + e²)(1 − p²) + 2b²(1 + p) is maximized over p.
    # Source: docs/policy_optimization.md, "Private least squares". Differs: the published
    # sensitivities of a replacement, √2·B² and 2BR, are never attained together.
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
    """Return what one row may cost in each sum, so that all together cost ``mu``."""
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


@dataclass(frozen=True)
class GaussianRegression(RegressionTerms):
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
    neighbors: NeighboringRelation  # the relation that `event` is about
    delta: float  # failure probability at which `guarantee` states ε, in (0, 1)
    # That the ridge is smaller than the noise; no part of the promise.
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
        """Return how far one change moves both sums, each in deviations of its noise, at most."""
        # √(B⁴/s₁² + B²R²/s₂²) if a row is emptied; for one that is replaced see
        # `_noised_moments.joint_loss`.
        return self._mu(neighbors) / GRID_SLACK * (1 + 2.0**-50)  # rounded up

    def ridge(self, d: int) -> float:
        """Return λ = s₁(√(2d) + √(2 log(2/η))), η the failure probability."""
        spread = math.sqrt(2 * _validate.integer("d", d, at_least=1))
        tail = math.sqrt(2 * math.log(2 / self.failure_probability))
        return self.moment_deviation * (spread + tail)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one row; δ is :attr:`delta`."""
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

        Guarantee:
            What :meth:`guarantee` returns.
        """
        moment, cross = self._sums.release(*self.batch(rows, targets), entropy=entropy)
        ridge = self.ridge(len(cross))
        return solved(self, moment, cross, ridge=ridge, variances=self._variances)

    def predicted_error(self, d: int) -> float:
        """Return about what ``Regression.error`` will be if features point everywhere alike."""
        # That is for Σxxᵀ = (mB²/d)·I and weights at the radius: public numbers alone.
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
