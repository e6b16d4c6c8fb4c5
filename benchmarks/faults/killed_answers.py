"""Kill workers of Ray, and whoever calls them, while labels in many files are randomized.

Prints one JSON object: how many processes were killed and in the middle of what, and what was
checked after each run. Anything that does not hold ends it with an error. Checked are that every
file is written once, with all of its records in their order; that the answers of a chunk, or of a
part of the people, are those of exactly one draw of an injected coin that records every draw; that
with a seed the files are those of one process; that each release has one entry on the ledger; that
a question which a person answered before has the same answer in other files, in other runs, and
after a run that was killed; and that a release over again draws nothing and pays nothing.

    python benchmarks/faults/killed_answers.py [--rounds 1] [--drivers 12] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _checks import (
    answers_by_question,
    contents,
    need,
    refuse_lost_chunks,
    refuse_mixed_chunks,
    refuse_mixed_memo,
    rows_of,
)
from _deadly import Deadly, RecordedCoin

import sordino
from sordino.engines.engine import Engine, InProcess
from sordino.engines.ray_data import RayData
from sordino.errors import EngineError
from sordino.preferences.chunks import Chunks, find_chunks
from sordino.privacy.guarantee import Unit
from sordino.privatization import chunks
from sordino.privatization.chunks import privatize_chunks

sys.path.append(str(Path(__file__).resolve().parents[1] / "speed"))
from _shared import show, versions

FILES, ROWS, PEOPLE = 40, 100, 1000
EPSILON = 1.0
vars(chunks)["_FEW"] = 0  # people are brought together in many parts, as those of many records are
CORES = 2
PEOPLE_MOST, MOST = 5, 16  # kills of one pass that answers: where persons are known, there are two


def write_raw(folder: Path, rows: list[list[dict[str, Any]]]) -> Chunks:
    """Write judgments in files, and return them."""
    folder.mkdir()
    for number, some in enumerate(rows):
        text = "".join(json.dumps(row) + "\n" for row in some)
        (folder / f"s{number:03d}.jsonl").write_text(text)
    return find_chunks(folder)


def made_up(*, linked: bool, seed: int) -> list[list[dict[str, Any]]]:
    """Return judgments for each file; a person answers the first one of a file twice."""
    generator = np.random.default_rng(seed)
    files = []
    for file in range(FILES):
        rows: list[dict[str, Any]] = []
        for index in range(ROWS):
            sides = ["a good one", "a bad one"][:: 1 if generator.random() < 0.8 else -1]
            row = {"prompt": f"q{seed} {file} {index}", "chosen": sides[0], "rejected": sides[1]}
            rows.append(row | ({"person": f"p{generator.integers(PEOPLE)}"} if linked else {}))
        again = rows[0] | {"chosen": rows[0]["rejected"], "rejected": rows[0]["chosen"]}
        files.append([*rows, again] if linked else rows)
    return files


def mixed(old: list[list[dict[str, Any]]], seed: int) -> list[list[dict[str, Any]]]:
    """Return files that hold half of the questions of others, in other places, and new ones."""
    new = made_up(linked=True, seed=seed)
    return [old[(at + 7) % FILES][1:-1:2] + new[at][: ROWS // 2] for at in range(FILES)]


def account(folder: Path, unit: Unit = "label") -> sordino.Ledger:
    """Return a ledger in a folder of its own."""
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        1e4, delta=0.0, unit=unit, neighbors=sordino.REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="answers", budget=budget)


def kinds(ledger: sordino.Ledger) -> list[str]:
    """Return the rows of a ledger as they are on disk."""
    return [row.kind for row in sordino.Ledger.read(ledger.path).rows]


class Workers:
    """Runs in which workers are killed, and what was found."""

    def __init__(self, engine: Engine, seed: int) -> None:
        """Use an engine; the seed says where workers are killed."""
        self.engine, self.seed = engine, seed
        self.runs = self.errors = self.used = self.drawn = 0
        self.kills: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()

    def privatize(
        self,
        given: Chunks,
        place: Path,
        name: str,
        ledger: sordino.Ledger,
        *,
        kills: bool = True,
        simulate_seed: int | None = None,
    ) -> bool:
        """Write answers to ``place/name``; return whether it was done and not refused."""
        (place / "coins").mkdir(exist_ok=True)
        self.runs += 1
        people = "person" in rows_of(given.chunks[0].path)[0]
        marks, seed = place / f"marks-{name}", self.seed + self.runs
        engine = Deadly(self.engine, marks, seed, most=PEOPLE_MOST if people else MOST, kills=kills)
        coin = RecordedCoin(EPSILON, str(place / "coins"))
        done = False
        try:
            privatize_chunks(
                given,
                place / name,
                coin,
                ledger=ledger,
                engine=engine,
                simulate_seed=simulate_seed,
            )
            done = True
        except EngineError:
            self.errors += 1
            need(not list((place / name).iterdir()), "a run that gave up shows something")
        happened = engine.happened()
        need(not kills or happened, "nobody was killed")
        self.kills.update(happened)
        self.killed["persons known" if people else "persons unknown"] += len(happened)
        return done

    def linked(self, place: Path, seed: int) -> None:
        """Answer files whose persons are known: with a seed, with real coins, others, again."""
        old = made_up(linked=True, seed=seed)
        given = write_raw(place / "raw", old)
        self.same_as_here(place, given)
        ledger = account(place / "ledger", "person")  # which other questions may use as well
        if not self.privatize(given, place, "one", ledger):
            return
        need(kinds(ledger) == ["open", "reserve", "commit"], "one release has one entry")
        refuse_lost_chunks(given, place / "one", ledger.path)
        entries = [row.release_id for row in ledger.spends]
        self.count(refuse_mixed_memo(place / "one", ledger, place / "coins", drawing=entries))
        before = answers_by_question(place / "one")
        others = write_raw(place / "others", mixed(old, seed + 1000))
        if not self.privatize(others, place, "two", ledger):
            return
        need(kinds(ledger)[3:] == ["reserve", "commit"], "one release has one entry")
        refuse_lost_chunks(others, place / "two", ledger.path)
        entries = [row.release_id for row in sordino.Ledger.read(ledger.path).spends]
        refuse_mixed_memo(place / "two", ledger, place / "coins", drawing=entries)
        after = answers_by_question(place / "two")
        shared = before.keys() & after.keys()
        need(len(shared) > FILES * ROWS // 3, "the files share questions")
        need(all(before[one] == after[one] for one in shared), "an answer was drawn twice")
        draws = len(list((place / "coins").iterdir()))
        need(self.privatize(given, place, "again", ledger, kills=False), "nobody was killed")
        need(contents(place / "again") == contents(place / "one"), "the same answers again")
        need(kinds(ledger)[5:] == ["repeat"], "a release over again costs nothing")
        need(len(list((place / "coins").iterdir())) == draws, "and draws nothing")

    def unlinked(self, place: Path, seed: int) -> None:
        """Answer files of nobody knows whom: with a seed, and with real coins."""
        given = write_raw(place / "raw", made_up(linked=False, seed=seed))
        self.same_as_here(place, given)
        ledger = account(place / "ledger")
        if self.privatize(given, place, "one", ledger):
            need(kinds(ledger) == ["open", "reserve", "commit"], "one release has one entry")
            refuse_lost_chunks(given, place / "one", ledger.path)
            self.count(refuse_mixed_chunks(given, place / "one", place / "coins"))

    def same_as_here(self, place: Path, given: Chunks) -> None:
        """Answer with a seed: the files are those of one process that nobody kills."""
        part = place / "seeded"
        part.mkdir()
        coin = sordino.RandomizedResponse(EPSILON)
        more: dict[str, Any] = {"engine": InProcess(), "simulate_seed": 5}
        privatize_chunks(given, part / "here", coin, ledger=account(part / "one"), **more)
        ledger = account(part / "two")
        if self.privatize(given, part, "ray", ledger, simulate_seed=5):
            need(contents(part / "ray") == contents(part / "here"), "files of one process")
            need(kinds(ledger) == ["open", "reserve", "commit"], "one release has one entry")

    def count(self, draws: tuple[int, int]) -> None:
        """Take note of draws that are used, and of all."""
        self.used += draws[0]
        self.drawn += draws[1]

    def told(self) -> dict[str, Any]:
        """Return what was found."""
        return {
            "kills": sum(self.kills.values()),
            "kills_by_way": dict(sorted(self.killed.items())),
            "kills_by_task": dict(sorted(self.kills.items())),
            "runs": self.runs,
            "clean_errors": self.errors,
            "draws_used": self.used,
            "draws_thrown_away": self.drawn - self.used,
        }


class Drivers:
    """Runs whose caller is killed, and which are then started anew."""

    def __init__(self, engine: Engine, address: str, seed: int) -> None:
        """Use a Ray that outlives those who call it."""
        self.engine, self.address = engine, address
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.when: Counter[str] = Counter()
        self.left = self.free = self.finished = 0

    def run(self, place: Path, times: int) -> None:
        """Kill so many callers, in one pass after the other; every third has no ids."""
        raw = {
            linked: write_raw(place / f"raw-{linked}", made_up(linked=linked, seed=7))
            for linked in (True, False)
        }
        whole = {linked: self.passes(raw[linked], place / f"whole-{linked}") for linked in raw}
        done = Counter[bool]()
        for number in range(times):
            linked = bool(number % 3)
            took = whole[linked]
            at = len(took) - 1 - done[linked] % len(took)  # from the last, which tells most
            done[linked] += 1
            moment = self.random.uniform(0, took[at])
            self.once(raw[linked], place / str(number), at, moment, linked=linked)

    def victim(self, given: Chunks, place: Path) -> subprocess.Popen[str]:
        """Start a process that answers, once it has begun to."""
        (place / "coins").mkdir(parents=True)
        (place / "temporary").mkdir()
        account(place / "ledger")
        folder = str(Path(given.chunks[0].path).parent)
        command = [sys.executable, __file__, "--victim", self.address, folder, str(place)]
        environment = os.environ | {"TMPDIR": str(place / "temporary")}
        started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert started.stdout is not None
        need(started.stdout.readline() == "begun\n", "the process that is to be killed begins")
        return started

    def passes(self, given: Chunks, place: Path) -> list[float]:
        """Return how long each pass takes of a run that is not killed."""
        with self.victim(given, place) as process:
            assert process.stdout is not None
            begun = [time.perf_counter() for _ in process.stdout]
            need(process.wait(300) == 0, "a run that nobody kills succeeds")
        ends = [*begun[1:], time.perf_counter()]
        return [end - start for start, end in zip(begun, ends, strict=True)]

    def once(self, given: Chunks, place: Path, at: int, moment: float, *, linked: bool) -> None:
        """Kill one caller some time after a pass began, and start anew."""
        with self.victim(given, place) as process:
            assert process.stdout is not None
            for _ in range(at + 1):
                process.stdout.readline()
            time.sleep(moment)
            process.kill()
        self.left += len(list((place / "temporary").glob("sordino-*")))
        out, ledger = place / "out", account(place / "ledger")
        before = kinds(ledger)
        need(before in (["open"], ["open", "reserve"], ["open", "reserve", "commit"]), "one entry")
        shown = answers_by_question(out) if out.exists() else {}
        need(not shown or "commit" in before, "answers are shown whose entry is not complete")
        self.when[" ".join(before[1:]) or "nothing"] += 1
        coin = RecordedCoin(EPSILON, str(place / "coins"))
        engine = Deadly(self.engine, place / "marks", 0, most=0, kills=False)
        privatize_chunks(given, out, coin, ledger=ledger, engine=engine, force=True)
        new, after = kinds(ledger)[len(before) :], answers_by_question(out)
        if not new:  # the killed run's files, of which not all had appeared
            need("commit" in before, "what appears was paid for")
            need(all(after[one] == shown[one] for one in shown), "other answers appear")
            self.finished += 1
        elif linked and set(new) == {
            "repeat"
        }:  # everybody had answered: the killed run's entry pays
            need("reserve" in before, "answers that are free were paid for")
            self.free += 1
        else:
            paid = [kind for kind in new if kind != "repeat"]  # which costs nothing
            need(paid == ["reserve", "commit"], f"the new run has one entry, and not {new}")
            need(not (linked and "commit" in before), "nobody pays twice for a stored answer")
        refuse_lost_chunks(given, out, ledger.path)
        if linked:
            entries = [row.release_id for row in sordino.Ledger.read(ledger.path).spends]
            refuse_mixed_memo(out, ledger, place / "coins", drawing=entries)
            need(all(after[one] == shown[one] for one in shown), "an answer was drawn twice")
        else:
            refuse_mixed_chunks(given, out, place / "coins")

    def told(self) -> dict[str, Any]:
        """Return what was found."""
        return {
            "kills": sum(self.when.values()),
            "ledger_at_the_kill": dict(sorted(self.when.items())),
            "new_runs_that_were_free": self.free,
            "new_runs_that_finished_the_killed_one": self.finished,
            "folders_left_in_temp": self.left,
        }


class Aloud:
    """An engine that says when a pass begins."""

    def __init__(self, engine: Engine) -> None:
        """Use an engine."""
        self.engine = engine

    def fold(
        self, chunks: Any, task: Callable[..., Any], add: Callable[..., Any], *, taken: Any = None
    ) -> Any:
        """Return the sum."""
        print("pass", flush=True)
        return self.engine.fold(chunks, task, add, taken=taken)


def answer_until_killed(address: str, raw: Path, place: Path) -> None:
    """Do what a process does that is to be killed."""
    given, coin = find_chunks(raw), RecordedCoin(EPSILON, str(place / "coins"))
    with RayData(address) as ray:
        print("begun", flush=True)
        engine = Deadly(Aloud(ray), place / "marks-killed", 0, most=0, kills=False)
        ledger = account(place / "ledger")
        privatize_chunks(given, place / "out", coin, ledger=ledger, engine=engine)


def measure(*, rounds: int, drivers: int, seed: int) -> dict[str, Any]:
    """Return what was found in all runs."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, RayData(cores=CORES) as engine:
        import ray

        workers = Workers(engine, seed)
        for number in range(rounds):
            for way, run in (("linked", workers.linked), ("unlinked", workers.unlinked)):
                place = Path(folder) / f"{way}-{number}"
                place.mkdir()
                run(place, seed + number)
        callers = Drivers(engine, ray.get_runtime_context().gcs_address, seed)
        (Path(folder) / "drivers").mkdir()
        callers.run(Path(folder) / "drivers", drivers)
    return {
        "name": "killed_answers",
        "files": FILES,
        "records": FILES * ROWS,
        "workers": workers.told(),
        "callers": callers.told(),
        "rounds": rounds,
        "seed": seed,
        "seconds": round(time.perf_counter() - start),
        "versions": versions("sordino", "numpy", "ray"),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--drivers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--victim", nargs=3, help=argparse.SUPPRESS)
    asked = vars(parser.parse_args())
    if victim := asked.pop("victim"):
        answer_until_killed(victim[0], Path(victim[1]), Path(victim[2]))
    else:
        show(measure(**asked))
