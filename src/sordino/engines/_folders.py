"""A folder for what a computation leaves behind, which goes when it ends."""

from __future__ import annotations

import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["passing_folder"]

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
    folder = tempfile.mkdtemp(prefix="sordino-", dir=where)
    try:
        yield folder
    finally:
        _remove(Path(folder))


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
