"""Events are chosen on the first fifth of the scores and counted on the rest."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from sordino.auditing.statistical.bounds import (
    epsilon_cut,
    epsilon_from_counts,
    mu_cut,
    mu_from_counts,
    odds_ratio_bound,
    one_run_cut,
    one_run_epsilon,
    range_cut,
    split,
    split_sizes,
)
from sordino.errors import DataError
from sordino.privacy.conversions import gaussian_epsilon

DELTA = 1e-5


def one_run(one, other, delta):
    hits, n, alarms, m = one_run_cut(one, other).counts
    canaries = split_sizes(len(one))[1] + split_sizes(len(other))[1]
    return one_run_epsilon(canaries, n + m, hits + m - alarms, delta=delta, confidence=0.95)


BOUNDS = {
    "epsilon": lambda one, other, delta=0.0: epsilon_from_counts(
        *epsilon_cut(one, other, delta=delta).counts, delta=delta, confidence=0.95
    ),
    "mu": lambda one, other: mu_from_counts(*mu_cut(one, other).counts, confidence=0.95),
    "range": lambda one, other: odds_ratio_bound(*range_cut(one, other).counts, confidence=0.95),
    "one run": lambda one, other, delta=0.0: one_run(one, other, delta),
}


def normal_scores(seed=0, n=2000):
    generator = np.random.default_rng(seed)
    return generator.normal(1, 1, n), generator.normal(0, 1, n)


def recount(cut, one, other):
    """Return the counts of an event, score by score."""
    counts = []
    for scores in (one, other):
        rest = [float(s) for i, s in enumerate(scores) if i >= 0.2 * len(scores)]
        says_one = [s >= cut.high if cut.above else s < cut.low for s in rest]
        says_other = [s < cut.low if cut.above else s >= cut.high for s in rest]
        counts += [sum(says_one), sum(says_one) + sum(says_other)]
    return tuple(counts)


def upper(k, n, confidence=0.975):
    return stats.binomtest(k, n, alternative="less").proportion_ci(confidence).high


# N(1, 1) against N(0, 1), 2000 + 2000 scores, δ = 1e-5, 95 %: three bounds, each computed a
# second time from its definition. In theory ε = 4.38.


def test_clopper_pearson_on_normal_scores():
    one, other = normal_scores()
    tp, n, fp, m = recount(epsilon_cut(one, other, delta=DELTA), one, other)
    miss, alarm = upper(n - tp, n), upper(fp, m)
    with mpmath.workdps(30):
        ratios = (1 - mpmath.mpf(miss) - DELTA) / alarm, (1 - mpmath.mpf(alarm) - DELTA) / miss
        expected = float(mpmath.log(max(ratios)))
    found = BOUNDS["epsilon"](one, other, DELTA)
    assert found == pytest.approx(expected, abs=1e-6)
    assert 1.0 < found < 4.38


def test_gaussian_privacy_on_normal_scores():
    one, other = normal_scores()
    tp, n, fp, m = recount(mu_cut(one, other), one, other)
    normal = stats.norm()
    expected = normal.isf(upper(fp, m)) - normal.ppf(upper(n - tp, n))
    found = BOUNDS["mu"](one, other)
    assert found == pytest.approx(expected, abs=1e-6)
    # the closed form of δ(ε), bracketed instead of inverted
    epsilon = gaussian_epsilon(DELTA, found)
    curve = [
        normal.cdf(found / 2 - e / found) - math.exp(e) * normal.cdf(-found / 2 - e / found)
        for e in (epsilon - 1e-6, epsilon + 1e-6)
    ]
    assert curve[0] > DELTA > curve[1]
    assert 3.0 < epsilon < 4.38


def test_one_run_on_normal_scores():
    one, other = normal_scores()
    found = BOUNDS["one run"](one, other, DELTA)

    def p_value(epsilon, m, r, v):
        # in logarithms, from the binomial of scipy
        chance = 1 / (1 + math.exp(-epsilon))
        below = np.cumsum(stats.binom.pmf(np.arange(v - 1, -1, -1), r, chance))
        worst = (below / np.arange(1, v + 1)).max()
        return stats.binom.sf(v - 1, r, chance) + 2 * m * DELTA * worst

    tp, n, fp, m = recount(one_run_cut(one, other), one, other)
    counts = len(one) * 0.8 + len(other) * 0.8, n + m, tp + (m - fp)
    assert p_value(found - 1e-6, *counts) < 0.05 < p_value(found + 1e-6, *counts)
    assert 0.9 < found < 4.38


def test_the_odds_of_three_outputs_are_compared_without_the_middle():
    """Two rare outputs move by ±1, a likely one not at all: the range is 2."""
    generator = np.random.default_rng(0)
    chances = np.array([0.1, 0.8, 0.1])
    tilted = chances * np.exp([1.0, 0.0, -1.0])
    one = generator.choice([1.0, 0.0, -1.0], size=20_000, p=tilted / tilted.sum())
    other = generator.choice([1.0, 0.0, -1.0], size=20_000, p=chances)
    cut = range_cut(one, other)
    assert (cut.low, cut.high) == (0.0, 1.0)
    assert cut.counts == recount(cut, one, other)
    assert cut.counts.trials_one < 8000
    assert 1.7 < BOUNDS["range"](one, other) < 2.0


@pytest.mark.parametrize("sign", [1, -1])
def test_the_direction_is_found(sign):
    one, other = normal_scores(1)
    for bound in BOUNDS.values():
        assert bound(sign * one, sign * other) > 0.5


def test_only_the_first_fifth_chooses():
    """What comes later cannot move the event, and what comes first is not counted."""
    one, other = normal_scores(2)
    for choose in (mu_cut, range_cut, one_run_cut):
        cut = choose(one, other)
        changed = one.copy()
        changed[400:] = one[400:][::-1] + 1
        again = choose(changed, other)
        assert (again.low, again.high, again.above) == (cut.low, cut.high, cut.above)
        assert again.counts != cut.counts
        cut = choose(one, other)
        assert cut.counts == recount(cut, one, other)


def test_scores_of_a_few_values_are_cut_at_every_one_of_them():
    one, other = np.array([1.0, 0.0] * 50), np.array([1.0, 0.0, 0.0, 0.0] * 25)
    cut = epsilon_cut(one, other, delta=0.0)
    assert (cut.low, cut.high, cut.above) == (1.0, 1.0, True)
    assert cut.counts == (40, 80, 20, 80)


def test_infinite_scores_are_scores():
    one = np.where(np.arange(1000) % 3 == 0, np.inf, 0.0)
    other = np.where(np.arange(1000) % 3 == 0, -np.inf, 0.0)
    assert BOUNDS["epsilon"](one, other) > 3
    assert BOUNDS["range"](one, other) > 3


def test_equal_scores_show_nothing():
    same = np.zeros(100)
    assert {bound(same, same) for bound in BOUNDS.values()} == {0.0}


@pytest.mark.parametrize("order", [np.sort, lambda s: np.sort(s)[::-1]])
def test_sorted_scores_are_refused(order):
    one, other = normal_scores()
    with pytest.raises(DataError, match=r"one must be in the order .* sorted"):
        mu_cut(order(one), other)
    with pytest.raises(DataError, match="other must be in the order"):
        mu_cut(one, order(other))


@pytest.mark.parametrize(
    "scores", [np.zeros(9), np.zeros((20, 2)), np.array([np.nan, *range(20)]), np.array(["a"] * 20)]
)
def test_what_is_no_list_of_scores_is_refused(scores):
    with pytest.raises(DataError, match="one must"):
        split("one", scores)


def test_an_event_is_shown_as_json_holds_it():
    one = np.where(np.arange(1000) % 3 == 0, np.inf, 0.0)
    shown = epsilon_cut(one, np.zeros(1000), delta=0.0).to_dict()
    assert shown == {
        "low": "inf",
        "high": "inf",
        "above": True,
        "one": [267, 800],
        "other": [0, 800],
    }
