"""The Hessian of a loss of rankings, and an approximate one that is cheap to build."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import issparse

from ._ballot_terms import Terms

__all__ = ["BallotCurvature", "add_bends", "gram"]

_DENSE_FEATURES = 4096  # above this a d by d matrix costs more than the passes it saves
_PASSES_PER_FEATURE = 1 / 16
_ROWS = 32  # candidates a feature that a rough matrix rests on
_FLOPS = 1 << 27  # a matrix this cheap takes every ballot
_BLOCK = 1 << 20  # numbers of a block of features


class BallotCurvature:
    """The Hessian over evenly spaced ballots, or a diagonal where there are many features.

    Only the speed of the solver rests on it.

    Attributes:
        patience: Passes after which measuring the whole matrix anew is worth its price.
        matrix: What was measured: a matrix, or a diagonal.
    """

    def __init__(
        self, features: Any, terms: Sequence[Terms], margins: Float[np.ndarray, " m"]
    ) -> None:
        """Measure at the given scores."""
        self._features, self._terms = features, terms
        d = features.shape[1]
        self._dense = d <= _DENSE_FEATURES
        few = 2.0 if single_entries(features) else max(2.0, _PASSES_PER_FEATURE * d)
        self.patience = few if self._dense else math.inf
        self.matrix = self._measure(margins, _ROWS)

    def refresh(self, margins: Float[np.ndarray, " m"]) -> None:
        """Measure again at the given scores, on more ballots."""
        self.matrix = self._measure(margins, 4 * _ROWS)

    def _measure(self, margins: Float[np.ndarray, " m"], rows: int) -> Float[np.ndarray, " *size"]:
        m, d = self._features.shape
        if not self._dense:
            return self._diagonal(margins)
        if single_entries(self._features):
            return gram(self._features, self._terms, margins)
        step = max(1, m // max(rows * d, _FLOPS // d**2, 1))
        return gram(self._features, self._terms, margins, step=step)

    def _diagonal(self, margins: Float[np.ndarray, " m"]) -> Float[np.ndarray, " d"]:
        """Return Σ W_ab (φ_a² + φ_b²), at most twice the diagonal's own size in sparse rows."""
        weights = np.zeros(len(margins))
        for term in self._terms:
            weights[term.rows] = term.bends(margins[term.rows]).sum(axis=2).T
        rows: Any = self._features
        squares = rows.power(2) if issparse(rows) else rows * rows
        return np.asarray(squares.T @ weights)


def single_entries(features: Any) -> bool:
    """Return whether every row has exactly one entry: candidates are items of a list."""
    return bool(issparse(features) and (np.diff(features.indptr) == 1).all())


def gram(
    features: Any, terms: Sequence[Terms], margins: Float[np.ndarray, " m"], *, step: int = 1
) -> Float[np.ndarray, "d d"]:
    """Return Σ W_ab (φ_a − φ_b)(φ_a − φ_b)ᵀ over the pairs of every ballot.

    Args:
        features: φ of every candidate, dense or sparse.
        terms: Where the W come from.
        margins: The scores.
        step: Take every so many-th ballot of each size, and scale up.
    """
    d = features.shape[1]
    total = np.zeros((d, d))
    for term in terms:
        width = term.rows.shape[1]
        taken = term.every(step)
        part = np.zeros((d, d))
        size = max(1, _BLOCK // (len(term.rows) * max(len(term.rows), d)))
        for first in range(0, taken.rows.shape[1], size):
            block = taken.part(slice(first, first + size))
            add_bends(part, features, block.rows, block.bends(margins[block.rows]))
        total += part * (width / taken.rows.shape[1])
    return (total + total.T) / 2


def add_bends(
    total: Float[np.ndarray, "d d"],
    features: Any,
    rows: Int64[np.ndarray, "k g"],
    bends: Float[np.ndarray, "g k k"],
) -> None:
    """Add Σ W_ab (φ_a − φ_b)(φ_a − φ_b)ᵀ of some ballots of one size to a matrix.

    Args:
        total: What is added to.
        features: φ of every candidate, dense or sparse.
        rows: The flat candidates: position, then ballot.
        bends: W, symmetric, its diagonal 0.
    """
    add = _add_items if single_entries(features) else _add_rows
    add(total, features, rows, bends)


def _add_rows(
    total: Float[np.ndarray, "d d"],
    features: Any,
    rows: Int64[np.ndarray, "k g"],
    bends: Float[np.ndarray, "g k k"],
) -> None:
    """Add the part of some ballots: ΦᵀLΦ with L the Laplacian of W, Φ less its mean."""
    k, g = rows.shape
    block = features[rows.T.ravel()]
    block = (block.toarray() if issparse(block) else block).reshape(g, k, -1)
    block = block - block.mean(axis=1, keepdims=True)
    bent = bends.sum(axis=2)[..., np.newaxis] * block - bends @ block
    flat = (g * k, block.shape[2])
    total += block.reshape(flat).T @ bent.reshape(flat)


def _add_items(
    total: Float[np.ndarray, "d d"],
    features: Any,
    rows: Int64[np.ndarray, "k g"],
    bends: Float[np.ndarray, "g k k"],
) -> None:
    """Add the part of some ballots where every row has one entry: count pairs of items."""
    d = len(total)
    items, sizes = features.indices[rows].T.astype(np.int64), features.data[rows].T
    cross = bends * sizes[:, :, np.newaxis] * sizes[:, np.newaxis]
    places = items[:, :, np.newaxis] * d + items[:, np.newaxis]
    total -= np.bincount(places.ravel(), cross.ravel(), d * d).reshape(d, d)
    own = np.bincount(items.ravel(), (bends.sum(axis=2) * sizes**2).ravel(), d)
    total.flat[:: d + 1] += own
