"""Prints as JSON what record privacy costs in accuracy, and how often its confidence set holds.

Randomized response at the same epsilon, which hides labels only, sees the same judgments.

python benchmarks/utility/central_record.py [--fits 400] [--seeds 20]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from _worlds import versions
from central import randomized
from scipy.special import expit

from sordino._random import SimulatedEntropy
from sordino.engines.engine import Rows
from sordino.mechanisms.gaussian import joint_mechanisms
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards.confidence import ReleasedMoment, least_ridge, record_ellipsoid
from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.record_release import release_records
from sordino.rewards.solver import minimize_ridge

EPSILON, DELTA = 1.0, 1e-6
BALL = 100.0
FRESH = 200_000  # differences on which accuracy is measured
RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Setting:
    """One world of unit differences, and what is promised there."""

    epsilon: float
    n: int = 5000
    d: int = 4
    norm: float = 1.0
    ball: float = 1.0
    relation: str = ADD_OR_REMOVE_ONE.name


SETTINGS = (
    Setting(0.5),
    Setting(1.0),
    Setting(4.0),
    Setting(1.0, d=16),
    Setting(1.0, n=500),
    Setting(1.0, norm=2.0, ball=3.0),
    Setting(1.0, relation=REPLACE_ONE.name),
)


def unit_rows(generator: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Return n directions, uniform on the sphere."""
    rows = generator.normal(size=(n, d))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def world(generator: np.random.Generator, n: int, d: int, norm: float) -> tuple[np.ndarray, ...]:
    """Return differences, the judgments of a Bradley-Terry person, and the truth."""
    theta = norm * unit_rows(generator, 1, d)[0]
    rows = unit_rows(generator, n, d)
    return rows, (generator.random(n) < expit(rows @ theta)).astype(np.int8), theta


def coverage(setting: Setting, *, fits: int, seed: int) -> dict[str, float]:
    """Return the share of fits whose 95% set holds the truth, and its radius over the error."""
    generator, entropy = np.random.default_rng(seed), SimulatedEntropy(seed)
    relation = {kind.name: kind for kind in (ADD_OR_REMOVE_ONE, REPLACE_ONE)}[setting.relation]
    settings: dict[str, Any] = {"delta": DELTA, "bound": 1.0, "neighbors": relation}
    noise, moment = joint_mechanisms(setting.epsilon, **settings)
    ridge = 1.01 * max(noise.ridge or 0.0, least_ridge(moment, d=setting.d, ball=setting.ball))
    noise, moment = joint_mechanisms(setting.epsilon, ridge=ridge, **settings)
    held, ratios = [], []
    for _ in range(fits):
        rows, labels, theta = world(generator, setting.n, setting.d, setting.norm)
        given: dict[str, Any] = {"ball": setting.ball, "entropy": entropy}
        records = Rows.of(noise.clipped(rows), labels)
        released = release_records(records, noise, second_moment=moment, **given)
        weights, matrix = released[: setting.d], released[setting.d :]
        known = ReleasedMoment(matrix=matrix.reshape(setting.d, setting.d), mechanism=moment)
        ellipsoid = record_ellipsoid(weights, known, noise, ball=setting.ball)
        held.append(ellipsoid.contains(theta, 0.95))
        ratios.append(ellipsoid.radius(0.95) / ellipsoid.distance(theta))
    return {
        "coverage": float(np.mean(held)),
        "ridge": ridge,
        "radius_over_error_median": float(np.median(ratios)),
        "radius_over_error_5_percent": float(np.quantile(ratios, 0.05)),
    }


def compared(
    *, n: int, d: int, norm: float, seed: int, ridges: Sequence[float] = RIDGES
) -> dict[str, dict[str, float]]:
    """Return the expected accuracy and the error of fits without and with privacy.

    The fit without privacy has the best of several ridges, chosen by accuracy and error
    themselves.
    """
    generator, entropy = np.random.default_rng(seed), SimulatedEntropy(seed)
    rows, labels, theta = world(generator, n, d, norm)  # of norm 1: within the bound
    fresh = unit_rows(generator, FRESH, d)
    margins = fresh @ theta

    def accuracy(weights: np.ndarray) -> float:
        return float(np.mean(expit(np.where(fresh @ weights >= 0, margins, -margins))))

    def error(weights: np.ndarray) -> float:
        return float(np.linalg.norm(weights - theta))

    loss = DebiasedLogistic(rows, labels.astype(float))
    open_fits = [minimize_ridge(loss, ridge=r, atol=1e-6, ball=BALL).theta for r in ridges]
    fits = private_fits(rows, labels, seed=seed, entropy=entropy)
    return {
        "accuracy": {"truth": accuracy(theta), "not_private": max(map(accuracy, open_fits))}
        | {name: accuracy(weights) for name, weights in fits.items()},
        "error": {"not_private": min(map(error, open_fits))}
        | {name: error(weights) for name, weights in fits.items()},
    }


def private_fits(
    rows: np.ndarray, labels: np.ndarray, *, seed: int, entropy: SimulatedEntropy
) -> dict[str, np.ndarray]:
    """Return weights under record privacy, alone and with a moment, and from randomized labels."""
    settings: dict[str, Any] = {"delta": DELTA, "bound": 1.0, "neighbors": REPLACE_SPECIAL}
    alone = ObjectivePerturbation(EPSILON, **settings)
    joint, moment = joint_mechanisms(EPSILON, **settings)
    given: dict[str, Any] = {"ball": BALL, "entropy": entropy}
    single = release_records(Rows.of(rows, labels), alone, second_moment=None, **given)
    both = release_records(Rows.of(rows, labels), joint, second_moment=moment, **given)
    return {
        "private": single,
        "private_with_second_moment": both[: rows.shape[1]],
        "randomized_response": randomized(rows, labels, epsilon=EPSILON, seed=seed),
    }


def loss_of_accuracy(*, n: int, d: int, norm: float, seeds: int) -> dict[str, float]:
    """Return mean accuracies, what privacy loses against the fit without it, and error ratios."""
    found = [compared(n=n, d=d, norm=norm, seed=seed) for seed in range(seeds)]
    hits, errors = ([one[kind] for one in found] for kind in ("accuracy", "error"))
    means = {name: float(np.mean([one[name] for one in hits])) for name in hits[0]}
    plain = float(np.mean([one["not_private"] for one in errors]))
    for name in ("private", "private_with_second_moment", "randomized_response"):
        gaps = [one["not_private"] - one[name] for one in hits]
        means[f"loss_{name}"] = float(np.mean(gaps))
        means[f"loss_{name}_standard_error"] = float(np.std(gaps, ddof=1) / seeds**0.5)
        means[f"largest_loss_{name}"] = max(gaps)
        means[f"error_ratio_{name}"] = float(np.mean([one[name] for one in errors])) / plain
    return means


def measure(fits: int, seeds: int) -> dict[str, Any]:
    """Return accuracy at two sizes, and the coverage in every setting."""
    worlds = ({"n": 20_000, "d": 64, "norm": 4.0}, {"n": 2_000, "d": 64, "norm": 4.0})
    return {
        "name": "central_record",
        "epsilon": EPSILON,
        "delta": DELTA,
        "seeds": seeds,
        "fits": fits,
        "confidence": 0.95,
        "accuracy": [
            one
            | {"relation": REPLACE_SPECIAL.name}
            | _rounded(loss_of_accuracy(**one, seeds=seeds))  # type: ignore[arg-type]
            for one in worlds
        ],
        "coverage": [
            vars(setting) | _rounded(coverage(setting, fits=fits, seed=0)) for setting in SETTINGS
        ],
        "versions": versions(),
    }


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 5) for name, value in values.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=20)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
