"""CSV and TSV, one record at a time, quoted exactly as RFC 4180 has it.

The parser is ours because the one of Python's ``csv`` module limits a cell by a setting of the
whole process, and because it takes a stray quote for text, which may shift cells unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from sordino.errors import DataError

__all__ = ["read_table", "separator"]

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_BLANK = b" \r\n"


def separator(path: Path) -> str | None:
    """Return what separates the cells of a table, by the file's name, or None if it is no table.

    Example:
        >>> separator(Path("a.csv.gz")), separator(Path("a.jsonl.gz"))
        (',', None)
    """
    name = path.name.removesuffix(".gz").lower()
    return next((mark for end, mark in _SEPARATORS.items() if name.endswith(end)), None)


def read_table(
    lines: Iterable[tuple[int, bytes]],
    mark: str,
    *,
    longest: int,
    optional: str,
    answers: bool = False,
) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    """Yield (place, cells by column name) for every record below the header.

    Args:
        lines: Number and bytes of every line, blank ones too.
        mark: What separates cells.
        longest: Bytes that one record may not reach.
        optional: A column whose empty cells say that there is nothing.
        answers: Whether a column of randomized answers is read; they have no manifest here.

    Raises:
        DataError: The header cannot be used, a record has other cells than it, quotes are not in
            pairs around a whole cell, or a record is too large or not UTF-8.
    """
    cell = _cell(mark)
    names: list[str] | None = None
    for where, raw in _records(lines, longest):
        cells = _cells(_text(raw, where), mark, cell, where)
        if names is None:
            names = _header(cells, where, answers=answers)
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


def _text(raw: bytes, where: str) -> str:
    """Return one record as text, without its line end."""
    text: str | None = None
    with suppress(UnicodeDecodeError):
        text = raw.decode("utf-8")
    if text is None:
        raise DataError(f"{where}: not valid UTF-8.")
    return text.removesuffix("\n").removesuffix("\r")


def _cell(mark: str) -> re.Pattern[str]:
    """Return what one cell looks like, with the separator or the end behind it."""
    quoted, plain = '"([^"]*+(?:""[^"]*+)*+)"', f'([^"\\r\\n{mark}]*+)'
    return re.compile(rf"(?:{quoted}|{plain})({mark}|\Z)")


def _cells(text: str, mark: str, cell: re.Pattern[str], where: str) -> list[str]:
    """Return the cells of one record."""
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


def _header(names: list[str], where: str, *, answers: bool) -> list[str]:
    """Return the names of the columns; a message quotes none, for they may be a record."""
    if not all(names):
        raise DataError(
            f"{where}: a column has no name. The first line must name the columns (pandas adds "
            "one without a name unless told index=False)."
        )
    if len(set(names)) < len(names):
        raise DataError(f"{where}: two columns have the same name.")
    if "answer" in names and not answers:
        raise DataError(
            f"{where}: column 'answer' is not read from a table. Randomized answers are JSON "
            "Lines beside their manifest, as sordino privatize writes them."
        )
    return names
