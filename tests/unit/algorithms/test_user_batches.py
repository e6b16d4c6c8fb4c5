"""Rows of a batch are what the formulas say."""

import numpy as np
import pytest

from sordino.algorithms.user_slots import interact
from sordino.environments.linear_worlds import Sphere
from sordino.errors import DataError
from sordino.policies.softmax import LogLinearPolicy

WORLD = Sphere(reward_noise=0.0)


def batch(reference=None, users=400, **more):
    rng = np.random.default_rng(0)
    policy = LogLinearPolicy(np.array([1.0, -2.0, 0.5, 0.0]))
    given = {"policy": policy, "reference": reference, "reward_bound": 1.0, "rng": rng} | more
    return interact(WORLD, WORLD.contexts(rng, users), **given)


def test_advantages_and_rows():
    found = batch()
    rows = np.arange(len(found))
    means = WORLD.mean_rewards(found.features)
    assert np.allclose(
        found.advantages, means[rows, found.actions] - means[rows, found.others], atol=1e-12
    )
    assert np.allclose(found.differences() @ WORLD.weights, found.advantages, atol=1e-12)
    centered = found.policy.centered(found.features)
    assert np.allclose(found.scores(), centered[rows, found.actions], atol=1e-12)
    assert np.array_equal(found.ratios, np.ones(400))


def test_rewards_are_clipped_before_they_are_subtracted():
    found = batch(reward_bound=0.1)
    assert abs(found.advantages).max() <= 0.2
    means = np.clip(WORLD.mean_rewards(found.features), -0.1, 0.1)
    rows = np.arange(len(found))
    assert np.allclose(found.advantages, means[rows, found.actions] - means[rows, found.others])


def test_ratios_undo_the_exploration():
    """E[π/μ] = 1 under μ: with 40,000 users the mean is within 5 standard errors."""
    found = batch(LogLinearPolicy.uniform(4), users=40_000)
    error = found.ratios.std() / 200
    assert abs(found.ratios.mean() - 1) < 5 * error < 0.05
    assert not np.allclose(found.ratios, 1.0)


def test_ratios_stay_finite():
    shy = LogLinearPolicy(np.array([-400.0, 800.0, -200.0, 0.0]))
    found = batch(shy)
    assert np.isfinite(found.ratios).all()


def test_actions_outside_the_worlds_answers_are_refused():
    class Broken(Sphere):
        def reward(self, context, action, rng):
            return super().reward(context, action, rng)[:, None]

    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="shape"):
        interact(
            Broken(),
            WORLD.contexts(rng, 5),
            policy=LogLinearPolicy.uniform(4),
            reference=None,
            reward_bound=1.0,
            rng=rng,
        )
