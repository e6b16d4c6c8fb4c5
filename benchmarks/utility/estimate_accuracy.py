"""Prints as JSON how far the accuracy that ``sordino estimate`` predicts is from what comes out.

Each world has feature differences that are uniform on the unit sphere and a true reward that
predicts the assumed share of judgments. What comes out is the share that the fitted reward
predicts, under the true chances, at fresh feature differences.

    python benchmarks/utility/estimate_accuracy.py [--seeds 20]
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import beta

from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.rewards.answer_fit import fit_design
from sordino.rewards.design import Design
from sordino.rewards.forecast import estimate

BALL = 100.0
FRESH = 100_000
QUANTILES = 20_000
SETTINGS = (  # n, d, epsilon, assumed accuracy; in the first three the noise hardly shows
    (20_000, 8, 1.0, 0.65),
    (50_000, 20, 0.5, 0.65),
    (10_000, 4, 2.0, 0.65),
    (50_000, 20, 0.2, 0.65),
    (5_000, 32, 1.0, 0.65),
    (2_000, 64, 2.0, 0.65),
)
FURTHER = (  # fewer labels than the formulas are made for, or larger rewards
    (2_000, 4, 0.5, 0.65),
    (2_313, 512, 1.0, 0.65),
    (10_000, 16, 0.2, 0.7),
    (3_000, 64, 1.0, 0.75),
    (5_000, 20, 1.0, 0.9),
    (5_000, 20, 1.0, 0.95),
)


def on_sphere(n: int, d: int, generator: np.random.Generator) -> np.ndarray:
    """Return n points that are uniform on the unit sphere."""
    rows = generator.normal(size=(n, d))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def norm_of(accuracy: float, d: int) -> float:
    """Return ‖θ‖ at which the true reward predicts this share of judgments on the sphere."""
    levels = (np.arange(QUANTILES) + 0.5) / QUANTILES
    sizes = np.sqrt(beta.ppf(levels, 0.5, (d - 1) / 2))  # |uᵀx|
    return float(brentq(lambda norm: expit(norm * sizes).mean() - accuracy, 1e-9, 1e6))


def realized(
    n: int, d: int, epsilon: float, accuracy: float, *, seed: int, ridge: float | None, method: str
) -> float:
    """Return how often a reward that was fitted on randomized answers predicts a judgment."""
    generator = np.random.default_rng(seed)
    theta = norm_of(accuracy, d) * on_sphere(1, d, generator)[0]
    rows = on_sphere(n, d, generator)
    flip = RandomizedResponse(epsilon).flip_probability
    labels = generator.random(n) < expit(rows @ theta)
    design = Design(
        differences=rows,
        answers=(labels ^ (generator.random(n) < flip)).astype(np.int8),
        flip_probability=flip,
        feature_bound=1.0,
        questions=np.arange(n, dtype=np.uint64),
        clusters=None,
    )
    found = fit_design(design, ridge=ridge, ball=BALL, method=method).solution.theta
    fresh = on_sphere(FRESH, d, generator)
    margins = fresh @ theta
    return float(np.where(fresh @ found > 0, expit(margins), expit(-margins)).mean())


def compare(
    n: int,
    d: int,
    epsilon: float,
    accuracy: float,
    *,
    seeds: int,
    ridge: float | None = None,
    method: str = "auto",
) -> dict[str, float]:
    """Return what was predicted and the mean of what came out, with its standard error."""
    forecast = estimate(n, dimension=d, epsilon=epsilon, accuracy=accuracy)
    found = [
        realized(n, d, epsilon, accuracy, seed=seed, ridge=ridge, method=method)
        for seed in range(seeds)
    ]
    predicted = forecast.ways["local"].accuracy
    return {
        "n": n,
        "d": d,
        "epsilon": epsilon,
        "assumed_accuracy": accuracy,
        "predicted": round(predicted, 4),
        "realized": round(float(np.mean(found)), 4),
        "standard_error": round(float(np.std(found, ddof=1)) / math.sqrt(seeds), 4),
        "difference": round(predicted - float(np.mean(found)), 4),
    }


def measure(seeds: int) -> dict[str, Any]:
    """Return the settings of the test and some that are harder, fitted as users do."""
    return {
        "name": "estimate-accuracy",
        "seeds": seeds,
        "fit": "ridge and method chosen on randomized answers",
        "results": [compare(*setting, seeds=seeds) for setting in SETTINGS],
        "further": [compare(*setting, seeds=seeds) for setting in FURTHER],
        "versions": {"python": platform.python_version(), "sordino": version("sordino")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
