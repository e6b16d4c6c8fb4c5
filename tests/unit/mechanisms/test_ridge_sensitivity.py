"""Ranges of ridge regression: what they refuse, how they scale, and what they round."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from sordino.errors import DataError, UsageError
from sordino.mechanisms.score_sensitivity import constrained_ridge_range, public_design_ridge_range

SIZES = st.floats(-60, 60).map(lambda x: min(max(10.0**x, 1e-60), 1e60))
DESIGN = np.array([[1.0, 0.0], [0.0, 0.5]])


@given(SIZES, SIZES, SIZES, SIZES, st.one_of(st.just(0.0), SIZES))
@settings(max_examples=200)
def test_formulas_are_rounded_up_and_little(ridge, spread, ball, reward, penalty):
    with mpmath.workdps(150):
        lam, size = mpmath.mpf(ridge), mpmath.mpf(spread)
        step = penalty * (1 / mpmath.sqrt(lam) - 1 / mpmath.sqrt(lam + 1))
        residual = mpmath.mpf(reward) + ball
        moved = min(2 * mpmath.mpf(ball), residual / mpmath.sqrt(lam * (lam + 1)))
        truth = moved * size + step
        stated = constrained_ridge_range(
            ridge, spread=spread, ball=ball, reward_bound=reward, penalty=penalty
        )
        assert truth <= stated <= truth * (1 + mpmath.mpf(2) ** -38)


def test_inexact_scores_cost_four_times_what_they_may_be_wrong():
    terms = {"spread": 2.0, "reward_bound": 1.0}
    for make in (
        lambda **more: constrained_ridge_range(3.0, ball=1.0, **terms, **more),
        lambda **more: public_design_ridge_range(
            DESIGN, DESIGN, ridge=1.0, reward_range=1.0, **more
        ),
    ):
        assert make(inexactness=0.25) == pytest.approx(make() + 1, rel=1e-9)


def test_one_action_or_no_record_has_no_range():
    none = {"ridge": 1.0, "reward_range": 1.0}
    assert public_design_ridge_range(DESIGN, DESIGN[:1], **none) == 0
    assert public_design_ridge_range(np.zeros((0, 2)), DESIGN, **none) == 0
    assert constrained_ridge_range(1.0, spread=0.0, ball=1.0, reward_bound=1.0) == 0


def test_many_blocks_of_rows_are_the_same_as_copies_of_few():
    rows = np.tile(DESIGN, (5000, 1))
    stated = public_design_ridge_range(rows, DESIGN, ridge=1.0, reward_range=1.0)
    assert stated == pytest.approx(max(1 / 5001, 0.25 / 1251), rel=1e-9)
    assert public_design_ridge_range(
        sparse.csr_array(rows), sparse.csr_array(DESIGN), ridge=1.0, reward_range=1.0
    ) == pytest.approx(stated, rel=1e-12)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf, 1e-61, 1e61, "1", True])
def test_sizes_out_of_range_are_refused(wrong):
    good = {"spread": 1.0, "ball": 1.0, "reward_bound": 1.0}
    with pytest.raises(UsageError, match="ridge"):
        constrained_ridge_range(wrong, **good)
    with pytest.raises(UsageError, match="ball"):
        constrained_ridge_range(1.0, **{**good, "ball": wrong})
    with pytest.raises(UsageError, match="reward_range"):
        public_design_ridge_range(DESIGN, DESIGN, ridge=1.0, reward_range=wrong)


def test_rows_that_do_not_fit_are_refused_and_never_shown():
    terms = {"ridge": 1.0, "reward_range": 1.0}
    with pytest.raises(DataError, match="queries must have 2 columns"):
        public_design_ridge_range(DESIGN, np.ones((2, 3)), **terms)
    with pytest.raises(DataError, match="finite"):
        public_design_ridge_range([[math.nan, 1.0]], DESIGN, **terms)
    with pytest.raises(DataError, match="largest number") as caught:
        public_design_ridge_range(DESIGN * 7e70, DESIGN, **terms)
    assert "7" not in str(caught.value)
