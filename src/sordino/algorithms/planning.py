"""Pessimistic planning in finite-horizon decision processes, from a released reward alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.environments.tabular import tabular_world
from sordino.errors import UsageError
from sordino.policies.frank_wolfe import Mixture, best_mixture
from sordino.policies.robust import Solver, confidence_ellipsoid_of, vector_of
from sordino.policies.worst_case import PlausibleRewards
from sordino.privacy.guarantee import Guarantee

from .table_search import TableSearch

__all__ = ["Plan", "plan"]

_SOLVERS = ("frank-wolfe", "cone-program")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Plan:
    """A policy for every step and state; worst-case optimal up to the gap.

    Made by :func:`plan`. It is computed from what was released, so using it is free.

    Attributes:
        policy: Probabilities of actions, shape (H, states, actions); None where an oracle
            answered, whose policies are in ``mixture``.
        value: The least total reward over all rewards that may be true, relative to the
            reference vector.
        upper: What no policy exceeds in the worst case.
        certificate: What the best policy gains over this one at most if the true reward is in
            the confidence set; None where an oracle answered.
        moments: Mean total features of the policy, less the reference vector, shape (d,).
        theta: The reward that shows ``upper``, shape (d,).
        mixture: The policies that it mixes, and how often; None from the cone program.
        confidence: How often the confidence set holds the true reward.
        radius_scale: What its radius was multiplied by; below 1 nothing is proved.
        guarantee: What the release behind the reward promises; None for a bare confidence set.
    """

    policy: Float[np.ndarray, "h s a"] | None
    value: float
    upper: float
    certificate: float | None
    moments: Float[np.ndarray, " d"]
    theta: Float[np.ndarray, " d"]
    mixture: Mixture | None
    confidence: float
    radius_scale: float
    guarantee: Guarantee | None

    @property
    def gap(self) -> float:
        """How much a better policy could gain in the worst case, at most."""
        return max(self.upper - self.value, 0.0)

    @property
    def label(self) -> str:
        """``"valid"``, or ``"heuristic scale ..."`` for a radius smaller than the proved one."""
        return f"heuristic scale {self.radius_scale:g}" if self.radius_scale < 1 else "valid"

    def __repr__(self) -> str:
        """Return the certified numbers, and whether they are proved."""
        shape = "an oracle's policies" if self.policy is None else f"{self.policy.shape}"
        known = "" if self.certificate is None else f"certificate={self.certificate:.6g}, "
        return (
            f"Plan({shape}, value={self.value:.6g}, gap={self.gap:.2g}, {known}"
            f"confidence={self.confidence:g}, {self.label})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        return {
            "policy": None if self.policy is None else self.policy.tolist(),
            "value": self.value,
            "gap": self.gap,
            "certificate": self.certificate,
            "confidence": self.confidence,
            "radius_scale": self.radius_scale,
            "label": self.label,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
        }


def plan(  # noqa: PLR0913 (each is one choice of the user)
    reward: Any,
    environment: Any,
    *,
    horizon: int | None = None,
    features: Any = None,
    confidence: float = 0.95,
    radius_scale: float = 1.0,
    reference: Any = None,
    reference_vector: Any = "reference",
    initial: Any = None,
    within_ball: bool = True,
    gap: float = 1e-4,
    solver: Solver | None = None,
) -> Plan:
    """Return the policy whose least total reward, over all rewards that may be true, is largest.

    Source:
        docs/planning.md, "Decision processes".

    Args:
        reward: A :class:`sordino.RewardModel` with a confidence set, such as one that was loaded
            from a file, or the set itself.
        environment: As in :func:`sordino.environments.tabular.tabular_world`: a gymnasium
            environment with a table, or an array of probabilities; or any object whose
            ``best_response(theta)`` returns the mean total features of a best policy, or these
            and the policy.
        horizon: Number of steps H; not needed with an oracle.
        features: Shape (states, actions, d) or (H, states, actions, d); one feature for every
            (state, action) if left out.
        confidence: How often the confidence set holds the true reward, in (0, 1).
        radius_scale: What its radius is multiplied by, ≥ 0; below 1 is a heuristic, marked so.
        reference: The starting policy, shape (states, actions) or (H, states, actions); uniform
            if left out. States that the plan never reaches keep to it. Not with an oracle.
        reference_vector: What mean features are compared with: ``"reference"``, those of the
            starting policy; or an array of shape (d,); or None for nothing. With an oracle one
            of the last two.
        initial: How often each state comes first, or one state's number; by default what the
            environment says of itself.
        within_ball: Also use that the true reward lies in the ball that the set assumes.
        gap: What the worst case may fall short of the best one, in units of reward, > 0.
        solver: ``"frank-wolfe"``, or ``"cone-program"``, which solves everything at once; by
            default the latter for up to 2,000 numbers H · states · actions.

    Raises:
        UsageError: A setting is missing or out of range, no reward is left, or nothing bounds
            the worst case.
        DataError: Tables are malformed.
        PrivacyError: The reward is not a released one.
        ConvergenceError: The gap could not be certified in floats.
    """
    known = confidence_ellipsoid_of(reward)
    plausible = PlausibleRewards.of(
        known, confidence=confidence, radius_scale=radius_scale, within_ball=within_ball
    )
    _validate.one_of("solver", solver, (None, *_SOLVERS))
    d = len(known.center)
    if hasattr(environment, "best_response"):
        if horizon is not None or features is not None or reference is not None:
            raise UsageError("An oracle knows its horizon, features and reference: leave them out.")
        found = _answered(plausible, environment, reference_vector, gap, d, solver)
    else:
        if horizon is None:
            raise UsageError("horizon is missing: how many steps does an episode have?")
        world = tabular_world(environment, horizon=horizon, d=d, features=features, initial=initial)
        found = TableSearch(plausible, world, reference, reference_vector).solve(solver, gap)
    return Plan(
        **found,
        confidence=confidence,
        radius_scale=float(radius_scale),
        guarantee=None if reward is known else reward.guarantee,
    )


def _answered(
    plausible: PlausibleRewards,
    oracle: Any,
    against: Any,
    gap: float,
    d: int,
    solver: str | None,
) -> dict[str, Any]:
    """Return the fields of a plan of which only best responses are known."""
    if isinstance(against, str):
        raise UsageError(
            "With an oracle, reference_vector must be the mean total features of a reference "
            "policy, an array, or None for no comparison."
        )
    if solver == "cone-program":
        raise UsageError("With an oracle, solver must be 'frank-wolfe'.")
    mixture = best_mixture(
        plausible,
        oracle.best_response,
        reference_vector=vector_of(against, np.zeros(d)),
        gap=gap,
    )
    return {
        "policy": None,
        "value": mixture.value,
        "upper": mixture.upper,
        "certificate": None,
        "moments": mixture.moments,
        "theta": mixture.theta,
        "mixture": mixture,
    }
