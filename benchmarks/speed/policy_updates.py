"""Time private policy optimization in users per second.

Prints one JSON object. Users have 10 actions of 32 features. Timed is the whole ``optimize``:
checks, both actions of every user and their rewards, the update with its noise, and a ledger with
durable writes (two a batch, which a slow disk makes dear: see ``ledger_seconds``). The world hands
out users who were drawn before the clock starts, as a service hands over those who came, one batch
of them again and again; ``drawing_included`` draws them on the way. An interaction is one action
shown to one user and its reward: there are two for each user.

    python benchmarks/speed/policy_updates.py > speed.json
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products gain nothing

import numpy as np
from _shared import show, versions

import sordino
from sordino.algorithms.policy_optimization import optimize
from sordino.environments.linear_worlds import Sphere
from sordino.privacy.guarantee import GaussianEvent

ACTIONS, FEATURES, BATCHES = 10, 32, 20
EPSILON, DELTA = 1.0, 1e-5


@dataclass
class Waiting:
    """Users who came already: the same batch of them every time, for memory's sake."""

    world: Sphere
    features: np.ndarray

    feature_bound = 1.0
    reward_bound = 1.0
    step = 1.0

    def contexts(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return n users."""
        del rng
        return self.features[:n]

    def reward(self, context: Any, action: Any, rng: np.random.Generator) -> Any:
        """Return what they felt."""
        return self.world.reward(context, action, rng)


def opened(folder: str, **terms: Any) -> sordino.Ledger:
    """Return a new ledger for one run."""
    budget = sordino.Guarantee(EPSILON, unit="person", trust="central", **terms)
    return sordino.Ledger.open(Path(folder) / "spend.db", data="users", budget=budget)


def ledger_seconds() -> float:
    """Return how long the writes of one run take: two for each batch."""
    terms: dict[str, Any] = {"delta": DELTA, "neighbors": sordino.REPLACE_SPECIAL}
    promise = sordino.Guarantee(EPSILON, unit="person", trust="central", **terms)
    with tempfile.TemporaryDirectory() as folder:
        ledger = opened(folder, **terms)
        scopes = [f"batch-{number}" for number in range(BATCHES)]
        start = time.perf_counter()
        ledger.declare_disjoint(scopes, rule="person-id")
        for scope in scopes:
            ledger.reserve(GaussianEvent(0.1), promise=promise, scope=scope).commit("0" * 64)
        return time.perf_counter() - start


def seconds(environment: Any, update: str, users: int) -> float:
    """Return how long one run took."""
    terms: dict[str, Any] = {"delta": DELTA, "neighbors": sordino.REPLACE_SPECIAL}
    with tempfile.TemporaryDirectory() as folder:
        ledger = opened(folder, **terms)
        start = time.perf_counter()
        optimize(
            environment,
            update=update,
            users=users,
            batches=BATCHES,
            epsilon=EPSILON,
            ledger=ledger,
            step=1.0,
            **terms,
        )
        return time.perf_counter() - start


def measure(users: int, repeats: int) -> dict[str, Any]:
    """Return users and interactions per second for every update; the fastest repeat counts."""
    world = Sphere(dimension=FEATURES, actions=ACTIONS)
    features = world.contexts(np.random.default_rng(0), users // BATCHES)
    rows = {}
    for update in ("npg", "rebel", "pg"):
        waiting = min(seconds(Waiting(world, features), update, users) for _ in range(repeats))
        drawing = min(seconds(world, update, users) for _ in range(repeats))
        rows[update] = {
            "seconds": round(waiting, 4),
            "users_per_second": round(users / waiting),
            "interactions_per_second": round(2 * users / waiting),
            "drawing_included": {
                "users_per_second": round(users / drawing),
                "interactions_per_second": round(2 * users / drawing),
            },
        }
    return rows


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    show(
        {
            "name": "policy_optimization_speed",
            "users": given.users,
            "batches": BATCHES,
            "actions": ACTIONS,
            "features": FEATURES,
            "repeats": given.repeats,
            "ledger_seconds": round(min(ledger_seconds() for _ in range(given.repeats)), 4),
            "updates": measure(given.users, given.repeats),
            "versions": versions("sordino", "numpy", "scipy", "opendp"),
        }
    )


if __name__ == "__main__":
    main()
