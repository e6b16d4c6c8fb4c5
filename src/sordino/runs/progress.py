"""How far a run is, shown where a person is watching."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sordino import _random

_PATIENCE = 1.0  # seconds


class Bar:
    """A progress bar on standard error that shows itself only after a second of work."""

    def __init__(self, console: Console, description: str) -> None:
        self._started = _random.clock()
        self._description = description
        self._console = console
        self._progress: Progress | None = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done."""
        if self._progress is None and _random.clock() - self._started > _PATIENCE:
            share = TextColumn("{task.percentage:>3.0f}%")
            columns = TextColumn("{task.description}"), BarColumn(), share, TimeRemainingColumn()
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._task = self._progress.add_task(self._description, total=total)
            self._progress.start()
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total)

    def describe(self, description: str) -> None:
        """Say what is being done from now on."""
        self._description = description
        if self._progress is not None:
            self._progress.update(self._task, description=description)

    def close(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()

    @classmethod
    @contextmanager
    def shown(cls, description: str) -> Iterator[Bar]:
        """Yield a bar and take it away afterwards; silent unless a person is watching."""
        bar = cls(Console(stderr=True, quiet=not sys.stderr.isatty()), description)
        with closing(bar):
            yield bar


class Passes:
    """One bar for many passes over the same files."""

    def __init__(self, bar: Bar, expected: int | None = None) -> None:
        self._bar = bar
        self._of = "" if expected is None else f" of about {expected}"
        self._passes, self._before = 0, math.inf

    def __call__(self, done: int, total: int) -> None:
        """Show how much of a pass is done; a new pass begins where less is done than before."""
        if done <= self._before:
            self._passes += 1
            self._bar.describe(f"Pass {self._passes}{self._of}")
        self._before = done
        self._bar(done, total)

    def stop_counting(self, description: str) -> None:
        """Say what is done from now on, where how far it is would tell of private records."""
        self._bar.describe(description)
