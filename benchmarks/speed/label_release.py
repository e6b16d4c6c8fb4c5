"""Time the ellipsoid that shapes the noise on labels, against plain numpy on the same array.

Prints one JSON object. The peers, in the same run and interleaved: the Gram matrix of the rows and
their singular value decomposition. The gain is what shaping saves, E‖noise‖² in the metric
(G/4 + ΛI)⁻¹ that a fit with ridge Λ feels, G = Σ xxᵀ: noise of the same μ in the smallest ball
over noise in the ellipsoid. The ridge is 0 and 1.

    python benchmarks/speed/label_release.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from _shared import DATA, show, versions

from sordino import HashedText, read_pairs
from sordino.mechanisms.ellipsoid import (
    Ellipsoid,
    isotropic_ellipsoid,
    least_noise_ellipsoid,
)

RIDGES = (0.0, 1.0)


def turned(rng: np.random.Generator, n: int, scales: np.ndarray) -> np.ndarray:
    """Return normal rows of norm about 1 with these relative scales, turned at random."""
    d = len(scales)
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    scaled = rng.standard_normal((n, d)) * (scales / np.linalg.norm(scales))
    return np.asarray(scaled @ rotation)


def seconds(function: Callable[[], object]) -> float:
    """Return how long a call took."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def gain(rows: Any, ridge: float, held: Ellipsoid, ball: Ellipsoid) -> float:
    """Return tr[(G/4 + ΛI)⁻¹V] of the ball over that of the ellipsoid, in the span of the rows."""
    basis = np.linalg.qr(held.unwhiten)[0]
    inside = rows @ basis
    bend = inside.T @ inside / 4 + ridge * np.eye(held.rank)
    felt = [np.trace(np.linalg.solve(bend, _shape(one, basis))) for one in (ball, held)]
    return float(felt[0] / felt[1])


def _shape(ellipsoid: Ellipsoid, basis: np.ndarray) -> np.ndarray:
    """Return the matrix of an ellipsoid in coordinates of its span."""
    axes = basis.T @ ellipsoid.unwhiten
    return np.asarray(axes @ axes.T)


def described(name: str, rows: Any) -> dict[str, Any]:
    """Return what shaping gains on some rows."""
    held, ball = least_noise_ellipsoid(rows), isotropic_ellipsoid(rows)
    gains = {f"gain_ridge_{ridge:g}": gain(rows, ridge, held, ball) for ridge in RIDGES}
    size = {"n": rows.shape[0], "d": rows.shape[1], "rank": held.rank}
    return {"name": name} | size | gains


def measure(name: str, rows: np.ndarray, repeats: int) -> dict[str, Any]:
    """Return one row of the result: times, ratios and gain."""
    ours, gram, decomposition = [], [], []
    for _ in range(repeats):
        ours.append(seconds(lambda: least_noise_ellipsoid(rows)))
        gram.append(seconds(lambda: rows.T @ rows))
        decomposition.append(seconds(lambda: np.linalg.svd(rows, full_matrices=False)))
    middle, by_gram, by_svd = map(statistics.median, (ours, gram, decomposition))
    return described(name, rows) | {
        "ours_seconds": middle,
        "gram_seconds": by_gram,
        "svd_seconds": by_svd,
        "ratio_to_gram": middle / by_gram,
        "ratio_to_svd": middle / by_svd,
        "repeats": repeats,
    }


def real() -> list[dict[str, Any]]:
    """Return the gain on hashed text of real pairs, where they are."""
    path = DATA / "hh_helpful_b.jsonl.gz"
    if not path.exists():
        return []
    pairs = read_pairs(path, drop=["identical"])
    return [
        described(
            f"hashed-text-{d}",
            scipy.sparse.csr_array(pairs.differences(HashedText(dimension=d))).toarray(),
        )
        for d in (128, 512)
    ]


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=200_000)
    parser.add_argument("--d", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="n=20,000, 3 repeats")
    given = parser.parse_args()
    n, repeats = (20_000, 3) if given.quick else (given.n, given.repeats)
    powers = np.arange(given.d)
    results = []
    for name, scales in (
        ("isotropic", np.ones(given.d)),
        ("decaying 1/k", 1.0 / (1 + powers)),
        ("decaying 1/k²", 1.0 / (1 + powers) ** 2),
        ("decaying 0.9^k", 0.9**powers),
    ):
        rng = np.random.default_rng(given.seed)
        results.append(measure(name, turned(rng, n, scales), repeats))
    show(
        {
            "name": "label-release",
            "results": results,
            "real_rows": real(),
            "seed": given.seed,
            "versions": versions("sordino", "numpy", "scipy"),
        }
    )


if __name__ == "__main__":
    main()
