from __future__ import annotations

import numpy as np
import pytest

import sordino
from sordino.environments.dosing import Dosing

PATIENTS = np.random.default_rng(0).random((500, 3))


def stated(patients, dose):
    """Benefit less harm, as the docstring has it."""
    severity, slowness, age = patients.T
    benefit = (0.8 + 1.6 * severity) * dose
    return benefit - (1.2 * slowness + 0.4 * age) * dose - 0.8 * dose**2


def test_the_mean_is_benefit_less_harm_compared_with_half_the_dose():
    world = Dosing()
    means = world.mean_rewards(world.features(PATIENTS))
    for column, dose in zip(means.T, world.doses, strict=True):
        assert column == pytest.approx(stated(PATIENTS, dose) - stated(PATIENTS, 0.5))


def test_means_and_features_are_within_their_bounds_at_every_corner():
    corners = np.array(np.meshgrid(*[[0.0, 1.0]] * 3)).reshape(3, -1).T
    features = Dosing(levels=101).features(corners)
    assert np.linalg.norm(features, axis=2).max() == pytest.approx(1)
    assert abs(Dosing(levels=101).mean_rewards(features)).max() == pytest.approx(1)


def test_patients_differ_in_their_best_dose_and_no_dose_is_best_for_all():
    # of 100,000 patients each of five doses is best for between a sixth and a quarter
    world = Dosing()
    features = world.contexts(np.random.default_rng(1), 100_000)
    shares = np.bincount(world.mean_rewards(features).argmax(axis=1), minlength=5) / 1e5
    assert shares.min() > 0.16
    assert shares.max() < 0.26
    severe, frail = np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 1.0, 1.0]])
    best = [world.mean_rewards(world.features(who)).argmax() for who in (severe, frail)]
    assert world.doses[best].tolist() == [1.0, 0.0]


def test_prognoses_are_uniform_and_cut_to_their_range():
    # means of 100,000 within 5 standard errors (false alarm 2e-6 for three)
    drawn = Dosing().patients(np.random.default_rng(2), 100_000)
    assert drawn.shape == (100_000, 3)
    assert abs(drawn.mean(axis=0) - 0.5).max() < 5 / np.sqrt(12 * 100_000)
    world = Dosing()
    assert np.array_equal(
        world.features(np.array([[7.0, -3.0, 0.5]])), world.features(np.array([[1.0, 0.0, 0.5]]))
    )


def test_settings_out_of_range_are_refused():
    with pytest.raises(sordino.UsageError, match="levels"):
        Dosing(levels=1)
    with pytest.raises(sordino.DataError, match="row 0"):
        Dosing().features(np.array([[np.nan, 0.0, 0.0]]))
    with pytest.raises(sordino.DataError, match="patients"):
        Dosing().features(np.zeros((2, 4)))
