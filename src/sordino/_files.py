"""Files are written whole or not at all, and refused in one wording."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from sordino._random import new_release_id
from sordino.errors import DataError, FileSystemError, UsageError

__all__ = [
    "UNPACKING_ERRORS",
    "atomic_draft",
    "atomic_writer",
    "explained",
    "finite",
    "read_json",
    "refuse_existing",
    "refuse_output",
    "refuse_unwritable",
    "sha256_of",
    "unpacked",
    "write_json",
    "write_text",
    "written_once",
]

_CHUNK = 1 << 20
_SQLITE = b"SQLite format 3\0"


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


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to overwrite unless asked to, and never overwrite a ledger.

    Raises:
        UsageError: The path exists and ``force`` is False, or it is a database.
    """
    if not os.path.lexists(path):
        return
    if not force:
        raise UsageError(
            f"{path.name} exists already. Nothing was done. Choose another name, or pass --force "
            "to overwrite it."
        )
    if _is_database(path):
        raise UsageError(
            f"{path.name} is a ledger or another database, which --force does not overwrite. "
            "Nothing was done. Choose another name."
        )


def _is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database, as ledgers and memos are."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE
    return False


def refuse_output(path: Path, *, force: bool) -> None:
    """Refuse to write a file where :func:`refuse_existing` would, or where a folder is.

    Raises:
        UsageError: The path exists and ``force`` is False, or it is a database.
        FileSystemError: The path is a folder.
    """
    refuse_existing(path, force=force)
    if os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError(f"{path.name} is a folder; give the name of a file.")


def refuse_unwritable(path: Path) -> None:
    """Refuse a name that no file can be written under, before anything is spent on it.

    Raises:
        FileSystemError: The folder is missing or cannot be written.
    """
    with explained(f"{path.name} cannot be written"):
        draft = Draft(path)
        try:
            draft.open()
        finally:
            draft.abandon()


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
def atomic_draft(path: Path, *, force: bool = False) -> Iterator[Draft]:
    """Yield a draft that appears under its name, complete and durable, only on success.

    Raises:
        UsageError: The path exists and ``force`` is False.
        FileSystemError: It cannot be written, or the disk is full.
    """
    refuse_output(path, force=force)
    with explained(f"{path.name} cannot be written"):
        draft = Draft(path)
        try:
            draft.open()
            yield draft
            draft.finish()
            refuse_existing(path, force=force)
            draft.path.replace(path)
        finally:
            draft.abandon()


@contextmanager
def atomic_writer(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """Yield a binary file that appears only on success; errors as in :func:`atomic_draft`."""
    with atomic_draft(path, force=force) as draft:
        yield draft.file


@contextmanager
def written_once(path: Path) -> Iterator[Draft]:
    """Yield a draft that gets its name, complete and durable, only if nobody was faster.

    What stands under the name then was written by one writer, this or another, and stays: of
    several attempts at the same work only one can be seen.

    Raises:
        FileSystemError: It cannot be written, or the file system knows no hard links.
    """
    with explained(f"{path.name} cannot be written"):
        draft = Draft(path)
        try:
            draft.open()
            yield draft
            draft.finish()
            with suppress(FileExistsError):
                os.link(draft.path, path)
            _settle(path.parent)
        finally:
            draft.abandon()


def _settle(folder: Path) -> None:
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


def finite(value: Any) -> Any:
    """Return a value for JSON in which every number that is not finite has become null."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_json(value: Any) -> str:
    """Return indented JSON that ends with a line feed."""
    return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any, *, force: bool = False) -> None:
    """Write indented JSON whole or not at all; errors as in :func:`atomic_draft`."""
    write_text(path, to_json(value), force=force)


def read_json(path: Path, *, kind: str, version: int, problem: str) -> dict[str, Any]:
    """Return a JSON object of one of our formats.

    Args:
        path: The file.
        kind: The value that its ``format`` must have.
        version: The newest version that can be read.
        problem: What to say first when it cannot be used.

    Raises:
        DataError: It is not JSON, of another format, or written by a newer version.
        FileSystemError: It cannot be read.
    """
    with explained(f"{path.name} cannot be read"):
        raw = path.read_bytes()
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping) or value.get("format") != kind:
        raise DataError(f"{problem}: {path.name} is not a {kind} file.")
    found = value.get("version")
    if type(found) is not int or found < 1:
        raise DataError(f"{problem}: {path.name} has no version number.")
    if found > version:
        raise DataError(
            f"{problem}: {path.name} was written by a newer sordino (version {found}; this one "
            f"reads up to {version}). Upgrade sordino."
        )
    return dict(value)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a released file, in hexadecimal; never call it on raw data."""
    digest = hashlib.sha256()
    with explained(f"{path.name} cannot be read"), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def unpacked(path: Path, file: BinaryIO) -> BinaryIO:
    """Return a reader of the plain bytes of a file, by its name's ending."""
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file


UNPACKING_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)
