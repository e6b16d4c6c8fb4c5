"""A private test of how often the rarest arm was pulled, which a bandit's draws may build on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import chain, count
from typing import Final

import numpy as np
from jaxtyping import Float, Int64, Integer

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import PrivacyError, UsageError
from sordino.privacy.guarantee import (
    REPLACE_ONE,
    ApproximateEvent,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)

from .base import Repeated, WorstCase, stated
from .gibbs import digits
from .score_sensitivity import checked_counts

_LEAST: Final = 1e-12  # with less the margin is beyond all counts, and soon beyond 64 bits
_MOST: Final = 2**62
_FIRST_DIGITS: Final = 60


@dataclass(frozen=True)
class MinimumCount(Repeated[np.ndarray]):
    """Release a number that is, but for probability δ, no larger than the least count of any arm.

    Guarantee:
        :attr:`event` on a ledger, (ε, δ) for unit ``"record"`` under every relation, and bounded
        ranges for the draws on top: twice ``mean_range_after_test(v)``, over the temperature, under
        ``REPLACE_ONE`` and once otherwise. Exact: Z is drawn by integers alone and c is decided
        in as many digits as it takes, so there is no arithmetic caveat. Shown by
        tests/soundness/test_minimum_count.py.

        Proof. Let m be the least count in the records that two neighbors D and D′ share. Each
        has one record more, or none, so its own least count is m or m + 1: the two v are shifted
        by at most 1, and their log-ratio is at most ε everywhere. Call v > m a failure. Under
        either data set v ≤ m + Z − c, so it has probability at most P(Z > c) ≤ δ. Where v ≤ m,
        all arms have v records beside the one that differs, and the score range of v bounds the
        draws. Change what follows a failure into draws from the reference: what is left is a
        pure ε and draws of bounded range, which compose to some (ε*, δ*) as the ledger says. The
        change moves what happens under D, on failures alone, so that for any outcomes S
        P(S) ≤ P(S, no failure) + δ ≤ e^{ε*}·P′(S, no failure) + δ* + δ ≤ e^{ε*}·P′(S) + δ* + δ.
        That is what (ε, δ) with those bounded ranges composes to.
    """

    # v = min_a N_a − 1 + Z − c, with Z discrete Laplace, P(Z = z) ∝ e^{−ε|z|}, and the least margin
    # c ≥ 0 for which P(Z > c) ≤ δ. Whoever knows v may then trust every arm to have v records
    # beside any one record, and release draws whose score range is that of `mean_range_after_test`.
    # If v < 1, nothing is trusted: draw from the reference.
    # Source: Dwork & Lei 2009 (propose, test, release); docs/intrinsic.md, "Propose, test,
    # release".

    epsilon: float  # ε, bound on the privacy loss of v; finite and at least 1e-12
    # δ in (0, 1), failure probability: that v exceeds what holds without the one record.
    delta: float = field(kw_only=True)

    def __post_init__(self) -> None:
        _validate.settle(self, epsilon=_validate.positive, delta=_validate.fraction)
        if self.epsilon < _LEAST:
            raise UsageError(
                f"epsilon must be at least {_LEAST:g}, got {self.epsilon!r}: the noise would "
                "exceed all counts."
            )

    @property
    def margin(self) -> int:
        """Return the least c ≥ 0 with P(Z > c) = e^{−ε(c + 1)}/(1 + e^{−ε}) ≤ δ."""
        epsilon, delta = _smaller(self.epsilon), _smaller(self.delta)
        with localcontext(digits(_FIRST_DIGITS)):
            enough = -(delta * (1 + (-epsilon).exp())).ln() / epsilon
            margin = max(0, math.ceil(enough) - 1)
        while not _keeps(margin, epsilon, delta):
            margin += 1
        while margin and _keeps(margin - 1, epsilon, delta):
            margin -= 1
        return margin

    @property
    def event(self) -> ApproximateEvent:
        """Return what one release does, for the ledger: (ε, δ), the draws to come apart."""
        return ApproximateEvent(self.epsilon, self.delta)

    def sensitivity(self, neighbors: NeighboringRelation) -> float:
        """Return 1: no change of one record moves the least count by more."""
        # Under `REPLACE_ONE` neither: two data sets that share all records but one each have the
        # least count of those that they share, or one more.
        _validate.one_of("neighbors", neighbors, NeighboringRelation)
        return 1.0

    def guarantee(self, *, unit: Unit, neighbors: NeighboringRelation, trust: Trust) -> Guarantee:
        """Return what one release promises, the failures that draws may build on included."""
        # Guarantee: (ε, δ); without any draws on top v alone is pure ε.
        self.sensitivity(neighbors)
        if unit != "record":
            raise PrivacyError(
                "A test of counts hides which arm one record pulled, so it promises nothing for "
                f"unit={unit!r}. Nothing was released. Use unit='record', with one record for "
                "each person; where only rewards are private (unit='label'), counts are public "
                "and need no test."
            )
        return stated(self.event, delta=self.delta, unit=unit, neighbors=neighbors, trust=trust)

    def log_ratio(self, outputs: np.ndarray, case: WorstCase) -> Float[np.ndarray, " trials"]:
        """Return log P(output | case.one) − log P(output | case.other) for every row."""
        drawn = np.asarray(outputs, dtype=np.int64).reshape(-1)
        one, other = (np.abs(drawn - self._middle(counts)) for counts in (case.one, case.other))
        return np.asarray(self.epsilon * (other - one))

    def worst_case(self, neighbors: NeighboringRelation) -> WorstCase:
        """Return counts of neighbors whose least counts differ by 1."""
        # Every output then tells the two apart by exactly ε. Under `REPLACE_ONE` the record of the
        # first arm becomes one of the second.
        self.sensitivity(neighbors)
        second = 2 if neighbors is REPLACE_ONE else 1
        return WorstCase(np.array([1, 1]), np.array([0, second]))

    def _middle(self, counts: Integer[np.ndarray, " k"]) -> int:
        """Return the v of noise 0."""
        return int(checked_counts("values", counts).min()) - 1 - self.margin

    def _releases(
        self, values: Integer[np.ndarray, " k"], trials: int, entropy: Entropy
    ) -> Int64[np.ndarray, "trials 1"]:
        """Return independent v; below 1 they say that nothing may be trusted."""
        # They are cut to ±2^62, which no longer depends on the data.
        middle = self._middle(values)
        words = chain.from_iterable(entropy.words(_BLOCK).tolist() for _ in count())
        rate = Fraction(_smaller(self.epsilon))
        drawn = [[middle + _laplace_noise(rate, words)] for _ in range(trials)]
        return np.asarray(np.clip(np.array(drawn, dtype=object), -_MOST, _MOST), dtype=np.int64)


def _smaller(value: float) -> Decimal:
    """Return the smaller of a float and the decimal number that it prints as, exactly."""
    # 0.1 is written for a float that is a little larger; whoever adds up what is written must not
    # be told too little.
    return min(Decimal(value), Decimal(repr(value)))


def _keeps(margin: int, epsilon: Decimal, delta: Decimal) -> bool:
    """Return whether e^{−ε(c + 1)} ≤ δ·(1 + e^{−ε}), exactly."""
    # The two are never equal: powers of e with different rational exponents are independent over
    # the rationals (Lindemann). So some number of digits tells them apart. Each side is wrong by
    # less than 10^20 units of its last digit, or else one of them is negligible.
    enough = _FIRST_DIGITS
    while True:
        with localcontext(digits(enough)):
            tail = (-epsilon * (margin + 1)).exp()
            room = delta * (1 + (-epsilon).exp())
            if abs(tail - room) > room.scaleb(20 - enough):
                return tail < room
        enough *= 2


_WORD: Final = 64
_BLOCK: Final = 64  # words asked for at once


def _laplace_noise(rate: Fraction, words: Iterator[int]) -> int:
    """Return Z with P(Z = z) = e^{−rate·|z|}·(1 − e^{−rate})/(1 + e^{−rate}), exactly."""
    # It is the difference of two independent numbers that are geometric with factor e^{−rate}.
    return _geometric(rate, words) - _geometric(rate, words)


def _geometric(rate: Fraction, words: Iterator[int]) -> int:
    """Return G ≥ 0 with P(G ≥ k) = e^{−rate·k}, exactly."""
    # With rate = s/t in lowest terms, X = u + t·w has P(X ≥ x) = e^{−x/t} if u < t is drawn with
    # weight e^{−u/t} and w with weight e^{−w}. Then ⌊X/s⌋ ≥ k if and only if X ≥ k·s.
    # Source: Canonne, Kamath & Steinke 2020, Algorithm 2.
    steps, unit = rate.numerator, rate.denominator
    while not _survives(part := _below(unit, words), unit, words):
        pass
    whole = 0
    while _survives(1, 1, words):
        whole += 1
    return (part + unit * whole) // steps


def _survives(part: int, unit: int, words: Iterator[int]) -> bool:
    """Return True with probability e^{−part/unit}, exactly, for part ≤ unit."""
    # Coins of probability x, x/2, x/3, ... are tossed until one fails, x = part/unit. More than k
    # succeed or not with probability x^k/k!, so the first to fail is an odd one with probability
    # 1 − x + x²/2! − x³/3! + ... = e^{−x}.
    tossed = 1
    while _below(unit * tossed, words) < part:
        tossed += 1
    return tossed % 2 == 1


def _below(bound: int, words: Iterator[int]) -> int:
    """Return a uniform whole number from 0 to bound − 1, exactly."""
    # As many words as the bound has make one number; what is beyond its last whole multiple of the
    # bound is drawn anew.
    if bound == 1:
        return 0
    count = -(-bound.bit_length() // _WORD)
    span = 1 << (_WORD * count)
    while True:
        drawn = 0
        for _ in range(count):
            drawn = drawn << _WORD | next(words)
        if drawn < span - span % bound:
            return drawn % bound
