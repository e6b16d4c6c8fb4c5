from __future__ import annotations

import numpy as np
import pytest

import sordino
from sordino.policies.gibbs import gibbs_policy
from sordino.rewards.model import RewardModel

PROMPTS = ["a", "b", "c"]
CANDIDATES = [["one", "two"], ["three"], ["four", "five", "six six"]]


@pytest.fixture
def reward(budget) -> RewardModel:
    return RewardModel(
        weights=np.random.default_rng(0).normal(size=64) * 5,
        features=sordino.HashedText(dimension=64),
        guarantee=budget(1.0),
        ridge=1.0,
        ball=20.0,
        gradient_norm=0.0,
        atol=1e-9,
        pairs=10,
    )


def test_probabilities_are_the_reference_tilted_by_reward(reward):
    policy = gibbs_policy(reward, temperature=0.7)
    reference = [[0.2, 0.8], [1.0], [0.1, 0.3, 0.6]]
    found = policy.probabilities(PROMPTS, CANDIDATES, reference=reference)
    for prompt, options, base, chances in zip(PROMPTS, CANDIDATES, reference, found, strict=True):
        weights = np.array(base) * np.exp(reward.score([prompt] * len(options), options) / 0.7)
        np.testing.assert_allclose(chances, weights / weights.sum(), rtol=1e-12)


def test_the_policy_maximizes_reward_minus_temperature_times_kl(reward):
    """Claim: KLDP, equation (1): the optimal KL-regularized policy is the Gibbs policy
    Verdict: true
    Ours: sordino.gibbs_policy: KLDP's η is the temperature

    Claim: PPKL, equation (5): the optimal KL-regularized policy is the Gibbs policy
    Verdict: true
    Ours: sordino.gibbs_policy: PPKL's η is the inverse of the temperature
    """
    temperature = 0.4
    policy = gibbs_policy(reward, temperature=temperature)
    best = policy.expected_reward(PROMPTS, CANDIDATES) - temperature * policy.kl(
        PROMPTS, CANDIDATES
    )
    generator = np.random.default_rng(1)
    for row, options in enumerate(CANDIDATES):
        scores = reward.score([PROMPTS[row]] * len(options), options)
        for _ in range(200):
            other = generator.dirichlet(np.ones(len(options)))
            value = other @ scores - temperature * (other @ np.log(other * len(options)))
            assert value <= best[row] + 1e-12


def test_a_hot_policy_is_the_reference_and_a_cold_one_the_best_candidate(reward):
    hot = gibbs_policy(reward, temperature=1e9).probabilities(PROMPTS, CANDIDATES)
    np.testing.assert_allclose(hot[2], 1 / 3, atol=1e-6)
    cold = gibbs_policy(reward, temperature=1e-9)
    scores = reward.score(["c"] * 3, CANDIDATES[2])
    assert cold.probabilities(PROMPTS, CANDIDATES)[2][scores.argmax()] == 1.0
    assert np.isfinite(cold.kl(PROMPTS, CANDIDATES)).all()


def test_draws_follow_the_probabilities(reward):
    # False alarm 1e-5 per cell: |deviation| > 4.5 standard errors; power: a swap of the two
    # candidates would be off by more than 20 standard errors.
    policy = gibbs_policy(reward, temperature=2.0)
    n = 20_000
    chance = policy.probabilities(["c"], [CANDIDATES[2]])[0]
    drawn = policy.sample(["c"] * n, [CANDIDATES[2]] * n, simulate_seed=3)
    shares = np.bincount(drawn, minlength=3) / n
    assert (abs(shares - chance) < 4.5 * np.sqrt(chance * (1 - chance) / n) + 1e-12).all()


def test_draws_repeat_with_a_seed_and_differ_without(reward):
    policy = gibbs_policy(reward, temperature=5.0)
    many = (["c"] * 200, [CANDIDATES[2]] * 200)
    assert (policy.sample(*many, simulate_seed=1) == policy.sample(*many, simulate_seed=1)).all()
    assert (policy.sample(*many) != policy.sample(*many)).any()


def test_a_policy_needs_a_released_reward_and_a_temperature(reward):
    with pytest.raises(sordino.PrivacyError, match="RewardModel"):
        gibbs_policy("reward", temperature=1.0)
    for temperature in (0, float("nan"), float("inf"), "hot"):
        with pytest.raises(sordino.UsageError, match="temperature"):
            gibbs_policy(reward, temperature=temperature)


def test_unusable_candidates_are_refused_without_quoting_them(reward):
    policy = gibbs_policy(reward, temperature=1.0)
    with pytest.raises(sordino.DataError, match="entry 1 is empty"):
        policy.probabilities(["SECRET", "b"], [["SECRET"], []])
    with pytest.raises(sordino.DataError, match="2 prompts, but 1"):
        policy.probabilities(["a", "b"], [["x"]])
    with pytest.raises(sordino.DataError, match="one probability for each"):
        policy.kl(["a"], [["x", "y"]], reference=[[1.0]])
    with pytest.raises(sordino.DataError, match="sum to 1"):
        policy.kl(["a"], [["x", "y"]], reference=[[0.5, 0.6]])
