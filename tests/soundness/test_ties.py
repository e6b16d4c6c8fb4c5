"""A tie is a value of the private label: exactly what it shows, and that it leaves no trace.

Every label takes one word. The 2^64 words fall into three classes by two cuts, the threshold t and
one half, so the law of everything that is published can be listed with exact fractions.
"""

import csv
import json
import math
import tempfile
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.privatized import privatize_file
from tests.tiers import few

from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.auditing.exact import exact_epsilon
from sordino.engines.engine import InProcess
from sordino.errors import DataError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunk_survey import survey_chunks
from sordino.preferences.chunks import find_chunks
from sordino.preferences.pairs import read_pairs
from sordino.preferences.records import _parse_record, canonical
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, UNDECIDED, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privatization.answers import privatize

WORDS, HALF = 2**64, 2**63
VALUES = (0, 1, UNDECIDED)
GRID = [1e-6, 1e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 10.0, 20.0, 40.0, 44.36, 50.0]
EPSILONS = st.floats(1e-6, 50.0)
REPLACED = [((one,), (other,)) for one, other in product(VALUES, repeat=2)]
BY_A_COIN = [pair for pair in REPLACED if UNDECIDED in (pair[0][0], pair[1][0])]


class Tape:
    """An entropy that says given words and counts what is taken."""

    randomness = "system"

    def __init__(self, words):
        self.left, self.taken = list(words), 0

    def words(self, n):
        self.taken += n
        return np.array([self.left.pop(0) for _ in range(n)], dtype=np.uint64)


def answer(coin, label, word):
    """What the real release answers to one label, and how many words it takes for it."""
    tape = Tape([word] * 3)
    (said,) = coin.release(np.array([label]), entropy=tape).tolist()
    return said, tape.taken


def cut(coin, label):
    """Where the real release changes its answer, by bisection over all 2^64 words."""
    low, high = 0, WORDS - 1
    lowest, highest = answer(coin, label, low)[0], answer(coin, label, high)[0]
    if lowest == highest:
        return lowest, WORDS
    while high - low > 1:
        middle = (low + high) // 2
        same = answer(coin, label, middle)[0] == lowest
        low, high = (middle, high) if same else (low, middle)
    return lowest, high


def channel_of(coin):
    """The exact channel of one label, counted word by word; the words it takes are seen too."""
    channel = {}
    for label in VALUES:
        below, at = cut(coin, label)
        share = Fraction(at, WORDS)
        outputs = {(below, answer(coin, label, 0)[1]): share}
        if at < WORDS:
            outputs[1 - below, answer(coin, label, WORDS - 1)[1]] = 1 - share
        channel[label,] = outputs
    return channel


def stated(coin, neighbors):
    return coin.guarantee(unit="label", neighbors=neighbors, trust="local").epsilon


def keeps_its_promise(coin):
    """What the mutants must fail: the loss over all 3 × 3 pairs, and of a tie, are as stated."""
    channel = channel_of(coin)
    return exact_epsilon(channel, REPLACED) <= Decimal(stated(coin, REPLACE_ONE)) and exact_epsilon(
        channel, BY_A_COIN
    ) <= Decimal(stated(coin, REPLACE_SPECIAL))


def is_fair(coin):
    """An undecided label is answered by 1 on exactly half of the words."""
    chances = channel_of(coin)[UNDECIDED,]
    return sorted((said, chance) for (said, _), chance in chances.items()) == [
        (0, Fraction(1, 2)),
        (1, Fraction(1, 2)),
    ]


@pytest.mark.parametrize("epsilon", GRID)
def test_every_pair_of_values_and_every_answer(epsilon):
    coin = RandomizedResponse(epsilon)
    flip = Fraction(coin.threshold, WORDS)
    expected = {0: flip, 1: 1 - flip, UNDECIDED: Fraction(1, 2)}
    channel = channel_of(coin)
    assert channel == {
        (label,): {(1, 1): chance, (0, 1): 1 - chance} for label, chance in expected.items()
    }
    for (one,), (other,) in REPLACED:
        ratios = (expected[one] / expected[other], (1 - expected[one]) / (1 - expected[other]))
        loss = exact_epsilon(channel, [((one,), (other,))])
        assert float(loss) == pytest.approx(math.log(max(*ratios, 1)), rel=1e-12, abs=1e-15)
        assert loss <= Decimal(coin.realized_epsilon)


@pytest.mark.parametrize("epsilon", few(GRID, first=4))
def test_a_tie_costs_less_than_a_change_of_mind(epsilon):
    """Between 0 and 1 the loss is ε′; between either and a tie log(1/(2f)) = log((e^ε′ + 1)/2)."""
    coin = RandomizedResponse(epsilon)
    channel = channel_of(coin)
    between = exact_epsilon(channel, [((0,), (1,)), ((1,), (0,))])
    tied = exact_epsilon(channel, BY_A_COIN)
    assert Decimal(0) < tied < between <= Decimal(coin.realized_epsilon)
    assert float(tied) == pytest.approx(math.log1p(math.expm1(coin.realized_epsilon) / 2), rel=1e-9)
    assert tied <= Decimal(stated(coin, REPLACE_SPECIAL)) <= Decimal(stated(coin, REPLACE_ONE))
    assert keeps_its_promise(coin)
    assert is_fair(coin)


@pytest.mark.deep
@given(EPSILONS)
def test_any_epsilon_holds_over_the_three_values(epsilon):
    coin = RandomizedResponse(epsilon)
    assert keeps_its_promise(coin)
    assert is_fair(coin)


@given(EPSILONS, st.integers(0, WORDS - 1))
def test_one_word_decides_each_value_by_its_own_rule(epsilon, word):
    coin = RandomizedResponse(epsilon)
    below = word < coin.threshold
    assert answer(coin, 0, word) == (int(below), 1)
    assert answer(coin, 1, word) == (int(not below), 1)
    assert answer(coin, UNDECIDED, word) == (int(word < HALF), 1)


@pytest.mark.parametrize("epsilon", GRID)
def test_debiased_answers_mean_one_half(epsilon):
    """E(z − f)/(1 − 2f) is y for every value, ½ for a tie: nothing else has to know of ties."""
    coin = RandomizedResponse(epsilon)
    flip = Fraction(coin.threshold, WORDS)
    for (label,), outputs in channel_of(coin).items():
        mean = sum(said * chance for (said, _), chance in outputs.items())
        assert (mean - flip) / (1 - 2 * flip) == {0: 0, 1: 1, UNDECIDED: Fraction(1, 2)}[label]


@given(st.lists(st.sampled_from(VALUES), max_size=9), st.integers(0, 2**32))
def test_the_coins_of_others_do_not_move(labels, seed):
    """The answer to a label is the same whatever stands around it, in chunks of any size."""
    coin = RandomizedResponse(1.0)
    words = SimulatedEntropy(seed).words(len(labels))
    alone = [answer(coin, label, int(word))[0] for label, word in zip(labels, words, strict=True)]
    tape = Tape(words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sordino.mechanisms.randomized_response._CHUNK", 4)
        together = coin.release(np.array(labels, dtype=np.int8), entropy=tape)
    assert together.tolist() == alone
    assert tape.taken == len(labels)
    assert together.dtype == np.int8


# --- planted bugs ---

honest = RandomizedResponse.release


def as_zero(self, values, *, entropy):
    return honest(self, np.where(values == UNDECIDED, 0, values), entropy=entropy)


def always_zero(self, values, *, entropy):
    return np.where(values == UNDECIDED, 0, honest(self, values, entropy=entropy))


def left_out(self, values, *, entropy):
    return np.append(honest(self, values[values != UNDECIDED], entropy=entropy), 0)[:1]


def with_a_word_more(self, values, *, entropy):
    said = honest(self, values, entropy=entropy)
    entropy.words(int((values == UNDECIDED).sum()))
    return said


def one_word_for_two_coins(self, values, *, entropy):
    """A tie is first decided by a fair coin, which is then randomized by the very same word."""
    said = []
    for value in values.tolist():
        (word,) = entropy.words(1).tolist()
        decided = int(word < HALF) if value == UNDECIDED else value
        said.append(decided ^ (word < self.threshold))
    return np.array(said, dtype=np.int8)


@pytest.mark.parametrize("mutant", [always_zero, left_out, with_a_word_more])
def test_ties_that_show_are_refuted(monkeypatch, mutant):
    monkeypatch.setattr(RandomizedResponse, "release", mutant)
    for epsilon in (0.1, 1.0, 10.0):
        assert not keeps_its_promise(RandomizedResponse(epsilon))
        assert exact_epsilon(channel_of(RandomizedResponse(epsilon)), REPLACED).is_infinite()


@pytest.mark.parametrize("mutant", [as_zero, one_word_for_two_coins])
def test_ties_that_take_a_side_are_refuted(monkeypatch, mutant):
    """Read as 0, a tie differs from 1 by more than REPLACE_SPECIAL says, and it is no tie."""
    monkeypatch.setattr(RandomizedResponse, "release", mutant)
    for epsilon in (0.1, 1.0, 10.0):
        assert not is_fair(RandomizedResponse(epsilon))
        assert not keeps_its_promise(RandomizedResponse(epsilon))


# --- from file to file ---

COIN = RandomizedResponse(0.5)
CUTS = (0, COIN.threshold, HALF, WORDS)
CHANCE = {low: Fraction(high - low, WORDS) for low, high in pairwise(CUTS)}
SAID = {0: (0, "second", "0"), 1: (1, "first", "1"), UNDECIDED: ("tie", "Both Bad", "skip")}
CASES = {
    "one": [(None, "q")],
    "two": [(None, "q"), (None, "r")],
    "one person twice": [("ana", "q"), ("ana", "q")],
    "two people": [("ana", "q"), ("ben", "q")],
}


def rows_of(case, labels):
    """Records whose answers stand in either order, and labels in all their spellings."""
    rows = []
    for index, ((person, question), label) in enumerate(zip(case, labels, strict=True)):
        answers, value = [f"{question} yes", f"{question} no"], label
        if canonical(question, *answers)[0] != index % 2:
            answers.reverse()
        if index % 2 and label != UNDECIDED:
            value = 1 - label
        row = {"prompt": question, "first": answers[0], "second": answers[1]}
        row["label"] = SAID[value][index % 3]
        rows.append(row if person is None else row | {"person": person})
    return rows


def new_ledger(folder):
    budget = Guarantee(10.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="central")
    return Ledger.open(folder / "spend.db", data="answers", budget=budget)


def spent(ledger):
    return tuple((row.event, row.parameters, row.count, row.payload) for row in ledger.spends)


def in_memory(case, labels):
    with tempfile.TemporaryDirectory() as folder:
        ledger = new_ledger(Path(folder))
        private = privatize(read_pairs(rows_of(case, labels)), COIN, ledger=ledger)
        public = (private.keys, private.prompts, private.first, private.second, private.persons)
        texts = repr((public, private.dropped, private.public_digest, str(private.guarantee)))
        return texts, tuple(private.answers.tolist()), spent(ledger)


def in_files(name):
    def run(case, labels):
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            rows = rows_of(case, labels)
            with (folder / name).open("w", newline="", encoding="utf-8") as file:
                if name.endswith(".csv"):
                    writer = csv.DictWriter(file, rows[0])
                    writer.writeheader()
                    writer.writerows(rows)
                else:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
            ledger = new_ledger(folder)
            privatize_file(folder / name, folder / "out.jsonl", COIN, ledger=ledger)
            outputs = [(folder / f"out{end}").read_bytes() for end in (".jsonl", ".manifest.json")]
            return (*outputs, spent(ledger))

    return run


WHOLE = [
    *("Human: Which?\n\nAssistant: I think that red", "Human: Which?\n\nAssistant: I think not"),
    *("Say it again", "Say it"),
    *(
        [{"role": "user", "content": text} for text in ("a", "b")],
        [{"role": "user", "content": "a"}],
    ),
]


def whole_answers(label, one, other, form):
    """A record without a prompt, as one who decided would write it, or as every label is."""
    if form == "decided":
        return {"chosen": one, "rejected": other} if label else {"chosen": other, "rejected": one}
    return {"first": one, "second": other, "label": SAID[label][0]}


@pytest.mark.parametrize("pair", list(zip(WHOLE[::2], WHOLE[1::2], strict=True)))
def test_without_a_prompt_a_tie_is_cut_as_a_decision_is(pair):
    rows = [whole_answers(label, *pair, "label") for label in VALUES]
    rows += [whole_answers(label, *pair, "decided") for label in (0, 1)]
    pairs = read_pairs(rows)
    assert len(set(pairs.keys)) == 1
    assert pairs.labels.tolist().count(UNDECIDED) == 1


FORMS = [{"chosen": "I say red", "rejected": "I say blue"},
         {"prompt": "", "first": "I say one", "second": "I say two", "label": "tie"}]  # fmt: skip


def test_ties_with_a_prompt_beside_decisions_without_are_refused(tmp_path):
    """Only the decided ones would be cut: "I say" begins an answer where nobody decided."""
    for rows in (FORMS, FORMS[::-1]):
        with pytest.raises(DataError, match="a prompt is given for some"):
            read_pairs(rows)
    for number, row in enumerate(FORMS):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with (
        pytest.raises(DataError, match=r"1\.jsonl: a prompt is given for some"),
        survey_chunks(find_chunks(tmp_path), InProcess()),
    ):
        pytest.fail("both forms were read")


def test_a_randomized_answer_keeps_needing_its_prompt():
    with pytest.raises(DataError, match="'prompt' is missing"):
        _parse_record({"first": "a b", "second": "a c", "answer": 1}, "line 1")


RUNS = {"memory": in_memory, "jsonl": in_files("raw.jsonl"), "csv": in_files("raw.csv")}


class TapeEmptyError(Exception):
    """The code wants one more word than was decided so far."""


def distribution(run, case, labels):
    """The exact law of everything that is published, over all classes of all words."""
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
            patch.setattr("secrets.token_hex", lambda n: "0" * 2 * n)  # ids depend on nothing
            patch.setattr("secrets.token_urlsafe", lambda n: "0" * 43)  # nor does a ledger's secret
            try:
                out = run(case, labels)
            except TapeEmptyError:
                tapes += [(*tape, word) for word in CHANCE]
                continue
            assert used == len(tape)
            outcomes[out] = outcomes.get(out, Fraction(0)) + math.prod(
                (CHANCE[word] for word in tape), start=Fraction(1)
            )
    return outcomes


def neighbors_of(n):
    return [
        (one, other)
        for one, other in product(product(VALUES, repeat=n), repeat=2)
        if sum(a != b for a, b in zip(one, other, strict=True)) == 1
    ]


def loss(run, case):
    channel = {
        labels: distribution(run, case, labels) for labels in product(VALUES, repeat=len(case))
    }
    return float(exact_epsilon(channel, neighbors_of(len(case))))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("run", "case"),
    [*product(["memory"], CASES), ("jsonl", "one"), ("csv", "one"), ("csv", "one person twice")],
)
def test_what_is_published_shows_one_label_by_epsilon(run, case):
    assert loss(RUNS[run], CASES[case]) == pytest.approx(COIN.realized_epsilon, abs=1e-15)


@pytest.mark.parametrize("run", few(RUNS, first=1))
def test_reading_that_drops_ties_is_refuted(monkeypatch, run):
    """One row fewer: n, the digest and the answers tell."""

    def hasty(records, digest, rules):
        for record in records:
            if record.outcome != UNDECIDED:
                digest.add(record.key, record.person)
                yield record

    monkeypatch.setattr("sordino.preferences.pairs.kept", hasty)
    monkeypatch.setattr("sordino.preferences.chunks.kept", hasty)
    labels = [(1, 1), (UNDECIDED, 1)]
    laws = {pair: distribution(RUNS[run], CASES["two"], pair) for pair in labels}
    assert math.isinf(exact_epsilon(laws, [tuple(labels)]))


def test_reading_that_turns_ties_is_noticed(monkeypatch):
    """A tie that is swapped like a label would become something else."""
    monkeypatch.setattr("sordino.preferences.records.turned", lambda outcome, swap: outcome ^ swap)
    rows = rows_of(CASES["two"], (UNDECIDED, UNDECIDED))
    with pytest.raises(ValueError, match="labels"):
        read_pairs(rows)
