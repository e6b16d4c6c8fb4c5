"""The file of a ledger, and where it lies: rows that are only ever added, and what runs drew.

It is one SQLite file, and every row is hashed with the one before. What the chain proves: that no
row was edited, inserted, reordered or removed from the middle. What it does not prove: that the
newest rows were not cut off, or that the file is not an older copy. Against that, note the head
(digest of the last row) elsewhere and check it on opening.

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

import errno
import hashlib
import io
import json
import math
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from sordino import _validate
from sordino._files import IN_TURN, explained, settle
from sordino._random import new_release_id
from sordino._validate import refuse_special
from sordino.errors import (
    FileSystemError,
    LedgerDamaged,
    LedgerError,
    LedgerMismatch,
    SordinoError,
    UsageError,
)

from .guarantee import Event, Guarantee, event_from_row, event_to_row

FORMAT = "sordino.ledger"
VERSION = 2
_GENESIS = "0" * 64
_BUSY_SECONDS = 60.0
_UNFIT = re.compile("[\0\ud800-\udfff]")  # NUL parts scopes; half a character no encoding holds
# Codes of SQLite whose words are about the system; those of others may quote the file.
_HELD = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_REFUSED = {
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: what happened, to whom, and the digest that chains it to the row before.

    ``kind`` is ``open`` (name and budget, if any), ``reserve`` (a spend, durable before its noise,
    with what is new of the data set's questions, and with which data sets it is one),
    ``commit`` (the digest of what was released), ``repeat`` (more from stored answers, free),
    ``receive`` (a file that was already private), ``budget`` (the owner changed the limit) or
    ``disjoint`` (scopes that share no unit).
    """

    sequence: int
    kind: str
    time: str
    data: str = ""  # the data set that it is about; none where it is about all of them
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
        columns = {name: value for name, value in vars(self).items() if name != "digest"}
        return hashlib.sha256(canonical_json(columns).encode()).hexdigest()


def event_of(row: Row) -> Event:
    """Return the event that a row says took place."""
    return event_from_row(row.event, json.loads(row.parameters))


def promise_of(row: Row) -> Guarantee:
    """Return what a row promises: of a spend without its size, else what arrived private."""
    payload = json.loads(row.payload)
    caveats = payload["caveats"]
    if not isinstance(caveats, list):
        raise TypeError(caveats)
    if row.kind == "receive":
        return Guarantee.from_dict(payload["promise"], caveats)
    terms = {name: getattr(row, name) for name in ("unit", "neighbors", "trust", "randomness")}
    return Guarantee.from_dict({"epsilon": math.inf, "delta": 0.0, **terms}, caveats)


def columns_of(event: Event, promise: Guarantee, scope: str, count: int) -> dict[str, Any]:
    """Return what a row says of a spend, but for its payload."""
    kind, parameters = event_to_row(event)
    said = promise.to_dict()
    return {
        "scope": text("scope", scope),
        "event": kind,
        "parameters": canonical_json(parameters),
        "count": _validate.integer("count", count, at_least=1),
        **{name: said[name] for name in ("unit", "neighbors", "trust", "randomness")},
    }


_COLUMNS = tuple(field.name for field in fields(Row))
_TYPES = {"sequence": "INTEGER PRIMARY KEY", "count": "INTEGER NOT NULL"}


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of_json(value: object) -> str:
    """Return the SHA-256 of what :func:`canonical_json` makes of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def digest_of_array(values: np.ndarray) -> str:
    """Return the SHA-256 of numbers as 64-bit floats, the lowest byte first."""
    return hashlib.sha256(values.astype("<f8").tobytes()).hexdigest()


def digest_of_drawn(drawn: Iterable[bytes]) -> dict[str, str]:
    """Return the digest of what an entry drew as a row has it; nothing where nothing is stored."""
    digest, some = hashlib.sha256(), False
    for part in drawn:
        digest.update(part)
        some = True
    return {"drawn": digest.hexdigest()} if some else {}


@runtime_checkable
class Arrived(Protocol):
    """What the manifest of a file says that arrived already private."""

    @property
    def sha256(self) -> str:
        """Return the digest of the file."""

    @property
    def release_id(self) -> str:
        """Return the id of the release that made it."""

    @property
    def guarantee(self) -> Guarantee:
        """Return what it promises."""


def strict_json(what: str, value: object) -> str:
    """Return :func:`canonical_json`; refuse what JSON cannot hold."""
    try:
        return canonical_json(value)
    except (TypeError, ValueError, RecursionError):
        raise UsageError(
            f"{what} must be numbers, texts, lists and dicts that JSON can hold. Nothing was "
            "recorded."
        ) from None


def text(what: str, value: object) -> str:
    """Return value if it is a text that a file can hold."""
    if not isinstance(value, str) or not value or _UNFIT.search(value):
        raise UsageError(f"{what} must be a text of at least one character, got {value!r}.")
    return value


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system into ours: damage, a busy file, or a refusal."""
    try:
        yield
    except SordinoError:
        raise
    except sqlite3.Error as error:
        code, problem = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT), str(error)
    except UnicodeError:  # SQLite quotes the damage, Python cannot read the quotation
        code, problem = sqlite3.SQLITE_CORRUPT, ""
    except OSError as error:
        code, problem = sqlite3.SQLITE_IOERR, error.strerror or "no access"
    else:
        return
    kind = code & 0xFF  # the upper bits only say which call it was
    if kind in _HELD:
        raise LedgerError(
            f"{path.name} is held by another process. Nothing was released; try again."
        )
    if kind in _REFUSED:
        raise FileSystemError(
            f"{path.name} cannot be read or written ({problem}). Nothing was released. Check "
            f"that the folder can be written, also {path.name}-wal and {path.name}-shm if they "
            "are there, and has free space."
        )
    raise LedgerDamaged(
        f"{path.name} is not a readable ledger. Nothing was released. Restore it from a backup "
        "that `sordino ledger verify --head` accepts."
    )


def exists(path: Path) -> bool:
    """Return whether there is a file at ``path``."""
    with _explained(path):
        if path.name in {"", ".."} or path.is_dir():
            raise UsageError(
                f"{path.name or path} is a folder, and a ledger is a file. Nothing was released. "
                "Give the name of a file, by convention NAME.db."
            )
        refuse_special(path, links=True)
        if path.exists() and path.stat().st_nlink > 1:
            _tidy(path.resolve(), "[0-9a-f]{16}")
            if path.stat().st_nlink > 1:
                # SQLite locks by name: what is spent under one would not count under the other.
                raise UsageError(
                    f"{path.name} is one file under several names (hard links). Nothing was "
                    "released. Keep one name, and make a copy where another is needed."
                )
        return path.exists()


@contextmanager
def connect(path: Path, options: str = "mode=rw") -> Iterator[sqlite3.Connection]:
    """Yield a connection that makes every commit durable before it returns."""
    with _explained(path), IN_TURN:
        if options == "mode=rw" and path.exists() and not os.access(path, os.W_OK):
            # SQLite would only read, and leave files beside it that block whoever writes later.
            raise PermissionError(errno.EACCES, "it is read-only")
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{options}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
        )
        with closing(connection):
            for pragma in ("synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON"):
                connection.execute(f"PRAGMA {pragma}")
            yield connection


@contextmanager
def connect_reader(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection for reading, also from a folder that cannot be written."""
    # SQLite needs to write beside the file unless it is told that the file cannot change. That is
    # said only where nothing can be written and no row waits beside the file; if a writer comes
    # after all, the chain shows it. Where rows wait, their writer has made what is needed.
    options = "mode=rw"
    try:
        with connect(path, options) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except FileSystemError:
        options = "mode=ro" if _waiting(path) else "mode=ro&immutable=1"
    with connect(path, options) as connection:
        yield connection


def _waiting(path: Path) -> bool:
    """Return whether rows wait beside the file, as after a crash or while another writes."""
    log = (file := path.resolve()).with_name(f"{file.name}-wal")  # where a link leads
    return log.exists() and log.stat().st_size > 0


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
    _refuse_other_end(connection, row)  # a foreign trigger may have dropped or changed it
    return row


def _refuse_other_end(connection: sqlite3.Connection, row: Row) -> None:
    """Refuse a table that does not hold a row that must be in it."""
    query = "SELECT digest FROM rows WHERE sequence = ?"
    if connection.execute(query, (row.sequence,)).fetchone() != (row.digest,):
        raise LedgerDamaged("The ledger was replaced while in use. Nothing was released.")


def read_rows(connection: sqlite3.Connection, last: Row | None = None) -> list[Row]:
    """Return the rows after ``last``, each checked against the chain."""
    query = f"SELECT {','.join(_COLUMNS)} FROM rows"  # noqa: S608 (our own names)
    if last:
        _refuse_other_end(connection, last)
        query += f" WHERE sequence > {last.sequence}"
    rows: list[Row] = []
    for values in connection.execute(f"{query} ORDER BY sequence"):
        row = Row(**dict(zip(_COLUMNS, values, strict=True)))
        whole = {"sequence", "count"}
        typed = all(type(v) is (int if n in whole else str) for n, v in vars(row).items())
        expected = (last.sequence + 1, last.digest) if last else (1, _GENESIS)
        follows = typed and (row.sequence, row.previous) == expected
        if not follows or row.digest != row.computed_digest():
            raise LedgerDamaged(
                f"The ledger was edited: row {len(rows) + 1} of those read does not follow from "
                "the row before it. Nothing was released. Restore it from a backup whose head "
                "you noted."
            )
        rows.append(row)
        last = row
    return rows


def verified(
    connection: sqlite3.Connection, path: Path, expected_head: str | None = None
) -> list[Row]:
    """Return every row; refuse what is no ledger, is too new, or is older than a noted head."""
    first = connection.execute("SELECT payload FROM rows ORDER BY sequence LIMIT 1").fetchone()
    try:
        payload = json.loads(first[0])
        found, version = payload["format"], payload["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        found, version = None, None
    if found != FORMAT or type(version) is not int or version < 1:
        raise LedgerDamaged(f"{path.name} is not a sordino ledger. Nothing was released.")
    if version != VERSION:
        told = f"a newer sordino (ledger version {version}); this one reads up to {VERSION}"
        if old := version < VERSION:
            told = f"an older sordino (ledger version {version}), which kept one for each data set"
        raise LedgerError(
            f"{path.name} was written by {told}. Nothing was released. "
            f"{'Start a new one' if old else 'Upgrade sordino'}."
        )
    rows = read_rows(connection)
    if expected_head is not None and expected_head not in {row.digest for row in rows}:
        raise LedgerDamaged(
            f"{path.name} does not contain the head {expected_head[:12]}…: rows were cut off "
            "or an older copy was put back. Nothing was released."
        )
    return rows


def create(path: Path, **first: Any) -> None:
    """Create a ledger file with its first row, whole or not at all."""
    draft = new_release_id()
    partial = path.with_name(f".{path.name}.{draft}")
    try:
        if _waiting(path) and not path.exists():  # in this order: a rival's log follows its file
            raise LedgerDamaged(
                f"{path.name} is gone, but {path.name}-wal beside it still holds rows. Nothing "
                "was released. Restore the ledger, or move that file away too."
            )
        partial.touch(exist_ok=False)
        columns = ", ".join(f"{name} {_TYPES.get(name, 'TEXT NOT NULL')}" for name in _COLUMNS)
        with connect(partial) as connection:
            connection.execute("PRAGMA journal_mode=WAL")  # it stays so
            with transaction(connection):
                connection.execute(f"CREATE TABLE rows ({columns}) STRICT")
                for verb in ("UPDATE", "DELETE"):
                    connection.execute(
                        f"CREATE TRIGGER no_{verb.lower()} BEFORE {verb} ON rows "
                        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
                    )
                append(connection, None, **first)
        os.link(partial, path)
        settle(path.parent)
    except (OSError, ValueError, SordinoError) as error:
        if os.path.exists(path):  # noqa: PTH110 (Path.exists raises for what is no name)
            raise FileExistsError from None
        if isinstance(error, SordinoError):
            raise
        raise FileSystemError(
            f"The ledger {path.name} cannot be created "
            f"({getattr(error, 'strerror', None) or 'not a name for a file'}). Nothing was "
            "released. Check that the folder exists and can be written."
        ) from None
    finally:
        # Once there is a ledger no draft can become it: neither a rival's nor a killed run's.
        _tidy(path, "[0-9a-f]{16}" if os.path.exists(path) else draft)  # noqa: PTH110


def _tidy(path: Path, ids: str) -> None:
    """Take away drafts of a ledger, with what SQLite left beside them."""
    drafts = re.compile(rf"\.{re.escape(path.name)}\.{ids}(-journal|-shm|-wal)?")
    with suppress(OSError, ValueError):
        for name in filter(drafts.fullmatch, os.listdir(path.parent)):  # noqa: PTH208 (names)
            path.with_name(name).unlink(missing_ok=True)


_BESIDE = {  # tables beside the rows: what rows name by a digest, and what runs noted and drew
    "questions": "sequence INTEGER PRIMARY KEY, value BLOB",
    "named": "digest TEXT PRIMARY KEY, value BLOB",
    "attempts": "release_id TEXT PRIMARY KEY NOT NULL, request TEXT NOT NULL",
    "drawn": "release_id TEXT NOT NULL, part INTEGER NOT NULL, value BLOB NOT NULL, "
    "PRIMARY KEY (release_id, part)",
}
_NAMED = {  # their key, and what they hold
    "questions": ("sequence", "questions that data sets are known by"),
    "named": ("digest", "persons that took part in releases"),
}


def keep(connection: sqlite3.Connection, table: str, *values: str | int | bytes) -> None:
    """Store something beside the rows; call inside the transaction that writes what names it."""
    # What was drawn is never drawn again; what is named by a digest may be named twice.
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({_BESIDE[table]}) STRICT")
    verb, marks = "INSERT OR REPLACE" if table in _NAMED else "INSERT", ",".join("?" * len(values))
    connection.execute(f"{verb} INTO {table} VALUES ({marks})", values)


def digest_of_questions(questions: np.ndarray) -> str:
    """Return the SHA-256 of digests of questions, as a row has it."""
    return hashlib.sha256(questions.astype("<u8").tobytes()).hexdigest()


def beside(connection: sqlite3.Connection, table: str, key: str | int, digest: str) -> bytes:
    """Return what a row names that is stored under a key; refuse what has another digest."""
    column, what = _NAMED[table]
    try:
        query = f"SELECT value FROM {table} WHERE {column} = ?"  # noqa: S608 (our own names)
        found = connection.execute(query, (key,)).fetchone()
    except sqlite3.OperationalError:  # no such table
        found = None
    value = found[0] if found is not None and isinstance(found[0], bytes) else b""
    if hashlib.sha256(value).hexdigest() != digest:
        raise LedgerDamaged(
            f"The {what} were changed in the ledger. Nothing was released. Restore it from a "
            "backup whose head you noted."
        )
    return value


@dataclass
class Attempt:
    """One command on its way, on one ledger."""

    request: str  # its name: a digest of settings and output
    entries: list[str] = field(default_factory=list)  # ids of the entries that are noted under it
    used: set[str] = field(default_factory=set)  # those that this process took over or wrote
    held: bool = False  # whether this process holds the name

    def begun(self, rows: Iterable[Row], columns: Mapping[str, Any]) -> Row | None:
        """Return the next entry of an interrupted run that pays for this, if there is one."""
        spends = {row.release_id: row for row in rows if row.release_id in self.entries}
        apart = {"count", "payload"}
        wanted = {name: value for name, value in columns.items() if name not in apart}
        for release_id in self.entries:
            row = spends.get(release_id)
            if row is None or release_id in self.used or row.count < columns["count"]:
                continue
            if vars(row).items() >= wanted.items() and (
                "payload" not in columns or _settled(row.payload) == _settled(columns["payload"])
            ):
                return row
        return None


def _settled(payload: str) -> dict[str, Any]:
    """Return what a row says whatever was new of it then, and whoever took part."""
    said: dict[str, Any] = json.loads(payload)
    apart = {"joins", "questions", "persons", "secret"}
    return {name: value for name, value in said.items() if name not in apart}


def request_of(settings: Mapping[str, Any]) -> str:
    """Return the name of a command: one digest of its settings."""
    return digest_of_json({name: _plain(value) for name, value in settings.items()})


def _plain(value: object) -> object:
    """Return what JSON can hold."""
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, (bool, int)) else repr(value)


def is_begun(path: Path, request: str | None) -> bool:
    """Return whether a command that is not over paid something on the ledger at a path."""
    if request is None or not exists(path):
        return False
    with connect_reader(path) as connection:
        return bool(begun_entries(connection, request))


def begun_entries(connection: sqlite3.Connection, request: str) -> list[str]:
    """Return the ids of entries noted under a name, in their order."""
    if not _is_there(connection, "attempts"):
        return []
    query = "SELECT release_id FROM attempts WHERE request = ? ORDER BY rowid"
    return [row[0] for row in connection.execute(query, (request,))]


def stored(connection: sqlite3.Connection, release_id: str, part: int) -> np.ndarray | None:
    """Return what an entry drew, or one part of it; None if nothing is stored."""
    if not _is_there(connection, "drawn"):
        return None
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


def packed(value: np.ndarray) -> bytes:
    """Return what an entry drew as it is stored."""
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return file.getvalue()


def forget(connection: sqlite3.Connection, release_ids: Sequence[str]) -> None:
    """Forget entries whose run has ended; call inside a transaction."""
    for table in ("drawn", "attempts"):
        if _is_there(connection, table):
            query = f"DELETE FROM {table} WHERE release_id = ?"  # noqa: S608 (one of two names)
            connection.executemany(query, [(name,) for name in release_ids])


def _is_there(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return connection.execute(query, (table,)).fetchone() is not None


LEDGER: Final = Path(".sordino", "ledger.db")
_FURTHER = "ledgers"  # beside it: where the project has further ledgers, one a line


def nearest_ledger(start: Path) -> Path | None:
    """Return the nearest ledger, in a folder or above it: that of its project; None if none."""
    start = start.resolve()
    for folder in (start, *start.parents):
        # A link that leads nowhere counts: its ledger is gone, and another one is no substitute.
        if os.path.lexists(folder / LEDGER):
            return folder / LEDGER
    return None


def ledger_path(start: Path) -> Path:
    """Return where the ledger of the project is, or would be: then the project is that folder."""
    return nearest_ledger(start) or start / LEDGER


def ledger_of_run(folder: Path) -> Path:
    """Return the ledger of a run in a folder: ``spend.db`` in it or beside, or its project's."""
    beside = folder.absolute().with_name(f"{folder.absolute().name}.spend.db")  # of a checkpoint
    handed_on = (path for path in (folder / "spend.db", beside) if os.path.lexists(path))
    return next(handed_on, None) or ledger_path(folder)


def secret_path(ledger: Path) -> Path:
    """Return where the secret lies that a ledger knows persons by: that of its project, if any."""
    own = ledger.with_name(f"{ledger.name}.secret")
    home = nearest_ledger(ledger.parent)
    return own if home is None or own.exists() else home.with_name("secret")


def other_ledgers(path: Path) -> list[Path]:
    """Return the further ledgers of the project that a ledger lies in, or from which one spends."""
    found: dict[Path, None] = {}
    for home in filter(None, {nearest_ledger(path.parent), nearest_ledger(Path.cwd())}):
        listed = home.with_name(_FURTHER)
        lines = listed.read_bytes().split(b"\n") if listed.exists() else []
        further = [Path(os.fsdecode(json.loads(line).encode("latin-1"))) for line in lines if line]
        if gone := [other.name for other in further if not other.exists()]:
            raise LedgerMismatch(
                f"The ledger {gone[0]} of this project is gone, and what was spent on it with it. "
                f"Nothing was released. Put it back, or take its line out of {listed.parent.name}/"
                f"{_FURTHER} if nothing that counts was spent there."
            )
        found |= dict.fromkeys([home, *further])
    return [other for other in found if not (path.exists() and other.samefile(path))]


def list_ledger(path: Path) -> None:
    """Let the project that a ledger lies in, or from which one spends, know of it."""
    for home in filter(None, {nearest_ledger(path.parent), nearest_ledger(Path.cwd())}):
        if path.resolve() == home.resolve():
            continue
        listed, line = home.with_name(_FURTHER), os.fsencode(path.resolve()).decode("latin-1")
        with explained(f"{home.parent.name} cannot be written"):
            known = listed.read_text().split("\n") if listed.exists() else []
            if json.dumps(line) not in known:
                with listed.open("a") as file:
                    file.write(f"{json.dumps(line)}\n")
