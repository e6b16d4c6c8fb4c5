"""What Ray leaves in a process and on a disk while it runs here, and its removal afterwards."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sordino import _random
from sordino.engines.folders import passing_folder

__all__ = ["own_folder", "own_token", "same_signals"]

_LONGEST: Final = 40  # characters: with what Ray adds, names of sockets stay below 104
_SETTINGS: Final = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@contextmanager
def own_folder() -> Iterator[str]:
    """Make a folder for sockets and logs; take it away afterwards.

    Ray opens the folder that it is given to everybody, and in it the way into its object store:
    so it gets one inside another that only this user can enter.
    """
    usual = tempfile.gettempdir()
    where = usual if len(usual) <= _LONGEST else "/tmp"  # noqa: S108 - a new one in it
    with passing_folder(where) as outer:
        inner = Path(outer, "r")
        inner.mkdir()
        yield str(inner)


@contextmanager
def own_token(forget: Callable[[], None]) -> Iterator[None]:
    """Have Ray ask for a token that only its own processes know, unless the user chose one.

    Ray listens on the network; by default it would write a token into the user's home.

    Args:
        forget: Makes Ray read these settings again.
    """
    if any(name in os.environ for name in _SETTINGS):
        yield
        return
    os.environ["RAY_AUTH_TOKEN"] = _random.new_secret().hex()
    forget()
    try:
        yield
    finally:
        for name in _SETTINGS:
            os.environ.pop(name, None)
        forget()


@contextmanager
def same_signals() -> Iterator[None]:
    """Restore what happens on a request to end: while Ray runs, it is an orderly exit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
