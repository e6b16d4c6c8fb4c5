"""What a distinguishing game would have refuted: an audit without this says nothing.

Each function answers for a mechanism of the shape that is easiest to catch, by exact quantiles of
its counts: a mechanism that hides its fault better can have a larger loss and go unnoticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from scipy.special import expit, ndtr

from sordino._validate import failure_probability, integer, non_negative
from sordino.auditing.statistical.bounds import (
    Counts,
    epsilon_from_counts,
    mu_from_counts,
    odds_ratio_refutes,
)
from sordino.auditing.statistical.thresholds import split_sizes
from sordino.privacy._search import bracket_up, narrow

__all__ = ["POWER", "detectable_epsilon", "detectable_mu", "detectable_range"]

POWER: Final = 0.95
"""How often a mechanism with the stated loss is refuted, at least."""

_CHOICE: Final = 0.01  # how often the event may be chosen badly
_COUNT: Final = (1 - POWER - _CHOICE) / 2  # how often either count may be worse than assumed
_OFF: Final = 1.25  # standard deviations from the best threshold; passed in 1 % of seeded audits
_RTOL: Final = 1e-4
_LOST: Final = 1e3  # a loss at which every guess is right


@lru_cache(maxsize=256)
def detectable_epsilon(claimed: float, trials: int, *, delta: float, confidence: float) -> float:
    """Return the smallest true ε that would refute a claimed one, with probability .95.

    Args:
        claimed: The ε of the claim.
        trials: How often each input is played; a fifth of them chooses the event.
        delta: The δ of the claim.
        confidence: Coverage of the bound that the verdict needs.

    Returns:
        The loss of a randomized response that gives its answer away with probability δ;
        infinity if no loss would be seen.

    Raises:
        UsageError: An argument is out of range.

    Source:
        Quantiles of the two binomial counts; a Chernoff bound for choosing the opposite event.

    Example:
        >>> round(detectable_epsilon(1.0, 20_000, delta=0.0, confidence=0.999), 2)
        1.1
    """
    delta = failure_probability("delta", delta)

    def refutes(epsilon: float) -> bool:
        hit = delta + (1 - delta) * float(expit(epsilon))
        counts = _unlucky(hit, 1 - hit, trials)
        if counts is None:
            return False
        return epsilon_from_counts(*counts, delta=delta, confidence=confidence) > claimed

    return _least(refutes, claimed)


@lru_cache(maxsize=256)
def detectable_range(
    claimed: float, trials: int, *, confidence: float, center: float = 0.0
) -> float:
    """Return the smallest true bounded range that would refute a claimed one, with probability .95.

    Args:
        claimed: The bounded range of the claim.
        trials: How often each input is played; a fifth of them chooses the events.
        confidence: Coverage of the bound that the verdict needs.
        center: Log-odds of the two actions halfway between the inputs: 0 is easiest to catch.

    Returns:
        The bounded range of a draw of one of two actions, whose odds move by half of it up and
        by half of it down from the center; infinity if none would be seen.

    Raises:
        UsageError: An argument is out of range.

    Source:
        Quantiles of the two binomial counts; a Chernoff bound for choosing the opposite event.

    Example:
        >>> round(detectable_range(1.0, 20_000, confidence=0.999), 2)
        1.14
    """

    def refutes(bounded_range: float) -> bool:
        hit, alarm = expit(center + bounded_range / 2), expit(center - bounded_range / 2)
        counts = _unlucky(float(hit), float(alarm), trials)
        return counts is not None and odds_ratio_refutes(counts, claimed, confidence=confidence)

    return _least(refutes, claimed)


@lru_cache(maxsize=256)
def detectable_mu(claimed: float, trials: int, *, confidence: float) -> float:
    """Return the smallest true μ that would refute a claimed one, with probability .95.

    Args:
        claimed: The μ of the claim.
        trials: How often each input is played; a fifth of them chooses the threshold.
        confidence: Coverage of the bound that the verdict needs.

    Returns:
        The μ of a Gaussian mechanism, at the worse of two thresholds 1.25 standard deviations
        off the best one; infinity if none would be seen.

    Raises:
        UsageError: An argument is out of range.

    Source:
        Quantiles of the two binomial counts. How far off the chosen threshold lies was
        measured: tests/statistical/test_mechanism_audits.py.

    Example:
        >>> round(detectable_mu(1.0, 20_000, confidence=0.999), 2)
        1.16
    """
    counted = split_sizes(integer("trials", trials, at_least=1))[1]

    def refutes(mu: float) -> bool:
        ends = (mu / 2 - _OFF, mu / 2 + _OFF)
        tests = [_pessimistic(float(ndtr(mu - t)), float(ndtr(-t)), counted) for t in ends]
        return all(mu_from_counts(*counts, confidence=confidence) > claimed for counts in tests)

    return _least(refutes, claimed)


def _unlucky(hit: float, alarm: float, trials: int) -> Counts | None:
    """Return pessimistic counts of an event that has these chances p > q on the two inputs.

    None if the first fifth of the trials could take the opposite event for it: it does if it
    happens no more often on one input than on the other, which has probability at most
    (√(pq) + √((1 − p)(1 − q)))^(2n).
    """
    chosen, counted = split_sizes(integer("trials", trials, at_least=1))
    alike = math.sqrt(hit * alarm) + math.sqrt((1 - hit) * (1 - alarm))
    if alike ** (2 * chosen) > _CHOICE:
        return None
    return _pessimistic(hit, alarm, counted)


def _pessimistic(hit: float, alarm: float, n: int) -> Counts:
    """Return counts that are no better with probability at most 2·_COUNT."""
    from scipy.stats import binom  # noqa: PLC0415 (slow to import)

    return Counts(int(binom.ppf(_COUNT, n, hit)), n, int(binom.ppf(1 - _COUNT, n, alarm)), n)


def _least(refutes: Callable[[float], bool], claimed: float) -> float:
    """Return the smallest loss that is refuted; it only gets easier with the loss."""
    start = max(non_negative("claimed", claimed), _RTOL)
    if math.isinf(start) or not refutes(start + _LOST):
        return math.inf
    fails, found = bracket_up(refutes, start)
    return narrow(refutes, fails, found, rtol=_RTOL)[1]
