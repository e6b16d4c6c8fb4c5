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
from collections.abc import Generator
from contextlib import closing
from io import BufferedIOBase
from itertools import groupby, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from sqlalchemy import Connection, Engine, String, insert, select, text, update

from sordino._files import explained, to_json
from sordino.errors import DataError, LedgerMismatch, UsageError

from .answers import ENDED, archive_entry
from .database import INVITATIONS, TABLES, failing, make_tables, reading, take_turn
from .study import Study

_FORMAT = "sordino.backup"
_VERSION = 1
_NOTE: Final = "backup.json"
_AT_ONCE: Final = 1000  # rows in memory
_DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, LookupError, ValueError, TypeError,
                  AttributeError, RuntimeError)  # fmt: skip


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
        note |= {"columns": _columns(), "rows": rows, "sha256": digests}
        archive.writestr(archive_entry(_NOTE), to_json(note))
    return rows


def _columns() -> dict[str, list[str]]:
    return {table.name: list(table.columns.keys()) for table in TABLES.sorted_tables}


def _lines(engine: Engine) -> Generator[tuple[str, bytes]]:
    """Yield the name of each table with an empty line, and then with each of its rows."""
    postgres = engine.dialect.name == "postgresql"
    with reading(engine) as connection:
        _take_time(connection)
        for table in TABLES.sorted_tables:
            yield table.name, b""
            keys: list[Any] = [  # by bytes, as SQLite sorts, and not by a language
                key.collate("C") if postgres and isinstance(key.type, String) else key
                for key in table.primary_key
            ]
            rows = select(table).order_by(*keys).execution_options(yield_per=_AT_ONCE)
            for row in connection.execute(rows).mappings():
                yield table.name, json.dumps(dict(row)).encode() + b"\n"


def _take_time(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # a large study may take a while
        connection.execute(text("SET LOCAL statement_timeout = 0"))


def restore(
    engine: Engine, study: Study, path: Path, *, nothing_since: bool = False
) -> dict[str, int]:
    """Store every row of a backup of this study, all or none, where nothing is stored yet."""
    # What was answered after the backup is not in it. Another device of the same person would be
    # asked that once more, and a second coin would be tossed; so every invitation ends, unless the
    # operator says that nothing came in.
    problem = "The database cannot be written ({}). Nothing was restored."
    with explained(f"{path.name} cannot be read"), path.open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
            note = _checked(archive)
        except _DAMAGE:
            raise DataError(
                f"{path.name} is damaged, or no backup of a study, or one of another version of "
                "sordino. Nothing was restored."
            ) from None
        if note["terms"] != study.terms:
            what = "another study" if note["study"] != study.id else "this study before it changed"
            raise LedgerMismatch(f"{path.name} is a backup of {what}. Nothing was restored.")
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
                    while rows := list(map(json.loads, islice(entry, _AT_ONCE))):
                        connection.execute(insert(table), rows)
            if not nothing_since:
                connection.execute(update(INVITATIONS).values(revoked=True, expires=ENDED))
    return dict(note["rows"])


def _checked(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the note of an archive that is whole, and has the tables of this version."""
    note: dict[str, Any] = json.loads(archive.read(_NOTE))
    found = (note["format"], note["version"], note["columns"])
    if found != (_FORMAT, _VERSION, _columns()) or not note["terms"]:
        raise ValueError
    for table in TABLES.sorted_tables:
        with archive.open(f"{table.name}.jsonl") as entry:
            digest = hashlib.file_digest(cast("BufferedIOBase", entry), "sha256").hexdigest()
            if digest != note["sha256"][table.name]:
                raise ValueError
    return note
