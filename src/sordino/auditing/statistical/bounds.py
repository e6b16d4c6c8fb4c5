"""What the counts of a distinguishing game show, each as a lower confidence bound.

Two neighboring inputs are played many times. How often an event happens on each of them bounds
the privacy loss from below, for whatever mechanism it was: no bound here assumes a shape, and
:func:`mu_from_counts` and :func:`odds_ratio_bound` refute a claim *of* a shape.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import betainc, betainccinv, betaincinv, expit, gammaln, logsumexp, ndtri

from sordino._validate import failure_probability, integer
from sordino.privacy._search import bracket_up, narrow

__all__ = [
    "Counts",
    "clopper_pearson",
    "epsilon_bounds",
    "epsilon_from_counts",
    "lower_probability",
    "mu_bounds",
    "mu_from_counts",
    "odds_ratio_bound",
    "odds_ratio_refutes",
    "one_run_epsilon",
]

_RTOL = 1e-12
_HALF = 0.499  # below one half the p-value of one run only rises with epsilon


class Counts(NamedTuple):
    """How often one event happened in each of two games."""

    true_positives: int
    trials_one: int
    false_positives: int
    trials_other: int


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return a lower and an upper bound on a probability, each of this confidence on its own.

    Args:
        successes: How often it happened, from 0 to ``trials``.
        trials: How many independent trials there were; with none the bounds are 0 and 1.
        confidence: Coverage of each of the two bounds, in (0, 1).

    Raises:
        UsageError: An argument is out of range.

    Source:
        Clopper & Pearson 1934: the probabilities at which the tail of the binomial is exactly
        1 − confidence, as quantiles of the beta distribution.

    Example:
        >>> low, high = clopper_pearson(0, 100, 0.95)
        >>> low, round(high, 6)
        (0.0, 0.029513)
    """
    failure = 1 - failure_probability("confidence", confidence, zero=False)
    k, n = _success_count("successes", successes, trials)
    count, total = np.asarray(k), np.asarray(n)
    low, high = lower_probability(count, total, failure), _upper_probability(count, total, failure)
    return float(low), float(high)


def _success_count(name: str, successes: int, trials: int) -> tuple[int, int]:
    """Return both counts; refuse more successes than trials."""
    n = integer("trials", trials, at_least=0)
    return integer(name, successes, at_least=0, at_most=n), n


def lower_probability(successes: np.ndarray, trials: np.ndarray, failure: float) -> np.ndarray:
    """Return lower bounds on probabilities."""
    some = np.maximum(successes, 1)
    return np.where(successes > 0, betaincinv(some, trials - some + 1.0, failure), 0.0)


def _upper_probability(successes: np.ndarray, trials: np.ndarray, failure: float) -> np.ndarray:
    """Return upper bounds on probabilities."""
    fails = np.maximum(trials - successes, 1)
    bound = betainccinv(successes + 1.0, fails, failure)
    return np.where(successes < trials, bound, 1.0)


def _checked(counts: Counts) -> Counts:
    """Return the four counts; refuse what cannot have been counted."""
    one = _success_count("true_positives", counts.true_positives, counts.trials_one)
    return Counts(*one, *_success_count("false_positives", *counts[2:]))


def epsilon_from_counts(
    true_positives: int,
    trials_one: int,
    false_positives: int,
    trials_other: int,
    *,
    delta: float,
    confidence: float,
) -> float:
    """Return a lower confidence bound on ε, for a mechanism whose δ is given.

    The larger of log((t − δ)/f) and log((1 − f − δ)/(1 − t)), where t is a lower bound on the
    chance of the event on one input and f an upper bound on its chance on the other. Both
    statements follow from the same two bounds, so each of these may fail with probability
    (1 − confidence)/2.

    Args:
        true_positives: How often the event happened on one input.
        trials_one: How often that input was played.
        false_positives: How often it happened on the other.
        trials_other: How often that one was played.
        delta: The δ of the claim, in [0, 1).
        confidence: Coverage of the bound, in (0, 1).

    Returns:
        The bound, at least 0.

    Raises:
        UsageError: An argument is out of range.

    Source:
        Kairouz, Oh & Viswanath 2015, Theorem 2.1 (the privacy region); Nasr et al. 2021, §4.

    Example:
        >>> round(epsilon_from_counts(900, 1000, 100, 1000, delta=0.0, confidence=0.95), 4)
        1.9897
    """
    counts = _checked(Counts(true_positives, trials_one, false_positives, trials_other))
    failure = 1 - failure_probability("confidence", confidence, zero=False)
    delta = failure_probability("delta", delta)
    return max(0.0, float(epsilon_bounds(*map(np.asarray, counts), delta=delta, failure=failure)))


def epsilon_bounds(
    hits: np.ndarray,
    n: np.ndarray,
    alarms: np.ndarray,
    m: np.ndarray,
    *,
    delta: float,
    failure: float,
) -> np.ndarray:
    """Return bounds on ε; where they say nothing they are negative."""
    hit, alarm = lower_probability(hits, n, failure / 2), _upper_probability(alarms, m, failure / 2)
    reject = 1 - alarm
    with np.errstate(divide="ignore"):
        event = np.log(np.maximum(hit - delta, 0)) - np.log(alarm)
        opposite = np.log(np.maximum(reject - delta, 0)) - np.log1p(-hit)
    return np.asarray(np.maximum(event, opposite))


def mu_from_counts(
    true_positives: int,
    trials_one: int,
    false_positives: int,
    trials_other: int,
    *,
    confidence: float,
) -> float:
    """Return a lower confidence bound on μ, for a mechanism that claims the Gaussian trade-off.

    Φ⁻¹(1 − α) − Φ⁻¹(β), where α and β are upper bounds on the errors of both kinds, each of
    which fails with probability (1 − confidence)/2. Every test of a μ-GDP mechanism keeps
    Φ⁻¹(1 − α) − Φ⁻¹(β) ≤ μ, so a larger value refutes μ-GDP, whatever the mechanism is.

    Args:
        true_positives: How often the event happened on one input.
        trials_one: How often that input was played.
        false_positives: How often it happened on the other.
        trials_other: How often that one was played.
        confidence: Coverage of the bound, in (0, 1).

    Returns:
        The bound, at least 0.

    Raises:
        UsageError: An argument is out of range.

    Source:
        Dong, Roth & Su 2022, Definition 2.6 and equation (6); Nasr et al. 2023, §4.

    Example:
        >>> round(mu_from_counts(692, 1000, 308, 1000, confidence=0.95), 4)
        0.8378
    """
    counts = _checked(Counts(true_positives, trials_one, false_positives, trials_other))
    failure = 1 - failure_probability("confidence", confidence, zero=False)
    return max(0.0, float(mu_bounds(*map(np.asarray, counts), failure=failure)))


def mu_bounds(
    hits: np.ndarray, n: np.ndarray, alarms: np.ndarray, m: np.ndarray, *, failure: float
) -> np.ndarray:
    """Return bounds on μ; where they say nothing they are negative."""
    return np.asarray(
        ndtri(lower_probability(hits, n, failure / 2))
        - ndtri(_upper_probability(alarms, m, failure / 2))
    )


def odds_ratio_bound(
    true_positives: int,
    trials_one: int,
    false_positives: int,
    trials_other: int,
    *,
    confidence: float,
) -> float:
    """Return a lower confidence bound on how far the log-odds of two actions move.

    For a mechanism of bounded range b the log-odds of any two events move by at most b. The
    bound is exact: given the total number of the first action, its number on one input is
    noncentral hypergeometric, and the odds ratio is its only parameter.

    Args:
        true_positives: How often the first of two actions was drawn on one input.
        trials_one: How often either of them was, on that input.
        false_positives: How often the first was drawn on the other input.
        trials_other: How often either of them was, on that one.
        confidence: Coverage of the bound, in (0, 1).

    Returns:
        The bound, at least 0.

    Raises:
        UsageError: An argument is out of range.

    Source:
        Fisher 1935; Cornfield 1956 (the exact conditional interval); Durfee & Rogers 2019,
        Definition 3.1.

    Example:
        >>> round(odds_ratio_bound(622, 1000, 378, 1000, confidence=0.95), 4)
        0.84
    """
    counts = _checked(Counts(true_positives, trials_one, false_positives, trials_other))
    failure = 1 - failure_probability("confidence", confidence, zero=False)
    support, weights = _hypergeometric(counts)
    upper = support >= counts.true_positives

    def rejected(log_odds: float) -> bool:
        return _log_tail(support, weights, upper, log_odds) <= math.log(failure)

    if not rejected(0.0):
        return 0.0
    _, kept = bracket_up(lambda log_odds: not rejected(log_odds), 1.0)
    return narrow(rejected, kept, 0.0, rtol=_RTOL)[1]


def odds_ratio_refutes(counts: Counts, claimed: float, *, confidence: float) -> bool:
    """Return whether :func:`odds_ratio_bound` is at least a claim, without finding the bound.

    Args:
        counts: The four counts.
        claimed: How far the log-odds may move, at least 0.
        confidence: Coverage of the bound, in (0, 1).
    """
    support, weights = _hypergeometric(_checked(counts))
    tail = _log_tail(support, weights, support >= counts.true_positives, claimed)
    return tail <= math.log(1 - confidence)


def _log_tail(
    support: Float[np.ndarray, " s"],
    weights: Float[np.ndarray, " s"],
    upper: Bool[np.ndarray, " s"],
    log_odds: float,
) -> float:
    """Return the logarithm of the chance of at least so many true positives, at these odds."""
    if upper.all():
        return 0.0
    terms = weights + log_odds * support
    return float(logsumexp(terms[upper]) - logsumexp(terms))


def _hypergeometric(
    counts: Counts,
) -> tuple[Float[np.ndarray, " s"], Float[np.ndarray, " s"]]:
    """Return every possible number of true positives given the total, and its log-weight."""
    hits, n, alarms, m = counts
    total = hits + alarms
    support = np.arange(max(0, total - m), min(n, total) + 1, dtype=np.float64)
    chosen = gammaln(support + 1) + gammaln(n - support + 1)
    rest = gammaln(total - support + 1) + gammaln(m - total + support + 1)
    return support, -chosen - rest


def one_run_epsilon(
    canaries: int, guesses: int, correct: int, *, delta: float, confidence: float
) -> float:
    """Return a lower confidence bound on ε from one run with many canaries.

    A fair coin decided for each canary whether it was in, and the guesses were made from the
    output alone (and from canaries that are not counted here). The bound is the smallest ε at
    which so many correct guesses are no longer a surprise:
    P[W ≥ v] + 2mδ·max_i P[v − i ≤ W < v]/i, W ~ Binomial(r, e^ε/(1 + e^ε)).

    Args:
        canaries: m, how many canaries could have been guessed.
        guesses: r, how many were, from 0 to m.
        correct: v, how many guesses were right, from 0 to r.
        delta: The δ of the claim, in [0, 1).
        confidence: Coverage of the bound, in (0, 1).

    Returns:
        The bound, at least 0.

    Raises:
        UsageError: An argument is out of range.

    Source:
        Steinke, Nasr & Jagielski 2023, Theorem 5.2 and Appendix D.

    Example:
        >>> round(one_run_epsilon(1000, 100, 85, delta=1e-5, confidence=0.95), 4)
        1.2531
    """
    m = integer("canaries", canaries, at_least=0)
    r = integer("guesses", guesses, at_least=0, at_most=m)
    v = integer("correct", correct, at_least=0, at_most=r)
    delta = failure_probability("delta", delta)
    failure = min(_HALF, 1 - failure_probability("confidence", confidence, zero=False))

    def surprising(epsilon: float) -> bool:
        return _one_run_p_value(m, r, v, epsilon, delta) <= failure

    if not surprising(0.0):
        return 0.0
    _, usual = bracket_up(lambda epsilon: not surprising(epsilon), 1.0)
    return narrow(surprising, usual, 0.0, rtol=_RTOL)[1]


def _one_run_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Return the chance of at least v correct guesses of r, at this ε and δ.

    Below one half it only rises with ε, so that bisection finds where it passes a level: with
    c = 2mδ/i each term is f(v) + c(f(v − i) − f(v)), f the upper tail, which rises while c ≤ 1,
    and also while the mode of W is below v − i; beyond that f(v − i), and the term, is ≥ ½.
    """
    if v == 0:
        return 1.0
    numbers = np.arange(1, v + 1, dtype=np.float64)
    tails = np.concatenate([[1.0], betainc(numbers, r - numbers + 1, expit(epsilon))])
    gaps = (tails[-2::-1] - tails[-1]) / numbers
    return float(tails[-1] + 2 * m * delta * gaps.max())
