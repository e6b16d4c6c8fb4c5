"""The coin, exactly: which of the 2^64 words flip, and what that promises in 50 digits."""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.auditing.exact import exact_epsilon, label_neighbors
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.conversions import realized_epsilon
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, never_less

WORDS = 2**64
GRID = [1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 10.0, 20.0, 40.0, 44.3, 44.36, 44.4, 50.0]
EPSILONS = st.floats(1e-6, 50.0)


@dataclass
class Words:
    """An entropy that says one word over and over."""

    word: int
    randomness = "system"

    def words(self, n):
        return np.full(n, self.word, dtype=np.uint64)


def flips(coin, word):
    """Whether the real release flips both labels on this word (it must treat them alike)."""
    answers = coin.release(np.array([0, 1]), entropy=Words(word))
    assert answers.dtype == np.int8
    assert answers.tolist() in ([0, 1], [1, 0])
    return answers.tolist() == [1, 0]


def counted_threshold(coin):
    """Smallest word that the real release does not flip on, by bisection over all 2^64."""
    low, high = 0, WORDS - 1
    assert flips(coin, low)
    assert not flips(coin, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if flips(coin, middle) else (low, middle)
    return high


def channel_of(coin):
    """The exact channel of one label, counted word by word."""
    flip = Fraction(counted_threshold(coin), WORDS)
    return {(y,): {y: 1 - flip, 1 - y: flip} for y in (0, 1)}


def exact_loss(coin):
    return exact_epsilon(channel_of(coin), label_neighbors(1))


def keeps_its_promise(coin):
    """The check that the mutants must fail: requested, realized and recorded are all bounds."""
    loss = exact_loss(coin)
    return (
        loss <= Decimal(coin.epsilon)
        and loss <= Decimal(coin.realized_epsilon)
        and loss <= Decimal(repr(coin.realized_epsilon))
        and loss <= Decimal(coin.event.epsilon)
    )


@pytest.mark.parametrize("threshold", [8469216845598671737, 6550931558933023922, 1, 2**63 - 1])
def test_no_loss_is_above_what_its_float_prints_as(threshold):
    """The first two round to floats that are above the loss, and print as less than it."""
    with localcontext(prec=60):
        loss = (Decimal(WORDS - threshold) / Decimal(threshold)).ln()
        stated = realized_epsilon(threshold)
        assert loss <= min(Decimal(stated), Decimal(repr(stated)))
        for digits in (3, 6, 12):
            assert loss <= Decimal(never_less(stated, digits))


@pytest.mark.parametrize("epsilon", GRID)
def test_exact_loss_is_at_most_what_is_requested_and_recorded(epsilon):
    """Claim: PPKL, equation (7): randomized response is ε-private for labels, locally
    Verdict: true
    Ours: sordino.RandomizedResponse: exact on 64-bit words, system entropy, realized ε stated;
        sordino.preferences.records.canonical: an order that no label moves; stored answers for
        repeats
    """
    coin = RandomizedResponse(epsilon)
    assert keeps_its_promise(coin)
    promise = coin.guarantee(unit="label", neighbors=REPLACE_ONE, trust="local")
    assert exact_loss(coin) <= Decimal(promise.epsilon)
    assert (promise.delta, promise.unit) == (0.0, "label")


@given(EPSILONS)
def test_exact_loss_is_at_most_any_requested_epsilon(epsilon):
    assert keeps_its_promise(RandomizedResponse(epsilon))


@given(EPSILONS)
def test_no_privacy_is_wasted(epsilon):
    loss = exact_loss(RandomizedResponse(epsilon))
    largest = Decimal(WORDS - 1).ln()
    # one word more or less changes the loss by about 1/(2^64 p(1 − p))
    step = 2 / (float(RandomizedResponse(epsilon).flip_probability) * 2**64 * 0.5)
    assert float(loss) >= min(epsilon, float(largest)) - max(1e-12, 2 * step)


@given(EPSILONS, st.integers(0, WORDS - 1))
def test_a_word_flips_exactly_when_it_is_below_the_threshold(epsilon, word):
    coin = RandomizedResponse(epsilon)
    assert flips(coin, word) == (word < coin.threshold)


@pytest.mark.parametrize("epsilon", GRID)
def test_both_edges_of_the_threshold(epsilon):
    coin = RandomizedResponse(epsilon)
    k = coin.threshold
    assert flips(coin, k - 1)
    assert not flips(coin, k)
    assert counted_threshold(coin) == k


@pytest.mark.parametrize("epsilon", GRID)
def test_debiasing_uses_the_realized_coin(epsilon):
    coin = RandomizedResponse(epsilon)
    exact = Fraction(counted_threshold(coin), WORDS)
    assert coin.flip_probability == float(exact)
    assert coin.kappa == float(1 - 2 * exact)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(999, 1000)])
def test_a_mutant_with_less_noise_is_caught(epsilon, share, monkeypatch):
    honest = RandomizedResponse.threshold.fget
    monkeypatch.setattr(
        RandomizedResponse, "threshold", property(lambda self: int(honest(self) * share))
    )
    assert not keeps_its_promise(RandomizedResponse(epsilon))


def test_an_off_by_one_threshold_is_caught(monkeypatch):
    honest = RandomizedResponse.threshold.fget
    monkeypatch.setattr(RandomizedResponse, "threshold", property(lambda self: honest(self) - 1))
    caught = [not keeps_its_promise(RandomizedResponse(epsilon)) for epsilon in (10.0, 20.0, 40.0)]
    assert all(caught)


def test_every_label_gets_a_word_of_its_own_across_chunks(monkeypatch):
    monkeypatch.setattr("sordino.mechanisms.randomized_response._CHUNK", 3)
    coin = RandomizedResponse(1.0)

    class Counting(Words):
        taken = 0

        def words(self, n):
            start, self.taken = self.taken, self.taken + n
            return np.array([0 if i % 2 else WORDS - 1 for i in range(start, start + n)], np.uint64)

    source = Counting(0)
    answers = coin.release(np.zeros(8, dtype=int), entropy=source)
    assert answers.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert source.taken == 8


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), "1", None, True, 1e-19])
def test_refused_epsilons(bad):
    with pytest.raises(UsageError, match="epsilon"):
        RandomizedResponse(bad)


@pytest.mark.parametrize("bad", [[0, 121], [0.5], [[0, 1]], [float("nan")], [-1], 1, [0, 2, 257]])
def test_values_that_are_no_labels_draw_nothing(bad):
    class Never:
        randomness = "system"

        def words(self, n):
            raise AssertionError

    with pytest.raises(DataError, match="index"):
        RandomizedResponse(1.0).release(np.array(bad), entropy=Never())


def test_relations_and_units_that_it_cannot_promise_are_refused():
    coin = RandomizedResponse(1.0)
    with pytest.raises(PrivacyError, match="REPLACE_ONE"):
        coin.guarantee(unit="record", neighbors=ADD_OR_REMOVE_ONE, trust="local")
    with pytest.raises(PrivacyError, match="label"):
        coin.guarantee(unit="person", neighbors=REPLACE_ONE, trust="local")


def test_the_worst_case_attains_the_loss():
    coin = RandomizedResponse(1.0)
    pair = coin.worst_case(REPLACE_ONE)
    assert sorted([pair.one.tolist(), pair.other.tolist()]) == [[0], [1]]
    assert float(exact_loss(coin)) == pytest.approx(1.0, abs=1e-15)
