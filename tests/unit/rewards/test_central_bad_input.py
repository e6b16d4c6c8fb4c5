"""What a new user may hand to ``fit_reward`` by mistake, under central privacy.

Each of these is fitted, bounded and certified, or refused in words that help before anything is
spent. Nothing warns: warnings are errors here.
"""

import re

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.tiers import few

import sordino
from sordino._random import SimulatedEntropy
from sordino.engines.engine import Rows
from sordino.rewards import reward_fit
from sordino.rewards.evidence import Evidence
from sordino.rewards.label_release import release_labels
from sordino.rewards.metrics import measure_statistic
from sordino.rewards.reward_fit import fit, fit_sum

DELTA = 1e-6
ADDED, EMPTY, REPLACED = sordino.ADD_OR_REMOVE_ONE, sordino.REPLACE_SPECIAL, sordino.REPLACE_ONE
RELATIONS = [ADDED, EMPTY, REPLACED]
ONE_RELATION = few(RELATIONS, first=1)


def vectors(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def labels_of(n, seed=1):
    return np.random.default_rng(seed).integers(0, 2, n)


def texts(n=12):
    return sordino.read_pairs(
        [{"prompt": f"p{i}", "chosen": "a b", "rejected": f"b a c{i}"} for i in range(n)]
    )


def functions(function, d):
    return sordino.FunctionFeatures(function, dimension=d, name="made up", declare_unread=True)


def labels_noise(epsilon=1.0, **settings):
    return sordino.LabelGaussian(epsilon, delta=DELTA, **settings)


def records_noise(epsilon=1.0, **settings):
    given = {"delta": DELTA, "bound": 1.0, "neighbors": ADDED} | settings
    return sordino.ObjectivePerturbation(epsilon, **given)


@pytest.fixture(name="account")
def _account(tmp_path):
    """Return a maker of ledgers, each in a file of its own."""

    def make(unit="label", neighbors=REPLACED, epsilon=1.0):
        budget = sordino.Guarantee(
            epsilon, delta=DELTA, unit=unit, neighbors=neighbors, trust="central"
        )
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
        return sordino.Ledger.open(path, data="test", budget=budget)

    return make


@pytest.fixture(name="fit")
def _fit(account):
    """Return a function that fits with a mechanism and a ledger made for it."""

    def run(pairs, mechanism, **settings):
        labels = isinstance(mechanism, sordino.LabelGaussian)
        unit, neighbors = ("label", REPLACED) if labels else ("record", mechanism.neighbors)
        ledger = account(unit, neighbors, mechanism.epsilon)
        found = sordino.fit_reward(pairs, mechanism=mechanism, ledger=ledger, **settings)
        assert len(ledger.spends) == 1
        return found

    return run


@pytest.fixture(name="refuse")
def _refuse(account):
    """Return a function that wants an error, and a ledger on which nothing was spent."""

    def run(error, said, pairs, mechanism, *, unit="label", neighbors=REPLACED, **settings):
        ledger = account(unit, neighbors)
        with pytest.raises(error, match=said) as caught:
            sordino.fit_reward(pairs, mechanism=mechanism, ledger=ledger, **settings)
        assert not ledger.spends
        return str(caught.value)

    return run


def sound(found, slack=0.0):
    """Whether weights are finite, inside the ball up to the noise of an output, and certified."""
    size = np.linalg.norm(found.weights)
    return bool(np.isfinite(size) and size <= found.ball + slack) and (
        found.gradient_norm <= found.atol
    )


def test_features_that_fail_are_refused_before_an_infinite_spend(account):
    broken = functions(lambda _, answers: np.full((len(answers), 2), np.nan), 2)
    ledger = account(epsilon=np.inf)
    with pytest.raises(sordino.DataError):
        sordino.fit_reward(texts(), mechanism=sordino.NonPrivate(), ledger=ledger, features=broken)
    assert not ledger.spends


# --- answers that all agree -----------------------------------------------------------------------


def test_noise_that_leaves_the_ball_is_refused(refuse):
    pairs = sordino.Pairs.from_features(vectors(20, 3), labels_of(20))
    wrong = {"unit": "record", "neighbors": ADDED, "ball": 1e-7}
    refuse(sordino.UsageError, "ball=1e-07", pairs, records_noise(), **wrong)


@pytest.mark.parametrize("label", [0, 0.5, 1])
@pytest.mark.parametrize("ball", few([1e-4, 0.1, 100.0, 1e100], 0.1, 100.0))
@pytest.mark.parametrize("noise", [labels_noise(), labels_noise(50.0), records_noise()])
def test_answers_that_all_agree(fit, label, ball, noise):
    pairs = sordino.Pairs.from_features(np.abs(vectors(100, 3)), np.full(100, label))
    assert sound(fit(pairs, noise, ball=ball), slack=1e-4)


@pytest.mark.parametrize("criterion", ["tic", "thinning"])
def test_a_ridge_is_chosen_and_metrics_are_finite_where_all_agree(account, criterion):
    pairs = sordino.Pairs.from_features(10 * np.abs(vectors(200, 3)), np.ones(200))
    ledger = account(epsilon=20.0)
    released = release_labels(pairs, labels_noise(20.0), ledger=ledger, simulate_seed=0)
    found = fit(released, ball=5.0, criterion=criterion)
    assert sound(found)
    assert np.mean(pairs.given @ found.weights > 0) > 0.99
    told = measure_statistic(released.evidence, ball=5.0)
    assert all(value is None or np.isfinite(value) for value in told.values())


# --- features that say nothing, or too much -------------------------------------------------------


@pytest.mark.parametrize("noise", [labels_noise(), labels_noise(shaped=False)])
def test_features_that_tell_nothing_apart_are_refused_for_labels(refuse, noise):
    flat = functions(lambda _, answers: np.ones((len(answers), 2)), 2)
    said = "tell no two answers apart. Nothing was spent"
    refuse(sordino.DataError, said, texts(), noise, features=flat)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_features_that_tell_nothing_apart_are_fitted_for_records(fit, neighbors):
    """An empty record adds nothing: what comes out is the tilt, and it tells of nobody."""
    flat = functions(lambda _, answers: np.ones((len(answers), 2)), 2)
    noise = records_noise(neighbors=neighbors)
    given = {"features": flat, "simulate_seed": 7}
    found, other = (fit(texts(n), noise, **given) for n in (12, 5))
    assert sound(found)
    np.testing.assert_allclose(found.weights, other.weights, rtol=1e-4)


def test_features_of_which_some_are_empty(fit):
    one = functions(lambda _, answers: [[float("c3" in text), 0.0] for text in answers], 2)
    for noise in (labels_noise(), records_noise()):
        assert sound(fit(texts(), noise, features=one))
    released = fit(texts(), labels_noise(), features=one)
    assert released.weights[1] == 0  # a direction that no answer has


def test_features_that_are_no_numbers_name_a_row_only_where_rows_are_public(refuse):
    def bad(_, answers):
        return [[np.nan if "c7" in text else 1.0 * len(text)] for text in answers]

    features = functions(bad, 1)
    refuse(sordino.DataError, "row 7", texts(), labels_noise(), features=features)
    for neighbors in RELATIONS:
        message = refuse(
            sordino.DataError, "records are private", texts(),
            records_noise(neighbors=neighbors), unit="record", neighbors=neighbors,
            features=features,
        )  # fmt: skip
        assert not re.search(r"\d", message)


@pytest.mark.parametrize("d", [1, 5])
def test_more_features_than_pairs_are_fitted_in_the_span(fit, d):
    rows = vectors(d, 40)
    found = fit(sordino.Pairs.from_features(rows, labels_of(d)), labels_noise())
    left_over = found.weights - np.linalg.pinv(rows) @ (rows @ found.weights)
    assert np.linalg.norm(left_over) <= 1e-9 * np.linalg.norm(found.weights)


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
@pytest.mark.parametrize("ball", [0.01, 1000.0])
def test_a_fit_in_the_span_is_the_fit_in_all_directions(monkeypatch, kind, ball):
    """Weights, ridge and certificate, with a ball that binds and one that does not."""
    rows = vectors(400, 3) @ vectors(3, 80, seed=5) / 9
    labels = (rows[:, 0] > 0).astype(np.int8)
    design = labels_noise(20.0).prepare(rows)
    known = Evidence(
        differences=Rows.of(kind(rows)),
        statistic=design.release(labels, entropy=SimulatedEntropy(0)),
        factor=design.factor,
        feature_bound=1.0,
    )
    for given in ({"ridge": 3.0}, {"criterion": "tic"}):
        ours = fit_sum(known, ball=ball, **given)
        with monkeypatch.context() as patch:
            patch.setattr(reward_fit, "_FEW", -1)
            patch.setattr(reward_fit, "issparse", lambda _: True)
            plain = fit_sum(known, ball=ball, **given)
        assert ours.candidates == plain.candidates
        if ball > 1:  # with a ball that binds, all ridges are as good
            assert ours.ridge == plain.ridge
        np.testing.assert_allclose(ours.solution.theta, plain.solution.theta, rtol=1e-5, atol=1e-6)
        theta, shift = ours.solution.theta, ours.ridge + ours.solution.multiplier
        gradient = known.loss.gradient(theta) + shift * theta
        assert np.linalg.norm(gradient) <= 1e-7 * 400
        assert (ours.solution.multiplier > 0) == (ball < 1)


@pytest.mark.parametrize("noise", [labels_noise(), records_noise()])
@pytest.mark.parametrize("persons", [None, ["a"] * 50])
def test_repeated_rows(fit, noise, persons):
    rows = np.repeat(vectors(1, 3), 50, axis=0)
    pairs = sordino.Pairs.from_features(rows, np.ones(50), persons=persons)
    assert sound(fit(pairs, noise))


@pytest.mark.parametrize("size", few([1e-60, 1e-8, 1e3, 1e8, 1e9], 1e-60, 1000000000.0))
@pytest.mark.parametrize("neighbors", ONE_RELATION)
def test_the_unit_of_a_record_does_not_matter(fit, size, neighbors):
    """The same data in another unit, with the bound and the ball to match."""
    rows, labels = vectors(300, 3), labels_of(300)
    found, other = (
        fit(
            sordino.Pairs.from_features(unit * rows, labels),
            records_noise(bound=unit, neighbors=neighbors),
            ball=3.0 / unit,
            simulate_seed=4,
        )
        for unit in (1.0, size)
    )
    assert sound(other, slack=1e-3 / size)
    np.testing.assert_allclose(other.weights * size, found.weights, atol=1e-6)


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_a_unit_that_labels_cannot_be_released_in_is_refused(refuse, size):
    pairs = sordino.Pairs.from_features(size * vectors(20, 3), labels_of(20))
    refuse(sordino.DataError, r"2\^-?400.*Nothing was spent", pairs, labels_noise())


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbors", ONE_RELATION)
@pytest.mark.parametrize("bound", few([0.5, 2.0], first=1))
def test_the_ridge_that_a_confidence_set_asks_for_does(fit, refuse, neighbors, bound):
    pairs = sordino.Pairs.from_features(vectors(50, 3), labels_of(50))
    settings = {"delta": DELTA, "bound": bound, "neighbors": neighbors}
    noise, moment = sordino.joint_mechanisms(1.0, **settings)
    message = refuse(
        sordino.UsageError, "too small for a confidence set", pairs, noise,
        unit="record", neighbors=neighbors, second_moment=moment, ball=1.0,
    )  # fmt: skip
    ridge = float(re.search(r"with ridge=([\d.e+-]+);", message)[1])
    noise, moment = sordino.joint_mechanisms(1.0, ridge=ridge, **settings)
    assert fit(pairs, noise, second_moment=moment, ball=1.0).ellipsoid is not None
