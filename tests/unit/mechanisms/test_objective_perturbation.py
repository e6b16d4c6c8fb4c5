"""Objective perturbation: its settings, its refusals and what it says of itself."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from tests.tiers import few

from sordino._random import entropy, normals
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    ApproximateEvent,
    NeighboringRelation,
)


def mechanism(epsilon=1.0, *, neighbors=REPLACE_SPECIAL, **settings):
    settings = {"delta": 1e-6, "bound": 1.0} | settings
    return ObjectivePerturbation(epsilon, neighbors=neighbors, **settings)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 50.0])
def test_the_usual_ridge_leaves_more_than_half_of_epsilon(epsilon):
    noise = mechanism(epsilon, bound=2.0)
    assert noise.ridge == pytest.approx(max(4 / (2 * math.expm1(epsilon / 2)), 3.0))
    assert math.log1p(noise.kappa / 4) < epsilon / 2
    assert noise.standard_deviation > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"delta": 0.0}, {"delta": 1.0}, {"bound": 0.0}, {"bound": math.inf}, {"atol": 0.0},
        {"ridge": -1.0}, {"second_moment_mu": -1.0}, {"second_moment_mu": math.inf},
        {"second_moment_mu": 0.3}, {"bound": 1e300}, {"bound": 1e-300},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(UsageError):
        mechanism(**settings)


@pytest.mark.parametrize("size", [1e-60, 1e-6, 1.0, 1e6, 1e60])
def test_the_unit_of_the_features_changes_nothing(size):
    """A bound c times as large: ridge c², both noises, each in its unit, the same."""
    one, other = mechanism(), mechanism(bound=size)
    assert other.atol == pytest.approx(1e-8 * size)
    assert other.ridge == pytest.approx(one.ridge * size * size)
    assert other.standard_deviation == pytest.approx(one.standard_deviation * size)
    assert other.output_standard_deviation * size == pytest.approx(one.output_standard_deviation)


@pytest.mark.parametrize("epsilon", few([20.0, 50.0, 700.0, 1e4], 50.0))
@pytest.mark.parametrize("neighbors", [REPLACE_SPECIAL, REPLACE_ONE])
def test_a_large_epsilon_is_not_drowned_in_the_noise_of_the_output(epsilon, neighbors):
    """With the ridge that half of 50 would allow, 7e-12, that noise was 2e4."""
    assert mechanism(epsilon, neighbors=neighbors).output_standard_deviation < 2e-3


@pytest.mark.parametrize("bound", [1e-61, 1e61])
def test_a_bound_that_cannot_be_computed_with_is_refused(bound):
    with pytest.raises(UsageError, match=r"bound=1e.?61 is too small or too large"):
        mechanism(bound=bound)


@pytest.mark.parametrize("neighbors", few(NeighboringRelation, first=1))
@pytest.mark.parametrize("epsilon", few([1e-3, 1.0, 8.0], 1.0))
def test_the_ridge_that_an_error_names_does(epsilon, neighbors):
    with pytest.raises(UsageError, match="would do") as caught:
        mechanism(epsilon, neighbors=neighbors, bound=3.0, ridge=1e-9)
    named = float(re.search(r"ridge=(\S+) would do", str(caught.value))[1])
    assert mechanism(epsilon, neighbors=neighbors, bound=3.0, ridge=named).mu > 0


def test_a_second_moment_that_leaves_next_to_nothing_is_refused_or_kept():
    alone = mechanism()
    some = mechanism(second_moment_mu=0.1)
    assert some.standard_deviation > alone.standard_deviation
    with pytest.raises(UsageError, match="leaves nothing"):
        mechanism(neighbors=REPLACE_ONE, second_moment_mu=0.15)


def test_what_it_states():
    noise = mechanism()
    assert noise.event == ApproximateEvent(1.0, 1e-6)
    for neighbors in (REPLACE_SPECIAL, ADD_OR_REMOVE_ONE):
        found = noise.guarantee(unit="record", neighbors=neighbors, trust="central")
        assert (found.epsilon, found.delta, found.caveats) == (1.0, 1e-6, ("real-arithmetic",))
        assert noise.sensitivity(neighbors) == 1.0
    assert noise.sensitivity(REPLACE_ONE) == 2.0


def test_what_it_does_not_promise():
    with pytest.raises(PrivacyError, match="Build it with neighbors=REPLACE_ONE"):
        mechanism().guarantee(unit="record", neighbors=REPLACE_ONE, trust="central")
    for unit in ("label", "person"):
        with pytest.raises(PrivacyError, match="unit='record'"):
            mechanism().guarantee(unit=unit, neighbors=REPLACE_ONE, trust="central")


def finished(theta, size):
    found = SimpleNamespace(theta=theta, gradient_norm=size)
    return mechanism().release(lambda _: found, d=2, entropy=entropy(0))


@pytest.mark.parametrize("size", [1.001e-8, math.inf, math.nan, -1.0])
def test_a_minimizer_that_is_not_one_is_never_released(size):
    with pytest.raises(ConvergenceError, match="Nothing was released"):
        finished(np.zeros(2), size)


def test_weights_that_are_not_finite_are_refused():
    with pytest.raises(DataError):
        finished(np.array([0.0, math.nan]), 0.0)


class Words:
    """Given words, in turn."""

    randomness = "simulated"

    def __init__(self, *words):
        self._words = np.array(words, dtype=np.uint64)

    def words(self, n):
        return np.resize(self._words, n)


def test_normals_are_symmetric_finite_and_reach_the_tails():
    low, high, least = normals(Words(0, 1, 2**64 - 1), 3)
    assert low == -high
    assert abs(low) == pytest.approx(9.155, abs=0.01)
    assert least == 0.0
    sample = normals(entropy(0), 100_000)
    quantiles = np.quantile(sample, [0.0013499, 0.1586553, 0.5, 0.8413447, 0.9986501])
    assert quantiles == pytest.approx([-3, -1, 0, 1, 3], abs=0.12)
