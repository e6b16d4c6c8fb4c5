"""The ledger comes first, stored answers stay, and caveats say what they should."""

import json
import shutil
from contextlib import nullcontext

import numpy as np
import pytest
from tests.privatized import privatize_file, privatize_rows, wherever
from tests.soundness.test_release_order import durable_kinds

from sordino._random import SystemEntropy
from sordino.errors import BudgetExceeded, FileSystemError, PrivacyError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences import chunks
from sordino.preferences.pairs import read_pairs
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import privatize
from sordino.privatization.randomization import Randomization

from .test_privatization import (
    ALL_CASES,
    ANA_TWICE,
    COIN,
    NAMES,
    NOBODY_TWICE,
    ONCE,
    ONE_RECORD,
    TWO_PEOPLE,
    TWO_QUESTIONS,
    new_ledger,
    rows_of,
)

pytestmark = pytest.mark.usefixtures("few_parts")


def watch_coins(monkeypatch, path):
    """Note what the ledger says whenever a coin is drawn."""
    seen = []
    honest = SystemEntropy.words

    def words(self, n):
        seen.append((durable_kinds(path), n))
        return honest(self, n)

    monkeypatch.setattr(SystemEntropy, "words", words)
    return seen


def privatize_in_batches(tmp_path, monkeypatch, case):
    monkeypatch.setattr(chunks, "_RECORDS", 1)
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows_of(case, (1,) * len(case))))
    ledger = new_ledger(folder=tmp_path)
    seen = watch_coins(monkeypatch, ledger.path)
    privatize_file(raw, tmp_path / "out.jsonl", COIN, ledger=ledger)
    return ledger, seen


@pytest.mark.parametrize("case", [TWO_PEOPLE, NOBODY_TWICE, TWO_QUESTIONS])
def test_every_coin_of_every_batch_comes_after_the_entry(tmp_path, monkeypatch, case):
    ledger, seen = privatize_in_batches(tmp_path, monkeypatch, case)
    assert sum(n for _, n in seen) == 2
    assert all(kinds == ["open", "reserve"] for kinds, _ in seen)
    assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit"]


def test_in_memory_the_entry_comes_first(tmp_path, monkeypatch):
    ledger = new_ledger(folder=tmp_path)
    seen = watch_coins(monkeypatch, ledger.path)
    privatize(read_pairs(rows_of(TWO_PEOPLE, (1, 0))), COIN, ledger=ledger)
    assert seen == [(["open", "reserve"], 2)]


def test_a_coin_before_the_entry_is_caught_by_the_same_spy(tmp_path, monkeypatch):
    honest = Randomization.pay

    def hasty(self, survey):
        self.entropy.words(1)
        return honest(self, survey)

    monkeypatch.setattr(Randomization, "pay", hasty)
    _, seen = privatize_in_batches(tmp_path, monkeypatch, TWO_PEOPLE)
    assert not all(kinds == ["open", "reserve"] for kinds, _ in seen)


@wherever
@pytest.mark.parametrize("case", ALL_CASES, ids=NAMES)
def test_over_budget_no_coin_is_drawn_and_nothing_is_written(tmp_path, monkeypatch, case, place):
    ledger = new_ledger(0.4, folder=tmp_path)
    seen = watch_coins(monkeypatch, ledger.path)
    with pytest.raises(BudgetExceeded):
        privatize_rows(place, rows_of(case, (1,) * len(case)), tmp_path, COIN, ledger=ledger)
    assert seen == []
    assert durable_kinds(ledger.path) == ["open"]
    assert not list(tmp_path.rglob("out/*.json*"))


def test_an_output_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch):
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows_of(TWO_PEOPLE, (1, 0))))
    ledger = new_ledger(folder=tmp_path)
    seen = watch_coins(monkeypatch, ledger.path)
    with pytest.raises(OSError, match="cannot be written"):
        privatize_file(raw, tmp_path / "missing" / "out.jsonl", COIN, ledger=ledger)
    assert (seen, durable_kinds(ledger.path)) == ([], ["open"])


# --- person ids ---


def test_a_later_run_returns_what_was_stored_at_no_cost(tmp_path):
    ledger = new_ledger(folder=tmp_path)
    case = [(f"p{i % 7}", f"q{i}") for i in range(60)]
    first = privatize(read_pairs(rows_of(case, [1] * 60)), COIN, ledger=ledger)
    spent = ledger.total().epsilon
    changed = privatize(read_pairs(rows_of(case, [0] * 60)), COIN, ledger=ledger)
    assert changed.answers.tolist() == first.answers.tolist()
    assert 0 < first.answers.mean() < 1
    assert ledger.total().epsilon == spent == ONCE
    assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit", "repeat"]
    assert changed.release_ids == first.release_ids


def test_it_is_the_first_judgment_that_is_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(SystemEntropy, "words", lambda _, n: np.full(n, 2**64 - 1, np.uint64))
    for labels in ((1, 0), (0, 1)):
        (tmp_path / str(labels)).mkdir()
        ledger = new_ledger(folder=tmp_path / str(labels))
        private = privatize(read_pairs(rows_of(ANA_TWICE, labels)), COIN, ledger=ledger)
        assert private.answers.tolist() == [labels[0]] * 2


@wherever
def test_stored_answers_are_bound_to_their_coin(tmp_path, place):
    ledger = new_ledger(folder=tmp_path)
    rows = rows_of(TWO_PEOPLE, (1, 0))
    privatize_rows(place, rows, tmp_path, COIN, ledger=ledger)
    for other in ({"mechanism": RandomizedResponse(0.6)}, {"mechanism": COIN, "simulate_seed": 1}):
        with pytest.raises(PrivacyError, match="other settings"):
            privatize_rows(place, rows, tmp_path, **other, ledger=ledger)
    assert len(ledger.spends) == 1


@wherever
def test_stored_answers_are_bound_to_their_ledger(tmp_path, place):
    rows = rows_of(TWO_PEOPLE, (1, 0))
    privatize_rows(place, rows, tmp_path, COIN, ledger=new_ledger(folder=tmp_path))
    (tmp_path / "spend.db").unlink()
    fresh = new_ledger(9.0, folder=tmp_path)
    with pytest.raises(PrivacyError, match="another ledger"):
        privatize_rows(place, rows, tmp_path, COIN, ledger=fresh)
    assert fresh.spends == ()


def raced(monkeypatch, owner, pairs, ledger, **more):
    """Return what two runs release: a second one does all its work while the first one reserves,
    or while it draws. They take turns; this is what holds where a file system knows no locks.
    """
    alone = "sordino.privatization.randomization.sole_holder"
    monkeypatch.setattr(alone, lambda *_, **__: nullcontext())
    name = "pay" if owner is Randomization else "words"
    honest, others = getattr(owner, name), []

    def slow(self, *given):
        result = honest(self, *given)
        if not others:
            others.append(None)
            others[0] = privatize(pairs, COIN, ledger=Ledger.open(ledger.path), **more)
        return result

    monkeypatch.setattr(owner, name, slow)
    return privatize(pairs, COIN, ledger=ledger, **more), others[0]


racing = pytest.mark.parametrize(
    "owner", [Randomization, SystemEntropy], ids=["reserving", "drawing"]
)


@racing
def test_two_processes_that_race_release_the_same_stored_answer(tmp_path, monkeypatch, owner):
    ledger = new_ledger(folder=tmp_path)
    pairs = read_pairs(rows_of([(f"p{i}", "q") for i in range(40)], [1] * 40))
    mine, others = raced(monkeypatch, owner, pairs, ledger)
    assert mine.answers.tolist() == others.answers.tolist()
    assert len(Ledger.open(ledger.path).spends) == 2


def test_processes_take_turns(tmp_path, monkeypatch):
    """While one run is between its survey and its last answer, another waits, and says so."""
    ledger = new_ledger(folder=tmp_path)
    pairs = read_pairs(rows_of([("ana", f"q{i}") for i in range(5)], [1] * 5))
    monkeypatch.setattr("sordino.privatization.randomization._PATIENCE", 0.2)
    honest, refused = Randomization.pay, []

    def slow(self, *given):
        if not refused:
            refused.append(None)
            with pytest.raises(FileSystemError, match="another process"):
                privatize(pairs, COIN, ledger=Ledger.open(ledger.path))
        return honest(self, *given)

    monkeypatch.setattr(Randomization, "pay", slow)
    privatize(pairs, COIN, ledger=ledger)
    assert refused
    assert len(Ledger.open(ledger.path).spends) == 1


def test_a_memo_of_another_ledger_answers_nothing(tmp_path, monkeypatch):
    """Two ledgers whose memos share a name, made in the same second: nothing is free twice."""
    monkeypatch.setattr("sordino._random.now", lambda: "2026-01-01T00:00:00Z")
    pairs = read_pairs(rows_of([("ana", f"q{i}") for i in range(4)], [1] * 4))
    budget = new_ledger(folder=tmp_path).budget
    one, two = (
        Ledger.open(tmp_path / name, data="t", budget=budget) for name in ("p.db", "p.sqlite")
    )
    assert one.rows[0].digest == two.rows[0].digest
    privatize(pairs, COIN, ledger=one)
    with pytest.raises(PrivacyError, match="no entry of this ledger paid for"):
        privatize(pairs, COIN, ledger=two)
    assert not two.spends


@pytest.mark.parametrize("lost", ["older", "gone", "stale"])
def test_a_memo_that_lost_answers_is_noticed(tmp_path, lost):
    """Else people would be answered again, and a certificate would count each label once."""
    ledger = new_ledger(folder=tmp_path)
    stale, memo = Ledger.open(ledger.path), ledger.path.with_suffix(".memo")
    first = rows_of([("ana", f"q{i}") for i in range(4)], [1] * 4)
    if lost == "older":  # a reservation that drew nothing leaves a memo without its answers
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SystemEntropy, "words", lambda *_: {}["no words"])
            with pytest.raises(KeyError):
                privatize(read_pairs(first), COIN, ledger=ledger)
        shutil.copytree(memo, tmp_path / "copy")
    privatize(read_pairs(first), COIN, ledger=ledger)
    shutil.rmtree(memo)
    if lost == "older":
        shutil.copytree(tmp_path / "copy", memo)
    spends = len(Ledger.open(ledger.path).spends)
    with pytest.raises(PrivacyError, match=r"answered (again|before)"):
        privatize(read_pairs(first), COIN, ledger=stale if lost == "stale" else ledger)
    assert len(Ledger.open(ledger.path).spends) == spends


def test_repeats_of_nobody_are_refused_on_a_device(tmp_path):
    with pytest.raises(PrivacyError, match="nothing says who answered"):
        privatize(
            read_pairs(rows_of(NOBODY_TWICE, [1, 0])),
            COIN,
            ledger=new_ledger(folder=tmp_path),
            on_device=True,
        )


# --- caveats ---


@pytest.mark.parametrize(
    ("case", "settings", "expected"),
    [
        (ONE_RECORD, {}, {"person-total", "randomized-at-ingestion"}),
        (ANA_TWICE, {}, {"person-total", "randomized-at-ingestion"}),
        ([(None, "q")], {}, {"randomized-at-ingestion"}),
        (NOBODY_TWICE, {}, {"repeats-not-linked", "randomized-at-ingestion"}),
        ([(None, "q"), (None, "r")], {}, {"randomized-at-ingestion"}),
        ([(None, "q")], {"on_device": True}, set()),
        ([(None, "q")], {"simulate_seed": 3}, {"randomized-at-ingestion", "simulated"}),
    ],
)
def test_caveats_appear_exactly_when_they_should(tmp_path, case, settings, expected):
    trust = "local" if settings.get("on_device") else "central"
    rows = rows_of(case, (1,) * len(case))
    ledger = new_ledger(trust=trust, folder=tmp_path)
    promise = privatize(read_pairs(rows), COIN, ledger=ledger, **settings).guarantee
    assert set(promise.caveats) == expected
    assert (promise.trust, promise.unit) == (trust, "label")
    assert promise.simulated == ("simulated" in expected)
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest = privatize_file(raw, tmp_path / "out.jsonl", COIN, ledger=ledger, **settings)
    assert set(manifest.caveats) == expected
    assert read_pairs(tmp_path / "out.jsonl").guarantee == promise


def test_central_answers_never_enter_a_ledger_that_promises_local(tmp_path):
    ledger = new_ledger(trust="local", folder=tmp_path)
    with pytest.raises(PrivacyError, match="local"):
        privatize(read_pairs(rows_of(ONE_RECORD, (1,))), COIN, ledger=ledger)
    assert ledger.spends == ()


def test_a_person_total_is_needed_for_private_pairs_only_once(tmp_path):
    ledger = new_ledger(folder=tmp_path)
    private = privatize(read_pairs(rows_of(ONE_RECORD, (1,))), COIN, ledger=ledger)
    with pytest.raises(PrivacyError, match="already"):
        privatize(private, COIN, ledger=ledger)
