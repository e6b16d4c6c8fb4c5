"""Private least squares from noised sums: what one change moves in all of them together."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.regressions import gaussian
from sordino.mechanisms.regressions.base import RegressionTerms
from sordino.mechanisms.regressions.descent import OnePassDescent
from sordino.mechanisms.regressions.gaussian import (
    AdaptiveRegression,
    AdaptiveStatistics,
    GaussianRegression,
    GaussianStatistics,
    _joint_loss,
    _split_noise,
    _worst_cosine,
)
from sordino.privacy.conversions import gaussian_delta
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL

RELATIONS = (REPLACE_SPECIAL, REPLACE_ONE)
ORACLES = (GaussianStatistics(), AdaptiveStatistics(), OnePassDescent())
PUBLIC = {"feature_bound": 1.5, "target_bound": 2.0, "radius": 3.0}


def made(rows, relation, *, moment=3.0, cross=4.0, least=None, **changes):
    public = PUBLIC | changes | {"rows": rows, "neighbors": relation, "delta": 1e-6}
    if least is None:
        return GaussianRegression(**public, moment_deviation=moment, cross_deviation=cross)
    return AdaptiveRegression(
        **public, moment_deviation=moment, cross_deviation=cross, eigenvalue_deviation=least
    )


def moved(regression, one, other):
    """How far two batches (targets last) are apart in deviations of the noise: exact sums."""
    square = Fraction(0)
    sides = [regression.batch(v[:, :-1], v[:, -1]) for v in (one, other)]
    moments = [regression._moment._sum(rows).astype(object) for rows, _ in sides]
    crosses = [regression._cross(rows, targets).astype(object) for rows, targets in sides]
    for (first, second), step, deviation in (
        (moments, Fraction(regression._moment.step) ** 2, regression.moment_deviation),
        (crosses, Fraction(regression._cross_step), regression.cross_deviation),
    ):
        apart = sum(int(k) ** 2 for k in (first - second).ravel())
        square += apart * (step / Fraction(deviation)) ** 2
    if isinstance(regression, AdaptiveRegression):
        first, second = (regression._steps_of_least(rows) for rows, _ in sides)
        apart = (Fraction(first) - Fraction(second)) * Fraction(regression._step)
        square += (apart / Fraction(regression.eigenvalue_deviation)) ** 2
    return square


NUMBERS = st.one_of(
    st.floats(-4.0, 4.0), st.floats(allow_nan=False, allow_infinity=False), st.just(0.0)
)


@st.composite
def batches(draw):
    """Rows with targets last, and what replaces the first one; some persons occur repeatedly."""
    d = draw(st.integers(1, 5))
    row = st.lists(NUMBERS, min_size=d + 1, max_size=d + 1)
    rows = draw(st.lists(row, min_size=1, max_size=6))
    rows += rows[:1] * draw(st.integers(0, 3))
    return np.array(rows), np.array(draw(row))


def neighbor(rows, new, relation):
    return np.vstack([0 * new if relation == REPLACE_SPECIAL else new, rows[1:]])


@pytest.mark.parametrize("least", [None, 2.0])
@given(batches(), st.sampled_from(RELATIONS), st.floats(-1.0, 1.0), st.integers(-6, 6))
@settings(max_examples=150)
def test_one_change_moves_all_sums_together_by_the_sensitivity(least, batch, relation, tilt, power):
    rows, new = batch
    regression = made(len(rows), relation, moment=3.0 * 2.0**power, least=least)
    limit = Fraction(regression.sensitivity(relation) * (1 + 1e-12)) ** 2
    first = rows[0]
    turned = np.where(np.arange(len(first)) % 2, -first, first)
    with np.errstate(over="ignore"):
        mixed = np.nan_to_num(first * tilt + turned, posinf=1e300, neginf=-1e300)
    for other in (new, -first, np.append(first[:-1], -first[-1]), turned, mixed):
        assert moved(regression, rows, neighbor(rows, other, relation)) <= limit


@pytest.mark.parametrize("least", [None, 2.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_worst_case_attains_the_sensitivity(relation, least):
    """Least squares would need √2·B² and 2BR for a replaced record; they are never attained
    together."""
    regression = made(400, relation, least=least)
    case = regression.worst_case(relation)
    assert (case.one != case.other).any(axis=1).sum() == 1
    found = math.sqrt(moved(regression, case.one, case.other))
    assert found == pytest.approx(regression.sensitivity(relation), rel=2e-3 if least else 1e-5)
    if relation == REPLACE_ONE and least is None:
        square = PUBLIC["feature_bound"] ** 2
        both = math.hypot(
            math.sqrt(2) * square / 3.0, 2 * PUBLIC["feature_bound"] * PUBLIC["target_bound"] / 4.0
        )
        assert found < 0.97 * both


@given(
    st.floats(0.01, 10), st.floats(0.01, 10), st.floats(0, 10),
    st.lists(st.floats(0, 1), min_size=2, max_size=2), st.floats(-1, 1),
    st.lists(st.floats(-1, 1), min_size=2, max_size=2),
)  # fmt: skip
@settings(max_examples=500)
def test_no_two_rows_of_any_length_move_more(moment, cross, least, lengths, p, targets):
    """In two dimensions, where any two rows lie; λ_min moves by the norm of the change at most."""
    x = np.array([lengths[0], 0.0])
    z = lengths[1] * np.array([p, math.sqrt(1 - p * p)])
    change = np.outer(x, x) - np.outer(z, z)
    square = (moment * np.linalg.norm(change)) ** 2
    square += (cross * np.linalg.norm(x * targets[0] - z * targets[1])) ** 2
    square += (least * np.linalg.norm(change, 2)) ** 2
    assert square <= _joint_loss(REPLACE_ONE, moment, cross, least) ** 2 * (1 + 1e-12)


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.floats(0, 10))
@settings(max_examples=200)
def test_the_worst_cosine_is_the_worst(moment, cross, least):
    def square(p):
        return (2 * moment**2 + least**2) * (1 - p * p) + 2 * cross**2 * (1 + p)

    grid = square(np.linspace(-1, 1, 2001)).max()
    best = square(_worst_cosine(moment, cross, least))
    assert best >= grid * (1 - 1e-12)
    assert best == pytest.approx(_joint_loss(REPLACE_ONE, moment, cross, least) ** 2)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.1, 0.9), (1 / 3, 1 / 3, 1 / 3)])
def test_a_split_costs_what_it_should(relation, shares):
    assert _joint_loss(relation, *_split_noise(0.7, relation, shares)) == pytest.approx(0.7)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 20.0])
def test_what_is_calibrated_states_what_was_asked_for(oracle, relation, epsilon):
    found = oracle.calibrated(
        RegressionTerms(**PUBLIC, rows=1000), epsilon, delta=1e-5, neighbors=relation
    )
    promise = found.guarantee(unit="record", neighbors=relation, trust="central")
    assert 0.99 * epsilon < promise.epsilon <= epsilon
    assert promise.delta == 1e-5
    assert gaussian_delta(epsilon, found.event.mu) <= 1e-5
    assert gaussian_delta(epsilon, 2 * found.event.mu) > 1e-5
    rounded = isinstance(found, AdaptiveRegression)
    assert promise.caveats == (("real-arithmetic",) if rounded else ())
    if isinstance(oracle, OnePassDescent):
        ways = 2 if relation == REPLACE_ONE else 1
        assert found.sensitivity(relation) == ways * 2 * (2.0 + 2.0) * 1.5


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_slots_promise_nothing_to_a_row_that_is_removed(oracle):
    with pytest.raises(PrivacyError, match="moves all later users"):
        oracle.calibrated(
            RegressionTerms(**PUBLIC, rows=10), 1.0, delta=1e-5, neighbors=ADD_OR_REMOVE_ONE
        )
    found = oracle.calibrated(
        RegressionTerms(**PUBLIC, rows=10), 1.0, delta=1e-5, neighbors=REPLACE_ONE
    )
    for asked in (found.sensitivity, found.worst_case):
        with pytest.raises(PrivacyError, match="Nothing was spent"):
            asked(ADD_OR_REMOVE_ONE)
    with pytest.raises(PrivacyError, match="Nothing was spent"):
        found.guarantee(unit="record", neighbors=ADD_OR_REMOVE_ONE, trust="central")
    with pytest.raises(PrivacyError, match="unit='person'"):
        found.guarantee(unit="person", neighbors=REPLACE_ONE, trust="central")


def test_the_eigenvalue_moves_by_the_square_of_the_bound_whatever_the_others_are():
    rng = np.random.default_rng(0)
    for relation in RELATIONS:
        rows = rng.normal(size=(60, 4)) * 1e6
        regression = made(60, relation, least=1e-3)
        steps = [
            regression._steps_of_least(regression.batch(v, np.zeros(60))[0])
            for v in (rows, neighbor(rows, rng.normal(size=4) * 1e9, relation))
        ]
        assert abs(steps[0] - steps[1]) * regression._step <= PUBLIC["feature_bound"] ** 2


def test_targets_that_are_not_clipped_are_caught(monkeypatch):
    regression = made(1, REPLACE_SPECIAL)
    rows = np.array([[1.5, 40.0]])
    limit = Fraction(regression.sensitivity(REPLACE_SPECIAL)) ** 2
    assert moved(regression, rows, 0 * rows) <= limit
    monkeypatch.setattr(gaussian.np, "clip", lambda values, *_: np.asarray(values))
    monkeypatch.setattr(GaussianRegression, "batch", lambda _, rows, targets: (rows, targets))
    assert moved(regression, rows, 0 * rows) > 100 * limit


def test_sums_are_those_of_the_rows():
    rng = np.random.default_rng(1)
    rows, targets = rng.normal(size=(3000, 5)) * 0.3, rng.normal(size=3000) * 0.5
    regression = made(3000, REPLACE_ONE)
    cross = regression._cross(rows, targets) * regression._cross_step
    assert cross == pytest.approx(rows.T @ targets, abs=1e-3)
    whole = np.rint(targets / 2.0 * 2**20).astype(np.int64)
    steps = gaussian.clipped_rows(rows, 2**20, regression._moment.step)
    slow = [sum(int(a) * int(b) for a, b in zip(column, whole, strict=True)) for column in steps.T]
    assert regression._cross(rows, targets).tolist() == slow


def test_the_eigenvalue_is_that_of_the_rows_that_are_summed():
    """With coarse steps the three sums would otherwise not share one cosine."""
    regression = made(3, REPLACE_ONE, moment=2.0**31, cross=1.4, least=1.0)
    rows, _ = regression.batch(np.array([[0.3, 0.4], [0.11, -0.2], [0.7, 0.1]]), np.zeros(3))
    seen = regression.steps_of(rows) * regression._moment.step
    assert not np.allclose(seen, rows, atol=1e-6)
    least = np.linalg.eigvalsh(seen.T @ seen)[0]
    assert abs(regression._steps_of_least(rows) * regression._step - least) <= regression._step


@pytest.mark.parametrize("target", [2.0**-401, 2.0**401])
def test_targets_beyond_the_range_of_floats_are_refused(target):
    with pytest.raises(UsageError, match="out of the range of floats"):
        made(3, REPLACE_ONE, target_bound=target)
