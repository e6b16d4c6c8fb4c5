"""Each label is kept or flipped by a coin of known bias, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer, UInt64

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
    REPLACE_SPECIAL,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)
from sordino.privacy.label_values import FAIR, UNDECIDED

__all__ = ["RandomizedResponse", "label_array"]

_CHUNK = 1 << 20


@dataclass(frozen=True)
class RandomizedResponse:
    """Flip every label independently, so that no single label can be read out.

    A label of 0 or 1 is flipped exactly when a 64-bit word of system entropy lies below a
    threshold, so the flip probability is a ratio of integers and nothing is rounded. An
    undecided label (2) is answered by the fair coin in the same word. Every label takes one
    word, whatever it is.

    Args:
        epsilon: Bound on the privacy loss of one label, finite and above 0. Above 44.36 (all
            that 64-bit words can realize) the smaller realized value counts.

    Raises:
        UsageError: ``epsilon`` is not a finite number above 0, or below 1e-6, where every
            answer is as good as a fair coin.

    Guarantee:
        Pure ε per label (unit ``"label"``, ``REPLACE_ONE`` over the values 0, 1 and undecided),
        δ = 0, for any labels, prompts and answers; no arithmetic caveat. The loss is ε between
        0 and 1 and only log((e^ε + 1)/2) between either and undecided, which is what
        ``REPLACE_SPECIAL`` (replaced by a fair coin) promises. Shown exactly by
        tests/soundness/test_randomized_response.py and tests/soundness/test_ties.py.

    Source:
        Warner 1965; optimal for binary labels by Kairouz, Oh & Viswanath 2016. PPKL, §3; fair
        coin for an undecided label: docs/local.md, "Randomized response".

    Example:
        >>> coin = RandomizedResponse(epsilon=1.0)
        >>> round(coin.flip_probability, 6), round(coin.kappa, 6)
        (0.268941, 0.462117)
    """

    epsilon: float

    def __post_init__(self) -> None:
        """Refuse an epsilon that cannot be realized or carries no information."""
        object.__setattr__(self, "epsilon", _validate.telling("epsilon", self.epsilon))

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

    def guarantee(
        self,
        *,
        unit: Unit,
        neighbors: NeighboringRelation,
        trust: Trust,
        labels: int | None = None,
    ) -> Guarantee:
        """Return what answering one label promises, or all labels of one person; δ = 0.

        Args:
            unit: ``"label"``, or ``"person"`` for all labels of one person together.
            neighbors: What one change is.
            trust: Who saw the raw labels.
            labels: For unit ``"person"`` only, and needed there: the largest number of labels
                of one person that are answered, each by a coin of its own.

        Raises:
            PrivacyError: Under ``ADD_OR_REMOVE_ONE``; for a unit that is neither; or for a
                person whose number of labels is not said.
            UsageError: ``labels`` is given for one label, or is no whole number of at least 1.

        Guarantee:
            ε for one label, labels·ε for one person, with the caveat ``labels-only``: who
            answered what is public. Shown by tests/soundness/test_person_level.py.
        """
        self.sensitivity(neighbors)
        if unit == "label" and labels is not None:
            raise UsageError(
                f"labels is for unit='person'; with unit='label' leave it out, got {labels!r}."
            )
        if unit != "label" and (unit != "person" or labels is None):
            raise PrivacyError(
                f"Randomized response protects one label at a time, not unit={unit!r} as it is: a "
                "person who labels m pairs is protected with m times epsilon. Use unit='label', "
                "or unit='person' with labels=m, the most labels of one person."
            )
        count = 1 if labels is None else _validate.integer("labels", labels, at_least=1)
        loss = accounting.composed_epsilon([(self.event, count)], neighbors=neighbors, delta=0.0)
        caveats = ("labels-only",) if unit == "person" else ()
        return Guarantee(
            loss, delta=0.0, unit=unit, neighbors=neighbors, trust=trust, caveats=caveats
        )

    def release(
        self, values: Integer[np.ndarray, " n"], *, entropy: Entropy
    ) -> Integer[np.ndarray, " n"]:
        """Return the randomized answers, dtype int8, each 0 or 1, one for each label.

        Args:
            values: Labels, each 0, 1 or 2 (undecided).
            entropy: Source of 64-bit words; a release needs system entropy. One word is drawn
                for each label, in order, whatever the labels are.

        Raises:
            DataError: A value is none of these; only its index is named.

        Guarantee:
            Unit ``"label"``, ``REPLACE_ONE``, pure ε; draws noise, so the spend must already be
            on a ledger (:func:`sordino.privatize` does both).
        """
        labels = label_array(values)
        answers = np.empty(len(labels), dtype=np.int8)
        threshold = np.uint64(self.threshold)
        for start in range(0, len(answers), _CHUNK):
            part = slice(start, start + _CHUNK)
            words = entropy.words(len(labels[part]))
            answers[part] = _answered(labels[part], words, threshold)
        return answers

    def repeat(
        self, values: Integer[np.ndarray, " n"], trials: int, *, entropy: Entropy
    ) -> Integer[np.ndarray, "t n"]:
        """Return independent releases of the same made-up labels, one in each row, dtype int8.

        Args:
            values: Labels, each 0, 1 or 2 (undecided).
            trials: How many releases.
            entropy: Source of 64-bit words; one is drawn for each label of each release.

        Raises:
            DataError: A value is none of these; only its index is named.

        Guarantee:
            None for all rows together: each row is one release, with the loss of
            :meth:`release`. For auditors; never call it on private labels.
        """
        labels = label_array(values)
        rows = self.release(np.tile(labels, trials), entropy=entropy)
        return rows.reshape(trials, len(labels))

    def log_ratio(
        self, outputs: Integer[np.ndarray, "t n"], case: WorstCase
    ) -> Float[np.ndarray, " t"]:
        """Return log P(answers | case.one) − log P(answers | case.other) for every row."""
        one, other = (self._log_chances(outputs, labels) for labels in (case.one, case.other))
        return np.asarray((one - other).sum(axis=1))

    def _log_chances(
        self, outputs: Integer[np.ndarray, "t n"], labels: Integer[np.ndarray, " n"]
    ) -> Float[np.ndarray, "t n"]:
        """Return the log-probability of every answer, were these the labels."""
        flipped, kept = math.log(self.flip_probability), math.log1p(-self.flip_probability)
        chances = np.where(outputs == labels, kept, flipped)
        return np.where(labels == UNDECIDED, -math.log(2), chances)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return a label and its opposite, or what takes its place: an undecided one.

        Between the two the stated loss is attained.
        """
        self.sensitivity(neighbors)
        other = UNDECIDED if neighbors is REPLACE_SPECIAL else 1
        return WorstCase(np.array([0], dtype=np.int8), np.array([other], dtype=np.int8))


def label_array(values: Integer[np.ndarray, " n"]) -> Integer[np.ndarray, " n"]:
    """Return labels in one dimension as int8.

    Args:
        values: Each 0, 1 or 2 (undecided).

    Raises:
        DataError: A value is something else; only its index is named.
    """
    labels = np.asarray(values)
    wrong: np.ndarray | list[int] = [0]
    if labels.ndim == 1:
        wrong = np.flatnonzero((labels != 0) & (labels != 1) & (labels != UNDECIDED))
    if len(wrong):
        raise DataError(
            f"Labels must be 0, 1 or {UNDECIDED} (undecided) in one dimension: index {wrong[0]} "
            "is not."
        )
    return labels.astype(np.int8)


def _answered(
    labels: Integer[np.ndarray, " n"], words: UInt64[np.ndarray, " n"], threshold: np.uint64
) -> Integer[np.ndarray, " n"]:
    """Return the answer of every label to its word.

    There is no branch on a label, so that not even the time taken tells how many are undecided.
    """
    undecided = labels == UNDECIDED
    flipped = (labels == 1) ^ (words < threshold)
    fair = words < np.uint64(FAIR)
    return np.asarray((flipped & ~undecided) | (fair & undecided), dtype=np.int8)
