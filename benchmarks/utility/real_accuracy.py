"""Prints as JSON how well a private reward agrees with public judgments of other people.

Trains on ``hh_helpful_b`` and evaluates on ``hh_helpful_a`` of the folder ``shared/data`` beside
this checkout, with fresh coins of the operating system in every run.

    python benchmarks/utility/real_accuracy.py [--runs 5]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def accuracy(epsilon: float, folder: str) -> float:
    """Return the accuracy on public judgments after one run of the main job."""
    words = ["--epsilon", str(epsilon), "--out", f"{folder}/run", "--drop-identical", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "sordino", "align", str(DATA / "hh_helpful_b.jsonl.gz"),
         "--evaluate", str(DATA / "hh_helpful_a.jsonl.gz"), *words],
        capture_output=True, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)["public_evaluation"]["accuracy"])


def measure(runs: int) -> dict[str, Any]:
    """Return mean and standard deviation over the runs for several epsilons."""
    rows = []
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        found = []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as folder:
                found.append(accuracy(epsilon, folder))
        rows.append(
            {
                "epsilon": epsilon,
                "mean": round(statistics.mean(found), 4),
                "standard_deviation": round(statistics.stdev(found), 4),
            }
        )
    return {
        "name": "real-accuracy",
        "train": "hh_helpful_b, 2,313 pairs",
        "evaluate": "hh_helpful_a, 2,100 pairs",
        "runs": runs,
        "results": rows,
        "randomness": "operating system",
        "versions": {"python": platform.python_version(), "sordino": version("sordino")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
