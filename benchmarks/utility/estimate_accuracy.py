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
from central import evidence
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import beta

from sordino._random import SimulatedEntropy
from sordino.engines.engine import Rows
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy.guarantee import REPLACE_SPECIAL
from sordino.rewards.evidence import Design
from sordino.rewards.forecast import estimate
from sordino.rewards.record_release import release_records
from sordino.rewards.reward_fit import fit_design, fit_sum

BALL = 100.0
DELTA = 1e-6
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
CENTRAL = (  # where half or twice the noise of a curator would be seen
    (2_000, 64, 1.0, 0.65),
    (1_000, 32, 1.0, 0.75),
    (2_000, 64, 0.5, 0.8),
)
CENTRAL_FURTHER = (  # noise that hardly shows, fewer labels, more features, or larger rewards
    (2_000, 20, 0.2, 0.65),
    (2_000, 128, 2.0, 0.75),
    (5_000, 32, 1.0, 0.65),
    (20_000, 64, 0.2, 0.65),
    (300, 16, 2.0, 0.65),
    (2_313, 512, 1.0, 0.65),
    (300, 32, 2.0, 0.8),
    (5_000, 20, 1.0, 0.9),
    (500, 20, 1.0, 0.9),
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
    n: int,
    d: int,
    epsilon: float,
    accuracy: float,
    *,
    seed: int,
    way: str,
    ridge: float | None,
    method: str,
) -> float:
    """Return how often a reward that was fitted in one private way predicts a judgment."""
    generator = np.random.default_rng(seed)
    theta = norm_of(accuracy, d) * on_sphere(1, d, generator)[0]
    rows = on_sphere(n, d, generator)
    labels = generator.random(n) < expit(rows @ theta)
    if way == "labels":
        found = from_coins(rows, labels, epsilon, generator, ridge=ridge, method=method)
    elif way == "label-estimate":
        found = from_sum(rows, labels.astype(np.int8), epsilon, seed)
    else:
        found = from_tilt(rows, labels.astype(np.int8), epsilon, seed)
    return share_predicted(found, theta, generator)


def share_predicted(found: np.ndarray, theta: np.ndarray, generator: np.random.Generator) -> float:
    """Return how often weights predict a judgment at fresh differences on the sphere.

    Only the plane of both weights matters: two of the normal coordinates, and the length of the
    others.
    """
    norm, d = float(np.linalg.norm(theta)), len(theta)
    along = float(found @ theta) / norm
    across = float(np.linalg.norm(found - along * theta / norm))
    first, second = generator.normal(size=(2, FRESH))
    length = np.sqrt(first**2 + second**2 + generator.chisquare(d - 2, size=FRESH))
    margins = norm * first / length
    right = along * first + across * second > 0
    return float(np.where(right, expit(margins), expit(-margins)).mean())


def from_coins(
    rows: np.ndarray,
    labels: np.ndarray,
    epsilon: float,
    generator: np.random.Generator,
    *,
    ridge: float | None,
    method: str,
) -> np.ndarray:
    """Return the weights of a fit on labels that were randomized one by one."""
    flip = RandomizedResponse(epsilon).flip_probability
    design = Design(
        differences=rows,
        answers=(labels ^ (generator.random(len(labels)) < flip)).astype(np.int8),
        flip_probability=flip,
        feature_bound=1.0,
        questions=np.arange(len(labels), dtype=np.uint64),
        clusters=None,
    )
    return fit_design(design, ridge=ridge, ball=BALL, method=method).solution.theta


def from_sum(rows: np.ndarray, labels: np.ndarray, epsilon: float, seed: int) -> np.ndarray:
    """Return the weights of a fit on the noised sum of all labels, its ridge chosen on the sum."""
    design = LabelGaussian(epsilon, delta=DELTA).prepare(rows)
    return fit_sum(evidence(design, rows, labels, seed), ball=BALL).solution.theta


def from_tilt(rows: np.ndarray, labels: np.ndarray, epsilon: float, seed: int) -> np.ndarray:
    """Return the weights of a tilted fit on whole records, with the ridge that is the default."""
    noise = ObjectivePerturbation(epsilon, delta=DELTA, bound=1.0, neighbors=REPLACE_SPECIAL)
    return release_records(
        Rows.of(noise.clipped(rows), labels),
        noise,
        ball=10 * BALL,
        second_moment=None,
        entropy=SimulatedEntropy(seed),
    )


def compare(
    n: int,
    d: int,
    epsilon: float,
    accuracy: float,
    *,
    seeds: int,
    way: str = "labels",
    ridge: float | None = None,
    method: str = "auto",
) -> dict[str, float]:
    """Return what was predicted and the mean of what came out, with its standard error."""
    forecast = estimate(n, dimension=d, epsilon=epsilon, delta=DELTA, accuracy=accuracy)
    found = [
        realized(n, d, epsilon, accuracy, seed=seed, way=way, ridge=ridge, method=method)
        for seed in range(seeds)
    ]
    predicted = forecast.ways[way].accuracy
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
        "fit": "ridge and method chosen on what was released; for records, the default ridge",
        "results": [compare(*setting, seeds=seeds) for setting in SETTINGS],
        "further": [compare(*setting, seeds=seeds) for setting in FURTHER],
        "delta": DELTA,
        **{
            way: {
                "results": [compare(*setting, seeds=seeds, way=way) for setting in CENTRAL],
                "further": [compare(*setting, seeds=seeds, way=way) for setting in CENTRAL_FURTHER],
            }
            for way in ("label-estimate", "record-estimate")
        },
        "versions": {"python": platform.python_version(), "sordino": version("sordino")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
