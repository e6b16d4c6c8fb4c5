"""Workers of Ray randomize labels: the files are those of one process, whoever is killed."""

import json
import os
import random
import re
import signal
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import sordino
from sordino.engines.engine import InProcess
from sordino.engines.exchange import PARTS
from sordino.preferences.chunks import find_chunks
from sordino.preferences.features import HashedText
from sordino.preferences.memo import AnswerMemo
from sordino.preferences.records import canonical, person_key
from sordino.privatization.chunks import privatize_chunks

COIN = sordino.RandomizedResponse(1.0)
FILES, PEOPLE = 60, 40
KILLS = 25  # at most of one run, of which there are two


@dataclass
class Deadly:
    """An engine whose tasks kill their worker at some moment, but only the first time."""

    engine: object
    folder: Path
    folds: int = 0

    def fold(self, chunks, task, add, *, taken=None):
        self.folds += 1
        generator = random.Random(self.folds)  # noqa: S311 - no secret
        doomed = {at: generator.uniform(0, 0.02) for at in range(len(chunks)) if at % 16 == 7}
        deadly = _Deadly(task, str(self.folder), self.folds, doomed)
        return self.engine.fold(list(enumerate(chunks)), deadly, add, taken=taken)


@dataclass(frozen=True)
class _Deadly:
    task: object
    folder: str
    fold: int
    doomed: dict

    def __call__(self, numbered):
        at, chunk = numbered
        if at in self.doomed and len(list(Path(self.folder).iterdir())) < KILLS:
            mark = Path(self.folder) / f"{self.fold}-{at}"
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                return self.task(chunk)
            timer = threading.Timer(self.doomed[at], os.kill, (os.getpid(), signal.SIGKILL))
            timer.start()
            self.task(chunk)
            timer.join()  # it was faster: its result is lost all the same
        return self.task(chunk)


@pytest.fixture(autouse=True)
def _many(monkeypatch):
    """Bring people together in many parts, as those of many records are."""
    monkeypatch.setattr("sordino.privatization.chunks._FEW", 0)


def raw(folder, *, linked):
    """Write judgments of texts in some files, and return them."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for file in range(FILES):
        rows = []
        for index in range(20):
            sides = ["a good one", "a bad one"][:: 1 if generator.random() < 0.8 else -1]
            row = {"prompt": f"q{file} {index}", "chosen": sides[0], "rejected": sides[1]}
            rows.append(row | ({"person": f"p{generator.integers(PEOPLE)}"} if linked else {}))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"s{file:02d}.jsonl").write_text(text)
    return find_chunks(folder)


def account(folder):
    """Open a ledger in a folder of its own."""
    folder.mkdir()
    budget = sordino.Guarantee(
        100.0, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="answers", budget=budget)


def contents(folder):
    """Return every byte in a folder, by name, but for the random ids of releases."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    release = re.compile(rb'"release_id": "[0-9a-f]{16}"')
    return {name: release.sub(b"", text) for name, text in found.items()}


@pytest.mark.parametrize("linked", [False, True])
def test_files_and_fit_are_those_of_one_process(ray_engine, tmp_path, linked):
    given = raw(tmp_path / "raw", linked=linked)
    found, fits = [], []
    for name, engine in (("here", InProcess()), ("ray", ray_engine)):
        ledger = account(tmp_path / f"ledger-{name}")
        out = tmp_path / name
        privatize_chunks(given, out, COIN, ledger=ledger, engine=engine, simulate_seed=5)
        found.append(contents(out))
        answers = find_chunks(out, privatized=True)
        fits.append(
            sordino.fit_reward(
                answers, features=HashedText(dimension=8), ball=10.0, engine=engine
            ).weights
        )
        assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit"]
    assert found[0] == found[1]
    assert np.linalg.norm(fits[0] - fits[1]) <= 1e-10 * np.linalg.norm(fits[0])


@pytest.mark.deep
@pytest.mark.parametrize("linked", [False, True])
def test_killed_workers_change_nothing(ray_engine, tmp_path, linked):
    given = raw(tmp_path / "raw", linked=linked)
    privatize_chunks(
        given,
        tmp_path / "whole",
        COIN,
        ledger=account(tmp_path / "one"),
        engine=InProcess(),
        simulate_seed=5,
    )
    (tmp_path / "marks").mkdir()
    ledger = account(tmp_path / "two")
    engine = Deadly(ray_engine, tmp_path / "marks")
    privatize_chunks(given, tmp_path / "out", COIN, ledger=ledger, engine=engine, simulate_seed=5)
    assert len(list((tmp_path / "marks").iterdir())) >= (KILLS if linked else 10)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit"]
    assert not list(tmp_path.rglob("*.partial"))
    if linked:
        stored = Counter()
        memo = AnswerMemo(str(ledger.path.with_suffix(".memo")), PARTS)
        for part in range(PARTS):
            stored.update(memo.stored(part).keys.tolist())
        assert set(stored.values()) == {1}
        asked = set()
        for path in (tmp_path / "out").glob("*.jsonl"):
            for row in map(json.loads, path.read_text().splitlines()):
                question = canonical(row["prompt"], row["first"], row["second"])[1]
                asked.add((person_key(row["person"])[:16] + question[:16]).rstrip(b"\0"))
        assert asked == set(stored)
