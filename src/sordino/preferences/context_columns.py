"""Columns that the user declares to hold numbers, or texts that are hashed; nothing is guessed."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from sordino import _validate
from sordino.errors import UsageError
from sordino.preferences.records import framed

__all__ = ["ContextColumn", "columns_of", "whole_text"]

_HASHED = re.compile(r"(.+):([0-9]{1,9})", re.DOTALL)
_MOST_BUCKETS = 1 << 16
_CACHED = 1 << 16  # texts of a column whose buckets are remembered while it is read


@dataclass(frozen=True)
class ContextColumn:
    """A column that is declared to hold numbers, or texts that are hashed into one-hot vectors.

    Which of the two, the user says; it is never guessed from records. The bucket of a text is
    SHA-256 of the column's name and the text (spaces around it taken off), a public rule without
    a seed: the same text has the same bucket in every file and on every machine, and a text that
    nobody has written before has one too.

    Args:
        name: Of the column.
        buckets: How many entries a text becomes, one of which is 1; None for a number.

    Example:
        >>> ContextColumn.of("age"), ContextColumn.of("city:8").width
        (ContextColumn(name='age', buckets=None), 8)
    """

    name: str
    buckets: int | None = None

    def __post_init__(self) -> None:
        """Refuse a name that no column can have, and a number of buckets that makes no vector."""
        if not isinstance(self.name, str) or not self.name:
            raise UsageError(f"A column must have a name, a text, got {self.name!r}.")
        if self.buckets is not None:
            _validate.integer("buckets", self.buckets, at_least=1, at_most=_MOST_BUCKETS)

    def __str__(self) -> str:
        """Return the column as it is declared."""
        return self.name if self.buckets is None else f"{self.name}:{self.buckets}"

    @classmethod
    def of(cls, declared: str | ContextColumn) -> ContextColumn:
        """Return the column that ``name`` (a number) or ``name:8`` (hashed) declares.

        Raises:
            UsageError: It is neither. A column whose own name ends like ``:8`` is declared by a
                ContextColumn.
        """
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
        known = _Buckets(self.name, self.buckets)

        def read(cell: Any) -> float:
            text = _text(cell)
            return math.nan if text is None else known[text]

        return read


class _Buckets(dict[str, float]):
    """Text to bucket, computed once; forgets everything when full, and with the reader."""

    def __init__(self, name: str, buckets: int) -> None:
        """Start with no text."""
        super().__init__()
        self._start = hashlib.sha256(framed(name.encode(errors="surrogatepass")))
        self._buckets = buckets

    def __missing__(self, text: str) -> float:
        """Return and remember the bucket of a text that is new."""
        whole = self._start.copy()
        whole.update(framed(text.encode(errors="surrogatepass")))
        bucket = float((int.from_bytes(whole.digest()[:8], "big") * self._buckets) >> 64)
        if len(self) >= _CACHED:
            self.clear()
        self[text] = bucket
        return bucket


def whole_text(value: Any) -> str | None:
    """Return a text without spaces around it, or a whole number as decimal text, or else None.

    Example:
        >>> whole_text(" 14 "), whole_text(14), whole_text(14.0)
        ('14', '14', None)
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    try:
        return str(int(value))
    except ValueError:  # thousands of digits
        return None


def _text(value: Any) -> str | None:
    """Return what is hashed: a number as its shortest text, nothing as an empty one."""
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(float(value))
    return whole_text(value)


def _number(value: Any) -> float:
    """Return a finite number, also one written as a text, or NaN if it is none."""
    if not isinstance(value, Real) and (not isinstance(value, str) or "_" in value):
        return math.nan
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def columns_of(argument: str, declared: Any) -> tuple[ContextColumn, ...]:
    """Return declared columns, no two of one name.

    Args:
        argument: What they were given as, for messages.
        declared: Each ``"name"``, ``"name:8"`` or a ContextColumn.

    Raises:
        UsageError: They cannot be used.
    """
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
