"""No noise at all: for comparison, on a ledger that allows an infinite spend."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from sordino._random import Entropy
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.randomized_response import Answers, label_array
from sordino.privacy.guarantee import (
    FAIR,
    UNDECIDED,
    Guarantee,
    NeighboringRelation,
    NonPrivateEvent,
    Trust,
    Unit,
)


@dataclass(frozen=True)
class NonPrivate(Answers):
    """Use raw judgments as they are; the ledger records an infinite spend.

    Guarantee:
        None: ε = ∞ for every unit and relation. Only a ledger whose budget is infinite accepts
        it. Shown by tests/unit/mechanisms/test_many_releases.py.

    Example:
        >>> from sordino._random import entropy
        >>> NonPrivate().release(np.array([1, 0, 1]), entropy=entropy(None)).tolist()
        [1, 0, 1]
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

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:  # noqa: ARG002 (any)
        """Return one label and its opposite, which show as they are."""
        return WorstCase(np.array([0], dtype=np.int8), np.array([1], dtype=np.int8))

    def _checked(self, values: Integer[np.ndarray, " n"]) -> Integer[np.ndarray, " n"]:
        return label_array(values)

    def _answered(
        self, values: Integer[np.ndarray, " n"], entropy: Entropy
    ) -> Integer[np.ndarray, " n"]:
        """Return labels as they are; a fair coin decides each undecided one."""
        heads = entropy.words(len(values)) < np.uint64(FAIR)
        return np.where(values == UNDECIDED, heads, values).astype(np.int8)

    def _log_chances(
        self, outputs: Integer[np.ndarray, "t n"], values: Integer[np.ndarray, " n"]
    ) -> Float[np.ndarray, "t n"]:
        decided = np.where(outputs == values, 0.0, -math.inf)
        return np.where(values == UNDECIDED, -math.log(2), decided)
