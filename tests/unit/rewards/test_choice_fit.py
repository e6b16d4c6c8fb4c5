"""Rewards from first choices that were randomized one by one."""

import math

import numpy as np
import pytest

import sordino
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import KaryRandomizedResponse, debiased_choices
from sordino.preferences.rankings import Rankings
from sordino.privatization.choices import privatize_choices
from sordino.rewards.ranking_fit import ChoiceEvidence, fit_choices

WORTHS = np.array([1.0, 0.3, -0.3, -1.0])


def ranked(scores, generator):
    drawn = scores + generator.gumbel(size=scores.shape)
    return (-drawn).argsort(axis=1).argsort(axis=1) + 1


def election(n, seed=0):
    table = ranked(np.tile(WORTHS, (n, 1)), np.random.default_rng(seed))
    return Rankings.from_ranks(["i0", "i1", "i2", "i3"], table)


def world(n, k=4, d=3, seed=0):
    generator = np.random.default_rng(seed)
    theta, cube = np.array([1.0, -0.5, 0.2]), generator.normal(size=(n, k, d))
    return Rankings.from_ranks(cube, ranked(cube @ theta, generator)), theta


def private(rankings, books, epsilon=2.0, seed=None):
    coin = KaryRandomizedResponse(epsilon, int(rankings.sizes[0]))
    return privatize_choices(rankings, coin, ledger=books, simulate_seed=seed)


def test_the_sum_is_that_of_debiased_answers(ledger):
    """The same in an election, where all ballots are one slate, as one by one."""
    for rankings in (election(50), world(50)[0]):
        made = private(rankings, ledger(2.0))
        loss = ChoiceEvidence.of(made, None).loss
        weights = debiased_choices(made.answers, made.mechanism)
        rows = made.flat_features(None)
        np.testing.assert_allclose(loss.statistic, rows.T @ weights.ravel(), atol=1e-9)
        assert loss.counts.sum() == 50


def test_the_spread_is_that_of_randomized_answers(ledger):
    """By enumeration of the four answers, at weights that are not 0."""
    made = private(election(30), ledger(2.0))
    evidence, coin = ChoiceEvidence.of(made, None), made.mechanism
    loss = evidence.loss
    chances = np.exp(WORTHS) / np.exp(WORTHS).sum()
    other = coin.flip_probability / 3
    answered = other + (1 - coin.flip_probability - other) * chances
    vectors = debiased_choices(np.arange(4), coin)
    mean = answered @ vectors
    np.testing.assert_allclose(mean, chances, atol=1e-12)
    wanted = 30 * ((vectors - mean).T * answered) @ (vectors - mean)
    np.testing.assert_allclose(evidence.spread(WORTHS), wanted, rtol=1e-9, atol=1e-9)
    even = np.trace(evidence.spread(np.zeros(4))) / np.trace(loss.hessian(np.zeros(4)))
    assert even == pytest.approx(evidence.inflation)


def test_the_truth_is_found_within_its_errors(ledger):
    """Six standard errors on 3 weights and 4 worths."""
    rankings, theta = world(20_000)
    reward = fit_choices(private(rankings, ledger(2.0), seed=1), ball=20.0)
    assert (np.abs(reward.weights - theta) < 6 * reward.standard_errors).all()
    assert np.linalg.norm(reward.standard_errors) < 0.2
    worths = fit_choices(private(election(20_000), ledger(2.0), seed=1), ball=20.0)
    assert worths.worth_intervals is None
    assert (np.abs(worths.weights - WORTHS) < 6 * worths.standard_errors).all()


def test_errors_grow_as_the_die_is_less_honest(ledger):
    rankings = election(8000)
    kept, turned = (
        fit_choices(private(rankings, ledger(9.0), epsilon, seed=1), ball=20.0)
        for epsilon in (8.0, 1.0)
    )
    assert (turned.standard_errors > 1.5 * kept.standard_errors).all()


def test_it_is_what_fit_reward_does_and_can_be_certified(ledger, tmp_path):
    books = ledger(2.0)
    made = private(election(500), books)
    reward = sordino.fit_reward(made, ball=20.0)
    assert reward.weights.tolist() == fit_choices(made, ball=20.0).weights.tolist()
    assert (reward.method, reward.pairs) == ("randomized-choice", 500)
    assert sordino.certify(reward, books).guarantee == reward.guarantee
    reward.save(tmp_path / "reward.json")
    assert sordino.RewardModel.load(tmp_path / "reward.json").worths() == reward.worths()


def test_there_is_no_confidence_set_and_nothing_more_to_spend(ledger):
    made = private(election(50), ledger(2.0))
    with pytest.raises(UsageError, match="no radius"):
        sordino.fit_reward(made, ellipsoid=True)
    for settings in (
        {"mechanism": sordino.NonPrivate()},
        {"ledger": ledger(math.inf)},
        {"simulate_seed": 1},
        {"method": "mixture"},
    ):
        with pytest.raises(UsageError):
            sordino.fit_reward(made, **settings)
