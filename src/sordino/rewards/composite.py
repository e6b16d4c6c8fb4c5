"""Objectives of rankings that answers enter through one sum: what a noised sum is fitted with.

The curvature of the Plackett–Luce likelihood depends on the rankings. These two do not: every pair
of candidates, each as often as any other, and the first choice alone. A slate that many people
ranked is given once, with its number of ballots.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from scipy.sparse import csr_array

from sordino._validate import finite_array
from sordino.errors import DataError
from sordino.mechanisms._slates import SizeGroup, checked_starts, groups_by_size, part_of

from ._ballot_loss import BallotLoss, checked_features, checked_pull
from ._ballot_terms import PairTerms, StageTerms, Terms

__all__ = ["FirstChoice", "PairwiseComposite", "pair_weight"]


def pair_weight(size: int) -> float:
    """Return w = 2/(K(K − 1)), so that the pairs of one ballot weigh 1 together.

    Source:
        docs/central.md, "Rankings".

    Example:
        >>> pair_weight(2), pair_weight(5)
        (1.0, 0.1)
    """
    return 2 / (size * (size - 1))


@dataclass(frozen=True, eq=False)
class _OneSum(BallotLoss):
    """A loss of slates and of one sum.

    Attributes:
        features: φ of every flat candidate, shape (m, d), dense or ``scipy.sparse.csr_array``.
        starts: Slate i holds the candidates ``starts[i]:starts[i+1]``; at least two.
        statistic: T̃, an estimate of the sum that the class is about, over all ballots.
        counts: How many ballots rank each slate; one, if left out.

    Raises:
        DataError: Shapes do not fit, or a number is not finite.
    """

    features: Float[np.ndarray, "m d"] | csr_array
    _: KW_ONLY
    starts: Integer[np.ndarray, " s"]
    statistic: Float[np.ndarray, " d"]
    counts: Any = None

    def __post_init__(self) -> None:
        """Check shapes."""
        object.__setattr__(self, "features", checked_features(self.features))
        m, d = self.features.shape
        starts = checked_starts(self.starts, m)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "statistic", checked_pull(self.statistic, d))
        counts = np.ones(len(starts) - 1) if self.counts is None else self.counts
        counts = finite_array("counts", counts, ndim=1)
        if len(counts) != len(starts) - 1 or (counts < 0).any():
            raise DataError("counts must be one number of at least 0 for each slate.")
        object.__setattr__(self, "counts", counts)

    @property
    def known_sum(self) -> Float[np.ndarray, " d"]:
        """Return T̃."""
        return self.statistic

    @cached_property
    def targets(self) -> Float[np.ndarray, " m"]:
        """Return zeros: all that is known of answers is the sum."""
        return np.zeros(self.features.shape[0])

    @cached_property
    def terms(self) -> tuple[Terms, ...]:
        """Return the convex functions, of the slates of each size."""
        return tuple(self._terms(group) for group in groups_by_size(self.starts))

    @abstractmethod
    def _terms(self, group: SizeGroup) -> Terms:
        """Return the convex function of the slates of one size."""

    def sample(self, step: int) -> _OneSum:
        """Return the loss of every ``step``-th slate and the sum's share."""
        slates = np.arange(0, len(self.starts) - 1, step)
        rows, starts = part_of(self.starts, slates)
        return type(self)(
            self.features[rows],
            starts=starts,
            statistic=self.statistic / step,
            counts=self.counts[slates],
        )


@dataclass(frozen=True, eq=False)
class PairwiseComposite(_OneSum):
    """The composite likelihood of all pairs of a ballot, where only their sum is known.

    Under Plackett–Luce a better rank of two candidates follows the Bradley–Terry model, so that
    its minimizer estimates the same weights. The sum is T = Σ w Σ_a (K − rank_a)φ_a, with average
    ranks for ties.

    Source:
        docs/central.md, "Rankings": Σ w Σ_{a<b} log(e^{θᵀφ_a} + e^{θᵀφ_b}) − T̃ᵀθ, w =
        2/(K(K − 1)). Sums, not means; no ridge.

    Attributes:
        features, starts, statistic, counts: As for every objective of one sum.

    Example:
        >>> loss = PairwiseComposite(
        ...     np.eye(3), starts=np.array([0, 3]), statistic=np.array([2.0, 1.0, 0.0]) / 3)
        >>> loss.gradient(np.zeros(3)).round(6).tolist()
        [-0.333333, 0.0, 0.333333]
    """

    def _terms(self, group: SizeGroup) -> Terms:
        return PairTerms(group.rows, pair_weight(group.size) * self.counts[group.slates])


@dataclass(frozen=True, eq=False)
class FirstChoice(_OneSum):
    """The likelihood of the best candidate of every ballot, where only their sum is known.

    The sum is T = Σ φ(chosen), with the mean of the candidates that tie as the best.

    Source:
        docs/central.md, "Rankings": Σ log Σ_a e^{θᵀφ_a} − T̃ᵀθ (multinomial logit). Sums, not
        means; no ridge.

    Attributes:
        features, starts, statistic, counts: As for every objective of one sum.

    Example:
        >>> loss = FirstChoice(
        ...     np.eye(2), starts=np.array([0, 2]), statistic=np.array([1.0, 0.0]))
        >>> loss.gradient(np.zeros(2)).tolist()
        [-0.5, 0.5]
    """

    def _terms(self, group: SizeGroup) -> Terms:
        times = np.zeros(group.rows.shape)
        times[0] = self.counts[group.slates]
        return StageTerms(group.rows, times)
