"""Several processes that train as one: who draws, who clips whom, and whose error is everybody's.

Every process holds all units and a copy of the model. The first one alone draws who takes part,
draws the noise, writes the ledger and the checkpoints; the others clip the gradients of their
share, and take its word for everything else.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from torch import distributed

from sordino.errors import EngineError, UsageError

__all__ = ["Processes"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Processes:
    """The processes that train one model together, as one of them sees them.

    With one process nothing here does anything but the work that it is given.

    Args:
        number: Which of them this is; 0 is the first.
        count: How many there are.
    """

    number: int = 0
    count: int = 1

    @classmethod
    def here(cls) -> Processes:
        """Return the processes that ``torchrun`` or ``accelerate launch`` started with this one."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def is_first(self) -> bool:
        """Return whether this is the process that draws, pays and writes."""
        return self.number == 0

    @property
    def several(self) -> bool:
        """Return whether there are others."""
        return self.count > 1

    def share(self, numbers: Iterable[int]) -> list[int]:
        """Return the units that this process clips: theirs is decided by nothing but their number.

        Args:
            numbers: Of units, in the order of the data.

        Example:
            >>> [Processes(at, 2).share([0, 3, 4, 8]) for at in range(2)]
            [[0, 4, 8], [3]]
        """
        return [one for one in numbers if one % self.count == self.number]

    def from_first(self, what: str, work: Callable[[], Result]) -> Result:
        """Return what some work gives, done by the first process alone and told to all others.

        Args:
            what: Names the work: processes that are at different places must not take one thing
                for another.
            work: Not called in any other process, so that it may draw and pay.

        Raises:
            Exception: That of the first process, in every process.
            EngineError: A process is gone, or at another place.
        """
        if not self.several:
            return work()
        outcome = _tried(work) if self.is_first else None
        told = [None if outcome is None else (what, *outcome.portable())]
        with _heard():
            distributed.broadcast_object_list(told, src=0)
        place, *heard = cast("tuple[Any, ...]", told[0])
        if place != what:
            raise EngineError(
                f"The processes of this run are at different places: one at {what!r}, the first at "
                f"{place!r}. What was reserved stays on the ledger. Start all of them again."
            )
        own: _Outcome[Result] = outcome or _Outcome(*heard)
        return own.taken()

    def together(self, work: Callable[[], Result]) -> Result:
        """Return what some work gives, done by every process, if it succeeds in all of them.

        Nobody goes on before all are done. If it fails anywhere, the first failure is raised
        everywhere: who went on alone would wait forever.

        Args:
            work: Called in every process; it must not wait for the others.

        Raises:
            Exception: That of the first process in which it failed, in every process.
            EngineError: A process is gone.
        """
        outcome = _tried(work)
        if self.several:
            errors = dict(enumerate(self._gathered(outcome.portable()[1])))
            failed = next((number for number, error in errors.items() if error), self.number)
            if failed != self.number:
                raise errors[failed]
        return outcome.taken()

    def refuse_differences(self, **digests: str) -> None:
        """Refuse processes that do not see the same: no number and no digest is said.

        Args:
            digests: Of what all of them should see, by name.

        Raises:
            UsageError: Something differs, in every process.
            EngineError: A process is gone.
        """
        if not self.several:
            return
        seen = self._gathered(digests)
        differ = [name for name in digests if len({one[name] for one in seen}) > 1]
        if differ:
            raise UsageError(
                f"The processes of this run see different {' and '.join(differ)}. It ends here, "
                "and nothing more was drawn. Give all of them the same model, pairs and settings."
            )

    def add_up(self, sums: Iterable[Any]) -> None:
        """Leave in every process the sums of all, in place.

        Args:
            sums: Whole numbers, so that no order of addition shows; tensors of the same shapes
                in the same order everywhere. What each process adds must be clipped before.

        Raises:
            EngineError: A process is gone.
        """
        if self.several:
            with _heard():
                for one in sums:
                    distributed.all_reduce(one)

    def copy_first(self, sums: Iterable[Any]) -> None:
        """Replace tensors in every process by those of the first, bit by bit.

        Args:
            sums: Tensors of the same shapes in the same order everywhere.

        Raises:
            EngineError: A process is gone.
        """
        if self.several:
            with _heard():
                for one in sums:
                    distributed.broadcast(one, src=0)

    def _gathered(self, one: Any) -> list[Any]:
        """Return what every process says, in the order of their numbers."""
        found: list[Any] = [None] * self.count
        with _heard():
            distributed.all_gather_object(found, one)
        return found


@dataclass(frozen=True)
class _Outcome(Generic[Result]):
    """What some work gave, or how it failed."""

    result: Result | None
    error: Exception | None = None

    def taken(self) -> Result:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return cast("Result", self.result)

    def portable(self) -> tuple[Result | None, Exception | None]:
        """Return both as another process can read them."""
        return self.result, None if self.error is None else _portable(self.error)


def _tried(work: Callable[[], Result]) -> _Outcome[Result]:
    """Return how some work went."""
    try:
        return _Outcome(work())
    except Exception as error:  # noqa: BLE001 (it is raised in every process)
        return _Outcome(None, error)


def _portable(error: Exception) -> Exception:
    """Return an error of the same type and message that another process can read."""
    try:
        same = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    except Exception:  # noqa: BLE001 (a foreign error may do anything)
        same = None
    if type(same) is type(error) and str(same) == str(error):
        return same
    return EngineError(f"Another process of this run failed: {type(error).__name__}: {error}")


@contextmanager
def _heard() -> Iterator[None]:
    """Say in our words that another process did not answer."""
    try:
        yield
    except RuntimeError as error:
        raise EngineError(
            "Another process of this run is gone, or did not answer in time. What was reserved "
            "stays on the ledger. Start all of them again, with resume_from_checkpoint=True if "
            "there is a checkpoint."
        ) from error
