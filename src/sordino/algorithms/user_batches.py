"""What the users of one batch did and felt: rows that know nothing of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float, Int64

from sordino.environments.interactions import Environment, bounded_rewards
from sordino.policies.log_linear import LogLinearPolicy, sampled

__all__ = ["Batch", "interact"]

_LARGEST_RATIO: Final = 1e12  # beyond it every part is clipped anyway; it keeps them finite


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Batch:
    """What m users did in one round; private until an update made a direction of it.

    Row i is a function of user i, of the policies and of coins: nothing is centered, ranked or
    scaled by the other rows, which would let one user move everybody's.

    Attributes:
        policy: π, which the update improves.
        features: φ of all actions, clipped.
        probabilities: π of all actions.
        actions: y, drawn from the exploration policy.
        others: y′, drawn from π.
        advantages: r(y) − r(y′), each reward clipped first.
        ratios: π(y)/μ(y); 1 where the current policy explores.
    """

    policy: LogLinearPolicy
    features: Float[np.ndarray, "m k d"]
    probabilities: Float[np.ndarray, "m k"]
    actions: Int64[np.ndarray, " m"]
    others: Int64[np.ndarray, " m"]
    advantages: Float[np.ndarray, " m"]
    ratios: Float[np.ndarray, " m"]

    def __len__(self) -> int:
        """Return m."""
        return len(self.features)

    def scores(self) -> Float[np.ndarray, "m d"]:
        """Return φ(y) − E φ under π: the gradient of log π(y), and what NPG regresses on."""
        return self.policy.scores(self.features, self.actions, probabilities=self.probabilities)

    def differences(self) -> Float[np.ndarray, "m d"]:
        """Return φ(y) − φ(y′), which REBEL regresses on."""
        rows = np.arange(len(self))
        return np.asarray(self.features[rows, self.actions] - self.features[rows, self.others])


def interact(
    environment: Environment,
    features: Float[np.ndarray, "m k d"],
    *,
    policy: LogLinearPolicy,
    reference: LogLinearPolicy | None,
    reward_bound: float,
    rng: np.random.Generator,
) -> Batch:
    """Return what users did and felt: one action of exploration and one of the policy each.

    Args:
        environment: Gives rewards.
        features: What the users bring, already clipped.
        policy: π, from which y′ is drawn.
        reference: μ, from which y is drawn; π itself if None.
        reward_bound: Rewards are clipped to ± this.
        rng: Coins of users, actions and rewards.

    Raises:
        DataError: A reward is not a finite number, or there is not one for each user.

    Source:
        docs/policy_optimization.md, "Setting and privacy unit".
    """
    chances = policy.probabilities(features)
    explored = chances if reference is None else reference.probabilities(features)
    actions, others = sampled(explored, rng), sampled(chances, rng)
    rows = np.arange(len(features))
    mine, theirs = (
        bounded_rewards(environment, features, chosen, rng, reward_bound=reward_bound)
        for chosen in (actions, others)
    )
    return Batch(
        policy=policy,
        features=features,
        probabilities=chances,
        actions=actions,
        others=others,
        advantages=mine - theirs,
        ratios=_ratios(chances[rows, actions], explored[rows, actions]),
    )


def _ratios(
    chances: Float[np.ndarray, " m"], explored: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " m"]:
    """Return π/μ of drawn actions, which μ gives a probability above 0."""
    return np.asarray(chances / np.maximum(explored, np.maximum(chances / _LARGEST_RATIO, 1e-300)))
