"""Prints as JSON how often the confidence ellipsoid holds the truth, and how wide it is.

python benchmarks/utility/confidence.py [--fits 400]
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.special import expit

from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.rewards.confidence import confidence_ellipsoid
from sordino.rewards.evidence import ANSWER_POWERS, Design
from sordino.rewards.reward_fit import choose_ridge, fit_design


@dataclass(frozen=True)
class Setting:
    """One world: ``ridge`` None lets held-out answers choose it."""

    epsilon: float
    n: int = 2000
    d: int = 5
    norm: float = 1.0
    ball: float = 1.0
    ridge: float | None = 1.0


SETTINGS = (
    Setting(0.1),
    Setting(0.5),
    Setting(1.0),
    Setting(2.0),
    Setting(1.0, ridge=None),
    Setting(1.0, norm=2.0, ball=4.0),
    Setting(1.0, n=300, d=20),
)


def coverage(setting: Setting, *, fits: int, seed: int) -> dict[str, float]:
    """Return the share of fits whose 95% set holds the truth, and its radius over the error."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(setting.n, setting.d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    theta = generator.normal(size=setting.d)
    theta *= setting.norm / np.linalg.norm(theta)
    flip = RandomizedResponse(setting.epsilon).flip_probability
    held, ratios = [], []
    for _ in range(fits):
        labels = generator.random(setting.n) < expit(rows @ theta)
        answers = (labels ^ (generator.random(setting.n) < flip)).astype(np.int8)
        design = Design(
            differences=rows,
            answers=answers,
            flip_probability=flip,
            feature_bound=1.0,
            questions=np.arange(setting.n, dtype=np.uint64) << np.uint64(20),
            clusters=None,
        )
        ridge = setting.ridge or choose_ridge(design, ball=setting.ball)
        found = fit_design(design, ridge=ridge, ball=setting.ball, method="debiased")
        ellipsoid = confidence_ellipsoid(
            rows, found.center, flip_probability=flip, ball=setting.ball, ridge=ridge,
            candidates=1 if setting.ridge else len(ANSWER_POWERS),
        )  # fmt: skip
        held.append(ellipsoid.contains(theta, 0.95))
        ratios.append(ellipsoid.radius(0.95) / ellipsoid.distance(theta))
    return {
        "coverage": float(np.mean(held)),
        "radius_over_error_median": float(np.median(ratios)),
        "radius_over_error_5_percent": float(np.quantile(ratios, 0.05)),
    }


def measure(fits: int) -> dict[str, Any]:
    """Return the coverage in every setting."""
    return {
        "name": "confidence",
        "confidence": 0.95,
        "fits": fits,
        "seed": 0,
        "results": [
            vars(setting)
            | {key: round(value, 4) for key, value in coverage(setting, fits=fits, seed=0).items()}
            for setting in SETTINGS
        ],
        "versions": {"python": platform.python_version(), "sordino": version("sordino")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=400)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
