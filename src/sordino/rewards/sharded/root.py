"""Where a rising sum over many rows crosses zero: a few passes, with several trials in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from jaxtyping import Float

__all__ = ["Rising", "crossing"]

Rising = Callable[[Float[np.ndarray, " k"]], Float[np.ndarray, "2 k"]]
"""From trials to the sum and its derivative at each, in one pass."""

_NEAR: Final = 4.0 ** np.arange(9)  # where a root is looked for first
_GRID: Final = 9  # trials that shrink the bracket whatever the guess is worth
_AROUND: Final = 0.5 * 10.0 ** -np.arange(1, 13)  # of the bracket, on both sides of the guess
_WIDE: Final = 4.0  # ratio of the ends from which on magnitudes are tried
_CLOSE: Final = 1e-12  # relative; the guess inside is closer by far
_PASSES: Final = 60


def crossing(rising: Rising, farthest: float) -> float | None:
    """Return where a sum crosses zero, from below; None if not between −farthest and farthest.

    Every pass tries points closely around a guess and some across the bracket, so that a good
    guess makes it ten times narrower than its own error, and a bad one does no harm.

    Args:
        rising: The sum, which never falls.
        farthest: Where to give up.
    """
    trials = np.concatenate([[-farthest], -_NEAR[::-1], [0.0], _NEAR, [farthest]])
    found = rising(trials)
    if found[0, 0] > 0 or found[0, -1] < 0:
        return None
    for _ in range(_PASSES):
        above = 1 + int(np.argmax(found[0, 1:] >= 0))
        ends, found = trials[above - 1 : above + 1], found[:, above - 1 : above + 1]
        guess = _guess(ends, *found)
        if not found[0].all() or ends[1] - ends[0] <= _CLOSE * float(np.abs(ends).max()):
            break
        inner = _inner(ends, guess)
        if not len(inner):
            break
        trials = np.concatenate([ends[:1], inner, ends[1:]])
        found = np.concatenate([found[:, :1], rising(inner), found[:, 1:]], axis=1)
    return guess


def _guess(
    ends: Float[np.ndarray, " two"],
    values: Float[np.ndarray, " two"],
    bends: Float[np.ndarray, " two"],
) -> float:
    """Return where the cubic through both ends, as a function of the value, is at value 0.

    Source:
        Inverse Hermite interpolation.
    """
    if values[0] == 0 or values[1] == 0:
        return float(ends[0] if values[0] == 0 else ends[1])
    height, width = float(values[1] - values[0]), float(ends[1] - ends[0])
    share = -float(values[0]) / height
    straight = float(ends[0]) + share * width
    if not (bends > 0).all():
        return straight
    with np.errstate(over="ignore", invalid="ignore"):
        first, last = height / bends - width
        bent = straight + share * (1 - share) * ((1 - share) * first - share * last)
    return float(bent) if ends[0] <= bent <= ends[1] else straight


def _inner(ends: Float[np.ndarray, " two"], guess: float) -> Float[np.ndarray, " k"]:
    """Return what to try between two ends."""
    low, high = ends
    width = high - low
    if low * high > 0 and max(low / high, high / low) > _WIDE:
        grid = np.geomspace(low, high, _GRID)
    else:
        grid = np.linspace(low, high, _GRID)
    around = width * _AROUND
    trials = np.concatenate([grid, [guess], guess - around, guess + around])
    return np.unique(trials[(trials > low) & (trials < high)])
