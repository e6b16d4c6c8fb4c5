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
from sordino.mechanisms.regressions.base import LeastSquares, Oracle
from sordino.privacy.guarantee import Event, Guarantee, NeighboringRelation, NonPrivateEvent

from .user_slots import Batch

UPDATES: Final = ("npg", "pg", "rebel")


@dataclass(frozen=True, kw_only=True)
class UpdateBounds:
    """The public sizes that every update enforces."""

    feature_bound: float  # B, norm of features
    reward_bound: float  # R, largest absolute reward
    radius: float  # W, largest norm of a direction
    gradient_bound: float  # C, norm to which one user's part of a policy gradient is clipped


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Direction:
    """What one update released; every field may be published."""

    # Direction in which the policy's weights move, of norm at most the radius.
    weights: Float[np.ndarray, " d"]
    error: float  # the oracle's own estimate of its error; for a gradient the size of its noise
    projected: bool  # whether it was longer than the radius and was projected
    # Of a policy gradient, the squared norm less what the noise adds on average; None for the other
    # updates. It may be below 0.
    squared_gradient: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the direction as JSON holds it."""
        return {
            "weights": self.weights.tolist(),
            "error": None if not math.isfinite(self.error) else float(self.error),
            "projected": self.projected,
            "squared_gradient": self.squared_gradient,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Direction:
        """Return the direction that :meth:`to_dict` wrote."""
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

    def guarantee(self, neighbors: NeighboringRelation) -> Guarantee:
        """Return what one update promises to each person who has a slot of its batch."""

    def direction(self, batch: Batch, *, entropy: Entropy) -> Direction:
        """Return the noised direction; the spend must already be on a ledger.

        Guarantee:
            What :meth:`guarantee` returns, for each user of the batch.
        """


@dataclass(frozen=True)
class _RegressionUpdate:
    """A direction that predicts advantages best: NPG on scores, REBEL on feature differences."""

    # For log-linear policies REBEL's normalizers cancel, so it too is a linear least squares, and
    # exactly so.
    # Source: docs/policy_optimization.md, "Updates".

    regression: LeastSquares  # the private regression
    differences: bool  # whether rows are φ(y) − φ(y′) (REBEL) and not φ(y) − E φ (NPG)

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
    """The policy gradient: a mean of clipped parts, one of each user, with Gaussian noise."""

    # Source: docs/policy_optimization.md, "Updates".

    # Clips every part and noises their sum, on a grid; None adds no noise.
    noise: GaussianMechanism | None
    radius: float  # W; a longer direction is projected

    @property
    def event(self) -> Event:
        """Return what one gradient does."""
        return NonPrivateEvent() if self.noise is None else self.noise.event

    def guarantee(self, neighbors: NeighboringRelation) -> Guarantee:
        """Return what one gradient promises to a person: each person is one of its parts."""
        if self.noise is None:
            return Guarantee(
                math.inf, delta=0.0, unit="person", neighbors=neighbors, trust="central"
            )
        return self.noise.guarantee(unit="person", neighbors=neighbors, trust="central")

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
            total, variance = parts.sum(axis=0), 0.0
        else:
            total = self.noise.release(parts, entropy=entropy, persons=np.arange(m))
            variance = d * (self.noise.standard_deviation / m) ** 2
        mean = total / m
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
    """Return the update of that name, calibrated for one batch."""
    if _validate.one_of("update", name, UPDATES) == "pg":
        noise = None  # nothing is to be hidden
        if epsilon < math.inf:
            noise = GaussianMechanism.calibrated(
                epsilon,
                delta=delta,
                bound=bounds.gradient_bound,
                neighbors=neighbors,
                records_per_person=1,
            )
        return GradientUpdate(noise, bounds.radius)
    if not isinstance(oracle, Oracle):
        raise UsageError(
            "oracle must be a recipe of a private regression, such as GaussianStatistics(), or "
            "inherit from sordino.mechanisms.regressions.base.Oracle, got "
            f"{type(oracle).__name__}. Nothing was spent."
        )
    # Features less a mean, or another action's, are at most 2B long, and what one action gained
    # over another is at most 2R.
    regression = oracle.calibrated(
        epsilon,
        delta=delta,
        feature_bound=2 * bounds.feature_bound,
        target_bound=2 * bounds.reward_bound,
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
    return _RegressionUpdate(regression, differences=name == "rebel")
