"""How far one row's squared loss reaches, and neighboring batches that come close to it."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.mechanisms._candidates import scores_of
from sordino.mechanisms._outward import UP
from sordino.mechanisms._regressions import RegressionTerms
from sordino.mechanisms.base import WorstCase

__all__ = ["chord_case", "longest_change", "loss_range"]

_THIN: Final = 2000.0  # shared rows that keep draws within a hundredth of the radius of a line
_MOST: Final = 1e9  # more rows than any case holds
_TRIED: Final = 64  # candidates whose directions are tried
_LEAST: Final = 1e-300  # for a division by what may be 0


def loss_range(terms: RegressionTerms) -> float:
    """Return the largest difference of one row's squared losses within the radius, rounded up.

    (H + R)² for targets within ±R and predictions within ±H = WB; 4HR if R > H.

    Args:
        terms: The bounds.

    Raises:
        UsageError: It is too large, or too small, for a float.

    Source:
        docs/policy_optimization.md, "Exponential mechanism on a ball".

    Example:
        >>> terms = RegressionTerms(feature_bound=1.0, target_bound=1.0, radius=3.0, rows=10)
        >>> round(loss_range(terms), 9)
        16.0
    """
    reach, most = terms.radius * terms.feature_bound, terms.target_bound
    found = 4 * reach * most if most > reach else (reach + most) * (reach + most)
    return _validate.positive("(radius·feature_bound + target_bound)²", found * 2 * UP) / 2


def chord_case(terms: RegressionTerms, *, temperature: float, replaced: bool) -> WorstCase:
    """Return batches of two features between whose draws a chord of the disk lies.

    At one end of the chord the differing row of the first batch loses nothing and that of the
    second one all that it can, and at the other end the reverse. The rows that both share lose
    nothing on the chord, and much beside it.

    Args:
        terms: Bounds, and the number of rows.
        temperature: In units of the squared loss.
        replaced: Whether the differing row is replaced, or emptied.
    """
    bound, radius, most = terms.feature_bound, terms.radius, terms.target_bound
    cosine = -min(1.0, most / (radius * bound))  # of the angle of the chord at the center
    across, along = math.sqrt((1 + cosine) / 2), math.sqrt((1 - cosine) / 2)
    size = min(bound, most / max(across * radius, _LEAST))
    unit = max(size * radius, _LEAST)
    thin = 1 + min(terms.rows - 1, math.ceil(min(_THIN * temperature / unit / unit, _MOST)))
    one = np.zeros((terms.rows, 3))
    one[1:thin] = size, 0.0, size * across * radius
    other = one.copy()
    one[0] = bound * across, bound * along, -most
    if replaced:
        other[0] = bound * across, -bound * along, -most
    return WorstCase(one, other)


def longest_change(
    terms: RegressionTerms, candidates: Float[np.ndarray, "k d"], *, replaced: bool
) -> WorstCase:
    """Return batches of which one row differs, and moves the losses of candidates far apart.

    The best of all rows, or pairs of rows, that point to one of the first 64 candidates and
    have a target at one of its bounds; all others are empty.

    Args:
        terms: Bounds, and the number of rows.
        candidates: Public weights, one vector in each row.
        replaced: Whether the differing row is replaced, or emptied.
    """
    ways = candidates[:_TRIED]
    lengths = np.maximum(np.linalg.norm(ways, axis=1, keepdims=True), _LEAST)
    ways = np.vstack([ways / lengths, ways / lengths]) * terms.feature_bound
    targets = np.repeat([terms.target_bound, -terms.target_bound], len(lengths))
    scores = scores_of(ways, targets, candidates)
    ranges = np.zeros((len(scores), len(scores) if replaced else 1))
    for index, score in enumerate(scores):  # an emptied row scores every candidate alike
        ranges[index] = np.ptp(scores[: ranges.shape[1]] * replaced - score, axis=1)
    first, second = np.unravel_index(int(ranges.argmax()), ranges.shape)
    one, other = np.zeros((2, terms.rows, candidates.shape[1] + 1))
    one[0] = *ways[first], targets[first]
    if replaced:
        other[0] = *ways[second], targets[second]
    return WorstCase(one, other)
