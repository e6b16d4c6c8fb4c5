"""Whole records as a release reads them: through sums alone, wherever the records are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Integer

from sordino._random import Entropy
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.second_moment import SecondMoment
from sordino.preferences.labels import UNDECIDED

from .likelihoods import DebiasedLogistic
from .solver import Solution
from .tilted_minimizer import minimize_tilted

__all__ = ["HeldRecords", "RecordSums", "clipped_records", "decided_labels"]


@runtime_checkable
class RecordSums(Protocol):
    """What a release asks of clipped records.

    Guarantee:
        None by itself: both answers are as secret as the records.
    """

    @property
    def width(self) -> int:
        """Return the number of features."""
        ...

    def outer(self, second_moment: SecondMoment) -> np.ndarray:
        """Return Σ xxᵀ in whole steps of the grid of a mechanism."""
        ...

    def minimize(
        self,
        tilt: Float[np.ndarray, " d"],
        mechanism: ObjectivePerturbation,
        *,
        ball: float,
        entropy: Entropy,
    ) -> Solution:
        """Return the certified minimizer of the tilted objective.

        Args:
            tilt: b.
            mechanism: What drew it.
            ball: Bound on the norm of the minimizer.
            entropy: Coins for undecided records.

        Guarantee:
            None by itself: the minimizer is as secret as the records until it is noised.
        """
        ...


@dataclass(frozen=True, eq=False, repr=False)
class HeldRecords:
    """Records in memory.

    Attributes:
        records: Feature differences x of the first answer and the second, clipped.
        labels: 1 where the first was preferred, 0 where the second was, 2 where neither.
    """

    records: Float[np.ndarray, "n d"]
    labels: Integer[np.ndarray, " n"]

    @property
    def width(self) -> int:
        """Return the number of features."""
        return int(self.records.shape[1])

    def outer(self, second_moment: SecondMoment) -> np.ndarray:
        """Return Σ xxᵀ in whole steps."""
        return second_moment.total(self.records)

    def minimize(
        self,
        tilt: Float[np.ndarray, " d"],
        mechanism: ObjectivePerturbation,
        *,
        ball: float,
        entropy: Entropy,
    ) -> Solution:
        """Return the certified minimizer of the tilted objective, as :class:`RecordSums` says.

        Guarantee:
            None by itself: the minimizer is as secret as the records until it is noised.
        """
        targets = decided_labels(self.labels, entropy.words(len(self.labels)))
        loss = DebiasedLogistic(self.records, targets=targets, pull=-tilt)
        return minimize_tilted(loss, mechanism, ball=ball)


def clipped_records(
    differences: Float[np.ndarray, "n d"],
    mechanism: ObjectivePerturbation,
    second_moment: SecondMoment | None,
) -> Float[np.ndarray, "n d"]:
    """Return the feature difference of every record, clipped, and on the grid of the moment."""
    clipped = mechanism.clipped(differences)
    return clipped if second_moment is None else _on_grid(clipped, second_moment)


def _on_grid(
    records: Float[np.ndarray, "n d"], second_moment: SecondMoment
) -> Float[np.ndarray, "n d"]:
    """Return records rounded to the grid of the moment, none longer than its bound.

    The moment is then exactly that of the records that are fitted.
    """
    step = second_moment.step
    room = second_moment.bound - step * math.sqrt(records.shape[1])
    lengths = np.linalg.norm(records, axis=1, keepdims=True)
    shrunk = records * (room / np.maximum(lengths, room))
    return np.asarray(np.rint(shrunk / step) * step)


def decided_labels(
    labels: Integer[np.ndarray, " n"], words: Integer[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return labels as 0 and 1; a fair coin decides each undecided one.

    A target of ½ would have slopes of both signs, for which the δ of the mechanism is not proved.

    Args:
        labels: 0, 1 or 2 (undecided).
        words: Independent and uniform, one for each label.
    """
    coins = words & np.uint64(1)
    return np.where(labels == UNDECIDED, coins, labels).astype(np.float64)
