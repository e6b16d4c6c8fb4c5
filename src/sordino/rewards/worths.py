"""How good each of the items is that everybody ranked, and how sure one can be of it.

A ranking says how items compare and nothing of what all have in common, so that worths are known
up to one number. They are given less their mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import issparse
from scipy.special import ndtri

from sordino.preferences.features import Features

__all__ = ["Worth", "best_first", "centered_weights", "item_rows", "worth_errors"]

Worth = tuple[str, float, float | None, float | None]
"""A name, its worth, and the ends of an interval, None where no error is known."""


def item_rows(
    items: tuple[str, ...] | None,
    features: Features | None,
    given: Float[np.ndarray, "k d"] | None,
) -> Float[np.ndarray, "k d"] | None:
    """Return φ of every item, or None if items have one weight each, or there are none.

    Args:
        items: Their names.
        features: Turns a name into a vector, with an empty prompt.
        given: The features that they were given.
    """
    if items is None or features is None:
        return given
    rows: Any = features.transform([""] * len(items), items)
    return np.asarray(rows.toarray() if issparse(rows) else rows, dtype=np.float64)


def centered_weights(
    theta: Float[np.ndarray, " d"],
    items: tuple[str, ...] | None,
    rows: Float[np.ndarray, "k d"] | None,
) -> Float[np.ndarray, " d"]:
    """Return weights less their mean where they are the worths themselves; else as they are.

    No loss of rankings changes by it, and no penalty grows.
    """
    return theta if items is None or rows is not None else theta - theta.mean()


def worth_errors(
    covariance: Float[np.ndarray, "d d"] | None,
    items: tuple[str, ...] | None,
    rows: Float[np.ndarray, "k d"] | None,
) -> Float[np.ndarray, " k"] | None:
    """Return the standard error of every worth less the mean of all; None where none is known.

    Source:
        The roots of the diagonal of PΦCΦᵀP, P = I − 11ᵀ/K.

    Args:
        covariance: C, of the weights.
        items: The names.
        rows: Φ; None for one weight each.
    """
    if items is None or covariance is None:
        return None
    known = np.eye(len(items)) if rows is None else rows
    centered = known - known.mean(axis=0)
    squares = np.einsum("kd,de,ke->k", centered, covariance, centered)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def best_first(
    items: tuple[str, ...],
    worths: Float[np.ndarray, " k"],
    errors: Float[np.ndarray, " k"] | None,
    confidence: float,
) -> list[Worth]:
    """Return names with worths less their mean and normal intervals, the best first.

    Args:
        items: The names.
        worths: Their rewards.
        errors: Standard errors of the worths less their mean.
        confidence: How often each interval should hold, in (0, 1).
    """
    centered = worths - worths.mean()
    reach = None if errors is None else errors * float(ndtri((1 + confidence) / 2))
    listed: list[Worth] = []
    for index in np.argsort(-centered, kind="stable").tolist():
        worth = float(centered[index])
        ends = (None, None) if reach is None else (worth - reach[index], worth + reach[index])
        low, high = (None if end is None else float(end) for end in ends)
        listed.append((items[index], worth, low, high))
    return listed
