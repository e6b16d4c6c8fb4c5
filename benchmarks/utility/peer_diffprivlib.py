"""Compares with the objective perturbation of diffprivlib, which runs in an environment of its own.

diffprivlib 0.6.6 cannot be imported with scikit-learn 1.9, so three steps hand arrays over in a
folder, and the last one prints JSON:

    python benchmarks/utility/peer_diffprivlib.py worlds FOLDER
    PEER/bin/python benchmarks/utility/peer_diffprivlib.py fit FOLDER
    python benchmarks/utility/peer_diffprivlib.py compare FOLDER

PEER is made by ``python -m venv PEER`` and ``PEER/bin/pip install diffprivlib==0.6.6
"scikit-learn<1.8"``; the second step imports nothing of Sordino. The comparison favors the peer:
of several ridges it has the one of best accuracy, by that accuracy itself, while ours are the
defaults.
"""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

WORLDS = ((1.0, 20_000, 10), (0.5, 20_000, 10), (0.1, 200_000, 3))  # ε, n, how many
D, NORM, DELTA = 64, 4.0, 1e-6
FRESH = 50_000
RIDGES = (0.1, 1.0, 10.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4)  # 1 is the default of the peer


def worlds(folder: Path) -> None:
    """Write the judgments of every world."""
    folder.mkdir(parents=True, exist_ok=True)
    for n, count in {(n, count) for _, n, count in WORLDS}:
        for seed in range(count):
            rows, labels, _, _ = _world(n, seed)
            np.savez(folder / f"world-{n}-{seed}.npz", rows=rows, labels=labels)


def _world(n: int, seed: int) -> tuple[np.ndarray, ...]:
    """Return differences on the unit sphere, labels, the truth, and fresh differences."""
    from central import sphere, truth
    from scipy.special import expit

    generator = np.random.default_rng([seed, n])
    rows, theta = sphere(n, D, generator), truth(D, NORM, generator)
    labels = (generator.random(n) < expit(rows @ theta)).astype(np.int8)
    return rows, labels, theta, sphere(FRESH, D, generator)


def fit(folder: Path) -> None:
    """Write the weights that the peer finds; run in its environment."""
    import diffprivlib
    import sklearn
    from diffprivlib.models import LogisticRegression

    found: dict[str, np.ndarray] = {}
    for epsilon, n, count in WORLDS:
        for seed in range(count):
            world = np.load(folder / f"world-{n}-{seed}.npz")
            for ridge in RIDGES:
                model = LogisticRegression(
                    epsilon=epsilon, data_norm=1.0, C=1 / ridge, fit_intercept=False,
                    tol=1e-8, max_iter=10_000, random_state=seed,
                )  # fmt: skip
                # Rounding makes a unit row longer than 1: the peer clips it, as it should.
                weights = model.fit(world["rows"], world["labels"]).coef_[0]
                found[f"{epsilon}/{n}/{seed}/{ridge}"] = weights
    names = {
        "python": platform.python_version(),
        "diffprivlib": diffprivlib.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
    }
    arrays: dict[str, Any] = {"versions": json.dumps(names), **found}
    np.savez(folder / "weights.npz", **arrays)


def compare(folder: Path) -> None:
    """Print as JSON what every way loses in the same worlds."""
    found = np.load(folder / "weights.npz")
    rows = [_row(found, *setting) for setting in WORLDS]
    value = {
        "name": "diffprivlib",
        "dimension": D,
        "norm": NORM,
        "seeds": "0 to worlds - 1",
        "promises": {
            "diffprivlib": "epsilon, delta = 0; noise for a record that is replaced",
            "label": f"(epsilon, {DELTA}), a label is replaced",
            "record_zero_out": f"(epsilon, {DELTA}), a record is made empty",
            "record_replace": f"(epsilon, {DELTA}), a record is replaced",
            "randomized_response": "epsilon, delta = 0, a label is replaced",
        },
        "results": rows,
        "versions": {"sordino": version("sordino"), "numpy": np.__version__},
        "peer_versions": json.loads(str(found["versions"])),
    }
    print(json.dumps(value, indent=2))


def _row(found: Any, epsilon: float, n: int, count: int) -> dict[str, Any]:
    """Return mean loss of accuracy, its standard error and the error ratio of every way."""
    losses: dict[str, list[float]] = {}
    errors: dict[str, list[float]] = {}
    for seed in range(count):
        rows, labels, theta, fresh = _world(n, seed)
        peer = {f"peer {r:g}": found[f"{epsilon}/{n}/{seed}/{r}"] for r in RIDGES}
        fits = _ours(rows, labels, epsilon, seed) | peer
        hits = {name: _accuracy(weights, fresh, theta) for name, weights in fits.items()}
        for name, weights in fits.items():
            losses.setdefault(name, []).append(hits["not_private"] - hits[name])
            errors.setdefault(name, []).append(float(np.linalg.norm(weights - theta)))
    plain = np.mean(errors["not_private"])
    ways = {
        name: {
            "accuracy_loss": round(float(np.mean(values)), 5),
            "standard_error": round(float(np.std(values, ddof=1) / np.sqrt(count)), 5),
            "error_ratio": round(float(np.mean(errors[name]) / plain), 4),
        }
        for name, values in losses.items()
        if name != "not_private"
    }
    peers = {ridge: ways.pop(f"peer {ridge:g}") for ridge in RIDGES}
    best = min(RIDGES, key=lambda ridge: peers[ridge]["accuracy_loss"])
    return {
        "epsilon": epsilon,
        "n": n,
        "worlds": count,
        **ways,
        "diffprivlib": {"ridge": best} | peers[best],
        "diffprivlib_default_ridge": {"ridge": 1.0} | peers[1.0],
    }


def _ours(rows: np.ndarray, labels: np.ndarray, epsilon: float, seed: int) -> dict[str, np.ndarray]:
    """Return the weights of our ways, and of the fit without privacy."""
    from central import BALL, evidence, randomized, unprotected

    from sordino._random import SimulatedEntropy
    from sordino.engines.engine import Rows
    from sordino.mechanisms.label_sum import LabelGaussian
    from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
    from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL
    from sordino.rewards.record_release import release_records
    from sordino.rewards.reward_fit import fit_sum

    def record(relation: Any) -> np.ndarray:
        noise = ObjectivePerturbation(epsilon, delta=DELTA, bound=1.0, neighbors=relation)
        given: dict[str, Any] = {"ball": BALL, "entropy": SimulatedEntropy(seed)}
        records = Rows.of(noise.clipped(rows), labels)
        return release_records(records, noise, second_moment=None, **given)

    design = LabelGaussian(epsilon, delta=DELTA).prepare(rows)
    known = evidence(design, rows, labels, seed)
    return {
        "not_private": unprotected(rows, labels),
        "label": fit_sum(known, ball=BALL).solution.theta,
        "record_zero_out": record(REPLACE_SPECIAL),
        "record_replace": record(REPLACE_ONE),
        "randomized_response": randomized(rows, labels, epsilon=epsilon, seed=seed),
    }


def _accuracy(weights: np.ndarray, fresh: np.ndarray, theta: np.ndarray) -> float:
    """Return how often weights name the answer that is preferred, in expectation."""
    margins = fresh @ theta
    chances = 1 / (1 + np.exp(-margins))
    return float(np.where(fresh @ weights > 0, chances, 1 - chances).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("worlds", "fit", "compare"))
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    {"worlds": worlds, "fit": fit, "compare": compare}[given.step](given.folder)
