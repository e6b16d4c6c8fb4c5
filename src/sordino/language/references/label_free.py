"""Does the text that a reference is trained on tell the judgments? Found without any label.

A search for the answers of pairs in text; no label is looked at.
"""

from __future__ import annotations

import os
import re
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool

from sordino._validate import failure_probability
from sordino.errors import DataError, PrivacyError, PrivacyWarning
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.records import Text

from .documents import Document, Spoken, spoken

_TELLING = 40  # characters past where two answers part that do not agree by chance
_START = re.compile(r"(?<!\w)\S")
_Places: TypeAlias = list[tuple[int, int]]  # rows, and 0 for the first answer or 1


class AnswerSearch:
    """The answers of all pairs, each looked for until it is found: no text is read twice."""

    # Texts are compared without regard to case, line breaks and the width of spaces (NFC). A short
    # answer occurs if it is one whole turn or line. A longer one occurs already if its beginning
    # does, up to 40 characters past where it parts from every other answer: so it does not matter
    # where the text, or the answer, was cut, nor that many answers open with the same words.

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


_FEWEST = 10


@dataclass(frozen=True)
class OneSided:
    """How many pairs have both answers, exactly one, or neither in a text; no label is in it."""

    both: int  # pairs whose answers both occur
    one: int  # pairs of which exactly one answer occurs
    none: int  # pairs of which neither does

    @property
    def n(self) -> int:
        """Return the number of pairs."""
        return self.both + self.one + self.none

    @property
    def share(self) -> float:
        """Return the share of pairs of which exactly one answer occurs."""
        return self.one / self.n if self.n else 0.0

    def __str__(self) -> str:
        """Return the shares in one sentence."""
        return (
            f"exactly one of the two answers occurs in the text for {self.one} of {self.n} pairs "
            f"({100 * self.share:.1f} %), both for {self.both}, neither for {self.none}"
        )


def one_sided_share(documents: Iterable[Document], pairs: Comparisons) -> OneSided:
    """Return of how many pairs exactly one answer occurs in a text; no label is looked at."""
    # What counts as an occurrence is said at `AnswerSearch`: cuts, case and spaces do not matter.
    # What this cannot see: a text that holds both answers but tells them apart, by order or by how
    # often they occur; and answers that were rewritten.
    answers = AnswerSearch(pairs)
    for index, document in enumerate(documents):
        answers.look_in(spoken(document, f"document {index}"))
    counts = np.bincount(answers.found.sum(axis=1), minlength=3)
    return OneSided(both=int(counts[2]), one=int(counts[1]), none=int(counts[0]))


def warn_of_labels(
    documents: Iterable[Document],
    pairs: Comparisons,
    *,
    strict: bool = False,
    threshold: float = 0.05,
) -> OneSided:
    """Warn if a text seems to hold the preferred answers only; return what was found."""
    # Text in which both answers of every pair occur gives a share of 0. Text of another source has
    # few short answers by chance: the preferred answers of 2,100 dialogues gave 2.3 % on 2,313
    # other pairs of the same people. Preferred answers themselves give nearly 100 %. One answer of
    # every pair that was chosen without looking at a label leaks nothing and is warned of all the
    # same, because no label is looked at here either.
    # Warns:
    #     PrivacyWarning: The share is above the threshold.
    limit = failure_probability("threshold", threshold)
    found = one_sided_share(documents, pairs)
    if found.one < _FEWEST or found.share <= limit:
        return found
    message = (
        f"The text seems to tell the judgments: {found}. If what people preferred decided which, "
        "then a model trained on it has seen their labels before any noise is drawn, and no "
        "epsilon covers that. Train on both answers of every pair in canonical order (sordino "
        "language tiny), or on other text."
    )
    if strict:
        raise PrivacyError(f"{message} Nothing was done.")
    warnings.warn(message, PrivacyWarning, stacklevel=2)
    return found
