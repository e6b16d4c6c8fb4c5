"""How far the rewards of a finite class may disagree with the likeliest one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from sordino import _validate

__all__ = ["DisagreementSet", "radius_squared", "spread_of"]

_CLASS = 103.5  # 4/σ′(1)², rounded up in the last digit
_SAMPLE = 8.0
_CACHED = 1 << 17  # numbers of gaps that are held at once while the largest is sought: 1 MiB


def radius_squared(confidence: float, *, n: int, candidates: int, kappa: float) -> float:
    """Return how much the likeliest reward of a finite class may disagree with the truth.

    With the stated confidence, half the mean square of their difference over the pairs is at
    most this, and so is the variance of their difference under the reference, where the pairs
    were drawn from it.

    Source:
        PPKL, Lemma B.1 and Theorem 4.2, with constants made explicit; docs/local.md, finite
        reward class: β² = (103.5/κ² + 8) · log(2N/(1 − confidence))/n.

    Args:
        confidence: How often it holds, in (0, 1).
        n: Number of independent answers.
        candidates: N, the number of rewards in the class, the truth among them.
        kappa: κ = 1 − 2 · flip probability.

    Example:
        >>> round(radius_squared(0.95, n=10_000, candidates=10, kappa=1.0), 6)
        0.066805
    """
    failure = 1 - _validate.failure_probability("confidence", confidence, zero=False)
    return (_CLASS / kappa**2 + _SAMPLE) * math.log(2 * candidates / failure) / n


def spread_of(moments: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    """Return the second moment of g − g′ for each two variables, from those of their products.

    Source:
        docs/local.md, finite reward class: E(g − g′)² = E g² + E g′² − 2 E gg′.

    Example:
        >>> spread_of(np.array([[1.0, 1.0], [1.0, 4.0]]))
        array([[0., 3.],
               [3., 0.]])
    """
    own = np.diagonal(moments)
    spread = np.maximum(own[:, None] + own - 2 * moments, 0.0)
    return np.asarray((spread + spread.T) / 2)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DisagreementSet:
    """All candidates that disagree with the likeliest one by no more than the radius.

    Source:
        docs/local.md, finite reward class: the bonus is √(β² + λ) · D.

    Attributes:
        center: The weights that pick the likeliest candidate.
        spread: How far each two candidates disagree on the pairs, or under the reference.
        ridge: λ > 0.
        n: Number of independent answers.
        kappa: κ = 1 − 2 · flip probability.
    """

    center: Float[np.ndarray, " N"]
    spread: Float[np.ndarray, "N N"]
    ridge: float
    n: int
    kappa: float

    def radius(self, confidence: float) -> float:
        """Return what widths are multiplied by.

        Source:
            docs/local.md, finite reward class: √(β² + λ).
        """
        square = radius_squared(confidence, n=self.n, candidates=len(self.center), kappa=self.kappa)
        return math.sqrt(square + self.ridge)

    def widths(self, rows: Float[np.ndarray, "m N"]) -> Float[np.ndarray, " m"]:
        """Return how far two candidates disagree at most on each answer, per unit of radius.

        Source:
            docs/local.md, finite reward class: D = max over r ≠ r′ of |Δ − E_reference Δ| /
            √(λ + spread), Δ = r − r′.

        Args:
            rows: Rewards of all candidates, less their mean under the reference.
        """
        size = max(1, _CACHED // len(self.center))
        parts = [self._widest(rows[at : at + size].T) for at in range(0, len(rows), size)]
        return np.concatenate([np.zeros(0), *parts])

    def _widest(self, columns: Float[np.ndarray, "N b"]) -> Float[np.ndarray, " b"]:
        columns = np.ascontiguousarray(columns)
        widest = np.zeros(columns.shape[1])
        for one in range(len(columns) - 1):
            gaps = columns[one + 1 :] - columns[one]
            gaps *= self._steepness[one, one + 1 :, None]
            np.maximum(widest, np.abs(gaps, out=gaps).max(axis=0), out=widest)
        return widest

    @cached_property
    def _steepness(self) -> Float[np.ndarray, "N N"]:
        """Return 1/√(λ + spread) for each two candidates."""
        return np.asarray(1 / np.sqrt(self.ridge + self.spread))
