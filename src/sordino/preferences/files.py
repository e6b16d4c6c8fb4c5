"""Files in, one record at a time: JSON Lines, and tables quoted exactly as RFC 4180 has it.

The parser of tables is ours because the one of Python's ``csv`` module limits a cell by a setting
of the whole process, and because it takes a stray quote for text, which may shift cells unseen.
Rows of a data frame are read too, of any library, none of which is imported.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from sordino import _validate
from sordino._files import UNPACKING_ERRORS, explained, unpacked
from sordino.errors import DataError, FileSystemError, UsageError

from .records import (
    FIELDS,
    Absent,
    Alternative,
    Levels,
    Record,
    Text,
    paired_ratings,
    parse_records,
    refuse_person_field,
    refuse_some_named,
)

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_BLANK = b" \r\n"


def separator(path: Path) -> str | None:
    """Return what separates the cells of a table, by the file's name, or None if it is no table."""
    name = path.name.removesuffix(".gz").lower()
    return next((mark for end, mark in _SEPARATORS.items() if name.endswith(end)), None)


def read_table(
    lines: Iterable[tuple[int, bytes]],
    mark: str,
    *,
    longest: int,
    optional: str,
    answers: bool = False,
    unnamed: bool = False,
) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    """Yield (place, cells by column name) for every record below the header."""
    # Columns without a name (pandas writes its row numbers so) may be there if they are `unnamed`:
    # they are called `UNNAMED` and their number.
    quoted, plain = '"([^"]*+(?:""[^"]*+)*+)"', f'([^"\\r\\n{mark}]*+)'
    # What one cell looks like, with the separator or the end behind it.
    cell = re.compile(rf"(?:{quoted}|{plain})({mark}|\Z)")
    names: list[str] | None = None
    for where, raw in _records(lines, longest):
        text = None
        with suppress(UnicodeDecodeError):
            text = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
        if text is None:
            raise DataError(f"{where}: not valid UTF-8.")
        cells = _cells(text, mark, cell, where)
        if names is None:
            if unnamed:
                cells = [name or f"{UNNAMED}{number}" for number, name in enumerate(cells)]
            # A message quotes no name, for they may be a record.
            if not all(cells):
                raise DataError(
                    f"{where}: a column has no name. The first line must name the columns (pandas "
                    "adds one without a name unless told index=False)."
                )
            if len(set(cells)) < len(cells):
                raise DataError(f"{where}: two columns have the same name.")
            if "answer" in cells and not answers:
                raise DataError(
                    f"{where}: column 'answer' is not read from a table. Randomized answers are "
                    "JSON Lines beside their manifest, as sordino privatize writes them."
                )
            names = cells
        elif len(cells) != len(names):
            raise DataError(
                f"{where}: {len(cells)} cells, but the header has {len(names)} columns."
            )
        else:
            row: dict[str, str | None] = dict(zip(names, cells, strict=True))
            if row.get(optional) == "":
                row[optional] = None
            yield where, row


def _records(lines: Iterable[tuple[int, bytes]], longest: int) -> Iterator[tuple[str, bytes]]:
    """Yield place and bytes of every record: a line, and those that its quotes still hold open."""
    parts: list[bytes] = []
    size, start, opened = 0, 0, False
    for number, line in lines:
        if not parts and not line.strip(_BLANK):
            continue
        start = start if parts else number
        parts.append(line)
        size += len(line)
        opened ^= line.count(b'"') % 2 == 1
        if size >= longest:
            break
        if not opened:
            yield f"line {start}", b"".join(parts)
            parts, size = [], 0
    if size >= longest:
        raise DataError(f"line {start}: longer than 16 MiB; is a quote not closed?")
    if parts:
        raise DataError(f"line {start}: a quoted cell does not end.")


def _cells(text: str, mark: str, cell: re.Pattern[str], where: str) -> list[str]:
    if '"' not in text and "\r" not in text and "\n" not in text:
        return text.split(mark)  # the same, several times faster
    cells: list[str] = []
    at, more = 0, True
    while more:
        found = cell.match(text, at)
        if found is None:
            raise DataError(
                # Not which cell: of two answers it would tell the column, and so the judgment.
                f"{where}: a cell has a quote or a line end where none may be. Put a cell that "
                'holds one in quotes, and write each quote inside it twice ("").'
            )
        quoted, plain, end = found.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        at, more = found.end(), bool(end)
    return cells


UNNAMED = "\0"
"""What the names that are made up for columns of a table without one begin with."""
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
    """Yield (line number, bytes) of every line, without a byte-order mark; unpacks ``.gz``."""
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


@contextmanager
def untold(*, hides_records: bool) -> Iterator[None]:
    """Say of a record that cannot be used nothing but that there is one, where they are private."""
    try:
        yield
    except DataError:
        if not hides_records:
            raise
    else:
        return
    raise DataError(_UNTOLD)


def json_objects(
    lines: Iterable[tuple[int, bytes]],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, object) for every line of JSON Lines that is not blank."""
    first = True
    for number, line in lines:
        if not line.strip():
            continue
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


Rows = Iterator[tuple[str, Any]]
"""Where each record stands, for messages, and what it says."""


def read_mappings(path: Path, progress: Progress | None = None, *, empty: bool = False) -> Rows:
    """Return (place, object) for every line of a JSON Lines file, one at a time."""
    suffix = path.suffix.lower()
    if suffix in _PANDAS:
        reader = f'{_PANDAS[suffix]}("x{suffix}")'
        raise DataError(
            f"A {suffix} file is not read. Nothing was read. Convert it to JSON Lines: "
            f"{_CONVERT.format(reader)}; or give the frame itself to sordino.Pairs.from_frame."
        )
    rows = json_objects(every_line(path, progress))
    return rows if empty else _some(rows)


def read_rows(
    source: str | Path | Iterable[object],
    *,
    person_field: str = "",
    answers: bool = False,
    unnamed: bool = False,
    empty: bool = False,
    progress: Progress | None = None,
) -> Rows:
    """Return (place, row) for every record of JSON Lines, of a table, or of an iterable."""
    # A name that ends in `.csv` or `.tsv` (or that and `.gz`) is a table with a header, every other
    # is JSON Lines. A file must hold a record unless it may be `empty`; a table whose columns may
    # be `unnamed` may have no row, and any columns.
    if not isinstance(source, (str, Path)):
        return ((f"record {number}", row) for number, row in enumerate(source, start=1))
    path = Path(source)
    mark = separator(path)
    if mark is None:
        return read_mappings(path, progress, empty=empty)
    lines = every_line(path, progress)
    table = read_table(
        lines,
        mark,
        longest=LONGEST_LINE,
        optional=person_field,
        answers=answers or unnamed,
        unnamed=unnamed,
    )
    return table if empty or unnamed else _some(table)


def _some(rows: Rows) -> Rows:
    row = None
    for row in rows:
        yield row
    if row is None:
        raise DataError("The input is empty: no record in it.")


class _Judgment(Protocol):
    """What a row of any kind is read into."""

    @property
    def person(self) -> str | None:
        """Return who gave it, or None."""

    @property
    def where(self) -> str:
        """Return where it stood, for messages."""


J = TypeVar("J", bound=_Judgment)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What differs where judgments of one kind are read: a new kind has one, and a file."""

    fields: tuple[str, ...]  # that say what was judged, or how: a person id stands in none
    not_in_tables: str = ""  # why no table is read, or nothing where tables are
    alike: tuple[tuple[str, str], ...] = ()  # what no two of one input may differ in; what is said

    def rows(
        self,
        source: str | Path | Iterable[object],
        *,
        person_field: str,
        empty: bool = False,
        progress: Progress | None = None,
    ) -> Rows:
        """Return (place, row) for every row of a source; ``empty`` if a file may hold none."""
        refuse_person_field(person_field, self.fields)
        if self.not_in_tables and isinstance(source, (str, Path)) and separator(Path(source)):
            raise DataError(self.not_in_tables)
        return read_rows(source, person_field=person_field, empty=empty, progress=progress)

    def judgments(
        self,
        rows: Iterable[tuple[str, object]],
        parse: Callable[[object, str], Iterable[J]],
        *,
        hides_records: bool,
    ) -> Iterator[J]:
        """Yield what ``parse`` makes of every row; all name a person, or none does."""
        # Where all of a record is private, some may name a person and others not.
        first: J | None = None
        for place, row in rows:
            for one in parse(row, place):
                first = first or one
                for name, problem in self.alike:
                    if getattr(one, name) != getattr(first, name):
                        raise DataError(f"{one.where}: {problem}")
                if not hides_records:
                    refuse_some_named(one.person, first.person, one.where)
                yield one


RATINGS = ("levels", "pairs")
"""Whether each rating is taken by itself, or two of them as a comparison."""

_COMPARISONS = Kind(
    fields=FIELDS,
    alike=(
        ("privatized", "raw judgments and randomized answers in one file."),
        ("cut", TWO_FORMS),
        ("alone", "judgments of one answer and of two in one file. Nothing was released."),
        ("levels", "ratings with other levels than the others. Nothing was released."),
    ),
)
"""Of two answers, raw or randomized."""


def read_records(
    source: str | Path | Iterable[object],
    *,
    person_field: str = "person",
    hides_records: bool = False,
    levels: Levels | None = None,
    ratings: str = "levels",
    progress: Progress | None = None,
) -> Iterator[Record]:
    """Yield every record in canonical order, one at a time."""
    # Where all of a record is private there may be none at all.
    if _validate.one_of("ratings", ratings, RATINGS) == "pairs" and hides_records:
        raise UsageError(
            "ratings='pairs' (--ratings pairs) makes pairs of several records, and one of them is "
            "what is hidden. Nothing was read. Leave it out, or protect labels (--unit label)."
        )
    rows = _COMPARISONS.rows(
        source, person_field=person_field, empty=hides_records, progress=progress
    )
    records = records_of(
        rows, person_field=person_field, hides_records=hides_records, levels=levels
    )
    return paired_ratings(records) if ratings == "pairs" else records


def records_of(
    rows: Iterable[tuple[str, object]],
    *,
    person_field: str,
    hides_records: bool = False,
    levels: Levels | None = None,
) -> Iterator[Record]:
    """Yield the records of (place, row), one for every label, all of the first one's kind."""
    refuse_person_field(person_field)
    parse = partial(parse_records, person_field=person_field, levels=levels)
    return _COMPARISONS.judgments(rows, parse, hides_records=hides_records)


def line_of(
    prompt: Text, first: Text, second: Alternative, answer: int, person: str | None
) -> bytes:
    """Return the fields of one privatized record as a line."""
    row: dict[str, Any] = {"prompt": prompt, "first": first, "second": second}
    if isinstance(second, Absent):
        row = {"prompt": prompt, "completion": first}
        row |= {"family": second.family} if second.family else {}
    row["answer"] = int(answer)
    if person is not None:
        row["person"] = person
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


_READERS = (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",)))
"""How polars, pyarrow and pandas give their rows as mappings."""

_MISSING = ("NAType", "NaTType")  # what pandas writes for nothing; known by name, not imported


def frame_rows(frame: object, *, columns: Mapping[str, str] | None, person_field: str) -> Rows:
    """Yield (place, record) for every row of a frame; rows are counted from 0."""
    names = None
    if any(hasattr(frame, name) for name, _ in _READERS) and not isinstance(frame, type):
        names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
    if names is None:
        raise UsageError(
            f"frame must be a pandas or polars DataFrame or a pyarrow Table, got "
            f"{type(frame).__name__}. Nothing was read. Other rows go to sordino.read_pairs, which "
            "takes any iterable of mappings."
        )
    names = list(names)
    if len(set(names)) < len(names):
        raise DataError("frame has two columns of the same name. Nothing was read.")
    sources = _sources(names, columns or {}, person_field)
    rows: object = None
    for name, arguments in _READERS:
        if hasattr(frame, name):
            with suppress(TypeError, ValueError):
                rows = getattr(frame, name)(*arguments)
            break
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise UsageError(
            f"frame must give its rows as mappings, which {type(frame).__name__} does not. "
            "Nothing was read."
        )
    for index, row in enumerate(rows):
        yield f"row {index}", {field: _plain(row[name]) for field, name in sources.items()}


def _sources(names: list[str], columns: Mapping[str, str], person_field: str) -> dict[str, str]:
    """Return the frame's column for each of our fields that it has."""
    people = (person_field, f"{person_field}s")
    raw = [name for name in FIELDS if name != "answer"]
    if not isinstance(columns, Mapping) or not set(columns) <= {*raw, *people}:
        raise UsageError(
            f"columns must be a mapping from our fields ({', '.join((*raw, *people))}) to "
            "columns of the frame. Nothing was read."
        )
    for field, name in columns.items():
        if name not in names:
            raise UsageError(f"columns: the frame has no column {name!r} for {field!r}.")
        if name in FIELDS and name != field:
            raise UsageError(
                f"columns: {name!r} means something of its own, so it cannot be read as {field!r}: "
                "a judgment could be published. Nothing was read. Rename it in the frame."
            )
    renamed = set(columns.values())
    if len(renamed) < len(columns):
        raise UsageError("columns must name a different column for every field.")
    if "answer" in names:
        raise DataError(
            "A frame with a column 'answer' is not read: randomized answers come from JSON Lines "
            "beside their manifest, with sordino.read_pairs."
        )
    own = {name: name for name in (*raw, *people) if name in names and name not in renamed}
    return own | dict(columns)


def _plain(value: Any) -> Any:
    """Return a cell without numpy around it, and None where there is nothing."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    nothing = isinstance(value, float) and value != value  # noqa: PLR0124 (NaN is not itself)
    return None if nothing or type(value).__name__ in _MISSING else value
