"""Stopped at any moment: no output or a complete one, and what may be drawn is recorded."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from sordino.preferences.pairs import read_manifest
from sordino.privacy.ledger import Ledger

from .conftest import CANARY, Folder, pair

ALIGN = ["align", "in.jsonl", "--out", "out", "--epsilon", "1"]
PRIVATIZE = ["privatize", "in.jsonl", "--out", "out.jsonl", "--epsilon", "1"]
AGAIN = ["--force", "--budget", "9"]
ENDS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
N = 30
MOMENTS = {
    "align": ["mkdir:1", "mkdir:-1", "reserve:1", "reserve:-1", "words:1", "words:-1", "commit:1",
              "commit:-1", "fsync:2", "fsync:3", "fsync:-4", "replace:1", "replace:-1", "replace:2",
              "replace:-2", "replace:3", "replace:-3"],
    "privatize": ["reserve:1", "reserve:-1", "words:1", "words:-1", "answers:-1", "fsync:2",
                  "fsync:-2", "fsync:-3", "commit:1", "commit:-1", "replace:1", "replace:-1",
                  "replace:2", "replace:-2"],
}  # fmt: skip


def spends_of(path):
    return [row.kind for row in Ledger.read(path).rows] if path.exists() else []


def check_privatized(path, n=N):
    """No file without its own manifest, and none that is cut short."""
    out = path / "out.jsonl"
    if out.exists():
        assert read_manifest(out).epsilon == 1.0
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert len(lines) == n
        assert all(set(line) >= {"prompt", "first", "second", "answer"} for line in lines)
        kinds = set(spends_of(path / "out.spend.db"))
        assert "reserve" in kinds
        assert kinds & {"commit", "repeat"}  # what was stored before a stop is shown again


def check_aligned(path):
    """A result only beside the reward and the report that belong to it."""
    if (path / "out/result.json").exists():
        result = json.loads((path / "out/result.json").read_text())
        reward = (path / "out/reward.json").read_bytes()
        assert result["reward_sha256"] == hashlib.sha256(reward).hexdigest()
        assert (path / "out/report.html").read_text().rstrip().endswith("</html>")
    for name in ("reward.json", "report.html"):
        found = path / "out" / name
        if found.exists():
            assert found.read_text().rstrip()[-1] in "}>"


def check_left_behind(path, database, number):
    """Whatever could have been drawn is recorded; a polite signal leaves no drafts."""
    kinds = spends_of(path / database)
    if (path / "drawn").exists():
        assert "reserve" in kinds
    if number != signal.SIGKILL:
        names = {str(p.relative_to(path)) for p in path.rglob("*")}
        assert not [name for name in names if "partial" in name]
        known = {"in.jsonl", "drawn", "said", "failed", "out", "out/reward.json", "out/report.html"}
        known |= {"out/result.json", "out/spend.db", "out.jsonl", "out.manifest.json"}
        # what is drawn on an entry stays with the note of it: the same command goes on with it
        drawn = list(path.glob(".out.jsonl-*.parts"))
        assert all((work / "drawing.json").exists() for work in drawn)
        assert all(work.stat().st_mode & 0o777 == 0o700 for work in drawn)
        assert "reserve" in kinds or not drawn
        names = {name for name in names if not name.startswith(tuple(work.name for work in drawn))}
        left = {name.removesuffix("-wal").removesuffix("-shm") for name in names}
        assert left <= known | {"out.spend.db"}


def scenarios(folder, command, *, again):
    """One folder for every moment and signal."""
    made = []
    polite = [("words:1", signal.SIGINT), ("replace:-1", signal.SIGINT)]
    both = product(MOMENTS[command[0]], (signal.SIGKILL, signal.SIGTERM))
    for moment, number in (*both, *polite):
        point, count = moment.split(":")
        if point == "replace" and not again:  # a new name is linked; the first is the ledger's
            point, count = "link", int(count) + (1 if int(count) > 0 else -1)
        place = folder / f"{point}{count}-{number.name}"
        place.mkdir()
        source = Folder(place, None)
        source.write("in.jsonl", [pair(index) for index in range(N)])
        made.append([str(place), command + AGAIN * again, point, int(count), int(number)])
    return made


DRIVER = [sys.executable, str(Path(__file__).with_name("interrupt.py"))]


def run_all(made):
    names = ("folder", "words", "point", "count", "number")
    given = json.dumps([dict(zip(names, one, strict=True)) for one in made])
    done = subprocess.run(DRIVER, input=given, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", [ALIGN, PRIVATIZE], ids=["align", "privatize"])
@pytest.mark.parametrize("again", [False, True], ids=["new", "force"])
def test_stopped_at_every_step(folder, command, again):
    database = "out/spend.db" if command is ALIGN else "out.spend.db"
    made = scenarios(folder, command, again=again)
    if again:  # a complete output lies there already
        run_all([[place, command, "commit", 0, 0] for place, *_ in made])
        for place, *_ in made:
            (Path(place) / "drawn").unlink()
            assert (Path(place) / ("out/result.json" if command is ALIGN else "out.jsonl")).exists()
    codes = run_all(made)
    for (place, _, point, count, number), code in zip(made, codes, strict=True):
        path = Path(place)
        if code == 0:  # the point was never reached, or the work was done by then
            assert point in {"fsync", "replace", "link", "mkdir"}, (place, count)
        else:
            assert code == ENDS[number], (place, (path / "failed").read_text())
        check_left_behind(path, database, number)
        check_privatized(path)
        check_aligned(path)
        assert CANARY not in (path / "failed").read_text()
    stopped = [code for code in codes if code]
    assert len(stopped) >= 0.8 * len(codes)


PEOPLE = ["--unit", "person", "--cap", "3", "--epsilon", "1"]
WAYS = {
    "people": ["align", "in.jsonl", "--out", "out", *PEOPLE],
    "folder": ["privatize", "in.jsonl", "more", "--out", "out", "--epsilon", "1"],
    "folder people": ["privatize", "in.jsonl", "more", "--out", "out", *PEOPLE],
}  # fmt: skip
KILLED = ["link:1", "reserve:-1", "words:1", "words:-1", "commit:1", "commit:-1", "link:-2",
          "link:-3", "link:-4"]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_after_a_kill_the_same_command_finishes_for_nothing(folder, way):
    """Without --force, within a budget for one run, each moment in a folder of its own."""
    command, codes, made = WAYS[way], [], []
    for moment in KILLED:
        point, count = moment.split(":")
        place = folder.path / moment.replace(":", "")
        place.mkdir()
        (place / "more").mkdir()
        who = {"person": "p"} if "--cap" in command else {}
        for name, rows in (("in.jsonl", range(60)), ("more/b.jsonl", range(60, 70))):
            told = [pair(n, **({} if not who else {"person": f"p{n % 30}"})) for n in rows]
            Folder(place, None).write(name, told)
        made.append([str(place), command, point, int(count), int(signal.SIGKILL)])
    codes = run_all(made)
    assert codes.count(-9) >= len(KILLED) - 2, codes
    kept = [scenario for scenario, code in zip(made, codes, strict=True) if code == -9]
    again = run_all([[place, command, "mkdir", 0, 0] for place, *_ in kept])
    for (place, *_), code in zip(kept, again, strict=True):
        path = Path(place)
        database = path / ("out/spend.db" if command[0] == "align" else "out.spend.db")
        told = (path / "failed").read_text()
        shown = path / ("out/result.json" if command[0] == "align" else command[3])
        # Killed after its last file appeared, it has nothing left to do, and says so.
        assert code == 0 or ("exists already" in told and shown.exists()), (place, told)
        spends = Ledger.read(database).spends
        assert len(spends) == (2 if "--metrics-epsilon" in command else 1), place
        hidden = {name for name in map(str, path.rglob(".*")) if "lock" not in name}
        assert code != 0 or not hidden, hidden


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("people", [False, True], ids=["no ids", "ids"])
def test_stopped_in_the_middle_of_a_larger_file(folder, number, people):
    """By the clock, from outside: wherever it happens to be after the ledger was written."""
    n = 20_000
    who = [{"person": f"p{index % 500}"} if people else {} for index in range(n)]
    folder.write("in.jsonl", [pair(index, **who[index]) for index in range(n)])
    process = folder.start(*PRIVATIZE)
    deadline = time.monotonic() + 60
    while "reserve" not in spends_of(folder / "out.spend.db") and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.05)
    process.send_signal(number)
    _, failed = process.communicate(timeout=60)
    assert process.returncode in {ENDS[number], 0}
    assert CANARY not in failed
    assert "Traceback" not in failed
    check_privatized(folder.path, n)
    assert "reserve" in spends_of(folder / "out.spend.db")
    if number != signal.SIGKILL:
        assert not [name for name in folder.names() if "partial" in name]
    said = folder.run(*PRIVATIZE, *AGAIN)
    assert said.code == 0, said.err
    check_privatized(folder.path, n)
