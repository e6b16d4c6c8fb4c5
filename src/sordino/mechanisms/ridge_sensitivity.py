"""How far one record moves a ridge regression: the range of the change of its scores.

The estimate minimizes Σ(r − θᵀφ)² + ridge·‖θ‖² with ‖φ‖ ≤ 1 and r in an interval. Its score of an
action is θᵀφ, less penalty·‖φ‖_{Σ⁻¹} with Σ = ridge·I + Σφφᵀ. All results are in units of reward.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import linalg

from sordino import _validate
from sordino.mechanisms._bounded_gram import BLOCK, ROUNDING, BoundedGram
from sordino.mechanisms._outward import UP, dense_blocks, public_rows, size
from sordino.mechanisms._penalty import penalty_step

__all__ = [
    "constrained_ridge_range",
    "own_reward_step",
    "plain_ridge_range",
    "public_design_ridge_range",
]


def constrained_ridge_range(
    ridge: float,
    *,
    spread: float,
    ball: float,
    reward_bound: float,
    penalty: float = 0.0,
    inexactness: float = 0.0,
) -> float:
    """Return the range of one record for a fit over ‖θ‖ ≤ ball, whatever the number of records.

    Of one record that is added, removed or made empty; twice it if a record is replaced.

    Args:
        ridge: λ, within 1e-60 and 1e60.
        spread: The largest ‖φ_a − φ_a′‖ of the question, at least 0.
        ball: B.
        reward_bound: Bound on |r|: the reward range R for rewards within [0, R], R/2 if R/2 was
            taken from each.
        penalty: β, for features φ of norm at most 1.
        inexactness: ξ, by which a computed score may differ from the exact one.

    Raises:
        UsageError: An argument is out of range.

    Source:
        docs/intrinsic.md, "Linear bandits": min(2B, (R + B)/√(λ(λ + 1)))·D + β(λ^{-1/2} −
        (λ + 1)^{-1/2}).

    Example:
        >>> round(constrained_ridge_range(2.0, spread=2.0, ball=1.0, reward_bound=1.0), 9)
        1.632993162
    """
    ridge, ball = size("ridge", ridge), size("ball", ball)
    residual = size("reward_bound", reward_bound) + ball
    moved = min(2 * ball, residual / math.sqrt(ridge) / math.sqrt(ridge + 1))
    return _total(moved, spread, ridge, penalty, inexactness)


def plain_ridge_range(
    ridge: float,
    n: int,
    *,
    spread: float,
    reward_bound: float,
    penalty: float = 0.0,
    inexactness: float = 0.0,
) -> float:
    """Return the range of one record that joins n others, for a fit without a ball.

    The number of records must be public, so that nothing is promised if a record is added or
    removed: of N records in all, take n = N − 1, once if a record is made empty and twice if it
    is replaced.

    Args:
        ridge: λ, within 1e-60 and 1e60.
        n: Size of the smaller data set, or a bound on it.
        spread: The largest ‖φ_a − φ_a′‖ of the question, at least 0.
        reward_bound: Bound on |r|.
        penalty: β, for features φ of norm at most 1.
        inexactness: ξ, by which a computed score may differ from the exact one.

    Raises:
        UsageError: An argument is out of range.

    Source:
        docs/intrinsic.md, "Linear bandits": D·R(κ(λ) + √n·q(λ)) + β(λ^{-1/2} − (λ + 1)^{-1/2}).

    Example:
        >>> round(plain_ridge_range(1.0, 100, spread=2.0, reward_bound=1.0), 9)
        4.776795387
    """
    ridge, n = size("ridge", ridge), _validate.integer("n", n, at_least=0)
    moved = own_reward_step(ridge) + math.sqrt(n) * _other_rewards_step(ridge)
    return _total(moved * size("reward_bound", reward_bound), spread, ridge, penalty, inexactness)


def _total(moved: float, spread: float, ridge: float, penalty: float, inexactness: float) -> float:
    total = moved * size("spread", spread, zero=True)
    if penalty := size("penalty", penalty, zero=True):
        total += penalty * penalty_step(ridge)
    return (total + 4 * size("inexactness", inexactness, zero=True)) * UP


def own_reward_step(ridge: float) -> float:
    """Return κ: the largest ‖Σ⁻¹φ‖/(1 + φᵀΣ⁻¹φ) over all designs with Σ at least ridge·I.

    Args:
        ridge: The least eigenvalue of Σ, > 0.

    Source:
        docs/intrinsic.md, "Linear bandits".
    """
    return 1 / (ridge + 1) if ridge >= 1 else 1 / (2 * math.sqrt(ridge))


def _other_rewards_step(ridge: float) -> float:
    """Return q: the largest ‖Σ⁻¹φ‖·√(s − ridge·‖Σ⁻¹φ‖²)/(1 + s), s = φᵀΣ⁻¹φ, over all designs.

    For s ≤ 1/2λ it is largest at ‖Σ⁻¹φ‖² = s/2λ and grows with s; beyond, at ‖Σ⁻¹φ‖ = s, where
    the best s solves λs² + (2λ − ½)s = 3/2.
    """
    half = 2 * ridge - 0.5
    root = math.hypot(half, math.sqrt(6 * ridge))
    best = 3 / (root + half) if half >= 0 else (root - half) / (2 * ridge)
    best = min(max(best, 0.5 / ridge), 1 / ridge)
    left = max(0.0, 1 - ridge * best)
    beyond = math.sqrt(best) * (best / (1 + best)) * math.sqrt(left)
    return max(0.5 / math.sqrt(ridge) / (2 * ridge + 1), beyond)


def public_design_ridge_range(
    design: Any,
    queries: Any,
    *,
    ridge: float,
    reward_range: float,
    inexactness: float = 0.0,
) -> float:
    """Return the range of one changed reward, exactly up to rounding, for public features.

    For unit label: what was pulled is public and only rewards are private; never doubled. Scores
    are computed with a factor of Σ. Of the error of cᵀΣ⁻¹φ with c a difference of two queries
    and z what was computed for Σ⁻¹c, at most ‖Σz − c‖/(2√λ) is there for any φ of the design,
    because ‖Σ⁻¹φ‖ ≤ 1/(2√λ); the bound on ‖Σz − c‖ counts the rounding of Σ itself.

    Args:
        design: φ of the records, shape (n, d), dense or sparse; of any norm.
        queries: φ of the actions of one question, shape (k, d).
        ridge: λ, within 1e-60 and 1e60.
        reward_range: R, the upper less the lower end of a reward.
        inexactness: ξ, by which a computed score may differ from the exact one.

    Raises:
        UsageError: An argument is out of range.
        DataError: Rows are not finite numbers of usable size, or do not fit each other.

    Source:
        docs/intrinsic.md, "Linear bandits": R·max_i max_{a,a′} (φ_a − φ_a′)ᵀΣ⁻¹φ_i.

    Example:
        >>> rows = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> round(public_design_ridge_range(rows, rows, ridge=1.0, reward_range=1.0), 9)
        0.5
    """
    ridge, reward_range = size("ridge", ridge), size("reward_range", reward_range)
    rows = public_rows("design", design)
    actions = public_rows("queries", queries, d=rows.shape[1])
    actions = actions if isinstance(actions, np.ndarray) else actions.toarray()
    widest = _widest(rows, actions - actions[:1], ridge) if rows.shape[0] else 0.0
    return (widest * reward_range + 4 * size("inexactness", inexactness, zero=True)) * UP


def _widest(rows: Any, moved: np.ndarray, ridge: float) -> float:
    """Return max_i max_{a,a′} (c_a − c_a′)ᵀΣ⁻¹φ_i, rounded up."""
    d = rows.shape[1]
    largest = float(np.abs(moved).max(initial=0.0))
    if not largest:
        return 0.0
    moved = moved / (scale := math.ldexp(1.0, math.frexp(largest)[1]))
    gram = BoundedGram.of(rows)
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
    most = _most_apart(rows, found)
    return (most + float(wrong.max()) / math.sqrt(ridge)) * UP * scale


def _most_apart(rows: Any, found: np.ndarray) -> float:
    """Return the largest difference of two scores of one row, rounded up."""
    longest = float(np.linalg.norm(found, axis=0).max())
    share = 2 * (len(found) + 4) * ROUNDING * longest
    most = 0.0
    for block in dense_blocks(rows, BLOCK):
        scores = block @ found
        apart = scores.max(axis=1) - scores.min(axis=1)
        most = max(most, float((apart + share * np.linalg.norm(block, axis=1)).max()))
    return most
