"""The hardest worlds for learning from comparisons, and what nobody can beat on them.

Contextual bandits on a fixed list of contexts: tabular, log-linear, and the hardest ones.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import logit

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.policies.softmax import LogLinearPolicy, one_hot_features
from sordino.rewards.pair_losses import answer_probability

from .linear_worlds import Judgments, LinearRewardWorld, unit_vectors
from .values import checked_flip, gibbs_rows, kl_regret, prefer_first

_SIGNS, _COMPARISONS = 1, 2  # streams: equal seeds share nothing
_WIDEST = 30.0  # a gap beyond which answers change no more


@dataclass(frozen=True, kw_only=True, eq=False)
class HardInstance:
    """Contexts in which the reference hardly ever tries the action that may be the good one.

    The common action has reward 0. The rare one, which the reference takes with probability
    1/C, has reward level + sign · gap, with a sign of its own in every context. At the balanced
    level (:meth:`balanced_level`) the best policy takes it about every second time: a policy
    that avoids it is never good, and the best policy's probabilities are up to C times the
    reference's (single-policy concentrability).

    Rewards are linear in one indicator for the rare action of each context, so d = S.

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
        >>> world.best_policy(temperature=0.25).round(4).tolist()
        [[0.4013, 0.5987], [0.5987, 0.4013]]
    """

    signs: Int[np.ndarray, " s"]
    concentrability: float
    gap: float
    level: float

    def __post_init__(self) -> None:
        """Refuse what is no instance."""
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
        """Return an instance with random signs.

        Raises:
            UsageError: A number is out of range.
        """
        size = _validate.integer("contexts", contexts, at_least=1)
        signs = 2 * np.random.default_rng((seed, _SIGNS)).integers(0, 2, size=size) - 1
        return cls(signs=signs, concentrability=concentrability, gap=gap, level=level)

    @staticmethod
    def balanced_level(*, concentrability: float, temperature: float) -> float:
        """Return the level at which the best policy is a fair coin when the gap is 0.

        Source:
            PPKL, Theorem 4.5: temperature · log(C − 1).
        """
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

    @property
    def rewards(self) -> Float[np.ndarray, "s 2"]:
        """Return the rewards of the common and of the rare action in every context."""
        return np.asarray(self.features @ self.weights)

    @property
    def reference(self) -> Float[np.ndarray, "s 2"]:
        """Return the reference, which takes the rare action with probability 1/C."""
        rare = 1 / self.concentrability
        return np.tile([1 - rare, rare], (len(self.signs), 1))

    def best_policy(self, *, temperature: float) -> Float[np.ndarray, "s 2"]:
        """Return the policy of the largest regularized value.

        Source:
            KLDP, §2.
        """
        return gibbs_rows(self.rewards, temperature, self.reference)

    def comparisons(self, n: int, *, seed: int) -> Judgments:
        """Return n comparisons, in uniform contexts, of two answers drawn from the reference.

        Args:
            n: Number of comparisons, ≥ 1. On average 2(1/C)(1 − 1/C) of them show both actions
                and become rows.
            seed: Seed of the draw.

        Source:
            PPKL, §3.
        """
        _validate.integer("n", n, at_least=1)
        generator = np.random.default_rng((seed, _COMPARISONS))
        contexts = generator.integers(0, len(self.signs), size=n)
        first, second = generator.random((2, n)) < 1 / self.concentrability
        compared = np.flatnonzero(first != second)
        differences = np.zeros((len(compared), len(self.signs)))
        side = np.where(first[compared], 1.0, -1.0)
        differences[np.arange(len(compared)), contexts[compared]] = side
        labels = prefer_first(differences @ self.weights, generator)
        return Judgments(differences=differences, labels=labels, drawn=n)

    def regret(self, probabilities: Float[np.ndarray, "s 2"], *, temperature: float) -> float:
        """Return how much regularized value a policy gives away, exactly, over all contexts.

        Source:
            KLDP, §2: J* − J(π).
        """
        return kl_regret(probabilities, self.rewards, temperature, self.reference)


def hardest_gap(
    n: int, *, contexts: int, concentrability: float, level: float, flip_probability: float
) -> float:
    """Return the gap of a hard instance that n randomized comparisons can barely tell.

    For each context, both signs make n answers whose laws differ by at most one half in total
    variation, however the labels were randomized.

    Source:
        PPKL, Theorem 4.5, sharpened. Whatever is ε-private can be computed from randomized
        response (Kairouz, Oh & Viswanath 2015, for binary labels), so its answers tell most. A
        comparison shows a given context and both actions with probability 2(1/C)(1 − 1/C)/S;
        then the divergences of the answer sum to J = (p − q)(logit p − logit q), p, q =
        κσ(level ± gap) + f; and TV² of all answers is at most a quarter of their sum (Pinsker),
        so the gap solves n · 2(1/C)(1 − 1/C)/S · J = 1.

    Args:
        n: Number of comparisons, ≥ 1.
        contexts: S ≥ 1.
        concentrability: C > 1.
        level: The middle of the two possible rewards.
        flip_probability: f of the randomized response, in [0, 1/2).

    Raises:
        UsageError: A number is out of range, or n is so small that every gap is too small.

    Example:
        >>> gap = hardest_gap(
        ...     8192, contexts=4, concentrability=4.0, level=0.0, flip_probability=0.25
        ... )
        >>> round(gap, 4)
        0.0722
    """
    _validate.integer("n", n, at_least=1)
    _validate.integer("contexts", contexts, at_least=1)
    rare = 1 / _above_one(concentrability)
    shown = n * 2 * rare * (1 - rare) / contexts

    def excess(gap: float) -> float:
        return shown * _divergence(level, gap, flip_probability) - 1

    if excess(_WIDEST) <= 0:
        raise UsageError(f"n={n} comparisons can tell no gap at all from none: use more.")
    return float(brentq(excess, 0.0, _WIDEST, xtol=1e-15, rtol=1e-12))


def minimax_regret(
    n: int,
    *,
    contexts: int,
    concentrability: float,
    temperature: float,
    flip_probability: float,
) -> float:
    """Return a regret that no method stays below on hard instances, averaged over their signs.

    At the balanced level and :func:`hardest_gap`, whatever is computed from n comparisons whose
    labels left through any ε-private randomizer, ε that of the flips. For many comparisons and
    small rewards it is about C·S/(32·temperature·(1 − 1/C)·nκ²).

    Source:
        PPKL, Theorem 4.5, with its constant made explicit and (e^ε − 1)² sharpened to κ². With
        q = σ(gap/temperature), one context's regrets under both signs sum to temperature·(KL(p ‖
        q) + KL(p ‖ 1 − q)) ≥ 2·temperature·log cosh(gap/(2·temperature)), so (Assouad) the mean
        regret is at least half of that times 1 − TV, and TV ≤ 1/2.

    Args:
        n: Number of comparisons, ≥ 1.
        contexts: S ≥ 1.
        concentrability: C > 1.
        temperature: KL strength in units of reward, > 0.
        flip_probability: f of the randomized response, in [0, 1/2).

    Raises:
        UsageError: As in :func:`hardest_gap`.

    Example:
        >>> size = {"contexts": 4, "concentrability": 4.0, "temperature": 0.25}
        >>> few, many = (minimax_regret(n, **size, flip_probability=0.25) for n in (10_000, 40_000))
        >>> round(few / many, 1)
        4.0
    """
    gap = hardest_gap(
        n,
        contexts=contexts,
        concentrability=concentrability,
        level=HardInstance.balanced_level(concentrability=concentrability, temperature=temperature),
        flip_probability=flip_probability,
    )
    half = gap / (2 * temperature)
    # log cosh without overflow
    return temperature * (half + math.log1p(math.expm1(-2 * half) / 2)) / 2


def _divergence(level: float, gap: float, flip_probability: float) -> float:
    """Return KL both ways between the answers to one question under both signs."""
    flip = checked_flip(flip_probability)
    chances = answer_probability(level + gap * np.array([1.0, -1.0]), flip)
    return float(np.diff(chances)[0] * np.diff(logit(chances))[0])


def _above_one(concentrability: float) -> float:
    """Return the concentrability; refuse one that leaves no rare action."""
    value = _validate.positive("concentrability", concentrability)
    if value <= 1:
        raise UsageError(f"concentrability must be greater than 1, got {concentrability!r}.")
    return value


_ROUNDED = 1e-9  # numbers that a user writes down are rounded


@dataclass(frozen=True, eq=False, repr=False)
class LogLinearBandit(LinearRewardWorld):
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
        """Return a world with features and θ* that are uniform unit vectors."""
        sizes = {"contexts": contexts, "actions": actions, "dimension": dimension}
        s, k, d = (_validate.integer(name, size, at_least=1) for name, size in sizes.items())
        features, truth = unit_vectors(rng, s, k, d), unit_vectors(rng, d)
        return cls(reward_noise, weights=truth, features=features)

    def states(self, rng: np.random.Generator, n: int) -> Int[np.ndarray, " n"]:
        """Return the numbers of the contexts of n users, as :meth:`contexts` draws them."""
        # a number below 1 times the total is below it also when rounded, so that a context that
        # never occurs is never drawn
        levels = rng.random(_validate.integer("n", n, at_least=1)) * self._reached[-1]
        return np.asarray(np.searchsorted(self._reached, levels, side="right"))

    def contexts(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n k d"]:
        """Return the features of all actions of n users."""
        return np.asarray(self.features[self.states(rng, n)])


def tabular_bandit(
    rewards: Float[np.ndarray, "s a"],
    *,
    chances: Float[np.ndarray, " s"] | None = None,
    reward_noise: float = 0.5,
) -> LogLinearBandit:
    """Return the world in which state and action have a mean reward of their own."""
    # Features are one-hot, d = s · a, so that a log-linear policy is a tabular one
    # (`TabularPolicy`).
    # Source: docs/policy_optimization.md, "Environments".
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
    """Return a hard instance as a world with rewards, and its reference as ``start``."""
    # The reference takes the rare action, which may be the good one, with probability 1/C.
    # Source: docs/policy_optimization.md, "Environments"; PPKL, Theorem 4.5 (the construction in
    # its proof).
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
