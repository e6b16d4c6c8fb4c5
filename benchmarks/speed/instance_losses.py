"""Time the losses of one data set over all its neighbors, against a new fit for each neighbor.

Prints one JSON object. The peer, in the same run: the same policy fitted anew without each of
some records, scaled to all of them. Both find the same largest loss over those records.

    python benchmarks/speed/instance_losses.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _shared import show, versions

from sordino.auditing.instance_losses import ArmAudit, LinearAudit, gathered_arms
from sordino.preferences.bandit_logs import BanditLogs

TEMPERATURE, PENALTY, SHRINKAGE, RIDGE = 0.1, 0.5, 1.0, 1.0


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long a call took, and what it returned."""
    start = time.perf_counter()
    value = function()
    return time.perf_counter() - start, value


def normalized(scores: np.ndarray) -> np.ndarray:
    """Return the logarithms of the chances at these scores, under a uniform reference."""
    logs = scores / TEMPERATURE
    return np.asarray(logs - np.logaddexp.reduce(logs))


def arm_policy(arms: np.ndarray, rewards: np.ndarray, k: int) -> np.ndarray:
    """Return the log-chances of all arms, from all records."""
    sizes = np.bincount(arms, minlength=k) + SHRINKAGE
    sums = np.bincount(arms, weights=rewards, minlength=k) + SHRINKAGE / 2
    return normalized(sums / sizes - PENALTY / np.sqrt(sizes))


def linear_policy(features: np.ndarray, rewards: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return the log-chances of all actions, from all records."""
    second = features.T @ features + RIDGE * np.eye(features.shape[1])
    theta = np.linalg.solve(second, features.T @ rewards)
    widths = np.einsum("kd,dk->k", actions, np.linalg.solve(second, actions.T))
    return normalized(actions @ theta - PENALTY * np.sqrt(widths))


def largest(policy: Callable[..., np.ndarray], first: np.ndarray, rewards: np.ndarray,
            last: Any, some: int) -> float:  # fmt: skip
    """Return the largest loss over the first records, with a new fit without each."""
    here = policy(first, rewards, last)
    return max(
        float(abs(policy(np.delete(first, i, 0), np.delete(rewards, i), last) - here).max())
        for i in range(some)
    )


def compared(
    name: str, size: dict[str, int], ours: Callable[[], Any], peer: Callable[[], float], some: int
) -> dict[str, Any]:
    """Return one row of the result: times, and how many times faster it is."""
    ours()
    found = [timed(ours) for _ in range(5)]
    seconds = statistics.median(took for took, _ in found)
    took, refitted = timed(peer)
    if found[0][1].for_curator_only() < refitted * (1 - 1e-8):
        raise SystemExit(f"{name}: a new fit found a larger loss")
    naive = took / some * size["n"]
    return {
        "name": name,
        **size,
        "seconds": seconds,
        "peer": {"name": "a new fit without each record", "fits": some, "seconds_for_all": naive},
        "ratio": round(naive / seconds),
    }


def arms(n: int, k: int, some: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return the row of a multi-armed bandit, summing the records included."""
    pulled, rewards = rng.integers(0, k, n), rng.random(n)
    logs = BanditLogs.from_arrays(pulled, rewards, catalogue=k, reward_range=(0.0, 1.0))
    rule = {"temperature": TEMPERATURE, "shrinkage": SHRINKAGE, "penalty": PENALTY}
    return compared(
        "multi-armed",
        {"n": n, "arms": k},
        lambda: ArmAudit(reward_range=1.0, **rule).loss(*gathered_arms(logs)),
        lambda: largest(arm_policy, pulled, rewards, k, some),
        some,
    )


def linear(n: int, d: int, k: int, some: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return the row of a linear bandit: every record left out, and 100 features added."""
    rows = rng.standard_normal((n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rewards, actions, additions = rng.random(n), rows[:k], rows[k : k + 100]
    rule = {"ridge": RIDGE, "temperature": TEMPERATURE, "penalty": PENALTY}
    return compared(
        "linear",
        {"n": n, "d": d, "actions": k, "additions": 100},
        lambda: LinearAudit(reward_range=1.0, **rule).loss(rows, rewards, actions, additions),
        lambda: largest(linear_policy, rows, rewards, actions, some),
        some,
    )


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    given = parser.parse_args()
    share, rng = (10 if given.quick else 1), np.random.default_rng(given.seed)
    show(
        {
            "name": "instance-losses",
            "results": [
                arms(1_000_000 // share, 100, 50, rng),
                linear(100_000 // share, 32, 20, 50, rng),
            ],
            "seed": given.seed,
            "versions": versions("sordino", "numpy", "scipy"),
        }
    )


if __name__ == "__main__":
    main()
