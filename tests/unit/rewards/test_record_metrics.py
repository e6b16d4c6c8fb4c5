"""Metrics on held-out records: ratios by hand, small counts, refusals."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms import gaussian
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards.metrics import HeldOut, measure_predictions
from sordino.rewards.private_metrics import RECORD_BOUND, measure_records, record_metrics_mechanism
from sordino.rewards.release_checks import held_out_rows

DELTA = 1e-6
RELATIONS = (REPLACE_SPECIAL, ADD_OR_REMOVE_ONE, REPLACE_ONE)


def account(folder, *, unit="record", neighbors=ADD_OR_REMOVE_ONE):
    folder.mkdir(exist_ok=True)
    budget = sordino.Guarantee(
        99.0, delta=9 * DELTA, unit=unit, neighbors=neighbors, trust="central"
    )
    return sordino.Ledger.open(folder / "spend.db", data="test", budget=budget)


def world(n=2000, *, ties=False, size=1.0):
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(n, 3)) * size
    labels = (generator.random(n) < expit(rows @ [1.0, -0.5, 0.2])).astype(float)
    labels[::7] = 0.5 if ties else labels[::7]
    return sordino.Pairs.from_features(rows, labels)


def fitted(pairs, ledger):
    neighbors = ledger.budget.neighbors
    tilt = ObjectivePerturbation(5.0, delta=DELTA, bound=1.0, neighbors=neighbors)
    asked = {"mechanism": tilt, "ledger": ledger, "ball": 5.0, "simulate_seed": 0}
    return sordino.fit_reward(pairs, held_out=True, **asked)


def measured(pairs, folder, *, epsilon=1.0, neighbors=ADD_OR_REMOVE_ONE, temperature=0.5):
    ledger = account(folder, neighbors=neighbors)
    reward = fitted(pairs, ledger)
    found = measure_records(
        reward, pairs, record_metrics_mechanism(epsilon, delta=DELTA, neighbors=neighbors),
        ledger=ledger, temperature=temperature, simulate_seed=1,
    )  # fmt: skip
    return found, reward, ledger


@pytest.fixture
def silent(monkeypatch):
    """No noise: what comes out is the sum itself, up to the grid."""
    monkeypatch.setattr(gaussian, "with_noise", lambda total, *_: total)


def test_every_number_without_noise(tmp_path, silent):
    pairs = world(size=0.3)
    out = held_out_rows(pairs)
    found, reward, _ = measured(pairs, tmp_path)
    margins, labels = pairs.given[out] @ reward.weights, pairs.labels[out].astype(int)
    assert np.abs(margins).max() < 4
    predicted = HeldOut(differences=margins, answers=labels, flip_probability=0.0)
    plain = measure_predictions(predicted, temperature=0.5)
    for name in ("accuracy", "win_rate", "negative_log_likelihood"):
        assert getattr(found, name).value == pytest.approx(getattr(plain, name).value, abs=1e-5)
    assert (found.calibration_slope, found.pairs, found.reason) == (None, None, None)


def test_large_margins_are_cut_in_the_loss_alone(tmp_path, silent):
    pairs = world(ties=True, size=30.0)
    out = held_out_rows(pairs)
    found, reward, _ = measured(pairs, tmp_path)
    margins, labels = pairs.given[out] @ reward.weights, pairs.labels[out] / 1.0
    labels[labels == 2] = 0.5
    cut = np.clip(margins, -4, 4)
    assert np.abs(margins).max() > 8
    loss = np.mean(np.logaddexp(0, cut) - labels * cut)
    assert found.negative_log_likelihood.value == pytest.approx(loss, abs=1e-5)
    likely = expit(margins / 0.5)
    won = np.mean(labels * likely + (1 - labels) * (1 - likely))
    assert found.win_rate.value == pytest.approx(won, abs=1e-5)
    right = np.mean(np.where(labels == 0.5, 0.5, (margins > 0) == (labels == 1)))
    assert found.accuracy.value == pytest.approx(right, abs=1e-5)


def test_standard_errors_by_hand(tmp_path, monkeypatch):
    noise = record_metrics_mechanism(1.0, delta=DELTA, neighbors=ADD_OR_REMOVE_ONE)
    sums = np.array([200.0, 50.0, -20.0, -60.0])
    steps = np.rint(sums / noise.step).astype(np.int64)
    monkeypatch.setattr(gaussian, "with_noise", lambda *_: steps)
    found, _, _ = measured(world(), tmp_path)
    s, cap = noise.standard_deviation, math.log1p(math.exp(4))
    for one, total, size in (
        (found.accuracy, 50, 1.0),
        (found.win_rate, -20, 1.0),
        (found.negative_log_likelihood, -60, cap),
    ):
        mean = 0.5 + total / 200
        spread = mean * (1 - mean) / 200 + (s / 200) ** 2 * (1 + (total / 200) ** 2)
        assert one.value == pytest.approx(size * mean, rel=1e-5)
        assert one.standard_error == pytest.approx(size * math.sqrt(spread), rel=1e-5)
    rate = found.win_rate
    reach = rate.share_interval[1] - rate.value
    assert reach == pytest.approx(1.959964 * rate.standard_error, rel=1e-5)


@pytest.mark.parametrize(("count", "told"), [(4.9, False), (5.1, True), (-9.0, False)])
def test_few_records_are_not_divided_by(tmp_path, monkeypatch, count, told):
    noise = record_metrics_mechanism(1.0, delta=DELTA, neighbors=ADD_OR_REMOVE_ONE)
    steps = np.array([round(count * noise.standard_deviation / noise.step), 5, 5, 5])
    monkeypatch.setattr(gaussian, "with_noise", lambda *_: steps)
    found, reward, ledger = measured(world(), tmp_path)
    assert (found.accuracy is not None) == told
    assert (found.reason is None) == told
    if not told:
        assert set(found.to_dict().values()) == {None}
        assert "five standard deviations" in found.reason
    assert sordino.certify(found.attached(reward, ledger), ledger, for_study=True)


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_the_mechanism_keeps_what_is_asked(neighbors):
    noise = record_metrics_mechanism(0.7, delta=DELTA, neighbors=neighbors)
    promise = noise.guarantee(unit="record", neighbors=neighbors, trust="central")
    assert 0.6999 < promise.epsilon <= 0.7
    assert (noise.bound, noise.neighbors) == (RECORD_BOUND, neighbors)
    assert pytest.approx(math.sqrt(1.75)) == RECORD_BOUND


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_a_whole_purchase(tmp_path, neighbors):
    found, reward, ledger = measured(world(), tmp_path, neighbors=neighbors)
    assert 0.6 < found.accuracy.value < 0.9
    assert found.guarantee.neighbors == neighbors
    assert found.guarantee.caveats == ("person-group", "simulated")
    assert found.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert (reward.pairs is None) == (neighbors is ADD_OR_REMOVE_ONE)
    attached = found.attached(reward, ledger)
    assert attached.guarantee.caveats == ("person-group", "real-arithmetic", "simulated")
    assert attached.pairs == reward.pairs


def test_records_of_persons_say_so(tmp_path):
    pairs = dataclasses.replace(world(), persons=tuple(f"p{i % 9}" for i in range(2000)))
    found, _, _ = measured(pairs, tmp_path)
    assert "person-group" in found.guarantee.caveats


def test_no_held_out_record_is_no_error(tmp_path):
    """Not even for a feature function that takes no empty list: the count is private."""
    records = [{"prompt": "q", "first": "yes", "second": "no", "label": 1}]
    pairs = sordino.read_pairs(records)
    assert not held_out_rows(pairs).any()
    features = sordino.FunctionFeatures(
        lambda _, answers: [[float(len(a))] for a in answers],
        dimension=1,
        name="length",
        declare_unread=True,
    )
    ledger = account(tmp_path)
    tilt = ObjectivePerturbation(5.0, delta=DELTA, bound=1.0, neighbors=ADD_OR_REMOVE_ONE)
    asked = {"ledger": ledger}
    reward = sordino.fit_reward(pairs, mechanism=tilt, features=features, held_out=True, **asked)
    noise = record_metrics_mechanism(0.1, delta=DELTA, neighbors=ADD_OR_REMOVE_ONE)
    found = measure_records(reward, pairs, noise, temperature=1.0, simulate_seed=0, **asked)
    assert found.reason
    none = pairs.part([])
    assert (
        sordino.fit_reward(none, mechanism=tilt, features=features, held_out=True, **asked).pairs
        is None
    )


def test_other_mechanisms_are_refused(tmp_path):
    pairs, ledger = world(), account(tmp_path)
    reward = fitted(pairs, ledger)
    asked = {"ledger": ledger, "temperature": 1.0}
    given = {"delta": DELTA, "bound": RECORD_BOUND, "neighbors": ADD_OR_REMOVE_ONE}
    wrong = [
        given | {"bound": 1.0},
        given | {"neighbors": REPLACE_ONE},
        given | {"records_per_person": 2},
    ]
    for settings in wrong:
        with pytest.raises(UsageError, match="record_metrics_mechanism"):
            measure_records(reward, pairs, GaussianMechanism(99.0, **settings), **asked)
    with pytest.raises(UsageError, match="GaussianMechanism"):
        measure_records(reward, pairs, None, **asked)
    noise = record_metrics_mechanism(1.0, delta=DELTA, neighbors=ADD_OR_REMOVE_ONE)
    with pytest.raises(UsageError, match="raw judgments"):
        measure_records(reward, None, noise, **asked)
    with pytest.raises(UsageError, match="temperature"):
        measure_records(reward, pairs, noise, **asked | {"temperature": -1.0})
    with pytest.raises(UsageError, match="method='objective-perturbation'"):
        measure_records(dataclasses.replace(reward, method="debiased"), pairs, noise, **asked)
    assert len(ledger.spends) == 1


@pytest.mark.parametrize(("unit", "neighbors"), [("label", REPLACE_ONE), ("person", REPLACE_ONE)])
def test_other_units_are_refused(tmp_path, unit, neighbors):
    pairs = world()
    reward = fitted(pairs, account(tmp_path / "0"))
    ledger = account(tmp_path / "1", unit=unit, neighbors=neighbors)
    noise = record_metrics_mechanism(1.0, delta=DELTA, neighbors=neighbors)
    with pytest.raises(PrivacyError, match="unit='record'"):
        measure_records(reward, pairs, noise, ledger=ledger, temperature=1.0)
    assert not ledger.spends
