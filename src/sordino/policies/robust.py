"""The stochastic policy whose worst case is best, among all policies over given candidates."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.rewards.candidates import CandidateLists, ReferenceLists

from ._conic import refuse_gap
from .cone_program import context_program, solve_flows
from .contexts import Contexts
from .frank_wolfe import best_mixture
from .gibbs import ReleasedReward
from .stochastic import StochasticPolicy
from .suboptimality import certified_suboptimality
from .tempered import best_tempered
from .worst_case import Ellipsoidal, PlausibleRewards

__all__ = ["ContextSolver", "Solver", "confidence_ellipsoid_of", "robust_policy", "vector_of"]

Solver = Literal["frank-wolfe", "cone-program"]
ContextSolver = Literal["frank-wolfe", "cone-program", "smoothing"]
_SOLVERS = (None, "frank-wolfe", "cone-program", "smoothing")
_MANY = 64  # features above which best responses are too many, and smoothing is faster
_DIGITS = 1e-9  # what an interior-point solver gives less is given nothing


def robust_policy(  # noqa: PLR0913 (each is one choice of the user)
    reward: Any,
    prompts: Any,
    candidates: CandidateLists,
    *,
    confidence: float = 0.95,
    radius_scale: float = 1.0,
    reference: ReferenceLists | None = None,
    weights: Any = None,
    reference_vector: Any = "reference",
    temperature: float | None = None,
    within_ball: bool = True,
    gap: float = 1e-4,
    solver: ContextSolver | None = None,
) -> StochasticPolicy:
    """Return the policy whose least mean reward, over all that may be true, is largest.

    Over all stochastic policies, not only those that tilt a score: the best one spreads over
    candidates whose errors cancel. Only the mean over contexts is judged, so contexts insure
    each other.

    Source:
        docs/planning.md, "The problem".

    Args:
        reward: A :class:`sordino.RewardModel` with a confidence set, or the set itself.
        prompts: n prompts; None for candidates that are features.
        candidates: n lists of texts, or n arrays of features, shape (k, d).
        confidence: How often the confidence set holds the true reward, in (0, 1).
        radius_scale: What its radius is multiplied by, ≥ 0; below 1 is a heuristic, marked so.
        reference: n lists of probabilities of the starting policy; uniform if left out.
        weights: How often each context comes; all alike if left out.
        reference_vector: What mean features are compared with: ``"reference"``, those of the
            starting policy; or an array of shape (d,); or None for nothing.
        temperature: KL strength against the starting policy, in units of reward; None for none.
        within_ball: Also use that the true reward lies in the ball that the set assumes.
        gap: What the worst case may fall short of the best one, in units of reward, > 0.
        solver: Without a temperature: ``"frank-wolfe"``, by default up to 64 features;
            ``"smoothing"``, by default above: a temperature that costs no more than the gap; or
            ``"cone-program"``, exact, for small problems. With one only the last makes a
            difference.

    Raises:
        UsageError: A setting is out of range, the reward keeps no ellipsoid, no reward is left,
            or nothing bounds the worst case.
        DataError: Lengths disagree, a list is empty, or a reference is no distribution.
        PrivacyError: The reward is not a released one.
        ConvergenceError: The gap could not be certified in floats.
    """
    known = confidence_ellipsoid_of(reward)
    features = None if reward is known else reward.features
    contexts = Contexts.of(
        prompts, candidates, reference=reference, weights=weights, features=features
    )
    if contexts.rows.shape[1] != len(known.center):
        raise DataError(
            f"candidates must have {len(known.center)} features, got {contexts.rows.shape[1]}."
        )
    plausible = PlausibleRewards.of(
        known, confidence=confidence, radius_scale=radius_scale, within_ball=within_ball
    )
    offset = vector_of(reference_vector, contexts.start()[0])
    _validate.one_of("solver", solver, _SOLVERS)
    _validate.positive("gap", gap)
    strength = None if temperature is None else _validate.positive("temperature", temperature)
    found = _solved(plausible, contexts, offset, strength, gap, solver)
    return StochasticPolicy(
        chances=tuple(contexts.split(found.chances)),
        value=found.value,
        upper=found.upper,
        certificate=certified_suboptimality(
            plausible, contexts, found.chances, temperature=strength
        ),
        theta=found.theta,
        confidence=confidence,
        radius_scale=float(radius_scale),
        temperature=strength,
        guarantee=None if reward is known else reward.guarantee,
    )


def confidence_ellipsoid_of(reward: Any) -> Ellipsoidal:
    """Return the ellipsoid that a reward keeps; refuse one that keeps none.

    Raises:
        PrivacyError: It is neither a released reward nor a confidence set.
        UsageError: It keeps no ellipsoid.
    """
    if isinstance(reward, Ellipsoidal):
        return reward
    if not isinstance(reward, ReleasedReward):
        raise PrivacyError(
            "A policy needs a RewardModel from fit_reward, or its ellipsoid, got "
            f"{type(reward).__name__}."
        )
    known = getattr(reward, "ellipsoid", None)
    if known is None:
        raise UsageError(
            "This reward keeps no ellipsoid, so nothing says how wrong it may be. Fit it with "
            "fit_reward(..., ellipsoid=True). Finite classes have pessimistic_policy instead."
        )
    found: Ellipsoidal = known
    return found


def vector_of(reference_vector: Any, reference: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Return the vector that mean features are compared with.

    Source:
        docs/planning.md, "The reference vector".

    Args:
        reference_vector: ``"reference"``, an array of shape (d,), or None for zeros.
        reference: Mean features of the reference policy.

    Raises:
        UsageError: It is another text.
        DataError: The array has another length.
    """
    if reference_vector is None:
        return np.zeros_like(reference)
    if isinstance(reference_vector, str):
        _validate.one_of("reference_vector", reference_vector, ("reference",))
        return reference
    given = _validate.finite_array("reference_vector", reference_vector, ndim=1)
    if len(given) != len(reference):
        raise DataError(
            f"reference_vector must have {len(reference)} entries, one for each feature, got "
            f"{len(given)}."
        )
    return given


@dataclass(frozen=True, kw_only=True, eq=False)
class _Found:
    chances: Float[np.ndarray, " m"]
    value: float
    upper: float
    theta: Float[np.ndarray, " d"]


def _solved(
    plausible: PlausibleRewards,
    contexts: Contexts,
    offset: Float[np.ndarray, " d"],
    temperature: float | None,
    gap: float,
    solver: str | None,
) -> _Found:
    """Return the policy of one solver, with the value of what is handed out."""
    if solver is None:
        if len(offset) > _MANY:
            with suppress(ConvergenceError):
                return _solved(plausible, contexts, offset, temperature, gap, "smoothing")
        solver = "frank-wolfe"
    if solver == "cone-program":
        program = context_program(contexts, temperature=temperature)
        found, theta = solve_flows(plausible, program, reference_vector=offset)
    elif temperature is None and solver == "frank-wolfe":
        mix = best_mixture(
            plausible,
            contexts.best_response,
            reference_vector=offset,
            start=(contexts.start(),),
            gap=gap,
        )
        policies = tuple(policy for _, policy in mix.responses)
        found, theta = contexts.mixed(mix.weights, policies), mix.theta
    else:
        level, share = _smoothing(contexts, gap) if temperature is None else (temperature, gap)
        soft = best_tempered(
            plausible, contexts, temperature=level, reference_vector=offset, gap=share
        )
        found, theta = soft.chances, soft.theta
    upper = _best_value(contexts, theta, temperature) - float(theta @ offset)
    chances = _tidy(contexts, found)
    worst = plausible.worst(contexts.moments(chances) - offset).value
    value = worst - (0.0 if temperature is None else temperature * contexts.kl(chances))
    if solver == "cone-program":
        refuse_gap(upper, value, gap)
    return _Found(chances=chances, value=value, upper=upper, theta=theta)


def _smoothing(contexts: Contexts, gap: float) -> tuple[float, float]:
    """Return a temperature whose penalty is at most half the gap, and the other half."""
    most = max(float(-np.log(contexts.reference.min())), 1e-3)  # the largest KL there is
    return gap / 2 / most, gap / 2


def _best_value(
    contexts: Contexts, theta: Float[np.ndarray, " d"], temperature: float | None
) -> float:
    """Return what the best policy has under one reward."""
    if temperature is not None:
        return contexts.soft(theta, temperature)[0]
    return float(contexts.best_response(theta)[0] @ theta)


def _tidy(contexts: Contexts, chances: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Return probabilities without the rounding of zeros, summing to 1 in every context."""
    kept = np.where(chances < _DIGITS, 0.0, chances)
    return np.asarray(kept / np.repeat(np.add.reduceat(kept, contexts.starts), contexts.sizes))
