"""How good each of the items is that people ranked, and how sure one can be of it.

A ranking says how items compare and nothing of what all have in common, so that worths are known
up to one number. They are given less the mean of the items that were offered to somebody; of the
others nothing is known.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.sparse import issparse
from scipy.special import expit, ndtri

from sordino.mechanisms._slates import groups_by_size
from sordino.preferences.features import Features

from .composite import PairwiseComposite, pair_weight

__all__ = [
    "LEVEL",
    "SIZE",
    "Worth",
    "best_first",
    "centered_weights",
    "item_rows",
    "offered_items",
    "unoffered_names",
    "worth_intervals",
]

Worth = tuple[str, float | None, float | None, float | None]
"""A name, its worth, and the ends of an interval; None where there are no data, or no interval."""

LEVEL: Final = 0.95
"""How often an interval holds the worth."""
SIZE: Final = 3.0
"""How large worths are taken to be before any ballot is read, as a standard deviation."""
_WIDEST: Final = 1.0  # standard error at worths that are all equal, above which none is printed
_STEPS: Final = 12
_PASSES: Final = 200
_EVEN: Final = 1e-10  # least decrease of the misfit that is worth another pass
_SINGULAR: Final = 1e-9


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


def offered_items(loss: PairwiseComposite | Any) -> Bool[np.ndarray, " k"]:
    """Return which items a loss of items with one weight each is about.

    Args:
        loss: A loss with ``features``, whose rows have one entry each.
    """
    return np.bincount(_places(loss), minlength=loss.features.shape[1]) > 0


def unoffered_names(
    items: Sequence[str] | None, offered: Bool[np.ndarray, " k"]
) -> tuple[str, ...]:
    """Return the items of which there are no data."""
    named = zip(items or (), offered.tolist(), strict=True)
    return tuple(name for name, known in named if not known)


def _places(loss: Any) -> Int64[np.ndarray, " m"]:
    """Return which item every flat candidate is."""
    return np.asarray(loss.features.argmax(axis=1)).ravel().astype(np.int64)


def centered_weights(
    theta: Float[np.ndarray, " d"], offered: Bool[np.ndarray, " d"] | None
) -> Float[np.ndarray, " d"]:
    """Return weights less their mean where they are the worths themselves; else as they are.

    No loss of rankings changes by it, and no penalty grows. Items that nobody was offered keep 0.

    Args:
        theta: The weights.
        offered: Which items were offered to somebody; None if weights are of features.
    """
    if offered is None:
        return theta
    return np.where(offered, theta - theta[offered].mean(), 0.0)


def worth_intervals(
    loss: PairwiseComposite,
    noise: Float[np.ndarray, "k k"],
    weights: Float[np.ndarray, " k"],
    *,
    rounding: float,
) -> Float[np.ndarray, "items 2"] | None:
    """Return 95% intervals of the worths of the items that were offered; None if too wide.

    They are not about the estimate, which a penalty draws towards 0 by an unknown part. The
    released sum is held against the sum that worths θ would give on average, by its covariance:
    misfit(θ) = ‖T̃ − t(θ)‖² in the metric (G/4 + V)⁻¹, + ‖θ‖²/SIZE². From its minimum one goes
    both ways along which the misfit grows least for a worth, until it has grown as far as the
    level says; so an end is far where the sum hardly changes any more with the worth. G/4 bounds
    how much ballots vary, whatever they are. Whether there are intervals is decided by public
    numbers alone.

    Source:
        docs/central.md, "Rankings": intervals of worths.

    Args:
        loss: The objective over items with one weight each, with what was released.
        noise: V, its covariance.
        weights: The estimate, less its mean; an interval reaches to it.
        rounding: How far the grid moved the sum at most, in standard deviations of the noise.
    """
    live = np.flatnonzero(offered_items(loss))
    chosen = np.ix_(live, live)
    pairs = _pair_weights(loss)[chosen]
    told = loss.statistic[live]
    root = _inverse_root((np.diag(pairs.sum(axis=1)) - pairs) / 4 + noise[chosen])
    k = len(live)
    centered = np.eye(k) - 1 / k
    prior = np.eye(k) / SIZE**2

    def precision(theta: Float[np.ndarray, "*b k"]) -> Float[np.ndarray, "*b k k"]:
        bend = root @ _bends(pairs, theta)
        return np.asarray(np.swapaxes(bend, -1, -2) @ bend + prior)

    blank = np.linalg.inv(precision(np.zeros(k)))
    if np.sqrt(np.diagonal(centered @ blank @ centered)).max() > _WIDEST:
        return None
    start = _least_misfit(pairs, told, root, prior)
    reach = float(ndtri((1 + LEVEL) / 2)) + rounding
    # One path for each item and side, all at once: dθ = P(θ)⁻¹c/√(cᵀP(θ)⁻¹c), midpoints.
    along = np.vstack([centered, centered])
    side = np.repeat([-1.0, 1.0], k)[:, np.newaxis]

    def slope(theta: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b k"]:
        turned = np.linalg.solve(precision(theta), along[:, :, np.newaxis])[:, :, 0]
        return np.asarray(side * turned / np.sqrt((turned * along).sum(axis=1, keepdims=True)))

    theta, step = np.tile(start, (2 * k, 1)), reach / _STEPS
    for _ in range(_STEPS):
        theta = theta + step * slope(theta + step / 2 * slope(theta))
    low, high = np.split((theta * along).sum(axis=1), 2)
    known = weights[live]
    return np.column_stack([np.minimum(low, known), np.maximum(high, known)])


def _pair_weights(loss: PairwiseComposite) -> Float[np.ndarray, "k k"]:
    """Return how much every pair of items weighs in the objective, over all ballots."""
    size = loss.features.shape[1]
    total, places = np.zeros((size, size)), _places(loss)
    for group in groups_by_size(loss.starts):
        items = places[group.rows]
        each = np.broadcast_to(pair_weight(group.size) * loss.counts[group.slates], items.shape)
        for one in items:
            np.add.at(total, (np.broadcast_to(one, items.shape), items), each)
    np.fill_diagonal(total, 0.0)
    return total


def _inverse_root(covariance: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "r k"]:
    """Return R with RᵀR the inverse of a covariance where it is not 0: ranks have a fixed sum."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _SINGULAR * values.max()
    return np.asarray((vectors[:, kept] / np.sqrt(values[kept])).T)


def _bends(
    pairs: Float[np.ndarray, "k k"], theta: Float[np.ndarray, "*b k"]
) -> Float[np.ndarray, "*b k k"]:
    """Return how the expected sum changes with the worths: the Hessian without its penalty."""
    gaps = theta[..., :, np.newaxis] - theta[..., np.newaxis, :]
    bends = pairs * expit(gaps) * expit(-gaps)
    places = np.arange(len(pairs))
    found = -bends
    found[..., places, places] = bends.sum(axis=-1)
    return np.asarray(found)


def _least_misfit(
    pairs: Float[np.ndarray, "k k"],
    told: Float[np.ndarray, " k"],
    root: Float[np.ndarray, "r k"],
    prior: Float[np.ndarray, "k k"],
) -> Float[np.ndarray, " k"]:
    """Return the worths at which the released sum is least surprising, by Gauss-Newton steps."""

    def left(theta: Float[np.ndarray, " k"]) -> Float[np.ndarray, " r"]:
        return np.asarray(root @ (told - (pairs * expit(theta[:, np.newaxis] - theta)).sum(axis=1)))

    def misfit(theta: Float[np.ndarray, " k"]) -> float:
        return float(left(theta) @ left(theta) + theta @ prior @ theta)

    theta = np.zeros(len(told))
    for _ in range(_PASSES):
        bend = root @ _bends(pairs, theta)
        gradient = prior @ theta - bend.T @ left(theta)
        step = np.linalg.solve(bend.T @ bend + prior, gradient)
        if gradient @ step < _EVEN:
            break
        part, now = 1.0, misfit(theta)
        while misfit(theta - part * step) > now - part * (gradient @ step) / 2 and part > _EVEN:
            part /= 2
        theta = theta - part * step
    return theta


def best_first(
    items: tuple[str, ...],
    worths: Float[np.ndarray, " k"],
    intervals: Float[np.ndarray, "offered 2"] | None,
    unoffered: Collection[str],
) -> list[Worth]:
    """Return names with worths less their mean and 95% intervals, the best first.

    Args:
        items: The names.
        worths: Their rewards.
        intervals: Of the items that were offered, in the order of ``items``.
        unoffered: Names of which there are no data; they come last.
    """
    places = [index for index, name in enumerate(items) if name not in unoffered]
    centered = worths[places] - worths[places].mean()
    listed: list[Worth] = []
    for index in np.argsort(-centered, kind="stable").tolist():
        ends = (None, None) if intervals is None else intervals[index].tolist()
        listed.append((items[places[index]], float(centered[index]), *ends))
    return listed + [(name, None, None, None) for name in items if name in unoffered]
