"""Least squares without any noise: for comparison, on a ledger that allows an infinite spend."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Float

from sordino._random import Entropy
from sordino.mechanisms._regressions import (
    Regression,
    RegressionTerms,
    slot_relation,
    solved,
    unit_of_slots,
)
from sordino.mechanisms.base import WorstCase
from sordino.privacy.events import NonPrivateEvent
from sordino.privacy.guarantee import REPLACE_SPECIAL, Guarantee, NeighboringRelation, Trust, Unit

__all__ = ["PlainRegression"]


@dataclass(frozen=True)
class PlainRegression(RegressionTerms):
    """The least squares of a batch as it is, of least norm, pulled back to the radius.

    Args:
        feature_bound: As for every regression: see ``RegressionTerms``.
        target_bound: As there.
        radius: As there.
        rows: As there.
        neighbors: The relation, which says nothing here.

    Raises:
        UsageError: A setting is out of range.
        PrivacyError: ``neighbors`` is ``ADD_OR_REMOVE_ONE``.

    Guarantee:
        None: ε = ∞ for every relation. Only a ledger whose budget is infinite accepts it. Shown
        by tests/unit/mechanisms/test_least_squares.py.
    """

    _: KW_ONLY
    neighbors: NeighboringRelation = REPLACE_SPECIAL

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        super().__post_init__()
        slot_relation(self.neighbors)

    @property
    def event(self) -> NonPrivateEvent:
        """Return what one release does, for the ledger."""
        return NonPrivateEvent()

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return infinity: nothing bounds what one change shows."""
        slot_relation(neighbors)
        return math.inf

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return ε = ∞."""
        unit_of_slots(unit)
        slot_relation(neighbors)
        return Guarantee(math.inf, delta=0.0, unit=unit, neighbors=neighbors, trust=trust)

    def release(
        self,
        rows: Float[np.ndarray, "m d"],
        targets: Float[np.ndarray, " m"],
        *,
        entropy: Entropy,  # noqa: ARG002 (every regression takes it)
    ) -> Regression:
        """Return the weights of the batch; nothing is drawn.

        Raises:
            DataError: A number is not finite, or the shapes do not fit.

        Guarantee:
            None: ε = ∞.
        """
        rows, targets = self.batch(rows, targets)
        return solved(self, rows.T @ rows, rows.T @ targets, ridge=0.0, variances=(0.0, 0.0))

    def predicted_error(self, d: int) -> float:  # noqa: ARG002 (every regression takes it)
        """Return 0: no privacy, no error of it."""
        return 0.0

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return two batches, the target in the last column, that show as they are."""
        slot_relation(neighbors)
        one = np.zeros((self.rows, 2))
        other = one.copy()
        one[0] = self.feature_bound, self.target_bound
        return WorstCase(one, other)
