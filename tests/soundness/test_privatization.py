"""Every outcome of every coin, through the real code: what one label can show, exactly."""

import hashlib
import json
import sqlite3
import tempfile
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from sordino._random import SystemEntropy
from sordino.auditing.exact import exact_epsilon, label_neighbors
from sordino.errors import BudgetExceeded, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import read_pairs
from sordino.preferences.records import canonical
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization import streaming
from sordino.privatization.crossing import Crossing
from sordino.privatization.in_memory import privatize
from sordino.privatization.streaming import FileSettings, privatize_file

COIN = RandomizedResponse(0.5)
FLIP, KEEP = 0, 2**64 - 1
CHANCE = {FLIP: Fraction(COIN.threshold, 2**64), KEEP: 1 - Fraction(COIN.threshold, 2**64)}
ONCE = COIN.realized_epsilon

ANA_TWICE = [("ana", "q"), ("ana", "q")]
TWO_PEOPLE = [("ana", "q"), ("ben", "q")]
TWO_QUESTIONS = [("ana", "q"), ("ana", "r")]
NOBODY_TWICE = [(None, "q"), (None, "q")]
ONE_RECORD = [("ana", "q")]
ALL_CASES = [ANA_TWICE, TWO_PEOPLE, TWO_QUESTIONS, NOBODY_TWICE, ONE_RECORD]
NAMES = ["repeat", "two people", "two questions", "no ids", "one record"]


class TapeEmptyError(Exception):
    """The code wants one more coin than was decided so far."""


def new_ledger(epsilon=10.0, trust="central", folder=None):
    folder = Path(folder or tempfile.mkdtemp())
    budget = Guarantee(epsilon, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust=trust)
    return Ledger.open(folder / "spend.db", data="answers", budget=budget)


def rows_of(case, labels):
    """Records that say chosen and rejected, so that a label is where an answer stands."""
    rows = []
    for (person, question), label in zip(case, labels, strict=True):
        answers = [f"{question} yes", f"{question} no"]
        swap, _ = canonical(question, *answers)
        if swap:
            answers.reverse()
        chosen, rejected = answers if label else reversed(answers)
        row = {"prompt": question, "chosen": chosen, "rejected": rejected}
        rows.append(row if person is None else row | {"person": person})
    return rows


def published(private, ledger):
    """Everything that leaves: texts in order, answers, promise, and the ledger's spends."""
    spends = tuple((row.event, row.parameters, row.count, row.payload) for row in ledger.spends)
    texts = tuple(map(repr, zip(private.prompts, private.first, private.second, strict=True)))
    promise = str(private.guarantee)
    return (
        texts,
        tuple(private.answers.tolist()),
        private.keys,
        private.public_digest,
        promise,
        spends,
    )


def in_memory(case, labels):
    ledger = new_ledger()
    pairs = read_pairs(rows_of(case, labels))
    return published(privatize(pairs, COIN, ledger=ledger), ledger)


def from_file(case, labels):
    folder = Path(tempfile.mkdtemp())
    raw = folder / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows_of(case, labels)))
    ledger = new_ledger(folder=folder)
    privatize_file(raw, folder / "out.jsonl", COIN, ledger=ledger)
    payloads = tuple(row.payload for row in ledger.spends)
    return (
        (folder / "out.jsonl").read_bytes(),
        (folder / "out.manifest.json").read_bytes(),
        payloads,
    )


def two_runs(case, labels):
    """One ledger, one run after the other: the last record is a changed answer, or the same."""
    ledger, seen = new_ledger(), []
    for label in labels:
        pairs = read_pairs(rows_of(case[:1], [label]))
        seen.append(published(privatize(pairs, COIN, ledger=ledger), ledger))
    return tuple(seen)


def distribution(run, case, labels):
    """The exact distribution of what is published, over all outcomes of all coins."""
    outcomes, tapes = {}, [()]
    with pytest.MonkeyPatch.context() as patch:
        while tapes:
            tape = tapes.pop()
            used = 0

            def words(_, n, tape=tape):
                nonlocal used
                used += n
                if used > len(tape):
                    raise TapeEmptyError
                return np.array(tape[used - n : used], dtype=np.uint64)

            patch.setattr(SystemEntropy, "words", words)
            try:
                out = run(case, labels)
            except TapeEmptyError:
                tapes += [(*tape, FLIP), (*tape, KEEP)]
                continue
            assert used == len(tape)
            chance = Fraction(1)
            for word in tape:
                chance *= CHANCE[word]
            outcomes[out] = outcomes.get(out, Fraction(0)) + chance
    return outcomes


def channel_of(run, case):
    return {labels: distribution(run, case, labels) for labels in product((0, 1), repeat=len(case))}


def loss(run, case, neighbors=None):
    return float(exact_epsilon(channel_of(run, case), neighbors or label_neighbors(len(case))))


def everything_changes(n):
    return [
        (one, other) for one in product((0, 1), repeat=n) for other in product((0, 1), repeat=n)
    ]


@pytest.mark.parametrize("run", [in_memory, from_file], ids=["memory", "file"])
@pytest.mark.parametrize("case", ALL_CASES, ids=NAMES)
def test_one_label_shows_by_exactly_epsilon(run, case):
    assert loss(run, case) == pytest.approx(ONCE, abs=1e-15)
    assert loss(run, case) <= ONCE


def test_a_changed_answer_in_a_later_run_shows_nothing_more():
    assert loss(two_runs, ANA_TWICE) == pytest.approx(ONCE, abs=1e-15)
    assert loss(two_runs, ANA_TWICE, everything_changes(2)) == pytest.approx(ONCE, abs=1e-15)


def test_without_ids_every_run_pays_and_one_label_shows_once_per_run():
    def again(case, labels):
        ledger = new_ledger()
        pairs = read_pairs(rows_of(case, labels))
        both = [privatize(pairs, COIN, ledger=ledger) for _ in range(2)]
        assert ledger.total().epsilon >= 2 * ONCE
        return tuple(published(private, ledger) for private in both)

    assert loss(again, [(None, "q")]) == pytest.approx(2 * ONCE, abs=1e-15)


def test_all_labels_of_one_person_show_by_the_recorded_person_total():
    ledger = new_ledger()
    privatize(read_pairs(rows_of(TWO_QUESTIONS, (1, 0))), COIN, ledger=ledger)
    details = json.loads(ledger.spends[0].payload)["details"]
    assert details == {"largest_person_labels": 2, "largest_person_epsilon": 2 * ONCE}
    changes = everything_changes(2)
    assert loss(in_memory, TWO_QUESTIONS, changes) == pytest.approx(2 * ONCE, abs=1e-15)
    assert loss(in_memory, ANA_TWICE, changes) == pytest.approx(ONCE, abs=1e-15)


def test_coins_of_two_people_are_independent():
    joint = distribution(in_memory, TWO_PEOPLE, (1, 1))
    chances = {out[1]: chance for out, chance in joint.items()}
    keep, flip = CHANCE[KEEP], CHANCE[FLIP]
    assert chances == {(1, 1): keep**2, (1, 0): keep * flip, (0, 1): keep * flip, (0, 0): flip**2}


# --- planted bugs: the same check must find them ---


def coins_by(key_of):
    """Answers drawn with a coin that is kept, and used again wherever ``key_of`` agrees."""

    def answers(self, labels, keys, memo, reservation):
        kept = {}
        result = []
        for label, key in zip(labels.tolist(), keys, strict=True):
            name = key_of(label, key)
            if name not in kept:
                kept[name] = int(self.mechanism.release(np.array([0]), entropy=self.entropy)[0])
            result.append(label ^ kept[name])
        if memo is not None and reservation:
            stored = dict(zip(reversed(keys), reversed(result), strict=True))
            memo.remember(stored, reservation.release_id)
        return np.array(result, dtype=np.int8)

    return answers


@pytest.mark.parametrize(
    ("key_of", "case"),
    [
        (lambda _, key: key, ANA_TWICE),
        (lambda label, key: (label, key), ANA_TWICE),
        (lambda _, key: key[1], TWO_PEOPLE),
    ],
    ids=["same coin on a changed answer", "coin keyed by the label", "coin shared by two people"],
)
def test_a_coin_that_is_used_again_is_refuted(monkeypatch, key_of, case):
    monkeypatch.setattr(Crossing, "answers", coins_by(key_of))
    assert loss(in_memory, case) == float("inf")


@pytest.mark.parametrize("run", [in_memory, from_file], ids=["memory", "file"])
def test_chosen_first_order_is_refuted(monkeypatch, run):
    def as_given(prompt, one, other):
        return False, hashlib.sha256(repr((prompt, sorted([one, other]))).encode()).digest()

    monkeypatch.setattr("sordino.preferences.records.canonical", as_given)
    assert loss(run, ONE_RECORD) == float("inf")


def test_half_the_noise_is_refuted(monkeypatch):
    weaker = COIN.threshold // 2
    monkeypatch.setattr(RandomizedResponse, "threshold", property(lambda _: weaker))
    monkeypatch.setitem(CHANCE, FLIP, Fraction(weaker, 2**64))
    monkeypatch.setitem(CHANCE, KEEP, 1 - Fraction(weaker, 2**64))
    assert loss(in_memory, ONE_RECORD) > COIN.epsilon


# --- the ledger comes first ---


def durable_kinds(path):
    """The kinds of all rows that another process sees at this moment."""
    with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True) as connection:
        kinds = [row[0] for row in connection.execute("SELECT kind FROM rows ORDER BY sequence")]
    connection.close()
    return kinds


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
    monkeypatch.setattr(streaming, "_BATCH", 1)
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows_of(case, (1,) * len(case))))
    ledger = new_ledger(folder=tmp_path)
    seen = watch_coins(monkeypatch, ledger.path)
    privatize_file(raw, tmp_path / "out.jsonl", COIN, ledger=ledger)
    return ledger, seen


@pytest.mark.parametrize("case", [TWO_PEOPLE, NOBODY_TWICE, TWO_QUESTIONS])
def test_every_coin_of_every_batch_comes_after_the_entry(tmp_path, monkeypatch, case):
    ledger, seen = privatize_in_batches(tmp_path, monkeypatch, case)
    assert [n for _, n in seen] == [1, 1]
    assert all(kinds == ["open", "reserve"] for kinds, _ in seen)
    assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit"]


def test_in_memory_the_entry_comes_first(tmp_path, monkeypatch):
    ledger = new_ledger(folder=tmp_path)
    seen = watch_coins(monkeypatch, ledger.path)
    privatize(read_pairs(rows_of(TWO_PEOPLE, (1, 0))), COIN, ledger=ledger)
    assert seen == [(["open", "reserve"], 2)]


def test_a_coin_before_the_entry_is_caught_by_the_same_spy(tmp_path, monkeypatch):
    honest = Crossing.reserve

    def hasty(self, survey, public_digest):
        self.entropy.words(1)
        return honest(self, survey, public_digest)

    monkeypatch.setattr(Crossing, "reserve", hasty)
    _, seen = privatize_in_batches(tmp_path, monkeypatch, TWO_PEOPLE)
    assert not all(kinds == ["open", "reserve"] for kinds, _ in seen)


@pytest.mark.parametrize("case", ALL_CASES, ids=NAMES)
def test_over_budget_no_coin_is_drawn_and_nothing_is_written(tmp_path, monkeypatch, case):
    ledger = new_ledger(0.4, folder=tmp_path)
    seen = watch_coins(monkeypatch, ledger.path)
    rows = rows_of(case, (1,) * len(case))
    with pytest.raises(BudgetExceeded):
        privatize(read_pairs(rows), COIN, ledger=ledger)
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BudgetExceeded):
        privatize_file(raw, tmp_path / "out.jsonl", COIN, ledger=ledger)
    assert seen == []
    assert durable_kinds(ledger.path) == ["open"]
    assert not list(tmp_path.glob("*out*"))


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


def test_memory_and_file_share_one_memo(tmp_path):
    case = [(f"p{i}", "q") for i in range(40)]
    rows = rows_of(case, [1] * 40)
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ledger = new_ledger(folder=tmp_path)
    first = privatize(read_pairs(rows), COIN, ledger=ledger)
    privatize_file(raw, tmp_path / "out.jsonl", COIN, ledger=ledger)
    second = read_pairs(tmp_path / "out.jsonl")
    assert second.answers.tolist() == first.answers.tolist()
    assert len(ledger.spends) == 1


def test_stored_answers_are_bound_to_their_coin(tmp_path):
    ledger = new_ledger(folder=tmp_path)
    pairs = read_pairs(rows_of(TWO_PEOPLE, (1, 0)))
    privatize(pairs, COIN, ledger=ledger)
    for other in ({"mechanism": RandomizedResponse(0.6)}, {"mechanism": COIN, "simulate_seed": 1}):
        with pytest.raises(PrivacyError, match="other settings"):
            privatize(pairs, **other, ledger=ledger)
    assert len(ledger.spends) == 1


def test_stored_answers_are_bound_to_their_ledger(tmp_path):
    pairs = read_pairs(rows_of(TWO_PEOPLE, (1, 0)))
    privatize(pairs, COIN, ledger=new_ledger(folder=tmp_path))
    (tmp_path / "spend.db").unlink()
    fresh = new_ledger(9.0, folder=tmp_path)
    with pytest.raises(PrivacyError, match="another ledger"):
        privatize(pairs, COIN, ledger=fresh)
    assert fresh.spends == ()


def test_two_processes_that_race_release_the_same_stored_answer(tmp_path, monkeypatch):
    ledger = new_ledger(folder=tmp_path)
    case = [(f"p{i}", "q") for i in range(40)]
    pairs = read_pairs(rows_of(case, [1] * 40))
    honest, other = Crossing.reserve, []

    def slow(self, survey, public_digest):
        reservation = honest(self, survey, public_digest)
        if not other:
            other.append(None)
            other[0] = privatize(pairs, COIN, ledger=Ledger.open(ledger.path))
        return reservation

    monkeypatch.setattr(Crossing, "reserve", slow)
    mine = privatize(pairs, COIN, ledger=ledger)
    assert mine.answers.tolist() == other[0].answers.tolist()
    assert len(Ledger.open(ledger.path).spends) == 2


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
        (NOBODY_TWICE, {"on_device": True}, {"repeats-not-linked"}),
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


def test_settings_that_would_publish_the_judgment_are_refused(tmp_path):
    rows = rows_of([(None, "q")], (1,))
    for name in ("chosen", "rejected", "label", "answer", "first", "second", "prompt"):
        with pytest.raises(UsageError, match="person field"):
            read_pairs(rows, person_field=name)
    raw = tmp_path / "raw.jsonl"
    raw.write_text(json.dumps(rows[0]))
    with pytest.raises(UsageError, match="person field"):
        privatize_file(
            raw,
            tmp_path / "out.jsonl",
            COIN,
            ledger=new_ledger(folder=tmp_path),
            settings=FileSettings(person_field="chosen"),
        )


def test_a_seed_below_zero_is_refused_before_anything(tmp_path):
    ledger = new_ledger(folder=tmp_path)
    with pytest.raises(UsageError, match="simulate_seed"):
        privatize(read_pairs(rows_of(ONE_RECORD, (1,))), COIN, ledger=ledger, simulate_seed=-1)
    assert ledger.spends == ()


def test_a_person_total_is_needed_for_private_pairs_only_once(tmp_path):
    ledger = new_ledger(folder=tmp_path)
    private = privatize(read_pairs(rows_of(ONE_RECORD, (1,))), COIN, ledger=ledger)
    with pytest.raises(PrivacyError, match="already"):
        privatize(private, COIN, ledger=ledger)
