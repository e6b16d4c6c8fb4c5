"""What an interrupted run had paid for, and what it drew: kept in the ledger's file until it ends.

A run names itself by its settings and its output, never by what its data hold. Its entries are
noted under that name together with the ledger rows, and each value is stored durably the moment
it is drawn, before anything is done with it. The same command given again finds them: a stored
value is what the entry released, whatever the data are by now, and is not drawn again.

An entry without a stored value is drawn on. That is sound because nobody saw a first draw: a run
holds its name from its first entry to its end by a lock that the operating system takes back when
the process dies, however it dies; so the one that drew is gone, its memory with it, and it had
let nothing out, because a value is stored before it is shown to anything but this process. Of all
draws on one entry a single one can ever be seen, and it is the only one of which anything stays.
Where drawing itself failed, that failure was seen: such an entry is never drawn on again.
"""

from __future__ import annotations

import hashlib
import io
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sordino.errors import LedgerDamaged

from .ledger_chain import Row, canonical_json, connect_reader, exists

__all__ = [
    "Attempt",
    "begun_entries",
    "forget",
    "is_begun",
    "keep",
    "note",
    "request_of",
    "stored",
]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
  release_id TEXT PRIMARY KEY NOT NULL, request TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS drawn (
  release_id TEXT NOT NULL, part INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (release_id, part)) STRICT
"""


@dataclass
class Attempt:
    """One command on its way, on one ledger."""

    request: str  # its name: a digest of settings and output
    entries: list[str] = field(default_factory=list)  # ids of the entries that are noted under it
    used: set[str] = field(default_factory=set)  # those that this process took over or wrote
    held: bool = False  # whether this process holds the name

    def entry_like(self, rows: Sequence[Row], columns: Mapping[str, Any]) -> Row | None:
        """Return the first entry noted under this name, and not used yet, that says the same."""
        spends = {row.release_id: row for row in rows if row.kind == "reserve"}
        for release_id in self.entries:
            row = spends.get(release_id)
            if row is None or release_id in self.used or row.count < columns["count"]:
                continue
            same = {name: value for name, value in columns.items() if name != "count"}
            if all(getattr(row, name) == value for name, value in same.items()):
                return row
        return None


def request_of(settings: Mapping[str, Any]) -> str:
    """Return the name of a command: one digest of its settings."""
    said = {
        name: str(value.absolute()) if isinstance(value, Path) else _plain(value)
        for name, value in settings.items()
    }
    return hashlib.sha256(canonical_json(said).encode()).hexdigest()


def _plain(value: object) -> object:
    """Return what JSON can hold."""
    if isinstance(value, (list, tuple)):
        return [str(part.absolute()) if isinstance(part, Path) else _plain(part) for part in value]
    return value if value is None or isinstance(value, (bool, int)) else repr(value)


def is_begun(path: Path, request: str | None) -> bool:
    """Return whether a command that is not over paid something on the ledger at a path."""
    if request is None or not exists(path):
        return False
    with connect_reader(path) as connection:
        return bool(begun_entries(connection, request))


def begun_entries(connection: sqlite3.Connection, request: str) -> list[str]:
    """Return the ids of entries noted under a name, in their order."""
    if not _is_there(connection):
        return []
    query = "SELECT release_id FROM attempts WHERE request = ? ORDER BY rowid"
    return [row[0] for row in connection.execute(query, (request,))]


def note(connection: sqlite3.Connection, release_id: str, request: str) -> None:
    """Note an entry under a name; call inside the transaction that writes the entry."""
    for statement in _SCHEMA.split(";"):  # a script would end the transaction
        connection.execute(statement)
    connection.execute("INSERT INTO attempts VALUES (?, ?)", (release_id, request))


def stored(connection: sqlite3.Connection, release_id: str, part: int) -> np.ndarray | None:
    """Return what an entry drew, or one part of it; None if nothing is stored."""
    query = "SELECT value FROM drawn WHERE release_id = ? AND part = ?"
    found = connection.execute(query, (release_id, part)).fetchone()
    if found is None:
        return None
    try:
        return np.asarray(np.load(io.BytesIO(found[0]), allow_pickle=False))
    except (ValueError, EOFError, OSError, TypeError):
        raise LedgerDamaged(
            "What an interrupted run drew cannot be read from the ledger. Nothing was released."
        ) from None


def keep(connection: sqlite3.Connection, release_id: str, part: int, value: np.ndarray) -> None:
    """Store what an entry drew; call inside a transaction."""
    packed = io.BytesIO()
    np.save(packed, value, allow_pickle=False)
    row = (release_id, part, packed.getvalue())
    connection.execute("INSERT INTO drawn VALUES (?, ?, ?)", row)


def forget(connection: sqlite3.Connection, release_ids: Sequence[str]) -> None:
    """Forget entries whose run has ended; call inside a transaction."""
    if _is_there(connection):
        for table in ("drawn", "attempts"):
            query = f"DELETE FROM {table} WHERE release_id = ?"  # noqa: S608 (one of two names)
            connection.executemany(query, [(name,) for name in release_ids])


def _is_there(connection: sqlite3.Connection) -> bool:
    """Return whether a run noted anything in this ledger."""
    query = "SELECT 1 FROM sqlite_master WHERE name = 'attempts'"
    return connection.execute(query).fetchone() is not None
