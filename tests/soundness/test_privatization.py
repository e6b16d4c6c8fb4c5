"""Every outcome of every coin, through the real code: what one label can show, exactly."""

import hashlib
import json
import tempfile
from dataclasses import replace
from fractions import Fraction
from itertools import count, product
from pathlib import Path

import numpy as np
import pytest
from tests.privatized import privatize_file, privatize_rows, wherever
from tests.tiers import few

from sordino import _random
from sordino._random import SystemEntropy
from sordino.auditing.exact import exact_epsilon, label_neighbors
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import read_pairs
from sordino.preferences.records import canonical
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import privatize
from sordino.privatization.people import AskedPeople, PersonQuestions

pytestmark = pytest.mark.usefixtures("few_parts")

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


def new_ledger(epsilon=10.0, trust="central", folder=None, unit="label"):
    folder = Path(folder or tempfile.mkdtemp())
    budget = Guarantee(epsilon, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust=trust)
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

            ids = count()
            patch.setattr(SystemEntropy, "words", words)
            patch.setattr(_random, "new_release_id", lambda ids=ids: f"{next(ids):016x}")
            patch.setattr(_random, "new_token", lambda: "0" * 43)  # of no label
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
@pytest.mark.parametrize("case", few(ALL_CASES, ANA_TWICE, TWO_PEOPLE, ONE_RECORD), ids=NAMES)
def test_one_label_shows_by_exactly_epsilon(run, case):
    assert ONCE - 1e-15 <= loss(run, case) <= ONCE


def test_a_changed_answer_in_a_later_run_shows_nothing_more():
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


def test_what_was_paid_for_labels_does_not_pay_for_persons():
    """Answers that are stored for labels are not released under a promise to persons."""
    ledger, pairs = new_ledger(), read_pairs(rows_of(TWO_QUESTIONS, (1, 0)))
    privatize(pairs, COIN, ledger=ledger)
    person = Guarantee(10.0, delta=0.0, unit="person", neighbors=REPLACE_ONE, trust="central")
    whole = Ledger.open(ledger.path, budget=person)
    with pytest.raises(PrivacyError, match="not unit=person"):
        privatize(pairs, COIN, ledger=whole)
    assert len(whole.spends) == 1


def test_only_true_says_that_this_is_the_persons_own_device():
    pairs, ledger = read_pairs([{"prompt": "q", "chosen": "a", "rejected": "b"}]), new_ledger()
    with pytest.raises(UsageError, match="on_device must be one of True, False"):
        privatize(pairs, COIN, ledger=ledger, on_device="no")


def test_coins_of_two_people_are_independent():
    joint = distribution(in_memory, TWO_PEOPLE, (1, 1))
    chances = {out[1]: chance for out, chance in joint.items()}
    keep, flip = CHANCE[KEEP], CHANCE[FLIP]
    assert chances == {(1, 1): keep**2, (1, 0): keep * flip, (0, 1): keep * flip, (0, 0): flip**2}


# --- planted bugs: the same check must find them ---


def coins_by(key_of):
    """Answers drawn with a coin that is kept, and used again wherever ``key_of`` agrees."""

    def answers(self, part, coin, release_id, entropy):
        asked, kept, result = self.asked(part), {}, []
        for label, key in zip(asked.labels.tolist(), asked.keys, strict=True):
            name = key_of(label, key)
            if name not in kept:
                kept[name] = int(coin.release(np.array([0]), entropy=entropy)[0])
            result.append(label ^ kept[name])
        drawn = np.array(result, dtype=np.int8)
        keys, firsts = np.unique(asked.keys, return_index=True)
        self.memo.keep(part, release_id, keys, drawn[firsts])
        return asked, drawn, frozenset()

    return answers


def each_by_itself(keys, labels, rows):
    """Records as if each asked a question of its own."""
    places = np.arange(len(keys))
    return PersonQuestions(keys, labels, places, places, rows)


@pytest.mark.parametrize(
    ("key_of", "case"),
    [
        (lambda _, key: key, ANA_TWICE),
        (lambda label, key: (label, key), ANA_TWICE),
        (lambda _, key: key[16:], TWO_PEOPLE),
    ],
    ids=["same coin on a changed answer", "coin keyed by the label", "coin shared by two people"],
)
def test_a_coin_that_is_used_again_is_refuted(monkeypatch, key_of, case):
    monkeypatch.setattr(PersonQuestions, "of", each_by_itself)
    monkeypatch.setattr(AskedPeople, "answers", coins_by(key_of))
    assert loss(in_memory, case) == float("inf")


@pytest.mark.parametrize("run", [in_memory, from_file], ids=["memory", "file"])
def test_chosen_first_order_is_refuted(monkeypatch, run):
    """Claim: PPKL, Section 6 (the released "privatized" data are private)"""

    def as_given(prompt, one, other):
        return False, hashlib.sha256(repr((prompt, sorted([one, other]))).encode()).digest()

    monkeypatch.setattr("sordino.preferences.records.canonical", as_given)
    if run is in_memory:
        with pytest.raises(PrivacyError, match="canonical order"):
            loss(run, ONE_RECORD)
    monkeypatch.setattr("sordino.preferences.comparisons.canonical", as_given)
    assert loss(run, ONE_RECORD) == float("inf")


def test_half_the_noise_is_refuted(monkeypatch):
    weaker = COIN.threshold // 2
    honest = privatize(read_pairs(rows_of(ONE_RECORD, [1])), COIN, ledger=new_ledger())
    with pytest.raises(PrivacyError, match="flipped with probability"):
        replace(honest, flip_probability=weaker / 2**64)
    monkeypatch.setattr("sordino.preferences.pairs.flip_probability", lambda *_: weaker / 2**64)
    monkeypatch.setattr(RandomizedResponse, "threshold", property(lambda _: weaker))
    monkeypatch.setitem(CHANCE, FLIP, Fraction(weaker, 2**64))
    monkeypatch.setitem(CHANCE, KEEP, 1 - Fraction(weaker, 2**64))
    assert loss(in_memory, ONE_RECORD) > COIN.epsilon


@wherever
@pytest.mark.parametrize("fresh", [False, True])
def test_stored_answers_that_were_changed_are_not_released_as_paid_for(tmp_path, fresh, place):
    """Somebody writes labels into the memo: the entry that is said to have paid never drew them."""
    ledger = new_ledger(9.0, folder=tmp_path, unit="person")

    def run(case):
        rows = rows_of(case, [1] * len(case))
        return privatize_rows(place, rows, tmp_path, COIN, ledger=ledger)

    assert run(TWO_PEOPLE) == run(TWO_PEOPLE)
    for path in ledger.path.with_suffix(".memo").glob("*.npy"):
        found = np.load(path)
        found["answer"] = 1 - found["answer"]
        np.save(path, found)
    before = [row for row in ledger.rows if row.kind in {"commit", "repeat"}]
    files = list(tmp_path.rglob("out/*.json*"))
    with pytest.raises(PrivacyError, match="not what it drew"):
        run(TWO_QUESTIONS if fresh else ONE_RECORD)
    assert [row for row in ledger.rows if row.kind in {"commit", "repeat"}] == before
    assert list(tmp_path.rglob("out/*.json*")) == files
