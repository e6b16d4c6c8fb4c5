"""The model behind a forecast: other quadrature, sampling, algebra and limits."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm
from tests.tiers import few

from sordino.rewards.forecast import (
    Aim,
    Scatter,
    asymptotic_scatter,
    lost_accuracy,
    penalized_scatter,
    spread_of,
    tilted_scatter,
)
from sordino.rewards.pair_losses import DebiasedLogistic, debiased_covariance
from sordino.rewards.solver import minimize_ridge

NONE = Scatter(signal=1.0, along=0.0, across=1e300, dimension=2)


def ceiling(spread):
    """Accuracy of the true reward: what it loses without any data is all above guessing."""
    return 0.5 + lost_accuracy(spread, NONE, 1)


@pytest.mark.parametrize("accuracy", [0.500001, 0.55, 0.65, 0.8, 0.95, 0.999, 0.999999])
def test_the_spread_gives_the_accuracy(accuracy):
    spread = spread_of(accuracy)
    ends = [0, *sorted({0.1, 1.0} | {min(k / spread, 12) for k in (0.1, 1, 10, 100)}), 12]
    value = sum(
        quad(lambda g: 2 * norm.pdf(g) * expit(spread * g), *pair)[0] for pair in pairwise(ends)
    )
    assert value == pytest.approx(accuracy, abs=1e-9)
    assert ceiling(spread) == pytest.approx(accuracy, abs=1e-12)


@pytest.mark.parametrize("spread", [1e-6, 0.8, 3.0, 30.0])
@pytest.mark.parametrize("n", few([1, 30, 1000, 10**6, 10**12], 30, 1000000))
@pytest.mark.parametrize("dimension", [1, 2, 50])
def test_the_loss_is_the_integral(spread, n, dimension):
    scatter = Scatter(signal=0.7, along=9.0, across=4.0, dimension=dimension)

    def wrong(g):
        deviation = math.sqrt((9 * g * g + (dimension - 1) * 4) / n)
        return 2 * norm.pdf(g) * math.tanh(spread * g / 2) * norm.cdf(-0.7 * g / deviation)

    narrow = math.sqrt((9 + 4 * dimension) / n)
    ends = [1e-12, *sorted({min(narrow * k, 12) for k in (0.1, 1, 10)} | {0.1, 1.0}), 12]
    value = sum(quad(wrong, a, b, limit=300)[0] for a, b in pairwise(ends))
    assert lost_accuracy(spread, scatter, n) == pytest.approx(value, rel=1e-6, abs=1e-12)


def test_the_loss_is_what_sampling_gives():
    # False alarm below 1e-5 (4.5 standard errors); power: 1 % of the scatter is 6 of them off.
    scatter = Scatter(signal=0.8, along=60.0, across=40.0, dimension=4)
    generator = np.random.default_rng(0)
    g, noise, across = generator.normal(size=(3, 2_000_000))
    guess = 0.8 * g + math.sqrt(60 / 200) * g * noise + math.sqrt(3 * 40 / 200) * across
    right = np.where(guess > 0, expit(0.8 * g), expit(-0.8 * g))
    lost = expit(np.abs(0.8 * g)) - right
    error = lost.std() / math.sqrt(len(lost))
    assert abs(lost.mean() - lost_accuracy(0.8, scatter, 200)) < 4.5 * error


@pytest.mark.parametrize("flip", [0.0, 0.1, 0.3])
def test_scatter_is_the_covariance_of_the_fit(flip):
    # Over 200,000 rows the ratios are within 2 % (measured: 1 %); seeds are fixed.
    generator = np.random.default_rng(1)
    d, n, spread = 5, 200_000, 1.5
    rows = generator.normal(size=(n, d)) / math.sqrt(d)
    theta = np.zeros(d)
    theta[2] = spread * math.sqrt(d)
    covariance = debiased_covariance(rows, theta, flip, ridge=1e-9) * n / d
    found = asymptotic_scatter(spread, flip, dimension=d)
    assert covariance[2, 2] == pytest.approx(found.along, rel=0.02)
    others = np.delete(np.diagonal(covariance), 2)
    assert others.mean() == pytest.approx(found.across, rel=0.02)
    errors = math.sqrt(np.trace(covariance))
    assert found.standard_error(1) == pytest.approx(errors, rel=0.02)


def test_penalized_scatter_is_that_of_the_mean():
    # False alarm below 1e-5; seeds are fixed.
    generator = np.random.default_rng(2)
    spread, flip, n = 1.5, 0.3, 1_000_000
    g, across = generator.normal(size=(2, n))
    label = (generator.random(n) < expit(spread * g)) ^ (generator.random(n) < flip)
    target = (label - flip) / (1 - 2 * flip) - 0.5
    found = penalized_scatter(spread, flip, dimension=2)
    assert (target * g).mean() == pytest.approx(found.signal, abs=4.5 * math.sqrt(found.along / n))
    assert (target * g).var() == pytest.approx(found.along, rel=0.02)
    assert (target * across).var() == pytest.approx(found.across, rel=0.02)


def test_the_scatter_of_large_rewards_is_finite():
    assert all(asymptotic_scatter(s, 0.0, dimension=3).along < math.inf for s in (0.1, 1.0, 100.0))


def expected(function):
    return quad(lambda g: norm.pdf(g) * function(g), -12, 12, epsabs=1e-13)[0]


@pytest.mark.parametrize("spread", [0.01, 0.8, 3.0])
@pytest.mark.parametrize("load", [0.0, 1e-3, 0.2, 50.0])
def test_the_aim_solves_its_equation(spread, load):
    aim = Aim.of_load(spread, load)
    pull = expected(lambda g: (expit(spread * g) - expit(aim.signal * g)) * g)
    assert pull == pytest.approx(load * aim.signal, rel=1e-6, abs=1e-12)
    bends = [expected(lambda g, k=k: expit(aim.signal * g) * expit(-aim.signal * g) * g**k)
             for k in (2, 0)]  # fmt: skip
    assert aim.bends == pytest.approx(bends, rel=1e-6)

    def score(g, power):  # E (y − σ(cΔ))² given g
        chance, guess = expit(spread * g), expit(aim.signal * g)
        return (chance * (1 - guess) ** 2 + (1 - chance) * guess**2) * g**power

    found = expected(lambda g: score(g, 2)) - pull**2, expected(lambda g: score(g, 0))
    assert aim.variances == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("spread", [1e-9, 0.8, 1e12])
@pytest.mark.parametrize("load", [1e-66, 1e-9, 0.3, 1e12])
def test_a_share_and_its_load_are_one_aim(spread, load):
    aim = Aim.of_load(spread, load)
    share = aim.signal / spread
    assert 0 < share <= 1
    again = Aim.of_share(spread, share)
    if load > 1e-9 and share < 0.999:
        assert again.load == pytest.approx(load, rel=1e-9)
    assert again.bends == pytest.approx(aim.bends)
    assert all(math.isfinite(value) for value in (*aim.bends, *aim.variances))


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("n", [1, 1000, 10**9])
def test_a_small_ridge_adds_noise_once_more_through_the_curvature(spread, n):
    """n·Cov = H₁⁻¹ + (σ²/n)H₁⁻², H₁ = diag(1/along₀, 1/across₀)/d."""
    found = tilted_scatter(spread, n=n, dimension=7, standard_deviation=4.0, ridge=0.0)
    free = asymptotic_scatter(spread, 0.0, dimension=7)
    assert found.signal == free.signal
    assert found.along == pytest.approx(free.along + 7 * free.along**2 * 16 / n)
    assert found.across == pytest.approx(free.across + 7 * free.across**2 * 16 / n)


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_a_large_ridge_leaves_a_mean_with_noise(spread):
    found = tilted_scatter(spread, n=500, dimension=3, standard_deviation=2.0, ridge=1e9)
    free = penalized_scatter(spread, 0.0, dimension=3)
    added = 3 * 4 / 500
    for part in ("along", "across"):
        ratio = getattr(found, part) / found.signal**2
        assert ratio == pytest.approx((getattr(free, part) + added) / free.signal**2, rel=1e-6)


@pytest.mark.parametrize("ridge", few([0.0, 200.0]))
def test_scatter_is_that_of_tilted_fits(ridge):
    # Over 1,500 fits variances are within 12 % (3.3 standard errors each; 10 % of them are bias at
    # finite n in the worst case, measured: below 4 %); seeds are fixed. Power: noise of half or of
    # twice its size changes them by a third and more, and a forgotten ridge by half.
    generator = np.random.default_rng(3)
    d, n, spread, noise = 4, 4000, 1.2, 25.0
    theta = np.zeros(d)
    theta[1] = spread * math.sqrt(d)
    found = []
    for _ in range(1000):
        rows = generator.normal(size=(n, d)) / math.sqrt(d)
        labels = (generator.random(n) < expit(rows @ theta)).astype(float)
        tilt = noise * generator.normal(size=d)
        loss = DebiasedLogistic(rows, labels, pull=-tilt)
        found.append(minimize_ridge(loss, ridge=ridge + 1e-9, atol=1e-6, ball=1e3).theta)
    weights = np.array(found)
    scatter = tilted_scatter(spread, n=n, dimension=d, standard_deviation=noise, ridge=ridge)
    assert weights[:, 1].mean() / math.sqrt(d) == pytest.approx(scatter.signal, rel=0.06)
    variances = weights.var(axis=0) * n / d
    assert variances[1] == pytest.approx(scatter.along, rel=0.12)
    assert np.delete(variances, 1).mean() == pytest.approx(scatter.across, rel=0.12)
