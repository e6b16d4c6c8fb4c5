"""How often printed intervals hold the truth: of worths, of metrics, of groups of a calibration.

Prints one JSON object, by ballots, epsilon, items and slates, or by answers and epsilon. Worths
are normal with a spread of 0, 1 or 2.5; ballots follow the Plackett-Luce model and list all that
they were offered; releases and fits are those of users.

    python benchmarks/utility/worth_intervals.py --fits 60 > coverage.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import sordino
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.preferences.rankings import Rankings
from sordino.reporting.result import calibration_bins
from sordino.rewards.metrics import HeldOut, legible, measure_predictions

METRICS = ("accuracy", "negative_log_likelihood", "calibration_slope")


@dataclass(frozen=True)
class World:
    """n ballots, each over ``offered`` of ``items`` (0: over all); how far worths are apart."""

    n: int
    epsilon: float
    items: int
    offered: int
    spread: float


def coverage(world: World, *, fits: int, seed: int) -> dict[str, float | int | None]:
    """Return how many intervals were printed, which part held, and their median width."""
    names = [f"i{number:02}" for number in range(world.items)]
    held: list[bool] = []
    widths: list[float] = []
    noise = RankingGaussian(world.epsilon, delta=1e-6, statistic="borda")
    budget = sordino.Guarantee(
        float("inf"), delta=0.5, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    for fit in range(fits):
        generator = np.random.default_rng([seed, fit])
        worths = world.spread * generator.standard_normal(world.items)
        size = world.offered or world.items
        shown = generator.random((world.n, world.items)).argsort(axis=1)[:, :size]
        order = np.argsort(-(worths[shown] + generator.gumbel(size=shown.shape)), axis=1)
        lists = [[names[i] for i in row] for row in np.take_along_axis(shown, order, axis=1)]
        ballots = Rankings.from_orders(names, lists, offered="named")
        with tempfile.TemporaryDirectory() as folder:
            ledger = sordino.Ledger.open(Path(folder) / "spend.db", data="b", budget=budget)
            reward = sordino.fit_reward(
                ballots, mechanism=noise, ledger=ledger, simulate_seed=1000 * seed + fit
            )
        told = [i for i, name in enumerate(names) if name not in reward.unoffered]
        middle = worths[told].mean()
        for name, _, low, high in reward.worths():
            if low is not None and high is not None:
                held.append(bool(low <= worths[names.index(name)] - middle <= high))
                widths.append(high - low)
    return {
        "printed": len(held),
        "coverage": float(np.mean(held)) if held else None,
        "width": float(np.median(widths)) if held else None,
    }


def metric_coverage(n: int, epsilon: float, *, fits: int, seed: int) -> dict[str, float | None]:
    """Return how often intervals of metrics hold, on n fresh randomized answers to one reward.

    They are made as a run makes them, and those that it would not print are left out.
    """
    flip = sordino.RandomizedResponse(epsilon).flip_probability
    truth = np.random.default_rng(seed).standard_normal(100_000)
    chances = expit(truth)
    right = float(np.mean(np.maximum(chances, 1 - chances)))
    loss = float(np.mean(np.logaddexp(0, truth) - chances * truth))
    wins = float(np.mean(chances**2 + (1 - chances) ** 2))
    held: dict[str, list[bool]] = {name: [] for name in (*METRICS, "win_rate", "calibration")}
    for fit in range(fits):
        generator = np.random.default_rng([seed, n, fit])
        margins = generator.standard_normal(n)
        labels = generator.random(n) < expit(margins)
        answers = (labels ^ (generator.random(n) < flip)).astype(np.int64)
        predicted = HeldOut(differences=margins, answers=answers, flip_probability=flip)
        measured = measure_predictions(predicted, temperature=1.0)
        rate = measured.win_rate
        assert rate is not None
        low, high = rate.share_interval
        told: dict[str, Any] = {
            "win_rate": rate.value,
            "win_rate_interval": [low, high],
        }
        for name in METRICS:
            found = getattr(measured, name)
            told[name] = None if found is None else found.value
            told[f"{name}_standard_error"] = None if found is None else found.standard_error
        shown = legible(told)
        true = {"accuracy": right, "negative_log_likelihood": loss, "calibration_slope": 1.0}
        for name, value in true.items():
            if shown[name] is not None:
                off = abs(told[name] - value)
                held[name].append(off <= 1.96 * told[f"{name}_standard_error"])
        if shown["win_rate"] is not None:
            held["win_rate"].append(low <= wins <= high)
        for row in calibration_bins(margins, answers.astype(float), flip):
            held["calibration"].append(row["low"] <= row["predicted"] <= row["high"])
    return {name: float(np.mean(values)) if values else None for name, values in held.items()}


def worlds() -> Iterable[World]:
    """Return the settings that are measured."""
    sizes = [(3, 0), (10, 0), (30, 0), (10, 2), (30, 4)]
    ballots, epsilons = [2, 10, 30, 100, 1000, 3000], [0.5, 2.0, 8.0, 100.0]
    for (items, offered), n, epsilon in itertools.product(sizes, ballots, epsilons):
        for spread in (0.0, 1.0, 2.5):
            yield World(n, epsilon, items, offered, spread)


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=60, help="of worths; 0 leaves them out")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    told_of: list[dict[str, Any]] = [
        {"n": n, "epsilon": epsilon, **metric_coverage(n, epsilon, fits=400, seed=given.seed)}
        for n, epsilon in itertools.product([30, 100, 400, 2000], [0.5, 2.0, 8.0])
    ]
    rows = []
    if given.fits:
        rows = [asdict(w) | coverage(w, fits=given.fits, seed=given.seed) for w in worlds()]
    versions = {
        "sordino": sordino.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    told = {"name": "worth-intervals", "fits": given.fits, "results": rows, "metrics": told_of}
    print(json.dumps(told | {"seed": given.seed, "versions": versions}))


if __name__ == "__main__":
    main()
