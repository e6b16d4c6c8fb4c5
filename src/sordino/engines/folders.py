"""A folder for what a computation leaves behind, which goes when it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sordino._files import sole_holder
from sordino.errors import FileSystemError

__all__ = ["passing_folder"]

_PREFIX: Final = "sordino-"
_OWNER: Final = ".owner"
_TAKEN: Final = "A folder for temporary files is in use by another run. Nothing was done."
_TRIES: Final = 50
_PAUSE: Final = 0.1  # seconds


@contextmanager
def passing_folder(where: str | None) -> Iterator[str]:
    """Make a folder that only this user can read; take it away afterwards.

    Args:
        where: In which folder; the system's own place for temporary files if left out.

    Raises:
        OSError: It cannot be made.

    Warns:
        UserWarning: It could not be taken away.
    """
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where))
    try:
        with sole_holder(folder / _OWNER, "A folder for temporary files cannot be held", _TAKEN):
            _tidy(folder.parent)
            yield str(folder)
    finally:
        _remove(folder)


def _tidy(parent: Path) -> None:
    """Take away what killed runs of this user left: folders that name an owner, who is dead."""
    for left in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, FileSystemError):
            owner = left / _OWNER
            if left.lstat().st_uid == os.geteuid() and owner.exists():
                with sole_holder(owner, "", _TAKEN):  # refused while its owner lives
                    shutil.rmtree(left)


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
