"""Time one reward fit against scikit-learn's logistic regression, to the same gradient norm.

Prints one JSON object. Both fit ordinary 0/1 labels with the same ridge and no intercept. The
peer's tolerance is the loosest of a grid that brings the gradient norm of the very same
objective to the target (found before the clock starts); the repeats are interleaved.

    python benchmarks/speed/logistic_fit.py --quick
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import scipy
import scipy.sparse
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import sordino
from sordino.preferences.features import Matrix
from sordino.rewards.pair_losses import DebiasedLogistic
from sordino.rewards.solver import minimize_ridge

T = TypeVar("T")
TOLERANCES = (1e-3, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7, 3e-8, 1e-8, 1e-9)


def isotropic(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Return Gaussian features of norm about 1."""
    return np.asarray(rng.standard_normal((n, d)) / np.sqrt(d))


def decaying(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Return features whose spectrum decays like that of embeddings, turned at random."""
    scales = (1.0 + np.arange(d)) ** -1.0
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    scaled = rng.standard_normal((n, d)) * (scales / np.linalg.norm(scales))
    return np.asarray(scaled @ turn)


def hashed(rng: np.random.Generator, n: int, d: int) -> scipy.sparse.csr_array:
    """Return sparse rows of 60 to 150 signed counts of norm 1, frequent features first."""
    odds = (1.0 + np.arange(d)) ** -1.0
    rows = []
    for _ in range(n):
        counts = rng.choice(d, size=int(rng.integers(60, 150)), p=odds / odds.sum())
        row = np.bincount(counts, minlength=d) * rng.choice([-1.0, 1.0], d)
        rows.append(scipy.sparse.csr_array(row[None, :] / np.linalg.norm(row)))
    return scipy.sparse.csr_array(scipy.sparse.vstack(rows))


def labels(rng: np.random.Generator, features: Matrix, strength: float) -> np.ndarray:
    """Return labels of a Bradley-Terry model whose margins have the standard deviation given."""
    margins = np.asarray(features @ rng.standard_normal(features.shape[1]))
    margins *= strength / margins.std()
    return np.asarray(rng.random(len(margins)) < 1 / (1 + np.exp(-margins)), np.int64)


def peer(tolerance: float, ridge: float) -> Any:
    """Return scikit-learn's estimator of the same objective."""
    return LogisticRegression(
        C=1 / ridge, fit_intercept=False, solver="lbfgs", tol=tolerance, max_iter=20_000
    )


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that the function took, and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def measure(
    name: str, features: Matrix, answers: np.ndarray, *, ridge: float, repeats: int
) -> dict[str, object]:
    """Return one row of the result."""
    loss = DebiasedLogistic(features, answers.astype(float))
    atol = 1e-6 * len(answers)

    def gradient_norm(theta: np.ndarray) -> float:
        return float(np.linalg.norm(loss.gradient(theta) + ridge * theta))

    def certified(tolerance: float) -> bool:
        return gradient_norm(peer(tolerance, ridge).fit(features, answers).coef_[0]) <= atol

    tolerance = next((value for value in TOLERANCES if certified(value)), TOLERANCES[-1])
    ours, theirs = [], []
    for _ in range(repeats):
        seconds, solution = timed(
            lambda: minimize_ridge(
                DebiasedLogistic(features, answers.astype(float)), ridge=ridge, atol=atol
            )
        )
        ours.append(seconds)
        seconds, model = timed(lambda: peer(tolerance, ridge).fit(features, answers))
        theirs.append(seconds)
    return {
        "name": name,
        "n": features.shape[0],
        "d": features.shape[1],
        "ridge": ridge,
        "ours_seconds": statistics.median(ours),
        "peer_seconds": statistics.median(theirs),
        "ratio": statistics.median(ours) / statistics.median(theirs),
        "target_gradient_norm": atol,
        "ours_gradient_norm": gradient_norm(solution.theta),
        "peer_gradient_norm": gradient_norm(model.coef_[0]),
        "ours_passes": solution.passes,
        "peer_iterations": int(model.n_iter_[0]),
        "peer_tolerance": tolerance,
        "repeats": repeats,
    }


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=200_000)
    parser.add_argument("--d", type=int, default=384)
    parser.add_argument("--ridge", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="n=20,000, d=128, 3 repeats")
    given = parser.parse_args()
    n, d, repeats = (20_000, 128, 3) if given.quick else (given.n, given.d, given.repeats)
    warnings.simplefilter("error", ConvergenceWarning)
    rows = []
    for name, make, size in (
        ("dense-isotropic", isotropic, (n, d)),
        ("dense-decaying", decaying, (n, d)),
        ("sparse-hashed-small", hashed, (4400, 512)),
    ):
        rng = np.random.default_rng(given.seed)
        features = make(rng, *size)
        answers = labels(rng, features, 2.0)
        rows.append(measure(name, features, answers, ridge=given.ridge, repeats=repeats))
        del features
    versions = {
        "sordino": sordino.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }
    print(
        json.dumps(
            {"name": "logistic-fit", "results": rows, "seed": given.seed, "versions": versions},
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
