"""What a fit sees after all rankings were released as one sum: public slates, and that sum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array

from sordino.mechanisms._row_sums import Rows
from sordino.mechanisms._slates import centering
from sordino.preferences.features import Features

from ._ballot_curvature import gram
from ._ballot_loss import BallotLoss
from .composite import FirstChoice, PairwiseComposite

__all__ = ["Ballots", "RankingEvidence", "measured_hessian", "slate_bound"]

_ROWS = 32  # ballots a feature that a matrix rests on
_FLOPS = 1 << 25  # a matrix this cheap takes every ballot


@dataclass(frozen=True, kw_only=True)
class Ballots:
    """How many ballots there are, and how far from the middle their candidates may be.

    Attributes:
        n: How many.
        feature_bound: L, as :func:`slate_bound` gives it.
    """

    n: int
    feature_bound: float

    def __len__(self) -> int:
        """Return how many there are."""
        return self.n


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RankingEvidence:
    """What a fit sees after all rankings were released as one sum; all of it is public.

    Attributes:
        rows: φ of every flat candidate of the slates.
        starts: Slate i holds the candidates ``starts[i]:starts[i+1]``.
        counts: How many ballots that count rank each slate.
        kind: Which sum it is, ``"borda"`` or ``"first-choice"``.
        statistic: T̃, that sum with noise.
        factor: F; the noise has covariance V = FFᵀ.
        feature_bound: Bound L on how far a candidate is from the middle of its slate.
        rounding: How far the grid moved the sum at most, in standard deviations of the noise.
    """

    rows: Float[np.ndarray, "m d"] | csr_array
    starts: Int64[np.ndarray, " s"]
    counts: Int64[np.ndarray, " slates"]
    kind: str
    statistic: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, "d r"]
    feature_bound: float
    rounding: float

    def __len__(self) -> int:
        """Return the number of ballots that count."""
        return int(self.counts.sum())

    def __repr__(self) -> str:
        """Return the size."""
        return f"RankingEvidence(n={len(self)}, d={len(self.statistic)})"

    @cached_property
    def loss(self) -> PairwiseComposite | FirstChoice:
        """Return the objective that rankings enter through their sum alone."""
        kind = FirstChoice if self.kind == "first-choice" else PairwiseComposite
        return kind(self.rows, starts=self.starts, statistic=self.statistic, counts=self.counts)

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Return V, the covariance of the noise."""
        return np.asarray(self.factor @ self.factor.T)

    @property
    def inflation(self) -> float:
        """Return how many times as much T̃ varies as H says, were all candidates as good.

        It is tr(spread)/tr H at θ = 0, for which no matrix is made.
        """
        sizes = np.diff(self.starts)
        squares = centered_squares(self.rows, self.starts)
        within = np.add.reduceat(squares, self.starts[:-1]) * self.counts
        composite = self.kind == "borda"
        bend = within / (2 * (sizes - 1)) if composite else within / sizes
        drawn = bend * _agreement(sizes) if composite else bend
        return float((drawn.sum() + np.sum(self.factor**2)) / bend.sum())

    def spread(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return the covariance of T̃ if the weights were θ, the noise included.

        Source:
            docs/central.md, "Rankings": H for first choices. The pairs of a ballot agree with each
            other, so that their sum varies less than H says: for candidates that are all as good
            exactly 2(K + 1)/(3K(K − 1)) times, since ranks have variance (K² − 1)/12 and
            covariance −(K + 1)/12; the same factor is taken elsewhere. It is 1 for K = 2.
        """
        loss = self.loss
        if isinstance(loss, PairwiseComposite):
            loss = replace(loss, counts=self.counts * _agreement(np.diff(self.starts)))
        return np.asarray(measured_hessian(loss, theta) + self.covariance)


def _agreement(sizes: Int64[np.ndarray, " slates"]) -> Float[np.ndarray, " slates"]:
    """Return 2(K + 1)/(3K(K − 1))."""
    return np.asarray(2 * (sizes + 1) / (3 * sizes * (sizes - 1)))


def measured_hessian(loss: BallotLoss, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
    """Return the Hessian, from enough evenly spaced ballots, to choose a ridge by.

    Args:
        loss: The objective.
        theta: The weights.
    """
    n, d = len(loss.starts) - 1, loss.rows.shape[1]
    cheap = _FLOPS // (d**2 * int(np.diff(loss.starts).max()))
    step = max(1, n // max(_ROWS * d, cheap))
    return gram(loss.features, loss.terms, np.asarray(loss.features @ theta), step=step)


def slate_bound(rows: Rows, starts: Int64[np.ndarray, " s"], features: Features | None) -> float:
    """Return the bound L of a feature map or, without any, the reach of the candidates themselves.

    It is how far the farthest candidate is from the middle of its slate: of two candidates, half
    their difference, as for pairs.

    Args:
        rows: φ of every flat candidate; public.
        starts: Where slates start.
        features: What made them, if texts were read.
    """
    if features is not None:
        return features.feature_bound
    return float(np.sqrt(centered_squares(rows, starts).max()))


def centered_squares(rows: Rows, starts: Int64[np.ndarray, " s"]) -> Float[np.ndarray, " m"]:
    """Return the squared distance of every candidate from the middle of its slate."""
    centered = centering(starts) @ rows
    return np.asarray((centered**2).sum(axis=1), dtype=np.float64)
