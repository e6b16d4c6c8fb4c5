"""Record privacy: the confidence set holds the truth, and accuracy is nearly that without it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from central_record import DELTA, SETTINGS, Setting, coverage, loss_of_accuracy, world

from sordino._random import SimulatedEntropy
from sordino.mechanisms.gaussian import joint_mechanisms
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
from sordino.rewards.confidence import (
    RecordEllipsoid,
    ReleasedMoment,
    least_ridge,
    record_ellipsoid,
)

FITS, RELEASES = 300, 100


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_set_holds_the_truth(setting):
    """Claim: PPHJ, Theorem 4.2 (radius O(·) and (Σ + λI)^{−1})"""
    # The radius is conservative: in 400 fits a setting it never failed, and its 5% quantile over
    # the error is at least 2.1. A false alarm needs 16 failures in 300, so below 1e-9.
    found = coverage(setting, fits=FITS, seed=1)
    assert found["coverage"] >= 0.95
    assert found["radius_over_error_5_percent"] > 1


def test_a_radius_a_third_as_large_would_fail(monkeypatch):
    # Power: with much data and a large epsilon it holds the truth in about 7 of 100 fits.
    honest = RecordEllipsoid.radius
    monkeypatch.setattr(
        RecordEllipsoid, "radius", lambda self, confidence: honest(self, confidence) / 3
    )
    assert coverage(Setting(8.0, n=20_000, d=16), fits=40, seed=1)["coverage"] < 0.5


def between(*, allowed, releases=RELEASES, d=8, ball=1.0):
    """Return in how many releases the metric is below γG + ΛI and above γG, as the proof needs."""
    settings = {"delta": DELTA, "bound": 1.0, "neighbors": ADD_OR_REMOVE_ONE}
    ridge = least_ridge(joint_mechanisms(1.0, **settings)[1], d=d, ball=ball)
    noise, moment = joint_mechanisms(1.0, ridge=ridge, **settings)
    rows = world(np.random.default_rng(0), 300, d, 1.0)[0]
    gram, entropy, held = rows.T @ rows, SimulatedEntropy(0), 0
    for _ in range(releases):
        released = ReleasedMoment(
            matrix=moment.release(rows, entropy=entropy),
            mechanism=dataclasses.replace(
                moment, standard_deviation=allowed * moment.standard_deviation
            ),
        )
        found = record_ellipsoid(np.zeros(d), released, noise, ball=ball)
        truth = found.slope * gram
        below = np.linalg.eigvalsh(truth + found.ridge * np.eye(d) - found.metric)[0]
        above = np.linalg.eigvalsh(found.metric - truth)[0]
        held += below >= 0 and above >= 0
    return held


def test_the_metric_lies_between_the_bounds_of_the_proof():
    # In 20,000 releases the noise reached .82 of its bound at most, and never more than 1: two
    # failures in 100 have a probability below 1e-4.
    assert between(allowed=1.0) >= RELEASES - 1


def test_a_metric_that_allows_for_a_quarter_of_the_noise_would_fail():
    # Power: in 20,000 releases the noise was below a quarter of its bound once.
    assert between(allowed=0.25) < RELEASES / 10


def test_accuracy_is_nearly_that_of_a_fit_without_privacy():
    # Over 20 seeds the mean loss is .0007, alone and with a second moment, deviation .0004,
    # and the largest is .0016: the mean of four seeds passes .003 with a probability below 1e-9.
    found = loss_of_accuracy(n=20_000, d=64, norm=4.0, seeds=4)
    assert found["truth"] > found["not_private"]
    assert found["loss_private"] <= 0.003
    assert found["loss_private_with_second_moment"] <= 0.003


def test_noise_ten_times_as_large_would_be_noticed(monkeypatch):
    # Power: it loses more than .02.
    from sordino.mechanisms.objective_perturbation import ObjectivePerturbation

    honest = ObjectivePerturbation.release

    def release(self, minimize, **given):
        return honest(self, lambda tilt: minimize(10 * tilt), **given)

    monkeypatch.setattr(ObjectivePerturbation, "release", release)
    assert loss_of_accuracy(n=20_000, d=64, norm=4.0, seeds=2)["loss_private"] > 0.003
