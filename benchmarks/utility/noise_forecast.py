"""Prints as JSON what a plan foresees of each kind of noise, and what comes out.

Real judgments of the folder ``shared/data`` beside this checkout (``hh_helpful_b``, with
``hh_helpful_a`` declared public; ``judged_answers``, a fifth of its prompts public) and judgments
of simulated people. What comes out is the mean over seeds that draw training pairs and noise,
on the public judgments; of draws it is how often one agrees. ``tells`` is what the plan says of
itself: only there a forecast has to hold.

    python benchmarks/utility/noise_forecast.py [--seeds 8]
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _worlds import raw_pairs
from scipy.sparse import csr_array
from scipy.special import expit
from thumbs import THRESHOLDS, Spaces, judged

import sordino
from sordino._random import SimulatedEntropy
from sordino.algorithms.offline_bandit import bounded_range_of_draws, settle
from sordino.engines.engine import Rows
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.mechanisms.score_sensitivity import withheld_ridge_label_range
from sordino.preferences.features import differences
from sordino.preferences.pairs import number_labels
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL
from sordino.rewards.evidence import Design, Evidence
from sordino.rewards.noise_forecast import (
    Picture,
    Signal,
    of_answers,
    of_draws,
    of_records,
    of_sum,
)
from sordino.rewards.record_release import release_records
from sordino.rewards.reward_fit import fit_design, fit_sum

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
DELTA, BALL, BOUND, DRAWS = 1e-6, 100.0, 0.6, 10
FEW = 500  # judgments up to which runs differ so much that more seeds are needed
SETTINGS = (  # world, n, d, epsilon; 28 features are the shape of answers without words
    ("people", 300, 16, 1.0),
    ("people", 500, 28, 0.5),
    ("people", 1000, 28, 2.0),
    ("people", 2000, 28, 0.5),
    ("people", 2000, 64, 2.0),
    ("people", 2000, 16, 8.0),
    ("people", 1000, 512, 1.0),
    ("judge", 300, 16, 0.5),
    ("judge", 500, 28, 0.5),
    ("judge", 2000, 28, 0.1),
    ("judge", 5000, 128, 1.0),
    *(("thumbs", n, 29, e) for n, e in ((2000, 0.5), (2000, 2.0), (5000, 8.0), (20_000, 0.5))),
    *(("ratings", n, 29, e) for n, e in ((2000, 0.5), (2000, 8.0), (20_000, 2.0))),
    ("simulated", 500, 16, 2.0),
    ("simulated", 2000, 64, 1.0),
    ("simulated", 5000, 512, 2.0),
    ("simulated", 20_000, 28, 0.1),
    ("simulated", 20_000, 128, 0.5),
)
ALONE = {"thumbs": THRESHOLDS["above .001"], "ratings": None}
"""What is judged singly, with the threshold of a thumb."""
PARTS = 4  # of a rating of five levels
Rows2 = tuple[csr_array, np.ndarray]


def features(d: int) -> sordino.HashedText:
    """Return so many features; the shape of answers alone where there is room for no word."""
    return sordino.HashedText(dimension=d, word_norm=0.0 if d == 28 else 0.15)


def told(rows: csr_array, labels: Any) -> Rows2:
    """Return decided pairs that the features tell apart."""
    known = np.asarray(labels, dtype=np.int64)
    kept = np.flatnonzero((known < 2) & (np.diff(rows.indptr) > 0))
    return rows[kept], known[kept]


@functools.cache
def world(name: str, d: int) -> tuple[Rows2, Rows2]:
    """Return private judgments and public ones; of single answers labels are shares."""
    if name in ALONE:
        spaces = Spaces(*judged(ALONE[name], DATA))
        kept = spaces.truth != 0.5
        one, other = csr_array(spaces.rows), csr_array(spaces.unseen[kept])
        return (one, spaces.labels), (other, spaces.truth[kept])
    if name == "people":
        both = [
            raw_pairs(DATA / f"hh_helpful_{part}.jsonl.gz", drop=("identical",)) for part in "ba"
        ]
        one, other = (told(pairs.differences(features(d)), pairs.labels) for pairs in both)
        return one, other
    generator = np.random.default_rng(0)
    if name == "judge":
        made = []
        with gzip.open(DATA / "judged_answers.jsonl.gz", "rt") as lines:
            for number, line in enumerate(lines):
                row = json.loads(line)
                for _ in range(20):
                    ends = generator.choice(len(row["answers"]), 2, replace=False)
                    a, b = (row["answers"][end] for end in ends)
                    first = a["preference"] > b["preference"]
                    if a["preference"] != b["preference"]:
                        texts = row["prompt"], a["text"], b["text"]
                        made.append((number % 5 == 0, *texts, first))
    else:
        made = []
        for public, (n, seed) in enumerate(((20_500, 1), (2_500, 2))):
            for row in sordino.simulate_pairs(n, seed=seed)[0]:
                turn = bool(generator.random() < 0.5)
                sides = ("rejected", "chosen") if turn else ("chosen", "rejected")
                made.append((bool(public), row["prompt"], *(row[side] for side in sides), not turn))
    parts, prompts, first_texts, second_texts, labels = zip(*made, strict=True)
    rows = differences(features(d), prompts, first_texts, second_texts)
    out = np.array(parts)
    known = np.array(labels)
    one, other = (told(rows[np.flatnonzero(side)], known[side]) for side in (~out, out))
    return one, other


def plans(rows: csr_array, n: int, epsilon: float) -> dict[str, tuple[Any, Picture]]:
    """Return each kind of noise as a run would have it, with its picture."""
    d = rows.shape[1]
    coin = RandomizedResponse(epsilon)
    noise = LabelGaussian.for_sizes(epsilon, n=n, d=d, feature_bound=1.0, delta=DELTA)
    tilt = ObjectivePerturbation.for_sizes(
        epsilon, n=n, d=d, delta=DELTA, bound=BOUND, neighbors=REPLACE_SPECIAL
    )
    longest = float(np.sqrt(rows.multiply(rows).sum(axis=1).max()))
    ridge, heat = settle(
        lambda ridge: min(4 * BALL, withheld_ridge_label_range(ridge, spread=2.0, bound=longest)),
        target=bounded_range_of_draws(epsilon, DELTA, DRAWS, neighbors=REPLACE_ONE, adaptive=True),
        temperature=None,
        regularization=None,
        name="ridge",
        usual=0.5,
    )
    drawn = of_draws(rows, n, ridge=ridge, temperature=heat)
    return {
        "labels": (coin, of_answers(rows, n, flip_probability=coin.flip_probability)),
        "estimate": (noise, of_sum(rows, n, noise)),
        "records": (tilt, of_records(rows, n, tilt)),
        "draws": ((ridge, heat), drawn),
    }


def design(rows: csr_array, answers: np.ndarray, flips: float) -> Design:
    """Return what a fit sees of answers, each to a question of its own."""
    questions = np.arange(len(answers), dtype=np.uint64) << np.uint64(40)
    return Design(
        differences=rows,
        answers=answers,
        flip_probability=flips,
        feature_bound=1.0,
        questions=questions,
        clusters=None,
    )


def realized(kind: str, noise: Any, rows: csr_array, labels: np.ndarray, seed: int) -> np.ndarray:
    """Return the weights that one release teaches, or those that are withheld."""
    entropy, parts = SimulatedEntropy(seed), 2 if set(np.unique(labels)) <= {0, 1} else PARTS
    labels = number_labels(labels, len(labels), parts)
    if kind == "labels":
        answers = noise.release(labels, entropy=entropy)
        seen = design(rows, answers, noise.flip_probability)
        return fit_design(seen, ridge=None, ball=BALL).weights
    if kind == "draws":
        return fit_design(design(rows, labels, 0.0), ridge=noise[0], ball=BALL).weights
    if kind == "records":
        cut = Rows.of(noise.clipped(rows.toarray()), labels)
        terms: dict[str, Any] = {"ball": 10 * BALL, "second_moment": None, "entropy": entropy}
        return release_records(cut, noise, **terms)
    ready = noise.prepare(rows, parts=parts)
    known = Evidence(
        differences=Rows.of(rows),
        statistic=ready.release(labels, entropy=entropy),
        factor=ready.factor,
        feature_bound=1.0,
        longest=noise.longest,
    )
    return fit_sum(known, ball=BALL).weights


def compare(name: str, n: int, d: int, epsilon: float, *, seeds: int) -> dict[str, Any]:
    """Return forecasts of all kinds of noise in one setting, and the means of what came out."""
    (rows, labels), public = world(name, d)
    n = min(n, len(labels))
    alone = name in ALONE
    signal = Signal.of_public(public[0], public[1].astype(np.float64), alone=alone)
    found: dict[str, Any] = {"world": name, "n": n, "d": d, "epsilon": epsilon}
    for kind, (noise, picture) in plans(rows, n, epsilon).items():
        if alone and kind in {"draws", "records"}:  # of which a plan says nothing, or no label
            continue
        reached = []
        for seed in range(1 if d > 128 and n > 2000 and kind == "draws" else seeds):
            chosen = np.random.default_rng(seed).choice(len(labels), n, replace=False)
            weights = realized(kind, noise, rows[chosen], labels[chosen], seed)
            margins = public[0] @ weights * np.sign(2 * public[1] - 1)
            right = expit(margins / noise[1]) if kind == "draws" else margins > 0
            reached.append(float(np.mean(right)))
        foreseen = signal.foresee(picture)
        found[kind] = {
            **foreseen.to_dict(),
            "measured": round(float(np.mean(reached)), 4),
            "standard_error": round(float(np.std(reached) / max(len(reached) - 1, 1) ** 0.5), 4),
            "difference": round(foreseen.accuracy - float(np.mean(reached)), 4),
        }
    kinds = ("labels", "estimate")  # what may be chosen where labels are hidden, beside few draws
    best = max(kinds, key=lambda kind: found[kind]["accuracy"])
    means = {kind: found[kind]["measured"] for kind in kinds}
    return found | {"best": best, "lost": round(max(means.values()) - means[best], 4)}


def measure(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield one row for each setting."""
    for setting in SETTINGS:
        yield compare(*setting, seeds=seeds * 3 if setting[1] <= FEW else seeds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    results = list(measure(**vars(parser.parse_args())))
    print(json.dumps({"name": "noise-forecast", "results": results}, indent=1))
