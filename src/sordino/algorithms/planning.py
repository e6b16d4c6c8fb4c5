"""Pessimistic planning in finite-horizon decision processes, from a released reward alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse

from sordino import _validate
from sordino.environments.tabular import TabularWorld, tabular_world
from sordino.errors import UsageError
from sordino.policies.conic import FlowProgram, refuse_gap, solve_flows
from sordino.policies.frank_wolfe import Mixture, Response, best_mixture
from sordino.policies.gibbs import ReleasedReward
from sordino.policies.robust import Solver, WorstCaseResult, confidence_ellipsoid_of, vector_of
from sordino.policies.worst_case import Ellipsoidal, PlausibleRewards

_SMALL = 2000  # variables up to which the whole program is solved at once, unless asked otherwise
_NEVER = 1e-9  # what an interior-point solver visits less often is not visited


class _TableSearch:
    """One planning problem on tables."""

    # Source: docs/planning.md, "Decision processes".

    def __init__(
        self, plausible: PlausibleRewards, world: TabularWorld, reference: object, against: object
    ) -> None:
        """Read the reference policy and the vector that features are compared with."""
        self.plausible, self.world = plausible, world
        self.reference = world.policy(reference)
        self.start = self._moments(self.reference)
        self.offset = vector_of(against, self.start)

    def solve(self, solver: str | None, gap: float) -> dict[str, Any]:
        """Return the fields of a plan, for the policy that is handed out."""
        mixture = None
        small = self.reference.size <= _SMALL
        if solver == "frank-wolfe" or (solver is None and not small):
            mixture = best_mixture(
                self.plausible,
                self._best_response,
                reference_vector=self.offset,
                start=((self.start, self.reference),),
                gap=gap,
            )
            theta = mixture.theta
            visits = sum(
                weight * self.world.occupancy(self._probabilities(policy))
                for weight, (_, policy) in zip(mixture.weights, mixture.responses, strict=True)
            )
        else:
            flows, theta = solve_flows(
                self.plausible, self._program(), reference_vector=self.offset
            )
            visits = flows.reshape(self.world.horizon, -1)
        policy = self._policy(np.asarray(visits))
        moments = self._moments(policy) - self.offset
        value = self.plausible.worst(moments).value
        upper = float((self._best_response(theta)[0] - self.offset) @ theta)
        if mixture is None:
            refuse_gap(upper, value, _validate.positive("gap", gap))
        # Source: docs/planning.md, "Certificate": backward induction with the reward
        # θ̂ᵀ(φ_h − c_h) + radius·‖φ_h − c_h‖_{M⁻¹}, c_h the policy's mean features at step h.
        bounds = []
        for step, center in enumerate(self.world.moments(self.world.occupancy(policy))):
            rows = self.world.feature(step)
            dense = rows.toarray() if sparse.issparse(rows) else rows
            bounds.append(self.plausible.most(dense - center))
        return {
            "policy": policy[:, : self.world.states],
            "value": value,
            "upper": upper,
            "certificate": max(self.world.backward(np.stack(bounds))[0], 0.0),
            "moments": moments,
            "theta": theta,
            "mixture": mixture,
        }

    def _moments(self, policy: Float[np.ndarray, "h t a"]) -> Float[np.ndarray, " d"]:
        return np.asarray(self.world.moments(self.world.occupancy(policy)).sum(axis=0))

    def _best_response(self, theta: Float[np.ndarray, " d"]) -> Response:
        chosen = self.world.backward(self.world.scores(theta))[1]
        return self._moments(self._probabilities(chosen)), chosen

    def _probabilities(self, policy: np.ndarray) -> Float[np.ndarray, "h t a"]:
        """Return a policy as probabilities, also where it is one action for each state."""
        if policy.dtype.kind == "f":
            return np.asarray(policy)
        return np.asarray(np.eye(self.world.actions)[policy])

    def _policy(self, visits: Float[np.ndarray, "h m"]) -> Float[np.ndarray, "h t a"]:
        """Return the policy that visits as often; where it never comes, the reference."""
        table = visits.reshape(self.reference.shape)
        table = np.where(table > _NEVER, table, 0.0)
        often = table.sum(axis=2, keepdims=True)
        return np.where(often > 0, table / np.where(often > 0, often, 1.0), self.reference)

    def _program(self) -> FlowProgram:
        """Return the occupancy measures: what flows out of a state is what flowed in."""
        world, states = self.world, len(self.world.initial)
        out = sparse.kron(sparse.eye_array(states), np.ones((1, world.actions)))
        blocks: list[list[Any]] = [[None] * world.horizon for _ in range(world.horizon)]
        for step in range(world.horizon):
            blocks[step][step] = out
            if step:
                blocks[step][step - 1] = -sparse.csr_array(world.transition(step - 1)).T
        features = [sparse.csr_array(world.feature(step)) for step in range(world.horizon)]
        return FlowProgram(
            features=sparse.vstack(features, format="csr"),
            constraints=sparse.block_array(blocks, format="csr"),
            totals=np.append(world.initial, np.zeros(states * (world.horizon - 1))),
        )


_SOLVERS = ("frank-wolfe", "cone-program")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Plan(WorstCaseResult):
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
    certificate: float | None
    moments: Float[np.ndarray, " d"]
    mixture: Mixture | None

    def __repr__(self) -> str:
        shape = "an oracle's policies" if self.policy is None else f"{self.policy.shape}"
        known = "" if self.certificate is None else f"certificate={self.certificate:.6g}, "
        return (
            f"Plan({shape}, value={self.value:.6g}, gap={self.gap:.2g}, {known}"
            f"confidence={self.confidence:g}, {self.label})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        return super().to_dict() | {
            "policy": None if self.policy is None else self.policy.tolist(),
            "certificate": self.certificate,
        }


def plan(  # noqa: PLR0913 (each is one choice of the user)
    reward: ReleasedReward | Ellipsoidal,
    environment: object,
    *,
    horizon: int | None = None,
    features: object = None,
    confidence: float = 0.95,
    radius_scale: float = 1.0,
    reference: object = None,
    reference_vector: object = "reference",
    initial: object = None,
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
        if isinstance(reference_vector, str):
            raise UsageError(
                "With an oracle, reference_vector must be the mean total features of a reference "
                "policy, an array, or None for no comparison."
            )
        if solver == "cone-program":
            raise UsageError("With an oracle, solver must be 'frank-wolfe'.")
        offset = vector_of(reference_vector, np.zeros(d))
        mixture = best_mixture(
            plausible, environment.best_response, reference_vector=offset, gap=gap
        )
        shown = ("value", "upper", "moments", "theta")
        found = {name: getattr(mixture, name) for name in shown}
        found |= {"policy": None, "certificate": None, "mixture": mixture}
    else:
        if horizon is None:
            raise UsageError("horizon is missing: how many steps does an episode have?")
        world = tabular_world(environment, horizon=horizon, d=d, features=features, initial=initial)
        search = _TableSearch(plausible, world, reference, reference_vector)
        found = search.solve(solver, gap)
    return Plan(
        **found,
        confidence=confidence,
        radius_scale=float(radius_scale),
        guarantee=reward.guarantee if isinstance(reward, ReleasedReward) else None,
    )
