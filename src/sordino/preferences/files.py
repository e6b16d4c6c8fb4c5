"""Files in, JSON Lines out, one record at a time."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sordino._files import UNPACKING_ERRORS, explained, unpacked
from sordino.errors import DataError, FileSystemError
from sordino.preferences.records import Record, Text, parse_records
from sordino.preferences.tables import read_table, separator

__all__ = [
    "LONGEST_LINE",
    "TWO_FORMS",
    "UNPACKED",
    "Progress",
    "alike",
    "every_line",
    "line_of",
    "read_mappings",
    "read_records",
    "read_rows",
    "records_of",
    "to_line",
    "untold",
]

LONGEST_LINE = 1 << 24
"""Bytes that one record may not reach."""
UNPACKED = 1 << 28
"""Bytes that may be packed in a file of any size; beyond, no more than so many times its size."""
_TIMES = 200  # texts of people pack to a third or a twentieth; a bomb to a thousandth
TWO_FORMS = (
    "a prompt is given for some records and not for others. What both answers begin with is then "
    "cut from some only, and if those are the decided ones, the others can be told to be ties. "
    "Nothing was released. Give every record a prompt, or none."
)
"""Why both forms are refused in one input, for messages."""
_PANDAS = {
    ".parquet": "read_parquet",
    ".feather": "read_feather",
    ".arrow": "read_feather",
    ".xlsx": "read_excel",
    ".xls": "read_excel",
    ".ods": "read_excel",
}
_CONVERT = 'pandas.{}.to_json("x.jsonl", orient="records", lines=True)'
_ARRAY = _CONVERT.format('read_json("x.json")')
_UNTOLD = (
    "A record cannot be used: it is malformed, or lacks a field, or two files hold the same ones. "
    "Nothing was released. Which one it is, and why, is not said, because all of a record is "
    "private here. Read the data yourself to find it: sordino.read_pairs and the other readers in "
    "Python name place and field."
)


@runtime_checkable
class Progress(Protocol):
    """What a long read reports to: how many bytes of the file have been taken in."""

    def __call__(self, done: int, total: int) -> None:
        """Take note of bytes read so far and of the size of the file."""


def every_line(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, bytes) of every line, without a byte-order mark; unpacks ``.gz``.

    Raises:
        DataError: The file is no valid gzip, or one line, or the blank lines between two others,
            are larger than 16 MiB; or what is packed is more than 256 MiB and more than 200 times
            what packs it.
        FileSystemError: It cannot be read.
    """
    if os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError("The input is a folder; give a file.")
    with explained("The input cannot be read"), path.open("rb") as raw:
        total = path.stat().st_size
        number = blank = size = 0
        most = max(UNPACKED, _TIMES * total) if path.suffix == ".gz" else math.inf
        try:
            reader = unpacked(path, raw)
            while line := reader.readline(LONGEST_LINE):
                number += 1
                size += len(line)
                blank = 0 if line.strip() else blank + len(line)
                if max(len(line), blank) >= LONGEST_LINE or size > most:
                    break
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if progress and number % 1024 == 0:
                    progress(raw.tell(), total)
            else:
                return
        except UNPACKING_ERRORS:
            line = b""
    if size > most:
        raise DataError(
            f"line {number}: more than {_TIMES} times the size of the packed file is in it, which "
            "is no text that people wrote. Nothing was released. If it is what you want, unpack it "
            "(gunzip) and give the plain file: it may have any size."
        )
    if blank >= LONGEST_LINE:
        raise DataError(
            f"line {number}: more than 16 MiB of blank lines; a file has no use for it."
        )
    if line:
        raise DataError(f"line {number}: longer than 16 MiB; one record per line is expected.")
    raise DataError(f"after line {number}: the file is not valid gzip, or it was cut short.")


def read_lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, bytes) of every line that is not blank; ``.gz`` is unpacked.

    Raises:
        DataError: The file is no valid gzip, or one line is larger than 16 MiB.
        FileSystemError: It cannot be read.
    """
    return ((number, line) for number, line in every_line(path, progress) if line.strip())


@contextmanager
def untold(*, hides_records: bool) -> Iterator[None]:
    """Say of a record that cannot be used nothing but that there is one, where they are private.

    Args:
        hides_records: Whether they are; else errors stay as they are.

    Raises:
        DataError: The same one, whatever is wrong with whichever record.
    """
    try:
        yield
    except DataError:
        if not hides_records:
            raise
    else:
        return
    raise DataError(_UNTOLD)


def read_mappings(
    path: Path, progress: Progress | None = None, *, empty: bool = False
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return (place, object) for every line of a JSON Lines file, one at a time.

    Args:
        path: The file.
        progress: Called with (bytes read, size of the file).
        empty: Whether a file without any line is one like others.

    Raises:
        DataError: A line is not UTF-8 or not a JSON object, or there is none at all, or the file
            is one JSON array or of a kind that is not read.
        FileSystemError: The file cannot be read.
    """
    _refuse_kind(path)
    rows = _objects(path, progress)
    return rows if empty else _some(rows)


def _objects(path: Path, progress: Progress | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, object) for every line that is not blank."""
    first = True
    for number, line in read_lines(path, progress):
        where = f"line {number}"
        if first and line.lstrip().startswith(b"["):
            raise DataError(
                f"{where}: this is a JSON array; an object on a line of its own for each record "
                f"is expected. Convert it: {_ARRAY}."
            )
        first = False
        try:
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            problem = "not valid UTF-8"
        except (ValueError, RecursionError):
            problem = "not valid JSON (one object per line is expected)"
        else:
            if isinstance(value, dict):
                yield where, value
                continue
            problem = "expected an object with named fields"
        del line
        raise DataError(f"{where}: {problem}.")


def read_rows(
    path: Path,
    *,
    person_field: str,
    answers: bool = False,
    empty: bool = False,
    progress: Progress | None = None,
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return (place, row) for every record of JSON Lines or of a table, one at a time.

    A name that ends in ``.csv`` or ``.tsv`` (or that and ``.gz``) is a table with a header;
    every other is JSON Lines.

    Args:
        path: The file.
        person_field: Column of a table that may be empty.
        answers: Whether a table may hold randomized answers, which have no manifest there.
        empty: Whether a file without any record is one like others.
        progress: Called with (bytes read, size of the file).

    Raises:
        DataError: A row is malformed, or there is none at all.
        FileSystemError: The file cannot be read.
    """
    mark = separator(path)
    if mark is None:
        return read_mappings(path, progress, empty=empty)
    lines = every_line(path, progress)
    table = read_table(lines, mark, longest=LONGEST_LINE, optional=person_field, answers=answers)
    return table if empty else _some(table)


def _some(
    rows: Iterator[tuple[str, Mapping[str, Any]]],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield rows; refuse an input without any.

    Raises:
        DataError: There is none.
    """
    empty = True
    for place in rows:
        empty = False
        yield place
    if empty:
        raise DataError("The input is empty: no record in it.")


def _refuse_kind(path: Path) -> None:
    """Refuse a kind of file that is not read, by its name, and say what to do.

    Raises:
        DataError: It is Parquet, Arrow, or a spreadsheet.
    """
    suffix = path.suffix.lower()
    if suffix in _PANDAS:
        reader = f'{_PANDAS[suffix]}("x{suffix}")'
        raise DataError(
            f"A {suffix} file is not read. Nothing was read. Convert it to JSON Lines: "
            f"{_CONVERT.format(reader)}; or give the frame itself to sordino.Pairs.from_frame."
        )


def read_records(
    path: Path,
    *,
    person_field: str = "person",
    hides_records: bool = False,
    progress: Progress | None = None,
) -> Iterator[Record]:
    """Yield every record of a file in canonical order, one at a time.

    The file is read as :func:`read_rows` reads it. Where all of a record is private it may have
    none at all, and some records may name a person and others not.

    Raises:
        DataError: A record cannot be used, or some are raw and some privatized, or some have a
            person id or a prompt of their own and some do not, or the file is of a kind that is
            not read.
        FileSystemError: The file cannot be read.
    """
    rows = read_rows(path, person_field=person_field, empty=hides_records, progress=progress)
    placed = ((row, where) for where, row in rows)
    return records_of(placed, person_field=person_field, hides_records=hides_records)


def records_of(
    rows: Iterable[tuple[Any, str]], *, person_field: str, hides_records: bool = False
) -> Iterator[Record]:
    """Yield the records of (row, place), one for every label, all of one kind.

    Raises:
        DataError: As :func:`read_records`.
    """
    found = (
        record
        for row, where in rows
        for record in parse_records(row, where, person_field=person_field)
    )
    return alike(found, some_named=hides_records)


def alike(records: Iterable[Record], *, some_named: bool = False) -> Iterator[Record]:
    """Yield records; refuse the first that is of another kind than the first one.

    Args:
        records: In file order.
        some_named: Whether some may name a person and others not.

    Raises:
        DataError: Raw and privatized are mixed, or person ids or prompts are given for some only.
    """
    first: Record | None = None
    for record in records:
        first = first or record
        if record.privatized != first.privatized:
            raise DataError(f"{record.where}: raw judgments and randomized answers in one file.")
        if not some_named and (record.person is None) != (first.person is None):
            raise DataError(
                f"{record.where}: a person id is given for some records and not for others."
            )
        if record.cut != first.cut:
            raise DataError(f"{record.where}: {TWO_FORMS}")
        yield record


def to_line(record: Record, answer: int) -> bytes:
    """Return one privatized record as a line; nothing else of the raw row is kept."""
    return line_of(record.prompt, record.first, record.second, answer, record.person)


def line_of(prompt: Text, first: Text, second: Text, answer: int, person: str | None) -> bytes:
    """Return the fields of one privatized record as a line."""
    row: dict[str, Any] = {
        "prompt": prompt,
        "first": first,
        "second": second,
        "answer": int(answer),
    }
    if person is not None:
        row["person"] = person
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
