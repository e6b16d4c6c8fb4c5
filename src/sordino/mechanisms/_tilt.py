"""What every mechanism promises and draws that tilts an objective and noises its minimizer."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino._random import Entropy, normals
from sordino.errors import ConvergenceError, DataError, PrivacyError, UsageError
from sordino.mechanisms._tilt_sizes import OUTPUT_SHARE
from sordino.privacy.events import ApproximateEvent
from sordino.privacy.guarantee import (
    REPLACE_ONE,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

__all__ = ["SLACK", "Tilt", "usable_atol"]

SLACK = 1 + 1e-9
"""What clipping to a bound may lose to rounding."""

_ACCOUNTED = 2.0  # times atol: what rounding may hide from a gradient is paid for too
_OF_MOVE = 2.0**-32  # of what one record adds to a gradient: the least atol
_OF_TILT = 2.0**-36  # of one coordinate of the tilt: likewise
_USUAL = 1e-8  # of the bound: next to no noise


def usable_atol(atol: float | None, *, bound: float, moved: float, deviation: float) -> float:
    """Return the norm of a gradient that is accepted, above what rounding leaves of one.

    With a smaller one it would depend on the records, and even on one of them, whether a
    minimizer is found. Gradients are sums of the tilt, which is rounded by 2^-52 of it, in up to
    2^20 coordinates by 2^-42; and of slopes at weights that are rounded by 2^-53 of their norm w:
    of n records that all point one way by n·w·bound/4·2^-53 of what one record moves, which is
    below 2^-32 for n·w·bound up to 2^23, and with the default for twice what is accepted for
    n·w·bound up to 2^29. What exceeds ``atol`` is not refused; see
    :func:`sordino.rewards.solver.nearest_minimum`.

    Args:
        atol: What was asked for; None for the default.
        bound: Of the features.
        moved: The most that one record adds to a gradient.
        deviation: Of every coordinate of the tilt.

    Raises:
        UsageError: It is below what only public sizes say that rounding may leave.

    Source:
        docs/central.md, "Objective perturbation": an inexact minimizer.
    """
    least = max(moved * _OF_MOVE, deviation * _OF_TILT)
    if atol is None:
        return max(bound * _USUAL, least)
    atol = _validate.positive("atol", atol)
    if atol < least:
        raise UsageError(
            f"atol must be at least {least:.3g} with these settings, got {atol!r}: rounding alone "
            "may leave more of a gradient, and whether it does would tell of the records. Nothing "
            "was spent. Leave it out; a smaller one saves no noise that matters."
        )
    return atol


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
            ConvergenceError: The gradient is larger than ``atol``, or not a number. Minimizers of
                this library never are; one of your own must not be either, on any records, for
                this refusal tells of them.
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
