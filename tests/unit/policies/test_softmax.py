"""Softmax policies: exact at any size, and with one weight per feature."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

import sordino
from sordino.policies.softmax import LogLinearPolicy, sampled

STATE = np.array([0])


class Constant:
    """A reference of somebody else: probabilities and nothing more."""

    def __init__(self, *chances):
        self.chances = np.array([chances])

    def probabilities(self, contexts):
        return np.repeat(self.chances, len(contexts), axis=0)


class Table(LogLinearPolicy):
    """The same logits in every context."""

    def logits(self, contexts):
        return np.tile(self.weights, (len(contexts), 1))


def table(*logits):
    return Table(np.array(logits))


class Generator:
    """Hands out given numbers in place of uniform ones."""

    def __init__(self, *numbers):
        self.numbers = np.array(numbers)

    def random(self, n):
        assert n == len(self.numbers)
        return self.numbers


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e4])
def test_log_probabilities_are_exact_at_any_size(scale):
    logits = scale * np.array([1.0, 0.999, -0.5, -1.0])
    with mpmath.workdps(60):
        total = mpmath.log(sum(mpmath.exp(mpmath.mpf(x)) for x in logits))
        exact = [float(mpmath.mpf(x) - total) for x in logits]
    found = table(*logits)
    # a logit of 1e4 is itself rounded at 1e-12
    assert found.log_probabilities(STATE)[0] == pytest.approx(exact, rel=1e-14, abs=4e-16 * scale)
    assert found.probabilities(STATE)[0] == pytest.approx(np.exp(exact), rel=1e-11, abs=1e-300)


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


def divergence(first, second):
    with mpmath.workdps(60):
        logs = []
        for logits in (first, second):
            values = [mpmath.mpf(float(x)) for x in logits]
            total = mpmath.log(sum(mpmath.exp(x) for x in values))
            logs.append([x - total for x in values])
        return float(sum(mpmath.exp(p) * (p - q) for p, q in zip(*logs, strict=True)))


@pytest.mark.parametrize("change", [0.0, 1e-9, 1e-3, 0.4, 0.6, 1e4])
def test_divergence_keeps_its_digits(change):
    first = np.array([0.3, -0.2, 0.9, 0.0])
    second = first + change * np.array([1.0, -1.0, 0.3, 0.2])
    exact = divergence(first, second)
    found = table(*first).kl(STATE, table(*second))[0]
    assert found == pytest.approx(exact, rel=1e-5 if change < 1e-6 else 1e-9, abs=1e-24)
    back = table(*second).kl(STATE, table(*first))[0]
    assert back == pytest.approx(divergence(second, first), rel=1e-5, abs=1e-24)


def test_divergence_from_a_reference_that_never_takes_an_action_is_infinite():
    policy = table(0.0, 0.0)
    assert policy.kl(STATE, Constant(0.5, 0.5)) == pytest.approx([0.0])
    assert policy.kl(STATE, Constant(1.0, 0.0)) == np.inf
    # an action that neither takes counts for nothing
    assert table(0.0, -1e4).kl(STATE, Constant(1.0, 0.0)) == pytest.approx([0.0])


def drawn(n=40, k=5, d=4, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, k, d))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    return features, rng.integers(0, k, size=n)


def log_chances(weights, features, actions):
    found = LogLinearPolicy(weights).log_probabilities(features)
    return found[np.arange(len(features)), actions]


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e4])
def test_scores_are_the_gradient_of_log_probabilities(scale):
    features, actions = drawn()
    weights = scale * np.array([0.3, -0.5, 0.7, 0.2])
    # the third derivative is at most 8, and a logit of 1e4 is rounded at 1e-12
    step = 1e-4 if scale > 1 else 1e-5
    exact = LogLinearPolicy(weights).scores(features, actions)
    for j, direction in enumerate(np.eye(4)):
        above, below = (
            log_chances(weights + sign * step * direction, features, actions) for sign in (1, -1)
        )
        assert exact[:, j] == pytest.approx((above - below) / (2 * step), abs=5e-8)


def test_all_ways_to_the_scores_agree():
    features, actions = drawn()
    policy = LogLinearPolicy(np.array([1.0, -2.0, 0.5, 0.0]))
    chances = policy.probabilities(features)
    scores = policy.scores(features, actions)
    assert np.array_equal(policy.scores(features, actions, probabilities=chances), scores)
    centered = policy.centered(features)
    assert centered[np.arange(40), actions] == pytest.approx(scores)
    assert np.einsum("nk,nkd->nd", chances, centered) == pytest.approx(np.zeros((40, 4)))
    assert policy.mean_features(features) == pytest.approx(
        np.einsum("nk,nkd->nd", chances, features)
    )
    assert np.linalg.norm(centered, axis=2).max() <= 2


def test_moving_adds_the_step_and_leaves_the_policy_as_it_was():
    weights = np.array([1.0, 2.0])
    policy = LogLinearPolicy(weights)
    moved = policy.moved(np.array([1.0, -1.0]), 0.5)
    assert moved.weights.tolist() == [1.5, 1.5]
    weights[0] = 9.0
    assert policy.weights.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        policy.weights[0] = 9.0


@pytest.mark.parametrize(
    ("features", "match"),
    [
        (np.zeros((3, 4)), r"shape \(n, k, 4\)"),
        (np.zeros((2, 3, 5)), r"shape \(n, k, 4\)"),
        (np.zeros((2, 0, 4)), r"shape \(n, k, 4\)"),
        (np.where(np.arange(8) == 5, np.inf, 7.5).reshape(2, 1, 4), "row 1 "),
    ],
)
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_features_that_are_none_are_refused_without_quoting_them(features, match, weight):
    with pytest.raises(sordino.DataError, match=match) as caught:
        LogLinearPolicy(np.full(4, weight)).probabilities(features)
    assert "7.5" not in str(caught.value)


@pytest.mark.parametrize(
    ("actions", "match"),
    [
        ([0, 5] + [0] * 38, "row 1"),
        ([-1] + [0] * 39, "row 0"),
        ([0] * 39, "40 entries"),
        ([[0]] * 40, "one dimension"),
        ([True] * 40, "whole numbers"),
    ],
)
def test_actions_that_are_none_are_refused(actions, match):
    with pytest.raises(sordino.DataError, match=f"actions.*{match}"):
        LogLinearPolicy.uniform(4).scores(drawn()[0], np.array(actions))


def test_weights_and_moves_that_are_none_are_refused():
    for weights in ([], [np.nan], [[1.0]], ["a"]):
        with pytest.raises(sordino.DataError, match="weights"):
            LogLinearPolicy(np.array(weights))
    policy = LogLinearPolicy.uniform(2)
    with pytest.raises(sordino.DataError, match="direction"):
        policy.moved(np.ones(3), 1.0)
    with pytest.raises(sordino.DataError, match="weights"):
        policy.moved(np.array([np.inf, 0.0]), 1.0)
    with pytest.raises(sordino.UsageError, match="dimension"):
        LogLinearPolicy.uniform(0)
