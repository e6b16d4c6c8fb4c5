"""Sums over the rows of a matrix, wherever it is: in memory, or in pieces that an engine reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Float
from scipy import sparse

from sordino.engines.rows import PiecedRows

__all__ = ["AnyRows", "Rows", "dense_parts", "row_sum"]

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
