"""Metrics of predictions for randomized answers in many files: sums over parts of them.

The formulas are those of :mod:`sordino.rewards.metrics`, which holds all predictions in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Final

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino.rewards.likelihoods import debiased_loss
from sordino.rewards.metrics import (
    FARTHEST,
    Estimate,
    Interval,
    RewardMetrics,
    accuracy_error,
    agreements,
    clustered_error,
    greedy_picks,
    slope_estimate,
    slope_scores,
)
from sordino.rewards.sharded.predictions import Predicted, Predictions
from sordino.rewards.sharded.root import crossing

__all__ = ["AnswerMetrics", "measure_predictions"]

_ACCURACY, _LOSS, _WINS = range(3)
_EVEN: Final = math.inf  # a temperature at which nobody wins


@dataclass(frozen=True, kw_only=True)
class AnswerMetrics(RewardMetrics):
    """What a reward measures on randomized answers, and a policy of it.

    Attributes:
        win_rate: How often a Gibbs policy on the two answers picks the preferred one; None where
            no temperature was given.
        rows: How many answers it was measured on.
    """

    win_rate: Interval | None
    rows: int


@dataclass(frozen=True, eq=False)
class _Totals:
    """What some predictions add up to.

    Attributes:
        rows: How many.
        values: The sums of what accuracy, loss and win rate are means of.
        limits: Σ(1[Δ < 0] − ỹ)Δ and Σ(1[Δ > 0] − ỹ)Δ: the scores of an infinite slope.
        unit: The largest |Δ|.
    """

    rows: int
    values: Float[np.ndarray, " k"]
    limits: Float[np.ndarray, " two"]
    unit: float

    def plus(self, other: _Totals) -> _Totals:
        """Return the totals of both."""
        return _Totals(
            self.rows + other.rows,
            self.values + other.values,
            self.limits + other.limits,
            max(self.unit, other.unit),
        )


@dataclass(frozen=True, eq=False)
class _Spread:
    """How the same scatters.

    Attributes:
        persons: How many there are.
        squares: Over persons, the sums of squares of the sums of what is centered: of the three
            values, and of the scores of the slope.
        information: Σ σ′(bΔ)Δ².
    """

    persons: int
    squares: Float[np.ndarray, " k"]
    information: float

    def plus(self, other: _Spread) -> _Spread:
        """Return that of both."""
        return _Spread(
            self.persons + other.persons,
            self.squares + other.squares,
            self.information + other.information,
        )


def measure_predictions(
    predictions: Predictions, *, temperature: float | None = None
) -> AnswerMetrics:
    """Return what predictions say about answers, with the randomization taken out; it is free.

    Everything is read from the predictions, a few times; no file of answers is read again.

    Args:
        predictions: For answers that the fit behind them did not see.
        temperature: Of a Gibbs policy, for its win rate.

    Source:
        docs/local.md, metrics on randomized labels.
    """
    heat = _EVEN if temperature is None else temperature
    total = predictions.fold(partial(_totals, heat), _Totals.plus)
    root = _slope(predictions, total)
    means, unit = total.values / total.rows, total.unit
    spread = predictions.fold(partial(_spread, heat, means, root, unit), _Spread.plus)
    errors = [clustered_error(float(of), spread.persons, total.rows) for of in spread.squares]
    if not predictions.linked:
        value = float(means[_ACCURACY])
        errors[_ACCURACY] = accuracy_error(value, predictions.flip_probability, total.rows)
    found = [Estimate(float(mean), error) for mean, error in zip(means, errors[:3], strict=True)]
    slope = None
    if root is not None:
        slope = slope_estimate(root, unit, spread.information, errors[-1] * total.rows)
    wins = None if temperature is None else found[_WINS].interval(lower=0.0, upper=1.0)
    return AnswerMetrics(
        accuracy=found[_ACCURACY],
        negative_log_likelihood=found[_LOSS],
        calibration_slope=slope,
        win_rate=wins,
        rows=total.rows,
    )


def _values(part: Predicted, heat: float) -> Float[np.ndarray, "3 n"]:
    """Return what accuracy, loss and win rate are means of."""
    gaps, targets = part.differences, part.targets
    return np.stack(
        [
            agreements(greedy_picks(gaps), targets),
            debiased_loss(gaps, targets),
            agreements(expit(gaps / heat), targets),
        ]
    )


def _totals(heat: float, part: Predicted) -> _Totals:
    """Return the totals of one part."""
    gaps, targets = part.differences, part.targets
    limits = [((side - targets) * gaps).sum() for side in (gaps < 0, gaps > 0)]
    unit = float(np.abs(gaps).max(initial=0.0))
    return _Totals(len(gaps), _values(part, heat).sum(axis=1), np.array(limits), unit)


def _slope(predictions: Predictions, total: _Totals) -> float | None:
    """Return the calibration slope of Δ in its unit, or None where no finite one fits best."""
    if not total.limits[0] < 0 < total.limits[1]:
        return None

    def rising(trials: Float[np.ndarray, " k"]) -> Float[np.ndarray, "2 k"]:
        return predictions.fold(partial(_scores, trials, total.unit), add)

    return crossing(rising, FARTHEST)


def _scores(
    trials: Float[np.ndarray, " k"], unit: float, part: Predicted
) -> Float[np.ndarray, "2 k"]:
    """Return the sums of the scores of one part, and their derivatives, at every trial."""
    scaled = part.differences / unit
    found = [slope_scores(scaled, part.targets, slope) for slope in trials]
    return np.array([[score.sum(), bend.sum()] for score, bend in found]).T


def _spread(
    heat: float, means: Float[np.ndarray, " k"], root: float | None, unit: float, part: Predicted
) -> _Spread:
    """Return how one part scatters."""
    centered, information = list(_values(part, heat) - means[:, np.newaxis]), 0.0
    if root is not None:  # where the scores add up to 0: they are centered
        scores, bends = slope_scores(part.differences / unit, part.targets, root)
        centered.append(scores)
        information = float(bends.sum())
    sums = [part.by_person(values) for values in centered]
    squares = np.array([float(of @ of) for of in sums])
    return _Spread(len(sums[0]), squares, information)
