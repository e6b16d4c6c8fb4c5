"""Rows that belong together are brought together: a shuffle through files that all machines see."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from jaxtyping import Integer
from numpy.typing import DTypeLike

from sordino._files import atomic_writer, explained, sole_holder
from sordino.errors import FileSystemError

_PREFIX: Final = "sordino-"
_OWNER: Final = ".owner"
_TAKEN: Final = "A folder for temporary files is in use by another run. Nothing was done."
_TRIES: Final = 50
_STARTS: Final = 5
_PAUSE: Final = 0.1  # seconds


@contextmanager
def passing_folder(where: str | None) -> Iterator[str]:
    """Make a folder that only this user can read; take it away afterwards."""
    # Warns:
    #     UserWarning: It could not be taken away.
    with ExitStack() as stack:
        for tries_left in reversed(range(_STARTS)):
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where))
            stack.callback(_remove, folder)
            owner = folder / _OWNER
            try:
                stack.enter_context(
                    sole_holder(owner, "A folder for temporary files cannot be held", _TAKEN)
                )
                break
            except FileSystemError:  # another run, tidying, took it for one that a killed run left
                if not tries_left:
                    raise
        # What killed runs of this user left: folders that name an owner, who is dead.
        for left in folder.parent.glob(f"{_PREFIX}*"):
            with suppress(OSError, FileSystemError):
                owner = left / _OWNER
                if left.lstat().st_uid == os.geteuid() and owner.exists():
                    with sole_holder(owner, "", _TAKEN):  # refused while its owner lives
                        shutil.rmtree(left)
        yield str(folder)


def _remove(folder: Path) -> None:
    """Take a folder away, even if a task that nobody waits for still writes into it."""
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        threading.Event().wait(_PAUSE)
    warnings.warn(
        f"The folder {folder.name} for temporary files could not be removed. It may hold sums, or "
        "digests of questions and persons: remove it.",
        UserWarning,
        stacklevel=4,
    )


PARTS: Final = 256
"""Into how many parts rows are sorted, each of which is read at once."""

_HEAD: Final = 8 * (PARTS + 1)


@dataclass(frozen=True)
class Exchange:
    """A folder in which every chunk of data leaves its rows, sorted by part."""

    # A file appears whole or not at all, and is the same whoever writes it: a task may be lost or
    # run twice.

    folder: str  # A folder that every machine sees at the same place
    dtype: DTypeLike  # of one row

    def write(self, chunk: int, rows: np.ndarray, parts: Integer[np.ndarray, " n"]) -> None:
        """Leave the rows of one chunk."""
        self._refuse_unseen()
        order = np.argsort(parts, kind="stable")
        ends = np.searchsorted(parts[order], np.arange(PARTS + 1)).astype("<u8")
        assert ends[0] == 0, "a part below 0"  # noqa: S101 - rows would be lost without a word
        assert ends[-1] == len(rows), "a part beyond the last"  # noqa: S101
        with atomic_writer(self._path(chunk), force=True, held=False) as file:
            file.write(ends.tobytes())
            file.write(rows[order].tobytes())

    def read(self, part: int, chunks: int) -> np.ndarray:
        """Return all rows of one part, in the order of chunks and of rows in them."""
        self._refuse_unseen()
        found, size = [np.zeros(0, self.dtype)], np.dtype(self.dtype).itemsize
        for chunk in range(chunks):
            with (
                explained("A file of the shuffle cannot be read"),
                self._path(chunk).open("rb") as file,
            ):
                file.seek(8 * part)
                first, last = (int(end) for end in np.frombuffer(_whole(file, 16), "<u8"))
                file.seek(_HEAD + size * first)
                found.append(np.frombuffer(_whole(file, size * (last - first)), self.dtype))
        return np.concatenate(found)

    def _refuse_unseen(self) -> None:
        """Refuse to go on where the folder is not."""
        if not Path(self.folder).is_dir():
            raise FileSystemError(
                "A machine does not see the folder of the shuffle. Nothing was released. Give "
                "scratch= (--scratch) a folder that all machines see at the same place."
            )

    def _path(self, chunk: int) -> Path:
        return Path(self.folder) / f"{chunk:08d}.rows"


def _whole(file: BinaryIO, size: int) -> bytes:
    found = file.read(size)
    if len(found) != size:
        raise FileSystemError("A file of the shuffle was cut short. Nothing was released.")
    return found


@contextmanager
def opened_exchange(dtype: DTypeLike, scratch: str | Path | None) -> Iterator[Exchange]:
    """Make a folder for a shuffle, which only this user can read; take it away afterwards."""
    with ExitStack() as stack:
        with explained("The folder for a shuffle cannot be made"):
            where = None if scratch is None else os.path.abspath(scratch)  # noqa: PTH100
            folder = stack.enter_context(passing_folder(where))
        yield Exchange(folder, dtype)
