"""How far one label can move the scores of a withheld reward, where all questions are public."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from sordino.mechanisms._outward import UP, farthest_rows
from sordino.mechanisms.label_curvature import LabelCurvature
from sordino.rewards.withheld_bounds import ATOL, ROUNDED, Settings

__all__ = ["LabelBound"]


@dataclass(frozen=True, eq=False, repr=False)
class LabelBound:
    """How far one label moves the scores, where all questions are public.

    Any label may become any other: a decided one has the target 0 or 1, an undecided one ½, so
    that no change moves the gradient of the objective by more than one x.

    Args:
        rows: x, the feature difference of every question that counts; dense or sparse.
        settings: What is minimized.

    Guarantee:
        :meth:`score_range` holds for every two lists of labels that differ in one place, and for
        fits that are accepted at :attr:`atol`. Shown by tests/soundness/test_withheld_reward.py.

    Source:
        docs/intrinsic.md, "Withheld rewards of preferences".
    """

    rows: Float[np.ndarray, "n d"] | csr_array
    settings: Settings
    longest: float = field(init=False)
    curvature: LabelCurvature = field(init=False)

    def __post_init__(self) -> None:
        """Factor the curvature of the public questions once."""
        squares = np.asarray((self.rows**2).sum(axis=1), dtype=np.float64)
        known = LabelCurvature.of(self.rows, ridge=self.settings.ridge, ball=self.settings.ball)
        object.__setattr__(self, "longest", math.sqrt(float(squares.max(initial=0.0))))
        object.__setattr__(self, "curvature", known)

    @property
    def atol(self) -> float:
        """Return the norm of the gradient at which a fit is accepted, > 0."""
        return ATOL * self.longest or ATOL

    def score_range(self, options: Float[np.ndarray, "k d"]) -> float:
        """Return a bound on max h − min h over the options, h being the change of the scores.

        The penalty depends on the questions alone: no label moves it. In the norm of M, a label
        moves the exact minimizer by at most the leverage, and each fit is off by at most the norm
        of its gradient over √ridge, because M ⪰ ridge·I.
        """
        moved, leverage = self.curvature.range(options), self.curvature.leverage
        if leverage > 0:
            off = ROUNDED * self.atol / math.sqrt(self.settings.ridge)
            moved *= 1 + 2 * off / leverage
        return min(moved, 2 * self.settings.ball * farthest_rows(options)) * UP
