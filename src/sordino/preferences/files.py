"""JSON Lines in and out, one record at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sordino._files import UNPACKING_ERRORS, explained, unpacked
from sordino.errors import DataError, FileSystemError
from sordino.preferences.records import Record, parse_record

__all__ = ["Progress", "alike", "read_mappings", "read_records", "to_line"]

_LONGEST_LINE = 1 << 24


@runtime_checkable
class Progress(Protocol):
    """What a long read reports to: how many bytes of the file have been taken in."""

    def __call__(self, done: int, total: int) -> None:
        """Take note of bytes read so far and of the size of the file."""


def read_lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, bytes) of every line that is not blank; ``.gz`` is unpacked.

    Raises:
        DataError: The file is no valid gzip, or one line is larger than 16 MiB.
        FileSystemError: It cannot be read.
    """
    if os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError("The input is a folder; give a file.")
    with explained("The input cannot be read"), path.open("rb") as raw:
        total = path.stat().st_size
        number = 0
        try:
            reader = unpacked(path, raw)
            while line := reader.readline(_LONGEST_LINE):
                number += 1
                if len(line) == _LONGEST_LINE:
                    break
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if line.strip():
                    yield number, line
                if progress and number % 1024 == 0:
                    progress(raw.tell(), total)
            else:
                return
        except UNPACKING_ERRORS:
            line = b""
    if line:
        raise DataError(f"line {number}: longer than 16 MiB; one record per line is expected.")
    raise DataError(f"after line {number}: the file is not valid gzip, or it was cut short.")


def read_mappings(
    path: Path, progress: Progress | None = None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, object) for every line of a JSON Lines file.

    Raises:
        DataError: A line is not UTF-8 or not a JSON object, or there is none at all.
        FileSystemError: The file cannot be read.
    """
    empty = True
    for number, line in read_lines(path, progress):
        empty = False
        where = f"line {number}"
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
    if empty:
        raise DataError("The input is empty: no record in it.")


def read_records(
    path: Path, *, person_field: str = "person", progress: Progress | None = None
) -> Iterator[Record]:
    """Yield every record of a JSON Lines file in canonical order, one at a time.

    Raises:
        DataError: A record cannot be used, or some are raw and some privatized, or some have a
            person id and some do not.
        FileSystemError: The file cannot be read.
    """
    rows = read_mappings(path, progress)
    yield from alike(parse_record(row, where, person_field=person_field) for where, row in rows)


def alike(records: Iterable[Record]) -> Iterator[Record]:
    """Yield records; refuse the first that is of another kind than the first one.

    Raises:
        DataError: Raw and privatized are mixed, or person ids are given for some only.
    """
    first: Record | None = None
    for record in records:
        first = first or record
        if record.privatized != first.privatized:
            raise DataError(f"{record.where}: raw judgments and randomized answers in one file.")
        if (record.person is None) != (first.person is None):
            raise DataError(
                f"{record.where}: a person id is given for some records and not for others."
            )
        yield record


def to_line(record: Record, answer: int) -> bytes:
    """Return one privatized record as a line; nothing else of the raw row is kept."""
    row: dict[str, Any] = {
        "prompt": record.prompt,
        "first": record.first,
        "second": record.second,
        "answer": int(answer),
    }
    if record.person is not None:
        row["person"] = record.person
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
