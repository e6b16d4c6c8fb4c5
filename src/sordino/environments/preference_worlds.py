"""Worlds in which people compare two actions of a context, following a reward that is known.

Everything is generated. Comparisons cross into a fit as real ones do, by mechanism and ledger.
Where people are asked round by round, anything with the three methods of :class:`PreferenceWorld`
works; a world whose people randomize on their own devices offers :class:`DeviceWorld` instead, so
that no raw judgment is seen here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.preferences.pairs import Pairs

from .values import (
    ActionFeatures,
    Actions,
    PerAction,
    feature_bound_of,
    gibbs_rows,
    kl_regret,
    prefer_first,
)

# Streams of one seed, which share nothing: those of linear worlds, then those of hard instances.
_WEIGHTS, _COMPARISONS = 1, 3
_SIGNS, _HARD_COMPARISONS = 1, 2


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
        return f"Judgments(n={len(self.labels)})"

    def pairs(self) -> Pairs:
        """Return raw pairs that :func:`sordino.privatize` takes."""
        return Pairs.from_features(self.differences, self.labels)


class _Followers(ABC):
    """People who follow a known reward with Bradley–Terry noise."""

    @abstractmethod
    def rewards(self, contexts: ActionFeatures) -> PerAction:
        """Return the true reward of every action."""

    @abstractmethod
    def reference(self, contexts: ActionFeatures) -> PerAction:
        """Return the starting policy."""

    def best_policy(self, contexts: ActionFeatures, *, temperature: float) -> PerAction:
        """Return the policy of the largest regularized value."""
        # Source: KLDP, §2.
        return gibbs_rows(self.rewards(contexts), temperature, self.reference(contexts))

    def regret(
        self, probabilities: PerAction, contexts: ActionFeatures, *, temperature: float
    ) -> float:
        """Return how much regularized value a policy gives away, averaged over the contexts."""
        # Source: KLDP, §2: J* − J(π); contexts must be some that nothing was fitted on.
        rewards, base = self.rewards(contexts), self.reference(contexts)
        return kl_regret(probabilities, rewards, temperature, base)

    def prefer(
        self, contexts: ActionFeatures, first: Actions, second: Actions, rng: np.random.Generator
    ) -> Actions:
        """Return 1 where the first action is preferred, else 0."""
        # Source: Bradley & Terry 1952.
        rows, rewards = np.arange(len(contexts)), self.rewards(contexts)
        return prefer_first(rewards[rows, first] - rewards[rows, second], rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearPreferences(_Followers):
    """Contexts with k actions, each a random unit vector, and a reward that is linear in it.

    People follow the reward with Bradley–Terry noise. The reference is uniform over the actions
    of a context, and both answers of a comparison are drawn from it. They can be asked round by
    round too.

    Attributes:
        weights: θ*, shape (d,); rewards are θ*ᵀφ.
        actions: k ≥ 2, how many actions a context offers.

    Raises:
        DataError: The weights are not finite numbers in one dimension.
        UsageError: There are fewer than two actions.

    Example:
        >>> world = LinearPreferences.random(dimension=8, actions=4, size=2.0, seed=0)
        >>> contexts = world.contexts(generator(1), 100)
        >>> best = world.best_policy(contexts, temperature=0.25)
        >>> round(world.regret(best, contexts, temperature=0.25), 12)
        0.0
    """

    weights: Float[np.ndarray, " d"]
    actions: int
    feature_bound: ClassVar[float] = 1.0  # the norm of every action's features

    def __post_init__(self) -> None:
        weights = _validate.finite_array("weights", self.weights, ndim=1)
        if not len(weights):
            raise DataError("weights must have at least one entry.")
        object.__setattr__(self, "weights", weights)
        _validate.integer("actions", self.actions, at_least=2)

    @classmethod
    def random(cls, *, dimension: int, actions: int, size: float, seed: int) -> LinearPreferences:
        """Return a world whose weights point anywhere and have the given norm, in log odds."""
        _validate.integer("dimension", dimension, at_least=1)
        direction = _unit(np.random.default_rng((seed, _WEIGHTS)), (dimension,))
        return cls(weights=_validate.positive("size", size) * direction, actions=actions)

    def contexts(self, rng: np.random.Generator, n: int) -> ActionFeatures:
        """Return the features of all actions in n contexts, all of norm 1."""
        _validate.integer("n", n, at_least=1)
        return _unit(rng, (n, self.actions, len(self.weights)))

    def rewards(self, contexts: ActionFeatures) -> PerAction:
        """Return the true reward of every action."""
        return np.asarray(contexts @ self.weights)

    def reference(self, contexts: ActionFeatures) -> PerAction:
        """Return the uniform policy."""
        return np.full(contexts.shape[:2], 1 / contexts.shape[1])

    def comparisons(self, n: int, *, seed: int) -> Judgments:
        """Return n comparisons of two answers from the reference, each in its own context."""
        # Source: PPKL, §3.
        _validate.integer("n", n, at_least=1)
        generator = np.random.default_rng((seed, _COMPARISONS))
        first, second = generator.integers(0, self.actions, size=(2, n))
        # actions are independent of each other, so those that nobody saw need not be drawn
        shown = (int((first != second).sum()), 2, len(self.weights))
        answers = _unit(generator, shown)
        rows = answers[:, 0] - answers[:, 1]
        labels = prefer_first(rows @ self.weights, generator)
        return Judgments(differences=rows, labels=labels, drawn=n)


def _unit(generator: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "*size d"]:
    rows = generator.normal(size=shape)
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class HardInstance(_Followers):
    """Contexts in which the reference hardly ever tries the action that may be the good one.

    The common action has reward 0. The rare one, which the reference takes with probability
    1/C, has reward level + sign · gap, with a sign of its own in every context. At the balanced
    level (:meth:`balanced_level`) the best policy takes it about every second time: a policy
    that avoids it is never good, and the best policy's probabilities are up to C times the
    reference's (single-policy concentrability).

    Rewards are linear in one indicator for the rare action of each context, so d = S. Round by
    round each context comes as often as any other, with features centered in it: that changes no
    choice and no regret, and halves their norm.

    Attributes:
        signs: +1 or −1 for every context, shape (S,): a corner of the hypercube.
        concentrability: C > 1.
        gap: α ≥ 0, half the distance of the two possible rewards.
        level: Their middle.

    Raises:
        DataError: A sign is neither +1 nor −1.
        UsageError: A number is out of range.

    Source:
        PPKL, Theorem 4.5 (the construction in its proof).

    Example:
        >>> level = HardInstance.balanced_level(concentrability=20.0, temperature=0.25)
        >>> world = HardInstance(
        ...     signs=np.array([1, -1]), concentrability=20.0, gap=0.1, level=level
        ... )
        >>> world.best_policy(world.features, temperature=0.25).round(4).tolist()
        [[0.4013, 0.5987], [0.5987, 0.4013]]
    """

    signs: Int[np.ndarray, " s"]
    concentrability: float
    gap: float
    level: float
    feature_bound: ClassVar[float] = 0.5  # the norm of every action's centered features

    def __post_init__(self) -> None:
        signs = _validate.finite_array("signs", self.signs, ndim=1)
        if not len(signs) or not np.isin(signs, (-1, 1)).all():
            raise DataError("signs must hold +1 and -1 only, one for every context.")
        _above_one(self.concentrability)
        for name in ("gap", "level"):
            if not math.isfinite(_validate.number(name, getattr(self, name))):
                raise UsageError(f"{name} must be finite, got {getattr(self, name)!r}.")
        _validate.non_negative("gap", self.gap)

    @classmethod
    def random(
        cls, *, contexts: int, concentrability: float, gap: float, level: float, seed: int
    ) -> HardInstance:
        """Return an instance with random signs."""
        size = _validate.integer("contexts", contexts, at_least=1)
        signs = 2 * np.random.default_rng((seed, _SIGNS)).integers(0, 2, size=size) - 1
        return cls(signs=signs, concentrability=concentrability, gap=gap, level=level)

    @staticmethod
    def balanced_level(*, concentrability: float, temperature: float) -> float:
        """Return the level at which the best policy is a fair coin when the gap is 0."""
        # Source: PPKL, Theorem 4.5: temperature · log(C − 1).
        strength = _validate.positive("temperature", temperature)
        return strength * math.log(_above_one(concentrability) - 1)

    @property
    def weights(self) -> Float[np.ndarray, " s"]:
        """Return θ*: the reward of the rare action in every context."""
        return np.asarray(self.level + self.gap * self.signs)

    @property
    def features(self) -> Float[np.ndarray, "s 2 s"]:
        """Return the features of the common and of the rare action in every context."""
        rare = np.eye(len(self.signs))
        return np.stack([np.zeros_like(rare), rare], axis=1)

    def rewards(self, contexts: ActionFeatures) -> PerAction:
        """Return the true reward of both actions; of centered features less what they share."""
        return np.asarray(contexts @ self.weights)

    def contexts(self, rng: np.random.Generator, n: int) -> ActionFeatures:
        """Return the centered features of both actions in n uniform contexts."""
        features = self.features
        centered = features - features.mean(axis=1, keepdims=True)
        return np.asarray(centered[rng.integers(0, len(self.signs), size=n)])

    def reference(self, contexts: ActionFeatures) -> PerAction:
        """Return the reference, which takes the rare action with probability 1/C."""
        rare = 1 / self.concentrability
        return np.tile([1 - rare, rare], (len(contexts), 1))

    def comparisons(self, n: int, *, seed: int) -> Judgments:
        """Return n comparisons, in uniform contexts, of two answers drawn from the reference."""
        # On average 2(1/C)(1 − 1/C) of them show both actions and become rows.
        # Source: PPKL, §3.
        _validate.integer("n", n, at_least=1)
        generator = np.random.default_rng((seed, _HARD_COMPARISONS))
        contexts = generator.integers(0, len(self.signs), size=n)
        first, second = generator.random((2, n)) < 1 / self.concentrability
        compared = np.flatnonzero(first != second)
        differences = np.zeros((len(compared), len(self.signs)))
        side = np.where(first[compared], 1.0, -1.0)
        differences[np.arange(len(compared)), contexts[compared]] = side
        labels = prefer_first(differences @ self.weights, generator)
        return Judgments(differences=differences, labels=labels, drawn=n)


def _above_one(concentrability: float) -> float:
    value = _validate.positive("concentrability", concentrability)
    if value <= 1:
        raise UsageError(f"concentrability must be greater than 1, got {concentrability!r}.")
    return value


@runtime_checkable
class OnlineWorld(Protocol):
    """Where contexts come from; they may depend on nothing that anybody answered."""

    @property
    def feature_bound(self) -> float:
        """Return the largest norm of a feature vector; longer ones are shortened to it."""

    def contexts(self, rng: np.random.Generator, n: int) -> ActionFeatures:
        """Return the features of all k actions in the next n contexts."""


@runtime_checkable
class PreferenceWorld(OnlineWorld, Protocol):
    """People who are asked here, so that this program sees their judgments."""

    def prefer(
        self, contexts: ActionFeatures, first: Actions, second: Actions, rng: np.random.Generator
    ) -> Actions:
        """Return 1 where the first action is preferred, 0 the second, 2 where undecided."""


@runtime_checkable
class DeviceWorld(OnlineWorld, Protocol):
    """People whose devices randomize, so that no judgment is seen here."""

    def answer(
        self, contexts: ActionFeatures, first: Actions, second: Actions, epsilon: float
    ) -> Actions:
        """Return 1 or 0, randomized by :class:`sordino.RandomizedResponse` with this epsilon."""


@runtime_checkable
class RecordedWorld(OnlineWorld, Protocol):
    """People who answered before, one question for each round, and what a coin made of it."""

    def recorded(self, rounds: Actions, first: Actions) -> Actions:
        """Return, for the questions of some rounds, 1 where the first action was preferred."""


@runtime_checkable
class KnownReward(Protocol):
    """A world that tells what nobody knows elsewhere, so that regret can be measured."""

    def rewards(self, contexts: ActionFeatures) -> PerAction:
        """Return the true reward of every action."""


def generator(seed: int | tuple[int, ...] | None) -> np.random.Generator:
    """Return the randomness of a world; what is private is randomized by something else.

    Args:
        seed: A seed, or several numbers for one, or None for one of the operating system.
    """
    return np.random.default_rng(seed)


@dataclass
class ContextStream:
    """The contexts of a world in order, read ahead and handed out when they are used."""

    world: OnlineWorld  # where they come from
    rng: np.random.Generator  # the world's randomness; what is private needs another

    def __post_init__(self) -> None:
        self._bound = feature_bound_of(self.world)
        self._ahead = self._read(1, None)

    @property
    def shape(self) -> tuple[int, int]:
        """Return (k, d)."""
        _, k, d = self._ahead.shape
        return k, d

    def peek(self, n: int) -> ActionFeatures:
        """Return the next n contexts and leave them where they are."""
        missing = n - len(self._ahead)
        if missing > 0:
            self._ahead = np.concatenate([self._ahead, self._read(missing, self.shape)])
        return self._ahead[:n]

    def drop(self, n: int) -> None:
        """Leave n contexts behind."""
        self._ahead = self._ahead[n:]

    def _read(self, n: int, shape: tuple[int, int] | None) -> ActionFeatures:
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
