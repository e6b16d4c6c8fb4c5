"""Which of its two answers a column quotes: whole, at its end, in front, or by its length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Integer

from sordino.auditing.releases.columns import ordered_values
from sordino.auditing.releases.evidence import Channel
from sordino.auditing.releases.joining import tidied
from sordino.auditing.releases.nesting import parsed
from sordino.auditing.releases.released import UNKNOWN, Released

__all__ = ["quoting_channels", "spoken"]

_FEWEST_CHARACTERS = 20  # a shorter beginning is a word that many texts begin with
_FITTING = 0.9  # share of rows in which a number must be a length, or it is another number


def quoting_channels(released: Released) -> Iterator[Channel]:
    """Yield a channel for every column and way in which it quotes one answer and not the other.

    Args:
        released: The file. A text that both answers have in common says nothing.

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
    r"""Return what a value says, tidied: of messages the contents, of a ranking what is first.

    Example:
        >>> spoken(" Yes.\n"), spoken([{"role": "assistant", "content": "Yes."}])
        ('Yes.', 'Yes.')
        >>> spoken(["best", "worst"]), spoken(3)
        ('best', None)
    """
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
