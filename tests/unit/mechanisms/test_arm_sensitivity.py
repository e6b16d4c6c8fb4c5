"""Score ranges of arms: what they are worth in simple cases, and what they refuse."""

import math

import numpy as np
import pytest

from sordino.errors import DataError, UsageError
from sordino.mechanisms import score_sensitivity as arms_


def test_simple_cases():
    assert arms_.shrunken_mean_range(1.0, reward_range=1.0) == 0.25
    assert arms_.shrunken_mean_range(1.0, reward_range=1.0, center=0.0) == 0.5
    assert arms_.shrunken_mean_range(1.0, reward_range=1.0, center=1.0) == 0.5
    assert arms_.mean_range_after_test(3, reward_range=1.0) == 0.25
    assert arms_.rewards_only_range([4, 0, 9], shrinkage=0.0, reward_range=2.0) == 0.5
    assert arms_.rewards_only_range([0, 0], shrinkage=1.0, reward_range=2.0) == 0


def test_a_penalty_adds_its_first_step():
    step = 1 - 1 / math.sqrt(2)
    assert arms_.shrunken_mean_range(1.0, reward_range=1.0, penalty=2.0) == pytest.approx(
        0.25 + 2 * step, rel=1e-12
    )
    assert arms_.mean_range_after_test(1, reward_range=1.0, penalty=2.0) == pytest.approx(
        0.5 + 2 * step, rel=1e-12
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shrinkage", 0.0),
        ("shrinkage", math.inf),
        ("shrinkage", "one"),
        ("reward_range", 0.0),
        ("reward_range", math.nan),
        ("center", -0.1),
        ("center", 1.1),
        ("center", math.inf),
        ("penalty", -1.0),
        ("penalty", math.inf),
    ],
)
def test_settings_of_shrunken_means_that_are_refused(name, value):
    settings = {"shrinkage": 1.0, "reward_range": 1.0, name: value}
    with pytest.raises(UsageError, match=name):
        arms_.shrunken_mean_range(settings.pop("shrinkage"), **settings)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_without_a_count_there_is_no_range(count):
    with pytest.raises(UsageError, match="count"):
        arms_.mean_range_after_test(count, reward_range=1.0)


def test_a_range_beyond_all_floats_is_refused():
    with pytest.raises(UsageError, match="score range"):
        arms_.shrunken_mean_range(1e-300, reward_range=1e308, penalty=1e308)


@pytest.mark.parametrize("counts", [[], [[1, 2]], [1.0, 2.0], ["1"], [True, False], 3])
def test_counts_of_a_wrong_shape_or_type_are_refused(counts):
    with pytest.raises(DataError, match="whole numbers"):
        arms_.rewards_only_range(counts, shrinkage=1.0, reward_range=1.0)


def test_a_negative_count_is_named_by_its_index_alone():
    with pytest.raises(DataError, match="index 1 ") as caught:
        arms_.rewards_only_range(np.array([7, -12345]), shrinkage=1.0, reward_range=1.0)
    assert "12345" not in str(caught.value)
