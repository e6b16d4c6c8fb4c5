"""Cards in notebooks say what ``repr`` says, escaped, and never better than it is."""

import html
import math
import re

import numpy as np
import pytest

import sordino
from sordino._markup import card, harmless
from sordino.certificates import Certificate
from sordino.mechanisms.randomized_response import KaryRandomizedResponse
from sordino.preferences.rankings import read_rankings
from sordino.privacy.ledger import Head
from sordino.privatization.answers import privatize_choices

from .reporting.pages import HOSTILE, Reader


def _promise(epsilon=1.0, **changed):
    values = {
        "delta": 0.0,
        "unit": "label",
        "neighbors": sordino.REPLACE_ONE,
        "trust": "central",
        **changed,
    }
    return sordino.Guarantee(epsilon, **values)


def _model(guarantee):
    return sordino.RewardModel(
        weights=np.array([0.123456, -9.87654]),
        features=None,
        guarantee=guarantee,
        ridge=1.0,
        ball=10.0,
        gradient_norm=0.0,
        atol=1.0,
        pairs=7654321,
    )


def _certificate(guarantee, **changed):
    values = {
        "artifact": "reward",
        "digest": "ab" * 32,
        "guarantee": guarantee,
        "data": "answers",
        "release_ids": ("r1",),
        "ledger_head": Head("cd" * 32, 3),
        "ledger_total": guarantee,
        **changed,
    }
    return Certificate(**values)


def _told(item):
    return html.unescape(re.sub(r"<[^>]+>", "|", item._repr_html_()))


@pytest.fixture
def ledger(tmp_path):
    folder = tmp_path / "a_folder_of_mine"
    folder.mkdir()
    return lambda budget, data="answers": sordino.Ledger.open(
        folder / f"spend-{data == 'answers'}.db", data=data, budget=budget
    )


def _all(guarantee, ledger, data="answers"):
    account = ledger(guarantee, data)
    return [guarantee, account, _model(guarantee), _certificate(guarantee, data=data)]


def test_cards_are_small_well_formed_and_load_nothing(ledger, tmp_path):
    texts = [item._repr_html_() for item in _all(_promise(), ledger)]
    for text in texts:
        assert len(text) < 4000
        reader = Reader(text)
        assert {tag for tag, _ in reader.tags} <= {
            "div", "strong", "table", "tbody", "tr", "th", "td"
        }  # fmt: skip
        assert {name for _, attrs in reader.tags for name in attrs} <= {"style", "scope"}
        assert "://" not in text
        assert "url(" not in text
        assert str(tmp_path) not in text
        assert "a_folder_of_mine" not in text
        assert "spend" not in text.replace("spent", "")
    assert not re.search(r"(?<![-\w])color:", "".join(texts))  # colors are the notebook's own
    assert set(re.findall(r"background:(\w+)", "".join(texts))) == {"transparent"}


def test_a_name_with_markup_stays_a_name(ledger):
    for item in _all(_promise(), ledger, HOSTILE)[1::2]:
        text = item._repr_html_()
        assert "<script" not in text
        assert "<svg" not in text
        assert "://" not in text
        assert "\u202e" not in text
        assert harmless(HOSTILE) in html.unescape(text)
        Reader(text)


def test_simulated_is_marked_wherever_it_holds(ledger):
    for item in _all(_promise(), ledger):
        assert "SIMULATED" not in item._repr_html_()
    for item in _all(_promise(randomness="simulated"), lambda *_: _Simulated()):
        assert "SIMULATED, not private" in item._repr_html_()
    mixed = _certificate(_promise(), ledger_total=_promise(randomness="simulated"))
    assert "SIMULATED" in mixed._repr_html_()


class _Simulated:
    """A ledger with one simulated spend."""

    _repr_html_ = sordino.Ledger._repr_html_
    data, head, budget = "x", Head("ef" * 32, 2), _promise(2.0)

    def total(self):
        return _promise(randomness="simulated")

    def remaining_epsilon(self):
        return 1.0


@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 1.9999999, 2.0000001, 1e-7, 12345.6789])
def test_numbers_are_never_rounded_towards_a_better_promise(epsilon, ledger):
    promise = _promise(epsilon, unit="record", delta=1.23456789e-6)
    for item in (promise, _model(promise), _certificate(promise), ledger(promise)):
        told = _told(item)
        shown = re.findall(r"epsilon(?:=|\|+)([\d.e+-]+)", told)
        assert shown
        assert all(epsilon <= float(number.rstrip(".")) <= epsilon * 1.00001 for number in shown)
        assert min(float(n) for n in re.findall(r"delta(?:=|\|+)([\d.e-]+)", told)) >= 1.23456789e-6


def test_a_card_says_what_repr_says(ledger):
    promise = _promise(2.0, unit="person", caveats=("labels-only", "person-total"))
    for item in (promise, _model(promise), _certificate(promise)):
        told = _told(item)
        for fact in (promise.change, "(REPLACE_ONE)", "central", "labels-only, person-total"):
            assert fact in told
            assert fact.strip("()").split(",")[0] in str(item)
    assert "cdcdcdcdcdcd… after 3 rows" in _told(_certificate(promise))
    assert "reward abababababab…" in _told(_certificate(promise))


def test_the_card_of_a_ledger_counts_up(ledger):
    account = ledger(_promise(3.0))
    told = _told(account)
    assert re.search(r"spent\|+nothing", told)
    assert f"{account.head.digest[:12]}… after 1 row|" in told
    account.reserve(sordino.RandomizedResponse(1.0).event, promise=_promise())
    told = _told(account)
    assert re.search(r"budget\|+epsilon=3, delta=0", told)
    assert re.search(r"spent\|+epsilon=1, delta=0", told)
    assert re.search(r"epsilon left\|+2\|", told)
    assert f"{account.head.digest[:12]}… after 2 rows" in told


def test_a_reward_shows_no_weights_and_no_counts():
    told = _told(_model(_promise()))
    assert "features" in told
    assert "debiased" in told
    for secret in ("0.12", "9.87", "7654321", "7,654,321"):
        assert secret not in told


def test_no_promise_is_infinite_and_a_row_without_a_value_is_left_out():
    assert re.search(r"epsilon\|+inf", _told(_promise(math.inf)))
    text = card("T", [("absent", None), ("zero", 0)])
    assert "absent" not in text
    assert "zero" in text
    assert ">0<" in text


def test_rankings_show_their_sizes_and_hand_out_ballots_when_asked(tmp_path):
    rows = [
        {"prompt": "SECRET ask", "candidates": [f"SECRET {name}" for name in names], **said}
        for names, said in (
            ("abc", {"ranks": [2, 1, 2], "person": "SECRET u"}),
            ("dbe", {"ranks": [None, 1, None], "person": "SECRET v"}),
        )
    ]
    over = [{"items": ["a", "b", "c"]}, {"ranking": ["c", "a"], "offered": ["a", "c"]}]
    ballots, named = (
        read_rankings(rows),
        read_rankings([*over, {"ranking": [], "offered": [*"abc"]}]),
    )
    ledger = sordino.Ledger.open(
        tmp_path / "spend.db", data="ballots", budget=sordino.Guarantee.per_label(9)
    )
    private = privatize_choices(ballots, KaryRandomizedResponse(1.0, categories=3), ledger=ledger)
    shown = [_told(one) for one in (ballots, named, private)]
    assert not any("SECRET" in text or "prompt" in text for text in shown)
    others = read_rankings([row | {"ranks": [1, 2, 3]} for row in rows])
    assert shown[0] == _told(others)  # nothing of it depends on a rank
    assert all("raw|" in text for text in shown[:2])
    assert "epsilon|" in shown[2]
    assert "raw|" not in shown[2]
    first, second = ballots
    assert [first, second] == ballots[:2] == ballots.head() == [ballots[-2], ballots[1]]
    best, tied = first["ranking"]
    assert (first["candidates"][best], len(tied)) == ("SECRET b", 2)
    assert len(second["ranking"]) == 1
    assert second["candidates"][second["ranking"][0]] == "SECRET b"
    assert named[0] == {"offered": ["a", "c"], "ranking": ["c", "a"]}
    for made, items in ((ballots, None), (named, named.items)):
        again = read_rankings(list(made), items=items)
        assert again.keys == made.keys
        assert (again.ranks == made.ranks).all()
    assert {*private[0]} == {"prompt", "candidates", "answer", "person"}


def test_judgments_show_their_sizes_and_hand_out_rows_when_asked(tmp_path):
    rows = list(sordino.simulate_pairs(30, seed=0, people=7)[0])
    pairs = sordino.read_pairs(rows, person_field="person")
    ledger = sordino.Ledger.open(
        tmp_path / "spend.db", data="answers", budget=sordino.Guarantee.per_label(9)
    )
    private = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=ledger)
    policy = sordino.gibbs_policy(
        sordino.fit_reward(private, features=sordino.HashedText(dimension=32)), temperature=0.5
    )
    words = {text[:25] for row in rows for text in row.values() if len(text) > 9}
    for shown in map(_told, (pairs, private, policy)):
        assert not any(word in shown for word in words)
    assert "|30|" in _told(pairs)
    assert "|7|" in _told(pairs)
    assert "epsilon|" in _told(private)
    assert "temperature|" in _told(policy)
    assert [pairs[0], pairs[1]] == pairs[:2] == pairs.head(2) == list(pairs)[:2]
    assert pairs[-1] == pairs[29]
    assert {row["label"] for row in pairs} == {0.0, 1.0}
    assert {row["answer"] for row in private} == {0, 1}
    assert "label" not in private[0]
    again = sordino.read_pairs(list(pairs), person_field="person")
    assert again.keys == pairs.keys
    assert (again.labels == pairs.labels).all()
    with pytest.raises(IndexError):
        _ = pairs[30]
