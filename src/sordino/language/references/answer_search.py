"""A search for the answers of pairs in text; no label is looked at."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool

from sordino.errors import DataError
from sordino.language.references.documents import Spoken, spoken
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.records import Text

__all__ = ["AnswerSearch", "plain"]

_TELLING = 40  # characters past where two answers part that do not agree by chance
_START = re.compile(r"(?<!\w)\S")
_Places: TypeAlias = list[tuple[int, int]]  # rows, and 0 for the first answer or 1


class AnswerSearch:
    """The answers of all pairs, each looked for until it is found: no text is read twice.

    Texts are compared without regard to case, line breaks and the width of spaces (NFC). A short
    answer occurs if it is one whole turn or line. A longer one occurs already if its beginning
    does, up to 40 characters past where it parts from every other answer: so it does not matter
    where the text, or the answer, was cut, nor that many answers open with the same words.

    Args:
        pairs: Pairs of texts, raw or randomized.

    Attributes:
        found: Which answers occurred so far, the first of each pair and the second.

    Raises:
        DataError: The pairs hold no texts.
    """

    def __init__(self, pairs: Comparisons) -> None:
        """Index every answer as a whole, and every long one by its beginning."""
        if pairs.given is not None:
            raise DataError(
                "A reference is trained on texts, and these pairs hold feature vectors."
            )
        self.found: Bool[np.ndarray, "n 2"] = np.zeros((len(pairs), 2), dtype=bool)
        self._whole: dict[str, _Places] = defaultdict(list)
        for row, both in enumerate(zip(pairs.first, pairs.second, strict=True)):
            for side, answer in enumerate(both):
                self._whole[_answer(answer)].append((row, side))
        self._beginnings: dict[str, dict[int, dict[str, _Places]]] = {}
        for answer, parting in _partings(self._whole):
            beginning = answer[: parting + _TELLING]
            if len(beginning) >= _TELLING and len(answer) > parting:
                sizes = self._beginnings.setdefault(beginning[:_TELLING], {})
                sizes.setdefault(len(beginning), {})[beginning] = self._whole[answer]

    def look_in(self, said: Spoken) -> None:
        """Mark the answers that occur; what was found is not looked for again."""
        for piece in said.pieces:
            self._mark(self._whole.pop(plain(piece), []))
        for text in map(plain, said.texts):
            for start in _START.finditer(text):
                self._look_at(text, start.start())

    def _look_at(self, text: str, start: int) -> None:
        """Mark the answers whose beginning stands at one place of a text."""
        sizes = self._beginnings.get(text[start : start + _TELLING], {})
        for size, beginnings in sizes.items():
            self._mark(beginnings.pop(text[start : start + size], []))

    def _mark(self, places: _Places) -> None:
        """Mark answers as found."""
        for row, side in places:
            self.found[row, side] = True


def _partings(answers: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield different answers, with the number of characters that another one begins with too."""
    ordered = sorted(answers)
    shared = [len(os.path.commonprefix(pair)) for pair in pairwise(ordered)]  # noqa: RUF071 (by character is meant)
    yield from zip(ordered, map(max, [0, *shared], [*shared, 0]), strict=True)


def _answer(text: Text) -> str:
    """Return what an answer says, as one line."""
    return plain(text if isinstance(text, str) else " ".join(spoken(text).texts))


def plain(text: str) -> str:
    """Return a text in one case and one form, with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
