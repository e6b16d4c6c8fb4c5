"""What all releases promise to one person: against sums over every person, made by hand."""

import hashlib
import json
import math
import random
import sqlite3
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tests.privatized import privatize_file
from tests.tiers import few

import sordino
from sordino._files import sha256_of
from sordino.auditing.runs.replay import _check_budget
from sordino.errors import BudgetExceeded, LedgerDamaged, LedgerMismatch, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import Manifest, read_pairs
from sordino.preferences.records import person_key
from sordino.privacy import accounting
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    ApproximateEvent,
    BoundedRangeEvent,
    GaussianEvent,
    Guarantee,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import LEDGER, secret_path
from sordino.privacy.persons import Exposures, People, Use
from sordino.privatization.answers import privatize
from sordino.rewards.label_release import release_labels

NAMES = ["ana", "ben", "cem", "dua", "eva", "fay"]
DELTA = 1e-6
PURE, COIN = PureEvent(0.125), RandomizedResponseEvent(0.25)


def terms(unit, *caveats, neighbors=REPLACE_ONE, epsilon=math.inf, delta=0.0):
    return Guarantee(
        epsilon, delta=delta, unit=unit, neighbors=neighbors, trust="central", caveats=caveats
    )


def people(counts):
    """Persons by name, with so many judgments each."""
    return People.of(person_key(name) for name, count in counts.items() for _ in range(count))


def ledger_at(folder, *units, person=math.inf, neighbors=REPLACE_ONE, delta=DELTA):
    folder.mkdir(exist_ok=True)
    ledger = Ledger.create(folder / LEDGER)
    for unit in units:
        epsilon = person if unit == "person" else math.inf
        relation = neighbors if unit == "person" else REPLACE_ONE
        ledger.change_budget(terms(unit, epsilon=epsilon, delta=delta, neighbors=relation))
    return ledger


def of_group(event, m):
    """The event of m labels that change, by the definitions."""
    if isinstance(event, GaussianEvent):
        return GaussianEvent(event.mu * m)
    if isinstance(event, PureEvent):
        return PureEvent(event.epsilon * m)
    return BoundedRangeEvent(event.bounded_range * m, event.draws)


@pytest.mark.parametrize("seed", few(range(25), first=6))
def test_the_largest_total_is_that_of_the_person_with_the_most(tmp_path, seed):
    """Three data sets, labels, coins, sums by person and updates: every person by hand."""
    rng = random.Random(seed)  # noqa: S311 (which releases are tried)
    path = ledger_at(tmp_path, "label", "person").path
    done = {name: Counter() for name in [*NAMES, "nobody"]}
    for number in range(rng.randrange(2, 7)):
        kind = rng.choice(["coin", "sum", "coin of persons", "sum of persons", "everybody"])
        unit = "label" if kind in {"coin", "sum"} else "person"
        data = f"data set {number % 3}"
        counts = {name: rng.randrange(4) for name in rng.sample(NAMES, rng.randrange(1, 6))}
        counts = {name: count for name, count in counts.items() if count} or {"ana": 1}
        ledger = Ledger.open(path, data=data, unit=unit)  # each time as another process would
        count = rng.randrange(1, 3)
        if kind == "everybody":
            ledger.reserve(PURE, promise=terms("person", "labels-only"), count=count)
            for held in done.values():
                held[PURE] += count
        elif kind == "coin":
            ledger.reserve(COIN, promise=terms("label"), people=people(counts))
            for name, m in counts.items():
                done[name][COIN] += m
        elif kind == "coin of persons":
            most, promise = max(counts.values()), terms("person", "labels-only")
            ledger.reserve(COIN, promise=promise, count=most, people=people(counts))
            for name, m in counts.items():
                done[name][COIN] += m
        else:
            event = rng.choice([GaussianEvent(0.25), PURE, BoundedRangeEvent(0.25)])
            caveats = () if unit == "label" else ("labels-only",)
            promise = terms(unit, *caveats)
            ledger.reserve(event, promise=promise, count=count, people=people(counts))
            for name, m in counts.items():
                done[name][of_group(event, m) if unit == "label" else event] += count
    by_hand = max(
        accounting.composed_epsilon(held, neighbors=REPLACE_ONE, delta=DELTA)
        for held in done.values()
    )
    found = Ledger.read(path, unit="person")
    assert found.accounts(delta=DELTA)["person"].guarantee.epsilon == by_hand
    assert found.total(delta=DELTA).epsilon == by_hand
    assert "labels-only" in found.total().caveats


def test_every_output_and_every_change_of_one_person_over_three_data_sets(tmp_path):
    """Exact, and no more than is shown: the account is the largest log-ratio there is."""
    asked = [{"ana": 2, "ben": 1}, {"ben": 1}, {"ana": 1, "cem": 1}]
    coin = RandomizedResponse(0.5)
    ledger = ledger_at(tmp_path, "label")
    for number, counts in enumerate(asked):
        here = Ledger.open(ledger.path, data=f"set {number}", unit="label")
        here.reserve(coin.event, promise=terms("label"), people=people(counts))
    whose = [name for counts in asked for name, m in counts.items() for _ in range(m)]
    flip = Fraction(coin.threshold, 2**64)

    chances = [flip**turned * (1 - flip) ** (len(whose) - turned) for turned in range(7)]

    def chance(data, output):
        return chances[sum(map(int.__ne__, data, output))]

    worst = Fraction(0)
    for data in product((0, 1), repeat=len(whose)):
        for name in set(whose):
            mine = [place for place, who in enumerate(whose) if who == name]
            for change in product((0, 1), repeat=len(mine)):
                other = list(data)
                for place, label in zip(mine, change, strict=True):
                    other[place] = label
                ratios = (
                    chance(data, out) / chance(other, out)
                    for out in product((0, 1), repeat=len(whose))
                )
                worst = max(worst, *ratios)
    said = Ledger.read(ledger.path).accounts(delta=0.0)["person"].guarantee.epsilon
    assert math.log(worst) == pytest.approx(said, rel=1e-14)
    assert said == pytest.approx(3 * coin.realized_epsilon, rel=1e-14)  # ana's three labels


def test_a_person_without_judgments_in_a_release_is_not_charged(tmp_path):
    ledger = ledger_at(tmp_path, "label", "person", person=0.5, delta=0.0)
    ledger = Ledger.open(ledger.path, unit="label")
    for name in ("ana", "ben", "cem"):
        ledger.reserve(COIN, promise=terms("label"), people=people({name: 2}))
    accounts = ledger.accounts(delta=0.0)
    assert accounts["person"].guarantee.epsilon == 0.5
    assert accounts["label"].guarantee.epsilon == 0.75  # of a label it is not known whose it is
    with pytest.raises(BudgetExceeded, match=r"epsilon=0.75 in total for a person.*0 is left"):
        ledger.reserve(COIN, promise=terms("label"), people=people({"ben": 1, "dua": 1}))
    with pytest.raises(BudgetExceeded):
        ledger.check(PURE, promise=terms("label"), people=people({"ben": 1}))
    ledger.reserve(COIN, promise=terms("label"), people=people({"dua": 1}))
    # what anybody may be in is charged to whoever has the most
    with pytest.raises(BudgetExceeded):
        ledger.reserve(PURE, promise=terms("person", "labels-only"))
    assert _check_budget(Ledger.read(ledger.path)).outcome == "clear"


def test_a_release_that_names_nobody_leaves_persons_unprotected(tmp_path):
    ledger = Ledger.open(ledger_at(tmp_path, "label", delta=0.0).path, unit="label")
    ledger.reserve(COIN, promise=terms("label"), people=people({"ana": 1}))
    assert ledger.accounts()["person"].guarantee.epsilon == 0.25
    ledger.reserve(COIN, promise=terms("label"))
    assert ledger.accounts()["person"].guarantee is None
    assert "counted each judgment" in str(ledger.accounts()["person"])


def test_who_took_part_is_said_only_where_it_is_public(tmp_path):
    ledger = Ledger.open(ledger_at(tmp_path, "record", "person").path, unit="record")
    for promise in (terms("record"), terms("person")):
        with pytest.raises(PrivacyError, match="who answered is public"):
            ledger.reserve(PURE, promise=promise, people=people({"ana": 1}))


@pytest.mark.parametrize("first", ["release", "budget"])
def test_a_budget_for_the_presence_of_persons_does_not_count_their_labels(tmp_path, first):
    path = ledger_at(tmp_path, "label").path
    presence = terms("person", epsilon=1.0, neighbors=ADD_OR_REMOVE_ONE)
    if first == "budget":
        Ledger.open(path, budget=presence)
    ledger = Ledger.open(path, unit="label")
    ledger.reserve(COIN, promise=terms("label"), people=people({"ana": 100}))
    ledger = Ledger.open(path, budget=presence)
    ledger.reserve(PURE, promise=terms("person", neighbors=ADD_OR_REMOVE_ONE))
    assert ledger.total().epsilon == PURE.epsilon
    assert ledger.accounts()["person"].guarantee is None  # of the labels nothing is promised


@pytest.mark.deep
def test_updates_on_samples_of_labels_count_for_all_of_a_person(tmp_path):
    """Of three labels one at least is drawn at most so often, and three move a sum thrice."""
    ledger = Ledger.open(ledger_at(tmp_path, "label").path, unit="label")
    event = PoissonGaussianEvent(3.0, 0.1, 4)
    ledger.reserve(event, promise=terms("label"), people=people({"ana": 3, "ben": 1}))
    one = PoissonGaussianEvent(1.0, 1 - 0.9**3, 4)
    said = ledger.accounts(delta=DELTA)["person"].guarantee.epsilon
    by_hand = accounting.composed_epsilon({one: 1}, neighbors=REPLACE_ONE, delta=DELTA)
    assert said == pytest.approx(by_hand, rel=1e-9)
    approximate = ApproximateEvent(0.5, 1e-7)
    ledger = Ledger.open(ledger_at(tmp_path / "other", "label").path, unit="label")
    ledger.reserve(approximate, promise=terms("label"), people=people({"ana": 2}))
    assert ledger.accounts(delta=1e-6)["person"].guarantee.epsilon == pytest.approx(1.0, rel=1e-5)
    assert math.isinf(ledger.accounts(delta=2.5e-7)["person"].guarantee.epsilon)
    assert 1e-7 * (1 + math.exp(0.5)) > 2.5e-7


def test_labels_that_become_coins_go_and_come_back(tmp_path):
    ledger = Ledger.create(tmp_path / LEDGER)
    ledger.change_budget(terms("label", neighbors=REPLACE_SPECIAL, delta=DELTA))
    ledger = Ledger.open(ledger.path, unit="label")
    promise = terms("label", neighbors=REPLACE_SPECIAL)
    ledger.reserve(PURE, promise=promise, people=people({"ana": 3}))
    assert ledger.accounts(delta=0.0)["person"].guarantee.epsilon == 6 * PURE.epsilon


def test_declared_scopes_do_not_hide_who_is_in_both(tmp_path):
    made = ledger_at(tmp_path, "label", "person", person=0.4, delta=0.0)
    ledger = Ledger.open(made.path, data="one", unit="person")
    ledger.declare_disjoint(["a", "b"], rule="person-id")
    promise = terms("person", "labels-only")
    ledger.reserve(COIN, promise=promise, scope="a", people=people({"ana": 1, "ben": 1}))
    ledger.reserve(COIN, promise=promise, scope="b", people=people({"cem": 1}))
    assert ledger.total().epsilon == 0.25
    with pytest.raises(BudgetExceeded):
        ledger.reserve(COIN, promise=promise, scope="b", people=people({"ana": 1}))


@pytest.mark.parametrize("seed", range(8))
def test_nobody_exceeds_what_is_said_of_many_unlike_persons(seed):
    """Every person apart: the search finds the largest, and never less where it stops early."""
    rng = random.Random(seed)  # noqa: S311 (which persons)
    kinds = [
        Use("", event, "label", REPLACE_ONE, labels)
        for event in (PURE, COIN, GaussianEvent(0.25))
        for labels in (1, 2, 5)
    ]
    weights = {event: rng.random() for event in (PURE, COIN, GaussianEvent(0.25))}

    def size(uses):
        """Grows with each use, and with the labels that it is about."""
        return sum(count * weights[use.event] * use.labels**1.5 for use, count in uses.items())

    n = (3, 8, 300)[seed % 3]
    held = [
        Counter({use: rng.randrange(1, 9) for use in rng.sample(kinds, rng.randrange(1, 4))})
        for _ in range(n)
    ]
    largest = max(map(size, held))
    found, _ = Exposures(held).largest(size)
    assert found >= largest * (1 - 1e-12)
    over, _ = Exposures(held).largest(lambda uses: size(uses) > largest * (1 + 1e-9), at_most=0)
    under, _ = Exposures(held).largest(lambda uses: size(uses) > largest * (1 - 1e-9), at_most=0)
    assert under
    if n < 9:  # then all of them may be looked at
        assert found == pytest.approx(largest)
        assert not over


# ---- what is kept of persons


def rows(name, *questions):
    return [
        {"prompt": question, "first": "yes", "second": "no", "label": 1, "person": name}
        for question in questions
    ]


def test_names_cannot_be_tried_out_on_a_ledger(tmp_path):
    """No id, and no digest of one that anybody can make; the secret is not in it either."""
    ledger = ledger_at(tmp_path, "label", "person")
    ledger = Ledger.open(ledger.path, unit="label")
    pairs = read_pairs([*rows("ana", "p", "q"), *rows("ben", "p")])
    privatize(pairs, RandomizedResponse(1.0), ledger=ledger)
    home = ledger.path.parent
    assert secret_path(ledger.path) == home / "secret"
    assert (home / "secret").stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = ledger.path.read_bytes()
    for name in ("ana", "ben"):
        key = person_key(name)
        open_digest = hashlib.blake2b(key[:16], digest_size=8).digest()
        for told in (name.encode(), key[:16], key[:8], key.hex()[:16].encode(), open_digest):
            assert told not in whole
    assert (home / "secret").read_bytes().strip() not in whole
    blobs = sqlite3.connect(ledger.path).execute("SELECT value FROM named").fetchall()
    assert [len(value) for (value,) in blobs] == [2 * 16]


def test_a_secret_that_is_lost_meanwhile_is_missed_by_who_was_there_before(tmp_path):
    made = ledger_at(tmp_path, "label", "person", person=0.5, delta=0.0)
    before, other = (Ledger.open(made.path, unit="label") for _ in range(2))
    other.reserve(COIN, promise=terms("label"), people=people({"ana": 2}))
    secret_path(made.path).unlink()
    with pytest.raises(LedgerMismatch, match="who took part before"):
        before.reserve(COIN, promise=terms("label"), people=people({"ana": 2}))
    assert not secret_path(made.path).exists()


def test_a_secret_that_is_made_meanwhile_is_used(tmp_path, monkeypatch):
    """Between the plan of one process and its lock another one spends, and makes the secret."""
    made = ledger_at(tmp_path, "label", delta=0.0)
    one, other = (Ledger.open(made.path, unit="label") for _ in range(2))
    honest, done = Ledger._writing, []

    def late(self, *units):
        if self is one and not done:
            done.append(other.reserve(COIN, promise=terms("label"), people=people({"ana": 2})))
        return honest(self, *units)

    monkeypatch.setattr(Ledger, "_writing", late)
    one.reserve(COIN, promise=terms("label"), people=people({"ana": 1}))
    assert done
    assert largest(one) == 0.75


@pytest.mark.parametrize("content", [b"", b"\n", b"secret", b"\xff" * 43])
def test_a_file_that_is_no_secret_is_refused(tmp_path, content):
    ledger = Ledger.open(ledger_at(tmp_path, "label").path, unit="label")
    secret_path(ledger.path).write_bytes(content)
    with pytest.raises(LedgerMismatch):
        ledger.reserve(COIN, promise=terms("label"), people=people({"ana": 2}))


@pytest.mark.parametrize("fate", ["gone", "another"])
def test_without_its_secret_a_ledger_counts_no_more_persons(tmp_path, fate):
    made = ledger_at(tmp_path, "label", "person", person=0.5, delta=0.0)
    ledger = Ledger.open(made.path, unit="label")
    ledger.reserve(COIN, promise=terms("label"), people=people({"ana": 2}))
    kept = secret_path(ledger.path)
    secret = kept.read_bytes()
    kept.unlink()
    if fate == "another":
        kept.write_text("of-another-project-" * 3)
    ledger = Ledger.open(ledger.path, unit="label")
    for attempt in (ledger.check, ledger.reserve):
        with pytest.raises(LedgerMismatch, match="who took part before"):
            attempt(COIN, promise=terms("label"), people=people({"ana": 2}))
    assert ledger.accounts()["person"].guarantee.epsilon == 0.5
    kept.write_bytes(secret)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(COIN, promise=terms("label"), people=people({"ana": 2}))


def test_persons_that_were_taken_off_a_ledger_are_missed(tmp_path):
    ledger = Ledger.open(ledger_at(tmp_path, "label", "person").path, unit="label")
    ledger.reserve(COIN, promise=terms("label"), people=people({"ana": 2, "ben": 1}))
    with sqlite3.connect(ledger.path) as connection:
        (value,) = connection.execute("SELECT value FROM named").fetchone()
        connection.execute("UPDATE named SET value = ?", (value[:8] + value[16:24],))
    with pytest.raises(LedgerDamaged, match="persons that took part"):
        Ledger.read(ledger.path, unit="label").accounts()


def test_planning_makes_no_secret(tmp_path):
    ledger = Ledger.open(ledger_at(tmp_path, "label", "person").path, unit="label")
    ledger.check(COIN, promise=terms("label"), people=people({"ana": 2}))
    assert not secret_path(ledger.path).exists()


# ---- answers that arrive


def arrived_manifest(folder, name, release, unit="label", epsilon=0.25):
    """Write a file of answers as it was made elsewhere, and return its manifest."""
    file = folder / f"{name}.jsonl"
    file.write_text(name)
    promise = RandomizedResponse(epsilon).guarantee(
        unit=unit, neighbors=REPLACE_ONE, trust="local", labels=4 if unit == "person" else None
    )
    return Manifest(
        sha256=sha256_of(file),
        release_id=release,
        mechanism="randomized-response",
        epsilon=promise.epsilon,
        flip_probability=0.4,
        categories=2,
        unit=unit,
        neighbors="REPLACE_ONE",
        trust="local",
        caveats=promise.caveats,
    )


def arrive(ledger, folder, name, release, answers, unit="label"):
    """Hand a ledger a file of answers that was made elsewhere."""
    manifest = arrived_manifest(folder, name, release, unit)
    keys = answers and [(person_key(person), q.encode() * 32) for person, q in answers]
    return ledger.receive(folder / f"{name}.jsonl", manifest, answers=keys)


def largest(ledger):
    return Ledger.read(ledger.path, unit="label").accounts(delta=0.0)["person"].guarantee.epsilon


def test_answers_of_a_study_count_once_and_those_of_two_add_up(tmp_path):
    ledger = Ledger.open(ledger_at(tmp_path, "label").path, unit="label")
    first = [("ana", "p"), ("ana", "q"), ("ben", "p")]
    arrive(ledger, tmp_path, "monday", "a" * 16, first)
    once = largest(ledger)
    assert once == pytest.approx(0.5)
    later = [*first, ("ana", "r"), ("cem", "p")]  # the same study a week later
    arrive(ledger, tmp_path, "friday", "a" * 16, later)
    assert largest(ledger) == pytest.approx(0.75)
    arrive(ledger, tmp_path, "friday", "a" * 16, later)  # the same file again
    assert largest(ledger) == pytest.approx(0.75)
    arrive(ledger, tmp_path, "part", "a" * 16, [("ana", "s")])  # another part of that study
    assert largest(ledger) == pytest.approx(1.0)
    arrive(ledger, tmp_path, "other", "b" * 16, first)  # another study asks the same once more
    assert largest(ledger) == pytest.approx(1.5)
    arrive(ledger, tmp_path, "whole", "c" * 16, [("ana", "p"), ("ana", "q")], unit="person")
    assert largest(ledger) == pytest.approx(2.5)  # what it promises for all that one gives


def test_answers_over_the_budget_of_a_person_are_not_taken_in(tmp_path):
    ledger = ledger_at(tmp_path, "label", "person", person=0.5)
    ledger = Ledger.open(ledger.path, unit="label")
    arrive(ledger, tmp_path, "fits", "a" * 16, [("ana", "p"), ("ana", "q")])
    before = ledger.head
    with pytest.raises(BudgetExceeded, match="for a person"):
        arrive(ledger, tmp_path, "too much", "a" * 16, [("ana", "r")])
    assert ledger.head == before
    arrive(ledger, tmp_path, "others", "a" * 16, [("ben", "r")])
    with pytest.raises(BudgetExceeded):
        ledger.reserve(PURE, promise=terms("label"), people=people({"ana": 1}))


def test_answers_that_were_paid_for_here_do_not_count_again(tmp_path):
    ledger = Ledger.open(ledger_at(tmp_path, "label", "person").path, unit="label")
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows("ana", "p", "q")))
    coin = RandomizedResponse(0.5)
    manifest = privatize_file(raw, tmp_path / "out.jsonl", coin, ledger=ledger)
    answers = [(person_key("ana"), b"p"), (person_key("ana"), b"q")]
    ledger.receive(tmp_path / "out.jsonl", manifest, answers=answers)
    assert largest(ledger) == pytest.approx(2 * coin.realized_epsilon)


def test_answers_that_name_nobody_leave_persons_unprotected_until_they_do(tmp_path):
    ledger = Ledger.open(ledger_at(tmp_path, "label", delta=0.0).path, unit="label")
    ledger.reserve(COIN, promise=terms("label"), people=people({"ana": 1}))
    arrive(ledger, tmp_path, "answers", "a" * 16, None)
    arrive(ledger, tmp_path, "answers", "a" * 16, None)
    account = Ledger.read(ledger.path, unit="label").accounts()["person"]
    assert account.guarantee is None
    assert len(account.uncovered) == 1
    rows = len(Ledger.read(ledger.path).rows)
    for _ in range(2):
        arrive(ledger, tmp_path, "answers", "a" * 16, [("ana", "p"), ("ana", "q")])
        assert largest(ledger) == pytest.approx(0.75)
    arrive(ledger, tmp_path, "answers", "a" * 16, None)
    assert len(Ledger.read(ledger.path).rows) == rows + 1


def test_answers_beside_releases_of_whole_persons_leave_the_ledger_as_it_is(tmp_path):
    """A promise about labels spends nothing of a budget for presence, and blocks nothing."""
    presence = {"neighbors": REPLACE_SPECIAL}
    path = ledger_at(tmp_path / "one", "label", "person", person=2.0, **presence, delta=0.0).path
    whole = terms("person", **presence)
    Ledger.open(path, unit="person").reserve(PURE, promise=whole)
    ledger = Ledger.open(path, data="new", unit="person")
    arrive(ledger, tmp_path, "one", "a" * 16, [("ana", "p")], unit="person")
    ledger = Ledger.open(path, data="other", unit="person")
    arrive(ledger, tmp_path, "two", "b" * 16, [("ana", "p")])
    Ledger.open(path, unit="person").reserve(PURE, promise=whole)
    assert Ledger.open(path, unit="person").total().epsilon == 2 * PURE.epsilon
    assert _check_budget(Ledger.read(path)).outcome == "clear"
    path = ledger_at(tmp_path / "other", "label", "person", delta=0.0).path
    Ledger.open(path, unit="person").reserve(PURE, promise=terms("person"))
    ledger = Ledger.open(path, data="new", unit="person")
    arrive(ledger, tmp_path, "one", "a" * 16, [("ana", "p")], unit="person")
    Ledger.open(path, unit="person").reserve(PURE, promise=terms("person"))
    assert Ledger.open(path, unit="person").total().epsilon == pytest.approx(1.25)


def test_an_arrival_is_refused_before_anything_is_written(tmp_path):
    ledger = ledger_at(tmp_path, "label", "person", person=0.3, delta=0.0)
    ledger = Ledger.open(ledger.path, unit="label")
    manifest = arrived_manifest(tmp_path, "much", "a" * 16)
    much = [(person_key("ana"), question * 32) for question in (b"p", b"q")]
    head = ledger.head
    for attempt in (
        lambda: ledger.check_receive(manifest, much),
        lambda: ledger.receive(tmp_path / "much.jsonl", manifest, answers=much),
    ):
        with pytest.raises(BudgetExceeded):
            attempt()
    records = replace(manifest, unit="record", caveats=())
    with pytest.raises(PrivacyError, match="who answered is public"):
        ledger.receive(tmp_path / "much.jsonl", records, answers=much)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(PureEvent(0.4), promise=terms("label"), people=people({"ana": 1}))
    assert Ledger.read(ledger.path).head == head
    assert not secret_path(ledger.path).exists()


# ---- releases as they are made


def test_stored_answers_and_capped_persons_cost_what_is_drawn(tmp_path):
    ledger = Ledger.open(ledger_at(tmp_path, "label", "person").path, unit="label")
    coin = RandomizedResponse(0.25)
    privatize(read_pairs([*rows("ana", *"pqr"), *rows("ben", "p")]), coin, ledger=ledger)
    assert largest(ledger) == pytest.approx(3 * coin.realized_epsilon)
    more = [*rows("ana", *"pqr"), *rows("ben", *"pqrst")]
    privatize(read_pairs(more), coin, ledger=ledger, cap=3)  # of whom one answer is stored
    assert largest(ledger) == pytest.approx(3 * coin.realized_epsilon)
    privatize(read_pairs(rows("ben", *"uvw")), coin, ledger=ledger)
    assert largest(ledger) == pytest.approx(6 * coin.realized_epsilon)


def test_a_noised_sum_is_charged_to_those_whose_labels_count(tmp_path):
    ledger = Ledger.open(ledger_at(tmp_path, "label", "person").path, unit="label")
    pairs = read_pairs([*rows("ana", *"ppqrst"), *rows("ben", *"pq")])
    mechanism = sordino.LabelGaussian(1.0, delta=1e-7)
    features = sordino.HashedText(dimension=16)
    release_labels(pairs, mechanism, ledger=ledger, features=features, simulate_seed=1)
    mu = ledger.spends[-1]
    event = GaussianEvent(5 * json.loads(mu.parameters)["mu"])  # a repeat is the same label
    wanted = accounting.composed_epsilon({event: 1}, neighbors=REPLACE_ONE, delta=DELTA)
    assert ledger.accounts(delta=DELTA)["person"].guarantee.epsilon == pytest.approx(wanted)


def test_a_run_does_not_go_on_with_an_entry_that_somebody_new_is_not_on(tmp_path):
    """Interrupted after it paid; meanwhile the file has an answer of one more person."""
    path = ledger_at(tmp_path, "label", "person").path
    request = "0" * 64

    def run(persons):
        ledger = Ledger.open(path, unit="label")
        with ledger.attempt(request):
            given = people(persons)
            needed = dict.fromkeys(ledger.open_entries, given)
            details = {"details": {"n": 1}}
            one = ledger.reserve(
                COIN, promise=terms("label"), people=given, needed=needed, **details
            )
            other = ledger.reserve(PURE, promise=terms("label"), people=given)
            raise KeyboardInterrupt(one.release_id, other.release_id)

    def ids(persons):
        with pytest.raises(KeyboardInterrupt) as stopped:
            run(persons)
        return stopped.value.args

    first = ids({"ana": 2, "ben": 1})
    assert ids({"ana": 2, "ben": 1}) == first
    coin, pure = ids({"ana": 1})  # fewer coins lie on the entry; another sum is another one
    assert coin == first[0]
    assert pure != first[1]
    for more in ({"ana": 3}, {"cem": 1}):
        assert ids(more)[0] != first[0]
    with pytest.raises(UsageError, match="at least one judgment"):
        Ledger.open(path, unit="label").reserve(
            COIN, promise=terms("label"), people=People(b"0" * 16, np.zeros(1, np.int64))
        )
