"""Which features decide: the released weights, in the size of what really differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino import _validate
from sordino.errors import DataError
from sordino.preferences._signals import SIGNALS
from sordino.preferences.features import Features, HashedText

__all__ = ["decisive_features", "feature_names", "feature_spread"]


def feature_names(features: Features | None, dimension: int) -> list[str]:
    """Return what each weight is about, as a reader would call it.

    Args:
        features: What turned texts into vectors; None for a reward of plain feature rows.
        dimension: Number of weights. A column without a name of its own is called by its place.

    Example:
        >>> feature_names(HashedText(dimension=4), 4)[1:3]
        ['words, saturating at 60', 'word group 2']
        >>> feature_names(None, 2)
        ['feature 0', 'feature 1']
    """
    if isinstance(features, HashedText):
        named = list(SIGNALS)[: features.signals]
        return named + [f"word group {place}" for place in range(len(named), dimension)]
    given = [str(name) for name in getattr(features, "names", ())]
    if len(given) == dimension:
        return given
    return [f"feature {place}" for place in range(dimension)]


def feature_spread(differences: Any) -> Float[np.ndarray, " d"]:
    """Return by how much two answers to one prompt usually differ in each feature.

    The root of the mean square, because which answer stands first means nothing.

    Args:
        differences: φ(first) − φ(second) of public pairs, shape (n, d), dense or sparse.

    Example:
        >>> feature_spread(np.array([[3.0, 0.0], [-4.0, 0.0]])).round(2).tolist()
        [3.54, 0.0]
    """
    squares = np.asarray((differences**2).mean(axis=0), dtype=np.float64)
    return np.sqrt(squares.ravel())


def decisive_features(
    weights: Float[np.ndarray, " d"],
    *,
    spread: Float[np.ndarray, " d"],
    names: Sequence[str],
    most: int = 10,
) -> list[dict[str, Any]]:
    """Return the features that move the reward most, the largest effect first.

    There are no intervals: what shrinks the weights moves each by an unknown part of the truth.

    Args:
        weights: Of the released reward.
        spread: From :func:`feature_spread`; of texts that the promise treats as public, because
            it shows in the result.
        names: One for each weight.
        most: Largest number of rows, at least 1. Features without any effect are left out.

    Returns:
        For each feature its ``name``, ``weight`` and ``effect`` (weight · spread: what a usual
        difference adds to the log odds of being preferred).

    Raises:
        DataError: Lengths differ, or a number is not finite.

    Example:
        >>> rows = decisive_features(
        ...     np.array([1.0, -3.0]), spread=np.array([0.5, 0.5]), names=["long", "rude"]
        ... )
        >>> [(row["name"], row["effect"]) for row in rows]
        [('rude', -1.5), ('long', 0.5)]
    """
    _validate.integer("most", most, at_least=1)
    weights = _validate.finite_array("weights", weights, ndim=1)
    spread = _validate.finite_array("spread", spread, ndim=1)
    for name, column in {"spread": spread, "names": names}.items():
        if len(column) != len(weights):
            raise DataError(f"{name} must have {len(weights)} entries, got {len(column)}.")
    effects = weights * spread
    order = [int(place) for place in np.argsort(-np.abs(effects), kind="stable")[:most]]
    return [
        {
            "name": str(names[place]),
            "weight": float(weights[place]),
            "effect": float(effects[place]),
        }
        for place in order
        if effects[place] != 0
    ]
