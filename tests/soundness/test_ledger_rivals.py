"""Four processes spend at once, of every unit and two data sets: never over a budget."""

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from contextlib import suppress

import numpy as np
import pytest
from tests.tiers import few

from sordino._files import refuse_existing
from sordino.auditing.runs.replay import _check_strays, read_ledger
from sordino.errors import BudgetExceeded, SordinoError, UsageError
from sordino.preferences.records import person_key
from sordino.privacy import ledger_chain
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, PureEvent, RandomizedResponseEvent
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import LEDGER
from sordino.privacy.persons import People

COIN, PURE = RandomizedResponseEvent(2.0**-8), PureEvent(2.0**-9)  # sums of them are exact
PERSONS = [f"p{n}" for n in range(40)]
LOOK = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1])
other.execute("SELECT count(*) FROM rows").fetchall()
other.close()
"""
QUESTIONS = {"one": np.arange(1, 9, dtype="<u8"), "other": np.arange(101, 109, dtype="<u8")}


def terms(unit, epsilon=1.0, *caveats):
    return Guarantee(
        epsilon, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust="central", caveats=caveats
    )


def tries(seed, count):
    """What one process tries to spend, and what for."""
    rng = random.Random(seed)  # noqa: S311 (which releases are tried)
    for _ in range(count):
        unit = rng.choices(["label", "record", "person"], [8, 1, 1])[0]
        who = {name: rng.randrange(1, 4) for name in rng.sample(PERSONS, 2)}
        yield unit, rng.choice(["one", "other"]), who, rng.random() < 0.002


def spend(path, seed, count):
    """Spend what is granted, and tell it; the parent reads what was told."""
    granted = []
    ledgers = {unit: Ledger.open(path, unit=unit) for unit in ("label", "record", "person")}
    for unit, data, who, reopen in tries(seed, count):
        if reopen:
            ledgers[unit] = Ledger.open(path, unit=unit)
        ledger = ledgers[unit]
        try:
            if unit == "label":
                keys = (person_key(name) for name, m in who.items() for _ in range(m))
                entry = ledger.reserve(
                    COIN, promise=terms("label"), questions=QUESTIONS[data], people=People.of(keys)
                )
            else:
                caveats = ["labels-only"] if unit == "person" else []
                entry = ledger.reserve(PURE, promise=terms(unit, 1.0, *caveats))
        except BudgetExceeded:
            continue
        granted.append([entry.release_id, unit, data, who])
    return granted


@pytest.mark.parametrize("count", few([16, 500], first=1))
def test_four_processes_never_pass_any_budget(tmp_path, count):
    budgets = {
        "label": 1.3 * COIN.epsilon,
        "record": 0.2 * PURE.epsilon,
        "person": 0.5 * COIN.epsilon,
    }
    budgets = {unit: count * share for unit, share in budgets.items()}
    path = Ledger.create(tmp_path / LEDGER).path
    for unit, epsilon in budgets.items():
        Ledger.open(path, budget=terms(unit, epsilon))
    children = []
    for seed in range(4):
        if not (child := os.fork()):
            try:
                told = json.dumps(spend(path, seed, count))
                (tmp_path / f"{seed}.json").write_text(told)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    granted = [
        entry for seed in range(4) for entry in json.loads((tmp_path / f"{seed}.json").read_text())
    ]
    found = Ledger.read(path, unit="label")
    assert sorted(row.release_id for row in found.spends) == sorted(entry[0] for entry in granted)
    assert 4 * count / 8 < len(granted) < 4 * count  # some were granted, and some were not
    # By hand: what everything spent of the labels of each data set, of records, of each person.
    everywhere = sum(PURE.epsilon for _, unit, *_ in granted if unit != "label")
    labels = Counter(data for _, unit, data, _ in granted if unit == "label")
    persons = defaultdict(float)
    for _, unit, _, who in granted:
        if unit == "label":
            for name, m in who.items():
                persons[name] += m * COIN.epsilon
    of_persons = sum(PURE.epsilon for _, unit, *_ in granted if unit == "person")
    accounts = found.about("").accounts(delta=0.0)
    largest = everywhere + max(labels.values()) * COIN.epsilon
    assert accounts["label"].guarantee.epsilon == largest <= budgets["label"]
    records = sum(PURE.epsilon for _, unit, *_ in granted if unit == "record")
    assert records <= budgets["record"]
    most = of_persons + max(persons.values())
    assert most <= budgets["person"]


def test_one_ledger_under_two_names_is_refused_under_both(tmp_path):
    """SQLite keeps its locks and its log by name: two processes would both spend all of it."""
    path = Ledger.create(tmp_path / "spend.db", budget=terms("record")).path
    draft, twin = tmp_path / f".spend.db.{'0' * 16}", tmp_path / "twin.db"
    os.link(path, draft)  # of a run that was killed while it made the ledger
    ledger = Ledger.open(path)
    assert not draft.exists()
    os.link(path, twin)
    for refused in (
        lambda: Ledger.open(path),
        lambda: Ledger.open(twin),
        lambda: Ledger.read(twin),
        lambda: ledger.reserve(PURE, promise=terms("record")),
    ):
        with pytest.raises(UsageError, match="under several names"):
            refused()
    twin.unlink()
    ledger.reserve(PURE, promise=terms("record"))


def test_what_reads_the_file_in_this_process_waits_for_what_writes_it(tmp_path):
    """POSIX takes back all locks of a process on a file as soon as it closes that file once."""
    path = Ledger.create(tmp_path / "spend.db", budget=terms("record", PURE.epsilon)).path
    (tmp_path / "result.json").write_text("{}")
    reads = {
        "audit": lambda: read_ledger(path),
        "strays": lambda: _check_strays(tmp_path),
        "force": lambda: suppressed(lambda: refuse_existing(path, force=True)),
    }
    for read in reads.values():
        with ledger_chain.connect(path) as connection, ledger_chain.transaction(connection):
            reader = threading.Thread(target=read)
            reader.start()
            reader.join(0.2)
            assert reader.is_alive()
            # The last process to close takes away the log.
            subprocess.run([sys.executable, "-c", LOOK, path], check=True)
            assert path.with_name("spend.db-wal").exists()
        reader.join()


def suppressed(task):
    with suppress(SordinoError):
        task()
