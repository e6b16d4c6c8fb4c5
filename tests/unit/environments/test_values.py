from __future__ import annotations

import numpy as np
import pytest
from calibration import plain_logistic_scale, population_slope
from scipy.optimize import brentq, minimize
from scipy.special import expit, softmax
from tests.tiers import few

import sordino
from sordino.environments.values import (
    gibbs_rows,
    kl_regret,
    measured_policy,
    prefer_first,
)

TEMPERATURE = 0.4


@pytest.fixture
def world():
    generator = np.random.default_rng(3)
    rewards = generator.normal(size=(3, 4))
    return rewards, generator.dirichlet(np.ones(4), size=3)


def test_the_closed_form_is_the_best_that_a_search_finds(world):
    rewards, reference = world

    def loss(logits):
        policy = softmax(logits.reshape(3, 4), axis=1)
        return -measured_policy(policy, rewards, TEMPERATURE, reference)["value"]

    found = minimize(loss, np.zeros(12), tol=1e-14)
    best = gibbs_rows(rewards, TEMPERATURE, reference)
    told = measured_policy(best, rewards, TEMPERATURE, reference)
    assert told["best_value"] == pytest.approx(-found.fun, abs=1e-6)
    assert softmax(found.x.reshape(3, 4), axis=1) == pytest.approx(best, abs=2e-3)


def test_regret_is_the_difference_of_values(world):
    rewards, reference = world
    generator = np.random.default_rng(0)
    for policy in generator.dirichlet(np.full(4, 0.3), size=(20, 3)):
        told = measured_policy(policy, rewards, TEMPERATURE, reference)
        gap = told["best_value"] - told["value"]
        assert told["kl_regret"] == pytest.approx(gap, rel=1e-9)
        assert gap > 0


def test_the_best_policy_has_no_regret_and_a_tiny_one_is_not_lost(world):
    rewards, reference = world
    best = gibbs_rows(rewards, TEMPERATURE, reference)
    assert 0 <= kl_regret(best, rewards, TEMPERATURE, reference) < 1e-15
    # Second order: temperature/2 · Σ p (log ratio − its mean)². A difference of values, each
    # about 1, would have lost this to rounding.
    errors = 1e-7 * np.random.default_rng(1).normal(size=rewards.shape)
    policy = gibbs_rows(rewards + errors, TEMPERATURE, reference)
    spread = (best * (errors - (best * errors).sum(axis=1, keepdims=True)) ** 2).sum(axis=1)
    expected = spread.mean() / (2 * TEMPERATURE)
    assert kl_regret(policy, rewards, TEMPERATURE, reference) == pytest.approx(expected, rel=0.05)


def test_actions_that_are_never_taken_and_huge_rewards_are_handled():
    rewards, reference = np.array([[1000.0, 0.0]]), np.full((1, 2), 0.5)
    never = np.array([[0.0, 1.0]])
    told = measured_policy(never, rewards, 0.25, reference)
    assert told["kl_regret"] == pytest.approx(1000.0, rel=1e-3)
    assert told["best_value"] == pytest.approx(1000 - 0.25 * np.log(2))
    assert told["value"] == pytest.approx(-0.25 * np.log(2))


def test_people_prefer_with_the_stated_probability():
    # Each of five gaps within 4.8 standard errors: false alarm below 1e-5 in all. Power: a probit
    # link or ignored gaps are off by more than 20 of them.
    n, generator = 100_000, np.random.default_rng(5)
    for gap in (-2.0, -0.5, 0.0, 1.0, 3.0):
        share = prefer_first(np.full(n, gap), generator).mean()
        chance = expit(gap)
        assert abs(share - chance) < 4.8 * np.sqrt(chance * (1 - chance) / n)


@pytest.mark.parametrize("reference", [np.full((2, 2), 0.5), np.array([[0.0, 1.0]])])
def test_a_reference_of_another_shape_or_with_a_zero_is_refused(reference):
    values = np.array([[1.0, 0.0]])
    with pytest.raises(sordino.DataError, match="reference"):
        measured_policy(values, values, 1.0, reference)
    with pytest.raises(sordino.DataError, match="reference"):
        kl_regret(np.array([[0.5, 0.5]]), values, 1.0, reference)


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.inf, np.nan])
def test_a_temperature_is_finite_and_above_zero(temperature):
    values = reference = np.full((1, 2), 0.5)
    for compute in (
        lambda: gibbs_rows(values, temperature, reference),
        lambda: measured_policy(values, values, temperature, reference),
        lambda: kl_regret(values, values, temperature, reference),
    ):
        with pytest.raises(sordino.UsageError, match="temperature"):
            compute()


@pytest.mark.parametrize(("epsilon", "factor"), [(0.1, 21.2), (0.5, 4.30), (1, 2.26), (2, 1.34)])
def test_the_published_factors_come_out(epsilon, factor):
    flip = expit(-epsilon)
    scale = plain_logistic_scale(4.0, dimension=64, flip_probability=flip, unit_differences=True)
    assert 1 / scale == pytest.approx(factor, abs=0.006 if factor < 10 else 0.06)


@pytest.mark.parametrize("unit_differences", few([True, False], first=1))
def test_the_factor_solves_its_equation_on_sampled_comparisons(unit_differences):
    # One million comparisons: the root has a standard error of about .0008, so .005 has a false
    # alarm below 1e-8; the other kind of comparison is off by .02.
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(2, 1_000_000, 4))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    values = rows[0, :, 0] if unit_differences else rows[0, :, 0] - rows[1, :, 0]
    margins, flip = 3.0 * values, 0.3

    def score(scale):
        return np.mean(values * (expit(scale * margins) - flip - (1 - 2 * flip) * expit(margins)))

    found = plain_logistic_scale(
        3.0, dimension=4, flip_probability=flip, unit_differences=unit_differences
    )
    assert found == pytest.approx(brentq(score, 0, 1), abs=0.005)


@pytest.mark.parametrize("factor", [0.01, 0.5, 1.0, 3.0, 400.0])
def test_the_slope_undoes_any_scale(factor):
    true = np.random.default_rng(0).normal(size=100)
    assert population_slope(factor * true, true) == pytest.approx(1 / factor, rel=1e-6)


@pytest.mark.parametrize("change", [{"dimension": 1}, {"size": 0.0}, {"flip_probability": 0.5}])
def test_settings_out_of_range_are_refused(change):
    settings = {"size": 1.0, "dimension": 4, "flip_probability": 0.1} | change
    with pytest.raises(sordino.UsageError, match=next(iter(change))):
        plain_logistic_scale(settings.pop("size"), **settings)
