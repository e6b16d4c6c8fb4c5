"""All labels of one person change: what everything released can show, exactly.

Every order in which questions can be drawn and every outcome of every coin goes through the real
code. Words of different people are independent and only their order within one person counts, so
all orders of each person's questions, equally likely, stand for all words.
"""

import json
import math
import os
import tempfile
from collections import Counter
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from tests.privatized import privatize_file, privatize_rows, wherever

import sordino
from sordino import _random
from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.auditing.exact import exact_epsilon
from sordino.errors import BudgetExceeded, DataError, PrivacyError
from sordino.preferences.pairs import read_pairs
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import privatize
from sordino.privatization.people import AskedPeople, _persons
from sordino.privatization.randomization import Randomization

from .test_privatization import CHANCE, COIN, FLIP, KEEP, ONCE, TapeEmptyError, rows_of
from .test_privatization_order import raced, racing

pytestmark = pytest.mark.usefixtures("few_parts")

ONE = [("ana", "q")]
TWO = [("ana", "q"), ("ana", "r")]
THREE = [("ana", "q"), ("ana", "r"), ("ana", "s")]
REPEATED = [("ana", "q"), ("ana", "r"), ("ana", "q")]
WITH_BEN = [("ana", "q"), ("ben", "q"), ("ana", "r")]
BOTH_CAPPED = [("ben", "q"), ("ana", "q"), ("ana", "r"), ("ben", "r")]
CASES = {
    "one question": (ONE, None, 1),
    "two questions": (TWO, None, 2),
    "three questions": (THREE, None, 3),
    "three, one used": (THREE, 1, 1),
    "three, two used": (THREE, 2, 2),
    "three, cap above": (THREE, 4, 3),
    "a repeated question": (REPEATED, None, 2),
    "a repeated question, one used": (REPEATED, 1, 1),
    "another person with fewer": (WITH_BEN, 1, 1),
    "two capped people": (BOTH_CAPPED, 1, 1),
}
cases = pytest.mark.parametrize(("case", "cap", "most"), CASES.values(), ids=CASES)


def new_ledger(folder=None, epsilon=10.0, unit="person", trust="central"):
    path = (folder or new_home()) / "spend.db"
    budget = Guarantee(epsilon, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust=trust)
    return Ledger.open(path, data="answers", budget=budget)


def seen_of(private, ledger):
    """Everything that leaves, and which rows they are."""
    spends = tuple((row.event, row.parameters, row.count, row.payload) for row in ledger.spends)
    rows = tuple(zip(private.persons, private.prompts, strict=True))
    answers = tuple(private.answers.tolist())
    return rows, answers, private.public_digest, str(private.guarantee), spends


def in_memory(case, labels, cap, unit="person"):
    ledger = new_ledger(unit=unit)
    private = privatize(read_pairs(rows_of(case, labels)), COIN, ledger=ledger, cap=cap)
    return seen_of(private, ledger)


def write(folder, case, labels):
    raw = folder / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows_of(case, labels)))
    return raw


def from_file(case, labels, cap, unit="person"):
    folder = new_home()
    ledger = new_ledger(folder, unit=unit)
    raw = write(folder, case, labels)
    privatize_file(raw, folder / "out.jsonl", COIN, ledger=ledger, cap=cap)
    private = read_pairs(folder / "out.jsonl")
    assert (folder / "out.manifest.json").exists()
    return seen_of(private, ledger)


HOMES = []


@pytest.fixture(autouse=True)
def homes():
    """Thousands of small ledgers: where there is a file system in memory, they lie there."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        HOMES.append(name)
        yield
        HOMES.pop()


def new_home():
    return Path(tempfile.mkdtemp(dir=HOMES[-1]))


both_runs = pytest.mark.parametrize("run", [in_memory, from_file], ids=["memory", "file"])


def orders(sizes):
    """Every order of the words of every person, as the words that are drawn one after the other."""
    for chosen in product(*(permutations(range(size)) for size in sizes)):
        yield tuple(word for order in chosen for word in order)


def distribution(run, *given, coins=(FLIP, KEEP)):
    """The exact distribution of what is seen, over all draws of questions and all coins."""
    outcomes, tapes = {}, [((), Fraction(1))]
    sizes = []
    honest = AskedPeople._words

    def choosing(self, asked, entropy):
        totals = np.unique(_persons(asked.keys), return_counts=True)[1].tolist()
        sizes[:] = [] if self.cap is None else [total for total in totals if total > self.cap]
        found = honest(self, asked, entropy)
        sizes.clear()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AskedPeople, "_words", choosing)
        patch.setattr(_random, "new_token", lambda: "0" * 43)  # a secret is of no label
        while tapes:
            tape, chance = tapes.pop()
            ahead = iter(tape)

            def words(_, n, ahead=ahead):
                steps = 1 if sizes else n
                taken = [step for step, _ in zip(ahead, range(steps), strict=False)]
                if len(taken) < steps:
                    raise TapeEmptyError(steps - len(taken))
                return np.array(taken[0] if sizes else taken, dtype=np.uint64)

            patch.setattr(SystemEntropy, "words", words)
            try:
                out = run(*given)
            except TapeEmptyError as missing:
                if sizes:
                    ways = list(orders(sizes))
                    tapes += [((*tape, way), chance / len(ways)) for way in ways]
                else:
                    more = product(coins, repeat=missing.args[0])
                    tapes += [((*tape, *way), chance * weight(way, coins)) for way in more]
                sizes.clear()
                continue
            outcomes[out] = outcomes.get(out, Fraction(0)) + chance
    assert sum(outcomes.values()) == 1
    return outcomes


def weight(words, coins):
    """The chance of these words, if only those of ``coins`` can fall."""
    return math.prod(CHANCE[word] for word in words) / sum(map(CHANCE.get, coins)) ** len(words)


def label_vectors(case, whose="ana"):
    """Labels of one person in every way; the others keep theirs."""
    return list(product(*((0, 1) if person == whose else (1,) for person, _ in case)))


def loss(run, case, cap):
    """The largest log-ratio of anything that is seen when all labels of one person change."""
    channel = {labels: distribution(run, case, labels, cap) for labels in label_vectors(case)}
    return channel, float(exact_epsilon(channel, product(channel, repeat=2)))


def stated(channel):
    """What the promise of any outcome says, in its one number."""
    promises = {out[3] for outcomes in channel.values() for out in outcomes}
    (promise,) = promises
    assert "all labels of one person are replaced by any others" in promise
    assert "labels-only" in promise
    return float(promise.split("epsilon=")[1].split(",")[0])


def chances_of_rows(outcomes):
    """How likely each choice of rows is."""
    found = Counter()
    for out, chance in outcomes.items():
        found[out[0]] += chance
    return dict(found)


def is_uniform(run, case, cap):
    """Whether every choice of ``cap`` questions of one person is as likely as any other."""
    questions = sorted(set(case))
    subsets = math.comb(len(questions), cap)
    for labels in label_vectors(case):
        found = chances_of_rows(distribution(run, case, labels, cap, coins=(KEEP,)))
        if set(found.values()) != {Fraction(1, subsets)} or len(found) != subsets:
            return False
    return True


# --- the promise, exactly ---


@pytest.mark.deep
@both_runs
@cases
def test_all_labels_of_one_person_show_by_exactly_the_stated_epsilon(run, case, cap, most):
    channel, found = loss(run, case, cap)
    assert found == pytest.approx(most * ONCE, abs=1e-12)
    assert found <= most * ONCE * (1 + 1e-15)
    assert stated(channel) == most * ONCE
    rows = [chances_of_rows(outcomes) for outcomes in channel.values()]
    assert all(chances == rows[0] for chances in rows)  # which rows are used tells no label


@pytest.mark.deep
@pytest.mark.parametrize("run", [in_memory, from_file], ids=["memory", "file"])
@pytest.mark.parametrize("cap", [1, 2, 3])
def test_every_choice_of_questions_is_as_likely(run, cap):
    assert is_uniform(run, THREE, cap)


def test_all_rows_of_a_chosen_question_stay_in_their_order():
    for out in distribution(in_memory, REPEATED, (1, 0, 0), 1):
        rows, answers = out[:2]
        assert rows in {(("ana", "q"), ("ana", "q")), (("ana", "r"),)}
        assert len(set(answers)) == 1


@pytest.mark.deep
def test_one_label_shows_by_epsilon_and_a_cap_bounds_the_person():
    """Under unit label with a cap: ε for one label, cap·ε for all labels of one person."""

    def by_label(case, labels, cap):
        return in_memory(case, labels, cap, unit="label")

    channel, found = loss(by_label, THREE, 2)
    assert found == pytest.approx(2 * ONCE, abs=1e-12)
    one = [(a, b) for a in channel for b in channel if sum(map(int.__ne__, a, b)) == 1]
    assert float(exact_epsilon(channel, one)) == pytest.approx(ONCE, abs=1e-12)


@pytest.mark.deep
def test_two_releases_show_by_what_their_ledger_says():
    """A cap of one, then of two: the joint loss is the total, each release is its own promise."""

    def two_runs(case, labels, _):
        ledger = new_ledger()
        pairs = read_pairs(rows_of(case, labels))
        seen = [
            seen_of(privatize(pairs, COIN, ledger=ledger, cap=cap), ledger)[:4] for cap in (1, 2)
        ]
        assert ledger.total().epsilon == 2 * ONCE
        return tuple(seen)

    channel = {labels: distribution(two_runs, TWO, labels, None) for labels in label_vectors(TWO)}
    found = float(exact_epsilon(channel, product(channel, repeat=2)))
    assert found == pytest.approx(2 * ONCE, abs=1e-12)
    assert found <= 2 * ONCE


# --- planted bugs: the same checks must find them ---


def chosen_by(order):
    """A cap that keeps the questions of each person that come first in an order of its own."""

    def chosen(self, asked, words, stored):
        del words, stored
        taken, used = Counter(), np.zeros(len(asked.keys), dtype=bool)
        for place in sorted(range(len(asked.keys)), key=lambda place: order(asked, place)):
            person = asked.keys[place][:16]
            taken[person] += 1
            used[place] = taken[person] <= self.cap
        return used

    return chosen


def no_words(_, asked, entropy):
    """No word is needed where nothing is chosen at random."""
    del entropy
    return np.zeros(len(asked.keys), np.uint64)


@both_runs
@pytest.mark.parametrize("wanted", [0, 1])
def test_rows_preferred_by_their_label_are_refuted(monkeypatch, run, wanted):
    by_label = chosen_by(lambda asked, place: asked.labels[place] != wanted)
    monkeypatch.setattr(AskedPeople, "_words", no_words)
    monkeypatch.setattr(AskedPeople, "_chosen", by_label)
    assert loss(run, TWO, 1)[1] == float("inf")


@both_runs
def test_a_cap_after_the_answers_is_refused(monkeypatch, run):
    """Everything is answered, and what is left is the reader's to choose."""
    monkeypatch.setattr(AskedPeople, "_chosen", lambda _, asked, *__: asked.keys != b"")
    with pytest.raises(PrivacyError, match="does not cover 3 answers"):
        run(THREE, (1, 0, 1), 2)


def test_keeping_the_first_rows_is_not_uniform(monkeypatch):
    monkeypatch.setattr(AskedPeople, "_words", no_words)
    by_place = chosen_by(lambda asked, place: asked.firsts[place])
    monkeypatch.setattr(AskedPeople, "_chosen", by_place)
    assert not is_uniform(in_memory, THREE, 1)


def test_drawing_from_a_public_seed_is_not_uniform(monkeypatch):
    honest = AskedPeople._words
    seeded = lambda self, asked, _: honest(self, asked, SimulatedEntropy(0))  # noqa: E731
    monkeypatch.setattr(AskedPeople, "_words", seeded)
    assert not is_uniform(in_memory, THREE, 1)


def test_a_spend_that_is_not_multiplied_is_refuted(monkeypatch):
    honest = Randomization._fresh
    monkeypatch.setattr(Randomization, "_fresh", lambda self, counts: min(1, honest(self, counts)))
    channel, found = loss(in_memory, TWO, None)
    (spends,) = {out[4] for outcomes in channel.values() for out in outcomes}
    assert spends[0][2] * ONCE < found


def test_a_promise_that_is_not_multiplied_is_refused(monkeypatch):
    honest = COIN.guarantee

    def guarantee(self, *, unit, neighbors, trust, labels=None):
        del self
        return honest(unit=unit, neighbors=neighbors, trust=trust, labels=labels and 1)

    monkeypatch.setattr(sordino.RandomizedResponse, "guarantee", guarantee)
    with pytest.raises(PrivacyError, match="does not cover 2 answers"):
        from_file(TWO, (1, 0), None)
    (out,) = distribution(in_memory, TWO, (1, 0), None, coins=(KEEP,))
    assert f"epsilon={2 * ONCE:g}," in out[3]  # in memory what was spent is said


# --- running again ---


def people(n, questions):
    return [(f"p{i}", f"q{j}") for i in range(n) for j in range(questions)]


@pytest.mark.parametrize("cap", [None, 2])
def test_a_later_run_is_free_and_reproduces_itself(tmp_path, cap):
    case = people(20, 5)
    ledger = new_ledger(tmp_path)
    first = privatize(read_pairs(rows_of(case, [1] * 100)), COIN, ledger=ledger, cap=cap)
    again = privatize(read_pairs(rows_of(case, [0] * 100)), COIN, ledger=ledger, cap=cap)
    assert seen_of(again, ledger)[:4] == seen_of(first, ledger)[:4]
    assert len(first) == 20 * (cap or 5)
    assert again.public_digest == first.public_digest
    assert again.artifact == first.artifact
    assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit", "repeat"]
    assert ledger.total().epsilon == first.guarantee.epsilon == (cap or 5) * ONCE
    privatize_file(
        write(tmp_path, case, [0] * 100), tmp_path / "out.jsonl", COIN, ledger=ledger, cap=cap
    )
    found = read_pairs(tmp_path / "out.jsonl")
    assert seen_of(found, ledger)[:4] == seen_of(first, ledger)[:4]


def test_a_larger_cap_pays_for_what_is_new_only(tmp_path):
    case = people(10, 5)
    ledger, pairs = new_ledger(tmp_path), read_pairs(rows_of(people(10, 5), [1] * 50))
    small = privatize(pairs, COIN, ledger=ledger, cap=2)
    large = privatize(pairs, COIN, ledger=ledger, cap=3)
    assert [row.count for row in ledger.spends] == [2, 1]
    kept = set(zip(large.persons, large.keys, strict=True))
    assert set(zip(small.persons, small.keys, strict=True)) < kept
    assert (len(kept), large.guarantee.epsilon) == (30, 3 * ONCE)
    assert len(case) == 50


def test_a_smaller_cap_later_says_what_its_entries_paid_for(tmp_path):
    ledger, pairs = new_ledger(tmp_path), read_pairs(rows_of(people(10, 5), [1] * 50))
    privatize(pairs, COIN, ledger=ledger)
    private = privatize(pairs, COIN, ledger=ledger, cap=2)
    assert (len(private), private.guarantee.epsilon) == (20, 5 * ONCE)
    assert len(ledger.spends) == 1


def test_a_cap_of_numpy_is_a_number(tmp_path):
    """A memo once stored it as bytes, and all labels of a person were paid for."""
    ledger, pairs = new_ledger(tmp_path), read_pairs(rows_of(people(10, 5), [1] * 50))
    private = privatize(pairs, COIN, ledger=ledger, cap=np.int64(2))
    assert [row.count for row in ledger.spends] == [2]
    assert (len(private), private.guarantee.epsilon) == (20, 2 * ONCE)


@racing
def test_two_processes_at_once_never_answer_more_than_the_ledger_counts(
    tmp_path, monkeypatch, owner
):
    ledger, pairs = new_ledger(tmp_path), read_pairs(rows_of(people(15, 6), [1] * 90))
    answered = set()
    for private in raced(monkeypatch, owner, pairs, ledger, cap=2):
        rows = set(zip(private.persons, private.keys, strict=True))
        assert max(Counter(person for person, _ in rows).values()) == 2
        answered |= rows
    most = max(Counter(person for person, _ in answered).values())
    assert most * ONCE <= Ledger.open(ledger.path).total().epsilon == 4 * ONCE


# --- end to end ---


def test_a_certificate_states_the_promise_to_a_person(linear_world, tmp_path):
    raw, _ = linear_world(120, 3)
    pairs = sordino.Pairs.from_features(
        raw.given, raw.labels, persons=[f"p{i % 12}" for i in range(120)]
    )
    for cap, most in ((None, 10), (4, 4)):
        (tmp_path / str(cap)).mkdir()
        ledger = new_ledger(tmp_path / str(cap))
        answers = privatize(pairs, COIN, ledger=ledger, cap=cap)
        reward = sordino.fit_reward(answers, ridge=1.0)
        policy = sordino.gibbs_policy(reward, temperature=0.5)
        certificate = sordino.certify(policy, ledger)
        assert certificate.guarantee == answers.guarantee
        assert certificate.guarantee.unit == "person"
        assert certificate.guarantee.epsilon == most * ONCE
        assert "labels-only" in certificate.guarantee.caveats


def test_capped_answers_of_labels_are_certified_for_one_label(linear_world, tmp_path):
    """Two entries paid for different labels: one label was drawn once."""
    raw, _ = linear_world(120, 3)
    pairs = sordino.Pairs.from_features(
        raw.given, raw.labels, persons=[f"p{i % 12}" for i in range(120)]
    )
    ledger = new_ledger(tmp_path, unit="label")
    privatize(pairs, COIN, ledger=ledger, cap=2)
    answers = privatize(pairs, COIN, ledger=ledger, cap=5)
    certificate = sordino.certify(sordino.fit_reward(answers, ridge=1.0), ledger)
    assert len(answers.release_ids) == 2
    assert certificate.guarantee.epsilon == ONCE
    assert certificate.ledger_total.epsilon == 2 * ONCE


# --- what is refused, before anything is spent ---


@wherever
@pytest.mark.parametrize("cap", [None, 2])
def test_over_budget_nothing_is_drawn(tmp_path, monkeypatch, cap, place):
    ledger, rows = new_ledger(tmp_path, epsilon=1.9 * ONCE), rows_of(THREE, (1, 0, 1))
    monkeypatch.setattr(SystemEntropy, "words", lambda *_: pytest.fail("something was drawn"))
    with pytest.raises(BudgetExceeded):
        privatize_rows(place, rows, tmp_path, COIN, ledger=ledger, cap=cap)
    assert ledger.spends == ()


def test_a_ledger_that_counts_records_is_refused(tmp_path):
    ledger = new_ledger(tmp_path, unit="record")
    with pytest.raises(PrivacyError, match="record changes"):
        privatize(read_pairs(rows_of(TWO, (1, 0))), COIN, ledger=ledger)


def test_an_input_that_grows_between_two_readings_answers_nothing_unpaid(tmp_path, monkeypatch):
    """What is not surveyed is not answered: it would be stored, and free for the next run."""
    ledger, raw = new_ledger(tmp_path), write(tmp_path, ONE, (1,))
    honest = Randomization.pay

    def grown(self, survey):
        result = honest(self, survey)
        write(tmp_path, THREE, (1, 0, 1))
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Randomization, "pay", grown)
        with pytest.raises(DataError, match="changed"):
            privatize_file(raw, tmp_path / "out.jsonl", COIN, ledger=ledger)
    privatize_file(raw, tmp_path / "out.jsonl", COIN, ledger=ledger)
    assert ledger.total().epsilon >= 3 * ONCE
