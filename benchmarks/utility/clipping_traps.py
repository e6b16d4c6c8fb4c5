"""Measures what breaks, without an error, when clipped gradients meet a public trainer.

Hooks of opacus are put on trl's own trainers, with tiny random models; what needs no model is
computed. Everything is the same in every run. Needs the extra ``language``.

    python benchmarks/utility/clipping_traps.py --out benchmarks/results/clipping_traps.json
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before trl is loaded: nothing here asks a hub or reports

import argparse
import json
import math
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import norm

from sordino.privacy.accounting import calibrated_noise_multiplier, composed_epsilon
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, PoissonGaussianEvent

UNITS, BATCH, EPOCHS, DELTA = 160_800, 512, 3, 1e-5
CLAIMS: Final = (1, 2, 4, 8)


def noise(epsilon: float, steps: int, *, chance: float = BATCH / UNITS) -> float:
    """Return the noise multiplier that an accountant of Poisson samples asks for."""
    return calibrated_noise_multiplier(
        epsilon, DELTA, sampling_probability=chance, steps=steps, neighbors=ADD_OR_REMOVE_ONE
    )


def spent(multiplier: float) -> float:
    """Return what three epochs of Poisson samples spend at a noise multiplier."""
    event = PoissonGaussianEvent(multiplier, BATCH / UNITS, math.ceil(EPOCHS * UNITS / BATCH))
    return composed_epsilon([(event, 1)], neighbors=ADD_OR_REMOVE_ONE, delta=DELTA)


def shuffled_epsilon(multiplier: float, steps: int, delta: float = DELTA) -> float:
    """Return what one epoch of shuffled batches spends at least, whoever counts Poisson samples.

    Everybody else adds −1 to their batch. The target adds 1, or 0 where it is zeroed; it is in
    one batch of the epoch. Told apart by the largest sum, against the best threshold.

    Args:
        multiplier: Standard deviation of the noise over the bound.
        steps: Batches of the epoch.
        delta: Of the claim.

    Source:
        Chua et al. (2024), "How private are DP-SGD implementations?".
    """
    thresholds = np.linspace(0, 40 * multiplier, 20_001)
    rest = (steps - 1) * norm.logcdf(thresholds / multiplier)
    there, gone = (
        -np.expm1(norm.logcdf((thresholds - shift) / multiplier) + rest) for shift in (2, 1)
    )
    usable = (there > delta) & (gone > 0)
    return float(np.log((there[usable] - delta) / gone[usable]).max())


def divisor_read_off(weights: int = 20_000, batch: int = 32, draws: int = 200) -> dict[str, Any]:
    """Return how often one noised step tells whether a data set has one record more.

    With a rate of 1/40, ``int(len(dataset) * rate)`` is 31 for 1,279 records and 32 for 1,280.
    The sum is noise alone: nobody was drawn, or the model has learned everything. What is read is
    the size of the update, as the standard deviation of its entries.

    Args:
        weights: Of the model.
        batch: What the larger data set is divided by.
        draws: Steps with each data set.
    """
    rng = np.random.default_rng(0)
    middle = 0.5 * (1 / batch + 1 / (batch - 1))
    told = [
        (rng.normal(size=weights).std() / divisor > middle) == (divisor < batch)
        for divisor in (batch - 1, batch)
        for _ in range(draws)
    ]
    return {"weights": weights, "told": round(float(np.mean(told)), 3)}


def hooks() -> dict[str, Any]:
    """Return what opacus sees of the trainers of trl."""
    import _trap_hooks as measured

    return {
        "rows": {name: measured.row_clipping(name) for name in ("all weights", "adapters")},
        "fused_head": {
            name: measured.fused_head(tied=tied)
            for name, tied in (("tied weights", True), ("a head of its own", False))
        },
        "recomputed": {
            "use_reentrant=False": measured.recomputed(reentrant=False),
            "use_reentrant=True": measured.recomputed(reentrant=True),
        },
        "positions": measured.positions(),
        "late_adapters": measured.late_adapters(),
    }


def claims() -> dict[str, Any]:
    """Return claimed and real epsilons of a run of the usual size."""
    epochs = {"rows": EPOCHS, "shuffled": 1}
    taken = {name: math.ceil(each * UNITS / BATCH) for name, each in epochs.items()}
    found: dict[str, Any] = {name: {} for name in taken}
    for name, steps in taken.items():
        for claimed in CLAIMS:
            least = noise(claimed, steps)
            real = spent(least / 2) if name == "rows" else shuffled_epsilon(least, steps)
            found[name][str(claimed)] = {"noise_multiplier": least, "real": round(real, 1)}
    return found | {"divisor": divisor_read_off()}


TRAPS: dict[str, Callable[[], Any]] = {"hooks": hooks, "claims": claims}


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=sorted(TRAPS), default=list(TRAPS))
    given = parser.parse_args()
    names = ("sordino", "trl", "transformers", "torch", "peft", "opacus")
    stored = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {}
    found = {"name": "clipping-traps"} | stored | {name: TRAPS[name]() for name in given.only}
    found["versions"] = {"python": platform.python_version()} | {n: version(n) for n in names}
    given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
