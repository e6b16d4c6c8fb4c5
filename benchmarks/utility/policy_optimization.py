"""Prints as JSON what privacy costs policy optimization on the sphere world.

``oracles``: suboptimality by update, oracle, number of users and epsilon. ``dimensions``: one-pass
descent against sufficient statistics as features grow. ``exploration``: a fixed uniform policy
against the current one. ``gradients``: the squared norm of the true gradient, averaged over the
policies of PG. ``slopes``: what privacy adds at epsilon 1, private less non-private of equal
users, against the number of users. The step is 2 and directions are within 2, as the world has it;
where features are many the radius is the same and the step is the square root of their number, for
rewards are smaller there. Ten minutes without 2,048 features, which take most of an hour; with
``--quick`` three seeds and neither many features nor many users, in about four minutes.

    python benchmarks/utility/policy_optimization.py [--seeds 20] [--quick]
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _worlds import log_slope, versions

import sordino
from sordino.algorithms.policy_optimization import Run, optimize
from sordino.environments.linear_worlds import Dosing, Sphere
from sordino.mechanisms.regressions.descent import OnePassDescent
from sordino.mechanisms.regressions.gaussian import AdaptiveStatistics, GaussianStatistics
from sordino.mechanisms.regressions.gibbs import ExponentialRegression
from sordino.policies.softmax import LogLinearPolicy

DELTA, NEIGHBORS, STEP, BATCHES = 1e-5, sordino.REPLACE_SPECIAL, 2.0, 20
EPSILONS = (0.5, 1.0, 5.0, math.inf)
FRESH = 3_000
MEMORY = Path("/dev/shm")  # noqa: S108 (ledgers of a study; forty durable writes are slow on a disk)
MOST_STATISTICS, FEW = 256, 1  # a matrix of 2,048² noised entries takes minutes a run


def played(world: Sphere | Dosing, *, epsilon: float, seed: int, **more: Any) -> Run:
    """Return one run on a ledger of its own."""
    terms: dict[str, Any] = {"delta": DELTA, "neighbors": NEIGHBORS}
    budget = sordino.Guarantee(epsilon, unit="person", trust="central", **terms)
    given = {"step": STEP, "batches": BATCHES} | terms | more
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        ledger = sordino.Ledger.open(Path(folder) / "spend.db", data="users", budget=budget)
        return optimize(world, epsilon=epsilon, ledger=ledger, simulate_seed=seed, **given)


def lost(world: Sphere, run: Run, seed: int) -> float:
    """Return the suboptimality of the output on fresh users."""
    return world.suboptimality(run.policy, np.random.default_rng([seed, 1]), FRESH)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return mean and half width of a 95 % interval over seeds; one seed alone has none."""
    found = {"mean": round(float(np.mean(values)), 6)}
    if len(values) > 1:
        half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
        found["half_width"] = round(half, 6)
    return found


def losses(world: Sphere, seeds: int, **given: Any) -> list[float]:
    """Return the suboptimality of runs by seed."""
    return [lost(world, played(world, seed=seed, **given), seed) for seed in range(seeds)]


def shown(epsilon: float) -> float | str:
    """Return an epsilon as JSON has it."""
    return "inf" if math.isinf(epsilon) else epsilon


def oracles(seeds: int, sizes: Sequence[int], epsilons: Sequence[float]) -> list[dict[str, Any]]:
    """Return suboptimality by update × oracle × N × ε, with and without reward noise."""
    recipes = (
        GaussianStatistics(),
        AdaptiveStatistics(),
        ExponentialRegression(),
        OnePassDescent(),
    )
    kinds = [(update, one) for update in ("npg", "rebel") for one in recipes] + [("pg", None)]
    return [
        {
            "update": update,
            "oracle": None if oracle is None else oracle.name,
            "users": users,
            "epsilon": shown(epsilon),
            "reward_noise": noise,
            **summary(
                losses(
                    Sphere(noise), seeds, update=update, oracle=oracle, users=users, epsilon=epsilon
                )
            ),
        }
        for noise in (0.0, 0.5)
        for update, oracle in kinds
        for users in sizes
        for epsilon in epsilons
    ]


def dimensions(seeds: int, sizes: Sequence[int], users: int) -> list[dict[str, Any]]:
    """Return suboptimality by number of features, beside that of the uniform policy."""
    rows = []
    for d in sizes:
        world = Sphere(0.0, dimension=d)
        start = world.suboptimality(LogLinearPolicy.uniform(d), np.random.default_rng(0), FRESH)
        for oracle in (GaussianStatistics(), OnePassDescent()):
            for epsilon in (1.0, 5.0, math.inf):
                slow = d > MOST_STATISTICS and not (
                    isinstance(oracle, OnePassDescent) and math.isfinite(epsilon)
                )
                if math.isinf(epsilon) and isinstance(oracle, OnePassDescent):
                    continue  # without noise both are the same regression
                few = min(seeds, FEW) if slow else seeds
                given = {"oracle": oracle, "users": users, "step": STEP * math.sqrt(d / 4)}
                rows.append(
                    {
                        "features": d,
                        "oracle": oracle.name,
                        "epsilon": shown(epsilon),
                        "users": users,
                        "seeds": few,
                        "uniform": round(start, 6),
                        **summary(losses(world, few, epsilon=epsilon, **given)),
                    }
                )
    return rows


def exploration(seeds: int, users: int, epsilons: Sequence[float]) -> list[dict[str, Any]]:
    """Return suboptimality with a fixed exploration and with the current policy's."""
    return [
        {
            "update": update,
            "exploration": "uniform" if reference is None else reference,
            "users": users,
            "epsilon": shown(epsilon),
            **summary(
                losses(
                    Sphere(),
                    seeds,
                    update=update,
                    reference=reference,
                    users=users,
                    epsilon=epsilon,
                )
            ),
        }
        for update in ("npg", "rebel")
        for reference in (None, "current")
        for epsilon in epsilons
    ]


def squared_gradient(world: Sphere, policy: LogLinearPolicy, seed: int) -> float:
    """Return ‖∇J‖² of a policy on fresh users, less what so few users add on average."""
    features = world.contexts(np.random.default_rng([seed, 2]), FRESH)
    chances = policy.probabilities(features)
    parts = np.einsum(
        "nk,nkd->nd", chances * world.mean_rewards(features), policy.centered(features)
    )
    excess = parts.var(axis=0, ddof=1).sum() / len(parts)
    return float((parts.mean(axis=0) ** 2).sum() - excess)


def gradients(
    seeds: int, sizes: Sequence[int], counts: Sequence[int], epsilons: Sequence[float]
) -> list[dict[str, Any]]:
    """Return the true ‖∇J‖² of PG averaged over its policies, which is what one drawn has."""
    rows, world = [], Sphere()
    for users in sizes:
        for batches in counts:
            for epsilon in epsilons:
                given: dict[str, Any] = {
                    "update": "pg", "users": users, "batches": batches, "epsilon": epsilon,
                }  # fmt: skip
                means = []
                for seed in range(seeds):
                    run = played(world, seed=seed, output="drawn", **given)
                    squares = [squared_gradient(world, one, seed) for one in run.policies[:-1]]
                    means.append(float(np.mean(squares)))
                rows.append(given | {"epsilon": shown(epsilon), **summary(means)})
    return rows


def slope(seeds: int, sizes: Sequence[int], update: str, *, growing: bool) -> dict[str, Any]:
    """Return what privacy adds by N, its log-log slope, and that of the non-private run."""
    plain, added = [], []
    world = Sphere()
    for users in sizes:
        batches = math.ceil(math.sqrt(users) / 8) if growing else BATCHES
        given = {"update": update, "users": users, "batches": batches}
        free = losses(world, seeds, epsilon=math.inf, **given)
        paid = losses(world, seeds, epsilon=1.0, **given)
        plain.append(summary(free))
        added.append(summary(list(np.subtract(paid, free))))
    means = [max(row["mean"], 1e-9) for row in added]
    return {
        "update": update,
        "batches": "ceil(sqrt(N)/8)" if growing else BATCHES,
        "users": list(sizes),
        "added_by_privacy": added,
        "non_private": plain,
        "slope_added": round(log_slope(sizes, means), 3),
        "slope_non_private": round(log_slope(sizes, [row["mean"] for row in plain]), 3),
    }


def measure(seeds: int = 20, *, quick: bool = False) -> dict[str, Any]:
    """Return all that is measured."""
    few = 3 if quick else seeds
    powers, sizes = range(12, 18, 2) if quick else range(12, 18), (5_000, 20_000, 80_000)
    return {
        "name": "policy_optimization",
        "world": "sphere",
        "delta": DELTA,
        "neighbors": NEIGHBORS.name,
        "seeds": few,
        "batches": BATCHES,
        "step": STEP,
        "oracles": oracles(few, sizes, EPSILONS),
        "dimensions": dimensions(few, (8, 256), 20_000)
        if quick
        else dimensions(few, (8, 256, 2048), 20_000) + dimensions(5, (8, 256), 400_000),
        "exploration": exploration(few, 20_000, EPSILONS),
        "gradients": gradients(few, sizes, (5, 20, 80), EPSILONS),
        "slopes": [
            slope(max(few, 6), [2**power for power in powers], update, growing=growing)
            for growing in (False, True)
            for update in ("npg", "rebel")
        ],
        "versions": versions() | {"numpy": np.__version__},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
