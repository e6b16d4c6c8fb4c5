"""The arms that can be pulled, which are public, and columns that the user declares.

Columns hold numbers, or texts that are hashed; nothing is guessed. Records become vectors of
bounded norm by one rule, for logs and for what is asked of a policy.
"""

from __future__ import annotations

import hashlib
import math
import re
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from sordino import _validate
from sordino.errors import DataError, UsageError

from .containers import UNNAMED
from .features import clipped_rows
from .files import read_rows
from .records import framed

_HASHED = re.compile(r"(.+):([0-9]{1,9})", re.DOTALL)
_MOST_BUCKETS = 1 << 16
_CACHED = 1 << 16  # texts of a column whose buckets are remembered while it is read


@dataclass(frozen=True)
class ContextColumn:
    """A column that is declared to hold numbers, or texts that are hashed into one-hot vectors."""

    # Which of the two, the user says; it is never guessed from records. The bucket of a text is
    # SHA-256 of the column's name and the text (spaces around it taken off), a public rule without
    # a seed: the same text has the same bucket in every file and on every machine, and a text that
    # nobody has written before has one too.

    name: str  # of the column
    # How many entries a text becomes, one of which is 1; None for a number.
    buckets: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"A column must have a name, a text, got {self.name!r}.")
        if self.buckets is not None:
            _validate.integer("buckets", self.buckets, at_least=1, at_most=_MOST_BUCKETS)

    def __str__(self) -> str:
        return self.name if self.buckets is None else f"{self.name}:{self.buckets}"

    @classmethod
    def of(cls, declared: str | ContextColumn) -> ContextColumn:
        """Return the column that ``name`` (a number) or ``name:8`` (hashed) declares."""
        if isinstance(declared, ContextColumn):
            return declared
        hashed = _HASHED.fullmatch(declared) if isinstance(declared, str) else None
        return cls(hashed[1], int(hashed[2])) if hashed else cls(declared)

    @property
    def width(self) -> int:
        """Return how many entries of a vector it becomes."""
        return self.buckets or 1

    def reader(self) -> Callable[[Any], float]:
        """Return what turns a cell into a number, or a bucket; NaN if the cell cannot be used."""
        if self.buckets is None:
            return _number
        start, buckets = hashlib.sha256(framed(_bytes(self.name))), self.buckets

        @lru_cache(_CACHED)  # which goes with the reader
        def bucket_of(text: str) -> float:
            whole = start.copy()
            whole.update(framed(_bytes(text)))
            return float((int.from_bytes(whole.digest()[:8], "big") * buckets) >> 64)

        def read(cell: object) -> float:
            text = _text(cell)
            return math.nan if text is None else bucket_of(text)

        return read


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def whole_text(value: object) -> str | None:
    """Return a text without spaces around it, or a whole number as decimal text, or else None."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    with suppress(ValueError):  # thousands of digits
        return str(int(value))
    return None


def _text(value: object) -> str | None:
    """Return what is hashed: a number as its shortest text, nothing as an empty one."""
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(float(value))
    return whole_text(value)


def _number(value: object) -> float:
    """Return a finite number, also one written as a text, or NaN if it is none."""
    number = math.nan
    if isinstance(value, Real) or (isinstance(value, str) and "_" not in value):
        with suppress(ValueError, OverflowError):
            number = float(value)
    return number if math.isfinite(number) else math.nan


def columns_of(argument: str, declared: object) -> tuple[ContextColumn, ...]:
    """Return declared columns, no two of one name."""
    if isinstance(declared, (str, Mapping)) or not isinstance(declared, Iterable):
        raise UsageError(
            f'{argument} must be a list of columns, "name" for a number or "name:8" for texts '
            f"that are hashed into 8 entries, got {declared!r}. Nothing was read."
        )
    columns = tuple(ContextColumn.of(one) for one in declared)
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise UsageError(f"{argument} must not name a column twice, got {names}.")
    return columns


_BLOCK = 1 << 13  # rows that are worked on at once, which bounds the memory


def cell_of(row: Any, name: str, where: str) -> Any:
    """Return one cell of a record."""
    with suppress(LookupError, TypeError, ValueError):
        return row[name]
    named = isinstance(row, Mapping)
    problem = f"field {name!r} is missing" if named else "expected an object with named fields"
    raise DataError(f"{where}: {problem}.")


def cell_reader(columns: Iterable[ContextColumn]) -> Callable[[object, str], list[float]]:
    """Return what reads a number or bucket for each column, of one record after another."""
    readers = [(column, column.reader()) for column in columns]

    def read(row: object, where: str) -> list[float]:
        values = [value_of(cell_of(row, column.name, where)) for column, value_of in readers]
        for (column, _), value in zip(readers, values, strict=True):
            if math.isnan(value):
                wanted = "a finite number" if column.buckets is None else "a text or a number"
                raise DataError(f"{where}: field {column.name!r} must be {wanted}.")
        return values

    return read


def read_cells(
    rows: Iterable[tuple[str, Any]], columns: tuple[ContextColumn, ...]
) -> Float[np.ndarray, "n c"]:
    """Return the declared cells of all records."""
    read, cells = cell_reader(columns), array("d")
    for where, row in rows:
        cells.extend(read(row, where))
    return np.array(cells).reshape(-1, len(columns))


def _expanded(
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
    """Return each row over the bound, shortened to norm at most 1 on its own."""
    width = sum(column.width for column in columns) if columns else cells.shape[1]
    vectors = np.empty((len(cells), width))
    for start in range(0, len(cells), _BLOCK):
        block = np.ascontiguousarray(cells[start : start + _BLOCK])
        rows = _expanded(block, columns) if columns else block
        vectors[start : start + _BLOCK] = clipped_rows(rows, context_bound) / context_bound
    return vectors


_MOST_ARMS = 10_000_000
_ARM = "a text that is not empty, or a whole number"


@dataclass(frozen=True, repr=False, eq=False)
class Catalogue:
    """The k arms that can be pulled: public, and never collected from logs."""

    # Names are texts. Spaces around them are taken off, whole numbers are their decimal texts, and
    # apart from that names are compared letter by letter: 14 and "14" are one arm, "14.0" and "014"
    # are others.

    names: tuple[str, ...]  # one for each arm, no two alike
    _: KW_ONLY
    # What is known of each arm, shape (k, q), as it was given; or None.
    features: Float[np.ndarray, "k q"] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.names, (str, Mapping)) or not isinstance(self.names, Iterable):
            raise UsageError(f"names must be a list of texts, got {type(self.names).__name__}.")
        places = ((f"names: entry {index}", name) for index, name in enumerate(self.names))
        object.__setattr__(self, "names", _distinct(places))
        if self.features is not None:
            features = np.array(_validate.finite_array("features", self.features, ndim=2))
            if len(features) != len(self) or not features.shape[1]:
                raise DataError(
                    f"features must have a row for each of the {len(self)} arms and at least one "
                    f"column, got shape {features.shape}."
                )
            features.setflags(write=False)
            object.__setattr__(self, "features", features)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        known = "" if self.features is None else f", features={self.features.shape[1]}"
        return f"{type(self).__name__}(arms={len(self)}{known})"

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    @classmethod
    def numbered(cls, k: object) -> Catalogue:
        """Return k arms that are called "0", "1", … by their number."""
        count = _validate.integer("The number of arms", k, at_least=1, at_most=_MOST_ARMS)
        return cls(tuple(map(str, range(count))))

    @classmethod
    def of(cls, given: object) -> Catalogue:
        """Return the catalogue that a number of arms, a list of names, or a file says."""
        if isinstance(given, Catalogue):
            return given
        if isinstance(given, Integral):
            return cls.numbered(given)
        if isinstance(given, str):
            path, _, column = given.rpartition(":")
            if path and column:
                return cls.read(path, arm=column)
            if given.isascii() and given.isdigit() and len(given) <= len(str(_MOST_ARMS)):
                return cls.numbered(int(given))
        elif isinstance(given, Iterable) and not isinstance(given, Mapping):
            return cls(tuple(given))
        raise UsageError(
            "catalogue must be a number of arms, a list of their names, a Catalogue, or "
            f'"path:column" of a file, got {given!r}. Nothing was read.'
        )

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        arm: str,
        features: bool | Iterable[str | ContextColumn] | None = None,
    ) -> Catalogue:
        """Return the catalogue of a file with one record for each arm."""
        # A catalogue is public, so that it may be looked at: with `features=True` its features are
        # all columns besides `arm` whose cells are all numbers. Columns without a name are ignored.
        listed = features is not None and not isinstance(features, bool)
        columns = columns_of("features", features) if listed else ()
        rows = list(read_rows(path, unnamed=True))
        cells = ((f"{where}: field {arm!r}", cell_of(row, arm, where)) for where, row in rows)
        names = _distinct(cells)
        if features is True:
            declared = [
                ContextColumn(name)
                for name in rows[0][1]
                if name and name != arm and not name.startswith(UNNAMED)
            ]
            columns = tuple(
                column
                for column in declared
                if not any(math.isnan(_number(row.get(column.name))) for _, row in rows)
            )
            if not columns:
                raise DataError(
                    "features: no column of the catalogue besides the arms is all numbers."
                )
        known = _expanded(read_cells(rows, columns), columns) if columns else None
        return cls(names, features=known)

    def place(self, name: str) -> int:
        """Return the number of an arm from 0, −1 if the catalogue does not have it."""
        return self._places.get(name, -1)

    def places(self, arms: object) -> Int64[np.ndarray, " n"]:
        """Return the number of each arm from 0, −1 for those that the catalogue does not have."""
        if isinstance(arms, (str, Mapping)) or not isinstance(arms, Iterable):
            raise DataError(f"arms must be a list or an array, got {type(arms).__name__}.")
        given = np.asarray(arms) if hasattr(arms, "__array__") else np.array(list(arms), object)
        if given.ndim != 1:
            raise DataError(f"arms must have 1 dimension, got shape {given.shape}.")
        if given.size and given.dtype.kind not in "iuUTO":
            raise DataError(f"arms must be whole numbers or texts, got dtype {given.dtype}.")
        if given.dtype.kind in "iu":
            known, inverse = np.unique(given, return_inverse=True)
            return self.places(known.tolist())[inverse]
        names = [whole_text(value) for value in given.tolist()]
        if None in names:
            raise DataError(f"arms: entry {names.index(None)} must be a text or a whole number.")
        found = (self._places.get(name, -1) for name in names if name is not None)
        return np.fromiter(found, np.int64, len(names))


def _distinct(places: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """Return the names of arms, which must be different ones; messages say where they stand."""
    seen: dict[str, str] = {}
    for where, value in places:
        name = whole_text(value)
        if not name:
            raise DataError(f"{where} must name an arm: {_ARM}.")
        if name in seen:
            raise DataError(f"{where} names an arm that {seen[name]} names already.")
        seen[name] = where
    if not seen:
        raise DataError("The catalogue is empty: no arm in it.")
    return tuple(seen)
