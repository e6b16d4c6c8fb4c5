"""Two convex functions of the scores on one ballot, for many ballots of one size at once.

Scores are arrays (position, ballot). The curvature is Σ W_ab (v_a − v_b)² over pairs a < b along
a direction v, with W never negative: no difference of nearly equal numbers is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int64
from scipy.special import expit

__all__ = ["PairTerms", "StageTerms", "Terms"]


@runtime_checkable
class Terms(Protocol):
    """A convex function of the scores of each ballot."""

    @property
    def rows(self) -> Int64[np.ndarray, "k g"]:
        """Return the flat candidates."""
        ...

    def values(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, " g"]:
        """Return the function of every ballot."""
        ...

    def slopes(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
        """Return its derivative in every score."""
        ...

    def bends(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "g k k"]:
        """Return W, symmetric, its diagonal 0."""
        ...

    def every(self, step: int) -> Terms:
        """Return the terms of every ``step``-th ballot."""
        ...

    def part(self, ballots: slice) -> Terms:
        """Return the terms of some ballots."""
        ...


@dataclass(frozen=True, eq=False)
class StageTerms:
    """Σ_j times_j · log Σ_{a ≥ j} e^{score_a}: choices from what is left, best first.

    Attributes:
        rows: The flat candidates, in the order of the ballot.
        times: How often a candidate is chosen from those from here on; 0 or more.
    """

    rows: Int64[np.ndarray, "k g"]
    times: Float[np.ndarray, "k g"]

    def values(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, " g"]:
        """Return the function of every ballot."""
        return np.asarray((self.times * _left(scores)).sum(axis=0))

    def slopes(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
        """Return how often each candidate is expected to be chosen."""
        return np.asarray(np.exp(scores + self._accumulated(_left(scores))))

    def bends(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "g k k"]:
        """Return Σ_j times_j p_ja p_jb over the stages in which both are left."""
        shared = self._accumulated(2 * _left(scores)).T
        least = np.minimum.outer(np.arange(len(scores)), np.arange(len(scores)))
        known = scores.T
        weights = np.exp(known[:, :, np.newaxis] + known[:, np.newaxis] + shared[:, least])
        return _without_diagonal(weights)

    def every(self, step: int) -> StageTerms:
        """Return the terms of every ``step``-th ballot."""
        return self.part(slice(None, None, step))

    def part(self, ballots: slice) -> StageTerms:
        """Return the terms of some ballots."""
        return replace(self, rows=self.rows[:, ballots], times=self.times[:, ballots])

    def _accumulated(self, sizes: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
        """Return log Σ_{j ≤ a} times_j e^{−size_j}."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.times) - sizes
        return np.asarray(np.logaddexp.accumulate(logs, axis=0))


@dataclass(frozen=True, eq=False)
class PairTerms:
    """weight · Σ_{a<b} log(e^{score_a} + e^{score_b}).

    Attributes:
        rows: The flat candidates.
        weights: One for every ballot.
    """

    rows: Int64[np.ndarray, "k g"]
    weights: Float[np.ndarray, " g"]

    def values(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, " g"]:
        """Return the function of every ballot."""
        total = np.zeros(scores.shape[1])
        for a in range(len(scores) - 1):
            total += np.logaddexp(scores[a], scores[a + 1 :]).sum(axis=0)
        return np.asarray(self.weights * total)

    def slopes(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
        """Return weight · Σ_b σ(score_a − score_b)."""
        found = [expit(one - scores).sum(axis=0) - 0.5 for one in scores]
        return np.asarray(self.weights * np.stack(found))

    def bends(self, scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "g k k"]:
        """Return weight · σ′(score_a − score_b)."""
        known = scores.T
        gaps = known[:, :, np.newaxis] - known[:, np.newaxis]
        weights = self.weights[:, np.newaxis, np.newaxis] * (expit(gaps) * expit(-gaps))
        return _without_diagonal(weights)

    def every(self, step: int) -> PairTerms:
        """Return the terms of every ``step``-th ballot."""
        return self.part(slice(None, None, step))

    def part(self, ballots: slice) -> PairTerms:
        """Return the terms of some ballots."""
        return replace(self, rows=self.rows[:, ballots], weights=self.weights[ballots])


def _left(scores: Float[np.ndarray, "k g"]) -> Float[np.ndarray, "k g"]:
    """Return log Σ_{a ≥ j} e^{score_a} of every j."""
    return np.asarray(np.logaddexp.accumulate(scores[::-1], axis=0)[::-1])


def _without_diagonal(weights: Float[np.ndarray, "g k k"]) -> Float[np.ndarray, "g k k"]:
    """Return W with zeros on the diagonal."""
    places = np.arange(weights.shape[1])
    weights[:, places, places] = 0.0
    return weights
