"""Arithmetic of public numbers that rounding never makes too small.

Sizes and fractions of formulas, distances between rows, second moments, and what one more record
takes from a penalty.

Notation: u = 2^-53. A sum of m products, in any order and with or without fused multiply-adds, is
wrong by at most m·u/(1 − m·u) of the sum of absolute values. Sums of absolute values of entries of
XᵀX form a matrix whose spectral norm is at most trace XᵀX.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from jaxtyping import Float
from scipy.linalg import blas
from scipy.sparse import csr_array, issparse

from sordino import _validate
from sordino.errors import DataError, UsageError

from .gibbs_draws import rounded_up
from .grid import Matrix

UP: Final = 1 + 2.0**-40
"""More than a few dozen roundings take from a formula without cancellation."""

_LEAST, _MOST = 1e-60, 1e60  # no product of the formulas leaves the range of normal floats


def size(name: str, value: object, *, zero: bool = False) -> float:
    """Return a public size as a float; refuse what would overflow or underflow in a formula."""
    result = _validate.number(name, value)
    if not (_LEAST <= result <= _MOST or (zero and result == 0)):
        also = "0, or " if zero else ""
        raise UsageError(f"{name} must be {also}within {_LEAST} and {_MOST}, got {value!r}.")
    return result


def public_rows(name: str, rows: Matrix, *, d: int | None = None) -> Matrix:
    """Return public rows as floats, dense or as a sparse array by rows."""
    if issparse(rows):
        rows = csr_array(rows)
        values = _validate.finite_array(name, rows.data, ndim=1)
        rows = csr_array((values, rows.indices, rows.indptr), shape=rows.shape)
    else:
        rows = values = _validate.finite_array(name, rows, ndim=2)
    if d is not None and rows.shape[1] != d:
        raise DataError(f"{name} must have {d} columns, got shape {rows.shape}.")
    largest = float(np.abs(values).max(initial=0.0))
    if largest and not _LEAST <= largest <= _MOST:
        raise DataError(f"{name}: the largest number must be 0, or within {_LEAST} and {_MOST}.")
    return rows


def dense_blocks(rows: Matrix, count: int) -> Iterator[Float[np.ndarray, "b d"]]:
    """Yield consecutive rows, dense, a number of them at a time."""
    for first in range(0, rows.shape[0], count):
        block = rows[first : first + count]
        yield block if isinstance(block, np.ndarray) else block.toarray()


def farthest_rows(rows: Float[np.ndarray, "k d"]) -> float:
    """Return the largest Euclidean distance between two rows, rounded up."""
    # Distances come from products of rows less the first one, whose norms are distances too: a
    # square is wrong by less than (4d + 16)·2^-52 of the largest square.
    centered = rows - rows[:1]
    largest = float(np.abs(centered).max(initial=0.0))
    if largest == 0:
        return 0.0
    centered = centered / (scale := math.ldexp(1.0, math.frexp(largest)[1]))
    squares = np.einsum("kd,kd->k", centered, centered)
    most = float(squares.max())
    slack = most * (4 * rows.shape[1] + 16) * 2.0**-52
    for first in range(0, len(rows), 1024):
        block = slice(first, first + 1024)
        # SciPy's BLAS, because the rows come from it: two pools of threads wait for each other.
        products = blas.dgemm(1.0, centered[block].T, centered.T, trans_a=1)
        most = max(most, float((squares[block, np.newaxis] + squares - 2 * products).max()))
    return math.sqrt(most + slack) * scale * UP


def penalty_step(size: float, *, step: float = 1.0) -> float:
    """Return 1/√size − 1/√(size + step), without cancellation."""
    # What a pessimistic score loses is β/√(count + shrinkage), or β times a norm in the inverse of
    # a second moment of least eigenvalue `size` that one record raises by at most `step`.
    # Source: docs/intrinsic.md, "Setting and lemmas".
    size, step = _validate.positive("size", size), _validate.positive("step", step)
    before, after = math.sqrt(size), math.sqrt(size + step)
    # (after − before)/(before·after), with after − before = step/(before + after)
    return step / (before + after) / before / after


MORE: Final = 1 + Fraction(1, 2**48)  # above eight roundings of floats, or many of 50 digits
SMALLEST: Final = math.ulp(0.0)  # above what an underflow can lose


def exact(name: str, value: float) -> Fraction:
    """Return value as a fraction; refuse what is below zero or not finite."""
    result = _validate.non_negative(name, value)
    if result == math.inf:
        raise UsageError(f"{name} must be finite, got {value!r}.")
    return Fraction(result)


def penalty_moves(penalty: float, size: Fraction) -> Fraction:
    """Return how far one record beyond ``size`` moves the penalty, at least."""
    strength = exact("penalty", penalty)
    return strength * (Fraction(penalty_step(float(size))) * MORE + Fraction(SMALLEST))


def rounded_total(moved: Fraction, inexactness: float) -> float:
    """Return a score range as a float that is no smaller."""
    return rounded_up(moved + 4 * exact("inexactness", inexactness), "score range")


BLOCK: Final = 512
"""Rows that are summed at once; sums of blocks are added in pairs."""

ROUNDING: Final = 2.0**-52
"""Twice the unit roundoff: the other half pays for all terms of second order."""


@dataclass(frozen=True)
class BoundedGram:
    """Σ w_i x_i x_iᵀ up to rounding."""

    matrix: Float[np.ndarray, "d d"]  # the computed sum, shape (d, d)
    error: float  # bound on the spectral norm of the computed less the exact sum
    trace: float  # upper bound on the trace of both

    @classmethod
    def of(cls, rows: Matrix, weights: Float[np.ndarray, " n"] | None = None) -> BoundedGram:
        """Return the sum over rows, dense or sparse, with weights of at least 0."""
        # Source: docs/intrinsic.md, "Linear bandits": at most 512 + 4 + 3·log2(blocks) roundings on
        # the way of a product into the sum.
        d = rows.shape[1]
        waiting: list[tuple[int, np.ndarray]] = []  # sums of 2^level blocks, as in a binary counter
        for number, block in enumerate(dense_blocks(rows, BLOCK)):
            if weights is not None:
                roots = np.sqrt(weights[number * BLOCK : (number + 1) * BLOCK])
                block = block * roots[:, np.newaxis]  # noqa: PLW2901
            total, level = block.T @ block, 0
            while waiting and waiting[-1][0] == level:
                total, level = total + waiting.pop()[1], level + 1
            waiting.append((level, total))
        matrix = sum((total for _, total in reversed(waiting)), np.zeros((d, d)))
        trace = float(np.trace(matrix)) * (1 + 2.0**-20)
        steps = (
            min(BLOCK, rows.shape[0])
            + 4
            + 2 * max((level for level, _ in waiting), default=0)
            + len(waiting)
        )
        return cls(matrix, steps * ROUNDING * trace, trace)
