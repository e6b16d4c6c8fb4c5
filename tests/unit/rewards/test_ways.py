"""Three ways, what they promise and what they leave to learn."""

import math
from itertools import pairwise

import numpy as np
import pytest

from sordino import REPLACE_ONE, REPLACE_SPECIAL, RandomizedResponse, UsageError
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.privacy.gaussian import gaussian_delta
from sordino.rewards.forecast import WAYS, break_even, offered_ways
from sordino.rewards.forecast_model import World, lost_accuracy, tilted_scatter

CENTRAL = ("label-estimate", "record-estimate")


def world(dimension=16, accuracy=0.65):
    return World.of(dimension, accuracy, "debiased")


def test_promises_are_those_of_the_mechanisms():
    ways, left_out = offered_ways(world(), 1.0, 1e-6)
    assert list(ways) == list(WAYS) == ["labels", *CENTRAL]
    assert not left_out
    promises = [way.promise() for way in ways.values()]
    assert [str(promise.unit) for promise in promises] == ["label", "label", "record"]
    relations = [REPLACE_ONE, REPLACE_ONE, REPLACE_SPECIAL]
    assert [promise.neighbors for promise in promises] == relations
    assert [promise.trust for promise in promises] == ["local", "central", "central"]
    assert [promise.delta for promise in promises] == [0.0, 1e-6, 1e-6]
    assert [promise.epsilon for promise in promises] == pytest.approx([1.0, 1.0, 1.0])
    assert all(promise.epsilon <= 1.0 for promise in promises)


def test_the_noise_is_that_of_the_mechanisms():
    ways, _ = offered_ways(world(), 0.5, 1e-5)
    tilt = ObjectivePerturbation(0.5, delta=1e-5, bound=1.0, neighbors=REPLACE_SPECIAL)
    sizes = 1 / LabelGaussian(0.5, delta=1e-5).mu, tilt.standard_deviation
    spread = world().spread
    for name, size in zip(CENTRAL, sizes, strict=True):
        for n in (10, 5000):
            given = {"n": n, "dimension": 16, "standard_deviation": size}
            plain = tilted_scatter(spread, ridge=0.0, **given)
            assert ways[name].outlook.small_ridge(n) == plain
    (fit,) = ways["record-estimate"].outlook.fits(300)
    assert fit == tilted_scatter(
        spread, n=300, dimension=16, standard_deviation=sizes[1], ridge=tilt.ridge_for(300, 16)
    )


def test_the_best_of_the_ridges_is_taken_for_labels():
    outlook = WAYS["label-estimate"](world(20, 0.95), 1.0, 1e-6).outlook
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


@pytest.mark.parametrize("accuracy", [0.501, 0.65, 0.9, 0.99, 0.99999])
@pytest.mark.parametrize("dimension", [1, 3, 200])
@pytest.mark.parametrize("epsilon", [1e-4, 0.5, 5.0, 40.0])
@pytest.mark.parametrize("name", CENTRAL)
def test_more_labels_never_hurt_and_noise_never_helps(accuracy, dimension, epsilon, name):
    outlook = WAYS[name](world(dimension, accuracy), epsilon, 1e-6).outlook
    counts = np.unique(np.geomspace(1, 1e12, 60).astype(int)).tolist()
    found = [outlook.accuracy(n) for n in counts]
    assert all(b >= a - 1e-13 for a, b in pairwise(found))
    assert all(0.5 - 1e-12 <= value <= accuracy for value in found)
    for n, value in zip(counts, found, strict=True):
        assert value <= accuracy - outlook.world.lost(outlook.world.free, n)
        assert outlook.effective_judgments(n) <= n


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("dimension", [1, 32])
def test_small_rewards_break_even_where_the_closed_form_says(epsilon, dimension):
    """4dκ²/(μ²(1 − κ²))."""
    ways, _ = offered_ways(world(dimension, 0.5001), epsilon, 1e-6)
    kappa, mu = RandomizedResponse(epsilon).kappa, LabelGaussian(epsilon, delta=1e-6).mu
    expected = 4 * dimension * kappa**2 / (mu**2 * (1 - kappa**2))
    found = break_even(ways["labels"].outlook, ways["label-estimate"].outlook)
    assert found == pytest.approx(expected, rel=1e-3, abs=1)


@pytest.mark.parametrize("accuracy", [0.6, 0.9])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_errors_cross_at_the_break_even(accuracy, epsilon):
    ways, _ = offered_ways(world(12, accuracy), epsilon, 1e-6)
    local, central = ways["labels"].outlook, ways["label-estimate"].outlook
    n = break_even(local, central)
    assert central.standard_error(n) < local.standard_error(n)
    assert central.standard_error(n - 1) >= local.standard_error(n - 1) * (1 - 1e-12)


def test_without_flips_there_is_nothing_to_break_even_with():
    ways, _ = offered_ways(world(), 44.0, 1e-6)
    assert break_even(ways["labels"].outlook, ways["label-estimate"].outlook) is None


@pytest.mark.parametrize(("epsilon", "labels"), [(1.0, 1), (1.0, 5), (0.2, 40)])
def test_labels_of_one_person_move_the_sum_together(epsilon, labels):
    loss = WAYS["label-estimate"](world(), epsilon, 1e-6).person_epsilon(labels)
    mu = labels * LabelGaussian(epsilon, delta=1e-6).mu
    assert gaussian_delta(loss, mu) <= 1e-6 * (1 + 1e-9)
    assert gaussian_delta(loss * (1 - 1e-6), mu) > 1e-6
    assert loss > labels * epsilon * (1 - 1e-9)


def test_records_of_one_person_have_no_epsilon_at_this_delta():
    assert WAYS["record-estimate"](world(), 1.0, 1e-6).person_epsilon(3) is None


@pytest.mark.parametrize("name", CENTRAL)
def test_ways_with_a_curator_refuse_a_delta_of_zero(name):
    with pytest.raises(UsageError, match="delta"):
        WAYS[name](world(), 1.0, 0.0)


def test_what_is_left_out_says_why():
    ways, left_out = offered_ways(world(), 1.0, 0.0)
    assert list(ways) == ["labels"]
    assert left_out == dict.fromkeys(CENTRAL, "left out, needs delta above 0")
    ways, left_out = offered_ways(world(), 1.0, 1e-100)
    assert list(ways) == ["labels", "label-estimate"]
    assert left_out["record-estimate"].endswith("keeps epsilon=1.0 with delta=1e-100")
    with pytest.raises(UsageError, match="epsilon"):
        offered_ways(world(), math.nan, 1e-6)
