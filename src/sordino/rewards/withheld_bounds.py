"""How far one change of the data can move the scores of a withheld reward.

A bound is made of what is public: settings and, where a label is hidden, the questions.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Final, Protocol

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms._outward import UP, farthest_rows, size
from sordino.mechanisms._penalty import penalty_step
from sordino.mechanisms.preference_sensitivity import withheld_record_range
from sordino.privacy.guarantee import NeighboringRelation

from .withheld_checks import changes_of

__all__ = [
    "ATOL",
    "DOUBT_ROUNDING",
    "RecordBound",
    "ScoreBound",
    "Settings",
    "centered",
]

ATOL: Final = 1e-8
"""Accepted norm of the gradient, as a share of the longest feature difference that may be."""

DOUBT_ROUNDING: Final = 2.0**-20
"""Share by which a computed norm in Σ⁻¹ may be off."""

ROUNDED: Final = 2.0  # the true gradient is within this many times what was accepted


@dataclass(frozen=True)
class Settings:
    """What a withheld fit minimizes and how it scores; public, and chosen before the data.

    Args:
        ridge: Λ of (Λ/2)‖θ‖², > 0.
        ball: Bound on ‖θ‖, > 0.
        penalty: Strength of pessimism, in units of reward, ≥ 0.
        penalty_ridge: λ of Σ = λI + Σ xxᵀ, > 0; ``ridge`` if left out.

    Raises:
        UsageError: A setting is out of range, or ``penalty_ridge`` is of no use.
    """

    _: KW_ONLY
    ridge: float
    ball: float
    penalty: float = 0.0
    penalty_ridge: float | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.penalty_ridge is not None and self.penalty == 0:
            raise UsageError(
                f"penalty_ridge={self.penalty_ridge!r} is of no use without a penalty. Give both, "
                "or leave it out."
            )
        own = self.ridge if self.penalty_ridge is None else self.penalty_ridge
        checked = {
            "ridge": size("ridge", self.ridge),
            "ball": size("ball", self.ball),
            "penalty": size("penalty", self.penalty, zero=True),
            "penalty_ridge": size("penalty_ridge", own),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def doubt_ridge(self) -> float:
        """Return λ of Σ, which settings have once they are built."""
        assert self.penalty_ridge is not None  # noqa: S101 - for the type checker
        return self.penalty_ridge


class ScoreBound(Protocol):
    """How far one change of the data moves scores; made of public things alone."""

    @property
    def longest(self) -> float:
        """Return the norm of the longest feature difference that may be."""
        ...

    @property
    def atol(self) -> float:
        """Return the norm of the gradient at which a fit is accepted, > 0."""
        ...

    def score_range(self, options: Float[np.ndarray, "k d"]) -> float:
        """Return a bound on max h − min h over the options, h being the change of the scores."""
        ...


@dataclass(frozen=True)
class RecordBound:
    """How far one record moves the scores; nothing of the data enters.

    A record pulls the gradient of the objective by at most ‖x‖σ(ball·‖x‖), whether its label is
    0, 1 or undecided (a target of ½), and raises Σ by xxᵀ. Candidates' features are counted from
    their mean. For a row φ and Σ ⪰ λI, of which one record takes s = ‖x‖²_{Σ⁻¹} ≤ bound²/λ:
    ‖φ‖_{Σ⁻¹} falls by at most its share 1 − (1 + s)^{-1/2}, hence by at most
    ‖φ‖(λ^{-1/2} − (λ + bound²)^{-1/2}), and never rises. So the penalties of all candidates move
    by between 0 and that, times the longest centered row.

    Args:
        settings: What is minimized.
        bound: Norm to which every feature difference is shortened, > 0.
        neighbors: What one change is; replacing is a removal and an addition.

    Guarantee:
        :meth:`score_range` holds for every two sets of records that differ by one change, and for
        fits that are accepted at :attr:`atol`. Shown by tests/soundness/test_withheld_reward.py.

    Source:
        docs/intrinsic.md, "Withheld rewards of preferences".
    """

    settings: Settings
    _: KW_ONLY
    bound: float
    neighbors: NeighboringRelation

    def __post_init__(self) -> None:
        """Check the settings."""
        object.__setattr__(self, "bound", size("bound", self.bound))
        _validate.one_of("neighbors", self.neighbors, tuple(NeighboringRelation))

    @property
    def longest(self) -> float:
        """Return the norm of the longest feature difference that may be."""
        return self.bound

    @property
    def atol(self) -> float:
        """Return the norm of the gradient at which a fit is accepted, > 0."""
        return ATOL * self.bound

    def score_range(self, options: Float[np.ndarray, "k d"]) -> float:
        """Return a bound on max h − min h over the options, h being the change of the scores."""
        spread, ball = farthest_rows(options), self.settings.ball
        changes = changes_of(self.neighbors)
        once = withheld_record_range(
            self.settings.ridge,
            spread=spread,
            bound=self.bound,
            ball=ball,
            inexactness=spread / 2 * ROUNDED * self.atol / self.settings.ridge,
        )
        return (min(changes * once, 2 * ball * spread) + changes * self._doubt(options)) * UP

    def _doubt(self, options: Float[np.ndarray, "k d"]) -> float:
        """Return how far one record moves the penalty of a candidate at most."""
        ridge, penalty = self.settings.doubt_ridge, self.settings.penalty
        if penalty == 0:
            return 0.0
        longest = float(np.linalg.norm(centered(options), axis=1).max(initial=0.0))
        rounding = 4 * DOUBT_ROUNDING / math.sqrt(ridge)
        return penalty * longest * (penalty_step(ridge, step=self.bound**2) + rounding)


def centered(options: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k d"]:
    """Return the features of one question's candidates less their mean.

    What all candidates share tells none from another, and should make none look doubtful.
    """
    return np.asarray(options - options.mean(axis=0))
