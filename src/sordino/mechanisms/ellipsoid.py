"""Centered ellipsoids that hold public vectors: the shape of noise that hides them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse

from sordino import _validate
from sordino.engines.engine import Rows
from sordino.errors import DataError, UsageError

from .grid import Matrix, each_added, row_sum

_UP: Final = 1 + 1e-9  # above the rounding of a norm
_LARGEST: Final = 2.0**400  # so that a variance is a float
_FLOOR: Final = 1e-14  # of the largest eigenvalue: below it one pass sees rounding only
_WELL: Final = 1e-8  # an eigenvalue above this share is known to eight digits
_RANK: Final = 1e-6  # with the floor: singular values below 1e-10 of the largest are no direction
_ROUNDS: Final = 5  # of weights; more lower the variance of the noise by less than a tenth
_MOST_DIRECTIONS: Final = 1 << 14  # two gigabytes a matrix


@dataclass(frozen=True, eq=False, repr=False)
class Ellipsoid:
    """All x with ‖whiten·x‖ ≤ 1 in the span of some rows, and every row is one of them."""

    # Every statement is about floats: rows that nearly lie in a smaller space may be outside by
    # what rounding does to their product with `whiten`.

    # Takes a vector to coordinates in which the ellipsoid is the unit ball.
    whiten: Float[np.ndarray, "r d"]
    # Takes coordinates back: whiten·unwhiten is the identity, and unwhiten·whiten leaves vectors of
    # the span where they are.
    unwhiten: Float[np.ndarray, "d r"]

    def __repr__(self) -> str:
        return f"Ellipsoid(rank={self.rank}, d={self.whiten.shape[1]})"

    @property
    def rank(self) -> int:
        """Return how many directions the rows span, r."""
        return len(self.whiten)


@dataclass(frozen=True)
class _Columns:
    """The columns that hold anything, each scaled to a size of about 1."""

    filled: Bool[np.ndarray, " d"]  # which they are
    size: Float[np.ndarray, " f"]  # powers of two: dividing by them is exact
    # An orthonormal basis of the rows so scaled, where these are few; or None.
    basis: Float[np.ndarray, "f b"] | None

    def inside(self, part: np.ndarray) -> np.ndarray:
        """Return rows in these coordinates."""
        scaled = part[:, self.filled] / self.size
        return np.asarray(scaled if self.basis is None else scaled @ self.basis)

    def gram(self, part: np.ndarray) -> np.ndarray:
        """Return the sum of outer products of rows in these coordinates."""
        inside = self.inside(part)
        return np.asarray(inside.T @ inside)

    def outside(self, columns: np.ndarray, power: int) -> np.ndarray:
        """Return columns in the space of the rows, every entry times its size to a power."""
        turned = columns if self.basis is None else self.basis @ columns
        whole = np.zeros((len(self.filled), turned.shape[1]))
        whole[self.filled] = turned * self.size[:, np.newaxis] ** power
        return whole


def least_noise_ellipsoid(rows: Matrix | Rows) -> Ellipsoid:
    """Return an ellipsoid, centered at 0, that holds all rows, of nearly least Σ half-axes²."""
    # Noise in its shape has nearly the least variance in all directions together. A minimal volume
    # gives each direction noise in proportion to how far rows reach there, so that its total grows
    # with the number of directions; a ball gives all of them that of the longest row. What is least
    # holds rows with half-axes whose squares go as the root of a second moment.
    # Source: docs/central.md, "Label privacy, one Gaussian release": the least tr V with x_iᵀV⁻¹x_i
    # ≤ 1 is (tr M^{1/2})², M = Σ w_i x_i x_iᵀ of the weights w under which no x_iᵀM^{-1/2}x_i
    # exceeds tr M^{1/2}, and V = M^{1/2} tr M^{1/2}: the A-optimal design. Silvey, Titterington &
    # Torsney 1978 for the weights' update.
    checked = _checked(rows)
    back = _span(checked)
    basis = _orthonormal(back)
    unit = np.abs(back).max()  # so that no square overflows
    inside = np.ascontiguousarray(basis / unit)
    fourths: list[np.ndarray] = []  # M^{-1/4} of every round: weights are products of lengths
    values, vectors = np.ones(inside.shape[1]), np.eye(inside.shape[1])
    for _ in range(_ROUNDS + 1):
        task = partial(_reweighted, inside, tuple(fourths))
        moment, total = row_sum(checked, task, each_added)
        values, vectors = np.linalg.eigh(moment / total)
        values = np.maximum(values, _FLOOR * values[-1])
        fourths.append(np.ascontiguousarray(vectors * values**-0.25 * values.sum() ** -0.25))
    shape = values**0.25
    whiten = (vectors / shape).T @ inside.T
    size = _longest(checked, whiten) * _UP
    return Ellipsoid(whiten / size, basis @ (vectors * shape) * (unit * size))


def isotropic_ellipsoid(rows: Matrix | Rows) -> Ellipsoid:
    """Return the smallest ball, centered at 0 and in the span of the rows, that holds them."""
    checked = _checked(rows)
    back = _span(checked)
    basis = _orthonormal(back)
    unit = np.abs(back).max()  # so that no square overflows
    size = _longest(checked, basis.T / unit) * unit * _UP
    return Ellipsoid(basis.T / size, basis * size)


def _reweighted(
    inside: np.ndarray, fourths: tuple[np.ndarray, ...], part: np.ndarray
) -> list[np.ndarray]:
    """Return Σ w xxᵀ and Σ w of a block, each row weighed by its lengths in earlier rounds."""
    # So no weight is kept between passes, wherever the rows are.
    turned = part @ inside
    weights = np.ones(len(turned))
    for fourth in fourths:
        weights *= _squares(turned @ fourth)
    return [(turned * weights[:, np.newaxis]).T @ turned, np.array(weights.sum())]


def checked_rows(name: str, rows: Matrix) -> Matrix:
    """Return vectors as floats, dense or as compressed sparse rows."""
    if not sparse.issparse(rows):
        return _validate.finite_array(name, rows, ndim=2)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":  # noqa: PLR2004 - rows and columns
        raise DataError(
            f"{name} must be numeric in 2 dimensions, got dtype {rows.dtype}, shape {rows.shape}."
        )
    compressed = sparse.csr_array(rows, dtype=np.float64)
    finite = np.isfinite(compressed.data)
    if not finite.all():
        row = int(np.searchsorted(compressed.indptr, np.argmin(finite), side="right")) - 1
        raise DataError(f"{name} must be finite: row {row} holds a NaN or an infinity.")
    return compressed


def _checked(given: Matrix | Rows) -> Rows:
    """Return rows as floats; refuse what has no ellipsoid."""
    rows = Rows.of(given)
    if rows.held is not None:  # blocks of files were checked when they were read
        rows = Rows.of(checked_rows("rows", rows.held))
    if 0 in rows.shape or not (largest := row_sum(rows, _tops, np.maximum).max()) > 1 / _LARGEST:
        raise DataError(
            "rows must hold a row that is not 0 (and not below 2^-400 everywhere). None does: "
            "these features tell no two answers apart. Nothing was spent. Use other features."
        )
    if largest > _LARGEST:
        raise DataError(
            "rows must be at most 2^400 in size. Nothing was spent. Measure the features in "
            "another unit."
        )
    return rows


def _tops(part: np.ndarray) -> np.ndarray:
    """Return the largest absolute value in every column of a block."""
    return np.asarray(np.abs(part).max(axis=0))


def _span(rows: Rows) -> Float[np.ndarray, "d r"]:
    """Return columns that span the rows, in whose coordinates their second moment is about I."""
    # Directions that one look cannot tell from rounding are looked at again, or left out: rows that
    # were made nearly round show 1e-10 of the longest instead of 1e-8. The others are known, and
    # are only made independent of these.
    largest = row_sum(rows, _tops, np.maximum)
    filled = largest > 1 / _LARGEST
    scale = np.exp2(np.frexp(largest[filled])[1])
    if (directions := min(rows.shape[0], len(scale))) > _MOST_DIRECTIONS:
        raise UsageError(
            f"rows of {len(scale)} features may have {directions} directions, and noise can be "
            f"shaped in {_MOST_DIRECTIONS} at most. Nothing was spent. Use fewer features."
        )
    # into, back and their likes have a column for each direction, as long as a row is wide
    _validate.refuse_unholdable("dimension", len(filled), 4 * len(filled) * directions)
    columns = _Columns(filled, scale, None)
    if 2 * rows.shape[0] < len(scale):  # so few that they are turned into their span
        held = row_sum(rows, columns.inside, stacked)
        columns = _Columns(filled, scale, np.linalg.qr(held.T)[0])
    values, vectors = np.linalg.eigh(
        np.asarray(row_sum(rows, columns.gram, operator.add) / rows.shape[0])
    )
    size = np.sqrt(np.maximum(values, _FLOOR * values[-1]))
    back = columns.outside(vectors * size, 1)
    faint = int(np.searchsorted(values, _WELL * values[-1]))
    if not faint:
        return back
    low, high = np.split(columns.outside(vectors / size, -1), [faint], axis=1)
    low_back, high_back = np.split(back, [faint], axis=1)
    own, seen = row_sum(rows, partial(_seen_along, low), each_added)
    shared = high.T @ (seen / rows.shape[0])
    values, vectors = np.linalg.eigh(own / rows.shape[0] - shared.T @ shared)
    size, vectors = np.sqrt(values[values > _RANK]), vectors[:, values > _RANK]
    return np.hstack([low_back @ (vectors * size), high_back + low_back @ shared.T])


def stacked(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the rows of one block above those of another."""
    return np.concatenate([one, other])


def _seen_along(low: np.ndarray, part: np.ndarray) -> list[np.ndarray]:
    """Return the outer products of rows along some directions, and with the rows themselves."""
    inside = part @ low
    return [inside.T @ inside, part.T @ inside]


def _longest(rows: Rows, whiten: Float[np.ndarray, "r d"]) -> float:
    """Return the largest norm of a whitened row, in double precision."""
    turned = np.ascontiguousarray(whiten.T)
    return row_sum(rows, partial(_longest_of, turned), max)


def _longest_of(turned: Float[np.ndarray, "d r"], part: np.ndarray) -> float:
    """Return the largest norm of a turned row of a block."""
    return float(np.sqrt(_squares(part @ turned).max()))


def _squares(rows: np.ndarray) -> np.ndarray:
    """Return the squared norm of every row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _orthonormal(columns: Float[np.ndarray, "d r"]) -> Float[np.ndarray, "d r"]:
    """Return an orthonormal basis of what the columns span; the axes if that is everything."""
    if columns.shape[0] == columns.shape[1]:
        return np.eye(len(columns))
    return np.linalg.qr(columns / np.abs(columns).max(axis=0))[0]
