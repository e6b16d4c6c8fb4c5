"""What a run of policy optimization leaves: policies, output, and how well it was explored."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from sordino.policies.log_linear import LogLinearPolicy, coverage_of
from sordino.privacy.guarantee import Guarantee

from .policy_updates import Direction

__all__ = ["Run", "chosen_policy", "largest_ratio"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Run:
    """All policies of a run; using and publishing any of them is free.

    Made by :func:`optimize`.

    Attributes:
        policies: The start and the policy after every batch, T + 1 in all.
        policy: The output: the last one, the average of the parameters, or a drawn one.
        guarantee: What the whole sequence promises to one person: the largest promise of a batch.
        coverage: No action is more than so many times as likely under ``policy`` as under the
            reference that explored, in any context within the feature bound; 1 where the current
            policy explored. See :meth:`coverage_on`.
        reference: The policy that explored; None where the current one did.
        directions: What every update released.
        step: By which a direction was multiplied.
        release_ids: The entries that paid, batch by batch.
    """

    policies: tuple[LogLinearPolicy, ...]
    policy: LogLinearPolicy
    guarantee: Guarantee
    coverage: float
    reference: LogLinearPolicy | None
    directions: tuple[Direction, ...]
    step: float
    release_ids: tuple[str, ...]

    @property
    def projected(self) -> int:
        """Return how many directions were longer than the radius and were projected."""
        return sum(direction.projected for direction in self.directions)

    @property
    def squared_gradients(self) -> tuple[float, ...] | None:
        """Return ‖∇J‖² of every policy but the last, from released gradients; None without them.

        What the noise adds on average is subtracted, what the choice of users adds is not. The
        first-order theorem is about the average of them: about a policy that is drawn.
        """
        found = [direction.squared_gradient for direction in self.directions]
        known = [value for value in found if value is not None]
        return tuple(known) if len(known) == len(found) else None

    def coverage_on(self, features: Float[np.ndarray, "n k d"]) -> float:
        """Return the largest ratio of the output's probability to the reference's.

        Args:
            features: Of public users: of private ones the ratio would tell.
        """
        return 1.0 if self.reference is None else coverage_of(self.reference, self.policy, features)

    def __repr__(self) -> str:
        """Return size and promise."""
        return (
            f"Run({len(self.directions)} batches, projected={self.projected}, "
            f"coverage={self.coverage:.4g}, {self.guarantee})"
        )


def chosen_policy(policies: list[LogLinearPolicy], output: str, drawn: int) -> LogLinearPolicy:
    """Return the last policy, a drawn one, or the average of all that a batch made.

    Args:
        policies: The start and what every batch made.
        output: ``"last"``, ``"average"`` or ``"drawn"``.
        drawn: Which one is drawn.

    Source:
        docs/policy_optimization.md, "Output and coverage".
    """
    if output == "average":
        return LogLinearPolicy(np.mean([policy.weights for policy in policies[1:]], axis=0))
    return policies[drawn if output == "drawn" else -1]


def largest_ratio(
    reference: LogLinearPolicy | None,
    policy: LogLinearPolicy,
    *,
    actions: int,
    feature_bound: float,
) -> float:
    """Return what no π/μ exceeds in any context within the feature bound; 1 without a reference.

    With μ ≥ p on every action and log π/μ spread over at most s = 2B‖θ − θ_μ‖, the ratio is at
    most 1/(p + (1 − p)e^(−s)). Nothing but released weights is read, so it costs nothing.

    Args:
        reference: μ.
        policy: π.
        actions: k.
        feature_bound: B, norm of features.

    Source:
        docs/policy_optimization.md, "Output and coverage".

    Example:
        >>> start = LogLinearPolicy.uniform(2)
        >>> largest_ratio(start, start, actions=6, feature_bound=1.0)
        1.0
        >>> largest_ratio(start, start.moved(np.ones(2), 100.0), actions=6, feature_bound=1.0)
        6.0
    """
    if reference is None:
        return 1.0
    spread = 2 * feature_bound * float(np.linalg.norm(policy.weights - reference.weights))
    steep = 2 * feature_bound * float(np.linalg.norm(reference.weights))
    rarest = math.exp(-steep) / (math.exp(-steep) + actions - 1)
    least = rarest + (1 - rarest) * math.exp(-spread)
    return 1 / least if least else math.inf
