"""Shares of comparisons won, by cluster and at matched lengths, with intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

__all__ = ["Share", "length_matched_share", "share_won"]

_EDGES = np.log([1.1, 1.25, 1.5, 2.0])
_FEWEST = 5  # comparisons on each side of a stratum


@dataclass(frozen=True)
class Share:
    """A share of comparisons won, with an interval."""

    mean: float  # the share; a tie counts one half
    low: float
    high: float
    n: int  # comparisons behind it

    def to_dict(self) -> dict[str, Any]:
        """Return the share as JSON holds it."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the share with its interval."""
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def share_won(
    won: Float[np.ndarray, " n"], clusters: Int[np.ndarray, " n"], *, confidence: float
) -> Share:
    """Return the mean of what was won, with an interval that respects clusters."""
    # Source: Wilson 1927, with an effective number of comparisons n* = p(1 − p)/V, at most n, in
    # place of n (as survey samplers do; Korn & Graubard 1998), V the variance of the mean between
    # clusters, and Student's quantile on clusters − 1 degrees of freedom. Where V is 0, n* is the
    # number of clusters (of equal size).
    weights = np.full(len(won), 1 / len(won))
    return _share(won, weights, np.zeros(len(won), dtype=int), clusters, confidence)


def length_matched_share(
    won: Float[np.ndarray, " n"],
    log_ratios: Float[np.ndarray, " n"],
    clusters: Int[np.ndarray, " n"],
    *,
    confidence: float,
) -> Share | None:
    """Return the share won if answers were as often longer than the other one as shorter."""
    # Comparisons whose lengths differ by more than a factor of two are left out. The others fall
    # into strata by the factor (up to 1.1, 1.25, 1.5, 2, and exactly equal). In each, the share won
    # by longer answers and the share won by shorter ones count one half each, so that a judge who
    # looks at length alone gives 1/2. Strata are averaged by the precision of their share, which
    # gives no weight where only one side was seen; sides of fewer than five comparisons are left
    # out. It is no more than a weighting: nothing is assumed on how a judge values length.
    # Source: Weights ab/(a + b) of a stratum with a longer and b shorter answers: Mantel & Haenszel
    # 1959. Interval as in `share_won`, around the mean of each side of each stratum.
    strata = np.searchsorted(_EDGES, np.abs(log_ratios) - 1e-12)
    cells = np.where(log_ratios == 0, -1, 2 * strata + (log_ratios > 0))
    weights = _matching(cells, 2 * len(_EDGES))
    used = weights > 0
    if not used.any():
        return None
    kept = weights[used] / weights.sum()
    return _share(won[used], kept, cells[used], clusters[used], confidence)


def _matching(cells: Int[np.ndarray, " n"], end: int) -> Float[np.ndarray, " n"]:
    """Return the weights that give both sides of a stratum the same, up to a factor."""
    weights = np.zeros(len(cells))
    equal = cells == -1
    if equal.sum() >= _FEWEST:
        weights[equal] = 0.25  # n/4 in all: what n/2 longer and n/2 shorter ones would have
    for stratum in range(0, end, 2):
        sides = [cells == stratum, cells == stratum + 1]
        a, b = (int(side.sum()) for side in sides)
        if min(a, b) >= _FEWEST:
            for side, count in zip(sides, (a, b), strict=True):
                weights[side] = a * b / (a + b) / (2 * count)
    return weights


def _share(
    won: np.ndarray, weights: np.ndarray, cells: np.ndarray, clusters: np.ndarray, confidence: float
) -> Share:
    """Return a weighted mean, the weights adding up to 1, with Wilson's interval."""
    mean = float(np.clip(weights @ won, 0, 1))
    _, group = np.unique(clusters, return_inverse=True)
    count = int(group.max()) + 1
    if count == 1:
        return Share(mean, 0.0, 1.0, len(won))
    between = np.bincount(group, weights * _residuals(won, cells))
    variance = count / (count - 1) * float(between @ between)
    if variance > np.finfo(float).eps ** 2:
        most = 1 / float(weights @ weights)
        effective = min(mean * (1 - mean) / variance, most)
    else:
        effective = 1 / float(np.sum(np.bincount(group, weights) ** 2))
    quantile = float(stdtrit(count - 1, 0.5 + confidence / 2))
    return Share(mean, *_wilson(mean, effective, quantile), len(won))


def _residuals(won: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return what each comparison is away from the mean of its cell, as independent ones vary."""
    _, cell = np.unique(cells, return_inverse=True)
    sizes = np.bincount(cell)
    away = won - (np.bincount(cell, won) / sizes)[cell]
    return np.asarray(away * np.sqrt(sizes / np.maximum(sizes - 1, 1))[cell])


def _wilson(mean: float, n: float, quantile: float) -> tuple[float, float]:
    """Return the ends of Wilson's interval for a share of n."""
    shrink = quantile**2 / n
    middle = (mean + shrink / 2) / (1 + shrink)
    reach = math.sqrt(shrink * (mean * (1 - mean) + shrink / 4)) / (1 + shrink)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)
