"""Prints as JSON how fast what privacy adds to the error falls with the number of judgments.

The same judgments are fitted with and without noise. What privacy adds is the distance of the two
estimates; what the judgments themselves leave open is the distance of the second one to the
truth. All fits have one ridge, chosen before any data, so that no choice of a ridge on noised
answers is mixed into either.

python benchmarks/utility/central_slope.py [--worlds 50]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from _worlds import log_slope, versions
from central import BALL, evidence, sphere, truth
from scipy.special import expit

import sordino
from sordino._random import SimulatedEntropy
from sordino.engines.engine import Rows
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.privacy.guarantee import REPLACE_SPECIAL
from sordino.rewards.pair_losses import DebiasedLogistic, debias
from sordino.rewards.record_release import release_records
from sordino.rewards.reward_fit import fit_sum
from sordino.rewards.solver import minimize_ridge

EPSILON, DELTA = 1.0, 1e-6
SIZES = tuple(2**power for power in range(12, 19))
D, NORM = 16, 4.0
RIDGE = 1.0  # for ε = 1 record privacy needs more than .15
PARTS = ("judgments", "label", "record", "randomized_response")


def debiased(rows: np.ndarray, answers: np.ndarray, flip_probability: float) -> np.ndarray:
    """Return the fit of answers that were flipped this often."""
    loss = DebiasedLogistic(rows, debias(answers, flip_probability))
    atol = 1e-7 * len(rows)
    return minimize_ridge(loss, ridge=RIDGE, ball=BALL, atol=atol).theta


def distances(n: int, *, d: int, seed: int) -> dict[str, float]:
    """Return, in one world, the distance of the plain fit to the truth and of others to it."""
    generator = np.random.default_rng([seed, n])
    rows, theta = sphere(n, d, generator), truth(d, NORM, generator)
    labels = (generator.random(n) < expit(rows @ theta)).astype(np.int8)
    plain = debiased(rows, labels, 0.0)
    design = LabelGaussian(EPSILON, delta=DELTA).prepare(rows)
    noise = [int(word) for word in generator.integers(2**32, size=3)]
    summed = fit_sum(evidence(design, rows, labels, noise[0]), ridge=RIDGE, ball=BALL)
    tilt = ObjectivePerturbation(
        EPSILON, delta=DELTA, bound=1.0, neighbors=REPLACE_SPECIAL, ridge=RIDGE
    )
    tilted = release_records(
        Rows.of(tilt.clipped(rows), labels),
        tilt,
        ball=BALL,
        second_moment=None,
        entropy=SimulatedEntropy(noise[1]),
    )
    coin = sordino.RandomizedResponse(EPSILON)
    answers = coin.release(labels, entropy=SimulatedEntropy(noise[2]))
    found = (
        theta,
        summed.solution.theta,
        tilted,
        debiased(rows, answers, coin.flip_probability),
    )
    return dict(zip(PARTS, (float(np.linalg.norm(one - plain)) for one in found), strict=True))


def row(n: int, *, d: int, worlds: int, seed: int) -> dict[str, float]:
    """Return mean distances over worlds, and the standard error of each."""
    found = [distances(n, d=d, seed=seed + world) for world in range(worlds)]
    result: dict[str, float] = {"n": n}
    for part in PARTS:
        values = [one[part] for one in found]
        result[part] = float(np.mean(values))
        result[f"{part}_standard_error"] = float(np.std(values, ddof=1) / np.sqrt(worlds))
    return result


def slopes(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the slope of every part in the logarithm of the number of judgments."""
    sizes = [one["n"] for one in rows]
    return {part: round(log_slope(sizes, [one[part] for one in rows]), 4) for part in PARTS}


def measure(worlds: int, *, sizes: Sequence[int] = SIZES, seed: int = 0) -> dict[str, Any]:
    """Return all that is measured."""
    rows = [row(n, d=D, worlds=worlds, seed=seed) for n in sizes]
    return {
        "name": "central_slope",
        "epsilon": EPSILON,
        "delta": DELTA,
        "dimension": D,
        "norm": NORM,
        "ridge": RIDGE,
        "record_relation": REPLACE_SPECIAL.name,
        "worlds": worlds,
        "seed": seed,
        "slopes": slopes(rows),
        "rows": [{name: round(value, 6) for name, value in one.items()} for one in rows],
        "versions": versions() | {"numpy": np.__version__},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=50)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
