"""One released sum of labels: its sets hold the truth, and it costs little accuracy."""

from __future__ import annotations

import dataclasses

import pytest
from central import COVERS, Cover, Setting, cost, coverage, free_metrics
from central_slope import measure as measure_slopes

from sordino.rewards.confidence import ConfidenceEllipsoid

FITS = 300


@pytest.mark.parametrize("setting", COVERS, ids=str)
def test_the_set_holds_the_truth(setting):
    """Claim: PPHJ, Theorem 4.2 (radius O(·) and (Σ + λI)^{−1})"""
    # Conservative: over 300 fits a setting it never failed, and the 5% quantile of its radius
    # over the error is at least 2.4. A false alarm needs 16 failures of 300: below 1e-9.
    found = coverage(setting, fits=FITS, seed=1)
    assert found["coverage"] >= 0.95
    assert found["radius_over_error_5_percent"] > 1


def test_a_radius_without_the_noise_would_fail(monkeypatch):
    # Power: at epsilon .05 the noise is most of the error: then about 2 of 100.
    honest = ConfidenceEllipsoid.radius

    def forgetful(self, confidence):
        return honest(dataclasses.replace(self, noise=(), splits=1), confidence)

    setting = Cover(0.05, norm=0.5)
    assert coverage(setting, fits=FITS, seed=1)["coverage"] >= 0.95
    monkeypatch.setattr(ConfidenceEllipsoid, "radius", forgetful)
    assert coverage(setting, fits=FITS, seed=1)["coverage"] < 0.8


def test_intervals_hold_each_weight_as_often_as_they_say():
    # 5 weights of 300 fits: standard deviation of the share .0057 (weights of one fit are nearly
    # independent), so both ends are four of them away; without V it is below .6.
    found = coverage(Cover(0.1, n=4000, ball=100.0, ridge=0.01), fits=300, seed=2)
    assert 0.925 <= found["interval_coverage"] <= 0.975


def test_the_error_is_close_to_that_without_privacy():
    # Measured over ten worlds: 1.10, standard deviation of one world about .03.
    found = cost(Setting(1.0, 20_000, 64), runs=3, seed=1)
    assert found["error_ratio"] <= 1.2


@pytest.mark.parametrize(
    ("setting", "most"),
    [(Setting(0.5, 20_000, 64), 0.004), (Setting(0.1, 200_000, 64), 0.002)],
    ids=str,
)
def test_little_accuracy_is_lost(setting, most):
    # Measured over ten worlds: .0020 (standard deviation of one world .0008) and .0004 (.0001);
    # of three worlds, a false alarm is four and twenty standard errors away.
    # Randomized response loses .027 (one world .007) and .047 (.003): at least three times the
    # bound is five standard errors away.
    found = cost(setting, runs=3, seed=1)
    assert found["accuracy_loss"] <= most
    assert found["randomized_response_accuracy_loss"] >= 3 * found["accuracy_loss"]


def test_what_privacy_adds_falls_as_one_over_n():
    # Over 50 worlds and seven sizes: −1.00, −.99, and −.50 for the judgments themselves. One
    # world's distance has a standard deviation of a fifth, so a slope of 20 worlds at two sizes
    # 16 times apart has .022: a false alarm is four and a half of them away, below 1e-5. Power:
    # the distance to the truth, and that of randomized response, fall with −.5.
    slopes = measure_slopes(20, sizes=(2**12, 2**16), seed=1)["slopes"]
    assert slopes["label"] <= -0.9
    assert slopes["record"] <= -0.9
    assert -0.62 <= slopes["judgments"] <= -0.38
    assert -0.62 <= slopes["randomized_response"] <= -0.38


def test_free_metrics_agree_with_fresh_answers():
    # 40 fits: bias within four standard errors, plus the optimism of a quarter more noise (10
    # features of 5000 pairs). Stated errors are within a factor of two of the spread (a
    # deviation of 1/√80 of it), on the safe side for the slope, which fits share.
    found = free_metrics(Setting(0.5, 5000, 8), fits=40, seed=3)
    spread = found["likelihood_spread"]
    assert abs(found["likelihood_bias"]) < 4 * spread / 40**0.5 + 10 / 5000
    assert 0.6 < found["likelihood_standard_error"] / spread < 1.7
    assert abs(found["slope"] - 1) < 4 * found["slope_spread"] / 40**0.5 + 0.03
    assert 0.7 < found["slope_standard_error"] / found["slope_spread"] < 3
