"""The exact arithmetic of randomized response on 64-bit words.

A label is flipped when a uniform 64-bit word falls below an integer threshold, so what a
person is promised is a ratio of two integers and not the rounding of an exponential.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal

from sordino._validate import integer, positive
from sordino.errors import UsageError

from .gaussian import float_up

__all__ = [
    "flip_probability",
    "randomized_response_epsilon",
    "randomized_response_threshold",
    "realized_epsilon",
]

_WORDS = 2**64
_LARGEST_LOSS = 64 * math.log(2)  # log(2^64): beyond it (plus log(c - 1)) one word is enough
_DECIMAL = Context(prec=100)


def randomized_response_threshold(epsilon: float, categories: int = 2) -> int:
    """Return how many of the 2^64 words flip a label, so that the loss is at most epsilon.

    Guarantee:
        the exact loss ``|log((2^64 - k)(c - 1)/k)|`` of one label under REPLACE_ONE is at most
        epsilon, for every accepted argument. Shown by
        ``tests/soundness/test_conversions_soundness.py``.
    """
    # `k = ceil(2^64 (c - 1) / (e^epsilon + c - 1))`, at least 1, in 100-digit arithmetic. A flipped
    # label must then be uniform on the other `c - 1` categories.
    # Source: Warner (1965); Kairouz, Oh, Viswanath (2016), Section 4.1; the integer threshold is
    # docs/privacy.md, "Randomness and arithmetic".
    epsilon, others = (
        positive("epsilon", epsilon),
        integer("categories", categories, at_least=2) - 1,
    )
    if epsilon > _LARGEST_LOSS + math.log(others) + 1:
        return 1
    # 0.1 is written for a float that is a little larger; whoever adds up what is written must
    # not be told too little, so the smaller of the two is kept.
    target = min(Decimal(epsilon), Decimal(repr(epsilon)))
    odds = _DECIMAL.add(_DECIMAL.exp(target), Decimal(others))
    share = _DECIMAL.divide(Decimal(_WORDS * others), odds)
    threshold = max(1, int(share.to_integral_value(ROUND_CEILING)))
    if _exact_loss(threshold, others) > target:
        raise UsageError(
            f"epsilon must be larger for {categories} categories: 64-bit words cannot keep "
            f"{epsilon!r}."
        )
    return threshold


def realized_epsilon(threshold: int, categories: int = 2) -> float:
    """Return the pure loss that a threshold really gives, rounded up to a float.

    Guarantee:
        an upper bound on the exact loss, above it by at most two units in the last place, and so
        is the decimal number that it prints as; valid for every accepted argument.
    """
    # Source: docs/privacy.md, "Randomness and arithmetic".
    threshold = integer("threshold", threshold, at_least=1, at_most=_WORDS - 1)
    loss = _exact_loss(threshold, integer("categories", categories, at_least=2) - 1)
    stated = float_up(loss)
    return stated if Decimal(stated) >= loss else math.nextafter(stated, math.inf)


def randomized_response_epsilon(epsilon: float, categories: int = 2) -> float:
    """Return the loss to state for randomized response that was asked to keep epsilon.

    Guarantee:
        an upper bound on the exact loss of one label; valid for every accepted argument, because
        the exact loss is at most the request.
    """
    # Source: docs/privacy.md, "Randomness and arithmetic".
    threshold = randomized_response_threshold(epsilon, categories)
    return min(float(epsilon), realized_epsilon(threshold, categories))


def flip_probability(epsilon: float, categories: int = 2) -> float:
    """Return the chance that randomized response changes a label, as the nearest float.

    Guarantee:
        a public number for debiasing, exact to one rounding; it promises nothing by itself.
    """
    # Source: Warner (1965); docs/privacy.md, "Randomness and arithmetic".
    return randomized_response_threshold(epsilon, categories) / _WORDS


def _exact_loss(threshold: int, others: int) -> Decimal:
    """Return |log((2^64 - threshold) others / threshold)| to 100 digits."""
    odds = _DECIMAL.divide(Decimal((_WORDS - threshold) * others), Decimal(threshold))
    return abs(_DECIMAL.ln(odds))
