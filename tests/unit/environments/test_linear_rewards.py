"""What all worlds with a linear reward keep to."""

from __future__ import annotations

import numpy as np
import pytest

import sordino
from sordino.environments.dosing import Dosing
from sordino.environments.hard_instances import (
    HardInstance,
    LogLinearBandit,
    hard_bandit,
    tabular_bandit,
)
from sordino.environments.interactions import Environment, bounded_contexts
from sordino.environments.sphere import Sphere
from sordino.policies.softmax import LogLinearPolicy


def random_bandit(noise):
    rng = np.random.default_rng(5)
    return LogLinearBandit.random(rng, contexts=7, actions=3, dimension=4, reward_noise=noise)


def hard(noise):
    level = HardInstance.balanced_level(concentrability=20.0, temperature=0.25)
    instance = HardInstance.random(contexts=10, concentrability=20.0, gap=0.5, level=level, seed=1)
    return hard_bandit(instance, reward_noise=noise)


def table(noise):
    return tabular_bandit(np.array([[0.1, -0.7], [0.9, 0.2]]), reward_noise=noise)


WORLDS = {
    "sphere": Sphere,
    "dosing": Dosing,
    "random": random_bandit,
    "hard": hard,
    "table": table,
}


@pytest.fixture(params=WORLDS.values(), ids=WORLDS.keys())
def make(request):
    return request.param


def rng(seed=0):
    return np.random.default_rng(seed)


def test_it_keeps_its_own_bounds(make):
    world = make(3.0)
    assert isinstance(world, Environment)
    features = world.contexts(rng(), 500)
    assert features.shape[2] == world.dimension == len(world.weights)
    assert np.linalg.norm(features, axis=2).max() <= world.feature_bound * (1 + 1e-12)
    assert np.array_equal(bounded_contexts(world, rng(), 500), features)
    means = world.mean_rewards(features)
    assert abs(means).max() <= world.reward_bound * (1 + 1e-12)
    felt = world.reward(features, np.zeros(500, int), rng())
    assert abs(felt).max() == world.reward_bound  # so much noise is cut on both sides


def test_without_noise_one_feels_the_mean(make):
    world = make(0.0)
    features = world.contexts(rng(), 100)
    actions = rng().integers(0, features.shape[1], size=100)
    felt = world.reward(features, actions, rng())
    expected = [f[a] @ world.weights for f, a in zip(features, actions, strict=True)]
    assert felt == pytest.approx(expected)


def test_noise_is_normal_and_of_the_stated_size(make):
    # Mean and mean square of 100,000 residuals within 5 standard errors: false alarm 1e-6. Power:
    # noise twice as large is 300 errors away. At .05 cutting touches rewards near ±1 only, so
    # actions with smaller means are used.
    world = make(0.05)
    features = world.contexts(rng(1), 100_000)
    actions = abs(world.mean_rewards(features)).argmin(axis=1)
    chosen = features[np.arange(len(actions)), actions] @ world.weights
    keep = abs(chosen) < world.reward_bound - 0.4
    residuals = (world.reward(features, actions, rng(2)) - chosen)[keep] / 0.05
    n = len(residuals)
    assert n > 50_000
    assert abs(residuals.mean()) < 5 / np.sqrt(n)
    assert abs((residuals**2).mean() - 1) < 5 * np.sqrt(2 / n)


def test_noise_of_users_is_their_own(make):
    world = make(0.5)
    features = world.contexts(rng(1), 50)
    actions = np.zeros(50, int)
    other = features.copy()
    other[3] = 0.0
    first, second = (world.reward(rows, actions, rng(2)) for rows in (features, other))
    assert np.array_equal(np.delete(first, 3), np.delete(second, 3))


def test_users_are_drawn_from_the_generator_alone(make):
    world = make(0.5)
    assert np.array_equal(world.contexts(rng(4), 20), world.contexts(rng(4), 20))
    assert not np.array_equal(world.contexts(rng(4), 20), world.contexts(rng(5), 20))
    assert np.array_equal(world.weights, make(0.5).weights)


def test_suboptimality_is_the_gap_to_the_best_action_of_each_user(make):
    world = make(0.5)
    features = world.contexts(rng(9), 3_000)
    means = world.mean_rewards(features)
    start = LogLinearPolicy.uniform(world.dimension)
    gap = means.max(axis=1).mean() - means.mean()
    assert world.suboptimality(start, rng(9)) == pytest.approx(gap)
    assert world.suboptimality(start, rng(9), 10) != pytest.approx(gap, rel=1e-9)
    # sharp weights along the truth choose the best action
    sharp = LogLinearPolicy(1e6 * world.weights)
    assert 0 <= world.suboptimality(sharp, rng(9)) < 1e-4
    assert world.value(start.probabilities(features), features) == pytest.approx(means.mean())


@pytest.mark.parametrize("noise", [-0.1, np.nan, np.inf, "1"])
def test_noise_that_is_none_is_refused(make, noise):
    with pytest.raises(sordino.UsageError, match="reward_noise"):
        make(noise)


@pytest.mark.parametrize("n", [0, 2.5])
def test_numbers_of_users_that_are_none_are_refused(make, n):
    with pytest.raises(sordino.UsageError, match="n must be"):
        make(0.5).contexts(rng(), n)


def test_actions_and_probabilities_of_other_shapes_are_refused(make):
    world = make(0.5)
    features = world.contexts(rng(), 4)
    with pytest.raises(sordino.DataError, match="row 2 is not"):
        world.reward(features, np.array([0, 0, 99, 0]), rng())
    with pytest.raises(sordino.DataError, match="probabilities must have shape"):
        world.value(np.ones((4, 1)), features)
