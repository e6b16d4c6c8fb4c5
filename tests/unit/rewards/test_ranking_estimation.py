"""Each way from rankings to a reward, by the one public function."""

import math

import numpy as np
import pytest

import sordino
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms.ranking_objective_perturbation import RankingObjectivePerturbation
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.rankings import Rankings
from sordino.preferences.trajectories import Trajectories
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE
from sordino.rewards.ranking_fit import fit_rankings, fit_unprotected_rankings
from sordino.rewards.ranking_losses import PlackettLuce
from sordino.rewards.solver import minimize_ridge

DELTA = 1e-6
WORTHS = np.array([1.0, 0.5, -0.5, -1.0])
SUM = RankingGaussian(1.0, delta=DELTA, statistic="borda")
TILT = RankingObjectivePerturbation(
    3.0, delta=DELTA, bound=1.0, candidates=4, dimension=4, neighbors=ADD_OR_REMOVE_ONE
)


def account(folder, *, unit="label", neighbors=REPLACE_ONE, epsilon=math.inf, delta=DELTA):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=delta, unit=unit, neighbors=neighbors, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


def election(n=400, seed=0, **settings):
    generator = np.random.default_rng(seed)
    drawn = WORTHS + generator.gumbel(size=(n, 4))
    table = (-drawn).argsort(axis=1).argsort(axis=1) + 1
    return Rankings.from_ranks(["i0", "i1", "i2", "i3"], table, **settings)


def test_each_mechanism_has_its_way(tmp_path):
    records = account(tmp_path / "r", unit="record", neighbors=ADD_OR_REMOVE_ONE)
    found = {
        noise: sordino.fit_reward(election(), mechanism=noise, ledger=books, ball=9.0)
        for noise, books in (
            (SUM, account(tmp_path / "a")),
            (TILT, records),
            (sordino.NonPrivate(), account(tmp_path / "b")),
        )
    }
    methods = [reward.method for reward in found.values()]
    assert methods == ["ranking-gaussian", "ranked-perturbation", "plackett-luce"]
    assert [reward.guarantee.epsilon for reward in found.values()] == [1.0, 3.0, math.inf]
    assert [reward.guarantee.unit for reward in found.values()] == ["label", "record", "label"]


def test_without_privacy_it_is_the_likelihood_of_the_ballots(tmp_path):
    rankings, ledger = election(), account(tmp_path, delta=0.0)
    reward = sordino.fit_reward(
        rankings, mechanism=sordino.NonPrivate(), ledger=ledger, ridge=0.5, ball=9.0
    )
    loss = PlackettLuce.of_items(
        np.tile(np.arange(4), 400), 4, starts=rankings.starts, ranks=rankings.ranks
    )
    wanted = minimize_ridge(loss, ridge=0.5, atol=1e-8).theta
    np.testing.assert_allclose(reward.weights, wanted, atol=1e-5)
    bend = loss.hessian(wanted)
    inverse = np.linalg.inv(bend + 0.5 * np.eye(4))
    np.testing.assert_allclose(
        reward.standard_errors, np.sqrt(np.diag(inverse @ bend @ inverse)), rtol=1e-4
    )
    assert math.isinf(ledger.total().epsilon)
    assert sordino.certify(reward, ledger).guarantee.epsilon == math.inf
    assert reward.artifact == rankings.public_digest


def test_errors_without_privacy_cover_the_truth(tmp_path):
    """4 × 50 intervals at 95 %: mean 10 misses; more than 24 have a chance below 1e-4."""
    ledger, misses = account(tmp_path), 0
    for seed in range(50):
        reward = fit_unprotected_rankings(
            election(seed=seed), sordino.NonPrivate(), ledger=ledger, ball=9.0, ridge=1e-3
        )
        assert reward.worth_intervals is None  # the penalty's part of the error is not known
        misses += int((np.abs(reward.weights - WORTHS) > 1.96 * reward.standard_errors).sum())
    assert 1 <= misses <= 24


def test_items_with_features_and_candidates_of_their_own(tmp_path):
    given = np.array([[1.0], [0.5], [-0.5], [-1.0]])
    reward = sordino.fit_reward(
        election(features=given),
        mechanism=sordino.NonPrivate(),
        ledger=account(tmp_path),
        ball=9.0,
    )
    assert reward.weights[0] == pytest.approx(1.0, abs=0.4)
    assert reward.worths()[0][1] == pytest.approx(reward.weights[0])
    made = Rankings.from_flat(np.vstack([given] * 9), np.arange(10) * 4, np.tile([1, 2, 3, 0], 9))
    other = sordino.fit_reward(
        made, mechanism=sordino.NonPrivate(), ledger=account(tmp_path / "b"), ball=9.0
    )
    assert other.items is None


def test_raw_rankings_are_refused_with_the_ways_out():
    with pytest.raises(PrivacyError) as caught:
        sordino.fit_reward(election())
    for way in (
        "RankingGaussian",
        "privatize_choices",
        "RankingObjectivePerturbation",
        "NonPrivate",
    ):
        assert way in str(caught.value)


def test_an_infinite_spend_needs_an_infinite_budget(tmp_path):
    with pytest.raises(BudgetExceeded):
        sordino.fit_reward(
            election(), mechanism=sordino.NonPrivate(), ledger=account(tmp_path, epsilon=2.0)
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": sordino.LabelGaussian(1.0, delta=DELTA)},
        {"mechanism": SUM, "method": "mixture"},
        {"mechanism": SUM, "held_out": np.zeros(400, dtype=bool)},
        {"mechanism": SUM, "second_moment": object()},
        {"mechanism": SUM, "ridge": -1.0},
        {"mechanism": SUM, "ball": 0.0},
        {"mechanism": TILT, "ridge": 1.0},
        {"mechanism": TILT, "ellipsoid": True},
        {"mechanism": sordino.NonPrivate(), "ellipsoid": True},
        {"mechanism": sordino.NonPrivate(), "simulate_seed": 1},
        {"mechanism": sordino.NonPrivate(), "features": "words"},
    ],
)
def test_what_is_refused_spends_nothing(tmp_path, settings):
    ledger = account(tmp_path)
    with pytest.raises(UsageError):
        sordino.fit_reward(election(), ledger=ledger, **settings)
    assert not ledger.spends


def test_a_mechanism_needs_a_ledger_and_raw_rankings(tmp_path, linear_world):
    with pytest.raises(UsageError, match="ledger"):
        sordino.fit_reward(election(), mechanism=SUM)
    with pytest.raises(PrivacyError):
        sordino.fit_reward(linear_world(9, 2)[0], mechanism=SUM, ledger=account(tmp_path))
    with pytest.raises(PrivacyError):
        fit_unprotected_rankings(
            linear_world(9, 2)[0], sordino.NonPrivate(), ledger=account(tmp_path / "b"), ball=9.0
        )
    with pytest.raises(UsageError):
        fit_rankings(election(), SUM, ledger=account(tmp_path / "c"), ball=-1.0)


# --- trajectories -----------------------------------------------------------------------------


def test_trajectories_are_pairs_of_sums(tmp_path):
    generator = np.random.default_rng(0)
    steps = generator.normal(size=(2, 60, 5, 3))
    made = Trajectories.from_steps(*steps, generator.integers(0, 2, 60), feature_bound=0.5)
    bound = made.difference_bound
    records = {"unit": "record", "neighbors": ADD_OR_REMOVE_ONE}

    def fit(given, name, size):
        noise = sordino.ObjectivePerturbation(
            2.0, delta=DELTA, bound=size, neighbors=ADD_OR_REMOVE_ONE
        )
        ledger = account(tmp_path / name, **records)
        return sordino.fit_reward(given, mechanism=noise, ledger=ledger, simulate_seed=1).weights

    assert bound == 5.0
    assert fit(made, "a", bound).tolist() == fit(made.pairs, "b", bound).tolist()
    assert fit(made, "c", 0.1).tolist() != fit(made, "d", bound).tolist()
    labels = sordino.fit_reward(
        made, mechanism=sordino.LabelGaussian(1.0, delta=DELTA), ledger=account(tmp_path / "e")
    )
    assert labels.pairs == 60
    with pytest.raises(PrivacyError, match="raw judgments"):
        sordino.fit_reward(made)
    with pytest.raises(DataError):
        Trajectories.from_steps(steps[0], steps[1][:, :4], np.ones(60))
