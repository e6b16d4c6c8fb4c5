"""The database of a study as one file, and back: the same bytes from SQLite and PostgreSQL.

A zip archive without times: one file of JSON lines for each table, in the order of its keys, so
that nothing tells what came first; and a note with the frozen terms and a SHA-256 of each. All
rows are of one state, whatever the service does meanwhile. They come back in one transaction into
a database that holds nothing. Tables and columns are those of the database, whatever they are.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from io import BufferedIOBase
from itertools import groupby, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from sqlalchemy import Connection, Engine, String, Table, insert, select, text

from sordino._files import explained, to_json
from sordino.errors import DataError, LedgerMismatch, SordinoError, UsageError

from .answers import archive_entry
from .database import TABLES, failing, make_tables, reading, take_turn
from .study import Study

_FORMAT = "sordino.backup"
_VERSION = 1
_NOTE: Final = "backup.json"
_AT_ONCE: Final = 1000  # rows in memory
_DAMAGE: Final = (  # what an archive raises that is none of ours, or was cut short or changed
    *(zipfile.BadZipFile, zlib.error, EOFError, LookupError),
    *(ValueError, TypeError, AttributeError, RuntimeError),
)


def write_backup(engine: Engine, study: Study, file: BinaryIO) -> dict[str, int]:
    """Write every row of a study; return how many there are in each table."""
    rows: dict[str, int] = {}
    digests: dict[str, str] = {}
    with zipfile.ZipFile(file, "w") as archive, closing(_lines(engine)) as lines:
        for name, group in groupby(lines, key=lambda each: each[0]):
            digest, rows[name] = hashlib.sha256(), -1  # each table begins with an empty line
            with archive.open(archive_entry(f"{name}.jsonl"), "w", force_zip64=True) as entry:
                for _, line in group:
                    digest.update(line)
                    entry.write(line)
                    rows[name] += 1
            digests[name] = digest.hexdigest()
        note = {"format": _FORMAT, "version": _VERSION, "study": study.id, "terms": study.terms}
        archive.writestr(archive_entry(_NOTE), to_json(note | {"rows": rows, "sha256": digests}))
    return rows


def _lines(engine: Engine) -> Generator[tuple[str, bytes]]:
    """Yield the name of each table with an empty line, and then with each of its rows."""
    with reading(engine) as connection:
        _take_time(connection)
        for table in TABLES.sorted_tables:
            yield table.name, b""
            found = connection.execute(
                select(table).order_by(*_keys(table, engine)),
                execution_options={"yield_per": _AT_ONCE},
            )
            for row in found.mappings():
                yield table.name, json.dumps(dict(row)).encode() + b"\n"


def _keys(table: Table, engine: Engine) -> list[Any]:
    """Return by what rows are sorted: by bytes, as SQLite does, and not by a language."""
    by_bytes = engine.dialect.name == "postgresql"
    return [
        column.collate("C") if by_bytes and isinstance(column.type, String) else column
        for column in table.primary_key
    ]


def _take_time(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # a large study may take a while
        connection.execute(text("SET LOCAL statement_timeout = 0"))


def restore(engine: Engine, study: Study, path: Path) -> dict[str, int]:
    """Store every row of a backup of this study, all or none, where nothing is stored yet."""
    with (
        explained(f"{path.name} cannot be read"),
        _undamaged(path),
        path.open("rb") as file,
        zipfile.ZipFile(file) as archive,
    ):
        rows = _checked(archive, study, path.name)
        problem = "The database cannot be written ({}). Nothing was restored."
        with failing(problem):
            make_tables(engine)
        with failing(problem), engine.begin() as connection:
            take_turn(connection)
            _take_time(connection)
            for table in TABLES.sorted_tables:
                if connection.execute(select(table).limit(1)).first():
                    raise UsageError(
                        "The database of the study holds something already. Nothing was restored. "
                        "Give the study an empty one: move its file away, or name another one "
                        "(database, or SORDINO_DATABASE)."
                    )
            for table in TABLES.sorted_tables:
                with archive.open(f"{table.name}.jsonl") as entry:
                    values = (_values(table, line) for line in entry)
                    while some := list(islice(values, _AT_ONCE)):
                        connection.execute(insert(table), some)
    return rows


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Turn what a damaged archive raises into one error, which quotes nothing of it."""
    try:
        yield
    except SordinoError:
        raise
    except _DAMAGE:
        pass
    else:
        return
    raise DataError(
        f"{path.name} is damaged, or no backup of a study, or one of another version of sordino. "
        "Nothing was restored."
    )


def _checked(archive: zipfile.ZipFile, study: Study, name: str) -> dict[str, int]:
    """Return how many rows an archive says that it has, if it is whole and of this study."""
    note = json.loads(archive.read(_NOTE))
    tables = {table.name for table in TABLES.sorted_tables}
    known = (note["format"], note["version"]) == (_FORMAT, _VERSION)
    if not known or note["sha256"].keys() != tables or note["rows"].keys() != tables:
        raise ValueError
    if note["terms"] != study.terms:
        other = note["study"] != study.id
        what = "another study" if other else "this study before it was changed"
        raise LedgerMismatch(f"{name} is a backup of {what}. Nothing was restored.")
    for table in tables:
        with archive.open(f"{table}.jsonl") as entry:
            digest = hashlib.file_digest(cast("BufferedIOBase", entry), "sha256").hexdigest()
            if digest != note["sha256"][table]:
                raise ValueError
    return dict(note["rows"])


def _values(table: Table, line: bytes) -> dict[str, Any]:
    """Return a row of a table, if it has its columns and their types."""
    row = json.loads(line)
    if row.keys() != set(table.columns.keys()) or not all(
        column.nullable
        if row[column.name] is None
        else type(row[column.name]) is column.type.python_type
        for column in table.columns
    ):
        raise ValueError
    return dict(row)
