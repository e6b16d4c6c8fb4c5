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
from scipy.optimize import brentq
from scipy.special import logit

import sordino
from sordino.environments.preference_worlds import HardInstance
from sordino.policies.gibbs import pessimistic_policy, suboptimality_bound
from sordino.rewards.pair_losses import answer_probability, checked_flip

TEMPERATURE, RIDGE, CONFIDENCE = 0.25, 1.0, 0.95
SCALES = (0.0, 0.1, 0.3, 1.0)
EPSILONS = (0.5, 1.0, 2.0)
SIZES = tuple(2**power for power in range(13, 22, 2))
WIDEST = 30.0  # a gap beyond which answers change no more


@dataclass(frozen=True)
class Setting:
    """S, C, and a ball that holds every corner of the hypercube."""

    contexts: int
    concentrability: float
    ball: float


SETTINGS = (Setting(4, 4.0, 1.0), Setting(10, 20.0, 4.0))


def hardest_gap(
    n: int, *, contexts: int, concentrability: float, level: float, flip_probability: float
) -> float:
    """Return the gap of a hard instance that n randomized comparisons can barely tell.

    For each context, both signs make n answers whose laws differ by at most one half in total
    variation, however the labels were randomized.

    Source:
        PPKL, Theorem 4.5, sharpened. Whatever is ε-private can be computed from randomized
        response (Kairouz, Oh & Viswanath 2015, for binary labels), so its answers tell most. A
        comparison shows a given context and both actions with probability 2(1/C)(1 − 1/C)/S;
        then the divergences of the answer sum to J = (p − q)(logit p − logit q), p, q =
        κσ(level ± gap) + f; and TV² of all answers is at most a quarter of their sum (Pinsker),
        so the gap solves n · 2(1/C)(1 − 1/C)/S · J = 1.

    Args:
        n: Number of comparisons, ≥ 1.
        contexts: S ≥ 1.
        concentrability: C > 1.
        level: The middle of the two possible rewards.
        flip_probability: f of the randomized response, in [0, 1/2).

    Raises:
        UsageError: A number is out of range, or n is so small that every gap is too small.

    Example:
        >>> gap = hardest_gap(
        ...     8192, contexts=4, concentrability=4.0, level=0.0, flip_probability=0.25
        ... )
        >>> round(gap, 4)
        0.0722
    """
    flip = checked_flip(flip_probability)
    rare = 1 / concentrability
    shown = n * 2 * rare * (1 - rare) / contexts

    def excess(gap: float) -> float:
        chances = answer_probability(level + gap * np.array([1.0, -1.0]), flip)
        return shown * float(np.diff(chances)[0] * np.diff(logit(chances))[0]) - 1

    if excess(WIDEST) <= 0:
        raise sordino.UsageError(f"n={n} comparisons can tell no gap at all from none: use more.")
    return float(brentq(excess, 0.0, WIDEST, xtol=1e-15, rtol=1e-12))


def minimax_regret(
    n: int, *, contexts: int, concentrability: float, temperature: float, flip_probability: float
) -> float:
    """Return a regret that no method stays below on hard instances, averaged over their signs.

    At the balanced level and :func:`hardest_gap`, whatever is computed from n comparisons whose
    labels left through any ε-private randomizer, ε that of the flips. For many comparisons and
    small rewards it is about C·S/(32·temperature·(1 − 1/C)·nκ²).

    Source:
        PPKL, Theorem 4.5, with its constant made explicit and (e^ε − 1)² sharpened to κ². With
        q = σ(gap/temperature), one context's regrets under both signs sum to temperature·(KL(p ‖
        q) + KL(p ‖ 1 − q)) ≥ 2·temperature·log cosh(gap/(2·temperature)), so (Assouad) the mean
        regret is at least half of that times 1 − TV, and TV ≤ 1/2.

    Args:
        n: Number of comparisons, ≥ 1.
        contexts: S ≥ 1.
        concentrability: C > 1.
        temperature: KL strength in units of reward, > 0.
        flip_probability: f of the randomized response, in [0, 1/2).

    Raises:
        UsageError: As in :func:`hardest_gap`.

    Example:
        >>> size = {"contexts": 4, "concentrability": 4.0, "temperature": 0.25}
        >>> few, many = (minimax_regret(n, **size, flip_probability=0.25) for n in (10_000, 40_000))
        >>> round(few / many, 1)
        4.0
    """
    gap = hardest_gap(
        n,
        contexts=contexts,
        concentrability=concentrability,
        level=HardInstance.balanced_level(concentrability=concentrability, temperature=temperature),
        flip_probability=flip_probability,
    )
    half = gap / (2 * temperature)
    # log cosh without overflow
    return temperature * (half + math.log1p(math.expm1(-2 * half) / 2)) / 2


def instance(setting: Setting, *, epsilon: float, n: int, seed: int) -> HardInstance:
    """Return the hardest instance for n comparisons at an epsilon, with random signs."""
    flip = sordino.RandomizedResponse(epsilon).flip_probability
    contexts, reach = setting.contexts, setting.concentrability
    level = HardInstance.balanced_level(concentrability=reach, temperature=TEMPERATURE)
    gap = hardest_gap(
        n, contexts=contexts, concentrability=reach, level=level, flip_probability=flip
    )
    world = HardInstance.random(
        contexts=contexts, concentrability=reach, gap=gap, level=level, seed=seed
    )
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
    features, base = world.features, world.reference(world.features)
    best = world.best_policy(features, temperature=TEMPERATURE)
    centered = features - np.einsum("sk,skd->sd", base, features)[:, None]
    ellipsoid = reward.ellipsoid
    assert ellipsoid is not None
    radius = ellipsoid.radius(CONFIDENCE)
    return float(np.mean([
        suboptimality_bound(
            ellipsoid.widths(rows), chances, radius=radius, temperature=TEMPERATURE
        )
        for rows, chances in zip(centered, best, strict=True)
    ]))  # fmt: skip


def one_run(setting: Setting, *, epsilon: float, n: int, seed: int) -> tuple[list[float], float]:
    """Return the regret at every scale, and the upper bound."""
    world = instance(setting, epsilon=epsilon, n=n, seed=seed)
    judgments = world.comparisons(n, seed=seed)
    reward = fitted(judgments, epsilon=epsilon, seed=seed, ridge=RIDGE, ball=setting.ball)
    found, features, base = [], world.features, list(world.reference(world.features))
    for scale in SCALES:
        policy = pessimistic_policy(
            reward, temperature=TEMPERATURE, confidence=CONFIDENCE, scale=scale
        )
        chances = policy.probabilities(None, list(features), reference=base)
        found.append(world.regret(np.stack(chances), features, temperature=TEMPERATURE))
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
