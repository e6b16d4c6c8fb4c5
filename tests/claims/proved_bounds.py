"""Bounds that hold where the published ones do not, and that no command or public name needs.

A penalty so large that an arm of few pulls is hardly ever drawn, where the number of records is
public; a ridge fit without a ball; and a flipped label of pairs, from the least eigenvalue alone or
where candidates far from the others are all but excluded. Each is computed as
`sordino.mechanisms.score_sensitivity` computes its own.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.mechanisms.gibbs import DIGITS, rounded_up
from sordino.mechanisms.grid import Matrix
from sordino.mechanisms.score_sensitivity import (
    MORE,
    SMALLEST,
    UP,
    LabelCurvature,
    _least_slope,
    _total,
    exact,
    penalty_moves,
    size,
)

_ERROR = Decimal("1e-45")  # above ten roundings of 50 digits, relative to all terms
_NEVER = Decimal(-750)  # e^-750 is below every float


def plain_ridge_range(
    ridge: float,
    n: int,
    *,
    spread: float,
    reward_bound: float,
    penalty: float = 0.0,
    inexactness: float = 0.0,
) -> float:
    """Return the range of one record that joins n others, for a fit without a ball."""
    # The number of records must be public, so that nothing is promised if a record is added or
    # removed: of N records in all, take n = N − 1, once if a record is made empty and twice if it
    # is replaced.
    # Source: docs/intrinsic.md, "Linear bandits": D·R(κ(λ) + √n·q(λ)) + β(λ^{-1/2} − (λ +
    # 1)^{-1/2}).
    ridge, n = size("ridge", ridge), _validate.integer("n", n, at_least=0)
    # κ: the largest ‖Σ⁻¹φ‖/(1 + φᵀΣ⁻¹φ) over all designs with Σ at least ridge·I
    own_reward_step = 1 / (ridge + 1) if ridge >= 1 else 1 / (2 * math.sqrt(ridge))
    moved = own_reward_step + math.sqrt(n) * _other_rewards_step(ridge)
    return _total(moved * size("reward_bound", reward_bound), spread, ridge, penalty, inexactness)


def _other_rewards_step(ridge: float) -> float:
    """Return q: the largest ‖Σ⁻¹φ‖·√(s − ridge·‖Σ⁻¹φ‖²)/(1 + s), s = φᵀΣ⁻¹φ, over all designs."""
    # For s ≤ 1/2λ it is largest at ‖Σ⁻¹φ‖² = s/2λ and grows with s; beyond, at ‖Σ⁻¹φ‖ = s, where
    # the best s solves λs² + (2λ − ½)s = 3/2.
    half = 2 * ridge - 0.5
    root = math.hypot(half, math.sqrt(6 * ridge))
    best = 3 / (root + half) if half >= 0 else (root - half) / (2 * ridge)
    best = min(max(best, 0.5 / ridge), 1 / ridge)
    left = max(0.0, 1 - ridge * best)
    beyond = math.sqrt(best) * (best / (1 + best)) * math.sqrt(left)
    return max(0.5 / math.sqrt(ridge) / (2 * ridge + 1), beyond)


def pessimism_only_loss(
    n_min: int,
    *,
    actions: int,
    least_count: int,
    temperature: float,
    penalty: float,
    reward_range: float,
    reference_ratio: float = 1.0,
) -> tuple[float, float]:
    """Return (ε, δ) of one draw when one record is removed, with pessimism in place of shrinkage.

    Guarantee:
        An upper bound, rounded up, for every data set of more than ``n_min`` records and each of
        its records. Shown by tests/soundness/test_arm_sensitivity.py.
    """
    # f(a) = mean − β/√N_a, and an arm that was never pulled is never drawn. With n_min public
    # records or more after the removal, K = `least_count` and M = ⌈(n_min − K + 1)/(actions − 1)⌉,
    # in either direction:
    #     ε = (R/(K + 1) + β·(1/√K − 1/√(K + 1)))/temperature,
    #     δ = σ(log(reference_ratio) + (R − β/√K + β/√M)/temperature).
    # Proof. If the arm of the record keeps K others, its score alone moves, by at most
    # ε·temperature. Otherwise it has at most K records before and K − 1 after, so its score is at
    # most R − β/√K both times, or it is not drawn. The others share at least n_min − K + 1 records,
    # so one of them has M or more and a score of at least −β/√M: the rare arm is drawn with
    # probability at most δ under both data sets. The scores of the others do not move, so nothing
    # but that probability tells the two apart.
    # Source: KLDP, Theorem 1 and Corollary 1 (approximate); docs/intrinsic.md, "Multi-armed
    # bandits". Differs: the δ of the paper is too small, and is computed from the private counts.
    others = _validate.integer("actions", actions, at_least=2) - 1
    least = _validate.integer("least_count", least_count, at_least=1)
    n_min = _validate.integer("n_min", n_min, at_least=least)
    width = _validate.positive("reward_range", reward_range)
    heat = _validate.positive("temperature", temperature)
    ratio = float(exact("reference_ratio", reference_ratio))
    if ratio < 1:
        raise UsageError(f"reference_ratio must be at least 1, got {reference_ratio!r}.")
    moved = Fraction(width) / (least + 1) + penalty_moves(penalty, Fraction(least))
    most = -((least - 1 - n_min) // others)  # rounded up
    with localcontext(DIGITS):
        hot, strength = Decimal(heat), Decimal(float(penalty))
        rare, common = (strength / Decimal(count).sqrt() / hot for count in (least, most))
        terms = [Decimal(ratio).ln(), Decimal(width) / hot, -rare, common]
        odds = sum(terms, start=Decimal(0)) + sum(map(abs, terms), start=Decimal(0)) * _ERROR
        chance = Fraction(1 / (1 + (-odds).exp())) if odds >= _NEVER else Fraction(0)
    likely = rounded_up(chance * MORE, "failure probability") if chance else SMALLEST
    return rounded_up(moved / Fraction(heat), "epsilon"), min(1.0, likely)


def withheld_label_range(
    differences: Matrix, queries: Matrix, *, ridge: float, ball: float, inexactness: float = 0.0
) -> float:
    """Return the range of one flipped label, for public pairs and a fit over a ball."""
    # Source: docs/intrinsic.md, "Withheld rewards of preferences"; `LabelCurvature`.
    curvature = LabelCurvature.of(differences, ridge=ridge, ball=ball)
    return curvature.range(queries, inexactness=inexactness)


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
    outside = ~inside & np.isfinite(weight)

    def log_weight(best: int) -> float:
        """Return the log of how much all candidates outside can weigh against one, rounded up."""
        if not outside.any():
            return -math.inf
        reach = ball * np.linalg.norm(queries[outside] - queries[best], axis=1)
        gain = taken[best] - taken[outside]
        sizes = reach + abs(taken[best]) + np.abs(taken[outside]) + 2 * slack
        exponents = weight[outside] - weight[best] + (reach + gain + 2 * slack) / temperature
        known = np.abs(weight[outside]) + abs(weight[best]) + sizes / temperature
        exponents += (known + 1) * (UP - 1)
        most = float(exponents.max())
        total = most + math.log(float(np.exp(exponents - most).sum()))
        return total + (abs(total) + 1) * (UP - 1)

    least = min(log_weight(int(best)) for best in np.flatnonzero(inside))
    over = curvature.range(queries[inside], inexactness=slack)
    return over, min(1.0, float(expit(least)) * UP)


def closed_form_label_range(
    least_eigenvalue: float, *, ball: float, spread: float = 2.0, bound: float = 2.0
) -> float:
    """Return the range of one flipped label from the least eigenvalue of Σxxᵀ alone."""
    # It replaces Theorem 3 of KLDP, whose constant is wrong by a factor up to 4, and holds for the
    # estimate over the ball only.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": D·X(2 + e^{BX} + e^{−BX})/λ_min.
    least, bound = size("least_eigenvalue", least_eigenvalue), size("bound", bound)
    ball, spread = size("ball", ball), size("spread", spread, zero=True)
    slope = float(_least_slope(ball * bound * UP))
    curved = spread * bound / (slope * least) if slope else math.inf
    return min(curved, 2 * ball * spread) * UP
