"""What a fit sees: feature differences, randomized answers, and who belongs together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csr_array

from sordino.errors import DataError
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import Features
from sordino.preferences.folds import (
    MEASURING,
    folds_of,
    question_folds,
    question_numbers,
)
from sordino.preferences.private_pairs import PrivatePairs
from sordino.rewards.likelihoods import DebiasedLogistic, MixtureLogistic, debias

__all__ = ["MOST_FEATURES", "Design", "HeldOut", "known_feature_bound", "refuse_too_few"]

MOST_FEATURES = 1024
"""Most features for which a matrix of features by features is made unasked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """What a fit sees: feature differences, randomized answers, and who belongs together.

    One row per (person, question): a memoized repeat is the same observation.
    """

    differences: Float[np.ndarray, "n d"] | csr_array
    answers: Integer[np.ndarray, " n"]
    flip_probability: float
    feature_bound: float
    questions: Integer[np.ndarray, " n"]
    clusters: Integer[np.ndarray, " n"] | None

    @classmethod
    def of(cls, pairs: PrivatePairs, features: Features | None) -> Design:
        """Return the design of private pairs; repeats of one person are left out.

        Raises:
            UsageError: Features are missing, or were given twice.
            DataError: Features are not finite.
        """
        once = np.flatnonzero(pairs.first_rows())
        differences = pairs.differences(features)
        clusters = None
        if pairs.persons is not None:
            clusters = np.unique(np.asarray(pairs.persons), return_inverse=True)[1][once]
        return cls(
            differences=differences[once],
            answers=pairs.answers[once],
            flip_probability=pairs.flip_probability,
            feature_bound=known_feature_bound(differences, features),
            questions=question_numbers(pairs.keys)[once],
            clusters=clusters,
        )

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.answers)

    @property
    def loss(self) -> DebiasedLogistic:
        """Return the debiased loss of all observations."""
        targets = debias(self.answers, self.flip_probability)
        return DebiasedLogistic(self.differences, targets=targets)

    @property
    def mixture(self) -> MixtureLogistic:
        """Return the likelihood of all observations."""
        return MixtureLogistic(self.differences, self.answers, self.flip_probability)

    def part(self, rows: Bool[np.ndarray, " n"]) -> Design:
        """Return some of the observations."""
        index = np.flatnonzero(rows)
        return replace(
            self,
            differences=self.differences[index],
            answers=self.answers[index],
            questions=self.questions[index],
            clusters=None if self.clusters is None else self.clusters[index],
        )

    def folds(self, level: int) -> Integer[np.ndarray, " n"]:
        """Return a fold for every row, by its question alone, so that repeats stay together.

        ``level`` tells the folds that measure from those that choose.
        """
        return folds_of(self.questions, level)


def refuse_too_few(pairs: Comparisons) -> None:
    """Refuse pairs of which none can be held out, from public fields, before anything is spent.

    Raises:
        DataError: All questions fall into one part.
    """
    if len(np.unique(question_folds(pairs.keys, MEASURING))) < 2:  # noqa: PLR2004 (in and out)
        raise DataError(
            f"{len(pairs)} pairs are too few different questions to measure anything on held-out "
            "ones; a dozen is the least. Nothing was spent."
        )


def known_feature_bound(differences: Any, features: Features | None) -> float:
    """Return the bound on one answer's features; half the largest difference where none is set.

    Features are public under a label guarantee, so their largest norm may be used.
    """
    if features is not None:
        return features.feature_bound
    return float(np.sqrt((differences**2).sum(axis=1).max())) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """Predictions for answers that the fit behind them did not see."""

    differences: Float[np.ndarray, " n"]
    answers: Integer[np.ndarray, " n"]
    flip_probability: float
    clusters: Integer[np.ndarray, " n"] | None
