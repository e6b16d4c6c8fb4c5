"""The candidate answers of many prompts, laid out one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, issparse

from sordino import _validate
from sordino._validate import Integers, Numbers
from sordino.errors import DataError, UsageError
from sordino.preferences.features import Features
from sordino.preferences.records import Text

from .pair_losses import blocks

CandidateLists: TypeAlias = Sequence[Any] | Float[np.ndarray, "n k d"]
"""n lists of texts, or n arrays of features, shape (k, d)."""

ReferenceLists: TypeAlias = Sequence[Any] | Float[np.ndarray, "n k"] | None
"""n lists of probabilities; uniform if left out."""

Prompts: TypeAlias = Sequence[Text] | None
"""n prompts; None where candidates are features."""

_BLOCK = 1 << 21  # numbers of features that are held at once: 16 MiB


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Candidates:
    """All m candidates of n prompts in one row, with the probabilities they start from."""

    sizes: Integers  # how many candidates each prompt has; no prompt has none
    # Probabilities of the starting policy, summing to 1 for every prompt.
    reference: Float[np.ndarray, " m"]
    prompts: Sequence[Text] = ()  # the prompt of every candidate; empty where features are given
    answers: Sequence[Text] = ()  # the candidates; empty where features are given
    # Features of the candidates, where they come without texts.
    given: Float[np.ndarray, "m d"] | None = None

    @classmethod
    @_validate.typed
    def of(
        cls,
        prompts: Prompts,
        candidates: CandidateLists,
        *,
        reference: ReferenceLists,
        features: Features | None,
    ) -> Candidates:
        """Return checked candidates."""
        if (prompts is None) != (features is None):
            raise UsageError(
                "This reward reads texts: give prompts, and candidates as lists of texts."
                if prompts is None
                else "This reward was fitted on feature differences and cannot read texts. Pass "
                "prompts=None, and candidates as arrays of the same features, one row for each."
            )
        if isinstance(prompts, str):
            raise DataError("prompts must be a list of texts, got one text.")
        n = len(candidates) if prompts is None else len(prompts)
        sizes = _lengths("candidates", candidates)
        if n != len(sizes):
            raise DataError(f"{n} prompts, but {len(sizes)} candidate lists.")
        if not n or not sizes.all():
            index = int(np.flatnonzero(sizes == 0)[0]) if n else 0
            raise DataError(f"candidates: entry {index} is empty; give at least one candidate.")
        base = _reference(reference, sizes)
        if prompts is None:
            return cls(sizes=sizes, reference=base, given=_stacked(candidates))
        repeated = [
            prompt for prompt, size in zip(prompts, sizes, strict=True) for _ in range(size)
        ]
        answers = list(chain.from_iterable(candidates))
        return cls(sizes=sizes, reference=base, prompts=repeated, answers=answers)

    def __len__(self) -> int:
        """Return m, the number of candidates of all prompts."""
        return len(self.reference)

    @property
    def starts(self) -> Integers:
        """Where each prompt's candidates begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    def split(self, values: Float[np.ndarray, " m"]) -> list[Float[np.ndarray, " k"]]:
        """Return one array for each prompt."""
        return np.split(values, self.starts[1:])

    def means(self, values: Float[np.ndarray, " m"], weights: Float[np.ndarray, " m"]) -> Numbers:
        """Return the sum of weights · values for each prompt."""
        return np.asarray(np.add.reduceat(weights * values, self.starts))

    def centered(
        self, features: Features | None
    ) -> Iterator[tuple[slice, Any, Float[np.ndarray, "b d"]]]:
        """Yield stretches of candidates: which they are, their features, and these centered."""
        # Centered features are φ(x, a) less their mean under the reference, dense; a policy depends
        # on nothing else, because what all candidates share changes no choice. The stretches bound
        # the memory.
        # Source: docs/local.md, confidence and pessimism: φ(x, a) − E_{a′∼reference} φ(x, a′).
        for part, first in self._parts(features):
            rows: Any = part.given
            if features is not None:
                rows = features.transform(part.prompts, part.answers)
            means = part._averages() @ rows  # noqa: SLF001 (of the same class)
            means = np.asarray(means.toarray() if issparse(means) else means)
            prompt = np.repeat(np.arange(len(part.sizes)), part.sizes)
            for block, chosen in blocks(rows):
                here = slice(first + chosen.start, first + chosen.stop)
                yield here, rows[chosen], block - means[prompt[chosen]]

    def _averages(self) -> csr_array:
        """Return the matrix that takes candidates to their mean under the reference."""
        # what all candidates share has to vanish, so probabilities sum to 1 to the last digit
        totals = np.add.reduceat(self.reference, self.starts)
        weights = self.reference / np.repeat(totals, self.sizes)
        return csr_array((weights, np.arange(len(self)), np.append(self.starts, len(self))))

    def _parts(self, features: Features | None) -> Iterator[tuple[Candidates, int]]:
        """Yield some prompts with all their candidates at a time, and where these begin."""
        columns = self.given.shape[1] if self.given is not None else 0
        columns = columns if features is None else features.dimension
        starts = self.starts
        cuts = np.flatnonzero(np.diff(starts // max(1, _BLOCK // max(columns, 1)))) + 1
        for some in np.split(np.arange(len(starts)), cuts):
            first = int(starts[some[0]])
            rows = slice(first, int(starts[some[-1]] + self.sizes[some[-1]]))
            part = Candidates(
                sizes=self.sizes[some],
                reference=self.reference[rows],
                prompts=self.prompts[rows],
                answers=self.answers[rows],
                given=None if self.given is None else self.given[rows],
            )
            yield part, first


def _lengths(name: str, entries: CandidateLists) -> Integers:
    """Return the length of every entry; refuse what is no list, such as one text."""
    lengths = []
    for at, entry in enumerate(entries):
        length = None
        with suppress(TypeError):
            length = None if isinstance(entry, str) else len(entry)
        if length is None:
            raise DataError(f"{name}: entry {at} must be a list, got {type(entry).__name__}.")
        lengths.append(length)
    return np.array(lengths, dtype=np.int64)


def _stacked(candidates: CandidateLists) -> Float[np.ndarray, "m d"]:
    """Return the features of all candidates below each other; refuse different widths."""
    if isinstance(candidates, np.ndarray) and candidates.ndim == 3:  # noqa: PLR2004 (no loop)
        n, k, d = candidates.shape
        return _validate.finite_array("candidates", candidates, ndim=3).reshape(n * k, d)
    name = "candidates: entry {}"
    options = [
        _validate.finite_array(name.format(at), rows, ndim=2) for at, rows in enumerate(candidates)
    ]
    columns = options[0].shape[1]
    for at, rows in enumerate(options):
        if rows.shape[1] != columns:
            raise DataError(
                f"{name.format(at)} has {rows.shape[1]} features, the first entry has {columns}."
            )
    return np.concatenate(options)


def _reference(reference: ReferenceLists, sizes: Integers) -> Float[np.ndarray, " m"]:
    """Return the reference probabilities of all candidates; uniform if left out."""
    if reference is None:
        return np.repeat(1.0 / sizes, sizes)
    if not np.array_equal(_lengths("reference", reference), sizes):
        raise DataError("reference must have one probability for each candidate.")
    flat = _validate.finite_array("reference", list(chain.from_iterable(reference)), ndim=1)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    totals = np.add.reduceat(flat, starts)
    wrong = np.flatnonzero((np.minimum.reduceat(flat, starts) <= 0) | (abs(totals - 1) > 1e-6))  # noqa: PLR2004
    if len(wrong):
        raise DataError(f"reference: entry {wrong[0]} must be positive and sum to 1.")
    return flat
