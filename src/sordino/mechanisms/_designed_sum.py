"""What every release of a sum says of its noise, once all that is public about it is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Integer

from sordino._random import Entropy
from sordino.errors import UsageError
from sordino.mechanisms._grid import GRID_SLACK, STEPS_OF_NOISE
from sordino.privacy.events import GaussianEvent
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, Trust, Unit

__all__ = ["DesignedSum", "SumSettings"]


@runtime_checkable
class SumSettings(Protocol):
    """The mechanism that a design is made with: its settings, and what they promise."""

    @property
    def mu(self) -> float:
        """Return how far one change moves the sum, in standard deviations."""
        ...

    @property
    def event(self) -> GaussianEvent:
        """Return what one release does."""
        ...

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the sum at most, in its own noise."""
        ...

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises."""
        ...


class DesignedSum(ABC):
    """A release of which everything but labels or orders is known: its noise is a number.

    Attributes:
        mechanism: The settings.
        moved: How many steps one change moves the sum at most, rounded up: Δ.

    Guarantee:
        None of its own: each design states one. Shown by
        tests/soundness/test_label_gaussian_mechanism.py and
        tests/soundness/test_ranking_gaussian_mechanism.py.
    """

    mechanism: Any
    moved: float

    @property
    @abstractmethod
    def step(self) -> Float[np.ndarray, "d r"]:
        """Return what one step in each direction is worth: from steps to the released sum."""

    @property
    def scale(self) -> float:
        """Return the standard deviation of the noise in steps of the grid."""
        return float(self.moved * GRID_SLACK / self.mechanism.mu)

    @property
    def factor(self) -> Float[np.ndarray, "d r"]:
        """Return F with covariance FFᵀ."""
        return self.step * self.scale

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Return the covariance of the noise, V: known before anything is spent."""
        return np.asarray(self.factor @ self.factor.T)

    @property
    def event(self) -> GaussianEvent:
        """Return what one release does, for the ledger."""
        settings: SumSettings = self.mechanism
        return settings.event

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return how far one change moves the sum at most, in its own noise."""
        settings: SumSettings = self.mechanism
        return settings.sensitivity(neighbors)

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises: what the mechanism does."""
        settings: SumSettings = self.mechanism
        return settings.guarantee(unit=unit, neighbors=neighbors, trust=trust)

    def release(
        self, values: Integer[np.ndarray, " m"], *, entropy: Entropy
    ) -> Float[np.ndarray, " d"]:
        """Return the noised sum alone: the value of ``statistic``.

        Raises:
            DataError: Values are not what ``statistic`` takes.

        Guarantee:
            What :meth:`guarantee` returns.
        """
        return np.asarray(self.statistic(values, entropy=entropy).value)

    @abstractmethod
    def statistic(self, values: Integer[np.ndarray, " m"], *, entropy: Entropy) -> Any:
        """Return the noised sum with what is known of it.

        Guarantee:
            What :meth:`guarantee` returns.
        """

    def refuse_unusable_noise(self) -> None:
        """Refuse noise that the grid is too coarse or too fine for.

        Raises:
            UsageError: It is.
        """
        least, most = STEPS_OF_NOISE
        if not least <= self.scale <= most:
            raise UsageError(
                f"The noise must be between {least} and {most} steps of the grid, and it would be "
                f"{self.scale:.6g}. Nothing was released. Choose another grid than "
                f"{self.mechanism.grid!r}, or another epsilon."
            )
