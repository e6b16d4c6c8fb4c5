"""Answers to labels, by a coin or as they are: many at once, and what can be told from them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.errors import DataError
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.randomized_response import NonPrivate, RandomizedResponse
from sordino.privacy.guarantee import SHARES, UNDECIDED

COIN = RandomizedResponse(1.0)
LABELS = np.array([0, 1, 2], dtype=np.int8)


@pytest.mark.parametrize("bad", [[len(SHARES)], [-1, 0], [0.5], [[1]]])
@pytest.mark.parametrize("mechanism", [COIN, NonPrivate()])
def test_labels_are_checked(mechanism, bad):
    for drawn in (mechanism.release, lambda *a, **k: mechanism.repeat(*a, 5, **k)):
        with pytest.raises(DataError, match="index 0"):
            drawn(np.array(bad), entropy=SimulatedEntropy(1))


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


def test_without_noise_an_answer_is_possible_for_one_input_only():
    outputs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=np.int8)
    case = WorstCase(np.array([0, 2]), np.array([1, 2]))
    assert NonPrivate().log_ratio(outputs, case).tolist() == [math.inf] * 2 + [-math.inf] * 2
    same = WorstCase(np.array([0, 2]), np.array([0, 1]))
    found = NonPrivate().log_ratio(outputs, same).tolist()
    assert found == [math.inf, -math.log(2), 0.0, 0.0]


class Words:
    randomness = "system"

    def __init__(self, words):
        self.given, self.taken = np.array(words, dtype=np.uint64), 0

    def words(self, n):
        self.taken += n
        return self.given[:n]


def test_decided_labels_are_released_as_they_are():
    labels = np.array([1, 0, 0, 1, 1], dtype=np.int8)
    answers = NonPrivate().release(labels, entropy=SystemEntropy())
    assert answers.tolist() == labels.tolist()
    assert answers.dtype == np.int8


@pytest.mark.parametrize(("word", "said"), [(0, 1), (2**63 - 1, 1), (2**63, 0), (2**64 - 1, 0)])
def test_undecided_labels_take_the_first_half_of_the_words_for_one(word, said):
    entropy = Words([word] * 3)
    answers = NonPrivate().release(np.array([1, UNDECIDED, 0]), entropy=entropy)
    assert answers.tolist() == [1, said, 0]
    assert entropy.taken == 3
