"""Files are written whole or not at all, by one run at a time, and refused in one wording."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import math
import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from sordino._random import clock, new_release_id
from sordino._validate import refuse_special
from sordino.errors import DataError, FileSystemError, UsageError

_CHUNK = 1 << 20
SQLITE = b"SQLite format 3\0"
"""How an SQLite database begins, as ledgers do."""

IN_TURN = threading.RLock()
"""Held by whoever opens a ledger in this process, to read its bytes or to query it."""
# When a process closes a file, POSIX takes back every lock that it has on it, SQLite's own too:
# another process would then take away the log in which this one is writing what it spends.


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an operating-system error into ours; ``what`` names the thing and the attempt."""
    try:
        yield
    except (FileSystemError, BrokenPipeError):
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
    else:
        return
    raise FileSystemError(f"{what} ({reason}). Nothing half-written was left behind.")


def refuse_existing(path: Path, *, force: bool, spends: bool = False) -> None:
    """Refuse to overwrite unless asked to, and never overwrite a ledger, or what is no file."""
    # Whoever would pay for it again is not told how to overwrite it.
    if not os.path.lexists(path):
        return
    refuse_special(path, links=not force)
    if not force:
        ways = (
            "No interrupted run of this command is left to finish. To draw anew, which spends "
            "anew, choose another name."
            if spends
            else "Choose another name, or pass --force to overwrite it."
        )
        raise UsageError(f"{path.name} exists already. Nothing was done. {ways}")
    with suppress(OSError), IN_TURN, path.open("rb") as file:
        if file.read(len(SQLITE)) == SQLITE:
            raise UsageError(
                f"{path.name} is a ledger or another database, which --force does not overwrite. "
                "Nothing was done. Choose another name."
            )


def refuse_output(path: Path, *, force: bool, spends: bool = False) -> None:
    """Refuse to write a file where :func:`refuse_existing` would, or where a folder is."""
    if path.name in {"", ".."}:
        raise UsageError(f"{path} is a folder. Nothing was done. Give the name of a file.")
    if os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError(f"{path.name} is a folder; give the name of a file.")
    refuse_existing(path, force=force, spends=spends)


def clear(path: Path, *, force: bool) -> None:
    """Take away what is overwritten, looked at once more; call it with the name held."""
    refuse_output(path, force=force)
    if force:
        path.unlink(missing_ok=True)


def lock_taken(handle: int) -> bool:
    """Return whether this process now holds the lock of an open file; it ends with the process."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def sole_holder(path: Path, what: str, refusal: str, *, patience: float = 0) -> Iterator[None]:
    """Hold a name for as long as the context is open; others are waited for so many seconds."""
    # The operating system lets go of it with the process, however that dies. The file for it goes
    # at the end; one that a killed run left holds nothing.
    handle, until = None, clock() + patience
    with explained(what):
        while (handle := _held(path)) is None and clock() < until:
            threading.Event().wait(0.05)
    if handle is None:
        raise FileSystemError(refusal)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _held(path: Path) -> int | None:
    """Return the open file whose lock is now held here; None if another process holds it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        held = False
        try:
            if not lock_taken(handle):
                return None
            held = _is_there(path, handle)
            if held:
                return handle
        finally:
            if not held:
                os.close(handle)


def _is_there(path: Path, handle: int) -> bool:
    """Return whether an open file still has its name: whoever held it before took it away."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


def refuse_unwritable(path: Path) -> None:
    """Refuse a name that no file can be written under, before anything is spent on it."""
    with _drafted(path):
        pass


class Draft:
    """A file that is being written beside its final name."""

    def __init__(self, path: Path) -> None:
        """Choose its name; :meth:`open` makes it, so that no interruption can leave it behind."""
        self.path = path.with_name(f".{path.name}.{new_release_id()}.partial")
        self._packs = path.suffix == ".gz"
        self._raw: BinaryIO | None = None
        self._packed: gzip.GzipFile | None = None

    def open(self) -> None:
        """Make the file; a final name that ends in ``.gz`` is compressed, with no time stamp."""
        self._raw = self.path.open("xb")
        if self._packs:
            self._packed = gzip.GzipFile("", "wb", fileobj=self._raw, mtime=0)

    @property
    def file(self) -> BinaryIO:
        """Return where to write."""
        return cast("BinaryIO", self._packed or self._raw)

    def finish(self) -> None:
        """Make everything written so far complete and durable."""
        if self._raw is None or self._raw.closed:
            return
        if self._packed:
            self._packed.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()

    def abandon(self) -> None:
        """Close and remove it, without caring for the content; a full disk may refuse to close."""
        if self._raw is not None:
            with suppress(OSError):
                self._raw.close()
        self.path.unlink(missing_ok=True)


@contextmanager
def _drafted(path: Path) -> Iterator[Draft]:
    """Yield a draft of a file, which is gone afterwards unless it got its name."""
    with explained(f"{path.name} cannot be written"):
        draft = Draft(path)
        try:
            draft.open()
            yield draft
        finally:
            draft.abandon()


@contextmanager
def atomic_draft(path: Path, *, force: bool = False, held: bool = True) -> Iterator[Draft]:
    """Yield a draft that appears under its name, complete and durable, only on success."""
    refuse_output(path, force=force)
    name = _held_name(path) if held else nullcontext()
    with explained(f"{path.name} cannot be written"), name:
        refuse_existing(path, force=force)  # whoever held the name before may have written it
        with _drafted(path) as draft:
            yield draft
            draft.finish()
            refuse_existing(path, force=force)
            _show(draft.path, path, force=force)


@contextmanager
def _held_name(path: Path) -> Iterator[None]:
    """Hold the name of an output, and tidy beside it what nobody writes any more."""
    busy = (
        f"Another run is writing {path.name}. Nothing was done. Try again when it is done, or "
        "choose another name."
    )
    lock = path.with_name(f".{path.name}.lock")
    with sole_holder(lock, f"{path.name} cannot be written", busy):
        head, tail = f".{path.name}.", ".partial"
        for name in os.listdir(path.parent):  # noqa: PTH208 (names are wanted)
            # A random id stands between: drafts of this name alone, all of them without a writer.
            if name.startswith(head) and name.endswith(tail):
                between = name[len(head) : -len(tail)]
                if between.isalnum():
                    path.with_name(name).unlink(missing_ok=True)
        yield


def _show(made: Path, path: Path, *, force: bool) -> None:
    """Give a finished draft its name; without ``force`` never in place of another file."""
    if force:
        made.replace(path)
        return
    try:
        os.link(made, path)
    except FileExistsError:
        refuse_existing(path, force=False)
        raise
    except OSError:  # a file system without hard links; the name is held, and was looked at
        made.replace(path)


@contextmanager
def atomic_writer(path: Path, *, force: bool = False, held: bool = True) -> Iterator[BinaryIO]:
    """Yield a binary file that appears only on success; all else as :func:`atomic_draft`."""
    with atomic_draft(path, force=force, held=held) as draft:
        yield draft.file


@contextmanager
def written_once(path: Path) -> Iterator[Draft]:
    """Yield a draft that gets its name, complete and durable, only if nobody was faster."""
    # What stands under the name then was written by one writer, this or another, and stays: of
    # several attempts at the same work only one can be seen.
    with _drafted(path) as draft:
        yield draft
        draft.finish()
        with suppress(FileExistsError):
            os.link(draft.path, path)
        settle(path.parent)


def settle(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write UTF-8 text whole or not at all; errors as in :func:`atomic_draft`."""
    with atomic_writer(path, force=force) as file:
        file.write(text.encode())


def finite(value: object) -> Any:
    """Return a value for JSON in which every number that is not finite has become null."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: object) -> str:
    """Return indented JSON that ends with a line feed."""
    return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def write_json(path: Path, value: object, *, force: bool = False) -> None:
    """Write indented JSON whole or not at all; errors as in :func:`atomic_draft`."""
    write_text(path, to_json(value), force=force)


def parsed(text: str | bytes) -> Any:
    """Return JSON in which no name stands twice, and every number is one; else ValueError."""
    # Which of two counts, and what NaN is compared with, would be a guess.

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(value := dict(pairs)) != len(pairs):
            raise ValueError
        return value

    return json.loads(text, object_pairs_hook=once, parse_constant=int)  # int refuses constants


def read_json(path: Path, *, kind: str, version: int, problem: str) -> dict[str, Any]:
    """Return a JSON object of one of our formats."""
    with explained(f"{path.name} cannot be read"):
        raw = path.read_bytes()
    try:
        value = parsed(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping) or value.get("format") != kind:
        raise DataError(f"{problem}: {path.name} is not a {kind} file.")
    found = value.get("version")
    if type(found) is not int or found < 1:
        raise DataError(f"{problem}: {path.name} has no version number.")
    if found > version:
        raise DataError(
            f"{problem}: {path.name} was written by a newer sordino (this one reads up to version "
            f"{version}). Upgrade sordino."
        )
    return dict(value)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a released file, in hexadecimal; never call it on raw data."""
    digest = hashlib.sha256()
    with explained(f"{path.name} cannot be read"), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


UNPACKING_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


def beginning(path: Path, size: int) -> bytes:
    """Return the first plain bytes of a file; none of one that cannot be read."""
    with suppress(OSError, *UNPACKING_ERRORS), IN_TURN, path.open("rb") as file:
        return (gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file).read(size)
    return b""
