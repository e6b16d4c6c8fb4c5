"""The 95% confidence ellipsoid holds the truth, and would not if its radius were wrong."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from confidence import SETTINGS, Setting, coverage

import sordino
from sordino.rewards.confidence import ConfidenceEllipsoid

FITS = 300


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_ellipsoid_holds_the_truth(setting):
    """Claim: PPKL, Theorem 4.2 (linear class)"""
    # The radius is conservative: over 400 fits a setting it never failed, and its 5% quantile
    # over the error is at least 1.7. A false alarm needs a coverage below .95, so below 1e-9.
    found = coverage(setting, fits=FITS, seed=1)
    assert found["coverage"] >= 0.95
    assert found["radius_over_error_5_percent"] > 1


def test_a_radius_without_the_price_of_privacy_would_fail(monkeypatch):
    # Power: at epsilon .5 a set that forgets 1/κ is four times too small.
    honest, kappa = ConfidenceEllipsoid.radius, math.tanh(0.25)

    def forgetful(self, confidence):
        free = [dataclasses.replace(term, factor=kappa * term.factor) for term in self.noise]
        return honest(dataclasses.replace(self, noise=tuple(free)), confidence)

    monkeypatch.setattr(ConfidenceEllipsoid, "radius", forgetful)
    assert coverage(Setting(0.5), fits=FITS, seed=1)["coverage"] < 0.8


def test_repeats_counted_as_new_answers_would_fail(ledger):
    # One stored answer repeated 60 times is one observation: counted 60 times, the set shrinks
    # by √60 and holds the truth in few of 100 fits; counted once, in all of them.
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(100, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    theta = np.array([1.0, 0.0, 0.0])
    once = twice = 0
    for seed in range(30):
        labels = generator.random(100) < 1 / (1 + np.exp(-rows @ theta))
        people = [f"p{index}" for index in range(100)]
        repeated = sordino.Pairs.from_features(
            np.repeat(rows, 60, axis=0),
            np.repeat(labels, 60).astype(int),
            persons=np.repeat(people, 60).tolist(),
        )
        private = sordino.privatize(
            repeated, sordino.RandomizedResponse(1.0), ledger=ledger(1.0), simulate_seed=seed
        )
        given = {"ridge": 1.0, "ball": 1.0, "method": "debiased"}
        linked = sordino.fit_reward(private, **given).ellipsoid
        unlinked = dataclasses.replace(private, persons=None, seal=None)
        forgotten = sordino.fit_reward(unlinked, **given)
        once += linked.contains(theta, 0.95)
        twice += forgotten.ellipsoid.contains(theta, 0.95)
    assert once == 30
    assert twice < 15
