"""No noise at all: for comparison, on a ledger that allows an infinite spend."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from sordino._random import Entropy
from sordino.mechanisms.base import WorstCase
from sordino.mechanisms.randomized_response import label_array
from sordino.privacy.events import FAIR, UNDECIDED, NonPrivateEvent
from sordino.privacy.guarantee import Guarantee, NeighboringRelation, Trust, Unit

__all__ = ["NonPrivate"]


@dataclass(frozen=True)
class NonPrivate:
    """Use raw judgments as they are; the ledger records an infinite spend.

    Guarantee:
        None: ε = ∞ for every unit and relation. Only a ledger whose budget is infinite accepts
        it. Shown by tests/unit/mechanisms/test_no_privacy.py.

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

    def release(
        self, values: Integer[np.ndarray, " n"], *, entropy: Entropy
    ) -> Integer[np.ndarray, " n"]:
        """Return labels as they are, dtype int8; a fair coin decides each undecided one.

        Args:
            values: Labels, each 0, 1 or 2 (undecided).
            entropy: Source of 64-bit words; one is drawn for each label.

        Raises:
            DataError: A value is none of these; only its index is named.

        Guarantee:
            None: ε = ∞.
        """
        labels = label_array(values)
        heads = entropy.words(len(labels)) < np.uint64(FAIR)
        return np.where(labels == UNDECIDED, heads, labels).astype(np.int8)

    def repeat(
        self, values: Integer[np.ndarray, " n"], trials: int, *, entropy: Entropy
    ) -> Integer[np.ndarray, "t n"]:
        """Return the same made-up labels as they are, one release in each row, dtype int8.

        Args:
            values: Labels, each 0, 1 or 2 (undecided).
            trials: How many releases.
            entropy: Source of 64-bit words; one is drawn for each label of each release.

        Raises:
            DataError: A value is none of these; only its index is named.

        Guarantee:
            None: ε = ∞.
        """
        labels = label_array(values)
        rows = self.release(np.tile(labels, trials), entropy=entropy)
        return rows.reshape(trials, len(labels))

    def log_ratio(
        self, outputs: Integer[np.ndarray, "t n"], case: WorstCase
    ) -> Float[np.ndarray, " t"]:
        """Return ±infinity where an output is possible for one input only, for every row."""
        one, other = (_log_chances(outputs, labels) for labels in (case.one, case.other))
        impossible = np.isneginf(one) & np.isneginf(other)
        with np.errstate(invalid="ignore"):
            return np.where(impossible, 0.0, one - other)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:  # noqa: ARG002 (any)
        """Return one label and its opposite, which show as they are."""
        return WorstCase(np.array([0], dtype=np.int8), np.array([1], dtype=np.int8))


def _log_chances(
    outputs: Integer[np.ndarray, "t n"], labels: Integer[np.ndarray, " n"]
) -> Float[np.ndarray, " t"]:
    """Return the log-probability of every row, were these the labels."""
    decided = np.where(outputs == labels, 0.0, -math.inf)
    return np.asarray(np.where(labels == UNDECIDED, -math.log(2), decided).sum(axis=1))
