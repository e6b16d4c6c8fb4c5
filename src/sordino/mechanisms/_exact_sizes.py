"""Sizes as fractions, for formulas whose rounding must never make a bound too small."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms._gibbs_draws import rounded_up
from sordino.mechanisms._penalty import penalty_step

__all__ = ["MORE", "SMALLEST", "exact", "penalty_moves", "rounded_total"]

MORE: Final = 1 + Fraction(1, 2**48)  # above eight roundings of floats, or many of 50 digits
SMALLEST: Final = math.ulp(0.0)  # above what an underflow can lose


def exact(name: str, value: float) -> Fraction:
    """Return value as a fraction; refuse what is below zero or not finite."""
    result = _validate.non_negative(name, value)
    if result == math.inf:
        raise UsageError(f"{name} must be finite, got {value!r}.")
    return Fraction(result)


def penalty_moves(penalty: float, size: Fraction) -> Fraction:
    """Return how far one record beyond ``size`` moves the penalty, at least."""
    strength = exact("penalty", penalty)
    return strength * (Fraction(penalty_step(float(size))) * MORE + Fraction(SMALLEST))


def rounded_total(moved: Fraction, inexactness: float) -> float:
    """Return a score range as a float that is no smaller."""
    return rounded_up(moved + 4 * exact("inexactness", inexactness), "score range")
