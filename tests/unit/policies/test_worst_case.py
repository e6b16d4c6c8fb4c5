"""The least value over an ellipsoid and a ball, against cvxpy and against random rewards."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from sordino.errors import DataError, UsageError
from sordino.policies.worst_case import PlausibleRewards

VECTORS = json.loads((Path(__file__).parents[2] / "data/core.json").read_text("utf-8"))


def draw(seed, *, ball=True):
    g = np.random.default_rng(seed)
    d = int(g.integers(1, 6))
    root = g.normal(size=(d, d))
    center = g.normal(size=d)
    return g, PlausibleRewards(
        center=center,
        metric=root @ root.T + 0.1 * np.eye(d),
        radius=float(np.exp(g.uniform(-3, 2))),
        ball=float(np.linalg.norm(center) * g.uniform(0.9, 1.5) + 0.05) if ball else None,
    )


def distance(rewards, theta):
    gap = theta - rewards.center
    return math.sqrt(gap @ rewards.metric @ gap)


@pytest.mark.parametrize("case", VECTORS["pessimistic_value"])
def test_vectors(case):
    rewards = PlausibleRewards(
        center=np.array(case["theta"]), metric=np.array(case["M"], float), radius=case["radius"]
    )
    found = rewards.worst(np.array(case["q"], float))
    assert found.value == pytest.approx(case["value"], abs=1e-9)
    assert found.theta == pytest.approx(case["argmin"], abs=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_the_worst_reward_is_in_the_set_and_has_the_value(seed):
    g, rewards = draw(seed, ball=seed % 2 == 0)
    q = g.normal(size=len(rewards.center))
    found = rewards.worst(q)
    assert q @ found.theta == pytest.approx(found.value, abs=1e-9)
    assert distance(rewards, found.theta) <= rewards.radius * (1 + 1e-9)
    assert rewards.ball is None or np.linalg.norm(found.theta) <= rewards.ball * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(0, 40, 2))
def test_no_reward_of_the_set_is_worse(seed):
    g, rewards = draw(seed)
    q = g.normal(size=len(rewards.center))
    value = rewards.worst(q).value
    for _ in range(200):
        theta = rewards.pulled(rewards.inner + g.normal(size=len(q)) * g.exponential() * 3)
        assert distance(rewards, theta) <= rewards.radius * (1 + 1e-9)
        assert np.linalg.norm(theta) <= rewards.ball * (1 + 1e-9)
        assert q @ theta >= value - 1e-9
        assert q @ theta <= rewards.most(q[None])[0] + 1e-9


@pytest.mark.parametrize("seed", range(0, 30, 2))
def test_cvxpy_agrees_on_the_intersection(seed):
    cp = pytest.importorskip("cvxpy")
    g, rewards = draw(seed)
    q = g.normal(size=len(rewards.center))
    theta = cp.Variable(len(q))
    root = np.linalg.cholesky(rewards.metric).T
    program = cp.Problem(
        cp.Minimize(q @ theta),
        [
            cp.norm(root @ (theta - rewards.center)) <= rewards.radius,
            cp.norm(theta) <= rewards.ball,
        ],
    )
    program.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert rewards.worst(q).value == pytest.approx(program.value, abs=1e-7)


def test_a_set_that_is_the_whole_ball_and_a_ball_that_is_not_felt():
    given = {"center": np.array([0.5, -0.2]), "metric": np.diag([2.0, 1.0]), "radius": 0.3}
    plain, held = PlausibleRewards(**given), PlausibleRewards(**given, ball=5.0)
    for moments in (np.array([1.0, 2.0]), np.zeros(2)):
        assert held.worst(moments).value == plain.worst(moments).value
    assert plain.worst(np.zeros(2)).value == 0
    rewards = PlausibleRewards(
        center=np.array([0.5, -0.2]), metric=np.diag([2.0, 1.0]), radius=1e9, ball=2.0
    )
    q = np.array([3.0, 4.0])
    found = rewards.worst(q)
    assert found.value == pytest.approx(-2 * 5)
    assert found.theta == pytest.approx(-2 * q / 5)
    assert rewards.most(q[None])[0] == pytest.approx(10)


@pytest.mark.parametrize("scale", [1e-120, 1e-8, 1e8, 1e120])
def test_sizes_of_features_and_rewards_scale(scale):
    q = np.array([1.0, 2.0])
    for ball in (None, 0.3):
        one = PlausibleRewards(
            center=np.array([0.5, -0.2]), metric=np.diag([2.0, 1.0]), radius=0.5, ball=ball
        )
        assert one.worst(q * scale).value == pytest.approx(scale * one.worst(q).value, rel=1e-9)


def test_an_empty_intersection_says_what_would_do():
    center, metric = np.array([3.0, 0.0]), np.diag([4.0, 1.0])
    with pytest.raises(UsageError, match=r"ball above 2.5; or .* radius above 4") as caught:
        PlausibleRewards(center=center, metric=metric, radius=1.0, ball=1.0)
    assert "leave the ball out" in str(caught.value)
    PlausibleRewards(center=center, metric=metric, radius=1.0, ball=2.5 + 1e-6)
    PlausibleRewards(center=center, metric=metric, radius=4 + 1e-6, ball=1.0)


def test_a_direction_that_nothing_bounds():
    """The null space of the metric: −inf with any share in it, finite without or in a ball."""
    given = {"center": np.zeros(2), "metric": np.diag([0.0, 1.0]), "radius": 1.0}
    rewards = PlausibleRewards(**given)
    assert rewards.worst(np.array([1.0, 1.0])).value == -math.inf
    assert rewards.worst(np.array([0.0, 1.0])).value == pytest.approx(-1)
    assert rewards.most(np.array([[1.0, 1.0], [0.0, 1.0]])).tolist() == [math.inf, 1.0]
    held = PlausibleRewards(**given, ball=2.0).worst(np.array([1.0, 0.0]))
    assert held.value == pytest.approx(-2)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"radius": -1.0}, UsageError, "radius must be at least 0"),
        ({"radius": math.inf}, UsageError, "radius must be finite"),
        ({"ball": 0.0}, UsageError, "ball must be finite and greater than 0"),
        ({"metric": np.eye(3)}, DataError, "metric must have shape"),
        ({"metric": np.array([[1.0, 1.0], [0.0, 1.0]])}, DataError, "symmetric"),
        ({"metric": -np.eye(2)}, DataError, "semidefinite"),
        ({"metric": np.zeros((2, 2))}, DataError, "not zero"),
        ({"center": np.array([1.0, np.nan])}, DataError, "center must be finite"),
    ],
)
def test_what_is_no_set_is_refused(changed, error, words):
    given = {"center": np.ones(2), "metric": np.eye(2), "radius": 1.0}
    with pytest.raises(error, match=words):
        PlausibleRewards(**given | changed)
    with pytest.raises(DataError, match="must have"):
        PlausibleRewards(**given).worst(np.ones(3))


def test_of_a_confidence_set():
    class Known:
        center, metric, ball = np.array([0.1, 0.2]), np.eye(2), 3.0

        def radius(self, confidence):
            return 10 * confidence

    found = PlausibleRewards.of(Known(), confidence=0.5, radius_scale=0.1)
    assert (found.radius, found.ball) == (0.5, 3.0)
    assert PlausibleRewards.of(Known(), confidence=0.5, within_ball=False).ball is None
