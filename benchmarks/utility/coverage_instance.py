"""Prints as JSON what pessimism earns where the log hardly shows the better candidates.

200 contexts with 8 candidates and 16 features. The log compares candidates that it picks among
the 4 that are truly worst with probability .98, and among the others with .02. Half of the
candidates have 12 features of their own, which matter little and which those comparisons hardly
show; 4 features are shared by all. All labels are released once, with noise; the greedy policy
takes the estimate at its word, the pessimistic one its worst case within the proved radius.

python benchmarks/utility/coverage_instance.py [--seeds 30]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from _worlds import versions
from central import evidence
from scipy.special import expit
from scipy.stats import t as student

from sordino.mechanisms.label_sum import LabelGaussian
from sordino.policies.robust import robust_policy
from sordino.rewards.confidence import ConfidenceEllipsoid
from sordino.rewards.reward_fit import ellipsoid_of, fit_sum

SIZES = (10_000, 20_000, 30_000, 60_000, 100_000)
SCALES = (1.0, 0.3)
AT = 30_000  # where the difference is tested


@dataclass(frozen=True, kw_only=True)
class Instance:
    """The world; lengths of features and weights are chosen so that both parts matter alike."""

    contexts: int = 200
    candidates: int = 8
    shared: int = 4
    own: int = 12
    shared_length: float = 0.1
    own_length: float = 0.3
    shared_weight: float = 4.0
    own_weight: float = 0.05
    seldom: float = 0.02
    epsilon: float = 1.0
    delta: float = 1e-6
    ball: float = 4.4
    ridge: float = 0.1


class World(NamedTuple):
    """Features of all candidates, true weights, and how often the log picks each candidate."""

    features: np.ndarray
    theta: np.ndarray
    logging: np.ndarray

    @property
    def rewards(self) -> np.ndarray:
        """True rewards, shape (contexts, candidates)."""
        return np.asarray(self.features @ self.theta)


def world(setting: Instance, generator: np.random.Generator) -> World:
    """Return one world."""
    shape, half = (setting.contexts, setting.candidates), setting.candidates // 2
    shared = generator.normal(size=(*shape, setting.shared))
    shared *= setting.shared_length / np.linalg.norm(shared, axis=2, keepdims=True)
    shared *= generator.random((*shape, 1)) ** (1 / setting.shared)  # uniform in a ball
    shared[:, half:, 0] += setting.shared_length  # the new kind is better on the whole
    own = np.zeros((*shape, setting.own))
    new = generator.normal(size=(shape[0], shape[1] - half, setting.own))
    own[:, half:] = setting.own_length * new / np.linalg.norm(new, axis=2, keepdims=True)
    weights = generator.normal(size=setting.own)
    theta = np.zeros(setting.shared + setting.own)
    theta[0] = setting.shared_weight
    theta[setting.shared :] = setting.own_weight * weights / np.linalg.norm(weights)
    features = np.concatenate([shared, own], axis=2)
    order = np.argsort(features @ theta, axis=1)
    logging = np.full(shape, setting.seldom / (shape[1] - half))
    np.put_along_axis(logging, order[:, :half], (1 - setting.seldom) / half, axis=1)
    return World(features, theta, logging)


def comparisons(
    known: World, n: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return differences of features and labels of n logged comparisons of two candidates."""
    context = generator.integers(0, len(known.logging), n)
    bounds = known.logging.cumsum(axis=1)[context]
    first, second = (
        np.minimum((generator.random(n)[:, None] > bounds).sum(axis=1), bounds.shape[1] - 1)
        for _ in range(2)
    )
    rows = known.features[context, first] - known.features[context, second]
    rows = rows[first != second]
    labels = (generator.random(len(rows)) < expit(rows @ known.theta)).astype(np.int8)
    return rows, labels


def estimate(
    setting: Instance, rows: np.ndarray, labels: np.ndarray, seed: int
) -> ConfidenceEllipsoid:
    """Return the confidence set of one release of all labels."""
    mechanism = LabelGaussian(setting.epsilon, delta=setting.delta)
    released = evidence(mechanism.prepare(rows), rows, labels, seed)
    found = fit_sum(released, ball=setting.ball, ridge=setting.ridge)
    return ellipsoid_of(released, found, ball=setting.ball)


def values(setting: Instance, *, n: int, seed: int, scales: tuple[float, ...]) -> list[float]:
    """Return true values: best, uniform, log, greedy, then pessimistic at every scale."""
    generator = np.random.default_rng([seed, n])
    known = world(setting, generator)
    rows, labels = comparisons(known, n, generator)
    ellipsoid = estimate(setting, rows, labels, seed)
    rewards = known.rewards
    greedy = (known.features @ ellipsoid.center).argmax(axis=1)[:, None]
    found = [
        rewards.max(axis=1).mean(),
        rewards.mean(),
        (known.logging * rewards).sum(axis=1).mean(),
        np.take_along_axis(rewards, greedy, axis=1).mean(),
    ]
    for scale in scales:
        policy = robust_policy(ellipsoid, None, known.features, radius_scale=scale)
        found.append((np.array(policy.probabilities) * rewards).sum(axis=1).mean())
    return [float(value) for value in found]


def gained(setting: Instance, *, n: int, seeds: range) -> tuple[float, float]:
    """Return what pessimism at scale 1 earns above greedy: mean, and its 95% half width."""
    found = np.array([values(setting, n=n, seed=seed, scales=(1.0,)) for seed in seeds])
    return _interval(found[:, 4] - found[:, 3])


def _interval(differences: np.ndarray) -> tuple[float, float]:
    count = len(differences)
    spread = float(differences.std(ddof=1)) / np.sqrt(count)
    return float(differences.mean()), float(student.ppf(0.975, count - 1) * spread)


def measure(seeds: int) -> dict[str, Any]:
    """Return mean true values at every number of comparisons."""
    setting, results = Instance(), []
    for n in SIZES:
        found = np.array([values(setting, n=n, seed=seed, scales=SCALES) for seed in range(seeds)])
        best, uniform, logging, greedy, *careful = found.T
        row: dict[str, Any] = {
            "n": n,
            "best": best.mean(),
            "uniform": uniform.mean(),
            "logging": logging.mean(),
            "greedy": list(_interval(greedy)),
            "pessimistic": [list(_interval(one)) for one in careful],
            "above_greedy": [list(_interval(one - greedy)) for one in careful],
        }
        results.append(json.loads(json.dumps(row), parse_float=lambda text: round(float(text), 5)))
    return {
        "name": "coverage-instance",
        "setting": vars(setting),
        "scales": SCALES,
        "seeds": seeds,
        "tested_at": AT,
        "results": results,
        "versions": versions(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
