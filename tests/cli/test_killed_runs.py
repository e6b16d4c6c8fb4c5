"""Stopped at random moments of every kind of run: the second start finishes it, for nothing.

Moments are lines of the code that pays, draws, stores and shows, picked by a seed; Ctrl-C, SIGTERM
and SIGKILL in turn. Every other second start says ``--resume``, where there is something to finish.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, closing
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from sordino import cli
from sordino.privacy.ledger import Ledger

from .conftest import Folder, kind_rows, pair, refused
from .test_interrupted import ALIGN, DRIVER, PEOPLE, PRIVATIZE, N, run_all

SMALL = ["--dimension", "16"]
ESTIMATE = ["align", "in.jsonl", "--out", "out", "--noise", "estimate", "--epsilon", "1", *SMALL]
PULLS = ["bandit", "logs.csv", "--out", "out", "--arm", "item", "--reward", "click", "--arms", "3",
         "--reward-range", "0", "1", "--epsilon", "1", "--draws", "3"]  # fmt: skip
CONTEXTS = ["--method", "linear", "--context-columns", "age", "--contexts", "contexts.csv"]
LINKED = ["privatize", "in.jsonl", "--out", "out.jsonl", *PEOPLE]
CHOOSE = ["choose", "run", "q.jsonl", "--judgments", "in.jsonl", "--out", "answers.jsonl"]
KINDS = {  # what is run, and how many entries pay for it
    "align labels": ([*ALIGN, *SMALL, "--ridge", "1"], 1),
    "align estimate": ([*ESTIMATE, "--metrics-epsilon", "1"], 2),
    "align draws": ([*ALIGN, "--noise", "draws", "--draws", "9"], 0),
    "align choices": (["align", "votes.jsonl", "--all-offered", *ALIGN[2:]], 1),
    "align steps": (["align", "walks.jsonl", *ALIGN[2:], "--noise", "estimate", "--ridge", "1"], 1),
    "privatize": (PRIVATIZE, 1),
    "privatize people": (LINKED, 1),
    "bandit": (PULLS, 1),
    "bandit contexts": ([*PULLS, *CONTEXTS], 3),
    "bandit tested": ([*PULLS, "--test-epsilon", "0.5"], 2),
    "choose": (CHOOSE, 1),
}
TRAIN = ["language", "reward", "in.jsonl", "--model", "tiny", "--out", "out", "--epsilon", "2"]
UPDATES = ["--noise", "updates", "--units", "60", "--steps", "4", "--batch", "8"]
STUDY = ["language", "table", "in.jsonl", "--out", "out", "--quick", "--epsilons", "2",
         "--seeds", "2", "--public-judge-half", "--non-private"]  # fmt: skip
LANGUAGE = {  # and how often each is stopped: a start takes a second or more, a study several
    "language labels": (TRAIN, 1, 40),
    "language updates": ([*TRAIN, *UPDATES], 1, 40),
    "language parts": ([*TRAIN, *UPDATES, "--save-every", "2"], 2, 40),
    "language table": ([*STUDY, "--central-epsilon", "2"], 6, 10),
}
KINDS |= {name: (words, entries) for name, (words, entries, _) in LANGUAGE.items()}
SHOWN = {
    "privatize": "out.jsonl", "choose": "answers.jsonl", "language table": "out/table.json",
    "language reward": "out/training_log.json",
}  # fmt: skip


def killed(folder, template, kinds, count):
    """What came of so many starts of each kind, half of them in each of two processes."""

    def half(seed):
        home = folder / f"home{seed}"
        jobs = []
        for name in kinds:
            words = KINDS[name][0]
            (home / name).mkdir(parents=True)
            jobs.append({
                "folder": str(home / name), "template": str(template), "words": words,
                "shown": SHOWN.get(" ".join(words[:2]), SHOWN.get(words[0], "out/result.json")),
                "seed": seed,
                "count": count // 2,
            })  # fmt: skip
        given = json.dumps(jobs)
        done = subprocess.run(DRIVER, input=given, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    with ThreadPoolExecutor(2) as both:
        found = list(both.map(half, (1, 2)))
    return {name: [one[place] for one in found] for place, name in enumerate(kinds)}


def check_all(found, count):
    """Every second start ended with what was paid once shown; no stored value was drawn again."""
    for kind, halves in found.items():
        for told in halves:
            assert told["wrong"] == [], kind
            assert told["entries"] == KINDS[kind][1], kind
            # Ctrl-C in a callback of the interpreter is said and passed over: that start went on.
            assert told["stopped"] >= 0.95 * (count // 2), kind
            assert told["redrawn"] == 0, kind


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A folder with what every kind of run reads."""
    made = Folder(tmp_path_factory.mktemp("template"), None)
    made.write("in.jsonl", [pair(n, person=f"p{n % 10}") for n in range(N)])
    ballots = [{"ranking": ["tea"] if n % 3 else ["ale"]} for n in range(N)]
    made.write("votes.jsonl", [{"items": ["ale", "milk", "tea"]}, *ballots])
    steps = [{"first": [[1.0, n]], "second": [[0.0, 2.5]], "label": n % 2} for n in range(N)]
    made.write("walks.jsonl", steps)
    made.write("q.jsonl", [{"prompt": f"q{n}", "candidates": ["yes", "no"]} for n in range(5)])
    pulls = [f"{n % 3},{n % 2},{n % 5}" for n in range(60)]
    (made / "logs.csv").write_text("\n".join(["item,click,age", *pulls]) + "\n")
    (made / "contexts.csv").write_text("age\n1\n0\n2\n")
    prepare = ["--noise", "draws", "--draws", "9", "--epsilon", "1", "--out", "run", *SMALL]
    with chdir(made.path):
        assert cli.run(["align", "in.jsonl", *prepare, "--ledger", "run/spend.db"]) == 0
    return made.path


@pytest.fixture
def memory():
    """Yield a folder in memory where there is one: a kill, unlike a power cut, loses no page."""
    place = Path("/dev/shm")
    with TemporaryDirectory(dir=place if os.access(place, os.W_OK) else None) as name:
        yield Path(name)


@pytest.mark.deep
def test_runs_that_are_stopped_are_finished_by_the_second_start(memory, template):
    """A few moments of some kinds; the others are gone through with those marked deep."""
    kinds = ["align estimate", "bandit contexts", "align choices", "align steps"]
    check_all(killed(memory, template, kinds, 4), 4)


@pytest.mark.deep
@pytest.mark.parametrize("kind", [name for name in KINDS if name not in LANGUAGE])
def test_whenever_it_is_stopped_nothing_is_paid_twice(memory, template, kind):
    count = 200 if KINDS[kind][1] else 20  # where nothing is paid there is little to lose
    found = killed(memory, template, [kind], count)
    check_all(found, count)
    if KINDS[kind][1]:  # the moments did fall between payment and result
        begun, resumed = (sum(one[name] for one in found[kind]) for name in ("begun", "resumed"))
        assert begun > 25
        assert resumed > 10


@pytest.mark.deep
@pytest.mark.parametrize("kind", LANGUAGE)
def test_whenever_a_training_is_stopped_nothing_is_paid_twice(memory, request, tmp_path, kind):
    """Fewer moments than of other runs, so that all of them together take minutes."""
    pytest.importorskip("trl", reason="the extra 'language' is not installed")
    Folder(tmp_path, None).write("in.jsonl", kind_rows())
    (tmp_path / "tiny").symlink_to(request.getfixturevalue("built"))
    count = LANGUAGE[kind][2]
    check_all(killed(memory, tmp_path, [kind], count), count)


@pytest.mark.deep
def test_the_second_start_shows_what_was_drawn_whatever_the_data_are_by_then(folder):
    """Killed before the result appears; the raw file changes; the answer does not."""
    pulls = [f"{n % 3},{n % 2},{n % 5}" for n in range(60)]
    (folder / "logs.csv").write_text("\n".join(["item,click,age", *pulls]) + "\n")
    home, database = str(folder.path), folder / "out/spend.db"
    assert run_all([[home, PULLS, "commit", -1, int(signal.SIGKILL)]]) == [-9]
    with closing(sqlite3.connect(database)) as connection:
        ((value,),) = connection.execute("SELECT value FROM drawn").fetchall()
    drawn = [str(arm) for arm in np.load(BytesIO(value)).tolist()]
    (folder / "logs.csv").write_text("item,click,age\n0,1,1\n")
    assert run_all([[home, [*PULLS, "--resume"], "mkdir", 0, 0]]) == [0]
    assert json.loads((folder / "out/result.json").read_text())["draws"] == drawn
    assert len(Ledger.read(database).spends) == 1


@pytest.mark.deep
def test_a_result_promises_all_entries_of_both_starts(folder, template):
    """One of three entries was written by the start that was killed."""
    shutil.copytree(template, folder.path, dirs_exist_ok=True)
    assert folder.run(*PULLS, *CONTEXTS, "--out", "whole").code == 0
    home = str(folder.path)
    assert run_all([[home, [*PULLS, *CONTEXTS], "commit", -1, int(signal.SIGKILL)]]) == [-9]
    assert len(Ledger.read(folder / "out/spend.db").spends) == 1
    assert run_all([[home, [*PULLS, *CONTEXTS], "mkdir", 0, 0]]) == [0]
    assert len(Ledger.read(folder / "out/spend.db").spends) == 3
    one, other = (json.loads((folder / name / "result.json").read_text())["guarantee"]["epsilon"]
                  for name in ("out", "whole"))  # fmt: skip
    assert one == pytest.approx(other, rel=1e-9)


def test_there_must_be_something_to_resume_and_done_is_said_without_force(template, folder):
    shutil.copytree(template, folder.path, dirs_exist_ok=True)
    for words in (PRIVATIZE, PULLS, CHOOSE, [*ESTIMATE, "--out", "other"]):
        refused(folder, [*words, "--resume"], 2, "there is nothing to finish")
        assert folder.run(*words).code == 0
        said = folder.run(*words)
        assert said.code == 2
        assert "exists already" in said.err
        assert "--force" not in said.err
        shown = words[len(words) - words[::-1].index("--out")]
        refused(folder, [*words, "--resume", "--force"], 2, "there is nothing to finish")
        assert (folder / shown).exists()
