"""Sums computed by Ray Data, on this machine or on a cluster; the only file that knows Ray.

What Ray leaves in a process and on a disk while it runs here is removed afterwards, and whether
something answers at an address is found out in seconds and without joining it. Tasks elsewhere are
given stretches of chunks, and send back branches of the sum.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from sordino import _random, _validate
from sordino.errors import EngineError, SordinoError, UsageError, modules_of_extra

from .engine import Taken, tree_sum
from .exchange import passing_folder

_LONGEST: Final = 40  # characters: with what Ray adds, names of sockets stay below 104
_SETTINGS: Final = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@contextmanager
def _own_token() -> Iterator[None]:
    """Have Ray ask for a token that only its own processes know, unless the user chose one."""
    # Ray listens on the network; by default it would write a token into the user's home.
    if any(name in os.environ for name in _SETTINGS):
        yield
        return

    ray = _library()

    def forget() -> None:  # where this version of Ray remembers its settings
        with suppress(AttributeError, TypeError):
            ray._raylet.Config.initialize("")  # noqa: SLF001
            ray._raylet.AuthenticationTokenLoader.instance().reset_cache()  # noqa: SLF001

    os.environ["RAY_AUTH_TOKEN"] = _random.new_secret().hex()
    forget()
    try:
        yield
    finally:
        for name in _SETTINGS:
            os.environ.pop(name, None)
        forget()


@contextmanager
def _same_signals() -> Iterator[None]:
    """Restore what happens on a request to end: while Ray runs, it is an orderly exit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


_PATIENCE: Final = 5.0  # seconds
_FRAME: Final = 9  # bytes that every frame of HTTP/2 begins with
# What opens HTTP/2, and a frame of no settings; all that Ray says to others is HTTP/2.
_OPENING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_ADDRESS_SETTINGS: Final = 4  # the kind of frame that must come first


def answers(address: str) -> bool:
    """Return whether what listens at host:port speaks as Ray does."""
    # Ray itself would try for minutes where nothing listens, or something else does. With TLS it is
    # enough that something listens.
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return False
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as place:
            if os.environ.get("RAY_USE_TLS", "0").lower() in {"1", "true"}:
                return True
            place.sendall(_OPENING)
            received, end = b"", _random.clock() + _PATIENCE
            while len(received) < _FRAME and (left := end - _random.clock()) > 0:
                place.settimeout(left)
                if not (more := place.recv(_FRAME - len(received))):
                    break
                received += more
            return received[3:4] == bytes([_ADDRESS_SETTINGS])
    except (OSError, UnicodeError):  # a name that cannot be a host's
        return False


T = TypeVar("T")

_LONGEST_BRANCH = 8  # chunks; a power of two, as all lengths are, so that a stretch is one branch


def _stretches(chunks: Sequence[Any], least: int) -> list[tuple[Any, ...]]:
    """Return all chunks, in stretches that are branches of the tree of a sum."""
    length = _LONGEST_BRANCH
    while length > 1 and -(-len(chunks) // length) < least:
        length //= 2
    starts = range(0, len(chunks), length)
    return [tuple(chunks[first : first + length]) for first in starts]


def _summed(
    task: Callable[[Any], T], add: Callable[[T, T], T], block: dict[str, Any]
) -> dict[str, list[bytes]]:
    """Add up the parts of a stretch, in the form of Ray Data: from a block of rows to one row."""
    # An error is returned and not raised: an engine would try again, and would write down more of
    # it than its message.
    [packed] = block["stretch"]
    number, stretch = pickle.loads(packed)  # noqa: S301 - our own
    try:
        found = pickle.dumps((number, tree_sum(map(task, stretch), add), None))
    except Exception as error:  # noqa: BLE001 - it must not reach the engine's logs
        found = pickle.dumps((number, None, _portable(error)))
    return {"found": [found]}


def _in_turn(
    found: Iterable[bytes], stretches: Sequence[Sequence[Any]], taken: Taken | None
) -> Iterator[Any]:
    """Yield what stretches add up to in their order and each once, whichever task ended first."""
    # So an error is that of the first chunk that failed.
    waiting: dict[int, tuple[Any, SordinoError | None]] = {}
    turn = done = 0
    for packed in found:
        number, part, failed = pickle.loads(packed)  # noqa: S301 - our own
        waiting[number] = part, failed
        while turn in waiting:
            part, failed = waiting.pop(turn)
            if failed is not None:
                raise failed
            yield part
            done, turn = done + len(stretches[turn]), turn + 1
            if taken is not None:
                taken(done, sum(map(len, stretches)))
    if turn < len(stretches):
        raise EngineError(
            "A part of the sum is missing: the engine lost a task. Nothing was released."
        )


def _portable(error: Exception) -> SordinoError:
    """Return an error that can be sent and shown: ours as it is, of others the kind alone."""
    # The message of another library's error may quote what it was given.
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


_TASKS: Final = 16  # for each core, so that a lost or slow one delays little
_TRIES: Final = 20  # of one task; what kills its worker so often is no accident
_STORE: Final = 1 << 28  # bytes of Ray's object store on this machine alone: it holds sums
_FIRST: Final = 60.0  # seconds until a cluster has done next to nothing
_STILLNESS: Final = 6 * 3600.0  # seconds without a task that ends, after which Ray gives up
_SILENT: Final = {"log_to_driver": False, "logging_level": "CRITICAL"}


class RayData:
    """An engine on Ray: chunks are read and added up by its workers.

    Tasks draw nothing, so that Ray may run them again, or twice. Records pass through the memory
    of workers and never through Ray's object store or its logs: names of files go in, with what
    is public of a task, and only what tasks return comes out, which is sums, and for a fit some
    rows of the public vectors.

    Args:
        address: Of a running cluster that this machine belongs to, as host:port, or ``"auto"`` for
            the one that Ray finds; None starts Ray on this machine alone and stops it afterwards.
        cores: For Ray on this machine alone: how many to use; all if left out.

    Use it as a context, so that it starts once, and what it started is stopped::

        with RayData() as engine:
            ...

    Guarantee:
        None; see :class:`~sordino.engines.engine.Engine`.
    """

    def __init__(self, address: str | None = None, *, cores: int | None = None) -> None:
        """Keep the settings; nothing is started yet."""
        _library()
        if address is not None and (not isinstance(address, str) or not address):
            raise UsageError('address must be "auto", or host:port of a Ray cluster, or left out.')
        if address is not None and cores is not None:
            raise UsageError("cores is for Ray on this machine alone: leave it out with address.")
        if cores is not None:
            cores = _validate.integer("cores", cores, at_least=1)
        self._address, self._cores = address, cores
        self._depth = 0
        self._stack = ExitStack()

    def __repr__(self) -> str:
        return f"RayData(address={self._address!r}, cores={self._cores!r})"

    def __enter__(self) -> Self:
        if self._depth == 0:
            self._stack = _joined(self._address) if self._address else _started(self._cores)
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._stack.close()

    def fold(
        self,
        chunks: Sequence[Any],
        task: Callable[[Any], T],
        add: Callable[[T, T], T],
        *,
        taken: Taken | None = None,
    ) -> T:
        """Return the sum over all chunks, as :meth:`~sordino.engines.engine.Engine.fold` says.

        Raises:
            UsageError: The address does not answer.
            EngineError: A task raised what is not ours, or Ray gave up.
        """
        if not len(chunks):
            return tree_sum((), add)  # refuses
        with self, _quietly():
            stretches = _stretches(chunks, _TASKS * _cores())
            with closing(_rows(stretches, task, add)) as found:
                total: T = tree_sum(_in_turn(found, stretches, taken), add)
                return total


def _cores() -> int:
    """Return how many cores Ray has here."""
    cores = int(_library().cluster_resources().get("CPU", 0))
    if cores < 1:
        raise EngineError(
            "The Ray cluster has no core to compute on. Nothing was read. Start a worker on it."
        )
    return cores


def _rows(
    stretches: Sequence[Sequence[Any]], task: Callable[[Any], T], add: Callable[[T, T], T]
) -> Generator[bytes]:
    """Yield what tasks found, as they end."""
    ray = _library()
    try:
        items = [{"stretch": pickle.dumps(each)} for each in enumerate(stretches)]
        found = ray.data.from_items(items, override_num_blocks=len(items))
        work = partial(_summed, task, add)
        for row in found.map_batches(work, batch_size=1, max_retries=_TRIES).iter_rows():
            yield row["found"]
    except Exception as error:  # noqa: BLE001 - Ray's own are of many kinds
        problem = type(error).__name__
    else:
        return
    raise EngineError(
        f"Ray gave up ({problem}). Nothing was released. See that every machine reaches the files "
        "and has memory left, and run it again."
    )


def _started(cores: int | None) -> ExitStack:
    """Start Ray on this machine alone, and return what stops it and removes what it wrote."""
    ray = _library()
    if ray.is_initialized():
        raise UsageError(
            "This process uses Ray already, perhaps on other machines. Nothing was read. Give "
            'address="auto" to compute there, or call ray.shutdown() first.'
        )
    problem = None
    with ExitStack() as stack:
        stack.enter_context(_same_signals())
        stack.enter_context(_unheard())
        # Ray opens the folder that it is given to everybody, and in it the way into its object
        # store: so it gets one inside another that only this user can enter.
        usual = tempfile.gettempdir()
        where = usual if len(usual) <= _LONGEST else "/tmp"  # noqa: S108 - a new one in it
        folder = str(Path(stack.enter_context(passing_folder(where)), "r"))
        os.mkdir(folder)  # noqa: PTH102 (Ray wants a text)
        stack.enter_context(_own_token())
        stack.callback(ray.shutdown)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
        alone = {
            "include_dashboard": False,
            "object_store_memory": _STORE,
            "_temp_dir": str(folder),
        }
        try:
            with _quietly():  # "local" keeps it from joining a cluster that happens to run here
                ray.init(address="local", num_cpus=cores, **alone, **_SILENT)
        except Exception as error:  # noqa: BLE001 - Ray's own are of many kinds
            problem = type(error).__name__
        else:
            return stack.pop_all()
    raise EngineError(
        f"Ray did not start on this machine ({problem}). Nothing was read. See that memory and "
        "disk are left, or leave the engine out."
    )


def _joined(address: str) -> ExitStack:
    """Join a cluster, and return what leaves it."""
    ray = _library()
    place = refuse_silent_address(address)
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address == "auto" or place == here:
            return ExitStack()  # whoever joined it will leave it
        raise UsageError(
            f"This process uses Ray at {here} already. Nothing was read. Give that address, or "
            "call ray.shutdown() first."
        )
    with ExitStack() as stack:
        stack.enter_context(_same_signals())
        stack.enter_context(_unheard())
        stack.callback(ray.shutdown)
        problem = _problem_of_joining(address)
        if problem == ConnectionError.__name__:  # as while a machine has only just started Ray
            ray.shutdown()
            problem = _problem_of_joining(address)
        if problem is None:
            return stack.pop_all()
    raise UsageError(
        f"The Ray cluster at address={address!r} was not joined ({problem}). Nothing was read. "
        "Does this machine belong to it, with the same versions of Python and Ray? If the cluster "
        "asks for a token, set RAY_AUTH_MODE=token, else RAY_AUTH_MODE=disabled."
    )


def _problem_of_joining(address: str) -> str | None:
    """Join a cluster; return the kind of the error that kept this process from it, if one did."""
    ray = _library()
    try:
        with _quietly():
            ray.init(address=address, **_SILENT)
            # With a token that is not the cluster's, Ray would join and then wait forever.
            first = ray.remote(num_cpus=0)(_First).remote()
            ray.get(first.answer.remote(), timeout=_FIRST)
    except Exception as error:  # noqa: BLE001 - Ray's own are of many kinds
        return type(error).__name__
    return None


class _First:
    """Something that a cluster is asked to keep for a moment: Ray Data needs the same."""

    def answer(self) -> None:
        """Do nothing, elsewhere."""


def refuse_silent_address(address: str) -> str:
    """Return host:port of a cluster; refuse one where no cluster answers."""
    if "://" in address:
        raise UsageError(
            f"address={address!r} is for Ray's remote client, which is not used here. Nothing was "
            "read. Run this on a machine of the cluster, with address=auto or host:port."
        )
    ray, place = _library(), None
    if address == "auto" and ray.is_initialized():
        place = str(ray.get_runtime_context().gcs_address)
    else:
        try:
            from ray._private import services  # noqa: PLC0415 - an extra

            place = services.canonicalize_bootstrap_address(address, None)
        except (ConnectionError, ValueError):
            pass
        except (ImportError, AttributeError, TypeError):  # another version of Ray
            place = address
    if place is None or not answers(str(place)):
        raise UsageError(
            f"No Ray cluster answers at address={address!r}. Nothing was read. Start one "
            "(`ray start --head`), give its address, or leave the address out to use this machine."
        )
    return str(place)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep Ray from printing, and from warning about itself."""
    # Its progress bars count its own blocks, its logs name its own files, and whatever it gives up
    # for is in our error.
    ray = _library()
    calm: dict[str, Any] = {"enable_progress_bars": False}
    if "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S" not in os.environ:
        calm["execution_no_progress_timeout_s"] = _STILLNESS
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context = ray.data.DataContext.get_current()
        before = {name: getattr(context, name, None) for name in calm}
        for name, value in calm.items():
            setattr(context, name, value)
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            for name, value in before.items():
                setattr(context, name, value)


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep Ray from printing where our own output goes, each time that a worker is lost."""
    place = _library()._private.worker  # noqa: SLF001 - there is no setting for it
    before = getattr(place, "print_to_stdstream", None)
    if before is None:  # another version of Ray
        yield
        return
    place.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        place.print_to_stdstream = before


def _library() -> Any:
    need = "This needs Ray. Nothing was read."
    return modules_of_extra("scale", need, "ray", "ray.data")[0]
