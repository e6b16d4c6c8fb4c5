"""Which engine reads many files, what it is asked about them, and a bar for every pass."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino.cli._console import Bar
from sordino.engines.engine import Engine, InProcess
from sordino.engines.ray_data import RayData, refuse_silent_address
from sordino.errors import UsageError
from sordino.preferences.shards import Shards

__all__ = [
    "Address",
    "EngineKind",
    "EngineOption",
    "Passes",
    "Place",
    "Scratch",
    "describe_files",
    "files_rows",
]

_TABLE = ".parquet"


class EngineKind(StrEnum):
    """Where many files are read."""

    process = "process"
    ray = "ray"


Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="With --engine ray: of a running cluster, or auto for the one that this machine "
        "belongs to. Without it Ray is started here, and stopped afterwards.",
    ),
]
EngineOption = Annotated[
    EngineKind | None,
    typer.Option(
        "--engine",
        help="Read files piece by piece, in this process or by Ray: for more judgments than memory "
        "holds. Several files, folders and Parquet are always read so.",
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        "--scratch",
        metavar="DIR",
        help="Folder for what is exchanged between machines, which all of them see at the same "
        "place; taken away at the end.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where many files are read, as the options say.

    Attributes:
        kind: Which engine; None where the user did not say.
        address: Of a Ray cluster.
        scratch: A folder that all machines see.
    """

    kind: EngineKind | None = None
    address: str | None = None
    scratch: Path | None = None

    def __post_init__(self) -> None:
        """Refuse an address that nothing would use."""
        if self.address is not None and self.kind is not EngineKind.ray:
            raise UsageError("--address is for --engine ray. Nothing was done. Give both.")

    def reads(self, sources: Sequence[Path]) -> bool:
        """Return whether files are read in pieces; refuse a folder for them if not.

        Raises:
            UsageError: One file that memory holds needs none.
        """
        several = len(sources) > 1 or any(
            path.suffix == _TABLE or path.is_dir() for path in sources
        )
        if several or self.kind is not None:
            return True
        if self.scratch is not None:
            raise UsageError(
                "--scratch is for files that are read in pieces. Nothing was done. Leave it out, "
                "or give --engine too."
            )
        return False

    @property
    def name(self) -> str:
        """Return the engine's name."""
        return (self.kind or EngineKind.process).value

    def refuse_missing(self) -> None:
        """Refuse an engine that is not installed or does not answer; none is started.

        Raises:
            MissingExtra: Ray is not installed.
            UsageError: The address does not answer.
        """
        if self.kind is EngineKind.ray:
            RayData(self.address)
        if self.address is not None:
            refuse_silent_address(self.address)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Yield the engine; whatever it started is stopped afterwards.

        Raises:
            MissingExtra: Ray is not installed.
            UsageError: The address does not answer.
        """
        if self.kind is not EngineKind.ray:
            yield InProcess()
            return
        ended = signal.getsignal(signal.SIGTERM)
        with RayData(self.address) as found:
            signal.signal(signal.SIGTERM, ended)  # Ray's own says neither what happened nor 143
            yield found


class Passes:
    """One bar for many passes over the same files."""

    def __init__(self, bar: Bar, expected: int | None = None) -> None:
        """Expect so many passes."""
        self._bar = bar
        self._of = "" if expected is None else f" of about {expected}"
        self._passes, self._before = 0, math.inf

    def __call__(self, done: int, total: int) -> None:
        """Take note of how much of a pass is done."""
        if done <= self._before:
            self._passes += 1
            self._bar.describe(f"Pass {self._passes}{self._of}")
        self._before = done
        self._bar(done, total)

    def stop_counting(self, description: str) -> None:
        """Say what is done from now on, where how far it is would tell of private records."""
        self._bar.describe(description)


def describe_files(shards: Shards, place: Place, *, passes: int) -> dict[str, Any]:
    """Return what is known of many files before a record of them is read.

    Their bytes are not in it: they tell how long labels are. Lines and rows do not.

    Args:
        shards: The files.
        place: Where they are read.
        passes: How often they will be read, about.
    """
    return {
        "engine": place.name,
        "files": shards.pieces[-1].shard + 1,
        "blocks": len(shards.pieces),
        "rows": shards.rows,
        "passes": passes,
    }


def files_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what :func:`describe_files` found."""
    rows, passes = told["rows"], told["passes"]
    size = "packed" if rows is None else f"{rows:,} rows"  # lines of JSON Lines
    read = "" if rows is None else f": {rows * passes:,} rows read in all"
    return {
        "files": f"{told['files']:,}, {size}, in {told['blocks']:,} blocks",
        "passes": f"about {passes}{read} (engine {told['engine']})",
    }
