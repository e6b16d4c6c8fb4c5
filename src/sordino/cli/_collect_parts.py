"""What the commands of ``sordino collect`` share: the extra, the study and its database."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import urlsplit

import numpy as np

from sordino._files import atomic_draft, explained
from sordino._random import new_token
from sordino.collection.study import Study
from sordino.errors import DataError, MissingExtra, UsageError

__all__ = [
    "admin_token",
    "checked_url",
    "collection_module",
    "day",
    "is_loopback",
    "opened",
    "secret_file",
]

_LOOPBACK: Final = {"localhost", "::1"}
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_OTHERS: Final = 0o077  # what group and others may do


def collection_module(name: str) -> Any:
    """Return a module of ``sordino.collection``, and say what to install if it cannot be loaded.

    Raises:
        MissingExtra: The extra ``collect`` is not installed.
    """
    try:
        return import_module(f"sordino.collection.{name}")
    except ImportError as error:
        if (error.name or "").startswith("sordino"):
            raise
        raise MissingExtra(
            "The collect commands need libraries that are not installed. Nothing was done. Make "
            "sure you have installed everything with: pip install 'sordino[collect]'"
        ) from error


@contextmanager
def opened(study: Study, *, create: bool = False) -> Iterator[Any]:
    """Yield the engine of a study's database, which is of this study and no other.

    Args:
        study: The study as its file says now.
        create: Begin the study there, which freezes what bears on the promise.

    Raises:
        LedgerMismatch: The database is of another study, or this one was changed.
        DataError: The study has not begun, or a language of it cannot be shown.
        FileSystemError: The database cannot be used.
    """
    collection_module("page_files").read_languages(study)  # before anybody is invited
    database = collection_module("database")
    engine = database.open_database(study.database_url)
    try:
        yield database.frozen(engine, study, create=create)
    finally:
        engine.dispose()  # the last connection folds SQLite's log into its one file


def checked_url(url: str) -> str:
    """Return an address of the page, without a slash at its end.

    Raises:
        UsageError: It is none: the page lies at the root of a host.
    """
    parts = None
    try:
        parts = urlsplit(url.strip())
        known = parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        known = False
    if (
        not known
        or not parts
        or not parts.hostname
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise UsageError(
            "--url must be like https://study.example.org: the page lies at the root of its host. "
            "Nothing was done."
        )
    return f"{parts.scheme}://{parts.netloc}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, as browsers see it.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, False)
    """
    return host in _LOOPBACK or host.startswith("127.")


def day(seconds: int) -> str:
    """Return a time in UTC to the minute.

    Example:
        >>> day(0)
        '1970-01-01 00:00 UTC'
    """
    return f"{np.datetime64(seconds, 's').astype('datetime64[m]')} UTC".replace("T", " ", 1)


@contextmanager
def secret_file(path: Path | None, *, force: bool) -> Iterator[BinaryIO | None]:
    """Yield a file that only its owner may read, which appears on success; None for no path.

    It is made that way: there is no moment at which others could open it.

    Raises:
        UsageError: The path exists and ``force`` is False.
        FileSystemError: It cannot be written.
    """
    if path is None:
        yield None
        return
    with ExitStack() as stack:
        before = os.umask(_OTHERS)
        try:
            draft = stack.enter_context(atomic_draft(path, force=force))
        finally:
            os.umask(before)
        yield draft.file


def admin_token(path: Path | None) -> str:
    """Return the token of the admin view: of a file, which is made if it is not there, or new.

    Raises:
        DataError: The file holds something else, or others may read or write it.
        FileSystemError: It cannot be read or written.
    """
    if path is None:
        return new_token()
    with explained(f"{path.name} cannot be read"):
        if not path.exists():
            token = new_token()
            with secret_file(path, force=False) as file:
                cast("BinaryIO", file).write(f"{token}\n".encode())
            return token
        open_to_others = os.name == "posix" and path.stat().st_mode & _OTHERS
        token = path.read_bytes().decode(errors="replace").strip()
    if open_to_others:
        raise DataError(
            f"{path.name} may be read or written by others than you, so its token is no secret. "
            f"Nothing was done. Delete it, and a new one is made; or, if nobody has read it: "
            f"chmod 600 {path.name}"
        )
    if not _TOKEN.match(token):
        raise DataError(
            f"{path.name} holds no admin token: 43 letters, digits, '-' or '_'. Nothing was done. "
            "Name a file that is not there, and one is made."
        )
    return token
