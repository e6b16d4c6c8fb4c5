"""The Gaussian mechanism, exactly: what a change moves, and what discrete noise hides of it."""

import math
from fractions import Fraction
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import few

from sordino.errors import PrivacyError
from sordino.mechanisms import gaussian
from sordino.mechanisms import grid as _grid
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.grid import _shortened, _steps, first_rows, root_above
from sordino.privacy.conversions import gaussian_delta
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL

RELATIONS = (REPLACE_SPECIAL, ADD_OR_REMOVE_ONE, REPLACE_ONE)
LEAST_NOISE, LEAST_BOUND = 2**12, 2**10
ABOVE = 8e-14  # rounding of float64 terms; the mpmath test shows that it is enough


def coarsest(*, neighbors=ADD_OR_REMOVE_ONE, bound=1.0, cls=GaussianMechanism, **settings_):
    """The mechanism whose grid is as coarse as permitted, for bound and for noise."""
    grid = settings_.pop("grid", bound / LEAST_BOUND)
    noise = settings_.pop("standard_deviation", grid * LEAST_NOISE)
    return cls(noise, bound=bound, neighbors=neighbors, delta=1e-6, grid=grid, **settings_)


# --- what one change moves: integers, no rounding anywhere ------------------------------------


def moved_squared(mechanism, one, other, persons=(None, None)):
    """The squared distance between two sums, as an exact fraction in the unit of the values."""
    sums = [mechanism._sum(v, p) for v, p in zip((one, other), persons, strict=True)]
    steps = [int(a) - int(b) for a, b in zip(*sums, strict=True)]
    return sum(k * k for k in steps) * Fraction(mechanism.step) ** 2


def moves_little(mechanism, neighbors, one, other, persons=(None, None)):
    """The check that mutants must fail: this change moves the sum by the stated sensitivity."""
    limit = Fraction(mechanism.sensitivity(neighbors)) ** 2
    return moved_squared(mechanism, one, other, persons) <= limit


def changed(values, neighbors, index, new):
    """The neighbor of an array in one record."""
    if neighbors == ADD_OR_REMOVE_ONE:
        return np.delete(values, index, axis=0)
    other = values.copy()
    other[index] = 0.0 if neighbors == REPLACE_SPECIAL else new
    return other


ANY = st.floats(allow_nan=False, allow_infinity=False)
NEAR = st.floats(-8.0, 8.0)
TINY = st.sampled_from([5e-324, -5e-324, 2.3e-308, 1e-300, 0.0, -0.0])
HUGE = st.sampled_from([1.7976931348623157e308, -1.7976931348623157e308, 1e300, 1e154, -1e200])
BOUNDS = st.sampled_from([1.0, 0.1, 3.7, math.pi, 1e-290, 1e250])
STEPS = st.floats(2.0**10, 2.0**26)  # of the bound


@st.composite
def arrays(draw, *, least=1, most=5):
    d, n = draw(st.integers(1, 20)), draw(st.integers(least, most))
    kinds = st.sampled_from([ANY, NEAR, TINY, HUGE, st.one_of(ANY, NEAR, TINY, HUGE)])
    rows = [draw(st.lists(draw(kinds), min_size=d, max_size=d)) for _ in range(n)]
    return np.array(rows, dtype=np.float64).reshape(n, d)


@st.composite
def mechanisms(draw, **settings_):
    bound = draw(BOUNDS)
    # A power of two below, or a step that does not divide the bound.
    steps = draw(st.one_of(st.integers(10, 26).map(lambda e: 2.0**e), STEPS))
    grid = max(bound / steps, math.nextafter(bound / 2**26, math.inf))
    grid = min(grid, math.nextafter(bound / 2**10, 0.0))
    return coarsest(bound=bound, grid=grid, **settings_)


@given(mechanisms(), arrays())
@settings(max_examples=250)
def test_every_record_alone_is_within_the_bound_in_integers(mechanism, values):
    largest = Fraction(mechanism.bound) / Fraction(mechanism.step)
    assert mechanism._most == math.floor(largest)
    for row in values:
        steps = mechanism._sum(row[np.newaxis])
        assert sum(int(k) ** 2 for k in steps) <= mechanism._most**2 <= largest**2


@given(mechanisms(), arrays(least=0, most=6), st.integers(0, 6))
@settings(max_examples=150)
def test_no_record_changes_what_another_one_contributes(mechanism, values, cut):
    together = mechanism._sum(values)
    alone = [mechanism._sum(row[np.newaxis]) for row in values]
    assert together.tolist() == np.sum(alone, axis=0, dtype=object).tolist() if alone else True
    parts = mechanism._sum(values[:cut]) + mechanism._sum(values[cut:])
    assert together.tolist() == parts.tolist()
    assert together.tolist() == mechanism._sum(np.asfortranarray(values)).tolist()
    assert together.tolist() == mechanism._sum(values[::-1]).tolist()


@given(mechanisms(), arrays(), arrays(), st.integers(0, 4), st.sampled_from(RELATIONS))
@settings(max_examples=250)
def test_the_worst_neighbor_moves_the_sum_by_the_sensitivity(
    mechanism, values, news, index, neighbors
):
    index, new = index % len(values), np.resize(news[0], values.shape[1])
    other = changed(values, neighbors, index, new)
    assert moves_little(mechanism, neighbors, values, other)
    opposite = changed(values, neighbors, index, -values[index])
    assert moves_little(mechanism, neighbors, values, opposite)


@given(
    arrays(least=2, most=8),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=8, max_size=8),
    st.integers(1, 3),
    st.sampled_from(RELATIONS),
    BOUNDS,
)
@settings(max_examples=200)
def test_all_records_of_one_person_move_it_by_at_most_the_cap(values, ids, cap, neighbors, bound):
    mechanism = coarsest(bound=bound, records_per_person=cap)
    ids = ids[: len(values)]
    mine = [i for i, person in enumerate(ids) if person == "a"]
    other, others = changed(values, neighbors, mine, -values[mine]), ids
    if neighbors == ADD_OR_REMOVE_ONE:
        others = [person for person in ids if person != "a"]
    assert moves_little(mechanism, neighbors, values, other, (ids, others))


@given(arrays(least=2, most=8), st.data(), st.sampled_from([REPLACE_ONE, REPLACE_SPECIAL]))
@settings(max_examples=150)
def test_with_a_cap_one_record_moves_it_as_one_record_does(values, data, neighbors):
    """What unit="record" and unit="label" state with a cap: ids stay with their rows."""
    capped, single = coarsest(records_per_person=2), coarsest()
    ids = [data.draw(st.sampled_from([1, 2, 3])) for _ in values]
    index = data.draw(st.integers(0, len(values) - 1))
    other = changed(values, neighbors, index, -values[index])
    moved = moved_squared(capped, values, other, (ids, ids))
    assert moved <= Fraction(single.sensitivity(neighbors)) ** 2


def test_with_a_cap_adding_one_record_may_move_it_further_than_one_record():
    """Why that promise is refused: the new first record pushes its opposite out."""
    capped = coarsest(records_per_person=1)
    one, other = np.array([[1.0]]), np.array([[-1.0], [1.0]])
    moved = moved_squared(capped, one, other, (["a"], ["a", "a"]))
    assert moved == (2 * Fraction(capped.bound)) ** 2
    assert not moves_little(capped, ADD_OR_REMOVE_ONE, one, other, (["a"], ["a", "a"]))
    with pytest.raises(PrivacyError, match="push another one out"):
        capped.guarantee(unit="record", neighbors=ADD_OR_REMOVE_ONE, trust="central")


@given(st.lists(st.sampled_from(["a", "b", 1, 2]), max_size=12), st.integers(1, 3))
def test_which_rows_count_depends_on_one_persons_rows_only(ids, most):
    counts = first_rows(ids, len(ids), most)
    for person in set(ids):
        mine = [bool(c) for c, p in zip(counts, ids, strict=True) if p == person]
        assert mine == [i < most for i in range(len(mine))]


@given(arrays(), BOUNDS)
@settings(max_examples=150)
def test_clipping_is_clipping(values, bound):
    """Within two steps of x·min(1, R/‖x‖) in every coordinate: nothing is lost needlessly."""
    mechanism = coarsest(bound=bound, grid=bound * 2.0**-20)
    for row in values:
        exact = [mpmath.mpf(float(x)) for x in row]
        norm = mpmath.sqrt(mpmath.fsum(x * x for x in exact))
        shrunk = [x * min(1, bound / norm) if norm else x for x in exact]
        steps = mechanism._sum(row[np.newaxis])
        assert all(
            abs(int(k) - x / mpmath.mpf(mechanism.step)) <= 2
            for k, x in zip(steps, shrunk, strict=True)
        )


@given(st.integers(0, 2**31), st.integers(-2, 2))
@settings(max_examples=500)
def test_whole_roots_are_never_below(root, near):
    square = min(max(root * root + near, 0), 2**62)
    above = int(root_above(np.array([square]))[0])
    assert above == (math.isqrt(square - 1) + 1 if square else 0)


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("cap", [None, 1, 3])
def test_the_worst_case_attains_the_sensitivity(neighbors, cap):
    mechanism = coarsest(neighbors=neighbors, records_per_person=cap)
    case = mechanism.worst_case(neighbors)
    moved = moved_squared(mechanism, case.one, case.other)
    assert moved == Fraction(mechanism.sensitivity(neighbors)) ** 2
    if cap is not None:
        ids = [["me"] * len(side) for side in (case.one, case.other)]
        assert moved_squared(mechanism, case.one, case.other, ids) == moved


def test_more_records_than_64_bits_hold_saturate_and_bring_no_two_sums_apart(monkeypatch):
    """2^62 would need 2^36 records, so the limit is lowered instead; chunks of 3, too."""
    monkeypatch.setattr(_grid, "_MOST", 100 * 2**20)
    monkeypatch.setattr(_grid, "_CHUNK", 3)
    sums = {}
    for n in (0, 1, 4, 398, 399, 400, 401, 402, 500):
        for sign in (1, -1):
            (total,) = _grid.clipped_sum(np.full((n, 1), float(sign)), 2**18, 2.0**-18)
            assert total == sign * min(n * 2**18, 100 * 2**20)
            sums[sign * n] = total
    assert all(abs(sums[n] - sums[n + 1]) <= 2**18 for n in (398, 399, 400, 401))


# --- what discrete noise hides of a shift: exact sums, no sampling ------------------------------


@lru_cache(maxsize=2)
def outputs(scale):
    """Every output that counts, and its probability; beyond 39 deviations lies below 1e-330."""
    k = np.arange(-math.ceil(39 * scale), math.ceil(39 * scale) + 1, dtype=np.float64)
    mass = np.exp(-k * k / (2 * scale * scale))
    return k, mass / mass.sum()


def discrete_delta(epsilon, shift, scale):
    """δ(ε) of the discrete Gaussian against itself moved by whole steps: a sum over outputs."""
    k, mass = outputs(scale)
    loss = shift * (shift + 2 * k) / (2 * scale * scale)  # log P(k)/P(k + shift), growing in k
    won = np.searchsorted(loss, epsilon)
    return float((mass[won:] * -np.expm1(epsilon - loss[won:])).sum())


def epsilons(shift, scale):
    """Losses from the bulk to the far tail whose threshold falls on a step, or between two."""
    mu = shift / scale
    for far in (max(-4.0, -mu / 2), -1.0, 0.0, 1.0, 3.0, 6.0, 12.0, 25.0):
        step = round(far * scale)
        for aligned in (0.0, 0.25, 0.5):
            yield max(0.0, (step + aligned + shift / 2) * shift / scale**2)


def hides(mechanism, neighbors):
    """The check that mutants must fail: the noise keeps the whole curve that mu promises."""
    vectors = (2 if neighbors == REPLACE_ONE else 1) * (mechanism.records_per_person or 1)
    shift, mu = vectors * mechanism._most, mechanism.mu(neighbors)
    return all(
        discrete_delta(epsilon, shift, mechanism._scale)
        <= gaussian_delta(epsilon, mu) * (1 + ABOVE) + 1e-300
        for epsilon in epsilons(shift, mechanism._scale)
    )


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("cap", [None, 2, 40])
def test_the_coarsest_grid_keeps_the_promised_curve(neighbors, cap):
    assert hides(coarsest(neighbors=neighbors, records_per_person=cap), neighbors)


@pytest.mark.parametrize("bound_steps", [2**12, 2**16, 2**20])
def test_little_noise_keeps_the_promised_curve(bound_steps):
    """mu up to 256: a step of the grid is then worth a loss of 1/16."""
    grid = 1.0 / bound_steps
    assert hides(coarsest(grid=grid), ADD_OR_REMOVE_ONE)


def test_a_finer_grid_keeps_the_promised_curve():
    assert hides(coarsest(grid=2.0**-12, standard_deviation=2.3), REPLACE_ONE)
    assert hides(coarsest(bound=0.1, grid=0.1 / 1500.3, standard_deviation=0.7), REPLACE_SPECIAL)


@pytest.mark.parametrize("aligned", few([0, 0.5], 0.5))
@pytest.mark.parametrize("far", few([0, 5], 5))
def test_the_curve_in_fifty_digits(far, aligned):
    """The same sum in mpmath, term by term from the ratio of neighbors, against both."""
    mechanism = coarsest(neighbors=REPLACE_ONE)
    scale, shift = int(mechanism._scale), 2 * mechanism._most
    assert (scale, shift) == (2**12, 2**11)
    epsilon = (far * scale + aligned + shift / 2) * shift / scale**2
    with mpmath.workdps(50):
        variance = mpmath.mpf(scale) ** 2

        def tail(first):  # P(Y >= first), 25 deviations on: what is left is below 1e-135
            k, mass, total = first, mpmath.exp(-(mpmath.mpf(first) ** 2) / 2 / variance), 0
            ratio = mpmath.exp(-(2 * mpmath.mpf(first) + 1) / 2 / variance)
            shrink = mpmath.exp(-1 / variance)
            for _ in range(25 * scale - first):
                total, mass, ratio, k = total + mass, mass * ratio, ratio * shrink, k + 1
            return total

        whole = scale * mpmath.sqrt(2 * mpmath.pi)  # Poisson summation: 1 + 2e^(-2π²σ²)
        first = math.floor(far * scale + aligned) + 1  # the loss is above epsilon from here on
        delta = (tail(first) - mpmath.exp(mpmath.mpf(epsilon)) * tail(first + shift)) / whole
        assert delta <= mpmath.mpf(gaussian_delta(epsilon, mechanism.mu(REPLACE_ONE)))
        assert abs(mpmath.mpf(discrete_delta(epsilon, shift, scale)) / delta - 1) < ABOVE


def test_the_grid_needs_its_allowance():
    """Without 2^-20 the promise fails: between two steps the discrete curve lies above."""

    class Free(GaussianMechanism):
        def _mu(self, neighbors, records):
            return super()._mu(neighbors, records) / gaussian.GRID_SLACK

    assert not hides(coarsest(cls=Free), ADD_OR_REMOVE_ONE)


def rounded_at_random(center, spread, rounding):
    """P(k): a continuous Gaussian at a center, then a discrete one around what it drew."""
    k = np.arange(-160, 161) + round(center)
    y = np.arange(-160, 160, 1 / 8) + 1 / 16 + center  # the trapezoid is exact to e^(-2π²·64·2)
    density = np.exp(-((y - center) ** 2) / (2 * spread**2)) / (spread * math.sqrt(2 * math.pi))
    to = np.exp(-((k[:, None] - y) ** 2) / (2 * rounding**2))
    return k, (to / to.sum(axis=0)) @ density / 8


@pytest.mark.parametrize(("scale", "rounding"), [(12, 2.0), (12, 4.0), (7.5, 1.7)])
def test_discrete_noise_is_continuous_noise_rounded_at_random(scale, rounding):
    """The fact behind the 2^-20, for every number of coordinates: each is rounded on its own.

    Claim: Others, Peikert 2010: continuous noise is what is left of discrete noise
    Verdict: true; with at least 2^12 steps up to 1 ± 10^-130 a coordinate
    Ours: sordino.mechanisms.gaussian.GaussianMechanism
    """
    k, made = rounded_at_random(3, math.sqrt(scale**2 - rounding**2), rounding)
    direct = np.exp(-((k - 3.0) ** 2) / (2 * scale**2))
    near = abs(k - 3) < 6 * scale
    allowed = 1e-10 + 8 * math.exp(-2 * math.pi**2 * rounding**2)
    assert abs(made / (direct / direct.sum()) - 1)[near].max() < allowed


def test_the_constants_are_those_of_the_proof():
    sigma, rounding = gaussian.STEPS_OF_NOISE[0], 4
    assert sigma == LEAST_NOISE
    assert gaussian.GaussianMechanism._steps_of_bound[0] == LEAST_BOUND
    with mpmath.workdps(60):
        cost = 1 / mpmath.sqrt(1 - mpmath.mpf(rounding) ** 2 / sigma**2)
        assert cost - 1 < mpmath.mpf(2) ** -21 * (1 + mpmath.mpf(2) ** -18)
        assert 8 * mpmath.exp(-2 * mpmath.pi**2 * rounding**2) < mpmath.mpf(10) ** -130
        assert mpmath.mpf(gaussian.GRID_SLACK) == 1 + mpmath.mpf(2) ** -20


@pytest.mark.parametrize("shift", [(13, 0), (5, 12), (9, 9), (7, 11), (25, 3)])
def test_two_coordinates_keep_the_curve_of_one(shift):
    """Every output of a plane: a shift that is no multiple of a step is hidden as well."""
    scale, rounding = 12.0, 2.0
    k = np.arange(-130.0, 131.0)
    one, two = np.meshgrid(k, k)
    mass = np.exp(-(one**2 + two**2) / (2 * scale**2))
    size = math.hypot(*shift)
    loss = (size**2 + 2 * (one * shift[0] + two * shift[1])) / (2 * scale**2)
    mu = size / math.sqrt(scale**2 - rounding**2)
    for epsilon in np.linspace(0.0, 6.0, 25):
        won = loss > epsilon
        delta = (mass[won] * -np.expm1(epsilon - loss[won])).sum() / mass.sum()
        assert delta <= gaussian_delta(epsilon, mu) * (1 + 1e-11)


# --- mutants: each is refuted by a check above ---------------------------------------------------


def lone_changes():
    """Values whose first record is the one that changes: alone, among like and unlike others."""
    big, small = np.full((5, 2), 100.0), np.full((40, 2), 0.3)
    yield from (big, -big, small, big * 1e300, np.vstack([big[:1], small]))
    yield np.vstack([2 * big[:1], -big[:1]])
    turns = np.linspace(0.0, math.pi, 40)
    yield from (np.array([[3 * math.cos(t), 3 * math.sin(t)]]) for t in turns)


def refuted_by(mechanism):
    """The names of the checks that a mechanism fails and an honest one survives."""
    cap, failed = mechanism.records_per_person, set()
    for neighbors in RELATIONS:
        if not hides(mechanism, neighbors):
            failed.add("noise")
        for values in lone_changes():
            other = changed(values, neighbors, 0, -values[0])
            ids = list(range(len(values))) if cap else None
            left = ids[len(values) - len(other) :] if cap else None
            if not moves_little(mechanism, neighbors, values, other, (ids, left)):
                failed.add("record")
        mine = np.full((5, 2), 100.0)
        other = changed(mine, neighbors, slice(None), -mine)
        ids = ["a"] * 5
        if cap and not moves_little(mechanism, neighbors, mine, other, (ids, ids[: len(other)])):
            failed.add("person")
    return failed


def scaled(vectors, most):
    """Rows of floats in steps, each cut to a norm of ``most``."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors * np.minimum(1, most / np.where(norms > 0, norms, 1))


class OnceForReplace(GaussianMechanism):
    def sensitivity(self, neighbors):
        return self.bound * (self.records_per_person or 1)

    def _mu(self, neighbors, records):
        return super()._mu(ADD_OR_REMOVE_ONE, records)


class HalfNoise(GaussianMechanism):
    @property
    def _scale(self):
        return super()._scale / 2


class Unclipped(GaussianMechanism):
    def _sum(self, values, persons=None):
        return np.rint(values / self.step).clip(-1e9, 1e9).astype(np.int64).sum(axis=0)


class ClippedAfterSumming(GaussianMechanism):
    def _sum(self, values, persons=None):
        total = (values.clip(-1e9, 1e9) / self.step).sum(axis=0)
        return np.trunc(scaled(total, self._most)).astype(np.int64)


class ClippedTogether(GaussianMechanism):
    """All rows shrink by the factor of the longest one."""

    def _sum(self, values, persons=None):
        rows = values.clip(-1e9, 1e9) / self.step
        longest = np.linalg.norm(rows, axis=1).max(initial=self._most)
        return np.trunc(rows * (self._most / longest)).astype(np.int64).sum(axis=0)


class ClippedPerCoordinate(GaussianMechanism):
    def _sum(self, values, persons=None):
        return _steps(values, self._most, self.step).sum(axis=0)


class RoundedWithoutEnforcing(GaussianMechanism):
    """The bound is held in floats and lost by rounding to the nearest step."""

    def _sum(self, values, persons=None):
        rows = scaled(values.clip(-1e9, 1e9) / self.step, self._most)
        return np.rint(rows).astype(np.int64).sum(axis=0)


class CapIgnored(GaussianMechanism):
    def _sum(self, values, persons=None):
        return super()._sum(values)


class CapOverAllPersons(GaussianMechanism):
    """The first m rows of the file count, so that one person pushes another one out."""

    def _sum(self, values, persons=None):
        return super()._sum(values[: self.records_per_person])


@pytest.mark.parametrize("cap", [None, 1, 2])
def test_an_honest_mechanism_survives_every_check(cap):
    assert refuted_by(coarsest(records_per_person=cap)) == set()


@pytest.mark.parametrize(
    ("mutant", "cap", "check"),
    [
        (OnceForReplace, None, "record"),
        (OnceForReplace, None, "noise"),
        (HalfNoise, None, "noise"),
        (Unclipped, None, "record"),
        (ClippedAfterSumming, None, "record"),
        (ClippedTogether, None, "record"),
        (ClippedPerCoordinate, None, "record"),
        (RoundedWithoutEnforcing, None, "record"),
        (CapIgnored, 1, "person"),
        (CapIgnored, 2, "person"),
        (CapOverAllPersons, 1, "record"),
    ],
)
def test_a_mutant_is_refuted(mutant, cap, check):
    assert check in refuted_by(coarsest(cls=mutant, records_per_person=cap))


def test_shortening_is_what_enforces():
    """What rounding made one step too long is cut; what fits is left alone."""
    rows = np.array([[724, 725, 1], [0, 0, 0], [1024, 0, 0], [1024, 1024, 1024]])
    assert (rows[0] ** 2).sum() > LEAST_BOUND**2
    shortened = _shortened(rows.copy(), LEAST_BOUND)
    assert ((shortened**2).sum(axis=1) <= LEAST_BOUND**2).all()
    assert shortened[1:3].tolist() == rows[1:3].tolist()
    assert abs(shortened[0] - rows[0]).max() <= 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_number_passes_the_bound_even_if_nothing_checked_it(value):
    """As an integer it would be -2^63, whose square is 0 in 64 bits."""
    rows = np.array([[value, 0.5], [1.0, value], [value, value]])
    steps = _grid.clipped_rows(rows, 2**20, 2.0**-20)
    assert ((steps.astype(object) ** 2).sum(axis=1) <= 2**40).all()
