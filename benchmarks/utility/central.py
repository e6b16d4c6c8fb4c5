"""Prints as JSON what releasing the sum of all labels costs, and how often its sets hold the truth.

Randomized response at the same epsilon sees the same judgments in the same run.

python benchmarks/utility/central.py [--runs 10] [--fits 300]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _worlds import versions
from scipy.special import expit

import sordino
from sordino._random import SimulatedEntropy
from sordino.engines.engine import Rows
from sordino.mechanisms.label_sum import LabelDesign, LabelGaussian
from sordino.rewards.evidence import Design, Evidence
from sordino.rewards.metrics import measure_statistic
from sordino.rewards.reward_fit import ellipsoid_of, fit_design, fit_sum, standard_errors

BALL = 100.0
FRESH = 50_000  # comparisons that accuracy is measured on


@dataclass(frozen=True)
class Setting:
    """One world: differences on the unit sphere, weights of a fixed length."""

    epsilon: float
    n: int
    d: int
    norm: float = 4.0
    delta: float = 1e-6


@dataclass(frozen=True)
class Cover:
    """One world for confidence sets: ``ridge`` None lets the sum choose it."""

    epsilon: float
    n: int = 2000
    d: int = 5
    norm: float = 1.0
    ball: float = 1.0
    ridge: float | None = 1.0
    shape: float = 1.0
    delta: float = 1e-6


COSTS = (
    Setting(1.0, 20_000, 64),
    Setting(0.5, 20_000, 64),
    Setting(0.5, 20_000, 16),
    Setting(0.1, 200_000, 64),
    Setting(0.1, 200_000, 16),
)
COVERS = (
    Cover(0.5),
    Cover(1.0, ridge=None),
    Cover(1.0, norm=2.0, ball=4.0),
    Cover(0.5, n=300, d=20),
    Cover(1.0, shape=0.3),
)


def sphere(n: int, d: int, generator: np.random.Generator, shape: float = 1.0) -> np.ndarray:
    """Return rows of length at most 1, each direction ``shape`` times as wide as the one before."""
    rows = generator.normal(size=(n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * shape ** np.arange(d)


def truth(d: int, norm: float, generator: np.random.Generator) -> np.ndarray:
    """Return weights of a given length."""
    theta = generator.normal(size=d)
    return theta * (norm / np.linalg.norm(theta))


def evidence(design: LabelDesign, rows: np.ndarray, labels: np.ndarray, seed: int) -> Evidence:
    """Return what a fit sees of made-up labels; no ledger, for they are nobody's."""
    return Evidence(
        differences=Rows.of(rows),
        statistic=design.release(labels, entropy=SimulatedEntropy(seed)),
        factor=design.factor,
        feature_bound=float(np.linalg.norm(rows, axis=1).max()) / 2,
        rounding=float(len(rows) * np.sqrt(design.factor.shape[1]) / design.scale),
    )


def unprotected(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the weights that the same labels give without noise."""
    design = Design(
        differences=rows,
        answers=labels,
        flip_probability=0.0,
        feature_bound=0.5,
        questions=np.arange(len(rows), dtype=np.uint64) << np.uint64(20),
        clusters=None,
    )
    return fit_design(design, ridge=None, ball=BALL).solution.theta


def randomized(rows: np.ndarray, labels: np.ndarray, *, epsilon: float, seed: int) -> np.ndarray:
    """Return the weights that answers give which were randomized one by one."""
    budget = sordino.Guarantee(
        epsilon, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    pairs = sordino.Pairs.from_features(rows, labels)
    with tempfile.TemporaryDirectory() as folder:
        ledger = sordino.Ledger.open(Path(folder) / "spend.db", data="simulated", budget=budget)
        coin = sordino.RandomizedResponse(epsilon)
        answers = sordino.privatize(pairs, coin, ledger=ledger, simulate_seed=seed)
    return sordino.fit_reward(answers, ball=BALL, ellipsoid=False).weights


def cost(setting: Setting, *, runs: int, seed: int) -> dict[str, Any]:
    """Return error and accuracy, with noise on the sum or on every answer, and without."""
    mechanism = LabelGaussian(setting.epsilon, delta=setting.delta)
    errors, losses = [], []
    for run in range(runs):
        generator = np.random.default_rng([seed, run])
        rows = sphere(setting.n, setting.d, generator)
        theta = truth(setting.d, setting.norm, generator)
        labels = (generator.random(setting.n) < expit(rows @ theta)).astype(np.int8)
        known = evidence(mechanism.prepare(rows), rows, labels, run)
        fits = (
            fit_sum(known, ball=BALL).solution.theta,
            randomized(rows, labels, epsilon=setting.epsilon, seed=run),
            unprotected(rows, labels),
        )
        fresh = sphere(FRESH, setting.d, generator)
        chances = expit(fresh @ theta)
        hits = [np.where(fresh @ found > 0, chances, 1 - chances).mean() for found in fits]
        errors.append([np.linalg.norm(found - theta) for found in fits])
        losses.append([hits[2] - hits[0], hits[2] - hits[1]])
    return _compared(np.array(errors), np.array(losses))


def _compared(errors: np.ndarray, losses: np.ndarray) -> dict[str, float]:
    """Return means over worlds; columns are the sum, randomized response, and no noise."""
    central, local, plain = errors.mean(axis=0)
    lost, spread = losses.mean(axis=0), losses.std(axis=0, ddof=1) / np.sqrt(len(losses))
    return {
        "error": float(central),
        "error_without_noise": float(plain),
        "error_ratio": float(central / plain),
        "accuracy_loss": float(lost[0]),
        "accuracy_loss_standard_error": float(spread[0]),
        "randomized_response_error_ratio": float(local / plain),
        "randomized_response_accuracy_loss": float(lost[1]),
        "randomized_response_accuracy_loss_standard_error": float(spread[1]),
    }


def coverage(setting: Cover, *, fits: int, seed: int) -> dict[str, float]:
    """Return how often sets and intervals of 95% hold the truth, and the radius over the error."""
    generator = np.random.default_rng(seed)
    rows = sphere(setting.n, setting.d, generator, setting.shape)
    theta = truth(setting.d, setting.norm, generator)
    design = LabelGaussian(setting.epsilon, delta=setting.delta).prepare(rows)
    held, ratios, scores = [], [], []
    for fit in range(fits):
        labels = (generator.random(setting.n) < expit(rows @ theta)).astype(np.int8)
        known = evidence(design, rows, labels, fit)
        found = fit_sum(known, ridge=setting.ridge, ball=setting.ball)
        ellipsoid = ellipsoid_of(known, found, ball=setting.ball)
        held.append(ellipsoid.contains(theta, 0.95))
        ratios.append(ellipsoid.radius(0.95) / ellipsoid.distance(theta))
        scores.append((found.solution.theta - theta) / standard_errors(known, found))
    return {
        "coverage": float(np.mean(held)),
        "radius_over_error_median": float(np.median(ratios)),
        "radius_over_error_5_percent": float(np.quantile(ratios, 0.05)),
        "interval_coverage": float(np.mean(np.abs(scores) <= 1.96)),
    }


def free_metrics(setting: Setting, *, fits: int, seed: int) -> dict[str, float]:
    """Return how thinning's likelihood and slope compare with what fresh answers would say."""
    generator = np.random.default_rng(seed)
    rows = sphere(setting.n, setting.d, generator)
    theta = truth(setting.d, setting.norm, generator)
    design = LabelGaussian(setting.epsilon, delta=setting.delta).prepare(rows)
    chances, gaps, slopes = expit(rows @ theta), [], []
    for fit in range(fits):
        labels = (generator.random(setting.n) < chances).astype(np.int8)
        known = evidence(design, rows, labels, fit)
        found = measure_statistic(known, ball=BALL)
        margins = rows @ fit_sum(known, ball=BALL).solution.theta
        expected = float(np.mean(np.logaddexp(0, margins) - chances * margins))
        lost, error = (
            found[f"negative_log_likelihood{which}"] for which in ("", "_standard_error")
        )
        assert lost is not None
        gaps.append((lost - expected, error))
        slopes.append((found["calibration_slope"], found["calibration_slope_standard_error"]))
    gap, slope = np.array(gaps), np.array(slopes)
    return {
        "likelihood_bias": float(gap[:, 0].mean()),
        "likelihood_spread": float(gap[:, 0].std(ddof=1)),
        "likelihood_standard_error": float(gap[:, 1].mean()),
        "slope": float(slope[:, 0].mean()),
        "slope_spread": float(slope[:, 0].std(ddof=1)),
        "slope_standard_error": float(slope[:, 1].mean()),
    }


def rounded(values: dict[str, float]) -> dict[str, float]:
    """Return numbers short enough to read."""
    return {key: round(value, 5) for key, value in values.items()}


def measure(runs: int, fits: int) -> dict[str, Any]:
    """Return all that is measured."""
    return {
        "name": "central",
        "mechanism": "LabelGaussian",
        "runs": runs,
        "fits": fits,
        "seed": 0,
        "cost": [vars(s) | rounded(cost(s, runs=runs, seed=0)) for s in COSTS],
        "coverage": [vars(s) | rounded(coverage(s, fits=fits, seed=0)) for s in COVERS],
        "free_metrics": [
            vars(s) | rounded(free_metrics(s, fits=max(2, fits // 4), seed=0))
            for s in (Setting(0.5, 5000, 8), Setting(1.0, 20_000, 64))
        ],
        "versions": versions() | {"numpy": np.__version__},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--fits", type=int, default=300)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
