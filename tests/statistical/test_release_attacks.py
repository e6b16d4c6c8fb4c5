"""Attacks that use the raw file: honest files pass at the level said, planted leaks do not."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import expit

from sordino.auditing.releases.channels import PublicKnowledge, attack_channels, order_channels
from sordino.auditing.releases.flips import attack_flips, measure_flips
from sordino.auditing.releases.reading import Released, decide
from sordino.auditing.releases.recipes import id_channels, id_recipes
from sordino.preferences.records import canonical

LEVEL = 1e-3
ANSWER_HASHES = tuple(one for one in id_recipes() if " of x;" in one.name)
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
ORDERS = ("canonical", "random", "length", "displayed")
WORDS = ("ab", "cde", "fghi", "j", "klmnop", "qrs", "tu", "vwxyz", "efg", "hijkl")


@dataclass(frozen=True)
class World:
    """Honest people: tastes for length that differ, better and worse answers, lazy clicks."""

    n: int = 240
    people: int = 24
    questions: int | None = None  # how many different ones; None for one for each row
    taste: float = 1.5
    agreement: float = 1.0
    bias: float = 0.55
    countries_taste: bool = False

    def draw(self, seed: int, epsilon: float, order: str) -> Released:
        """Return a file by randomized response at exactly this epsilon."""
        r = np.random.default_rng(seed)
        n, m = self.n, self.questions or self.n
        texts = [
            tuple(" ".join(r.choice(WORDS, r.integers(2, 30))) for _ in range(2)) for _ in range(m)
        ]
        which = r.integers(m, size=n) if self.questions else np.arange(n)
        prompts = [f"question {i} of {seed}" for i in which]
        shown = [texts[i][:: 1 if r.random() < 0.5 else -1] for i in which]
        person = np.sort(r.integers(self.people, size=n))  # people come one after the other
        likes = r.normal(scale=self.taste, size=self.people)
        if self.countries_taste:
            likes = np.where(np.arange(self.people) % 3 == 0, self.taste, -self.taste)
        quality = r.normal(scale=self.agreement, size=(m, 2))
        label = np.empty(n, dtype=np.int64)  # 1: the one shown first
        for i in range(n):
            turn = shown[i] != texts[which[i]]
            better = quality[which[i]][::-1] if turn else quality[which[i]]
            longer = np.sign(len(shown[i][0]) - len(shown[i][1]))
            pull = likes[person[i]] * longer + better[0] - better[1]
            label[i] = r.random() < (1 - 2 * (1 - self.bias)) + 2 * (1 - self.bias) * expit(pull)
        flip = {
            "displayed": np.zeros(n, bool),
            "random": r.random(n) < 0.5,
            "length": np.array([len(a) > len(b) for a, b in shown]),
            "canonical": np.array(
                [canonical(p, *s)[0] for p, s in zip(prompts, shown, strict=True)]
            ),
        }[order]
        pairs = [s[::-1] if f else s for s, f in zip(shown, flip, strict=True)]
        truth = label ^ flip
        persons = tuple(f"p{i}" for i in person)
        hashed = np.array([canonical(p, *s)[0] for p, s in zip(prompts, pairs, strict=True)])
        answers = stored(persons, prompts, truth ^ hashed, r.random(n) < expit(-epsilon)) ^ hashed
        start = 1_700_000_000 + np.cumsum(r.integers(1, 300, size=n))
        return Released(
            layout="answer",
            prompts=tuple(prompts),
            first=tuple(a for a, _ in pairs),
            second=tuple(b for _, b in pairs),
            answers=answers,
            epsilon=epsilon,
            persons=persons,
            columns={
                "id": tuple(f"{x:016x}" for x in r.integers(2**62, size=n)),
                "time": tuple(map(int, start)),
                "topic": tuple(f"topic {int(i)}" for i in np.arange(n) * 5 // n),
                "country": tuple("ABC"[i % 3] for i in person),
            },
            truth=truth,
            displayed=1 - flip.astype(np.int64),
        )


def stored(persons, prompts, labels, flips):
    """Return randomized answers; a repeat gets the answer of its first row, whatever its label."""
    first: dict = {}
    rows = enumerate(zip(persons, prompts, strict=True))
    return np.array([first.setdefault(key, int(labels[i] ^ flips[i])) for i, key in rows])


def audit(file: Released, **settings):
    """Return what refutes a file, after Holm, by attack."""
    evidence = attack_channels(file, order_channels(file), **settings) + attack_flips(file)
    found = decide(evidence, LEVEL)
    return {(f.attack, f.details.get("column")): f for f in found if f.outcome == "refutes"}


def taken(file: Released, rows: np.ndarray) -> Released:
    """Return some rows of a file, in another order."""
    names = ("prompts", "first", "second") + (("persons",) if file.persons else ())
    text = {k: tuple(getattr(file, k)[i] for i in rows) for k in names}
    arrays = {k: getattr(file, k)[rows] for k in ("answers", "truth", "displayed")}
    columns = {k: tuple(v[i] for i in rows) for k, v in file.columns.items()}
    return replace(file, **text, **arrays, columns=columns)


def turned_where(file: Released, swap: np.ndarray) -> Released:
    """Return a file with the two answers of some rows written the other way round."""
    pairs = zip(file.first, file.second, swap, strict=True)
    first, second = zip(*[(b, a) if s else (a, b) for a, b, s in pairs], strict=True)
    arrays = {k: getattr(file, k) ^ swap for k in ("answers", "truth", "displayed")}
    return replace(file, first=first, second=second, **arrays)


def with_column(file: Released, values) -> Released:
    return replace(file, columns={**file.columns, "extra": tuple(values)})


def in_hash_order(file: Released) -> np.ndarray:
    return file.truth ^ file.swapped


def order_kept(file, r):
    return replace(turned_where(file, file.truth == 0), displayed=None)


def copied(file, r):
    return with_column(file, map(int, file.truth))


def negated(file, r):
    return with_column(file, (bool(x == 0) for x in file.truth))


def letters(file, r):
    return with_column(file, ("AB"[x] for x in file.truth))


def winner_in_hash_order(file, r):
    return with_column(file, ("ab"[x] for x in in_hash_order(file)))


def only_where_one(file, r):
    return with_column(file, ("yes" if x else None for x in in_hash_order(file)))


def quoted(file, r):
    rows = zip(file.first, file.second, file.truth, strict=True)
    return with_column(file, (a if x else b for a, b, x in rows))


def id_digit(file, r):
    return with_column(
        file,
        (
            f"{2 * v + x}"
            for v, x in zip(r.integers(10**8, size=len(file)), file.truth, strict=True)
        ),
    )


def hex_digit(file, r):
    high = r.integers(2**40, size=len(file))
    return with_column(
        file, (f"{2 * v + x:012x}" for v, x in zip(high, in_hash_order(file), strict=True))
    )


def stamp_parity(file, r):
    stamps = np.array(file.columns["time"]) // 2 * 2 + file.truth
    return replace(file, columns={**file.columns, "time": tuple(map(int, stamps))})


def iso_threshold(file, r):
    seconds = 10**6 * in_hash_order(file) + r.integers(10**6, size=len(file)) + 1_700_000_000
    return with_column(file, (f"{np.datetime64(int(s), 's')}Z" for s in seconds))


def sorted_rows(file, r):
    return taken(file, np.argsort(file.truth, kind="stable"))


def sorted_in_hash_order(file, r):
    return taken(file, np.argsort(in_hash_order(file), kind="stable"))


CHANNEL_LEAKS = {
    order_kept: ("position", None),
    copied: ("column", "extra"),
    negated: ("column", "extra"),
    letters: ("column", "extra"),
    winner_in_hash_order: ("column", "extra"),
    only_where_one: ("column", "extra"),
    quoted: ("column", "extra"),
    id_digit: ("column", "extra"),
    hex_digit: ("column", "extra"),
    stamp_parity: ("time", "time"),
    iso_threshold: ("time", "extra"),
    sorted_rows: ("row-order", None),
    sorted_in_hash_order: ("row-order", None),
}


WORLDS = {
    "tastes": World(n=120, people=12, taste=2.5),
    "few questions": World(n=120, people=12, questions=20),
    "countries": World(n=120, people=12, countries_taste=True, taste=3.0, agreement=0.3),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("persons", [True, False], ids=["persons", "nobody"])
def test_honest_files_are_not_refuted(world, persons):
    # 300 files in all. The three attacks on coins are exact, each at about 1e-3/30 after Holm, so
    # that unseen seeds raise a false alarm with chance below .03 (these raise none); the attacks
    # on channels are conservative. 3,800 such files of 240 to 1,500 rows gave no refutation.
    for epsilon in EPSILONS:
        for order in ORDERS:
            for seed in range(2 + persons):
                file = world.draw(seed, epsilon, order)
                assert not audit(file if persons else replace(file, persons=None))


def with_notes(file: Released, r) -> Released:
    """Return a file with columns that quote answers in public orders, and ids of parts."""
    pairs = [*zip(file.first, file.second, strict=True)]
    shown = [p[:: 1 if x else -1] for p, x in zip(pairs, file.displayed, strict=True)]
    names = zip(file.persons, file.columns["id"], strict=True)
    notes = {
        "longer": tuple(f" {max(p, key=len)}\n" for p in pairs),
        "shown": tuple(list(p) for p in shown),
        "begins": tuple(p[0][:25] for p in shown),
        "size": tuple(len(min(p)) for p in pairs),
        "text": tuple(hashlib.sha256(p[0].encode()).hexdigest() for p in shown),
        "name": tuple(f"{i % 7}/{who}-{one}" for i, (who, one) in enumerate(names)),
        "stamp": tuple(
            f"{np.datetime64(int(s), 'ms')}Z" for s in 10**12 + r.integers(10**9, size=len(file))
        ),
    }
    return replace(file, columns={**file.columns, **notes})


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("persons", [True, False], ids=["persons", "nobody"])
def test_quotations_in_public_orders_are_not_refuted(world, persons):
    # 120 files; as above, exact tests raise a false alarm with chance below .01 in all of them.
    for epsilon in EPSILONS:
        for order in ORDERS:
            file = with_notes(world.draw(7, epsilon, order), np.random.default_rng(7))
            file = file if persons else replace(file, persons=None)
            channels = [*order_channels(file), *id_channels(file, ANSWER_HASHES)]
            evidence = attack_channels(file, channels) + attack_flips(file)
            assert {one.details["column"] for one in evidence if "column" in one.details} >= {
                "longer", "shown", "begins", "size", "text", "name", "stamp"
            }  # fmt: skip
            refuting = [one for one in decide(evidence, LEVEL) if one.outcome == "refutes"]
            assert not refuting


def test_tastes_forgotten_would_refute_honest_people(monkeypatch):
    # The same file passes with them: people like what they like, in the order by length.
    file = World(n=1500, countries_taste=True, taste=3.0, agreement=0.3).draw(1, 0.1, "length")
    assert not audit(file)
    monkeypatch.setattr(PublicKnowledge, "log_odds", lambda *_, **__: 0.0)
    assert ("column", "country") in audit(file)


def test_the_bound_on_tastes_holds_as_often_as_said(monkeypatch):
    # With FAILURE = .1 at most a tenth of the bounds may be too small; 0 of 300 are, for cells
    # of few rows overstate their majority. With one cell of all rows the bound is exact.
    monkeypatch.setattr("sordino.auditing.releases.channels.FAILURE", 0.1)
    monkeypatch.setattr("sordino.auditing.releases.recipes._ORDER_RULES", {})
    missed = dict.fromkeys((1, 30), 0)
    file = World(n=150).draw(0, 1.0, "random")
    for seed in range(300):
        r = np.random.default_rng(seed)
        for people in missed:
            person = r.integers(people, size=150)
            chance = expit(r.normal(scale=1.5, size=people))[person] if people > 1 else 0.8
            truth = (r.random(150) < chance).astype(np.int64) ^ file.swapped
            named = replace(file, truth=truth, persons=tuple(map(str, person)), displayed=None)
            public = PublicKnowledge(released=named)
            found = expit(1.0 + public.log_odds(np.ones(150, dtype=bool)))
            likely = np.maximum(chance, 1 - chance)
            allowed = np.mean(expit(1.0 + np.log(likely / (1 - likely))))
            missed[people] += found < allowed
    assert missed[30] == 0
    assert 1 <= missed[1] <= 45  # 30 expected at most; 45 has a chance below .003


@pytest.mark.parametrize("leak", CHANNEL_LEAKS)
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_a_planted_leak_is_refuted(leak, epsilon):
    # Power at 600 rows of 30 people, order random: 6 of 6 seeds for every leak up to ε = 1; for
    # those that need no learning up to ε = 2; at 2,100 rows up to ε = 4.
    file = leak(World(n=600, people=30).draw(51, epsilon, "random"), np.random.default_rng(1))
    attack, column = CHANNEL_LEAKS[leak]
    found = audit(file)
    assert {one[1] for one in found} == {column}
    assert all(one.recovered > 0.9 for (name, _), one in found.items() if name == attack)
    if leak is not id_digit:  # by whichever way of reading its digits
        assert attack in {one[0] for one in found} or leak is stamp_parity


@pytest.mark.parametrize("leak", [order_kept, copied, winner_in_hash_order, quoted, hex_digit])
def test_a_leak_is_refuted_at_a_large_epsilon(leak):
    file = leak(World(n=2100, people=40).draw(3, 4.0, "random"), np.random.default_rng(1))
    assert {column for _, column in audit(file)} == {CHANNEL_LEAKS[leak][1]}


def flipped(file: Released, flips: np.ndarray) -> Released:
    return replace(file, answers=(file.truth ^ flips).astype(np.int64))


@pytest.mark.parametrize(
    ("rate", "power"),
    [(expit(-2.0), 1.0), (0.0, 1.0), (1.0, 1.0), (1 - expit(-2.0), 1.0), (expit(-1.0), 0.0)],
    ids=["larger epsilon", "no flips", "always flipped", "the reverse", "as claimed"],
)
def test_the_flip_rate_is_held_to_the_claim(rate, power):
    # Claim ε = 1, 300 rows: a coin of ε = 2 is found in all of 20 files, the claimed one in none.
    file, r = World(n=300).draw(1, 1.0, "canonical"), np.random.default_rng(2)
    found = [attack_flips(flipped(file, r.random(300) < rate))[0] for _ in range(20)]
    assert np.mean([one.p_value < LEVEL / 30 for one in found]) == power


def test_p_values_of_flips_are_valid_at_exactly_the_claim():
    # 1,500 files of 60 rows: the share of p ≤ α exceeds α + 4 standard errors with chance < 1e-4.
    # Chance of agreement is largest, and equal to what is permitted, at exactly the claim.
    file, r = (
        World(n=120, questions=40, people=60).draw(1, 1.0, "canonical"),
        np.random.default_rng(3),
    )
    values: dict[str, list[float]] = {}
    for _ in range(1500):
        for one in attack_flips(flipped(file, r.random(120) < expit(-1.0))):
            values.setdefault(one.attack, []).append(one.p_value)
    for attack in ("flip-rate", "shared-coin", "person-coin"):
        for level in (0.01, 0.05, 0.2):
            share, error = np.mean(np.array(values[attack]) <= level), np.sqrt(level / 1500)
            assert share <= level + 4 * error
        assert np.mean(np.array(values[attack]) <= 0.2) > 0.05  # and it is not always 1


SHARED = {"shared-coin": World(n=1200, questions=60, people=400), "person-coin": World(600, 60)}


@pytest.mark.parametrize("attack", SHARED)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0])
def test_one_coin_for_a_question_or_for_a_person_is_refuted(attack, epsilon):
    # 1,200 rows on 60 questions are about 590 disjoint pairs, 600 rows of 60 people about 285. At
    # ε = 2 independent coins agree in 79.0 %: all of 285 has a chance of 1e-29. Honest coins pass
    # but once in 1,000 files.
    file, r = SHARED[attack].draw(5, epsilon, "random"), np.random.default_rng(8)
    keys = file.keys if attack == "shared-coin" else file.persons
    coin = {key: r.random() < expit(-epsilon) for key in dict.fromkeys(keys)}
    shared = flipped(file, np.array([coin[key] for key in keys]))
    assert {one.attack: one.p_value for one in attack_flips(shared)}[attack] < 1e-9
    honest = flipped(file, r.random(len(file)) < expit(-epsilon))
    assert {one.attack: one.p_value for one in attack_flips(honest)}[attack] > 1e-3


def test_the_measured_interval_holds_the_true_epsilon():
    # Coverage .95 demanded; Clopper-Pearson is conservative: 280 of 300 fails by chance < .01.
    file, r = World(n=200).draw(1, 1.0, "canonical"), np.random.default_rng(3)
    held = 0
    for _ in range(300):
        found = measure_flips(flipped(file, r.random(200) < expit(-1.0)), 0.95)
        held += found.lower <= 1.0 <= found.upper
    assert held >= 280


def test_the_stated_power_is_that_of_the_measurement():
    # A coin of the ε stated as power shows more than the claim in 95 % of files: at least 365 of
    # 400 (4 standard errors); one of .8 of it in fewer.
    file, r = World(n=200).draw(1, 1.0, "canonical"), np.random.default_rng(3)
    power = measure_flips(file, 0.95).power
    shown = {}
    for true in (power, 0.8 * power):
        draws = (flipped(file, r.random(200) < expit(-true)) for _ in range(400))
        shown[true] = sum(measure_flips(one, 0.95).lower > 1.0 for one in draws)
    assert shown[power] >= 365
    assert shown[0.8 * power] < 300


def real(folder, epsilon: float, *, kept: bool) -> Released:
    """Return 2,100 real judgments, randomized, in canonical order or in that of the file."""
    with gzip.open(folder / "hh_helpful_a.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    swap = [not kept and canonical(x["prompt"], x["chosen"], x["rejected"])[0] for x in rows]
    pairs = [
        (x["chosen"], x["rejected"])[:: -1 if s else 1] for x, s in zip(rows, swap, strict=True)
    ]
    truth = 1 - np.array(swap, dtype=np.int64)
    flips = np.random.default_rng(1).random(len(rows)) < expit(-epsilon)
    return Released(
        layout="answer",
        prompts=tuple(x["prompt"] for x in rows),
        first=tuple(a for a, _ in pairs),
        second=tuple(b for _, b in pairs),
        answers=truth ^ flips,
        epsilon=epsilon,
        columns={"words": tuple(len(a.split()) - len(b.split()) for a, b in pairs)},
        truth=truth,
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_real_judgments_pass_and_their_order_kept_does_not(shared_data, epsilon):
    # The undeclared column of lengths tells what people like: a taste, not a leak.
    assert not audit(real(shared_data, epsilon, kept=False))
    assert ("position", None) in audit(real(shared_data, epsilon, kept=True))
