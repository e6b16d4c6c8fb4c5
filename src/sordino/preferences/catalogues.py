"""The arms that can be pulled, which are public: their names, and what is known of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.preferences.context_columns import ContextColumn, columns_of, whole_text
from sordino.preferences.context_vectors import UNNAMED, cell_of, expanded, read_cells, rows_of

__all__ = ["Catalogue"]

_MOST_ARMS = 10_000_000
_ARM = "a text that is not empty, or a whole number"


@dataclass(frozen=True, repr=False, eq=False)
class Catalogue:
    """The k arms that can be pulled: public, and never collected from logs.

    Names are texts. Spaces around them are taken off, whole numbers are their decimal texts, and
    apart from that names are compared letter by letter: 14 and "14" are one arm, "14.0" and "014"
    are others.

    Attributes:
        names: One for each arm, no two alike.
        features: What is known of each arm, shape (k, q), as it was given; or None.

    Raises:
        DataError: There is no arm, a name is used twice, or the features are not k rows of finite
            numbers.

    Example:
        >>> Catalogue(("left", "right"), features=np.array([[0.0], [1.0]]))
        Catalogue(arms=2, features=1)
    """

    names: tuple[str, ...]
    _: KW_ONLY
    features: Float[np.ndarray, "k q"] | None = None

    def __post_init__(self) -> None:
        """Refuse names and features of which no arm can be known."""
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
        """Return k, the number of arms."""
        return len(self.names)

    def __repr__(self) -> str:
        """Return the sizes."""
        known = "" if self.features is None else f", features={self.features.shape[1]}"
        return f"{type(self).__name__}(arms={len(self)}{known})"

    @cached_property
    def _places(self) -> dict[str, int]:
        """Return the number of each name."""
        return {name: place for place, name in enumerate(self.names)}

    @classmethod
    def numbered(cls, k: Any) -> Catalogue:
        """Return k arms that are called "0", "1", … by their number.

        Raises:
            UsageError: ``k`` is no whole number from 1 to ten million.
        """
        count = _validate.integer("The number of arms", k, at_least=1, at_most=_MOST_ARMS)
        return cls(tuple(map(str, range(count))))

    @classmethod
    def of(cls, given: Any) -> Catalogue:
        """Return the catalogue that a number of arms, a list of names, or a file says.

        Args:
            given: k; names; ``"path:column"``, or k as a text; or a catalogue, which stays.

        Raises:
            UsageError: It is none of these.
            DataError: As :meth:`read`.
            FileSystemError: Likewise.
        """
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
        """Return the catalogue of a file with one record for each arm.

        A catalogue is public, so that it may be looked at: with ``features=True`` its features are
        all columns besides ``arm`` whose cells are all numbers. Columns without a name are ignored.

        Args:
            path: A ``.csv``, ``.tsv`` or ``.jsonl`` file, also with ``.gz``.
            arm: The column of names.
            features: Columns of what is known of each arm, ``"name"`` for a number or ``"name:8"``
                for texts that are hashed into 8 entries; True for all columns of numbers.

        Raises:
            DataError: A record cannot be used, an arm is named twice, there is no record, or no
                column of numbers; place and field are named.
            UsageError: A column cannot be declared so.
            FileSystemError: The file cannot be read.
        """
        listed = features is not None and not isinstance(features, bool)
        columns = columns_of("features", features) if listed else ()
        rows = list(rows_of(path))
        cells = ((f"{where}: field {arm!r}", cell_of(row, arm, where)) for where, row in rows)
        names = _distinct(cells)
        if features is True:
            columns = _numeric([row for _, row in rows], arm)
        known = expanded(read_cells(rows, columns), columns) if columns else None
        return cls(names, features=known)

    def place(self, name: str) -> int:
        """Return the number of an arm from 0, −1 if the catalogue does not have it."""
        return self._places.get(name, -1)

    def places(self, arms: Any) -> Int64[np.ndarray, " n"]:
        """Return the number of each arm from 0, −1 for those that the catalogue does not have.

        Args:
            arms: n texts or whole numbers.

        Raises:
            DataError: They are not; the message gives index or dtype.
        """
        given = _column(arms)
        if given.dtype.kind in "iu":
            known, inverse = np.unique(given, return_inverse=True)
            return self.places(known.tolist())[inverse]
        names = [whole_text(value) for value in given.tolist()]
        if None in names:
            raise DataError(f"arms: entry {names.index(None)} must be a text or a whole number.")
        found = (self._places.get(name, -1) for name in names if name is not None)
        return np.fromiter(found, np.int64, len(names))


def _column(arms: Any) -> np.ndarray:
    """Return arms as an array of whole numbers, of texts, or of objects."""
    if isinstance(arms, (str, Mapping)) or not isinstance(arms, Iterable):
        raise DataError(f"arms must be a list or an array, got {type(arms).__name__}.")
    given = np.asarray(arms) if hasattr(arms, "__array__") else np.array(list(arms), dtype=object)
    if given.ndim != 1:
        raise DataError(f"arms must have 1 dimension, got shape {given.shape}.")
    if given.size and given.dtype.kind not in "iuUTO":
        raise DataError(f"arms must be whole numbers or texts, got dtype {given.dtype}.")
    return given


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


def _numeric(rows: Sequence[Mapping[str, Any]], arm: str) -> tuple[ContextColumn, ...]:
    """Return the columns besides the arm's whose cells are all numbers."""
    names = [name for name in rows[0] if name != arm and not name.startswith(UNNAMED)]
    columns = [ContextColumn(name) for name in names if name]
    found = tuple(column for column in columns if _is_numeric(rows, column))
    if not found:
        raise DataError("features: no column of the catalogue besides the arms is all numbers.")
    return found


def _is_numeric(rows: Sequence[Mapping[str, Any]], column: ContextColumn) -> bool:
    """Return whether every record holds a number in a column."""
    read = column.reader()
    return not any(math.isnan(read(row.get(column.name))) for row in rows)
