"""Prints as JSON how the regret of online alignment grows with the number of rounds.

``family``: 8 random unit vectors of 4 features in every round, temperature 1/4, ball = ‖θ*‖,
ridge 1, bonus at .3 of what is proved; the regret of the second policy at 2^9, ..., 2^14 rounds,
its growth in every doubling, and the slope of log regret in log rounds over the last two
doublings. A slope of .5 would be √T. ``sizes`` does the same for other norms of θ* at epsilon 1.

``hard``: 10 contexts whose reference takes the rare action with probability 1/C; its reward is
level ± .5. Ball 4 (level balanced) or 2 (level 0), the bonus cut at 1; final regret after 2^13
rounds, and its ratio to that of no exploration. Settings in which optimism loses are shown too.

    python benchmarks/utility/online_regret.py [--runs 16]
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from _worlds import versions

import sordino
from sordino.algorithms.online_alignment import align_online
from sordino.environments.preference_worlds import (
    HardInstance,
    LinearPreferences,
    OnlineWorld,
)

TEMPERATURE, RIDGE, SCALE = 0.25, 1.0, 0.3
DIMENSION, ACTIONS, SIZE = 4, 8, 0.6
MARKS = tuple(2**power for power in range(9, 15))
EPSILONS = (0.5, 1.0, 2.0, math.inf)
EXPLORATIONS = ("optimistic", "none", "symmetric", "uniform")
SIZES = (0.5, 0.75, 1.0)
CONTEXTS, GAP, HARD_ROUNDS = 10, 0.5, 2**13
ARMS = (("none", 1.0), *(("optimistic", scale) for scale in (1.0, 0.3, 0.1, 0.03)),
        ("symmetric", 0.3), ("uniform", 1.0))  # fmt: skip


@dataclass(frozen=True)
class Hard:
    """C, epsilon, and the middle of the rare action's two rewards: 0 or the balanced one."""

    concentrability: float
    epsilon: float
    balanced: bool

    @property
    def level(self) -> float:
        """Return the middle of the two rewards."""
        if not self.balanced:
            return 0.0
        return HardInstance.balanced_level(
            concentrability=self.concentrability, temperature=TEMPERATURE
        )

    def world(self, seed: int) -> HardInstance:
        """Return an instance with signs of its own."""
        return HardInstance.random(
            contexts=CONTEXTS,
            concentrability=self.concentrability,
            gap=GAP,
            level=self.level,
            seed=seed,
        )


HARD = tuple(
    Hard(c, e, balanced) for c, e in ((20.0, 1.0), (5.0, 2.0)) for balanced in (True, False)
)


def regret(
    world: OnlineWorld, *, rounds: int, epsilon: float, seed: int, **given: Any
) -> np.ndarray:
    """Return the regret of one run up to every round."""
    budget = sordino.Guarantee(
        math.inf, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    with tempfile.TemporaryDirectory() as folder:
        ledger = sordino.Ledger.open(f"{folder}/spend.db", data="simulated", budget=budget)
        run = align_online(
            world,
            rounds=rounds,
            epsilon=epsilon,
            temperature=TEMPERATURE,
            ledger=ledger,
            ridge=RIDGE,
            simulate_seed=seed,
            **given,
        )
    return np.asarray(run.regret)


def family(
    size: float,
    *,
    epsilon: float,
    exploration: str,
    runs: int,
    rounds: int = MARKS[-1],
    first: int = 0,
) -> np.ndarray:
    """Return the regret at the marks, one row a run."""
    marks = [mark - 1 for mark in MARKS if mark <= rounds]
    found = []
    for seed in range(first, first + runs):
        truth = LinearPreferences.random(dimension=DIMENSION, actions=ACTIONS, size=size, seed=seed)
        curve = regret(
            truth,
            rounds=rounds,
            epsilon=epsilon,
            seed=seed,
            exploration=exploration,
            ball=size,
            scale=SCALE,
        )
        found.append(curve[marks])
    return np.array(found)


def last_slope(curve: np.ndarray) -> float:
    """Return the slope of log regret in log rounds over the last two doublings."""
    return float(np.log(curve[-1] / curve[-3]) / np.log(4))


def family_row(size: float, epsilon: float, exploration: str, runs: int) -> dict[str, Any]:
    """Return one row of the family."""
    curves = family(size, epsilon=epsilon, exploration=exploration, runs=runs)
    mean, steps = curves.mean(axis=0), np.diff(curves.mean(axis=0))
    rest = (curves.sum(axis=0) - curves) / (runs - 1)
    slopes = np.array([last_slope(curve) for curve in rest])
    error = math.sqrt((runs - 1) * slopes.var())  # jackknife
    return {
        "size": size,
        "epsilon": epsilon if epsilon < math.inf else None,
        "exploration": exploration,
        "regret": [round(value, 1) for value in mean],
        "standard_error": [round(value, 1) for value in curves.std(axis=0, ddof=1) / runs**0.5],
        "increments": [round(value, 1) for value in steps],
        "mean_ratio_of_last_increments": round(float(np.mean(steps[-2:] / steps[-3:-1])), 3),
        "slope": round(last_slope(mean), 3),
        "slope_standard_error": round(error, 3),
    }


def hard_finals(setting: Hard, exploration: str, scale: float, runs: int) -> np.ndarray:
    """Return the final regret of every run."""
    return np.array([
        regret(
            setting.world(seed),
            rounds=HARD_ROUNDS,
            epsilon=setting.epsilon,
            seed=seed,
            exploration=exploration,
            scale=scale,
            bonus_bound=1.0,
            ball=4.0 if setting.balanced else 2.0,
        )[-1]
        for seed in range(runs)
    ])  # fmt: skip


def hard_rows(setting: Hard, runs: int) -> list[dict[str, Any]]:
    """Return one row for every rule of exploration in one setting."""
    finals = {arm: hard_finals(setting, *arm, runs) for arm in ARMS}
    plain = finals["none", 1.0].mean()
    return [
        {
            "concentrability": setting.concentrability,
            "epsilon": setting.epsilon,
            "level": "balanced" if setting.balanced else "zero",
            "exploration": exploration,
            "scale": scale,
            "regret": round(float(found.mean()), 1),
            "standard_error": round(float(found.std(ddof=1) / runs**0.5), 1),
            "ratio_to_none": round(float(found.mean() / plain), 3),
        }
        for (exploration, scale), found in finals.items()
    ]


def measure(runs: int) -> dict[str, Any]:
    """Return everything."""
    main = [family_row(SIZE, e, name, runs) for e in EPSILONS for name in EXPLORATIONS]
    return {
        "name": "online-regret",
        "dimension": DIMENSION,
        "actions": ACTIONS,
        "temperature": TEMPERATURE,
        "ridge": RIDGE,
        "scale": SCALE,
        "confidence": 0.95,
        "rounds": list(MARKS),
        "runs": runs,
        "family": main,
        "sizes": [family_row(size, 1.0, "optimistic", runs) for size in SIZES],
        "hard_rounds": HARD_ROUNDS,
        "contexts": CONTEXTS,
        "gap": GAP,
        "hard": [line for setting in HARD for line in hard_rows(setting, runs)],
        "randomness": "seeded simulation",
        "versions": versions(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=16)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
