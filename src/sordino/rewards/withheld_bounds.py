"""How far one change of the data can move the scores of a withheld reward.

A bound is made of what is public: settings and, where a label is hidden, the questions.

What is refused before a reward is fitted to be withheld, and what qualifies its promises.

How far one label can move the scores of a withheld reward, where all questions are public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from sordino import _validate
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.exact_bounds import UP, farthest_rows, penalty_step, size
from sordino.mechanisms.preference_sensitivity import LabelCurvature, withheld_record_range
from sordino.preferences.features import Features, caveats_of_features
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import REPLACE_ONE, NeighboringRelation, Unit


def refuse_spending(given: Mapping[str, object]) -> None:
    """Refuse settings of releases: a withheld fit releases nothing."""
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} has no meaning with withhold=True: the fit is exact, releases nothing and "
            "spends nothing. Nothing was fitted. Leave it out; each draw from "
            "sordino.gibbs_policy(withheld, temperature=...) spends and takes the ledger."
        )


def refuse_without_withholding(given: Mapping[str, object]) -> None:
    """Refuse settings that only a withheld fit has."""
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is for withhold=True. Nothing was spent. Leave it out, or withhold the "
            "reward; for other fits the mechanism says what is promised."
        )


def refuse_other_pairs(pairs: object) -> None:
    """Refuse what is no raw judgments of two answers."""
    if not isinstance(pairs, Pairs):
        raise UsageError(
            f"withhold=True is for raw judgments of two answers (Pairs), got "
            f"{type(pairs).__name__}. Nothing was fitted. Answers that are private already need no "
            "withholding; for rankings no bound is known."
        )


def refuse_other_terms(unit: object, neighbors: object) -> None:
    """Refuse a missing unit or relation, and those that no bound is known for."""
    if unit == "person":
        raise PrivacyError(
            "unit='person' cannot be promised: the bound of a withheld estimate is for one label "
            "or one record, and a person may have given many. Nothing was fitted. Use "
            "unit='record' or 'label' (a person with m of them is then protected with m times "
            "epsilon), keep one record of each person, or hide all labels of a person with "
            "LabelGaussian(..., records_per_person=...)."
        )
    if unit not in ("label", "record"):
        raise UsageError(
            f"unit must be 'label' or 'record', got {unit!r}: it is what each draw promises to "
            "hide, and has no default. Nothing was fitted."
        )
    if neighbors not in tuple(NeighboringRelation):
        raise UsageError(
            "neighbors must be ADD_OR_REMOVE_ONE, REPLACE_SPECIAL or REPLACE_ONE (which labels "
            f"need), got {neighbors!r}: it is what each draw promises to hide, and has no "
            "default. Nothing was fitted."
        )
    if unit == "label" and neighbors is not REPLACE_ONE:
        raise PrivacyError(
            f"neighbors={getattr(neighbors, 'name', neighbors)}: a label is replaced by another "
            "one, where all else is public. Nothing was fitted. Use unit='label' with "
            "REPLACE_ONE, or unit='record'."
        )


def changes_of(neighbors: NeighboringRelation) -> int:
    """Return how many removals or additions make one change of a record."""
    return 2 if neighbors is REPLACE_ONE else 1


def given_ridge(ridge: float | None) -> float:
    """Return the ridge; refuse none, because there is nothing private to choose it by."""
    if ridge is None:
        raise UsageError(
            "ridge is needed with withhold=True: choosing it on raw labels would be a release of "
            "its own. Nothing was fitted. Pass ridge=..., chosen before you look at the data; "
            "more of it lets each draw spend less."
        )
    return ridge


def refuse_public_bound(bound: float | None) -> None:
    """Refuse a bound on the norms of questions that are public."""
    if bound is not None:
        raise UsageError(
            f"bound={bound!r} is for unit='record': where questions are public their own norms "
            "are used. Nothing was fitted. Leave it out."
        )


def withheld_caveats(pairs: Pairs, unit: Unit, features: Features | None = None) -> tuple[str, ...]:
    """Return what qualifies the promises of draws from a fit of these pairs."""
    caveats = {
        "real-arithmetic": True,
        # of records always: whether they name persons is as private as all else of them
        "person-group": unit == "record" or pairs.persons is not None,
        "repeats-not-linked": unit == "label"
        and pairs.persons is None
        and len(set(pairs.keys)) < len(pairs),
    }
    read = caveats_of_features(features) if unit == "record" else ()
    return (*(name for name, applies in caveats.items() if applies), *read)


ATOL: Final = 1e-8
"""Accepted norm of the gradient, as a share of the longest feature difference that may be."""

DOUBT_ROUNDING: Final = 2.0**-20
"""Share by which a computed norm in Σ⁻¹ may be off."""

ROUNDED: Final = 2.0  # the true gradient is within this many times what was accepted


@dataclass(frozen=True)
class Settings:
    """What a withheld fit minimizes and how it scores; public, and chosen before the data."""

    _: KW_ONLY
    ridge: float  # Λ of (Λ/2)‖θ‖², > 0
    ball: float  # bound on ‖θ‖, > 0
    penalty: float = 0.0  # strength of pessimism, in units of reward, ≥ 0
    penalty_ridge: float | None = None  # λ of Σ = λI + Σ xxᵀ, > 0; `ridge` if left out

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

    Guarantee:
        :meth:`score_range` holds for every two sets of records that differ by one change, and for
        fits that are accepted at :attr:`atol`. Shown by tests/soundness/test_withheld_reward.py.
    """

    # A record pulls the gradient of the objective by at most ‖x‖σ(ball·‖x‖), whether its label is
    # 0, 1 or undecided (a target of ½), and raises Σ by xxᵀ. Candidates' features are counted from
    # their mean. For a row φ and Σ ⪰ λI, of which one record takes s = ‖x‖²_{Σ⁻¹} ≤ bound²/λ:
    # ‖φ‖_{Σ⁻¹} falls by at most its share 1 − (1 + s)^{-1/2}, hence by at most
    # ‖φ‖(λ^{-1/2} − (λ + bound²)^{-1/2}), and never rises. So the penalties of all candidates move
    # by between 0 and that, times the longest centered row.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences".

    settings: Settings  # what is minimized
    _: KW_ONLY
    bound: float  # norm to which every feature difference is shortened, > 0
    neighbors: NeighboringRelation  # what one change is; replacing is a removal and an addition

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
    """Return the features of one question's candidates less their mean."""
    # What all candidates share tells none from another, and should make none look doubtful.
    return np.asarray(options - options.mean(axis=0))


@dataclass(frozen=True, eq=False, repr=False)
class LabelBound:
    """How far one label moves the scores, where all questions are public.

    Guarantee:
        :meth:`score_range` holds for every two lists of labels that differ in one place, and for
        fits that are accepted at :attr:`atol`. Shown by tests/soundness/test_withheld_reward.py.
    """

    # Any label may become any other: a decided one has the target 0 or 1, an undecided one ½, so
    # that no change moves the gradient of the objective by more than one x.
    # Source: docs/intrinsic.md, "Withheld rewards of preferences".

    # x, the feature difference of every question that counts; dense or sparse.
    rows: Float[np.ndarray, "n d"] | csr_array
    settings: Settings  # what is minimized
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
        """Return a bound on max h − min h over the options, h being the change of the scores."""
        # The penalty depends on the questions alone: no label moves it. In the norm of M, a label
        # moves the exact minimizer by at most the leverage, and each fit is off by at most the norm
        # of its gradient over √ridge, because M ⪰ ridge·I.
        moved, leverage = self.curvature.range(options), self.curvature.leverage
        if leverage > 0:
            off = ROUNDED * self.atol / math.sqrt(self.settings.ridge)
            moved *= 1 + 2 * off / leverage
        return min(moved, 2 * self.settings.ball * farthest_rows(options)) * UP
