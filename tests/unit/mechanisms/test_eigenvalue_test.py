"""Eigenvalue tests: the noisy value is safe under both data sets, and its ranges are those."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.errors import UsageError
from sordino.mechanisms.eigenvalue_test import (
    noisy_least_eigenvalue,
    preference_range_above,
    ridge_range_above,
)
from sordino.mechanisms.preference_sensitivity import withheld_record_range
from sordino.mechanisms.score_sensitivity import constrained_ridge_range

RIDGE = {"spread": 2.0, "ball": 1.0, "reward_bound": 1.0}
PAIRS = {"spread": 2.0, "bound": 2.0, "ball": 1.0}


def chance_above(limit, least, epsilon, delta, step):
    """P(v > limit), exactly: v grows with the noise by as much, so it is a tail of Laplace."""
    without = noisy_least_eigenvalue(least, 0.0, epsilon=epsilon, delta=delta, step=step)
    needed = mpmath.mpf(limit) - mpmath.mpf(without)
    tail = mpmath.exp(-abs(needed) * epsilon / step) / 2
    return tail if needed >= 0 else 1 - tail


@given(st.floats(0, 1e4), st.floats(0, 1), st.floats(0.01, 20), st.floats(-12, -0.31),
       st.sampled_from([1.0, 4.0, 0.25]))  # fmt: skip
@settings(max_examples=300)
def test_the_value_is_too_large_with_the_stated_probability_at_most(
    smaller, share, epsilon, decades, step
):
    """Under the smaller data set and under one whose least eigenvalue is up to one step above."""
    delta = 10.0**decades
    for least in (smaller, smaller + share * step):
        # The last figure of λ_min itself is not the test's to round.
        assert chance_above(smaller * (1 + 1e-15) + 1e-15, least, epsilon, delta, step) <= delta
    nearly = chance_above(smaller, smaller + step, epsilon, delta, step)
    assert nearly >= delta * (1 - 1e-6 * (1 + epsilon) * (1 + smaller))


def test_one_record_moves_the_least_eigenvalue_by_at_most_a_step_also_if_replaced():
    rng = np.random.default_rng(0)
    for _ in range(300):
        d = int(rng.integers(1, 5))
        rows = rng.normal(size=(int(rng.integers(0, 9)), d))
        one, other = (2 * v / np.linalg.norm(v) for v in rng.normal(size=(2, d)))
        shared = rows.T @ rows
        ends = [np.linalg.eigvalsh(shared + np.outer(v, v))[0] for v in (0 * one, one, other)]
        assert -1e-9 <= ends[1] - ends[0] <= 4 + 1e-9
        assert abs(ends[1] - ends[2]) <= 4 + 1e-9


@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.4])
def test_the_value_is_rounded_down(delta):
    with mpmath.workdps(60):
        truth = 50 - 4 + mpmath.mpf(0.3) - 4 * mpmath.log(1 / (2 * mpmath.mpf(delta))) / 2
        stated = noisy_least_eigenvalue(50.0, 0.3, epsilon=2.0, delta=delta, step=4.0)
        assert truth - 1e-6 <= stated <= truth


def test_a_large_delta_has_no_negative_margin():
    half = noisy_least_eigenvalue(5.0, 0.0, epsilon=1.0, delta=0.5)
    assert noisy_least_eigenvalue(5.0, 0.0, epsilon=1.0, delta=0.9) == half <= 4


def test_the_range_is_that_of_a_ridge_that_was_found():
    assert ridge_range_above(30.0, 2.0, **RIDGE) == constrained_ridge_range(30.0, **RIDGE)
    for low in (-math.inf, -5.0, 1.0):
        assert ridge_range_above(low, 2.0, **RIDGE) == constrained_ridge_range(2.0, **RIDGE)
    assert ridge_range_above(math.inf, 2.0, **RIDGE) > 0
    more = ridge_range_above(30.0, 2.0, **RIDGE, penalty=3.0, inexactness=0.1)
    step = 3 * (30**-0.5 - 31**-0.5)
    assert more == pytest.approx(ridge_range_above(30.0, 2.0, **RIDGE) + step + 0.4, rel=1e-9)


def test_the_range_of_pairs_bends_by_the_least_slope():
    slope = 1 / (2 + math.exp(2) + math.exp(-2))
    for tested, kept in ((50.0, 50.0), (-3.0, 0.0)):
        stated = preference_range_above(tested, 0.7, **PAIRS, penalty=1.0, penalty_ridge=0.2)
        plain = withheld_record_range(
            0.7 + slope * kept, **PAIRS, penalty=1.0, penalty_ridge=0.2 + kept
        )
        assert plain <= stated <= plain * (1 + 1e-6)
    written = 4 / (1 + math.exp(-2)) / (0.7 + slope * 50.0)
    assert preference_range_above(50.0, 0.7, **PAIRS) <= written


def test_settings_out_of_range_are_refused():
    for wrong in ({"epsilon": 0.0}, {"delta": 0.0}, {"delta": 1.0}, {"step": -1.0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            noisy_least_eigenvalue(1.0, 0.0, **{"epsilon": 1.0, "delta": 0.1, **wrong})
    for wrong in (math.nan, "1", None):
        with pytest.raises(UsageError, match="noise"):
            noisy_least_eigenvalue(1.0, wrong, epsilon=1.0, delta=0.1)
        with pytest.raises(UsageError, match="tested"):
            ridge_range_above(wrong, 1.0, **RIDGE)
        with pytest.raises(UsageError, match="tested"):
            preference_range_above(wrong, 1.0, **PAIRS)
