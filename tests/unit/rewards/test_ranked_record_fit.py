"""Record fits of rankings: what is minimized, what is clipped, and what is not told."""

import math

import numpy as np
import pytest

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.ranking_objective_perturbation import RankingObjectivePerturbation
from sordino.preferences.rankings import Rankings
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards.ranking_fit import fit_ranked_records
from sordino.rewards.ranking_losses import PlackettLuce
from sordino.rewards.solver import minimize_ridge

DELTA = 1e-6


def account(folder, *, unit="record", neighbors=ADD_OR_REMOVE_ONE, epsilon=math.inf):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=DELTA, unit=unit, neighbors=neighbors, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


def tilted(epsilon=3.0, **settings):
    given = {"bound": 1.0, "candidates": 4, "dimension": 3, "neighbors": ADD_OR_REMOVE_ONE}
    return RankingObjectivePerturbation(epsilon, delta=DELTA, **(given | settings))


def ranked(scores, generator):
    drawn = scores + generator.gumbel(size=scores.shape)
    return (-drawn).argsort(axis=1).argsort(axis=1) + 1


def world(n, k=4, d=3, seed=0):
    generator = np.random.default_rng(seed)
    theta = np.linspace(1.5, -1.5, d)
    cube = generator.normal(size=(n, k, d))
    cube /= np.linalg.norm(cube, axis=2, keepdims=True)
    return Rankings.from_ranks(cube, ranked(cube @ theta, generator)), theta


def election(n, seed=0, **settings):
    worths = np.array([1.0, 0.0, -1.0])
    table = ranked(np.tile(worths, (n, 1)), np.random.default_rng(seed))
    return Rankings.from_ranks(["i0", "i1", "i2"], table, **settings)


def fitted(rankings, folder, mechanism=None, **settings):
    given = {"ball": 9.0, "simulate_seed": 3} | settings
    return fit_ranked_records(rankings, mechanism or tilted(), ledger=account(folder), **given)


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
    monkeypatch.setattr(RankingObjectivePerturbation, "draw", lambda self, d, *, entropy: drawn)
    monkeypatch.setattr(
        RankingObjectivePerturbation, "finish", lambda self, theta, norm, *, entropy: theta
    )
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
    long = Rankings.from_flat(100 * rankings.given, rankings.starts, rankings.ranks)
    one, other = (fitted(r, tmp_path / str(i)) for i, r in enumerate((rankings, long)))
    np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=1e-8)
    loose = fitted(long, tmp_path / "2", tilted(bound=100.0))
    assert np.abs(loose.weights - one.weights).max() > 0.01


def test_items_are_centered_and_shrunk(tmp_path):
    reward = fitted(election(3000), tmp_path / "0", tilted(8.0, candidates=3))
    assert [name for name, *_ in reward.worths()] == ["i0", "i1", "i2"]
    assert reward.worths()[0][2:] == (None, None)
    assert reward.weights.sum() == pytest.approx(0.0, abs=1e-12)
    features = np.array([[2.0], [0.0], [-2.0]])  # of norm 2, where 1 is the bound
    given = fitted(election(3000, features=features), tmp_path / "1", tilted(8.0, dimension=1))
    assert given.item_features.tolist() == features.tolist()
    assert given.weights[0] == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("neighbors", [REPLACE_SPECIAL, REPLACE_ONE])
def test_the_size_is_told_where_it_is_public(tmp_path, neighbors):
    ledger = account(tmp_path, neighbors=neighbors)
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
    ledger, (rankings, _) = account(tmp_path), world(50)
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
        books = account(tmp_path / "person", unit="person") if last else ledger
        with pytest.raises(error) as caught:
            fit_ranked_records(given, noise, ledger=books, ball=5.0)
        assert not any(number in str(caught.value) for number in ("50", "17", "68", "4.25"))
        assert not books.spends
    with pytest.raises(PrivacyError, match="labels"):
        fit_ranked_records(
            rankings,
            tilted(),
            ledger=account(tmp_path / "label", unit="label", neighbors=REPLACE_ONE),
            ball=5.0,
        )


def test_persons_are_a_caveat_whether_ballots_name_them_or_not(tmp_path):
    made = world(20)[0]
    named = Rankings.from_flat(made.given, made.starts, made.ranks, ["ann"] * 20)
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
