"""The first randomized answer of one person to one question, kept on disk.

What a person says later to the same question is answered by what was stored, whatever they say:
reusing the coin on a changed answer would reveal the change, and a new coin would cost again.
Nothing raw is stored: hashed public keys, the randomized answer, and the entry that paid.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from sordino.errors import FileSystemError, LedgerDamaged, PrivacyError

__all__ = ["AnswerMemo"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
  person BLOB NOT NULL, question BLOB NOT NULL, answer INTEGER NOT NULL, release_id TEXT NOT NULL,
  PRIMARY KEY (person, question)) WITHOUT ROWID;
"""
_STAGE = (
    "CREATE TEMP TABLE staged (person BLOB NOT NULL, question BLOB NOT NULL, "
    "PRIMARY KEY (person, question)) WITHOUT ROWID"
)
Key = tuple[bytes, bytes]


class AnswerMemo:
    """Stored answers by (person key, question key); open it with :meth:`open`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Hold an open connection; use :meth:`open` instead."""
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path, *, settings: dict[str, str], dry_run: bool) -> Iterator[AnswerMemo]:
        """Yield the memo at ``path``, made if there is none.

        Args:
            path: The SQLite file beside the ledger.
            settings: What its answers were drawn with; they cannot be mixed.
            dry_run: Only look: nothing on disk is touched.

        Raises:
            PrivacyError: The stored answers were drawn with other settings.
            LedgerDamaged: The file is no memo.
            FileSystemError: It cannot be read or written.
        """
        problem: str | None = None
        try:
            with closing(_connected(path, dry_run=dry_run)) as connection:
                _bind(connection, path, settings)
                connection.execute(_STAGE)
                yield cls(connection)
        except sqlite3.OperationalError as error:
            problem = str(error)
        except sqlite3.DatabaseError:
            raise LedgerDamaged(
                f"{path.name} is not a readable memo of answers. Nothing was released."
            ) from None
        if problem is not None:
            raise FileSystemError(f"{path.name} cannot be used ({problem}). Nothing was released.")

    def stage(self, keys: Sequence[Key]) -> None:
        """Note questions that are about to be answered; nothing durable is written."""
        self._connection.executemany("INSERT OR IGNORE INTO staged VALUES (?, ?)", keys)

    def fresh(self) -> int:
        """Return how many staged questions have no stored answer yet."""
        query = (
            "SELECT COUNT(*) FROM staged s WHERE NOT EXISTS (SELECT 1 FROM answers a "
            "WHERE a.person = s.person AND a.question = s.question)"
        )
        return int(self._connection.execute(query).fetchone()[0])

    def most_labels(self) -> int:
        """Return the largest number of different questions of one person, old and staged."""
        query = (
            "SELECT COALESCE(MAX(n), 0) FROM (SELECT COUNT(*) n FROM "
            "(SELECT person, question FROM staged UNION SELECT person, question FROM answers) "
            "GROUP BY person)"
        )
        return int(self._connection.execute(query).fetchone()[0])

    def recall(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Return the stored answers of those keys that have one."""
        query = "SELECT answer FROM answers WHERE person = ? AND question = ?"
        found = {key: self._connection.execute(query, key).fetchone() for key in set(keys)}
        return {key: row[0] for key, row in found.items() if row}

    def remember(self, answers: dict[Key, int], release_id: str) -> None:
        """Store answers durably, before anybody sees them.

        What another process stored in the meantime stays: :meth:`recall` says what counts.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)",
            [(*key, answer, release_id) for key, answer in answers.items()],
        )
        self._connection.execute("COMMIT")

    def release_ids(self) -> tuple[str, ...]:
        """Return the ledger entries that paid for the staged questions' stored answers."""
        query = (
            "SELECT DISTINCT a.release_id FROM staged s JOIN answers a "
            "ON a.person = s.person AND a.question = s.question ORDER BY 1"
        )
        return tuple(row[0] for row in self._connection.execute(query))


def _connected(path: Path, *, dry_run: bool) -> sqlite3.Connection:
    """Return a connection; for a dry run read-only, or to a memo in memory."""
    if dry_run and not path.exists():
        connection = sqlite3.connect(":memory:", isolation_level=None)
    else:
        mode = "ro" if dry_run else "rwc"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=60.0, isolation_level=None)
    if not (dry_run and path.exists()):
        connection.execute("PRAGMA synchronous=FULL")
        connection.executescript(_SCHEMA)
    connection.execute("PRAGMA temp_store=FILE")
    return connection


def _difference(known: dict[str, str], settings: dict[str, str]) -> str:
    """Return which settings differ, in one line."""
    names = sorted(name for name in known | settings if known.get(name) != settings.get(name))
    return ", ".join(f"{name}: {known.get(name)}, not {settings.get(name)}" for name in names)


def _bind(connection: sqlite3.Connection, path: Path, settings: dict[str, str]) -> None:
    """Write the settings into a new memo; refuse one with others."""
    known = dict(connection.execute("SELECT name, value FROM settings"))
    if known and known != settings:
        raise PrivacyError(
            f"{path.name} holds answers that were randomized with other settings or for another "
            f"ledger ({_difference(known, settings)}). A second answer to the same question would "
            "cost again. Nothing was released. Use the same settings, or another ledger."
        )
    if not known:
        connection.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
