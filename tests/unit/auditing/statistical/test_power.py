"""A loss that is said to be detectable is refuted as often as said, by exact sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sordino.auditing.statistical.bounds import (
    Counts,
    epsilon_from_counts,
    mu_from_counts,
    odds_ratio_refutes,
    split_sizes,
)
from sordino.auditing.statistical.distinguishing import (
    _detectable_epsilon,
    _detectable_mu,
    _detectable_range,
)
from sordino.errors import UsageError


def refuted(bound, claimed, hit, alarm, n):
    """Return the exact chance that counts of n trials a side refute a claim.

    Only counts that matter are visited: for every number of hits, the most alarms that refute.
    """
    numbers = np.arange(n + 1)
    ones = stats.binom.pmf(numbers, n, hit)
    chance, most = 0.0, -1
    for x in numbers:
        while most + 1 <= n and bound(x, n, most + 1, n) > claimed:
            most += 1
        chance += ones[x] * (stats.binom.cdf(most, n, alarm) if most >= 0 else 0.0)
    return float(chance)


def wrong_event(hit, alarm, n):
    """Return the exact chance that an event is no more frequent where it is likelier."""
    numbers = np.arange(n + 1)
    below = stats.binom.cdf(numbers, n, hit)
    return float(stats.binom.pmf(numbers, n, alarm) @ below)


@pytest.mark.parametrize(
    ("claimed", "trials", "delta", "confidence"),
    [(1.0, 600, 0.0, 0.95), (2.0, 600, 0.01, 0.999), (0.3, 1000, 0.0, 0.999)],
)
def test_epsilon(claimed, trials, delta, confidence):
    found = _detectable_epsilon(claimed, trials, delta=delta, confidence=confidence)
    chosen, counted = split_sizes(trials)

    def bound(*counts):
        return epsilon_from_counts(*counts, delta=delta, confidence=confidence)

    def power(epsilon):
        hit = delta + (1 - delta) / (1 + math.exp(-epsilon))
        return refuted(bound, claimed, hit, 1 - hit, counted) - wrong_event(hit, 1 - hit, chosen)

    assert power(found) >= 0.95
    assert power((claimed + found) / 2) < 0.95  # nor is it said to be much weaker than it is


@pytest.mark.parametrize("center", [0.0, 2.0, -2.0])
@pytest.mark.parametrize(("claimed", "trials", "confidence"), [(1.0, 200, 0.95), (0.5, 250, 0.99)])
def test_bounded_range(claimed, trials, confidence, center):
    found = _detectable_range(claimed, trials, confidence=confidence, center=center)
    chosen, counted = split_sizes(trials)

    def bound(*counts):  # found by root finding in test_bounds; only its side matters here
        return 2 * claimed * odds_ratio_refutes(Counts(*counts), claimed, confidence=confidence)

    def power(bounded_range):
        hit = 1 / (1 + math.exp(-center - bounded_range / 2))
        alarm = 1 / (1 + math.exp(-center + bounded_range / 2))
        return refuted(bound, claimed, hit, alarm, counted) - wrong_event(hit, alarm, chosen)

    assert power(found) >= 0.95
    assert power((claimed + found) / 2) < 0.95


@pytest.mark.parametrize("off", [-1.25, 0.0, 1.25])
def test_mu_at_every_threshold_that_may_be_chosen(off):
    found = _detectable_mu(1.0, 1000, confidence=0.999)
    at = found / 2 + off
    hit, alarm = stats.norm.sf(at, loc=found), stats.norm.sf(at)

    def bound(*counts):
        return mu_from_counts(*counts, confidence=0.999)

    assert refuted(bound, 1.0, hit, alarm, split_sizes(1000)[1]) >= 0.96


def test_more_trials_detect_less():
    for detectable in (
        lambda n: _detectable_epsilon(1.0, n, delta=1e-6, confidence=0.999),
        lambda n: _detectable_range(1.0, n, confidence=0.999),
        lambda n: _detectable_mu(1.0, n, confidence=0.999),
    ):
        sizes = [detectable(n) for n in (500, 5000, 50_000)]
        assert sizes[0] > sizes[1] > sizes[2] > 1.0


def test_what_cannot_be_detected_is_infinite():
    assert _detectable_epsilon(9.0, 1000, delta=0.0, confidence=0.999) == math.inf
    assert _detectable_epsilon(math.inf, 1000, delta=0.0, confidence=0.999) == math.inf
    assert _detectable_range(30.0, 100, confidence=0.999) == math.inf
    assert _detectable_mu(9.0, 1000, confidence=0.999) == math.inf


def test_a_claim_of_nothing_can_be_refuted():
    assert 0 < _detectable_epsilon(0.0, 1000, delta=0.0, confidence=0.95) < 0.7
    assert 0 < _detectable_mu(0.0, 1000, confidence=0.95) < 0.5


def test_the_wrong_event_is_chosen_once_in_a_hundred_at_most():
    """With few trials and little confidence that is what limits the power."""
    found = _detectable_epsilon(0.0, 100, delta=0.0, confidence=0.5)
    hit = 1 / (1 + math.exp(-found))
    assert wrong_event(hit, 1 - hit, split_sizes(100)[0]) <= 0.01


def test_settings_are_checked():
    with pytest.raises(UsageError, match="claimed must be at least 0"):
        _detectable_mu(-1.0, 1000, confidence=0.95)
    with pytest.raises(UsageError, match="trials must be"):
        _detectable_epsilon(1.0, 0, delta=0.0, confidence=0.95)
