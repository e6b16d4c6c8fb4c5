"""What every mechanism promises and draws that tilts an objective and noises its minimizer."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy, normals
from sordino.errors import ConvergenceError, DataError, PrivacyError
from sordino.mechanisms._tilt_sizes import OUTPUT_SHARE
from sordino.privacy.events import ApproximateEvent
from sordino.privacy.guarantee import (
    REPLACE_ONE,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

__all__ = ["SLACK", "Tilt"]

SLACK = 1 + 1e-9
"""What clipping to a bound may lose to rounding."""

_ACCOUNTED = 2.0  # times atol: what rounding may hide from a gradient is paid for too


class Tilt(ABC):
    """A random linear term in an objective, and noise that hides how exact its minimizer is.

    Kinds differ in how far one record moves the gradient and bends the objective, and so in
    :attr:`mu` and :attr:`standard_deviation`.
    """

    epsilon: float
    delta: float
    neighbors: NeighboringRelation
    ridge: float | None
    atol: float

    @property
    @abstractmethod
    def mu(self) -> float:
        """Return the bound on one record's gradient over the standard deviation of the tilt."""

    @property
    @abstractmethod
    def standard_deviation(self) -> float:
        """Return the noise of every coordinate of the tilt b."""

    @property
    def mu_output(self) -> float:
        """Return twice the distance from the exact minimizer over the output noise."""
        return self.mu * OUTPUT_SHARE

    @property
    def output_standard_deviation(self) -> float:
        """Return the noise that is added to every coordinate of the minimizer."""
        return 2 * _ACCOUNTED * self.atol / (self._ridge * self.mu_output) * SLACK

    @property
    def event(self) -> ApproximateEvent:
        """Return what one release does under :attr:`neighbors`, for the ledger."""
        return ApproximateEvent(self.epsilon, self.delta)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises to one record.

        What is promised when a record is replaced is promised when it is made empty, added or
        removed too, since an empty record changes nothing.

        Raises:
            PrivacyError: For another unit than ``"record"``; or for a replaced record, if the
                mechanism was built for another relation.
        """
        _validate.one_of("unit", unit, ("label", "record", "person"))
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        if unit != "record":
            raise PrivacyError(
                f"Objective perturbation promises nothing with unit={unit!r}. Use unit='record', "
                "or a mechanism made for that unit."
            )
        if neighbors == REPLACE_ONE != self.neighbors:
            raise PrivacyError(
                f"This noise was calibrated for {self.neighbors.name} and promises nothing when a "
                "record is replaced. Build it with neighbors=REPLACE_ONE, which takes more noise."
            )
        return Guarantee(
            self.epsilon,
            delta=self.delta,
            unit=unit,
            neighbors=neighbors,
            trust=trust,
            caveats=("real-arithmetic",),
        )

    def finish(
        self, theta: Float[np.ndarray, " d"], gradient_norm: float, *, entropy: Entropy
    ) -> Float[np.ndarray, " d"]:
        """Return a minimizer of the tilted objective with the noise that hides its inexactness.

        Args:
            theta: Weights at which the gradient of the tilted objective is small.
            gradient_norm: Norm of that gradient.
            entropy: Source of 64-bit words.

        Raises:
            ConvergenceError: The gradient is larger than ``atol``, or not a number.
            DataError: A weight is not finite.

        Guarantee:
            What :meth:`guarantee` returns, if the tilt came from :meth:`draw` and records were
            clipped.
        """
        if not 0 <= gradient_norm <= self.atol:  # also NaN
            raise ConvergenceError(
                f"The minimizer was not found to atol={self.atol!r}. Nothing was released. Allow "
                "more steps, or a larger atol, which adds more noise to the output."
            )
        if theta.ndim != 1 or not np.isfinite(theta).all():
            raise DataError("theta must be one finite number for each feature.")
        return theta + self.output_standard_deviation * normals(entropy, len(theta))

    @property
    def _ridge(self) -> float:
        """Return the ridge, which is set by now."""
        assert self.ridge is not None  # noqa: S101 - for the type checker
        return self.ridge
