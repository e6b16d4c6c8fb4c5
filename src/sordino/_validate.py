"""One wording for each argument error."""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from jaxtyping import Float, Integer

from .errors import DataError, UsageError

Vector = Float[np.ndarray, " d"]
Square = Float[np.ndarray, "d d"]
Table = Float[np.ndarray, "n d"]
"""One number for each feature; one for each two."""

Numbers = Float[np.ndarray, " n"]
Integers = Integer[np.ndarray, " n"]
"""One number for each row; one whole number."""

_P = ParamSpec("_P")
_R = TypeVar("_R")
_RELEASE_ID = re.compile("[0-9a-f]{16}")
_TELLING = 1e-6  # of an epsilon: below it 1 − 2·flip has no digits left to learn from
_FITTED = (1e-9, 1e100)  # bounds and penalties of a fit
MODERATE = (1e-60, 1e60)  # within them no product of a sensitivity leaves the normal floats
_MEMORY = 2**34  # bytes, where the system does not say
_MOST = 2**63 - 1  # what a file and an array can hold


def typed(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that refuses arguments of another type than it is annotated with."""
    # Annotations are read at the first call: to read them takes longer than to import a module.
    names, hints = inspect.signature(function), functools.cache(lambda: get_type_hints(function))

    @functools.wraps(function)
    def task(*args: _P.args, **named: _P.kwargs) -> _R:
        for name, value in names.bind_partial(*args, **named).arguments.items():
            if not _fits(value, hint := hints().get(name, object)):
                words = re.sub(r"\w+\.", "", inspect.formatannotation(hint)).replace(" | ", " or ")
                raise UsageError(
                    f"{name} must be {words}, got {type(value).__name__}. Nothing was done. "
                    f"help({function.__qualname__}) says what to give."
                )
        return function(*args, **named)

    return task


def _fits(value: object, hint: object) -> bool:
    """Return whether a value is of an annotated type; True where the type does not tell."""
    # Arrays are lists here, and a text may be one of letters. Whether something can do what a
    # protocol asks, and which texts, numbers and shapes are permitted, the function says itself.
    if (kind := get_origin(hint) or hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if kind in (Collection, Iterable, Sequence, tuple) or hasattr(kind, "array_type"):
        return isinstance(value, Iterable) and not isinstance(value, Mapping)
    if kind in (int, float):
        return isinstance(value, Real) and not isinstance(value, bool)
    if not inspect.isclass(kind) or kind is Any or getattr(kind, "_is_protocol", False):
        return kind is not Literal or isinstance(value, str)
    return isinstance(value, bool | np.bool_ if kind is bool else kind)


def number(name: str, value: object) -> float:
    """Return value as a float; refuse what is not a real number, and NaN."""
    result = math.nan
    if not (isinstance(value, bool) or not isinstance(value, Real)):
        with suppress(OverflowError):
            result = float(value)
    if math.isnan(result):
        raise UsageError(f"{name} must be a number that a float can hold, got {value!r}.")
    return result


def positive(name: str, value: object) -> float:
    """Return value as a float; refuse what is not finite and above zero."""
    result = number(name, value)
    if not 0 < result < math.inf:
        raise UsageError(f"{name} must be finite and greater than 0, got {value!r}.")
    return result


def telling(name: str, value: object) -> float:
    """Return an epsilon as a float; refuse one with which nothing can be learned."""
    result = positive(name, value)
    if result < _TELLING:
        raise UsageError(
            f"{name} must be at least {_TELLING:g}, got {value!r}: every answer would be as good "
            "as a fair coin or die."
        )
    return result


def workable(name: str, value: object) -> float:
    """Return value as a float; refuse a bound or a penalty with which no fit can be certified."""
    # Outside this range squares and inverses of it are lost in rounding: a fit would be refused
    # only after it was paid for.
    result = positive(name, value)
    least, most = _FITTED
    if not least <= result <= most:
        raise UsageError(
            f"{name} must be between {least:g} and {most:g}, got {value!r}: beyond, no fit can be "
            "certified. Nothing was done. Give another, or leave it out."
        )
    return result


def moderate(name: str, value: object, *, zero: bool = False) -> float:
    """Return a public size as a float; refuse what would overflow or underflow in a sensitivity."""
    result, (least, most) = number(name, value), MODERATE
    if not (least <= result <= most or (zero and result == 0)):
        also = "0, or " if zero else ""
        raise UsageError(f"{name} must be {also}within {least} and {most}, got {value!r}.")
    return result


def non_negative(name: str, value: object) -> float:
    """Return value as a float; refuse what is below zero (infinity is allowed)."""
    result = number(name, value)
    if result < 0:
        raise UsageError(f"{name} must be at least 0, got {value!r}.")
    return result


def failure_probability(name: str, value: object, *, zero: bool = True) -> float:
    """Return value as a float; refuse what is outside [0, 1), or (0, 1) if zero is False."""
    result = number(name, value)
    if not (0 <= result < 1) or (result == 0 and not zero):
        raise UsageError(f"{name} must be in {'[' if zero else '('}0, 1), got {value!r}.")
    return result


def fraction(name: str, value: object) -> float:
    """Return value as a float; refuse what is not above 0 and below 1."""
    return failure_probability(name, value, zero=False)


def settle(settings: object, **checks: Callable[[str, Any], Any]) -> None:
    """Replace fields of a frozen dataclass by what their checks make of them, in this order."""
    for name, check in checks.items():
        object.__setattr__(settings, name, check(name, getattr(settings, name)))


def integer(name: str, value: object, *, at_least: int, at_most: int = _MOST) -> int:
    """Return value as an int; refuse what is not a whole number between the two bounds."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < at_least:
        raise UsageError(f"{name} must be a whole number of at least {at_least}, got {value!r}.")
    if int(value) > at_most:
        raise UsageError(f"{name} must be at most {at_most}.")
    return int(value)


def refuse_unholdable(name: str, value: int, numbers: int) -> None:
    """Refuse a public size for which this machine cannot hold so many 64-bit numbers."""
    most = _MEMORY
    with suppress(AttributeError, ValueError, OSError):  # not every system says how much it has
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 8 * numbers > most:
        raise UsageError(
            f"{name}={value} needs matrices of {8 * numbers / 2**30:.0f} GiB together, and this "
            f"machine holds {most / 2**30:.0f}. Nothing was spent. Give a smaller one."
        )


def one_of(name: str, value: object, permitted: Iterable[Any]) -> Any:
    """Return value; refuse what is not one of the permitted ones."""
    choices = tuple(permitted)
    if not any(value is choice or value == choice for choice in choices):
        shown = ", ".join(repr(getattr(choice, "name", choice)) for choice in choices)
        raise UsageError(f"{name} must be one of {shown}; got {value!r}.")
    return value


def release_id(name: str, value: object) -> str:
    """Return value as it is; refuse what no release, and no study, is called at random."""
    if not isinstance(value, str) or not _RELEASE_ID.fullmatch(value):
        raise UsageError(f"{name} must be 16 hexadecimal digits, got {value!r}.")
    return value


# Default_Ignorable_Code_Point that is not in class Cf, and controls (Cc) that are no white space.
# Source: Unicode 16, DerivedCoreProperties.txt.
_UNSEEN = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164"
    "\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


def person_id(where: str, value: object) -> str:
    """Return a public person id as text: the one way to tell who is who in the whole library."""
    # A whole number (of Python, NumPy or pyarrow) is its decimal digits. Of a text, what nobody
    # sees goes (Unicode class Cf: byte-order marks, zero-width spaces, marks of direction; and
    # variation selectors, fillers, controls), equal letters are written in one way (NFC), white
    # space of any kind and length inside is one space, and around it none: what looks like one id
    # is one person, who would else have two caps, two slots or two coins. Beyond that ids are
    # compared letter by letter: "01" is not "1", and "Ann" is not "ann".
    value = value.as_py() if hasattr(value, "as_py") else value  # a scalar of pyarrow
    if isinstance(value, bool) or not isinstance(value, (str, Integral)):
        raise DataError(f"{where} must be a text or a whole number.")
    found = None
    with suppress(ValueError):  # a number of thousands of digits
        # not str(value), which is something else for the members of an enumeration
        found = str.__str__(value) if isinstance(value, str) else str(int(value))
    if found is None:
        raise DataError(f"{where} is too long.")
    found = _UNSEEN.sub("", found)
    if not found.isascii():
        if found != found.encode(errors="replace").decode():
            raise DataError(f"{where} is not valid Unicode.")
        seen = "".join(letter for letter in found if unicodedata.category(letter) != "Cf")
        found = unicodedata.normalize("NFC", seen)
    found = " ".join(found.replace("\u2800", " ").split())  # the blank of Braille
    if not found:
        raise DataError(f"{where} is empty; leave it out where nobody is named.")
    return found


def person_ids(persons: Iterable[Any], n: int) -> tuple[str, ...]:
    """Return one person id for each of n rows, each as :func:`person_id` reads it."""
    values = np.ravel(persons).tolist() if isinstance(persons, np.ndarray) else list(persons)
    if len(values) != n or isinstance(persons, str):
        raise DataError("persons must hold one id for each row. Nothing was released.")
    return tuple(person_id("An entry of persons", value) for value in values)


def finite_array(name: str, value: object, *, ndim: int) -> np.ndarray:
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


def refuse_special(path: Path, *, links: bool) -> None:
    """Refuse a name that stands for something else than a file or a folder."""
    # To overwrite a device or a pipe is to take it away, and to open a pipe is to wait for whoever
    # is at its other end. To overwrite a link to a file is to take the link away and to leave the
    # file as it was.
    try:
        found, itself = path.stat(), path.lstat()
    except (OSError, ValueError):  # nothing, or not to be looked at: to open it will tell
        return
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise UsageError(
            f"{path.name} is a device, a pipe or a socket. Nothing was done. Give the name of a "
            "file."
        )
    if not links and stat.S_ISLNK(itself.st_mode) and stat.S_ISREG(found.st_mode):
        raise UsageError(
            f"{path.name} is a link to a file, which would stay as it is while the link goes. "
            "Nothing was done. Give the name of the file itself."
        )
