"""Parquet and Arrow files: columns and rows, and zstd; the only file that knows pyarrow."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from sordino._files import explained
from sordino.errors import DataError, SordinoError, modules_of_extra

from .records import FIELDS, LABELS, PERSON

T = TypeVar("T")

_ROWS = 4096  # in one batch
_BUFFER = 1 << 22  # bytes, so that no row group is read as a whole
_NOTHING = "Nothing was released."

DIFFERENCE = "difference"  # the column of vectors: feature differences φ(first) − φ(second)


@dataclass(frozen=True)
class Columns:
    """What a file holds of what we read: the same in every file that is read with it."""

    # (name, type) of every column that is read, in the order of names.
    types: tuple[tuple[str, str], ...]
    dimension: int | None  # of the vectors: None of texts, 0 where there is none and any may be


def schema_of(path: Path, wanted: Sequence[str], person_field: str) -> Columns:
    """Return the columns that are read."""
    people = f"{person_field}s"
    with _opened(path) as file:
        schema = _asked(lambda: file.schema_arrow, _damage(path))
        known = {*(wanted or FIELDS), *FIELDS, DIFFERENCE, person_field, people}
        names = sorted(name for name in schema.names if name in known)
        for one, other in pairwise(names):
            if one == other:
                raise DataError(f"{path.name}: column {one!r} is there twice. {_NOTHING}")
        types = tuple((name, str(schema.field(name).type)) for name in names)
        if DIFFERENCE not in names:
            return Columns(types, None)
        for plural in (LABELS, people):
            if plural in names:
                raise DataError(
                    f"{path.name}: column {plural!r} is not read beside {DIFFERENCE!r}: every row "
                    f"there is one judgment, of one person. {_NOTHING} Name the columns 'label' "
                    f"and {person_field!r}, with a row for each judgment, or take it out."
                )
        if person_field != PERSON and person_field not in names:
            raise DataError(
                f"{path.name}: the person field {person_field!r} is missing. {_NOTHING}"
            )
        return Columns(types, _dimension(path, file, schema.field(DIFFERENCE).type))


def _dimension(path: Path, file: Any, kind: Any) -> int:
    """Return how many numbers the first vector has; 0 if there is none and they may have any."""
    problem = f"{path.name}: column {DIFFERENCE!r} must hold lists of numbers."
    types = _library()[0].types
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    number = (types.is_integer, types.is_floating, types.is_boolean)
    listed = any(holds(kind) for holds in lists)
    if not (listed and any(holds(kind.value_type) for holds in number)):
        raise DataError(problem)
    size = getattr(kind, "list_size", -1)  # of lists of a fixed size
    if size > 0:
        return int(size)
    batches = file.iter_batches(batch_size=1, columns=[DIFFERENCE])
    first = _asked(lambda: next(batches, None), _damage(path))
    if first is None:
        return 0
    if first.column(0).null_count or not (size := len(first.column(0).flatten())):
        raise DataError(problem)
    return size


def row_groups(path: Path) -> list[int]:
    """Return how many rows each row group has."""
    with _opened(path) as file:
        known, groups = file.metadata, range(file.metadata.num_row_groups)
        return _asked(lambda: [known.row_group(each).num_rows for each in groups], _damage(path))


def place_of(path: Path, groups: Sequence[int]) -> str:
    """Return where some row groups are, for messages."""
    several = f"groups {groups[0]} to {groups[-1]}"
    return f"{path.name}: row {several if len(groups) > 1 else f'group {groups[0]}'}"


def column_parts(
    path: Path, groups: Sequence[int], columns: Sequence[str], rows: int, *, whole: bool = False
) -> Iterator[Any]:
    """Yield record batches of some columns, as far as the file has them; or whole row groups."""
    problem = f"{place_of(path, groups)} cannot be read: cut short or damaged. {_NOTHING}"
    with _opened(path) as file:
        known = [name for name in columns if name in file.schema_arrow.names]
        batches = _row_batches(file, groups, rows, known, whole=whole)
        while (batch := _asked(lambda: next(batches, None), problem)) is not None:
            yield batch


def _row_batches(
    file: Any,
    groups: Sequence[int],
    rows: int,
    columns: Sequence[str] | None = None,
    *,
    whole: bool = False,
) -> Iterator[Any]:
    """Yield record batches of some row groups, each of at most so many rows."""
    # pyarrow keeps what it read of a row group until all that it was asked for are done, so it is
    # asked for as few as fill a batch.
    some, size = list[int](), 0
    for group in groups:
        some, size = [*some, group], size + file.metadata.row_group(group).num_rows
        if size >= rows or group == groups[-1]:
            if whole:  # words of all groups in one dictionary
                table = file.read_row_groups(some, columns=columns, use_threads=False)
                yield from table.unify_dictionaries().combine_chunks().to_batches()
            else:
                yield from file.iter_batches(
                    rows, row_groups=some, columns=columns, use_threads=False
                )
            some, size = [], 0


def column_values(place: str, batch: Any, name: str) -> list[Any]:
    """Return the values of one column of a batch."""
    return list(_asked(lambda: batch.column(name).to_pylist(), _unreadable(place, name)))


def rows_of(place: str, batch: Any, numbers: Iterable[int]) -> Iterator[tuple[str, Any]]:
    """Yield (place, row) for every row of a batch, numbered, without its empty fields."""
    names = batch.schema.names
    columns = [column_values(place, batch, name) for name in names]
    for number, *values in zip(numbers, *columns, strict=True):
        row = zip(names, values, strict=True)
        yield f"row {number}", {name: value for name, value in row if value is not None}


def alike_rows(place: str, batch: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first row of each kind and the kind of every row; None where columns are nested.

    Rows of one kind hold the same values, so that each need be looked at once.
    """

    def read() -> tuple[np.ndarray, np.ndarray] | None:
        kinds, first = np.zeros(len(batch), np.int64), np.zeros(0, np.int64)
        for column in batch.columns:
            if arrow.types.is_nested(column.type):
                return None
            if not arrow.types.is_dictionary(column.type):
                column = column.dictionary_encode()  # noqa: PLW2901 (the same values)
            values = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            _, first, kinds = np.unique(
                kinds * (len(column.dictionary) + 1) + values + 1,
                return_index=True,
                return_inverse=True,
            )
        return first, kinds

    arrow, _ = _library()
    return _asked(read, _unreadable(place, "winner"))


def numbers(place: str, batch: Any, name: str) -> np.ndarray:
    """Return one column of numbers as an array; of those that are missing, NaN."""
    arrow, _ = _library()

    def read() -> np.ndarray:
        column = batch.column(name)
        if arrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if arrow.types.is_decimal(column.type) or arrow.types.is_boolean(column.type):
            column = column.cast(arrow.float64())
        return np.asarray(column.to_numpy(zero_copy_only=False))

    found = _asked(read, _unreadable(place, name))
    if found.dtype.kind not in "iuf":
        raise DataError(f"{place}: column {name!r} must hold numbers. {_NOTHING}")
    return found


def vectors(place: str, column: Any, dimension: int) -> np.ndarray:
    """Return a column of lists as an array, one row each."""

    def read() -> np.ndarray:
        values = column.flatten()
        if column.null_count or values.null_count or len(values) != len(column) * dimension:
            raise DataError(
                f"{place}: column {DIFFERENCE!r} must hold a list of {dimension} numbers in every "
                f"row. {_NOTHING}"
            )
        offsets = getattr(column, "offsets", None)
        if offsets is not None and (np.diff(offsets.to_numpy()) != dimension).any():
            raise DataError(
                f"{place}: column {DIFFERENCE!r} has lists of different lengths. {_NOTHING}"
            )
        return np.asarray(values.to_numpy(zero_copy_only=False).reshape(-1, dimension))

    return _asked(read, _unreadable(place, DIFFERENCE))


def arrow_names(path: Path) -> tuple[str, ...]:
    """Return the columns of a Parquet or Arrow file."""
    with _batches(path) as (names, _):
        if len(set(names)) < len(names):
            raise DataError(f"{path.name}: two columns have the same name. {_NOTHING}")
        return names


def arrow_batches(path: Path) -> tuple[list[int], list[int]]:
    """Return how many rows each batch of an Arrow file has, and where batches begin and end."""
    # Of a stream where is a byte, else the number of the batch.
    with _opened_arrow(path) as (reader, raw):
        count = getattr(reader, "num_record_batches", None)
        marks, batches = [raw.tell()], _arrow_batches(reader, raw, None)
        sizes = list[int]()
        while (batch := _asked(lambda: next(batches, None), _damage(path))) is not None:
            sizes.append(len(batch))
            marks.append(raw.tell())
        if count is None and "dictionary<" in str(reader.schema):  # words of it come in between
            return [sum(sizes)], [marks[0], marks[-1]]
        return sizes, marks if count is None else list(range(count + 1))


def arrow_rows(
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    part: tuple[int, int, int] | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yield (place, row) for every row of a Parquet or Arrow file, without its empty fields."""
    # A part of an Arrow file is from where to where, and how many rows stand before it.
    number = part[2] if part else 0
    with _batches(path, part) as (_, batches):
        while (batch := _asked(lambda: next(batches, None), _damage(path))) is not None:
            yield from rows_of(path.name, batch, range(number, number + len(batch)))
            number += len(batch)
            if progress:
                progress(number, number)


@contextmanager
def _batches(
    path: Path, part: tuple[int, int, int] | None = None
) -> Iterator[tuple[tuple[str, ...], Iterator[Any]]]:
    """Yield the columns of a Parquet or Arrow file, and its rows a few thousand at a time."""
    with explained(f"{path.name} cannot be read"), path.open("rb") as raw:
        parquet = path.suffix == ".parquet" or raw.read(4) == b"PAR1"
    if parquet:
        with _opened(path) as file:
            groups = range(file.metadata.num_row_groups)
            yield tuple(file.schema_arrow.names), _row_batches(file, groups, _ROWS)
        return
    with _opened_arrow(path) as (reader, raw):
        whole = _arrow_batches(reader, raw, part)
        yield (
            tuple(reader.schema.names),
            (batch.slice(at, _ROWS) for batch in whole for at in range(0, len(batch), _ROWS)),
        )


@contextmanager
def _opened_arrow(path: Path) -> Iterator[tuple[Any, BinaryIO]]:
    ipc = _library()[0].ipc
    with explained(f"{path.name} cannot be read"), path.open("rb") as raw:
        opened = ipc.open_file if raw.read(6) == b"ARROW1" else ipc.open_stream
        raw.seek(0)
        yield _asked(lambda: opened(raw), _damage(path)), raw


def _arrow_batches(reader: Any, raw: BinaryIO, part: tuple[int, int, int] | None) -> Iterator[Any]:
    """Yield the record batches of a part of an Arrow file or stream, or of all of it."""
    count = getattr(reader, "num_record_batches", None)
    if count is not None:
        yield from map(reader.get_batch, range(*(part[:2] if part else (0, count))))
        return
    if part:
        raw.seek(part[0])
    while part is None or raw.tell() < part[1]:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        yield batch


class _Unzstd(io.RawIOBase):
    """The plain bytes of what zstd packed; damage is an EOFError, as that of gzip."""

    def __init__(self, packed: Any) -> None:
        self._packed = packed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        some = None
        try:
            some = self._packed.read(len(buffer))
        except OSError as error:
            if error.errno is not None:
                raise
        if some is None:
            raise EOFError
        buffer[: len(some)] = some
        return len(some)


def unpacked_zstd(raw: BinaryIO) -> BinaryIO:
    """Return a reader of the plain bytes of a file that zstd packed."""
    arrow, _ = _library()
    return io.BufferedReader(_Unzstd(arrow.CompressedInputStream(raw, "zstd")), _BUFFER)


class VectorWriter:
    """A Parquet file of vectors, answers and who gave them, as it is being written."""

    def __init__(self, file: BinaryIO, dimension: int, *, persons: bool) -> None:
        arrow, parquet = _library()
        columns = [(DIFFERENCE, arrow.list_(arrow.float64(), dimension)), ("answer", arrow.int8())]
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
    """Write the rows of Parquet files one after the other into one; all have the same columns."""
    _, parquet = _library()
    writer = None
    for path in paths:
        with _opened(path) as part:
            writer = writer or parquet.ParquetWriter(file, part.schema_arrow)
            for group in range(part.metadata.num_row_groups):
                read = partial(part.read_row_group, group)
                writer.write_table(_asked(read, _damage(path)))
    if writer is not None:
        writer.close()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    _, parquet = _library()
    with explained(f"{path.name} cannot be read"), path.open("rb") as raw:
        read = partial(parquet.ParquetFile, raw, buffer_size=_BUFFER)
        with _asked(read, _damage(path)) as file:
            yield file


def _asked(question: Callable[[], T], problem: str) -> T:
    """Return what a question to pyarrow answers; say of whatever it raises only ``problem``."""
    # Its errors quote values of the data, and some carry them: none may be seen, not even as the
    # cause of ours. So this is a function: what a context manager raises keeps what it caught.
    try:
        return question()
    except (SordinoError, MemoryError):
        raise
    except OSError as error:
        if error.errno is not None:  # else it is pyarrow's word for damage
            raise
    except Exception:  # noqa: BLE001, S110 - whatever it is
        pass
    raise DataError(problem)


def _damage(path: Path) -> str:
    kind = "Parquet" if path.suffix == ".parquet" else "Parquet or Arrow"
    return f"{path.name} is no {kind} file, or it was cut short or damaged. {_NOTHING}"


def _unreadable(place: str, name: str) -> str:
    what = "holds a value that cannot be read as its type says"
    return f"{place}: column {name!r} {what}. {_NOTHING}"


def _library() -> tuple[Any, ...]:
    need = "Parquet, Arrow and .zst files need pyarrow. Nothing was read."
    return modules_of_extra("files", need, "pyarrow", "pyarrow.parquet")
