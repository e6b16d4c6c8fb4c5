"""What pessimism alone promises of a bandit whose number of records is public, rounded up.

Formulas without a policy: a penalty so large that an arm of few pulls is hardly ever drawn.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

from sordino import _validate
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms._exact_sizes import MORE, SMALLEST, exact, penalty_moves
from sordino.mechanisms._gibbs_draws import DIGITS, rounded_up
from sordino.privacy.conversions import replace_from_add_remove
from sordino.privacy.guarantee import REPLACE_ONE, NeighboringRelation

__all__ = ["pessimism_only_guarantee", "pessimism_only_loss"]

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

    f(a) = mean − β/√N_a, and an arm that was never pulled is never drawn. With n_min public
    records or more after the removal, K = ``least_count`` and
    M = ⌈(n_min − K + 1)/(actions − 1)⌉, in either direction:

        ε = (R/(K + 1) + β·(1/√K − 1/√(K + 1)))/temperature,
        δ = σ(log(reference_ratio) + (R − β/√K + β/√M)/temperature).

    Proof. If the arm of the record keeps K others, its score alone moves, by at most
    ε·temperature. Otherwise it has at most K records before and K − 1 after, so its score is at
    most R − β/√K both times, or it is not drawn. The others share at least n_min − K + 1
    records, so one of them has M or more and a score of at least −β/√M: the rare arm is drawn
    with probability at most δ under both data sets. The scores of the others do not move, so
    nothing but that probability tells the two apart.

    Args:
        n_min: Public lower bound on the size of the smaller data set; at least ``least_count``.
        actions: Number of arms, at least 2.
        least_count: K ≥ 1, chosen without looking at the data.
        temperature: KL strength in units of reward, > 0.
        penalty: β ≥ 0. Of no use unless β·(1/√K − 1/√M) > R.
        reward_range: R, upper less lower end of the range that rewards are cut to; > 0.
        reference_ratio: Largest over least probability of the public reference, ≥ 1.

    Returns:
        ε, which is also the bounded range of the first case, and δ; a δ of 1 promises nothing.
        Under no relation of its own: see :func:`pessimism_only_guarantee`.

    Raises:
        UsageError: An argument is out of range.

    Guarantee:
        An upper bound, rounded up, for every data set of more than ``n_min`` records and each of
        its records. Shown by tests/soundness/test_arm_sensitivity.py.

    Source:
        KLDP, Theorem 1 and Corollary 1 (approximate); docs/intrinsic.md, "Multi-armed bandits".
        Differs: the δ of the paper is too small, and is computed from the private counts.

    Example:
        >>> epsilon, delta = pessimism_only_loss(
        ...     10_000, actions=5, least_count=200, temperature=0.1, penalty=47.0, reward_range=1.0)
        >>> round(epsilon, 8), f"{delta:.6e}"
        (0.13252601, '1.077871e-06')
    """
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
    """Return (ε, δ) of one draw when one of n records is replaced, with pessimism alone.

    The number n of records is public, so that a replacement is a removal, which leaves n − 1,
    and an addition: (2ε, (1 + e^ε)·δ) of :func:`pessimism_only_loss`, whose arguments these are.

    Args:
        n: Public number of records, at least ``least_count`` + 1.
        neighbors: ``REPLACE_ONE``, and no other.
        actions: Number of arms, at least 2.
        least_count: K ≥ 1, chosen without looking at the data.
        temperature: KL strength in units of reward, > 0.
        penalty: β ≥ 0.
        reward_range: R, upper less lower end of the range that rewards are cut to; > 0.
        reference_ratio: Largest over least probability of the public reference, ≥ 1.

    Returns:
        ε and δ for unit ``"record"``; a δ of 1 promises nothing.

    Raises:
        PrivacyError: Another relation: n would be public and private at once.
        UsageError: An argument is out of range.

    Guarantee:
        An upper bound for every two data sets of n records that differ in one. Shown by
        tests/soundness/test_arm_sensitivity.py.

    Source:
        docs/intrinsic.md, "Multi-armed bandits"; docs/privacy.md, "Relations".

    Example:
        >>> epsilon, _ = pessimism_only_guarantee(
        ...     10_001, neighbors=REPLACE_ONE, actions=5, least_count=200, temperature=0.1,
        ...     penalty=47.0, reward_range=1.0)
        >>> round(epsilon, 8)
        0.26505203
    """
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
