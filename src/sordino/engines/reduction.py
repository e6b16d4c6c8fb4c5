"""A sum of many parts whose shape depends on their number alone, whatever order they come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sordino.errors import EngineError, UsageError

__all__ = ["Node", "Reduction"]

T = TypeVar("T")

Node = tuple[int, int, T]
"""(level, index, sum): the sum of parts index·2^level up to the next one's first."""


class Reduction(Generic[T]):
    """Parts added up in a fixed binary tree: neighbors first, then neighbors of their sums.

    Sums of floats depend on the order of addition, so the order must not depend on which task
    ended first. Parts may come in any order, or as sums of whole branches; what can be added is
    added at once. A part that comes a second time (a task that was run twice) is left out, and so
    are parts of a branch that comes as a whole later.

    Example:
        >>> total = Reduction(3, lambda one, other: f"({one}{other})")
        >>> for index in (2, 0, 1):
        ...     total.take(index, "abc"[index])
        >>> total.result()
        '((ab)c)'
    """

    def __init__(self, parts: int, add: Callable[[T, T], T]) -> None:
        """Expect so many parts.

        Raises:
            UsageError: There is none.
        """
        if parts < 1:
            raise UsageError("There is no piece of data to add up.")
        self._parts = parts
        self._add = add
        self._waiting: dict[tuple[int, int], T] = {}

    def take(self, index: int, part: T, *, level: int = 0) -> None:
        """Take one part, or the sum of a whole branch, and add what can be added.

        Raises:
            EngineError: There is no such part.
        """
        if not (level >= 0 and 0 <= index < -(-self._parts // 2**level)):
            raise EngineError("The engine returned a part that it was not asked for.")
        if self._is_in(level, index):
            return
        self._leave_out_below(level, index)
        while True:
            width = -(-self._parts // 2**level)  # nodes of this level
            if width == 1:
                break
            if index == width - 1 and index % 2 == 0:  # the last one has no neighbor
                level, index = level + 1, index // 2
                continue
            if (level, index ^ 1) not in self._waiting:
                break
            neighbor = self._waiting.pop((level, index ^ 1))
            part = self._add(neighbor, part) if index % 2 else self._add(part, neighbor)
            level, index = level + 1, index // 2
        self._waiting[level, index] = part

    def _is_in(self, level: int, index: int) -> bool:
        """Return whether a branch that holds this one was taken already."""
        while 2**level < 2 * self._parts:
            if (level, index) in self._waiting:
                return True
            level, index = level + 1, index // 2
        return False

    def _leave_out_below(self, level: int, index: int) -> None:
        """Forget parts of a branch that came as a whole."""
        if level:
            for below, at in list(self._waiting):
                if below < level and at >> (level - below) == index:
                    del self._waiting[below, at]

    def nodes(self) -> list[Node[T]]:
        """Return what was added so far, as branches that another reduction can take."""
        return [(level, index, part) for (level, index), part in self._waiting.items()]

    def result(self) -> T:
        """Return the sum of all parts.

        Raises:
            EngineError: A part never came.
        """
        found = self.nodes()
        if len(found) != 1 or -(-self._parts // 2 ** found[0][0]) != 1:
            raise EngineError(
                "A part of the sum is missing: the engine lost a task. Nothing was released."
            )
        return found[0][2]
