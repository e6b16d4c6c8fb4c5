"""Records into vectors of bounded norm: one rule for logs and for what is asked of a policy."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.preferences.context_columns import ContextColumn
from sordino.preferences.features import clipped_rows
from sordino.preferences.files import LONGEST_LINE, Progress, every_line, read_mappings
from sordino.preferences.tables import read_table, separator

__all__ = [
    "UNNAMED",
    "CellReader",
    "bounded_vectors",
    "cell_of",
    "expanded",
    "read_cells",
    "rows_of",
    "usable_context_bound",
    "vectors_of",
]

UNNAMED = "\0"
"""What the names that :func:`rows_of` makes up for columns of a table without one begin with."""

_SMALLEST = 1e-100
_BLOCK = 1 << 13  # rows that are worked on at once, which bounds the memory


def rows_of(
    source: str | Path | Iterable[Mapping[str, Any]],
    progress: Progress | None = None,
    *,
    empty: bool = False,
) -> Iterator[tuple[str, Any]]:
    """Return (place, record) for every record of JSON Lines, of a table, or of an iterable.

    Columns of a table that have no name (pandas writes its row numbers so) are named
    :data:`UNNAMED` and their number. Whether JSON Lines may be ``empty`` is said; the others may.

    Raises:
        DataError: A row is malformed, or the file is of a kind that is not read.
        FileSystemError: The file cannot be read.
    """
    if not isinstance(source, (str, Path)):
        return ((f"record {number}", row) for number, row in enumerate(source, start=1))
    path = Path(source)
    mark = separator(path)
    if mark is None:
        return read_mappings(path, progress, empty=empty)
    lines = _named(every_line(path, progress), mark)
    return read_table(lines, mark, longest=LONGEST_LINE, optional="", answers=True)


def _named(lines: Iterator[tuple[int, bytes]], mark: str) -> Iterator[tuple[int, bytes]]:
    """Return the lines of a table; in the first, each column without a name is given one."""
    blank = []
    for number, line in lines:
        blank.append((number, line))
        if line.strip(b" \r\n"):  # as the table counts a line as blank: a line of tabs is none
            blank[-1] = (number, _with_names(line, mark.encode()))
            break
    return chain(blank, lines)


def _with_names(header: bytes, mark: bytes) -> bytes:
    """Return a header in which each empty cell holds a name that nobody would choose."""
    quoted = rb'"(?:[^"]|"")++"'  # skipped whole: a separator in it is part of a name
    empty = rb'(?:\A|(?<=%b))(?:"")?(?=%b|\r?\n?\Z)' % (mark, mark)
    made = iter(range(len(header) + 1))

    def name(found: re.Match[bytes]) -> bytes:
        whole = found.group()
        return whole if whole.strip(b'"') else b"%b%d" % (UNNAMED.encode(), next(made))

    return re.sub(quoted + b"|" + empty, name, header)


def cell_of(row: Any, name: str, where: str) -> Any:
    """Return one cell of a record.

    Raises:
        DataError: It is no record with named fields, or the field is missing.
    """
    try:
        return row[name]
    except (LookupError, TypeError, ValueError):
        named = isinstance(row, Mapping)
    problem = f"field {name!r} is missing" if named else "expected an object with named fields"
    raise DataError(f"{where}: {problem}.")


class CellReader:
    """Reads the declared cells of one record after another."""

    def __init__(self, columns: Iterable[ContextColumn]) -> None:
        """Begin with no record."""
        self._columns = tuple(columns)
        self._readers = [(column.name, column.reader()) for column in self._columns]

    def __call__(self, row: Any, where: str) -> list[float]:
        """Return a number or bucket for each column.

        Args:
            row: A mapping from names to cells.
            where: Where it stands, for messages.

        Raises:
            DataError: It is no mapping, a column is missing, or a cell cannot be used; the
                message names place and field and does not quote the cell.
        """
        values = [read(cell_of(row, name, where)) for name, read in self._readers]
        if any(map(math.isnan, values)):
            self._refuse(values, where)
        return values

    def _refuse(self, values: list[float], where: str) -> None:
        """Name the first cell that could not be used."""
        column = next(c for c, v in zip(self._columns, values, strict=True) if math.isnan(v))
        wanted = "a finite number" if column.buckets is None else "a text or a number"
        raise DataError(f"{where}: field {column.name!r} must be {wanted}.")


def read_cells(
    rows: Iterable[tuple[str, Any]], columns: tuple[ContextColumn, ...]
) -> Float[np.ndarray, "n c"]:
    """Return a number or bucket for each of n records and c declared columns.

    Raises:
        DataError: As :class:`CellReader`.
    """
    read = CellReader(columns)
    cells = array("d")
    for where, row in rows:
        cells.extend(read(row, where))
    return np.array(cells).reshape(-1, len(columns))


def expanded(
    cells: Float[np.ndarray, "n c"], columns: tuple[ContextColumn, ...]
) -> Float[np.ndarray, "n p"]:
    """Return numbers as they are and each bucket as a one-hot vector, side by side."""
    rows = np.zeros((len(cells), sum(column.width for column in columns)))
    start = 0
    for column, values in zip(columns, cells.T, strict=True):
        if column.buckets is None:
            rows[:, start] = values
        else:
            rows[np.arange(len(cells)), start + values.astype(np.int64)] = 1.0
        start += column.width
    return rows


def bounded_vectors(
    cells: Float[np.ndarray, "n c"], columns: tuple[ContextColumn, ...], context_bound: float
) -> Float[np.ndarray, "n p"]:
    """Return each row over the bound, shortened to norm at most 1 on its own.

    Args:
        cells: As :func:`read_cells` gives them.
        columns: What they are; none if they are vectors already.
        context_bound: As :func:`usable_context_bound` permits.
    """
    width = sum(column.width for column in columns) if columns else cells.shape[1]
    vectors = np.empty((len(cells), width))
    for start in range(0, len(cells), _BLOCK):
        block = np.ascontiguousarray(cells[start : start + _BLOCK])
        rows = expanded(block, columns) if columns else block
        vectors[start : start + _BLOCK] = clipped_rows(rows, context_bound) / context_bound
    return vectors


def usable_context_bound(value: Any) -> float:
    """Return the bound; refuse one for which squared norms would leave the range of floats."""
    bound = _validate.positive("context_bound", value)
    if not _SMALLEST <= bound <= 1 / _SMALLEST:
        raise UsageError(f"context_bound must be within 1e-100 and 1e100, got {value!r}.")
    return bound


def vectors_of(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    columns: tuple[ContextColumn, ...],
    context_bound: float,
    progress: Progress | None = None,
) -> Float[np.ndarray, "n p"]:
    """Return the vectors of records by the rule that makes those of logs.

    Args:
        source: A file, or mappings, that hold the columns.
        columns: What the logs were read with.
        context_bound: Likewise.
        progress: Called with (bytes read, size of the file).

    Raises:
        DataError: A record cannot be used; place and field are named.
        FileSystemError: The file cannot be read.

    Example:
        >>> columns = ContextColumn("age"), ContextColumn("city", 2)
        >>> vectors_of([{"age": 0.5, "city": "Aa"}], columns=columns, context_bound=2.0)
        array([[0.25, 0.  , 0.5 ]])
    """
    return bounded_vectors(read_cells(rows_of(source, progress), columns), columns, context_bound)
