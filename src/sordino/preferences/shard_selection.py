"""Which rows of many files count: kept in files that all machines see, and never as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Int64

from sordino._files import atomic_writer, explained

__all__ = ["ROW_BITS", "PartSelection", "Selection", "write_numbers", "write_sides"]

ROW_BITS: Final = 40
"""Bits of the number of a row in its piece; the piece's number is above them."""


@dataclass(frozen=True)
class Selection:
    """Which rows of the pieces count, kept in a file that all machines see.

    Attributes:
        path: Sorted numbers of the rows that do not; None if all rows count.
    """

    path: str | None

    @cached_property
    def _left_out(self) -> Any:
        """Return the numbers, of which only what is looked at is read."""
        return np.load(self.path or "", mmap_mode="r")

    def left_out(self, piece: int) -> Int64[np.ndarray, " k"]:
        """Return which rows of a piece do not count."""
        if self.path is None:
            return np.zeros(0, dtype=np.int64)
        ends = np.array([piece << ROW_BITS, (piece + 1) << ROW_BITS], dtype=np.uint64)
        first, last = np.searchsorted(self._left_out, ends)
        return np.asarray(self._left_out[first:last] - ends[0]).astype(np.int64)

    def before(self, piece: int) -> int:
        """Return how many rows of earlier pieces do not count."""
        if self.path is None:
            return 0
        return int(np.searchsorted(self._left_out, np.uint64(piece << ROW_BITS)))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the opened file behind."""
        return {"path": self.path}


@dataclass(frozen=True)
class PartSelection(Selection):
    """Which rows of one part count, where every question is on one of two sides.

    Attributes:
        path: Sorted numbers of the rows of this part that do not count; None if all do.
        folder: Where :func:`write_sides` left a file for each piece.
        held_out: Whether this part is what is held out.
        others: How many rows of the other part come before each piece.
    """

    folder: str
    held_out: bool
    others: tuple[int, ...]

    def left_out(self, piece: int) -> Int64[np.ndarray, " k"]:
        """Return which rows of a piece do not count, or are of the other part.

        Raises:
            FileSystemError: The folder is not seen here.
        """
        with explained("A file of the survey cannot be read"):
            sides = np.frombuffer(_sides_of(self.folder, piece).read_bytes(), dtype=np.bool_)
        others = np.flatnonzero(sides != self.held_out)
        return np.union1d(super().left_out(piece), others).astype(np.int64)

    def before(self, piece: int) -> int:
        """Return how many rows of earlier pieces do not count, or are of the other part."""
        return super().before(piece) + self.others[piece]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the opened file behind."""
        names = ("path", "folder", "held_out", "others")
        return {name: getattr(self, name) for name in names}


def write_sides(folder: str, piece: int, held_out: Bool[np.ndarray, " n"]) -> None:
    """Leave which rows of one piece are held out, where every machine sees it.

    Raises:
        FileSystemError: The folder is not seen here, or cannot be written.
    """
    with atomic_writer(_sides_of(folder, piece), force=True, held=False) as file:
        file.write(held_out.astype(np.bool_).tobytes())


def _sides_of(folder: str, piece: int) -> Path:
    """Return the file of one piece."""
    return Path(folder) / f"{piece:08d}.held-out"


def write_numbers(path: Path, rows: np.ndarray) -> str | None:
    """Write which rows do not count, where every machine sees it; None if there is none."""
    if not len(rows):
        return None
    np.save(path, np.sort(rows))
    return str(path)
