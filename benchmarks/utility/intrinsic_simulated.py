"""Prints as JSON how much of the gap from uniform to best private draws of arms close.

Ten arms with rewards of 0 or 1, logged uniformly (and once not). One record more or less is
hidden. What the drawn arms are worth is their true mean; "policy" is the same without the luck of
the draws. A share of 1 is the best arm every time, 0 an arm at random.

    python benchmarks/utility/intrinsic_simulated.py [--seeds 30]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
from _worlds import versions
from intrinsic_worlds import (
    ARMS,
    MEANS,
    TERMS,
    LinearWorld,
    chances_of,
    drawn,
    interval,
    logged,
    share_closed,
    shown,
)

from sordino.algorithms.offline_bandit import linear_policy, multi_armed_policy
from sordino.preferences.bandit_logs import BanditLogs

N, EPSILON, DRAWS, DELTAS = 100_000, 1.0, 10, (0.0, 1e-6)
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
TEMPERATURES = (0.2, 0.05, 0.02, 0.01, 0.003, 0.001)
LINEAR = {1_000: (1.0,), 10_000: (1.0,), 100_000: EPSILONS, 1_000_000: (1.0,)}
LOW = 0.01  # a public guess of rewards that are rare


def calibrations(n: int) -> dict[str, dict[str, Any]]:
    """Return what is measured against what: settings beside ε, δ and the number of draws."""
    return {"default": {}, "records": {"records": n}}


def alternatives(n: int) -> dict[str, dict[str, Any]]:
    """Return other calibrations: by temperature, by made-up pulls, by their center.

    A "standard error" is the most that the mean of n/k rewards in [0, 1] can have: .5/√(n/k).
    """
    pulls = n / ARMS
    error = 0.5 / np.sqrt(pulls)
    found: dict[str, dict[str, Any]] = {
        f"temperature {value:g}": {"temperature": value} for value in TEMPERATURES
    }
    found["temperature 1/5 standard error"] = {"temperature": error / 5}
    found["temperature 1/2 standard error"] = {"temperature": error / 2}
    found["shrinkage 4 n/k"] = {"shrinkage": 4 * pulls}
    found["records, center 0"] = {"records": n, "center": 0.0}
    found[f"records, center {LOW:g}"] = {"records": n, "center": LOW}
    return found


def world(name: str, n: int, seed: int, *, skewed: bool = False) -> tuple[np.ndarray, BanditLogs]:
    """Return true means in a random order, and a log."""
    generator = np.random.default_rng([seed, n])
    means = generator.permutation(MEANS[name])
    return means, logged(means, n, generator, skewed=skewed)


def drawn_shares(
    name: str, calibration: dict[str, Any], *, delta: float, seeds: Iterable[int], n: int = N
) -> list[tuple[float, float]]:
    """Return for every seed the shares that ten drawn arms, and their policy, close."""
    found = []
    for seed in seeds:
        means, logs = world(name, n, seed)
        policy = multi_armed_policy(
            logs, epsilon=EPSILON, delta=delta, draws=DRAWS, **calibration, **TERMS
        )
        arms = drawn(policy, DRAWS, seed=seed, delta=delta, epsilon=EPSILON)
        values = means[arms].mean(), chances_of(policy) @ means
        found.append((share_closed(values[0], means), share_closed(values[1], means)))
    return found


def contract(seeds: int) -> list[dict[str, Any]]:
    """Return the shares at ε = 1, 100,000 records and ten draws on a ledger."""
    rows = []
    for name in MEANS:
        for delta in DELTAS:
            for label, calibration in calibrations(N).items():
                found = drawn_shares(name, calibration, delta=delta, seeds=range(seeds))
                by_draws, by_policy = zip(*found, strict=True)
                rows.append(
                    {
                        "means": name,
                        "delta": delta,
                        "calibration": label,
                        "drawn": interval(by_draws),
                        "policy": interval(by_policy),
                        "least_drawn": round(min(by_draws), 4),
                    }
                )
    return rows


def policy_shares(
    worlds: Sequence[tuple[np.ndarray, BanditLogs]], settings: dict[str, Any]
) -> tuple[list[float], float, float]:
    """Return shares of the policy in every world, with temperature and shrinkage."""
    first: Any = multi_armed_policy(worlds[0][1], **settings, **TERMS)
    kept = {key: settings[key] for key in ("center",) if key in settings}
    kept |= {"temperature": first.temperature, "shrinkage": first.estimate.shrinkage}
    found = []
    for means, logs in worlds:
        policy = multi_armed_policy(logs, **kept, **TERMS)
        found.append(float(share_closed(chances_of(policy) @ means, means)))
    return found, first.temperature, first.estimate.shrinkage


def compared(
    name: str, n: int, epsilons: Sequence[float], seeds: int, *, skewed: bool, wide: bool
) -> list[dict[str, Any]]:
    """Return the shares of all calibrations for one size at every ε; ten draws, δ = 1e-6."""
    worlds = [world(name, n, seed, skewed=skewed) for seed in range(seeds)]
    tried = calibrations(n) | (alternatives(n) if wide else {})
    rows = []
    for epsilon in epsilons:
        for label, calibration in tried.items():
            settings = {"epsilon": epsilon, "delta": DELTAS[1], "draws": DRAWS, **calibration}
            found, temperature, shrinkage = policy_shares(worlds, settings)
            rows.append(
                {
                    "means": name,
                    "n": n,
                    "epsilon": epsilon,
                    "skewed": skewed,
                    "calibration": label,
                    "policy": interval(found),
                    "temperature": float(f"{temperature:.4g}"),
                    "shrinkage": float(f"{shrinkage:.4g}"),
                }
            )
    return rows


def linear_calibrations(n: int) -> dict[str, dict[str, Any]]:
    """Return what linear policies are measured with."""
    pulls = n / ((LinearWorld.arm_size + 1) * (LinearWorld.context_size + 1))
    error = 0.5 / np.sqrt(pulls)
    half = {"temperature": error / 2}
    return calibrations(n) | {
        "default, ball 1/2": {"ball": 0.5},
        "records, ball 1/2": {"records": n, "ball": 0.5},
        "temperature 1/2 standard error": half,
        "temperature 1/2 standard error, ball 1/2": {**half, "ball": 0.5},
    }


def linear_rows(seeds: int) -> list[dict[str, Any]]:
    """Return shares of linear policies: ten draws for different contexts, δ = 1e-6."""
    made = [(seed, LinearWorld(np.random.default_rng([seed, 7]))) for seed in range(seeds)]
    rows = []
    for n, epsilons in LINEAR.items():
        worlds = [(one, one.logged(n, np.random.default_rng([seed, n]))) for seed, one in made]
        for epsilon, (label, calibration) in product(epsilons, linear_calibrations(n).items()):
            settings = {"epsilon": epsilon, "delta": DELTAS[1], "draws": DRAWS, **calibration}
            policies: list[Any] = [
                linear_policy(logs, adaptive=True, **settings, **TERMS) for _, logs in worlds
            ]
            shares = [one.share(policy) for (one, _), policy in zip(worlds, policies, strict=True)]
            rows.append(
                {
                    "n": n,
                    "epsilon": epsilon,
                    "calibration": label,
                    "policy": interval(shares),
                    "temperature": float(f"{policies[0].temperature:.4g}"),
                    "ridge": float(f"{policies[0].estimate.ridge:.4g}"),
                }
            )
    return rows


def measure(seeds: int) -> dict[str, Any]:
    """Return all that is measured."""
    sizes = [
        row
        for name in MEANS
        for n in SIZES
        for row in compared(name, n, (EPSILON,), seeds, skewed=False, wide=n in {1_000, 10_000, N})
    ]
    skewed = [
        row
        for name in MEANS
        for n in (1_000, 10_000, N)
        for row in compared(name, n, (EPSILON,), seeds, skewed=True, wide=True)
    ]
    epsilons = [
        row
        for name in MEANS
        for row in compared(name, 10_000, EPSILONS, seeds, skewed=False, wide=False)
    ]
    return {
        "name": "intrinsic_simulated",
        "arms": ARMS,
        "true_means": MEANS,
        "n": N,
        "epsilon": EPSILON,
        "draws": DRAWS,
        "deltas": DELTAS,
        "relation": TERMS["neighbors"].name,
        "seeds": f"0 to {seeds - 1}",
        "contract": contract(seeds),
        "sizes": sizes,
        "skewed": skewed,
        "epsilons": epsilons,
        "linear": linear_rows(max(2, seeds // 3)),
        "versions": versions() | {"numpy": np.__version__},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    print(shown(measure(**vars(parser.parse_args()))))
