"""Times online alignment, refits included, against mabwiser's LinUCB on the same stream.

Prints one JSON object. Ours is the whole call: contexts, two policies and a bonus, exact
randomized response, the ledger, every refit, the regret. mabwiser's LinUCB fits one ridge
regression for each of the k arms on one context of d features (less to do: ours has features for
every action), so it is given the first action's features of the same contexts, and a reward that
was drawn beforehand; it predicts and fits one round at a time. It runs in an environment of its
own, made by ``python -m venv PEER`` and ``PEER/bin/pip install mabwiser``; the fastest of
interleaved repeats counts.

    python benchmarks/speed/online_rounds.py --peer PEER/bin/python
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for both: small products gain nothing

import numpy as np
from _shared import show, versions

import sordino
from sordino.algorithms.online_alignment import align_online
from sordino.environments.preference_worlds import LinearPreferences

PEER = """
import json, sys, time
from importlib.metadata import version
import numpy as np
from mabwiser.mab import MAB, LearningPolicy
rows, rewards, k = np.load(sys.argv[1]), np.load(sys.argv[2]), int(sys.argv[3])
bandit = MAB(list(range(k)), LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0), seed=1)
bandit.fit(list(range(k)), [0.0] * k, rows[:k])
start = time.perf_counter()
for index in range(len(rows)):
    arm = bandit.predict(rows[index : index + 1])
    bandit.partial_fit([arm], [rewards[index]], rows[index : index + 1])
took = time.perf_counter() - start
print(json.dumps({"seconds": took, "version": version("mabwiser")}))
"""


def ours(world: LinearPreferences, rounds: int, seed: int) -> tuple[float, int]:
    """Return seconds and refits of one run."""
    budget = sordino.Guarantee(
        math.inf, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    with tempfile.TemporaryDirectory() as folder:
        ledger = sordino.Ledger.open(f"{folder}/spend.db", data="simulated", budget=budget)
        start = time.perf_counter()
        run = align_online(
            world, rounds=rounds, epsilon=1.0, temperature=0.25, ledger=ledger, simulate_seed=seed
        )
        return time.perf_counter() - start, run.refits


def peer(python: str, world: LinearPreferences, rounds: int, seed: int) -> dict[str, Any]:
    """Return seconds and version of the peer on as many rounds of the same stream."""
    contexts = world.contexts(np.random.default_rng(seed), rounds)
    rewards = world.rewards(contexts)[:, 0]
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("rows.npy", "rewards.npy")]
        np.save(paths[0], contexts[:, 0])
        np.save(paths[1], rewards)
        command = [python, "-W", "ignore", "-c", PEER, *paths, str(contexts.shape[1])]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def row(given: argparse.Namespace, dimension: int, actions: int) -> dict[str, Any]:
    """Return the rates at one size."""
    truth = LinearPreferences.random(dimension=dimension, actions=actions, size=1.0, seed=0)
    world, mine, other, refits = truth, [], [], 0
    for seed in range(given.repeats):
        took, refits = ours(world, given.rounds, seed)
        mine.append(took)
        if given.peer:
            other.append(peer(given.peer, world, given.peer_rounds, seed))
    line: dict[str, Any] = {
        "features": dimension,
        "actions": actions,
        "refits": refits,
        "rounds_per_second": round(given.rounds / min(mine)),
    }
    if other:
        rate = given.peer_rounds / min(one["seconds"] for one in other)
        line |= {
            "mabwiser_rounds_per_second": round(rate),
            "times_faster": round(given.rounds / min(mine) / rate, 1),
            "mabwiser": other[0]["version"],
        }
    return line


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2**14)
    parser.add_argument("--peer-rounds", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", help="an interpreter that has mabwiser; left out, no ratio")
    given = parser.parse_args()
    show(
        {
            "name": "online-rounds",
            "rounds": given.rounds,
            "peer_rounds": given.peer_rounds,
            "repeats": given.repeats,
            "epsilon": 1.0,
            "results": [row(given, *size) for size in ((4, 8), (32, 10))],
            "versions": versions("sordino", "numpy", "scipy"),
        }
    )


if __name__ == "__main__":
    main()
