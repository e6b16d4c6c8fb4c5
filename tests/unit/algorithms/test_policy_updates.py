"""Updates: what they regress on, clip, and promise; and how a run is planned."""

import json
import math

import numpy as np
import pytest

import sordino
from sordino._random import SimulatedEntropy
from sordino.algorithms.policy_optimization import (
    Direction,
    GradientUpdate,
    Update,
    UpdateBounds,
    _RegressionUpdate,
    update_of,
)
from sordino.algorithms.user_slots import interact
from sordino.environments.linear_worlds import Sphere
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.randomized_response import NonPrivate
from sordino.mechanisms.regressions.gaussian import GaussianStatistics
from sordino.policies.softmax import LogLinearPolicy
from sordino.privacy.guarantee import NonPrivateEvent

WORLD = Sphere(reward_noise=0.0)
BOUNDS = UpdateBounds(feature_bound=1.0, reward_bound=1.0, radius=2.0, gradient_bound=4.0)


def made(name, epsilon=1.0, bounds=BOUNDS, batch=4000, **more):
    given = {"delta": 1e-5, "neighbors": sordino.REPLACE_SPECIAL, "bounds": bounds, **more}
    return update_of(name, GaussianStatistics(), epsilon=epsilon, batch=batch, **given)


def played(users=4000, policy=None):
    rng = np.random.default_rng(0)
    return interact(
        WORLD,
        WORLD.contexts(rng, users),
        policy=policy or LogLinearPolicy.uniform(4),
        reference=None,
        reward_bound=1.0,
        rng=rng,
    )


@pytest.mark.parametrize("name", ["npg", "rebel"])
def test_regressions_find_the_reward(name):
    """Without noise REBEL is exact: rewards are linear. NPG keeps the luck of the others' draw."""
    plain = made(name, math.inf).direction(played(), entropy=SimulatedEntropy(0))
    close = 1e-9 if name == "rebel" else 0.05
    assert np.linalg.norm(plain.weights - WORLD.weights) < close
    noised = made(name, 1.0).direction(played(), entropy=SimulatedEntropy(0))
    assert 0 < np.linalg.norm(noised.weights - plain.weights) < 0.3
    assert noised.error > 0
    assert noised.squared_gradient is None


def test_the_gradient_is_the_gradient():
    """Against central differences of the mean reward over 20,000 users (5 standard errors)."""
    policy = LogLinearPolicy(np.array([0.5, 0.0, -0.5, 1.0]))
    found = made("pg", math.inf, batch=20_000).direction(
        played(20_000, policy), entropy=SimulatedEntropy(0)
    )
    features = WORLD.contexts(np.random.default_rng(5), 20_000)
    step = 1e-5 * np.eye(4)
    slopes = [
        (
            WORLD.value(policy.moved(way, 1.0).probabilities(features), features)
            - WORLD.value(policy.moved(way, -1.0).probabilities(features), features)
        )
        / 2e-5
        for way in step
    ]
    assert np.linalg.norm(found.weights - slopes) < 0.02
    assert found.squared_gradient == pytest.approx(float(found.weights @ found.weights))
    assert found.error == 0


def test_what_the_noise_adds_is_taken_off():
    """E‖g̃‖² − d s²/m² = ‖ḡ‖²; 300 draws, 5 standard errors."""
    batch, update = played(200), made("pg", 1.0, batch=200)
    truth = made("pg", math.inf, batch=200).direction(batch, entropy=SimulatedEntropy(0))
    entropy = SimulatedEntropy(1)
    found = [update.direction(batch, entropy=entropy).squared_gradient for _ in range(300)]
    error = np.std(found) / math.sqrt(300)
    assert abs(np.mean(found) - truth.squared_gradient) < 5 * error
    assert update.direction(batch, entropy=entropy).error == pytest.approx(
        2 * update.noise.standard_deviation / 200
    )


def test_parts_of_a_gradient_are_clipped_one_by_one():
    small = UpdateBounds(feature_bound=1.0, reward_bound=1.0, radius=2.0, gradient_bound=1e-3)
    found = made("pg", 1.0, bounds=small).direction(played(), entropy=SimulatedEntropy(0))
    assert np.linalg.norm(found.weights) < 1.1e-3


def test_long_gradients_are_projected():
    found = GradientUpdate(NonPrivate(), 1e-3).direction(played(), entropy=SimulatedEntropy(0))
    assert np.linalg.norm(found.weights) == pytest.approx(1e-3)
    assert found.projected


def test_no_privacy_is_said():
    for name in ("pg", "npg", "rebel"):
        update = made(name, math.inf)
        assert isinstance(update, Update)
        assert update.event == NonPrivateEvent()
        assert update.guarantee(sordino.REPLACE_SPECIAL).epsilon == math.inf


def test_refusals():
    with pytest.raises(UsageError, match="update"):
        made("ppo")
    with pytest.raises(UsageError, match="oracle"):
        update_of(
            "npg",
            None,
            epsilon=1.0,
            delta=1e-5,
            neighbors=sordino.REPLACE_ONE,
            bounds=BOUNDS,
            batch=10,
        )
    with pytest.raises(PrivacyError):
        made("npg", neighbors=sordino.ADD_OR_REMOVE_ONE)


def test_which_rows_are_regressed_on():
    assert isinstance(made("npg"), _RegressionUpdate)
    assert (made("npg").differences, made("rebel").differences) == (False, True)
    regression = made("npg").regression
    assert (regression.feature_bound, regression.target_bound, regression.radius) == (2, 2, 2)


def test_directions_survive_json():
    found = Direction(weights=np.array([0.1, 1e-17]), error=math.inf, projected=True)
    again = Direction.from_dict(json.loads(json.dumps(found.to_dict())))
    assert np.array_equal(again.weights, found.weights)
    assert (again.error, again.projected, again.squared_gradient) == (math.inf, True, None)


class ForAnotherRelation(GaussianStatistics):
    """An oracle that calibrates for zero-out, whatever it was asked for."""

    def calibrated(self, terms, epsilon, delta, neighbors):
        return super().calibrated(terms, epsilon, delta, sordino.REPLACE_SPECIAL)


def test_a_regression_for_another_relation_is_refused():
    settings = {"epsilon": 1.0, "delta": 1e-5, "bounds": BOUNDS, "batch": 10}
    with pytest.raises(PrivacyError, match="for REPLACE_SPECIAL, and this run is about REPLACE_ON"):
        update_of("npg", ForAnotherRelation(), neighbors=sordino.REPLACE_ONE, **settings)
    update_of("npg", ForAnotherRelation(), neighbors=sordino.REPLACE_SPECIAL, **settings)
