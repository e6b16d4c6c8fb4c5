"""Every conversion against 50-digit arithmetic or brute force."""

import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from tests.tiers import few

from sordino.privacy import conversions as c

GRID = [
    (epsilon, delta)
    for epsilon in (1e-3, 1e-2, 0.1, 0.5, 1, 3, 10, 30, 50)
    for delta in (1e-12, 1e-9, 1e-6, 1e-3, 0.05, 0.5)
]


def exact_gaussian(epsilon, mu):
    with mp.workdps(60):
        epsilon, mu = mp.mpf(epsilon), mp.mpf(mu)
        below = mp.ncdf(mu / 2 - epsilon / mu)
        return below - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def exact_root(function, low, high):
    """Bisect an increasing function that is negative at low."""
    with mp.workdps(60):
        low, high = mp.mpf(low), mp.mpf(high)
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (middle, high) if function(middle) < 0 else (low, middle)
        return high


@pytest.mark.parametrize(("epsilon", "delta"), few(GRID, first=18))
def test_gaussian_functions_to_nine_digits(epsilon, delta):
    """Claim: Others, Balle & Wang 2018, Theorem 8: analytic Gaussian calibration
    Verdict: true
    Ours: sordino.privacy.conversions.gaussian_delta; sordino.privacy.conversions.gaussian_mu
    """
    mu = exact_root(lambda m: exact_gaussian(epsilon, m) - mp.mpf(delta), 1e-6, 40)
    ours = c.gaussian_mu(epsilon, delta)
    assert float(mp.mpf(ours) / mu) >= 1 - 1e-9 and ours <= mu  # noqa: PT018 - the safe side
    assert exact_gaussian(epsilon, ours) <= delta
    back = c.gaussian_epsilon(delta, float(mu))
    assert c.gaussian_delta(back, float(mu)) <= delta
    truth = exact_root(lambda e: mp.mpf(delta) - exact_gaussian(e, float(mu)), 0, 60)
    assert truth <= back <= truth * (1 + 1e-9)
    value = c.gaussian_delta(epsilon, float(mu))
    truth = exact_gaussian(epsilon, float(mu))
    assert truth <= value <= truth * (1 + 1e-9)


@settings(max_examples=400)
@given(st.floats(-40, 60), st.floats(-5, 1.6))
def test_gaussian_delta_is_never_below_the_truth(epsilon, log_mu):
    mu = 10.0**log_mu
    ours, truth = c.gaussian_delta(epsilon, mu), exact_gaussian(epsilon, mu)
    assert truth <= ours
    if truth > 1e-300:
        assert ours <= truth * (1 + 1e-11)


@settings(max_examples=60)
@given(st.floats(0, 60), st.floats(1e-12, 0.5), st.floats(1.0001, 2))
def test_gaussian_functions_are_monotone(epsilon, delta, factor):
    mu = c.gaussian_mu(epsilon, delta)
    assert c.gaussian_mu(epsilon, min(0.9, delta * factor)) >= mu
    assert c.gaussian_mu(epsilon * factor + 1e-9, delta) >= mu
    assert c.gaussian_epsilon(delta, mu) <= epsilon * (1 + 1e-9)
    assert c.gaussian_epsilon(delta, mu * factor) >= c.gaussian_epsilon(delta, mu)


def exact_two_point(epsilon, high, low, draws):
    """Sum every outcome of the pair with log-ratios high and low."""
    with mp.workdps(50):
        high, low, epsilon = mp.mpf(high), mp.mpf(low), mp.mpf(epsilon)
        p = (1 - mp.exp(-low)) / (mp.exp(-high) - mp.exp(-low))
        total = mp.mpf(0)
        for i in range(draws + 1):
            loss = (draws - i) * high + i * low
            if loss > epsilon:
                mass = mp.binomial(draws, i) * p ** (draws - i) * (1 - p) ** i
                total += mass * (1 - mp.exp(epsilon - loss))
        return total


@pytest.mark.parametrize("draws", [1, 2, 7, 60, 400])
@pytest.mark.parametrize(("high", "low"), [(0.3, -0.2), (1.0, -1.0), (0.01, -0.04), (6.0, -9.0)])
@pytest.mark.parametrize("share", few([0.0, 0.1, 0.4, 0.8, 0.99], 0.1, 0.99))
def test_two_point_delta_is_exact(draws, high, low, share):
    epsilon = share * draws * high
    ours, truth = (
        c.two_point_delta(epsilon, high, low, draws),
        exact_two_point(epsilon, high, low, draws),
    )
    assert truth <= ours
    if truth > 1e-290:
        assert ours <= truth * (1 + 1e-8)


@cache
def brute_force(epsilon, bounded_range, draws, points):
    """Maximize over a fine grid of t: a lower bound that is close to the supremum."""
    t = np.linspace(0, bounded_range, points)[1:-1]
    p = np.expm1(t - bounded_range) / np.expm1(-bounded_range)
    total = np.zeros_like(t)
    for i in range(draws + 1):
        gap = np.minimum(0, epsilon - (draws * t - i * bounded_range))
        total += binom.pmf(i, draws, 1 - p) * -np.expm1(gap)
    return total.max()


@pytest.mark.parametrize(("bounded_range", "draws"), [(0.5, 10), (1, 5), (0.2, 50), (2, 3), (5, 4)])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.6, 0.75, 0.95])
def test_composition_is_an_upper_bound_within_two_percent(bounded_range, draws, share):
    """Claim: KLDP, Section 4.4 (repeated sampling)"""
    epsilon = share * bounded_range * draws
    exact = brute_force(epsilon, bounded_range, draws, 20001)
    ours = c.bounded_range_composition_delta(epsilon, bounded_range, draws)
    assert exact <= ours <= 1.02 * exact


@pytest.mark.parametrize(
    ("epsilon", "bounded_range", "draws"),
    few([(3.0, 0.05, 1000), (2.5, 0.02, 2000), (0.1, 0.003, 3000), (8.0, 0.1, 500)], first=1),
)
def test_composition_of_many_draws(epsilon, bounded_range, draws):
    exact = brute_force(epsilon, bounded_range, draws, 2001)
    ours = c.bounded_range_composition_delta(epsilon, bounded_range, draws)
    assert exact <= ours <= 1.02 * exact


def test_composition_reaches_a_hundred_thousand_draws_and_tiny_deltas():
    from sordino.privacy.conversions import _search

    for epsilon in (3.0, 6.4):
        lower, upper = _search(epsilon, 0.005, 100_000, 0.0)
        assert 0 < lower <= upper <= 1.006 * lower
    assert lower < 1e-14


@pytest.mark.parametrize(
    ("draws", "bounded_range", "value"), [(10, 0.5, 3.58), (5, 1.0, 4.59), (50, 0.2, 3.29)]
)
def test_composition_epsilon_is_safe_and_tight(draws, bounded_range, value):
    ours = c.bounded_range_composition_epsilon(1e-6, bounded_range, draws)
    assert brute_force(ours, bounded_range, draws, 20001) <= 1e-6
    assert brute_force(ours * 0.998, bounded_range, draws, 20001) > 1e-6
    assert ours == pytest.approx(value, rel=0.005)
    assert c.bounded_range_composition_delta(ours, bounded_range, draws) <= 1.006e-6


@settings(max_examples=60)
@given(st.floats(0, 8), st.floats(1e-3, 6))
def test_one_draw_is_reached_by_its_worst_pair(epsilon, bounded_range):
    ours = c.bounded_range_delta(epsilon, bounded_range)
    assert ours == pytest.approx(brute_force(epsilon, bounded_range, 1, 4001), rel=1e-3, abs=1e-9)
    assert c.bounded_range_composition_delta(epsilon, bounded_range, 1) == ours
    with mp.workdps(50):
        e, b = mp.mpf(epsilon), mp.mpf(bounded_range)
        truth = (mp.exp(b / 2) - mp.exp(e / 2)) ** 2 / (mp.exp(b) - 1) if e < b else 0
        assert truth <= ours <= truth * (1 + 1e-10) + 1e-300


@settings(max_examples=200)
@given(st.floats(0, 30), st.floats(0, 0.9))
def test_bounded_range_for_is_the_inverse(epsilon, delta):
    ours = c.bounded_range_for(epsilon, delta)
    assert c.bounded_range_delta(epsilon, ours) <= delta
    if delta > 1e-12:
        g = math.exp(epsilon / 2)
        textbook = 2 * math.log((g + math.sqrt(delta * (g * g - 1 + delta))) / (1 - delta))
        assert ours == pytest.approx(textbook, rel=1e-9, abs=1e-9)


@settings(max_examples=50)
@given(st.floats(1e-12, 0.3), st.floats(0.01, 1), st.integers(1, 40))
def test_composition_epsilon_is_at_most_every_other_bound(delta, bounded_range, draws):
    ours = c.bounded_range_composition_epsilon(delta, bounded_range, draws)
    assert ours <= draws * bounded_range
    assert ours <= c.zcdp_epsilon(delta, draws * bounded_range**2 / 8)
    assert c.bounded_range_composition_epsilon(delta, bounded_range, draws + 1) >= ours * (1 - 1e-2)


@settings(max_examples=60)
@given(st.floats(0.01, 20), st.floats(-4, 1))
def test_zcdp_delta_is_the_least_over_orders(epsilon, log_rho):
    rho = 10.0**log_rho
    less = np.geomspace(1e-9, 1e7, 600_001)
    logs = less * ((1 + less) * rho - epsilon - np.log1p(1 / less)) - np.log1p(less)
    least = math.exp(min(0.0, logs.min()))
    ours = c.zcdp_delta(epsilon, rho)
    assert ours == pytest.approx(least, rel=1e-6, abs=1e-290)
    mu = math.sqrt(2 * rho)
    assert exact_gaussian(epsilon, mu) <= ours  # a Gaussian is one of the rho-zCDP releases


@settings(max_examples=60)
@given(st.floats(1e-14, 0.5), st.floats(-5, 2))
def test_zcdp_epsilon_is_the_inverse(delta, log_rho):
    rho = 10.0**log_rho
    ours = c.zcdp_epsilon(delta, rho)
    assert c.zcdp_delta(ours, rho) <= delta
    if ours > 0:
        assert c.zcdp_delta(ours * (1 - 1e-6), rho) > delta
    assert ours <= rho + 2 * math.sqrt(-rho * math.log(delta))
    assert ours >= c.gaussian_epsilon(delta, math.sqrt(2 * rho))


@given(st.floats(0.01, 4))
def test_zcdp_holds_at_every_order_for_the_worst_pairs(loss):
    """Pure loss and bounded range: Rényi divergences of the extreme two-point pairs."""
    for orders in (1.01, 1.5, 2, 5, 30, 300):
        for high, low, rho in [
            (loss, -loss, c.pure_to_zcdp(loss)),
            (0.3 * loss, -0.7 * loss, c.bounded_range_to_zcdp(loss)),
            (0.5 * loss, -0.5 * loss, c.bounded_range_to_zcdp(loss)),
        ]:
            p = np.expm1(low) / np.expm1(low - high)
            powers = [(orders - 1) * high + np.log(p), (orders - 1) * low + np.log1p(-p)]
            assert np.logaddexp(*powers) / (orders - 1) <= rho * orders * (1 + 1e-9) + 1e-12
