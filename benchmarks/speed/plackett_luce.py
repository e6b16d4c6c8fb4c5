"""Time the fit of rankings, and that of items without features against choix.

Prints one JSON object. With features: seconds of one certified fit. Items: seconds of ours and of
``choix.opt_rankings`` on the same ballots, with the same ridge, and both log-likelihoods. The peer
is a loop over ballots in Python, so that it is run once.

    python benchmarks/speed/plackett_luce.py --quick
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import choix
import numpy as np
from _shared import show, versions
from scipy.sparse import eye_array

import sordino
from sordino.rewards.ranking_losses import PlackettLuce
from sordino.rewards.solver import Solution, minimize_ridge

ALPHA = 1e-6  # choix adds alpha‖θ‖², which is half a ridge
T = TypeVar("T")


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that the function took, and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def ranks_of(rng: np.random.Generator, scores: np.ndarray) -> np.ndarray:
    """Return ranks of a Plackett-Luce model, 1 the best."""
    noisy = scores + rng.gumbel(size=scores.shape)
    return np.argsort(np.argsort(-noisy, axis=1), axis=1) + 1


def with_features(n: int, k: int, d: int, seed: int, repeats: int) -> dict[str, object]:
    """Return how long a fit with features takes, data checked and sorted anew each time."""
    rng = np.random.default_rng(seed)
    features, theta = rng.standard_normal((n * k, d)) / np.sqrt(d), rng.standard_normal(d)
    ranks = ranks_of(rng, (features @ theta).reshape(n, k)).ravel()
    starts, atol = np.arange(0, n * k + 1, k), 1e-6 * n

    def fit() -> Solution:
        loss = PlackettLuce(features, starts=starts, ranks=ranks)
        return minimize_ridge(loss, ridge=1.0, atol=atol)

    runs = [timed(fit) for _ in range(repeats)]
    found = runs[-1][1]
    return {
        "name": "features", "n": n, "k": k, "d": d, "seconds": min(run[0] for run in runs),
        "passes": found.passes, "gradient_norm": found.gradient_norm, "target": atol,
        "error": float(np.linalg.norm(found.theta - theta) / np.linalg.norm(theta)),
    }  # fmt: skip


def items(n: int, k: int, count: int, seed: int, repeats: int) -> dict[str, object]:
    """Return how long worths of items take, with and without choix."""
    rng = np.random.default_rng(seed)
    worth = rng.standard_normal(count)
    slates = np.argsort(rng.random((n, count)), axis=1)[:, :k]
    order = np.argsort(ranks_of(rng, worth[slates]), axis=1)
    ordered = np.take_along_axis(slates, order, axis=1)
    ballots = [tuple(row) for row in ordered.tolist()]
    starts, ranks = np.arange(0, n * k + 1, k), np.tile(np.arange(1, k + 1), n)
    one_each = eye_array(count, format="csr")  # of items without features

    def ours() -> Solution:
        loss = PlackettLuce(one_each[ordered.ravel()], starts=starts, ranks=ranks)
        return minimize_ridge(loss, ridge=2 * ALPHA, atol=1e-7 * n)

    runs = [timed(ours) for _ in range(repeats)]
    seconds, found = min(run[0] for run in runs), runs[-1][1]
    peer_seconds, peer = timed(lambda: choix.opt_rankings(count, ballots, alpha=ALPHA))
    loss = PlackettLuce(one_each[ordered.ravel()], starts=starts, ranks=ranks)
    values = loss.value(found.theta), loss.value(peer)
    return {
        "name": "items", "n": n, "k": k, "items": count, "ours_seconds": seconds,
        "choix_seconds": peer_seconds, "times_faster": peer_seconds / seconds,
        "ours_loss": values[0], "choix_loss": values[1],
        "relative_difference": (values[0] - values[1]) / values[1], "passes": found.passes,
    }  # fmt: skip


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="n=2,000")
    given = parser.parse_args()
    n = 2_000 if given.quick else 100_000
    rows = [
        with_features(n, 5, 64, given.seed, given.repeats),
        items(n, 5, 100, given.seed, given.repeats),
    ]
    show(
        {
            "name": "plackett-luce",
            "results": rows,
            "seed": given.seed,
            "versions": versions("numpy", "scipy", "choix") | {"sordino": sordino.__version__},
        }
    )


if __name__ == "__main__":
    main()
