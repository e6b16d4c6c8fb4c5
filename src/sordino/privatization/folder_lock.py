"""A folder in which one run writes at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sordino._files import explained
from sordino.errors import FileSystemError
from sordino.privatization.stored_answers import lock_taken

__all__ = ["sole_run"]

_NAME: Final = ".sordino.lock"


@contextmanager
def sole_run(folder: Path) -> Iterator[None]:
    """Hold a folder for as long as the context is open; nobody is waited for.

    The operating system lets go of it with the process, however that dies. The file for it goes
    at the end; one that a killed run left holds nothing.

    Raises:
        FileSystemError: Another run holds the folder, or it cannot be locked.
    """
    path, handle = folder / _NAME, None
    with explained("The folder for the answers cannot be locked"):
        handle = _held(path)
    if handle is None:
        raise FileSystemError(
            "Another run is writing into the folder for the answers. Nothing was released. Try "
            "again when it is done, or give another folder."
        )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _held(path: Path) -> int | None:
    """Return the open file whose lock is now held here; None if another run holds it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
