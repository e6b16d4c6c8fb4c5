"""How good a policy is where the reward is known, and how people with that reward answer."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, logsumexp, xlogy

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.policies.gibbs import tilt

__all__ = [
    "best_value",
    "checked_flip",
    "gibbs_rows",
    "kl_regret",
    "prefer_first",
    "regularized_value",
]


def checked_flip(flip_probability: float) -> float:
    """Return a flip probability; refuse one that leaves nothing to learn from.

    Raises:
        UsageError: It is outside [0, 1/2).
    """
    flip = _validate.number("flip_probability", flip_probability)
    if not 0 <= flip < 0.5:  # noqa: PLR2004
        raise UsageError(f"flip_probability must be in [0, 0.5), got {flip_probability!r}.")
    return flip


def prefer_first(
    gaps: Float[np.ndarray, " n"], generator: np.random.Generator
) -> Int[np.ndarray, " n"]:
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


def gibbs_rows(
    scores: Float[np.ndarray, "n k"],
    temperature: float,
    reference: Float[np.ndarray, "n k"],
) -> Float[np.ndarray, "n k"]:
    """Return reference · exp(score / temperature), normalized in every row.

    Source:
        KLDP, §2; PPKL, §2.

    Args:
        scores: Rewards of k candidates in each of n contexts.
        temperature: KL strength in units of reward, > 0.
        reference: Probabilities of the starting policy.

    Example:
        >>> gibbs_rows(np.array([[1.0, 0.0]]), 0.5, np.full((1, 2), 0.5)).round(4)
        array([[0.8808, 0.1192]])
    """
    scores, reference = _rows("scores", scores, reference)
    starts = np.arange(len(scores)) * scores.shape[1]
    strength = _validate.positive("temperature", temperature)
    flat = tilt(scores.ravel(), starts, strength, reference.ravel())
    return flat.reshape(scores.shape)


def regularized_value(
    probabilities: Float[np.ndarray, "n k"],
    rewards: Float[np.ndarray, "n k"],
    temperature: float,
    reference: Float[np.ndarray, "n k"],
) -> float:
    """Return the mean over contexts of E r − temperature · KL(policy ‖ reference).

    Source:
        KLDP, §2; PPKL, §2.

    Args:
        probabilities: The policy's, for each candidate of each context.
        rewards: True rewards.
        temperature: KL strength in units of reward, > 0.
        reference: Probabilities of the starting policy, all above 0.
    """
    probabilities, reference = _rows("probabilities", probabilities, reference)
    strength = _validate.positive("temperature", temperature)
    divergence = xlogy(probabilities, probabilities / reference)
    return float((probabilities * rewards - strength * divergence).sum(axis=1).mean())


def best_value(
    rewards: Float[np.ndarray, "n k"], temperature: float, reference: Float[np.ndarray, "n k"]
) -> float:
    """Return the largest regularized value of any policy, averaged over contexts.

    Source:
        temperature · log Σ reference·exp(r/temperature), the Gibbs policy's value; KLDP, §2.

    Args:
        rewards: True rewards.
        temperature: KL strength in units of reward, > 0.
        reference: Probabilities of the starting policy.

    Example:
        >>> round(best_value(np.array([[0.7, 0.7]]), 0.5, np.full((1, 2), 0.5)), 6)
        0.7
    """
    rewards, reference = _rows("rewards", rewards, reference)
    strength = _validate.positive("temperature", temperature)
    return float(strength * logsumexp(rewards / strength, b=reference, axis=1).mean())


def kl_regret(
    probabilities: Float[np.ndarray, "n k"],
    rewards: Float[np.ndarray, "n k"],
    temperature: float,
    reference: Float[np.ndarray, "n k"],
) -> float:
    """Return the best regularized value minus the policy's, ≥ 0 and exact where it is tiny.

    The difference equals temperature · KL(policy ‖ best policy), which is computed as a sum of
    terms that are not negative, so that nothing cancels.

    Source:
        J* − J(π) = temperature · E KL(π ‖ π*); KLDP, §2.

    Args:
        probabilities: The policy's, for each candidate of each context.
        rewards: True rewards.
        temperature: KL strength in units of reward, > 0.
        reference: Probabilities of the starting policy, all above 0.
    """
    probabilities, reference = _rows("probabilities", probabilities, reference)
    strength = _validate.positive("temperature", temperature)
    tilted = rewards / strength
    logs = tilted - logsumexp(tilted, b=reference, axis=1, keepdims=True)
    best = reference * np.exp(logs)
    terms = xlogy(probabilities, probabilities / reference) - probabilities * logs
    return float(strength * np.maximum(terms - probabilities + best, 0.0).sum(axis=1).mean())


def _rows(
    name: str, values: Float[np.ndarray, "n k"], reference: Float[np.ndarray, "n k"]
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "n k"]]:
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
