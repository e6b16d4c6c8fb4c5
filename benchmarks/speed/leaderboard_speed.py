"""How fast a leaderboard is made of a Parquet of names and winners, and in what memory.

Prints one JSON object: processor seconds without imports beside those of arena-rank, the largest
difference of ratings and of ends of intervals from its own (in points, after as many of its steps
as it takes to converge), and the peak of memory for files of many sizes. Without --peer only ours
is measured.

    python benchmarks/speed/leaderboard_speed.py --peer /path/to/python/with/arena-rank
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PEER = """
import json, sys, time
import numpy as np, pandas as pd
from arena_rank.models.bradley_terry import BradleyTerry
from arena_rank.utils.data_utils import PairDataset
start = time.process_time()
data = PairDataset.from_pandas(pd.read_parquet(sys.argv[1]))
found = BradleyTerry(n_competitors=len(data.competitors)).compute_ratings_and_cis(data)
np.asarray(found["variances"])
seconds = time.process_time() - start
exact = dict(hessian_reg=1e-8, ftol=0.0, gtol=1e-13, max_iter=2000)
found = BradleyTerry(n_competitors=len(data.competitors), **exact).compute_ratings_and_cis(data)
names = ("ratings", "rating_lower", "rating_upper")
told = {name: np.asarray(found[name]).tolist() for name in names}
print(json.dumps({"seconds": seconds, "names": list(found["competitors"]), **told}))
"""


def write(path: Path, n: int, k: int) -> None:
    """Write n battles of k models, of ratings that are normal; every tenth is a tie."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    names, said = (
        pa.array([f"model-{i:03d}" for i in range(k)]),
        pa.array(["model_a", "model_b", "tie"]),
    )
    theta, writer = np.random.default_rng(0).normal(size=k), None
    for part, start in enumerate(range(0, n, 1 << 20)):
        rng, size = np.random.default_rng([0, part]), min(1 << 20, n - start)
        one = rng.integers(0, k, size)
        other = (one + 1 + rng.integers(0, k - 1, size)) % k
        lost = rng.random(size) > 1 / (1 + np.exp(theta[other] - theta[one]))
        code = np.where(rng.random(size) < 0.1, 2, lost)
        held = {"model_a": (one, names), "model_b": (other, names), "winner": (code, said)}
        table = pa.table({
            name: pa.DictionaryArray.from_arrays(pa.array(at.astype(np.int32)), words)
            for name, (at, words) in held.items()
        })  # fmt: skip
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=1 << 18)
    if writer is not None:
        writer.close()


def board(path: Path, k: int, *, private: bool) -> dict[str, Any]:
    """Return one board of a file that is read in pieces: time, memory and numbers."""
    import sordino
    from sordino.engines.engine import InProcess
    from sordino.mechanisms.label_sum import LabelGaussian
    from sordino.mechanisms.randomized_response import NonPrivate
    from sordino.preferences.chunk_survey import survey_chunks
    from sordino.preferences.chunks import find_chunks
    from sordino.preferences.comparisons import ItemDifferences
    from sordino.rewards.leaderboard import POINTS, fit_board
    from sordino.rewards.vote_release import release_votes

    start = time.process_time()
    items = ItemDifferences(tuple(f"model-{i:03d}" for i in range(k)), ties=private)
    mechanism = LabelGaussian(1.0, delta=1e-10, ties=1) if private else NonPrivate()
    budget = sordino.Guarantee(
        2.0 if private else math.inf, delta=1e-9 if private else 0.0,
        unit="label", neighbors=sordino.REPLACE_ONE, trust="central",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        ledger = sordino.Ledger.open(f"{folder}/spend.db", data="battles", budget=budget)
        with survey_chunks(find_chunks([path]), InProcess()) as survey:
            votes = release_votes(survey, mechanism, items=items, ledger=ledger).value[""]
    found = fit_board(votes)
    return {
        "seconds": time.process_time() - start,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "names": found.items, "ratings": found.points.tolist(),
        "rating_lower": (1000 + POINTS * found.intervals[:, 0]).tolist(),
        "rating_upper": (1000 + POINTS * found.intervals[:, 1]).tolist(),
    }  # fmt: skip


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="A Python that has arena-rank.")
    parser.add_argument("--items", type=int, nargs="*", default=[30, 100])
    parser.add_argument("--battles", type=int, nargs="*", default=[10**6, 10**7, 10**8])
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # a board in a process of its own
    given = parser.parse_args()
    if given.one:
        print(json.dumps(board(Path(given.one[0]), int(given.one[1]), private=given.one[2] == "p")))
        return

    def ran(*command: str) -> dict[str, Any]:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return last

    beside, memory = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "battles.parquet"
        for k in given.items if given.peer else ():
            write(path, 10**6, k)
            ours, peer = (
                ran(sys.executable, __file__, "--one", str(path), str(k), "o"),
                ran(given.peer, "-c", PEER, str(path)),
            )
            apart = {
                f"{name}_apart": max(
                    abs(a - b) for a, b in zip(ours[name], peer[name], strict=True)
                )
                for name in ("ratings", "rating_lower", "rating_upper")
            }
            ratio = ours["seconds"] / peer["seconds"]
            beside.append({
                "items": k, "battles": 10**6, "seconds": ours["seconds"],
                "seconds_arena_rank": peer["seconds"], "ratio": ratio, **apart,
            })  # fmt: skip
        for n in given.battles:
            write(path, n, 30)
            one = ran(sys.executable, __file__, "--one", str(path), "30", "p")
            memory.append({
                "battles": n, "items": 30, "seconds": one["seconds"], "peak_mib": one["peak_mib"]
            })  # fmt: skip
    told = {"name": "leaderboard_speed", "beside": beside, "memory": memory}
    told["unit_of_apart"] = "points, of which 400/ln 10 are one unit of log-odds"
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
