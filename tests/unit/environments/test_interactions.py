from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import sordino
from sordino.environments import linear_worlds
from sordino.environments.values import (
    bounded_contexts,
    bounded_rewards,
)

RNG = np.random.default_rng(0)
SIZES = st.floats(1e-100, 1e300)  # below, squares of the test itself would vanish
ANY = st.one_of(st.just(0.0), SIZES, SIZES.map(lambda size: -size))


class Given:
    """A world of somebody else: two methods that return what they were given."""

    def __init__(self, features=None, rewards=None):
        self.features, self.rewards = features, rewards

    def contexts(self, rng, n):
        return self.features

    def reward(self, context, action, rng):
        return self.rewards


def features_of(value):
    return bounded_contexts(Given(value), RNG, len(value))


def rewards_of(value, n=2, bound=1.0):
    actions = np.zeros(n, int)
    return bounded_rewards(
        Given(rewards=value), np.zeros((n, 2, 1)), actions, RNG, reward_bound=bound
    )


@given(arrays.arrays(float, (3, 2, 4), elements=ANY), st.floats(1e-3, 1e3))
def test_features_are_within_the_bound_and_keep_their_direction(features, bound):
    world = Given(features)
    world.feature_bound = bound
    found = bounded_contexts(world, RNG, 3)
    norms = np.linalg.norm(found, axis=2)
    assert (norms <= bound * (1 + 1e-12)).all()
    largest = np.maximum(abs(features).max(axis=2, keepdims=True), np.finfo(float).tiny)
    shape = features / largest
    lengths = np.linalg.norm(shape, axis=2)
    along = (found * shape).sum(axis=2)
    assert along == pytest.approx(norms * lengths, rel=1e-9, abs=1e-300)
    short = lengths * largest[:, :, 0] < bound * (1 - 1e-9)
    assert np.array_equal(found[short], features[short])
    assert norms[~short] == pytest.approx(bound, rel=1e-8)


@given(arrays.arrays(float, (4, 2, 3), elements=ANY), arrays.arrays(float, (2, 3), elements=ANY))
def test_no_user_changes_another(features, other):
    changed = features.copy()
    changed[1] = other
    first, second = features_of(features), features_of(changed)
    assert np.array_equal(np.delete(first, 1, axis=0), np.delete(second, 1, axis=0))


def test_what_the_world_returned_is_left_as_it_was():
    features = np.full((2, 1, 4), 3.0)
    assert features_of(features).max() < 1
    assert (features == 3.0).all()


def test_the_worlds_own_bound_holds():
    world = Given(np.full((1, 1, 1), 9.0))
    world.feature_bound = 2.0
    assert bounded_contexts(world, RNG, 1).item() == pytest.approx(2.0)


@given(arrays.arrays(float, 2, elements=ANY), st.floats(1e-3, 1e3))
def test_rewards_are_cut_one_by_one(rewards, bound):
    found = rewards_of(rewards, bound=bound)
    assert found.tolist() == [min(max(r, -bound), bound) for r in rewards.tolist()]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_its_row_alone(value):
    rewards = np.array([0.123456, 0.5, value])
    with pytest.raises(sordino.DataError, match=r"reward .*row 2 ") as caught:
        rewards_of(rewards, n=3)
    assert "0.123456" not in str(caught.value)
    features = np.full((3, 2, 2), 0.123456)
    features[1, 0, 1] = value
    with pytest.raises(sordino.DataError, match=r"contexts .*row 1 ") as caught:
        features_of(features)
    assert "0.123456" not in str(caught.value)


@pytest.mark.parametrize(
    "rewards",
    [
        [0.5],
        [[0.5, 0.5]],
        0.5,
        None,
        ["secret", "b"],
        [0.1, "secret"],
        [[0.1], [0.1, 0.2]],
        [1j, 0],
    ],
)
def test_rewards_of_another_shape_or_kind_are_refused(rewards):
    with pytest.raises(sordino.DataError, match="reward must") as caught:
        rewards_of(rewards)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "features",
    [
        np.zeros((3, 2)),
        np.zeros((2, 1, 1)),
        np.zeros((3, 0, 2)),
        np.zeros((3, 1, 0)),
        [[["a"]]] * 3,
    ],
)
def test_contexts_of_another_shape_or_kind_are_refused(features):
    with pytest.raises(sordino.DataError, match="contexts must"):
        bounded_contexts(Given(features), RNG, 3)


@pytest.mark.parametrize("world", [object(), linear_worlds, linear_worlds.Sphere, None])
def test_what_is_no_world_is_refused(world):
    with pytest.raises(sordino.UsageError, match="environment must have the methods"):
        bounded_contexts(world, RNG, 3)


@pytest.mark.parametrize("bound", [0.0, -1.0, np.inf, np.nan, "1"])
def test_bounds_that_are_none_are_refused(bound):
    world = Given(np.zeros((1, 1, 1)), np.zeros(1))
    with pytest.raises(sordino.UsageError, match="reward_bound"):
        rewards_of(np.zeros(2), bound=bound)
    world.feature_bound = bound
    with pytest.raises(sordino.UsageError, match="feature_bound"):
        bounded_contexts(world, RNG, 1)
