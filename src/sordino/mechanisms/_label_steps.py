"""Public vectors in whole steps of a grid: which count, how far a label moves their noised sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64, Integer

from sordino import _validate
from sordino.errors import DataError
from sordino.mechanisms._grid import PersonIds, first_rows, root_above, whole_steps
from sordino.mechanisms._row_sums import Rows, dense_parts
from sordino.mechanisms.randomized_response import label_array
from sordino.privacy.label_values import UNDECIDED

__all__ = [
    "FINER",
    "LabelStatistic",
    "Order",
    "counted_rows",
    "farthest",
    "half_steps",
    "lengths",
    "moves_of",
    "times_of",
]

Order = Sequence[int] | Int64[np.ndarray, " k"]

FINER: Final = 2**6
"""Lengths are rounded up to this part of a step."""


@dataclass(frozen=True, eq=False, repr=False)
class LabelStatistic:
    """What was released, with all that is known about its noise; both are public.

    Attributes:
        value: T̃, the noised Σ y_i x_i over the rows that count.
        factor: F with covariance FFᵀ; the noise is F times independent draws of variance 1.
        used: Which rows count.
    """

    value: Float[np.ndarray, " d"]
    _: KW_ONLY
    factor: Float[np.ndarray, "d r"]
    used: Bool[np.ndarray, " n"]

    def __repr__(self) -> str:
        """Return sizes; no number of the sum."""
        return f"LabelStatistic(n={len(self.used)}, d={len(self.value)})"

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Return the covariance of the noise, V."""
        return np.asarray(self.factor @ self.factor.T)


def counted_rows(
    n: int,
    persons: PersonIds | None,
    rows: Order | None,
    most: int | None,
) -> Bool[np.ndarray, " n"]:
    """Return which rows count: the first of each person, in order of preference."""
    order = np.arange(n) if rows is None else np.asarray(rows)
    if order.ndim != 1 or (order.size and order.dtype.kind not in "iu"):
        raise DataError("rows must be row numbers in one dimension. Nothing was released.")
    order = order.astype(np.int64)
    if ((order < 0) | (order >= n)).any() or len(np.unique(order)) != len(order):
        raise DataError("rows must be numbers of rows, each at most once. Nothing was released.")
    if persons is not None and most is not None:
        ids = _validate.person_ids(persons, n)  # also of rows that do not count
        order = order[first_rows([ids[i] for i in order], len(order), most)]
    used = np.zeros(n, dtype=bool)
    used[order] = True
    return used


def half_steps(
    differences: Rows,
    used: Bool[np.ndarray, " n"],
    whiten: Float[np.ndarray, "r d"],
    *,
    longest: float,
) -> Int32[np.ndarray, "n r"]:
    """Return every whitened row that counts, halved and rounded to the grid; else zeros.

    A row that does not count is not read: its product may be no number, and no number times 0 is
    not 0.

    Args:
        differences: x_i.
        used: Which rows count; all of them are inside the ellipsoid.
        whiten: From a row to steps.
        longest: What no half row of them is longer than, in steps; at most 2^24.

    Raises:
        DataError: A row that counts leaves the grid.
    """
    turned = np.ascontiguousarray(whiten.T) / 2
    halves = np.zeros((len(used), len(whiten)), dtype=np.int32)
    for part, values in dense_parts(differences):
        counted = used[part]
        with np.errstate(over="ignore", invalid="ignore"):  # it is refused, and not warned of
            turned_rows = values[counted] @ turned
        halves[part][counted] = whole_steps(turned_rows, longest)
    return halves


def times_of(labels: Integer[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Return how often each label contributes its row's halves: 0, 1 (undecided) or 2 times."""
    known = label_array(labels)
    return np.asarray(np.where(known == UNDECIDED, 1, 2 * known.astype(np.int64)))


def lengths(halves: Int32[np.ndarray, "n r"]) -> Int64[np.ndarray, " n"]:
    """Return ‖2h‖ of every row in parts of a step, rounded up by integer arithmetic."""
    squares = np.empty(len(halves), dtype=np.int64)
    for part, values in dense_parts(halves):
        wide = values.astype(np.int64)
        squares[part] = np.einsum("ij,ij->i", wide, wide)
    return moves_of(squares)


def moves_of(squares: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Return ‖2h‖ from ‖h‖², in parts of a step, rounded up by integer arithmetic."""
    return root_above((2 * FINER) ** 2 * squares)


def farthest(
    moves: Int64[np.ndarray, " n"], persons: PersonIds | None
) -> tuple[float, Int64[np.ndarray, " k"]]:
    """Return how far one change moves the sum at most, in steps, and its rows.

    One change replaces the label of one row, or of all rows of one person: then the triangle
    inequality adds their lengths.
    """
    n = len(moves)
    names = range(n) if persons is None else _validate.person_ids(persons, n)
    numbers: dict[str | int, int] = {}
    codes = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
    sums = np.zeros(len(numbers), dtype=np.int64)
    np.add.at(sums, codes, moves)
    worst = int(sums.argmax())
    rows = np.flatnonzero((codes == worst) & (moves > 0))
    # Rounding a whole number to a float is part of what the allowance for the grid covers.
    return int(sums[worst]) / FINER, rows
