"""Every formula that turns one way to state privacy into another, under one roof.

Gaussian noise and bounded range have a file each and are re-exported here; the coins of randomized
response, groups and relations are below. Arguments are positional, in the order in which the name
reads. Nothing here knows of dp_accounting: tests compare the two.

A label is flipped when a uniform 64-bit word falls below an integer threshold, so what a person is
promised is a ratio of two integers and not the rounding of an exponential.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal

from sordino._validate import failure_probability, integer, non_negative, positive
from sordino.errors import PrivacyError, UsageError

from .bounded_range import (
    bounded_range_composition_delta,
    bounded_range_composition_epsilon,
    bounded_range_delta,
    bounded_range_for,
    bounded_range_to_zcdp,
    pure_to_zcdp,
    total_variation_of_bounded_range,
    two_point_delta,
    zcdp_delta,
    zcdp_epsilon,
)
from .gaussian import float_up, gaussian_delta, gaussian_epsilon, gaussian_mu

__all__ = [
    "add_remove_from_replace",
    "bounded_range_composition_delta",
    "bounded_range_composition_epsilon",
    "bounded_range_delta",
    "bounded_range_for",
    "bounded_range_to_zcdp",
    "flip_probability",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "group_approximate",
    "group_bounded_range",
    "group_gaussian",
    "group_pure",
    "pure_to_zcdp",
    "randomized_response_epsilon",
    "randomized_response_threshold",
    "realized_epsilon",
    "replace_from_add_remove",
    "total_variation_of_bounded_range",
    "two_point_delta",
    "zcdp_delta",
    "zcdp_epsilon",
]

_UP = 1 + 1e-15
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


def group_pure(epsilon: float, size: int) -> float:
    """Return the pure loss of a group, from the pure loss of one: size · epsilon.

    Guarantee:
        an upper bound for every group of that size, under the same relation.
    """
    # Source: Dwork, Roth (2014), Theorem 2.2.
    return integer("size", size, at_least=1) * non_negative("epsilon", epsilon)


def group_approximate(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Return (epsilon, delta) of a group, from those of one change.

    Guarantee:
        an upper bound for every group of that size, under the same relation. For Gaussian noise and
        bounded range the own functions are tighter.
    """
    # `(g ε, δ (e^{gε} − 1)/(e^ε − 1))`; at epsilon 0 the second is g δ.
    # Source: Vadhan (2017), Lemma 2.2, with the geometric sum written out.
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    size = integer("size", size, at_least=1)
    if delta == 0 or size == 1:
        return size * epsilon, delta
    if epsilon == 0:
        return 0.0, min(1.0, size * delta)
    # (e^{gε} − 1)/(e^ε − 1) = e^{(g−1)ε} (1 − e^{−gε})/(1 − e^{−ε}), which cannot overflow early.
    log_delta = math.log(delta) + (size - 1) * epsilon
    if log_delta >= 0:
        return size * epsilon, 1.0
    share = math.expm1(-size * epsilon) / math.expm1(-epsilon)
    rounding = 1 + 1e-15 * (1 + (size - 1) * epsilon)
    grown = delta * math.exp((size - 1) * epsilon) if log_delta > -1 else math.exp(log_delta)
    rounding += 1e-15 * abs(math.log(delta))
    return size * epsilon, min(1.0, grown * share * rounding)


def group_gaussian(mu: float, size: int) -> float:
    """Return mu of a group, from mu of one change: size · mu.

    Guarantee:
        an upper bound for every group of that size: sensitivities of single changes add by the
        triangle inequality.
    """
    # Source: Dong, Roth, Su (2022), Theorem 2.14.
    return integer("size", size, at_least=1) * non_negative("mu", mu)


def group_bounded_range(bounded_range: float, size: int) -> float:
    """Return the bounded range of a group, from that of one change: size · bounded range.

    Guarantee:
        an upper bound for every group of that size, under the same relation.
    """
    # Source: Durfee, Rogers (2019); log-ratios of a chain of changes add, so intervals do.
    size = integer("size", size, at_least=1)
    return size * non_negative("bounded_range", bounded_range)


def replace_from_add_remove(epsilon: float, delta: float) -> tuple[float, float]:
    """Return (epsilon, delta) under REPLACE_ONE, from those under ADD_OR_REMOVE_ONE.

    Guarantee:
        an upper bound for every mechanism. The converse is false: see ``add_remove_from_replace``.
    """
    # One replacement is a removal and an addition: `(2ε, (1 + e^ε) δ)`.
    # Source: docs/privacy.md, "Relations" (a group of two).
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    if delta == 0:
        return 2 * epsilon, 0.0
    growth = 1 + math.exp(min(epsilon, 700.0))
    return 2 * epsilon, min(1.0, delta * growth * _UP) if epsilon < 700 else 1.0  # noqa: PLR2004


def add_remove_from_replace(
    epsilon: float, delta: float, *, ignored_null_record: bool
) -> tuple[float, float]:
    """Return (epsilon, delta) under ADD_OR_REMOVE_ONE, from those under REPLACE_ONE.

    Guarantee:
        an upper bound for every mechanism that ignores a null record of its universe.
    """
    # The same pair, and only where the universe holds a null record that the mechanism ignores:
    # removing a record then equals replacing it by the null record.
    # Source: docs/privacy.md, "Relations".
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    if ignored_null_record is not True:
        raise PrivacyError(
            "A guarantee under REPLACE_ONE says nothing under ADD_OR_REMOVE_ONE: a mechanism that "
            "reveals the number of records has replace-loss 0 and unbounded add/remove loss. "
            "Nothing was converted. Analyze the mechanism under ADD_OR_REMOVE_ONE, or pass "
            "ignored_null_record=True if its universe holds a null record that it ignores."
        )
    return epsilon, delta
