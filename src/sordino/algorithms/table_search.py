"""The best worst case over all policies of a table, and what certifies it."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse

from sordino import _validate
from sordino.environments.tabular import TabularWorld
from sordino.policies._conic import refuse_gap
from sordino.policies.cone_program import FlowProgram, solve_flows
from sordino.policies.frank_wolfe import Response, best_mixture
from sordino.policies.robust import vector_of
from sordino.policies.worst_case import PlausibleRewards

__all__ = ["TableSearch", "certified_regret"]

_SMALL = 2000  # variables up to which the whole program is solved at once, unless asked otherwise
_NEVER = 1e-9  # what an interior-point solver visits less often is not visited


def certified_regret(
    plausible: PlausibleRewards, world: TabularWorld, policy: Float[np.ndarray, "h t a"]
) -> float:
    """Return what the best policy gains over this one at most, for every reward in the set.

    Source:
        docs/planning.md, "Certificate": backward induction with the reward θ̂ᵀ(φ_h − c_h) +
        radius·‖φ_h − c_h‖_{M⁻¹}, c_h the policy's mean features at step h.

    Args:
        plausible: Which rewards may be true.
        world: The tables.
        policy: Probabilities of actions, with the state that was added.
    """
    centers = world.moments(world.occupancy(policy))
    bounds = []
    for step, center in enumerate(centers):
        rows = world.feature(step)
        dense = rows.toarray() if sparse.issparse(rows) else rows
        bounds.append(plausible.most(dense - center))
    return max(world.backward(np.stack(bounds))[0], 0.0)


class TableSearch:
    """One planning problem on tables.

    Source:
        docs/planning.md, "Decision processes".
    """

    def __init__(
        self, plausible: PlausibleRewards, world: TabularWorld, reference: Any, against: Any
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
        return {
            "policy": policy[:, : self.world.states],
            "value": value,
            "upper": upper,
            "certificate": certified_regret(self.plausible, self.world, policy),
            "moments": moments,
            "theta": theta,
            "mixture": mixture,
        }

    def _moments(self, policy: Float[np.ndarray, "h t a"]) -> Float[np.ndarray, " d"]:
        return np.asarray(self.world.moments(self.world.occupancy(policy)).sum(axis=0))

    def _best_response(self, theta: Float[np.ndarray, " d"]) -> Response:
        chosen = self.world.backward(self.world.scores(theta))[1]
        return self._moments(self._probabilities(chosen)), chosen

    def _probabilities(self, policy: Any) -> Float[np.ndarray, "h t a"]:
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
