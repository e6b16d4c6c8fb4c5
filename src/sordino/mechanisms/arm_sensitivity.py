"""How far one record of a multi-armed bandit can move the scores of its arms, rounded up.

Every number here is the range (greatest minus least over the arms) of the change h of the scores
between neighboring data sets, in units of reward: divided by the temperature of a Gibbs policy
it bounds the privacy loss of one draw. Rewards count from the lower end of their public range,
which they are cut to. Formulas are computed in fractions, and no rounding makes one smaller.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.mechanisms._exact_sizes import exact, penalty_moves, rounded_total

__all__ = [
    "checked_counts",
    "mean_range_after_test",
    "rewards_only_range",
    "shrunken_mean_range",
]


def shrunken_mean_range(
    shrinkage: float,
    *,
    reward_range: float,
    center: float | None = None,
    penalty: float = 0.0,
    inexactness: float = 0.0,
) -> float:
    """Return how far one record moves shrunken means, less a penalty, whatever the data are.

    f(a) = (S_a + λ·center)/(N_a + λ) − β/√(N_a + λ), with S_a the sum of N_a rewards in [0, R].
    One more record of one arm, for ``ADD_OR_REMOVE_ONE`` and ``REPLACE_SPECIAL``:

        range ≤ c/(λ + 1) + β·(1/√λ − 1/√(λ + 1)),   c = max(center, R − center).

    Proof. Only the arm of the record moves. With N records before, a reward r moves its mean by
    (r − m)/(N + λ + 1), where m = (S + λ·center)/(N + λ). For any S in [0, N·R] and r in [0, R],
    |r − m| ≤ (N·R + λ·c)/(N + λ). So the mean moves by at most
    F(N) = (N·R + λ·c)/((N + λ)(N + λ + 1)), and F(N) ≤ F(0) = c/(λ + 1): multiplied out, this
    says N·R·(λ + 1) ≤ c·N·(N + 2λ + 1), which is true for N ≥ 1 because c ≥ R/2. The step of the
    penalty falls with N too, so it is at most that at N = 0.

    Attained, for ``center`` ≤ R/2 or without a penalty, by the first record of an arm whose
    reward is as far from ``center`` as can be. Above R/2 the penalty works against that record.

    Args:
        shrinkage: λ, how many made-up pulls of reward ``center`` each arm gets; > 0, and chosen
            without looking at the data.
        reward_range: R, upper less lower end of the range that rewards are cut to; > 0.
        center: Mean of the made-up pulls above the lower end, in [0, R]; R/2 if left out, where
            the range is smallest.
        penalty: β, strength of pessimism about arms that were pulled rarely; ≥ 0.
        inexactness: ξ, how far any score may be from its formula; adds 4ξ.

    Returns:
        The score range. ``REPLACE_ONE`` is a removal and an addition, and has twice this (of
        which the part 4ξ need not be doubled).

    Raises:
        UsageError: An argument is out of range.

    Guarantee:
        An upper bound for every two neighboring data sets of unit ``"record"``, of any size.
        Shown by tests/soundness/test_arm_sensitivity.py.

    Source:
        KLDP, Theorem 1; docs/intrinsic.md, "Multi-armed bandits". Differs: the bound of the paper
        needs the least count of the private data, this one needs nothing.

    Example:
        >>> shrunken_mean_range(1.0, reward_range=1.0)
        0.25
    """
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
    """Return how far one reward moves the means where it is public which arms were pulled.

    A reward of arm a moves its mean by at most R/(N_a + λ), and no other score; the penalty is
    public and free. Unit ``"label"`` under ``REPLACE_ONE``: nothing is to be doubled.

    Args:
        counts: Public number of records of each arm that can be drawn.
        shrinkage: λ ≥ 0, how many made-up pulls each arm gets.
        reward_range: R, upper less lower end of the range that rewards are cut to; > 0.
        inexactness: ξ, how far any score may be from its formula; adds 4ξ.

    Returns:
        R over the least N_a + λ of all arms that were pulled, plus 4ξ; 0 if there are none, for
        then no reward is used.

    Raises:
        DataError: ``counts`` are not whole numbers of at least 0; only an index is named.
        UsageError: A setting is out of range.

    Guarantee:
        An upper bound for every two data sets with these arms and counts; attained. Shown by
        tests/soundness/test_arm_sensitivity.py.

    Source:
        docs/intrinsic.md, "Multi-armed bandits".

    Example:
        >>> rewards_only_range(np.array([0, 3, 7]), shrinkage=1.0, reward_range=1.0)
        0.25
    """
    width = Fraction(_validate.positive("reward_range", reward_range))
    size = exact("shrinkage", shrinkage)
    array = checked_counts("counts", counts)
    exact("inexactness", inexactness)
    pulled = array[array > 0]
    if not len(pulled):
        return 0.0
    return rounded_total(width / (int(pulled.min()) + size), inexactness)


def mean_range_after_test(
    count: int,
    *,
    reward_range: float,
    penalty: float = 0.0,
    inexactness: float = 0.0,
) -> float:
    """Return how far one record moves the means if every arm has at least ``count`` others.

    R/(v + 1) + β·(1/√v − 1/√(v + 1)), for f(a) = mean − β/√N_a and for shrunken means alike. The
    mean of N ≥ v rewards is moved by one more by at most R/(N + 1); shrinkage λ makes that
    (N·R + λ·c)/((N + λ)(N + λ + 1)) ≤ R/(N + λ + 1), and the step of the penalty smaller too.

    Args:
        count: v ≥ 1, at most the least count of any arm in the smaller data set: released by a
            :class:`~sordino.mechanisms.count_test.CountTest`, whose δ pays for a v above it.
        reward_range: R, upper less lower end of the range that rewards are cut to; > 0.
        penalty: β ≥ 0, strength of pessimism about arms that were pulled rarely.
        inexactness: ξ, how far any score may be from its formula; adds 4ξ.

    Returns:
        The score range for ``ADD_OR_REMOVE_ONE`` and ``REPLACE_SPECIAL``; twice this for
        ``REPLACE_ONE``.

    Raises:
        UsageError: An argument is out of range; below ``count`` = 1 there is no bound, and draws
            come from the reference.

    Guarantee:
        An upper bound for every two neighboring data sets whose common records hold each arm at
        least ``count`` times; attained. Shown by tests/soundness/test_arm_sensitivity.py.

    Source:
        docs/intrinsic.md, "Propose, test, release".

    Example:
        >>> mean_range_after_test(9, reward_range=1.0)
        0.1
    """
    size = Fraction(_validate.integer("count", count, at_least=1))
    width = Fraction(_validate.positive("reward_range", reward_range))
    return rounded_total(width / (size + 1) + penalty_moves(penalty, size), inexactness)


def checked_counts(name: str, counts: Any) -> Integer[np.ndarray, " k"]:
    """Return how often each arm was pulled, as an array of one dimension and at least one arm.

    Raises:
        DataError: These are not whole numbers of at least 0; only an index is named.
    """
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
