"""Worlds whose mean reward is linear in the features, so that the best policy is known.

A world is a dataclass that says what its weights are and who comes; the rest is shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import DataError
from sordino.policies.softmax import ActionPolicy, checked_actions

from .values import ActionFeatures, Actions, PerAction

_FRESH = 3_000
_INSIDE = 1 + 2.0**-50  # lengths are taken a rounding too long, so that no row is over the bound


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
        >>> from sordino.policies.softmax import LogLinearPolicy
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
        object.__setattr__(self, "weights", np.full(d, d**-0.5))

    @property
    def step(self) -> float:
        """Return the step size this world is compared at, in log odds per unit of reward."""
        return 2.0

    def contexts(self, rng: np.random.Generator, n: int) -> ActionFeatures:
        """Return the features of all actions of n users, all of norm 1."""
        size = _validate.integer("n", n, at_least=1)
        rows = rng.standard_normal((size, self.actions, self.dimension))
        lengths = np.sqrt(np.einsum("...d,...d->...", rows, rows))
        rows /= np.maximum(lengths, np.finfo(float).tiny)[..., None] * _INSIDE
        return rows


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
        object.__setattr__(self, "weights", _SCALE * np.array(parts) / 2)

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
