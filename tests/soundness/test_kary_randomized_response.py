"""The die of K sides, exactly: which words change a choice, into what, and what that promises."""

from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino._random import SimulatedEntropy
from sordino.auditing.exact import exact_epsilon
from sordino.auditing.statistical.distinguishing import audit_mechanism
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import (
    NO_CHOICE,
    KaryRandomizedResponse,
    RandomizedResponse,
    debiased_choices,
)
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL

WORDS = 2**64
GRID = [1e-3, 0.1, 1.0, 4.0, 20.0, 44.0]


@dataclass
class Script:
    """An entropy that says given words, call by call, the last one over and over."""

    calls: list
    asked: list = field(default_factory=list)
    randomness = "system"

    def words(self, n):
        self.asked.append(n)
        word = self.calls.pop(0) if len(self.calls) > 1 else self.calls[0]
        return np.full(n, word, dtype=np.uint64)


def answers(coin, flip, other, fair=0):
    """What the real release says to every choice, on these words."""
    choices = np.arange(NO_CHOICE, coin.categories)
    return coin.release(choices, entropy=Script([flip, other, fair])).tolist()


def counted_threshold(coin):
    """Smallest word on which a choice is kept, by bisection over all 2^64."""
    low, high = 0, WORDS - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if answers(coin, middle, 0)[1] == 0 else (middle, high)
    return high


def channel(coin):
    """The exact channel of one choice, and of none (named K): rows of fractions."""
    count = coin.categories
    flip = Fraction(counted_threshold(coin), WORDS)
    found = {(y,): dict.fromkeys(range(count), Fraction(0)) for y in range(count + 1)}
    for word in range(count - 1):  # the others, each as likely: see the test of whole rounds
        for y, z in enumerate(answers(coin, 0, word)[1:]):
            found[(y,)][z] += flip / (count - 1)
    for y in range(count):
        found[(y,)][y] += 1 - flip
    for word in range(count):
        found[(count,)][answers(coin, 0, 0, word)[0]] += Fraction(1, count)
    return found


@pytest.mark.parametrize("epsilon", GRID)
@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_exact_loss_is_at_most_what_is_requested_and_recorded(epsilon, count):
    coin = KaryRandomizedResponse(epsilon, count)
    made = channel(coin)
    loss = exact_epsilon(made, [((a,), (b,)) for a in range(count + 1) for b in range(count + 1)
                                if a != b])  # fmt: skip
    assert loss <= Decimal(epsilon)
    assert loss <= Decimal(coin.realized_epsilon)
    assert loss <= Decimal(coin.event.epsilon)
    assert float(loss) >= min(epsilon, 43) * (1 - 1e-3)  # more than words can realize
    promise = coin.guarantee(unit="label", neighbors=REPLACE_ONE, trust="local")
    assert loss <= Decimal(promise.epsilon)
    special = exact_epsilon(
        made, [pair for a in range(count) for pair in (((a,), (count,)), ((count,), (a,)))]
    )
    less = coin.guarantee(unit="label", neighbors=REPLACE_SPECIAL, trust="local")
    assert special <= Decimal(less.epsilon)
    assert less.epsilon < promise.epsilon


@given(st.floats(1e-6, 50.0), st.integers(2, 2**15 - 1))
def test_the_threshold_is_the_one_of_the_event(epsilon, count):
    coin = KaryRandomizedResponse(epsilon, count)
    kept, changed = coin.threshold, coin.threshold - 1
    assert answers(coin, kept, 3)[1:4] == [0, 1, 2][: min(3, count)]
    assert answers(coin, changed, 0)[1:3] == [1, 2 % count]
    assert coin.flip_probability == coin.threshold / WORDS
    assert coin.event.categories == count


@pytest.mark.parametrize("count", [2, 3, 6, 1000])
def test_a_changed_choice_is_uniform_on_whole_rounds(count):
    """Each other candidate has the same number of words; those of the last round are redrawn."""
    coin = KaryRandomizedResponse(1.0, count)
    first_redrawn = WORDS - WORDS % (count - 1)
    for word in (0, count - 2, count - 1, first_redrawn - 1):
        assert answers(coin, 0, word)[1] == 1 + word % (count - 1)
    if first_redrawn < WORDS:
        script = Script([0, first_redrawn, WORDS - 1, 5, 0])
        found = coin.release(np.zeros(4, dtype=int), entropy=script)
        assert found.tolist() == [1 + 5 % (count - 1)] * 4
        assert script.asked == [4, 4, 4, 4, 4]  # the flip, two redrawn, the one that is used; fair


def test_how_many_words_are_drawn_does_not_depend_on_the_choices():
    coin = KaryRandomizedResponse(1.0, 5)
    asked = []
    for choices in ([0, 0, 0], [4, -1, 2], [-1, -1, -1]):
        script = Script([123456789])
        coin.release(np.array(choices), entropy=script)
        asked.append(script.asked)
    assert asked[0] == asked[1] == asked[2]


def test_every_choice_gets_words_of_its_own_across_chunks(monkeypatch):
    monkeypatch.setattr("sordino.mechanisms.randomized_response._CHUNK", 7)
    coin = KaryRandomizedResponse(0.5, 3)
    found = coin.release(np.zeros(30_000, dtype=int), entropy=SimulatedEntropy(0))
    share = np.bincount(found, minlength=3) / 30_000
    # standard deviation .0029; five of them
    keep = 1 - coin.flip_probability
    np.testing.assert_allclose(share, [keep, (1 - keep) / 2, (1 - keep) / 2], atol=0.0145)
    pairs = np.bincount(found[:-1] * 3 + found[1:], minlength=9) / 29_999
    np.testing.assert_allclose(pairs, np.outer(share, share).ravel(), atol=0.0145)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_two_candidates_are_the_coin(epsilon):
    coin, die = RandomizedResponse(epsilon), KaryRandomizedResponse(epsilon, 2)
    assert die.threshold == coin.threshold
    assert die.event == coin.event
    for neighbors in (REPLACE_ONE, REPLACE_SPECIAL):
        known = {"unit": "label", "neighbors": neighbors, "trust": "local"}
        assert die.guarantee(**known) == coin.guarantee(**known)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_debiased_choices_are_unbiased(count):
    """Over the exact channel: the expectation is the choice, or 1/K for each where none was."""
    coin = KaryRandomizedResponse(0.7, count)
    table = debiased_choices(np.arange(count), count, coin.flip_probability)
    for y, row in channel(coin).items():
        mean = sum(float(p) * table[z] for z, p in row.items())
        expected = np.full(count, 1 / count) if y == (count,) else np.eye(count)[y[0]]
        np.testing.assert_allclose(mean, expected, atol=1e-12)


def test_the_auditor_comes_near_the_promise_and_refutes_a_loaded_die():
    """Refuted with probability 1e-3 at most if honest; the audit is seeded."""
    known = {"unit": "label", "neighbors": REPLACE_ONE, "trust": "local"}
    coin = KaryRandomizedResponse(1.0, 4)
    audit = audit_mechanism(coin, **known, trials=20_000, simulate_seed=1)
    assert audit.verdict == "not refuted"

    class Loaded(KaryRandomizedResponse):
        @property
        def threshold(self):
            return super().threshold // 2

    broken = Loaded(1.0, 4)
    assert audit_mechanism(broken, **known, trials=20_000, simulate_seed=1).verdict == "refuted"


@pytest.mark.parametrize("values", [[0, 3], [-2, 0], [0.0, 1.0], [[0, 1]]])
def test_choices_that_do_not_exist_are_refused(values):
    coin = KaryRandomizedResponse(1.0, 3)
    with pytest.raises(DataError, match="index"):
        coin.release(np.array(values), entropy=SimulatedEntropy(0))
    with pytest.raises(DataError):
        debiased_choices(np.array([-1]), coin.categories, coin.flip_probability)


def test_promises_that_are_not_made_are_refused():
    coin = KaryRandomizedResponse(1.0, 3)
    with pytest.raises(PrivacyError, match="REPLACE_ONE"):
        coin.guarantee(unit="label", neighbors=ADD_OR_REMOVE_ONE, trust="local")
    with pytest.raises(PrivacyError, match="unit='label'"):
        coin.guarantee(unit="person", neighbors=REPLACE_ONE, trust="local")
    for settings in ((0.0, 3), (1e-7, 3), (1.0, 1), (1.0, 2**15), (1.0, 2.5)):
        with pytest.raises(UsageError):
            KaryRandomizedResponse(*settings)
