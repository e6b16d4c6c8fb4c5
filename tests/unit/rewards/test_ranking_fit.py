"""Fits of one released sum of rankings: the objective, its ridge, errors and confidence sets."""

import math

import numpy as np
import pytest

import sordino
from sordino.errors import UsageError
from sordino.mechanisms import label_sum
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.rankings import Rankings
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.rewards import ranking_fit
from sordino.rewards.confidence import ranking_covariance
from sordino.rewards.model import RewardModel
from sordino.rewards.ranking_fit import fit_released_rankings, release_rankings

DELTA = 1e-6


def account(folder):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        math.inf, delta=DELTA, unit="label", neighbors=REPLACE_ONE, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


def plackett_luce(scores, generator):
    """Ranks of orders drawn from the model: the largest of scores and Gumbel noise is first."""
    drawn = scores + generator.gumbel(size=scores.shape)
    return (-drawn).argsort(axis=1).argsort(axis=1) + 1


def world(n, k, d, *, size=1.5, seed=0):
    generator = np.random.default_rng(seed)
    theta = generator.normal(size=d)
    theta *= size / np.linalg.norm(theta)
    cube = generator.normal(size=(n, k, d)) / math.sqrt(d)
    return Rankings.from_ranks(cube, plackett_luce(cube @ theta, generator)), theta


def election(worths, n, seed=0):
    generator = np.random.default_rng(seed)
    table = plackett_luce(np.tile(worths, (n, 1)), generator)
    return Rankings.from_ranks([f"i{index}" for index in range(len(worths))], table)


def noise(epsilon=3.0, statistic="borda", **given):
    return RankingGaussian(epsilon, delta=DELTA, statistic=statistic, **given)


@pytest.fixture(name="released")
def _released(tmp_path):
    return release_rankings(world(4000, 4, 3)[0], noise(), ledger=account(tmp_path))


@pytest.mark.parametrize("statistic", ["borda", "first-choice"])
def test_the_truth_is_found_within_its_errors(tmp_path, statistic):
    """False alarms: 6 standard errors, which are conservative, on each of 3 weights: < 1e-8."""
    rankings, theta = world(20_000, 4, 3)
    released = release_rankings(rankings, noise(statistic=statistic), ledger=account(tmp_path))
    reward = fit_released_rankings(released, ball=20.0)
    assert (np.abs(reward.weights - theta) < 6 * reward.standard_errors).all()
    assert np.linalg.norm(reward.standard_errors) < 0.1
    assert (reward.pairs, reward.items) == (20_000, None)
    assert reward.gradient_norm <= reward.atol


def test_errors_are_the_sandwich(released):
    reward = fit_released_rankings(released, ball=20.0, ridge=2.0)
    evidence = released.evidence
    covariance = ranking_covariance(evidence.loss, reward.weights, evidence.covariance, ridge=2.0)
    np.testing.assert_allclose(reward.standard_errors, np.sqrt(np.diag(covariance)))


def test_errors_of_worths_cover_the_truth(tmp_path):
    """Intervals hold the centered truth at least as often as they say: 95 % of 7 × 40.

    They are conservative, so a miss is rarer than 5 %; more than 28 misses of 280 (independent
    at 5 %: mean 14) have a chance below 3e-4.
    """
    worths = np.array([1.0, 0.8, 0.5, 0.0, -0.3, -0.8, -1.2])
    misses, ledger = 0, account(tmp_path)
    for seed in range(40):
        released = release_rankings(
            election(worths, 1000, seed), noise(), ledger=ledger, simulate_seed=seed
        )
        for name, _, low, high in fit_released_rankings(released, ball=20.0).worths():
            misses += not low <= worths[int(name[1])] <= high
    assert misses <= 28


def test_worths_of_an_election(tmp_path):
    released = release_rankings(
        election(np.linspace(2, -2, 5), 3000), noise(), ledger=account(tmp_path)
    )
    reward = fit_released_rankings(released, ball=20.0)
    assert [name for name, *_ in reward.worths()] == ["i0", "i1", "i2", "i3", "i4"]
    assert reward.weights.sum() == pytest.approx(0.0, abs=1e-12)
    assert all(low < worth < high for _, worth, low, high in reward.worths())
    assert reward.features is None


def test_two_candidates_are_a_pair(tmp_path):
    """The same seed draws the same noise, so that only the grids differ."""
    rankings, _ = world(500, 2, 3, seed=4)
    one = sordino.fit_reward(
        rankings,
        mechanism=noise(shaped=False),
        ledger=account(tmp_path / "a"),
        simulate_seed=5,
        ridge=1.0,
    )
    other = sordino.fit_reward(
        rankings.as_pairs(),
        mechanism=sordino.LabelGaussian(3.0, delta=DELTA, shaped=False),
        ledger=account(tmp_path / "b"),
        simulate_seed=5,
        ridge=1.0,
    )
    assert one.ridge == pytest.approx(other.ridge, rel=1e-5)
    np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=2e-4)
    np.testing.assert_allclose(one.standard_errors, other.standard_errors, rtol=1e-3)


def test_the_chosen_ridge_is_near_the_best(tmp_path):
    """On average over 12 worlds the squared error of the weights that the criterion chooses is at
    most 1.3 times that of the best ridge of its grid; the worst is eight times as bad."""
    chosen, fixed = [], []
    for seed in range(12):
        rankings, theta = world(1000, 4, 10, seed=seed)
        released = release_rankings(
            rankings, noise(1.0), ledger=account(tmp_path / str(seed)), simulate_seed=seed
        )
        reward = fit_released_rankings(released, ball=20.0)
        chosen.append(np.sum((reward.weights - theta) ** 2))
        middle = released.evidence.feature_bound**2 * released.evidence.inflation
        fits = [
            fit_released_rankings(released, ball=20.0, ridge=middle * 4.0**power)
            for power in ranking_fit._POWERS
        ]
        fixed.append([np.sum((fit.weights - theta) ** 2) for fit in fits])
    best = np.mean(fixed, axis=0).min()
    worst = np.mean(fixed, axis=0).max()
    assert np.mean(chosen) < 1.3 * best
    assert worst > 5 * best


def test_wide_features_take_the_usual_ridge(released, monkeypatch):
    monkeypatch.setattr(ranking_fit, "MOST_FEATURES", 2)
    reward = fit_released_rankings(released, ball=20.0)
    evidence = released.evidence
    assert reward.ridge == evidence.feature_bound**2 * evidence.inflation
    assert reward.standard_errors is None


def test_a_confidence_set_is_only_kept_on_a_declaration(released):
    """Nothing that ballots say decides whether there is one."""
    assert fit_released_rankings(released, ball=3.0).ellipsoid is None
    assert fit_released_rankings(released, ball=3.0, ellipsoid=False).ellipsoid is None
    reward = fit_released_rankings(released, ball=3.0, ellipsoid=True)
    assert reward.ellipsoid.candidates == len(ranking_fit._POWERS)
    theta = world(4000, 4, 3)[1]
    gap = reward.weights - theta
    radius = reward.ellipsoid.radius(0.95)
    assert math.sqrt(gap @ reward.ellipsoid.metric @ gap) < radius
    assert (
        fit_released_rankings(released, ball=3.0, ridge=1.0, ellipsoid=True).ellipsoid.candidates
        == 1
    )


def test_incomplete_ballots_change_nothing_but_the_sum(tmp_path, monkeypatch):
    """Complete or not, with one and the same noised sum the reward is one and the same."""
    monkeypatch.setattr(label_sum, "with_noise", lambda total, *_: np.full_like(total, 1 << 20))
    found = []
    for index, short in enumerate((False, True)):
        table = np.tile([1.0, 2.0, 3.0], (50, 1))
        if short:
            table[:, 1:] = np.nan
        rankings = Rankings.from_ranks(["a", "b", "c"], table, offered="all")
        released = release_rankings(rankings, noise(), ledger=account(tmp_path / str(index)))
        reward = fit_released_rankings(released, ball=5.0, ellipsoid=True)
        found.append({**reward.to_dict(), "release_ids": None, "artifact": None})
    assert found[0] == found[1]


@pytest.mark.parametrize("settings", [{"ball": 0.0}, {"ball": 1.0, "ridge": -1.0}])
def test_settings_out_of_range(released, settings):
    with pytest.raises(UsageError):
        fit_released_rankings(released, **settings)


def test_the_ball_binds(released):
    reward = fit_released_rankings(released, ball=0.1)
    assert np.linalg.norm(reward.weights) == pytest.approx(0.1, rel=1e-6)


def test_a_reward_survives_its_file_and_its_certificate(tmp_path):
    ledger = account(tmp_path)
    reward = sordino.fit_reward(
        election([1.0, 0.0, -1.0], 200), mechanism=noise(), ledger=ledger, ball=5.0
    )
    reward.save(tmp_path / "reward.json")
    back = RewardModel.load(tmp_path / "reward.json")
    assert back.to_dict() == reward.to_dict()
    assert back.worths() == reward.worths()
    assert sordino.certify(back, ledger).guarantee == reward.guarantee
