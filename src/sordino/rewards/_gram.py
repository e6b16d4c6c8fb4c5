"""Sums of weighted outer products over rows, dense or sparse, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import issparse

__all__ = ["blocks", "weighted_grams"]

_BLOCK = 1 << 21  # numbers of a block made dense: 16 MiB


def blocks(differences: Any, step: int = 1) -> Iterator[tuple[np.ndarray, slice]]:
    """Yield every ``step``-th row in blocks, with the rows each block holds.

    Sparse rows are made dense block by block: a dense product is faster than a sparse one.
    """
    n, d = differences.shape
    if not issparse(differences) and step > 1:
        yield differences[::step], slice(0, n, step)
        return
    size = max(1, _BLOCK // max(d, 1)) * step
    for first in range(0, n, size):
        chosen = slice(first, min(first + size, n), step)
        block = differences[chosen]
        yield (block.toarray() if issparse(block) else block), chosen


def weighted_grams(
    differences: Any, *weights: Float[np.ndarray, " n"], step: int = 1
) -> list[Float[np.ndarray, "d d"]]:
    """Return Σ wᵢ xᵢxᵢᵀ for each list of weights, in one reading of the rows.

    Args:
        differences: x, shape (n, d), dense or sparse.
        weights: Each non-negative, one for every row.
        step: Take every so many-th row only.
    """
    d = differences.shape[1]
    totals = [np.zeros((d, d)) for _ in weights]
    for block, chosen in blocks(differences, step):
        for index, weight in enumerate(weights):
            scaled = np.sqrt(weight[chosen])[:, None] * block
            totals[index] += scaled.T @ scaled
    return totals
