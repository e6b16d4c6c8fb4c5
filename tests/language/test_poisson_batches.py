"""Everybody is drawn alone, with a chance that is never more than the one accounted for."""

import math
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("trl", reason="the extra 'language' is not installed")

from hypothesis import given
from hypothesis import strategies as st

from sordino._random import SimulatedEntropy, entropy
from sordino.errors import UsageError
from sordino.language.dp_sgd.privacy import poisson_sample, sampling_threshold


class Words:
    """Words that are known beforehand."""

    randomness = "simulated"

    def __init__(self, words):
        self.left = list(words)

    def words(self, n):
        taken, self.left = self.left[:n], self.left[n:]
        assert len(taken) == n
        return np.array(taken, dtype=np.uint64)


@given(st.floats(min_value=2.0**-60, max_value=1.0))
def test_the_realized_chance_is_never_more_than_stated(probability):
    realized = Fraction(sampling_threshold(probability), 2**64)
    assert realized <= Fraction(probability)
    assert realized <= Fraction(repr(probability))
    assert realized > Fraction(probability) * (1 - Fraction(1, 10**15)) - Fraction(2, 2**64)


def test_a_unit_takes_part_exactly_below_the_threshold():
    words = Words([0, sampling_threshold(0.3) - 1, sampling_threshold(0.3), 2**64 - 1])
    assert poisson_sample("abcd", 0.3, entropy=words) == ["a", "b"]
    assert words.left == []


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.0000001, 2.0**-65, math.nan, math.inf])
def test_what_is_no_chance_is_refused(probability):
    with pytest.raises(UsageError, match="sampling_probability"):
        poisson_sample([1], probability, entropy=entropy(1))


def test_everybody_and_nobody():
    assert poisson_sample(range(5), 1.0, entropy=Words([2**64 - 1] * 5)) == list(range(5))
    assert poisson_sample([], 0.5, entropy=entropy(None)) == []
    assert poisson_sample(iter(range(3)), 0.5, entropy=Words([2**63] * 3)) == []


def test_more_units_than_are_read_at_once():
    """Any iterable will do, and nothing asks for its length."""
    n = (1 << 16) + 7
    assert poisson_sample((i for i in range(n)), 1.0, entropy=entropy(None)) == list(range(n))


def test_frequencies_and_independence():
    """False alarms: below 1e-6 for each of 5 comparisons, of five standard errors; seeded."""
    n, rounds, q = 40, 20_000, 0.2
    source = SimulatedEntropy(7)
    drawn = np.zeros((rounds, n))
    for row in drawn:
        row[poisson_sample(range(n), q, entropy=source)] = 1
    error = math.sqrt(q * (1 - q) / rounds)
    assert np.abs(drawn.mean(0) - q).max() < 6 * error  # the largest of 40
    sizes = drawn.sum(1)
    variance = n * q * (1 - q)
    assert abs(sizes.mean() - n * q) < 5 * math.sqrt(variance / rounds)
    assert abs(sizes.var() / variance - 1) < 5 * math.sqrt(2.1 / rounds)  # binomial: not fixed
    together = np.corrcoef(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())[0, 1]
    assert abs(together) < 5 / math.sqrt(rounds * (n - 1))
    again = np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]
    assert abs(again) < 5 / math.sqrt((rounds - 1) * n)


def test_one_unit_does_not_move_the_chance_of_another():
    """The same words for those before, whoever comes after."""
    few = poisson_sample(range(10), 0.5, entropy=entropy(3))
    many = poisson_sample(range(20), 0.5, entropy=entropy(3))
    assert few == [unit for unit in many if unit < 10]
