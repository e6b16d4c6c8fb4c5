"""What a world must offer to be learned in, and what is known where its reward is known.

Whatever a world returns, bounds hold; and how people answer and how good a policy or a fit is can
be told.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import expit, logsumexp, xlogy

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.policies.gibbs import tilt
from sordino.preferences.features import clipped_rows

ActionFeatures: TypeAlias = Float[np.ndarray, "n k d"]
PerAction: TypeAlias = Float[np.ndarray, "n k"]
Actions: TypeAlias = Integer[np.ndarray, " n"]
"""Features, and one number, of all k actions in n contexts; which of the actions is meant."""


@runtime_checkable
class Environment(Protocol):
    """A world of users: two methods, both for many users at once."""

    # Row i is user i. It may depend on that user and on the generator, never on another row: a
    # reward that is ranked, averaged or standardized within the batch would let one user change the
    # rewards of others, and no clipping would bound that. Every call of `contexts` returns people
    # who were never returned before: a run counts only its worst batch because no person is in two.
    # Where people may come again, use `UserSlots` with ids.
    # A world may state `feature_bound`, the largest norm of its features (1 where it does not), and
    # `reward_bound`, the largest absolute reward; where its truth is known also
    # `suboptimality(policy, rng, n)`.

    def contexts(self, rng: np.random.Generator, n: int) -> ActionFeatures:
        """Return the features of all k actions of n users."""

    def reward(
        self, context: ActionFeatures, action: Actions, rng: np.random.Generator
    ) -> Float[np.ndarray, " n"]:
        """Return what each of n users felt after the action taken."""


def feature_bound_of(environment: object) -> float:
    """Return the bound on the norm of features that a world states, or 1."""
    return _validate.positive("feature_bound", getattr(environment, "feature_bound", 1.0))


def bounded_contexts(environment: Environment, rng: np.random.Generator, n: int) -> ActionFeatures:
    """Return the features of n users, each action's of norm at most the bound, up to rounding."""
    # A longer vector is shortened on its own, so no user changes another.
    # Source: docs/policy_optimization.md, "Environments".
    if isinstance(environment, type) or not isinstance(environment, Environment):
        slip = isinstance(environment, type)  # the class in place of its object
        given = f"the class {environment.__name__}" if slip else type(environment).__name__
        raise UsageError(
            "environment must have the methods contexts(rng, n) and reward(context, action, rng), "
            f"got {given}. Nothing was drawn."
        )
    count = _validate.integer("n", n, at_least=1)
    features = _numbers("contexts", environment.contexts(rng, count))
    if features.ndim != 3 or len(features) != count or not features.size:  # noqa: PLR2004
        raise DataError(f"contexts must have shape ({count}, k, d), got {features.shape}.")
    return _shortened(features, feature_bound_of(environment))


def bounded_rewards(
    environment: Environment,
    context: ActionFeatures,
    action: Actions,
    rng: np.random.Generator,
    *,
    reward_bound: float,
) -> Float[np.ndarray, " n"]:
    """Return the rewards of n users, each cut to ±reward_bound."""
    # Source: docs/policy_optimization.md, "Environments".
    bound = _validate.positive("reward_bound", reward_bound)
    found = _numbers("reward", environment.reward(context, action, rng))
    if found.shape != (len(context),):
        raise DataError(f"reward must have shape ({len(context)},), got {found.shape}.")
    return np.asarray(np.clip(_validate.finite_array("reward", found, ndim=1), -bound, bound))


def _numbers(name: str, value: object) -> np.ndarray:
    try:
        found = np.asarray(value)
    except ValueError:
        found = np.asarray(None)
    if found.dtype.kind not in "biuf":
        raise DataError(f"{name} must return one array of numbers, got dtype {found.dtype}.")
    return found.astype(np.float64, copy=False)


def _shortened(features: ActionFeatures, bound: float) -> ActionFeatures:
    """Return features within the bound; copy only where one is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("nkd,nkd->nk", features, features)
        outside = ~(squares <= bound * bound)  # also NaN, and squares that overflowed
    if not outside.any():
        return features
    _validate.finite_array("contexts", features, ndim=3)
    kept = features.copy()
    kept[outside] = clipped_rows(features[outside], bound)
    return kept


def prefer_first(
    gaps: Float[np.ndarray, " n"], generator: np.random.Generator
) -> Integer[np.ndarray, " n"]:
    """Return who prefers the first of two answers: 1 with probability σ(gap), else 0.

    Source:
        Bradley & Terry 1952.

    Args:
        gaps: True reward of the first answer minus that of the second.
        generator: Randomness of the world; nothing private is in it.

    Example:
        >>> prefer_first(np.array([50.0, -50.0]), np.random.default_rng(0))
        array([1, 0], dtype=int8)
    """
    return np.asarray(generator.random(len(gaps)) < expit(gaps), dtype=np.int8)


def gibbs_rows(scores: PerAction, temperature: float, reference: PerAction) -> PerAction:
    """Return reference · exp(score / temperature), normalized in every row."""
    # Source: KLDP, §2; PPKL, §2.
    scores, reference = _rows("scores", scores, reference)
    starts = np.arange(len(scores)) * scores.shape[1]
    strength = _validate.positive("temperature", temperature)
    flat = tilt(scores.ravel(), starts, strength, reference.ravel())
    return flat.reshape(scores.shape)


def kl_regret(
    probabilities: PerAction, rewards: PerAction, temperature: float, reference: PerAction
) -> float:
    """Return the best regularized value minus the policy's, ≥ 0 and exact where it is tiny."""
    # The difference equals temperature · KL(policy ‖ best policy), which is computed as a sum of
    # terms that are not negative, so that nothing cancels.
    # Source: J* − J(π) = temperature · E KL(π ‖ π*); KLDP, §2.
    probabilities, reference = _rows("probabilities", probabilities, reference)
    strength = _validate.positive("temperature", temperature)
    tilted = rewards / strength
    logs = tilted - logsumexp(tilted, b=reference, axis=1, keepdims=True)
    best = reference * np.exp(logs)
    terms = xlogy(probabilities, probabilities / reference) - probabilities * logs
    return float(strength * np.maximum(terms - probabilities + best, 0.0).sum(axis=1).mean())


def measured_policy(
    probabilities: PerAction, rewards: PerAction, temperature: float, reference: PerAction
) -> dict[str, float]:
    """Return how good a policy is where the reward is known, by the names that results have."""
    # Source: KLDP, §2: the mean over contexts of E r − temperature · KL(policy ‖ reference); of the
    # Gibbs policy, which is the best, it is temperature · log Σ reference·exp(r/temperature).
    rewards, reference = _rows("rewards", rewards, reference)
    regret = kl_regret(probabilities, rewards, temperature, reference)
    divergence = xlogy(probabilities, probabilities / reference)
    best = logsumexp(rewards / temperature, b=reference, axis=1)
    return {
        "kl_regret": regret,
        "value": float((probabilities * rewards - temperature * divergence).sum(axis=1).mean()),
        "best_value": float(temperature * best.mean()),
    }


def _rows(name: str, values: PerAction, reference: PerAction) -> tuple[PerAction, PerAction]:
    """Return both as finite arrays of one shape; the reference must be above 0."""
    rows = _validate.finite_array(name, values, ndim=2)
    base = _validate.finite_array("reference", reference, ndim=2)
    if rows.shape != base.shape or not rows.size:
        raise DataError(
            f"{name} and reference must have one entry for each candidate of each context, got "
            f"shapes {rows.shape} and {base.shape}."
        )
    if (base <= 0).any():
        index = int(np.flatnonzero((base <= 0).any(axis=1))[0])
        raise DataError(f"reference: row {index} has a probability that is not above 0.")
    return rows, base
