from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

import sordino
from sordino.policies.softmax import (
    ActionPolicy,
    LogLinearPolicy,
    TabularPolicy,
    coverage_of,
    sampled,
)

STATE = np.array([0])


class Constant:
    """A reference of somebody else: probabilities and nothing more."""

    def __init__(self, *chances):
        self.chances = np.array([chances])

    def probabilities(self, contexts):
        return np.repeat(self.chances, len(contexts), axis=0)


def table(*logits):
    return TabularPolicy(np.array([logits]))


class Generator:
    """Hands out given numbers in place of uniform ones."""

    def __init__(self, *numbers):
        self.numbers = np.array(numbers)

    def random(self, n):
        assert n == len(self.numbers)
        return self.numbers


@pytest.mark.parametrize("scale", [1e-8, 1.0, 30.0, 800.0, 1e4])
def test_log_probabilities_are_exact_at_any_size(scale):
    logits = scale * np.array([1.0, 0.999, -0.5, -1.0])
    with mpmath.workdps(60):
        total = mpmath.log(sum(mpmath.exp(mpmath.mpf(x)) for x in logits))
        exact = [float(mpmath.mpf(x) - total) for x in logits]
    found = table(*logits)
    # a logit of 1e4 is itself rounded at 1e-12
    assert found.log_probabilities(STATE)[0] == pytest.approx(exact, rel=1e-14, abs=4e-16 * scale)
    assert found.probabilities(STATE)[0] == pytest.approx(np.exp(exact), rel=1e-11, abs=1e-300)


def test_a_constant_added_to_logits_changes_nothing():
    assert table(1e6, 1e6 + 1).probabilities(STATE) == pytest.approx(
        table(0, 1).probabilities(STATE)
    )


def test_actions_are_drawn_with_their_probabilities():
    # Pearson's χ² over 6 actions, 5 of them possible, of 200,000 draws in each of two rows: false
    # alarm 1e-6 each. Power: two probabilities exchanged (.3 and .2) give χ² above 20,000.
    chances = np.array([[0.0, 0.3, 0.2, 0.25, 0.05, 0.2], [0.5, 0.1, 0.0, 0.1, 0.1, 0.2]])
    rng = np.random.default_rng(7)
    n = 200_000
    actions = sampled(np.repeat(chances, n, axis=0), rng).reshape(2, n)
    for row, drawn in zip(chances, actions, strict=True):
        seen = np.bincount(drawn, minlength=6)
        possible = row > 0
        assert seen[~possible].sum() == 0
        expected = n * row[possible]
        statistic = ((seen[possible] - expected) ** 2 / expected).sum()
        assert statistic < chi2.isf(1e-6, possible.sum() - 1)


def test_draws_invert_the_cumulative_sum_at_its_edges():
    edge = 1 - 2.0**-53
    rows = np.array([[0.0, 0.5, 0.5, 0.0]] * 4)
    assert sampled(rows, Generator(0.0, 0.5 - 1e-9, 0.5, edge)).tolist() == [1, 1, 2, 2]
    short = np.array([[0.3, 0.7 - 1e-12, 0.0]])  # a sum below 1
    assert sampled(short, Generator(edge)).tolist() == [1]
    tenths = np.full((1, 10), 0.1)  # sums to 1 − 1e-16
    assert sampled(tenths, Generator(edge)).tolist() == [9]


@given(st.integers(0, 2**32), st.integers(2, 7))
def test_one_users_probabilities_change_no_other_users_action(seed, k):
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(k), size=5)
    other = chances.copy()
    other[2] = rng.dirichlet(np.ones(k))
    first, second = (sampled(rows, np.random.default_rng(seed)) for rows in (chances, other))
    assert np.array_equal(np.delete(first, 2), np.delete(second, 2))


def test_policies_draw_as_their_probabilities_say():
    policy = LogLinearPolicy(np.array([50.0]))
    features = np.array([[[0.0], [1.0]], [[1.0], [0.0]]])
    rng = np.random.default_rng(0)
    assert policy.sample(features, rng=rng).tolist() == [1, 0]
    assert table(0.0, 60.0).sample(np.zeros(3, int), rng=rng).tolist() == [1, 1, 1]


def divergence(first, second):
    with mpmath.workdps(60):
        logs = []
        for logits in (first, second):
            values = [mpmath.mpf(float(x)) for x in logits]
            total = mpmath.log(sum(mpmath.exp(x) for x in values))
            logs.append([x - total for x in values])
        return float(sum(mpmath.exp(p) * (p - q) for p, q in zip(*logs, strict=True)))


@pytest.mark.parametrize("change", [0.0, 1e-9, 1e-5, 1e-3, 0.4, 0.6, 5.0, 900.0, 1e4])
def test_divergence_keeps_its_digits(change):
    first = np.array([0.3, -0.2, 0.9, 0.0])
    second = first + change * np.array([1.0, -1.0, 0.3, 0.2])
    exact = divergence(first, second)
    found = table(*first).kl(STATE, table(*second))[0]
    assert found == pytest.approx(exact, rel=1e-5 if change < 1e-6 else 1e-9, abs=1e-24)
    back = table(*second).kl(STATE, table(*first))[0]
    assert back == pytest.approx(divergence(second, first), rel=1e-5, abs=1e-24)


@given(
    st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3),
    st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3),
)
def test_divergence_is_never_negative(first, second):
    found = table(*first).kl(STATE, table(*second))
    assert (found >= 0).all()
    assert np.isfinite(found).all()
    assert table(*first).kl(STATE, table(*first))[0] == 0


def test_divergence_from_a_reference_that_never_takes_an_action_is_infinite():
    policy = table(0.0, 0.0)
    assert policy.kl(STATE, Constant(0.5, 0.5)) == pytest.approx([0.0])
    assert policy.kl(STATE, Constant(1.0, 0.0)) == np.inf
    # an action that neither takes counts for nothing
    assert table(0.0, -1e4).kl(STATE, Constant(1.0, 0.0)) == pytest.approx([0.0])


def test_coverage_is_the_largest_ratio():
    policy = table(np.log(3.0), 0.0)
    assert policy.coverage(STATE, Constant(0.25, 0.75)) == pytest.approx(3.0)
    assert coverage_of(Constant(0.25, 0.75), policy, STATE) == pytest.approx(3.0)
    assert coverage_of(Constant(1.0, 0.0), policy, STATE) == np.inf
    assert coverage_of(Constant(1.0, 0.0), Constant(1.0, 0.0), STATE) == 1.0
    assert coverage_of(table(0.0, -1e4), table(0.0, 0.0), STATE) == np.inf


def test_whatever_has_probabilities_is_a_policy():
    assert isinstance(Constant(1.0), ActionPolicy)
    assert isinstance(table(1.0), ActionPolicy)
    assert not isinstance(object(), ActionPolicy)


@pytest.mark.parametrize(
    ("states", "match"),
    [
        ([0, 1], "row 1"),
        ([-1], "row 0"),
        ([0.0], "whole numbers"),
        ([[0]], "one dimension"),
        ([True], "whole numbers"),
    ],
)
def test_indices_that_are_none_are_refused(states, match):
    with pytest.raises(sordino.DataError, match=match):
        table(0.0, 1.0).probabilities(np.array(states))
