"""The rows of a ledger: one SQLite file, append-only, every row hashed with the one before.

What the chain proves: that no row was edited, inserted, reordered or removed from the middle.
What it does not prove: that the newest rows were not cut off, or that the file is not an older
copy. Against that, note the head (digest of the last row) elsewhere and check it on opening.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sordino._random import new_release_id
from sordino.errors import FileSystemError, LedgerDamaged, LedgerError, SordinoError

__all__ = [
    "FORMAT",
    "VERSION",
    "Row",
    "append",
    "connect",
    "create",
    "read_rows",
    "transaction",
    "verified",
]

FORMAT = "sordino.ledger"
VERSION = 1
_GENESIS = "0" * 64
_BUSY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: what happened, to whom, and the digest that chains it to the row before.

    ``kind`` is ``open`` (name and budget), ``reserve`` (a spend, durable before its noise),
    ``commit`` (the digest of what was released), ``repeat`` (more from stored answers, free),
    ``receive`` (a file that was already private), ``budget`` (the owner changed the limit) or ``disjoint`` (scopes that share no unit).
    """

    sequence: int
    kind: str
    time: str
    release_id: str = ""
    scope: str = ""
    event: str = ""
    parameters: str = "{}"
    count: int = 0
    unit: str = ""
    neighbors: str = ""
    trust: str = ""
    randomness: str = ""
    payload: str = "{}"
    previous: str = _GENESIS
    digest: str = ""

    def computed_digest(self) -> str:
        """Return the SHA-256 of every column but the digest itself."""
        columns = {name: value for name, value in asdict(self).items() if name != "digest"}
        return hashlib.sha256(canonical_json(columns).encode()).hexdigest()


_COLUMNS = tuple(field.name for field in fields(Row))
_TYPES = {"sequence": "INTEGER PRIMARY KEY", "count": "INTEGER NOT NULL"}


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours: damage, a busy file, or a file system that refuses."""
    try:
        yield
    except sqlite3.OperationalError as error:
        problem = str(error)
    except sqlite3.DatabaseError:
        raise LedgerDamaged(
            f"{path.name} is not a readable ledger. Nothing was released. Restore it from a "
            "backup that `sordino ledger verify --head` accepts."
        ) from None
    else:
        return
    if "locked" in problem or "busy" in problem:
        raise LedgerError(
            f"{path.name} is held by another process. Nothing was released; try again."
        )
    if "no such table" in problem or "no such column" in problem or "malformed" in problem:
        raise LedgerDamaged(f"{path.name} is not a sordino ledger. Nothing was released.")
    raise FileSystemError(
        f"{path.name} cannot be read or written ({problem}). Nothing was released. Check the "
        "folder's permissions and free space."
    )


@contextmanager
def connect(path: Path, *, read_only: bool = False) -> Iterator[sqlite3.Connection]:
    """Yield a connection that makes every commit durable before it returns."""
    with _explained(path):
        mode = "ro" if read_only else "rw"
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
        )
        try:
            if not read_only:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
            yield connection
        finally:
            connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the only write lock, so that what was checked is still true when it is written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full disk has already rolled back
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def append(connection: sqlite3.Connection, last: Row | None, **values: Any) -> Row:
    """Insert one row after ``last`` and return it; call inside :func:`transaction`."""
    sequence, previous = (last.sequence + 1, last.digest) if last else (1, _GENESIS)
    row = Row(sequence=sequence, previous=previous, **values)
    row = Row(**{**asdict(row), "digest": row.computed_digest()})
    marks = ",".join("?" * len(_COLUMNS))
    connection.execute(f"INSERT INTO rows VALUES ({marks})", tuple(asdict(row).values()))  # noqa: S608 (question marks only)
    return row


def read_rows(connection: sqlite3.Connection, last: Row | None = None) -> list[Row]:
    """Return the rows after ``last``, each checked against the chain.

    Raises:
        LedgerDamaged: A row was edited, inserted or removed.
    """
    start = last.sequence if last else 0
    if last:
        found = connection.execute(
            "SELECT digest FROM rows WHERE sequence = ?", (start,)
        ).fetchone()
        if found != (last.digest,):
            raise LedgerDamaged("The ledger was replaced while in use. Nothing was released.")
    query = f"SELECT {','.join(_COLUMNS)} FROM rows WHERE sequence > ? ORDER BY sequence"  # noqa: S608 (our own names)
    rows = [
        Row(**dict(zip(_COLUMNS, values, strict=True)))
        for values in connection.execute(query, (start,))
    ]
    for row in rows:
        expected = (last.sequence + 1, last.digest) if last else (1, _GENESIS)
        if (row.sequence, row.previous) != expected or row.digest != row.computed_digest():
            raise LedgerDamaged(
                f"The ledger was edited: row {row.sequence} does not follow from the row before "
                "it. Nothing was released. Restore it from a backup whose head you noted."
            )
        last = row
    return rows


def verified(
    connection: sqlite3.Connection, path: Path, expected_head: str | None = None
) -> list[Row]:
    """Return every row; refuse what is no ledger, is too new, or is older than a noted head.

    Raises:
        LedgerDamaged: See above, or a row was edited.
    """
    rows = read_rows(connection)
    if not rows or rows[0].kind != "open":
        raise LedgerDamaged(f"{path.name} is not a sordino ledger: it has no first row.")
    first = json.loads(rows[0].payload)
    if first.get("format") != FORMAT or first.get("version", 0) > VERSION:
        raise LedgerDamaged(
            f"{path.name} was written by a newer sordino (ledger version "
            f"{first.get('version')}); this one reads up to {VERSION}. Upgrade sordino."
        )
    if expected_head is not None and expected_head not in {row.digest for row in rows}:
        raise LedgerDamaged(
            f"{path.name} does not contain the head {expected_head[:12]}…: rows were cut off "
            "or an older copy was put back. Nothing was released."
        )
    return rows


def create(path: Path, **first: Any) -> None:
    """Create a ledger file with its first row, whole or not at all.

    Raises:
        FileExistsError: Another process was faster.
        FileSystemError: The folder cannot be written.
    """
    partial = path.with_name(f".{path.name}.{new_release_id()}")
    try:
        partial.touch(exist_ok=False)
        with connect(partial) as connection:
            columns = ", ".join(f"{name} {_TYPES.get(name, 'TEXT NOT NULL')}" for name in _COLUMNS)
            with transaction(connection):
                connection.execute(f"CREATE TABLE rows ({columns}) STRICT")
                for verb in ("UPDATE", "DELETE"):
                    connection.execute(
                        f"CREATE TRIGGER no_{verb.lower()} BEFORE {verb} ON rows "
                        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
                    )
                append(connection, None, **first)
        os.link(partial, path)
        _sync_folder(path.parent)
    except (FileExistsError, SordinoError):
        raise
    except OSError as error:
        raise FileSystemError(
            f"The ledger {path.name} cannot be created ({error.strerror or 'no access'}). "
            "Nothing was released."
        ) from None
    finally:
        partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
