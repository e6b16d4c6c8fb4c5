"""How many batches, of how many users, with which step: from public numbers alone.

Whoever tries several and keeps the best on private users has spent all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sordino import _validate
from sordino.mechanisms.least_squares import GaussianStatistics, Oracle
from sordino.privacy.guarantee import NeighboringRelation

from .policy_updates import UpdateBounds
from .user_slots import Slots, refuse_shifting

__all__ = ["RunPlan", "plan_run", "theoretical_step"]

_FEWEST: Final = 2  # users of a batch
_MOST_BATCHES: Final = 4096


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A plan, and what the theorems say of it.

    Attributes:
        batch: m, users of one batch.
        batches: T.
        step: Step size, in log odds per unit of reward.
        optimization_error: What T steps without any error leave, in units of reward.
        sampling_error: What so few users add, without any privacy, in units of reward, about.
        oracle_error: What the oracle's own error adds, in units of reward, about.
    """

    batch: int
    batches: int
    step: float
    optimization_error: float
    sampling_error: float
    oracle_error: float

    @property
    def users(self) -> int:
        """Return how many users it takes."""
        return self.batch * self.batches

    @property
    def error(self) -> float:
        """Return the sum of the three, which the plan makes small."""
        return self.optimization_error + self.sampling_error + self.oracle_error


def theoretical_step(
    actions: int, batches: int, *, feature_bound: float = 1.0, radius: float
) -> float:
    """Return √(2 log k/(T β W²)), β = B²: the step of least bound for NPG.

    Args:
        actions: k, how many actions a user has.
        batches: T.
        feature_bound: B.
        radius: W, largest norm of a direction.

    Source:
        PPO-DP, Theorem 2 (NPG); docs/policy_optimization.md, "Planning a run".

    Example:
        >>> round(theoretical_step(6, 20, radius=2.0), 4)
        0.2116
    """
    choices = _validate.integer("actions", actions, at_least=1)
    rounds = _validate.integer("batches", batches, at_least=1)
    smoothness = _validate.positive("feature_bound", feature_bound) ** 2
    size = _validate.positive("radius", radius)
    return math.sqrt(2 * math.log(max(choices, 2)) / (rounds * smoothness)) / size


def plan_run(  # noqa: PLR0913 (each is one public number)
    users: int,
    *,
    epsilon: float,
    delta: float,
    neighbors: NeighboringRelation,
    dimension: int,
    actions: int,
    oracle: Oracle | None = None,
    feature_bound: float = 1.0,
    reward_bound: float = 1.0,
    radius: float | None = None,
) -> RunPlan:
    """Return the number of batches, their size and the step that the theorems like best.

    More batches leave less to optimize, smaller ones make every regression worse. The sum of
    W√(2β log k/T), of twice 2R√(d/m), the standard error of a regression on m = ⌊N/T⌋ rows, and of
    twice what the oracle predicts of its own error is made small over T in powers of √2. Nothing is
    read but these numbers, so nothing is spent.

    Args:
        users: N.
        epsilon: Privacy loss of a person, infinity for none.
        delta: Failure probability.
        neighbors: What one change is.
        dimension: d, number of features.
        actions: k, how many actions a user has.
        oracle: Recipe of the regression; Gaussian sufficient statistics if left out.
        feature_bound: B, norm of features.
        reward_bound: R, largest absolute reward.
        radius: W, largest norm of a direction; 2R/B if left out.

    Raises:
        UsageError: A number is out of range.
        PrivacyError: The relation adds or removes users.

    Source:
        PPO-DP, Theorem 2 (NPG); docs/policy_optimization.md, "Planning a run".
        Differs: the oracle's error is its own prediction, constants included, not an order.
    """
    refuse_shifting(neighbors)
    d = _validate.integer("dimension", dimension, at_least=1)
    total = Slots(users=users, batches=1).users
    size = 2 * reward_bound / feature_bound if radius is None else radius
    bounds = UpdateBounds(
        feature_bound=_validate.positive("feature_bound", feature_bound),
        reward_bound=_validate.positive("reward_bound", reward_bound),
        radius=_validate.positive("radius", size),
        gradient_bound=math.inf,
    )
    recipe = GaussianStatistics() if oracle is None else oracle

    def planned(batches: int) -> RunPlan:
        batch = total // batches
        regression = recipe.calibrated(
            epsilon,
            delta=delta,
            feature_bound=bounds.row_bound,
            target_bound=bounds.target_bound,
            radius=bounds.radius,
            neighbors=neighbors,
            rows=batch,
        )
        step = theoretical_step(actions, batches, feature_bound=feature_bound, radius=bounds.radius)
        return RunPlan(
            batch=batch,
            batches=batches,
            step=step,
            optimization_error=step * (bounds.radius * feature_bound) ** 2,
            sampling_error=2 * bounds.target_bound * math.sqrt(d / batch),
            oracle_error=2 * regression.predicted_error(d),
        )

    return min((planned(batches) for batches in _candidates(total)), key=lambda plan: plan.error)


def _candidates(users: int) -> list[int]:
    """Return numbers of batches to compare, each about √2 times the one before."""
    most = max(1, min(_MOST_BATCHES, users // _FEWEST))
    found = {round(2 ** (half / 2)) for half in range(2 * _MOST_BATCHES.bit_length())}
    return sorted(batches for batches in found if batches <= most)
