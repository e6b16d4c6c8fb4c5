"""Worlds with a linear reward: what all of them keep to, and each kind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

import sordino
from sordino.environments.linear_worlds import Dosing, Sphere
from sordino.environments.values import Environment, bounded_contexts
from sordino.policies.softmax import LogLinearPolicy

PATIENTS = np.random.default_rng(0).random((500, 3))


WORLDS = {"sphere": Sphere, "dosing": Dosing}


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


def test_features_point_anywhere():
    # The coordinate along a fixed direction of a uniform unit vector in R^4 has density
    # 2√(1 − u²)/π. Kolmogorov–Smirnov on 60,000 of them, along two directions: false alarm 1e-6
    # each. Power: normal vectors divided by their mean length are .1 off.
    rows = Sphere(actions=1).contexts(np.random.default_rng(1), 60_000)[:, 0]
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1)

    def distribution(u):
        u = np.clip(u, -1, 1)
        return 0.5 + (u * np.sqrt(1 - u * u) + np.arcsin(u)) / np.pi

    for direction in (np.array([1.0, 0, 0, 0]), np.array([0.5, -0.5, 0.5, -0.5])):
        assert kstest(rows @ direction, distribution).pvalue > 1e-6


def test_no_row_is_over_the_bound_by_a_rounding():
    rows = Sphere(dimension=3).contexts(np.random.default_rng(2), 20_000).reshape(-1, 3)
    assert (np.einsum("nd,nd->n", rows, rows) <= 1).all()


def test_the_uniform_policy_gives_away_what_the_law_of_the_maximum_says():
    # exactly E max of 6 coordinates, .6263; 3,000 users have a standard error of .0044, so within
    # 5 of them the false alarm is 1e-6, and the published .623 lies within one
    def density(u):
        below = 0.5 + (u * np.sqrt(1 - u * u) + np.arcsin(u)) / np.pi
        return u * 6 * below**5 * 2 * np.sqrt(1 - u * u) / np.pi

    exact = quad(density, -1, 1)[0]
    assert exact == pytest.approx(0.62627, abs=1e-5)
    found = Sphere().suboptimality(LogLinearPolicy.uniform(4), np.random.default_rng(3))
    assert found == pytest.approx(exact, abs=0.022)


def stated(patients, dose):
    """Benefit less harm, as the docstring has it."""
    severity, slowness, age = patients.T
    benefit = (0.8 + 1.6 * severity) * dose
    return benefit - (1.2 * slowness + 0.4 * age) * dose - 0.8 * dose**2


def test_the_mean_is_benefit_less_harm_compared_with_half_the_dose():
    world = Dosing()
    means = world.mean_rewards(world.features(PATIENTS))
    for column, dose in zip(means.T, world.doses, strict=True):
        assert column == pytest.approx(stated(PATIENTS, dose) - stated(PATIENTS, 0.5))


def test_means_and_features_are_within_their_bounds_at_every_corner():
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * 3)).reshape(3, -1).T
    features = Dosing(levels=101).features(corners)
    assert np.linalg.norm(features, axis=2).max() == pytest.approx(1)
    assert abs(Dosing(levels=101).mean_rewards(features)).max() == pytest.approx(1)


def test_patients_differ_in_their_best_dose_and_no_dose_is_best_for_all():
    # of 100,000 patients each of five doses is best for between a sixth and a quarter
    world = Dosing()
    features = world.contexts(np.random.default_rng(1), 100_000)
    shares = np.bincount(world.mean_rewards(features).argmax(axis=1), minlength=5) / 1e5
    assert shares.min() > 0.16
    assert shares.max() < 0.26
    severe, frail = np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 1.0, 1.0]])
    best = [world.mean_rewards(world.features(who)).argmax() for who in (severe, frail)]
    assert world.doses[best].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Sphere(dimension=0), sordino.UsageError, "dimension"),
        (lambda: Sphere(actions=1.5), sordino.UsageError, "actions"),
        (lambda: Dosing(levels=1), sordino.UsageError, "levels"),
        (lambda: Dosing().features(np.full((1, 3), np.nan)), sordino.DataError, "row 0"),
        (lambda: Dosing().features(np.zeros((2, 4))), sordino.DataError, "patients"),
    ],
)
def test_worlds_out_of_range_are_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()
