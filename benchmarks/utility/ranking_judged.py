"""Prints as JSON how well private boards order language models whose answers a judge preferred.

Of ``judged_answers`` in the folder ``shared/data`` beside this checkout. A battle takes a prompt
and two models at random; the answer that the judge prefers more (over one fixed baseline) wins,
and equal preferences are a tie. Every person gives seven votes in a row. What comes out is
Spearman's correlation of the board with the mean preference of each model over all prompts: mean
and standard deviation over seeds that draw battles and noise. ``points`` is half the median width
of the 95% intervals, and ``inside`` how often a range of ranks holds the rank by that mean.

    python benchmarks/utility/ranking_judged.py [--seeds 3] [--battles 20000]
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, spearmanr

import sordino

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "judged_answers.jsonl.gz"
VOTES = 7  # of one person
DELTA = 1e-6


def preferences() -> tuple[list[str], np.ndarray]:
    """Return the models, and what the judge preferred of each on every prompt; NaN if missing."""
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        rows = [json.loads(line)["answers"] for line in file]
    told = [{answer["model"]: answer["preference"] for answer in row} for row in rows]
    names = sorted({name for row in told for name in row})
    return names, np.array([[row.get(name, np.nan) for name in names] for row in told])


def votes(names: list[str], told: np.ndarray, n: int, seed: int) -> list[dict[str, str]]:
    """Return n votes."""
    generator, rows = np.random.default_rng(seed), []
    for at in range(n):
        prompt = int(generator.integers(len(told)))
        there = np.flatnonzero(~np.isnan(told[prompt]))
        one, other = generator.choice(there, 2, replace=False)
        gap = told[prompt, one] - told[prompt, other]
        rows.append(
            {
                "question_id": f"prompt {prompt}",
                "model_a": names[one],
                "model_b": names[other],
                "winner": "tie" if gap == 0 else "model_a" if gap > 0 else "model_b",
                "person": f"p{at // VOTES}",
            }
        )
    return rows


def measured(board: Any, truth: dict[str, float]) -> tuple[float, float, float]:
    """Return the correlation, the half width of intervals in points, and how many ranks hold."""
    known = np.array([truth[name] for name in board.items])
    rated = np.isfinite(board.ratings)
    ends = board.intervals[rated]
    place = rankdata(-known)
    inside = (board.ranks[:, 0] <= place) & (place <= board.ranks[:, 1])
    half = float(np.median(np.diff(ends)) / 2 * 400 / np.log(10))
    return float(spearmanr(board.ratings[rated], known[rated])[0]), half, float(inside.mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--battles", type=int, default=20_000)
    given = parser.parse_args()
    names, told = preferences()
    truth = dict(zip(names, np.nanmean(told, axis=0), strict=True))
    found: dict[tuple[str, str, float], list[tuple[float, float, float]]] = {}
    for seed in range(given.seeds):
        pairs = sordino.read_pairs(votes(names, told, given.battles, seed))
        settings = [("label", "estimate", epsilon) for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0)]
        settings += [("label", "labels", epsilon) for epsilon in (1.0, 2.0, 4.0)]
        settings += [("person", "estimate", epsilon) for epsilon in (1.0, 2.0, 4.0, 8.0)]
        settings.append(("label", "estimate", 1000.0))  # as good as without privacy
        for unit, noise, epsilon in settings:
            with tempfile.TemporaryDirectory() as folder:
                board = sordino.rank(
                    pairs,
                    epsilon=epsilon,
                    unit=unit,
                    noise=noise,
                    delta=DELTA if noise == "estimate" else None,
                    ledger=f"{folder}/spend.db",
                    simulate_seed=seed,
                    accept_weak=True,
                )
            found.setdefault((unit, noise, epsilon), []).append(measured(board, truth))
    rows = []
    for (unit, noise, epsilon), each in found.items():
        values = np.array(each)
        private = epsilon < 1000
        rows.append(
            {
                "unit": unit if private else "none",
                "noise": noise,
                "epsilon": epsilon if private else None,
                "spearman": round(float(values[:, 0].mean()), 4),
                "spread": round(float(values[:, 0].std(ddof=1)), 4),
                "points": round(float(values[:, 1].mean()), 1),
                "inside": round(float(values[:, 2].mean()), 3),
            }
        )
    told_of = {"models": len(names), "prompts": len(told), "battles": given.battles}
    told_of |= {"votes_per_person": VOTES, "delta": DELTA, "seeds": given.seeds}
    print(json.dumps({"name": "ranking-judged", **told_of, "results": rows}, indent=1))


if __name__ == "__main__":
    main()
