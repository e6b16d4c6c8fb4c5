"""How far one ballot can move a sum of its candidates' vectors, whole numbers bounded from above.

All bounds hold for every two orders with ties, not only for strict ones: the weights of an order
with ties are the average of those of the strict orders that break its ties, and a norm of a
difference is convex, so that it is largest between two strict orders.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from typing import Final

import numpy as np
from jaxtyping import Float, Int64, Integer

__all__ = [
    "EXACT_UP_TO",
    "borda_moves",
    "choice_moves",
    "farthest_choices",
    "farthest_orders",
    "order_differences",
]

EXACT_UP_TO: Final = 5
"""Slates of at most so many candidates are tried on all pairs of orders."""

_UP: Final = 1 + 2.0**-24  # above rounding, which is below K²√r 2^-53 relative
_BLOCK: Final = 1 << 20


@lru_cache(maxsize=8)
def order_differences(size: int) -> Int64[np.ndarray, "u k"]:
    """Return every difference of the ranks of two strict orders, once up to its sign.

    Example:
        >>> order_differences(2).tolist()
        [[1, -1]]
    """
    orders = np.array(list(permutations(range(size))), dtype=np.int64)
    gaps: np.ndarray = np.unique((orders - orders[:, np.newaxis]).reshape(-1, size), axis=0)
    first = gaps[np.arange(len(gaps)), (gaps != 0).argmax(axis=1)]
    return np.asarray(gaps[first > 0])


def borda_moves(
    vectors: Integer[np.ndarray, "g k r"] | Float[np.ndarray, "g k r"],
) -> Float[np.ndarray, " g"]:
    """Return an upper bound on ‖Σ_a (rank_a − rank′_a) v_a‖ over any two orders, of each slate.

    Exact up to five candidates. Above, the smaller of two bounds: Σ_j d_j ρ_(j) with
    d = (K−1, K−1, K−3, K−3, ...) and ρ the lengths of v_a less their mean, longest first; and
    the largest singular value of those vectors times √(K(K² − 1)/3), the distance between an
    order and its reverse.

    Args:
        vectors: v, of slates with K candidates each; exact if they are whole numbers.

    Source:
        docs/central.md, "Rankings".

    Example:
        >>> float(borda_moves(np.array([[[1.0], [-1.0], [-1.0]]]))[0].round(9))
        4.0
    """
    size = vectors.shape[1]
    found = np.empty(len(vectors))
    bound = _by_all_orders if size <= EXACT_UP_TO else _by_lengths_and_spectrum
    step = max(1, _BLOCK // (size * max(vectors.shape[2], size)))
    for first in range(0, len(vectors), step):
        part = vectors[first : first + step].astype(np.float64)
        found[first : first + step] = bound(part - part[:, :1])
    return found


def _by_all_orders(vectors: Float[np.ndarray, "g k r"]) -> Float[np.ndarray, " g"]:
    """Return the largest move over all pairs of strict orders, rounded up.

    A square is a sum of r·K² products, with absolute values of at most 12² times the square of
    the longest vector together: it is wrong by less than (r + 32)·2^-44 of that square.
    """
    g, size, width = vectors.shape
    gaps = order_differences(size)
    products = (vectors @ vectors.transpose(0, 2, 1)).reshape(g, -1)
    pairs = (gaps[:, :, np.newaxis] * gaps[:, np.newaxis]).reshape(len(gaps), -1)
    largest = np.zeros(g)
    rows = max(1, _BLOCK // len(gaps))
    for first in range(0, g, rows):
        block = slice(first, first + rows)
        largest[block] = (products[block] @ pairs.T.astype(np.float64)).max(axis=1)
    longest = np.einsum("gkr,gkr->gk", vectors, vectors).max(axis=1)
    return np.asarray(np.sqrt(largest + longest * ((width + 32) * 2.0**-44)) * (1 + 2.0**-50))


def _by_lengths_and_spectrum(vectors: Float[np.ndarray, "g k r"]) -> Float[np.ndarray, " g"]:
    """Return the smaller of two bounds on the largest move, rounded up."""
    size = vectors.shape[1]
    centered = vectors - vectors.mean(axis=1, keepdims=True)
    lengths = np.sort(np.linalg.norm(centered, axis=2), axis=1)[:, ::-1]
    steps = size - 1 - 2 * (np.arange(size) // 2)
    products = centered @ centered.transpose(0, 2, 1)
    top = np.linalg.eigvalsh(products)[:, -1]
    slack = products.trace(axis1=1, axis2=2) * 2.0**-30  # more than eigenvalues lose to rounding
    spectral = np.sqrt((top + slack) * (size * (size**2 - 1) / 3))
    return np.asarray(np.minimum(lengths @ steps.astype(np.float64), spectral) * _UP)


def choice_moves(
    vectors: Integer[np.ndarray, "g k r"] | Float[np.ndarray, "g k r"],
) -> Float[np.ndarray, " g"]:
    """Return the largest distance between two vectors of each slate, rounded up.

    Source:
        docs/central.md, "Rankings": one choice replaced by another; the mean of several choices
        lies between them.

    Example:
        >>> float(choice_moves(np.array([[[0.0], [3.0], [5.0]]]))[0].round(5))
        5.0
    """
    found = np.zeros(len(vectors))
    for one in range(vectors.shape[1] - 1):
        for part in range(0, len(vectors), step := max(1, _BLOCK // vectors[0].size)):
            block = vectors[part : part + step].astype(np.float64)
            gaps = np.linalg.norm(block[:, one + 1 :] - block[:, one : one + 1], axis=2)
            found[part : part + step] = np.maximum(found[part : part + step], gaps.max(axis=1))
    return found * _UP


def farthest_orders(
    vectors: Float[np.ndarray, "k r"], along: Float[np.ndarray, " r"] | None
) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]:
    """Return the ranks of two orders that move the sum far, or farthest along a direction.

    Up to five candidates and without a direction they are as far apart as any two.
    """
    size = len(vectors)
    if along is None and size <= EXACT_UP_TO:
        gaps = order_differences(size)
        target = gaps[np.linalg.norm(gaps @ vectors, axis=1).argmax()]
        orders = np.array(list(permutations(range(1, size + 1))), dtype=np.int64)
        known = {tuple(order) for order in orders}
        one = next(order for order in orders if tuple(order - target) in known)
        return one, one - target
    centered = vectors - vectors.mean(axis=0)
    if along is None:
        along = np.linalg.svd(centered, full_matrices=False)[2][0]
    place = np.argsort(np.argsort(-(centered @ along), kind="stable")).astype(np.int64)
    return place + 1, size - place


def farthest_choices(
    vectors: Float[np.ndarray, "k r"], along: Float[np.ndarray, " r"] | None
) -> tuple[int, int]:
    """Return two candidates as far apart as any two, or farthest along a direction."""
    if along is not None:
        reach = vectors @ along
        return int(reach.argmax()), int(reach.argmin())
    gaps = np.linalg.norm(vectors[:, np.newaxis] - vectors, axis=2)
    one, other = np.unravel_index(int(gaps.argmax()), gaps.shape)
    return int(one), int(other)
