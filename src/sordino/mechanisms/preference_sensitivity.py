"""How far one preference moves a withheld reward: the range of the change of its scores.

The estimate minimizes Σ log(1 + e^{θᵀx}) − yθᵀx + (ridge/2)‖θ‖², over ‖θ‖ ≤ ball where a ball is
given, with x = φ(first) − φ(second), ‖x‖ ≤ ``bound``. Its score of an action is θᵀφ, less
penalty·‖φ‖_{Σ⁻¹} with Σ = penalty_ridge·I + Σxxᵀ. All results are in units of reward.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.mechanisms._outward import UP, size
from sordino.mechanisms._penalty import penalty_step
from sordino.mechanisms.label_curvature import LabelCurvature, least_slope

__all__ = [
    "closed_form_label_range",
    "withheld_label_loss_outside",
    "withheld_label_range",
    "withheld_record_range",
    "withheld_ridge_label_range",
]


def withheld_label_range(
    differences: Any, queries: Any, *, ridge: float, ball: float, inexactness: float = 0.0
) -> float:
    """Return the range of one flipped label, for public pairs and a fit over a ball.

    Args:
        differences: x of the pairs, shape (n, d), dense or sparse.
        queries: φ of the candidates of one question, shape (k, d).
        ridge: λr, at least 0.
        ball: B.
        inexactness: ξ, by which a computed score may differ from the exact one.

    Raises:
        UsageError: A setting is out of range.
        DataError: Rows are not finite numbers of usable size, or do not fit each other.

    Source:
        docs/intrinsic.md, "Withheld rewards of preferences"; :class:`LabelCurvature`.

    Example:
        >>> round(withheld_label_range([[2.0]] * 10, [[1.0], [-1.0]], ridge=1.0, ball=0.2), 6)
        0.376988
    """
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
    """Return the range over some public candidates, and the probability of all others.

    A draw is then (range/temperature, probability)-private for one flipped label: useful where
    candidates far from the others are all but excluded by the reference or by their penalty.

    Args:
        curvature: Of the public pairs.
        queries: φ of all candidates of one question.
        inside: G, at least one of them.
        temperature: Of the policy, > 0.
        log_reference: log π0, up to a constant; −inf permitted outside G. Uniform if left out.
        penalties: What pessimism takes from each score, β·‖φ‖_{Σ⁻¹}; public.
        inexactness: ξ, by which a computed score may differ from the exact one.

    Returns:
        Range over G in units of reward, and δ, both rounded up.

    Raises:
        DataError: Arrays do not fit each other.
        UsageError: No candidate is inside, or a setting is out of range.

    Source:
        docs/intrinsic.md, "Withheld rewards of preferences": δ = min over b in G of
        σ(log Σ_{a∉G} (π0(a)/π0(b))·exp((B‖φ_a − φ_b‖ − β(Γ_a − Γ_b))/η)).
    """
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
    """Return the range of one flipped label for any pairs within a bound, with or without a ball.

    Args:
        ridge: λr, within 1e-60 and 1e60.
        spread: The largest ‖φ_a − φ_a′‖ of the question, at least 0.
        bound: X, the largest ‖x‖.
        inexactness: ξ, by which a computed score may differ from the exact one.

    Raises:
        UsageError: An argument is out of range.

    Source:
        docs/intrinsic.md, "Withheld rewards of preferences": D·X/λr.

    Example:
        >>> round(withheld_ridge_label_range(10.0, spread=2.0, bound=2.0), 9)
        0.4
    """
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
    """Return the range of one pair that is added, removed or made empty; twice it if replaced.

    Args:
        ridge: λr, within 1e-60 and 1e60.
        spread: The largest ‖φ_a − φ_a′‖ of the question, at least 0.
        bound: X, to which every difference is shortened.
        ball: B, if the weights are kept within it.
        penalty: β, for features φ of norm at most 1; times their bound for longer ones.
        penalty_ridge: λ of Σ; needed with a penalty.
        inexactness: ξ, by which a computed score may differ from the exact one.

    Raises:
        UsageError: An argument is out of range, or a penalty has no ridge.

    Source:
        docs/intrinsic.md, "Withheld rewards of preferences": D·X/λr, or with a ball
        min(2B, X·σ(BX)/√(λr(λr + γX²)))·D, plus β(λ^{-1/2} − (λ + X²)^{-1/2}).

    Example:
        >>> round(withheld_record_range(10.0, spread=2.0, bound=2.0), 9)
        0.4
        >>> round(withheld_record_range(10.0, spread=2.0, bound=2.0, ball=1.0), 9)
        0.345145751
    """
    ridge, bound = size("ridge", ridge), size("bound", bound)
    moved = bound / ridge
    if ball is not None:
        ball = size("ball", ball)
        curved = ridge + least_slope(ball * bound * UP) * bound**2
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
    """Return the range of one flipped label from the least eigenvalue of Σxxᵀ alone.

    It replaces Theorem 3 of KLDP, whose constant is wrong by a factor up to 4, and holds for the
    estimate over the ball only.

    Args:
        least_eigenvalue: λ_min(Σxxᵀ), that is λ_min(Σ) − λ; public, above 0.
        ball: B.
        spread: The largest ‖φ_a − φ_a′‖ of the question.
        bound: X, the largest ‖x‖.

    Raises:
        UsageError: An argument is out of range.

    Source:
        docs/intrinsic.md, "Withheld rewards of preferences": D·X(2 + e^{BX} + e^{−BX})/λ_min.

    Example:
        >>> round(closed_form_label_range(40.0, ball=0.2027325541) / 0.4, 6)
        1.041667
    """
    least, bound = size("least_eigenvalue", least_eigenvalue), size("bound", bound)
    ball, spread = size("ball", ball), size("spread", spread, zero=True)
    slope = least_slope(ball * bound * UP)
    curved = spread * bound / (slope * least) if slope else math.inf
    return min(curved, 2 * ball * spread) * UP
