from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

import sordino
from sordino.environments.values import plain_logistic_scale, population_slope, sphere_coordinate


@pytest.mark.parametrize(("epsilon", "factor"), [(0.1, 21.2), (0.5, 4.30), (1, 2.26), (2, 1.34)])
def test_the_published_factors_come_out(epsilon, factor):
    flip = expit(-epsilon)
    scale = plain_logistic_scale(4.0, dimension=64, flip_probability=flip, unit_differences=True)
    assert 1 / scale == pytest.approx(factor, abs=0.006 if factor < 10 else 0.06)


def test_small_rewards_shrink_by_kappa_and_no_flips_by_nothing():
    assert plain_logistic_scale(1e-3, dimension=8, flip_probability=0.3) == pytest.approx(
        0.4, rel=1e-6
    )
    assert plain_logistic_scale(2.0, dimension=8, flip_probability=0.0) == pytest.approx(1.0)


@pytest.mark.parametrize("unit_differences", [True, False])
def test_the_factor_solves_its_equation_on_sampled_comparisons(unit_differences):
    # One million comparisons: the root has a standard error of about .0008, so .005 has a false
    # alarm below 1e-8; the other kind of comparison is off by .02.
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(2, 1_000_000, 4))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    values = rows[0, :, 0] if unit_differences else rows[0, :, 0] - rows[1, :, 0]
    margins, flip = 3.0 * values, 0.3

    def score(scale):
        return np.mean(values * (expit(scale * margins) - flip - (1 - 2 * flip) * expit(margins)))

    found = plain_logistic_scale(
        3.0, dimension=4, flip_probability=flip, unit_differences=unit_differences
    )
    assert found == pytest.approx(brentq(score, 0, 1), abs=0.005)


@pytest.mark.parametrize("dimension", [2, 3, 8, 64])
def test_the_quadrature_has_the_moments_of_a_sphere(dimension):
    values, weights = sphere_coordinate(dimension)
    assert weights.sum() == pytest.approx(1)
    assert weights @ values**2 == pytest.approx(1 / dimension)
    assert weights @ values**4 == pytest.approx(3 / (dimension * (dimension + 2)))


@pytest.mark.parametrize("factor", [0.01, 0.5, 1.0, 3.0, 400.0])
def test_the_slope_undoes_any_scale(factor):
    true = np.random.default_rng(0).normal(size=100)
    assert population_slope(factor * true, true) == pytest.approx(1 / factor, rel=1e-6)


def test_errors_in_the_direction_lower_the_slope():
    generator = np.random.default_rng(0)
    true = generator.normal(size=10_000)
    assert population_slope(true + generator.normal(size=10_000), true) < 0.6
    assert population_slope(generator.normal(size=10_000), true) == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("change", [{"dimension": 1}, {"size": 0.0}, {"flip_probability": 0.5}])
def test_settings_out_of_range_are_refused(change):
    settings = {"size": 1.0, "dimension": 4, "flip_probability": 0.1} | change
    with pytest.raises(sordino.UsageError, match=next(iter(change))):
        plain_logistic_scale(settings.pop("size"), **settings)
