"""Parquet files: what columns they have, and their rows; the only file that knows pyarrow."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sordino._files import explained
from sordino.errors import DataError, MissingExtra
from sordino.preferences.records import FIELDS

__all__ = [
    "DIFFERENCE",
    "Columns",
    "VectorWriter",
    "column_parts",
    "copy_tables",
    "row_groups",
    "schema_of",
    "vectors",
]

_BUFFER = 1 << 22  # bytes, so that no row group is read as a whole

DIFFERENCE = "difference"
"""The column of vectors: feature differences φ(first) − φ(second)."""


@dataclass(frozen=True)
class Columns:
    """What a file holds of what we read: the same in every file that is read with it.

    Attributes:
        types: (name, type) of every column that is read, in the order of names.
        dimension: Of the vectors; None where there are texts.
    """

    types: tuple[tuple[str, str], ...]
    dimension: int | None


def schema_of(path: Path, person_field: str) -> Columns:
    """Return the columns that are read.

    Raises:
        DataError: The file is no Parquet, or was cut short, or its vectors cannot be used.
        FileSystemError: It cannot be read.
        MissingExtra: pyarrow is not installed.
    """
    with _opened(path) as file:
        schema = file.schema_arrow
        known = {*FIELDS, DIFFERENCE, person_field, f"{person_field}s", "labels"}
        names = sorted(name for name in schema.names if name in known)
        types = tuple((name, str(schema.field(name).type)) for name in names)
        if DIFFERENCE not in names:
            return Columns(types, None)
        return Columns(types, _dimension(path, file))


def _dimension(path: Path, file: Any) -> int:
    """Return how many numbers the first vector has.

    Raises:
        DataError: There is none, or the column is no list of numbers.
    """
    kind = file.schema_arrow.field(DIFFERENCE).type
    size = getattr(kind, "list_size", -1)  # of lists of a fixed size
    if size > 0:
        return int(size)
    for batch in file.iter_batches(batch_size=1, columns=[DIFFERENCE]):
        first = batch.column(0)[0].as_py()
        if isinstance(first, list) and first:
            return len(first)
        break
    raise DataError(f"{path.name}: column {DIFFERENCE!r} must hold lists of numbers.")


def row_groups(path: Path) -> list[int]:
    """Return how many rows each row group has.

    Raises:
        DataError: The file is no Parquet, or was cut short.
        FileSystemError: It cannot be read.
    """
    with _opened(path) as file:
        groups = range(file.metadata.num_row_groups)
        return [file.metadata.row_group(group).num_rows for group in groups]


def column_parts(
    path: Path, groups: Sequence[int], columns: Sequence[str], rows: int
) -> Iterator[Any]:
    """Yield record batches of some columns, as far as the file has them.

    Args:
        path: The file.
        groups: Which row groups.
        columns: Their names.
        rows: Most rows at once.

    Raises:
        DataError: The file is malformed.
        FileSystemError: It cannot be read.
    """
    with _opened(path) as file:
        known = [name for name in columns if name in file.schema_arrow.names]
        batches = file.iter_batches(
            batch_size=rows, row_groups=list(groups), columns=known, use_threads=False
        )
        yield from batches


def vectors(path: Path, column: Any, dimension: int) -> np.ndarray:
    """Return a column of lists as an array, one row each.

    Raises:
        DataError: A list has another length, or is missing or holds something missing.
    """
    values = column.flatten()
    if column.null_count or values.null_count or len(values) != len(column) * dimension:
        raise DataError(
            f"{path.name}: column {DIFFERENCE!r} must hold a list of {dimension} numbers in "
            "every row. Nothing was released."
        )
    array = values.to_numpy(zero_copy_only=False).reshape(-1, dimension)
    offsets = getattr(column, "offsets", None)
    if offsets is not None and (np.diff(offsets.to_numpy()) != dimension).any():
        raise DataError(
            f"{path.name}: column {DIFFERENCE!r} has lists of different lengths. Nothing was "
            "released."
        )
    return np.asarray(array)


class VectorWriter:
    """A Parquet file of vectors, answers and who gave them, as it is being written."""

    def __init__(self, file: BinaryIO, dimension: int, *, persons: bool) -> None:
        """Start the file.

        Args:
            file: Where to write.
            dimension: Of the vectors.
            persons: Whether it is known who answered.
        """
        arrow, parquet = _library()
        columns = [
            (DIFFERENCE, arrow.list_(arrow.float64(), dimension)),
            ("answer", arrow.int8()),
        ]
        self._schema = arrow.schema([*columns, ("person", arrow.string())] if persons else columns)
        self._writer = parquet.ParquetWriter(file, self._schema)

    def write(self, rows: np.ndarray, answers: np.ndarray, persons: Sequence[str] | None) -> None:
        """Write some rows."""
        arrow, _ = _library()
        lists = arrow.FixedSizeListArray.from_arrays(arrow.array(rows.ravel()), rows.shape[1])
        columns = [lists, arrow.array(answers.astype(np.int8))]
        if persons is not None:
            columns.append(arrow.array(list(persons), arrow.string()))
        self._writer.write_table(arrow.Table.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        """Write what ends the file."""
        self._writer.close()


def copy_tables(paths: Sequence[Path], file: BinaryIO) -> None:
    """Write the rows of Parquet files one after the other into one; all have the same columns.

    Raises:
        DataError: One is malformed.
        FileSystemError: One cannot be read.
    """
    _, parquet = _library()
    writer = None
    for path in paths:
        with _opened(path) as part:
            writer = writer or parquet.ParquetWriter(file, part.schema_arrow)
            for group in range(part.metadata.num_row_groups):
                writer.write_table(part.read_row_group(group))
    if writer is not None:
        writer.close()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a Parquet file.

    Raises:
        DataError: It is malformed.
        FileSystemError: It cannot be read.
    """
    arrow, parquet = _library()
    with explained(f"{path.name} cannot be read"):
        try:
            with path.open("rb") as raw, parquet.ParquetFile(raw, buffer_size=_BUFFER) as file:
                yield file
        except arrow.ArrowException:
            pass
        except OSError as error:
            if error.errno is not None:  # else it is pyarrow's word for damage
                raise
        else:
            return
    raise DataError(
        f"{path.name} is no Parquet file, or it was cut short or damaged. Nothing was released."
    )


def _library() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet reader.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyarrow as pa  # noqa: PLC0415 - an extra
            from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        pass
    else:
        return pa, parquet
    raise MissingExtra(
        "Parquet files need pyarrow. Nothing was read. Install it with: pip install "
        "'sordino[scale]'"
    )
