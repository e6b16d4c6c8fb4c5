"""Root finding that ends on the safe side: the bracket is returned, never its middle."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

__all__ = ["bracket_down", "bracket_up", "float_up", "narrow", "raised"]

_LARGEST = 1e308
_TINIEST = 1e-120


def float_up(value: Decimal) -> float:
    """Return a float whose printed decimal number is at least value.

    What counts is what is written, here as everywhere in accounting: 0.1 is written for a float
    that is a little larger, other numbers for one that is smaller, and whoever adds up what is
    written must not be told too little.
    """
    result = float(value)
    while Decimal(repr(result)) < value:
        result = math.nextafter(result, math.inf)
    return result


def raised(value: float) -> float:
    """Return a loss or a ratio, or 1e-120 if it is positive but smaller.

    Squares of smaller numbers would underflow to "no loss at all"; more loss is always safe.
    """
    return max(value, _TINIEST) if value > 0 else value


def narrow(
    holds: Callable[[float], bool], fails: float, succeeds: float, *, rtol: float = 1e-15
) -> tuple[float, float]:
    """Return a bracket (last that fails, last that succeeds), at most rtol apart.

    ``fails`` may lie on either side of ``succeeds``. ``holds`` was true of every value returned
    second, so that end is safe even where rounding makes ``holds`` not monotone.
    """
    while abs(succeeds - fails) > rtol * max(abs(succeeds), abs(fails)):
        middle = _middle(fails, succeeds)
        if middle in (fails, succeeds):
            break
        if holds(middle):
            succeeds = middle
        else:
            fails = middle
    return fails, succeeds


def _middle(one: float, other: float) -> float:
    """Return the geometric mean of two positive numbers far apart, else the arithmetic one."""
    low, high = min(one, other), max(one, other)
    if low > 0 and high > 2 * low:
        return math.sqrt(low) * math.sqrt(high)
    if low == 0 and high > 1e-300:  # noqa: PLR2004 - a geometric step towards zero
        return high * 2.0**-8
    return low + (high - low) / 2


def bracket_up(holds: Callable[[float], bool], start: float) -> tuple[float, float]:
    """Return (last that fails, first that succeeds) of start, 2 start, 4 start, ...

    The second is infinite if nothing finite succeeds; the first is 0 if start succeeds.
    """
    fails = 0.0
    while start < _LARGEST:
        if holds(start):
            return fails, start
        fails, start = start, 2 * start
    return fails, math.inf


def bracket_down(holds: Callable[[float], bool], start: float) -> tuple[float, float]:
    """Return (last that fails, first that succeeds) of start, start/2, ...; then 0."""
    fails = start
    while start > 0:
        if holds(start):
            return fails, start
        fails, start = start, start / 2
    return fails, 0.0
