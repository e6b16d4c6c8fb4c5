"""Worlds that are asked round by round: a context comes, two of its actions are compared.

Anything with the three methods of :class:`PreferenceWorld` works. A world whose people randomize
on their own devices offers :class:`DeviceWorld` instead, so that no raw judgment is seen here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Integer

from sordino import _validate
from sordino.environments.hard_instances import HardInstance
from sordino.environments.interactions import feature_bound_of
from sordino.environments.values import prefer_first
from sordino.errors import DataError

from .linear_worlds import LinearPreferences

__all__ = [
    "Contexts",
    "DeviceWorld",
    "HardRounds",
    "KnownReward",
    "LinearRounds",
    "OnlineWorld",
    "PreferenceWorld",
    "generator",
]


@runtime_checkable
class OnlineWorld(Protocol):
    """Where contexts come from; they may depend on nothing that anybody answered."""

    @property
    def feature_bound(self) -> float:
        """Return the largest norm of a feature vector; longer ones are shortened to it."""
        ...

    def contexts(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n k d"]:
        """Return the features of all k actions in the next n contexts."""
        ...


@runtime_checkable
class PreferenceWorld(OnlineWorld, Protocol):
    """People who are asked here, so that this program sees their judgments."""

    def prefer(
        self,
        contexts: Float[np.ndarray, "n k d"],
        first: Integer[np.ndarray, " n"],
        second: Integer[np.ndarray, " n"],
        rng: np.random.Generator,
    ) -> Integer[np.ndarray, " n"]:
        """Return 1 where the first action is preferred, 0 the second, 2 where undecided."""
        ...


@runtime_checkable
class DeviceWorld(OnlineWorld, Protocol):
    """People whose devices randomize, so that no judgment is seen here."""

    def answer(
        self,
        contexts: Float[np.ndarray, "n k d"],
        first: Integer[np.ndarray, " n"],
        second: Integer[np.ndarray, " n"],
        epsilon: float,
    ) -> Integer[np.ndarray, " n"]:
        """Return 1 or 0, randomized by :class:`sordino.RandomizedResponse` with this epsilon."""
        ...


@runtime_checkable
class KnownReward(Protocol):
    """A world that tells what nobody knows elsewhere, so that regret can be measured."""

    def rewards(self, contexts: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return the true reward of every action."""
        ...


def generator(seed: int | None) -> np.random.Generator:
    """Return the randomness of a world; what is private is randomized by something else.

    Args:
        seed: A seed, or None for one of the operating system.
    """
    return np.random.default_rng(seed)


@dataclass
class Contexts:
    """The contexts of a world in order, read ahead and handed out when they are used."""

    world: OnlineWorld  # where they come from
    rng: np.random.Generator  # the world's randomness

    def __post_init__(self) -> None:
        """Read one context, which tells the shape of all."""
        self._bound = feature_bound_of(self.world)
        self._ahead = self._read(1, None)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (k, d)."""
        _, k, d = self._ahead.shape
        return k, d

    def peek(self, n: int) -> Float[np.ndarray, "n k d"]:
        """Return the next n contexts and leave them where they are."""
        missing = n - len(self._ahead)
        if missing > 0:
            more = self._read(missing, self.shape)
            self._ahead = np.concatenate([self._ahead, more])
        return self._ahead[:n]

    def drop(self, n: int) -> None:
        """Leave n contexts behind."""
        self._ahead = self._ahead[n:]

    def _read(self, n: int, shape: tuple[int, int] | None) -> Float[np.ndarray, "n k d"]:
        """Return the world's next n contexts, checked and shortened."""
        given = _validate.finite_array("contexts", self.world.contexts(self.rng, n), ndim=3)
        wanted = given.shape[1:] if shape is None else shape
        if given.shape != (n, *wanted) or min(given.shape[1:]) < 1:
            raise DataError(
                f"contexts must have shape ({n}, k, d), the same k and d every time, got "
                f"{given.shape}."
            )
        lengths = np.linalg.norm(given, axis=2, keepdims=True)
        return np.asarray(given * np.minimum(1.0, self._bound / np.maximum(lengths, self._bound)))


@dataclass(frozen=True)
class _LinearTruth(ABC):
    """People who follow a linear reward with Bradley–Terry noise."""

    @property
    @abstractmethod
    def weights(self) -> Float[np.ndarray, " d"]:
        """Return θ*, shape (d,)."""

    def rewards(self, contexts: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return the true reward of every action."""
        return np.asarray(contexts @ self.weights)

    def prefer(
        self,
        contexts: Float[np.ndarray, "n k d"],
        first: Integer[np.ndarray, " n"],
        second: Integer[np.ndarray, " n"],
        rng: np.random.Generator,
    ) -> Integer[np.ndarray, " n"]:
        """Return 1 where the first action is preferred, else 0."""
        # Source: Bradley & Terry 1952.
        rows, rewards = np.arange(len(contexts)), self.rewards(contexts)
        return prefer_first(rewards[rows, first] - rewards[rows, second], rng)


@dataclass(frozen=True)
class LinearRounds(_LinearTruth):
    """The contexts of :class:`~sordino.environments.linear_worlds.LinearPreferences`.

    Attributes:
        truth: The world; its reference is uniform.

    Example:
        >>> truth = LinearPreferences.random(dimension=4, actions=8, size=1.0, seed=0)
        >>> LinearRounds(truth).contexts(generator(1), 3).shape
        (3, 8, 4)
    """

    truth: LinearPreferences

    @property
    def weights(self) -> Float[np.ndarray, " d"]:
        """Return θ*, shape (d,)."""
        return self.truth.weights

    @property
    def feature_bound(self) -> float:
        """Return 1, the norm of every action's features."""
        return 1.0

    def contexts(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n k d"]:
        """Return n contexts of k random unit vectors."""
        rows = rng.normal(size=(n, self.truth.actions, len(self.weights)))
        return np.asarray(rows / np.linalg.norm(rows, axis=2, keepdims=True))


@dataclass(frozen=True)
class HardRounds(_LinearTruth):
    """The contexts of :class:`~sordino.environments.hard_instances.HardInstance`, each as often.

    Features are centered in every context, which changes no choice and no regret and halves
    their norm: rewards are those of the instance up to a number that both actions share.

    Attributes:
        truth: The world; its reference takes the rare action with probability 1/C.
    """

    truth: HardInstance

    @property
    def weights(self) -> Float[np.ndarray, " d"]:
        """Return θ*: the reward of the rare action in every context."""
        return self.truth.weights

    def contexts(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n k d"]:
        """Return the features of both actions in n uniform contexts."""
        features = self.truth.features
        centered = features - features.mean(axis=1, keepdims=True)
        return np.asarray(centered[rng.integers(0, len(self.weights), size=n)])

    @property
    def feature_bound(self) -> float:
        """Return 1/2, the norm of every action's centered features."""
        return 0.5

    def reference(self, contexts: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return the reference, which takes the rare action with probability 1/C."""
        return np.tile(self.truth.reference[0], (len(contexts), 1))
