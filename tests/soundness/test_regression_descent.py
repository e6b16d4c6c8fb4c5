"""One pass of noisy gradient steps: what one change moves in any step, for any weights."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino._random import entropy
from sordino.mechanisms.regressions import descent
from sordino.mechanisms.regressions.descent import DescentRegression
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL

RELATIONS = (REPLACE_SPECIAL, REPLACE_ONE)
PUBLIC = {"feature_bound": 1.5, "target_bound": 2.0, "radius": 3.0}


def made(rows, relation, **changes):
    usual = {"standard_deviation": 20.0, "prediction_bound": 2.0, "delta": 1e-6}
    return DescentRegression(**PUBLIC | usual | changes, rows=rows, neighbors=relation)


def sums(regression, values, weights, plan):
    """Every inner batch's exact sum of gradients at given weights, in steps."""
    rows, targets = regression.batch(values[:, :-1], values[:, -1])
    return [
        regression._steps_of_sum(rows[part], targets[part], weights)[0].astype(object)
        for part in regression._parts(plan)
    ]


def moved(regression, one, other, weights):
    """How many inner batches differ, and how far those are apart together, squared and exact."""
    plan = regression.plan(one.shape[1] - 1)
    pairs = zip(*(sums(regression, v, weights, plan) for v in (one, other)), strict=True)
    squares = [sum(int(k) ** 2 for k in first - second) for first, second in pairs]
    return np.count_nonzero(squares), sum(squares) * Fraction(regression._noise.step) ** 2


NUMBERS = st.one_of(
    st.floats(-4.0, 4.0), st.floats(allow_nan=False, allow_infinity=False), st.just(0.0)
)


@st.composite
def games(draw):
    d = draw(st.integers(1, 4))
    row = st.lists(NUMBERS, min_size=d + 1, max_size=d + 1)
    rows = draw(st.lists(row, min_size=2, max_size=6))
    rows += rows[:1] * draw(st.integers(0, 3))
    weights = draw(st.lists(st.floats(-1e3, 1e3), min_size=d, max_size=d))
    return np.array(rows), np.array(draw(row)), np.array([weights])


@given(games(), st.sampled_from(RELATIONS), st.integers(1, 2), st.integers(0, 10))
@settings(max_examples=200)
def test_one_change_moves_one_step_by_the_sensitivity(game, relation, inner_batches, where):
    rows, new, weights = game
    regression = made(len(rows), relation, inner_batches=inner_batches)
    limit = Fraction(regression.sensitivity(relation)) ** 2
    where %= len(rows)
    for other in (new, -rows[where], np.append(rows[where][:-1], -rows[where][-1])):
        changed = rows.copy()
        changed[where] = 0.0 if relation == REPLACE_SPECIAL else other
        steps, square = moved(regression, rows, changed, weights)
        assert steps <= 1
        assert square <= limit


@given(st.integers(1, 500), st.integers(1, 500))
def test_every_row_is_in_exactly_one_inner_batch(rows, inner_batches):
    regression = made(rows, REPLACE_ONE, inner_batches=min(rows, inner_batches))
    plan = regression.plan(3)
    read = [list(range(rows))[part] for part in regression._parts(plan)]
    assert [row for part in read for row in part] == list(range(rows))
    assert all(read)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_sensitivity_is_attained_at_some_weights(relation):
    # REPLACE_ONE: the residuals of opposite signs differ by 4R·B of 4(R + H)·B, and H may be tiny.
    regression = made(40, relation, inner_batches=4, prediction_bound=1e-3)
    case = regression.worst_case(relation)
    steps, square = moved(regression, case.one, case.other, np.array([[3.0, 0.0]]))
    assert steps == 1
    assert float(square) ** 0.5 == pytest.approx(regression.sensitivity(relation), rel=2e-3)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_log_ratio_is_that_of_the_whole_pass(relation):
    """Its mean is half its variance, as of any pair of Gaussians of one variance step by step.

    Where weights hardly move (a tiny step) the loss of the changed row is a constant μ, and within
    six standard errors of 20,000 passes the mean is μ²/2 and the deviation μ.
    """
    regression = made(6, relation, inner_batches=3, step=1e-9)
    case = regression.worst_case(relation)
    outputs = regression.repeat(case.one, 20_000, entropy=entropy(0))
    ratios = regression.log_ratio(outputs, case)
    mu = (1 if relation == REPLACE_SPECIAL else 2) * 2 * 2.0 * 1.5 / 20.0
    assert ratios.mean() == pytest.approx(mu * mu / 2, abs=6 * mu / 20_000**0.5)
    assert ratios.std() == pytest.approx(mu, rel=0.03)


def test_gradients_that_are_not_clipped_are_caught(monkeypatch):
    regression = made(1, REPLACE_SPECIAL, inner_batches=1)
    rows, weights = np.array([[1.5, -2.0]]), np.array([[100.0]])
    limit = Fraction(regression.sensitivity(REPLACE_SPECIAL)) ** 2
    assert moved(regression, rows, 0 * rows, weights)[1] <= limit
    monkeypatch.setattr(
        descent, "clipped_rows",
        lambda vectors, most, step: np.rint(vectors / step).astype(np.int64),
    )  # fmt: skip
    assert moved(regression, rows, 0 * rows, weights)[1] <= limit  # predictions are clipped still
    monkeypatch.setattr(descent.np, "clip", lambda values, *_: values)
    assert moved(regression, rows, 0 * rows, weights)[1] > 100 * limit
