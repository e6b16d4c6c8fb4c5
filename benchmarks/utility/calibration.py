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
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import expit, roots_jacobi

import sordino
from sordino import _validate
from sordino.environments.preference_worlds import Judgments, LinearPreferences
from sordino.environments.values import prefer_first
from sordino.rewards.evidence import Design
from sordino.rewards.pair_losses import DebiasedLogistic, checked_flip
from sordino.rewards.reward_fit import fit_design
from sordino.rewards.solver import minimize_ridge

DIMENSION, SIZE, RIDGE, BALL, FRESH = 8, 2.0, 1.0, 100.0, 50_000
EPSILONS = (0.1, 0.5, 1.0, 2.0)
_STEEPEST = 1e6  # no slope of interest is larger; the fit needs some bound


def population_slope(predicted: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> float:
    """Return the factor that brings predicted reward differences to the scale of the true ones.

    It minimizes the expected logistic loss of factor · predicted over the people's answers, so
    1 is calibrated, below 1 too sure, above 1 not sure enough. Errors in the direction of the
    weights lower it as well.

    Source:
        docs/local.md, metrics on randomized labels: root b of Σ (σ(bΔ̂) − σ(Δ))Δ̂ = 0.

    Args:
        predicted: Δ̂ on comparisons that nothing was fitted on.
        true: Δ on the same.

    Example:
        >>> true = np.array([1.0, -2.0, 0.5])
        >>> round(population_slope(true / 4, true), 6)
        4.0
    """
    loss = DebiasedLogistic(predicted[:, None], targets=expit(true))
    atol = 1e-9 * max(float(np.abs(predicted).sum()), np.finfo(float).tiny)
    return float(minimize_ridge(loss, ridge=0.0, ball=_STEEPEST, atol=atol).theta[0])


def plain_logistic_scale(
    size: float, *, dimension: int, flip_probability: float, unit_differences: bool = False
) -> float:
    """Return what logistic regression makes of the reward's scale if it ignores the flips.

    With any number of answers, plain logistic regression on randomized answers converges to
    c·θ*. Its calibration slope is 1/c; c tends to κ for small rewards.

    Source:
        docs/local.md, debiased likelihood; White 1982 (misspecified likelihoods): c solves
        E x(σ(cΔ) − κσ(Δ) − f) = 0, a single equation because x points anywhere.

    Args:
        size: ‖θ*‖ > 0.
        dimension: d ≥ 2.
        flip_probability: f, in [0, 1/2).
        unit_differences: Whether x itself is a uniform unit vector; otherwise it is the
            difference of two.

    Example:
        >>> flip = 1 / (1 + np.exp(1.0))
        >>> scale = plain_logistic_scale(
        ...     4.0, dimension=64, flip_probability=flip, unit_differences=True
        ... )
        >>> round(1 / scale, 2)
        2.26
    """
    norm = _validate.positive("size", size)
    flip = checked_flip(flip_probability)
    _validate.integer("dimension", dimension, at_least=2)
    # One coordinate of a uniform unit vector: Gauss–Jacobi quadrature of the density
    # ∝ (1 − u²)^((d − 3)/2), exact for polynomials of degree 2·nodes − 1.
    values, weights = roots_jacobi(64, (dimension - 3) / 2, (dimension - 3) / 2)
    weights = weights / weights.sum()
    if not unit_differences:
        values = np.subtract.outer(values, values).ravel()
        weights = np.multiply.outer(weights, weights).ravel()
    margins = norm * values
    kept = (1 - 2 * flip) * (expit(margins) - 0.5)

    def score(scale: float) -> float:
        return float(weights @ (values * (expit(scale * margins) - 0.5 - kept)))

    return float(brentq(score, 0.0, 1.0, xtol=1e-14))


def judged(world: LinearPreferences, n: int, seed: int) -> Judgments:
    """Return n judgments, each of two actions of a context of its own."""
    rows = np.subtract(*np.swapaxes(world.contexts(np.random.default_rng((seed, 2)), n), 0, 1))
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
