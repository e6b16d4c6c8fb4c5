"""The first randomized answer of one person to one question, kept on disk.

What a person says later to the same question is answered by what was stored, whatever they say:
reusing the coin on a changed answer would reveal the change, and a new coin would cost again.
Nothing raw is stored: hashed public keys, the randomized answer, and the entry that paid.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sordino._files import refuse_special
from sordino._random import Entropy
from sordino.errors import FileSystemError, LedgerDamaged, PrivacyError
from sordino.privacy.ledger_chain import OUTER
from sordino.privacy.persons import People

_SCHEMA = """
CREATE TABLE IF NOT EXISTS settings (
  name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
  person BLOB NOT NULL, question BLOB NOT NULL,
  answer INTEGER NOT NULL CHECK (answer IN (0, 1)), release_id TEXT NOT NULL,
  PRIMARY KEY (person, question)) STRICT, WITHOUT ROWID;
"""
_STAGE = """
CREATE TEMP TABLE staged (person BLOB NOT NULL, question BLOB NOT NULL,
  PRIMARY KEY (person, question)) WITHOUT ROWID;
CREATE TEMP TABLE drawn (person BLOB NOT NULL, question BLOB NOT NULL, word INTEGER NOT NULL,
  PRIMARY KEY (person, question)) WITHOUT ROWID;
"""
_PEOPLE = """
WITH one AS (
  SELECT s.person, COUNT(*) AS total, COUNT(a.answer) AS stored
  FROM staged s LEFT JOIN answers a ON a.person = s.person AND a.question = s.question
  GROUP BY s.person),
kept AS (
  SELECT person, total, MIN(total, :cap) AS labels, MIN(total, :cap) - MIN(stored, :cap) AS fresh
  FROM one)
"""
_COUNTS = """
SELECT COUNT(*), COALESCE(MAX(labels), 0), COALESCE(MAX(fresh), 0),
  COALESCE(SUM(total - labels), 0) FROM kept
"""
_FRESH = "SELECT person, fresh FROM kept WHERE fresh > 0"
_EVER = """
SELECT COALESCE(MAX(n), 0) FROM (SELECT SUM(n) AS n FROM (
  SELECT person, COUNT(*) AS n FROM answers GROUP BY person
  UNION ALL SELECT person, fresh FROM kept) GROUP BY person)
"""
_ON_ENTRY = """
SELECT person, SUM(n) AS n FROM (
  SELECT person, COUNT(*) AS n FROM answers WHERE release_id = :release_id GROUP BY person
  UNION ALL SELECT person, fresh FROM kept) GROUP BY person HAVING n > 0
"""
_OVER = """
SELECT person, question FROM staged WHERE person IN
  (SELECT person FROM staged GROUP BY person HAVING COUNT(*) > :cap) ORDER BY person, question
"""
_LEAVE_OUT = """
DELETE FROM staged WHERE (person, question) IN (SELECT person, question FROM (
  SELECT d.person, d.question, ROW_NUMBER() OVER (
    PARTITION BY d.person ORDER BY a.answer IS NULL, d.word, d.question) AS place
  FROM drawn d LEFT JOIN answers a ON a.person = d.person AND a.question = d.question)
WHERE place > :cap)
"""
_MALFORMED = """
SELECT 1 FROM settings WHERE typeof(name) <> 'text' OR typeof(value) <> 'text'
UNION ALL
SELECT 1 FROM answers WHERE typeof(answer) <> 'integer' OR answer NOT IN (0, 1)
  OR typeof(person) <> 'blob' OR length(person) <> 32
  OR typeof(question) <> 'blob' OR length(question) <> 32
  OR typeof(release_id) <> 'text' OR release_id = ''
LIMIT 1
"""
_NO_CAP = 2**62
_CHUNK = 1 << 13
Key = tuple[bytes, bytes]


class Counts(NamedTuple):
    """What is about to be answered, in numbers that no draw of questions changes."""

    persons: int  # how many people
    labels: int  # the largest number of different questions of one person that are used
    fresh: int  # the largest number of those of one person that have no stored answer yet
    ever: int  # the largest number of one person, those answered earlier included
    left_out: int  # how many questions the cap leaves out, over all people


class AnswerMemo:
    """Stored answers by (person key, question key); open it with :meth:`open`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Hold an open connection; use :meth:`open` instead."""
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path, *, settings: dict[str, str], dry_run: bool) -> Iterator[AnswerMemo]:
        """Yield the memo at ``path``, made if there is none."""
        problem = ""
        try:
            with closing(_connected(path, dry_run=dry_run)) as connection:
                # The file's own checks can be taken out.
                if connection.execute(_MALFORMED).fetchone():
                    raise LedgerDamaged(
                        f"{path.name} was changed: it is no memo of answers any more. Nothing was "
                        "released. Restore the newest copy, or start a new ledger, whose total is "
                        "apart from this one."
                    )
                known = dict(connection.execute("SELECT name, value FROM settings"))
                if known:
                    refuse_other_settings(path, known, settings)
                elif not dry_run:
                    connection.execute("BEGIN IMMEDIATE")  # all settings, or none
                    insert = "INSERT INTO settings VALUES (?, ?)"
                    connection.executemany(insert, settings.items())
                    connection.execute("COMMIT")
                connection.executescript(_STAGE)
                yield cls(connection)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in OUTER:
                problem = str(error)
        else:
            return
        if problem:
            raise FileSystemError(f"{path.name} cannot be used ({problem}). Nothing was released.")
        raise LedgerDamaged(
            f"{path.name} is not a readable memo of answers. Nothing was released. Restore the "
            "newest copy, or start a new ledger, whose total is apart from this one."
        )

    @classmethod
    @contextmanager
    def scratch(cls) -> Iterator[AnswerMemo]:
        """Yield a memo without answers that is gone afterwards, to count with."""
        with closing(_nowhere()) as connection:
            connection.executescript(_STAGE)
            yield cls(connection)

    def stage(self, keys: Sequence[Key]) -> None:
        """Note questions that are about to be answered; nothing durable is written."""
        self._connection.executemany("INSERT OR IGNORE INTO staged VALUES (?, ?)", keys)

    def counts(self, cap: int | None) -> Counts:
        """Return what answering the staged questions takes, at most ``cap`` of one person."""
        # Source: docs/local.md, "Person-level budgets": of t questions of one person of which s are
        # stored, min(t, cap) are used and min(t, cap) − min(s, cap) are fresh, whichever are
        # chosen.
        at_most = {"cap": _NO_CAP if cap is None else cap}
        found = self._connection.execute(_PEOPLE + _COUNTS, at_most).fetchone()
        (ever,) = self._connection.execute(_PEOPLE + _EVER, at_most).fetchone()
        persons, labels, fresh, left_out = map(int, found)
        return Counts(persons, labels, fresh, int(ever), left_out)

    def people(self, cap: int | None, release_id: str | None = None) -> People:
        """Return whose staged questions take how many coins, on an entry with what it has."""
        given = {"cap": _NO_CAP if cap is None else cap, "release_id": release_id}
        query = _PEOPLE + (_FRESH if release_id is None else _ON_ENTRY)
        found = self._connection.execute(query, given).fetchall()
        counts = np.array([count for _, count in found], np.int64)
        return People.counted(np.array([person[:16] for person, _ in found], "V16"), counts)

    def choose(self, cap: int, entropy: Entropy) -> None:
        """Keep at most ``cap`` staged questions of every person, chosen uniformly at random.

        Guarantee:
            None of its own: the choice is a function of public fields and of fresh words, so
            what is released of the questions it keeps has the loss of their answers alone. Shown
            by tests/soundness/test_person_level.py.
        """
        # Questions that have a stored answer come first: they cost nothing, and a run that was
        # interrupted goes on with what it had chosen. No label is looked at.
        over = self._connection.execute(_OVER, {"cap": cap})
        while keys := over.fetchmany(_CHUNK):
            words = entropy.words(len(keys)).view(np.int64).tolist()  # SQLite's are signed
            rows = [(*key, word) for key, word in zip(keys, words, strict=True)]
            self._connection.executemany("INSERT INTO drawn VALUES (?, ?, ?)", rows)
        self._connection.execute(_LEAVE_OUT, {"cap": cap})

    def staged(self, keys: Iterable[Key]) -> set[Key]:
        """Return those keys that are staged, and not left out by :meth:`choose`."""
        query = "SELECT 1 FROM staged WHERE person = ? AND question = ?"
        return {key for key in set(keys) if self._connection.execute(query, key).fetchone()}

    def recall(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Return the stored answers of those keys that have one."""
        query = "SELECT answer FROM answers WHERE person = ? AND question = ?"
        found = {key: self._connection.execute(query, key).fetchone() for key in set(keys)}
        return {key: row[0] for key, row in found.items() if row}

    def remember(self, answers: dict[Key, int], release_id: str) -> None:
        """Store answers durably, before anybody sees them."""
        # What another process stored in the meantime stays: `recall` says what counts.
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)",
            [(*key, answer, release_id) for key, answer in answers.items()],
        )
        self._connection.execute("COMMIT")

    def drawn(self, release_id: str) -> Iterator[bytes]:
        """Yield the answers that an entry paid for, each with its person and question, in order."""
        query = (
            "SELECT person, question, answer FROM answers WHERE release_id = ? "
            "ORDER BY person, question"
        )
        for person, question, answer in self._connection.execute(query, (release_id,)):
            yield person + question + bytes([answer])

    def payers(self) -> set[str]:
        """Return the ledger entries that paid for all stored answers."""
        query = "SELECT DISTINCT release_id FROM answers"
        return {row[0] for row in self._connection.execute(query)}

    def release_ids(self) -> tuple[str, ...]:
        """Return the ledger entries that paid for the staged questions' stored answers."""
        query = (
            "SELECT DISTINCT a.release_id FROM staged s JOIN answers a "
            "ON a.person = s.person AND a.question = s.question ORDER BY 1"
        )
        return tuple(row[0] for row in self._connection.execute(query))


def _connected(path: Path, *, dry_run: bool) -> sqlite3.Connection:
    """Return a connection; for a dry run read-only, or to a memo in memory."""
    refuse_special(path, links=False)
    if dry_run and (not path.exists() or not _is_made(path)):
        return _nowhere()
    if not dry_run:
        with suppress(FileNotFoundError):  # without a folder SQLite has words of its own
            path.touch(0o600)  # there is no moment at which others could open it
    mode = "ro" if dry_run else "rwc"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=60.0, isolation_level=None)
    if not dry_run:
        path.chmod(0o600)  # who answered what is for nobody else; SQLite's own files follow it
        connection.execute("PRAGMA synchronous=FULL")
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT")  # all tables, or none
    connection.execute("PRAGMA temp_store=FILE")
    return connection


def _is_made(path: Path) -> bool:
    """Return whether whoever made a file came as far as its tables, and lived."""
    # Opened for writing if it can be, so that what a killed process had begun is taken back.
    mode = "rw" if os.access(path, os.W_OK) else "ro"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)) as held:
        return bool(held.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _nowhere() -> sqlite3.Connection:
    """Return a connection to an empty memo in memory; what is staged spills to disk."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(_SCHEMA)
    connection.execute("PRAGMA temp_store=FILE")
    return connection


def refuse_other_settings(path: Path, known: dict[str, str], settings: dict[str, str]) -> None:
    """Refuse stored answers that were drawn with other settings."""
    if known != settings:
        differing = [
            f"{name}={value}" for name, value in settings.items() if known.get(name) != value
        ]
        raise PrivacyError(
            f"{path.name} holds answers that were randomized with other settings or for another "
            f"ledger (not {', '.join(differing) or 'these'}). A second answer to the same question "
            "would cost again. Nothing was released. Use the same settings, or another ledger."
        )
