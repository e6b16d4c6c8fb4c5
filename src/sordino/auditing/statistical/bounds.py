"""What a distinguishing game shows, each as a lower confidence bound.

No bound here assumes a shape, and :func:`mu_from_counts` and :func:`odds_ratio_bound` refute a
claim *of* a shape. A threshold that is chosen on the trials that it is counted on makes every bound
too large, so the first fifth of the scores chooses, and only the rest is counted. Every bound is
then valid for any score, also for one that was learned badly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import betainc, betainccinv, betaincinv, expit, gammaln, logit, logsumexp, ndtri

from sordino._validate import Numbers, failure_probability, integer
from sordino.errors import DataError
from sordino.privacy.conversions import bracket_up, narrow
from sordino.privacy.guarantee import float_to_json


class Counts(NamedTuple):
    """How often one event happened in each of two games."""

    true_positives: int
    trials_one: int
    false_positives: int
    trials_other: int


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return a lower and an upper bound on a probability, each of this confidence on its own."""
    # Source: Clopper & Pearson 1934: the probabilities at which the tail of the binomial is exactly
    # 1 − confidence, as quantiles of the beta distribution.
    failure = 1 - failure_probability("confidence", confidence, zero=False)
    count, total = map(np.asarray, _success_count("successes", successes, trials))
    low, high = _lower_probability(count, total, failure), _upper_probability(count, total, failure)
    return float(low), float(high)


def _lower_probability(successes: np.ndarray, trials: np.ndarray, failure: float) -> np.ndarray:
    some = np.maximum(successes, 1)
    return np.where(successes > 0, betaincinv(some, trials - some + 1.0, failure), 0.0)


def _upper_probability(successes: np.ndarray, trials: np.ndarray, failure: float) -> np.ndarray:
    fails = np.maximum(trials - successes, 1)
    bound = betainccinv(successes + 1.0, fails, failure)
    return np.where(successes < trials, bound, 1.0)


def _success_count(name: str, successes: int, trials: int) -> tuple[int, int]:
    """Return both counts; refuse more successes than trials."""
    n = integer("trials", trials, at_least=0)
    return integer(name, successes, at_least=0, at_most=n), n


def _checked(counts: Counts) -> Counts:
    one = _success_count("true_positives", counts.true_positives, counts.trials_one)
    return Counts(*one, *_success_count("false_positives", *counts[2:]))


def _chances(*counts: np.ndarray, failure: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the least chance of an event in one game, and the largest in the other, together."""
    hits, n, alarms, m = counts
    return _lower_probability(hits, n, failure / 2), _upper_probability(alarms, m, failure / 2)


def epsilon_from_counts(*counts: int, delta: float, confidence: float) -> float:
    """Return a lower confidence bound on ε, for a mechanism whose δ is given."""
    # The larger of log((t − δ)/f) and log((1 − f − δ)/(1 − t)), where t is a lower bound on the
    # chance of the event on one input and f an upper bound on its chance on the other. Both
    # statements follow from the same two bounds, so each of these may fail with probability (1 −
    # confidence)/2.
    # Source: Kairouz, Oh & Viswanath 2015, Theorem 2.1 (the privacy region); Nasr et al. 2021, §4.
    checked = _checked(Counts(*counts))
    failure = 1 - failure_probability("confidence", confidence, zero=False)
    delta = failure_probability("delta", delta)
    return max(0.0, float(_epsilon_bounds(*map(np.asarray, checked), delta=delta, failure=failure)))


def _epsilon_bounds(*counts: np.ndarray, delta: float, failure: float) -> np.ndarray:
    """Return bounds on ε by the four counts; where they say nothing they are negative."""
    hit, alarm = _chances(*counts, failure=failure)
    with np.errstate(divide="ignore"):
        event = np.log(np.maximum(hit - delta, 0)) - np.log(alarm)
        opposite = np.log(np.maximum(1 - alarm - delta, 0)) - np.log1p(-hit)
    return np.asarray(np.maximum(event, opposite))


def mu_from_counts(*counts: int, confidence: float) -> float:
    """Return a lower confidence bound on μ, for a mechanism that claims the Gaussian trade-off."""
    # Φ⁻¹(1 − α) − Φ⁻¹(β), where α and β are upper bounds on the errors of both kinds, each of which
    # fails with probability (1 − confidence)/2. Every test of a μ-GDP mechanism keeps Φ⁻¹(1 − α) −
    # Φ⁻¹(β) ≤ μ, so a larger value refutes μ-GDP, whatever the mechanism is.
    # Source: Dong, Roth & Su 2022, Definition 2.6 and equation (6); Nasr et al. 2023, §4.
    failure = 1 - failure_probability("confidence", confidence, zero=False)
    checked = map(np.asarray, _checked(Counts(*counts)))
    return max(0.0, float(_mu_bounds(*checked, failure=failure)))


def _mu_bounds(*counts: np.ndarray, failure: float) -> np.ndarray:
    """Return bounds on μ by the four counts; where they say nothing they are negative."""
    hit, alarm = _chances(*counts, failure=failure)
    return np.asarray(ndtri(hit) - ndtri(alarm))


def odds_ratio_bound(*counts: int, confidence: float) -> float:
    """Return a lower confidence bound on how far the log-odds of two actions move."""
    # For a mechanism of bounded range b the log-odds of any two events move by at most b. The bound
    # is exact: given the total number of the first action, its number on one input is noncentral
    # hypergeometric, and the odds ratio is its only parameter.
    # Source: Fisher 1935; Cornfield 1956 (the exact conditional interval); Durfee & Rogers 2019,
    # Definition 3.1.
    tail = _log_tails(_checked(Counts(*counts)))
    failure = 1 - failure_probability("confidence", confidence, zero=False)
    return _largest(lambda log_odds: tail(log_odds) <= math.log(failure))


def _largest(rejected: Callable[[float], bool]) -> float:
    """Return the largest loss that is rejected, as all smaller ones are; 0 if none is."""
    if not rejected(0.0):
        return 0.0
    _, kept = bracket_up(lambda loss: not rejected(loss), 1.0)
    return narrow(rejected, kept, 0.0, rtol=1e-12)[1]


def odds_ratio_refutes(counts: Counts, claimed: float, *, confidence: float) -> bool:
    """Return whether :func:`odds_ratio_bound` is at least a claim, without finding the bound."""
    return _log_tails(_checked(counts))(claimed) <= math.log(1 - confidence)


def _log_tails(counts: Counts) -> Callable[[float], float]:
    """Return what gives, at some log-odds, the log-chance of at least so many true positives."""
    hits, n, alarms, m = counts
    total = hits + alarms
    support = np.arange(max(0, total - m), min(n, total) + 1, dtype=np.float64)
    chosen = gammaln(support + 1) + gammaln(n - support + 1)
    rest = gammaln(total - support + 1) + gammaln(m - total + support + 1)
    weights, upper = -chosen - rest, support >= hits

    def tail(log_odds: float) -> float:
        terms = weights + log_odds * support
        return 0.0 if upper.all() else float(logsumexp(terms[upper]) - logsumexp(terms))

    return tail


def one_run_epsilon(
    canaries: int, guesses: int, correct: int, *, delta: float, confidence: float
) -> float:
    """Return a lower confidence bound on ε from one run with many canaries."""
    # A fair coin decided for each canary whether it was in, and the guesses were made from the
    # output alone (and from canaries that are not counted here). The bound is the smallest ε at
    # which so many correct guesses are no longer a surprise: P[W ≥ v] + 2mδ·max_i P[v − i ≤ W <
    # v]/i, W ~ Binomial(r, e^ε/(1 + e^ε)).
    # Source: Steinke, Nasr & Jagielski 2023, Theorem 5.2 and Appendix D.
    m = integer("canaries", canaries, at_least=0)
    r = integer("guesses", guesses, at_least=0, at_most=m)
    v = integer("correct", correct, at_least=0, at_most=r)
    delta = failure_probability("delta", delta)
    # Below one half the chance of so many only rises with ε, so that bisection finds where it
    # passes a level: with c = 2mδ/i each term is f(v) + c(f(v − i) − f(v)), f the upper tail, which
    # rises while c ≤ 1, and also while the mode of W is below v − i; beyond that f(v − i), and the
    # term, is ≥ ½.
    failure = min(0.499, 1 - failure_probability("confidence", confidence, zero=False))
    numbers = np.arange(1, v + 1, dtype=np.float64)

    def surprising(epsilon: float) -> bool:
        tails = np.concatenate([[1.0], betainc(numbers, r - numbers + 1, expit(epsilon))])
        gaps = (tails[-2::-1] - tails[-1]) / numbers
        return bool(tails[-1] + 2 * m * delta * gaps.max() <= failure)

    return _largest(surprising) if v else 0.0


SELECTION_SHARE: Final = 0.2
"""Share of the scores of each side that chooses the event and is not counted."""

_LEAST = 10  # scores a side
_MOST_DOUBLE = 32  # thresholds that are tried in pairs
_NEVER_SORTED = 12  # so many different independent scores are in order once in 12! times


_Rank = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""From arrays of the four counts to how much each event shows."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """An event chosen without the scores that it was counted on."""

    # Scores of at least `high` say one input, scores below `low` say the other (or the reverse if
    # `above` is False), and scores between them say nothing and are not counted.

    low: float
    high: float
    above: bool
    counts: Counts

    def to_dict(self) -> dict[str, object]:
        """Return the event and its counts as JSON holds them."""
        return {
            "low": float_to_json(self.low) if self.low > -np.inf else "-inf",
            "high": float_to_json(self.high) if self.high > -np.inf else "-inf",
            "above": self.above,
            "one": [self.counts.true_positives, self.counts.trials_one],
            "other": [self.counts.false_positives, self.counts.trials_other],
        }


def split_sizes(scores: int) -> tuple[int, int]:
    """Return how many of so many scores choose the event, and how many are counted."""
    chosen = max(1, int(SELECTION_SHARE * scores))
    return chosen, scores - chosen


def split(name: str, scores: Numbers) -> tuple[Float[np.ndarray, " a"], Float[np.ndarray, " b"]]:
    """Return the scores that choose an event, and the scores that it is counted on."""
    array = np.asarray(scores)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) < _LEAST:
        raise DataError(
            f"{name} must hold at least {_LEAST} numbers in one dimension, got shape "
            f"{array.shape}, dtype {array.dtype}."
        )
    array = array.astype(np.float64, copy=False)
    if np.isnan(array).any():
        raise DataError(f"{name} must not be NaN: index {np.flatnonzero(np.isnan(array))[0]} is.")
    # Independent scores are practically never in order.
    rises, falls = (array[1:] >= array[:-1]).all(), (array[1:] <= array[:-1]).all()
    if (rises or falls) and len(np.unique(array)) >= _NEVER_SORTED:
        raise DataError(
            f"{name} must be in the order in which the trials were played, and they are sorted: "
            "the first of them are no sample of all. Pass them unsorted, or shuffle them."
        )
    chosen, _ = split_sizes(len(array))
    return array[:chosen], array[chosen:]


def _candidates(scores: np.ndarray, most: int) -> np.ndarray:
    """Return thresholds to try: every value but the least, or fewer, dense in both tails."""
    values = np.unique(scores)
    values = values[1:] if len(values) > 1 else values
    if len(values) <= most:
        return values
    ranks = np.geomspace(1, len(scores) / 2, most // 2).astype(int)
    ordered = np.sort(scores)
    tried = np.unique(np.concatenate([ordered[ranks], ordered[len(scores) - ranks]]))
    return np.asarray(tried[tried > ordered[0]])


def _best_cut(one: Numbers, other: Float[np.ndarray, " m"], rank: _Rank, *, twice: bool) -> Cut:
    """Return the threshold and its side, or two thresholds, that show most, on fresh scores."""
    # Scores between two thresholds say neither and are left out: the counts are of those outside.
    (seen_one, rest_one), (seen_other, rest_other) = split("one", one), split("other", other)
    most = _MOST_DOUBLE if twice else 256  # thresholds that are tried
    tried = _candidates(np.concatenate([seen_one, seen_other]), most)
    low, high = np.triu_indices(len(tried)) if twice else [np.arange(len(tried))] * 2
    both = seen_one, seen_other
    above = [len(seen) - np.searchsorted(np.sort(seen), tried, side="left") for seen in both]
    hits, alarms = (each[high] for each in above)
    misses, rejects = len(seen_one) - above[0][low], len(seen_other) - above[1][low]
    n, m = hits + misses, alarms + rejects
    best = int(np.argmax([*rank(hits, n, alarms, m), *rank(misses, n, rejects, m)]))
    pair, upper = best % len(low), best < len(low)
    least, largest = float(tried[low[pair]]), float(tried[high[pair]])
    sides = [(int((s >= largest).sum()), int((s < least).sum())) for s in (rest_one, rest_other)]
    (hit, missed), (alarm, rejected) = sides if upper else [side[::-1] for side in sides]
    counts = Counts(hit, hit + missed, alarm, alarm + rejected)
    return Cut(low=least, high=largest, above=upper, counts=counts)


# Failure probabilities at which events are compared, not reported. A strict one prefers events
# that are counted well to events that happened to look good; for μ the loss is the same at every
# threshold, so only that matters.
_CHOOSING: Final = 0.05
_CHOOSING_MU: Final = 1e-8


def epsilon_cut(one: Numbers, other: Float[np.ndarray, " m"], *, delta: float) -> Cut:
    """Return the event that shows most ε on the first fifth of the scores, counted on the rest."""
    rank = partial(_epsilon_bounds, delta=delta, failure=_CHOOSING)
    return _best_cut(one, other, rank, twice=False)


def _odds_ratios(*counts: np.ndarray) -> Float[np.ndarray, " t"]:
    """Return about what ``odds_ratio_bound`` says, fast: to choose events, not to report."""
    # Source: Woolf 1955, with one half added to every count.
    hits, n, alarms, m = counts
    cells = np.stack([hits, n - hits, alarms, m - alarms]) + 0.5
    ratio = np.log(cells[0] * cells[3] / (cells[1] * cells[2]))
    return np.asarray(ratio + ndtri(_CHOOSING) * np.sqrt((1 / cells).sum(axis=0)))


def _accuracies(*counts: np.ndarray) -> Float[np.ndarray, " t"]:
    """Return about what ``one_run_epsilon`` says at δ = 0, fast."""
    hits, n, alarms, m = counts
    with np.errstate(divide="ignore"):
        return np.asarray(logit(_lower_probability(hits + m - alarms, n + m, _CHOOSING)))


mu_cut = partial(_best_cut, rank=partial(_mu_bounds, failure=_CHOOSING_MU), twice=False)
"""The event that shows most μ on the first fifth of the scores, counted on the rest."""

range_cut = partial(_best_cut, rank=_odds_ratios, twice=True)
"""The two events whose odds move most on the first fifth, counted on the rest."""

one_run_cut = partial(_best_cut, rank=_accuracies, twice=True)
"""The two thresholds outside which canaries are guessed best, counted on the rest."""
