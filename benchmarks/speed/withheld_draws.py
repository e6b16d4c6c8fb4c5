"""Time draws from withheld estimates against Gumbel-max in numpy and the exponential mechanism.

Prints one JSON object. Ours is the whole call: options, score range, the entry on a ledger on
disk, exact draws, the commit. "numpy" is given the scores over temperature, and takes the
argmax after Gumbel noise: no ledger, no promise about arithmetic. "exponential mechanism" is
our own exact draw from sums of records, with no ledger. The repeats are interleaved and the
fastest counts.

    python benchmarks/speed/withheld_draws.py > benchmarks/results/withheld_draws.json
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for both: small products gain nothing

import numpy as np
from _shared import show, versions

import sordino
from sordino._random import entropy
from sordino.algorithms.offline_bandit import linear_policy
from sordino.mechanisms.gibbs import ExponentialMechanism
from sordino.policies.gibbs import WithheldPolicy
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE

TERMS: dict[str, Any] = {"unit": "record", "neighbors": ADD_OR_REMOVE_ONE}


def made_up(k: int, p: int, generator: np.random.Generator) -> WithheldPolicy:
    """Return the policy of a linear bandit with k arms and contexts of p numbers."""
    n = 10_000
    arms, contexts = generator.integers(k, size=n), generator.standard_normal((n, p))
    logs = BanditLogs.from_arrays(
        arms, generator.random(n), catalogue=k, reward_range=(0, 1), contexts=contexts
    )
    return linear_policy(logs, temperature=0.05, ridge=1000.0, **TERMS)


def open_ledger(folder: str, name: str) -> sordino.Ledger:
    """Return a fresh ledger that everything fits on."""
    budget = sordino.Guarantee(inf, delta=0.0, trust="central", **TERMS)
    return sordino.Ledger.open(Path(folder) / f"{name}.db", data="log", budget=budget)


def levels_of(policy: WithheldPolicy, contexts: np.ndarray) -> np.ndarray:
    """Return scores over temperature for every context, which the peer is given."""
    estimate: Any = policy.estimate
    rows = [estimate._scores(estimate.options(context, None)) for context in contexts]
    return np.array(rows) / policy.temperature


def gumbel_max(levels: np.ndarray, count: int) -> np.ndarray:
    """Return draws from floating-point noise, all of them at once."""
    noise = np.random.default_rng().gumbel(size=(count, levels.shape[1]))
    return np.asarray((levels + noise).argmax(axis=1))


def exponential(scores: np.ndarray, count: int) -> np.ndarray:
    """Return exact draws of the exponential mechanism from one record of scores."""
    chances = (1 / len(scores),) * len(scores)
    choice = ExponentialMechanism(0.05, bound=1.0, reference=chances, neighbors=ADD_OR_REMOVE_ONE)
    return choice.repeat(scores[None, :], count, entropy=entropy(None))


def fastest(jobs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the least seconds of every job; the jobs take turns."""
    found = dict.fromkeys(jobs, inf)
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def row(what: str, count: int, jobs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, Any]:
    """Return seconds of ours and of the peers, and how often ours goes into theirs."""
    found = fastest(jobs, repeats)
    ours = found["sordino"]
    return {
        "what": what,
        "draws": count,
        "seconds": {name: float(f"{value:.3g}") for name, value in found.items()},
        "microseconds_per_draw": round(ours / count * 1e6, 2),
        "times_slower": {
            name: round(ours / value, 1) for name, value in found.items() if name != "sordino"
        },
    }


def measure(draws: int, singles: int, k: int, p: int, repeats: int, seed: int) -> list[Any]:
    """Return one row for every way to draw."""
    generator = np.random.default_rng(seed)
    policy = made_up(k, p, generator)
    rows = generator.standard_normal((draws, p))
    contexts = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1) * (1 - 1e-9)
    scores, levels = generator.random(k), levels_of(policy, contexts)
    with tempfile.TemporaryDirectory() as folder:
        names = iter(range(10**6))

        def fresh() -> sordino.Ledger:
            return open_ledger(folder, str(next(names)))

        def one_by_one() -> None:
            with fresh() as ledger:
                for context in contexts[:singles]:
                    policy.draw(context, ledger=ledger)

        def many() -> None:
            with fresh() as ledger:
                policy.draw_many(draws, contexts[0], ledger=ledger)

        def each() -> None:
            with fresh() as ledger:
                policy.draw_each(contexts, ledger=ledger)

        return [
            row(
                f"draw_many: one question of {k} options, one entry",
                draws,
                {
                    "sordino": many,
                    "numpy": lambda: gumbel_max(levels[:1], draws),
                    "exponential mechanism": lambda: exponential(scores, draws),
                },
                repeats,
            ),
            row(
                f"draw_each: as many questions of {k} options, one entry",
                draws,
                {
                    "sordino": each,
                    "numpy": lambda: gumbel_max(levels, draws),
                    "exponential mechanism": lambda: [exponential(scores, 1) for _ in contexts],
                },
                repeats,
            ),
            row(
                f"draw: questions of {k} options one by one, an entry for each",
                singles,
                {
                    "sordino": one_by_one,
                    "numpy": lambda: [gumbel_max(levels[at : at + 1], 1) for at in range(singles)],
                },
                repeats,
            ),
        ]


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--singles", type=int, default=1_000)
    parser.add_argument("--options", type=int, default=20)
    parser.add_argument("--context", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sizes = given.draws, given.singles, given.options, given.context
    show(
        {
            "name": "withheld_draws",
            "options": given.options,
            "context": given.context,
            "seed": given.seed,
            "repeats": given.repeats,
            "results": measure(*sizes, repeats=given.repeats, seed=given.seed),
            "versions": versions("sordino", "numpy"),
        }
    )


if __name__ == "__main__":
    main()
