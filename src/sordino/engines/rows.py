"""A matrix whose rows are in many files: it is never in memory, and sums over its rows are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

from sordino.engines.engine import Engine, Taken
from sordino.errors import UsageError

__all__ = ["PiecedRows"]

T = TypeVar("T")


@dataclass(frozen=True, repr=False, eq=False)
class PiecedRows:
    """Rows of d numbers in pieces that an engine reads.

    Attributes:
        engine: Where they are read.
        pieces: What they are read from.
        read: From a piece to its blocks: (number of the first row, rows, whatever else belongs to
            them), each small enough for memory. The same piece always gives the same blocks.
        shape: (n, d).
        taken: Called as pieces are done.
    """

    engine: Engine
    pieces: Sequence[Any]
    read: Callable[[Any], Iterable[tuple[Any, ...]]]
    shape: tuple[int, int]
    taken: Taken | None = None

    def __repr__(self) -> str:
        """Return the size."""
        return f"PiecedRows(n={self.shape[0]}, d={self.shape[1]})"

    def fold(self, task: Callable[..., T], add: Callable[[T, T], T]) -> T:
        """Return the sum of ``task(*block)`` over all blocks.

        Args:
            task: Takes what ``read`` yields; can be pickled.
            add: From two parts to their sum.

        Raises:
            UsageError: There is no row.
            SordinoError: What reading or the task raised.
        """
        total: T | None = self.engine.fold(
            self.pieces, _OfBlocks(self.read, task, add), _Added(add), taken=self.taken
        )
        if total is None:
            raise UsageError("There is no row to add up.")
        return total


@dataclass(frozen=True)
class _OfBlocks:
    """A task on a piece: the sum over its blocks; None where it has none."""

    read: Callable[[Any], Iterable[tuple[Any, ...]]]
    task: Callable[..., Any]
    add: Callable[[Any, Any], Any]

    def __call__(self, piece: Any) -> Any:
        """Return the sum of one piece."""
        parts = (self.task(*block) for block in self.read(piece))
        return reduce(_Added(self.add), parts, None)


@dataclass(frozen=True)
class _Added:
    """The sum of two parts of which one may be missing."""

    add: Callable[[Any, Any], Any]

    def __call__(self, one: Any, other: Any) -> Any:
        """Return the sum."""
        if one is None or other is None:
            return other if one is None else one
        return self.add(one, other)
