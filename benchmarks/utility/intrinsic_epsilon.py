"""Prints as JSON the ε of one draw against records, pessimism and temperature, ours and published.

Ours holds for every data set and is public. The published certificate (KLDP) is a number of one
data set: it is computed here for a balanced log, and somebody who sees it learns something about
that log. "true" is the largest loss of that very data set, over all neighbors of one record more
or less and all references. Where a published certificate is below a loss that exists, it is false.

    python benchmarks/utility/intrinsic_epsilon.py
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from _worlds import versions
from intrinsic_worlds import shown
from scipy.special import expit

from sordino.mechanisms.score_sensitivity import constrained_ridge_range, shrunken_mean_range

sys.path.append(  # what the paper states is kept with the tests
    str(Path(__file__).resolve().parents[2] / "tests" / "claims")
)
import published_kldp as published
from proved_bounds import closed_form_label_range

ARMS: Final = 10
BASE: Final[dict[str, Any]] = {"n": 10_000, "penalty": 1.0, "temperature": 0.05}
GRIDS: Final[dict[str, Sequence[float]]] = {
    "n": [round(10 ** (2.5 + step / 8)) for step in range(29)],
    "penalty": [5 * step for step in range(41)],
    "temperature": [round(10 ** (-2 + step / 10), 5) for step in range(21)],
}
"""What is varied; the other two stay as in BASE."""


def moved_means(count: int, penalty: float) -> float:
    """Return how far a new pull with reward 1 moves an arm of so many pulls with reward 0."""
    less: float = count**-0.5 - (count + 1) ** -0.5
    return 1 / (count + 1) + penalty * less


def multi_armed(n: int, penalty: float, temperature: float) -> dict[str, float]:
    """Return ε of ten arms with n/10 pulls each, and as many made-up ones for ours."""
    count = n // ARMS
    ours = shrunken_mean_range(count, reward_range=1.0, penalty=penalty) / temperature
    stated = published.published_theorem_1(
        [count] * ARMS, temperature=temperature, reward_range=1.0, penalty=penalty
    )
    return {
        "ours": ours,
        "published": stated,
        "true": moved_means(count, penalty) / temperature,
    }


def ridge_of_worst_line(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the log of KLDP's worst case on a line: what one record at the far end moves most.

    Features √½ and rewards 1, and one record with feature −1 and reward 1.
    """
    rows = np.full((n, 1), math.sqrt(0.5))
    rows[-1] = -1.0
    return rows, np.ones(n)


def moved_fit(rows: np.ndarray, rewards: np.ndarray, ridge: float, penalty: float) -> float:
    """Return how far the removal of the last record moves the score of feature 1 against −1.

    The penalty of the two is the same, so against an arm of feature 0 it adds its own step.
    """

    def fit(rows: np.ndarray, rewards: np.ndarray) -> tuple[float, float]:
        moment = ridge + float((rows**2).sum())
        return float(rows[:, 0] @ rewards) / moment, penalty / math.sqrt(moment)

    (one, cost), (other, less) = fit(rows, rewards), fit(rows[:-1], rewards[:-1])
    return max(2 * abs(one - other), abs(one - other) + abs(cost - less))


def linear(n: int, penalty: float, temperature: float) -> dict[str, float]:
    """Return ε of a line with n records; ours has a ridge of n/2, the plain fit 1."""
    rows, rewards = ridge_of_worst_line(n)
    least = 1.0 + float((rows**2).sum())
    settings = {"temperature": temperature, "reward_range": 1.0, "penalty": penalty}
    ours = constrained_ridge_range(n / 2, spread=2.0, ball=1.0, reward_bound=1.0, penalty=penalty)
    return {
        "ours": ours / temperature,
        "published": published.published_theorem_2(least, n, 1, **settings),
        "published_appendix": published.published_theorem_2_appendix(least, n, 1, **settings),
        "true": moved_fit(rows, rewards, 1.0, penalty) / temperature,
    }


def approximate(n: int) -> dict[str, float]:
    """Return the δ of Theorem 1 for arms of n and 2 pulls, and the true one at the same ε.

    The first arm paid 0 and the second 1; one record of the second is removed.
    """
    settings = {"temperature": 0.01, "reward_range": 1.0, "penalty": 1.0}
    epsilon, delta = published.published_theorem_1_approximate([n, 2], 100, **settings)
    before, after = (
        float(expit(-(1 - penalty + n**-0.5) / settings["temperature"]))
        for penalty in (2**-0.5, 1.0)
    )  # how often the first arm is drawn: hardly ever, then almost every other time
    true = after - math.exp(epsilon) * before
    return {"n": n, "epsilon": epsilon, "published_delta": delta, "true_delta": true}


def label(n: int) -> dict[str, float]:
    """Return ε of a flipped label: n pairs on a line, x = ±2, as many won as lost before.

    Temperature 4/n, ridge 1 and the ball that holds the fit after the flip, as in the table of
    counterexamples; the reference makes the arm that moves rare.
    """
    ball = math.log((n / 2 + 1) / (n / 2 - 1)) / 2
    temperature, least = 4 / n, 1.0 + 4 * n
    return {
        "n": n,
        "ours": closed_form_label_range(least - 1, ball=ball) / temperature,
        "published": published.published_theorem_3(least, 1.0, ball, temperature=temperature),
        "true": 2 * ball / temperature,
    }


def swept(rule: Callable[..., dict[str, float]]) -> dict[str, list[dict[str, float]]]:
    """Return what a rule gives along every grid."""
    return {
        name: [{name: value} | rule(**(BASE | {name: value})) for value in grid]
        for name, grid in GRIDS.items()
    }


def measure() -> dict[str, Any]:
    """Return all that is drawn."""
    sizes = [2 * round(10 ** (1 + step / 4) / 2) for step in range(13)]
    return {
        "name": "intrinsic_epsilon",
        "base": BASE,
        "arms": ARMS,
        "multi_armed": swept(multi_armed),
        "linear": swept(linear),
        "theorem_1_approximate": [approximate(n * 100) for n in sizes],
        "theorem_3": [label(n) for n in sizes],
        "versions": versions(),
    }


def rounded(value: Any) -> Any:
    """Return the same with six digits."""
    return json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.6g}"))


if __name__ == "__main__":
    print(shown(rounded(measure())))
