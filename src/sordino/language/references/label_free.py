"""Does the text that a reference is trained on tell the judgments? Found without any label."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sordino._validate import failure_probability
from sordino.errors import PrivacyError, PrivacyWarning
from sordino.language.references.answer_search import AnswerSearch
from sordino.language.references.documents import Document, spoken
from sordino.preferences.comparisons import Comparisons

__all__ = ["OneSided", "one_sided_share", "warn_of_labels"]

_FEWEST = 10


@dataclass(frozen=True)
class OneSided:
    """How many pairs have both answers, exactly one, or neither in a text; no label is in it.

    Attributes:
        both: Pairs whose answers both occur.
        one: Pairs of which exactly one answer occurs.
        none: Pairs of which neither does.
    """

    both: int
    one: int
    none: int

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
    """Return of how many pairs exactly one answer occurs in a text; no label is looked at.

    What counts as an occurrence is said at ``AnswerSearch``: cuts, case and spaces do not matter.

    What this cannot see: a text that holds both answers but tells them apart, by order or by how
    often they occur; and answers that were rewritten.

    Args:
        documents: What a reference is trained on; see ``documents.Document``. It is read once.
        pairs: Pairs of texts, raw or randomized.

    Raises:
        DataError: A document cannot be read (its index is named), or the pairs hold no texts.
    """
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
    """Warn if a text seems to hold the preferred answers only; return what was found.

    Text in which both answers of every pair occur gives a share of 0. Text of another source has
    few short answers by chance: the preferred answers of 2,100 dialogues gave 2.3 % on 2,313 other
    pairs of the same people. Preferred answers themselves give nearly 100 %. One answer of every
    pair that was chosen without looking at a label leaks nothing and is warned of all the same,
    because no label is looked at here either.

    Args:
        documents: What a reference is, or was, trained on.
        pairs: Pairs of texts, raw or randomized.
        strict: Whether to refuse instead of warning.
        threshold: Share of pairs with exactly one answer above which to warn, from 10 pairs on.

    Raises:
        PrivacyError: ``strict``, and the share is above the threshold.
        DataError: As :func:`one_sided_share`.
        UsageError: The threshold is outside [0, 1).

    Warns:
        PrivacyWarning: The share is above the threshold.
    """
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
