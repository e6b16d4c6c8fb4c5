"""Each label is kept or flipped by a coin of known bias, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.base import WorstCase
from sordino.privacy import accounting
from sordino.privacy.conversions import (
    randomized_response_epsilon,
    randomized_response_threshold,
)
from sordino.privacy.events import RandomizedResponseEvent
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

__all__ = ["RandomizedResponse"]

_CHUNK = 1 << 20
_LEAST = 1e-6  # below it 1 − 2·flip has no digits left to learn from


@dataclass(frozen=True)
class RandomizedResponse:
    """Flip every binary label independently, so that no single label can be read out.

    A label is flipped exactly when a 64-bit word of system entropy lies below a threshold, so
    the flip probability is a ratio of integers and nothing is rounded.

    Args:
        epsilon: Bound on the privacy loss of one label, finite and above 0. Above 44.36 (all
            that 64-bit words can realize) the smaller realized value counts.

    Raises:
        UsageError: ``epsilon`` is not a finite number above 0, or below 1e-6, where every
            answer is as good as a fair coin.

    Guarantee:
        Pure ε per label (unit ``"label"``, ``REPLACE_ONE``), δ = 0, for any labels, prompts and
        answers; no arithmetic caveat. Shown exactly by
        tests/soundness/test_randomized_response.py.

    Source:
        Warner 1965; optimal for binary labels by Kairouz, Oh & Viswanath 2016. PPKL, §3.

    Example:
        >>> coin = RandomizedResponse(epsilon=1.0)
        >>> round(coin.flip_probability, 6), round(coin.kappa, 6)
        (0.268941, 0.462117)
    """

    epsilon: float

    def __post_init__(self) -> None:
        """Refuse an epsilon that cannot be realized or carries no information."""
        object.__setattr__(self, "epsilon", _validate.positive("epsilon", self.epsilon))
        if self.epsilon < _LEAST:
            raise UsageError(
                f"epsilon must be at least {_LEAST:g}, got {self.epsilon!r}: every answer would "
                "be as good as a fair coin."
            )

    @property
    def threshold(self) -> int:
        """Return how many of the 2^64 words flip a label."""
        return randomized_response_threshold(self.epsilon)

    @property
    def realized_epsilon(self) -> float:
        """Return the loss that the integer threshold realizes, at most :attr:`epsilon`."""
        return randomized_response_epsilon(self.epsilon)

    @property
    def flip_probability(self) -> float:
        """Return the probability that a label is flipped."""
        return self.threshold / 2**64

    @property
    def kappa(self) -> float:
        """Return 1 − 2·flip probability = tanh(ε/2): the share of signal that survives."""
        return (2**64 - 2 * self.threshold) / 2**64

    @property
    def event(self) -> RandomizedResponseEvent:
        """Return what one release does, for the ledger."""
        return RandomizedResponseEvent(self.realized_epsilon)

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return 1: one change replaces one label by another.

        Raises:
            PrivacyError: Under ``ADD_OR_REMOVE_ONE``; the number of answers shows.
        """
        if neighbors is ADD_OR_REMOVE_ONE:
            raise PrivacyError(
                "Randomized response answers once per label, so the number of answers shows when "
                "one is added or removed. Use REPLACE_ONE."
            )
        return 1.0

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises; δ = 0.

        Raises:
            PrivacyError: Under ``ADD_OR_REMOVE_ONE``, or for a unit other than ``"label"``.
        """
        self.sensitivity(neighbors)
        if unit != "label":
            raise PrivacyError(
                f"Randomized response protects one label at a time, not unit={unit!r}: a person "
                "who labels m pairs is protected with m times epsilon. Use unit='label'."
            )
        loss = accounting.composed_epsilon([(self.event, 1)], neighbors=neighbors, delta=0.0)
        return Guarantee(loss, delta=0.0, unit=unit, neighbors=neighbors, trust=trust)

    def release(
        self, values: Integer[np.ndarray, " n"], *, entropy: Entropy
    ) -> Integer[np.ndarray, " n"]:
        """Return the randomized answers, dtype int8, one for each 0/1 label.

        Args:
            values: Labels, each 0 or 1.
            entropy: Source of 64-bit words; a release needs system entropy.

        Raises:
            DataError: A value is neither 0 nor 1; only its index is named.

        Guarantee:
            Unit ``"label"``, ``REPLACE_ONE``, pure ε; draws noise, so the spend must already be
            on a ledger (:func:`sordino.privatize` does both).
        """
        labels = np.asarray(values)
        wrong = np.flatnonzero((labels != 0) & (labels != 1)) if labels.ndim == 1 else [0]
        if len(wrong):
            raise DataError(f"Labels must be 0 or 1 in one dimension: index {wrong[0]} is not.")
        answers = labels.astype(np.int8)
        threshold = np.uint64(self.threshold)
        for start in range(0, len(answers), _CHUNK):
            part = answers[start : start + _CHUNK]
            np.bitwise_xor(part, entropy.words(len(part)) < threshold, out=part, casting="unsafe")
        return answers

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return one label and its opposite: the loss ε is attained on every such pair."""
        self.sensitivity(neighbors)
        return WorstCase(np.array([0], dtype=np.int8), np.array([1], dtype=np.int8))
