"""Worlds whose mean reward is linear in the features, so that the best policy is known.

A world is a dataclass that says what its weights are and who comes; the rest is shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from jaxtyping import Float, Integer

from sordino import _validate
from sordino.errors import DataError
from sordino.policies.softmax import ActionPolicy, LogLinearPolicy, checked_actions

from .preference_worlds import HardInstance
from .values import ActionFeatures, Actions, PerAction

_FRESH = 3_000
_INSIDE = 1 + 2.0**-50  # lengths are taken a rounding too long, so that no row is over the bound
_ROUNDED = 1e-9  # numbers that a user writes down are rounded


@dataclass(frozen=True, eq=False)
class _LinearRewardWorld(ABC):
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
        if _validate.non_negative("reward_noise", self.reward_noise):
            _validate.positive("reward_noise", self.reward_noise)

    def _keep(self, **derived: object) -> None:
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def contexts(self, rng: np.random.Generator, n: int) -> ActionFeatures: ...

    @property
    def dimension(self) -> int:
        return len(self.weights)

    def mean_rewards(self, features: ActionFeatures) -> Float[np.ndarray, "*shape"]:
        return np.asarray(features @ self.weights)

    def reward(
        self, context: ActionFeatures, action: Actions, rng: np.random.Generator
    ) -> Float[np.ndarray, " n"]:
        """Return what each of n users felt after the action taken."""
        n, k, _ = np.shape(context)
        felt = context[np.arange(n), checked_actions(action, n, k)] @ self.weights
        if self.reward_noise:
            felt = felt + self.reward_noise * rng.standard_normal(n)
        return np.asarray(np.clip(felt, -self.reward_bound, self.reward_bound))

    def value(self, probabilities: PerAction, features: ActionFeatures) -> float:
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


def _unit_vectors(rng: np.random.Generator, *shape: int) -> Float[np.ndarray, "*shape"]:
    """Return uniform unit vectors along the last axis; no square sum exceeds 1 by a rounding."""
    rows = rng.standard_normal(shape)
    lengths = np.sqrt(np.einsum("...d,...d->...", rows, rows))
    rows /= np.maximum(lengths, np.finfo(float).tiny)[..., None] * _INSIDE
    return rows


@dataclass(frozen=True, eq=False)
class Sphere(_LinearRewardWorld):
    """Every user has actions with features uniform on the unit sphere, and a linear reward.

    The world that papers and peers are compared in. The reward is θ*ᵀφ plus noise, cut to
    [−1, 1], and θ* is the unit vector with equal entries; as features point anywhere, its
    direction does not matter.

    Source:
        docs/policy_optimization.md, "Environments".

    Attributes:
        reward_noise: Standard deviation of the noise, ≥ 0, in units of reward.
        dimension: d ≥ 1.
        actions: k ≥ 1, how many actions each user has.

    Raises:
        UsageError: A number is out of range.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> round(Sphere().suboptimality(LogLinearPolicy.uniform(4), rng), 2)
        0.63
    """

    _: KW_ONLY
    dimension: int = 4  # a setting here, a consequence elsewhere
    actions: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        d = _validate.integer("dimension", self.dimension, at_least=1)
        _validate.integer("actions", self.actions, at_least=1)
        self._keep(weights=np.full(d, d**-0.5))

    @property
    def step(self) -> float:
        """Return the step size this world is compared at, in log odds per unit of reward."""
        return 2.0

    def contexts(self, rng: np.random.Generator, n: int) -> ActionFeatures:
        """Return the features of all actions of n users, all of norm 1."""
        size = _validate.integer("n", n, at_least=1)
        return _unit_vectors(rng, size, self.actions, self.dimension)


_BENEFIT, _OF_SEVERITY = 0.8, 1.6  # of the largest dose: for everybody, and by severity
_OF_SLOWNESS, _OF_AGE, _OVERDOSE = 1.2, 0.4, 0.8  # its harm: by what hinders, and by excess
_PROGNOSES = 3  # severity, slowness, age
_SCALE = 5**0.5  # the largest norm before scaling: five features, none beyond ±1


@dataclass(frozen=True, eq=False)
class Dosing(_LinearRewardWorld):
    """Patients whose best dose depends on how ill they are and on how slowly the drug leaves them.

    The running example. It imitates the shape of a common problem (more helps less and less, harm
    grows faster than the dose, and both differ between patients); no drug, trial or patient is
    behind it, every number is invented, and nothing that it teaches may be used to treat anybody.

    A patient is three public prognostic numbers, independent and uniform on [0, 1]: severity,
    slowness of elimination, age. An action is a dose x, evenly spaced from none (0) to the largest
    (1). The mean reward is benefit less harm, compared with that of half the largest dose:

        benefit = (.8 + 1.6 · severity) · x
        harm = (1.2 · slowness + .4 · age) · x + .8 · x²

    It is within [−1, 1]; what is felt has noise on it and is cut to that range. The prognosis is
    public; what a patient felt is private. With v = 2x − 1 and prognoses s, l, a moved to [−1, 1],
    the mean is linear in the five features (v, sv, lv, av, v²)/√5, so that a log-linear policy can
    come as near to the best one as its weights may grow.

    Source:
        docs/policy_optimization.md, "Environments".

    Attributes:
        reward_noise: Standard deviation of the noise, ≥ 0, in units of reward.
        levels: How many doses there are, ≥ 2; the first is none.

    Raises:
        UsageError: A number is out of range.

    Example:
        >>> world = Dosing()
        >>> patients = np.array([[0.0, 0.9, 0.9], [0.5, 0.5, 0.5], [1.0, 0.0, 0.0]])
        >>> world.doses[world.mean_rewards(world.features(patients)).argmax(axis=1)].tolist()
        [0.0, 0.5, 1.0]
    """

    reward_noise: float = 0.3
    _: KW_ONLY
    levels: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.integer("levels", self.levels, at_least=2)
        linear = _BENEFIT + (_OF_SEVERITY - _OF_SLOWNESS - _OF_AGE) / 2 - _OVERDOSE
        parts = [linear, _OF_SEVERITY / 2, -_OF_SLOWNESS / 2, -_OF_AGE / 2, -_OVERDOSE / 2]
        self._keep(weights=_SCALE * np.array(parts) / 2)

    @property
    def doses(self) -> Float[np.ndarray, " k"]:
        """Return the doses, as shares of the largest."""
        return np.linspace(0.0, 1.0, self.levels)

    def patients(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n 3"]:
        """Return severity, slowness of elimination and age of n patients, each in [0, 1)."""
        return rng.random((_validate.integer("n", n, at_least=1), _PROGNOSES))

    def features(self, patients: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n k 5"]:
        """Return the features of all doses, of norm at most 1; prognoses are cut to [0, 1]."""
        found = _validate.finite_array("patients", patients, ndim=2)
        if found.shape[1] != _PROGNOSES:
            raise DataError(f"patients must have shape (n, {_PROGNOSES}), got {found.shape}.")
        severity, slowness, age = (2 * np.clip(found, 0.0, 1.0) - 1).T[:, :, None]
        turned = 2 * self.doses - 1
        columns = [turned, severity * turned, slowness * turned, age * turned, turned**2]
        shape = (len(found), self.levels)
        return np.stack([np.broadcast_to(part, shape) for part in columns], axis=2) / _SCALE

    def contexts(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n k 5"]:
        """Return the features of all doses of n patients."""
        return self.features(self.patients(rng, n))


@dataclass(frozen=True, eq=False, repr=False)
class _LogLinearBandit(_LinearRewardWorld):
    """Users who come from a list of contexts, with a reward that is linear in given features."""

    # Source: docs/policy_optimization.md, "Environments".

    _: KW_ONLY
    weights: Float[np.ndarray, " d"]  # θ*, shape (d,)
    features: Float[np.ndarray, "s k d"]  # φ of all actions in all contexts, shape (s, k, d)
    # How often each context occurs, shape (s,), summing to 1; equally often if left out.
    chances: Float[np.ndarray, " s"] | None = None
    feature_bound: float = 1.0  # the largest norm of features, > 0; no feature may be longer
    reward_bound: float = 1.0  # what rewards are cut to, > 0
    # A policy that the world suggests to begin from, or to explore with, or None.
    start: LogLinearPolicy | None = None
    _reached: Float[np.ndarray, " s"] = field(init=False)

    def __post_init__(self) -> None:
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
        size = len(features)
        chances = np.full(size, 1 / size)
        if self.chances is not None:
            chances = _validate.finite_array("chances", self.chances, ndim=1)
        if len(chances) != size or (chances < 0).any() or abs(chances.sum() - 1) > _ROUNDED:
            raise DataError(f"chances must be {size} numbers of at least 0 that sum to 1.")
        self._keep(weights=weights, features=features, chances=chances, _reached=chances.cumsum())

    def __repr__(self) -> str:
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
    ) -> _LogLinearBandit:
        sizes = {"contexts": contexts, "actions": actions, "dimension": dimension}
        s, k, d = (_validate.integer(name, size, at_least=1) for name, size in sizes.items())
        features, truth = _unit_vectors(rng, s, k, d), _unit_vectors(rng, d)
        return cls(reward_noise, weights=truth, features=features)

    @classmethod
    def of_table(
        cls,
        rewards: Float[np.ndarray, "s a"],
        *,
        chances: Float[np.ndarray, " s"] | None = None,
        reward_noise: float = 0.5,
    ) -> _LogLinearBandit:
        """Return the world in which state and action have a mean reward of their own."""
        # Features are one-hot, d = s · a, so that a log-linear policy is a tabular one.
        # Source: docs/policy_optimization.md, "Environments".
        table = _validate.finite_array("rewards", rewards, ndim=2)
        if not table.size:
            raise DataError("rewards must have at least one state and one action.")
        return cls(
            reward_noise,
            weights=table.ravel(),
            features=np.eye(table.size).reshape(*table.shape, table.size),
            chances=chances,
            reward_bound=max(1.0, float(abs(table).max())),
        )

    @classmethod
    def of_hard_instance(
        cls, instance: HardInstance, *, reward_noise: float = 0.5
    ) -> _LogLinearBandit:
        """Return a hard instance as a world with rewards, and its reference as ``start``."""
        # The reference takes the rare action, which may be the good one, with probability 1/C.
        # Source: docs/policy_optimization.md, "Environments"; PPKL, Theorem 4.5 (the construction
        # in its proof).
        odds = np.full(len(instance.signs), -np.log(instance.concentrability - 1))
        return cls(
            reward_noise,
            weights=instance.weights,
            features=instance.features,
            reward_bound=max(1.0, float(abs(instance.weights).max())),
            start=LogLinearPolicy(odds),
        )

    def states(self, rng: np.random.Generator, n: int) -> Integer[np.ndarray, " n"]:
        """Return the numbers of the contexts of n users, as :meth:`contexts` draws them."""
        # a number below 1 times the total is below it also when rounded, so that a context that
        # never occurs is never drawn
        levels = rng.random(_validate.integer("n", n, at_least=1)) * self._reached[-1]
        return np.asarray(np.searchsorted(self._reached, levels, side="right"))

    def contexts(self, rng: np.random.Generator, n: int) -> ActionFeatures:
        return np.asarray(self.features[self.states(rng, n)])
