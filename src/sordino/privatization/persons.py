"""Budgets for whole people: what one label of each may cost."""

from __future__ import annotations

import math

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy import accounting
from sordino.privacy.guarantee import REPLACE_ONE

__all__ = ["coin_for_person"]


def coin_for_person(epsilon: float, *, labels: int) -> RandomizedResponse:
    """Return the coin of which so many answers of one person keep ε together, never more.

    Args:
        epsilon: Bound on the loss of all labels of one person, finite and above 0.
        labels: The most different questions of one person: a cap, or a number that the public
            fields tell.

    Raises:
        UsageError: The share of one label is too small to carry information.

    Source:
        docs/local.md, "Person-level budgets": ε/m each, composed as m·(ε/m).

    Example:
        >>> coin_for_person(4.0, labels=5).epsilon
        0.8
    """
    share = _validate.positive("epsilon", epsilon) / labels
    coin = _coin(share, epsilon, labels)
    while _together(coin, labels) > epsilon:  # a rounded share may be too large by one unit
        share = math.nextafter(share, 0.0)
        coin = _coin(share, epsilon, labels)
    return coin


def _coin(share: float, epsilon: float, labels: int) -> RandomizedResponse:
    """Return the coin of one label's share; an error says whose share it is."""
    problem: UsageError | None = None
    try:
        return RandomizedResponse(share)
    except UsageError as error:
        problem = error
    raise UsageError(f"epsilon={epsilon!r} for {labels} labels of one person: {problem}")


def _together(coin: RandomizedResponse, labels: int) -> float:
    """Return the composed loss of so many answers of one coin."""
    return accounting.composed_epsilon([(coin.event, labels)], neighbors=REPLACE_ONE, delta=0.0)
