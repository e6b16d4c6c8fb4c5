"""Losses of rankings: a convex function of scores, less scores times what is known of the answers.

Everything is done for all ballots of one size at once, on scores alone; features are multiplied
twice, whatever the number of pairs or stages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from scipy.sparse import csr_array, issparse

from sordino._validate import finite_array
from sordino.errors import DataError

from ._ballot_curvature import BallotCurvature, gram
from ._ballot_terms import Terms

__all__ = ["BallotLoss", "checked_features", "checked_pull"]


class BallotLoss(ABC):
    """Σ convex(scores of a ballot) − targetsᵀscores − known_sumᵀθ, scores = features·θ.

    Attributes:
        features: φ of every flat candidate, shape (m, d), dense or ``scipy.sparse.csr_array``.
        starts: Where the candidates of each ballot start, and the end.
    """

    features: Float[np.ndarray, "m d"] | csr_array
    starts: Integer[np.ndarray, " s"]

    row_by_row = False

    @cached_property
    @abstractmethod
    def terms(self) -> tuple[Terms, ...]:
        """Return the convex functions, of the ballots of each size."""

    @property
    @abstractmethod
    def targets(self) -> Float[np.ndarray, " m"]:
        """Return what each score is multiplied by."""

    @abstractmethod
    def sample(self, step: int) -> BallotLoss:
        """Return the loss of every ``step``-th ballot, what is known as a sum shrunk alike."""

    @property
    def rows(self) -> Any:
        """Return the matrix that weights are multiplied by."""
        return self.features

    @property
    def known_sum(self) -> Float[np.ndarray, " d"] | float:
        """Return what weights are multiplied by beside the targets; 0 for nothing."""
        return 0.0

    def value(self, theta: Float[np.ndarray, " d"]) -> float:
        """Return the loss, summed over the ballots."""
        scores = np.asarray(self.features @ theta)
        linear = float(self.targets @ scores) + float(np.sum(self.known_sum * theta))
        return float(self.convex(scores).sum()) - linear

    def gradient(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """Return the gradient."""
        residuals = self.slopes(np.asarray(self.features @ theta)) - self.targets
        return np.asarray(self.features.T @ residuals - self.known_sum)

    def hessian(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return the Hessian, which no answers enter where they are known as a sum."""
        return gram(self.features, self.terms, np.asarray(self.features @ theta))

    def hessian_product(
        self, theta: Float[np.ndarray, " d"], vector: Float[np.ndarray, " d"]
    ) -> Float[np.ndarray, " d"]:
        """Return the Hessian times a vector; no matrix of features by features is made."""
        scores, along = np.asarray(self.features @ theta), np.asarray(self.features @ vector)
        moved = np.zeros(len(scores))
        for term in self.terms:
            bends = term.bends(scores[term.rows])
            change = along[term.rows].T
            part = bends.sum(axis=2) * change - np.einsum("gab,gb->ga", bends, change)
            moved[term.rows] = part.T
        return np.asarray(self.features.T @ moved)

    def convex(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " n"]:
        """Return the convex function of every ballot, those of one size after the other."""
        values = (term.values(margins[term.rows]) for term in self.terms)
        return np.concatenate([np.zeros(0), *values])

    def slopes(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Return the derivative of the convex part in each score."""
        found = np.zeros(len(margins))
        for term in self.terms:
            found[term.rows] = term.slopes(margins[term.rows])
        return found

    def span(self, change: Float[np.ndarray, " m"]) -> float:
        """Return the farthest that two scores of one ballot move apart.

        Along a line the third derivative of log-sum-exp is at most this times the second: it is
        the third central moment of the change under the choice, and the second is its variance.
        """
        widths = (float(np.ptp(change[term.rows], axis=0).max()) for term in self.terms)
        return max(widths, default=0.0)

    def bend(self, margins: Float[np.ndarray, " m"]) -> BallotCurvature:
        """Return the approximate Hessian at these scores."""
        return BallotCurvature(self.features, self.terms, margins)


def checked_features(features: Any) -> Float[np.ndarray, "m d"] | csr_array:
    """Return features as floats, dense or as compressed sparse rows.

    Raises:
        DataError: They have not two dimensions, or hold a NaN or an infinity.
    """
    if not issparse(features):
        return np.ascontiguousarray(finite_array("features", features, ndim=2))
    rows = csr_array(features, dtype=np.float64)
    if rows.ndim != 2 or not np.isfinite(rows.data).all():  # noqa: PLR2004
        raise DataError("features must be finite in 2 dimensions.")
    return rows


def checked_pull(pull: Any, d: int) -> Float[np.ndarray, " d"]:
    """Return what is known of the answers as a sum.

    Raises:
        DataError: It is not one finite number for each feature.
    """
    known = finite_array("statistic", pull, ndim=1)
    if len(known) != d:
        raise DataError(f"statistic must have shape ({d},), got {known.shape}.")
    return known
