"""First choices, randomized one by one: which ballots, which die, and what is refused."""

import dataclasses
import math

import numpy as np
import pytest

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import KaryRandomizedResponse
from sordino.preferences.rankings import Rankings
from sordino.privatization.answers import privatize_choices

NAMES = ("ale", "beer", "tea")


def election(table, persons=None):
    return Rankings.from_ranks(NAMES, np.asarray(table, dtype=float), persons, offered="all")


def test_what_is_randomized_is_the_best_candidate(ledger):
    """With ε = 40 a flip has a chance below 1e-16."""
    rankings = election([[1, 2, 3], [3, 1, 2], [2, 3, 1], [math.nan, math.nan, 1]])
    made = privatize_choices(rankings, KaryRandomizedResponse(40.0, 3), ledger=ledger(50.0))
    assert made.answers.tolist() == [0, 1, 2, 2]
    assert (made.items, len(made)) == (NAMES, 4)
    assert made.guarantee.caveats == ("randomized-at-ingestion", "repeats-not-linked")
    assert repr(made) == "PrivateChoices(n=4)"


def test_a_fair_die_decides_a_tie(ledger):
    """3,000 ballots each: binomial counts within 6 standard deviations, false alarms 4e-9."""
    rankings = election([[1, 1, 2]] * 3000 + [[math.nan] * 3] * 3000)
    made = privatize_choices(rankings, KaryRandomizedResponse(40.0, 3), ledger=ledger(50.0))
    tied = np.bincount(made.answers[:3000], minlength=3)
    nothing = np.bincount(made.answers[3000:], minlength=3)
    assert tied[2] == 0
    assert abs(tied[0] - 1500) < 6 * math.sqrt(750)
    assert (np.abs(nothing - 1000) < 6 * math.sqrt(3000 * 2 / 9)).all()


def test_a_repeat_of_one_person_is_left_out(ledger):
    rankings = election([[1, 2, 3], [2, 1, 3], [3, 2, 1]], ["ann", "ann", "bo"])
    made = privatize_choices(rankings, KaryRandomizedResponse(40.0, 3), ledger=ledger(50.0))
    assert made.answers.tolist() == [0, 2]
    assert made.persons == ("ann", "bo")
    assert "person-group" in made.guarantee.caveats
    assert "repeats-not-linked" not in made.guarantee.caveats


def test_a_seed_is_said(ledger):
    coin, rankings = KaryRandomizedResponse(1.0, 3), election([[1, 2, 3]] * 9)
    one, other = (
        privatize_choices(rankings, coin, ledger=ledger(1.0), simulate_seed=4) for _ in range(2)
    )
    assert one.answers.tolist() == other.answers.tolist()
    assert one.guarantee.simulated


def test_the_spend_is_that_of_the_die(ledger):
    books = ledger(2.0)
    coin = KaryRandomizedResponse(1.5, 3)
    privatize_choices(election([[1, 2, 3]]), coin, ledger=books)
    assert books.total().epsilon == pytest.approx(1.5, rel=1e-9)
    with pytest.raises(sordino.BudgetExceeded):
        privatize_choices(election([[1, 2, 3]]), coin, ledger=books)
    assert len(books.spends) == 1


def test_what_is_refused_spends_nothing(ledger, monkeypatch, tmp_path, linear_world):
    books, rankings = ledger(9.0), election([[1, 2, 3]])
    person = sordino.Guarantee(
        9.0, delta=0.0, unit="person", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    others = sordino.Ledger.open(tmp_path / "spend.db", data="test", budget=person)
    coin = KaryRandomizedResponse(1.0, 3)
    for error, given, mechanism, account, seed in (
        (PrivacyError, linear_world(5, 2)[0], coin, books, None),
        (UsageError, rankings, sordino.RandomizedResponse(1.0), books, None),
        (UsageError, rankings, coin, books, -1),
        (DataError, rankings, KaryRandomizedResponse(1.0, 4), books, None),
        (DataError, rankings, coin, others, None),  # nobody knows whose ballots they are
    ):
        with pytest.raises(error):
            privatize_choices(given, mechanism, ledger=account, simulate_seed=seed)
    assert not books.spends
    assert not others.spends


def test_answers_keep_their_promise(ledger):
    made = privatize_choices(
        election([[1, 2, 3]] * 4), KaryRandomizedResponse(1.0, 3), ledger=ledger(1.0)
    )
    changes = (
        {"answers": made.answers[:2]},
        {"answers": np.array([0, 1, 2, 3])},
        {"flip_probability": KaryRandomizedResponse(2.0, 3).flip_probability},
        {"flip_probability": KaryRandomizedResponse(1.0, 4).flip_probability},
        {"guarantee": dataclasses.replace(made.guarantee, epsilon=0.5)},
    )
    for change in changes:
        with pytest.raises((DataError, PrivacyError)):
            dataclasses.replace(made, **change)
