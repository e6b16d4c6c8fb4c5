"""Any source of rows that people have: files, packed or not, folders of them, and data frames.

What a file is, its name and its first bytes say. The parser of tables is ours because the one of
Python's ``csv`` module limits a cell by a setting of the whole process, and because it takes a
stray quote for text, which may shift cells unseen. Of frames no library is imported.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, cast

from sordino._files import UNPACKING_ERRORS, explained
from sordino.errors import DataError, FileSystemError, UsageError

from .parquet import arrow_names, arrow_rows, unpacked_zstd

Rows = Iterator[tuple[str, Any]]  # where each record stands, for messages, and what it says
Part = tuple[int, int, int]
"""From where to where a file is read, and how many lines or rows stand before that."""

_BLANK = b" \r\n"
_BOM = b"\xef\xbb\xbf"
_PACKED: Final = (".gz", ".zst")
_TABLES: Final = {".csv": ",", ".tsv": "\t"}
_ARROW: Final = (".parquet", ".arrow", ".feather")
_JSON: Final = (".jsonl", ".json", ".ndjson")
_SHEETS: Final = {".xlsx": "read_excel", ".xls": "read_excel", ".ods": "read_excel"}
_MARKS: Final = (",", ";", "\t", "|")  # of which the header has most outside of quotes
_START: Final = 1 << 16  # bytes that say what a file is


def stem_of(path: Path) -> str:
    """Return a file's name in small letters, without what says that it is packed."""
    name = path.name.lower()
    return next((name.removesuffix(end) for end in _PACKED if name.endswith(end)), name)


def separator(path: Path) -> str | None:
    """Return what separates the cells of a table, by the file's name, or None if it is no table."""
    return _TABLES.get(Path(stem_of(path)).suffix)


def read_table(  # noqa: C901 (a case for each thing a table may get wrong)
    lines: Iterable[tuple[int, bytes]],
    mark: str,
    *,
    longest: int,
    optional: str | None,
    answers: bool = False,
    unnamed: bool = False,
    header: list[str] | None = None,
) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    """Yield (place, cells by column name) for every record below the header."""
    # The names of the columns are put into `header`, if it is given, before the first record; if
    # they are in it already, all lines are records.
    # Columns without a name (pandas writes its row numbers so) may be there if they are `unnamed`:
    # they are called `UNNAMED` and their number.
    quoted, plain = '"([^"]*+(?:""[^"]*+)*+)"', f'([^"\\r\\n{mark}]*+)'
    # What one cell looks like, with the separator or the end behind it.
    cell = re.compile(rf"(?:{quoted}|{plain})({mark}|\Z)")
    names = header or None
    for where, raw in _records(lines, longest):
        text = None
        with suppress(UnicodeDecodeError):
            text = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
        if text is None:
            raise DataError(f"{where}: not valid UTF-8. Save the file as UTF-8.")
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
            if header is not None:
                header += names
                yield where, {}
        elif len(cells) != len(names):
            raise DataError(
                f"{where}: {len(cells)} cells, but the header has {len(names)} columns, separated "
                f"by {mark!r}."
            )
        else:
            row: dict[str, str | None] = dict(zip(names, cells, strict=True))
            if optional is not None and row.get(optional) == "":
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


_JSON_LINES: Final = "JSON Lines"
UNNAMED = "\0"  # what the names that are made up for columns of a table without one begin with
LONGEST_LINE = 1 << 24  # bytes that one record may not reach
UNPACKED = 1 << 28
"""Bytes that may be packed in a file of any size; beyond, no more than so many times its size."""
_TIMES: Final = 200  # texts of people pack to a third or a twentieth; a bomb to a thousandth


_BOMB: Final = (
    "That is no text that people wrote. Nothing was released. If it is what you want, unpack it "
    "and give the plain file: it may have any size."
)
_MANIFEST_END: Final = ".manifest.json"  # how the manifest of a privatized file is called


Progress = Callable[[int, int], None]
"""What a long read reports to: called with (bytes of the file read so far, its size)."""


def packing(path: Path, raw: BinaryIO) -> str:
    """Return how a file is packed, by its name or its first bytes; nothing if it is not."""
    head = raw.peek(4)[:4] if isinstance(raw, io.BufferedReader) else b""
    if path.suffix.lower() == ".gz" or head.startswith(b"\x1f\x8b"):
        return "gzip"
    return "zstd" if path.suffix.lower() == ".zst" or head == b"\x28\xb5\x2f\xfd" else ""


def plain_reader(raw: BinaryIO, packed: str) -> BinaryIO:
    """Return a reader of the plain bytes of an open file."""
    if packed == "zstd":
        return unpacked_zstd(raw)
    return cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if packed else raw


def every_line(
    path: Path, progress: Progress | None = None, part: Part | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, bytes) of every line, without a byte-order mark; unpacks."""
    if os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError(f"{path.name} is a folder; give a file.")
    with explained(f"{path.name} cannot be read"), path.open("rb") as raw:
        total = path.stat().st_size
        blank = size = 0
        packed = packing(path, raw)
        first, last, number = part or (0, math.inf, 0)
        raw.seek(first)
        most = max(UNPACKED, _TIMES * total) if packed else math.inf
        try:
            reader = plain_reader(raw, packed)
            while (not part or raw.tell() < last) and (line := reader.readline(LONGEST_LINE)):
                number += 1
                size += len(line)
                blank = 0 if line.strip() else blank + len(line)
                if max(len(line), blank) >= LONGEST_LINE or size > most:
                    break
                yield number, line.removeprefix(_BOM) if number == 1 else line
                if progress and number % 1024 == 0:
                    progress(raw.tell(), total)
            else:
                return
        except UNPACKING_ERRORS:
            line = b""
    if size > most:
        raise DataError(
            f"line {number}: more than {_TIMES} times the size of the packed file is in it. {_BOMB}"
        )
    if blank >= LONGEST_LINE:
        raise DataError(
            f"line {number}: more than 16 MiB of blank lines; a file has no use for it."
        )
    if line:
        raise DataError(f"line {number}: longer than 16 MiB; one record per line is expected.")
    raise DataError(f"after line {number}: the file is not valid {packed}, or it was cut short.")


def _json_objects(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, object) for every line of JSON Lines that is not blank."""
    for number, line in lines:
        if not line.strip():
            continue
        where = f"line {number}"
        try:
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            problem = "not valid UTF-8. Save the file as UTF-8"
        except (ValueError, RecursionError):
            problem = "not valid JSON (one object per line is expected)"
        else:
            if isinstance(value, dict):
                yield where, value
                continue
            problem = "expected an object with named fields"
        del line
        raise DataError(f"{where}: {problem}.")


def _array_objects(  # noqa: C901 (likewise)
    path: Path, progress: Progress | None
) -> Rows:
    """Yield (place, object) for every element of a JSON array, one at a time."""
    decoder, utf8 = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8")()
    text, number, enough, begun, ended = "", 0, 0, False, False
    for block in _blocks(path, progress):  # the last is empty
        whole = False
        with suppress(UnicodeDecodeError):
            text, whole = text + utf8.decode(block, final=not block), True
        if not whole:
            raise DataError(f"after record {number}: not valid UTF-8. Save the file as UTF-8.")
        if not begun:
            text = text.lstrip("\ufeff \t\r\n")
            begun, text = bool(text), text[1:]
        while text := text.lstrip(" \t\r\n,"):
            if ended or (block and len(text) < enough):
                break
            if text[0] == "]":
                ended, text = True, text[1:]
                continue
            if text[0] != "{":
                raise DataError(f"record {number + 1}: expected an object with named fields.")
            value, end = None, 0
            with suppress(ValueError, RecursionError):
                value, end = decoder.raw_decode(text)
            if not end and block and len(text) < LONGEST_LINE:
                enough = 2 * len(text)  # so that what is long is not looked at too often
                break
            if not end:
                raise DataError(f"record {number + 1}: not valid JSON, or longer than 16 MiB.")
            number, enough, text = number + 1, 0, text[end:]
            yield f"record {number}", value
        if ended and text:
            raise DataError(f"after record {number}: something stands behind the JSON array.")
    if not ended:
        raise DataError(f"after record {number}: the JSON array does not end: it was cut short.")


def _blocks(path: Path, progress: Progress | None) -> Iterator[bytes]:
    """Yield the plain bytes of a file, block by block, and nothing at the end."""
    with explained(f"{path.name} cannot be read"), path.open("rb") as raw:
        total, size, packed, block = path.stat().st_size, 0, packing(path, raw), b" "
        try:
            reader = plain_reader(raw, packed)
            while block:
                block = reader.read(_START)
                size += len(block)
                if packed and size > max(UNPACKED, _TIMES * total):
                    break
                yield block
                if progress:
                    progress(raw.tell(), total)
            else:
                return
        except UNPACKING_ERRORS:
            block = b""
    if block:
        raise DataError(f"more than {_TIMES} times the size of the packed file is in it. {_BOMB}")
    raise DataError(f"the file is not valid {packed}, or it was cut short.")


_Units = Literal["", "lines", "records", "batches"]


@dataclass(frozen=True)
class _Container:
    """A source of rows, and what it is."""

    what: str  # in words
    rows: Rows
    names: tuple[str, ...] | None = None  # of its columns; None where the first record tells them
    table: bool = False  # whether its cells are texts, and its names may be a record
    # Between which a file can be entered in the middle; nothing if it cannot.
    units: _Units = ""


def contained(
    source: object,
    *,
    person_field: str | None = None,
    answers: bool = False,
    unnamed: bool = False,
    progress: Progress | None = None,
    part: Part | None = None,
) -> _Container:
    """Return what a source is, and its rows; of a file only the start is read as yet."""
    # A table whose columns may be `unnamed` may have no row, and any columns. A file that can be
    # entered in the middle may be read in part.
    if isinstance(source, (str, Path)):
        path = Path(source)
        if os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
            return _together(files_of(path), person_field=person_field, progress=progress)
        terms: dict[str, Any] = {"answers": answers, "unnamed": unnamed, "part": part}
        return _file(path, person_field, **terms, progress=progress)
    if isinstance(source, Sequence) and source and all(isinstance(p, Path) for p in source):
        return _together(files_of(source), person_field=person_field, progress=progress)
    names = _frame_names(source)
    if names is not None:
        return _Container(type(source).__name__, _frame_rows(source), names)
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise UsageError(
            f"A {type(source).__name__} holds no rows. Nothing was read. Give a file, a folder, a "
            "data frame, or an iterable of mappings; of a dictionary of splits one of them "
            '(data["train"]), and of a dictionary of columns a frame.'
        )
    rows = ((f"record {number}", row) for number, row in enumerate(source, start=1))
    return _Container("rows in memory", rows)


def _together(
    paths: Sequence[Path], *, person_field: str | None, progress: Progress | None
) -> _Container:
    """Return the rows of several files, one after the other."""
    if len(paths) == 1:
        return _file(paths[0], person_field, progress=progress)
    first = _file(paths[0], person_field)
    later = (_file(path, person_field) for path in paths[1:])
    each = zip(paths, chain([first], later), strict=True)
    rows = ((f"{path.name}, {at}", row) for path, one in each for at, row in one.rows)
    return _Container(f"{len(paths)} files of {first.what}", rows, first.names, first.table)


def _file(
    path: Path,
    person_field: str | None,
    *,
    answers: bool = False,
    unnamed: bool = False,
    progress: Progress | None = None,
    part: Part | None = None,
) -> _Container:
    kind, packed = _kind_of(path)
    said = f"{kind}, packed by {packed}" if packed else kind
    if kind in ("Parquet", "Arrow"):
        rows: Rows = arrow_rows(path, progress, part)
        units: _Units = "batches" if kind == "Arrow" else ""
        return _Container(said, rows, arrow_names(path), units=units)
    if kind == "JSON array":
        return _Container(said, _array_objects(path, progress))
    if kind == _JSON_LINES:
        rows = _json_objects(every_line(path, progress, part))
        return _Container(said, rows, units="" if packed else "lines")
    header: list[str] = []
    terms: dict[str, Any] = {"mark": kind, "longest": LONGEST_LINE, "optional": person_field}
    terms |= {"answers": answers or unnamed, "unnamed": unnamed, "header": header}
    rows = read_table(every_line(path, progress), **terms)
    next(rows, None)  # the header
    if part:
        rows = read_table(every_line(path, progress, part), **terms)
    mark = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}[kind]
    said = f"a table separated by {mark}" + (f", packed by {packed}" if packed else "")
    units = "" if packed else "records"
    return _Container(said, rows, tuple(header), table=True, units=units)


def _kind_of(path: Path) -> tuple[str, str]:
    """Return what a file is, or what separates its cells, and how it is packed."""
    suffix = Path(stem_of(path)).suffix
    if suffix in _SHEETS:
        raise DataError(
            f"{path.name} is a sheet, which is not read. Nothing was read. Give the frame of it "
            f"(pandas.{_SHEETS[suffix]}), or save the sheet as .csv."
        )
    start, packed = b"", ""
    if path.is_file():  # of a pipe nothing is left to read once it was looked at
        with explained(f"{path.name} cannot be read"), path.open("rb") as raw:
            packed = packing(path, raw)
            with suppress(*UNPACKING_ERRORS):
                start = plain_reader(raw, packed).read(_START)
    if start.startswith(b"PAR1") or suffix == ".parquet":
        return "Parquet", packed
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")) or suffix in _ARROW:
        return "Arrow", packed
    text, mark = start.removeprefix(_BOM).lstrip(), _TABLES.get(suffix)
    if mark is None and text.startswith(b"["):
        return "JSON array", packed
    line, marks = re.sub(rb'"[^"]*"', b"", text.split(b"\n", 1)[0]).decode("latin-1"), _MARKS
    found = max(marks, key=lambda each: (line.count(each), each == mark))
    known = suffix in _JSON or text.startswith(b"{") or not line.count(found)
    if mark is None and known:
        return _JSON_LINES, packed
    return (found if line.count(found) else mark or found), packed


def files_of(sources: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the files of sources, each once; a folder's in the order of their names."""
    given = [sources] if isinstance(sources, (str, Path)) else list(sources)
    paths = [path for source in given for path in files_in(Path(source).absolute())]
    if not paths:
        raise UsageError(
            "No file to read. Give files, or folders of files, of JSON, tables, Parquet or Arrow "
            f"({', '.join((*_JSON, *_TABLES, *_ARROW))}; also packed as .gz or .zst)."
        )
    seen: set[tuple[int, int]] = set()
    for path in paths:
        with explained(f"{path.name} cannot be read"):
            status = path.stat()
        if (status.st_dev, status.st_ino) in seen:
            raise UsageError(
                f"{path.name} is given twice: its labels would count twice, and be hidden half "
                "as well. Nothing was read."
            )
        seen.add((status.st_dev, status.st_ino))
    return paths


def files_in(path: Path) -> list[Path]:
    """Return a file itself, or the files of a folder that are data by their names."""
    with explained(f"{path.name} cannot be read"):
        if not path.is_dir():
            return [path]
        items = [item for item in sorted(path.iterdir()) if not _is_hidden(item.name)]
        names = {item.name for item in items}
    if "dataset_dict.json" in names:
        raise UsageError(
            f"{path.name} holds several splits of a data set. Nothing was read. Give one of its "
            "folders."
        )
    if "state.json" in names:
        return _shards(path)
    for item in items:
        # What lies in a folder, looks like data and would be left out, is refused.
        if item.is_dir():
            for _, folders, files in os.walk(item):
                folders[:] = [name for name in folders if not _is_hidden(name)]
                if any(map(_is_data, files)):
                    raise UsageError(
                        f"{item.name} is a folder with files in it, inside a folder that "
                        "is read; folders in folders are not. Nothing was read. Give every "
                        "folder by its name, or take it away."
                    )
    return [item for item in items if not item.is_dir() and _is_data(item.name)]


def _shards(path: Path) -> list[Path]:
    """Return the files of a data set that was saved by ``save_to_disk``, in its order."""
    problem = f"{path.name} is no whole data set of save_to_disk"
    state: Any = None
    with explained(f"{path.name} cannot be read"), suppress(ValueError):
        state = json.loads((path / "state.json").read_text("utf-8"))
    listed = state.get("_data_files") if isinstance(state, Mapping) else None
    names = [each.get("filename") for each in listed or () if isinstance(each, Mapping)]
    shards = [path / name for name in names if isinstance(name, str) and Path(name).name == name]
    if not shards or len(shards) < len(listed or ()) or not all(map(Path.is_file, shards)):
        raise DataError(
            f"{problem}: files that its state.json lists are missing. Nothing was read."
        )
    if state.get("_indices_files"):
        raise DataError(
            f"{problem}: it is a selection of rows. Nothing was read. Save it again after "
            "flatten_indices()."
        )
    return shards


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _is_data(name: str) -> bool:
    small = stem_of(Path(name))
    known = Path(small).suffix in {*_JSON, *_TABLES, *_ARROW, *_SHEETS}
    ours = name == "sordino.json" or small.endswith(_MANIFEST_END)  # what is promised of data
    return known and not ours and not _is_hidden(name)


_READERS = (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",)))
"""How polars, pyarrow and pandas give their rows as mappings."""

_MISSING = ("NAType", "NaTType")  # what pandas writes for nothing; known by name, not imported


def _frame_names(frame: object) -> tuple[str, ...] | None:
    """Return the columns of a frame, or of a ``datasets`` data set, or None if it is neither."""
    if isinstance(frame, (type, Mapping)) or not any(hasattr(frame, n) for n, _ in _READERS):
        return None
    names = getattr(frame, "column_names", None)
    names = getattr(frame, "columns", None) if names is None else names
    if names is None or isinstance(names, Mapping):
        return None
    found = tuple(names)
    if len(set(found)) < len(found):
        raise DataError("frame has two columns of the same name. Nothing was read.")
    if "answer" in found:
        raise DataError(
            "A frame with a column 'answer' is not read: randomized answers come from JSON Lines "
            "beside their manifest, with sordino.read_pairs."
        )
    return found


def _frame_rows(frame: object) -> Rows:
    """Yield (place, row) for every row of a frame; rows are counted from 0."""
    # a data set of `datasets` gives one at a time
    rows: Any = frame if hasattr(frame, "features") and isinstance(frame, Iterable) else None
    for name, arguments in _READERS if rows is None else ():
        if hasattr(frame, name):
            with suppress(TypeError, ValueError):
                rows = getattr(frame, name)(*arguments)
            break
    named = isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows)
    if rows is not frame and not named:
        raise UsageError(
            f"frame must give its rows as mappings, which {type(frame).__name__} does not. "
            "Nothing was read."
        )
    for index, row in enumerate(rows):
        yield f"row {index}", {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Return a cell without numpy around it, and None where there is nothing."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    nothing = isinstance(value, float) and value != value  # noqa: PLR0124 (NaN is not itself)
    return None if nothing or type(value).__name__ in _MISSING else value
