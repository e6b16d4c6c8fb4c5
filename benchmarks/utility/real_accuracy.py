"""Prints as JSON how well a private reward agrees with public judgments of other people.

Trains on ``hh_helpful_b`` and evaluates on ``hh_helpful_a`` of the folder ``shared/data`` beside
this checkout: noise on labels with fresh coins of the operating system in every run, by the command
line; the central ways with the noise of seeds 0, 1, ….

    python benchmarks/utility/real_accuracy.py [--runs 5] [--seeds 20]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import scipy.stats
from _worlds import raw_pairs

import sordino
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, Unit
from sordino.reporting.result import measure_public

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
DELTA = 1e-6


def accuracy(epsilon: float, folder: str) -> float:
    """Return the accuracy on public judgments after one run of the main job."""
    words = ["--epsilon", str(epsilon), "--out", f"{folder}/run", "--drop", "identical", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "sordino", "align", str(DATA / "hh_helpful_b.jsonl.gz"),
         "--evaluate", str(DATA / "hh_helpful_a.jsonl.gz"), *words],
        capture_output=True, check=True, cwd=folder,
    )  # fmt: skip
    return float(json.loads(done.stdout)["public_evaluation"]["accuracy"])


@dataclass(frozen=True)
class Central:
    """What a trusted curator promises, and the settings that decide on accuracy."""

    unit: Unit
    epsilon: float
    dimension: int = 512  # the default of HashedText
    shaped: bool = True
    ridge: float | None = None  # of records; None for the default of the mechanism
    delta: float = DELTA

    @property
    def mechanism(self) -> LabelGaussian | ObjectivePerturbation:
        """Return the noise; two feature vectors of norm 1 differ by 2 at most."""
        if self.unit == "label":
            return LabelGaussian(self.epsilon, delta=self.delta, shaped=self.shaped)
        return ObjectivePerturbation(
            self.epsilon,
            delta=self.delta,
            bound=2.0,
            neighbors=REPLACE_SPECIAL,
            ridge=self.ridge,
        )


CENTRAL = (
    Central("label", 4.0),
    Central("label", 1.0),
    Central("record", 4.0),
    Central("record", 1.0),
    Central("record", 4.0, ridge=0.31),  # what the default would be without its floor
    Central("label", 4.0, dimension=128),
    Central("label", 1.0, dimension=128),
    Central("label", 4.0, shaped=False),
    Central("label", 1.0, shaped=False),
)


def read(name: str, folder: Path = DATA) -> sordino.Pairs:
    """Return one part of the real pairs."""
    return raw_pairs(folder / f"hh_helpful_{name}.jsonl.gz", drop=["identical"])


def _ledger(folder: str, epsilon: float, delta: float, unit: Unit) -> sordino.Ledger:
    """Return a ledger for one release."""
    relation = REPLACE_SPECIAL if unit == "record" else REPLACE_ONE
    budget = sordino.Guarantee(epsilon, delta=delta, unit=unit, neighbors=relation, trust="central")
    return sordino.Ledger.open(Path(folder) / "spend.db", data="pairs", budget=budget)


def central_accuracy(
    setting: Central, pairs: sordino.Pairs, public: sordino.Pairs, *, seed: int
) -> float:
    """Return the accuracy on public judgments of a reward that a curator released."""
    with tempfile.TemporaryDirectory() as folder:
        reward = sordino.fit_reward(
            pairs,
            features=sordino.HashedText(dimension=setting.dimension),
            mechanism=setting.mechanism,
            ledger=_ledger(folder, setting.epsilon, setting.delta, setting.unit),
            ellipsoid=False,
            simulate_seed=seed,
        )
    return float(measure_public(reward, public, 0.5)["accuracy"])


def open_accuracy(dimension: int, pairs: sordino.Pairs, public: sordino.Pairs) -> float:
    """Return the accuracy of the reward that the judgments give as they are."""
    with tempfile.TemporaryDirectory() as folder:
        reward = sordino.fit_reward(
            pairs,
            features=sordino.HashedText(dimension=dimension),
            mechanism=sordino.NonPrivate(),
            ledger=_ledger(folder, inf, 0.0, "label"),
            ellipsoid=False,
        )
    return float(measure_public(reward, public, 0.5)["accuracy"])


def central_row(
    setting: Central, pairs: sordino.Pairs, public: sordino.Pairs, *, seeds: int
) -> dict[str, Any]:
    """Return one setting with its mean over seeds.

    The interval is Student's for the mean over noise; that of the choice of public pairs is
    wider, and the same for every way.
    """
    found = [central_accuracy(setting, pairs, public, seed=seed) for seed in range(seeds)]
    mean, spread = statistics.mean(found), statistics.stdev(found)
    half = float(scipy.stats.t.ppf(0.975, seeds - 1)) * spread / seeds**0.5
    return vars(setting) | {
        "mean": round(mean, 4),
        "standard_deviation": round(spread, 4),
        "least": round(min(found), 4),
        "interval_95": [round(mean - half, 4), round(mean + half, 4)],
    }


def measure_central(seeds: int) -> dict[str, Any]:
    """Return accuracies of the central ways over seeds, and those without privacy."""
    pairs, public = read("b"), read("a")
    rows = [central_row(setting, pairs, public, seeds=seeds) for setting in CENTRAL]
    plain = {str(d): round(open_accuracy(d, pairs, public), 4) for d in (128, 512)}
    return {"seeds": f"0 to {seeds - 1}", "results": rows, "not_private_by_dimension": plain}


def measure(runs: int, seeds: int) -> dict[str, Any]:
    """Return mean and standard deviation over the runs for several epsilons and ways."""
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
        "noise": "labels",
        "results": rows,
        "randomness": "operating system",
        "central": measure_central(seeds),
        "versions": {"python": platform.python_version(), "sordino": version("sordino")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=20)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
