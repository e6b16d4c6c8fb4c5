from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino.environments.linear_worlds import LinearPreferences
from sordino.policies.pessimism import pessimistic_policy

TEMPERATURE = 0.25


def linear(**changes):
    settings = {"dimension": 3, "actions": 4, "size": 2.0, "seed": 0} | changes
    return LinearPreferences.random(**settings)


def test_the_same_seed_gives_the_same_world_and_equal_seeds_share_no_numbers():
    world = linear()
    assert np.array_equal(world.weights, linear().weights)
    assert not np.array_equal(world.weights, linear(seed=1).weights)
    contexts = world.contexts(5, seed=0)
    assert np.array_equal(contexts, world.contexts(5, seed=0))
    # the first action must not point where the weights of the same seed do
    assert abs(contexts[0, 0] @ world.weights) < 1.99
    one, other = (world.comparisons(50, seed=4) for _ in range(2))
    assert np.array_equal(one.differences, other.differences)
    assert np.array_equal(one.labels, other.labels)


def test_sizes_and_norms_are_as_stated():
    world = linear(size=1.5)
    contexts = world.contexts(7, seed=2)
    assert contexts.shape == (7, 4, 3)
    assert np.linalg.norm(contexts, axis=2) == pytest.approx(np.ones((7, 4)))
    assert np.linalg.norm(world.weights) == pytest.approx(1.5)
    assert world.rewards(contexts)[3, 1] == pytest.approx(contexts[3, 1] @ world.weights)
    assert world.reference(contexts) == pytest.approx(np.full((7, 4), 0.25))


def test_comparisons_leave_out_identical_answers_and_follow_the_reward():
    # n = 80,000: the share of identical pairs (1/4) and, in five bins of the true gap, the share
    # of first wins, each within 4.9 standard errors: false alarm below 1e-5. Power: answers drawn
    # without replacement or always the better one are off by more than 50 of them.
    n, world = 80_000, linear()
    found = world.comparisons(n, seed=1)
    rows = len(found.labels)
    assert found.drawn == n
    assert found.differences.shape == (rows, 3)
    assert abs(rows / n - 0.75) < 4.9 * np.sqrt(0.75 * 0.25 / n)
    gaps = found.differences @ world.weights
    for part in np.array_split(np.argsort(gaps), 5):
        chance = expit(gaps[part])
        error = np.sqrt((chance * (1 - chance)).sum())
        assert abs(found.labels[part].sum() - chance.sum()) < 4.9 * error
    # differences of two independent uniform unit vectors: E xxᵀ = 2I/d
    second = found.differences.T @ found.differences / rows
    assert second == pytest.approx(2 / 3 * np.eye(3), abs=0.02)


def test_regret_is_zero_for_the_best_policy_only():
    world = linear()
    contexts = world.contexts(50, seed=3)
    best = world.best_policy(contexts, temperature=TEMPERATURE)
    assert 0 <= world.regret(best, contexts, temperature=TEMPERATURE) < 1e-15
    reference = world.reference(contexts)
    assert world.regret(reference, contexts, temperature=TEMPERATURE) > 0.1
    # the reference loses what its KL to the best policy says
    divergence = (reference * np.log(reference / best)).sum(axis=1).mean()
    assert world.regret(reference, contexts, temperature=TEMPERATURE) == pytest.approx(
        TEMPERATURE * divergence
    )


def test_comparisons_cross_by_the_front_door(ledger):
    # Power: with labels ignored or turned, the regret is above the reference's (1.1).
    world = linear()
    contexts = world.contexts(200, seed=9)
    pairs = world.comparisons(4000, seed=1).pairs()
    coin = sordino.RandomizedResponse(2.0)
    answers = sordino.privatize(pairs, coin, ledger=ledger(2.0), simulate_seed=7)
    reward = sordino.fit_reward(answers, ridge=1.0, ball=4.0)
    policy = pessimistic_policy(reward, temperature=TEMPERATURE, scale=0.0)
    regret = world.regret(
        np.stack(policy.probabilities(None, list(contexts))), contexts, temperature=TEMPERATURE
    )
    reference = world.regret(world.reference(contexts), contexts, temperature=TEMPERATURE)
    assert regret < 0.05 * reference


def test_raw_judgments_are_not_printed():
    assert repr(linear().comparisons(10, seed=0)).startswith("Judgments(n=")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"dimension": 0}, "dimension"),
        ({"actions": 1}, "actions"),
        ({"size": 0.0}, "size"),
        ({"size": np.inf}, "size"),
    ],
)
def test_worlds_out_of_range_are_refused(change, match):
    with pytest.raises(sordino.UsageError, match=match):
        linear(**change)


@pytest.mark.parametrize("weights", [np.ones((2, 2)), np.array([]), np.array([np.nan])])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(sordino.DataError, match="weights"):
        LinearPreferences(weights=weights, actions=2)


def test_no_comparison_and_no_context_are_refused():
    for draw in (linear().comparisons, linear().contexts):
        with pytest.raises(sordino.UsageError, match="n must be"):
            draw(0, seed=0)
