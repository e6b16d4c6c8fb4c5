"""What one released sum of rankings is worth: how often sets and intervals hold the truth.

Prints one JSON object. Slates are random and their features of norm 1; ballots follow the
Plackett-Luce model with known weights.

    python benchmarks/utility/ranking_coverage.py --fits 300
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

import sordino
from sordino._random import SimulatedEntropy
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.rewards.confidence import confidence_ellipsoid, ranking_covariance
from sordino.rewards.ranking_losses import FirstChoice, PairwiseComposite
from sordino.rewards.solver import minimize_ridge

DELTA = 1e-6
OBJECTIVES: dict[str, type[PairwiseComposite | FirstChoice]] = {
    "borda": PairwiseComposite,
    "first-choice": FirstChoice,
}


@dataclass(frozen=True)
class Setting:
    """One world: n ballots of k candidates with d features, weights of a norm."""

    statistic: Literal["borda", "first-choice"]
    epsilon: float
    n: int = 1500
    k: int = 4
    d: int = 3
    norm: float = 1.0
    ball: float = 2.0
    ridge: float = 1.0


def world(setting: Setting, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, weights and doubled ranks of everybody."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((setting.n * setting.k, setting.d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    theta = rng.standard_normal(setting.d)
    theta *= setting.norm / np.linalg.norm(theta)
    scores = (features @ theta).reshape(setting.n, -1) + rng.gumbel(size=(setting.n, setting.k))
    places = np.argsort(np.argsort(-scores, axis=1), axis=1)
    return features, theta, 2 * (places.ravel() + 1)


def coverage(setting: Setting, *, fits: int, seed: int) -> dict[str, float]:
    """Return how often the set, and every interval, hold the truth."""
    starts = np.arange(0, setting.n * setting.k + 1, setting.k)
    inside, ratios, within = [], [], []
    z = NormalDist().inv_cdf(0.975)
    for fit in range(fits):
        features, theta, ranks = world(setting, seed * 10_000 + fit)
        made = RankingGaussian(setting.epsilon, delta=DELTA, statistic=setting.statistic)
        design = made.prepare(features, starts)
        released = design.release(ranks, entropy=SimulatedEntropy(fit))
        loss = OBJECTIVES[setting.statistic](features, starts=starts, statistic=released)
        ridge, ball = setting.ridge, setting.ball
        solution = minimize_ridge(loss, atol=1e-6 * setting.n, ridge=ridge, ball=ball)
        found = confidence_ellipsoid(
            loss, solution, covariance=design.covariance, rounding=design.rounding,
            candidates=1, ridge=ridge, ball=ball,
        )  # fmt: skip
        inside.append(found.contains(theta, 0.95))
        ratios.append(found.radius(0.95) / found.distance(theta))
        spread = ranking_covariance(loss, solution.theta, design.covariance, ridge=setting.ridge)
        errors = np.sqrt(np.diag(spread))
        within.append(np.abs(solution.theta - theta) <= z * errors)
    return {
        "coverage": float(np.mean(inside)),
        "radius_over_error_5_percent": float(np.quantile(ratios, 0.05)),
        "radius_over_error_median": float(np.median(ratios)),
        "interval_coverage": float(np.mean(within)),
    }


SETTINGS = (
    Setting("borda", 1.0),
    Setting("first-choice", 1.0),
    Setting("borda", 0.1, ridge=0.01, ball=20.0),
    Setting("first-choice", 0.1, ridge=0.01, ball=20.0),
)


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rows = [
        asdict(setting) | coverage(setting, fits=given.fits, seed=given.seed)
        for setting in SETTINGS
    ]
    versions = {
        "sordino": sordino.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    print(
        json.dumps(
            {"name": "ranking-coverage", "fits": given.fits, "results": rows, "seed": given.seed,
             "versions": versions},
            indent=2,
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
