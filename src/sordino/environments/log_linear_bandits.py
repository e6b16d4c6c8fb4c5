"""Contextual bandits on a fixed list of contexts: tabular, log-linear, and the hardest ones."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from sordino import _validate
from sordino.errors import DataError
from sordino.policies.log_linear import LogLinearPolicy, one_hot_features

from .hard_instances import HardInstance
from .linear_rewards import LinearRewardWorld, unit_vectors

__all__ = ["LogLinearBandit", "hard_bandit", "tabular_bandit"]

_ROUNDED = 1e-9  # numbers that a user writes down are rounded


@dataclass(frozen=True, eq=False, repr=False)
class LogLinearBandit(LinearRewardWorld):
    """Users who come from a list of contexts, with a reward that is linear in given features.

    Source:
        docs/policy_optimization.md, "Environments".

    Attributes:
        reward_noise: Standard deviation of the noise, ≥ 0, in units of reward.
        weights: θ*, shape (d,).
        features: φ of all actions in all contexts, shape (s, k, d).
        chances: How often each context occurs, shape (s,), summing to 1; equally often if left
            out.
        feature_bound: The largest norm of features, > 0; no feature may be longer.
        reward_bound: What rewards are cut to, > 0.
        start: A policy that the world suggests to begin from, or to explore with, or None.

    Raises:
        DataError: Shapes disagree, an entry is not finite, a feature is longer than the bound, or
            the chances are no distribution.
        UsageError: A number is out of range.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> world = LogLinearBandit.random(rng, contexts=20, actions=3, dimension=5)
        >>> world.contexts(rng, 100).shape
        (100, 3, 5)
    """

    _: KW_ONLY
    weights: Float[np.ndarray, " d"]
    features: Float[np.ndarray, "s k d"]
    chances: Float[np.ndarray, " s"] | None = None
    feature_bound: float = 1.0
    reward_bound: float = 1.0
    start: LogLinearPolicy | None = None
    _reached: Float[np.ndarray, " s"] = field(init=False)

    def __post_init__(self) -> None:
        """Refuse what is no world."""
        super().__post_init__()
        weights = _validate.finite_array("weights", self.weights, ndim=1)
        features = _validate.finite_array("features", self.features, ndim=3)
        if not features.size or features.shape[2] != len(weights):
            raise DataError(
                f"features must have shape (s, k, {len(weights)}), got {features.shape}."
            )
        _validate.positive("reward_bound", self.reward_bound)
        longest = float(np.linalg.norm(features, axis=2).max())
        if longest > _validate.positive("feature_bound", self.feature_bound) * (1 + _ROUNDED):
            raise DataError(
                f"features must have norms of at most feature_bound={self.feature_bound!r}, got "
                f"one of norm {longest:.6g}."
            )
        chances = _distribution(self.chances, len(features))
        self._keep(weights=weights, features=features, chances=chances)
        self._keep(_reached=np.cumsum(chances))

    def __repr__(self) -> str:
        """Return the sizes."""
        s, k, d = self.features.shape
        return f"LogLinearBandit({s} contexts, {k} actions, d={d})"

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        *,
        contexts: int,
        actions: int,
        dimension: int,
        reward_noise: float = 0.5,
    ) -> LogLinearBandit:
        """Return a world with features and θ* that are uniform unit vectors.

        Args:
            rng: Randomness of the world.
            contexts: s ≥ 1.
            actions: k ≥ 1.
            dimension: d ≥ 1.
            reward_noise: Standard deviation of the noise, ≥ 0.

        Raises:
            UsageError: A number is out of range.
        """
        sizes = {"contexts": contexts, "actions": actions, "dimension": dimension}
        s, k, d = (_validate.integer(name, size, at_least=1) for name, size in sizes.items())
        features, truth = unit_vectors(rng, s, k, d), unit_vectors(rng, d)
        return cls(reward_noise, weights=truth, features=features)

    def states(self, rng: np.random.Generator, n: int) -> Int[np.ndarray, " n"]:
        """Return the numbers of the contexts of n users, as :meth:`contexts` draws them.

        Args:
            rng: Randomness of the world.
            n: Number of users, ≥ 1.
        """
        # a number below 1 times the total is below it also when rounded, so that a context that
        # never occurs is never drawn
        levels = rng.random(_validate.integer("n", n, at_least=1)) * self._reached[-1]
        return np.asarray(np.searchsorted(self._reached, levels, side="right"))

    def contexts(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n k d"]:
        """Return the features of all actions of n users.

        Args:
            rng: Randomness of the world.
            n: Number of users, ≥ 1.
        """
        return np.asarray(self.features[self.states(rng, n)])


def tabular_bandit(
    rewards: Float[np.ndarray, "s a"],
    *,
    chances: Float[np.ndarray, " s"] | None = None,
    reward_noise: float = 0.5,
) -> LogLinearBandit:
    """Return the world in which state and action have a mean reward of their own.

    Features are one-hot, d = s · a, so that a log-linear policy is a tabular one
    (:class:`sordino.policies.log_linear.TabularPolicy`).

    Source:
        docs/policy_optimization.md, "Environments".

    Args:
        rewards: Mean rewards, shape (states, actions); rewards are cut to [−1, 1], or to the
            largest of them in absolute value where that is more.
        chances: How often each state occurs; equally often if left out.
        reward_noise: Standard deviation of the noise, ≥ 0.

    Raises:
        DataError: The rewards are no table of finite numbers, or the chances no distribution.

    Example:
        >>> world = tabular_bandit(np.array([[0.0, 1.0], [0.5, 0.0]]))
        >>> world.suboptimality(LogLinearPolicy.uniform(4), np.random.default_rng(0), 10_000)
        0.37...
    """
    table = _validate.finite_array("rewards", rewards, ndim=2)
    if not table.size:
        raise DataError("rewards must have at least one state and one action.")
    return LogLinearBandit(
        reward_noise,
        weights=table.ravel(),
        features=one_hot_features(*table.shape),
        chances=chances,
        reward_bound=max(1.0, float(abs(table).max())),
    )


def hard_bandit(instance: HardInstance, *, reward_noise: float = 0.5) -> LogLinearBandit:
    """Return a hard instance as a world with rewards, and its reference as ``start``.

    The reference takes the rare action, which may be the good one, with probability 1/C.

    Source:
        docs/policy_optimization.md, "Environments"; PPKL, Theorem 4.5 (the construction in its
        proof).

    Args:
        instance: The contexts and their signs.
        reward_noise: Standard deviation of the noise, ≥ 0.

    Example:
        >>> instance = HardInstance(
        ...     signs=np.array([1, -1]), concentrability=4.0, gap=0.5, level=0.0
        ... )
        >>> world = hard_bandit(instance)
        >>> world.start.probabilities(world.features).round(6).tolist()
        [[0.75, 0.25], [0.75, 0.25]]
    """
    return LogLinearBandit(
        reward_noise,
        weights=instance.weights,
        features=instance.features,
        reward_bound=max(1.0, float(abs(instance.weights).max())),
        start=LogLinearPolicy(np.full(len(instance.signs), -np.log(instance.concentrability - 1))),
    )


def _distribution(chances: Any, size: int) -> Float[np.ndarray, " s"]:
    """Return probabilities of ``size`` contexts; uniform if None."""
    if chances is None:
        return np.full(size, 1 / size)
    found = _validate.finite_array("chances", chances, ndim=1)
    if len(found) != size or (found < 0).any() or abs(found.sum() - 1) > _ROUNDED:
        raise DataError(f"chances must be {size} numbers of at least 0 that sum to 1.")
    return found
