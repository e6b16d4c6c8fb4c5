"""What a released file says of people in general: reported, and never held against it."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Integer
from scipy.special import expit

from sordino.auditing.findings import Finding
from sordino.auditing.releases.binomials import at_least
from sordino.auditing.releases.evidence import Channel
from sordino.auditing.releases.released import UNKNOWN, Released
from sordino.auditing.statistical.bounds import clopper_pearson

__all__ = ["describe_content", "find_constant_truth"]

_SUSPICIOUS = 1e-3
_CONFIDENCE = 0.95


def describe_content(released: Released) -> Finding:
    """Return how far the answers prefer longer texts: people do, so it is no leak.

    Args:
        released: A released file.
    """
    rows = zip(released.first, released.second, strict=True)
    longer = np.array([np.sign(len(one) - len(other)) for one, other in rows], dtype=np.int8)
    told = longer != 0
    n = int(told.sum())
    wins = int(((longer > 0) == (released.answers == 1))[told].sum())
    score = (2 * wins - n) / math.sqrt(n) if n else 0.0
    return Finding(
        attack="content",
        outcome="clear",
        summary=f"Answers prefer longer texts by {score:.1f} standard deviations: a taste of "
        "people in general, not a leak.",
        details={"rows": n, "standard_deviations": score},
    )


def find_constant_truth(released: Released, orders: Iterable[Channel]) -> Finding:
    """Return whether the answers look like one constant label that was randomized.

    The answers then agree with a fixed order as often as a coin of this ε keeps a label: more
    often than half the time, and not more often than that.

    Args:
        released: A released file.
        orders: Orders that no answer was used to find, the order written among them.
    """
    kept = float(expit(released.epsilon))
    named = [(channel.name, channel.guesses) for channel in orders]
    canonical = np.asarray(1 - released.swapped, dtype=np.int8)
    found = [
        name
        for name, guesses in [*named, ("canonical order", canonical)]
        if _is_randomized_constant(released.answers, guesses, kept)
    ]
    if released.layout == "chosen-rejected" or not found:
        return Finding(
            attack="constant-truth",
            outcome="clear",
            summary="In no order do the answers look like one constant label that was randomized.",
        )
    return Finding(
        attack="constant-truth",
        outcome="warning",
        summary=f"In some order ({', '.join(dict.fromkeys(found))}) the answers agree as often as "
        "if the first one were always preferred and then randomized. The raw file tells.",
        details={"orders": list(dict.fromkeys(found))},
    )


def _is_randomized_constant(
    answers: Integer[np.ndarray, " n"], guesses: Integer[np.ndarray, " n"], kept: float
) -> bool:
    """Return whether answers agree with an order as a kept label does, and as a fair coin does not.

    Either end of the order may be the preferred one.
    """
    told = guesses != UNKNOWN
    n = int(told.sum())
    agree = int((answers == guesses)[told].sum())
    most = max(agree, n - agree)
    low, high = clopper_pearson(most, n, (1 + _CONFIDENCE) / 2)
    return low <= kept <= high and 2 * at_least(most, n, 0.5) < _SUSPICIOUS
