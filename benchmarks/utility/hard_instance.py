"""Prints as JSON the regret on hard instances between what is proved below and above.

Two settings of contexts S and concentrability C; in each the gap is the hardest for that n and
epsilon, the level balanced, and the signs drawn anew in every run. ``lower`` is what no method
beats on average over signs, with labels randomized in any way; ``shape`` is the published form
of it, C·S/(n(e^ε − 1)²), with one constant for all n and epsilon, 1/(8·temperature·(1 − 1/C)),
at which it is ``lower`` for small epsilon; ``upper`` is the bound for the pessimistic policy
(scale 1), averaged over runs. Scale 0 is the Gibbs policy.

    python benchmarks/utility/hard_instance.py [--runs 16]
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from _worlds import fitted, log_slope, versions

import sordino
from sordino.environments.preference_worlds import HardInstance, hardest_gap, minimax_regret
from sordino.policies.gibbs import pessimistic_policy, suboptimality_bound

TEMPERATURE, RIDGE, CONFIDENCE = 0.25, 1.0, 0.95
SCALES = (0.0, 0.1, 0.3, 1.0)
EPSILONS = (0.5, 1.0, 2.0)
SIZES = tuple(2**power for power in range(13, 22, 2))


@dataclass(frozen=True)
class Setting:
    """S, C, and a ball that holds every corner of the hypercube."""

    contexts: int
    concentrability: float
    ball: float


SETTINGS = (Setting(4, 4.0, 1.0), Setting(10, 20.0, 4.0))


def instance(setting: Setting, *, epsilon: float, n: int, seed: int) -> HardInstance:
    """Return the hardest instance for n comparisons at an epsilon, with random signs."""
    flip = sordino.RandomizedResponse(epsilon).flip_probability
    size = {"contexts": setting.contexts, "concentrability": setting.concentrability}
    level = HardInstance.balanced_level(
        concentrability=setting.concentrability, temperature=TEMPERATURE
    )
    gap = hardest_gap(n, **size, level=level, flip_probability=flip)
    world = HardInstance.random(**size, gap=gap, level=level, seed=seed)
    if np.linalg.norm(world.weights) > setting.ball:
        raise ValueError("the ball must hold the true weights")
    return world


def lower_bound(setting: Setting, *, epsilon: float, n: int) -> float:
    """Return what no method beats."""
    return minimax_regret(
        n,
        contexts=setting.contexts,
        concentrability=setting.concentrability,
        flip_probability=sordino.RandomizedResponse(epsilon).flip_probability,
        temperature=TEMPERATURE,
    )


def shape(setting: Setting, *, epsilon: float, n: int) -> float:
    """Return the published form of the lower bound with a constant."""
    size = setting.concentrability * setting.contexts / (n * math.expm1(epsilon) ** 2)
    return size / (8 * TEMPERATURE * (1 - 1 / setting.concentrability))


def upper_bound(world: HardInstance, reward: sordino.RewardModel) -> float:
    """Return what the pessimistic policy loses at most, while the confidence set holds."""
    features, best = world.features, world.best_policy(temperature=TEMPERATURE)
    centered = features - np.einsum("sk,skd->sd", world.reference, features)[:, None]
    radius = reward.ellipsoid.radius(CONFIDENCE)
    return float(np.mean([
        suboptimality_bound(
            reward.ellipsoid.widths(rows), chances, radius=radius, temperature=TEMPERATURE
        )
        for rows, chances in zip(centered, best, strict=True)
    ]))  # fmt: skip


def one_run(setting: Setting, *, epsilon: float, n: int, seed: int) -> tuple[list[float], float]:
    """Return the regret at every scale, and the upper bound."""
    world = instance(setting, epsilon=epsilon, n=n, seed=seed)
    judgments = world.comparisons(n, seed=seed)
    reward = fitted(judgments, epsilon=epsilon, seed=seed, ridge=RIDGE, ball=setting.ball)
    found = []
    for scale in SCALES:
        policy = pessimistic_policy(
            reward, temperature=TEMPERATURE, confidence=CONFIDENCE, scale=scale
        )
        chances = policy.probabilities(None, list(world.features), reference=list(world.reference))
        found.append(world.regret(np.stack(chances), temperature=TEMPERATURE))
    return found, upper_bound(world, reward)


def row(setting: Setting, *, epsilon: float, n: int, runs: int) -> dict[str, Any]:
    """Return the means over the runs at one epsilon and size."""
    both = [one_run(setting, epsilon=epsilon, n=n, seed=seed) for seed in range(runs)]
    regrets = np.array([regret for regret, _ in both])
    uppers = np.array([upper for _, upper in both])
    kept = sordino.RandomizedResponse(epsilon).kappa
    size = setting.concentrability * setting.contexts / n
    return {
        "n": n,
        "shape": short(shape(setting, epsilon=epsilon, n=n)),
        "lower": short(lower_bound(setting, epsilon=epsilon, n=n)),
        "regret": [short(value) for value in regrets.mean(axis=0)],
        "regret_standard_error": [
            short(value) for value in regrets.std(axis=0, ddof=1) / math.sqrt(runs)
        ],
        "upper": short(uppers.mean()),
        "runs_above_upper": int((regrets[:, -1] > uppers).sum()),
        "gibbs_kappa_squared_n_over_cs": short(regrets[:, 0].mean() * kept**2 / size),
    }


def short(value: float) -> float:
    """Return three digits."""
    return float(f"{value:.3g}")


def curve(setting: Setting, epsilon: float, runs: int) -> dict[str, Any]:
    """Return all sizes at one epsilon, and the slope at every scale."""
    found = [row(setting, epsilon=epsilon, n=n, runs=runs) for n in SIZES]
    regrets = np.array([one["regret"] for one in found])
    return {
        "contexts": setting.contexts,
        "concentrability": setting.concentrability,
        "ball": setting.ball,
        "epsilon": epsilon,
        "slopes": [round(log_slope(SIZES, values), 3) for values in regrets.T],
        "rows": found,
    }


def measure(runs: int) -> dict[str, Any]:
    """Return all settings and epsilons."""
    return {
        "name": "hard-instance",
        "temperature": TEMPERATURE,
        "ridge": RIDGE,
        "confidence": CONFIDENCE,
        "scales": list(SCALES),
        "runs": runs,
        "results": [curve(setting, epsilon, runs) for setting in SETTINGS for epsilon in EPSILONS],
        "randomness": "seeded simulation",
        "versions": versions(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=16)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
