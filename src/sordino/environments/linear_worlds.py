"""Worlds whose mean reward is linear in the features, so that the best policy is known.

Contexts with actions that people compare, and a reward that is known.

Everything is generated. Comparisons cross into a fit as real ones do, by mechanism and ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from sordino import _validate
from sordino.errors import DataError
from sordino.policies.softmax import ActionPolicy, checked_actions
from sordino.preferences.pairs import Pairs

from .values import gibbs_rows, kl_regret, prefer_first

_FRESH = 3_000
_INSIDE = 1 + 2.0**-50  # lengths are taken a rounding too long, so that no row is over the bound


@dataclass(frozen=True, eq=False)
class LinearRewardWorld(ABC):
    """Users whose reward is weightsᵀφ plus normal noise, cut to ±reward_bound."""

    # Kinds differ in who the users are. What is called value and suboptimality is that of the mean
    # weightsᵀφ, before noise and cutting.
    # Source: docs/policy_optimization.md, "Environments".

    reward_noise: float = 0.5  # standard deviation of the noise, ≥ 0, in units of reward
    weights: Float[np.ndarray, " d"] = field(init=False, repr=False)  # θ*, the truth, shape (d,)
    # The largest norm of features.
    feature_bound: float = field(init=False, default=1.0, repr=False)
    reward_bound: float = field(init=False, default=1.0, repr=False)  # what rewards are cut to

    def __post_init__(self) -> None:
        """Refuse what is no noise."""
        noise = _validate.non_negative("reward_noise", self.reward_noise)
        if noise:
            _validate.positive("reward_noise", noise)

    def _keep(self, **known: Any) -> None:
        """Set what follows from the settings."""
        for name, value in known.items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def contexts(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n k d"]:
        """Return the features of all actions of n users."""

    @property
    def dimension(self) -> int:
        """Return d, the number of features."""
        return len(self.weights)

    def mean_rewards(self, features: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "*shape"]:
        """Return weightsᵀφ of every action of every user."""
        return np.asarray(features @ self.weights)

    def reward(
        self,
        context: Float[np.ndarray, "n k d"],
        action: Int[np.ndarray, " n"],
        rng: np.random.Generator,
    ) -> Float[np.ndarray, " n"]:
        """Return what each of n users felt after the action taken."""
        n, k, _ = np.shape(context)
        felt = context[np.arange(n), checked_actions(action, n, k)] @ self.weights
        if self.reward_noise:
            felt = felt + self.reward_noise * rng.standard_normal(n)
        return np.asarray(np.clip(felt, -self.reward_bound, self.reward_bound))

    def value(
        self,
        probabilities: Float[np.ndarray, "n k"],
        features: Float[np.ndarray, "n k d"],
    ) -> float:
        """Return the mean reward of a policy over given users."""
        means = self.mean_rewards(features)
        if np.shape(probabilities) != means.shape:
            raise DataError(
                f"probabilities must have shape {means.shape}, got {np.shape(probabilities)}."
            )
        return float((probabilities * means).sum(axis=1).mean())

    def suboptimality(
        self, policy: ActionPolicy, rng: np.random.Generator, n: int = _FRESH
    ) -> float:
        """Return how much mean reward a policy gives away on fresh users, at least 0."""
        # Source: docs/policy_optimization.md, "Environments": E max θ*ᵀφ − E π θ*ᵀφ.
        features = self.contexts(rng, n)
        best = float(self.mean_rewards(features).max(axis=1).mean())
        return max(best - self.value(policy.probabilities(features), features), 0.0)


def unit_vectors(rng: np.random.Generator, *shape: int) -> Float[np.ndarray, "*shape"]:
    """Return uniform unit vectors along the last axis; no square sum exceeds 1 by a rounding."""
    found = rng.standard_normal(shape)
    lengths = np.sqrt(np.einsum("...d,...d->...", found, found))
    found /= np.maximum(lengths, np.finfo(float).tiny)[..., None] * _INSIDE
    return found


_WEIGHTS, _CONTEXTS, _COMPARISONS = 1, 2, 3  # streams: equal seeds share nothing


@dataclass(frozen=True, kw_only=True, eq=False)
class Judgments:
    """Raw comparisons of a simulated world, in no order that could tell who won.

    Attributes:
        differences: φ(first) − φ(second), one row a comparison; the two answers differ.
        labels: 1 where the first was preferred, else 0.
        drawn: How many were drawn; where both answers were one action, there is no row.
    """

    differences: Float[np.ndarray, "n d"]
    labels: Int[np.ndarray, " n"]
    drawn: int

    def __repr__(self) -> str:
        """Return the size; never data."""
        return f"Judgments(n={len(self.labels)})"

    def pairs(self) -> Pairs:
        """Return raw pairs that :func:`sordino.privatize` takes."""
        return Pairs.from_features(self.differences, self.labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearPreferences:
    """Contexts with k actions, each a random unit vector, and a reward that is linear in it.

    People follow the reward with Bradley–Terry noise. The reference is uniform over the actions
    of a context, and both answers of a comparison are drawn from it.

    Attributes:
        weights: θ*, shape (d,); rewards are θ*ᵀφ.
        actions: k ≥ 2, how many actions a context offers.

    Raises:
        DataError: The weights are not finite numbers in one dimension.
        UsageError: There are fewer than two actions.

    Example:
        >>> world = LinearPreferences.random(dimension=8, actions=4, size=2.0, seed=0)
        >>> contexts = world.contexts(100, seed=1)
        >>> best = world.best_policy(contexts, temperature=0.25)
        >>> round(world.regret(best, contexts, temperature=0.25), 12)
        0.0
    """

    weights: Float[np.ndarray, " d"]
    actions: int

    def __post_init__(self) -> None:
        """Refuse what is no world."""
        weights = _validate.finite_array("weights", self.weights, ndim=1)
        if not len(weights):
            raise DataError("weights must have at least one entry.")
        object.__setattr__(self, "weights", weights)
        _validate.integer("actions", self.actions, at_least=2)

    @classmethod
    def random(cls, *, dimension: int, actions: int, size: float, seed: int) -> LinearPreferences:
        """Return a world whose weights point anywhere and have the given norm.

        Args:
            dimension: d ≥ 1.
            actions: k ≥ 2.
            size: ‖θ*‖ > 0, in log odds.
            seed: Seed of the world.

        Raises:
            UsageError: A number is out of range.
        """
        _validate.integer("dimension", dimension, at_least=1)
        direction = _unit(np.random.default_rng((seed, _WEIGHTS)), (dimension,))
        return cls(weights=_validate.positive("size", size) * direction, actions=actions)

    def contexts(self, n: int, *, seed: int) -> Float[np.ndarray, "n k d"]:
        """Return the features of all actions in n contexts, all of norm 1.

        Args:
            n: Number of contexts, ≥ 1.
            seed: Seed of the draw.
        """
        _validate.integer("n", n, at_least=1)
        generator = np.random.default_rng((seed, _CONTEXTS))
        return _unit(generator, (n, self.actions, len(self.weights)))

    def rewards(self, contexts: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return the true reward of every action."""
        return np.asarray(contexts @ self.weights)

    def reference(self, contexts: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return the uniform policy."""
        return np.full(contexts.shape[:2], 1 / contexts.shape[1])

    def comparisons(self, n: int, *, seed: int) -> Judgments:
        """Return n comparisons of two answers that were drawn from the reference.

        Args:
            n: Number of comparisons, ≥ 1, each in a context of its own.
            seed: Seed of the draw.

        Source:
            PPKL, §3.
        """
        _validate.integer("n", n, at_least=1)
        generator = np.random.default_rng((seed, _COMPARISONS))
        first, second = generator.integers(0, self.actions, size=(2, n))
        # actions are independent of each other, so those that nobody saw need not be drawn
        shown = (int((first != second).sum()), 2, len(self.weights))
        answers = _unit(generator, shown)
        rows = answers[:, 0] - answers[:, 1]
        labels = prefer_first(rows @ self.weights, generator)
        return Judgments(differences=rows, labels=labels, drawn=n)

    def best_policy(
        self, contexts: Float[np.ndarray, "n k d"], *, temperature: float
    ) -> Float[np.ndarray, "n k"]:
        """Return the policy of the largest regularized value.

        Source:
            KLDP, §2.
        """
        return gibbs_rows(self.rewards(contexts), temperature, self.reference(contexts))

    def regret(
        self,
        probabilities: Float[np.ndarray, "n k"],
        contexts: Float[np.ndarray, "n k d"],
        *,
        temperature: float,
    ) -> float:
        """Return how much regularized value a policy gives away, averaged over the contexts.

        Args:
            probabilities: The policy's, for every action.
            contexts: Contexts that nothing was fitted on.
            temperature: KL strength in units of reward, > 0.

        Source:
            KLDP, §2: J* − J(π).
        """
        rewards, base = self.rewards(contexts), self.reference(contexts)
        return kl_regret(probabilities, rewards, temperature, base)


def _unit(generator: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "*size d"]:
    """Return vectors that point anywhere, of norm 1."""
    rows = generator.normal(size=shape)
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))
