"""Time a worst-case optimal policy against cvxpy with Clarabel on the same problem.

Prints one JSON object. Ours is the whole call: checks, the policy, its gap of 1e-4 and the
certificate. The peer builds and solves the second-order cone program over all probabilities, at
its default tolerances. The repeats are interleaved and the fastest counts.

    python benchmarks/speed/pessimism.py --repeats 3 > benchmarks/results/pessimism.json
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for both: small products gain nothing

import cvxpy as cp
import numpy as np
from _shared import show, versions

from sordino.policies.robust import _StochasticPolicy, robust_policy

GAP = 1e-4
RADII = {"barely": 0.3, "moderately": 1.0, "hard": 2.0, "to the reference": 4.0}


@dataclass(frozen=True, eq=False)
class Known:
    """A confidence set with a radius of our choice."""

    center: np.ndarray
    metric: np.ndarray
    size: float

    def radius(self, confidence: float) -> float:
        """Return the radius, whatever the confidence."""
        del confidence
        return self.size


def problem(n: int, k: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features of n contexts with k candidates, an estimate of norm 1, and a metric."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, k, d)) / np.sqrt(d)
    theta = rng.standard_normal(d)
    scales = (1.0 + np.arange(d)) ** -0.5  # comparisons see some directions better than others
    rows = rng.standard_normal((4 * d, d)) * scales / np.sqrt(d)
    return features, theta / np.linalg.norm(theta), 20 * rows.T @ rows + np.eye(d)


def peer(features: np.ndarray, known: Known) -> float:
    """Return the value that cvxpy and Clarabel find."""
    n, k, d = features.shape
    rows = features.reshape(n * k, d)
    whiten = np.linalg.inv(np.linalg.cholesky(known.metric))
    chances = cp.Variable((n, k), nonneg=True)
    q = cp.vec(chances, order="C") @ rows / n - rows.mean(axis=0)
    value = known.center @ q - known.size * cp.norm(whiten @ q)
    program = cp.Problem(cp.Maximize(value), [cp.sum(chances, axis=1) == 1])
    program.solve(solver=cp.CLARABEL)
    return float(program.value)


def ours(features: np.ndarray, known: Known, solver: Any) -> _StochasticPolicy:
    """Return our policy."""
    return robust_policy(known, None, features, within_ball=False, gap=GAP, solver=solver)


def seconds(function: Callable[..., Any], *given: Any) -> tuple[float, Any]:
    """Return how long a call took, and what it returned."""
    start = time.perf_counter()
    found = function(*given)
    return time.perf_counter() - start, found


def measure(n: int, k: int, d: int, *, repeats: int, seed: int) -> list[dict[str, Any]]:
    """Return one row for every radius."""
    features, theta, metric = problem(n, k, d, seed)
    rows = []
    for name, radius in RADII.items():
        known = Known(theta, metric, radius)
        runs: dict[str, list[float]] = {"frank-wolfe": [], "smoothing": [], "cvxpy": []}
        found: dict[str, _StochasticPolicy] = {}
        for _ in range(repeats):
            for solver in ("frank-wolfe", "smoothing"):
                took, found[solver] = seconds(ours, features, known, solver)
                runs[solver].append(took)
            took, value = seconds(peer, features, known)
            runs["cvxpy"].append(took)
        fastest = {solver: min(took) for solver, took in runs.items()}
        row: dict[str, Any] = {
            "binds": name,
            "radius": radius,
            "cvxpy_clarabel_seconds": round(fastest["cvxpy"], 3),
            "cvxpy_clarabel_value": round(value, 6),
        }
        for solver, policy in found.items():
            row[solver] = {
                "seconds": round(fastest[solver], 4),
                "times_faster": round(fastest["cvxpy"] / fastest[solver], 1),
                "value": round(policy.value, 6),
                "gap": float(f"{policy.gap:.2g}"),
            }
        rows.append(row)
    return rows


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, default=5000)
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sizes = given.contexts, given.candidates, given.features
    show(
        {
            "name": "pessimism",
            "contexts": sizes[0],
            "candidates": sizes[1],
            "features": sizes[2],
            "requested_gap": GAP,
            "seed": given.seed,
            "repeats": given.repeats,
            "results": measure(*sizes, repeats=given.repeats, seed=given.seed),
            "versions": versions("sordino", "numpy", "scipy", "clarabel", "cvxpy"),
        }
    )


if __name__ == "__main__":
    main()
