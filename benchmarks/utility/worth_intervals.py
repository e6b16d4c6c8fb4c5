"""How often printed intervals of worths hold the truth, by ballots, epsilon, items and slates.

Prints one JSON object. Worths are normal with a spread of 0, 1 or 2.5; ballots follow the
Plackett-Luce model and list all that they were offered; releases and fits are those of users.

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

import numpy as np

import sordino
from sordino.mechanisms.ranking_gaussian import RankingGaussian
from sordino.preferences.rankings import Rankings


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
    parser.add_argument("--fits", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rows = [asdict(w) | coverage(w, fits=given.fits, seed=given.seed) for w in worlds()]
    versions = {
        "sordino": sordino.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    told = {"name": "worth-intervals", "fits": given.fits, "results": rows, "seed": given.seed}
    print(json.dumps(told | {"versions": versions}, indent=2))


if __name__ == "__main__":
    main()
