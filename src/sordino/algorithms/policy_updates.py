"""Three updates of one loop: a batch of interactions in, one noised direction out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.least_squares import LeastSquares, Oracle
from sordino.privacy.events import Event, NonPrivateEvent
from sordino.privacy.guarantee import Guarantee, NeighboringRelation

from .user_batches import Batch

__all__ = [
    "UPDATES",
    "Direction",
    "GradientUpdate",
    "RegressionUpdate",
    "Update",
    "UpdateBounds",
    "update_of",
]

UPDATES: Final = ("npg", "pg", "rebel")


@dataclass(frozen=True, kw_only=True)
class UpdateBounds:
    """The public sizes that every update enforces.

    Attributes:
        feature_bound: B, norm of features.
        reward_bound: R, largest absolute reward.
        radius: W, largest norm of a direction.
        gradient_bound: C, norm to which one user's part of a policy gradient is clipped.
    """

    feature_bound: float
    reward_bound: float
    radius: float
    gradient_bound: float

    @property
    def row_bound(self) -> float:
        """Return 2B: features less a mean, or another action's, are at most so long."""
        return 2 * self.feature_bound

    @property
    def target_bound(self) -> float:
        """Return 2R: what one action gained over another is at most so much."""
        return 2 * self.reward_bound


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Direction:
    """What one update released; every field may be published.

    Attributes:
        weights: Direction in which the policy's weights move, of norm at most the radius.
        error: The oracle's own estimate of its error; for a gradient the size of its noise.
        projected: Whether it was longer than the radius and was projected.
        squared_gradient: Of a policy gradient, the squared norm less what the noise adds on
            average; None for the other updates. It may be below 0.
    """

    weights: Float[np.ndarray, " d"]
    error: float
    projected: bool
    squared_gradient: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the direction as JSON holds it."""
        return {
            "weights": self.weights.tolist(),
            "error": None if not math.isfinite(self.error) else float(self.error),
            "projected": self.projected,
            "squared_gradient": self.squared_gradient,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Direction:
        """Return the direction that :meth:`to_dict` wrote.

        Raises:
            KeyError: A field is missing.
            DataError: The weights are no finite numbers.
        """
        weights = _validate.finite_array("weights", values["weights"], ndim=1)
        error = values["error"]
        return cls(
            weights=weights,
            error=math.inf if error is None else float(error),
            projected=bool(values["projected"]),
            squared_gradient=values["squared_gradient"],
        )


@runtime_checkable
class Update(Protocol):
    """What makes one direction of one batch."""

    @property
    def event(self) -> Event:
        """Return what one update does, for the ledger."""
        ...

    def guarantee(self, neighbors: NeighboringRelation) -> Guarantee:
        """Return what one update promises to each person who has a slot of its batch."""
        ...

    def direction(self, batch: Batch, *, entropy: Entropy) -> Direction:
        """Return the noised direction; the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns, for each user of the batch.
        """
        ...


@dataclass(frozen=True)
class RegressionUpdate:
    """A direction that predicts advantages best: NPG on scores, REBEL on feature differences.

    For log-linear policies REBEL's normalizers cancel, so it too is a linear least squares, and
    exactly so.

    Args:
        regression: The private regression.
        differences: Whether rows are φ(y) − φ(y′) (REBEL) and not φ(y) − E φ (NPG).

    Source:
        docs/policy_optimization.md, "Updates".
    """

    regression: LeastSquares
    differences: bool

    @property
    def event(self) -> Event:
        """Return what one regression does."""
        return self.regression.event

    def guarantee(self, neighbors: NeighboringRelation) -> Guarantee:
        """Return what one regression promises to a person: each person is one of its rows."""
        row = self.regression.guarantee(unit="record", neighbors=neighbors, trust="central")
        return replace(row, unit="person")

    def direction(self, batch: Batch, *, entropy: Entropy) -> Direction:
        """Return the weights of the private regression; the spend must already be on a ledger.

        Guarantee:
            That of the regression, for each user of the batch. Shown by
            tests/soundness/test_policy_optimization.py.
        """
        rows = batch.differences() if self.differences else batch.scores()
        found = self.regression.release(rows, batch.advantages, entropy=entropy)
        return Direction(weights=found.weights, error=float(found.error), projected=found.projected)


@dataclass(frozen=True)
class GradientUpdate:
    """The policy gradient: a mean of clipped parts, one of each user, with Gaussian noise.

    Args:
        noise: Clips every part and noises their sum, on a grid; None adds no noise.
        radius: W; a longer direction is projected.

    Source:
        docs/policy_optimization.md, "Updates".
    """

    noise: GaussianMechanism | None
    radius: float

    @property
    def event(self) -> Event:
        """Return what one gradient does."""
        return NonPrivateEvent() if self.noise is None else self.noise.event

    def guarantee(self, neighbors: NeighboringRelation) -> Guarantee:
        """Return what one gradient promises to a person: each person is one of its parts."""
        terms: dict[str, Any] = {"unit": "person", "neighbors": neighbors, "trust": "central"}
        if self.noise is None:
            return Guarantee(math.inf, delta=0.0, **terms)
        return self.noise.guarantee(**terms)

    def direction(self, batch: Batch, *, entropy: Entropy) -> Direction:
        """Return the noised gradient; the spend must already be on a ledger.

        Guarantee:
            That of the noise, for each user of the batch: every user has one part, clipped by
            itself, also where exploration weights it by π/μ. Shown by
            tests/soundness/test_policy_optimization.py.
        """
        parts = (batch.advantages * batch.ratios)[:, None] * batch.scores()
        m, d = parts.shape
        if self.noise is None:
            return self._projected(parts.sum(axis=0) / m, variance=0.0)
        total = self.noise.release(parts, entropy=entropy, persons=np.arange(m))
        return self._projected(total / m, variance=d * (self.noise.standard_deviation / m) ** 2)

    def _projected(self, mean: Float[np.ndarray, " d"], *, variance: float) -> Direction:
        """Return a direction no longer than the radius."""
        norm = float(np.linalg.norm(mean))
        return Direction(
            weights=mean * min(1.0, self.radius / norm) if norm else mean,
            error=math.sqrt(variance),
            projected=norm > self.radius,
            squared_gradient=norm**2 - variance,
        )


def update_of(
    name: str,
    oracle: Oracle,
    *,
    epsilon: float,
    delta: float,
    neighbors: NeighboringRelation,
    bounds: UpdateBounds,
    batch: int,
) -> Update:
    """Return the update of that name, calibrated for one batch.

    Args:
        name: ``"npg"``, ``"pg"`` or ``"rebel"``.
        oracle: The recipe of the regression; a gradient needs none.
        epsilon: Privacy loss of one batch, infinity for none.
        delta: Failure probability.
        neighbors: What one change is.
        bounds: Public sizes that are enforced.
        batch: m.

    Raises:
        UsageError: There is no such update, or a setting is out of range.
        PrivacyError: Nothing is promised under this relation.
    """
    if _validate.one_of("update", name, UPDATES) == "pg":
        return GradientUpdate(
            _gradient_noise(epsilon, delta, neighbors, bounds.gradient_bound), bounds.radius
        )
    if not isinstance(oracle, Oracle):
        raise UsageError(
            "oracle must be a recipe of a private regression, such as GaussianStatistics(), got "
            f"{type(oracle).__name__}. Nothing was spent."
        )
    regression = oracle.calibrated(
        epsilon,
        delta=delta,
        feature_bound=bounds.row_bound,
        target_bound=bounds.target_bound,
        radius=bounds.radius,
        neighbors=neighbors,
        rows=batch,
    )
    meant = getattr(regression, "neighbors", neighbors)
    if meant != neighbors:
        raise PrivacyError(
            f"The oracle made a regression for {getattr(meant, 'name', meant)}, and this run is "
            f"about {neighbors.name}. Nothing was spent."
        )
    return RegressionUpdate(regression, differences=name == "rebel")


def _gradient_noise(
    epsilon: float, delta: float, neighbors: NeighboringRelation, bound: float
) -> GaussianMechanism | None:
    """Return the least noise that hides one clipped part, or None if nothing is to be hidden."""
    if epsilon == math.inf:
        return None
    return GaussianMechanism.calibrated(
        epsilon, delta=delta, bound=bound, neighbors=neighbors, records_per_person=1
    )
