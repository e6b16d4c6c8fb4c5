"""One noised sum of rankings: which ballots are in it, and what is said before it is paid for."""

import json
import math

import numpy as np
import pytest

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms import label_sum
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.ranking_files import read_rankings
from sordino.preferences.rankings import Rankings
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.rewards.ranking_fit import ranking_promise, release_rankings
from sordino.rewards.release_checks import entropy_of

DELTA = 1e-6
NOISE = RankingGaussian(1.0, delta=DELTA, statistic="borda")
NAMES = ("ale", "beer", "milk", "tea")


def account(folder, *, unit="label", epsilon=math.inf):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        epsilon, delta=DELTA, unit=unit, neighbors=REPLACE_ONE, trust="central"
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
    np.testing.assert_allclose(evidence.statistic, borda(rankings, range(60)), atol=1e-3)
    assert (evidence.starts.tolist(), evidence.counts.tolist()) == ([0, 4], [60])
    assert evidence.rows.tolist() == np.eye(4).tolist()
    assert released.items == tuple(sorted(NAMES))
    assert repr(released).startswith("ReleasedRankings(RankingEvidence(n=60, d=4), epsilon=")


def test_items_with_features_and_candidates_of_their_own(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    given = np.random.default_rng(2).normal(size=(4, 2))
    for index, rankings in enumerate((election(features=given), slates())):
        released = release_rankings(rankings, NOISE, ledger=account(tmp_path / str(index)))
        wanted = borda(rankings, range(len(rankings)))
        np.testing.assert_allclose(released.evidence.statistic, wanted, atol=1e-3)
        assert len(released.evidence) == len(rankings)
        assert (released.item_features is None) == (rankings.items is None)


def test_texts_are_read_with_features(tmp_path):
    records = [
        {"prompt": f"q{i}", "candidates": ["yes", "no " * (i % 3 + 1), "so"], "ranking": [i % 3]}
        for i in range(30)
    ]
    features = sordino.HashedText(dimension=8)
    released = release_rankings(
        read_rankings(records), NOISE, ledger=account(tmp_path), features=features
    )
    assert released.evidence.statistic.shape == (8,)
    assert released.evidence.feature_bound == features.feature_bound
    assert released.features is features


def test_a_repeat_of_one_person_is_not_counted(tmp_path, monkeypatch):
    without_noise(monkeypatch)
    persons = [f"p{index % 20}" for index in range(60)]
    rankings = election(persons=persons)
    released = release_rankings(rankings, NOISE, ledger=account(tmp_path))
    assert len(released.evidence) == 20
    np.testing.assert_allclose(released.evidence.statistic, borda(rankings, range(20)), atol=1e-3)
    assert "person-group" in released.guarantee.caveats


def test_a_person_with_many_ballots_is_limited_and_the_noise_hides_all_that_count(tmp_path):
    made = slates()
    persons = [f"p{index % 8}" for index in range(40)]
    rankings = Rankings.from_flat(made.given, made.starts, made.ranks, persons)
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
        promise = ranking_promise(rankings, NOISE, ledger, entropy_of(seed))
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


def test_the_ledger_belongs_to_these_slates(tmp_path):
    ledger = account(tmp_path)
    release_rankings(election(), NOISE, ledger=ledger)
    with pytest.raises(sordino.LedgerMismatch):
        release_rankings(slates(), NOISE, ledger=ledger)
