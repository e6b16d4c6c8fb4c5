"""Rankings are released, or fitted as records or as they are, and what is refused."""

import json
import math

import numpy as np
import pytest

import sordino
from sordino import _random
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms import label_sum
from sordino.mechanisms.objective_perturbation import RankingObjectivePerturbation
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.rankings import Rankings, read_rankings
from sordino.preferences.trajectories import Trajectories
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards.label_release import label_promise
from sordino.rewards.ranking_fit import (
    fit_ranked_records,
    fit_rankings,
    release_rankings,
)
from sordino.rewards.ranking_losses import PlackettLuce
from sordino.rewards.solver import minimize_ridge

DELTA = 1e-6
NOISE = RankingGaussian(1.0, delta=DELTA, statistic="borda")
NAMES = ("ale", "beer", "milk", "tea")


def account(folder, *, unit="label", neighbors=REPLACE_ONE, epsilon=math.inf, delta=DELTA):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=delta, unit=unit, neighbors=neighbors, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


def election(n=60, *, seed=0, persons=None, features=None):
    generator = np.random.default_rng(seed)
    table = np.array([generator.permutation(4) + 1 for _ in range(n)]).astype(float)
    table[::5, 1] = np.nan
    return Rankings.from_ranks(NAMES, table, persons, features=features, offered="all")


def slates(n=40, *, k=3, d=4, seed=0):
    generator = np.random.default_rng(seed)
    ranks = np.array([generator.permutation(k) + 1 for _ in range(n)])
    return Rankings.from_ranks(generator.normal(size=(n, k, d)), ranks)


def without_noise(monkeypatch):
    monkeypatch.setattr(label_sum, "with_noise", lambda total, *_: total)


def borda(rankings, rows):
    """Σ w (K − rank)φ by its definition, over some ballots."""
    starts, total = rankings.starts, 0.0
    features, ranks = rankings.flat_features(None), rankings.doubled_ranks() / 2
    for i in rows:
        part = slice(starts[i], starts[i + 1])
        k = starts[i + 1] - starts[i]
        total = total + 2 / (k * (k - 1)) * (k - ranks[part]) @ features[part]
    return total


def test_the_sum_of_an_election_is_that_of_its_ranks(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    rankings = election()
    released = release_rankings(rankings, NOISE, ledger=account(tmp_path))
    evidence = released.evidence
    np.testing.assert_allclose(evidence.loss.statistic, borda(rankings, range(60)), atol=1e-3)
    assert (evidence.loss.starts.tolist(), evidence.loss.counts.tolist()) == ([0, 4], [60])
    assert evidence.loss.features.tolist() == np.eye(4).tolist()
    assert released.evidence.items.names == tuple(sorted(NAMES))
    assert repr(released).startswith(
        "Released(BallotEvidence(ranking-gaussian, n=60, d=4), epsilon="
    )


def test_items_with_features_and_candidates_of_their_own(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    given = np.random.default_rng(2).normal(size=(4, 2))
    for index, rankings in enumerate((election(features=given), slates())):
        released = release_rankings(rankings, NOISE, ledger=account(tmp_path / str(index)))
        wanted = borda(rankings, range(len(rankings)))
        np.testing.assert_allclose(released.evidence.loss.statistic, wanted, atol=1e-3)
        assert len(released.evidence) == len(rankings)
        assert (released.evidence.items is None) == (rankings.items is None)


def test_texts_are_read_with_features(tmp_path):
    records = [
        {"prompt": f"q{i}", "candidates": ["yes", "no " * (i % 3 + 1), "so"], "ranking": [i % 3]}
        for i in range(30)
    ]
    features = sordino.HashedText(dimension=8)
    released = release_rankings(
        read_rankings(records), NOISE, ledger=account(tmp_path), features=features
    )
    assert released.evidence.loss.statistic.shape == (8,)
    assert released.evidence.feature_bound == features.feature_bound
    assert released.features is features


def test_a_repeat_of_one_person_is_not_counted(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    persons = [f"p{index % 20}" for index in range(60)]
    rankings = election(persons=persons)
    released = release_rankings(rankings, NOISE, ledger=account(tmp_path))
    assert len(released.evidence) == 20
    np.testing.assert_allclose(
        released.evidence.loss.statistic, borda(rankings, range(20)), atol=1e-3
    )
    assert "person-group" in released.guarantee.caveats


def test_a_person_with_many_ballots_is_limited_and_the_noise_hides_all_that_count(tmp_path):
    made = slates()
    persons = [f"p{index % 8}" for index in range(40)]
    rankings = Rankings.from_ranks(made.given.reshape(40, 3, 4), made.ranks.reshape(40, 3), persons)
    noise = RankingGaussian(1.0, delta=DELTA, statistic="borda", records_per_person=3)
    ledger = account(tmp_path, unit="person")
    released = release_rankings(rankings, noise, ledger=ledger)
    assert len(released.evidence) == 24
    assert released.guarantee.unit == "person"
    assert "labels-only" in released.guarantee.caveats
    assert json.loads(ledger.spends[-1].payload)["details"] == {"cap": 3}
    one = release_rankings(made, NOISE, ledger=account(tmp_path / "label"))
    assert np.trace(released.evidence.covariance) > 2 * np.trace(one.evidence.covariance)


def test_the_promise_is_known_before_the_release(tmp_path):
    rankings, ledger = election(), account(tmp_path)
    for seed in (None, 3):
        promise = label_promise(rankings, NOISE, ledger, _random.entropy(seed))
        assert (
            release_rankings(rankings, NOISE, ledger=ledger, simulate_seed=seed).guarantee
            == promise
        )
        assert promise.simulated == (seed == 3)
        assert "repeats-not-linked" in promise.caveats


def test_a_large_delta_is_refused_before_the_spend(tmp_path):
    noise = RankingGaussian(1.0, delta=0.05, statistic="borda")
    ledger = account(tmp_path)
    with pytest.raises(UsageError, match="1/n"):
        release_rankings(election(), noise, ledger=ledger)
    assert not ledger.spends


def test_what_is_refused_spends_nothing(tmp_path, linear_world):
    ledger, rankings = account(tmp_path), election()
    capped = RankingGaussian(1.0, delta=DELTA, statistic="borda", records_per_person=1)
    pairs = linear_world(10, 2)[0]
    refused = [
        (PrivacyError, pairs, NOISE, {}),
        (UsageError, rankings, sordino.LabelGaussian(1.0, delta=DELTA), {}),
        (DataError, rankings, capped, {}),
        (UsageError, rankings, NOISE, {"simulate_seed": -1}),
        (UsageError, slates(), NOISE, {"features": sordino.HashedText()}),
    ]
    for error, given, noise, settings in refused:
        with pytest.raises(error):
            release_rankings(given, noise, ledger=ledger, **settings)
    with pytest.raises(PrivacyError):
        release_rankings(rankings, NOISE, ledger=account(tmp_path / "person", unit="person"))
    assert not ledger.spends


def test_ballots_written_best_first_are_refused(tmp_path):
    made = slates()
    turned = made.given.reshape(40, 3, 4)[:, ::-1].reshape(120, 4)
    other = Rankings(
        keys=made.keys,
        public_digest=made.public_digest,
        starts=made.starts,
        ranks=made.ranks,
        given=turned,
    )
    with pytest.raises(PrivacyError, match="canonical order"):
        release_rankings(other, NOISE, ledger=account(tmp_path))


WORTHS = np.array([1.0, 0.5, -0.5, -1.0])
SUM = RankingGaussian(1.0, delta=DELTA, statistic="borda")
TILT = RankingObjectivePerturbation(
    3.0,
    delta=DELTA,
    bound=1.0,
    candidates=4,
    dimension=4,
    neighbors=ADD_OR_REMOVE_ONE,
)


def ranked(scores, generator):
    drawn = scores + generator.gumbel(size=scores.shape)
    return (-drawn).argsort(axis=1).argsort(axis=1) + 1


def drawn_election(n=400, seed=0, worths=WORTHS, **settings):
    table = ranked(np.tile(worths, (n, 1)), np.random.default_rng(seed))
    return Rankings.from_ranks([f"i{i}" for i in range(len(worths))], table, **settings)


def test_each_mechanism_has_its_way(tmp_path):
    records = account(tmp_path / "r", unit="record", neighbors=ADD_OR_REMOVE_ONE)
    found = {
        noise: sordino.fit_reward(drawn_election(), mechanism=noise, ledger=books, ball=9.0)
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
    rankings, ledger = (
        drawn_election(),
        account(tmp_path, delta=0.0),
    )
    reward = sordino.fit_reward(
        rankings, mechanism=sordino.NonPrivate(), ledger=ledger, ridge=0.5, ball=9.0
    )
    loss = PlackettLuce(np.tile(np.eye(4), (400, 1)), starts=rankings.starts, ranks=rankings.ranks)
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


@pytest.mark.deep
def test_errors_without_privacy_cover_the_truth(tmp_path):
    """4 × 50 intervals at 95 %: mean 10 misses; more than 24 have a chance below 1e-4."""
    ledger, misses = account(tmp_path), 0
    for seed in range(50):
        reward = fit_rankings(
            drawn_election(seed=seed),
            sordino.NonPrivate(),
            ledger=ledger,
            ball=9.0,
            ridge=1e-3,
        )
        assert reward.worth_intervals is None  # the penalty's part of the error is not known
        misses += int((np.abs(reward.weights - WORTHS) > 1.96 * reward.standard_errors).sum())
    assert 1 <= misses <= 24


def test_items_with_features_and_other_candidates_without_privacy(tmp_path):
    given = np.array([[1.0], [0.5], [-0.5], [-1.0]])
    reward = sordino.fit_reward(
        drawn_election(features=given),
        mechanism=sordino.NonPrivate(),
        ledger=account(tmp_path),
        ball=9.0,
    )
    assert reward.weights[0] == pytest.approx(1.0, abs=0.4)
    assert reward.worths()[0][1] == pytest.approx(reward.weights[0])
    made = Rankings.from_ranks([given] * 9, [[1, 2, 3, 0]] * 9, unlisted=0)
    other = sordino.fit_reward(
        made,
        mechanism=sordino.NonPrivate(),
        ledger=account(tmp_path / "b"),
        ball=9.0,
    )
    assert other.items is None


def test_raw_rankings_are_refused_with_the_ways_out():
    with pytest.raises(PrivacyError) as caught:
        sordino.fit_reward(drawn_election())
    for way in (
        "RankingGaussian",
        "privatize_choices",
        "RankingObjectivePerturbation",
        "NonPrivate",
    ):
        assert way in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": sordino.LabelGaussian(1.0, delta=DELTA)},
        {"mechanism": SUM, "method": "mixture"},
        {"mechanism": SUM, "held_out": True},
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
def test_settings_that_are_refused_spend_nothing(tmp_path, settings):
    ledger = account(tmp_path)
    with pytest.raises(UsageError):
        sordino.fit_reward(drawn_election(), ledger=ledger, **settings)
    assert not ledger.spends


def test_a_mechanism_needs_a_ledger_and_raw_rankings(tmp_path, linear_world):
    with pytest.raises(UsageError, match="ledger"):
        sordino.fit_reward(drawn_election(), mechanism=SUM)
    with pytest.raises(PrivacyError):
        sordino.fit_reward(linear_world(9, 2)[0], mechanism=SUM, ledger=account(tmp_path))
    with pytest.raises(PrivacyError):
        fit_rankings(
            linear_world(9, 2)[0],
            sordino.NonPrivate(),
            ledger=account(tmp_path / "b"),
            ball=9.0,
        )
    with pytest.raises(UsageError):
        fit_rankings(
            drawn_election(),
            SUM,
            ledger=account(tmp_path / "c"),
            ball=-1.0,
        )


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
        made,
        mechanism=sordino.LabelGaussian(1.0, delta=DELTA),
        ledger=account(tmp_path / "e"),
    )
    assert labels.pairs == 60
    with pytest.raises(PrivacyError, match="raw judgments"):
        sordino.fit_reward(made)
    with pytest.raises(DataError):
        Trajectories.from_steps(steps[0], steps[1][:, :4], np.ones(60))


def of_records(folder, *, unit="record", neighbors=ADD_OR_REMOVE_ONE, epsilon=math.inf):
    return account(folder, unit=unit, neighbors=neighbors, epsilon=epsilon)


def tilted(epsilon=3.0, **settings):
    given = {"bound": 1.0, "candidates": 4, "dimension": 3, "neighbors": ADD_OR_REMOVE_ONE}
    return RankingObjectivePerturbation(epsilon, delta=DELTA, **(given | settings))


def world(n, k=4, d=3, seed=0):
    generator = np.random.default_rng(seed)
    theta = np.linspace(1.5, -1.5, d)
    cube = generator.normal(size=(n, k, d))
    cube /= np.linalg.norm(cube, axis=2, keepdims=True)
    return Rankings.from_ranks(cube, ranked(cube @ theta, generator)), theta


def fitted(rankings, folder, mechanism=None, **settings):
    given = {"ball": 9.0, "simulate_seed": 3} | settings
    return fit_ranked_records(rankings, mechanism or tilted(), ledger=of_records(folder), **given)


def test_a_large_epsilon_finds_the_reward(tmp_path):
    rankings, theta = world(20_000)
    found = fitted(rankings, tmp_path, tilted(20.0))
    assert np.linalg.norm(found.weights - theta) < 0.15
    assert found.guarantee.caveats == ("person-group", "real-arithmetic", "simulated")
    assert (found.pairs, found.standard_errors, found.ellipsoid) == (None, None, None)


def test_what_is_minimized_is_the_tilted_likelihood(tmp_path, monkeypatch):
    rankings, _ = world(300)
    noise = tilted()
    drawn = np.array([4.0, -2.0, 1.0])

    def release(self, minimize, **_):
        return minimize(drawn).theta

    monkeypatch.setattr(RankingObjectivePerturbation, "release", release)
    found = fitted(rankings, tmp_path, noise)
    loss = PlackettLuce(rankings.given, starts=rankings.starts, ranks=rankings.ranks)
    gradient = loss.gradient(found.weights) + drawn + noise.ridge * found.weights
    assert np.linalg.norm(gradient) < 1e-7
    assert (
        np.linalg.norm(found.weights - minimize_ridge(loss, ridge=noise.ridge, atol=1e-8).theta)
        > 1e-3
    )


def test_a_part_of_a_tilted_loss_has_its_share_of_the_tilt():
    rankings, _ = world(10)
    known = {"starts": rankings.starts, "ranks": rankings.ranks}
    loss = PlackettLuce(rankings.given, **known, pull=np.ones(3))
    assert loss.sample(5).linear_term.tolist() == [0.2] * 3
    assert len(loss.sample(5).starts) == 3


def test_long_features_are_shrunk_to_the_bound(tmp_path):
    rankings, _ = world(200)
    cube = 100 * rankings.given.reshape(200, 4, 3)
    long = Rankings.from_ranks(cube, rankings.ranks.reshape(200, 4))
    one, other = (fitted(r, tmp_path / str(i)) for i, r in enumerate((rankings, long)))
    np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=1e-8)
    loose = fitted(long, tmp_path / "2", tilted(bound=100.0))
    assert np.abs(loose.weights - one.weights).max() > 0.01


def test_items_are_centered_and_shrunk(tmp_path):
    three = {"worths": [1.0, 0.0, -1.0]}
    reward = fitted(drawn_election(3000, **three), tmp_path / "0", tilted(8.0, candidates=3))
    assert [name for name, *_ in reward.worths()] == ["i0", "i1", "i2"]
    assert reward.worths()[0][2:] == (None, None)
    assert reward.weights.sum() == pytest.approx(0.0, abs=1e-12)
    features = np.array([[2.0], [0.0], [-2.0]])  # of norm 2, where 1 is the bound
    given = fitted(
        drawn_election(3000, features=features, **three),
        tmp_path / "1",
        tilted(8.0, dimension=1),
    )
    assert given.item_features.tolist() == features.tolist()
    assert given.weights[0] == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("neighbors", [REPLACE_SPECIAL, REPLACE_ONE])
def test_the_size_is_told_where_it_is_public(tmp_path, neighbors):
    ledger = of_records(tmp_path, neighbors=neighbors)
    noise = tilted(neighbors=neighbors)
    found = fit_ranked_records(world(50)[0], noise, ledger=ledger, ball=5.0)
    assert found.pairs == 50
    assert found.guarantee.neighbors == neighbors
    assert sordino.certify(found, ledger).guarantee == found.guarantee


def test_a_large_delta_is_refused_by_the_size_only_where_that_is_public(tmp_path):
    rankings = world(50)[0]
    loose = {"bound": 1.0, "candidates": 4, "dimension": 3}
    for neighbors, said in ((ADD_OR_REMOVE_ONE, "below 0.001"), (REPLACE_SPECIAL, "1/n=1/50")):
        noise = RankingObjectivePerturbation(1.0, delta=0.05, neighbors=neighbors, **loose)
        budget = sordino.Guarantee(
            1.0, delta=0.05, unit="record", neighbors=neighbors, trust="central"
        )
        path = tmp_path / f"{neighbors.name}.db"
        ledger = sordino.Ledger.open(path, data="test", budget=budget)
        with pytest.raises(UsageError, match=said):
            fit_ranked_records(rankings, noise, ledger=ledger, ball=5.0)
        assert not ledger.spends


def test_what_is_refused_spends_nothing_and_names_no_record(tmp_path, linear_world):
    ledger, (rankings, _) = of_records(tmp_path), world(50)
    broken = world(50)[0]
    broken.given[17] = np.nan
    for error, given, noise in (
        (PrivacyError, linear_world(9, 3)[0], tilted()),
        (UsageError, rankings, sordino.NonPrivate()),
        (DataError, rankings, tilted(candidates=3)),
        (DataError, rankings, tilted(dimension=2)),
        (DataError, broken, tilted()),
        (PrivacyError, rankings, tilted()),
    ):
        last = error is PrivacyError and given is rankings
        books = of_records(tmp_path / "person", unit="person") if last else ledger
        with pytest.raises(error) as caught:
            fit_ranked_records(given, noise, ledger=books, ball=5.0)
        assert not any(number in str(caught.value) for number in ("50", "17", "68", "4.25"))
        assert not books.spends
    with pytest.raises(PrivacyError, match="labels"):
        fit_ranked_records(
            rankings,
            tilted(),
            ledger=of_records(tmp_path / "label", unit="label", neighbors=REPLACE_ONE),
            ball=5.0,
        )


def test_persons_are_a_caveat_whether_ballots_name_them_or_not(tmp_path):
    made = world(20)[0]
    cube = made.given.reshape(20, 4, 3)
    named = Rankings.from_ranks(cube, made.ranks.reshape(20, 4), ["ann"] * 20)
    promise = fitted(named, tmp_path / "named").guarantee
    assert "person-group" in promise.caveats
    assert fitted(made, tmp_path / "nameless").guarantee == promise


@pytest.mark.parametrize("n", [1, 50])
def test_no_fit_is_refused_where_rounding_ends_it(tmp_path, n):
    noise = tilted()
    with pytest.raises(UsageError, match="rounding alone may leave more"):
        tilted(atol=1e-10)
    usual = fitted(world(n)[0], tmp_path / "a", noise)
    object.__setattr__(noise, "atol", 1e-300)
    strained = fitted(world(n)[0], tmp_path / "b", noise)
    assert np.linalg.norm(strained.weights - usual.weights) < 1e-3
