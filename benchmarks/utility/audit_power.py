"""Prints as JSON how near distinguishing games come to a claim, and how often they err.

``tightness`` is the lower bound (95 %) on a mechanism exactly at its claim, as a share of the
claim; ``false_alarms`` is how often such a mechanism is refuted at a level of .05; ``planted``
is how often a mechanism with half its noise is, at default settings; ``power`` is how often a
mechanism is refuted whose loss is exactly the one said to be detectable; ``off_center`` is how
many standard deviations the threshold that a Gaussian game chooses lies from the best one.

    python benchmarks/utility/audit_power.py [--runs 100] [--alarms 1000]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from _worlds import versions
from scipy.special import ndtri

import sordino
from sordino._random import Entropy, SimulatedEntropy
from sordino.auditing.findings import Audit
from sordino.auditing.statistical.bounds import mu_cut
from sordino.auditing.statistical.distinguishing import audit_mechanism
from sordino.mechanisms.base import Mechanism, Repeatable, WorstCase
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.gibbs import ExponentialMechanism
from sordino.privacy.guarantee import RandomizedResponseEvent

Kind = Literal["randomized-response", "gaussian", "exponential"]

DELTA, DEFAULT = 1e-5, 20_000
METRIC: dict[Kind, str] = {
    "randomized-response": "epsilon",
    "gaussian": "mu",
    "exponential": "bounded range",
}
GAMES: tuple[tuple[Kind, float, int], ...] = (
    ("randomized-response", 1.0, DEFAULT),
    ("randomized-response", 2.0, DEFAULT),
    ("exponential", 1.0, DEFAULT),
    ("exponential", 2.0, DEFAULT),
    ("gaussian", 0.5, 100_000),
    ("gaussian", 1.0, 100_000),
)


class Played(Mechanism, Repeatable, Protocol):
    """A mechanism that is played many times at once."""


@dataclass(frozen=True)
class Spoiled:
    """A planted bug: what one mechanism states, and another one releases."""

    stated: Played
    released: Played

    def __getattr__(self, name: str) -> Any:
        """Return what the stated mechanism says of itself."""
        if name.startswith("__") or name in {"stated", "released"}:
            raise AttributeError(name)
        return getattr(self.stated, name)

    def release(self, values: np.ndarray, *, entropy: Entropy) -> np.ndarray:
        """Return a release of the other one."""
        return self.released.release(values, entropy=entropy)

    def repeat(self, values: np.ndarray, trials: int, *, entropy: Entropy) -> np.ndarray:
        """Return many releases of the other one."""
        return self.released.repeat(values, trials, entropy=entropy)

    def log_ratio(self, outputs: np.ndarray, case: WorstCase) -> np.ndarray:
        """Return the log-ratio that the stated one would have."""
        return self.stated.log_ratio(outputs, case)


def of_size(kind: Kind, size: float) -> Played:
    """Return a mechanism whose loss in its own metric is exactly of a size."""
    if kind == "randomized-response":
        return sordino.RandomizedResponse(size)
    one = sordino.REPLACE_ONE
    if kind == "gaussian":
        return GaussianMechanism(2.0 / size, delta=DELTA, bound=1.0, neighbors=one)
    return ExponentialMechanism(2.0 / size, reference=(0.5, 0.5), bound=1.0, neighbors=one)


def played(mechanism: Mechanism, seed: int | None, **settings: Any) -> Audit:
    """Return the audit of a mechanism under the relation that replaces one label or record."""
    label = isinstance(mechanism.event, RandomizedResponseEvent)
    return audit_mechanism(
        mechanism,
        unit="label" if label else "record",
        neighbors=sordino.REPLACE_ONE,
        trust="central",
        simulate_seed=seed,
        **settings,
    )


def tightness(kind: Kind, size: float, trials: int, *, runs: int) -> dict[str, Any]:
    """Return lower bounds on mechanisms exactly at their claim, as shares of the claim."""
    mechanism = of_size(kind, size)
    decisive = [played(mechanism, seed, trials=trials).measured[0] for seed in range(runs)]
    shares = np.array([one.lower / one.claimed for one in decisive])
    return {
        "mechanism": kind,
        "metric": decisive[0].metric,
        "claimed": round(decisive[0].claimed, 6),
        "trials": trials,
        "runs": runs,
        "at_least_nine_tenths": int((shares >= 0.9).sum()),
        "above_the_claim": int((shares > 1).sum()),
        "mean": round(float(shares.mean()), 4),
        "least": round(float(shares.min()), 4),
        "would_have_refuted": round(decisive[0].power or 0.0, 4),
    }


def false_alarms(kind: Kind, *, size: float, trials: int, level: float, runs: int) -> int:
    """Return how many audits refute a mechanism that is exactly at its claim."""
    mechanism = of_size(kind, size)
    audits = (played(mechanism, seed, trials=trials, level=level) for seed in range(runs))
    return sum(audit.refuted for audit in audits)


def planted(kind: Kind, size: float, *, runs: int) -> int:
    """Return how many default audits refute a mechanism with half the noise that it states."""
    spoiled = Spoiled(of_size(kind, size), of_size(kind, 2 * size))
    return sum(played(spoiled, seed).refuted for seed in range(runs))


def refuted_at_power(kind: Kind, size: float, *, trials: int, runs: int) -> int:
    """Return how many audits refute a loss that is exactly the one said to be detectable."""
    stated = of_size(kind, size)
    detectable = played(stated, 0, trials=trials).measured[0].power or 0.0
    spoiled = Spoiled(stated, of_size(kind, detectable))
    return sum(played(spoiled, seed, trials=trials).refuted for seed in range(runs))


def off_center(mu: float, *, trials: int, runs: int) -> float:
    """Return how far off the best threshold a Gaussian game chooses, in 99 of 100 runs."""
    distances = []
    for seed in range(runs):
        words = SimulatedEntropy(seed).words(2 * trials) >> np.uint64(12)
        noise = ndtri((words.astype(np.float64) + 0.5) * 2.0**-52)
        distances.append(abs(mu_cut(noise[:trials] + mu, noise[trials:]).high - mu / 2))
    return float(np.quantile(distances, 0.99))


def seconds(kind: Kind) -> float:
    """Return how long a default audit takes with the randomness of the operating system."""
    mechanism = of_size(kind, 1.0)
    played(mechanism, None)
    start = time.perf_counter()
    played(mechanism, None)
    return round(time.perf_counter() - start, 2)


def measure(runs: int, alarms: int) -> dict[str, Any]:
    """Return everything."""
    return {
        "name": "audit_power",
        "tightness": [tightness(*game, runs=runs) for game in GAMES],
        "false_alarms": {
            kind: false_alarms(kind, size=1.0, trials=1000, level=0.05, runs=alarms)
            for kind in METRIC
        },
        "alarms": alarms,
        "planted": {kind: planted(kind, 1.0, runs=runs) for kind in METRIC},
        "power": {kind: refuted_at_power(kind, 1.0, trials=DEFAULT, runs=runs) for kind in METRIC},
        "off_center": {
            mu: round(off_center(mu, trials=DEFAULT, runs=alarms), 3) for mu in (0.1, 0.5, 1.0, 2.0)
        },
        "runs": runs,
        "seconds": {kind: seconds(kind) for kind in METRIC},
        "randomness": "seeded simulation, but for the seconds",
        "versions": versions(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--alarms", type=int, default=1000)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
