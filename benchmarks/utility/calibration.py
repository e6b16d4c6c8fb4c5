"""Prints as JSON how well private rewards are on the scale of the true one.

Comparisons are differences of two uniform unit vectors. The slope is the factor that minimizes
the expected logistic loss of slope · prediction on fresh comparisons without noise: 1 is
calibrated. ``plain`` is logistic regression on the same randomized answers, which ignores the
flips; ``plain_in_theory`` is what it converges to.

    python benchmarks/utility/calibration.py [--runs 20] [--n 200000]
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from _worlds import randomized, versions

import sordino
from sordino.environments.preference_worlds import Judgments, LinearPreferences
from sordino.environments.values import plain_logistic_scale, population_slope, prefer_first
from sordino.rewards.evidence import Design
from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.reward_fit import fit_design
from sordino.rewards.solver import minimize_ridge

DIMENSION, SIZE, RIDGE, BALL, FRESH = 8, 2.0, 1.0, 100.0, 50_000
EPSILONS = (0.1, 0.5, 1.0, 2.0)


def judged(world: LinearPreferences, n: int, seed: int) -> Judgments:
    """Return n judgments, each of two actions of a context of its own."""
    rows = np.subtract(*np.swapaxes(world.contexts(n, seed=seed), 0, 1))
    labels = prefer_first(rows @ world.weights, np.random.default_rng((seed, 4)))
    return Judgments(differences=rows, labels=labels, drawn=n)


def study(epsilon: float, *, n: int, seed: int) -> tuple[LinearPreferences, Design]:
    """Return a world and randomized answers from it."""
    world = LinearPreferences.random(dimension=DIMENSION, actions=2, size=SIZE, seed=seed)
    return world, randomized(judged(world, n, 2 * seed), epsilon, seed)


def slope(world: LinearPreferences, theta: np.ndarray, seed: int) -> float:
    """Return the slope of some weights on fresh comparisons."""
    fresh = judged(world, FRESH, 2 * seed + 1).differences
    return population_slope(fresh @ theta, fresh @ world.weights)


def debiased(design: Design) -> np.ndarray:
    """Return the weights of the private reward."""
    return fit_design(design, ridge=RIDGE, ball=BALL, method="debiased").solution.theta


def plain(design: Design) -> np.ndarray:
    """Return the weights of logistic regression that ignores the flips."""
    loss = DebiasedLogistic(design.differences, targets=design.answers.astype(float))
    return minimize_ridge(loss, ridge=RIDGE, ball=BALL, atol=1e-7 * len(design)).theta


def slopes(epsilon: float, *, n: int, seed: int) -> dict[str, float]:
    """Return the slopes of one run."""
    world, design = study(epsilon, n=n, seed=seed)
    return {fit.__name__: slope(world, fit(design), seed) for fit in (debiased, plain)}


def row(epsilon: float, *, n: int, runs: int) -> dict[str, float]:
    """Return means and standard deviations over the runs at one epsilon."""
    found = [slopes(epsilon, n=n, seed=seed) for seed in range(runs)]
    flip = sordino.RandomizedResponse(epsilon).flip_probability
    result = {"epsilon": epsilon}
    for name in found[0]:
        values = [one[name] for one in found]
        result[name] = round(float(np.mean(values)), 4)
        result[f"{name}_standard_deviation"] = round(float(np.std(values, ddof=1)), 4)
    scale = plain_logistic_scale(SIZE, dimension=DIMENSION, flip_probability=flip)
    return result | {"plain_in_theory": round(1 / scale, 4)}


def inflation(epsilon: float) -> dict[str, float]:
    """Return by how much plain regression shrinks a large reward, in theory."""
    flip = sordino.RandomizedResponse(epsilon).flip_probability
    scale = plain_logistic_scale(4.0, dimension=64, flip_probability=flip, unit_differences=True)
    return {"epsilon": epsilon, "factor": round(1 / scale, 3)}


def measure(n: int, runs: int) -> dict[str, Any]:
    """Return all slopes."""
    return {
        "name": "calibration",
        "n": n,
        "dimension": DIMENSION,
        "size": SIZE,
        "ridge": RIDGE,
        "ball": BALL,
        "runs": runs,
        "results": [row(epsilon, n=n, runs=runs) for epsilon in EPSILONS],
        "plain_at_size_4_dimension_64": [inflation(epsilon) for epsilon in EPSILONS],
        "randomness": "seeded simulation",
        "versions": versions(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=20)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
