"""Prints as JSON what private policies are worth on a real log of clicks, by importance weights.

10,000 impressions of 34 items, shown uniformly at random; about 5 in 1,000 were clicked. Half of
the log is learned from and the other half evaluates, twenty times, each half in each role. The
value of a policy is the weighted mean of the clicks of the other half. Intervals are from 400
resamples of the impressions that evaluate, policies kept; beside them stands how far values of
single halves are apart.

    python benchmarks/utility/intrinsic_real.py [--splits 10]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import numpy as np
from _worlds import versions
from intrinsic_worlds import TERMS, chances_of, shown, softmax
from real_accuracy import DATA

from sordino.algorithms.offline_bandit import linear_policy, multi_armed_policy
from sordino.preferences.bandit_logs import BanditLogs, Catalogue, read_bandit_logs

LOG, ITEMS = DATA / "obd_random_men.csv.gz", DATA / "obd_men_item_context.csv"
ARMS, DELTA, RESAMPLES = 34, 1e-6, 400
EPSILONS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
DRAWS: Final = (1, 10, 100)
RECORDS: Final = 5_000  # half of a log whose size somebody tells, as for a daily quota
COLUMNS: Final = tuple(f"user_feature_{number}:4" for number in range(4))
BASE_RATE: Final = 0.005  # of clicks, from elsewhere; a center need not be true
MULTI_ARMED: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "center 0": {"center": 0.0},
    "records": {"records": RECORDS},
    "records, center 0": {"records": RECORDS, "center": 0.0},
    "records, center .005": {"records": RECORDS, "center": BASE_RATE},
}
LINEAR: Final[dict[str, dict[str, Any]]] = {"linear": {}, "linear, records": {"records": RECORDS}}

Rule = Callable[[BanditLogs, BanditLogs], np.ndarray]
"""From logs to learn from and logs to evaluate on: how likely each shown item was to be drawn."""


def read() -> BanditLogs:
    """Return the log, with contexts and the one number that is known of each item."""
    catalogue = Catalogue.read(ITEMS, arm="item_id", features=["item_feature_0"])
    return read_bandit_logs(
        LOG,
        arm="item_id",
        reward="click",
        catalogue=catalogue,
        reward_range=(0, 1),
        context_columns=COLUMNS,
        propensity="propensity_score",
    )


def part(logs: BanditLogs, rows: np.ndarray) -> BanditLogs:
    """Return some records; which ones is chosen without looking at them."""
    assert logs.contexts is not None
    assert logs.propensities is not None
    return BanditLogs(
        logs.arms[rows],
        logs.rewards[rows],
        catalogue=logs.catalogue,
        reward_range=logs.reward_range,
        contexts=logs.contexts[rows],
        context_columns=logs.context_columns,
        context_bound=logs.context_bound,
        propensities=logs.propensities[rows],
    )


def greedy(known: BanditLogs, asked: BanditLogs) -> np.ndarray:
    """Return 1 where the shown item has the highest mean of the half to learn from."""
    counts = np.bincount(known.arms, minlength=ARMS)
    sums = np.bincount(known.arms, weights=known.rewards, minlength=ARMS)
    means = sums / np.maximum(counts, 1)
    return np.asarray(((means == means.max()) / (means == means.max()).sum())[asked.arms])


def multi_armed(settings: dict[str, Any]) -> Rule:
    """Return the rule of a private policy over arms; calibrated once, without any record."""
    fixed: dict[str, Any] = {}

    def rule(known: BanditLogs, asked: BanditLogs) -> np.ndarray:
        policy: Any = multi_armed_policy(known, **(fixed or settings), **TERMS)
        if not fixed:
            fixed.update(temperature=policy.temperature, shrinkage=policy.estimate.shrinkage)
            fixed.update({key: settings[key] for key in ("center",) if key in settings})
        return np.asarray(chances_of(policy)[asked.arms])

    return rule


def linear(settings: dict[str, Any]) -> Rule:
    """Return the rule of a private linear policy."""

    def rule(known: BanditLogs, asked: BanditLogs) -> np.ndarray:
        policy: Any = linear_policy(known, **settings, **TERMS)
        estimate = policy.estimate
        assert asked.contexts is not None
        contexts, which = np.unique(asked.contexts, axis=0, return_inverse=True)
        scores = [estimate._scores(estimate.options(context, None)) for context in contexts]
        chances = softmax(np.array(scores), policy.temperature)
        return np.asarray(chances[which.ravel(), asked.arms])

    return rule


def linear_greedy(known: BanditLogs, asked: BanditLogs) -> np.ndarray:
    """Return the rule of a plain ridge of 1 without privacy, as good as greedy."""
    settings = {"ridge": 1.0, "ball": 100.0, "temperature": 1e-7}
    return linear(settings)(known, asked)


def halves(n: int, splits: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield halves to learn from and to evaluate on; each half has both roles."""
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(n)
        first, second = order[: n // 2], order[n // 2 :]
        yield first, second
        yield second, first


def contributions(logs: BanditLogs, rule: Rule, splits: int) -> tuple[np.ndarray, list[float]]:
    """Return what each record adds to the value, averaged over splits, and values of halves."""
    total, values = np.zeros(len(logs.arms)), []
    for known, asked in halves(len(logs.arms), splits):
        half = part(logs, asked)
        assert half.propensities is not None
        weighted = rule(part(logs, known), half) / half.propensities * half.rewards
        total[asked] += weighted / splits
        values.append(float(weighted.mean()))
    return total, values


def rules() -> Iterator[tuple[dict[str, Any], Rule]]:
    """Yield what is measured."""
    yield {"policy": "uniform", "epsilon": 0.0}, lambda _, asked: np.full(len(asked.arms), 1 / ARMS)
    yield {"policy": "greedy", "epsilon": np.inf}, greedy
    yield {"policy": "linear, greedy", "epsilon": np.inf}, linear_greedy
    for epsilon, draws in product(EPSILONS, DRAWS):
        terms: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "draws": draws}
        told = {"epsilon": epsilon, "draws": draws}
        for name, settings in MULTI_ARMED.items():
            yield {"policy": name} | told, multi_armed(terms | settings)
        for name, settings in LINEAR.items():
            yield {"policy": name} | told, linear(terms | {"adaptive": True} | settings)


def measure(splits: int) -> dict[str, Any]:
    """Return values in clicks per 1,000, with intervals, and above uniform."""
    logs = read()
    n = len(logs.arms)
    draws = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n
    plain, rows = np.zeros(n), []
    for told, rule in rules():
        added, values = contributions(logs, rule, splits)
        plain = added if told["policy"] == "uniform" else plain
        resampled, above = draws @ added, draws @ (added - plain)
        rows.append(
            {key: None if value == np.inf else value for key, value in told.items()}
            | {
                "clicks_per_1000": round(1000 * added.mean(), 3),
                "interval_95": [round(1000 * q, 3) for q in np.quantile(resampled, (0.025, 0.975))],
                "above_uniform": round(1000 * (added - plain).mean(), 3),
                "above_interval_95": [
                    round(1000 * q, 3) for q in np.quantile(above, (0.025, 0.975))
                ],
                "halves_standard_deviation": round(1000 * float(np.std(values, ddof=1)), 3),
            }
        )
    return {
        "name": "intrinsic_real",
        "log": "Open Bandit Dataset (small), men, uniform logging, 10,000 impressions, 34 items",
        "delta": DELTA,
        "relation": TERMS["neighbors"].name,
        "splits": splits,
        "resamples": RESAMPLES,
        "results": rows,
        "versions": versions() | {"numpy": np.__version__},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10)
    given = parser.parse_args()
    if LOG.exists() and ITEMS.exists():
        print(shown(measure(given.splits)))
    else:
        print(shown({"name": "intrinsic_real", "skipped": f"{LOG.name} is not there"}))
