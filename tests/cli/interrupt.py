"""Runs commands in forked processes and stops each one at a chosen moment; prints how they ended.

Reads a list of scenarios from standard input; a moment is a call or a line, never a time:

``{"folder", "words", "point", "count", "number"}`` stops one command right before the count-th
call of a function, or right after it if count is negative; it prints the exit code.

``{"folder", "template", "words", "shown", "seed", "count"}`` runs a command once to its end, then
count times in copies of the template, each stopped before a line that the seed picks among those
that decide what is paid, drawn, stored and shown, and started once more; it prints what came of it.
"""

import functools
import gc
import json
import os
import pickle
import random
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # it is a script

from tests.apart import apart

import sordino
from sordino import _random, cli
from sordino.cli import _language_study
from sordino.engines import exchange
from sordino.preferences import chunk_survey
from sordino.privacy import accounting
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privatization import chunks
from sordino.privatization.chunks import AnswerChunk
from sordino.reporting import result
from sordino.rewards import metrics
from sordino.runs import align_run, bandit_run  # noqa: F401 (before the forks)
from sordino.runs.run import Run

POINTS = {
    "reserve": (Ledger, "reserve"),
    "words": (_random.SystemEntropy, "words"),
    "answers": (AnswerChunk, "__call__"),
    "commit": (Reservation, "commit"),
    "fsync": (os, "fsync"),
    "replace": (Path, "replace"),
    "link": (os, "link"),
    "mkdir": (Path, "mkdir"),
}
SOURCE = Path(sordino.__file__).parent
DECIDING = [
    "_files.py", "_random.py", "privacy/ledger.py", "privacy/ledger_chain.py", "runs/run.py",
    "cli/choose.py", "runs/bandit_run.py", "cli/privatize.py", "cli/_language_run.py",
    "cli/_language_study.py", "policies/gibbs.py", "privatization/answers.py",
    "privatization/chunks.py", "privatization/people.py", "privatization/publication.py",
    "preferences/memo.py", "privatization/randomization.py", "language/dp_sgd/privacy.py",
    "language/studies/pipeline.py",
]  # fmt: skip
FILES = {str(SOURCE / name) for name in DECIDING}
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]


def stop_at(point, count, stop):
    """Stop right before the count-th call of a function, or right after it if count is negative."""
    owner, name = POINTS[point]
    honest = getattr(owner, name)
    calls = 0

    @functools.wraps(honest)
    def stopping(*given, **named):
        nonlocal calls
        calls += 1
        if calls == count:
            stop()
        result = honest(*given, **named)
        if calls == -count:
            stop()
        return result

    setattr(owner, name, stopping)


def stop_at_line(count, stop):
    """Stop before the count-th deciding line; without one write down how many there are."""
    seen = 0

    def line(frame, event, _):
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == count:
                sys.settrace(None)
                stop()
        return line

    def call(frame, event, _):
        return line if frame.f_code.co_filename in FILES else None

    for owner, name in ((Run, "perform"), (_language_study.Study, "run")):
        honest = getattr(owner, name)

        @functools.wraps(honest)
        def traced(*given, honest=honest, **named):
            sys.settrace(call)
            return honest(*given, **named)

        setattr(owner, name, traced)
    return lambda: seen


def note_coins(mark):
    """Leave a mark in the folder before the first coin is drawn."""
    honest = _random.SystemEntropy.words

    def words(self, n):
        Path(mark).touch()
        return honest(self, n)

    _random.SystemEntropy.words = words


KNOWN = {}


def remember(name, *modules):
    """Compute once what public numbers alone decide; later forks know it."""
    honest = getattr(modules[0], name)

    def remembered(*given, **named):
        key = repr((name, given, named))
        if key not in KNOWN:
            KNOWN[key] = honest(*given, **named)
        return KNOWN[key]

    for module in modules:
        setattr(module, name, remembered)


def run_one(folder, words, prepare, mark="drawn"):
    """Run in a fork and return the wait status as an exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    streams = [os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
               for name in ("said", "failed")]  # fmt: skip
    os.dup2(streams[0], 1)
    os.dup2(streams[1], 2)
    note_coins(mark)
    code, sys.argv = 99, ["sordino", *apart(words)]
    done = prepare()
    try:
        cli.main()
    except SystemExit as left:
        code = left.code
    finally:
        sys.settrace(None)
    if done is not None:
        Path("lines").write_text(str(done()))
        Path("known").write_bytes(pickle.dumps(KNOWN))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def at_point(folder, words, point, count, number):
    """Stop one command at a call."""
    stop = lambda: os.kill(os.getpid(), number)  # noqa: E731
    return run_one(folder, words, lambda: stop_at(point, count, stop))


def paid(folder, chain=False):
    """What every ledger below a folder says was paid, without names and times; and what is kept."""
    # How much the second entry of a chain takes hangs on what the first drew.
    found, stored = Counter(), 0
    for path in sorted(Path(folder).rglob("*.db")):
        connection = sqlite3.connect(path)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "rows" in tables:
            query = "SELECT event, parameters, count, unit, neighbors, trust FROM rows "
            for row in connection.execute(f"{query} WHERE kind = 'reserve'"):
                found[json.dumps([path.name, *row[:: 2 if chain else 1]])] += 1
        if "drawn" in tables:
            stored += connection.execute("SELECT count(*) FROM drawn").fetchone()[0]
        connection.close()
    return found, stored


def load_language():
    """Import what trains, and make studies small."""
    import torch
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    from conftest import quick_study
    from sordino.language.dp_sgd import privacy
    from sordino.language.studies import comparison_table, pipeline  # noqa: F401

    privacy.composed_epsilon = accounting.composed_epsilon
    get_checkpoint_conversion_mapping("llama")  # a thousand patterns, once instead of in every fork

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    pipeline.QUICK = quick_study()


def at_lines(folder, template, words, shown, seed, count):
    """Stop a command at many lines, start it once more, and tell what came of it."""
    folder, coin = Path(folder), random.Random(seed)  # noqa: S311 (moments, no secret)
    whole, warm = folder / "whole", folder / "warm"
    for made in (whole, warm):
        shutil.copytree(template, made)
    if words[0] == "language":  # no thread of PyTorch may be there when this process forks
        load_language()
    # What is loaded and computed once, as the size of a noise, is inherited by every fork.
    with chdir(warm), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        cli.run(apart([*words, "--dry-run"] if words[0] == "language" else words))
    code = run_one(whole, words, lambda: stop_at_line(0, None))
    assert code == 0, (whole / "failed").read_text()
    chain = "--test-epsilon" in words
    wanted, lines = paid(whole, chain)[0], int((whole / "lines").read_text())
    KNOWN.update(pickle.loads((whole / "known").read_bytes()))  # noqa: S301 (our own)
    told = {"lines": lines, "entries": wanted.total(), "stopped": 0, "begun": 0, "resumed": 0,
            "redrawn": 0, "over": 0, "wrong": []}  # fmt: skip
    gc.freeze()
    gc.disable()
    for number in range(count):
        place, line = folder / str(number), coin.randint(1, lines)
        kind = SIGNALS[number % 3]
        shutil.copytree(template, place)
        stop = lambda: os.kill(os.getpid(), kind)  # noqa: E731, B023 (called before the next one)
        first = run_one(place, words, lambda: stop_at_line(line, stop) and None)  # noqa: B023
        before, stored = paid(place, chain)
        over = (place / shown).exists()
        more = ["--resume"] if number % 2 and before and not over else []
        second = run_one(place, [*words, *more], lambda: None, mark="again")
        said = (place / "failed").read_text()
        after, _ = paid(place, chain)
        told["stopped"] += first in (-9, 143, 130)
        told["begun"] += bool(before) and not over
        told["resumed"] += bool(more)
        told["over"] += over
        # An entry whose value is stored is never drawn on again.
        told["redrawn"] += stored == wanted.total() and (place / "again").exists()
        ended = second == 0 or (over and second == 2 and "exists already" in said)
        if not ended or after != wanted or not (place / shown).exists():
            told["wrong"].append([number, line, int(kind), first, second, said, after.total()])
        else:
            shutil.rmtree(place)
    return told


if __name__ == "__main__":
    from conftest import few_features  # of this folder, which is the first where this is a program

    bandit_run._BLOCK = 4  # several entries of one run
    for module in (exchange, chunk_survey, chunks, metrics):
        module.PARTS = 4  # of few people, instead of hundreds that are almost all empty
    exchange._HEAD = 8 * (4 + 1)
    remember("utility_curve", result)
    remember("composed_epsilon", accounting, _language_study)
    remember("largest_pure_epsilon", accounting)
    scenarios = json.load(sys.stdin)
    with few_features():
        print(json.dumps([
            at_lines(**one) if "template" in one else at_point(**one) for one in scenarios
        ]))  # fmt: skip
