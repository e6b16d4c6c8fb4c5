"""Softmax policies with one weight per feature: log-probabilities, draws, divergence, coverage.

Everything is batched: one array holds all users. A policy is computed from what was released, so
asking it and drawing from it spend nothing. n users with k actions of d features each are one array
of shape (n, k, d).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int, Integer, Num

from sordino import _validate
from sordino.errors import DataError

_SMALL = 0.5  # log ratios below it are subtracted without losing digits


@runtime_checkable
class ActionPolicy(Protocol):
    """Whatever gives actions probabilities: the policies of this file, or a reference."""

    def probabilities(self, contexts: np.ndarray) -> Float[np.ndarray, "n k"]:
        """Return the probability of every action in every context."""


def sampled(
    probabilities: Float[np.ndarray, "n k"], rng: np.random.Generator
) -> Int[np.ndarray, " n"]:
    """Return one action for every row, drawn with the probabilities of that row."""
    # Row i depends on its own probabilities and on the i-th number of the generator alone. An
    # action of probability 0 is never drawn, also where rounding leaves a sum below 1.
    # Source: docs/policy_optimization.md, "Setting and privacy unit": inversion of the cumulative
    # sum.
    reached = np.cumsum(probabilities, axis=1)
    total = reached[:, -1]
    level = np.minimum(rng.random(len(total)) * total, np.nextafter(total, 0.0))
    return np.asarray((reached <= level[:, None]).sum(axis=1, dtype=np.int64))


def checked_actions(actions: object, n: int, k: int) -> Int[np.ndarray, " n"]:
    """Return n actions; refuse another number of them, and one outside 0 to k − 1."""
    found = np.asarray(actions)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise DataError(
            f"actions must be whole numbers in one dimension, got dtype {found.dtype} and shape "
            f"{found.shape}."
        )
    outside = (found < 0) | (found >= k)  # negative ones would count from the end
    if outside.any():
        raise DataError(f"actions must be from 0 to {k - 1}: row {int(outside.argmax())} is not.")
    if len(found) != n:
        raise DataError(f"actions must have {n} entries, got {len(found)}.")
    return found.astype(np.int64, copy=False)


@dataclass(frozen=True, repr=False, eq=False)
class LogLinearPolicy:
    """Actions with probability ∝ exp(weightsᵀφ)."""

    # Source: docs/policy_optimization.md, "Updates".

    weights: Float[np.ndarray, " d"]  # θ, shape (d,), finite

    def __post_init__(self) -> None:
        """Refuse what are no weights; keep a copy that nobody can change."""
        weights = _validate.finite_array("weights", self.weights, ndim=1).copy()
        if not len(weights):
            raise DataError("weights must have at least one entry.")
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)

    @classmethod
    def uniform(cls, dimension: int) -> LogLinearPolicy:
        """Return the policy with weights 0, which takes all actions equally often."""
        return cls(np.zeros(_validate.integer("dimension", dimension, at_least=1)))

    def __repr__(self) -> str:
        """Return the sizes; no weights."""
        size = float(np.linalg.norm(self.weights))
        return f"LogLinearPolicy(d={len(self.weights)}, norm={size:.4g})"

    def logits(self, contexts: Num[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return weightsᵀφ of every action of every user."""
        features = np.asarray(contexts)
        d = len(self.weights)
        if features.ndim != 3 or features.shape[2] != d or not features.shape[1]:  # noqa: PLR2004
            raise DataError(f"features must have shape (n, k, {d}), got {features.shape}.")
        with np.errstate(all="ignore"):  # what is not finite is refused below
            found = (features.reshape(-1, d) @ self.weights).reshape(features.shape[:2])
        return _validate.finite_array("logits of the features", found, ndim=2)

    def log_probabilities(self, contexts: Num[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return log π of every action in every context, finite for logits of any finite size."""
        found = self.logits(contexts)
        found = found - found.max(axis=1, keepdims=True)
        return np.asarray(found - np.log(np.exp(found).sum(axis=1, keepdims=True)))

    def probabilities(self, contexts: Num[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return π of every action in every context; rows sum to 1 up to rounding."""
        found = self.logits(contexts)
        found = np.exp(found - found.max(axis=1, keepdims=True))
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def kl(
        self, contexts: Num[np.ndarray, "n k d"], other: ActionPolicy
    ) -> Float[np.ndarray, " n"]:
        """Return KL(π ‖ other) in every context, at least 0, in nats."""
        # Small divergences keep their digits: as probabilities sum to 1, each action may add the
        # excess of exp over its tangent, which is never negative.
        # Source: docs/policy_optimization.md, "Output and coverage".
        own = self.log_probabilities(contexts)
        if isinstance(other, LogLinearPolicy):
            its = other.log_probabilities(contexts)
        else:
            with np.errstate(divide="ignore"):  # −inf where an action is never taken
                its = np.log(other.probabilities(contexts))
        here, ratio = np.exp(own), own - its
        near = abs(ratio) <= _SMALL
        little = np.where(near, ratio, 0.0)
        far = np.where(here > 0, here * np.where(here > 0, ratio, 0.0), 0.0) + np.exp(its) - here
        terms = np.where(near, here * (little + np.expm1(-little)), far)
        return np.asarray(np.maximum(terms.sum(axis=1), 0.0))

    def scores(
        self,
        features: Num[np.ndarray, "n k d"],
        actions: Integer[np.ndarray, " n"],
        *,
        probabilities: Float[np.ndarray, "n k"] | None = None,
    ) -> Float[np.ndarray, "n d"]:
        """Return ∇ log π of the action taken: its features less the mean under the policy."""
        # Its norm is at most twice the bound on the features.
        rows = np.arange(len(features))
        chosen = features[rows, checked_actions(actions, len(features), features.shape[1])]
        return np.asarray(chosen - self.mean_features(features, probabilities=probabilities))

    def mean_features(
        self,
        features: Num[np.ndarray, "n k d"],
        *,
        probabilities: Float[np.ndarray, "n k"] | None = None,
    ) -> Float[np.ndarray, "n d"]:
        """Return E φ under the policy, for every user."""
        chances = self.probabilities(features) if probabilities is None else probabilities
        return np.asarray(np.matmul(chances[:, None, :], features)[:, 0, :])

    def centered(self, features: Num[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k d"]:
        """Return φ − E φ for every action: the scores of all of them."""
        return np.asarray(features - self.mean_features(features)[:, None, :])

    def moved(self, direction: Float[np.ndarray, " d"], step: float) -> LogLinearPolicy:
        """Return the policy with weights + step · direction."""
        if np.shape(direction) != self.weights.shape:
            raise DataError(
                f"direction must have shape {self.weights.shape}, got {np.shape(direction)}."
            )
        return LogLinearPolicy(self.weights + step * np.asarray(direction))
