"""How far one preference moves a withheld reward: the range of the change of its scores.

The estimate minimizes Σ log(1 + e^{θᵀx}) − yθᵀx + (ridge/2)‖θ‖², over ‖θ‖ ≤ ball where a ball is
given, with x = φ(first) − φ(second), ‖x‖ ≤ ``bound``. Its score of an action is θᵀφ, less
penalty·‖φ‖_{Σ⁻¹} with Σ = penalty_ridge·I + Σxxᵀ. All results are in units of reward.

How far one label of public questions can move a fit inside a ball: the curvature it meets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float
from scipy import linalg
from scipy.special import expit

from sordino import _validate
from sordino.errors import DataError, UsageError

from .exact_bounds import (
    BLOCK,
    ROUNDING,
    UP,
    BoundedGram,
    dense_blocks,
    farthest_rows,
    penalty_step,
    public_rows,
    size,
)
from .grid import Matrix


def _least_slope(margin: float) -> float:
    """Σ′(margin), the least curvature of a pair whose |θᵀx| is at most margin, rounded down."""
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": γ = σ(BX)σ(−BX).
    return float(_least_slopes(np.array(_validate.non_negative("margin", margin))))


def _least_slopes(margins: np.ndarray) -> np.ndarray:
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
        ridge, ball = size("ridge", ridge, zero=True), size("ball", ball)
        rows = public_rows("differences", differences)
        n, d = rows.shape
        lengths = [np.linalg.norm(block, axis=1) for block in dense_blocks(rows, BLOCK)]
        gram = BoundedGram.of(rows, _least_slopes(ball * np.concatenate([np.zeros(0), *lengths])))
        factor, least = _lower_factor(gram, ridge)
        if not n or not least > 0:
            return cls(ball, math.inf if n else 0.0, np.zeros((d, d)), 0.0, 0.0)
        blocks = (_solved(factor, block) for block in dense_blocks(rows, 8 * BLOCK))
        leverage = max(float(np.linalg.norm(one, axis=1).max()) for one in blocks) * UP
        wrong = (d + 4) * ROUNDING * float(np.linalg.norm(factor)) / math.sqrt(least)
        return cls(ball, leverage, factor, wrong, ROUNDING / math.sqrt(least))

    def range(self, queries: Matrix, *, inexactness: float = 0.0) -> float:
        """Return a bound on how far apart the changes of two scores are after one flipped label."""
        # Source: docs/intrinsic.md, "Withheld rewards of preferences": max_i ‖x_i‖_{M⁻¹} ·
        # max_{a,a′} ‖φ_a − φ_a′‖_{M⁻¹}, and at most 2B·max_{a,a′} ‖φ_a − φ_a′‖.
        slack = 4 * size("inexactness", inexactness, zero=True)
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


def _lower_factor(gram: BoundedGram, ridge: float) -> tuple[Float[np.ndarray, "d d"], float]:
    """Return a triangular L with L Lᵀ below the exact matrix, and a lower bound on its spectrum."""
    # Factoring A and solving with the factor of A are exact for matrices that are off by at most
    # (4d + 16)·2^-52·trace A together. The bound is 0 or less where A may be singular.
    d = len(gram.matrix)
    share = (4 * d + 16) * ROUNDING
    error = gram.error + share * gram.trace
    below = error + share * d * ridge
    least = 0.49 * ridge  # errors are at most a quarter of the ridge, and counted twice
    if ridge < 4 * error:
        lowest = linalg.eigvalsh(gram.matrix, subset_by_index=[0, 0], check_finite=False)[0]
        least = float(lowest) + ridge - 4 * below
        if ridge and least < 0.49 * ridge:  # G ≥ t(G̃ − e) for every t within 0 and 1, because G ≥ 0
            times = ridge / (4 * error)
            return _factor(gram.matrix * times, ridge * (0.75 - share * d)), 0.49 * ridge
    return (_factor(gram.matrix, ridge - below), least) if least > 0 else (0 * gram.matrix, 0.0)


def _factor(matrix: np.ndarray, shift: float) -> np.ndarray:
    """Return the triangular factor of a matrix plus a multiple of the identity."""
    shifted = matrix + shift * np.eye(len(matrix))
    return np.asarray(linalg.cholesky(shifted, lower=True, check_finite=False))


def _solved(factor: np.ndarray, rows: Float[np.ndarray, "b d"]) -> Float[np.ndarray, "b d"]:
    """Return L⁻¹ of every row."""
    return np.asarray(linalg.solve_triangular(factor, rows.T, lower=True, check_finite=False).T)


def withheld_label_range(
    differences: Matrix, queries: Matrix, *, ridge: float, ball: float, inexactness: float = 0.0
) -> float:
    """Return the range of one flipped label, for public pairs and a fit over a ball."""
    # Source: docs/intrinsic.md, "Withheld rewards of preferences"; `LabelCurvature`.
    return LabelCurvature.of(differences, ridge=ridge, ball=ball).range(
        queries, inexactness=inexactness
    )


def withheld_label_loss_outside(
    curvature: LabelCurvature,
    queries: Float[np.ndarray, "k d"],
    inside: Bool[np.ndarray, " k"],
    *,
    temperature: float,
    log_reference: Float[np.ndarray, " k"] | None = None,
    penalties: Float[np.ndarray, " k"] | None = None,
    inexactness: float = 0.0,
) -> tuple[float, float]:
    """Return the range over some public candidates, and the probability of all others."""
    # A draw is then (range/temperature, probability)-private for one flipped label: useful where
    # candidates far from the others are all but excluded by the reference or by their penalty.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": δ = min over b in G of σ(log
    # Σ_{a∉G} (π0(a)/π0(b))·exp((B‖φ_a − φ_b‖ − β(Γ_a − Γ_b))/η)).
    queries = _validate.finite_array("queries", queries, ndim=2)
    inside = np.asarray(inside)
    if inside.shape != queries.shape[:1] or inside.dtype != bool:
        raise DataError(f"inside must be {len(queries)} truth values, got shape {inside.shape}.")
    if not inside.any():
        raise UsageError("inside must name at least one candidate.")
    ball, temperature = curvature.ball, size("temperature", temperature)
    slack = size("inexactness", inexactness, zero=True)
    weight = np.zeros(len(queries)) if log_reference is None else np.asarray(log_reference, float)
    taken = np.zeros(len(queries)) if penalties is None else np.asarray(penalties, float)
    if not (weight.shape == taken.shape == inside.shape and np.isfinite(taken).all()):
        raise DataError("log_reference and penalties must hold one number for each candidate.")
    if not np.isfinite(weight[inside]).all() or np.isnan(weight).any() or np.inf in weight:
        raise DataError("log_reference must be finite inside, and finite or −inf outside.")
    others = [
        _log_weight(queries, ~inside, int(best), ball, temperature, weight, taken, slack)
        for best in np.flatnonzero(inside)
    ]
    over = curvature.range(queries[inside], inexactness=slack)
    return over, min(1.0, float(expit(min(others))) * UP)


def _log_weight(
    queries: np.ndarray,
    outside: np.ndarray,
    best: int,
    ball: float,
    temperature: float,
    weight: np.ndarray,
    taken: np.ndarray,
    slack: float,
) -> float:
    """Return the log of how much all candidates outside can weigh against one, rounded up."""
    reach = ball * np.linalg.norm(queries[outside] - queries[best], axis=1)
    gain = taken[best] - taken[outside]
    sizes = reach + abs(taken[best]) + np.abs(taken[outside]) + 2 * slack
    exponents = weight[outside] - weight[best] + (reach + gain + 2 * slack) / temperature
    finite = np.isfinite(exponents)
    if not finite.any():
        return -math.inf
    known = np.abs(weight[outside][finite]) + abs(weight[best]) + sizes[finite] / temperature
    exponents = exponents[finite] + (known + 1) * (UP - 1)
    most = float(exponents.max())
    total = most + math.log(float(np.exp(exponents - most).sum()))
    return total + (abs(total) + 1) * (UP - 1)


def withheld_ridge_label_range(
    ridge: float, *, spread: float, bound: float, inexactness: float = 0.0
) -> float:
    """The range of one flipped label for any pairs within a bound, with or without a ball."""
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": D·X/λr.
    ridge, bound = size("ridge", ridge), size("bound", bound)
    moved = size("spread", spread, zero=True) * bound / ridge
    return (moved + 4 * size("inexactness", inexactness, zero=True)) * UP


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
    ridge, bound = size("ridge", ridge), size("bound", bound)
    moved = bound / ridge
    if ball is not None:
        ball = size("ball", ball)
        curved = ridge + _least_slope(ball * bound * UP) * bound**2
        residual = float(expit(ball * bound * UP))
        moved = min(residual * bound / (math.sqrt(ridge) * math.sqrt(curved)), 2 * ball)
    total = moved * size("spread", spread, zero=True)
    if penalty := size("penalty", penalty, zero=True):
        if penalty_ridge is None:
            raise UsageError(f"penalty={penalty!r} needs penalty_ridge, the ridge of its matrix.")
        total += penalty * penalty_step(size("penalty_ridge", penalty_ridge), step=bound**2)
    return (total + 4 * size("inexactness", inexactness, zero=True)) * UP


def closed_form_label_range(
    least_eigenvalue: float, *, ball: float, spread: float = 2.0, bound: float = 2.0
) -> float:
    """Return the range of one flipped label from the least eigenvalue of Σxxᵀ alone."""
    # It replaces Theorem 3 of KLDP, whose constant is wrong by a factor up to 4, and holds for the
    # estimate over the ball only.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": D·X(2 + e^{BX} + e^{−BX})/λ_min.
    least, bound = size("least_eigenvalue", least_eigenvalue), size("bound", bound)
    ball, spread = size("ball", ball), size("spread", spread, zero=True)
    slope = _least_slope(ball * bound * UP)
    curved = spread * bound / (slope * least) if slope else math.inf
    return min(curved, 2 * ball * spread) * UP
