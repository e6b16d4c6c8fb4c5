"""What one label of a person may cost, and which rows are used."""

import math
from fractions import Fraction

import pytest

from sordino.errors import UsageError
from sordino.preferences.comparisons import PublicDigest
from sordino.preferences.pairs import read_pairs
from sordino.privacy import accounting
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privatization.randomization import coin_for_person


def together(coin, labels):
    return accounting.composed_epsilon([(coin.event, labels)], neighbors=REPLACE_ONE, delta=0.0)


@pytest.mark.deep
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, math.pi, 5.0, 10.0, 100.0])
def test_the_shares_together_never_pass_the_total_and_nearly_reach_it(epsilon):
    for labels in (*range(1, 40), 97, 1000):
        coin = coin_for_person(epsilon, labels=labels)
        total = together(coin, labels)
        assert total <= epsilon
        flips = Fraction(coin.threshold, 2**64)
        assert labels * math.log1p((1 - 2 * flips) / flips) <= epsilon * (1 + 1e-15)
        if epsilon / labels < 15:  # above, 64-bit words are coarse
            assert total == pytest.approx(epsilon, rel=1e-12)


def test_a_share_that_rounds_up_is_lowered():
    assert 6 * Fraction(repr(5.0 / 6)) > 5
    assert together(coin_for_person(5.0, labels=6), 6) <= 5.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_a_total_is_positive_and_finite(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        coin_for_person(epsilon, labels=2)


def test_a_share_that_says_nothing_is_refused_with_its_total():
    with pytest.raises(UsageError, match=r"epsilon=0\.5 for 1000000 labels"):
        coin_for_person(0.5, labels=1_000_000)


ROWS = [
    {"prompt": f"q{i}", "chosen": "yes", "rejected": "no", "person": f"p{i % 2}"} for i in range(6)
]


def test_rows_that_are_kept_have_a_digest_of_their_own():
    pairs = read_pairs(ROWS)
    some = pairs.part([0, 3, 4])
    assert [len(pairs), len(some)] == [6, 3]
    assert some.prompts == ("q0", "q3", "q4")
    assert some.persons == ("p0", "p1", "p0")
    assert some.labels.tolist() == pairs.labels[[0, 3, 4]].tolist()
    digest = PublicDigest()
    for key, person in zip(some.keys, some.persons, strict=True):
        digest.add(key, person)
    assert some.public_digest == digest.hexdigest() != pairs.public_digest
    assert some.public_digest == read_pairs([ROWS[0], ROWS[3], ROWS[4]]).public_digest
