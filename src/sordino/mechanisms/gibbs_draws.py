"""Draws from a Gibbs policy with probabilities that are exact multiples of 2^-128.

A policy is given by the logarithms of its weights. No floating-point exponential, sum or
comparison of probabilities stands between them and the drawn action: weights are integers,
cumulative sums are integers, and a draw compares a word of 128 bits with integer thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Int64, UInt64

from sordino import _validate
from sordino._random import Entropy
from sordino.errors import DataError, UsageError


def digits(count: int) -> Context:
    """Return arithmetic of so many digits, in which nothing is too small."""
    traps = [InvalidOperation, DivisionByZero, Overflow]
    return Context(prec=count, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=traps)


DIGITS: Final = digits(50)
"""The arithmetic that logarithms of weights are computed in."""

FLOOR: Final = 30
"""How far below the largest log-weight every action of the support is kept at least."""

MOST_ACTIONS: Final = 2**16
"""How many actions a policy may have: beyond it the slack below would not be proven."""

# Why this is enough. Let q be the policy ∝ exp(floored log-weights), in real numbers. Its least
# chance is at least e^-30/2^16 > 2^-59.3. A weight below is wrong by a factor of at most
# 1 ± 2^-115: 50 digits, then an integer of at least 2^160·e^-30 > 2^116 rounded down. So are
# their sums, and a chance by 1 ± 2^-113. The two roundings of its thresholds change it by less
# than 2^-128, a factor of 1 ± 2^-68.7. Every log-chance is therefore within 2^-68 of log q, and
# the difference of two log-ratios, made of four log-chances, within 2^-66. What is left up to
# SLACK is room for log-weights that are themselves wrong by at most 2^-68.
SLACK: Final = Fraction(1, 2**64)
"""How much longer the interval of log-ratios may be than with real arithmetic, at most."""

_WIDEST: Final = 2 * FLOOR  # two actions are at most FLOOR apart, before and after a change
_SUM_ATOL: Final = 1e-9  # how far the reference may sum from 1; it is normalized anyway
_FEW: Final = 8  # draws of one policy for which exact thresholds are seldom worth their time
_DOUBT: Final = 2.0**-35
_BITS: Final = 128
_WORD: Final = 2**64
_SCALE: Final = Decimal(2**160)


def draw_actions(
    log_weights: Iterable[float | Decimal], trials: int, *, entropy: Entropy
) -> Int64[np.ndarray, " trials"]:
    """Return independent draws of an action, each with probability ∝ exp(its log-weight).

    Guarantee:
        If one change of the data moves the log-weights by h with max h − min h ≤ b, then one
        draw has bounded range b + :data:`SLACK`; several draws from one policy compose as
        :class:`sordino.privacy.guarantee.BoundedRangeEvent` says. Exact: the slack holds all
        arithmetic behind the log-weights, and it is the caller who bounds h. Draws noise, so the
        spend must already be on a ledger. Shown by
        tests/soundness/test_exponential_mechanism.py.
    """
    # Log-weights more than 30 below the largest one count as 30 below it, so that no action that
    # one data set can draw is impossible under another.
    # Source: McSherry & Talwar 2007; docs/privacy.md, "Bounded range".
    trials = _validate.integer("trials", trials, at_least=0)
    levels = _levels(log_weights)
    words = entropy.words(2 * trials).reshape(trials, 2)
    if 0 < trials <= _FEW:
        plain = _drawn_plainly(levels, words[:, 0])
        if plain is not None:
            return plain
    # The last action needs no threshold, nor does any after the last one that can be drawn.
    cuts = [cut for cut in _level_cuts(levels) if cut < 1 << _BITS]
    return _drawn(cuts, words[:, 0], words[:, 1])


def thresholds(log_weights: Iterable[float | Decimal]) -> list[int]:
    """Return, for every action, the sum of the chances up to it in units of 2^-128."""
    # An action is drawn if a uniform integer below 2^128 is below its threshold and not below the
    # one before. The last threshold is 2^128.
    return _level_cuts(_levels(log_weights))


def _level_cuts(levels: list[Decimal]) -> list[int]:
    weights = _weights(levels)
    total = sum(weights)
    return [(part << _BITS) // total for part in accumulate(weights)]


def log_chances(cuts: list[int]) -> Float[np.ndarray, " k"]:
    """Return the log-probability of every action, −∞ for one that is never drawn."""
    sizes = [high - low for low, high in pairwise([0, *cuts])]
    return np.array([math.log(size / (1 << _BITS)) if size else -math.inf for size in sizes])


def _levels(log_weights: Iterable[float | Decimal]) -> list[Decimal]:
    """Return the log-weights as decimals, without any rounding; refuse what is none."""
    levels = [v if isinstance(v, Decimal) else Decimal(float(v)) for v in log_weights]
    if len(levels) > MOST_ACTIONS:
        raise UsageError(
            f"At most {MOST_ACTIONS} actions can be drawn from, got {len(levels)}. Nothing was "
            "drawn. Leave out actions by a public rule."
        )
    for index, level in enumerate(levels):
        if level.is_nan() or (level.is_infinite() and level > 0):
            raise DataError(f"Log-weights must be below infinity: index {index} is not.")
    if not any(level.is_finite() for level in levels):
        raise DataError("At least one log-weight must be finite. Nothing was drawn.")
    return levels


def _weights(levels: list[Decimal]) -> list[int]:
    """Return integers ∝ exp(floored log-weight), 2^160 for the largest and 0 for −∞."""
    # The floor costs nothing: let f and f' be two log-weights whose difference lies in [c, c + b].
    # Add c to f', which leaves its policy as it is: then f' ≤ f ≤ f' + b. The map f ↦ max(f, max f
    # − 30) never falls when f rises, and moves by b when all of f moves by b. So the floored
    # log-weights obey the same two inequalities.
    top = max(levels)
    return [
        _weight(max(DIGITS.subtract(level, top), Decimal(-FLOOR))) if level.is_finite() else 0
        for level in levels
    ]


def _weight(depth: Decimal) -> int:
    """Return 2^160·exp(depth), rounded down."""
    return int(DIGITS.multiply(_SCALE, DIGITS.exp(depth)))


def _drawn_plainly(
    levels: list[Decimal], high: UInt64[np.ndarray, " n"]
) -> Int64[np.ndarray, " n"] | None:
    """Return what exact thresholds would draw, from floats; None where floats cannot tell."""
    # Depths below 30 are wrong by less than 2^-47, so weights by a factor within 1 ± 2^-46 (with
    # that of `exp`), sums of 2^16 of them by 1 ± 2^-36, shares by less than 2^-35.9 and words by
    # 2^-53: a word that is 2^-35 or more away from every share lies on the same side of the exact
    # threshold.
    top = max(levels)
    depths = [
        max(float(DIGITS.subtract(level, top)), -float(FLOOR)) if level.is_finite() else -math.inf
        for level in levels
    ]
    shares = np.cumsum(np.exp(depths))
    shares /= shares[-1]
    points = high * 2.0**-64
    drawn = np.searchsorted(shares, points, side="right")
    # The last share, 1, is no threshold, nor are those of actions after the last possible one.
    inner = shares[: np.flatnonzero(np.isfinite(depths))[-1]]
    near = np.abs(points[:, None] - inner[None, :]) < _DOUBT
    return None if near.any() else np.minimum(drawn, len(inner)).astype(np.int64)


def _drawn(
    cuts: list[int], high: UInt64[np.ndarray, " n"], low: UInt64[np.ndarray, " n"]
) -> Int64[np.ndarray, " n"]:
    """Return how many thresholds are at most the number high·2^64 + low, for every draw."""
    upper = np.array([cut // _WORD for cut in cuts], dtype=np.uint64)
    lower = np.array([cut % _WORD for cut in cuts], dtype=np.uint64)
    below = np.searchsorted(upper, high, side="left")
    not_above = np.searchsorted(upper, high, side="right")
    for tie in np.flatnonzero(below < not_above):
        # Equal high words: the low ones of these thresholds are sorted, and decide.
        span = slice(below[tie], not_above[tie])
        below[tie] += np.searchsorted(lower[span], low[tie], side="right")
    return below.astype(np.int64)


@lru_cache(maxsize=1 << 12)
def range_of_draw(score_range: float | Fraction, temperature: float) -> float:
    """Return the length of the interval that holds all log-ratios of one draw."""
    # The range of the change of the scores over the temperature, at most 60 (no two actions are
    # more than e^30 apart), plus 2^-64 for arithmetic; rounded up. Scores that never change cost 0.
    # Source: Durfee & Rogers 2019, Definition 3.1; docs/privacy.md, "Bounded range".
    ideal = Fraction(score_range) / Fraction(temperature)
    return rounded_up(min(ideal, Fraction(_WIDEST)) + SLACK, "bounded range") if ideal else 0.0


def checked_reference(reference: Any, *, least: int = 2) -> tuple[float, ...]:
    """Return public probabilities as a tuple of floats; refuse what is no distribution."""
    chances = tuple(reference)
    if all(isinstance(chance, float) for chance in chances):
        return _checked_chances(chances, least)
    return _checked_chances.__wrapped__(chances, least)


@lru_cache(maxsize=256)
def _checked_chances(reference: tuple[Any, ...], least: int) -> tuple[float, ...]:
    """Return checked probabilities; many draws repeat one reference."""
    chances = tuple(_validate.non_negative("reference", chance) for chance in reference)
    drawn = sum(chance > 0 for chance in chances)
    if len(chances) > MOST_ACTIONS or drawn < least:
        raise UsageError(
            f"reference must give at most {MOST_ACTIONS} actions a probability, and at least "
            f"{least} of them more than 0; got {len(chances)} actions, {drawn} of them above 0."
        )
    total = math.fsum(chances)
    if not abs(total - 1) <= _SUM_ATOL:
        raise UsageError(f"reference must sum to 1, got a sum of {total!r}.")
    return chances


@lru_cache(maxsize=MOST_ACTIONS)
def log_of_chance(chance: float) -> Decimal:
    """Return the logarithm of a public probability in 50 digits; references repeat them."""
    return DIGITS.ln(Decimal(chance))


def rounded_up(value: Fraction, name: str) -> float:
    """Return a float that is at least value, and so is the decimal number that it prints as."""
    try:
        result = float(value)
    except OverflowError:
        raise UsageError(
            f"The {name} would be larger than a float. Use a smaller bound or a larger epsilon."
        ) from None
    while min(Fraction(result), Fraction(repr(result))) < value:
        result = math.nextafter(result, math.inf)
    return result
