"""What tasks elsewhere are given and send back: stretches of pieces, branches of the sum."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from sordino.engines.engine import Taken
from sordino.engines.reduction import Node, Reduction
from sordino.errors import EngineError, SordinoError

__all__ = ["Arrivals", "Branches", "Merge", "Stretch", "SumOfStretch", "stretches"]

T = TypeVar("T")

_LONGEST = 8  # pieces; a power of two, as all lengths are, so that a stretch is one branch


@dataclass(frozen=True)
class Stretch:
    """Neighboring pieces that one task adds up.

    Attributes:
        first: The number of the first.
        pieces: They themselves.
    """

    first: int
    pieces: tuple[Any, ...]


def stretches(pieces: Sequence[Any], least: int) -> list[Stretch]:
    """Return all pieces, in stretches that are branches of the tree of a sum.

    Args:
        pieces: All of them.
        least: How many stretches there should be, as far as there are pieces: the shorter they
            are, the less a lost one costs.
    """
    length = _LONGEST
    while length > 1 and -(-len(pieces) // length) < least:
        length //= 2
    starts = range(0, len(pieces), length)
    return [Stretch(first, tuple(pieces[first : first + length])) for first in starts]


@dataclass
class Branches:
    """What some tasks found.

    Attributes:
        nodes: Sums of branches.
        seen: From which piece to before which one.
        failed: The first of these pieces that was refused, and why.
    """

    nodes: list[Node[Any]] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)
    failed: tuple[int, SordinoError] | None = None

    def packed(self) -> bytes:
        """Return the bytes that :meth:`unpacked` reads."""
        try:
            return pickle.dumps(self)
        except Exception as error:  # noqa: BLE001 - parts of a caller's own kind
            problem = _portable(error)
        return pickle.dumps(Branches([], self.seen, (self.seen[0][0], problem)))

    @staticmethod
    def unpacked(packed: bytes) -> Branches:
        """Return what a task of ours packed."""
        found: Branches = pickle.loads(packed)  # noqa: S301 - our own
        return found


@dataclass(frozen=True)
class SumOfStretch:
    """The task: it adds up the parts of a stretch.

    Attributes:
        task: From a piece to its part.
        add: From two parts to their sum.
        pieces: How many there are in all.
    """

    task: Callable[[Any], Any]
    add: Callable[[Any, Any], Any]
    pieces: int

    def __call__(self, stretch: Stretch) -> Branches:
        """Return one branch, or what refused a piece.

        An error is returned and not raised: an engine would try again, and would write down more
        of it than its message.
        """
        total: Reduction[Any] = Reduction(self.pieces, self.add)
        index = stretch.first
        try:
            for index, piece in enumerate(stretch.pieces, stretch.first):
                total.take(index, self.task(piece))
        except Exception as error:  # noqa: BLE001 - it must not reach the engine's logs
            return Branches([], [(stretch.first, index + 1)], (index, _portable(error)))
        return Branches(total.nodes(), [(stretch.first, stretch.first + len(stretch.pieces))])


@dataclass(frozen=True)
class Merge:
    """The task of a second stage: it adds up what several tasks found.

    Attributes:
        add: From two parts to their sum.
        pieces: How many there are in all.
    """

    add: Callable[[Any, Any], Any]
    pieces: int

    def __call__(self, found: Sequence[bytes]) -> Branches:
        """Return fewer branches; what was packed is read one after the other."""
        total: Reduction[Any] = Reduction(self.pieces, self.add)
        merged = Branches()
        for packed in found:
            branches = Branches.unpacked(packed)
            merged.seen += branches.seen
            merged.failed = _first(merged.failed, branches.failed)
            try:
                for level, index, part in branches.nodes:
                    total.take(index, part, level=level)
            except Exception as error:  # noqa: BLE001 - as above
                merged.failed = _first(merged.failed, (branches.seen[0][0], _portable(error)))
        merged.nodes = total.nodes()
        return merged


class Arrivals(Generic[T]):
    """Where a caller takes in what tasks found, in whatever order, once or more often.

    An error is raised when all earlier pieces are known to be good, so that it is that of the
    first piece that failed, whichever task ended first.
    """

    def __init__(self, pieces: int, add: Callable[[T, T], T], taken: Taken | None = None) -> None:
        """Expect so many pieces.

        Raises:
            UsageError: There is none.
        """
        self._total: Reduction[T] = Reduction(pieces, add)
        self._seen = np.zeros(pieces, dtype=bool)
        self._taken = taken
        self._failed: tuple[int, SordinoError] | None = None

    def take(self, found: Branches) -> None:
        """Take in what some tasks found.

        Raises:
            SordinoError: What refused a piece.
        """
        for level, index, part in found.nodes:
            self._total.take(index, part, level=level)
        for first, last in found.seen:
            self._seen[first:last] = True
        self._failed = _first(self._failed, found.failed)
        if self._failed is not None and self._seen[: self._failed[0]].all():
            raise self._failed[1]
        if self._taken is not None:
            self._taken(int(self._seen.sum()), len(self._seen))

    def result(self) -> T:
        """Return the sum.

        Raises:
            SordinoError: What refused a piece.
            EngineError: A part never came.
        """
        if self._failed is not None:
            raise self._failed[1]
        return self._total.result()


def _first(
    one: tuple[int, SordinoError] | None, other: tuple[int, SordinoError] | None
) -> tuple[int, SordinoError] | None:
    """Return the problem of the earlier piece."""
    if one is None or other is None:
        return other if one is None else one
    return other if other[0] < one[0] else one


def _portable(error: Exception) -> SordinoError:
    """Return an error that can be sent and shown: ours as it is, of others the kind alone.

    The message of another library's error may quote what it was given.
    """
    if isinstance(error, SordinoError):
        try:
            again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        except Exception:  # noqa: BLE001 - a kind of error that cannot be sent
            again = None
        if isinstance(again, SordinoError):
            return again
    return EngineError(
        f"A task failed with {type(error).__name__}. Nothing was released. If it is MemoryError, "
        "give the tasks more memory; else leave the engine out, and see where it fails."
    )
