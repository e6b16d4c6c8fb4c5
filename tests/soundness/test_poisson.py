"""Noised sums of Poisson samples: against integrals, other pairs, and dp_accounting itself."""

import itertools
import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import multivariate_normal
from tests.soundness.deltas import composed_delta
from tests.tiers import few

import sordino
from sordino.errors import BudgetExceeded, PrivacyError, UsageError
from sordino.privacy import accounting as a
from sordino.privacy.accountants import (
    _samples_interval,
    loss_distribution_bound,
    samples,
)
from sordino.privacy.accounting import calibrated_noise_multiplier
from sordino.privacy.conversions import gaussian_delta, gaussian_epsilon
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    GaussianEvent,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PureEvent,
)

RELATIONS = (ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL)
SETTINGS = [(1.0, 0.01), (0.6, 0.2), (2.0, 0.5), (4.0, 0.9), (0.4, 0.001)]


def density(x, noise, chance, moved):
    at, also = (np.exp(-0.5 * ((x - mean) / noise) ** 2) for mean in (moved, 0.0))  # fast for one x
    return (chance * at + (1 - chance) * also) / (noise * math.sqrt(2 * math.pi))


def directions(neighbors):
    """Where the contribution lies before and after the change."""
    return [(1.0, -1.0), (-1.0, 1.0)] if neighbors == REPLACE_ONE else [(1.0, 0.0), (0.0, 1.0)]


def integrated_delta(epsilon, noise, chance, neighbors):
    """∫(P − e^ε Q)₊ of one step, from the densities, cut where the sign changes."""

    def one(before, after):
        def gap(x):
            odds = math.exp(epsilon) * density(x, noise, chance, after)
            return density(x, noise, chance, before) - odds

        grid = np.linspace(-14 * noise - 1, 14 * noise + 1, 400)
        cuts = [
            brentq(gap, low, high)
            for low, high in itertools.pairwise(grid)
            if gap(low) * gap(high) < 0
        ]
        edges = [grid[0], *cuts, grid[-1]]
        return sum(
            max(0.0, quad(gap, low, high, epsabs=1e-13, epsrel=1e-11, limit=400)[0])
            for low, high in itertools.pairwise(edges)
        )

    return max(one(*pair) for pair in directions(neighbors))


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(("noise", "chance"), few(SETTINGS, first=1))
def test_one_step_is_the_integral_of_the_pair(noise, chance, neighbors):
    event = PoissonGaussianEvent(noise, chance, steps=1)
    bound = loss_distribution_bound({event: 1}, neighbors)
    for epsilon in (0.0, 0.05, 0.3, 1.0, 3.0):
        exact = integrated_delta(epsilon, noise, chance, neighbors)
        assert exact - 1e-12 <= bound.delta(epsilon) <= exact + 1e-6
        ours = composed_delta({event: 1}, neighbors=neighbors, epsilon=epsilon)
        assert exact - 1e-12 <= ours <= exact + 1e-6


def grid_delta(noise, chance, neighbors, steps, epsilons, *, up):
    """Compose losses that were rounded up or down onto a grid, by one's own Fourier transform."""
    width, cells = 5e-4, 2**18
    x = np.linspace(-11 * noise - 1, 11 * noise + 1, 400_001)
    found = np.zeros(len(epsilons))
    for before, after in directions(neighbors):
        first, second = (density(x, noise, chance, moved) for moved in (before, after))
        loss = np.log(first / second)
        cell = (np.ceil if up else np.floor)(loss / width + (1e-6 if up else -1e-6)).astype(int)
        mass = np.bincount(cell % cells, first * (x[1] - x[0]), minlength=cells)
        power = np.fft.irfft(np.fft.rfft(mass) ** steps, cells)
        losses = width * (np.arange(cells) - cells * (np.arange(cells) >= cells // 2))
        here = [np.sum(power * np.maximum(0, -np.expm1(e - losses))) for e in epsilons]
        found = np.maximum(found, here)
    return found


@pytest.mark.deep
@pytest.mark.parametrize("neighbors", few(RELATIONS, first=1))
@pytest.mark.parametrize(("noise", "chance"), [(1.0, 0.05), (2.0, 0.3)])
def test_a_hundred_steps_lie_between_two_roundings_and_near_the_central_limit(
    noise, chance, neighbors
):
    event, epsilons = PoissonGaussianEvent(noise, chance, steps=100), (0.5, 2.0, 5.0)
    ours = [composed_delta({event: 1}, neighbors=neighbors, epsilon=e) for e in epsilons]
    low = grid_delta(noise, chance, neighbors, 100, epsilons, up=False)
    high = grid_delta(noise, chance, neighbors, 100, epsilons, up=True)
    assert all(low - 1e-10 <= ours)
    assert all(ours <= high + 1e-10)
    size = 2.0 if neighbors == REPLACE_ONE else 1.0
    limit = size * chance * math.sqrt(100 * math.expm1(1 / noise**2))  # Bu et al. (2020)
    found = a.composed_epsilon({event: 1}, neighbors=neighbors, delta=1e-5)
    assert gaussian_epsilon(1e-5, 0.7 * limit) < found < gaussian_epsilon(1e-5, 1.6 * limit)


@pytest.mark.parametrize("neighbors", few(RELATIONS, first=1))
@pytest.mark.parametrize(
    ("noise", "chance", "steps"), few([(1.0, 0.01, 1000), (2.0, 0.3, 20)], (2.0, 0.3, 20))
)
def test_it_is_what_dp_accounting_says(noise, chance, steps, neighbors):
    event = PoissonGaussianEvent(noise, chance, steps)
    interval = _samples_interval(samples({event: 1}), neighbors)
    theirs = PLDAccountant(dp.NeighboringRelation[neighbors.name], interval)
    theirs.compose(dp.PoissonSampledDpEvent(chance, dp.GaussianDpEvent(noise)), steps)
    bound = loss_distribution_bound({event: 1}, neighbors)
    for epsilon in (0.3, 1.0, 3.0):
        assert bound.delta(epsilon) == pytest.approx(theirs.get_delta(epsilon), abs=1e-9)
    found = a.composed_epsilon({event: 1}, neighbors=neighbors, delta=1e-5)
    same = theirs.get_epsilon(1e-5 - bound.allowance)
    assert found == pytest.approx(same, rel=1e-9, abs=1e-9)
    together = a.composed_epsilon([(event, 2)], neighbors=neighbors, delta=1e-5)
    twice = PoissonGaussianEvent(noise, chance, 2 * steps)
    assert together == a.composed_epsilon([(twice, 1)], neighbors=neighbors, delta=1e-5)


@pytest.mark.deep
def test_no_other_contributions_lose_more():
    """Any u and v in the unit disc, by a sum over a grid: REPLACE_ONE is worst at u = −v."""
    rng, chance, noise = np.random.default_rng(3), 0.3, 0.7
    axis = np.linspace(-7, 7, 561)
    points, area = np.stack(np.meshgrid(axis, axis), -1), (axis[1] - axis[0]) ** 2

    def output(moved):
        at = [multivariate_normal.pdf(points, place, noise**2) for place in (moved, (0.0, 0.0))]
        return chance * at[0] + (1 - chance) * at[1]

    others = [((1, 0), (0, 1)), ((1, 0), (0, 0)), ((1, 0), (-0.7, 0)), ((1, 0), (-0.6, 0.8))]
    others += [tuple(v / max(1.0, np.linalg.norm(v)) for v in rng.normal(size=(2, 2)))]
    for epsilon in (-1.0, -0.2, 0.0, 0.3, 1.0, 2.5):
        worst = integrated_delta(epsilon, noise, chance, REPLACE_ONE)
        for pair in others:
            for before, after in (pair, pair[::-1]):
                gap = output(before) - math.exp(epsilon) * output(after)
                assert np.maximum(gap, 0).sum() * area <= worst + 1e-7
        assert worst >= integrated_delta(epsilon, noise, chance, ADD_OR_REMOVE_ONE) - 1e-12


@pytest.mark.deep
@pytest.mark.parametrize("neighbors", few(RELATIONS, first=1))
def test_more_steps_more_sampling_and_less_noise_lose_more(neighbors):
    def epsilon(noise=3.0, chance=0.2, steps=50):
        event = PoissonGaussianEvent(noise, chance, steps)
        return a.composed_epsilon({event: 1}, neighbors=neighbors, delta=1e-6)

    for rising in (
        [epsilon(steps=steps) for steps in (1, 10, 1000)],
        [epsilon(chance=chance) for chance in (1e-9, 0.05, 0.9, 1.0)],
        [epsilon(noise=noise) for noise in (1e9, 10.0, 3.0, 1e-3)],
    ):
        assert rising == sorted(rising)
        assert len(set(rising)) == len(rising)
    assert epsilon(chance=1.0) < math.inf


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_without_sampling_it_is_gaussian_noise(neighbors):
    mu = 2.0 / 5.0 if neighbors == REPLACE_ONE else 1.0 / 5.0
    event = PoissonGaussianEvent(5.0, 1.0, steps=9)
    found = a.composed_epsilon({event: 1}, neighbors=neighbors, delta=1e-6)
    assert found == pytest.approx(gaussian_epsilon(1e-6, 3 * mu), rel=1e-12)
    delta = composed_delta({event: 1, PureEvent(0.0): 1}, neighbors=neighbors, epsilon=1.0)
    assert delta == pytest.approx(gaussian_delta(1.0, 3 * mu), rel=1e-9)
    nearly = PoissonGaussianEvent(5.0, 1 - 1e-9, steps=9)
    found = a.composed_epsilon({nearly: 1}, neighbors=neighbors, delta=1e-6)
    assert found == pytest.approx(gaussian_epsilon(1e-6, 3 * mu), rel=1e-4)


@pytest.mark.parametrize("neighbors", few(RELATIONS, first=1))
def test_it_composes_with_other_releases(neighbors):
    sampled, delta = PoissonGaussianEvent(4.0, 0.1, steps=100), 1e-6

    def epsilon(*events):
        return a.composed_epsilon([(e, 1) for e in events], neighbors=neighbors, delta=delta)

    alone = epsilon(sampled)
    assert alone < epsilon(sampled, PureEvent(0.3)) <= alone + 0.3 + 1e-3
    with_noise = epsilon(sampled, GaussianEvent(0.3))
    assert max(alone, epsilon(GaussianEvent(0.3))) < with_noise
    assert with_noise < alone + epsilon(GaussianEvent(0.3))
    assert epsilon(sampled, PoissonGaussianEvent(4.0, 0.1000001, steps=100)) == pytest.approx(
        epsilon(PoissonGaussianEvent(4.0, 0.1, steps=200)), rel=1e-3
    )
    assert epsilon(sampled, NonPrivateEvent()) == math.inf
    left = a.largest_pure_epsilon({sampled: 1}, neighbors=neighbors, epsilon=4.0, delta=delta)
    assert 4.0 - alone - 2e-3 <= left < 4.0
    more = [(sampled, 1), (PureEvent(left), 1)]
    assert a.fits(more, neighbors=neighbors, epsilon=4.0, delta=delta)


@pytest.mark.parametrize("neighbors", [REPLACE_SPECIAL, REPLACE_ONE])
@pytest.mark.parametrize("noise", [5e-324, 0.2, 1e308])
@pytest.mark.parametrize("chance", [5e-324, 1 - 2**-53, 1.0])
def test_settings_at_the_ends_of_the_floats_are_no_error(noise, chance, neighbors):
    counts = {PoissonGaussianEvent(noise, chance, 2**63 - 1): 3, PureEvent(0.1): 1}
    assert a.composed_epsilon(counts, neighbors=neighbors, delta=1e-6) >= 0.0999
    assert 0 <= composed_delta(counts, neighbors=neighbors, epsilon=1.0) <= 1


@pytest.mark.deep
@pytest.mark.parametrize("neighbors", RELATIONS)
def test_the_calibrated_noise_is_the_least_that_fits(neighbors):
    terms = {"sampling_probability": 0.02, "steps": 300, "neighbors": neighbors}
    noise = calibrated_noise_multiplier(2.0, 1e-5, **terms)

    def fits(noise):
        event = PoissonGaussianEvent(noise, 0.02, 300)
        return a.fits({event: 1}, neighbors=neighbors, epsilon=2.0, delta=1e-5)

    assert fits(noise)
    assert not fits(noise * (1 - 2e-4))
    everybody = {**terms, "sampling_probability": 1.0}
    mu = (2.0 if neighbors == REPLACE_ONE else 1.0) * math.sqrt(300)
    unsampled = calibrated_noise_multiplier(2.0, 1e-5, **everybody)
    assert gaussian_epsilon(1e-5, mu / unsampled) == pytest.approx(2.0, rel=2e-4)
    tiny = calibrated_noise_multiplier(2.0, 1e-11, **terms)  # too little for a distribution
    assert gaussian_epsilon(1e-11, mu / tiny) == pytest.approx(2.0, rel=2e-4)


def test_calibration_refuses_what_it_cannot_do():
    terms = {"sampling_probability": 0.5, "steps": 10, "neighbors": REPLACE_ONE}
    for epsilon, delta in ((0.0, 1e-6), (math.inf, 1e-6), (1.0, 0.0), (1.0, 1.0)):
        with pytest.raises(UsageError):
            calibrated_noise_multiplier(epsilon, delta, **terms)
    for change in ({"sampling_probability": 0.0}, {"steps": 0}, {"neighbors": "REPLACE_ONE"}):
        with pytest.raises(UsageError):
            calibrated_noise_multiplier(1.0, 1e-6, **{**terms, **change})
    with pytest.raises(PrivacyError, match="Nothing was calibrated"):
        calibrated_noise_multiplier(1.0, 5e-324, **terms)


def test_a_ledger_stores_it_and_refuses_to_overspend(tmp_path):
    budget = sordino.Guarantee(
        2.0, delta=1e-5, unit="record", neighbors=REPLACE_SPECIAL, trust="central"
    )
    event = PoissonGaussianEvent(4.0, 0.1, steps=100)
    path = tmp_path / "spend.db"
    ledger = sordino.Ledger.open(path, data="answers", budget=budget)
    one = a.composed_epsilon({event: 1}, neighbors=REPLACE_SPECIAL, delta=1e-5)
    promise = sordino.Guarantee(
        one, delta=1e-5, unit="record", neighbors=REPLACE_SPECIAL, trust="central"
    )
    ledger.reserve(event, promise=promise)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(event, promise=promise, count=4)
    again = sordino.Ledger.open(path)
    assert again.total().epsilon == one
    assert [row.event for row in again.spends] == ["poisson-gaussian"]
