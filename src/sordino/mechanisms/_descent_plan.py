"""How far one pass of noisy gradient steps gets: step, number of steps and error, all public.

Features are taken to point everywhere alike, so that the mean squared error bends by h = 2B²/d in
every direction: a step then shortens the distance to the solution by 1 − step·h, and noise enters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

__all__ = ["DescentPlan", "best_plan", "first_averaged"]

_HALVINGS = 14  # of the step, from the largest that is stable for any features
_MOST_BATCHES = 4096


@dataclass(frozen=True)
class DescentPlan:
    """One pass: how many inner batches, and how far each of them moves.

    Args:
        inner_batches: J.
        step: Of each, > 0.
    """

    inner_batches: int
    step: float

    def reached(self, bend: float) -> tuple[float, float]:
        """Return what is left of the distance, and how much of a step's noise stays.

        Args:
            bend: h, the second derivative in every direction.

        Returns:
            The share of the distance that the averaged weights are still away, and Σc², with c
            the weight of each gradient's noise in them.
        """
        count, first = self.inner_batches, first_averaged(self.inner_batches)
        shorter = max(1 - self.step * bend, -1.0)
        averaged = np.arange(first, count + 1)
        left = float(np.mean(shorter**averaged))
        powers = np.concatenate([[0.0], np.cumsum(shorter ** np.arange(count))])
        each = np.arange(1, count + 1)
        before = np.maximum(first - each, 0)
        kept = self.step * (powers[count - each + 1] - powers[before]) / len(averaged)
        return left, float(kept @ kept)

    def error(self, bend: float, distance: float, noise: float) -> float:
        """Return the root mean square error of predictions after the pass.

        Args:
            bend: h.
            distance: From the start to the solution.
            noise: Sum over coordinates of the variance of a mean gradient.
        """
        left, stays = self.reached(bend)
        return math.sqrt(bend / 2 * ((left * distance) ** 2 + noise * stays))


def first_averaged(inner_batches: int) -> int:
    """Return after which step the average of the weights begins: the second half counts."""
    return inner_batches // 2 + 1


@lru_cache(maxsize=256)
def best_plan(
    rows: int,
    *,
    bend: float,
    steepest: float,
    distance: float,
    sampling: float,
    private: float,
    inner_batches: int | None = None,
    step: float | None = None,
) -> DescentPlan:
    """Return the plan of least error among powers of two, for what is not fixed.

    Args:
        rows: m.
        bend: h, of features that point everywhere alike.
        steepest: The largest second derivative that any features have: 1/steepest is stable.
        distance: From the start to the solution.
        sampling: Variance of the gradient of one row, summed over coordinates.
        private: Variance of the noise on a sum of gradients, summed over coordinates.
        inner_batches: J if it is fixed.
        step: The step if it is fixed.
    """
    powers = [2**k for k in range(13) if 2**k <= min(rows, _MOST_BATCHES)]
    counts = powers if inner_batches is None else [inner_batches]
    steps = [0.5**k / steepest for k in range(_HALVINGS)] if step is None else [step]

    def cost(plan: DescentPlan) -> float:
        size = rows / plan.inner_batches
        return plan.error(bend, distance, sampling / size + private / size / size)

    return min((DescentPlan(count, size) for count in counts for size in steps), key=cost)
