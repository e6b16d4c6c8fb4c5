"""What the scores of a distinguishing game show, each as a lower confidence bound.

A score is any number that tends to be larger (or smaller) on one of two neighboring inputs. The
first fifth of the scores chooses the event, the rest is counted, so every bound is valid for any
score, also for one that was learned badly.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
from jaxtyping import Float
from scipy.special import logit, ndtri

from sordino.auditing.statistical.bounds import (
    epsilon_bounds,
    epsilon_from_counts,
    lower_probability,
    mu_bounds,
    mu_from_counts,
    odds_ratio_bound,
    one_run_epsilon,
)
from sordino.auditing.statistical.thresholds import Cut, best_cut, best_cuts, split_sizes

__all__ = [
    "epsilon_cut",
    "epsilon_from_scores",
    "mu_cut",
    "mu_from_scores",
    "one_run_cut",
    "one_run_from_scores",
    "range_cut",
    "range_from_scores",
]

# Failure probabilities at which events are compared, not reported. A strict one prefers events
# that are counted well to events that happened to look good; for μ the loss is the same at every
# threshold, so only that matters.
_CHOOSING: Final = 0.05
_CHOOSING_MU: Final = 1e-8


def epsilon_cut(
    one: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"], *, delta: float
) -> Cut:
    """Return the event that shows most ε on the first fifth of the scores, counted on the rest.

    Args:
        one: Scores of independent trials on one input, in the order played.
        other: Scores of the trials on the other.
        delta: The δ of the claim.

    Raises:
        DataError: There are too few scores, or NaN among them, or they are sorted.
    """
    return best_cut(one, other, partial(epsilon_bounds, delta=delta, failure=_CHOOSING))


def mu_cut(one: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"]) -> Cut:
    """Return the event that shows most μ on the first fifth of the scores, counted on the rest.

    Args:
        one: Scores of independent trials on one input, in the order played.
        other: Scores of the trials on the other.

    Raises:
        DataError: There are too few scores, or NaN among them, or they are sorted.
    """
    return best_cut(one, other, partial(mu_bounds, failure=_CHOOSING_MU))


def range_cut(one: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"]) -> Cut:
    """Return the two events whose odds move most on the first fifth, counted on the rest.

    Args:
        one: Scores of independent trials on one input, in the order played.
        other: Scores of the trials on the other.

    Raises:
        DataError: There are too few scores, or NaN among them, or they are sorted.
    """
    return best_cuts(one, other, _odds_ratios)


def one_run_cut(one: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"]) -> Cut:
    """Return the two thresholds outside which canaries are guessed best, counted on the rest.

    Args:
        one: Scores of the canaries that were put in, in an order that does not depend on them.
        other: Scores of those that were left out.

    Raises:
        DataError: There are too few scores, or NaN among them, or they are sorted.
    """
    return best_cuts(one, other, _accuracies)


def epsilon_from_scores(
    one: Float[np.ndarray, " n"],
    other: Float[np.ndarray, " m"],
    *,
    delta: float,
    confidence: float,
) -> float:
    """Return a lower confidence bound on ε from scores of trials on two neighboring inputs.

    Args:
        one: Scores of independent trials on one input, in the order played.
        other: Scores of the trials on the other.
        delta: The δ of the claim, in [0, 1).
        confidence: Coverage of the bound, in (0, 1).

    Raises:
        DataError: There are too few scores, or NaN among them, or they are sorted.
        UsageError: Another argument is out of range.

    Source:
        ``epsilon_from_counts``, at a threshold chosen on the first fifth of the scores.
    """
    cut = epsilon_cut(one, other, delta=delta)
    return epsilon_from_counts(*cut.counts, delta=delta, confidence=confidence)


def mu_from_scores(
    one: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"], *, confidence: float
) -> float:
    """Return a lower confidence bound on μ from scores of trials on two neighboring inputs.

    Args:
        one: Scores of independent trials on one input, in the order played.
        other: Scores of the trials on the other.
        confidence: Coverage of the bound, in (0, 1).

    Raises:
        DataError: There are too few scores, or NaN among them, or they are sorted.
        UsageError: ``confidence`` is out of range.

    Source:
        ``mu_from_counts``, at a threshold chosen on the first fifth of the scores.
    """
    return mu_from_counts(*mu_cut(one, other).counts, confidence=confidence)


def range_from_scores(
    one: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"], *, confidence: float
) -> float:
    """Return a lower confidence bound on the bounded range from scores of trials on two inputs.

    Args:
        one: Scores of independent trials on one input, in the order played.
        other: Scores of the trials on the other.
        confidence: Coverage of the bound, in (0, 1).

    Raises:
        DataError: There are too few scores, or NaN among them, or they are sorted.
        UsageError: ``confidence`` is out of range.

    Source:
        ``odds_ratio_bound``, between two events chosen on the first fifth of the scores.
    """
    return odds_ratio_bound(*range_cut(one, other).counts, confidence=confidence)


def one_run_from_scores(
    one: Float[np.ndarray, " n"],
    other: Float[np.ndarray, " m"],
    *,
    delta: float,
    confidence: float,
) -> float:
    """Return a lower confidence bound on ε from the scores of canaries in one run.

    Args:
        one: Scores of the canaries that a fair coin put in, in an order that does not depend on
            the scores.
        other: Scores of those that it left out.
        delta: The δ of the claim, in [0, 1).
        confidence: Coverage of the bound, in (0, 1).

    Raises:
        DataError: There are too few scores, or NaN among them, or they are sorted.
        UsageError: Another argument is out of range.

    Source:
        ``one_run_epsilon``: canaries outside two thresholds are guessed, and the first fifth,
        which chose the thresholds, counts for nothing.
    """
    hits, n, alarms, m = one_run_cut(one, other).counts
    canaries = split_sizes(len(one))[1] + split_sizes(len(other))[1]
    correct = hits + m - alarms
    return one_run_epsilon(canaries, n + m, correct, delta=delta, confidence=confidence)


def _odds_ratios(
    hits: np.ndarray, n: np.ndarray, alarms: np.ndarray, m: np.ndarray
) -> Float[np.ndarray, " t"]:
    """Return about what ``odds_ratio_bound`` says, fast: to choose events, not to report.

    Source:
        Woolf 1955, with one half added to every count.
    """
    cells = np.stack([hits, n - hits, alarms, m - alarms]) + 0.5
    ratio = np.log(cells[0] * cells[3] / (cells[1] * cells[2]))
    return np.asarray(ratio + ndtri(_CHOOSING) * np.sqrt((1 / cells).sum(axis=0)))


def _accuracies(
    hits: np.ndarray, n: np.ndarray, alarms: np.ndarray, m: np.ndarray
) -> Float[np.ndarray, " t"]:
    """Return about what ``one_run_epsilon`` says at δ = 0, fast."""
    with np.errstate(divide="ignore"):
        return np.asarray(logit(lower_probability(hits + m - alarms, n + m, _CHOOSING)))
