"""A forecast: its limits, its order, what each way promises, and what it says of epsilon."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from tests.tiers import few

from sordino import REPLACE_SPECIAL, RandomizedResponse, UsageError, estimate
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.rewards.forecast import (
    WAYS,
    Forecast,
    Scatter,
    Way,
    World,
    _offered_ways,
    lost_accuracy,
    tilted_scatter,
    utility_curve,
)

CENTRAL = ("label-estimate", "record-estimate")
LARGE = {"dimension": 9, "accuracy": 0.8}


def world(dimension=16, accuracy=0.65):
    return World.of(dimension, accuracy)


def local(n=2000, *, dimension=16, epsilon=1.0, **more):
    return estimate(n, dimension=dimension, epsilon=epsilon, **more).ways["labels"]


def rises(values):
    """Up to the ceiling, which a float may reach."""
    return all(a < b or a == b == values[-1] for a, b in pairwise(values))


@pytest.mark.parametrize("dimension", [1, 2, 300])
@pytest.mark.parametrize("accuracy", [0.51, 0.65, 0.95])
def test_limits(dimension, accuracy):
    world = {"dimension": dimension, "accuracy": accuracy}
    endless = estimate(10**18, epsilon=1.0, **world)
    assert endless.ways["labels"].accuracy == pytest.approx(accuracy, abs=1e-6)
    assert endless.non_private.accuracy == pytest.approx(accuracy, abs=1e-6)
    loud = estimate(1000, epsilon=40.0, **world)
    assert loud.ways["labels"].accuracy == pytest.approx(loud.non_private.accuracy, abs=1e-9)
    error = loud.non_private.standard_error
    assert loud.ways["labels"].standard_error == pytest.approx(error, rel=1e-9)
    silent = local(1, epsilon=1e-6, **world)
    assert silent.accuracy == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("accuracy", [0.55, 0.65, 0.9])
@pytest.mark.parametrize("dimension", [1, 20])
def test_more_labels_more_epsilon_and_fewer_features_help(accuracy, dimension):
    world = {"dimension": dimension, "accuracy": accuracy}
    by_n = [local(n, **world).accuracy for n in (1, 2, 10, 100, 10**4, 10**6)]
    assert rises(by_n)
    epsilons = [0.01, 0.1, 0.5, 1.0, 2.0, 5.0]
    rows = utility_curve(500, epsilons=epsilons, **world)
    assert rises([row["accuracy"] for row in rows])
    errors = [local(500, epsilon=epsilon, **world).standard_error for epsilon in epsilons]
    assert all(a > b for a, b in pairwise(errors))
    few, more = (local(200, accuracy=accuracy, dimension=dimension + k) for k in (0, 1))
    assert more.accuracy < few.accuracy


@pytest.mark.parametrize("target", [0.65, 0.66, 0.99])
def test_no_number_of_labels_beats_the_true_reward(target):
    found = estimate(10, dimension=3, epsilon=1.0, target=target)
    assert not found.reachable
    assert found.ways["labels"].labels_needed is None
    assert found.non_private.labels_needed is None
    assert not estimate(10, dimension=3, epsilon=1.0).reachable


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 10.0])
def test_what_epsilon_means_is_never_rounded_down(epsilon):
    from mpmath import exp, mp, mpf

    coin = RandomizedResponse(epsilon)
    way = local(epsilon=epsilon)
    with mp.workdps(40):
        odds = exp(mpf(coin.realized_epsilon))
        assert 0 <= mpf(way.odds) / odds - 1 < 1e-12
        assert 0 <= mpf(way.belief) / (odds / (1 + odds)) - 1 < 1e-12
    assert way.flip_probability == coin.flip_probability
    assert way.epsilon <= epsilon
    assert way.epsilon == pytest.approx(epsilon)
    assert (way.delta, way.unit, way.neighbors) == (0.0, "label", "REPLACE_ONE")


def test_epsilon_beyond_what_can_be_realized_is_said_as_realized():
    way = local(epsilon=300.0)
    assert way.epsilon == pytest.approx(44.361, abs=1e-3)
    assert way.belief == 1.0


@pytest.mark.parametrize("accuracy", [0.5001, 0.65, 0.9])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_an_answer_is_worth_at_most_the_square_of_kappa(accuracy, epsilon):
    kappa = RandomizedResponse(epsilon).kappa
    worth = local(1000, accuracy=accuracy, epsilon=epsilon).effective_judgments / 1000
    assert worth <= kappa**2 * (1 + 1e-9)
    if accuracy == 0.5001:
        assert worth == pytest.approx(kappa**2, rel=1e-5)


def test_the_local_way_does_not_use_delta():
    a, b = (estimate(100, dimension=4, epsilon=1.0, delta=delta) for delta in (0.0, 0.1))
    assert a.ways["labels"] == b.ways["labels"]
    assert (a.delta, b.delta) == (0.0, 0.1)


def test_three_ways_in_this_order():
    found = estimate(5000, dimension=32, epsilon=1.0, target=0.64)
    assert list(found.ways) == ["labels", "label-estimate", "record-estimate"]
    assert not found.left_out
    local, label, record = found.ways.values()
    assert [(way.unit, way.neighbors, way.delta) for way in found.ways.values()] == [
        ("label", "REPLACE_ONE", 0.0),
        ("label", "REPLACE_ONE", 1e-6),
        ("record", "REPLACE_SPECIAL", 1e-6),
    ]
    promises = [way.promise for way in _offered_ways(world(32), 1.0, 1e-6)[0].values()]
    assert [promise.trust for promise in promises] == ["local", "central", "central"]
    assert [promise.epsilon for promise in promises] == pytest.approx([1.0, 1.0, 1.0])
    assert all(promise.epsilon <= 1.0 for promise in promises)
    assert (label.flip_probability, record.flip_probability) == (None, None)
    assert local.accuracy < record.accuracy < label.accuracy < found.non_private.accuracy
    assert local.labels_needed > record.labels_needed > label.labels_needed
    assert found.best == "label-estimate"
    assert label.epsilon == pytest.approx(1.0)
    assert label.odds >= math.exp(label.epsilon)
    assert record.odds == pytest.approx(math.e)


def test_few_labels_are_better_randomized():
    found = estimate(200, dimension=32, epsilon=2.0)
    assert found.best == "labels"
    assert estimate(2000, dimension=32, epsilon=2.0).best == "label-estimate"


@pytest.mark.parametrize("name", ["labels", *CENTRAL])
@pytest.mark.parametrize("epsilon", few([0.1, 1.0, 4.0], 1.0))
@pytest.mark.parametrize("target", [0.5001, 0.6, 0.649])
@pytest.mark.parametrize("dimension", few([1, 8, 400], 8))
def test_the_needed_number_of_labels_is_the_smallest(name, epsilon, target, dimension):
    world = {"dimension": dimension, "epsilon": epsilon}
    found = estimate(10, target=target, **world)
    needed = found.ways[name].labels_needed
    assert found.reachable
    assert found.non_private.labels_needed <= needed
    assert estimate(needed, **world).ways[name].accuracy >= target
    assert needed == 1 or estimate(needed - 1, **world).ways[name].accuracy < target


def test_odds_that_no_float_holds_are_infinite():
    way = estimate(10, dimension=2, epsilon=1000.0).ways["label-estimate"]
    assert (way.odds, way.belief) == (math.inf, 1.0)


def test_json_holds_everything():
    found = estimate(100, dimension=4, epsilon=1.0, target=0.6)
    value = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(value) == set(Forecast.__dataclass_fields__)
    assert list(value["ways"]) == ["labels", "label-estimate", "record-estimate"]
    assert value["ways"]["label-estimate"]["flip_probability"] is None
    assert value["ways"]["labels"]["labels_needed"] == found.ways["labels"].labels_needed
    assert value["assumed_accuracy"] == 0.65


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n": 0}, "n must"),
        ({"dimension": 0}, "dimension"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 1e-9}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"accuracy": 0.5}, "accuracy"),
        ({"accuracy": 1.0}, "accuracy"),
        ({"target": 1.0}, "target"),
    ],
)
def test_settings_out_of_range(change, word):
    settings = {"n": 100, "dimension": 4, "epsilon": 1.0} | change
    with pytest.raises(UsageError, match=word):
        estimate(settings.pop("n"), **settings)


def test_the_noise_is_that_of_the_mechanisms():
    ways, _ = _offered_ways(world(), 0.5, 1e-5)
    tilt = ObjectivePerturbation(0.5, delta=1e-5, bound=1.0, neighbors=REPLACE_SPECIAL)
    sizes = 1 / LabelGaussian(0.5, delta=1e-5).mu, tilt.standard_deviation
    spread = world().spread
    for name, size in zip(CENTRAL, sizes, strict=True):
        for n in (10, 5000):
            given = {"n": n, "dimension": 16, "standard_deviation": size}
            plain = tilted_scatter(spread, ridge=0.0, **given)
            assert ways[name].small_ridge(n) == plain
    (fit,) = ways["record-estimate"].fits(300)
    assert fit == tilted_scatter(
        spread, n=300, dimension=16, standard_deviation=sizes[1], ridge=tilt.ridge_for(300, 16)
    )


def test_the_best_of_the_ridges_is_taken_for_labels():
    outlook = WAYS["label-estimate"](world(20, 0.95), 1.0, 1e-6)
    spread, noise = world(20, 0.95).spread, 1 / LabelGaussian(1.0, delta=1e-6).mu
    for n in (100, 2000, 10**6):
        given = {"n": n, "dimension": 20, "standard_deviation": noise}
        lost = [
            lost_accuracy(spread, tilted_scatter(spread, ridge=ridge, **given), n)
            for ridge in (0.0, *np.geomspace(1e-3, 1e5, 200))
        ]
        free = outlook.world.lost(outlook.world.free, n)
        # eight ridges are as good as two hundred
        assert 0.95 - outlook.accuracy(n) == pytest.approx(max(min(lost), free), abs=5e-4)


@pytest.mark.parametrize("accuracy", few([0.501, 0.65, 0.9, 0.99, 0.99999], 0.65))
@pytest.mark.parametrize("dimension", few([1, 3, 200], 3))
@pytest.mark.parametrize("epsilon", few([1e-4, 0.5, 5.0, 40.0], 0.5))
@pytest.mark.parametrize("name", CENTRAL)
def test_more_labels_never_hurt_and_noise_never_helps(accuracy, dimension, epsilon, name):
    outlook = WAYS[name](world(dimension, accuracy), epsilon, 1e-6)
    counts = np.unique(np.geomspace(1, 1e12, 60).astype(int)).tolist()
    found = [outlook.accuracy(n) for n in counts]
    assert all(b >= a - 1e-13 for a, b in pairwise(found))
    assert all(0.5 - 1e-12 <= value <= accuracy for value in found)
    for n, value in zip(counts, found, strict=True):
        assert value <= accuracy - outlook.world.lost(outlook.world.free, n)
        assert outlook.effective_judgments(n) <= n


def test_what_is_left_out_says_why():
    found = estimate(100, dimension=4, epsilon=1.0, delta=0.0)
    assert list(found.ways) == ["labels"]
    assert found.left_out == dict.fromkeys(CENTRAL, "left out, needs delta above 0")
    ways, left_out = _offered_ways(world(), 1.0, 1e-100)
    assert list(ways) == ["labels", "label-estimate"]
    assert left_out["record-estimate"].endswith("keeps epsilon=1.0 with delta=1e-100")
    with pytest.raises(UsageError, match="epsilon"):
        _offered_ways(world(), math.nan, 1e-6)


def outlook(noise):
    """Scatter that falls as 1/n beside scatter that does not."""
    known = world(5)
    free, _ = known.free

    def scatter(n):
        return Scatter(
            signal=free.signal,
            along=free.along,
            across=free.across * (1 + noise / n),
            dimension=5,
        )

    return Way(world=known, small_ridge=scatter, fits=lambda n: [scatter(n)])


@pytest.mark.parametrize("name", ["labels", *CENTRAL])
def test_rows_are_those_of_estimate(name):
    rows = utility_curve(700, epsilons=[0.7, 2.0], noise=name, delta=1e-5, **LARGE)
    for row, epsilon in zip(rows, [0.7, 2.0], strict=True):
        way = estimate(700, epsilon=epsilon, delta=1e-5, **LARGE).ways[name]
        assert row == {"epsilon": epsilon, "accuracy": way.accuracy}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"noise": "central"}, "noise"),
        ({"noise": "label-estimate", "delta": 0.0}, "delta"),
        ({"noise": "record-estimate", "delta": 0.0}, "delta"),
        ({"noise": "record-estimate", "delta": 1e-100}, "delta"),
        ({"noise": "label-estimate", "epsilons": [0.0]}, "epsilon"),
    ],
)
def test_curves_out_of_range(change, word):
    with pytest.raises(UsageError, match=word):
        utility_curve(100, **({"epsilons": [1.0], "dimension": 4} | change))
