"""Prints as JSON how a curator's two releases compare with labels that were randomized one by one.

Three sets of real judgments of the folder ``shared/data`` beside this checkout: ``hh_helpful_a``
judged by ``hh_helpful_b``, the reverse, and ``judged_answers`` with a fifth of its prompts held
out. Every cell is the mean over seeds that draw the training pairs, the coins and the noise, with
the features and ridges that ``sordino align`` chooses from sizes.

    python benchmarks/utility/curator.py [--seeds 10]
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _worlds import dense, raw_pairs
from jaxtyping import Float
from scipy.special import expit

import sordino
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.preferences.features import differences, usual_features
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards.forecast import estimate

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
DELTA = 1e-6
BOUND = 0.6  # of records, as align has it
DIRECTIONS = 12  # that the forecast of `sordino estimate` has
EPSILONS = (0.5, 1.0, 2.0, 4.0)
SIZES = (500, 1850, 5000, 19_000)
ASSUMED = {"judged": 0.78}  # how well a perfect reward predicts: people .65, this judge more
WAYS = {"coins": "labels", "sum": "label-estimate", "records": "record-estimate"}

Rows = tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"]]


def real_pairs(name: str, folder: Path = DATA) -> Rows:
    """Return differences of the usual features, and labels, of one part of the real pairs."""
    pairs = raw_pairs(folder / f"hh_helpful_{name}.jsonl.gz", drop=["identical"])
    return _told(dense(pairs.differences(usual_features(len(pairs)))), np.array(pairs.labels))


def judged_pairs(folder: Path = DATA) -> tuple[Rows, Rows]:
    """Return seventy pairs of answers a prompt, of four fifths of the prompts and of the rest."""
    generator, made = np.random.default_rng(0), []
    with gzip.open(folder / "judged_answers.jsonl.gz", "rt") as lines:
        for number, line in enumerate(lines):
            told = json.loads(line)
            for _ in range(70):
                drawn = generator.choice(len(told["answers"]), 2, replace=False)
                one, other = (told["answers"][i] for i in drawn)
                first = one["preference"] > other["preference"]
                if one["preference"] != other["preference"]:
                    made.append((number % 5, told["prompt"], one["text"], other["text"], first))
    parts, prompts, ones, others, labels = zip(*made, strict=True)
    rows = dense(differences(usual_features(None), prompts, ones, others))
    out = np.array(parts) == 0
    known = np.array(labels, dtype=np.int64)
    return _told(rows[~out], known[~out]), _told(rows[out], known[out])


def _told(rows: Float[np.ndarray, "n d"], labels: Any) -> Rows:
    """Return decided pairs that the features tell apart."""
    kept = (labels < 2) & rows.any(axis=1)
    return rows[kept], labels[kept].astype(np.int64)


def learn(way: str, rows: Rows, epsilon: float, seed: int) -> Float[np.ndarray, " d"]:
    """Return the weights that one release, or coins, teach."""
    pairs = sordino.Pairs.from_features(*rows)
    record = way == "records"
    relation = REPLACE_SPECIAL if record else REPLACE_ONE
    budget = sordino.Guarantee(
        epsilon * (1 + 1e-9),
        delta=DELTA,
        unit="record" if record else "label",
        neighbors=relation,
        trust="central",
    )
    n, d = rows[0].shape
    settings: dict[str, Any] = {"ellipsoid": False}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ledger = sordino.Ledger.open(Path(folder) / "spend.db", data="pairs", budget=budget)
        if way == "coins":
            coin = sordino.RandomizedResponse(epsilon)
            private = sordino.privatize(pairs, coin, ledger=ledger, simulate_seed=seed)
            return np.asarray(sordino.fit_reward(private, **settings).weights)
        noise: Any = sordino.LabelGaussian.for_sizes(
            epsilon, n=n, d=d, feature_bound=1.0, delta=DELTA
        )
        if record:
            noise = ObjectivePerturbation.for_sizes(
                epsilon, n=n, d=d, delta=DELTA, bound=BOUND, neighbors=relation
            )
        found = sordino.fit_reward(
            pairs, mechanism=noise, ledger=ledger, simulate_seed=seed, **settings
        )
    return np.asarray(found.weights)


def judge(weights: Float[np.ndarray, " d"], public: Rows) -> tuple[float, float, float]:
    """Return accuracy, log loss above log 2, and calibration slope on public judgments."""
    margins, labels = public[0] @ weights, public[1]
    loss = float(np.mean(np.logaddexp(0, margins) - labels * margins)) - np.log(2)
    slope = 1.0
    for _ in range(30):
        chances = expit(slope * margins)
        step = margins @ (labels - chances) / (margins**2 @ (chances * (1 - chances)))
        slope += float(np.clip(step, -2, 2))
    return float(np.mean((margins > 0) == labels)), loss, slope


def measure(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield one row for each set, size and epsilon."""
    one, other = real_pairs("a"), real_pairs("b")
    sets = {"a to b": (one, other), "b to a": (other, one), "judged": judged_pairs()}
    for name, (private, public) in sets.items():
        for n in (size for size in SIZES if size <= len(private[1])):
            for epsilon in EPSILONS:
                terms: dict[str, Any] = {"delta": DELTA, "accuracy": ASSUMED.get(name, 0.65)}
                foreseen = estimate(n, dimension=DIRECTIONS, epsilon=epsilon, **terms)
                row: dict[str, Any] = {"set": name, "n": n, "epsilon": epsilon}
                for way, plan in WAYS.items():
                    found = []
                    for seed in range(seeds):
                        chosen = np.random.default_rng(seed).choice(len(private[1]), n, False)
                        part = private[0][chosen], private[1][chosen]
                        found.append(judge(learn(way, part, epsilon, seed), public))
                    accuracy, loss, slopes = np.array(found).T
                    row[way] = {
                        "accuracy": round(float(accuracy.mean()), 4),
                        "standard_error": round(float(accuracy.std(ddof=1)) / seeds**0.5, 4),
                        "largest_loss_above_log_2": round(float(loss.max()), 4),
                        "calibrated": round(float(np.mean((slopes > 0.7) & (slopes < 1.3))), 2),
                        "foreseen": round(foreseen.ways[plan].accuracy, 4),
                    }
                yield row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    print(json.dumps({"name": "curator", "results": list(measure(**vars(parser.parse_args())))}))
