"""Record fits and their confidence sets: numbers by hand, files, refusals."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy.special import expit

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.gaussian import joint_mechanisms
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards.confidence import (
    Ellipsoid,
    RecordEllipsoid,
    ReleasedMoment,
    least_ridge,
    record_ellipsoid,
)
from sordino.rewards.record_release import fit_records
from sordino.rewards.release_checks import held_out_rows

DELTA = 1e-6
SETTINGS = {"delta": DELTA, "bound": 1.0, "neighbors": ADD_OR_REMOVE_ONE}


def open_ledger(path, *, unit="record", neighbors=ADD_OR_REMOVE_ONE, epsilon=1.0):
    budget = sordino.Guarantee(
        epsilon, delta=DELTA, unit=unit, neighbors=neighbors, trust="central"
    )
    return sordino.Ledger.open(path / "spend.db", data="test", budget=budget)


def tilted(**settings):
    return ObjectivePerturbation(1.0, **(SETTINGS | settings))


def fitted(pairs, path, mechanism=None, **settings):
    path.mkdir(exist_ok=True)
    neighbors = settings.pop("neighbors", ADD_OR_REMOVE_ONE)
    ledger = open_ledger(path, neighbors=neighbors)
    given = {"ball": 5.0, "simulate_seed": 3} | settings
    return fit_records(pairs, mechanism or tilted(neighbors=neighbors), ledger=ledger, **given)


def with_moment(**settings):
    """Return both mechanisms, their ridge large enough for 3 features and a ball of 1."""
    first = joint_mechanisms(1.0, **SETTINGS)
    ridge = least_ridge(first[1], d=3, ball=1.0)
    return joint_mechanisms(1.0, **(SETTINGS | {"ridge": ridge} | settings))


@pytest.fixture(name="pairs")
def _pairs(linear_world):
    return linear_world(400, 3, size=1.0)[0]


# --- what is fitted ---------------------------------------------------------------------------


def test_a_large_epsilon_finds_the_reward(linear_world, tmp_path):
    pairs, theta = linear_world(20_000, 3, size=2.0)
    ledger = open_ledger(tmp_path, epsilon=20.0)
    mechanism = ObjectivePerturbation(20.0, **SETTINGS)
    found = fit_records(pairs, mechanism, ledger=ledger, ball=10.0)
    assert np.linalg.norm(found.weights - theta) < 0.3
    assert found.guarantee.epsilon == 20.0
    assert found.guarantee.caveats == ("person-group", "real-arithmetic")
    assert (found.guarantee.unit, found.guarantee.trust) == ("record", "central")


def test_long_features_are_shrunk_to_the_bound(linear_world, tmp_path):
    """Rows of norm 1 and the same rows a hundred times as long are one data set."""
    pairs, _ = linear_world(200, 3)
    long = sordino.Pairs.from_features(100 * pairs.given, pairs.labels)
    one, other = (fitted(p, tmp_path / str(i)) for i, p in enumerate((pairs, long)))
    np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=1e-9)
    loose = fitted(long, tmp_path / "2", tilted(bound=100.0))
    assert np.abs(loose.weights - one.weights).max() > 0.01


def test_every_judgment_is_a_record_also_a_repeated_one(tmp_path):
    rows = np.random.default_rng(0).normal(size=(30, 2))
    twice, labels = np.vstack([rows, rows]), np.repeat([1, 0, 1], 20)
    people = [f"p{index}" for index in range(30)] * 2
    linked = sordino.Pairs.from_features(twice, labels, persons=people)
    unlinked = sordino.Pairs.from_features(twice, labels)
    one, other = (fitted(p, tmp_path / str(i)) for i, p in enumerate((linked, unlinked)))
    assert one.weights.tolist() == other.weights.tolist()
    assert "person-group" in one.guarantee.caveats
    assert one.guarantee == other.guarantee  # whether records name persons is private


def test_a_fair_coin_decides_undecided_judgments(tmp_path):
    """With all 4,000 undecided the answers still balance: within 6 standard errors of 0."""
    rows = np.ones((4000, 1))
    ties = sordino.Pairs.from_features(rows, np.full(4000, 0.5))
    found = fitted(ties, tmp_path / "0", ball=50.0)
    error = (math.sqrt(4000) / 2 + tilted().standard_deviation) / (4000 / 4)
    assert abs(found.weights[0]) < 6 * error
    again = fitted(ties, tmp_path / "1", ball=50.0, simulate_seed=4)
    assert found.weights[0] != again.weights[0]


def test_the_ball_binds(pairs, tmp_path):
    found = fitted(pairs, tmp_path, ball=0.05)
    assert np.linalg.norm(found.weights) == pytest.approx(0.05, abs=1e-3)


@pytest.mark.parametrize("neighbors", [REPLACE_SPECIAL, REPLACE_ONE])
def test_the_size_is_told_where_it_is_public(pairs, tmp_path, neighbors):
    found = fitted(dataclasses.replace(pairs, dropped=7), tmp_path, neighbors=neighbors)
    assert found.pairs == 407  # one change may turn a record into one that is dropped
    assert found.guarantee.neighbors == neighbors


def test_texts_are_fitted_with_features(tmp_path):
    records = [
        {"prompt": f"q{i}", "first": "yes " * (i % 5 + 1), "second": "no", "label": i % 2}
        for i in range(40)
    ]
    pairs = sordino.read_pairs(records)
    features = sordino.HashedText(dimension=16)
    found = fitted(pairs, tmp_path, tilted(bound=2.0), features=features)
    assert found.weights.shape == (16,)
    assert found.features is features


# --- the second moment and the confidence set -------------------------------------------------


def test_the_moment_is_that_of_the_records_that_are_fitted(pairs, tmp_path):
    noise, moment = with_moment()
    found = fitted(pairs, tmp_path, noise, second_moment=moment, ball=1.0).moment
    gap = found.matrix - pairs.given.T @ pairs.given
    assert found.mechanism == moment
    assert 0 < np.linalg.norm(gap, 2) < moment.operator_norm_bound(3, failure_probability=1e-9)


def test_a_moment_survives_its_file(pairs, tmp_path):
    noise, mechanism = with_moment()
    moment = fitted(pairs, tmp_path, noise, second_moment=mechanism, ball=1.0).moment
    values = json.loads(json.dumps(moment.to_dict()))
    back = ReleasedMoment.from_dict(values)
    assert back.matrix.tolist() == moment.matrix.tolist()
    assert back.mechanism == moment.mechanism
    for name in values:
        with pytest.raises(DataError):
            ReleasedMoment.from_dict({k: v for k, v in values.items() if k != name})
    for name, wrong in {"d": 2, "matrix": "!", "neighbors": "NONE"}.items():
        with pytest.raises(DataError):
            ReleasedMoment.from_dict(values | {name: wrong})
    with pytest.raises(UsageError):
        ReleasedMoment.from_dict(values | {"standard_deviation": -1.0})
    with pytest.raises(DataError):
        ReleasedMoment(matrix=np.array([[1.0, 2.0], [3.0, 1.0]]), mechanism=mechanism)


def test_the_radius_by_hand(pairs, tmp_path):
    noise, mechanism = with_moment()
    fit = fitted(pairs, tmp_path, noise, second_moment=mechanism, ball=1.0)
    found, d, s = fit.ellipsoid, 3, noise.standard_deviation
    slope = float(expit(1.0) * expit(-1.0))
    spread = mechanism.standard_deviation * (math.sqrt(6) + math.sqrt(2 * math.log(2 / 1e-3)))
    assert spread * (1 + 1e-6) >= mechanism.operator_norm_bound(3, failure_probability=1e-3)
    metric = slope * (fit.moment.matrix - spread * np.eye(d)) + noise.ridge * np.eye(d)
    np.testing.assert_allclose(found.metric, metric, rtol=1e-4, atol=1e-4)

    def tail(kernel, t):
        largest = np.linalg.norm(kernel, 2)
        return np.trace(kernel) + 2 * math.sqrt(np.trace(kernel @ kernel) * t) + 2 * largest * t

    t = math.log(3 / (0.05 - 1e-3))
    eigenvalues = np.linalg.eigvalsh(found.metric)
    parts = (
        math.sqrt(d + 2 * math.sqrt(d * t) + 2 * t) / (2 * math.sqrt(slope)),
        noise.ridge * 1.0 / math.sqrt(eigenvalues[0]),
        s * math.sqrt(tail(np.linalg.inv(found.metric), t)),
        2 * noise.atol / noise.ridge * math.sqrt(eigenvalues[-1]),
        noise.output_standard_deviation * math.sqrt(tail(found.metric, t)),
    )
    assert found.radius(0.95) == pytest.approx(sum(parts), rel=1e-9)
    # twice atol: as much again is what rounding may hide from the gradient
    assert found.inexactness == pytest.approx(2 * noise.atol / noise.ridge, rel=1e-6)
    assert found.output_standard_deviation == noise.output_standard_deviation
    for left_out in parts[:3]:
        assert found.radius(0.95) > sum(parts) - left_out / 2
    assert found.radius(0.5) < found.radius(0.95) < found.radius(0.998)


def test_without_output_noise_two_things_may_fail():
    found = some_ellipsoid(output_standard_deviation=0.0, inexactness=0.0, moment_failure=0.0)
    t = math.log(2 / 0.05)
    expected = (
        math.sqrt(2 + 2 * math.sqrt(2 * t) + 2 * t) / (2 * math.sqrt(0.2))
        + 3.0 / math.sqrt(2)
        + 0.5 * math.sqrt(0.75 + 2 * math.sqrt(0.3125 * t) + t)
    )
    assert found.radius(0.95) == pytest.approx(expected, rel=1e-12)


def some_ellipsoid(**settings):
    plain = {
        "center": np.array([1.0, -1.0]),
        "metric": np.diag([2.0, 4.0]),
        "slope": 0.2,
        "ball": 1.5,
        "ridge": 2.0,
        "standard_deviation": 0.5,
        "output_standard_deviation": 1e-5,
        "inexactness": 1e-8,
        "moment_failure": 1e-3,
    }
    return RecordEllipsoid(**(plain | settings))


def test_it_is_a_confidence_set():
    found = some_ellipsoid()
    assert isinstance(found, Ellipsoid)
    np.testing.assert_allclose(found.widths(np.array([[2.0, 0.0], [0.0, 2.0]])), [math.sqrt(2), 1])
    assert found.distance(np.array([2.0, -1.0])) == pytest.approx(math.sqrt(2))
    assert found.contains(found.center, 0.5)
    assert not found.contains(found.center + 1e3, 0.95)
    assert "d=2" in repr(found)
    with pytest.raises(DataError):
        found.widths(np.eye(3))


def test_more_confidence_than_the_moment_allows_is_refused():
    found = some_ellipsoid()
    with pytest.raises(UsageError, match=r"below 0\.999"):
        found.radius(0.999)
    with pytest.raises(UsageError):
        found.radius(0.0)


def test_an_ellipsoid_survives_its_file():
    found = some_ellipsoid()
    values = json.loads(json.dumps(found.to_dict()))
    assert values["kind"] == "record"
    back = RecordEllipsoid.from_dict(values)
    assert back.radius(0.95) == found.radius(0.95)
    assert back.metric.tolist() == found.metric.tolist()
    for name in values:
        with pytest.raises(DataError):
            RecordEllipsoid.from_dict({k: v for k, v in values.items() if k != name})
    for name, wrong in {"kind": "label", "metric": "AAAA", "center": [1.0]}.items():
        with pytest.raises(DataError):
            RecordEllipsoid.from_dict(values | {name: wrong})
    with pytest.raises(UsageError):
        RecordEllipsoid.from_dict(values | {"slope": 0.0})
    with pytest.raises(DataError):
        some_ellipsoid(metric=np.diag([1.0, -1.0]))


def test_a_set_may_be_left_out_beside_a_moment(pairs, tmp_path):
    """Which ridge it would ask for is tried in test_central_bad_input."""
    noise, moment = joint_mechanisms(1.0, **SETTINGS)
    found = fitted(pairs, tmp_path, noise, second_moment=moment, ellipsoid=False)
    assert found.ellipsoid is None
    assert found.moment is not None


def test_a_moment_beyond_its_bound_still_gives_a_metric():
    """The set may fail there; it must not be undefined."""
    noise, mechanism = with_moment()
    bad = ReleasedMoment(matrix=-1e4 * np.eye(3), mechanism=mechanism)
    found = record_ellipsoid(np.zeros(3), bad, noise, ball=1.0)
    assert np.linalg.eigvalsh(found.metric)[0] > 0


# --- records that are left for metrics --------------------------------------------------------


@pytest.mark.parametrize("neighbors", [ADD_OR_REMOVE_ONE, REPLACE_SPECIAL, REPLACE_ONE])
def test_held_out_records_are_not_seen(pairs, tmp_path, neighbors):
    """Weights and moment are those of the other records, and the size is that of all."""
    pairs = dataclasses.replace(pairs, dropped=7)
    rest = pairs.part(np.flatnonzero(~held_out_rows(pairs)).tolist())
    noise, moment = joint_mechanisms(1.0, **(SETTINGS | {"neighbors": neighbors}))
    given = {"neighbors": neighbors, "second_moment": moment, "ellipsoid": False}
    found = fitted(pairs, tmp_path / "0", noise, held_out=True, **given)
    alone = fitted(rest, tmp_path / "1", noise, **given)
    everything = fitted(pairs, tmp_path / "2", noise, **given)
    assert found.weights.tolist() == alone.weights.tolist()
    assert found.moment.matrix.tolist() == alone.moment.matrix.tolist()
    assert found.weights.tolist() != everything.weights.tolist()
    assert found.pairs == everything.pairs == (None if neighbors is ADD_OR_REMOVE_ONE else 407)
    entry = sordino.Ledger.read(tmp_path / "0" / "spend.db").spends[0]
    assert json.loads(entry.payload)["details"] == {"held_out": "unread"}
    with pytest.raises(PrivacyError, match="held_out_rows"):
        fitted(pairs, tmp_path / "3", noise, **given | {"held_out": held_out_rows(pairs)})


# --- a delta that promises nothing ------------------------------------------------------------


@pytest.mark.parametrize("neighbors", [REPLACE_SPECIAL, REPLACE_ONE])
def test_a_large_delta_is_refused_where_the_size_is_public(pairs, tmp_path, neighbors):
    noise = tilted(neighbors=neighbors, delta=1 / 400)
    budget = sordino.Guarantee(1.0, delta=0.01, unit="record", neighbors=neighbors, trust="central")
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="test", budget=budget)
    with pytest.raises(UsageError, match=r"1/n=1/400.*one record outright"):
        sordino.fit_reward(pairs, mechanism=noise, ledger=ledger, ball=1.0)
    assert not ledger.spends


def test_where_it_is_private_the_number_does_not_decide(pairs, tmp_path):
    """A refusal would bound how many records there are: 400 of them have 1/n = 0.0025."""
    budget = sordino.Guarantee(
        1.0, delta=0.01, unit="record", neighbors=ADD_OR_REMOVE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(tmp_path / "spend.db", data="test", budget=budget)
    with pytest.raises(UsageError, match=r"below 0\.001"):
        fit_records(pairs, tilted(delta=0.002), ledger=ledger, ball=1.0)
    assert not ledger.spends
    fit_records(pairs, tilted(delta=0.0009), ledger=ledger, ball=1.0)


# --- refusals ---------------------------------------------------------------------------------


def test_a_moment_that_is_not_paid_for_is_refused(pairs, tmp_path):
    noise, moment = with_moment()
    ledger = open_ledger(tmp_path)
    small = dataclasses.replace(moment, standard_deviation=moment.standard_deviation * 0.99)
    short = dataclasses.replace(moment, bound=0.5)
    given = {"ledger": ledger, "ball": 1.0}
    for mechanism, wrong in ((tilted(), moment), (noise, small)):
        with pytest.raises(PrivacyError, match="does not pay"):
            fit_records(pairs, mechanism, second_moment=wrong, **given)
    with pytest.raises(UsageError, match="one bound"):
        fit_records(pairs, noise, second_moment=short, **given)
    with pytest.raises(UsageError, match="was not given"):
        fit_records(pairs, noise, **given)
    with pytest.raises(UsageError, match="needs a second moment"):
        fit_records(pairs, tilted(), ellipsoid=True, **given)
    assert not ledger.spends


def test_wrong_arguments_are_refused(pairs, tmp_path):
    ledger = open_ledger(tmp_path)
    with pytest.raises(UsageError, match="raw judgments"):
        fit_records(None, tilted(), ledger=ledger, ball=1.0)
    with pytest.raises(UsageError, match="ObjectivePerturbation"):
        fit_records(pairs, None, ledger=ledger, ball=1.0)
    with pytest.raises(UsageError, match="ball"):
        fit_records(pairs, tilted(), ledger=ledger, ball=0.0)
    with pytest.raises(UsageError, match="simulate_seed"):
        fit_records(pairs, tilted(), ledger=ledger, ball=1.0, simulate_seed=-1)
    with pytest.raises(UsageError, match="features"):
        fit_records(pairs, tilted(), ledger=ledger, ball=1.0, features=sordino.HashedText())
    noise, moment = joint_mechanisms(1.0, **SETTINGS)
    with pytest.raises(UsageError, match="ball"):
        fit_records(pairs, noise, ledger=ledger, ball=800.0, second_moment=moment)
    assert not ledger.spends
