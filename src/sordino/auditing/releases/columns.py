"""What a column of a released file may say, whatever it holds: values in a few groups.

Nothing here knows a label. A column is read in every way that is likely to give labels away:
each value a group, the first or last character, the length, parts of ids, ranges of numbers and
of time stamps, their last digits and fractions.

Which of its two answers a column quotes: whole, at its end, in front, or by its length.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Integer

from .evidence import Channel
from .joining import tidied
from .reading import UNKNOWN, Released, parsed

MOST_VALUES = 50
"""A column of more distinct values is read by its characters or numbers, not by its values."""

Number: TypeAlias = int | float
_ROWS_PER_BLOCK = 16
_ROWS_PER_VALUE = 8
_MOST_BLOCKS = 32
_MICROSECONDS = 10**6
_EPOCH = 10**8  # seconds since 1970; a smaller number is no time stamp
_PARTS_OF_A_SECOND = (10**9, 10**6, 10**3)
_MOST_PARTS = 6
_BETWEEN = re.compile(r"[^0-9A-Za-z]+")
_DECIMAL = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?")
_DIGIT = re.compile(r"[0-9a-fA-F]")
_OFFSET = re.compile(r"\s*(Z|[+-]\d\d:?\d\d)$")
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(\.\d{1,9})?\s*(Z|[+-]\d\d:?\d\d)?)?"
)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Reading:
    """One way to read a column: rows of one group may share a label."""

    attack: str  # `"column"`, or `"time"` for numbers and time stamps
    name: str  # how it is read, for details
    groups: Integer[np.ndarray, " n"]  # group number of every row


def numbered(values: Iterable[Any], *, most: int | None = None) -> Integer[np.ndarray, " n"]:
    """Return a group number for every value, equal for equal values, the most frequent first."""
    texts = [_comparable(value) for value in values]
    ranks = {text: rank for rank, (text, _) in enumerate(Counter(texts).most_common())}
    groups = np.array([ranks[text] for text in texts], dtype=np.int64)
    return groups if most is None else np.minimum(groups, most - 1)


def _comparable(value: Any) -> Any:
    """Return a value that can be hashed and mixes no kinds: true is not 1, "1" is not 1."""
    if isinstance(value, str | bytes) or value is None:
        return value
    return (type(value).__name__, json.dumps(value, sort_keys=True, default=str))


def _number(value: Any) -> Number | None:
    """Return a number, a numeral, or a time stamp in microseconds; None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        if _DECIMAL.fullmatch(text):
            return float(text) if "." in text else int(text)
        return _microseconds(text)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def _microseconds(text: str) -> int | None:
    """Return a time stamp of ISO 8601 as microseconds since 1970, or None if it is none."""
    found = _STAMP.fullmatch(text)
    if not found:
        return None
    date, time, fraction, offset = found.groups()
    try:
        whole = np.datetime64(f"{date}T{time or '00:00'}", "us").astype(np.int64)
    except ValueError:
        return None
    part = int((fraction or ".0")[1:7].ljust(6, "0"))
    return int(whole) + part - _minutes(offset) * 60 * _MICROSECONDS


def _minutes(offset: str | None) -> int:
    """Return how many minutes a time zone is ahead."""
    if offset is None or offset == "Z":
        return 0
    minutes = int(offset[1:3]) * 60 + int(offset[-2:])
    return -minutes if offset[0] == "-" else minutes


def ordered_values(values: Sequence[Any]) -> list[Number | None] | None:
    """Return a column as numbers, None where a row lacks it; None if it is not all numbers."""
    numbers = [_number(value) for value in values]
    there = [number is not None for number in numbers]
    return numbers if any(there) and there == [value is not None for value in values] else None


def ranked_blocks(numbers: Sequence[Number | None], blocks: int) -> Integer[np.ndarray, " n"]:
    """Return which of some blocks of about equal size each number lies in; equal ones together."""
    counts = Counter(number for number in numbers if number is not None)
    distinct = sorted(counts)
    upto = dict(zip(distinct, accumulate(counts[one] for one in distinct), strict=True))
    total = max(1, sum(counts.values()))
    return np.array(
        [blocks if one is None else (upto[one] - counts[one]) * blocks // total for one in numbers],
        dtype=np.int64,
    )


def _blocks(n: int) -> int:
    """Return into how many blocks n rows are cut, so that each has rows to learn from."""
    return min(_MOST_BLOCKS, max(2, n // _ROWS_PER_BLOCK))


def readings(values: Sequence[Any]) -> Iterator[Reading]:
    """Yield every way to read a column that has more than one group."""
    ordered, whole = ordered_values(values), numbered(values)
    kinds = int(whole.max(initial=0)) + 1
    found: list[tuple[str, str, np.ndarray]] = []
    if kinds <= MOST_VALUES:
        found.append(("column", "value", whole))
    if kinds > min(MOST_VALUES, len(values) // _ROWS_PER_VALUE):
        found += _parts(values)
        found += _pieces(values) if ordered is None else _ranges(values, ordered)
    for attack, name, groups in found:
        if groups.any():
            yield Reading(attack=attack, name=name, groups=groups)


def _parts(values: Sequence[Any]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield what texts begin and end with, and how long they are."""
    yield "column", "first character", _per_text(values, lambda text: text[:1])
    yield "column", "last character", _per_text(values, lambda text: text[-1:])
    yield "column", "length", _per_text(values, len)
    last = [None if value is None else _plain(value)[-1:] for value in values]
    if all(one is None or _DIGIT.fullmatch(one) for one in last):
        yield "column", "parity", numbered(one if one is None else int(one, 16) % 2 for one in last)


def _pieces(values: Sequence[Any]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield the parts of ids such as "q17-b-1", where they are few different ones."""
    texts = [None if value is None else _BETWEEN.split(_plain(value)) for value in values]
    most = max((len(pieces) for pieces in texts if pieces), default=0)
    places = range(min(most, _MOST_PARTS)) if most > 1 else ()
    for place in (*places, *([-1] if most > 1 else [])):
        groups = numbered(_piece(pieces, place) for pieces in texts)
        if groups.max() < MOST_VALUES:
            yield "column", f"part {place + 1}" if place >= 0 else "last part", groups


def _piece(pieces: Sequence[str] | None, place: int) -> str | None:
    """Return one part of an id, None if it has no such part."""
    return pieces[place] if pieces and -1 <= place < len(pieces) else None


def _ranges(
    values: Sequence[Any], ordered: Sequence[Number | None]
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield ranges of numbers and of time stamps, and the last digits of whole numbers."""
    blocks = ranked_blocks(ordered, _blocks(len(ordered)))
    yield "time", "range", blocks
    yield "time", "half", ranked_blocks(ordered, 2)
    yield "time", "last digit", numbered(map(_last_digit, values, ordered))
    fractions = [*map(_fraction, values, ordered)]
    yield "time", "fraction", numbered(fractions, most=MOST_VALUES)
    yield "time", "half of the fraction", ranked_blocks(fractions, 2)


def row_readings(n: int) -> Iterator[Reading]:
    """Yield every way to read the place of a row in the file."""
    rows, most = np.arange(n), max(1, n)
    ways = {"block": rows * _blocks(n) // most, "half": rows * 2 // most, "parity": rows % 2}
    for name, groups in ways.items():
        if groups.any():
            yield Reading(attack="row-order", name=name, groups=groups)


def _per_text(values: Sequence[Any], part: Callable[[str], Any]) -> Integer[np.ndarray, " n"]:
    """Return groups by a part of each value as text, without the time zone of a stamp."""
    texts = (None if value is None else _plain(value) for value in values)
    return numbered((None if text is None else part(text) for text in texts), most=MOST_VALUES)


def _plain(value: Any) -> str:
    """Return a value as text; of a time stamp, without what is the same in every row."""
    text = value.strip() if isinstance(value, str) else json.dumps(value, default=str)
    return _OFFSET.sub("", text) if _STAMP.fullmatch(text) else text


def _last_digit(value: Any, number: Number | None) -> int | None:
    """Return the last digit before the point; of a time stamp, that of its whole seconds."""
    if number is None:
        return None
    return int(abs(number)) // (_MICROSECONDS if _is_stamp(value) else 1) % 10


def _is_stamp(value: Any) -> bool:
    """Return whether a value that is a number is written as a time stamp."""
    return isinstance(value, str) and not _DECIMAL.fullmatch(value.strip())


def _fraction(value: Any, number: Number | None) -> Number | None:
    """Return what a time stamp or a number has below one; of an epoch, below its second."""
    if number is None:
        return None
    size = abs(number) // _EPOCH  # of seconds; larger epochs count parts of them
    unit = next((unit for unit in _PARTS_OF_A_SECOND if size >= unit), 1)
    return round(number % (_MICROSECONDS if _is_stamp(value) else unit), 6)


_FEWEST_CHARACTERS = 20  # a shorter beginning is a word that many texts begin with
_FITTING = 0.9  # share of rows in which a number must be a length, or it is another number


def quoting_channels(released: Released) -> Iterator[Channel]:
    """Yield a channel for every column and way in which it quotes one answer and not the other.

    Guarantee:
        No released answer and no label is looked at.
    """
    pairs = list(zip(released.first, released.second, strict=True))
    said = [(spoken(one) or "", spoken(other) or "") for one, other in pairs]
    for name, values in released.columns.items():
        texts = [spoken(value) for value in values]
        found = {"quotes an answer": _favored(values, texts, pairs, said)}
        found |= {way: _guesses(texts, said, quotes) for way, quotes in _WAYS.items()}
        found |= _by_length(values, pairs)
        for reading, guesses in found.items():
            if (guesses != UNKNOWN).any():
                details = {"column": name, "reading": reading}
                yield Channel(name="column", guesses=guesses, details=details)


def spoken(value: Any) -> str | None:
    r"""Return what a value says, tidied: of messages the contents, of a ranking what is first."""
    inside = _contents(parsed(value))
    if inside is None and isinstance(value, str):
        inside = value
    return None if inside is None else tidied(inside)


def _contents(value: Any) -> str | None:
    """Return the contents of messages as one text; of another list its first text; or None."""
    if isinstance(value, str):
        return value
    several = value if isinstance(value, list | tuple) else [value]
    if several and isinstance(several[0], str):
        return several[0]
    contents = [one.get("content") for one in several if isinstance(one, Mapping)]
    texts = [one for one in contents if isinstance(one, str)]
    return " ".join(texts) if texts else None


def _ends(text: str, answer: str) -> bool:
    """Return whether a longer text ends with an answer."""
    return len(text) > len(answer) > 0 and text.endswith(answer)


def _begins(text: str, answer: str) -> bool:
    """Return whether a text is the beginning of an answer, or the reverse; dots do not count."""
    text = text.rstrip(".… ")
    shorter = min(len(text), len(answer))
    return shorter >= _FEWEST_CHARACTERS and text[:shorter] == answer[:shorter]


_WAYS: Mapping[str, Callable[[str, str], bool]] = {
    "ends with an answer": _ends,
    "begins as an answer": _begins,
}


def _favored(
    values: Sequence[Any],
    texts: Sequence[str | None],
    pairs: Sequence[tuple[str, str]],
    said: Sequence[tuple[str, str]],
) -> Integer[np.ndarray, " n"]:
    """Return which answer each value is: as it is written, or else as it is spoken."""
    written = _guesses(values, pairs, lambda value, answer: bool(value == answer))
    tidy = _guesses(texts, said, lambda text, answer: text == answer != "")
    return np.where(written == UNKNOWN, tidy, written)


def _guesses(
    values: Sequence[Any],
    pairs: Sequence[tuple[Any, Any]],
    quotes: Callable[[Any, Any], bool],
) -> Integer[np.ndarray, " n"]:
    """Return 1 or 0 where a value quotes the first or the second only, ``UNKNOWN`` elsewhere."""
    found = np.full(len(values), UNKNOWN)
    for row, (value, (first, second)) in enumerate(zip(values, pairs, strict=True)):
        if value is not None and (one := quotes(value, first)) != quotes(value, second):
            found[row] = one
    return found


_LENGTHS: Mapping[str, Callable[[str], int]] = {
    "length of an answer": len,
    "words of an answer": lambda text: len(text.split()),
}


def _by_length(
    values: Sequence[Any], pairs: Sequence[tuple[str, str]]
) -> dict[str, Integer[np.ndarray, " n"]]:
    """Return which answer is as long as each number says, if nearly all are such lengths."""
    numbers = ordered_values(values)
    found = {}
    for reading, size in _LENGTHS.items() if numbers is not None else ():
        sizes = [(size(one), size(other)) for one, other in pairs]
        fits = [one in both for one, both in zip(numbers or (), sizes, strict=True)]
        if np.mean(fits) >= _FITTING:
            found[reading] = _guesses(numbers or (), sizes, lambda one, other: bool(one == other))
    return found
