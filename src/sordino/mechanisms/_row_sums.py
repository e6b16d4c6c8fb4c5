"""Sums over the rows of a matrix, wherever it is: in memory, or in pieces that an engine reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.sparse.linalg import norm as sparse_norm

from sordino.engines.rows import PiecedRows

__all__ = ["AnyRows", "Rows", "counting_less", "dense_parts", "row_sum", "row_weights"]

T = TypeVar("T")

Rows: TypeAlias = np.ndarray | sparse.sparray | sparse.spmatrix
AnyRows: TypeAlias = Rows | PiecedRows

_PART: Final = 1 << 20  # numbers held at once, densely


def row_sum(rows: AnyRows, task: Callable[[np.ndarray], T], add: Callable[[T, T], T]) -> T:
    """Return the sum of ``task(block)`` over blocks of the rows, each of them dense.

    Args:
        rows: The matrix.
        task: From some rows to their part; can be pickled.
        add: From two parts to their sum.
    """
    if isinstance(rows, PiecedRows):
        total: T = rows.fold(_Dense(task, add), add)
        return total
    return reduce(add, (task(part) for _, part in dense_parts(rows)))


@dataclass(frozen=True)
class _Dense:
    """A task on a block as it was read: it may be sparse, and labels may stand beside it."""

    task: Callable[[np.ndarray], Any]
    add: Callable[[Any, Any], Any]

    def __call__(self, _first: int, block: Any, *_others: Any) -> Any:
        """Return the sum over its dense parts."""
        return reduce(self.add, (self.task(part) for _, part in dense_parts(block)))


def dense_parts(rows: Rows) -> Iterator[tuple[slice, Float[np.ndarray, "part d"]]]:
    """Yield the rows in order, some thousands of numbers at a time, each part as a dense array."""
    height = max(1, _PART // rows.shape[1])
    for start in range(0, rows.shape[0], height):
        part: Any = rows[start : start + height]
        yield slice(start, start + height), part.toarray() if sparse.issparse(part) else part


def row_weights(rows: Rows, longest: float) -> Float[np.ndarray, " n"]:
    """Return min(1, longest/‖x‖): how much each row counts, whatever the others are.

    Args:
        rows: x.
        longest: Above 0; with infinity every row counts 1.
    """
    if longest == np.inf:
        return np.ones(rows.shape[0])
    lengths = (sparse_norm if sparse.issparse(rows) else np.linalg.norm)(rows, axis=1)
    return np.asarray(longest / np.maximum(lengths, longest))


def counting_less(rows: AnyRows, longest: float) -> AnyRows:
    """Return the rows times their weights, so that none is longer than ``longest``."""
    if longest == np.inf:
        return rows
    if isinstance(rows, PiecedRows):
        return replace(rows, read=_CountingLess(rows.read, longest))
    weights = row_weights(rows, longest)[:, np.newaxis]
    if sparse.issparse(rows):
        return sparse.csr_array(sparse.csr_array(rows).multiply(weights))
    return np.asarray(rows * weights)


@dataclass(frozen=True)
class _CountingLess:
    """From a piece to its blocks, whose rows are multiplied by their weights."""

    read: Callable[[Any], Iterable[tuple[Any, ...]]]
    longest: float

    def __call__(self, piece: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the blocks."""
        for first, block, *others in self.read(piece):
            yield first, counting_less(block, self.longest), *others
