"""Rows of a data frame of any library, none of which is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from sordino.errors import DataError, UsageError
from sordino.preferences.records import FIELDS

__all__ = ["frame_rows"]

_READERS = (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",)))
"""How polars, pyarrow and pandas give their rows as mappings."""

_MISSING = ("NAType", "NaTType")  # what pandas writes for nothing; known by name, not imported


def frame_rows(
    frame: Any, *, columns: Mapping[str, str] | None, person_field: str
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield (record, place) for every row of a frame; rows are counted from 0.

    Args:
        frame: A pandas or polars data frame, a pyarrow table, or what acts like one.
        columns: The frame's own column for each of our fields that is called otherwise there.
        person_field: Name of the optional public person id.

    Raises:
        UsageError: It is no frame, or ``columns`` cannot be used.
        DataError: Two columns have the same name, or one holds randomized answers.
    """
    names = _column_names(frame)
    sources = _sources(names, columns or {}, person_field)
    for index, row in enumerate(_rows(frame)):
        yield {field: _plain(row[name]) for field, name in sources.items()}, f"row {index}"


def _column_names(frame: Any) -> list[Any]:
    """Return the names of a frame's columns, each of which must be there once."""
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
    return names


def _sources(names: list[Any], columns: Mapping[str, str], person_field: str) -> dict[str, str]:
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


def _rows(frame: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a frame as mappings."""
    rows: Any = None
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
    return rows


def _plain(value: Any) -> Any:
    """Return a cell without numpy around it, and None where there is nothing."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    nothing = isinstance(value, float) and value != value  # noqa: PLR0124 (NaN is not itself)
    return None if nothing or type(value).__name__ in _MISSING else value
