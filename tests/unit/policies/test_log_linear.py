from __future__ import annotations

import numpy as np
import pytest

import sordino
from sordino.policies.softmax import LogLinearPolicy, TabularPolicy, one_hot_features


def drawn(n=40, k=5, d=4, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, k, d))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    return features, rng.integers(0, k, size=n)


def log_chances(weights, features, actions):
    found = LogLinearPolicy(weights).log_probabilities(features)
    return found[np.arange(len(features)), actions]


@pytest.mark.parametrize("scale", 10.0 ** np.arange(-5, 5))
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


def test_probabilities_are_those_of_the_logits_one_user_at_a_time():
    features, _ = drawn(n=3)
    weights = np.array([1.0, -2.0, 0.5, 0.3])
    found = LogLinearPolicy(weights).probabilities(features)
    for row, actions in zip(found, features, strict=True):
        powers = np.exp([action @ weights for action in actions])
        assert row == pytest.approx(powers / powers.sum())


def test_no_weights_take_all_actions_equally_often():
    features, _ = drawn()
    assert LogLinearPolicy.uniform(4).probabilities(features) == pytest.approx(0.2)


def test_moving_adds_the_step_and_leaves_the_policy_as_it_was():
    weights = np.array([1.0, 2.0])
    policy = LogLinearPolicy(weights)
    moved = policy.moved(np.array([1.0, -1.0]), 0.5)
    assert moved.weights.tolist() == [1.5, 1.5]
    weights[0] = 9.0
    assert policy.weights.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        policy.weights[0] = 9.0


def test_features_may_be_whole_numbers_or_a_view():
    policy = LogLinearPolicy(np.array([1.0, -1.0]))
    whole = np.arange(12).reshape(2, 3, 2) % 5
    assert np.array_equal(policy.logits(whole), policy.logits(whole.astype(float)))
    view = np.asfortranarray(whole.astype(float))[::-1]
    assert np.array_equal(policy.logits(view), policy.logits(whole)[::-1])


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5), (2, 0, 4), (1, 2, 3, 4)])
def test_features_of_another_shape_are_refused(shape):
    with pytest.raises(sordino.DataError, match=r"shape \(n, k, 4\)"):
        LogLinearPolicy.uniform(4).probabilities(np.zeros(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_features_that_are_not_finite_are_refused_by_their_row(value, weight):
    features, _ = drawn()
    features[7, 2, 1] = value
    with pytest.raises(sordino.DataError, match="row 7 ") as caught:
        LogLinearPolicy(np.full(4, weight)).probabilities(features)
    assert str(features[7, 2, 0]) not in str(caught.value)


@pytest.mark.parametrize("actions", [[5] + [0] * 39, [0] * 39, [-1] + [0] * 39, [0.0] * 40])
def test_actions_that_are_none_are_refused(actions):
    with pytest.raises(sordino.DataError, match="actions"):
        LogLinearPolicy.uniform(4).scores(drawn()[0], np.array(actions))


@pytest.mark.parametrize("weights", [[], [np.nan], [[1.0]], ["a"]])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(sordino.DataError, match="weights"):
        LogLinearPolicy(np.array(weights))


def test_moves_that_are_none_are_refused():
    policy = LogLinearPolicy.uniform(2)
    with pytest.raises(sordino.DataError, match="direction"):
        policy.moved(np.ones(3), 1.0)
    with pytest.raises(sordino.DataError, match="weights"):
        policy.moved(np.array([np.inf, 0.0]), 1.0)
    with pytest.raises(sordino.UsageError, match="dimension"):
        LogLinearPolicy.uniform(0)


def test_a_table_is_the_log_linear_policy_on_one_hot_features():
    rng = np.random.default_rng(3)
    policy = TabularPolicy(rng.standard_normal((4, 3)))
    states, actions = rng.integers(0, 4, size=50), rng.integers(0, 3, size=50)
    features, same = policy.features(states), policy.log_linear()
    assert same.probabilities(features) == pytest.approx(policy.probabilities(states))
    assert np.array_equal(features, one_hot_features(4, 3)[states])
    scores = policy.scores(states, actions)
    assert scores == pytest.approx(same.scores(features, actions))
    expected = np.zeros((50, 4, 3))
    expected[np.arange(50), states, actions] = 1
    expected[np.arange(50), states] -= policy.probabilities(states)
    assert scores.reshape(50, 4, 3) == pytest.approx(expected)


@pytest.mark.parametrize("table", [np.zeros((0, 3)), np.zeros(3), np.full((1, 2), np.nan)])
def test_tables_that_are_none_are_refused(table):
    with pytest.raises(sordino.DataError, match="table"):
        TabularPolicy(table)


def test_policies_show_sizes_and_no_weights():
    assert repr(LogLinearPolicy(np.array([3.0, 4.0]))) == "LogLinearPolicy(d=2, norm=5)"
    assert repr(TabularPolicy(np.zeros((2, 3)))) == "TabularPolicy(2 states, 3 actions)"
