"""Settings, statements and outputs of the Gaussian mechanism."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sordino._random import SimulatedEntropy, SystemEntropy
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms import grid as _grid
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.privacy.conversions import gaussian_delta, gaussian_epsilon, gaussian_mu
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL

RELATIONS = (REPLACE_SPECIAL, ADD_OR_REMOVE_ONE, REPLACE_ONE)
SLACK = 1 + 2.0**-20


def make(noise=3.0, **settings):
    settings = {"bound": 2.0, "neighbors": ADD_OR_REMOVE_ONE, "delta": 1e-6} | settings
    return GaussianMechanism(noise, **settings)


def seeded(seed=7):
    return SimulatedEntropy(seed)


class NoWords:
    """System entropy whose words nobody may read."""

    randomness = "system"

    def words(self, n):
        raise AssertionError


# --- what it is and what it says ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("neighbors", "factor"), [(REPLACE_SPECIAL, 1), (ADD_OR_REMOVE_ONE, 1), (REPLACE_ONE, 2)]
)
@pytest.mark.parametrize("cap", [None, 1, 5])
def test_sensitivity_and_event_of_every_relation(neighbors, factor, cap):
    mechanism = make(neighbors=neighbors, records_per_person=cap)
    assert mechanism.sensitivity(neighbors) == factor * (cap or 1) * 2.0
    expected = factor * (cap or 1) * 2.0 / 3.0 * SLACK
    assert mechanism.mu(neighbors) == pytest.approx(expected, rel=1e-15)
    assert mechanism.event.mu == mechanism.mu(neighbors)


@pytest.mark.parametrize("bound", [0.7, 0.5, 0.15, 0.35, 1 / 3])
def test_sensitivity_is_rounded_up(bound):
    """3 * 0.15 as floats lies below three times the float 0.15."""
    assert Fraction(3 * 0.15) < 3 * Fraction(0.15)
    stated = make(bound=bound, records_per_person=3).sensitivity(ADD_OR_REMOVE_ONE)
    assert Fraction(stated) >= 3 * Fraction(bound)
    assert Fraction(math.nextafter(stated, 0)) < 3 * Fraction(bound)


@pytest.mark.parametrize("cap", [None, 1, 2, 7])
@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("unit", ["label", "record", "person"])
def test_the_event_covers_every_promise(unit, neighbors, cap):
    mechanism = make(neighbors=neighbors, records_per_person=cap)
    try:
        promise = mechanism.guarantee(unit=unit, neighbors=neighbors, trust="central")
    except PrivacyError:
        assert (
            (unit == "person" and cap is None)
            or (unit == "label" and neighbors != REPLACE_ONE)
            or (unit == "record" and neighbors == ADD_OR_REMOVE_ONE and cap is not None)
        )
        return
    one_record = make(neighbors=neighbors)
    spent = gaussian_epsilon(1e-6, mechanism.event.mu)
    assert promise.epsilon <= spent * (1 + 1e-12)
    told = mechanism if unit == "person" else one_record
    exact = gaussian_epsilon(1e-6, told.mu(neighbors))
    assert promise.epsilon == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("unit", "neighbors", "cap", "match"),
    [
        ("person", REPLACE_ONE, None, "Set records_per_person"),
        ("label", REPLACE_SPECIAL, None, "under REPLACE_ONE only"),
        ("label", ADD_OR_REMOVE_ONE, 3, "under REPLACE_ONE only"),
        ("record", ADD_OR_REMOVE_ONE, 3, "push another one out"),
    ],
)
def test_what_is_not_promised_is_refused(unit, neighbors, cap, match):
    with pytest.raises(PrivacyError, match=match):
        make(records_per_person=cap).guarantee(unit=unit, neighbors=neighbors, trust="central")


# --- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"records_per_person": 0}, "records_per_person must be a whole number"),
        ({"records_per_person": 2.0}, "records_per_person must be a whole number"),
        ({"records_per_person": 2**41}, "records_per_person must be at most"),
        ({"bound": 1e-320}, "grid must be above 0"),
        ({"bound": 1e300, "noise": 1e300}, "grid must be above 0 and at most 2\\^900"),
        (
            {"noise": 9.0, "grid": math.nextafter(2.0 / 2**10, 1)},
            "bound must be between 1024 and 67108864 steps",
        ),
        ({"grid": math.nextafter(2.0 / 2**26, 0)}, "bound must be between"),
        ({"noise": math.nextafter(2.0**-7, 0)}, "standard_deviation must be between 4096 and"),
        ({"noise": 2.0**33 * 1.1}, "standard_deviation must be between"),
    ],
)
def test_settings_out_of_range(wrong, match):
    with pytest.raises(UsageError, match=match):
        make(**wrong)


@pytest.mark.parametrize("cap", [None, 4])
@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1e-3, 1e-3), (0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-12), (50.0, 0.4)]
)
def test_calibrated_keeps_what_was_asked_and_no_less_noise_would(epsilon, delta, neighbors, cap):
    mechanism = GaussianMechanism.calibrated(
        epsilon, delta=delta, bound=0.3, neighbors=neighbors, records_per_person=cap
    )
    unit = "person" if cap else "record"
    promise = mechanism.guarantee(unit=unit, neighbors=neighbors, trust="central")
    assert promise.epsilon <= epsilon
    assert promise.delta == delta
    assert gaussian_delta(epsilon, mechanism.mu(neighbors)) <= delta * (1 + 1e-12)
    quieter = dataclasses.replace(
        mechanism, standard_deviation=mechanism.standard_deviation * (1 - 1e-8)
    )
    worse = quieter.guarantee(unit=unit, neighbors=neighbors, trust="central")
    assert worse.epsilon > epsilon
    ideal = mechanism.sensitivity(neighbors) / gaussian_mu(epsilon, delta)
    assert mechanism.standard_deviation == pytest.approx(ideal * SLACK, rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1e-310}, "delta=1e-310 is too small"),
        ({"bound": 0.0}, "bound"),
        ({"bound": 1e308, "records_per_person": 2**40}, "standard_deviation"),
        ({"neighbors": None}, "neighbors"),
        ({"records_per_person": -1}, "records_per_person"),
        ({"records_per_person": "3"}, "records_per_person"),
        ({"epsilon": 1e6}, "steps of the grid"),
        ({"grid": 1e-3}, "steps of the grid"),
    ],
)
def test_calibration_out_of_range(wrong, match):
    settings = {"epsilon": 1.0, "delta": 1e-6, "bound": 1.0, "neighbors": REPLACE_ONE} | wrong
    with pytest.raises(UsageError, match=match):
        GaussianMechanism.calibrated(settings.pop("epsilon"), **settings)


# --- values ------------------------------------------------------------------------------------


def test_more_columns_than_integers_can_square():
    fine = make(grid=2.0 / 2**26)
    assert fine._sum(np.ones((1, 2**10))).shape == (2**10,)
    with pytest.raises(DataError, match="between 1 and 1024 columns"):
        fine.release(np.ones((1, 2**10 + 1)), entropy=NoWords())


# --- persons -----------------------------------------------------------------------------------


def test_a_cap_counts_the_first_records_of_each_person():
    capped = make(noise=2.0**-6, records_per_person=2)
    values = np.array([[1.0], [0.01], [0.5], [0.25], [0.02]])
    for ids in (["a", "b", "a", "a", "b"], np.array([7, 3, 7, 7, 3]), [1, "2", " 1", "1", 2]):
        steps = capped._sum(values, ids)[0]
        assert steps == np.rint(values[[0, 1, 2, 4]] / capped.step).sum()
    spread = capped.release(values, entropy=SystemEntropy(), persons=["a", "b", "a", "a", "b"])
    assert abs(spread[0] - 1.53) < 12 * 2.0**-6  # false alarm below 1e-30


@pytest.mark.parametrize(
    ("persons", "match"),
    [
        (["a"] * 3, "one id for each row"),
        (["a"] * 5, "one id for each row"),
        ([], "one id for each row"),
        (["a", "b", None, "c"], "entry of persons must be a text or a whole"),
        (["a", math.nan, "b", "c"], "a text or a whole number"),
        (np.array([1.0, 2.0, 3.0, math.nan]), "a text or a whole number"),
        (np.array("abcd"), "one id for each row"),
    ],
)
def test_persons_that_cannot_be_used(persons, match):
    with pytest.raises(DataError, match=match) as caught:
        make(records_per_person=1).release(np.ones((4, 1)), entropy=NoWords(), persons=persons)
    assert "4" not in str(caught.value)
    assert str(len(np.atleast_1d(persons))) not in str(caught.value)


def test_persons_are_asked_for_exactly_with_a_cap():
    with pytest.raises(UsageError, match="persons is needed with records_per_person=2"):
        make(records_per_person=2).release(np.ones((1, 1)), entropy=NoWords())
    with pytest.raises(UsageError, match="used only with records_per_person"):
        make().release(np.ones((1, 1)), entropy=NoWords(), persons=["a"])


# --- noise -------------------------------------------------------------------------------------


def test_system_entropy_never_takes_the_floating_point_path(monkeypatch):
    monkeypatch.setattr(_grid, "normals", None)
    make().release(np.ones((1, 1)), entropy=NoWords())
    make().repeat(np.ones((1, 1)), 2, entropy=NoWords())
    with pytest.raises(TypeError):
        make().release(np.ones((1, 1)), entropy=seeded())


def test_the_exact_noise_has_the_size_and_the_center_that_it_says():
    """20,000 numbers that cannot be seeded, in three parts.

    False alarms: 5.3 deviations of the mean, 1.2e-7; the variance outside its central interval,
    3e-7; any number 8 deviations away, 2.5e-11. Together below 5e-7. Power: noise of half or of
    twice the size, or 10 % off, is missed with chance below 1e-9.
    """
    mechanism = make(noise=3.0, bound=2.0, grid=2.0**-11)
    values = np.array([[0.5, -1.0], [40.0, 0.0], [0.25, 0.125]])
    released = mechanism.repeat(values, 10_000, entropy=SystemEntropy())
    noise = (released - [2.75, -0.875]) / 3.0
    count = noise.size
    assert count == 20_000
    assert abs(noise.mean()) < 5.3 / math.sqrt(count)
    low, high = stats.chi2.ppf([1.5e-7, 1 - 1.5e-7], count) / count
    assert low < (noise**2).mean() < high
    assert abs(noise).max() < 8
    assert len(set(noise.ravel().tolist())) > count / 10  # 12,000 likely values: no constant


def test_opendp_adds_exactly_and_saturates():
    """What the proof asks of OpenDP: no wrapping, and no float between sum and noise."""
    total = np.array([2**62, -(2**62), 2**62 + 1], dtype=np.int64)
    noised = _grid.with_noise(total, 4096.0, SystemEntropy())
    assert (abs(noised - total) < 40 * 4096).all()
    edge = np.full(64, 2**63 - 1, dtype=np.int64)
    assert (_grid.with_noise(edge, 4096.0, SystemEntropy()) > 2**62).all()
    odd = _grid.with_noise(np.full(200, 2**60, dtype=np.int64), 4096.0, SystemEntropy()) % 2
    assert set(odd.tolist()) == {0, 1}  # all alike with chance 2^-199


# --- the auditor's side --------------------------------------------------------------------------


def test_the_ratio_is_that_of_the_probabilities_on_the_grid():
    mechanism = make(noise=2.0, grid=2.0**-11)
    case = WorstCase(np.array([[1.0, 0.5], [9.0, 0.0]]), np.array([[0.25, -0.5]]))
    sums = np.array([[3.0, 0.5], [0.25, -0.5]])  # the second record is clipped to norm 2
    outputs = mechanism.repeat(case.one, 20, entropy=seeded())
    direct = [stats.norm.logpdf(outputs, s, 2.0).sum(axis=1) for s in sums]
    assert mechanism.log_ratio(outputs, case) == pytest.approx(direct[0] - direct[1], rel=1e-9)
    assert mechanism.log_ratio(outputs, WorstCase(case.one, case.one)).tolist() == [0.0] * 20
