"""How far one change of the data moves scores that are withheld: of arms, and of linear rewards.

Every number here is the range (greatest minus least) of the change h of the scores between
neighboring data sets, in units of reward and rounded up: divided by the temperature of a Gibbs
policy it bounds the privacy loss of one draw.

Arms of a bandit. Rewards count from the lower end of their public range, which they are cut to.
Formulas are computed in fractions.

Ridge regression. The estimate minimizes Σ(r − θᵀφ)² + ridge·‖θ‖² with ‖φ‖ ≤ 1 and r in an interval.
Its score of an action is θᵀφ, less penalty·‖φ‖_{Σ⁻¹} with Σ = ridge·I + Σφφᵀ.

Preferences. The estimate minimizes Σ log(1 + e^{θᵀx}) − yθᵀx + (ridge/2)‖θ‖², over ‖θ‖ ≤ ball where
a ball is given, with x = φ(first) − φ(second), ‖x‖ ≤ ``bound``; its score is that of a regression
with Σ = penalty_ridge·I + Σxxᵀ. Of public questions one label moves a fit inside a ball only as far
as the curvature that it meets permits.

Bounds are arithmetic of public numbers that rounding never makes too small. Notation: u = 2^-53. A
sum of m products, in any order and with or without fused multiply-adds, is wrong by at most
m·u/(1 − m·u) of the sum of absolute values. Sums of absolute values of entries of XᵀX form a matrix
whose spectral norm is at most trace XᵀX.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import numpy as np
from jaxtyping import Float, Integer
from scipy import linalg
from scipy.linalg import blas
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from sordino import _validate
from sordino._validate import MODERATE, moderate
from sordino.engines.engine import added_in_pairs
from sordino.errors import DataError, UsageError

from .gibbs import rounded_up
from .grid import Matrix, dense_parts

UP: Final = 1 + 2.0**-40
"""More than a few dozen roundings take from a formula without cancellation."""


def public_rows(name: str, rows: Matrix, *, d: int | None = None) -> Matrix:
    """Return public rows as floats, dense or as a sparse array by rows."""
    if issparse(rows):
        rows = csr_array(rows)
        values = _validate.finite_array(name, rows.data, ndim=1)
        rows = csr_array((values, rows.indices, rows.indptr), shape=rows.shape)
    else:
        rows = values = _validate.finite_array(name, rows, ndim=2)
    if d is not None and rows.shape[1] != d:
        raise DataError(f"{name} must have {d} columns, got shape {rows.shape}.")
    largest = float(np.abs(values).max(initial=0.0))
    least, most = MODERATE
    if largest and not least <= largest <= most:
        raise DataError(f"{name}: the largest number must be 0, or within {least} and {most}.")
    return rows


def farthest_rows(rows: Float[np.ndarray, "k d"]) -> float:
    """Return the largest Euclidean distance between two rows, rounded up."""
    # Distances come from products of rows less the first one, whose norms are distances too: a
    # square is wrong by less than (4d + 16)·2^-52 of the largest square.
    centered = rows - rows[:1]
    largest = float(np.abs(centered).max(initial=0.0))
    if largest == 0:
        return 0.0
    centered = centered / (scale := math.ldexp(1.0, math.frexp(largest)[1]))
    squares = np.einsum("kd,kd->k", centered, centered)
    most = float(squares.max())
    slack = most * (4 * rows.shape[1] + 16) * 2.0**-52
    for first in range(0, len(rows), 1024):
        block = slice(first, first + 1024)
        # SciPy's BLAS, because the rows come from it: two pools of threads wait for each other.
        products = blas.dgemm(1.0, centered[block].T, centered.T, trans_a=1)
        most = max(most, float((squares[block, np.newaxis] + squares - 2 * products).max()))
    return math.sqrt(most + slack) * scale * UP


def penalty_step(size: float, *, step: float = 1.0) -> float:
    """Return 1/√size − 1/√(size + step), without cancellation."""
    # What a pessimistic score loses is β/√(count + shrinkage), or β times a norm in the inverse of
    # a second moment of least eigenvalue `size` that one record raises by at most `step`.
    # Source: docs/intrinsic.md, "Setting and lemmas".
    size, step = _validate.positive("size", size), _validate.positive("step", step)
    before, after = math.sqrt(size), math.sqrt(size + step)
    # (after − before)/(before·after), with after − before = step/(before + after)
    return step / (before + after) / before / after


MORE: Final = 1 + Fraction(1, 2**48)  # above eight roundings of floats, or many of 50 digits
SMALLEST: Final = math.ulp(0.0)  # above what an underflow can lose


def exact(name: str, value: float) -> Fraction:
    """Return value as a fraction; refuse what is below zero or not finite."""
    result = _validate.non_negative(name, value)
    if result == math.inf:
        raise UsageError(f"{name} must be finite, got {value!r}.")
    return Fraction(result)


def penalty_moves(penalty: float, size: Fraction) -> Fraction:
    """Return how far one record beyond ``size`` moves the penalty, at least."""
    strength = exact("penalty", penalty)
    return strength * (Fraction(penalty_step(float(size))) * MORE + Fraction(SMALLEST))


BLOCK: Final = 512
"""Rows that are summed at once; sums of blocks are added in pairs."""

ROUNDING: Final = 2.0**-52
"""Twice the unit roundoff: the other half pays for all terms of second order."""


@dataclass(frozen=True)
class _BoundedGram:
    """Σ w_i x_i x_iᵀ up to rounding."""

    matrix: Float[np.ndarray, "d d"]  # the computed sum, shape (d, d)
    error: float  # bound on the spectral norm of the computed less the exact sum
    trace: float  # upper bound on the trace of both

    @classmethod
    def of(cls, rows: Matrix, weights: Float[np.ndarray, " n"] | None = None) -> _BoundedGram:
        """Return the sum over rows, dense or sparse, with weights of at least 0."""
        # Source: docs/intrinsic.md, "Linear bandits": at most 512 + 4 + 3·log2(blocks) roundings on
        # the way of a product into the sum.
        n, d = rows.shape
        roots = np.ones(n) if weights is None else np.sqrt(weights)
        blocks = (block * roots[at, np.newaxis] for at, block in dense_parts(rows, BLOCK))
        sums = added_in_pairs((block.T @ block for block in blocks), operator.add)
        matrix = sum((total for _, total in reversed(sums)), np.zeros((d, d)))
        trace = float(np.trace(matrix)) * (1 + 2.0**-20)
        steps = min(BLOCK, n) + 4 + 2 * max((level for level, _ in sums), default=0) + len(sums)
        return cls(matrix, steps * ROUNDING * trace, trace)


def shrunken_mean_range(
    shrinkage: float, *, reward_range: float, center: float | None = None, penalty: float = 0.0
) -> float:
    """Return how far one record moves shrunken means, less a penalty, whatever the data are."""
    # Guarantee: An upper bound for every two neighboring data sets of unit ``"record"``, of any
    # size. Shown by tests/soundness/test_arm_sensitivity.py.
    # f(a) = (S_a + λ·center)/(N_a + λ) − β/√(N_a + λ), with S_a the sum of N_a rewards in [0, R].
    # One more record of one arm, for `ADD_OR_REMOVE_ONE` and `REPLACE_SPECIAL`:
    #     range ≤ c/(λ + 1) + β·(1/√λ − 1/√(λ + 1)),   c = max(center, R − center).
    # Attained, for `center` ≤ R/2 or without a penalty, by the first record of an arm whose reward
    # is as far from `center` as can be. Above R/2 the penalty works against that record.
    # Source: KLDP, Theorem 1; docs/intrinsic.md, "Multi-armed bandits". Differs: the bound of the
    # paper needs the least count of the private data, this one needs nothing.
    size = Fraction(_validate.positive("shrinkage", shrinkage))
    width = Fraction(_validate.positive("reward_range", reward_range))
    middle = width / 2 if center is None else exact("center", center)
    if middle > width:
        raise UsageError(
            f"center must lie between 0 and reward_range={reward_range!r} (it counts from the "
            f"lower end of the range), got {center!r}."
        )
    moved = max(middle, width - middle) / (size + 1)
    return rounded_up(moved + penalty_moves(penalty, size), "score range")


def rewards_only_range(
    counts: Integer[np.ndarray, " k"], *, shrinkage: float, reward_range: float
) -> float:
    """Return how far one reward moves the means where it is public which arms were pulled."""
    # Guarantee: An upper bound for every two data sets with these arms and counts; attained. Shown
    # by tests/soundness/test_arm_sensitivity.py.
    # A reward of arm a moves its mean by at most R/(N_a + λ), and no other score; the penalty is
    # public and free. Unit `"label"` under `REPLACE_ONE`: nothing is to be doubled.
    # Source: docs/intrinsic.md, "Multi-armed bandits".
    width = Fraction(_validate.positive("reward_range", reward_range))
    size = exact("shrinkage", shrinkage)
    array = checked_counts("counts", counts)
    pulled = array[array > 0]
    if not len(pulled):
        return 0.0
    return rounded_up(width / (int(pulled.min()) + size), "score range")


def mean_range_after_test(count: int, *, reward_range: float, penalty: float = 0.0) -> float:
    """Return how far one record moves the means if every arm has at least ``count`` others."""
    # Guarantee: An upper bound for every two neighboring data sets whose common records hold each
    # arm at least ``count`` times; attained. Shown by tests/soundness/test_arm_sensitivity.py.
    # R/(v + 1) + β·(1/√v − 1/√(v + 1)), for f(a) = mean − β/√N_a and for shrunken means alike. The
    # mean of N ≥ v rewards is moved by one more by at most R/(N + 1); shrinkage λ makes that (N·R +
    # λ·c)/((N + λ)(N + λ + 1)) ≤ R/(N + λ + 1), and the step of the penalty smaller too.
    # Source: docs/intrinsic.md, "Propose, test, release".
    size = Fraction(_validate.integer("count", count, at_least=1))
    width = Fraction(_validate.positive("reward_range", reward_range))
    return rounded_up(width / (size + 1) + penalty_moves(penalty, size), "score range")


def checked_counts(name: str, counts: object) -> Integer[np.ndarray, " k"]:
    """Return how often each arm was pulled, as an array of one dimension and at least one arm."""
    array = np.asarray(counts)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise DataError(
            f"{name} must be whole numbers in one dimension, one for each arm; got shape "
            f"{array.shape} and dtype {array.dtype}."
        )
    wrong = np.flatnonzero(array < 0)
    if len(wrong):
        raise DataError(f"{name} must be at least 0: index {wrong[0]} is not.")
    return array


def constrained_ridge_range(
    ridge: float,
    *,
    spread: float,
    ball: float,
    reward_bound: float,
    penalty: float = 0.0,
    inexactness: float = 0.0,
) -> float:
    """Return the range of one record for a fit over ‖θ‖ ≤ ball, whatever the number of records."""
    # Of one record that is added, removed or made empty; twice it if a record is replaced.
    # Source: docs/intrinsic.md, "Linear bandits": min(2B, (R + B)/√(λ(λ + 1)))·D + β(λ^{-1/2} − (λ
    # + 1)^{-1/2}).
    ridge, ball = moderate("ridge", ridge), moderate("ball", ball)
    residual = moderate("reward_bound", reward_bound) + ball
    moved = min(2 * ball, residual / math.sqrt(ridge) / math.sqrt(ridge + 1))
    return _total(moved, spread, ridge, penalty, inexactness)


def _total(
    moved: float,
    spread: float,
    ridge: float | None,
    penalty: float,
    inexactness: float,
    step: float = 1.0,
) -> float:
    """Return how far scores and penalties move together, rounded up."""
    total = moved * moderate("spread", spread, zero=True)
    if penalty := moderate("penalty", penalty, zero=True):
        if ridge is None:
            raise UsageError(f"penalty={penalty!r} needs penalty_ridge, the ridge of its matrix.")
        total += penalty * penalty_step(moderate("penalty_ridge", ridge), step=step)
    return (total + 4 * moderate("inexactness", inexactness, zero=True)) * UP


def public_design_ridge_range(
    design: Matrix, queries: Matrix, *, ridge: float, reward_range: float, inexactness: float = 0.0
) -> float:
    """Return the range of one changed reward, exactly up to rounding, for public features."""
    # For unit label: what was pulled is public and only rewards are private; never doubled. Scores
    # are computed with a factor of Σ. Of the error of cᵀΣ⁻¹φ with c a difference of two queries and
    # z what was computed for Σ⁻¹c, at most ‖Σz − c‖/(2√λ) is there for any φ of the design, because
    # ‖Σ⁻¹φ‖ ≤ 1/(2√λ); the bound on ‖Σz − c‖ counts the rounding of Σ itself.
    # Source: docs/intrinsic.md, "Linear bandits": R·max_i max_{a,a′} (φ_a − φ_a′)ᵀΣ⁻¹φ_i.
    ridge, reward_range = moderate("ridge", ridge), moderate("reward_range", reward_range)
    rows = public_rows("design", design)
    actions = public_rows("queries", queries, d=rows.shape[1])
    actions = actions if isinstance(actions, np.ndarray) else actions.toarray()
    widest = _widest(rows, actions - actions[:1], ridge) if rows.shape[0] else 0.0
    return (widest * reward_range + 4 * moderate("inexactness", inexactness, zero=True)) * UP


def _widest(rows: Matrix, moved: np.ndarray, ridge: float) -> float:
    """Return max_i max_{a,a′} (c_a − c_a′)ᵀΣ⁻¹φ_i, rounded up."""
    d = rows.shape[1]
    largest = float(np.abs(moved).max(initial=0.0))
    if not largest:
        return 0.0
    moved = moved / (scale := math.ldexp(1.0, math.frexp(largest)[1]))
    gram = _BoundedGram.of(rows)
    matrix = gram.matrix + max(ridge, 4 * gram.error) * np.eye(d)  # for the factor alone
    factor = linalg.cho_factor(matrix, lower=True, check_finite=False)
    found = linalg.cho_solve(factor, moved.T, check_finite=False)
    for _ in range(3):  # one is enough unless the ridge is tiny
        residual = moved.T - (gram.matrix @ found + ridge * found)
        found += linalg.cho_solve(factor, residual, check_finite=False)
    residual = moved.T - (gram.matrix @ found + ridge * found)
    lengths, sizes = np.linalg.norm(found, axis=0), np.linalg.norm(moved, axis=1)
    rounded = gram.error + (2 * d + 8) * ROUNDING * (gram.trace + ridge)
    wrong = np.linalg.norm(residual, axis=0) + rounded * lengths + 4 * ROUNDING * sizes
    # the largest difference of two scores of one row, rounded up
    most, share = 0.0, 2 * (d + 4) * ROUNDING * float(lengths.max())
    for _, block in dense_parts(rows, BLOCK):
        scores = block @ found
        apart = scores.max(axis=1) - scores.min(axis=1)
        most = max(most, float((apart + share * np.linalg.norm(block, axis=1)).max()))
    return (most + float(wrong.max()) / math.sqrt(ridge)) * UP * scale


def _least_slope(margins: float | np.ndarray) -> np.ndarray:
    """Return σ′, the least curvature of pairs whose |θᵀx| is at most a margin, rounded down."""
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": γ = σ(BX)σ(−BX).
    # An exponent that is wrong by a share of 2^-50 changes the result by that times the exponent.
    margins = margins * (1 + 2.0**-30)
    return np.asarray(expit(margins) * expit(-margins) * (1 - 2.0**-40))


@dataclass(frozen=True)
class LabelCurvature:
    """The least curvature of the fit over a ball, for public pairs: factored once, asked often."""

    # M = ridge·I + Σ γ_i x_i x_iᵀ with γ_i = σ(B‖x_i‖)σ(−B‖x_i‖). One flipped label moves the
    # weights by Δ with ‖Δ‖_M ≤ max_i ‖x_i‖_{M⁻¹}, whatever the labels are. Build it with `of`.

    ball: float  # B
    leverage: float  # upper bound on max_i ‖x_i‖_{M⁻¹}; infinite where M may be singular
    _factor: Float[np.ndarray, "d d"] = field(repr=False)
    _wrong: float = field(repr=False)  # of a solution of the factor, as a share of its length
    _shift: float = field(repr=False)  # the same, as a share of what is solved for

    @classmethod
    def of(cls, differences: Matrix, *, ridge: float, ball: float) -> LabelCurvature:
        """Return the curvature of these pairs."""
        # What is factored is below M by the sum of all rounding errors, so that every norm in its
        # inverse is an upper bound: with e the rounding bound of the second moment and of the
        # factor, L Lᵀ ≤ t·Σγxxᵀ + (ridge − t·e)·I ≤ M, t = 1 unless M may be singular up to e. The
        # range is at most about 1 + 2e/λ_min(M) times the exact one.
        # Source: docs/intrinsic.md, "Withheld rewards of preferences".
        ridge, ball = moderate("ridge", ridge, zero=True), moderate("ball", ball)
        rows = public_rows("differences", differences)
        n, d = rows.shape
        lengths = [np.linalg.norm(block, axis=1) for _, block in dense_parts(rows, BLOCK)]
        gram = _BoundedGram.of(rows, _least_slope(ball * np.concatenate([np.zeros(0), *lengths])))
        # Factoring A and solving with the factor of A are exact for matrices that are off by at
        # most (4d + 16)·2^-52·trace A together. The spectrum is at least `least`, which is 0 or
        # less where A may be singular.
        share = (4 * d + 16) * ROUNDING
        error = gram.error + share * gram.trace
        below = error + share * d * ridge
        times, shift = 1.0, ridge - below
        least = 0.49 * ridge  # errors are at most a quarter of the ridge, and counted twice
        if ridge < 4 * error:
            lowest = linalg.eigvalsh(gram.matrix, subset_by_index=[0, 0], check_finite=False)[0]
            least = float(lowest) + ridge - 4 * below
            if ridge and least < 0.49 * ridge:  # G ≥ t(G̃ − e) for t within 0 and 1: G ≥ 0
                times, shift, least = ridge / (4 * error), ridge * (0.75 - share * d), 0.49 * ridge
        if not n or not least > 0:
            return cls(ball, math.inf if n else 0.0, np.zeros((d, d)), 0.0, 0.0)
        shifted = gram.matrix * times + shift * np.eye(d)
        factor = np.asarray(linalg.cholesky(shifted, lower=True, check_finite=False))
        blocks = (_solved(factor, block) for _, block in dense_parts(rows, 8 * BLOCK))
        leverage = max(float(np.linalg.norm(one, axis=1).max()) for one in blocks) * UP
        wrong = (d + 4) * ROUNDING * float(np.linalg.norm(factor)) / math.sqrt(least)
        return cls(ball, leverage, factor, wrong, ROUNDING / math.sqrt(least))

    def range(self, queries: Matrix, *, inexactness: float = 0.0) -> float:
        """Return a bound on how far apart the changes of two scores are after one flipped label."""
        # Source: docs/intrinsic.md, "Withheld rewards of preferences": max_i ‖x_i‖_{M⁻¹} ·
        # max_{a,a′} ‖φ_a − φ_a′‖_{M⁻¹}, and at most 2B·max_{a,a′} ‖φ_a − φ_a′‖.
        slack = 4 * moderate("inexactness", inexactness, zero=True)
        rows = public_rows("queries", queries, d=len(self._factor))
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        moved = rows - rows[:1]
        if not self.leverage or not moved.any():
            return slack * UP
        plain = 2 * self.ball * farthest_rows(moved)
        if math.isinf(self.leverage):
            return (plain + slack) * UP
        scale = math.ldexp(1.0, math.frexp(float(np.abs(moved).max()))[1])
        moved /= scale
        inside = _solved(self._factor, moved)
        wrong = self._wrong * np.linalg.norm(inside, axis=1).max()
        wrong += self._shift * np.linalg.norm(moved, axis=1).max()
        spread = (farthest_rows(inside) + 2 * float(wrong)) * scale
        return (min(self.leverage * spread, plain) + slack) * UP


def _solved(factor: np.ndarray, rows: Float[np.ndarray, "b d"]) -> Float[np.ndarray, "b d"]:
    """Return L⁻¹ of every row."""
    return np.asarray(linalg.solve_triangular(factor, rows.T, lower=True, check_finite=False).T)


def withheld_ridge_label_range(ridge: float, *, spread: float, bound: float) -> float:
    """The range of one flipped label for any pairs within a bound, with or without a ball."""
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": D·X/λr.
    ridge, bound = moderate("ridge", ridge), moderate("bound", bound)
    return moderate("spread", spread, zero=True) * bound / ridge * UP


def withheld_record_range(
    ridge: float,
    *,
    spread: float,
    bound: float,
    ball: float | None = None,
    penalty: float = 0.0,
    penalty_ridge: float | None = None,
    inexactness: float = 0.0,
) -> float:
    """Return the range of one pair that is added, removed or made empty; twice it if replaced."""
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": D·X/λr, or with a ball min(2B,
    # X·σ(BX)/√(λr(λr + γX²)))·D, plus β(λ^{-1/2} − (λ + X²)^{-1/2}).
    ridge, bound = moderate("ridge", ridge), moderate("bound", bound)
    moved = bound / ridge
    if ball is not None:
        ball = moderate("ball", ball)
        curved = ridge + float(_least_slope(ball * bound * UP)) * bound**2
        residual = float(expit(ball * bound * UP))
        moved = min(residual * bound / (math.sqrt(ridge) * math.sqrt(curved)), 2 * ball)
    return _total(moved, spread, penalty_ridge, penalty, inexactness, step=bound**2)
