"""A forecast: its limits, its order, what it refuses, and what it says of epsilon."""

import json
import math
from itertools import pairwise

import pytest

from sordino import RandomizedResponse, UsageError, estimate
from sordino.rewards.forecast import Forecast, utility_curve


def local(n=2000, *, dimension=16, epsilon=1.0, **more):
    return estimate(n, dimension=dimension, epsilon=epsilon, **more).ways["labels"]


def rises(values):
    """Up to the ceiling, which a float may reach."""
    return all(a < b or a == b == values[-1] for a, b in pairwise(values))


@pytest.mark.parametrize("method", ["debiased", "mixture"])
@pytest.mark.parametrize("dimension", [1, 2, 300])
@pytest.mark.parametrize("accuracy", [0.51, 0.65, 0.95])
def test_limits(method, dimension, accuracy):
    world = {"dimension": dimension, "accuracy": accuracy, "method": method}
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
    assert all(a["standard_error"] > b["standard_error"] for a, b in pairwise(rows))
    few, more = (local(200, accuracy=accuracy, dimension=dimension + k) for k in (0, 1))
    assert more.accuracy < few.accuracy


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("target", [0.5001, 0.6, 0.649])
@pytest.mark.parametrize("dimension", [1, 8, 400])
def test_the_needed_number_of_labels_is_the_smallest(epsilon, target, dimension):
    world = {"dimension": dimension, "epsilon": epsilon}
    found = estimate(10, target=target, **world)
    needed = found.ways["labels"].labels_needed
    assert found.reachable
    assert local(needed, **world).accuracy >= target
    assert needed == 1 or local(needed - 1, **world).accuracy < target
    assert found.non_private.labels_needed <= needed


@pytest.mark.parametrize("target", [0.65, 0.66, 0.99])
def test_no_number_of_labels_beats_the_true_reward(target):
    found = estimate(10, dimension=3, epsilon=1.0, target=target)
    assert not found.reachable
    assert found.ways["labels"].labels_needed is None
    assert found.non_private.labels_needed is None
    assert not estimate(10, dimension=3, epsilon=1.0).reachable


def test_a_target_just_below_the_ceiling_needs_very_many():
    found = local(dimension=10, target=math.nextafter(0.65, 0))
    assert found.labels_needed > 10**12


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


@pytest.mark.parametrize(("epsilon", "labels"), [(0.1, 3), (1.0, 10), (2.0, 1)])
def test_a_person_pays_for_every_label(epsilon, labels):
    way = local(epsilon=epsilon, labels_per_person=labels)
    assert way.person_epsilon == pytest.approx(labels * epsilon)
    assert way.person_epsilon >= labels * RandomizedResponse(epsilon).realized_epsilon * (1 - 1e-15)
    assert local(epsilon=epsilon).person_epsilon is None


@pytest.mark.parametrize("accuracy", [0.5001, 0.65, 0.9])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_an_answer_is_worth_at_most_the_square_of_kappa(accuracy, epsilon):
    kappa = RandomizedResponse(epsilon).kappa
    worth = local(1000, accuracy=accuracy, epsilon=epsilon).effective_judgments / 1000
    assert worth <= kappa**2 * (1 + 1e-9)
    if accuracy == 0.5001:
        assert worth == pytest.approx(kappa**2, rel=1e-5)


def test_the_mixture_is_better_where_rewards_are_large():
    debiased = local(20_000, accuracy=0.95)
    mixture = local(20_000, accuracy=0.95, method="mixture")
    assert mixture.standard_error < debiased.standard_error / 2
    assert mixture.accuracy > debiased.accuracy


def test_the_local_way_does_not_use_delta():
    a, b = (estimate(100, dimension=4, epsilon=1.0, delta=delta) for delta in (0.0, 0.1))
    assert a.ways["labels"] == b.ways["labels"]
    assert (a.delta, b.delta) == (0.0, 0.1)


def test_ways_with_a_curator_need_delta():
    found = estimate(100, dimension=4, epsilon=1.0, delta=0.0)
    assert list(found.ways) == ["labels"]
    assert list(found.left_out) == ["label-estimate", "record-estimate"]
    assert set(found.left_out.values()) == {"left out, needs delta above 0"}
    assert found.break_even is None
    assert "noise on the estimate, records hidden: left out, needs delta above 0" in str(found)


def test_three_ways_in_this_order():
    found = estimate(5000, dimension=32, epsilon=1.0, target=0.64, labels_per_person=5)
    assert list(found.ways) == ["labels", "label-estimate", "record-estimate"]
    assert not found.left_out
    local, label, record = found.ways.values()
    assert [way.unit for way in found.ways.values()] == ["label", "label", "record"]
    assert [way.neighbors for way in (local, label, record)] == [
        "REPLACE_ONE",
        "REPLACE_ONE",
        "REPLACE_SPECIAL",
    ]
    assert [way.delta for way in (local, label, record)] == [0.0, 1e-6, 1e-6]
    assert (label.flip_probability, record.flip_probability) == (None, None)
    assert local.accuracy < record.accuracy < label.accuracy < found.non_private.accuracy
    assert local.labels_needed > record.labels_needed > label.labels_needed
    assert label.person_epsilon > 5 * label.epsilon
    assert record.person_epsilon is None
    assert found.best == "label-estimate"
    assert label.epsilon == pytest.approx(1.0)
    assert label.odds >= math.exp(label.epsilon)
    assert record.odds == pytest.approx(math.e)


def test_few_labels_are_better_randomized():
    found = estimate(200, dimension=32, epsilon=2.0)
    assert found.best == "labels"
    assert found.break_even > 200
    more = estimate(found.break_even * 2, dimension=32, epsilon=2.0)
    assert (more.best, more.break_even) == ("label-estimate", found.break_even)


@pytest.mark.parametrize("name", ["label-estimate", "record-estimate"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("target", [0.5001, 0.6, 0.649])
@pytest.mark.parametrize("dimension", [1, 8, 400])
def test_noise_that_fades_is_searched_too(name, epsilon, target, dimension):
    world = {"dimension": dimension, "epsilon": epsilon}
    needed = estimate(10, target=target, **world).ways[name].labels_needed
    assert estimate(needed, **world).ways[name].accuracy >= target
    assert needed == 1 or estimate(needed - 1, **world).ways[name].accuracy < target


def test_equal_ways_are_settled_for_the_one_that_trusts_least():
    assert estimate(10**15, dimension=2, epsilon=44.0).best == "labels"


def test_odds_that_no_float_holds_are_infinite():
    way = estimate(10, dimension=2, epsilon=1000.0).ways["label-estimate"]
    assert (way.odds, way.belief) == (math.inf, 1.0)


def test_the_curve_and_the_estimate_agree():
    (row,) = utility_curve(700, dimension=9, epsilons=[0.7], accuracy=0.8)
    way = local(700, dimension=9, epsilon=0.7, accuracy=0.8)
    assert row == {
        "epsilon": 0.7,
        "flip_probability": way.flip_probability,
        "accuracy": way.accuracy,
        "standard_error": way.standard_error,
        "effective_judgments": way.effective_judgments,
    }
    assert utility_curve(700, dimension=9, epsilons=[]) == []


def test_json_holds_everything():
    found = estimate(100, dimension=4, epsilon=1.0, target=0.6, labels_per_person=3)
    value = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert set(value) == set(Forecast.__dataclass_fields__)
    assert list(value["ways"]) == ["labels", "label-estimate", "record-estimate"]
    assert value["ways"]["label-estimate"]["flip_probability"] is None
    assert value["ways"]["labels"]["labels_needed"] == found.ways["labels"].labels_needed
    assert value["assumed_accuracy"] == 0.65


def test_it_prints_assumption_and_result():
    text = str(estimate(20_000, dimension=8, epsilon=1.0))
    assert "assuming that the true reward predicts 0.65" in text
    assert "noise on labels: epsilon=1, delta=0 per label: accuracy 0.649" in text
    assert (
        "noise on the estimate, records hidden: epsilon=1, delta=1e-06 per record: accuracy 0.650"
        in text
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n": 0}, "n must"),
        ({"n": 2.5}, "n must"),
        ({"n": True}, "n must"),
        ({"dimension": 0}, "dimension"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1e-9}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -1e-9}, "delta"),
        ({"accuracy": 0.5}, "accuracy"),
        ({"accuracy": 1.0}, "accuracy"),
        ({"accuracy": math.nan}, "accuracy"),
        ({"accuracy": "0.6"}, "accuracy"),
        ({"target": 0.5}, "target"),
        ({"target": 1}, "target"),
        ({"labels_per_person": 0}, "labels_per_person"),
        ({"method": "plain"}, "method"),
    ],
)
def test_settings_out_of_range(change, word):
    settings = {"n": 100, "dimension": 4, "epsilon": 1.0} | change
    with pytest.raises(UsageError, match=word):
        estimate(settings.pop("n"), **settings)
