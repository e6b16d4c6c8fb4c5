"""The test of counts: its contract, its settings, and what it refuses."""

import math
import pickle

import numpy as np
import pytest

from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms import minimum_count_release
from sordino.mechanisms.base import Mechanism, Repeatable
from sordino.mechanisms.minimum_count_release import MinimumCount
from sordino.privacy.events import ApproximateEvent
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
)

RELATIONS = [ADD_OR_REMOVE_ONE, REPLACE_SPECIAL, REPLACE_ONE]


def test_it_is_a_mechanism_that_repeats():
    made = MinimumCount(0.5, delta=1e-6)
    assert isinstance(made, Mechanism)
    assert isinstance(made, Repeatable)
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own bytes
    assert hash(made) == hash(MinimumCount(0.5, delta=1e-6))
    with pytest.raises(AttributeError):
        made.epsilon = 1.0


def test_a_release_is_one_number_and_repeats_are_rows():
    made, counts = MinimumCount(0.5, delta=1e-6), np.array([30, 20], dtype=np.uint8)
    one = made.release(counts, entropy=SimulatedEntropy(3))
    many = made.repeat(counts, 50, entropy=SimulatedEntropy(3))
    assert (one.shape, one.dtype) == ((1,), np.int64)
    assert (many.shape, many.dtype) == ((50, 1), np.int64)
    assert one.tolist() == many[0].tolist()
    assert len(set(many[:, 0].tolist())) > 3
    assert abs(made.release(counts, entropy=SystemEntropy())[0]) < 10**4
    with pytest.raises(UsageError, match="trials"):
        made.repeat(counts, -1, entropy=SimulatedEntropy(3))


def test_only_the_least_count_is_read(monkeypatch):
    monkeypatch.setattr(minimum_count_release, "laplace_noise", lambda _rate, _words: 0)
    made = MinimumCount(1.0, delta=1e-6)
    for counts in ([100, 7, 9], [7], [7, 7]):
        drawn = made.release(np.array(counts), entropy=SimulatedEntropy(0))
        assert drawn.tolist() == [7 - 1 - made.margin]


def test_what_is_released_fits_64_bits(monkeypatch):
    made = MinimumCount(1e-12, delta=1e-6)
    for noise in (10**30, -(10**30)):
        monkeypatch.setattr(
            minimum_count_release, "laplace_noise", lambda _rate, _words, noise=noise: noise
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


@pytest.mark.parametrize("unit", ["label", "person"])
def test_other_units_are_refused(unit):
    with pytest.raises(PrivacyError, match=f"unit='{unit}'"):
        MinimumCount(1.0, delta=0.1).guarantee(unit=unit, neighbors=REPLACE_ONE, trust="central")


def test_an_unknown_relation_is_refused():
    with pytest.raises(UsageError, match="neighbors"):
        MinimumCount(1.0, delta=0.1).sensitivity("replace")


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


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, 9e-13, "1", True])
def test_an_epsilon_that_is_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        MinimumCount(epsilon, delta=0.1)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, math.nan, None])
def test_a_delta_that_is_refused(delta):
    with pytest.raises(UsageError, match="delta"):
        MinimumCount(1.0, delta=delta)


@pytest.mark.parametrize("counts", [[], [[1, 2]], [1.5, 2.0], ["1"], 3])
def test_counts_that_are_none_are_refused(counts):
    with pytest.raises(DataError, match="whole numbers"):
        MinimumCount(1.0, delta=0.1).release(np.array(counts), entropy=SimulatedEntropy(0))


def test_a_negative_count_is_named_by_its_index_alone():
    with pytest.raises(DataError, match="index 1 ") as caught:
        MinimumCount(1.0, delta=0.1).release(np.array([7, -4321]), entropy=SimulatedEntropy(0))
    assert "4321" not in str(caught.value)
