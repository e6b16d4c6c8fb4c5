"""What a column of a released file may say, whatever it holds: values in a few groups.

Nothing here knows a label. A column is read in every way that is likely to give labels away: each
value a group, the first or last character, the length, parts of ids, ranges of numbers and of time
stamps, their last digits and fractions; and which of its two answers it quotes: whole, at its end,
in front, or by its length.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias, TypeVar

import numpy as np
from jaxtyping import Integer

from .evidence import Channel
from .joining import tidied
from .reading import UNKNOWN, Released, parsed

MOST_VALUES = 50
"""A column of more distinct values is read by its characters or numbers, not by its values."""

Number: TypeAlias = int | float
_T = TypeVar("_T")
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
_FEWEST_CHARACTERS = 20  # a shorter beginning is a word that many texts begin with
_FITTING = 0.9  # share of rows in which a number must be a length, or it is another number


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Reading:
    """One way to read a column: rows of one group may share a label."""

    attack: str  # `"column"`, or `"time"` for numbers and time stamps
    name: str  # how it is read, for details
    groups: Integer[np.ndarray, " n"]  # group number of every row


def numbered(values: Iterable[object], *, most: int | None = None) -> Integer[np.ndarray, " n"]:
    """Return a group number for every value, equal for equal values, the most frequent first."""
    # Kinds are not mixed: true is not 1, "1" is not 1.
    keys: list[Hashable] = [
        value
        if isinstance(value, str | bytes) or value is None
        else (type(value).__name__, json.dumps(value, sort_keys=True, default=str))
        for value in values
    ]
    ranks = {key: rank for rank, (key, _) in enumerate(Counter(keys).most_common())}
    groups = np.array([ranks[key] for key in keys], dtype=np.int64)
    return groups if most is None else np.minimum(groups, most - 1)


def _number(value: object) -> Number | None:
    """Return a number, a numeral, or a time stamp in microseconds; None for anything else."""
    if not isinstance(value, str):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if isinstance(value, int) or math.isfinite(value) else None
    text = value.strip()
    if _DECIMAL.fullmatch(text):
        return float(text) if "." in text else int(text)
    found = _STAMP.fullmatch(text)
    if not found:
        return None
    date, time, fraction, offset = found.groups()
    try:
        whole = np.datetime64(f"{date}T{time or '00:00'}", "us").astype(np.int64)
    except ValueError:
        return None
    part = int((fraction or ".0")[1:7].ljust(6, "0"))
    ahead = 0  # minutes of the time zone
    if offset is not None and offset != "Z":
        ahead = int(offset[1:3]) * 60 + int(offset[-2:])
        ahead = -ahead if offset[0] == "-" else ahead
    return int(whole) + part - ahead * 60 * _MICROSECONDS


def ordered_values(values: Sequence[object]) -> list[Number | None] | None:
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


def readings(values: Sequence[object]) -> Iterator[Reading]:
    """Yield every way to read a column that has more than one group."""
    ordered, whole = ordered_values(values), numbered(values)
    kinds = int(whole.max(initial=0)) + 1
    found: list[tuple[str, str, np.ndarray]] = []
    if kinds <= MOST_VALUES:
        found.append(("column", "value", whole))
    if kinds > min(MOST_VALUES, len(values) // _ROWS_PER_VALUE):
        found += [("column", *each) for each in _text_parts(values, ids=ordered is None)]
        if ordered is not None:
            found += [("time", *each) for each in _number_parts(values, ordered)]
    for attack, name, groups in found:
        if groups.any():
            yield Reading(attack=attack, name=name, groups=groups)


def _text_parts(values: Sequence[object], *, ids: bool) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what texts begin and end with, how long they are, and the parts of ids."""
    # Of a time stamp, the time zone is the same in every row.
    texts: list[str | None] = []
    for value in values:
        text = value.strip() if isinstance(value, str) else json.dumps(value, default=str)
        plain = _OFFSET.sub("", text) if _STAMP.fullmatch(text) else text
        texts.append(None if value is None else plain)
    whole: dict[str, Callable[[str], object]] = {
        "first character": lambda text: text[:1],
        "last character": lambda text: text[-1:],
        "length": len,
    }
    for name, part in whole.items():
        yield name, numbered((t if t is None else part(t) for t in texts), most=MOST_VALUES)
    last = [None if text is None else text[-1:] for text in texts]
    if all(one is None or _DIGIT.fullmatch(one) for one in last):
        yield "parity", numbered(one if one is None else int(one, 16) % 2 for one in last)
    if not ids:
        return
    # The parts of ids such as "q17-b-1", where they are few different ones.
    split = [[] if text is None else _BETWEEN.split(text) for text in texts]
    most = max(map(len, split), default=0)
    for place in (*range(min(most, _MOST_PARTS)), -1) if most > 1 else ():
        groups = numbered(parts[place] if place < len(parts) > 0 else None for parts in split)
        if groups.max() < MOST_VALUES:
            yield f"part {place + 1}" if place >= 0 else "last part", groups


def _number_parts(
    values: Sequence[object], ordered: Sequence[Number | None]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield ranges of numbers and of time stamps, and the last digits of whole numbers."""
    yield "range", ranked_blocks(ordered, _blocks(len(ordered)))
    yield "half", ranked_blocks(ordered, 2)
    digits: list[int | None] = []
    fractions: list[Number | None] = []
    for value, number in zip(values, ordered, strict=True):
        if number is None:
            digits.append(None)
            fractions.append(None)
            continue
        # The last digit is that before the point; of a time stamp, that of its whole seconds. A
        # fraction is what lies below one; of an epoch, below its second.
        stamp = isinstance(value, str) and not _DECIMAL.fullmatch(value.strip())
        size = abs(number) // _EPOCH  # of seconds; larger epochs count parts of them
        unit = next((unit for unit in _PARTS_OF_A_SECOND if size >= unit), 1)
        digits.append(int(abs(number)) // (_MICROSECONDS if stamp else 1) % 10)
        fractions.append(round(number % (_MICROSECONDS if stamp else unit), 6))
    yield "last digit", numbered(digits)
    yield "fraction", numbered(fractions, most=MOST_VALUES)
    yield "half of the fraction", ranked_blocks(fractions, 2)


def row_readings(n: int) -> Iterator[Reading]:
    """Yield every way to read the place of a row in the file."""
    rows, most = np.arange(n), max(1, n)
    ways = {"block": rows * _blocks(n) // most, "half": rows * 2 // most, "parity": rows % 2}
    for name, groups in ways.items():
        if groups.any():
            yield Reading(attack="row-order", name=name, groups=groups)


def quoting_channels(released: Released) -> Iterator[Channel]:
    """Yield a channel for every column and way in which it quotes one answer and not the other.

    Guarantee:
        No released answer and no label is looked at.
    """
    pairs = list(zip(released.first, released.second, strict=True))
    said = [(_spoken(one) or "", _spoken(other) or "") for one, other in pairs]
    for name, values in released.columns.items():
        texts = [_spoken(value) for value in values]
        # Which answer each value is: as it is written, or else as it is spoken.
        written = _guesses(values, pairs, lambda value, answer: value == answer)
        tidy = _guesses(texts, said, lambda text, answer: text == answer != "")
        found = {"quotes an answer": np.where(written == UNKNOWN, tidy, written)}
        found["ends with an answer"] = _guesses(
            texts, said, lambda text, answer: len(text) > len(answer) > 0 and text.endswith(answer)
        )
        found["begins as an answer"] = _guesses(texts, said, _begins)
        numbers = ordered_values(values)
        for reading, size in _LENGTHS.items() if numbers is not None else ():
            sizes = [(size(one), size(other)) for one, other in pairs]
            fits = [one in both for one, both in zip(numbers or (), sizes, strict=True)]
            if np.mean(fits) >= _FITTING:
                found[reading] = _guesses(numbers or (), sizes, lambda one, other: one == other)
        for reading, guesses in found.items():
            if (guesses != UNKNOWN).any():
                details = {"column": name, "reading": reading}
                yield Channel(name="column", guesses=guesses, details=details)


_LENGTHS: Mapping[str, Callable[[str], int]] = {
    "length of an answer": len,
    "words of an answer": lambda text: len(text.split()),
}


def _spoken(value: object) -> str | None:
    r"""Return what a value says, tidied: of messages the contents, of a ranking what is first."""
    inside = parsed(value)
    if not isinstance(inside, str):
        several = inside if isinstance(inside, list | tuple) else [inside]
        if several and isinstance(several[0], str):
            inside = several[0]
        else:
            contents = [one.get("content") for one in several if isinstance(one, Mapping)]
            texts = [one for one in contents if isinstance(one, str)]
            inside = " ".join(texts) if texts else value
    return tidied(inside) if isinstance(inside, str) else None


def _begins(text: str, answer: str) -> bool:
    """Return whether a text is the beginning of an answer, or the reverse; dots do not count."""
    text = text.rstrip(".… ")
    shorter = min(len(text), len(answer))
    return shorter >= _FEWEST_CHARACTERS and text[:shorter] == answer[:shorter]


def _guesses(
    values: Sequence[_T | None], pairs: Sequence[tuple[_T, _T]], quotes: Callable[[_T, _T], bool]
) -> Integer[np.ndarray, " n"]:
    """Return 1 or 0 where a value quotes the first or the second only, ``UNKNOWN`` elsewhere."""
    found = np.full(len(values), UNKNOWN)
    for row, (value, (first, second)) in enumerate(zip(values, pairs, strict=True)):
        if value is not None and (one := bool(quotes(value, first))) != bool(quotes(value, second)):
            found[row] = one
    return found
