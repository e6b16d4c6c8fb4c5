"""Numbers as people read them: a bound never looks smaller than it is."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any

from sordino.errors import DataError

__all__ = ["at_least", "at_most", "belief_percent", "percent", "plain", "real", "whole"]

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LARGEST_PLAIN = 6  # powers of ten beyond this one are written as such
_SMALLEST_PLAIN = -4
_CERTAIN = 6  # decimals after which a percentage may show as 100


def real(name: str, value: Any) -> float | None:
    """Return value as a float, None if it is missing, NaN or infinite.

    Raises:
        DataError: The value is neither a number nor null; the message gives its type only.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{name} must be a number or null, got {type(value).__name__}.")
    return float(value) if math.isfinite(value) else None


def _written(number: Decimal) -> str:
    """Return a decimal without trailing zeros, as a power of ten when it is long."""
    number = number.normalize()
    exponent = number.adjusted()
    if number and not _SMALLEST_PLAIN <= exponent < _LARGEST_PLAIN:
        mantissa = f"{number.scaleb(-exponent).normalize():f}"
        return f"{mantissa} × 10{str(exponent).translate(_SUPERSCRIPTS)}".replace("-", "−")
    return f"{number:,f}".replace("-", "−")


def _rounded(value: float, digits: int, rounding: str) -> str:
    """Return value in at most ``digits`` significant digits, rounded as told."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    with localcontext(prec=digits, rounding=rounding) as context:
        return _written(context.create_decimal(repr(float(value))))


def at_least(value: float, digits: int = 4) -> str:
    """Return an upper bound as text that is never smaller than the bound.

    Example:
        >>> at_least(1.999999), at_least(0.1), at_least(2.00001), at_least(1e-6)
        ('2', '0.1', '2.001', '1 × 10⁻⁶')
    """
    return _rounded(value, digits, ROUND_CEILING)


def at_most(value: float, digits: int = 4) -> str:
    """Return what is left as text that is never larger than it is.

    Example:
        >>> at_most(0.999999), at_most(1.5)
        ('0.9999', '1.5')
    """
    return _rounded(value, digits, ROUND_FLOOR)


def plain(value: float, digits: int = 3) -> str:
    """Return a measured number, rounded to the nearest.

    Example:
        >>> plain(0.0504), plain(-1.23456), plain(4000)
        ('0.0504', '−1.23', '4,000')
    """
    return _rounded(value, digits, ROUND_HALF_EVEN)


def percent(value: float, decimals: int = 1) -> str:
    """Return a measured share as a percentage.

    Example:
        >>> percent(0.64), percent(-0.015)
        ('64.0%', '−1.5%')
    """
    return f"{100 * value:.{decimals}f}%".replace("-", "−")


def whole(value: float) -> str:
    """Return a count with separators.

    Example:
        >>> whole(4000)
        '4,000'
    """
    return f"{value:,.0f}"


def belief_percent(value: float) -> str:
    """Return the bound on a belief as a percentage, rounded up, short of 100 if it is.

    Example:
        >>> belief_percent(0.8807970779778823), belief_percent(0.99995), belief_percent(1.0)
        ('88.1%', '99.995%', '100%')
    """
    share = Decimal(repr(value)) * 100
    for decimals in range(1, _CERTAIN + 1):
        shown = share.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING)
        if shown < 100:  # noqa: PLR2004
            return f"{_written(shown)}%"
    return "100%"
