"""Scoring on the mixture likelihood: stationary, better than its start, inside the ball."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import sordino
from sordino.rewards.pair_losses import DebiasedLogistic, MixtureLogistic, debias
from sordino.rewards.reward_fit import refine
from sordino.rewards.solver import minimize_ridge

FLIP = 0.27


@pytest.fixture
def world():
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(4000, 4))
    theta = np.array([2.0, -1.0, 0.5, 0.0])
    answers = (generator.random(4000) < expit(rows @ theta)) ^ (generator.random(4000) < FLIP)
    return rows, answers.astype(np.int64)


def start_of(rows, answers):
    loss = DebiasedLogistic(rows, debias(answers, FLIP))
    return minimize_ridge(loss, ridge=5.0, ball=50.0, atol=1e-6).theta


def test_it_ends_where_another_optimizer_ends(world):
    rows, answers = world
    loss = MixtureLogistic(rows, answers, FLIP)
    found = refine(loss, start_of(*world), ridge=1.0, atol=1e-6, ball=50.0)

    def objective(theta):
        return loss.value(theta) + 0.5 * theta @ theta

    peer = minimize(objective, np.zeros(4), jac=lambda t: loss.gradient(t) + t, method="BFGS")
    np.testing.assert_allclose(found.theta, peer.x, atol=1e-4)
    assert found.gradient_norm == np.linalg.norm(loss.gradient(found.theta) + found.theta) <= 1e-6
    assert objective(found.theta) <= objective(start_of(*world))


def test_a_ball_that_is_in_the_way_is_an_error_and_not_a_worse_estimate(world):
    with pytest.raises(sordino.ConvergenceError, match="debiased"):
        refine(MixtureLogistic(*world, FLIP), np.zeros(4), ridge=1.0, atol=1e-6, ball=0.5)


def test_the_three_methods(linear_world, ledger):
    pairs, theta = linear_world(20_000, 3, size=8.0)
    coin = sordino.RandomizedResponse(1.0)
    private = sordino.privatize(pairs, coin, ledger=ledger(1.0), simulate_seed=5)
    fits = {
        method: sordino.fit_reward(private, ridge=1.0, method=method)
        for method in ("debiased", "mixture", "auto")
    }
    assert {name: reward.method for name, reward in fits.items()} == {
        "debiased": "debiased", "mixture": "mixture", "auto": "mixture",
    }  # fmt: skip
    np.testing.assert_array_equal(fits["auto"].weights, fits["mixture"].weights)
    # at ‖θ*‖ = 8 the standard error of refining is about half of the debiased one
    assert fits["mixture"].standard_errors.sum() < 0.7 * fits["debiased"].standard_errors.sum()
    for reward in fits.values():
        gap = (reward.weights - theta) / reward.standard_errors
        assert np.abs(gap).max() < 4.5
        # the confidence set is the debiased one's, whatever is returned
        np.testing.assert_array_equal(reward.ellipsoid.center, fits["debiased"].weights)


def test_small_rewards_are_not_refined(linear_world, ledger):
    pairs, _ = linear_world(20_000, 3, size=0.5)
    coin = sordino.RandomizedResponse(1.0)
    private = sordino.privatize(pairs, coin, ledger=ledger(1.0), simulate_seed=5)
    assert sordino.fit_reward(private, ridge=1.0).method == "debiased"


def test_unknown_methods_and_too_many_features_are_refused(linear_world, ledger):
    pairs, _ = linear_world(60, 1100)
    coin = sordino.RandomizedResponse(1.0)
    private = sordino.privatize(pairs, coin, ledger=ledger(1.0), simulate_seed=5)
    with pytest.raises(sordino.UsageError, match="method"):
        sordino.fit_reward(private, ridge=1.0, method="best")
    with pytest.raises(sordino.UsageError, match="1024"):
        sordino.fit_reward(private, ridge=1.0, method="mixture")
    reward = sordino.fit_reward(private, ridge=1.0)
    assert reward.standard_errors is None
    assert reward.ellipsoid is None
    assert sordino.fit_reward(private, ridge=1.0, ellipsoid=True).ellipsoid is not None


def test_answers_that_were_never_flipped_need_no_refining(linear_world, ledger):
    pairs, _ = linear_world(500, 3)
    account = ledger(float("inf"))
    given = {"mechanism": sordino.NonPrivate(), "ledger": account, "ridge": 1.0}
    assert sordino.fit_reward(pairs, **given, method="mixture").method == "debiased"
