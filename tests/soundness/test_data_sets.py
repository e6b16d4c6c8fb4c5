"""What a ledger of several data sets counts where: against sums made by hand."""

import json
import random
import sqlite3
from dataclasses import asdict

import numpy as np
import pytest
from tests.tiers import few

import sordino
from sordino.errors import (
    BudgetExceeded,
    LedgerDamaged,
    LedgerError,
    LedgerMismatch,
    PrivacyError,
    SordinoError,
)
from sordino.privacy import ledger_chain
from sordino.privacy.guarantee import PureEvent, RandomizedResponseEvent
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import LEDGER

LABEL = {"unit": "label", "neighbors": sordino.REPLACE_ONE, "trust": "central"}
RECORD = {"unit": "record", "neighbors": sordino.REPLACE_ONE, "trust": "central"}
PERSON = {"unit": "person", "neighbors": sordino.REPLACE_ONE, "trust": "central"}
COIN, PURE = RandomizedResponseEvent(0.25), PureEvent(0.125)  # sums of them are exact
LARGE = 1e6


def asked(*numbers):
    return np.array(sorted(numbers), dtype="<u8")


def budget(terms, epsilon=LARGE):
    return sordino.Guarantee(epsilon, delta=0.0, **terms)


def promise(terms):
    return sordino.Guarantee(1.0, delta=0.0, **terms)


@pytest.fixture
def path(tmp_path):
    ledger = Ledger.create(tmp_path / LEDGER)
    for terms in (LABEL, RECORD, PERSON):
        ledger.change_budget(budget(terms))
    return ledger.path


def components(files):
    """Which files share a question, directly or by way of others: by hand, slowly."""
    groups = [set(file) for file in files]
    merged = True
    while merged:
        merged = False
        for i in range(len(groups)):
            for j in range(i + 1, len(groups)):
                if groups[i] != groups[j] and groups[i] & groups[j]:
                    groups[i] = groups[j] = groups[i] | groups[j]
                    merged = True
    return [frozenset(group) for group in groups]


@pytest.mark.parametrize("seed", few(range(40), first=6))
def test_every_account_is_the_sum_of_what_counts_there(path, seed):
    rng = random.Random(seed)  # noqa: S311 (which releases are tried)
    files, spends = [], []  # of label releases: their questions; of all: (kind, file or None)
    for _ in range(rng.randrange(3, 9)):
        kind = rng.choice(["label", "label", "record", "person"])
        ledger = Ledger.open(path, unit=kind)  # each time as another process would
        if kind == "label":
            files.append(set(rng.sample(range(12), rng.randrange(1, 4))))
            ledger.reserve(COIN, promise=promise(LABEL), questions=asked(*files[-1]))
            spends.append((kind, files[-1]))
        else:
            ledger.reserve(PURE, promise=promise(RECORD if kind == "record" else PERSON))
            spends.append((kind, None))
    group_of = dict(zip(map(frozenset, files), components(files), strict=True))
    everywhere = sum(PURE.epsilon for kind, _ in spends if kind != "label")
    found = Ledger.read(path)
    assert len(found.data_sets) == len(set(group_of.values()))
    totals = {}
    for file in files:
        own = found.asked(asked(*file))
        whole = group_of[frozenset(file)]
        labels = [frozenset(of) for kind, of in spends if kind == "label"]
        by_hand = everywhere + COIN.epsilon * sum(group_of[of] == whole for of in labels)
        assert own.accounts()["label"].guarantee.epsilon == by_hand
        totals[whole] = by_hand
    largest = max(totals.values(), default=everywhere)
    whole = found.about("").accounts()["label"]
    assert (whole.guarantee.epsilon if whole.guarantee else 0.0) == largest
    # A person may have judged anything, so what was released of persons adds up over all.
    person = found.accounts()["person"]
    if any(kind != "person" for kind, _ in spends):
        assert person.guarantee is None
        assert len(person.uncovered) == sum(kind != "person" for kind, _ in spends)
    else:
        assert person.guarantee.epsilon == everywhere


def test_persons_have_one_account_for_all_data_sets(tmp_path):
    ledger = Ledger.create(tmp_path / LEDGER)
    ledger.change_budget(budget(PERSON, 0.25))
    for name in ("one", "other"):
        Ledger.open(ledger.path, data=name, unit="person").reserve(PURE, promise=promise(PERSON))
    for name in ("one", "other", "third"):
        held = Ledger.open(ledger.path, data=name, unit="person")
        assert held.accounts()["person"].guarantee.epsilon == 0.25
        with pytest.raises(BudgetExceeded):
            held.reserve(PURE, promise=promise(PERSON))


def test_scopes_of_one_data_set_say_nothing_of_persons_in_another(tmp_path):
    ledger = Ledger.create(tmp_path / LEDGER)
    ledger.change_budget(budget(PERSON))
    one = Ledger.open(ledger.path, data="one", unit="person")
    one.declare_disjoint(["a", "b"], rule="person-id")
    for scope in ("a", "b"):
        one.reserve(PURE, promise=promise(PERSON), scope=scope)
        other = Ledger.open(ledger.path, data="other", unit="person")
        other.reserve(PURE, promise=promise(PERSON), scope=scope)
    found = Ledger.read(ledger.path, data="one", unit="person").accounts()["person"].guarantee
    assert found.epsilon == PURE.epsilon * (1 + 2)  # the larger of two here, and both there


def test_two_processes_that_meet_new_questions_at_once_know_one_data_set(path):
    first, second = (Ledger.open(path, data=name, unit="label") for name in ("one", None))
    first.reserve(COIN, promise=promise(LABEL), questions=asked(1, 2))
    second.reserve(COIN, promise=promise(LABEL), questions=asked(2, 3))  # it read no row since
    found = Ledger.read(path)
    assert found.data_sets == ("one",)
    assert found.accounts()["label"].guarantee.epsilon == 2 * COIN.epsilon


def test_a_release_that_would_join_two_data_sets_fits_the_budget_of_both(tmp_path):
    ledger = Ledger.create(tmp_path / LEDGER)
    ledger.change_budget(budget(LABEL, 0.5))
    for numbers in ((1, 2), (3, 4)):
        Ledger.open(ledger.path).reserve(COIN, promise=promise(LABEL), questions=asked(*numbers))
    both = Ledger.open(ledger.path)
    with pytest.raises(BudgetExceeded):
        both.check(COIN, promise=promise(LABEL), questions=asked(2, 3))
    with pytest.raises(BudgetExceeded):
        both.reserve(COIN, promise=promise(LABEL), questions=asked(2, 3))
    assert Ledger.read(ledger.path).total().epsilon == COIN.epsilon
    ledger.change_budget(budget(LABEL, 0.75))
    both.reserve(COIN, promise=promise(LABEL), questions=asked(2, 3))
    assert Ledger.read(ledger.path).total().epsilon == 0.75


def test_data_sets_under_relations_that_do_not_mix_are_not_joined(tmp_path):
    ledger = Ledger.create(tmp_path / LEDGER)
    ledger.change_budget(budget(LABEL))
    relations = {"one": sordino.REPLACE_ONE, "other": sordino.REPLACE_SPECIAL}
    for at, (name, relation) in enumerate(relations.items()):
        terms = RECORD | {"neighbors": relation}
        held = Ledger.open(ledger.path, data=name, budget=budget(terms))
        held.reserve(PURE, promise=promise(terms))
        held.reserve(COIN, promise=promise(LABEL), questions=asked(at))
    before = Ledger.read(ledger.path).head
    with pytest.raises(PrivacyError, match="cannot be added up"):
        Ledger.open(ledger.path, unit="label").reserve(
            COIN, promise=promise(LABEL), questions=asked(0, 1)
        )
    assert Ledger.read(ledger.path).head == before


@pytest.mark.parametrize("kind", ["drop", "empty", "fewer", "other"])
def test_questions_that_were_changed_are_seen(path, kind):
    Ledger.open(path, unit="label").reserve(COIN, promise=promise(LABEL), questions=asked(1, 2))
    change = {
        "drop": "DROP TABLE questions",
        "empty": "DELETE FROM questions",
        "fewer": "UPDATE questions SET value = substr(value, 1, 8)",
        "other": "UPDATE questions SET value = zeroblob(16)",
    }[kind]
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(LedgerDamaged, match="were changed"):
        Ledger.open(path, unit="label").reserve(COIN, promise=promise(LABEL), questions=asked(9))


@pytest.mark.parametrize(
    "change",
    [
        {"payload": '{"caveats":[],"joins":["nobody"]}'},
        {"payload": '{"caveats":[],"joins":"preferences"}'},
        {"payload": "[]"},
        {"kind": "open"},
        {"kind": "data"},
    ],
)
def test_rows_about_data_sets_that_no_sordino_writes_are_refused(path, change):
    Ledger.open(path, unit="label").reserve(COIN, promise=promise(LABEL), questions=asked(1, 2))
    rows = [asdict(row) for row in Ledger.read(path).rows]
    (at,) = (at for at, row in enumerate(rows) if row["kind"] == "reserve")
    rows[at] |= change
    with pytest.raises(LedgerDamaged):
        Ledger(path, [ledger_chain.Row(**row) for row in rows])


def test_another_ledger_of_the_project_does_not_count_again_what_one_knows(tmp_path):
    home = Ledger.create(tmp_path / LEDGER)
    home.change_budget(budget(LABEL))
    Ledger.open(home.path).reserve(COIN, promise=promise(LABEL), questions=asked(1, 2))
    (tmp_path / "inside").mkdir()
    further = Ledger.open(tmp_path / "inside/more.db", data="x", budget=budget(LABEL))
    with pytest.raises(LedgerMismatch, match="leave --ledger out"):
        further.reserve(COIN, promise=promise(LABEL), questions=asked(2, 7))
    further.reserve(COIN, promise=promise(LABEL), questions=asked(7))
    for path in (home.path, tmp_path / "inside/third.db"):  # and the other way round
        held = Ledger.open(path, data="x", budget=budget(LABEL))
        with pytest.raises(LedgerMismatch, match=r"more\.db of this project knows"):
            held.reserve(COIN, promise=promise(LABEL), questions=asked(7, 8))


def test_a_named_data_set_that_shares_a_question_with_another_is_that_one(path):
    one = Ledger.open(path, data="one", unit="label")
    one.reserve(COIN, promise=promise(LABEL), questions=asked(1, 2))
    other = Ledger.open(path, data="other", unit="label")
    other.reserve(COIN, promise=promise(LABEL), questions=asked(2, 3))
    found = Ledger.read(path)
    assert found.data_sets == ("one",)
    for name in ("one", "other"):
        assert found.about(name).accounts()["label"].guarantee.epsilon == 2 * COIN.epsilon


def test_what_a_release_was_asked_about_stays_with_its_entry(path):
    Ledger.open(path, unit="label").reserve(COIN, promise=promise(LABEL), questions=asked(1, 2))
    (row,) = Ledger.read(path).spends
    assert json.loads(row.payload)["asked"] == ledger_chain.digest_of_questions(asked(1, 2))


def test_an_older_ledger_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "spend.db"
    payload = {"format": "sordino.ledger", "version": 1, "data": "a", "budget": {}}
    ledger_chain.create(path, kind="open", time="t", payload=ledger_chain.canonical_json(payload))
    with pytest.raises(LedgerError, match=r"older sordino \(ledger version 1\).*Start a new one"):
        Ledger.open(path)
    with pytest.raises(SordinoError):
        Ledger.read(path)


def test_a_nameless_release_fits_the_budget_of_every_data_set(tmp_path):
    ledger = Ledger.create(tmp_path / LEDGER)
    for terms, epsilon in ((LABEL, COIN.epsilon), (RECORD, LARGE)):
        ledger.change_budget(budget(terms, epsilon))
    for numbers in ((1, 2), (3, 4)):
        held = Ledger.open(ledger.path, unit="label")
        held.reserve(COIN, promise=promise(LABEL), questions=asked(*numbers))
    before = Ledger.read(ledger.path).head
    with pytest.raises(BudgetExceeded):  # it may be of the labels that have nothing left
        Ledger.open(ledger.path, unit="record").reserve(PURE, promise=promise(RECORD))
    assert Ledger.read(ledger.path).head == before


def test_a_total_that_rests_on_how_data_sets_are_told_apart_says_so(path):
    Ledger.open(path, unit="label").reserve(COIN, promise=promise(LABEL), questions=asked(1))
    held = Ledger.read(path).accounts()["label"].guarantee
    assert "declared-disjoint" not in held.caveats  # there is no other
    Ledger.open(path, data="named", unit="record").reserve(PURE, promise=promise(RECORD))
    for name in ("preferences", "named", ""):
        held = Ledger.read(path).about(name).accounts()["label"].guarantee
        assert "declared-disjoint" in held.caveats


def test_a_limit_on_one_data_set_holds_whatever_is_said_of_all(tmp_path):
    ledger = Ledger.create(tmp_path / LEDGER)
    named = Ledger.open(ledger.path, data="A", budget=budget(LABEL, COIN.epsilon))
    named.reserve(COIN, promise=promise(LABEL), questions=asked(1))
    Ledger.open(ledger.path, data="B", budget=budget(LABEL, LARGE))
    Ledger.open(ledger.path, budget=budget(LABEL, 5.0))
    for name in ("A", "B", None):  # also under another name, which a question makes the same
        held = Ledger.open(ledger.path, data=name, unit="label")
        with pytest.raises(BudgetExceeded):
            held.reserve(COIN, promise=promise(LABEL), questions=asked(1))
    named.change_budget(budget(LABEL, 1.0))
    named.reserve(COIN, promise=promise(LABEL), questions=asked(1))


def test_scopes_of_one_data_set_say_nothing_of_a_release_that_may_be_of_any(path):
    one = Ledger.open(path, data="one", budget=budget(RECORD))
    one.declare_disjoint(["s1", "s2"], rule="slot")
    one.reserve(PURE, promise=promise(RECORD), scope="s2")
    Ledger.open(path, unit="record").reserve(PURE, promise=promise(RECORD), scope="s1")
    held = Ledger.read(path, data="one", unit="record").accounts()["record"].guarantee
    assert held.epsilon == 2 * PURE.epsilon


@pytest.mark.parametrize("wrong", [3, asked(), np.array([2, 1], "<u8"), np.array([1, 1], "<u8")])
def test_questions_that_are_none_are_refused(path, wrong):
    with pytest.raises(SordinoError):
        Ledger.open(path, unit="label").reserve(COIN, promise=promise(LABEL), questions=wrong)


def test_numbers_name_no_data_set(path):
    pairs = sordino.Pairs.from_features(np.eye(3), [0, 1, 1])
    assert pairs.questions is None
    for rows in (np.eye(3), 2 * np.eye(3)):
        sordino.privatize(
            sordino.Pairs.from_features(rows, [0, 1, 1]),
            sordino.RandomizedResponse(0.5),
            ledger=Ledger.open(path, unit="label"),
        )
    assert Ledger.read(path).accounts()["label"].guarantee.epsilon == pytest.approx(1.0)


def test_a_ledger_of_the_project_that_is_gone_is_missed(tmp_path):
    home = Ledger.create(tmp_path / LEDGER)
    home.change_budget(budget(LABEL))
    further = Ledger.open(tmp_path / "line\nbreak.db", data="x", budget=budget(LABEL))
    further.reserve(COIN, promise=promise(LABEL), questions=asked(1))
    with pytest.raises(LedgerMismatch, match="knows these"):
        Ledger.open(home.path).reserve(COIN, promise=promise(LABEL), questions=asked(1))
    further.path.unlink()
    with pytest.raises(LedgerMismatch, match="is gone"):
        Ledger.open(home.path).reserve(COIN, promise=promise(LABEL), questions=asked(2))


def test_two_ledgers_of_a_project_that_spend_at_once_do_not_both_miss_it(tmp_path, monkeypatch):
    """Each looked at the other before either had written."""
    first = Ledger.create(tmp_path / LEDGER)
    first.change_budget(budget(LABEL))
    other = Ledger.open(tmp_path / "more.db", data="x", budget=budget(LABEL))
    write = ledger_chain.append

    def rival(*args, **values):
        monkeypatch.setattr(ledger_chain, "append", write)
        other.reserve(COIN, promise=promise(LABEL), questions=asked(1, 2))
        return write(*args, **values)

    monkeypatch.setattr(ledger_chain, "append", rival)
    with pytest.raises(LedgerMismatch, match=r"more\.db of this project knows"):
        Ledger.open(first.path).reserve(COIN, promise=promise(LABEL), questions=asked(1, 2))
    assert len(Ledger.read(first.path).spends) == 1  # it counts too much, and drew nothing
