"""Which scores count as "it was the first input": chosen on some trials, counted on the others.

A threshold that is chosen on the trials that it is counted on makes every bound too large. Here
the first fifth of the scores chooses, and only the rest is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Integer

from sordino.auditing.statistical.bounds import Counts
from sordino.errors import DataError
from sordino.privacy.guarantee import float_to_json

__all__ = ["SELECTION_SHARE", "Cut", "Rank", "best_cut", "best_cuts", "split", "split_sizes"]

SELECTION_SHARE: Final = 0.2
"""Share of the scores of each side that chooses the event and is not counted."""

_LEAST = 10  # scores a side
_MOST_SINGLE = 256  # thresholds that are tried
_MOST_DOUBLE = 32  # thresholds that are tried in pairs
_NEVER_SORTED = 12  # so many different independent scores are in order once in 12! times


Rank = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From arrays of the four counts to how much each event shows."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """An event chosen without the scores that it was counted on.

    Scores of at least ``high`` say one input, scores below ``low`` say the other (or the reverse
    if ``above`` is False), and scores between them say nothing and are not counted.
    """

    low: float
    high: float
    above: bool
    counts: Counts

    def to_dict(self) -> dict[str, Any]:
        """Return the event and its counts as JSON holds them."""
        return {
            "low": float_to_json(self.low) if self.low > -np.inf else "-inf",
            "high": float_to_json(self.high) if self.high > -np.inf else "-inf",
            "above": self.above,
            "one": [self.counts.true_positives, self.counts.trials_one],
            "other": [self.counts.false_positives, self.counts.trials_other],
        }


def split_sizes(scores: int) -> tuple[int, int]:
    """Return how many of so many scores choose the event, and how many are counted.

    Example:
        >>> split_sizes(20_000)
        (4000, 16000)
    """
    chosen = max(1, int(SELECTION_SHARE * scores))
    return chosen, scores - chosen


def split(
    name: str, scores: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " a"], Float[np.ndarray, " b"]]:
    """Return the scores that choose an event, and the scores that it is counted on.

    Args:
        name: What the scores are called in an error.
        scores: Of independent trials, in the order in which they were played; infinite ones are
            allowed.

    Raises:
        DataError: There are fewer than 10, one is NaN, or they have been sorted, so that the
            first ones are no sample of all.
    """
    array = np.asarray(scores)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) < _LEAST:
        raise DataError(
            f"{name} must hold at least {_LEAST} numbers in one dimension, got shape "
            f"{array.shape}, dtype {array.dtype}."
        )
    array = array.astype(np.float64, copy=False)
    if np.isnan(array).any():
        raise DataError(f"{name} must not be NaN: index {np.flatnonzero(np.isnan(array))[0]} is.")
    if _is_sorted(array):
        raise DataError(
            f"{name} must be in the order in which the trials were played, and they are sorted: "
            "the first of them are no sample of all. Pass them unsorted, or shuffle them."
        )
    chosen, _ = split_sizes(len(array))
    return array[:chosen], array[chosen:]


def _is_sorted(scores: np.ndarray) -> bool:
    """Return whether scores are in an order in which independent ones practically never are."""
    rises, falls = (scores[1:] >= scores[:-1]).all(), (scores[1:] <= scores[:-1]).all()
    return bool((rises or falls) and len(np.unique(scores)) >= _NEVER_SORTED)


def _candidates(scores: np.ndarray, most: int) -> np.ndarray:
    """Return thresholds to try: every value but the least, or fewer, dense in both tails."""
    values = np.unique(scores)
    if len(values) == 1:
        return values
    values = values[1:]
    if len(values) <= most:
        return values
    ranks = np.geomspace(1, len(scores) / 2, most // 2).astype(int)
    ordered = np.sort(scores)
    tried = np.unique(np.concatenate([ordered[ranks], ordered[len(scores) - ranks]]))
    return np.asarray(tried[tried > ordered[0]])


def _above(scores: np.ndarray, thresholds: np.ndarray) -> Integer[np.ndarray, " t"]:
    """Return how many scores are at least each threshold."""
    return np.asarray(len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left"))


def best_cut(one: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"], rank: Rank) -> Cut:
    """Return the threshold, and the side of it, that shows most, counted on fresh scores.

    Args:
        one: Scores of the trials on one input.
        other: Scores of the trials on the other.
        rank: How much counts show; the event is the one that shows most on the first fifth.

    Raises:
        DataError: As :func:`split`.
    """
    (seen_one, rest_one), (seen_other, rest_other) = split("one", one), split("other", other)
    tried = _candidates(np.concatenate([seen_one, seen_other]), _MOST_SINGLE)
    hits, alarms = _above(seen_one, tried), _above(seen_other, tried)
    n, m = np.full_like(hits, len(seen_one)), np.full_like(alarms, len(seen_other))
    shown = np.concatenate([rank(hits, n, alarms, m), rank(n - hits, n, m - alarms, m)])
    best = int(np.argmax(shown))
    high = float(tried[best % len(tried)])
    return _cut(high, high, rest_one, rest_other, above=best < len(tried))


def best_cuts(one: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"], rank: Rank) -> Cut:
    """Return the two thresholds that show most, counted on fresh scores.

    Scores between the two say neither and are left out: the counts are of the scores outside.

    Args:
        one: Scores of the trials on one input.
        other: Scores of the trials on the other.
        rank: How much counts show; the event is the one that shows most on the first fifth.

    Raises:
        DataError: As :func:`split`.
    """
    (seen_one, rest_one), (seen_other, rest_other) = split("one", one), split("other", other)
    tried = _candidates(np.concatenate([seen_one, seen_other]), _MOST_DOUBLE)
    low, high = np.triu_indices(len(tried))
    hits, alarms = _above(seen_one, tried)[high], _above(seen_other, tried)[high]
    misses = len(seen_one) - _above(seen_one, tried)[low]
    rejects = len(seen_other) - _above(seen_other, tried)[low]
    n, m = hits + misses, alarms + rejects
    shown = np.concatenate([rank(hits, n, alarms, m), rank(misses, n, rejects, m)])
    best = int(np.argmax(shown))
    pair = best % len(low)
    ends = float(tried[low[pair]]), float(tried[high[pair]])
    return _cut(*ends, rest_one, rest_other, above=best < len(low))


def _cut(low: float, high: float, one: np.ndarray, other: np.ndarray, *, above: bool) -> Cut:
    """Return an event with its counts."""
    sides = [(int((s >= high).sum()), int((s < low).sum())) for s in (one, other)]
    (hits, misses), (alarms, rejects) = sides if above else [pair[::-1] for pair in sides]
    counts = Counts(hits, hits + misses, alarms, alarms + rejects)
    return Cut(low=low, high=high, above=above, counts=counts)
