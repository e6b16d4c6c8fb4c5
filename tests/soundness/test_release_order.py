"""Whatever a curator releases is on the ledger before it is drawn, and is drawn only if it fits.

One table of releases, of every kind of judgment and noise, in memory and in files: each is watched
where it asks for noise or coins, and another process looks at the ledger at that moment.
"""

import json
import sqlite3
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import sordino
from sordino._random import SystemEntropy
from sordino.errors import BudgetExceeded, PrivacyError
from sordino.mechanisms import gaussian, label_sum
from sordino.mechanisms.gaussian import joint_mechanisms
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import (
    ObjectivePerturbation,
    RankingObjectivePerturbation,
)
from sordino.mechanisms.randomized_response import KaryRandomizedResponse
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.rankings import Rankings
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    NeighboringRelation,
)
from sordino.privatization.answers import privatize_choices
from sordino.rewards.private_metrics import (
    measure_labels,
    measure_records,
    record_metrics_mechanism,
)

N, D, K, DELTA = 80, 3, 4, 1e-6
GENERATOR = np.random.default_rng(0)
ROWS, LABELS = GENERATOR.normal(size=(N, D)), GENERATOR.choice([0, 1, 0.5], size=N)
RANKS = GENERATOR.permuted(np.tile(np.arange(1.0, K + 1), (N, 1)), axis=1)
PEOPLE = [f"p{index % 20}" for index in range(N)]
NOISE, CAPPED = (LabelGaussian(1.0, delta=DELTA, records_per_person=cap) for cap in (None, 2))
OF_RECORDS = {"delta": DELTA, "neighbors": ADD_OR_REMOVE_ONE}
TILT = ObjectivePerturbation(1.0, bound=1.0, **OF_RECORDS)
RANKED_TILT = RankingObjectivePerturbation(1.0, bound=1.0, candidates=K, dimension=K, **OF_RECORDS)
ELECTION = Rankings.from_ranks(("ale", "beer", "milk", "tea"), RANKS, offered="all")


def pairs(persons=None):
    return sordino.Pairs.from_features(ROWS, LABELS, persons=persons)


def in_files(folder):
    for file in range(2):
        rows = [
            {"prompt": f"q{at}", "first": f"yes {at}", "second": "no", "label": at % 2}
            for at in range(file, N, 2)
        ]
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return sordino.find_chunks(folder)


def fitted(judgments, mechanism, **settings):
    """A release that ``fit_reward`` makes."""
    return lambda ledger, *_: sordino.fit_reward(
        judgments, mechanism=mechanism, ledger=ledger, ball=3.0, **settings
    )


def fitted_in_files(mechanism):
    features = sordino.HashedText(dimension=8)
    return lambda ledger, folder, _: sordino.fit_reward(
        in_files(folder), mechanism=mechanism, ledger=ledger, ball=3.0, features=features
    )


def bought(measure, noise):
    """Metrics of what was fitted before, on the rows that it did not see."""
    return lambda ledger, _, reward: measure(reward, pairs(), noise, ledger=ledger, temperature=1.0)


class Way(NamedTuple):
    """What one change is about, what is released, and what was released before it."""

    unit: str
    neighbors: NeighboringRelation
    spend: Callable
    before: Callable | None = None


JOINT, MOMENT = joint_mechanisms(1.0, bound=1.0, **OF_RECORDS)
WAYS = {
    "labels": Way("label", REPLACE_ONE, fitted(pairs(), NOISE)),
    "labels of persons": Way("person", REPLACE_ONE, fitted(pairs(PEOPLE), CAPPED)),
    "labels in files": Way("label", REPLACE_ONE, fitted_in_files(NOISE)),
    "ballots": Way(
        "label", REPLACE_ONE,
        fitted(ELECTION, RankingGaussian(1.0, delta=DELTA, statistic="borda")),
    ),
    "ballots of persons": Way(
        "person", REPLACE_ONE,
        fitted(
            Rankings.from_ranks(GENERATOR.normal(size=(N, K, D)), RANKS, PEOPLE),
            RankingGaussian(1.0, delta=DELTA, statistic="first-choice", records_per_person=2),
        ),
    ),
    "first choices": Way(
        "label", REPLACE_ONE,
        lambda ledger, *_: privatize_choices(
            ELECTION, KaryRandomizedResponse(1.0, K), ledger=ledger
        ),
    ),
    "records": Way("record", ADD_OR_REMOVE_ONE, fitted(pairs(), TILT)),
    "records and their moment": Way(
        "record", ADD_OR_REMOVE_ONE,
        fitted(pairs(), JOINT, second_moment=MOMENT, ellipsoid=False),
    ),
    "records in files": Way("record", ADD_OR_REMOVE_ONE, fitted_in_files(TILT)),
    "ranked records": Way("record", ADD_OR_REMOVE_ONE, fitted(ELECTION, RANKED_TILT)),
    "metrics of labels": Way(
        "label", REPLACE_ONE, bought(measure_labels, NOISE),
        fitted(pairs(), NOISE, held_out=True),
    ),
    "metrics of records": Way(
        "record", ADD_OR_REMOVE_ONE,
        bought(measure_records, record_metrics_mechanism(1.0, **OF_RECORDS)),
        fitted(pairs(), TILT, held_out=True),
    ),
}  # fmt: skip
EVERY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def durable_kinds(path):
    """The kinds of all rows that another process sees at this moment."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    kinds = [row[0] for row in connection.execute("SELECT kind FROM rows ORDER BY sequence")]
    connection.close()
    return kinds


def opened(folder, *, unit, neighbors, trust="central", epsilon=9.0):
    budget = sordino.Guarantee(
        epsilon, delta=10 * DELTA, unit=unit, neighbors=neighbors, trust=trust
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


def begun(folder, way, **terms):
    """A ledger, what was released on it before, and the kinds of the rows that it then has."""
    ledger = opened(folder, unit=way.unit, neighbors=way.neighbors, **terms)
    earlier = way.before(ledger) if way.before else None
    (folder / "in").mkdir()
    return ledger, lambda: way.spend(ledger, folder / "in", earlier), durable_kinds(ledger.path)


def watch(monkeypatch, seen):
    """Call this where noise or coins are asked for, before they are drawn."""
    for owner, name in ((label_sum, "with_noise"), (gaussian, "with_noise"),
                        (SystemEntropy, "words")):  # fmt: skip
        honest = getattr(owner, name)

        def drawn(*given, honest=honest):
            seen()
            return honest(*given)

        monkeypatch.setattr(owner, name, drawn)


@EVERY
def test_the_entry_is_durable_before_anything_is_drawn(tmp_path, monkeypatch, way):
    ledger, spend, before = begun(tmp_path, way)
    seen = []
    watch(monkeypatch, lambda: seen.append(durable_kinds(ledger.path)))
    spend()
    assert seen
    assert all(kinds == [*before, "reserve"] for kinds in seen)
    assert durable_kinds(ledger.path) == [*before, "reserve", "commit"]


@EVERY
def test_over_the_budget_nothing_is_drawn(tmp_path, monkeypatch, way):
    ledger, spend, before = begun(tmp_path, way, epsilon=1.1 if way.before else 0.5)
    watch(monkeypatch, lambda: pytest.fail("something was drawn"))
    with pytest.raises(BudgetExceeded):
        spend()
    assert durable_kinds(ledger.path) == before


@EVERY
def test_a_crash_while_drawing_counts_as_spent(tmp_path, monkeypatch, way):
    ledger, spend, before = begun(tmp_path, way)
    spent = ledger.total().epsilon if way.before else 0.0

    def crash():
        raise KeyboardInterrupt

    watch(monkeypatch, crash)
    with pytest.raises(KeyboardInterrupt):
        spend()
    assert durable_kinds(ledger.path) == [*before, "reserve"]
    assert ledger.total().epsilon > spent


OTHERS = [
    {"unit": "label", "neighbors": REPLACE_ONE, "trust": "central"},
    {"unit": "label", "neighbors": REPLACE_ONE, "trust": "local"},
    {"unit": "label", "neighbors": REPLACE_SPECIAL, "trust": "central"},
    {"unit": "record", "neighbors": REPLACE_ONE, "trust": "central"},
    {"unit": "record", "neighbors": ADD_OR_REMOVE_ONE, "trust": "central"},
]


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if not way.before])
def test_a_ledger_about_something_else_is_refused(tmp_path, monkeypatch, name):
    way = WAYS[name]
    watch(monkeypatch, lambda: pytest.fail("something was drawn"))
    for number, terms in enumerate(OTHERS):
        covered = ("person", "label") if way.unit == "person" else (way.unit,)
        if terms in [
            {"unit": unit, "neighbors": way.neighbors, "trust": "central"} for unit in covered
        ]:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        ledger = opened(folder, **terms)
        with pytest.raises(PrivacyError):
            way.spend(ledger, folder, None)
        assert durable_kinds(ledger.path) == ["open"]
