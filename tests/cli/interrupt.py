"""Runs commands in forked processes and stops each one at a chosen point; prints how they ended.

Reads scenarios from standard input: [folder, words, point, count, after, signal].
"""

import functools
import json
import os
import signal
import sys
from pathlib import Path

from sordino import _random, cli
from sordino.cli import _align_run  # noqa: F401 (imported before the forks, to save time)
from sordino.privacy.ledger import Ledger, Reservation
from sordino.privatization.randomization import Randomization

POINTS = {
    "reserve": (Ledger, "reserve"),
    "words": (_random.SystemEntropy, "words"),
    "answers": (Randomization, "answers"),
    "commit": (Reservation, "commit"),
    "fsync": (os, "fsync"),
    "replace": (Path, "replace"),
    "link": (os, "link"),
    "mkdir": (Path, "mkdir"),
}


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


def note_coins():
    """Leave a mark in the folder before the first coin is drawn."""
    honest = _random.SystemEntropy.words

    def words(self, n):
        Path("drawn").touch()
        return honest(self, n)

    _random.SystemEntropy.words = words


def run_one(folder, words, point, count, number):
    """Run in a fork and return the wait status as an exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    streams = [os.open(name, os.O_WRONLY | os.O_CREAT, 0o644) for name in ("said", "failed")]
    os.dup2(streams[0], 1)
    os.dup2(streams[1], 2)
    note_coins()
    stop_at(point, count, lambda: os.kill(os.getpid(), number))
    sys.argv = ["sordino", *words]
    code = 99
    try:
        cli.main()
    except SystemExit as left:
        code = left.code
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    print(json.dumps([run_one(*scenario) for scenario in json.load(sys.stdin)]))
