"""The test of counts: its contract, its settings, and what it refuses."""

import math

import numpy as np
import pytest

from sordino._random import SimulatedEntropy
from sordino.errors import DataError
from sordino.mechanisms import minimum_count_release
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    ApproximateEvent,
    Guarantee,
)

RELATIONS = [ADD_OR_REMOVE_ONE, REPLACE_SPECIAL, REPLACE_ONE]


def test_only_the_least_count_is_read(monkeypatch):
    monkeypatch.setattr(minimum_count_release, "_laplace_noise", lambda _rate, _words: 0)
    made = MinimumCount(1.0, delta=1e-6)
    for counts in ([100, 7, 9], [7], [7, 7]):
        drawn = made.release(np.array(counts), entropy=SimulatedEntropy(0))
        assert drawn.tolist() == [7 - 1 - made.margin]


def test_what_is_released_fits_64_bits(monkeypatch):
    made = MinimumCount(1e-12, delta=1e-6)
    for noise in (10**30, -(10**30)):
        monkeypatch.setattr(
            minimum_count_release, "_laplace_noise", lambda _rate, _words, noise=noise: noise
        )
        drawn = made.release(np.array([2**63 - 1]), entropy=SimulatedEntropy(0))
        assert drawn.tolist() == [int(math.copysign(2**62, noise))]


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_event_sensitivity_and_guarantee_say_the_same_under_every_relation(neighbors):
    made = MinimumCount(0.1, delta=1e-7)
    assert made.event == ApproximateEvent(0.1, 1e-7)
    assert made.sensitivity(neighbors) == 1
    wanted = Guarantee(0.1, delta=1e-7, unit="record", neighbors=neighbors, trust="central")
    assert made.guarantee(unit="record", neighbors=neighbors, trust="central") == wanted


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_the_worst_case_is_two_neighbors_that_every_output_tells_apart(neighbors):
    made = MinimumCount(0.7, delta=1e-3)
    case = made.worst_case(neighbors)
    assert case.one.min() - case.other.min() == 1
    assert case.one.sum() - case.other.sum() == (0 if neighbors is REPLACE_ONE else 1)
    drawn = made.repeat(case.one, 200, entropy=SimulatedEntropy(0))
    ratios = made.log_ratio(drawn, case)
    assert ratios.shape == (200,)
    assert set(np.abs(ratios).tolist()) == {0.7}
    above = -made.margin  # the v of noise 0 under case.one
    assert made.log_ratio(np.array([[above], [above - 1]]), case).tolist() == [0.7, -0.7]


def test_a_negative_count_is_named_by_its_index_alone():
    with pytest.raises(DataError, match="index 1 ") as caught:
        MinimumCount(1.0, delta=0.1).release(np.array([7, -4321]), entropy=SimulatedEntropy(0))
    assert "4321" not in str(caught.value)
