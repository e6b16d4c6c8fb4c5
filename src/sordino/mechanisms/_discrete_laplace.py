"""Discrete Laplace noise, drawn exactly from integers: no float stands between words and noise."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from sordino._random import Entropy

__all__ = ["laplace_noise", "words_of"]

_WORD: Final = 64
_BLOCK: Final = 64  # words asked for at once


def words_of(entropy: Entropy) -> Iterator[int]:
    """Yield independent uniform 64-bit words, asked for in blocks.

    Guarantee:
        None of its own: what is drawn from them states one, as
        :class:`~sordino.mechanisms.count_test.CountTest` does.
    """
    while True:
        yield from entropy.words(_BLOCK).tolist()


def laplace_noise(rate: Fraction, words: Iterator[int]) -> int:
    """Return Z with P(Z = z) = e^{−rate·|z|}·(1 − e^{−rate})/(1 + e^{−rate}), exactly.

    It is the difference of two independent numbers that are geometric with factor e^{−rate}.
    """
    return _geometric(rate, words) - _geometric(rate, words)


def _geometric(rate: Fraction, words: Iterator[int]) -> int:
    """Return G ≥ 0 with P(G ≥ k) = e^{−rate·k}, exactly.

    With rate = s/t in lowest terms, X = u + t·w has P(X ≥ x) = e^{−x/t} if u < t is drawn with
    weight e^{−u/t} and w with weight e^{−w}. Then ⌊X/s⌋ ≥ k if and only if X ≥ k·s.

    Source:
        Canonne, Kamath & Steinke 2020, Algorithm 2.
    """
    steps, unit = rate.numerator, rate.denominator
    while not _survives(part := _below(unit, words), unit, words):
        pass
    whole = 0
    while _survives(1, 1, words):
        whole += 1
    return (part + unit * whole) // steps


def _survives(part: int, unit: int, words: Iterator[int]) -> bool:
    """Return True with probability e^{−part/unit}, exactly, for part ≤ unit.

    Coins of probability x, x/2, x/3, ... are tossed until one fails, x = part/unit. More than k
    succeed or not with probability x^k/k!, so the first to fail is an odd one with probability
    1 − x + x²/2! − x³/3! + ... = e^{−x}.
    """
    tossed = 1
    while _below(unit * tossed, words) < part:
        tossed += 1
    return tossed % 2 == 1


def _below(bound: int, words: Iterator[int]) -> int:
    """Return a uniform whole number from 0 to bound − 1, exactly.

    As many words as the bound has make one number; what is beyond its last whole multiple of the
    bound is drawn anew.
    """
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
