"""One thread writes; what is waiting shares a transaction, so that one sync serves many people."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from sordino.collection.database import FAILURES, take_turn
from sordino.collection.logs import LOG
from sordino.collection.refusals import Refusal

__all__ = ["Job", "Writer"]

Job = Callable[[Connection], Any]
"""What is done inside a transaction: it checks first and writes last, and raises only before."""

_TOGETHER: Final = 256
_WAITING: Final = 4096
_WAIT: Final = 2  # seconds after which a page should try again


class Writer:
    """Does jobs in the order of their arrival, and acknowledges each when it is durable.

    Args:
        engine: The database.
    """

    def __init__(self, engine: Engine) -> None:
        """Keep the engine; :meth:`start` starts the thread."""
        self._engine = engine
        self._queue: queue.Queue[tuple[Job, Future[Any]] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, name="sordino-writer", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is waiting, and end."""
        self._queue.put(None)
        self._thread.join()

    def submit(self, job: Job) -> Future[Any]:
        """Return what will hold the result of a job once it is committed.

        The future raises what the job raised if that was a :class:`Refusal`, and ``Refusal`` with
        ``database-down`` if the database failed; then nothing of the job is stored.

        Raises:
            Refusal: Too much is waiting.
        """
        future: Future[Any] = Future()
        try:
            self._queue.put_nowait((job, future))
        except queue.Full:
            pass
        else:
            return future
        raise Refusal("database-down", wait=_WAIT)

    def _run(self) -> None:
        """Take what is waiting, together, until told to stop."""
        stopping = False
        while not stopping:
            taken = [self._queue.get()]
            with suppress(queue.Empty):
                while taken[-1] is not None and len(taken) < _TOGETHER:
                    taken.append(self._queue.get_nowait())
            stopping = taken[-1] is None
            if jobs := [one for one in taken if one is not None]:
                self._do(jobs)

    def _do(self, jobs: list[tuple[Job, Future[Any]]]) -> None:
        """Do jobs in one transaction, and tell of each only when all are durable."""
        outcomes: list[tuple[Any, BaseException | None]] = []
        try:
            with self._engine.begin() as connection:
                take_turn(connection)
                for job, _ in jobs:
                    outcomes.append(_outcome(job, connection))
        except IntegrityError as error:  # another process was faster with one of them
            if len(jobs) > 1:
                for one in jobs:
                    self._do([one])
                return
            outcomes = [(None, _down(error))]
        except FAILURES as error:
            outcomes = [(None, _down(error))] * len(jobs)
        except Exception as error:  # noqa: BLE001 (a bug must not end the only thread that writes)
            outcomes = [(None, error)] * len(jobs)
        for (_, future), (result, problem) in zip(jobs, outcomes, strict=True):
            if not future.set_running_or_notify_cancel():
                continue
            if problem is None:
                future.set_result(result)
            else:
                future.set_exception(problem)


def _down(error: BaseException) -> Refusal:
    """Return what a page is told whose answers could not be stored; the log has the kind."""
    LOG.warning("database", extra={"fields": {"problem": type(error).__name__}})
    return Refusal("database-down", wait=_WAIT)


def _outcome(job: Job, connection: Connection) -> tuple[Any, BaseException | None]:
    """Return the result of one job, or why it was refused; refusals write nothing."""
    try:
        return job(connection), None
    except Refusal as refusal:
        return None, refusal
