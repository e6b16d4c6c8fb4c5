"""No noise at all: for comparison, on a ledger that allows an infinite spend."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino._random import Entropy
from sordino.mechanisms.base import WorstCase
from sordino.privacy.events import NonPrivateEvent
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, Trust, Unit

__all__ = ["NonPrivate"]


@dataclass(frozen=True)
class NonPrivate:
    """Use raw judgments as they are; the ledger records an infinite spend.

    Guarantee:
        None: ε = ∞ for every unit and relation. Only a ledger whose budget is infinite accepts
        it. Shown by tests/unit/rewards/test_estimation.py.
    """

    @property
    def event(self) -> NonPrivateEvent:
        """Return what one release does, for the ledger."""
        return NonPrivateEvent()

    def sensitivity(self, neighbors: NeighboringRelation) -> float:  # noqa: ARG002 (any)
        """Return infinity: nothing bounds what one change shows."""
        return math.inf

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return ε = ∞."""
        return Guarantee(math.inf, delta=0.0, unit=unit, neighbors=neighbors, trust=trust)

    def release(self, values: np.ndarray, *, entropy: Entropy) -> np.ndarray:  # noqa: ARG002
        """Return the values as they are.

        Guarantee:
            None: ε = ∞.
        """
        return values

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:  # noqa: ARG002 (any)
        """Return one label and its opposite, which show as they are."""
        return WorstCase(np.array([0], dtype=np.int8), np.array([1], dtype=np.int8))
