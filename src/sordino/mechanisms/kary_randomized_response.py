"""Each choice among a few candidates is kept, or replaced by another one at random, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Integer, UInt64

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

__all__ = ["NO_CHOICE", "KaryRandomizedResponse", "debiased_choices"]

NO_CHOICE: Final = -1
"""The code of somebody who chose nobody: answered by one of the candidates, each as likely."""

_CHUNK: Final = 1 << 20
_LEAST: Final = 1e-6  # below it keeping has no digits left to learn from
_MOST: Final = 2**15 - 1  # an answer fits 16 bits


@dataclass(frozen=True)
class KaryRandomizedResponse:
    """Replace every choice among K candidates independently, so that none can be read out.

    A choice from 0 to K − 1 is kept unless a 64-bit word of system entropy lies below a
    threshold; then each of the others takes its place with the same probability, by a word that
    is drawn anew while it is in the last incomplete round of K − 1 (nothing is rounded). Words
    are drawn for every choice, whatever it is.

    Args:
        epsilon: Bound on the privacy loss of one choice, at least 1e-6.
        categories: K, how many candidates there are; at least 2, public, the same for all.

    Raises:
        UsageError: A setting is out of range.

    Guarantee:
        Pure ε per choice (unit ``"label"``, ``REPLACE_ONE`` over the K candidates and no choice),
        δ = 0; no arithmetic caveat. Under ``REPLACE_SPECIAL`` a choice is replaced by none, which
        loses less. Shown exactly by tests/soundness/test_kary_randomized_response.py.

    Source:
        Warner 1965; Kairouz, Oh & Viswanath 2016, §4.1; docs/local.md, "Randomized response".

    Example:
        >>> coin = KaryRandomizedResponse(1.0, 4)
        >>> round(coin.flip_probability, 6)
        0.524633
    """

    epsilon: float
    categories: int

    def __post_init__(self) -> None:
        """Refuse what cannot be realized or carries no information."""
        object.__setattr__(self, "epsilon", _validate.positive("epsilon", self.epsilon))
        if self.epsilon < _LEAST:
            raise UsageError(
                f"epsilon must be at least {_LEAST:g}, got {self.epsilon!r}: every answer would "
                "be as good as a fair die."
            )
        count = _validate.integer("categories", self.categories, at_least=2, at_most=_MOST)
        object.__setattr__(self, "categories", count)

    @property
    def threshold(self) -> int:
        """Return how many of the 2^64 words replace a choice."""
        return randomized_response_threshold(self.epsilon, self.categories)

    @property
    def realized_epsilon(self) -> float:
        """Return the loss that the integer threshold realizes, at most :attr:`epsilon`."""
        return randomized_response_epsilon(self.epsilon, self.categories)

    @property
    def flip_probability(self) -> float:
        """Return the probability that a choice is replaced by another one."""
        return self.threshold / 2**64

    @property
    def event(self) -> RandomizedResponseEvent:
        """Return what one release does, for the ledger."""
        return RandomizedResponseEvent(self.realized_epsilon, self.categories)

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return 1: one change replaces one choice by another.

        Raises:
            PrivacyError: Under ``ADD_OR_REMOVE_ONE``; the number of answers shows.
        """
        if neighbors is ADD_OR_REMOVE_ONE:
            raise PrivacyError(
                "Randomized response answers once per choice, so the number of answers shows when "
                "one is added or removed. Use REPLACE_ONE."
            )
        return 1.0

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what answering one choice promises; δ = 0.

        Raises:
            PrivacyError: Under ``ADD_OR_REMOVE_ONE``, or for another unit than ``"label"``.

        Guarantee:
            ε for one choice. Shown by tests/soundness/test_kary_randomized_response.py.
        """
        self.sensitivity(neighbors)
        if unit != "label":
            raise PrivacyError(
                f"Randomized response protects one choice at a time, not unit={unit!r}. Use "
                "unit='label'."
            )
        loss = accounting.composed_epsilon([(self.event, 1)], neighbors=neighbors, delta=0.0)
        return Guarantee(loss, delta=0.0, unit=unit, neighbors=neighbors, trust=trust)

    def release(
        self, values: Integer[np.ndarray, " n"], *, entropy: Entropy
    ) -> Integer[np.ndarray, " n"]:
        """Return the randomized choices, dtype int16, each from 0 to K − 1.

        Args:
            values: Choices, each from 0 to K − 1, or −1 (no choice).
            entropy: Source of 64-bit words; a release needs system entropy. How many words are
                drawn does not depend on the choices.

        Raises:
            DataError: A value is none of these; only its index is named.

        Guarantee:
            Unit ``"label"``, ``REPLACE_ONE``, pure ε; draws noise, so the spend must already be
            on a ledger.
        """
        return self._answers(self._checked(values), entropy)

    def repeat(
        self, values: Integer[np.ndarray, " n"], trials: int, *, entropy: Entropy
    ) -> Integer[np.ndarray, "t n"]:
        """Return independent releases of the same made-up choices, one in each row.

        Guarantee:
            None for all rows together: each row is one release. Never call it on private choices.
        """
        trials = _validate.integer("trials", trials, at_least=1)
        choices = self._checked(values)
        return self._answers(np.tile(choices, trials), entropy).reshape(trials, -1)

    def log_ratio(
        self, outputs: Integer[np.ndarray, "t n"], case: WorstCase
    ) -> Float[np.ndarray, " t"]:
        """Return log P(answers | case.one) − log P(answers | case.other) for every row."""
        one, other = (self._log_chances(outputs, choices) for choices in (case.one, case.other))
        return np.asarray((one - other).sum(axis=1))

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return a choice and another one, or what takes its place: none."""
        self.sensitivity(neighbors)
        other = NO_CHOICE if neighbors is REPLACE_SPECIAL else 1
        return WorstCase(np.array([0], dtype=np.int16), np.array([other], dtype=np.int16))

    def _checked(self, values: Integer[np.ndarray, " n"]) -> Integer[np.ndarray, " n"]:
        """Return choices as int16; refuse what is none."""
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

    def _answers(
        self, choices: Integer[np.ndarray, " n"], entropy: Entropy
    ) -> Integer[np.ndarray, " n"]:
        """Return the answers, some at a time."""
        answers = np.empty(len(choices), dtype=np.int16)
        for start in range(0, len(answers), _CHUNK):
            part = slice(start, start + _CHUNK)
            answers[part] = self._answered(choices[part], entropy)
        return answers

    def _answered(
        self, choices: Integer[np.ndarray, " n"], entropy: Entropy
    ) -> Integer[np.ndarray, " n"]:
        """Return the answers; there is no branch on a choice, so that time tells nothing."""
        n, count = len(choices), self.categories
        flipped = entropy.words(n) < np.uint64(self.threshold)
        ahead = 1 + _uniform(n, count - 1, entropy)
        fair = _uniform(n, count, entropy)
        kept = choices.astype(np.int64)
        answers = (kept + ahead * flipped) % count
        return np.where(choices == NO_CHOICE, fair, answers).astype(np.int16)

    def _log_chances(
        self, outputs: Integer[np.ndarray, "t n"], choices: Integer[np.ndarray, " n"]
    ) -> Float[np.ndarray, "t n"]:
        """Return the log-probability of every answer, were these the choices."""
        flip = self.flip_probability
        other = math.log(flip / (self.categories - 1))
        chances = np.where(outputs == choices, math.log1p(-flip), other)
        return np.where(choices == NO_CHOICE, -math.log(self.categories), chances)


def _uniform(n: int, count: int, entropy: Entropy) -> Integer[np.ndarray, " n"]:
    """Return n numbers from 0 to count − 1, each exactly as likely.

    A word in the last round, which is not complete, is drawn again.
    """
    last = np.uint64(2**64 - 1 - 2**64 % count)
    words: UInt64[np.ndarray, " n"] = entropy.words(n).copy()
    while (beyond := _beyond(words, last)).any():
        words[beyond] = entropy.words(int(beyond.sum()))
    return (words % np.uint64(count)).astype(np.int64)


def _beyond(words: UInt64[np.ndarray, " n"], last: np.uint64) -> Bool[np.ndarray, " n"]:
    """Return which words lie beyond the last complete round."""
    return np.asarray(words > last)


def debiased_choices(
    answers: Integer[np.ndarray, " n"], coin: KaryRandomizedResponse
) -> Float[np.ndarray, "n k"]:
    """Return a row for every answer whose expectation says which candidate was chosen.

    It is 1 for the choice and 0 for the others, and 1/K for everybody where nobody was chosen. So
    Σ over answers and candidates of these numbers times φ estimates Σ φ(chosen) without bias.

    Args:
        answers: What was released, each from 0 to K − 1.
        coin: What released them.

    Raises:
        DataError: An answer is something else.

    Source:
        docs/local.md, "Randomized response": (1[z = j] − q)/(1 − f − q), q = f/(K − 1).

    Example:
        >>> debiased_choices(np.array([0]), KaryRandomizedResponse(50.0, 3)).round(6).tolist()
        [[1.0, -0.0, -0.0]]
    """
    known = np.asarray(answers)
    if known.ndim != 1 or known.dtype.kind not in "iu":
        raise DataError("answers must be whole numbers in one dimension.")
    if ((known < 0) | (known >= coin.categories)).any():
        raise DataError(f"answers must be from 0 to {coin.categories - 1}.")
    other = coin.flip_probability / (coin.categories - 1)
    chosen = known[:, np.newaxis] == np.arange(coin.categories)
    return np.asarray((chosen - other) / (1 - coin.flip_probability - other))
