"""Prints as JSON how well a private reward of thumbs and ratings predicts those it did not see.

Reads ``judged_answers.jsonl.gz`` of the folder ``shared/data`` beside this checkout: answers of 57
models, each with a judge's preference from 0 to 1. A thumb is whether that is above a constant; a
rating of five levels is the nearest fourth. One prompt in five is held out, with all its answers.

    python benchmarks/utility/thumbs.py [--seeds 5]
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import statistics
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from _worlds import dense, raw_pairs

import sordino
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.randomized_response import label_shares
from sordino.preferences.features import suited_features
from sordino.privacy.guarantee import REPLACE_ONE

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
DELTA = 1e-6
THRESHOLDS = {"above .001": 0.001, "above the baseline": 0.5}
"""Of a thumb: public constants. The first is up for three answers in ten, the other for one."""
HELD_OUT = 5  # one prompt of so many


def judged(
    threshold: float | None, folder: Path = DATA, *, prompts: int | None = None
) -> tuple[sordino.Pairs, sordino.Pairs]:
    """Return thumbs, or without a threshold ratings: to learn from, and held out."""
    sides: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    with gzip.open(folder / "judged_answers.jsonl.gz", "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number == prompts:
                break
            row = json.loads(line)
            said = [(each["text"], each["preference"]) for each in row["answers"]]
            sides[number % HELD_OUT == 0].extend(
                {"prompt": row["prompt"], "completion": text}
                | ({"rating": round(4 * p)} if threshold is None else {"label": p > threshold})
                for text, p in dict(said).items()
            )
    fitted, held_out = (raw_pairs(side, levels="0..4") for side in sides)
    return fitted, held_out


class Spaces:
    """Thumbs or ratings and their features, made once; fits of them, and what they predict."""

    def __init__(self, fitted: sordino.Pairs, held_out: sordino.Pairs) -> None:
        """Compute the features once: the shape of answers, and an intercept."""
        features = suited_features(sordino.HashedText(28, word_norm=0.0), alone=True)
        self.rows, self.unseen = (
            dense(pairs.differences(features)) for pairs in (fitted, held_out)
        )
        self.features, self.parts = features, fitted.parts
        self.labels, self.truth = label_shares(fitted.labels), label_shares(held_out.labels)

    def measured(self, epsilon: float, noise: str, seed: int) -> tuple[float, float]:
        """Return accuracy and mean log loss on what was held out, after one fit."""
        pairs = sordino.Pairs.from_features(self.rows, self.labels, parts=self.parts)
        delta = DELTA if noise == "estimate" else 0.0
        budget = sordino.Guarantee(
            epsilon, delta=delta, unit="label", neighbors=REPLACE_ONE, trust="central"
        )
        with tempfile.TemporaryDirectory() as folder:
            ledger = sordino.Ledger.open(Path(folder) / "spend.db", data="judged", budget=budget)
            more: dict[str, Any] = {"ledger": ledger, "ellipsoid": False}
            if noise == "none":
                reward = sordino.fit_reward(pairs, mechanism=sordino.NonPrivate(), **more)
            elif noise == "labels":
                coin = sordino.RandomizedResponse(epsilon)
                answers = sordino.privatize(pairs, coin, ledger=ledger, simulate_seed=seed)
                reward = sordino.fit_reward(answers, ellipsoid=False)
            else:
                mechanism = LabelGaussian.for_sizes(
                    epsilon, n=len(pairs), d=self.rows.shape[1], feature_bound=1.0, delta=DELTA
                )
                reward = sordino.fit_reward(pairs, mechanism=mechanism, simulate_seed=seed, **more)
        margins = self.unseen @ reward.weights
        picks = np.where(margins > 0, self.truth, 1 - self.truth)
        losses = np.logaddexp(0, margins) - self.truth * margins
        return float(picks.mean()), float(losses.mean())

    def base(self) -> float:
        """Return the accuracy of the better of always and never."""
        return float(max(self.truth.mean(), 1 - self.truth.mean()))


def rows_of(spaces: Spaces, kind: str, seeds: int) -> Iterable[dict[str, Any]]:
    """Yield one line for every noise and epsilon."""
    for noise, epsilon in (
        ("none", inf),
        *((n, e) for n in ("labels", "estimate") for e in (4, 1)),
    ):
        times = range(1 if noise == "none" else seeds)
        found = [spaces.measured(epsilon, noise, seed) for seed in times]
        accuracy, loss = (statistics.mean(column) for column in zip(*found, strict=True))
        yield {
            "kind": kind,
            "noise": noise,
            "epsilon": None if epsilon == inf else epsilon,
            "accuracy": round(accuracy, 4),
            "accuracy_spread": round(float(np.std([one for one, _ in found])), 4),
            "log_loss": round(loss, 4),
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    rows, sizes = [], {}
    for kind, threshold in {**THRESHOLDS, "ratings, 5 levels": None}.items():
        spaces = Spaces(*judged(threshold))
        sizes[kind] = {
            "fitted": len(spaces.rows),
            "held_out": len(spaces.unseen),
            "dimension": spaces.rows.shape[1],
            "constant": round(spaces.base(), 4),
        }
        rows += list(rows_of(spaces, kind, seeds))
    print(
        json.dumps(
            {
                "name": "thumbs",
                "command": f"python benchmarks/utility/thumbs.py --seeds {seeds}",
                "versions": {
                    "python": platform.python_version(),
                    "numpy": version("numpy"),
                    "sordino": sordino.__version__,
                },
                "delta": DELTA,
                "sizes": sizes,
                "rows": rows,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
