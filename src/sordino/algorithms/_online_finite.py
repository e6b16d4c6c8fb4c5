"""A finite class of rewards: which of them are still possible while questions are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Integer

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.rewards.likelihoods import answer_probability

__all__ = ["FeatureReward", "FiniteBelief", "FiniteLearner", "loss_gap"]

FeatureReward: TypeAlias = Callable[[Float[np.ndarray, "n k d"]], Any]
"""Features of all actions in, one reward in [0, 1] for each out, shape (n, k)."""


def loss_gap(confidence: float, *, candidates: int) -> float:
    """Return by how much the true reward's loss exceeds the least one at most, at all times.

    Source:
        docs/policy_optimization.md, "Online alignment": log(N/(1 − confidence))/2. An answer has
        range 1, so exp(2(loss of the truth − loss of another)) is a supermartingale however
        questions are chosen (Hoeffding's lemma), and Ville's inequality bounds it at all times.

    Args:
        confidence: How often it holds, in (0, 1).
        candidates: N, the number of rewards in the class, the truth among them.

    Example:
        >>> round(loss_gap(0.95, candidates=20), 4)
        2.9957
    """
    return math.log(candidates / (1 - confidence)) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteBelief:
    """What was known at a refit; it stays as it is until the next.

    Source:
        docs/policy_optimization.md, "Online alignment": widths are the largest disagreement of
        two rewards that are both still possible, by enumeration.

    Attributes:
        best: Which candidate has the least loss; ties go to the first.
        possible: Which candidates are in the confidence set, shape (N,).
        radius: The loss gap that the set allows.
    """

    best: int
    possible: Bool[np.ndarray, " N"]
    radius: float

    def rewards(self, encoded: Float[np.ndarray, "n k N"]) -> Float[np.ndarray, "n k"]:
        """Return the reward of every action under the candidate of least loss."""
        return np.asarray(encoded[..., self.best])

    def bonus(self, centered: Float[np.ndarray, "n k N"]) -> Float[np.ndarray, "n k"]:
        """Return how far two rewards that are still possible disagree at most on every action."""
        return self._spread(centered)

    def widths(self, differences: Float[np.ndarray, "n N"]) -> Float[np.ndarray, " n"]:
        """Return how far two rewards that are still possible disagree at most on questions."""
        return self._spread(differences)

    def _spread(self, values: Float[np.ndarray, "*size N"]) -> Float[np.ndarray, "*size"]:
        # the largest |r − r′| over all pairs is the largest less the least
        kept = values[..., self.possible]
        return np.asarray(kept.max(axis=-1) - kept.min(axis=-1))


class FiniteLearner:
    """Least squares on randomized answers over a finite class, with its exact confidence set.

    Source:
        docs/policy_optimization.md, "Online alignment": squared loss of E z = κσ(Δ) + f.
    """

    largest_error = 2.0  # of two differences of rewards in [0, 1]

    def __init__(
        self,
        candidates: Mapping[str, FeatureReward],
        *,
        flip_probability: float,
        confidence: float,
    ) -> None:
        """Know nothing yet: every candidate is possible."""
        given = candidates if isinstance(candidates, Mapping) else {}
        named = all(isinstance(name, str) and name for name in given)
        if not given or not named or not all(map(callable, given.values())):
            raise UsageError(
                "candidates must be a dict of at least one name and function of features, such "
                "as {'first': lambda features: features[..., 0]}."
            )
        self._functions = {name: given[name] for name in sorted(given)}
        self._flip = flip_probability
        self._gap = loss_gap(confidence, candidates=len(given))
        self.losses = np.zeros(len(given))
        self.asked = 0
        self._refresh()

    @property
    def names(self) -> tuple[str, ...]:
        """The names in alphabetical order, which breaks ties."""
        return tuple(self._functions)

    @property
    def name(self) -> str:
        """The candidate of least loss."""
        return self.names[self.belief.best]

    @property
    def possible(self) -> tuple[str, ...]:
        """The candidates that are still in the confidence set."""
        return tuple(
            name for name, kept in zip(self.names, self.belief.possible, strict=True) if kept
        )

    def encode(self, features: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k N"]:
        """Return the rewards of every action under all candidates.

        Raises:
            DataError: A candidate returned another shape, or a reward outside [0, 1].
        """
        return np.stack([self._scored(name, features) for name in self._functions], axis=-1)

    def _scored(self, name: str, features: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return one candidate's rewards, checked."""
        what = f"The rewards of {name!r}"
        rewards = _validate.finite_array(what, self._functions[name](features), ndim=2)
        if rewards.shape != features.shape[:2]:
            raise DataError(f"{what} must have shape {features.shape[:2]}, got {rewards.shape}.")
        outside = np.flatnonzero(((rewards < 0) | (rewards > 1)).any(axis=1))
        if len(outside):
            raise DataError(
                f"{what} must be in [0, 1]: row {outside[0]} is not. Nothing was clipped; "
                "rescale the function."
            )
        return rewards

    def take(self, differences: Float[np.ndarray, "n N"]) -> int:
        """Return how many of the next questions are asked before the next refit: all."""
        return len(differences)

    def learn(
        self, differences: Float[np.ndarray, "n N"], answers: Integer[np.ndarray, " n"]
    ) -> None:
        """Take in randomized answers to the questions that were taken."""
        chances = answer_probability(differences, self._flip)
        self.losses = self.losses + ((answers[:, None] - chances) ** 2).sum(axis=0)
        self.asked += len(answers)
        self._refresh()

    def _refresh(self) -> None:
        """Set what is known."""
        best = int(np.argmin(self.losses))
        self.belief = FiniteBelief(
            best=best,
            possible=self.losses <= self.losses[best] + self._gap,
            radius=self._gap,
        )
