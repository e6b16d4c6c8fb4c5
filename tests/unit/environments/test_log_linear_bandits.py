from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

import sordino
from sordino.environments.hard_instances import (
    HardInstance,
    LogLinearBandit,
    hard_bandit,
    tabular_bandit,
)
from sordino.policies.softmax import LogLinearPolicy, TabularPolicy

TABLE = np.array([[0.1, -0.7, 0.3], [0.9, 0.2, 0.0]])


def bandit(**changes):
    settings = {"weights": np.ones(2), "features": np.eye(2).reshape(2, 1, 2)}
    return LogLinearBandit(**(settings | changes))


def test_a_table_has_a_reward_for_each_state_and_action():
    world = tabular_bandit(TABLE, reward_noise=0.0)
    assert world.mean_rewards(world.features) == pytest.approx(TABLE)
    assert (world.dimension, world.feature_bound, world.reward_bound) == (6, 1.0, 1.0)
    assert tabular_bandit(3 * TABLE).reward_bound == pytest.approx(2.7)
    best = TabularPolicy(1e4 * TABLE).log_linear()
    assert world.suboptimality(best, np.random.default_rng(0)) == pytest.approx(0)


def test_contexts_occur_as_often_as_stated():
    # χ² with 2 degrees on 100,000 draws, false alarm 1e-6; uniform draws give above 50,000
    chances = np.array([0.0, 0.7, 0.1, 0.2, 0.0])
    world = tabular_bandit(np.zeros((5, 1)), chances=chances)
    seen = np.bincount(world.states(np.random.default_rng(1), 100_000), minlength=5)
    assert seen[[0, 4]].sum() == 0
    expected = 100_000 * chances[1:4]
    assert ((seen[1:4] - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 2)


def test_features_are_those_of_the_states():
    world = tabular_bandit(TABLE)
    states = world.states(np.random.default_rng(2), 30)
    assert np.array_equal(world.contexts(np.random.default_rng(2), 30), world.features[states])


def test_no_number_of_a_generator_reaches_a_context_that_never_occurs():
    class Ends:
        def random(self, n):
            return np.array([0.0, 1 - 2.0**-53])

    chances = np.array([0.0] + [0.1] * 10 + [0.0])  # sums to 1 − 1e-16
    world = tabular_bandit(np.zeros((12, 1)), chances=chances)
    assert world.states(Ends(), 2).tolist() == [1, 10]


def test_random_worlds_have_unit_features_and_a_unit_truth():
    rng = np.random.default_rng(3)
    world = LogLinearBandit.random(rng, contexts=9, actions=4, dimension=5)
    assert np.linalg.norm(world.features, axis=2) == pytest.approx(1)
    assert np.linalg.norm(world.weights) == pytest.approx(1)
    assert repr(world) == "LogLinearBandit(9 contexts, 4 actions, d=5)"


def test_the_hardest_world_starts_from_its_reference():
    level = HardInstance.balanced_level(concentrability=20.0, temperature=0.25)
    instance = HardInstance.random(contexts=10, concentrability=20.0, gap=0.5, level=level, seed=1)
    world = hard_bandit(instance, reward_noise=0.0)
    assert world.start.probabilities(world.features) == pytest.approx(instance.reference)
    assert world.mean_rewards(world.features) == pytest.approx(instance.rewards)
    assert world.reward_bound == pytest.approx(level + 0.5)
    assert world.feature_bound == 1.0
    best = instance.best_policy(temperature=0.25)
    # the Gibbs policy is log-linear: what the reference has, and reward over temperature
    tilted = LogLinearPolicy(world.start.weights + instance.weights / 0.25)
    assert tilted.probabilities(world.features) == pytest.approx(best)
    assert world.start.coverage(world.features, tilted) == pytest.approx(
        (best / instance.reference).max()
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"weights": np.ones(3)}, "features"),
        ({"features": np.zeros((2, 0, 2))}, "features"),
        ({"weights": np.array([1.0, np.nan])}, "weights"),
        ({"chances": np.array([0.5, 0.6])}, "chances"),
        ({"chances": np.array([1.5, -0.5])}, "chances"),
        ({"chances": np.ones(1)}, "chances"),
        ({"features": np.ones((1, 1, 2))}, "norm 1.41421"),
    ],
)
def test_worlds_that_are_none_are_refused(change, match):
    with pytest.raises(sordino.DataError, match=match):
        bandit(**change)


def test_numbers_out_of_range_are_refused():
    with pytest.raises(sordino.UsageError, match="reward_bound"):
        bandit(reward_bound=0.0)
    with pytest.raises(sordino.DataError, match="rewards"):
        tabular_bandit(np.zeros((0, 2)))
    with pytest.raises(sordino.UsageError, match="actions"):
        LogLinearBandit.random(np.random.default_rng(0), contexts=1, actions=0, dimension=1)
