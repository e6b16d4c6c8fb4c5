"""Standard errors: each weight against its definition, and the published efficiencies."""

import numpy as np
import pytest
from scipy.special import expit

from sordino.rewards.pair_losses import (
    debias,
    debiased_covariance,
    debiased_noise,
    debiased_slope,
    isotropic_efficiency,
    mixture_covariance,
    mixture_information,
    roots_of_variances,
)

MARGINS = np.array([-30.0, -4.0, -0.5, 0.0, 0.1, 2.0, 9.0])


def covariances(rows, theta, chance, *, ridge, step=1):
    given = {"ridge": ridge, "step": step}
    return (
        debiased_covariance(rows, theta, chance, **given),
        mixture_covariance(
            rows, theta, chance, **(given | {"ridge": (1 - 2 * chance) ** 2 * ridge})
        ),
    )


def flip(epsilon: float) -> float:
    return 1 / (1 + np.exp(epsilon))


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.4])
def test_the_noise_is_the_variance_of_a_debiased_answer(chance):
    prefers = chance + (1 - 2 * chance) * expit(MARGINS)
    low, high = debias(np.array([0, 1]), chance)
    mean = prefers * high + (1 - prefers) * low
    variance = prefers * (high - mean) ** 2 + (1 - prefers) * (low - mean) ** 2
    np.testing.assert_allclose(debiased_noise(MARGINS, chance), variance, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(mean, expit(MARGINS), atol=1e-12)


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.4])
def test_the_information_is_the_expected_square_of_the_score(chance):
    def log_probability(margins, z):
        agreed = z * margins
        return np.log((1 - chance) * expit(agreed) + chance * expit(-agreed))

    step, total = 1e-5, 0.0
    for z in (1, -1):
        score = log_probability(MARGINS + step, z) - log_probability(MARGINS - step, z)
        total = total + np.exp(log_probability(MARGINS, z)) * (score / (2 * step)) ** 2
    np.testing.assert_allclose(mixture_information(MARGINS, chance), total, rtol=1e-4, atol=1e-11)


def test_without_flips_both_are_the_logistic_information():
    np.testing.assert_allclose(mixture_information(MARGINS, 0.0), debiased_slope(MARGINS))
    np.testing.assert_allclose(debiased_noise(MARGINS, 0.0), debiased_slope(MARGINS), rtol=1e-9)
    assert mixture_information(np.array([1e4, -1e4]), 0.0).tolist() == [0.0, 0.0]
    far = np.array([-60.0, 45.0, 200.0])  # where 1 − σ(Δ) rounds to 0
    for chance in (0.0, 1e-19):
        np.testing.assert_allclose(debiased_noise(far, chance), debiased_slope(far) + chance)
        assert (mixture_information(far, chance) <= debiased_slope(far)).all()


@pytest.mark.parametrize(
    ("norm", "epsilon", "published"),
    [
        (1, 0.1, 0.976), (1, 1, 0.983), (1, 2, 0.994),
        (2, 0.1, 0.79), (2, 1, 0.83), (2, 2, 0.91),
        (4, 0.1, 0.29), (4, 1, 0.32), (4, 2, 0.43),
    ],
)  # fmt: skip
def test_the_published_efficiencies(norm, epsilon, published):
    # 200,000 fixed directions: the trace ratio is known to about .003
    rows = np.random.default_rng(0).normal(size=(200_000, 5))
    rows *= 2 / np.linalg.norm(rows, axis=1, keepdims=True)
    theta = np.array([norm, 0.0, 0.0, 0.0, 0.0])
    debiased, mixture = covariances(rows, theta, flip(epsilon), ridge=1e-9)
    efficiency = np.trace(mixture) / np.trace(debiased)
    assert efficiency == pytest.approx(published, abs=0.01)
    glance = isotropic_efficiency(rows @ theta, flip(epsilon), np.full(len(rows), 4.0))
    assert efficiency > 0.9 or glance < 0.96  # what the glance rules out is ruled out
    assert glance <= 1


def test_sampled_rows_give_about_the_same_and_a_ridge_shrinks():
    rows = np.random.default_rng(1).normal(size=(40_000, 3))
    theta = np.array([0.5, -1.0, 0.2])
    whole = covariances(rows, theta, 0.2, ridge=1.0)
    sampled = covariances(rows, theta, 0.2, ridge=1.0, step=7)
    for one, other in zip(whole, sampled, strict=True):
        np.testing.assert_allclose(np.diagonal(one), np.diagonal(other), rtol=0.1)
    shrunk = covariances(rows, theta, 0.2, ridge=1e5)
    assert all(np.trace(s) < 0.1 * np.trace(w) for s, w in zip(shrunk, whole, strict=True))


def test_a_variance_that_rounding_made_negative_is_no_nan():
    found = roots_of_variances(np.diag([4.0, -1e-17, 0.0]))
    assert found[0] == 2
    assert (found > 0).all()
    assert (found[1:] < 1e-7).all()


@pytest.mark.parametrize("ridge", [5e-324, 1e-160, 1e-12])
def test_a_ridge_that_vanishes_leaves_numbers(ridge):
    rows = np.random.default_rng(3).normal(size=(5, 40))  # far fewer rows than features
    for covariance in covariances(rows, np.full(40, 0.1), 0.2, ridge=ridge):
        assert np.isfinite(roots_of_variances(covariance)).all()
