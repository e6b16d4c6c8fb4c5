"""Sums computed by Ray Data, on this machine or on a cluster; the only file that knows Ray."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import socket
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from sordino import _validate
from sordino.engines.engine import Taken
from sordino.engines.reduction import Node, Reduction
from sordino.errors import EngineError, MissingExtra, SordinoError, UsageError

__all__ = ["RayData"]

T = TypeVar("T")

_TASKS = 16  # for each core, so that a lost or slow one delays little
_MERGED = 16  # tasks whose branches one task of the second stage adds up
_SHARE = 0.5  # of a core, for that
_STORE = 1 << 28  # bytes of Ray's object store on this machine alone: it holds names and sums
_PATIENCE = 5  # seconds


class RayData:
    """An engine on Ray: pieces are read and added up by its workers.

    Tasks draw nothing, so that Ray may run them again, or twice. Records pass through the memory
    of workers and never through Ray's object store or its logs: only names of files go in, and
    only sums come out.

    Args:
        address: Of a running cluster, or ``"auto"`` for the one that this machine belongs to;
            None starts Ray on this machine alone and stops it afterwards.
        cores: For Ray on this machine alone: how many to use; all if left out.

    Use it as a context, so that what it started is stopped::

        with RayData() as engine:
            ...

    Guarantee:
        None; see :class:`~sordino.engines.engine.Engine`.
    """

    def __init__(self, address: str | None = None, *, cores: int | None = None) -> None:
        """Keep the settings; nothing is started yet.

        Raises:
            MissingExtra: Ray is not installed.
            UsageError: A setting is out of range.
        """
        _library()
        if address is not None and cores is not None:
            raise UsageError("cores is for Ray on this machine alone: leave it out with address.")
        if cores is not None:
            cores = _validate.integer("cores", cores, at_least=1)
        self._address, self._cores = address, cores
        self._started = False
        self._folder: str | None = None

    def __repr__(self) -> str:
        """Return the settings."""
        return f"RayData(address={self._address!r}, cores={self._cores!r})"

    def __enter__(self) -> Self:
        """Connect, or start Ray on this machine.

        Raises:
            UsageError: The address does not answer.
        """
        ray = _library()
        if not ray.is_initialized():
            self._connect(ray)
            self._started = True
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the cluster; stop what was started here."""
        if self._started:
            self._disconnect(_library())
            self._started = False

    def fold(
        self,
        pieces: Sequence[Any],
        task: Callable[[Any], T],
        add: Callable[[T, T], T],
        *,
        taken: Taken | None = None,
    ) -> T:
        """Return the sum over all pieces, as :meth:`~sordino.engines.engine.Engine.fold` says.

        Raises:
            UsageError: There is no piece, or the address does not answer.
            SordinoError: What a task raised.
            EngineError: Ray gave up.
        """
        if not _library().is_initialized():
            with self:
                return self.fold(pieces, task, add, taken=taken)
        total = Reduction(len(pieces), add)
        done = 0
        with _quietly(), closing(_rows(pieces, task, add)) as rows:
            for row in rows:
                for level, index, part in _unpacked(row):
                    total.take(index, part, level=level)
                done += int(row["done"])
                if taken is not None:
                    taken(done, len(pieces))
        return total.result()

    def _connect(self, ray: Any) -> None:
        """Connect to the cluster, or start Ray here.

        Raises:
            UsageError: The address does not answer.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
        silent = {"log_to_driver": False, "logging_level": "ERROR"}
        if self._address is None:
            # Its own folder, because what Ray logs must go when Ray does.
            self._folder = tempfile.mkdtemp(prefix="sordino-")
            alone = {"include_dashboard": False, "object_store_memory": _STORE}
            with _quietly():
                ray.init(num_cpus=self._cores, _temp_dir=self._folder, **silent, **alone)
            return
        refuse_silent_address(self._address)
        try:
            with _quietly():
                ray.init(address=self._address, **silent)
        except (OSError, RuntimeError, ValueError):
            pass
        else:
            return
        raise UsageError(
            f"No Ray cluster answers at address={self._address!r}. Nothing was read. Start one "
            "(`ray start --head`), give its address, or leave the address out to use this machine."
        )

    def _disconnect(self, ray: Any) -> None:
        """Leave the cluster, or stop Ray here and remove what it wrote."""
        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


@dataclass(frozen=True)
class _Task:
    """What one Ray task does with the numbered pieces of its block: it adds up their parts.

    Attributes:
        task, add: As given by the caller.
        pieces: How many there are in all.
    """

    task: Callable[[Any], Any]
    add: Callable[[Any, Any], Any]
    pieces: int

    def __call__(self, block: dict[str, Any]) -> dict[str, list[Any]]:
        """Return one row: branches of the sum, or what refused a piece.

        An error is returned and not raised: Ray would try again, and would write down more of
        it than its message.
        """
        total: Reduction[Any] = Reduction(self.pieces, self.add)
        failed = None
        for index, piece in zip(block["index"], block["piece"], strict=True):
            try:
                total.take(int(index), self.task(pickle.loads(piece)))  # noqa: S301 - our own
            except SordinoError as error:
                failed = int(index), error
                break
        return _packed(total.nodes(), failed, len(block["index"]))


@dataclass(frozen=True)
class _Merge:
    """What a task of the second stage does: it adds up the branches of several tasks."""

    add: Callable[[Any, Any], Any]
    pieces: int

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[Any]]:
        """Return one row of fewer branches."""
        total: Reduction[Any] = Reduction(self.pieces, self.add)
        failed = None
        for packed in rows["found"]:
            nodes, problem = pickle.loads(packed)  # noqa: S301 - our own
            if problem is not None and (failed is None or problem[0] < failed[0]):
                failed = problem
            for level, index, part in nodes:
                total.take(index, part, level=level)
        return _packed(total.nodes(), failed, int(sum(rows["done"])))


def _packed(
    nodes: list[Node[Any]], failed: tuple[int, SordinoError] | None, done: int
) -> dict[str, list[Any]]:
    """Return a row of a block, as Ray Data keeps it."""
    return {"found": [pickle.dumps((nodes, failed))], "done": [done]}


def _unpacked(row: dict[str, Any]) -> list[Node[Any]]:
    """Return the branches of a row.

    Raises:
        SordinoError: What refused a piece.
    """
    nodes, failed = pickle.loads(row["found"])  # noqa: S301 - our own
    if failed is not None:
        raise failed[1]
    found: list[Node[Any]] = nodes
    return found


def _rows(
    pieces: Sequence[Any], task: Callable[[Any], Any], add: Callable[[Any, Any], Any]
) -> Generator[dict[str, Any]]:
    """Yield what tasks found, as they end.

    Raises:
        EngineError: Ray gave up.
    """
    ray = _library()
    items = [{"index": at, "piece": pickle.dumps(piece)} for at, piece in enumerate(pieces)]
    cores = int(ray.cluster_resources().get("CPU", 1))
    tasks = min(len(items), _TASKS * cores)
    found = ray.data.from_items(items, override_num_blocks=tasks)
    found = found.map_batches(_Task(task, add, len(items)), batch_size=None)
    if tasks > _MERGED**2:
        # another share of a core, so that Ray does not make one task of both
        merge = _Merge(add, len(items))
        found = found.map_batches(merge, batch_size=_MERGED, num_cpus=_SHARE)
    try:
        yield from found.iter_rows()
    except ray.exceptions.RayError as error:
        problem = type(error).__name__
    else:
        return
    raise EngineError(
        f"Ray gave up ({problem}). Nothing was released. See that every machine reaches the files "
        "and has memory left, and run it again."
    )


def refuse_silent_address(address: str) -> None:
    """Refuse an address of a machine and port where nothing listens.

    Raises:
        UsageError: Nothing answers within seconds, where Ray itself would wait for minutes.
    """
    place = address.removeprefix("ray://")
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit():
        return  # a word such as "auto"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError):
        pass
    else:
        return
    raise UsageError(
        f"Nothing answers at address={address!r}. Nothing was read. Is the cluster running, and "
        "may this machine reach it?"
    )


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep Ray from printing, and from warning about itself.

    Its progress bars count its own blocks, and its logs name its own files.
    """
    import ray.data  # noqa: PLC0415 - an extra

    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)


def _library() -> Any:
    """Return Ray.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray  # noqa: PLC0415 - an extra
            import ray.data  # noqa: PLC0415
    except ImportError:
        pass
    else:
        return ray
    raise MissingExtra(
        "This needs Ray. Nothing was read. Install it with: pip install 'sordino[scale]'"
    )
