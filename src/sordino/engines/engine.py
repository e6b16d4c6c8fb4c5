"""One sum over many pieces, and the engine that has it computed.

Whatever is learned from data too large for memory is a sum over pieces of it. An engine says
where the parts are computed and nothing else: no noise is drawn in a task, so that a task may be
lost, run again or run twice without anybody noticing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from sordino.engines.reduction import Reduction
from sordino.errors import UsageError

__all__ = ["Engine", "InProcess", "Taken", "refuse_other_engines"]

T = TypeVar("T")

Taken = Callable[[int, int], None]
"""Called with (pieces done, pieces in all)."""


@runtime_checkable
class Engine(Protocol):
    """What computes sums over pieces; an object with this one method is one.

    Guarantee:
        None. A task must give the same result however often it is run. So it draws no noise of a
        release, which only the caller does, once; and one that draws coins of single labels keeps
        for good what it drew first, so that whoever comes later finds it.
    """

    def fold(
        self,
        pieces: Sequence[Any],
        task: Callable[[Any], T],
        add: Callable[[T, T], T],
        *,
        taken: Taken | None = None,
    ) -> T:
        """Return the sum of ``task(piece)`` over all pieces.

        The parts are added in the order and by the tree of
        :class:`~sordino.engines.reduction.Reduction`, which depend on the number of pieces alone:
        so every engine returns the same bits, if its machines compute the same.

        Args:
            pieces: At least one; small, and made of what can be pickled.
            task: From a piece to its part; may be run more than once, anywhere.
            add: From two parts to their sum; it may change and return the first.
            taken: Called as pieces are done.

        Raises:
            SordinoError: What a task raised: that of the first piece that failed.
        """
        ...


class InProcess:
    """The engine that needs nothing: one piece after the other, here.

    Memory holds one piece and a part for each level of the tree.

    Guarantee:
        None; see :class:`Engine`.

    Example:
        >>> InProcess().fold(range(5), lambda piece: piece**2, lambda one, other: one + other)
        30
    """

    def fold(
        self,
        pieces: Sequence[Any],
        task: Callable[[Any], T],
        add: Callable[[T, T], T],
        *,
        taken: Taken | None = None,
    ) -> T:
        """Return the sum over all pieces, as :meth:`Engine.fold` says.

        Raises:
            UsageError: There is no piece.
            SordinoError: What a task raised.
        """
        total = Reduction(len(pieces), add)
        for index, piece in enumerate(pieces):
            total.take(index, task(piece))
            if taken is not None:
                taken(index + 1, len(pieces))
        return total.result()

    def __repr__(self) -> str:
        """Return the kind."""
        return "InProcess()"


def refuse_other_engines(engine: object) -> None:
    """Refuse what cannot compute sums.

    Raises:
        UsageError: It has no method ``fold``, or it is a class and not an object.
    """
    if isinstance(engine, type) or not isinstance(engine, Engine):
        raise UsageError(
            f"engine must be InProcess(), RayData(...) or an object with a method fold, got "
            f"{getattr(engine, '__name__', None) or type(engine).__name__}."
        )
