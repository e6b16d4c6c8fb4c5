"""Worlds whose mean reward is linear in the features, so that the best policy is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from sordino import _validate
from sordino.errors import DataError
from sordino.policies.softmax import ActionPolicy, checked_actions

__all__ = ["LinearRewardWorld", "unit_vectors"]

_FRESH = 3_000
_INSIDE = 1 + 2.0**-50  # lengths are taken a rounding too long, so that no row is over the bound


@dataclass(frozen=True, eq=False)
class LinearRewardWorld(ABC):
    """Users whose reward is weightsᵀφ plus normal noise, cut to ±reward_bound.

    Kinds differ in who the users are. What is called value and suboptimality is that of the mean
    weightsᵀφ, before noise and cutting.

    Source:
        docs/policy_optimization.md, "Environments".

    Attributes:
        reward_noise: Standard deviation of the noise, ≥ 0, in units of reward.
        weights: θ*, the truth, shape (d,).
        feature_bound: The largest norm of features.
        reward_bound: What rewards are cut to.
    """

    reward_noise: float = 0.5
    weights: Float[np.ndarray, " d"] = field(init=False, repr=False)
    feature_bound: float = field(init=False, default=1.0, repr=False)
    reward_bound: float = field(init=False, default=1.0, repr=False)

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
        """Return what each of n users felt after the action taken.

        Args:
            context: Features of all actions.
            action: Which one was taken, from 0 to k − 1.
            rng: Randomness of the world.

        Raises:
            DataError: There is no such action; the row is named.
        """
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
        """Return the mean reward of a policy over given users.

        Args:
            probabilities: The policy's, for every action of every user.
            features: Theirs.

        Raises:
            DataError: The probabilities are not of the users' actions.
        """
        means = self.mean_rewards(features)
        if np.shape(probabilities) != means.shape:
            raise DataError(
                f"probabilities must have shape {means.shape}, got {np.shape(probabilities)}."
            )
        return float((probabilities * means).sum(axis=1).mean())

    def suboptimality(
        self, policy: ActionPolicy, rng: np.random.Generator, n: int = _FRESH
    ) -> float:
        """Return how much mean reward a policy gives away on fresh users, at least 0.

        Source:
            docs/policy_optimization.md, "Environments": E max θ*ᵀφ − E π θ*ᵀφ.

        Args:
            policy: Asked about features of shape (n, k, d).
            rng: Draws the users; they are nobody's data.
            n: How many, ≥ 1.
        """
        features = self.contexts(rng, n)
        best = float(self.mean_rewards(features).max(axis=1).mean())
        return max(best - self.value(policy.probabilities(features), features), 0.0)


def unit_vectors(rng: np.random.Generator, *shape: int) -> Float[np.ndarray, "*shape"]:
    """Return uniform unit vectors along the last axis; no square sum exceeds 1 by a rounding.

    Args:
        rng: Randomness of the world.
        shape: Of the array.

    Example:
        >>> bool(unit_vectors(np.random.default_rng(0), 5, 1).max() <= 1)
        True
    """
    found = rng.standard_normal(shape)
    lengths = np.sqrt(np.einsum("...d,...d->...", found, found))
    found /= np.maximum(lengths, np.finfo(float).tiny)[..., None] * _INSIDE
    return found
