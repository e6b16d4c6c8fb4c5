"""Bounds that hold where the published ones do not, and that no command or public name needs.

A penalty so large that an arm of few pulls is hardly ever drawn, where the number of records is
public; a ridge fit without a ball; and a flipped label of pairs, from the least eigenvalue alone or
where candidates far from the others are all but excluded. They are computed in floats as they are
written: nothing is released by them.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logsumexp

from sordino.mechanisms.score_sensitivity import LabelCurvature


def plain_ridge_range(
    ridge: float, n: int, *, spread: float, reward_bound: float, penalty: float = 0.0
) -> float:
    """Return the range of one record that joins n others, for a fit without a ball."""
    # The number of records must be public, so that nothing is promised if a record is added or
    # removed: of N records in all, take n = N − 1, once if a record is made empty and twice if it
    # is replaced.
    # Source: docs/intrinsic.md, "Linear bandits": D·R(κ(λ) + √n·q(λ)) + β(λ^{-1/2} − (λ +
    # 1)^{-1/2}).
    # κ: the largest ‖Σ⁻¹φ‖/(1 + φᵀΣ⁻¹φ) over all designs with Σ at least ridge·I
    own_reward_step = 1 / (ridge + 1) if ridge >= 1 else 1 / (2 * math.sqrt(ridge))
    moved = own_reward_step + math.sqrt(n) * _other_rewards_step(ridge)
    return spread * reward_bound * moved + penalty * (ridge**-0.5 - (ridge + 1) ** -0.5)


def _other_rewards_step(ridge: float) -> float:
    """Return q: the largest ‖Σ⁻¹φ‖·√(s − ridge·‖Σ⁻¹φ‖²)/(1 + s), s = φᵀΣ⁻¹φ, over all designs."""
    # For s ≤ 1/2λ it is largest at ‖Σ⁻¹φ‖² = s/2λ and grows with s; beyond, at ‖Σ⁻¹φ‖ = s, where
    # the best s solves λs² + (2λ − ½)s = 3/2.
    half = 2 * ridge - 0.5
    best = (math.hypot(half, math.sqrt(6 * ridge)) - half) / (2 * ridge)
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
    """Return (ε, δ) of a draw if a record is removed, with pessimism in place of shrinkage."""
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
    least = least_count
    most = math.ceil((n_min - least + 1) / (actions - 1))
    moved = reward_range / (least + 1) + penalty * (least**-0.5 - (least + 1) ** -0.5)
    odds = reward_range - penalty * least**-0.5 + penalty * most**-0.5
    delta = expit(math.log(reference_ratio) + odds / temperature)
    return moved / temperature, float(delta)


def withheld_label_range(
    differences, queries, *, ridge: float, ball: float, inexactness: float = 0.0
) -> float:
    """Return the range of one flipped label, for public pairs and a fit over a ball."""
    # Source: docs/intrinsic.md, "Withheld rewards of preferences"; `LabelCurvature`.
    curvature = LabelCurvature.of(differences, ridge=ridge, ball=ball)
    return curvature.range(queries, inexactness=inexactness)


def withheld_label_loss_outside(
    curvature: LabelCurvature, queries, inside, *, temperature: float, penalties
) -> tuple[float, float]:
    """Return the range over some public candidates, and the probability of all others."""
    # A draw is then (range/temperature, probability)-private for one flipped label: useful where
    # candidates far from the others are all but excluded by their penalty.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": δ = min over b in G of σ(log
    # Σ_{a∉G} exp((B‖φ_a − φ_b‖ − β(Γ_a − Γ_b))/η)).
    reach = curvature.ball * np.linalg.norm(queries[~inside] - queries[inside][:, None], axis=2)
    gain = penalties[inside][:, None] - penalties[~inside]
    odds = logsumexp((reach + gain) / temperature, axis=1)
    return curvature.range(queries[inside]), float(expit(odds.min()))


def closed_form_label_range(
    least_eigenvalue: float, *, ball: float, spread: float = 2.0, bound: float = 2.0
) -> float:
    """Return the range of one flipped label from the least eigenvalue of Σxxᵀ alone."""
    # It replaces Theorem 3 of KLDP, whose constant is wrong by a factor up to 4, and holds for the
    # estimate over the ball only.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences": D·X(2 + e^{BX} + e^{−BX})/λ_min.
    flatness = 2 + math.exp(ball * bound) + math.exp(-ball * bound)
    return min(spread * bound * flatness / least_eigenvalue, 2 * ball * spread)
