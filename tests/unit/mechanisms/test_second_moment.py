"""The second moment: what one record moves, in integers, and the noise that hides it."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino._random import entropy
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms import gaussian as second_moment
from sordino.mechanisms.gaussian import SecondMoment, joint_mechanisms
from sordino.mechanisms.grid import GRID_SLACK, outer_products
from sordino.privacy.conversions import gaussian_delta, gaussian_mu
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    NeighboringRelation,
)

RELATIONS = (REPLACE_SPECIAL, ADD_OR_REMOVE_ONE, REPLACE_ONE)
CORE = json.loads((Path(__file__).parents[2] / "data/core.json").read_text(encoding="utf-8"))


def made(neighbors=ADD_OR_REMOVE_ONE, *, bound=1.0, epsilon=1.0, delta=1e-6):
    moved = bound**2 * (math.sqrt(2) if neighbors == REPLACE_ONE else 1.0) * (1 + 1e-12)
    size = moved * GRID_SLACK / gaussian_mu(epsilon, delta)
    return SecondMoment(size, bound=bound, neighbors=neighbors, delta=delta)


@pytest.mark.parametrize(
    "row",  # where a label is hidden there is no noise, and no such release
    [row for row in CORE["second_moment_standard_deviation_over_L2"] if "unit" not in row],
)
def test_stored_noise(row):
    noise = made(NeighboringRelation[row["neighbors"]], bound=2.0)
    assert row["value"] * (1 - 1e-7) <= noise.standard_deviation <= row["value"] * (1 + 1e-5)


# --- what one record moves --------------------------------------------------------------------


def moved_squared(noise, one, other):
    """The squared Frobenius distance of two sums, as an exact fraction."""
    steps = noise._sum(one).astype(object) - noise._sum(other).astype(object)
    return sum(int(k) ** 2 for k in steps.ravel()) * Fraction(noise.step) ** 4


def neighbor(values, relation, new):
    if relation == ADD_OR_REMOVE_ONE:
        return values[1:]
    return np.vstack([np.zeros_like(new) if relation == REPLACE_SPECIAL else new, values[1:]])


NUMBERS = st.one_of(
    st.floats(-3.0, 3.0), st.floats(allow_nan=False, allow_infinity=False), st.just(0.0)
)


@st.composite
def rows(draw):
    d = draw(st.integers(1, 6))
    values = draw(st.lists(st.lists(NUMBERS, min_size=d, max_size=d), min_size=2, max_size=5))
    return np.array(values)


@given(rows(), st.sampled_from(RELATIONS), st.sampled_from([1.0, 0.1, math.pi, 1e-90, 1e90]),
       st.sampled_from([2**10, 1500.5, 2**20, 2**24]))  # fmt: skip
@settings(max_examples=200)
def test_one_record_moves_the_sum_by_the_sensitivity(values, relation, bound, steps):
    grid = math.nextafter(bound / steps, math.inf) if steps == 2**24 else bound / steps
    noise = SecondMoment(bound * bound * 4, bound=bound, neighbors=relation, delta=1e-6, grid=grid)
    limit = Fraction(noise.sensitivity(relation)) ** 2
    for new in (values[-1:], -values[:1], values[:1, ::-1]):
        assert moved_squared(noise, values, neighbor(values, relation, new)) <= limit


@given(rows())
@settings(max_examples=100)
def test_no_record_changes_what_another_one_contributes(values):
    noise = made()
    alone = sum(noise._sum(row[np.newaxis]).astype(object) for row in values)
    assert (noise._sum(values) == alone).all()
    assert (noise._sum(values[::-1]) == alone).all()


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_worst_case_attains_the_sensitivity(relation):
    """Claim: PPHJ, Algorithm 2 (Lemma A.7): (ε/2, δ/2) with σ² = 64 log(1/δ)L⁴/(ε²n²)"""
    noise = made(relation)
    case = noise.worst_case(relation)
    moved = float(moved_squared(noise, case.one, case.other)) ** 0.5
    assert moved == pytest.approx(noise.sensitivity(relation), rel=1e-12)
    assert noise.event.mu == pytest.approx(moved / noise.standard_deviation, rel=1e-5)


def test_sums_are_exact_and_close_to_the_products():
    values = np.random.default_rng(0).normal(size=(700, 9)) * 0.2
    noise = made()
    steps = second_moment.clipped_rows(values, noise._most, noise.step)
    slow = sum(np.multiply.outer(r, r) for r in steps.astype(object))
    assert (noise._sum(values) == slow).all()
    kept = values * np.minimum(1.0, 1 / np.linalg.norm(values, axis=1, keepdims=True))
    assert noise._sum(values) * noise.step**2 == pytest.approx(kept.T @ kept, abs=1e-3)


def test_halves_of_large_numbers_multiply_exactly():
    steps = np.array([[2**24, -(2**24)], [-(2**24) + 1, 3], [-1, -4097]])
    slow = sum(np.multiply.outer(r, r) for r in steps.astype(object))
    assert (outer_products(steps) == slow).all()


# --- the noise --------------------------------------------------------------------------------


def test_noise_is_isotropic_in_frobenius_norm():
    """s² on the diagonal and s²/2 off it, symmetric: noise of one scale, mirrored, is another.

    20,000 draws: either sample variance is within 6 % but for a chance of 2e-9.
    """
    noise = made()
    found = noise.repeat(np.zeros((0, 3)), 20_000, entropy=entropy(4)).reshape(-1, 3, 3)
    assert np.array_equal(found, found.transpose(0, 2, 1))
    assert found[:, 0, 0].var() == pytest.approx(noise.standard_deviation**2, rel=0.06)
    assert found[:, 0, 1].var() == pytest.approx(noise.standard_deviation**2 / 2, rel=0.06)


def test_the_norm_of_the_noise_is_within_the_bound():
    """200 matrices at failure 1e-6: one above it has a chance of 2e-4 at most, here none is."""
    noise = made()
    found = noise.repeat(np.zeros((0, 12)), 200, entropy=entropy(5)).reshape(-1, 12, 12)
    norms = np.abs(np.linalg.eigvalsh(found)).max(axis=1)
    bound = noise.operator_norm_bound(12, failure_probability=1e-6)
    assert 0.4 * bound < norms.max() <= bound
    exact = noise.standard_deviation * (math.sqrt(24) + math.sqrt(2 * math.log(2e6)))
    assert bound == pytest.approx(exact, rel=1e-5)


# --- what it states ---------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_stated_loss_is_that_of_the_gaussian(relation):
    noise = made(relation)
    found = noise.guarantee(unit="record", neighbors=relation, trust="central")
    assert 0.9999 < found.epsilon <= 1.0
    assert found.caveats == ()
    assert gaussian_delta(1.0, noise.event.mu) <= 1e-6
    # half the noise is not what it states
    assert gaussian_delta(1.0, 2 * noise.event.mu) > 1e-4


def test_other_units_are_refused():
    for unit in ("label", "person"):
        with pytest.raises(PrivacyError, match="promises nothing"):
            made().guarantee(unit=unit, neighbors=REPLACE_ONE, trust="central")


@pytest.mark.parametrize(
    "change",
    [
        {"standard_deviation": 0.0}, {"standard_deviation": math.inf}, {"bound": 1e200},
        {"bound": 1e-200}, {"grid": 1.0}, {"grid": 1e-9}, {"delta": 0.0},
        {"standard_deviation": 1e-30}, {"standard_deviation": 1e30},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(change):
    usual = {
        "standard_deviation": 4.0, "bound": 1.0, "neighbors": REPLACE_ONE,
        "delta": 1e-6,
    }  # fmt: skip
    assert SecondMoment(**usual).mu(REPLACE_ONE) > 0
    with pytest.raises(UsageError):
        SecondMoment(**usual | change)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 1.0, 50.0])
@pytest.mark.parametrize("bound", [1e-60, 3.0, 1e60])
def test_a_joint_release_finds_a_grid_that_holds_its_noise(epsilon, bound):
    tilt, noise = joint_mechanisms(epsilon, delta=1e-6, bound=bound, neighbors=REPLACE_SPECIAL)
    assert noise.mu(REPLACE_SPECIAL) <= tilt.second_moment_mu
    assert noise.mu(REPLACE_SPECIAL) == pytest.approx(tilt.second_moment_mu, rel=1e-5)
    assert (noise.grid is None) == (epsilon > 1e-3)
    assert noise.step <= bound / 2**10
    least = max(1e-8 * bound, tilt.standard_deviation * 2.0**-36)  # more noise, more rounding
    assert tilt.atol == pytest.approx(least)


def test_a_joint_release_that_no_grid_holds_is_refused_in_its_own_words():
    with pytest.raises(UsageError, match=r"share=1e-12 ask for noise.*Use a larger epsilon"):
        joint_mechanisms(1.0, delta=1e-6, bound=1.0, neighbors=REPLACE_SPECIAL, share=1e-12)


def test_the_accepted_gradient_may_be_given_for_both():
    tilt, _ = joint_mechanisms(1.0, delta=1e-6, bound=1.0, neighbors=REPLACE_SPECIAL, atol=1e-6)
    assert tilt.atol == 1e-6
