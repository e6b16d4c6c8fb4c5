"""What a fit sees of randomized answers in many files: their vectors, and one debiased sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from scipy.sparse import issparse

from sordino.engines.rows import PiecedRows
from sordino.errors import DataError
from sordino.preferences.features import Features
from sordino.rewards._gram import weighted_grams
from sordino.rewards.covariance import debiased_covariance, debiased_noise
from sordino.rewards.label_ridge import flattery
from sordino.rewards.ridge_choice import ridges
from sordino.rewards.sharded.evidence import PiecedEvidence
from sordino.rewards.solver import Solution

__all__ = ["AnswerEvidence", "evidence_of_answers"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AnswerEvidence(PiecedEvidence):
    """What a fit sees of randomized answers in many files.

    Attributes:
        rows: x of the answers that count.
        statistic: Σ ỹx, ỹ the answer with its randomization taken out in expectation.
        feature_bound: Bound L on the norm of one answer's features.
        flip_probability: Chance that an answer is not the judgment.
    """

    flip_probability: float

    def ridges(self) -> list[float]:
        """Return what :func:`~sordino.rewards.ridge_choice.ridges` says."""
        return ridges(self.feature_bound, self.flip_probability)

    def noise(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return N = Σ p(1 − p)/κ² xxᵀ, the covariance of Σ ỹx; from the sample.

        Source:
            docs/local.md, standard errors.
        """
        variances = debiased_noise(self.sample @ theta, self.flip_probability)
        [total] = weighted_grams(self.sample, variances)
        return np.asarray(total / self.share)

    def flattery(self, solution: Solution, ridge: float) -> float:
        """Return tr[(H + ΛI)⁻¹N].

        Source:
            docs/central.md, "Label privacy, one Gaussian release", with N for H + V.
        """
        theta = solution.theta
        return flattery(self.information(theta), self.noise(theta), solution, ridge)

    def scatter(self, theta: Float[np.ndarray, " d"], ridge: float) -> Float[np.ndarray, "d d"]:
        """Return the covariance of the estimate, as if θ were true.

        Source:
            docs/local.md, standard errors: A⁻¹E[p(1 − p)/κ² xxᵀ]A⁻¹/n, from the sample.
        """
        share = self.share
        covariance = debiased_covariance(
            self.sample, theta, self.flip_probability, ridge=ridge * share
        )
        return share * covariance


@dataclass(eq=False)
class _Sums:
    """What some answers add up to.

    Attributes:
        agreed: Σ zx, z the randomized answer.
        total: Σ x.
        longest: The largest ‖x‖².
        rows: How many.
    """

    agreed: Float[np.ndarray, " d"]
    total: Float[np.ndarray, " d"]
    longest: float
    rows: int

    def plus(self, other: _Sums) -> _Sums:
        """Return the sums of both."""
        return _Sums(
            self.agreed + other.agreed,
            self.total + other.total,
            max(self.longest, other.longest),
            self.rows + other.rows,
        )


def _sums(_first: int, block: Any, answers: Integer[np.ndarray, " n"]) -> _Sums:
    """Return what the answers of one block add up to."""
    lengths = block.power(2).sum(axis=1) if issparse(block) else (block**2).sum(axis=1)
    return _Sums(
        np.asarray(block.T @ answers.astype(np.float64)).ravel(),
        np.asarray(block.sum(axis=0)).ravel(),
        float(np.max(lengths)),
        len(answers),
    )


def evidence_of_answers(
    rows: PiecedRows, features: Features | None, flips: float
) -> AnswerEvidence:
    """Return what a fit sees: Σ ỹx = (Σ zx − f Σ x)/κ, and the bound of the features.

    Args:
        rows: x of the answers that count, with the answers beside them.
        features: What made them of texts; None for files of vectors.
        flips: Chance that an answer is not the judgment.

    Raises:
        DataError: There are other rows than before: the files changed while they were read.
    """
    found = rows.fold(_sums, _Sums.plus)
    if found.rows != rows.shape[0]:
        raise DataError("The input changed while it was read. Nothing was fitted.")
    bound = float(np.sqrt(found.longest)) / 2 if features is None else features.feature_bound
    return AnswerEvidence(
        rows=rows,
        statistic=(found.agreed - flips * found.total) / (1 - 2 * flips),
        feature_bound=bound,
        flip_probability=flips,
    )
