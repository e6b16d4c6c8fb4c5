"""Ranges of withheld rewards: what they refuse, how they scale, and what they round."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from tests.claims.proved_bounds import (
    withheld_label_range,
)

from sordino.errors import DataError, UsageError
from sordino.mechanisms.score_sensitivity import (
    LabelCurvature,
    _least_slope,
    withheld_record_range,
    withheld_ridge_label_range,
)

PAIRS = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
QUERIES = np.eye(2)
SIZES = st.floats(-20, 20).map(lambda x: 10.0**x)
BALLS = st.floats(-3, 2).map(lambda x: 10.0**x)


@given(st.one_of(st.floats(0, 700), st.floats(0, 1e-3)))
def test_the_least_slope_is_rounded_down(margin):
    with mpmath.workdps(60):
        truth = 1 / (2 + mpmath.exp(margin) + mpmath.exp(-margin))
        assert truth * (1 - 1e-6) <= _least_slope(margin) <= truth


@given(SIZES, SIZES, BALLS, st.one_of(st.just(0.0), SIZES), SIZES)
@settings(max_examples=200)
def test_formulas_are_rounded_up_and_little(ridge, spread, ball, penalty, other):
    with mpmath.workdps(120):
        lam, size, bound = mpmath.mpf(ridge), mpmath.mpf(spread), mpmath.mpf(2)
        step = penalty * (1 / mpmath.sqrt(mpmath.mpf(other)) - 1 / mpmath.sqrt(other + bound**2))
        slope = 1 / (2 + mpmath.exp(2 * ball) + mpmath.exp(-2 * ball))
        residual = 1 / (1 + mpmath.exp(-2 * mpmath.mpf(ball)))
        inside = min(2 * ball, residual * 2 / mpmath.sqrt(lam * (lam + slope * 4)))
        terms = {"spread": spread, "bound": 2.0, "penalty": penalty, "penalty_ridge": other}
        pairs = [
            (size * 2 / lam, withheld_ridge_label_range(ridge, spread=spread, bound=2.0)),
            (size * 2 / lam + step, withheld_record_range(ridge, **terms)),
            (size * inside + step, withheld_record_range(ridge, ball=ball, **terms)),
        ]
        for truth, stated in pairs:
            assert truth <= stated <= truth * (1 + 1e-6)


def test_inexact_scores_cost_four_times_what_they_may_be_wrong():
    for make in (
        lambda **more: withheld_label_range(PAIRS, QUERIES, ridge=1.0, ball=1.0, **more),
        lambda **more: withheld_record_range(2.0, spread=1.0, bound=1.0, **more),
    ):
        assert make(inexactness=0.25) == pytest.approx(make() + 1, rel=1e-9)


def test_the_curvature_is_factored_once_and_says_what_the_function_says():
    made = LabelCurvature.of(PAIRS, ridge=1.0, ball=1.0)
    stated = withheld_label_range(sparse.csr_array(PAIRS), QUERIES, ridge=1.0, ball=1.0)
    assert made.range(QUERIES) == pytest.approx(stated, rel=1e-12)
    assert made.range(sparse.csr_array(QUERIES)) == pytest.approx(stated, rel=1e-12)
    assert made.range(QUERIES + 7.0) == pytest.approx(stated, rel=1e-9)  # differences alone count
    assert made.range(3 * QUERIES) == pytest.approx(3 * stated, rel=1e-9)
    assert made.range(QUERIES[:1]) == 0
    assert "factor" not in repr(made)


def test_more_pairs_a_larger_ridge_and_a_smaller_ball_hide_more():
    here = withheld_label_range(PAIRS, QUERIES, ridge=1.0, ball=1.0)
    assert withheld_label_range(np.vstack([PAIRS] * 9), QUERIES, ridge=1.0, ball=1.0) < here
    assert withheld_label_range(PAIRS, QUERIES, ridge=2.0, ball=1.0) < here
    assert withheld_label_range(PAIRS, QUERIES, ridge=1.0, ball=0.5) < here
    many = np.tile(PAIRS, (1000, 1))
    stated = withheld_label_range(many, QUERIES, ridge=1e-3, ball=0.1)
    slopes = [_least_slope(0.1 * float(np.linalg.norm(row))) for row in PAIRS]
    matrix = 1e-3 * np.eye(2) + 1000 * (PAIRS.T * slopes) @ PAIRS
    inverse, apart = np.linalg.inv(matrix), QUERIES[0] - QUERIES[1]
    longest = max(float(row @ inverse @ row) for row in PAIRS)
    assert stated == pytest.approx(math.sqrt(longest * float(apart @ inverse @ apart)), rel=1e-6)


def test_the_ball_bounds_what_the_pairs_do_not():
    """No ridge and a direction that no pair has: the weights may still move through the ball."""
    for rows in (PAIRS[:1], np.zeros((3, 2))):
        assert withheld_label_range(rows, QUERIES, ridge=0.0, ball=0.3) == pytest.approx(
            0.6 * math.sqrt(2), rel=1e-9
        )
    assert withheld_label_range(np.zeros((0, 2)), QUERIES, ridge=0.0, ball=0.3) == 0


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, 1e-61, 1e61, "1", True])
def test_sizes_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match="ridge"):
        LabelCurvature.of(PAIRS, ridge=wrong, ball=1.0)
    with pytest.raises(UsageError, match="ball"):
        LabelCurvature.of(PAIRS, ridge=1.0, ball=wrong)
    with pytest.raises(UsageError, match="ridge"):
        withheld_record_range(wrong, spread=1.0, bound=1.0)
    with pytest.raises(UsageError, match="bound"):
        withheld_ridge_label_range(1.0, spread=1.0, bound=wrong)


def test_the_plain_likelihood_and_a_penalty_without_its_matrix_are_refused():
    with pytest.raises(UsageError, match="ridge"):
        withheld_ridge_label_range(0.0, spread=1.0, bound=1.0)
    with pytest.raises(UsageError, match="penalty_ridge"):
        withheld_record_range(1.0, spread=1.0, bound=1.0, penalty=1.0)


def test_rows_that_do_not_fit_are_refused():
    made = LabelCurvature.of(PAIRS, ridge=1.0, ball=1.0)
    with pytest.raises(DataError, match="queries must have 2 columns"):
        made.range(np.ones((2, 3)))
    with pytest.raises(DataError, match="finite"):
        LabelCurvature.of([[math.inf, 0.0]], ridge=1.0, ball=1.0)
