"""Draws of withheld scores: settings, errors, the chances that are drawn from, worst cases."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino._random import SimulatedEntropy
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.gibbs import SLACK, SoftmaxMechanism, least_temperature
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, BoundedRangeEvent

REFERENCE = (0.5, 0.2, 0.3)


def made(temperature=0.5, **settings):
    given = {"score_range": 0.25, "reference": REFERENCE, "neighbors": ADD_OR_REMOVE_ONE}
    return SoftmaxMechanism(temperature, **{**given, **settings})


def test_chances_are_the_reference_tilted_by_the_scores():
    scores = np.array([0.1, 0.7, -0.4])
    weights = np.array(REFERENCE) * np.exp(scores / 0.5)
    found = np.exp(made().log_probabilities(scores))
    np.testing.assert_allclose(found, weights / weights.sum(), rtol=1e-12)


def test_an_action_without_reference_is_never_drawn():
    choice = made(reference=(0.0, 0.5, 0.5))
    drawn = choice.repeat([100.0, 0.0, 0.0], 1000, entropy=SimulatedEntropy(0))
    assert set(drawn.ravel().tolist()) == {1, 2}


def test_a_release_makes_the_stated_number_of_draws():
    choice = made(draws=7)
    assert choice.release([0.0, 0.0, 0.0], entropy=SimulatedEntropy(1)).shape == (7,)
    assert choice.repeat([0.0, 0.0, 0.0], 4, entropy=SimulatedEntropy(1)).shape == (4, 7)
    assert choice.event == BoundedRangeEvent(choice.bounded_range, draws=7)


def test_the_bounded_range_is_the_score_range_over_the_temperature_rounded_up():
    exact = Fraction(0.25) / Fraction(0.5)
    assert exact + SLACK <= Fraction(made().bounded_range) <= exact + SLACK + Fraction(1, 2**52)


def test_scores_that_never_change_and_a_choice_of_one_cost_nothing():
    assert made(score_range=0.0).event == BoundedRangeEvent(0.0)
    assert made(reference=(0.0, 1.0, 0.0)).event == BoundedRangeEvent(0.0)
    assert made(reference=(1.0,)).release([3.0], entropy=SimulatedEntropy(0)).tolist() == [0]


def test_a_guarantee_adds_the_draws_and_holds_for_its_relation_only():
    choice = made(draws=3)
    promise = choice.guarantee(unit="record", neighbors=ADD_OR_REMOVE_ONE, trust="central")
    assert promise.delta == 0
    assert math.isclose(promise.epsilon, 1.5, rel_tol=1e-9)
    assert promise.epsilon >= 1.5
    with pytest.raises(PrivacyError, match="ADD_OR_REMOVE_ONE; it says nothing under REPLACE_ONE"):
        choice.guarantee(unit="record", neighbors=REPLACE_ONE, trust="central")


@pytest.mark.parametrize("reference", [REFERENCE, (0.5, 0.5), (0.9, 0.05, 0.05), (0.01,) * 100])
def test_the_worst_case_moves_the_odds_of_one_action_by_the_whole_range(reference):
    choice = made(reference=reference)
    case = choice.worst_case(ADD_OR_REMOVE_ONE)
    one, other = (choice.log_probabilities(scores) for scores in (case.one, case.other))
    ratios = one - other
    assert math.isclose(ratios.max() - ratios.min(), 0.5, rel_tol=1e-9)
    first = int(np.argmax(reference))
    np.testing.assert_allclose(np.exp(one[first]) + np.exp(other[first]), 1.0, rtol=1e-9)


def test_log_ratios_of_many_draws_add():
    choice = made(draws=2)
    case = choice.worst_case(ADD_OR_REMOVE_ONE)
    single = made().log_ratio(np.array([[0], [1]]), case)
    both = choice.log_ratio(np.array([[0, 1], [1, 1]]), case)
    np.testing.assert_allclose(both, [single.sum(), 2 * single[1]], rtol=1e-12)


@pytest.mark.parametrize("scores", [[0.0, 1.0], [0.0, math.nan, 1.0], [0.0, math.inf, 1.0]])
def test_scores_that_cannot_be_used_are_refused_by_index_alone(scores):
    with pytest.raises(DataError, match=r"Nothing was drawn") as caught:
        made().release(scores, entropy=SimulatedEntropy(0))
    assert "nan" not in str(caught.value)


@given(st.floats(1e-12, 1e12), st.floats(1e-9, 55.0))
def test_the_least_temperature_keeps_the_range_and_hardly_more(score_range, target):
    temperature = least_temperature(score_range, target)
    found = made(temperature, score_range=score_range).bounded_range
    assert found <= target
    assert found >= target * (1 - 1e-9)


def test_no_temperature_keeps_what_is_smaller_than_the_arithmetic():
    with pytest.raises(UsageError, match="no finite temperature"):
        least_temperature(1.0, 1e-20)
    assert least_temperature(0.0, 1.0) == 1.0


def test_large_scores_lose_no_digits():
    """A penalty of 10^46 leaves what decides behind forty zeros; floats would lose it."""
    large = Decimal(10) ** 46
    more = Decimal("10000000000000000000000000000000000000000000000.25")
    found = made().log_probabilities([more, large, large])
    np.testing.assert_allclose(found, made().log_probabilities([0.25, 0.0, 0.0]), rtol=1e-12)
