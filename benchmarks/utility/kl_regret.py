"""Prints as JSON how the regret of private policies falls with the number of comparisons.

Linear rewards of norm 1.5 on 8 random actions in 8 dimensions; the ball of 2 and the ridge of 1
are chosen beforehand. ``scale`` multiplies the proved bonus of the pessimistic policy; 0 is the
Gibbs policy. Regret is exact on held-out contexts.

    python benchmarks/utility/kl_regret.py [--runs 16]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from _worlds import NEVER, fitted, log_slope, versions

import sordino
from sordino.environments.preference_worlds import LinearPreferences
from sordino.policies.gibbs import pessimistic_policy

DIMENSION, ACTIONS, SIZE, TEMPERATURE = 8, 8, 1.5, 0.25
RIDGE, BALL, CONFIDENCE = 1.0, 2.0, 0.95
SCALES, CONTEXTS = (0.0, 0.3, 1.0), 1000
SIZES = tuple(2**power for power in range(13, 18))


def regrets(epsilon: float, *, n: int, seed: int) -> list[float]:
    """Return the regret at every scale in one run."""
    world = LinearPreferences.random(dimension=DIMENSION, actions=ACTIONS, size=SIZE, seed=seed)
    contexts = world.contexts(np.random.default_rng((seed, 2)), CONTEXTS)
    judgments = world.comparisons(n, seed=seed)
    reward = fitted(judgments, epsilon=epsilon, seed=seed, ridge=RIDGE, ball=BALL)
    policies = [
        pessimistic_policy(
            reward, temperature=TEMPERATURE, confidence=CONFIDENCE, scale=scale
        ).probabilities(None, list(contexts))
        for scale in SCALES
    ]
    return [world.regret(np.stack(p), contexts, temperature=TEMPERATURE) for p in policies]


def means(epsilon: float, *, sizes: Sequence[int], runs: int, first_seed: int = 0) -> np.ndarray:
    """Return mean regret and its standard error; one row a size and one column a scale."""
    seeds = [
        range(first_seed + at * runs, first_seed + (at + 1) * runs) for at in range(len(sizes))
    ]
    found = np.array([
        [regrets(epsilon, n=n, seed=seed) for seed in some]
        for n, some in zip(sizes, seeds, strict=True)
    ])  # fmt: skip
    return np.stack([found.mean(axis=1), found.std(axis=1, ddof=1) / math.sqrt(runs)])


def rows(epsilon: float, runs: int) -> list[dict[str, Any]]:
    """Return one row for each scale at one epsilon."""
    found, errors = means(epsilon, sizes=SIZES, runs=runs)
    kept = sordino.RandomizedResponse(epsilon).kappa
    result = []
    for scale, regret, error in zip(SCALES, found.T, errors.T, strict=True):
        line = {
            "epsilon": epsilon if epsilon < NEVER else None,
            "kappa": round(kept, 6),
            "scale": scale,
            "regret": [float(f"{value:.4g}") for value in regret],
            "regret_standard_error": [float(f"{value:.3g}") for value in error],
            "slope": round(log_slope(SIZES, regret), 3),
        }
        result.append(line)
    return result


def measure(runs: int) -> dict[str, Any]:
    """Return all regrets; ``ratios`` are κ² times those over the ones without flips."""
    found = [line for epsilon in (1.0, 2.0, 4.0, NEVER) for line in rows(epsilon, runs)]
    [exact] = [one for one in found if one["epsilon"] is None and one["scale"] == 0]
    for one in found:
        if one["epsilon"] is not None and one["scale"] == 0:
            ratio = np.divide(one["regret"], exact["regret"]) * one["kappa"] ** 2
            one["ratios"] = [round(value, 3) for value in ratio]
            one["mean_ratio"] = round(float(np.exp(np.log(ratio).mean())), 3)
    return {
        "name": "kl-regret",
        "dimension": DIMENSION,
        "actions": ACTIONS,
        "size": SIZE,
        "temperature": TEMPERATURE,
        "ridge": RIDGE,
        "ball": BALL,
        "confidence": CONFIDENCE,
        "runs": runs,
        "n": list(SIZES),
        "results": found,
        "randomness": "seeded simulation",
        "versions": versions(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=16)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
