"""Many releases of made-up labels at once, and what an auditor can tell from them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sordino._random import SimulatedEntropy
from sordino.errors import DataError
from sordino.mechanisms.base import Repeatable, WorstCase
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.guarantee import REPLACE_ONE

COIN = RandomizedResponse(1.0)
LABELS = np.array([0, 1, 2], dtype=np.int8)


@pytest.mark.parametrize("mechanism", [COIN, NonPrivate()])
def test_every_row_is_one_release(mechanism):
    """Row by row the same words give the same answers as one release after the other."""
    assert isinstance(mechanism, Repeatable)
    rows = mechanism.repeat(LABELS, 50, entropy=SimulatedEntropy(1))
    source = SimulatedEntropy(1)
    singly = [mechanism.release(LABELS, entropy=source) for _ in range(50)]
    assert rows.shape == (50, 3)
    assert rows.dtype == np.int8
    assert np.array_equal(rows, singly)


@pytest.mark.parametrize("mechanism", [COIN, NonPrivate()])
def test_labels_are_checked(mechanism):
    with pytest.raises(DataError, match="index 0"):
        mechanism.repeat(np.array([3]), 5, entropy=SimulatedEntropy(1))


def test_a_subclass_that_spoils_release_spoils_repeat():
    class Silent(RandomizedResponse):
        def release(self, values, *, entropy):
            return np.zeros(len(values), dtype=np.int8)

    assert not Silent(1.0).repeat(LABELS, 5, entropy=SimulatedEntropy(1)).any()


def chance(answers, labels, flip):
    """Return the probability of some answers, label by label."""
    sides = {(z, y): flip if z != y else 1 - flip for z in (0, 1) for y in (0, 1)}
    return math.prod(sides.get((z, y), 0.5) for z, y in zip(answers, labels, strict=True))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
@pytest.mark.parametrize(("one", "other"), [([0, 1, 2], [1, 1, 0]), ([2, 2, 2], [0, 1, 0])])
def test_the_log_ratio_of_every_answer(epsilon, one, other):
    coin = RandomizedResponse(epsilon)
    outputs = np.array(list(itertools.product([0, 1], repeat=3)), dtype=np.int8)
    expected = [
        math.log(chance(row, one, coin.flip_probability))
        - math.log(chance(row, other, coin.flip_probability))
        for row in outputs.tolist()
    ]
    found = coin.log_ratio(outputs, WorstCase(np.array(one), np.array(other)))
    assert found == pytest.approx(np.array(expected), rel=1e-9, abs=1e-12)


def test_the_log_ratio_of_the_worst_case_is_epsilon():
    found = COIN.log_ratio(np.array([[0], [1]], dtype=np.int8), COIN.worst_case(REPLACE_ONE))
    assert found == pytest.approx([COIN.realized_epsilon, -COIN.realized_epsilon])


def test_without_noise_an_answer_is_possible_for_one_input_only():
    outputs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=np.int8)
    case = WorstCase(np.array([0, 2]), np.array([1, 2]))
    assert NonPrivate().log_ratio(outputs, case).tolist() == [math.inf] * 2 + [-math.inf] * 2
    same = WorstCase(np.array([0, 2]), np.array([0, 1]))
    found = NonPrivate().log_ratio(outputs, same).tolist()
    assert found == [math.inf, -math.log(2), 0.0, 0.0]
