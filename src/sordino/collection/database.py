"""What is stored, and nothing else: no row holds a time, an address or an order of arrival.

Five tables beside the frozen study. A person is a random id; only an invitation leads to it, until
the link is dropped. Below the rows, the files of PostgreSQL and the write-ahead logs of both
databases show in which order rows came to whoever reads them, until :func:`sorted_anew` and
:func:`rewrite` did their work. PostgreSQL keeps no samples of values beside the rows: a sample in
its catalog would outlive the row, and dead copies of it would outlive the sample.

One thread writes; what is waiting shares a transaction, so that one sync serves many people.
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Executable,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sordino.errors import DataError, FileSystemError, LedgerMismatch, SordinoError, UsageError

from .refusals import LOG, Refusal
from .study import Study

TABLES: Final = MetaData()
"""All of it, for whoever copies whole databases."""


def _table(name: str, *columns: Column[Any]) -> Table:
    return Table(name, TABLES, *columns, sqlite_with_rowid=False)


_STUDY: Final = _table(
    "sordino_study",
    Column("digest", String(64), primary_key=True),
    Column("terms", Text, nullable=False),
)
QUESTIONS: Final = _table(
    "sordino_questions",
    Column("id", String(32), primary_key=True),
    Column("asked", Integer, nullable=False),
    Column("content", Text),
)
"""How many people are asked each question; and the question itself, if it came with an answer."""

INVITATIONS: Final = _table(
    "sordino_invitations",
    Column("token", String(64), primary_key=True),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", Boolean, nullable=False),
    Column("person", String(32), unique=True),
    Column("parent", String(64)),
)
"""Invitations by the digest of their token; ``person`` is the only link to answers.

An open one is its own parent, and that of a row for each device that joined with it."""

PERSONS: Final = _table(
    "sordino_persons",
    Column("id", String(32), primary_key=True),
    Column("device", String(64), unique=True),
    Column("moving", String(64), unique=True),
    Column("questions", Text, nullable=False),
)
"""People: a random id, the digest of their device's secret and of the code by which they move to
another one, and what they are asked. What they spent is the sum of the revisions of their answers.
"""

ANSWERS: Final = _table(
    "sordino_answers",
    Column("person", String(32), primary_key=True),
    Column("question", String(32), primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("id", String(36), nullable=False),
    Column("answer", Integer, nullable=False),
)
"""Randomized answers: one of each person to each question."""

_REWRITTEN: Final = (ANSWERS, PERSONS, QUESTIONS)


for table in TABLES.sorted_tables:
    # PostgreSQL gathers no statistics of any column, from the moment that a table is made. ANALYZE,
    # which runs by itself, copies frequent values and quantiles into a catalog that no TRUNCATE
    # empties: digests of tokens and ids of people would stay there. Rows are found by their keys,
    # for which no statistics are needed.
    steps = ", ".join(f'ALTER COLUMN "{column.name}" SET STATISTICS 0' for column in table.columns)
    settings = DDL(f"ALTER TABLE {table.name} {steps}")  # type: ignore[no-untyped-call]
    event.listen(table, "after_create", settings.execute_if(dialect="postgresql"))

FAILURES: Final = (DBAPIError, PoolTimeout, OSError)
"""What a database that is down, full or locked raises."""

_SECONDS: Final = 5
_TURN: Final = 7_305_804_402_429_357_423  # a number that nothing else in this database locks


def open_database(url: str) -> Engine:
    """Return an engine on an SQLite file or a PostgreSQL database; nothing is read yet."""
    problem = "The database must be an SQLite file or a postgresql:// URL. Nothing was done."
    try:
        address = make_url(url)
        sqlite = address.get_backend_name() == "sqlite"
        settings = _SQLITE if sqlite else _POSTGRES
        engine = create_engine(address, hide_parameters=True, **settings)  # no error shows a row
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError, TypeError):
        engine = None
    if engine is None or engine.dialect.name not in {"sqlite", "postgresql"}:
        raise UsageError(problem)
    if sqlite:
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
    return engine


_SQLITE: Final[dict[str, Any]] = {
    "connect_args": {"timeout": _SECONDS, "check_same_thread": False},
    "pool_timeout": _SECONDS,
}
_POSTGRES: Final[dict[str, Any]] = {
    "isolation_level": "READ COMMITTED",  # whoever waited for their turn sees what came before
    "connect_args": {
        "connect_timeout": _SECONDS,
        "options": f"-c statement_timeout={_SECONDS}s -c lock_timeout={_SECONDS}s "
        "-c synchronous_commit=on",  # what was acknowledged is stored, however it is set up
    },
    "pool_pre_ping": True,  # a server that was restarted is found at the next request
    "pool_timeout": _SECONDS,
}


def _set_up(connection: sqlite3.Connection, _: object) -> None:
    """Make every commit durable before it is acknowledged, and let reads not wait for writes."""
    connection.isolation_level = None  # transactions begin where we say
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA secure_delete=ON")  # a link that was dropped is gone from the file


def _begin(connection: Connection) -> None:
    """Take the lock at once where something is written: a lock taken later may fail."""
    read_only = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


@contextmanager
def failing(problem: str) -> Iterator[None]:
    """Turn what a database raises into one error that names its kind, and shows no row."""
    try:
        yield
    except SordinoError:
        raise
    except FAILURES as error:
        reason = type(error).__name__
    else:
        return
    raise FileSystemError(problem.format(reason))


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Yield a connection that sees one state of the database and changes nothing."""
    options = {"isolation_level": "REPEATABLE READ"}
    extra = {"read_only": True} if engine.dialect.name == "sqlite" else options
    problem = "The database of the study cannot be read ({})."
    with failing(problem), engine.connect() as connection:
        yield connection.execution_options(**extra)


def take_turn(connection: Connection) -> None:
    """Let no other transaction that writes begin before this one ends, in whatever process."""
    # SQLite does so by itself. In PostgreSQL groups of people that two services lock in different
    # orders would otherwise wait for each other until one is thrown out.
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_TURN})")


def sorted_anew(engine: Engine, changes: Sequence[Executable]) -> list[Executable]:
    """Return changes, before them a lock, and behind them all rows anew in the order of keys."""
    # PostgreSQL keeps rows in its files as they came, and with each the number of its transaction.
    # After these statements the place of a row tells its key, and all numbers are the same. SQLite
    # keeps rows by their key from the beginning, and locks by itself.
    if engine.dialect.name != "postgresql":
        return [*changes]
    # Nobody else reads or writes until the transaction ends. The order is that in which others
    # read, so that nobody waits in a circle.
    names = ", ".join(one.name for one in (INVITATIONS, *_REWRITTEN))
    lock = [
        "SET LOCAL statement_timeout = 0",  # a large study may take a while
        f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE",
    ]
    steps = [f"TRUNCATE {INVITATIONS.name}"]
    for one in _REWRITTEN:
        keys = ", ".join(f'{column.name} COLLATE "C"' for column in one.primary_key)
        steps += [
            f"CREATE TEMPORARY TABLE copied ON COMMIT DROP AS TABLE {one.name}",
            f"TRUNCATE {one.name}",
            f"INSERT INTO {one.name} (TABLE copied ORDER BY {keys})",
            "DROP TABLE copied",
        ]
    return [*map(text, lock), *changes, *map(text, steps)]


def rewrite(engine: Engine) -> None:
    """Write an SQLite file anew, so that no row that was deleted is left in it or in its log."""
    # A page of a file that was split may keep copies of rows, and the log does until it is cut.
    # PostgreSQL needs nothing more: `sorted_anew` gives its tables new files. Its own log keeps the
    # rows until its segments are used again.
    if engine.dialect.name != "sqlite":
        return
    reason, busy = "", False
    try:
        with closing(engine.connect()) as connection:
            driver: Any = connection.connection.driver_connection
            for step in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                found = driver.execute(step)  # neither may stand in a transaction
                busy = bool((row := found.fetchone()) and row[0])
    except Exception as error:  # noqa: BLE001 (the driver's own errors, of two drivers)
        reason = type(error).__name__
    if reason or busy:
        raise FileSystemError(
            f"What was deleted may still be legible in the files of the database "
            f"({reason or 'it is in use'}). Stop the service, and do this again."
        )


def make_tables(engine: Engine) -> None:
    """Make what is not there yet; nothing is stored."""
    file = engine.url.database or ""
    if engine.dialect.name == "sqlite" and file and not file.startswith((":", "file:")):
        # Only its owner may read it; its logs get the same mode. One that is there stays closed: to
        # close it would take back SQLite's locks, and another process would take away the log.
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    TABLES.create_all(engine)


def frozen(engine: Engine, study: Study, *, create: bool) -> Engine:
    """Return the engine of a database that is of just this study."""
    terms, file, sqlite = None, engine.url.database or "", engine.dialect.name == "sqlite"
    with failing(
        "The database of the study cannot be used ({}). Nothing was done. Check that it runs, and "
        "that its folder or its user may be written."
    ):
        begun = not sqlite or (bool(file) and Path(file).exists())  # looking makes no SQLite file
        if create:
            make_tables(engine)
        if create or (begun and inspect(engine).has_table(_STUDY.name)):
            terms = _frozen_terms(engine, study, create=create)
    if terms is None:
        raise DataError(
            "This study has not begun: make invitations first (sordino collect invite)."
        )
    # People were invited to just this study.
    if terms["id"] != study.id:
        raise LedgerMismatch(
            "This database belongs to another study. Nothing was done. Give this study a database "
            "of its own."
        )
    names = terms.keys() | study.terms.keys()
    changed = sorted(name for name in names if terms.get(name) != study.terms.get(name))
    if changed:
        raise LedgerMismatch(
            f"The study was changed after it began: {', '.join(changed)}. People were promised "
            "what it said before. Nothing was done. Undo the change, or begin a new study with "
            "`sordino collect init`."
        )
    return engine


def _frozen_terms(engine: Engine, study: Study, *, create: bool) -> dict[str, Any] | None:
    """Return what the database is frozen to; None if it is new and stays so."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql" and create:
            connection.exec_driver_sql("LOCK TABLE sordino_study IN EXCLUSIVE MODE")
        row = connection.execute(select(_STUDY.c.terms)).first()
        if row is None and create:
            terms = study.terms
            values = {"digest": study.digest, "terms": json.dumps(terms)}
            connection.execute(insert(_STUDY), values)
            if rows := [{"id": question.id, "asked": 0} for question in study.questions]:
                connection.execute(insert(QUESTIONS), rows)
            return terms
    return None if row is None else dict(json.loads(row.terms))


Job = Callable[[Connection], Any]
"""What is done inside a transaction: it checks first and writes last, and raises only before."""

_TOGETHER: Final = 256
_WAITING: Final = 4096
_WAIT: Final = 2  # seconds after which a page should try again


class Writer:
    """Does jobs in the order of their arrival, and acknowledges each when it is durable."""

    def __init__(self, engine: Engine) -> None:
        """Keep the engine; :meth:`start` starts the thread."""
        self._engine = engine
        self._queue: queue.Queue[tuple[Job, Future[Any]] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, name="sordino-writer", daemon=True)

    def start(self) -> None:
        """Begin to work; once is enough."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Finish what is waiting, and end."""
        if self._thread.ident is not None:
            self._queue.put(None)
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Return about how many jobs wait."""
        return self._queue.qsize()

    def submit(self, job: Job) -> Future[Any]:
        """Return what will hold the result of a job once it is committed."""
        # The future raises what the job raised if that was a `Refusal`, and `Refusal` with
        # `database-down` if the database failed; then nothing of the job is stored.
        future: Future[Any] = Future()
        try:
            self._queue.put_nowait((job, future))
        except queue.Full:
            pass
        else:
            return future
        raise Refusal("database-down", wait=_WAIT)

    def _run(self) -> None:
        stopping = False
        while not stopping:
            taken = [self._queue.get()]
            with suppress(queue.Empty):
                while taken[-1] is not None and len(taken) < _TOGETHER:
                    taken.append(self._queue.get_nowait())
            stopping = taken[-1] is None
            if jobs := [one for one in taken if one is not None]:
                self._do(jobs)

    def _do(self, jobs: list[tuple[Job, Future[Any]]]) -> None:
        """Do jobs in one transaction, and tell of each only when all are durable."""
        outcomes: list[tuple[Any, BaseException | None]] = []
        try:
            with self._engine.begin() as connection:
                take_turn(connection)
                outcomes = [_outcome(job, connection) for job, _ in jobs]
        except IntegrityError as error:  # another process was faster with one of them
            if len(jobs) > 1:
                for one in jobs:
                    self._do([one])
                return
            outcomes = [(None, _down(error))]
        except FAILURES as error:
            outcomes = [(None, _down(error))] * len(jobs)
        except Exception as error:  # noqa: BLE001 (a bug must not end the only thread that writes)
            outcomes = [(None, error)] * len(jobs)
        for (_, future), (result, problem) in zip(jobs, outcomes, strict=True):
            if not future.set_running_or_notify_cancel():
                continue
            if problem is None:
                future.set_result(result)
            else:
                future.set_exception(problem)


def _down(error: BaseException) -> Refusal:
    """Return what a page is told whose answers could not be stored; the log has the kind."""
    LOG.warning("database", extra={"fields": {"problem": type(error).__name__}})
    return Refusal("database-down", wait=_WAIT)


def _outcome(job: Job, connection: Connection) -> tuple[Any, BaseException | None]:
    """Return the result of one job, or why it was refused; refusals write nothing."""
    try:
        return job(connection), None
    except Refusal as refusal:
        return None, refusal
