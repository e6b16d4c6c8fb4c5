"""What all softmax policies share: log-probabilities, draws, divergence, coverage.

Everything is batched: one array holds all users. A policy is computed from what was released, so
asking it and drawing from it spend nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from sordino.errors import DataError

__all__ = [
    "ActionPolicy",
    "SoftmaxPolicy",
    "checked_actions",
    "checked_indices",
    "coverage_of",
    "sampled",
]

_SMALL = 0.5  # log ratios below it are subtracted without losing digits


@runtime_checkable
class ActionPolicy(Protocol):
    """Whatever gives actions probabilities: the policies of this file, or a reference."""

    def probabilities(self, contexts: Any) -> Float[np.ndarray, "n k"]:
        """Return the probability of every action in every context."""
        ...


def sampled(
    probabilities: Float[np.ndarray, "n k"], rng: np.random.Generator
) -> Int[np.ndarray, " n"]:
    """Return one action for every row, drawn with the probabilities of that row.

    Row i depends on its own probabilities and on the i-th number of the generator alone. An action
    of probability 0 is never drawn, also where rounding leaves a sum below 1.

    Source:
        docs/policy_optimization.md, "Setting and privacy unit": inversion of the cumulative sum.

    Args:
        probabilities: At least 0, summing to 1 in every row up to rounding.
        rng: Randomness of the world.

    Example:
        >>> sampled(np.array([[0.0, 1.0], [1.0, 0.0]]), np.random.default_rng(0))
        array([1, 0])
    """
    reached = np.cumsum(probabilities, axis=1)
    total = reached[:, -1]
    level = np.minimum(rng.random(len(total)) * total, np.nextafter(total, 0.0))
    return np.asarray((reached <= level[:, None]).sum(axis=1, dtype=np.int64))


def coverage_of(reference: ActionPolicy, policy: ActionPolicy, contexts: Any) -> float:
    """Return the largest ratio of a policy's probability to the reference's, over all actions.

    It is what learning from the reference's actions costs; infinite where the reference never
    takes an action that the policy takes.

    Source:
        docs/policy_optimization.md, "Output and coverage": max π/μ.

    Args:
        reference: μ, who chose the actions.
        policy: π, what was learned.
        contexts: What both are asked about: features, or states.

    Example:
        >>> from sordino.policies.log_linear import LogLinearPolicy
        >>> start, tilted = LogLinearPolicy.uniform(1), LogLinearPolicy(np.array([1.0]))
        >>> round(coverage_of(start, tilted, np.array([[[0.0], [np.log(3.0)]]])), 6)
        1.5
    """
    above, below = (_logarithms(each, contexts) for each in (policy, reference))
    taken = above > -np.inf
    with np.errstate(over="ignore"):  # an infinite ratio is an answer
        return float(np.exp((above[taken] - below[taken]).max()))


@dataclass(frozen=True, repr=False, eq=False)
class SoftmaxPolicy(ABC):
    """Actions with probability ∝ exp(logit); kinds differ in where the logits come from.

    Every method takes n contexts in one array: features of shape (n, k, d), or states of shape
    (n,).
    """

    @abstractmethod
    def logits(self, contexts: Any) -> Float[np.ndarray, "n k"]:
        """Return the logit of every action in every context."""

    def log_probabilities(self, contexts: Any) -> Float[np.ndarray, "n k"]:
        """Return log π of every action in every context, finite for logits of any finite size.

        Source:
            docs/policy_optimization.md, "Updates".
        """
        found = self.logits(contexts)
        found = found - found.max(axis=1, keepdims=True)
        return np.asarray(found - np.log(np.exp(found).sum(axis=1, keepdims=True)))

    def probabilities(self, contexts: Any) -> Float[np.ndarray, "n k"]:
        """Return π of every action in every context; rows sum to 1 up to rounding."""
        found = self.logits(contexts)
        found = np.exp(found - found.max(axis=1, keepdims=True))
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def sample(self, contexts: Any, *, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
        """Return one action for every context, as :func:`sampled` draws them."""
        return sampled(self.probabilities(contexts), rng)

    def kl(self, contexts: Any, other: ActionPolicy) -> Float[np.ndarray, " n"]:
        """Return KL(π ‖ other) in every context, at least 0, in nats.

        Small divergences keep their digits: as probabilities sum to 1, each action may add the
        excess of exp over its tangent, which is never negative.

        Source:
            docs/policy_optimization.md, "Output and coverage".

        Args:
            contexts: Features, or states.
            other: Asked about the same contexts.
        """
        own, its = self.log_probabilities(contexts), _logarithms(other, contexts)
        here, ratio = np.exp(own), own - its
        near = abs(ratio) <= _SMALL
        little = np.where(near, ratio, 0.0)
        far = np.where(here > 0, here * np.where(here > 0, ratio, 0.0), 0.0) + np.exp(its) - here
        terms = np.where(near, here * (little + np.expm1(-little)), far)
        return np.asarray(np.maximum(terms.sum(axis=1), 0.0))

    def coverage(self, contexts: Any, other: ActionPolicy) -> float:
        """Return the largest ratio other/π, where π chose the actions; see :func:`coverage_of`."""
        return coverage_of(self, other, contexts)


def checked_actions(actions: Any, n: int, k: int) -> Int[np.ndarray, " n"]:
    """Return n actions; refuse another number of them, and one outside 0 to k − 1.

    Raises:
        DataError: As said; of the actions only the row is named.
    """
    found = checked_indices("actions", actions, k)
    if len(found) != n:
        raise DataError(f"actions must have {n} entries, got {len(found)}.")
    return found


def checked_indices(name: str, values: Any, size: int) -> Int[np.ndarray, " n"]:
    """Return indices below size; negative ones would count from the end, so they are refused.

    Args:
        name: What they are, for the message.
        values: Whole numbers in one dimension.
        size: What all must be below.

    Raises:
        DataError: They are not; only the row is named.
    """
    found = np.asarray(values)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise DataError(
            f"{name} must be whole numbers in one dimension, got dtype {found.dtype} and shape "
            f"{found.shape}."
        )
    outside = (found < 0) | (found >= size)
    if outside.any():
        raise DataError(f"{name} must be from 0 to {size - 1}: row {int(outside.argmax())} is not.")
    return found.astype(np.int64, copy=False)


def _logarithms(policy: ActionPolicy, contexts: Any) -> Float[np.ndarray, "n k"]:
    """Return log probabilities, −inf where an action is never taken."""
    if isinstance(policy, SoftmaxPolicy):
        return policy.log_probabilities(contexts)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(policy.probabilities(contexts)))
