"""One sum over many chunks, and the engine that has it computed.

Whatever is learned from data too large for memory is a sum over chunks of it. An engine says where
the parts are computed and nothing else: no noise is drawn in a task, so that a task may be lost,
run again or run twice without anybody noticing. The order of addition depends on the number of
chunks alone. A matrix whose rows are in many files is never in memory, and sums over its rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Protocol, TypeVar, runtime_checkable

from sordino.errors import UsageError

T = TypeVar("T")


def added_in_pairs(parts: Iterable[T], add: Callable[[T, T], T]) -> list[tuple[int, T]]:
    """Return sums of 2^level parts with their levels, as in a binary counter: longest first."""
    sums: list[tuple[int, T]] = []
    for total in parts:
        level = 0
        while sums and sums[-1][0] == level:
            total, level = add(sums.pop()[1], total), level + 1  # noqa: PLW2901
        sums.append((level, total))
    return sums


def tree_sum(parts: Iterable[T], add: Callable[[T, T], T]) -> T:
    """Return the sum of parts in a fixed binary tree: neighbors first, then those of their sums."""
    # Sums of floats depend on the order of addition, and that on the number of parts alone. Memory
    # holds one sum for each level.
    sums = [total for _, total in added_in_pairs(parts, add)]
    if not sums:
        raise UsageError("There is no piece of data to add up.")
    return reduce(lambda later, earlier: add(earlier, later), reversed(sums))


Taken = Callable[[int, int], None]
"""Called with (chunks done, chunks in all)."""


@runtime_checkable
class Engine(Protocol):
    """What computes sums over chunks; an object with this one method is one.

    Guarantee:
        None. A task must give the same result however often it is run. So it draws no noise of a
        release, which only the caller does, once; and one that draws coins of single labels keeps
        for good what it drew first, so that whoever comes later finds it.
    """

    def fold(
        self,
        chunks: Sequence[Any],
        task: Callable[[Any], T],
        add: Callable[[T, T], T],
        *,
        taken: Taken | None = None,
    ) -> T:
        """Return the sum of ``task(chunk)`` over all chunks.

        The parts are added in their order, as :func:`~sordino.engines.engine.tree_sum` does: so
        every engine returns the same bits, if its machines compute the same.

        Args:
            chunks: At least one; small, and made of what can be pickled.
            task: From a chunk to its part; may be run more than once, anywhere.
            add: From two parts to their sum; it may change and return the first.
            taken: Called as chunks are done.

        Raises:
            UsageError: There is no chunk.
            SordinoError: What a task raised: that of the first chunk that failed.
        """


class InProcess:
    """The engine that needs nothing: one chunk after the other, here.

    Memory holds one chunk and a part for each level of the tree.

    Guarantee:
        None; see :class:`Engine`.

    Example:
        >>> InProcess().fold(range(5), lambda chunk: chunk**2, lambda one, other: one + other)
        30
    """

    def fold(
        self,
        chunks: Sequence[Any],
        task: Callable[[Any], T],
        add: Callable[[T, T], T],
        *,
        taken: Taken | None = None,
    ) -> T:
        """Return the sum over all chunks, as :meth:`Engine.fold` says."""

        def parts() -> Iterator[T]:
            for done, chunk in enumerate(chunks, start=1):
                yield task(chunk)
                if taken is not None:
                    taken(done, len(chunks))

        return tree_sum(parts(), add)

    def __repr__(self) -> str:
        return "InProcess()"


def refuse_other_engines(engine: object) -> None:
    """Refuse what cannot compute sums."""
    if isinstance(engine, type) or not isinstance(engine, Engine):
        raise UsageError(
            f"engine must be InProcess(), RayData(...) or an object with a method fold, got "
            f"{getattr(engine, '__name__', None) or type(engine).__name__}."
        )


@dataclass(frozen=True, repr=False, eq=False)
class Rows:
    """Rows of d numbers in chunks: of memory one, of files many, which an engine reads."""

    # Only `fold` reads what stands in files. Where memory holds the rows, `held` is them.

    engine: Engine  # where they are read
    chunks: Sequence[Any]  # what they are read from
    # From a chunk to its blocks: (number of the first row, rows, whatever else belongs to them),
    # each small enough for memory. The same chunk always gives the same blocks.
    read: Callable[[Any], Iterable[tuple[Any, ...]]]
    shape: tuple[int, ...]  # (n, d); (n,) of one number each
    taken: Taken | None = None  # called as chunks are done
    held: Any = None  # the rows themselves, dense or sparse, where memory holds them

    @classmethod
    def of(cls, rows: Any, *beside: object) -> Rows:
        """Return rows in memory, with whatever else belongs to each; rows stay as they are."""
        if isinstance(rows, Rows):
            return rows
        block = (0, rows, *beside)
        return cls(InProcess(), (block,), lambda one: (one,), rows.shape, held=rows)

    def turned(self, turn: Callable[[Any], Any], width: int | None = None) -> Rows:
        """Return what is made of each row: so many numbers, as many as before if not said."""
        if self.held is not None:
            return Rows.of(turn(self.held), *self.chunks[0][2:])
        shape = self.shape[0], self.shape[1] if width is None else width
        return replace(self, read=partial(_turned, self.read, turn), shape=shape)

    def __repr__(self) -> str:
        return f"Rows(shape={self.shape})"

    def fold(self, task: Callable[..., T], add: Callable[[T, T], T]) -> T:
        """Return the sum of ``task(*block)`` over all blocks."""
        added = partial(_added, add)
        of_blocks = partial(_of_blocks, self.read, task, added)
        total: T | None = self.engine.fold(self.chunks, of_blocks, added, taken=self.taken)
        if total is None:
            raise UsageError("There is no row to add up.")
        return total


# What an engine is given can be pickled: these functions, and what they are bound to.
_Read = Callable[[Any], Iterable[tuple[Any, ...]]]


def _turned(read: _Read, turn: Callable[[Any], Any], chunk: object) -> Iterator[tuple[Any, ...]]:
    for first, block, *beside in read(chunk):
        yield first, turn(block), *beside


def _of_blocks(
    read: _Read, task: Callable[..., Any], added: Callable[..., Any], chunk: object
) -> Any:
    """Return the sum of a task over the blocks of a chunk; None where it has none."""
    return reduce(added, (task(*block) for block in read(chunk)), None)


def _added(add: Callable[[T, T], T], one: T | None, other: T | None) -> T | None:
    """Return the sum of two parts of which one may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return add(one, other)
