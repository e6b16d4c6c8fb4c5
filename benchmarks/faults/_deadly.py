"""Tasks that kill their worker at a moment chosen beforehand, and a coin that keeps a record."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from sordino.engines.engine import Engine
from sordino.mechanisms.randomized_response import RandomizedResponse

__all__ = ["Deadly", "RecordedCoin"]

DRAWING = ("AnswerPart", "AnswerChunk")  # tasks that draw coins, or use those that were drawn
ELSEWHERE = 1  # kills of a pass that answers nothing
LONGEST, LONGEST_DRAWN = 0.03, 0.008  # seconds from the beginning of a task, or from its draw
_TASK, _FATE, _DREW = "FAULTS_TASK", "FAULTS_FATE", "FAULTS_DREW"


@dataclass(frozen=True)
class RecordedCoin(RandomizedResponse):
    """The coin of the release, which writes down every answer before anybody can use it.

    Attributes:
        folder: Where: a file for each draw, named after the task that drew.
    """

    folder: str = ""

    def release(self, values: Any, *, entropy: Any) -> Any:
        """Return randomized answers."""
        found = RandomizedResponse.release(self, values, entropy=entropy)
        path = Path(self.folder) / f"{os.environ.get(_TASK, '')}-{uuid4().hex}.npy"
        np.save(path.with_suffix(".unfinished.npy"), found)
        path.with_suffix(".unfinished.npy").replace(path)
        os.environ[_DREW] = "after its draw"
        if fate := os.environ.pop(_FATE, ""):
            mark, seconds = fate.split("|")
            threading.Timer(float(seconds), die, (mark,)).start()
        return found


def die(mark: str) -> None:
    """Write down what was going on, and kill this process."""
    with Path(mark).open("a") as file:
        file.write(f"{os.environ[_TASK].split('-')[0]} {os.environ[_DREW]}\n")
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Doomed:
    """A task that some chunks are deadly for, each only once.

    Attributes:
        task: What to do.
        name: What the task is called.
        fold: Which pass this is.
        fates: From the number of a chunk to what the clock of its death starts at ("begun" or
            "drawn"), and its seconds.
        marks: A folder: a file in it says that a chunk has killed already.
    """

    task: Callable[[Any], Any]
    name: str
    fold: int
    fates: dict[int, tuple[str, float]]
    marks: str

    def __call__(self, numbered: tuple[int, Any]) -> Any:
        """Return what the task does, unless this process dies first."""
        at, chunk = numbered
        os.environ.update({_TASK: f"{self.name}-{at}", _DREW: "before a draw"})
        os.environ.pop(_FATE, None)
        mark = Path(self.marks) / f"{self.fold}-{at}"
        if at not in self.fates or mark.exists():
            return self.task(chunk)
        mark.touch()
        since, seconds = self.fates[at]
        if since == "begun":
            threading.Timer(seconds, die, (str(mark),)).start()
        else:
            os.environ[_FATE] = f"{mark}|{seconds}"
        self.task(chunk)
        if os.environ.pop(_FATE, ""):  # it drew nothing
            die(str(mark))
        while True:  # it was faster: what it found is lost all the same
            time.sleep(0.01)


class Deadly:
    """An engine whose tasks kill their workers, wherever and whenever a seed says."""

    def __init__(
        self, engine: Engine, marks: Path, seed: int, *, most: int, kills: bool = True
    ) -> None:
        """Use an engine.

        Args:
            engine: Where tasks run.
            marks: A folder to be, for what happened.
            seed: Chooses who is killed, and when.
            most: Kills of one pass that draws or uses answers.
            kills: Whether to kill at all, or only to record draws.
        """
        self.engine, self.marks, self.kills, self.folds = engine, marks, kills, 0
        self.most = most
        self.random = random.Random(seed)  # noqa: S311 - no secret
        marks.mkdir()

    def fold(
        self, chunks: Sequence[Any], task: Any, add: Callable[..., Any], *, taken: Any = None
    ) -> Any:
        """Return the sum over all chunks."""
        self.folds += 1
        what = task.func if isinstance(task, partial) else task
        name = getattr(what, "__name__", type(what).__name__).lstrip("_")
        fates = self._fates(len(chunks), drawing=name in DRAWING) if self.kills else {}
        doomed = Doomed(task, name, self.folds, fates, str(self.marks))
        return self.engine.fold(list(enumerate(chunks)), doomed, add, taken=taken)

    def _fates(self, chunks: int, *, drawing: bool) -> dict[int, tuple[str, float]]:
        """Return which chunks kill, and when."""
        most = min(self.most if drawing else ELSEWHERE, chunks)
        fates = {}
        for index, at in enumerate(self.random.sample(range(chunks), most)):
            if drawing and index % 2:
                fates[at] = ("drawn", self.random.uniform(0, LONGEST_DRAWN))
            else:
                fates[at] = ("begun", self.random.uniform(0, LONGEST))
        return fates

    def happened(self) -> list[str]:
        """Return what was going on at each kill."""
        return [
            line for path in sorted(self.marks.iterdir()) for line in path.read_text().splitlines()
        ]
