"""Mixtures of a few releases compose exactly: against 40 digits, and against dp_accounting."""

import itertools
import math

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import few

from sordino.privacy import accounting
from sordino.privacy.accountants import loss_distribution_bound, mixed_bound
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    ApproximateEvent,
    BoundedRangeEvent,
    GaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
)

RELATIONS = (ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL)


def exact_delta(atoms, mu, epsilon):
    """δ(ε) of dominating pairs, from their definition: Σ over outcomes of (P − e^ε Q)₊."""
    with mp.workdps(40):
        kept, cases = mp.mpf(1), [(mp.mpf(1), mp.mpf(1))]
        for loss, failure in atoms:
            kept *= 1 - mp.mpf(failure)
            up = mp.exp(loss) / (1 + mp.exp(loss))
            cases = [
                case for p, q in cases for case in ((p * up, q * (1 - up)), (p * (1 - up), q * up))
            ]
        lost = mp.mpf(0)
        for p, q in cases:
            if mu == 0:
                lost += max(mp.mpf(0), p - mp.exp(epsilon) * q)
                continue
            rest = mp.mpf(epsilon) - mp.log(p / q)  # ∫ (p f₁ − e^ε q f₀)₊ of two normals
            low, high = -rest / mu + mp.mpf(mu) / 2, -rest / mu - mp.mpf(mu) / 2
            lost += p * mp.ncdf(low) - mp.exp(epsilon) * q * mp.ncdf(high)
        return 1 - kept * (1 - lost)


losses = st.floats(0.01, 3.0)
failures = st.sampled_from([0.0, 1e-9, 1e-6, 1e-3])


@settings(max_examples=150)
@given(
    atoms=st.lists(st.tuples(losses, failures), min_size=1, max_size=4),
    mu=st.sampled_from([0.0, 0.05, 0.3, 1.0, 4.0]),
    epsilon=st.floats(0.0, 8.0),
)
def test_it_is_the_exact_sum_rounded_up(atoms, mu, epsilon):
    counts = {}
    for loss, failure in atoms:
        event = ApproximateEvent(loss, failure) if failure else PureEvent(loss)
        counts[event] = counts.get(event, 0) + 1
    counts |= {GaussianEvent(mu): 1} if mu else {}
    found = mixed_bound(counts, ADD_OR_REMOVE_ONE).delta(epsilon)
    exact = exact_delta(atoms, mu, epsilon)
    assert exact <= found <= exact * (1 + 1e-7) + 1e-13


@pytest.mark.deep
@pytest.mark.parametrize("neighbors", few(RELATIONS, first=1))
def test_the_grid_of_dp_accounting_never_says_less(neighbors):
    """Loss distributions round up, so they lie above, and not far above."""
    for epsilon, delta, mu in itertools.product((0.5, 2.0), (1e-7, 1e-4), (0.1, 0.6)):
        counts = {ApproximateEvent(epsilon, delta): 2, PureEvent(0.3): 1, GaussianEvent(mu): 3}
        found = mixed_bound(counts, neighbors).epsilon(1e-3)
        grid = loss_distribution_bound(counts, neighbors).epsilon(1e-3)
        assert found <= grid * (1 + 1e-9)
        assert grid <= found * 1.001
        together = accounting.composed_epsilon(counts, neighbors=neighbors, delta=1e-3)
        assert together <= found


def test_what_comes_back_is_kept():
    counts = {ApproximateEvent(2.0, 7.5e-7): 1, GaussianEvent(0.1): 1}
    bound = mixed_bound(counts, REPLACE_SPECIAL)
    epsilon = bound.epsilon(1e-6)
    assert bound.fits(epsilon, 1e-6)
    assert not bound.fits(epsilon * (1 - 1e-9), 1e-6)
    assert bound.epsilon(7.5e-7) == math.inf  # nothing is left for the Gaussian
    assert 2.4 < epsilon < 2.5


def test_it_knows_what_it_does_not_know():
    assert mixed_bound({GaussianEvent(0.1): 3}, REPLACE_ONE) is None
    assert mixed_bound({BoundedRangeEvent(0.1): 3, PureEvent(0.1): 1}, REPLACE_ONE) is None
    assert mixed_bound({PureEvent(0.1): 2000}, REPLACE_ONE) is None
    assert mixed_bound({PureEvent(1e308): 10}, REPLACE_ONE) is None
    assert mixed_bound({RandomizedResponseEvent(1.0, 3): 1}, REPLACE_ONE).exact is False
    assert mixed_bound({RandomizedResponseEvent(1.0, 2): 1}, REPLACE_ONE).exact is True
    assert mixed_bound({RandomizedResponseEvent(1.0, 2): 1}, REPLACE_SPECIAL).exact is False


@pytest.mark.parametrize("mu", [1e-200, 5e-324])
def test_a_gaussian_whose_square_vanishes_still_counts(mu):
    bound = mixed_bound({PureEvent(0.5): 1, GaussianEvent(mu): 1}, REPLACE_ONE)
    assert bound.mu > 0
    assert bound.epsilon(0.0) == math.inf
