"""How far one record of a multi-armed bandit can move the scores of its arms, rounded up.

Every number here is the range (greatest minus least over the arms) of the change h of the scores
between neighboring data sets, in units of reward: divided by the temperature of a Gibbs policy
it bounds the privacy loss of one draw. Rewards count from the lower end of their public range,
which they are cut to. Formulas are computed in fractions, and no rounding makes one smaller.

How far one record moves a ridge regression: the range of the change of its scores.

The estimate minimizes Σ(r − θᵀφ)² + ridge·‖θ‖² with ‖φ‖ ≤ 1 and r in an interval. Its score of an
action is θᵀφ, less penalty·‖φ‖_{Σ⁻¹} with Σ = ridge·I + Σφφᵀ. All results are in units of reward.

What pessimism alone promises of a bandit whose number of records is public, rounded up.

Formulas without a policy: a penalty so large that an arm of few pulls is hardly ever drawn.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from jaxtyping import Integer
from scipy import linalg

from sordino import _validate
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.privacy.conversions import replace_from_add_remove
from sordino.privacy.guarantee import REPLACE_ONE, NeighboringRelation

from .exact_bounds import (
    BLOCK,
    MORE,
    ROUNDING,
    SMALLEST,
    UP,
    BoundedGram,
    dense_blocks,
    exact,
    penalty_moves,
    penalty_step,
    public_rows,
    rounded_total,
    size,
)
from .gibbs_draws import DIGITS, rounded_up
from .grid import Matrix


def shrunken_mean_range(
    shrinkage: float,
    *,
    reward_range: float,
    center: float | None = None,
    penalty: float = 0.0,
    inexactness: float = 0.0,
) -> float:
    """Return how far one record moves shrunken means, less a penalty, whatever the data are."""
    # Guarantee: An upper bound for every two neighboring data sets of unit ``"record"``, of any
    # size. Shown by tests/soundness/test_arm_sensitivity.py.
    # f(a) = (S_a + λ·center)/(N_a + λ) − β/√(N_a + λ), with S_a the sum of N_a rewards in [0, R].
    # One more record of one arm, for `ADD_OR_REMOVE_ONE` and `REPLACE_SPECIAL`:
    #     range ≤ c/(λ + 1) + β·(1/√λ − 1/√(λ + 1)),   c = max(center, R − center).
    # Proof. Only the arm of the record moves. With N records before, a reward r moves its mean by
    # (r − m)/(N + λ + 1), where m = (S + λ·center)/(N + λ). For any S in [0, N·R] and r in [0, R],
    # |r − m| ≤ (N·R + λ·c)/(N + λ). So the mean moves by at most
    # F(N) = (N·R + λ·c)/((N + λ)(N + λ + 1)), and F(N) ≤ F(0) = c/(λ + 1): multiplied out, this
    # says N·R·(λ + 1) ≤ c·N·(N + 2λ + 1), which is true for N ≥ 1 because c ≥ R/2. The step of the
    # penalty falls with N too, so it is at most that at N = 0.
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
    return rounded_total(moved + penalty_moves(penalty, size), inexactness)


def rewards_only_range(
    counts: Integer[np.ndarray, " k"],
    *,
    shrinkage: float,
    reward_range: float,
    inexactness: float = 0.0,
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
    exact("inexactness", inexactness)
    pulled = array[array > 0]
    if not len(pulled):
        return 0.0
    return rounded_total(width / (int(pulled.min()) + size), inexactness)


def mean_range_after_test(
    count: int, *, reward_range: float, penalty: float = 0.0, inexactness: float = 0.0
) -> float:
    """Return how far one record moves the means if every arm has at least ``count`` others."""
    # Guarantee: An upper bound for every two neighboring data sets whose common records hold each
    # arm at least ``count`` times; attained. Shown by tests/soundness/test_arm_sensitivity.py.
    # R/(v + 1) + β·(1/√v − 1/√(v + 1)), for f(a) = mean − β/√N_a and for shrunken means alike. The
    # mean of N ≥ v rewards is moved by one more by at most R/(N + 1); shrinkage λ makes that (N·R +
    # λ·c)/((N + λ)(N + λ + 1)) ≤ R/(N + λ + 1), and the step of the penalty smaller too.
    # Source: docs/intrinsic.md, "Propose, test, release".
    size = Fraction(_validate.integer("count", count, at_least=1))
    width = Fraction(_validate.positive("reward_range", reward_range))
    return rounded_total(width / (size + 1) + penalty_moves(penalty, size), inexactness)


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
    """Return the range of one record that joins n others, for a fit without a ball."""
    # The number of records must be public, so that nothing is promised if a record is added or
    # removed: of N records in all, take n = N − 1, once if a record is made empty and twice if it
    # is replaced.
    # Source: docs/intrinsic.md, "Linear bandits": D·R(κ(λ) + √n·q(λ)) + β(λ^{-1/2} − (λ +
    # 1)^{-1/2}).
    ridge, n = size("ridge", ridge), _validate.integer("n", n, at_least=0)
    moved = own_reward_step(ridge) + math.sqrt(n) * _other_rewards_step(ridge)
    return _total(moved * size("reward_bound", reward_bound), spread, ridge, penalty, inexactness)


def _total(moved: float, spread: float, ridge: float, penalty: float, inexactness: float) -> float:
    total = moved * size("spread", spread, zero=True)
    if penalty := size("penalty", penalty, zero=True):
        total += penalty * penalty_step(ridge)
    return (total + 4 * size("inexactness", inexactness, zero=True)) * UP


def own_reward_step(ridge: float) -> float:
    """Return κ: the largest ‖Σ⁻¹φ‖/(1 + φᵀΣ⁻¹φ) over all designs with Σ at least ridge·I."""
    # Source: docs/intrinsic.md, "Linear bandits".
    return 1 / (ridge + 1) if ridge >= 1 else 1 / (2 * math.sqrt(ridge))


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


def public_design_ridge_range(
    design: Matrix, queries: Matrix, *, ridge: float, reward_range: float, inexactness: float = 0.0
) -> float:
    """Return the range of one changed reward, exactly up to rounding, for public features."""
    # For unit label: what was pulled is public and only rewards are private; never doubled. Scores
    # are computed with a factor of Σ. Of the error of cᵀΣ⁻¹φ with c a difference of two queries and
    # z what was computed for Σ⁻¹c, at most ‖Σz − c‖/(2√λ) is there for any φ of the design, because
    # ‖Σ⁻¹φ‖ ≤ 1/(2√λ); the bound on ‖Σz − c‖ counts the rounding of Σ itself.
    # Source: docs/intrinsic.md, "Linear bandits": R·max_i max_{a,a′} (φ_a − φ_a′)ᵀΣ⁻¹φ_i.
    ridge, reward_range = size("ridge", ridge), size("reward_range", reward_range)
    rows = public_rows("design", design)
    actions = public_rows("queries", queries, d=rows.shape[1])
    actions = actions if isinstance(actions, np.ndarray) else actions.toarray()
    widest = _widest(rows, actions - actions[:1], ridge) if rows.shape[0] else 0.0
    return (widest * reward_range + 4 * size("inexactness", inexactness, zero=True)) * UP


def _widest(rows: Matrix, moved: np.ndarray, ridge: float) -> float:
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
    # the largest difference of two scores of one row, rounded up
    most, share = 0.0, 2 * (d + 4) * ROUNDING * float(lengths.max())
    for block in dense_blocks(rows, BLOCK):
        scores = block @ found
        apart = scores.max(axis=1) - scores.min(axis=1)
        most = max(most, float((apart + share * np.linalg.norm(block, axis=1)).max()))
    return (most + float(wrong.max()) / math.sqrt(ridge)) * UP * scale


_ERROR = Decimal("1e-45")  # above ten roundings of 50 digits, relative to all terms
_NEVER = Decimal(-750)  # e^-750 is below every float


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
    return rounded_up(moved / Fraction(heat), "epsilon"), _chance(odds)


def pessimism_only_guarantee(
    n: int,
    *,
    neighbors: NeighboringRelation,
    actions: int,
    least_count: int,
    temperature: float,
    penalty: float,
    reward_range: float,
    reference_ratio: float = 1.0,
) -> tuple[float, float]:
    """Return (ε, δ) of one draw when one of n records is replaced, with pessimism alone."""
    # Guarantee: An upper bound for every two data sets of n records that differ in one. Shown by
    # tests/soundness/test_arm_sensitivity.py.
    # The number n of records is public, so that a replacement is a removal, which leaves n − 1, and
    # an addition: (2ε, (1 + e^ε)·δ) of `pessimism_only_loss`, whose arguments these are.
    # Source: docs/intrinsic.md, "Multi-armed bandits"; docs/privacy.md, "Relations".
    _validate.one_of("neighbors", neighbors, tuple(NeighboringRelation))
    if neighbors is not REPLACE_ONE:
        raise PrivacyError(
            "Pessimism alone hides one of a public number of records, so it promises nothing "
            f"under {neighbors.name}, which hides that number. Nothing was computed. Use "
            "REPLACE_ONE, or shrunken means."
        )
    epsilon, delta = pessimism_only_loss(
        _validate.integer("n", n, at_least=2) - 1,
        actions=actions,
        least_count=least_count,
        temperature=temperature,
        penalty=penalty,
        reward_range=reward_range,
        reference_ratio=reference_ratio,
    )
    return replace_from_add_remove(epsilon, delta) if delta < 1 else (2 * epsilon, 1.0)


def _chance(odds: Decimal) -> float:
    """Return σ(odds) = 1/(1 + e^-odds), rounded up."""
    if odds < _NEVER:
        return SMALLEST
    with localcontext(DIGITS):
        chance = Fraction(1 / (1 + (-odds).exp()))
    return min(1.0, rounded_up(chance * MORE, "failure probability"))
