"""No noise: labels as they are, and a fair coin for those that say neither."""

import math

import numpy as np
import pytest

from sordino._random import SystemEntropy
from sordino.errors import DataError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.privacy.events import UNDECIDED
from sordino.privacy.guarantee import REPLACE_ONE


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


def test_undecided_labels_fall_to_both_sides():
    """All alike among 200 with chance 2^-199: no false alarm, and a constant never passes."""
    answers = NonPrivate().release(np.full(200, UNDECIDED), entropy=SystemEntropy())
    assert set(answers.tolist()) == {0, 1}


@pytest.mark.parametrize("bad", [[3], [0, -1], [0.5], [[1]]])
def test_values_that_are_no_labels(bad):
    with pytest.raises(DataError, match="index"):
        NonPrivate().release(np.array(bad), entropy=SystemEntropy())


def test_it_promises_nothing():
    mechanism = NonPrivate()
    promise = mechanism.guarantee(unit="label", neighbors=REPLACE_ONE, trust="central")
    assert (promise.epsilon, promise.delta) == (math.inf, 0.0)
    assert mechanism.sensitivity(REPLACE_ONE) == math.inf
    pair = mechanism.worst_case(REPLACE_ONE)
    assert pair.one.tolist() != pair.other.tolist()
