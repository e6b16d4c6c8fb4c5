"""Prints as JSON what refining by the mixture likelihood does to the mean squared error.

python benchmarks/utility/mixture.py [--seeds 200]
"""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.special import expit

from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.rewards.evidence import Design
from sordino.rewards.reward_fit import fit_design

D = 5
BALL = 20.0


def errors(
    norm: float, epsilon: float, n: int, *, seed: int, method: str = "auto"
) -> tuple[float, float, bool]:
    """Return the squared errors of the debiased and of the chosen fit, and if it was refined.

    Rows have norm 2 and d = 5, as in the table of asymptotic efficiencies; the ridge is 1/κ².
    """
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, D))
    rows *= 2 / np.linalg.norm(rows, axis=1, keepdims=True)
    theta = generator.normal(size=D)
    theta *= norm / np.linalg.norm(theta)
    coin = RandomizedResponse(epsilon)
    labels = generator.random(n) < expit(rows @ theta)
    design = Design(
        differences=rows,
        answers=(labels ^ (generator.random(n) < coin.flip_probability)).astype(np.int8),
        flip_probability=coin.flip_probability,
        feature_bound=1.0,
        questions=np.arange(n, dtype=np.uint64),
        clusters=None,
    )
    found = fit_design(design, ridge=1 / coin.kappa**2, ball=BALL, method=method)
    squares = [float(np.sum((s.theta - theta) ** 2)) for s in (found.center, found.solution)]
    return squares[0], squares[1], found.method == "mixture"


def compare(
    norm: float, epsilon: float, n: int, *, seeds: int, method: str = "auto"
) -> dict[str, float]:
    """Return mean squared errors, their ratio with its standard error, and how often refined."""
    found = np.array([errors(norm, epsilon, n, seed=s, method=method) for s in range(seeds)])
    before, after = found[:, 0], found[:, 1]
    ratio = after.mean() / before.mean()
    error = np.std(after - ratio * before, ddof=1) / np.sqrt(seeds) / before.mean()
    return {
        "debiased": float(before.mean()),
        "chosen": float(after.mean()),
        "ratio": float(ratio),
        "ratio_standard_error": float(error),
        "refined": float(found[:, 2].mean()),
    }


def measure(seeds: int) -> dict[str, Any]:
    """Return the comparison over norms, epsilons and sizes."""
    rows = [
        {"norm": norm, "epsilon": epsilon, "n": n, "method": method}
        | {
            key: round(value, 4)
            for key, value in compare(norm, epsilon, n, seeds=seeds, method=method).items()
        }
        for method in ("auto", "mixture")
        for norm in (1, 2, 4)
        for epsilon in (0.1, 0.5, 1.0, 2.0)
        for n in (1000, 10_000)
    ]
    return {
        "name": "mixture",
        "seeds": seeds,
        "results": rows,
        "versions": {"python": platform.python_version(), "sordino": version("sordino")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
