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

    ``k = ceil(2^64 (c - 1) / (e^epsilon + c - 1))``, at least 1, in 100-digit arithmetic. A
    flipped label must then be uniform on the other ``c - 1`` categories.

    Args:
        epsilon: Promised pure loss; finite and greater than 0.
        categories: Number c of possible labels; at least 2.

    Returns:
        The threshold k; flip if and only if ``word < k``.

    Raises:
        UsageError: If an argument is out of range, or epsilon is so small (about 1e-18) and c so
            odd that no threshold on 64-bit words keeps it.

    Source:
        Warner (1965); Kairouz, Oh, Viswanath (2016), Section 4.1; the integer threshold is
        docs/privacy.md, "Randomness and arithmetic".

    Guarantee:
        the exact loss ``|log((2^64 - k)(c - 1)/k)|`` of one label under REPLACE_ONE is at most
        epsilon, for every accepted argument. Shown by
        ``tests/soundness/test_conversions_soundness.py``.

    Example:
        >>> randomized_response_threshold(1.0) / 2**64
        0.2689414213699951
    """
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

    Args:
        threshold: How many of the 2^64 words flip; from 1 to 2^64 - 1.
        categories: Number c of possible labels; at least 2.

    Returns:
        ``|log((2^64 - threshold)(c - 1)/threshold)|``, rounded up.

    Raises:
        UsageError: If an argument is out of range.

    Source:
        docs/privacy.md, "Randomness and arithmetic".

    Guarantee:
        an upper bound on the exact loss, above it by at most two units in the last place, and so
        is the decimal number that it prints as; valid for every accepted argument.

    Example:
        >>> realized_epsilon(2**63)
        0.0
    """
    threshold = integer("threshold", threshold, at_least=1, at_most=_WORDS - 1)
    loss = _exact_loss(threshold, integer("categories", categories, at_least=2) - 1)
    stated = float_up(loss)
    return stated if Decimal(stated) >= loss else math.nextafter(stated, math.inf)


def randomized_response_epsilon(epsilon: float, categories: int = 2) -> float:
    """Return the loss to state for randomized response that was asked to keep epsilon.

    Args:
        epsilon: Requested pure loss; finite and greater than 0.
        categories: Number of possible labels; at least 2.

    Returns:
        The realized loss rounded up to a float, and never above the request.

    Raises:
        UsageError: If an argument is out of range.

    Source:
        docs/privacy.md, "Randomness and arithmetic".

    Guarantee:
        an upper bound on the exact loss of one label; valid for every accepted argument, because
        the exact loss is at most the request.

    Example:
        >>> randomized_response_epsilon(1.0)
        1.0
    """
    threshold = randomized_response_threshold(epsilon, categories)
    return min(float(epsilon), realized_epsilon(threshold, categories))


def flip_probability(epsilon: float, categories: int = 2) -> float:
    """Return the chance that randomized response changes a label, as the nearest float.

    Args:
        epsilon: Promised pure loss; finite and greater than 0.
        categories: Number of possible labels; at least 2.

    Returns:
        ``threshold / 2^64``, correctly rounded.

    Raises:
        UsageError: If an argument is out of range.

    Source:
        Warner (1965); docs/privacy.md, "Randomness and arithmetic".

    Guarantee:
        a public number for debiasing, exact to one rounding; it promises nothing by itself.

    Example:
        >>> round(flip_probability(1.0), 10)
        0.2689414214
    """
    return randomized_response_threshold(epsilon, categories) / _WORDS


def _exact_loss(threshold: int, others: int) -> Decimal:
    """Return |log((2^64 - threshold) others / threshold)| to 100 digits."""
    odds = _DECIMAL.divide(Decimal((_WORDS - threshold) * others), Decimal(threshold))
    return abs(_DECIMAL.ln(odds))
