"""What the studies with noise on draws share: bandits with known means, and how well one chose."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import t as student

import sordino
from sordino.policies.gibbs import WithheldPolicy
from sordino.preferences.bandit_logs import BanditLogs, Catalogue
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE

ARMS: Final = 10
MEANS: Final = {
    "one best by .2": [0.4] * 9 + [0.6],
    "evenly spread": [round(0.05 + 0.1 * arm, 2) for arm in range(ARMS)],
    "one best by .02": [0.49] * 9 + [0.51],
    "rare rewards": [0.005] * 9 + [0.015],
}
"""True mean rewards of 0 or 1; the gap from uniform to best is .18, .45, .018 and .009."""

TERMS: Final[dict[str, Any]] = {"unit": "record", "neighbors": ADD_OR_REMOVE_ONE}


def logged(
    means: np.ndarray, n: int, generator: np.random.Generator, *, skewed: bool = False
) -> BanditLogs:
    """Return n pulls and rewards of 0 or 1; the arms stand in a random order.

    Args:
        means: True means in that order.
        n: How many.
        generator: Randomness.
        skewed: Whether arm a was pulled in proportion to 1/(a + 1), not uniformly.
    """
    k = len(means)
    chances = 1 / (1.0 + np.arange(k)) if skewed else np.ones(k)
    arms = generator.choice(k, size=n, p=chances / chances.sum())
    rewards = (generator.random(n) < means[arms]).astype(np.float64)
    return BanditLogs.from_arrays(arms, rewards, catalogue=k, reward_range=(0.0, 1.0))


def softmax(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Return the policy ∝ exp(score / temperature), over the last axis."""
    weights = np.exp((scores - scores.max(axis=-1, keepdims=True)) / temperature)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def chances_of(policy: WithheldPolicy) -> np.ndarray:
    """Return what a policy over arms draws with; in a study alone, for it is confidential."""
    estimate: Any = policy.estimate
    scores = estimate._scores(estimate.options(None, None))
    return softmax(np.array([float(score) for score in scores]), policy.temperature)


def share_closed(value: Any, means: np.ndarray) -> Any:
    """Return the share of the gap from uniform to best that a true value closes."""
    return (value - means.mean()) / (means.max() - means.mean())


def interval(values: Any) -> list[float]:
    """Return mean and 95% half width (Student's) over repetitions."""
    found = np.asarray(values, dtype=np.float64)
    half = student.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    return [round(float(found.mean()), 4), round(float(half), 4)]


def shown(value: Any, indent: str = "") -> str:
    """Return JSON with one line for whatever fits on one."""
    line = json.dumps(value)
    if len(indent) + len(line) <= 150 or not isinstance(value, dict | list | tuple):
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(key)}: {shown(one, inner)}" for key, one in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + shown(one, inner) for one in value) + f"\n{indent}]"


def drawn(policy: WithheldPolicy, count: int, *, seed: int, delta: float, epsilon: float) -> Any:
    """Return arms that a policy draws at once, on a ledger whose budget is (epsilon, delta)."""
    budget = sordino.Guarantee(epsilon, delta=delta, trust="central", **TERMS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spend.db"
        with sordino.Ledger.open(path, data="log", budget=budget) as ledger:
            return policy.draw_many(count, ledger=ledger, simulate_seed=seed)


class LinearWorld:
    """Twenty arms with four features, contexts with four, and rewards of 0 or 1 linear in both."""

    arms, arm_size, context_size = 20, 4, 4

    def __init__(self, generator: np.random.Generator) -> None:
        """Choose what is public (features) and what is true (weights)."""
        features = generator.standard_normal((self.arms, self.arm_size))
        names = tuple(str(arm) for arm in range(self.arms))
        self.catalogue = Catalogue(names, features=features)
        self.weights = generator.standard_normal((self.arm_size, self.context_size + 1))
        self.tested = self.contexts(500, generator)
        largest = np.abs(self._raw(self.tested)).max()
        self.weights *= 0.45 / largest
        self.values = 0.5 + np.clip(self._raw(self.tested), -0.45, 0.45)

    def _raw(self, contexts: np.ndarray) -> np.ndarray:
        seen = np.hstack([np.ones((len(contexts), 1)), contexts])
        features = self.catalogue.features
        assert features is not None
        return np.asarray(seen @ self.weights.T @ features.T)

    def contexts(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Return n contexts, uniform on the sphere."""
        rows = generator.standard_normal((n, self.context_size))
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True) * (1 - 1e-9))

    def logged(self, n: int, generator: np.random.Generator) -> BanditLogs:
        """Return n pulls, uniform over arms."""
        contexts = self.contexts(n, generator)
        arms = generator.integers(self.arms, size=n)
        means = 0.5 + np.clip(self._raw(contexts)[np.arange(n), arms], -0.45, 0.45)
        rewards = (generator.random(n) < means).astype(np.float64)
        return BanditLogs.from_arrays(
            arms, rewards, catalogue=self.catalogue, reward_range=(0.0, 1.0), contexts=contexts
        )

    def share(self, policy: WithheldPolicy) -> float:
        """Return the share of the gap that draws for new contexts close, on average."""
        estimate: Any = policy.estimate
        scores = [estimate._scores(estimate.options(row, None)) for row in self.tested]
        value = (softmax(np.array(scores), policy.temperature) * self.values).sum(axis=1).mean()
        uniform, best = self.values.mean(), self.values.max(axis=1).mean()
        return float((value - uniform) / (best - uniform))
