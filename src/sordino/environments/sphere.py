"""Users whose actions point anywhere: the world that papers and peers are compared in."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Float

from sordino import _validate

from .linear_worlds import LinearRewardWorld, unit_vectors

__all__ = ["Sphere"]


@dataclass(frozen=True, eq=False)
class Sphere(LinearRewardWorld):
    """Every user has actions with features uniform on the unit sphere, and a linear reward.

    The reward is θ*ᵀφ plus noise, cut to [−1, 1], and θ* is the unit vector with equal entries;
    as features point anywhere, its direction does not matter.

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
        """Refuse what is no world."""
        super().__post_init__()
        d = _validate.integer("dimension", self.dimension, at_least=1)
        _validate.integer("actions", self.actions, at_least=1)
        self._keep(weights=np.full(d, d**-0.5))

    @property
    def step(self) -> float:
        """Return the step size this world is compared at, in log odds per unit of reward."""
        return 2.0

    def contexts(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n k d"]:
        """Return the features of all actions of n users, all of norm 1.

        Args:
            rng: Randomness of the world.
            n: Number of users, ≥ 1.
        """
        size = _validate.integer("n", n, at_least=1)
        return unit_vectors(rng, size, self.actions, self.dimension)
