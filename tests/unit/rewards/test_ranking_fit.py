"""From released ballots to a reward: evidence, choices, worths and their errors."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.tiers import few

import sordino
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import KaryRandomizedResponse, debiased_choices
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.rankings import Rankings
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privatization.answers import privatize_choices
from sordino.rewards import ranking_fit
from sordino.rewards.leaderboard import Ballots, Votes, fit_board
from sordino.rewards.model import RewardModel, centered_weights
from sordino.rewards.ranking_fit import (
    _evidence_of_choices,
    _evidence_of_sum,
    _fit_released_rankings,
    _rough_hessian,
    _SlateRows,
    fit_choices,
    release_rankings,
)
from sordino.rewards.ranking_losses import FirstChoice, PairwiseComposite

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


@pytest.mark.deep
@pytest.mark.parametrize("statistic", few(["borda", "first-choice"], first=1))
def test_the_truth_is_found_within_its_errors(tmp_path, statistic):
    """False alarms: 6 standard errors, which are conservative, on each of 3 weights: < 1e-8."""
    rankings, theta = world(20_000, 4, 3)
    released = release_rankings(rankings, noise(statistic=statistic), ledger=account(tmp_path))
    reward = _fit_released_rankings(released, ball=20.0)
    assert (np.abs(reward.weights - theta) < 6 * reward.standard_errors).all()
    assert np.linalg.norm(reward.standard_errors) < 0.1
    assert (reward.pairs, reward.items) == (20_000, None)
    assert reward.gradient_norm <= reward.atol


def test_intervals_of_worths_are_those_of_a_board_and_only_of_all_pairs(tmp_path):
    ballots, ledger = election(np.array([1.0, 0.0, -1.0]), 400), account(tmp_path)
    released = release_rankings(ballots, noise(), ledger=ledger, simulate_seed=1)
    reward = _fit_released_rankings(released, ball=20.0)
    items, offers = ballots.items, Ballots(np.ones((1, 3), bool), np.array([400.0]), np.ones(1))
    sums = 3 * released.evidence.loss.statistic - 400  # Σ (y − ½)x: a pair weighs ⅓ there, not ¾
    scale, v = 0.75, released.evidence.covariance * (1 + released.evidence.rounding) ** 2
    votes = Votes.of_ballots(items, replace(offers, weights=np.array([scale])), scale * sums,
                             9 * scale**2 * v)  # fmt: skip
    np.testing.assert_allclose(reward.worth_intervals, fit_board(votes).intervals)
    first = release_rankings(ballots, noise(statistic="first-choice"), ledger=ledger)
    assert _fit_released_rankings(first, ball=20.0).worth_intervals is None


@pytest.mark.deep
def test_errors_of_worths_cover_the_truth(tmp_path):
    """Intervals hold the centered truth as often as they say: 95 % of 7 × 40.

    More than 28 misses of 280 (independent at 5 %: mean 14) have a chance below 3e-4.
    """
    worths = np.array([1.0, 0.8, 0.5, 0.0, -0.3, -0.8, -1.2])
    misses, ledger = 0, account(tmp_path)
    for seed in range(40):
        released = release_rankings(
            election(worths, 1000, seed), noise(), ledger=ledger, simulate_seed=seed
        )
        for name, _, low, high in _fit_released_rankings(released, ball=20.0).worths():
            misses += not low <= worths[int(name[1])] <= high
    assert misses <= 28


@pytest.mark.deep
def test_the_chosen_ridge_is_near_the_best(tmp_path):
    """On average over 12 worlds the squared error of the weights that the criterion chooses is at
    most 1.3 times that of the best ridge of its grid; the worst is eight times as bad."""
    chosen, fixed = [], []
    for seed in range(12):
        rankings, theta = world(1000, 4, 10, seed=seed)
        released = release_rankings(
            rankings, noise(1.0), ledger=account(tmp_path / str(seed)), simulate_seed=seed
        )
        reward = _fit_released_rankings(released, ball=20.0)
        chosen.append(np.sum((reward.weights - theta) ** 2))
        middle = released.evidence.feature_bound**2 * released.evidence.inflation
        fits = [
            _fit_released_rankings(released, ball=20.0, ridge=middle * 4.0**power)
            for power in ranking_fit.SUM_POWERS
        ]
        fixed.append([np.sum((fit.weights - theta) ** 2) for fit in fits])
    best = np.mean(fixed, axis=0).min()
    worst = np.mean(fixed, axis=0).max()
    assert np.mean(chosen) < 1.3 * best
    assert worst > 5 * best


def test_wide_features_take_the_usual_ridge(released, monkeypatch):
    monkeypatch.setattr(ranking_fit, "MOST_FEATURES", 2)
    reward = _fit_released_rankings(released, ball=20.0)
    evidence = released.evidence
    assert reward.ridge == evidence.feature_bound**2 * evidence.inflation
    assert reward.standard_errors is None


def test_a_confidence_set_is_only_kept_on_a_declaration(released):
    """Nothing that ballots say decides whether there is one."""
    assert _fit_released_rankings(released, ball=3.0).ellipsoid is None
    assert _fit_released_rankings(released, ball=3.0, ellipsoid=False).ellipsoid is None
    reward = _fit_released_rankings(released, ball=3.0, ellipsoid=True)
    assert reward.ellipsoid.candidates == len(ranking_fit.SUM_POWERS)
    theta = world(4000, 4, 3)[1]
    gap = reward.weights - theta
    radius = reward.ellipsoid.radius(0.95)
    assert math.sqrt(gap @ reward.ellipsoid.metric @ gap) < radius
    assert (
        _fit_released_rankings(released, ball=3.0, ridge=1.0, ellipsoid=True).ellipsoid.candidates
        == 1
    )


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


def evidence_of(rows, starts, counts, kind="borda", noise=0.0):
    d = rows.shape[1]
    loss = {"borda": PairwiseComposite, "first-choice": FirstChoice}[kind](
        rows, starts=np.array(starts), counts=np.array(counts), statistic=np.zeros(d)
    )
    return _evidence_of_sum(loss, noise * np.eye(d), feature_bound=1.0, rounding=0.0)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["borda", "first-choice"])
def test_the_spread_is_exact_for_candidates_that_are_as_good(k, kind):
    """All K! orders, each as likely, by their sum Σ w(K − rank)φ or φ(best)."""
    rows = np.random.default_rng(k).normal(size=(k, 3))
    sums = []
    for order in itertools.permutations(range(k)):
        times = np.zeros(k)
        places = np.arange(k)
        times[list(order)] = 2 / (k * (k - 1)) * (k - 1 - places)
        if kind == "first-choice":
            times = np.eye(k)[order[0]]
        sums.append(times @ rows)
    wanted = 7 * np.cov(np.array(sums).T, bias=True) + 0.25 * np.eye(3)
    found = evidence_of(rows, [0, k], [7], kind, noise=0.5).spread(np.zeros(3))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_the_reach_of_two_candidates_is_half_their_difference():
    rows = np.array([[3.0, 0.0], [0.0, 4.0], [1.0, 1.0], [1.0, 2.0]])
    slates = _SlateRows(rows=rows, starts=np.array([0, 2, 4]), slates=np.arange(2))
    assert slates.bound(None) == pytest.approx(2.5)
    features = sordino.HashedText(dimension=8)
    assert slates.bound(features) == features.feature_bound


def test_a_matrix_from_some_ballots_is_close_to_that_of_all(monkeypatch):
    """Every ninth of 9,000 slates: relative errors of a mean of 1,000, within 15 %."""
    generator = np.random.default_rng(2)
    evidence = evidence_of(
        generator.normal(size=(27_000, 2)), np.arange(9001) * 3, np.ones(9000, dtype=int)
    )
    theta = np.array([0.5, -1.0])
    exact = evidence.loss.hessian(theta)
    np.testing.assert_allclose(_rough_hessian(evidence.loss, theta), exact, rtol=1e-9)
    monkeypatch.setattr(ranking_fit, "_FLOPS", 0)
    monkeypatch.setattr(ranking_fit, "_ROWS", 500)
    rough = _rough_hessian(evidence.loss, theta)
    assert 0 < np.linalg.norm(rough - exact) < 0.15 * np.linalg.norm(exact)


@pytest.mark.parametrize("kind", ["borda", "first-choice"])
def test_the_inflation_is_that_of_the_matrices(kind):
    rows = np.random.default_rng(5).normal(size=(9, 3))
    evidence = evidence_of(rows, [0, 2, 5, 9], [4, 1, 3], kind, noise=0.7)
    wanted = np.trace(evidence.spread(np.zeros(3))) / np.trace(evidence.loss.hessian(np.zeros(3)))
    assert evidence.inflation == pytest.approx(wanted, rel=1e-9)
    assert evidence_of(rows[:2], [0, 2], [5], kind).inflation == pytest.approx(1.0)


WORTHS = np.array([1.0, 0.3, -0.3, -1.0])


def private(rankings, books, epsilon=2.0, seed=None):
    coin = KaryRandomizedResponse(epsilon, int(rankings.sizes[0]))
    return privatize_choices(rankings, coin, ledger=books, simulate_seed=seed)


def test_the_sum_is_that_of_debiased_answers(ledger):
    """The same in an election, where all ballots are one slate, as one by one."""
    for rankings in (election(WORTHS, 50), world(50, 4, 3)[0]):
        made = private(rankings, ledger(2.0))
        loss = _evidence_of_choices(made, None).loss
        weights = debiased_choices(made.answers, made.categories, made.flip_probability)
        rows = made.flat_features(None)
        np.testing.assert_allclose(loss.statistic, rows.T @ weights.ravel(), atol=1e-9)
        assert loss.counts.sum() == 50


def test_the_spread_is_that_of_randomized_answers(ledger):
    """By enumeration of the four answers, at weights that are not 0."""
    made = private(election(WORTHS, 30), ledger(2.0))
    evidence, coin = _evidence_of_choices(made, None), made
    loss = evidence.loss
    chances = np.exp(WORTHS) / np.exp(WORTHS).sum()
    other = coin.flip_probability / 3
    answered = other + (1 - coin.flip_probability - other) * chances
    vectors = debiased_choices(np.arange(4), 4, coin.flip_probability)
    mean = answered @ vectors
    np.testing.assert_allclose(mean, chances, atol=1e-12)
    wanted = 30 * ((vectors - mean).T * answered) @ (vectors - mean)
    np.testing.assert_allclose(evidence.spread(WORTHS), wanted, rtol=1e-9, atol=1e-9)
    even = np.trace(evidence.spread(np.zeros(4))) / np.trace(loss.hessian(np.zeros(4)))
    assert even == pytest.approx(evidence.inflation)


def test_randomized_choices_find_the_truth_within_their_errors(ledger):
    """Six standard errors on 3 weights and 4 worths."""
    rankings, theta = world(5_000, 4, 3)
    reward = fit_choices(private(rankings, ledger(2.0), seed=1), ball=20.0)
    assert (np.abs(reward.weights - theta) < 6 * reward.standard_errors).all()
    assert np.linalg.norm(reward.standard_errors) < 0.4
    worths = fit_choices(private(election(WORTHS, 5_000), ledger(2.0), seed=1), ball=20.0)
    assert worths.worth_intervals is None
    assert (np.abs(worths.weights - WORTHS) < 6 * worths.standard_errors).all()


def test_it_is_what_fit_reward_does_and_can_be_certified(ledger, tmp_path):
    books = ledger(2.0)
    made = private(election(WORTHS, 500), books)
    reward = sordino.fit_reward(made, ball=20.0)
    assert reward.weights.tolist() == fit_choices(made, ball=20.0).weights.tolist()
    assert (reward.method, reward.pairs) == ("randomized-choice", 500)
    assert sordino.certify(reward, books).guarantee == reward.guarantee
    reward.save(tmp_path / "reward.json")
    assert sordino.RewardModel.load(tmp_path / "reward.json").worths() == reward.worths()


def test_there_is_no_confidence_set_and_nothing_more_to_spend(ledger):
    made = private(election(WORTHS, 50), ledger(2.0))
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


ITEMS = ("ale", "beer", "tea")
ENDS = np.array([[0.0, 1.0], [-2.0, -0.5], [0.5, 0.5]])


@pytest.fixture(name="model")
def _model(budget):
    def make(**settings):
        given = {"weights": np.array([0.5, -1.0, 0.5]), "features": None, "items": ITEMS}
        plain = {"ridge": 1.0, "ball": 9.0, "gradient_norm": 0.0, "atol": 1e-5, "pairs": 7}
        return RewardModel(guarantee=budget(1.0), **(plain | given | settings))

    return make


def test_worths_are_centered_and_the_best_stands_first(model):
    ends = np.array([[-2.0, 1.0], [1.0, 3.0], [-1.5, 0.0]])
    found = model(weights=np.array([1.0, 4.0, 1.0]), worth_intervals=ends).worths()
    assert [name for name, *_ in found] == ["beer", "ale", "tea"]  # equals keep their order
    assert found[0] == ("beer", 2.0, 1.0, 3.0)
    assert model(weights=np.zeros(3)).worths()[0] == ("ale", 0.0, None, None)
    part = {"worth_intervals": ends[::2], "unoffered": ("beer",)}
    assert model(weights=np.array([-1.0, 0.0, 1.0]), **part).worths() == [
        ("tea", 1.0, -1.5, 0.0), ("ale", -1.0, -2.0, 1.0), ("beer", None, None, None)
    ]  # fmt: skip


def test_weights_are_centered_where_they_are_worths():
    theta = np.array([1.0, 2.0, 6.0])
    assert centered_weights(theta, np.ones(3, dtype=bool)).tolist() == [-2.0, -1.0, 3.0]
    assert centered_weights(theta, np.array([True, False, True])).tolist() == [-2.5, 0.0, 2.5]
    assert centered_weights(theta, None).tolist() == theta.tolist()


def test_a_model_of_items_survives_its_file(model, tmp_path):
    made = {
        "plain": model(worth_intervals=ENDS),
        "part": model(worth_intervals=ENDS[:2], unoffered=("beer",)),
        "given": model(
            weights=np.array([1.0, 2.0]),
            item_features=np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 1.0]]),
        ),
        "texts": model(weights=np.ones(16), features=sordino.HashedText(dimension=16)),
    }
    for name, reward in made.items():
        reward.save(tmp_path / name)
        back = RewardModel.load(tmp_path / name)
        assert back.to_dict() == reward.to_dict()
        assert back.worths() == reward.worths()
        assert sum(worth or 0.0 for _, worth, *_ in back.worths()) == pytest.approx(0.0, abs=1e-12)
    scores = {name: worth for name, worth, *_ in made["given"].worths()}
    assert scores == pytest.approx({"ale": -5 / 3, "beer": -2 / 3, "tea": 7 / 3})


def test_a_reward_without_items_has_no_worths_and_no_keys_of_them(model):
    reward = model(items=None)
    assert "items" not in reward.to_dict()
    with pytest.raises(sordino.UsageError, match="items are needed"):
        reward.worths()


@pytest.mark.parametrize(
    "change",
    [
        {"items": ["ale", "beer"]},
        {"items": ["ale", "beer", "beer"]},
        {"items": "ale"},
        {"items": None},
        {"worth_intervals": [1.0]},
        {"worth_intervals": [[0.0, 1.0]] * 2},
        {"worth_intervals": [[0.0, 1.0]] * 2 + [[1.0, 0.0]]},
        {"worth_intervals": [[0.0, 1.0]] * 2 + [[0.0, float("inf")]]},
        {"unoffered": ["ale"]},
        {"unoffered": ["wine"], "worth_intervals": None},
        {"unoffered": ["ale", "ale"], "worth_intervals": None},
        {"unoffered": list(ITEMS), "worth_intervals": None},
        {"item_features": [[1.0, 2.0, 3.0]]},
        {"item_features": [[1.0], [2.0], [3.0]]},
    ],
)
def test_a_file_whose_items_do_not_fit_is_refused(model, tmp_path, change):
    values = model(worth_intervals=ENDS).to_dict() | change
    path = tmp_path / "reward.json"
    path.write_text(json.dumps(values))
    with pytest.raises(sordino.DataError):
        RewardModel.load(path)
