"""Prints as JSON where drawing from a withheld policy wins, and where one noisy release does.

All methods keep the same (ε, δ) in total for T recommendations, one record more or less hidden.

Multi-armed: "intrinsic" draws T arms at once from the exact policy. "one arm" draws once with all
of ε and recommends that arm T times. "means" adds Laplace noise to the sum and to the count of
every arm, "sums" to the sums about the middle alone (enough where all arms were pulled alike);
both then recommend the best arm as often as one likes. One record is in one arm, so that k arms
cost no more than one.

Linear: T draws for T different contexts. "weights" adds Gaussian noise to the fitted weights,
"moments" to the second moment and to the rewards' sums that the fit is made of.

    python benchmarks/utility/intrinsic_against_release.py [--seeds 40]
"""

from __future__ import annotations

import argparse
import math
from functools import cache
from typing import Any, Final

import numpy as np
from _worlds import versions
from intrinsic_worlds import MEANS, TERMS, LinearWorld, interval, share_closed, shown, softmax

from sordino.algorithms.offline_bandit import bounded_range_of_draws
from sordino.mechanisms.score_sensitivity import shrunken_mean_range
from sordino.preferences.bandit_logs import BanditLogs
from sordino.privacy.conversions import gaussian_mu
from sordino.rewards.bandits import JointFeatures, _minimize_in_ball, ball_ridge_range

EPSILON, DELTA = 1.0, 1e-6
DRAWS: Final = (1, 2, 3, 5, 10, 30, 100, 300, 1_000, 3_000, 10_000)
WANTED = 0.05  # the temperature of a policy whose randomness is wanted
SIZES: Final = {"one best by .2": (300, 1_000, 10_000), "one best by .02": (100_000,)}
NOISES: Final = 10  # releases of every peer on each log
PULLS: Final = (0.25, 1.0, 4.0, 64.0)  # made-up pulls of an arm, in real ones
LINEAR: Final = ((10_000, DELTA), (100_000, DELTA), (10_000, 0.0))
RIDGES: Final = (30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0)
BALL = 0.5


@cache
def range_of(draws: int, *, adaptive: bool = False, delta: float = DELTA) -> float:
    """Return the bounded range that one of so many draws may have."""
    return bounded_range_of_draws(
        EPSILON, delta, draws, neighbors=TERMS["neighbors"], adaptive=adaptive
    )


def at_temperature(bounded_range: float) -> tuple[float, float]:
    """Return the shrinkage that makes the wanted temperature private."""
    return max(0.0, 0.5 / (WANTED * bounded_range) - 1), WANTED


class Log:
    """Counts and sums of a log, and every method's policy on it."""

    def __init__(self, means: np.ndarray, n: int, generator: np.random.Generator) -> None:
        """Sample n pulls, uniform over arms."""
        self.means, self.n, self.generator = means, n, generator
        self.counts = generator.multinomial(n, np.full(len(means), 1 / len(means)))
        self.sums = generator.binomial(self.counts, means).astype(np.float64)

    def shrunken(self, shrinkage: float, temperature: float) -> np.ndarray:
        """Return the policy of the shrunken means."""
        fitted = (self.sums + shrinkage / 2) / (self.counts + max(shrinkage, 1e-9))
        return softmax(fitted, temperature)

    def intrinsic(self, draws: int, *, adaptive: bool = False) -> list[np.ndarray]:
        """Return the policies of so many draws, one for each number of made-up pulls."""
        found, allowed = [], range_of(draws, adaptive=adaptive)
        for share in PULLS:
            shrinkage = share * self.pulls
            moved = shrunken_mean_range(shrinkage, reward_range=1.0)
            found.append(self.shrunken(shrinkage, moved / allowed))
        return found

    def noisy_means(self) -> np.ndarray:
        """Return means of released sums and counts, half of ε for each."""
        scale = 2 / EPSILON
        sums = self.sums - self.counts / 2 + self.generator.laplace(0, scale / 2, len(self.means))
        counts = self.counts + self.generator.laplace(0, scale, len(self.means))
        return np.asarray(0.5 + np.clip(sums / np.maximum(counts, 1.0), -0.5, 0.5))

    def noisy_sums(self) -> np.ndarray:
        """Return means of released sums and a public count of pulls."""
        noise = self.generator.laplace(0, 0.5 / EPSILON, len(self.means))
        return np.asarray(0.5 + (self.sums - self.counts / 2 + noise) / self.pulls)

    @property
    def pulls(self) -> float:
        """Return how often an arm is pulled on average."""
        return self.n / len(self.means)

    def value(self, chances: np.ndarray) -> float:
        """Return the share of the gap that a policy closes."""
        return float(share_closed(chances @ self.means, self.means))

    def objective(self, chances: np.ndarray) -> float:
        """Return true mean less WANTED times KL to uniform, as a share of what can be had."""
        safe = np.maximum(chances, 1e-300)
        kept = chances @ self.means - WANTED * (chances @ np.log(safe * len(self.means)))
        best = WANTED * np.log(np.mean(np.exp(self.means / WANTED)))
        return float((kept - self.means.mean()) / (best - self.means.mean()))


def best(values: np.ndarray) -> np.ndarray:
    """Return the policy that always takes the best."""
    return softmax(values, 1e-9)


def multi_armed(name: str, n: int, seeds: int) -> dict[str, Any]:
    """Return shares of every method against the number of draws."""
    found: dict[str, list[Any]] = {}
    wanted: dict[str, list[Any]] = {}
    for seed in range(seeds):
        generator = np.random.default_rng([seed, n])
        log = Log(np.array(generator.permutation(MEANS[name])), n, generator)
        means = [log.noisy_means() for _ in range(NOISES)]
        sums = [log.noisy_sums() for _ in range(NOISES)]
        shares: dict[str, Any] = {
            name: [[log.value(one) for one in log.intrinsic(t, adaptive=alone)] for t in DRAWS]
            for name, alone in (("intrinsic", False), ("intrinsic, one by one", True))
        }
        shares |= {
            "means": np.mean([log.value(best(one)) for one in means]),
            "sums": np.mean([log.value(best(one)) for one in sums]),
            "not private": log.value(best(log.sums / np.maximum(log.counts, 1))),
        }
        single = np.array([log.objective(row) for row in np.eye(len(log.means))])
        objectives: dict[str, Any] = {
            "intrinsic": [
                log.objective(log.shrunken(*at_temperature(range_of(draws)))) for draws in DRAWS
            ],
            "one arm": [float(once @ single) for once in log.intrinsic(1)],
            "means": np.mean([log.objective(softmax(one, WANTED)) for one in means]),
            "sums": np.mean([log.objective(softmax(one, WANTED)) for one in sums]),
        }
        for into, values in ((found, shares), (wanted, objectives)):
            for method, value in values.items():
                into.setdefault(method, []).append(value)
    share = {method: summary(values) for method, values in found.items()}
    share["one arm"] = share["intrinsic"][0]
    return {
        "means": name,
        "n": n,
        "share": share,
        "objective": {method: summary(values) for method, values in wanted.items()},
        "share_above": above(found),
        "objective_above": above({key: wanted[key] for key in ("intrinsic", "means", "sums")}),
    }


def above(found: dict[str, list[Any]]) -> dict[str, Any]:
    """Return what intrinsic draws gain over every peer on the same logs, for each number of draws.

    A positive interval is a win; a peer with a setting has that of its highest mean.
    """
    ours, gained = np.array(found["intrinsic"]), {}
    for method in ("means", "sums", "weights", "moments"):
        peer = np.array(found.get(method, []))
        if peer.size:
            if peer.ndim == 2:
                peer = peer[:, peer.mean(axis=0).argmax()]
            shape = (-1,) + (1,) * (ours.ndim - 1)
            gained[method] = summary(list(ours - peer.reshape(shape)))
    return gained


def summary(values: list[Any]) -> Any:
    """Return mean and half width: one, or one for each number of draws.

    Where a setting was tried at several values (last axis), that of the highest mean counts, for
    ours and for the peers alike.
    """
    table = np.array(values)  # seeds (× draws) (× settings)
    if table.ndim == 1:
        return interval(table)
    if table.shape[1] == len(DRAWS):
        return [summary(list(table[:, at])) for at in range(len(DRAWS))]
    return interval(table[:, table.mean(axis=0).argmax()])


def linear(n: int, delta: float, seeds: int) -> dict[str, Any]:
    """Return shares of linear methods, each with the ridge that serves it best on average."""
    found: dict[str, list[Any]] = {"intrinsic": [], "weights": [], "moments": []}
    for seed in range(seeds):
        world = LinearWorld(np.random.default_rng([seed, 7]))
        generator = np.random.default_rng([seed, n])
        sums = Sums(world, world.logged(n, generator))
        rows = [at_ridge(world, sums, ridge, delta, generator) for ridge in RIDGES]
        found["intrinsic"].append(np.transpose([row[0] for row in rows]))
        for at, method in ((1, "weights"), (2, "moments")):
            found[method].append([row[at] for row in rows])
    if not delta:
        del found["moments"]  # of Gaussian noise alone
    return {
        "n": n,
        "delta": delta,
        "share": {method: summary(values) for method, values in found.items()},
        "share_above": above(found),
    }


class Sums:
    """What a linear fit is made of: Σφφᵀ and Σrφ of a log, rewards counted from the middle."""

    def __init__(self, world: LinearWorld, logs: BanditLogs) -> None:
        """Sum over the log; features are those of ``linear_policy``."""
        features = JointFeatures.of(logs)
        d, arms = features.dimension, np.arange(world.arms)
        self.spread, self.dimension = features.spread, d
        self.moment, self.pull = np.zeros((d, d)), np.zeros(d)
        for part, rows in features.blocks(logs):
            self.moment += rows.T @ rows
            self.pull += rows.T @ (logs.rewards[part] - 0.5)
        self.asked = np.stack([features.options(row, arms) for row in world.tested])

    def fitted(self, ridge: float, deviation: float, generator: np.random.Generator) -> np.ndarray:
        """Return the scores of a fit, with symmetric noise of a deviation on both sums."""
        d = self.dimension
        draws = generator.standard_normal((d, d)) * deviation
        values, basis = np.linalg.eigh(self.moment + np.triu(draws) + np.triu(draws, 1).T)
        moment = (basis * np.maximum(values + ridge, ridge)) @ basis.T
        pull = self.pull + generator.standard_normal(d) * deviation
        return np.asarray(self.asked @ _minimize_in_ball(moment, pull, BALL))


def at_ridge(
    world: LinearWorld, sums: Sums, ridge: float, delta: float, generator: np.random.Generator
) -> tuple[list[float], float, float]:
    """Return shares of intrinsic draws (for every number of them), noisy weights, moments."""
    moved = ball_ridge_range(
        ridge, spread=sums.spread, ball=BALL, reward_range=1.0, neighbors=TERMS["neighbors"]
    )
    scores = sums.fitted(ridge, 0.0, generator)
    drawn = [
        worth(world, softmax(scores, moved / range_of(t, adaptive=True, delta=delta)))
        for t in DRAWS
    ]
    noise = generator.standard_normal((NOISES, sums.dimension))
    sensitivity = moved / sums.spread
    if delta:
        noise *= sensitivity / gaussian_mu(EPSILON, delta)
    else:  # density ∝ exp(−ε‖noise‖/sensitivity)
        sizes = generator.gamma(sums.dimension, sensitivity / EPSILON, size=(NOISES, 1))
        noise *= sizes / np.linalg.norm(noise, axis=1, keepdims=True)
    weights = np.mean([worth(world, best(scores + sums.asked @ one)) for one in noise])
    if not delta:
        return drawn, float(weights), math.nan
    deviation = math.sqrt(1.25) / gaussian_mu(EPSILON, delta)  # one record: ‖φφᵀ‖ ≤ 1, |r|‖φ‖ ≤ ½
    found = [best(sums.fitted(ridge, deviation, generator)) for _ in range(NOISES)]
    return drawn, float(weights), float(np.mean([worth(world, one) for one in found]))


def worth(world: LinearWorld, chances: np.ndarray) -> float:
    """Return the share of the gap that policies for the tested contexts close."""
    value = (chances * world.values).sum(axis=1).mean()
    uniform, top = world.values.mean(), world.values.max(axis=1).mean()
    return float((value - uniform) / (top - uniform))


def measure(seeds: int) -> dict[str, Any]:
    """Return all that is measured."""
    return {
        "name": "intrinsic_against_release",
        "epsilon": EPSILON,
        "delta": DELTA,
        "relation": TERMS["neighbors"].name,
        "draws": DRAWS,
        "wanted_temperature": WANTED,
        "logs": {"multi_armed": 10 * seeds, "linear": seeds // 2},
        "releases_of_each": NOISES,
        "multi_armed": [
            multi_armed(name, n, 10 * seeds) for name, sizes in SIZES.items() for n in sizes
        ],
        "linear": [linear(n, delta, seeds // 2) for n, delta in LINEAR],
        "made_up_pulls": PULLS,
        "ball": BALL,
        "ridges": RIDGES,
        "versions": versions() | {"numpy": np.__version__},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    print(shown(measure(**vars(parser.parse_args()))))
