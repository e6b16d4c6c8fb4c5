"""Each label is kept or flipped by a coin of known bias, exactly.

Each choice among a few candidates is kept, or replaced by another one at random, exactly. And
answers without any noise: for comparison, on a ledger that allows an infinite spend.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Final

import numpy as np
from jaxtyping import Float, Integer, UInt64

from sordino import _validate
from sordino._random import Entropy
from sordino._validate import Integers, Numbers
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.privacy.conversions import randomized_response_epsilon, randomized_response_threshold
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_SPECIAL,
    SHARES,
    UNDECIDED,
    Guarantee,
    NeighboringRelation,
    NonPrivateEvent,
    RandomizedResponseEvent,
    Trust,
    Unit,
)

from .base import Repeated, WorstCase, label_array, stated

NO_CHOICE: Final = -1
"""The code of somebody who chose nobody: answered by one of the candidates, each as likely."""

_CHUNK: Final = 1 << 20
_MOST: Final = 2**15 - 1  # an answer fits 16 bits


class Answers(Repeated[np.ndarray]):
    """What every mechanism does that answers each value by itself; each kind states its promise."""

    def release(self, values: Integers, *, entropy: Entropy) -> Integers:
        """Return one answer for each value; the spend must already be on a ledger.

        Values are labels, each 0, 1, 2 (undecided) or the code of a level, or the candidates that
        were chosen. Words are drawn for each value, in order, whatever the values are.

        Guarantee:
            What ``guarantee`` returns for each value (:func:`sordino.privatize` writes the spend
            on a ledger first).
        """
        checked = self._checked(values)
        starts = range(0, len(checked), _CHUNK)
        answers = (self._answered(checked[at : at + _CHUNK], entropy) for at in starts)
        return np.concatenate([checked[:0], *answers])

    # Beside its own `release` a class says of itself how that is played: else an auditor learns it.
    repeat = Repeated.repeat

    def _releases(self, values: Integers, trials: int, entropy: Entropy) -> Integers:
        return self.release(np.tile(self._checked(values), trials), entropy=entropy)

    def log_ratio(
        self, outputs: Integer[np.ndarray, "t n"], case: WorstCase
    ) -> Float[np.ndarray, " t"]:
        """Return log P(answers | case.one) − log P(answers | case.other) for every row."""
        one, other = (
            self._log_chances(outputs, values).sum(axis=1) for values in (case.one, case.other)
        )
        impossible = np.isneginf(one) & np.isneginf(other)
        with np.errstate(invalid="ignore"):
            return np.where(impossible, 0.0, one - other)

    @abstractmethod
    def _checked(self, values: Integers) -> Integers:
        """Return values in the type of answers; refuse what is none."""

    # It has no branch on a value, so that not even the time taken tells what the values are.
    @abstractmethod
    def _answered(self, values: Integers, entropy: Entropy) -> Integers:
        """Return the answers of some values."""

    @abstractmethod
    def _log_chances(
        self, outputs: Integer[np.ndarray, "t n"], values: Integers
    ) -> Float[np.ndarray, "t n"]:
        """Return the log-probability of every answer, were these the values."""


@dataclass(frozen=True)
class _Coin(Answers):
    """A coin that keeps a value, or replaces it by any other one with equal chances."""

    epsilon: float
    blank: ClassVar[int]  # the code that says nothing
    what: ClassVar[str]  # is answered

    def __post_init__(self) -> None:
        _validate.settle(self, epsilon=_validate.telling)

    @property
    def threshold(self) -> int:
        """Return how many of the 2^64 words flip a label, or replace a choice."""
        return randomized_response_threshold(self.epsilon, self._count)

    @property
    def realized_epsilon(self) -> float:
        """Return the loss that the integer threshold realizes, at most :attr:`epsilon`."""
        return randomized_response_epsilon(self.epsilon, self._count)

    @property
    def flip_probability(self) -> float:
        """Return the probability that a label is flipped, or a choice replaced."""
        return self.threshold / 2**64

    @property
    def event(self) -> RandomizedResponseEvent:
        """Return what one release does, for the ledger."""
        return RandomizedResponseEvent(self.realized_epsilon, self._count)

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return 1: one change replaces one value by another."""
        if neighbors is ADD_OR_REMOVE_ONE:
            raise PrivacyError(
                f"Randomized response answers once per {self.what}, so the number of answers "
                "shows when one is added or removed. Use REPLACE_ONE."
            )
        return 1.0

    def guarantee(
        self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust, labels: int | None = None
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
                f"Randomized response protects one {self.what} at a time, not unit={unit!r} as it "
                "is: a person who labels m pairs is protected with m times epsilon. Use "
                "unit='label', or unit='person' with labels=m, the most labels of one person."
            )
        count = 1 if labels is None else _validate.integer("labels", labels, at_least=1)
        caveats = ("labels-only",) if unit == "person" else ()
        terms: dict[str, Any] = {"unit": unit, "neighbors": neighbors, "trust": trust}
        return stated(self.event, delta=0.0, **terms, caveats=caveats, count=count)

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return a value and another one, or what takes its place: one that says nothing."""
        self.sensitivity(neighbors)
        other = self.blank if neighbors is REPLACE_SPECIAL else 1
        return WorstCase(*(self._checked(np.array([value])) for value in (0, other)))

    def _log_chances(
        self, outputs: Integer[np.ndarray, "t n"], values: Integers
    ) -> Float[np.ndarray, "t n"]:
        flip = self.flip_probability
        other = math.log(flip / (self._count - 1))
        chances = np.where(outputs == values, math.log1p(-flip), other)
        return np.where(values == self.blank, -math.log(self._count), chances)

    @property
    def _count(self) -> int:
        """Return how many values there are."""
        return 2


@dataclass(frozen=True)
class RandomizedResponse(_Coin):
    """Flip every label independently, so that no single label can be read out.

    A label of 0 or 1 is flipped exactly when a 64-bit word of system entropy lies below a
    threshold, so the flip probability is a ratio of integers and nothing is rounded. An
    undecided label (2) is answered by the fair coin in the same word, and one of K levels, a share
    y = j/(K − 1), by 1 with probability f + (1 − 2f)y: as if it were drawn as one bit that is
    then flipped. Every label takes one word, whatever it is.

    Args:
        epsilon: Bound on the privacy loss of one label, finite and above 0. Above 44.36 (all
            that 64-bit words can realize) the smaller realized value counts.

    Raises:
        UsageError: ``epsilon`` is not a finite number above 0, or below 1e-6, where every
            answer is as good as a fair coin.

    Guarantee:
        Pure ε per label (unit ``"label"``, ``REPLACE_ONE`` over the values 0, 1, undecided and all
        levels), δ = 0, for any labels, prompts and answers; no arithmetic caveat. The loss is ε
        between 0 and 1, less between others, and only log((e^ε + 1)/2) between 0 or 1 and
        undecided, which is what ``REPLACE_SPECIAL`` (replaced by a fair coin) promises. Shown
        exactly by tests/soundness/test_randomized_response.py, tests/soundness/test_ties.py and
        tests/soundness/test_levels.py.

    Source:
        Warner 1965; optimal for binary labels by Kairouz, Oh & Viswanath 2016. PPKL, §3; fair
        coin for an undecided label, and levels: docs/local.md, "Randomized response".

    Example:
        >>> coin = RandomizedResponse(epsilon=1.0)
        >>> round(coin.flip_probability, 6), round(coin.kappa, 6)
        (0.268941, 0.462117)
    """

    name: ClassVar[str] = "randomized-response"
    categories: ClassVar[int] = 2
    blank: ClassVar[int] = UNDECIDED
    what: ClassVar[str] = "label"

    @property
    def kappa(self) -> float:
        """Return 1 − 2·flip probability = tanh(ε/2): the share of signal that survives."""
        return (2**64 - 2 * self.threshold) / 2**64

    def _checked(self, values: Integers) -> Integers:
        return label_array(values)

    def _answered(self, values: Integers, entropy: Entropy) -> Integers:
        words = entropy.words(len(values))
        return drawn_bits(values, words, threshold=self.threshold)

    def _log_chances(
        self, outputs: Integer[np.ndarray, "t n"], values: Integers
    ) -> Float[np.ndarray, "t n"]:
        ones = _thresholds(self.threshold)[values] / 2.0**64
        level = np.log(np.where(outputs == 1, ones, 1 - ones))
        return np.where(values > UNDECIDED, level, super()._log_chances(outputs, values))


def label_shares(labels: Integers) -> Numbers:
    """Return y of every label: how much of it is for the first answer, from 0 to 1."""
    return np.asarray(_SHARES[label_array(labels)])


_SHARES: Final = np.array([float(share) for share in SHARES])


def drawn_bits(
    labels: Integers, words: UInt64[np.ndarray, " n"], *, threshold: int = 0
) -> Integers:
    """Return each label as one bit that a word decides, flipped on so many words of all 2^64."""
    # A 1 turns what the word says of a 0; all others are 1 on words below a number of their own.
    below = words < _thresholds(threshold)[labels]
    return np.asarray(below ^ (labels == 1), dtype=np.int8)


@lru_cache(maxsize=16)
def _thresholds(flips: int) -> UInt64[np.ndarray, " codes"]:
    """Return for every label on how many of the 2^64 words its bit is 1; of a 1, on how many 0."""
    # Of a share y: T + (2^64 − 2T)y, rounded down, so that it lies between T and 2^64 − T and no
    # ratio of chances is larger than that of 0 and 1.
    counts = [int(flips + (2**64 - 2 * flips) * share) for share in SHARES]
    counts[1] = flips
    return np.array(counts, dtype=np.uint64)


@dataclass(frozen=True)
class KaryRandomizedResponse(_Coin):
    """Replace every choice among K candidates independently, so that none can be read out.

    Guarantee:
        Pure ε per choice (unit ``"label"``, ``REPLACE_ONE`` over the K candidates and no choice),
        δ = 0; no arithmetic caveat. Under ``REPLACE_SPECIAL`` a choice is replaced by none, which
        loses less. Shown exactly by tests/soundness/test_kary_randomized_response.py.
    """

    # A choice from 0 to K − 1 is kept unless a 64-bit word of system entropy lies below a
    # threshold; then each of the others takes its place with the same probability, by a word that
    # is drawn anew while it is in the last incomplete round of K − 1 (nothing is rounded). Words
    # are drawn for every choice, whatever it is.
    # Source: Warner 1965; Kairouz, Oh & Viswanath 2016, §4.1; docs/local.md, "Randomized response".

    categories: int  # K, how many candidates there are; at least 2, public, the same for all
    name: ClassVar[str] = "randomized-choice"
    blank: ClassVar[int] = NO_CHOICE
    what: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.settle(self, categories=partial(_validate.integer, at_least=2, at_most=_MOST))

    @property
    def _count(self) -> int:
        return self.categories

    def _checked(self, values: Integers) -> Integers:
        choices = np.asarray(values)
        wrong: np.ndarray | list[int] = [0]
        if choices.ndim == 1 and choices.dtype.kind in "iu":
            wrong = np.flatnonzero((choices < NO_CHOICE) | (choices >= self.categories))
        if len(wrong):
            raise DataError(
                f"Choices must be from 0 to {self.categories - 1}, or {NO_CHOICE} (no choice), in "
                f"one dimension: index {wrong[0]} is not."
            )
        return choices.astype(np.int16)

    def _answered(self, values: Integers, entropy: Entropy) -> Integers:
        n, count = len(values), self.categories
        flipped = entropy.words(n) < np.uint64(self.threshold)
        ahead = 1 + _uniform(n, count - 1, entropy)
        fair = _uniform(n, count, entropy)
        answers = (values.astype(np.int64) + ahead * flipped) % count
        return np.where(values == NO_CHOICE, fair, answers).astype(np.int16)


def _uniform(n: int, count: int, entropy: Entropy) -> Integers:
    """Return n numbers from 0 to count − 1, each exactly as likely."""
    # A word in the last round, which is not complete, is drawn again.
    last = np.uint64(2**64 - 1 - 2**64 % count)
    words: UInt64[np.ndarray, " n"] = entropy.words(n).copy()
    while (beyond := words > last).any():
        words[beyond] = entropy.words(int(beyond.sum()))
    return (words % np.uint64(count)).astype(np.int64)


def debiased_choices(
    answers: Integers, categories: int, flip_probability: float
) -> Float[np.ndarray, "n k"]:
    """Return a row for every answer whose expectation says which candidate was chosen."""
    # It is 1 for the choice and 0 for the others, and 1/K for everybody where nobody was chosen. So
    # Σ over answers and candidates of these numbers times φ estimates Σ φ(chosen) without bias.
    # Source: docs/local.md, "Randomized response": (1[z = j] − q)/(1 − f − q), q = f/(K − 1).
    known = np.asarray(answers)
    if known.ndim != 1 or known.dtype.kind not in "iu":
        raise DataError("answers must be whole numbers in one dimension.")
    if ((known < 0) | (known >= categories)).any():
        raise DataError(f"answers must be from 0 to {categories - 1}.")
    other = flip_probability / (categories - 1)
    chosen = known[:, np.newaxis] == np.arange(categories)
    return np.asarray((chosen - other) / (1 - flip_probability - other))


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

    def _checked(self, values: Integers) -> Integers:
        return label_array(values)

    def _answered(self, values: Integers, entropy: Entropy) -> Integers:
        """Return labels as they are; a coin decides each undecided one, and each level between."""
        return drawn_bits(values, entropy.words(len(values)))

    def _log_chances(
        self, outputs: Integer[np.ndarray, "t n"], values: Integers
    ) -> Float[np.ndarray, "t n"]:
        share = _SHARES[values]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.where(outputs == 1, share, 1 - share)))
