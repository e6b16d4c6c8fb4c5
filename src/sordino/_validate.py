"""One wording for each argument error."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from numbers import Integral, Real
from typing import Any

import numpy as np

from .errors import DataError, UsageError

__all__ = [
    "failure_probability",
    "finite_array",
    "integer",
    "non_negative",
    "number",
    "one_of",
    "positive",
]


_MOST = 2**63 - 1  # what a file and an array can hold


def number(name: str, value: Any) -> float:
    """Return value as a float; refuse what is not a real number, and NaN."""
    result = math.nan
    if not (isinstance(value, bool) or not isinstance(value, Real)):
        with suppress(OverflowError):
            result = float(value)
    if math.isnan(result):
        raise UsageError(f"{name} must be a number that a float can hold, got {value!r}.")
    return result


def positive(name: str, value: Any) -> float:
    """Return value as a float; refuse what is not finite and above zero."""
    result = number(name, value)
    if not 0 < result < math.inf:
        raise UsageError(f"{name} must be finite and greater than 0, got {value!r}.")
    return result


def non_negative(name: str, value: Any) -> float:
    """Return value as a float; refuse what is below zero (infinity is allowed)."""
    result = number(name, value)
    if result < 0:
        raise UsageError(f"{name} must be at least 0, got {value!r}.")
    return result


def failure_probability(name: str, value: Any, *, zero: bool = True) -> float:
    """Return value as a float; refuse what is outside [0, 1), or (0, 1) if zero is False."""
    result = number(name, value)
    if not (0 <= result < 1) or (result == 0 and not zero):
        raise UsageError(f"{name} must be in {'[' if zero else '('}0, 1), got {value!r}.")
    return result


def integer(name: str, value: Any, *, at_least: int, at_most: int = _MOST) -> int:
    """Return value as an int; refuse what is not a whole number between the two bounds."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < at_least:
        raise UsageError(f"{name} must be a whole number of at least {at_least}, got {value!r}.")
    if int(value) > at_most:
        raise UsageError(f"{name} must be at most {at_most}.")
    return int(value)


def one_of(name: str, value: Any, permitted: Iterable[Any]) -> Any:
    """Return value; refuse what is not one of the permitted ones."""
    choices = tuple(permitted)
    if not any(value is choice or value == choice for choice in choices):
        shown = ", ".join(repr(getattr(choice, "name", choice)) for choice in choices)
        raise UsageError(f"{name} must be one of {shown}; got {value!r}.")
    return value


def finite_array(name: str, value: Any, *, ndim: int) -> np.ndarray:
    """Return value as a float64 array; refuse a wrong shape and any NaN or infinity."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} must be numeric, got dtype {array.dtype}.")
    if array.ndim != ndim:
        raise DataError(f"{name} must have {ndim} dimension(s), got shape {array.shape}.")
    array = array.astype(np.float64, copy=False)
    finite = np.isfinite(array)
    if not finite.all():
        index = int(np.flatnonzero(~finite.reshape(len(array), -1).all(axis=1))[0])
        raise DataError(f"{name} must be finite: row {index} holds a NaN or an infinity.")
    return array
