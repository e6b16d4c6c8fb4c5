"""The smallest centered ellipsoid that holds public vectors: the shape of noise that hides them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int64
from scipy import sparse

from sordino import _validate
from sordino.errors import DataError, UsageError

__all__ = [
    "Ellipsoid",
    "Rows",
    "checked_rows",
    "dense_parts",
    "isotropic_ellipsoid",
    "minimum_volume_ellipsoid",
]

Rows: TypeAlias = np.ndarray | sparse.sparray | sparse.spmatrix

_PART: Final = 1 << 20  # numbers held at once, densely
_UP: Final = 1 + 1e-9  # above the rounding of a norm
_LARGEST: Final = 2.0**400  # so that a variance is a float
_FLOOR: Final = 1e-14  # of the largest eigenvalue: below it one pass sees rounding only
_WELL: Final = 1e-8  # an eigenvalue above this share is known to eight digits
_RANK: Final = 1e-6  # with the floor: singular values below 1e-10 of the largest are no direction
_SMALLEST_GAP: Final = 1e-3
_PASSES: Final = 100
_ROUNDS: Final = 5000
_INSIDE: Final = 0.6  # of the gap, in the working set; the rest is for rows outside it


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """All x with ‖whiten·x‖ ≤ 1 in the span of some rows, and every row is one of them.

    Every statement is about floats: rows that nearly lie in a smaller space may be outside by
    what rounding does to their product with ``whiten``.

    Attributes:
        whiten: Takes a vector to coordinates in which the ellipsoid is the unit ball.
        unwhiten: Takes coordinates back: whiten·unwhiten is the identity, and unwhiten·whiten
            leaves vectors of the span where they are.
        weights: A design over the rows, summing to 1, whose second moment has this shape; none
            for a ball.
        gap: Largest leverage of a row under that design, divided by the rank, minus 1: 0 is the
            ellipsoid of least volume, and the volume is at most (1 + gap)^(rank/2) times the
            least. None for a ball.
    """

    whiten: Float[np.ndarray, "r d"]
    unwhiten: Float[np.ndarray, "d r"]
    weights: Float[np.ndarray, " n"] | None
    gap: float | None

    @property
    def rank(self) -> int:
        """Return how many directions the rows span, r."""
        return len(self.whiten)

    @property
    def basis(self) -> Float[np.ndarray, "d r"]:
        """Return an orthonormal basis of the span of the rows."""
        return _orthonormal(self.unwhiten)


@dataclass(frozen=True)
class _Frame:
    """Coordinates in which the second moment of the rows is the identity.

    Attributes:
        into: From a row (as a row vector) to coordinates.
        back: From coordinates (as a column) to the row.
    """

    into: Float[np.ndarray, "d r"]
    back: Float[np.ndarray, "d r"]


def minimum_volume_ellipsoid(rows: Rows, *, gap: float = 0.05) -> Ellipsoid:
    """Return the ellipsoid of least volume, centered at 0, that holds all rows.

    Its dual is a D-optimal design: weights w on the rows, of second moment M = Σ w_i x_i x_iᵀ,
    under which no leverage x_iᵀM⁻¹x_i exceeds the rank r. Weights live on a working set of far
    rows, to which rows that stick out are added until none does; the rows as a whole, each of
    the same weight, always belong to it, so that M never loses a direction.

    Args:
        rows: One vector in each row, finite, at most 2^400; dense or compressed sparse rows.
            Columns below 2^-400 count as empty.
        gap: How far the largest leverage may exceed r, relative; 0.001 to 1.

    Returns:
        The ellipsoid, scaled until every row is inside. Directions in which the rows reach less
        than 1e-10 of the longest (columns scaled to one size first) are not in its span. After
        100 passes over the rows it is returned as it is: then :attr:`Ellipsoid.gap` is larger
        than asked for.

    Raises:
        DataError: A value is not finite or too large, or no row is different from 0.
        UsageError: ``gap`` is out of range.

    Source:
        docs/central.md, "Label privacy, one Gaussian release"; Todd 2016, ch. 2, for the duality;
        Silvey, Titterington & Torsney 1978 for the weights' update.

    Example:
        >>> held = minimum_volume_ellipsoid(
        ...     np.array([[3.0, 0.0], [0.0, 0.5], [1.0, 0.1]]), gap=0.001)
        >>> (held.unwhiten @ held.unwhiten.T).round(2).tolist()  # half-axes of 3 and of 0.5
        [[9.0, 0.0], [0.0, 0.25]]
    """
    if not _SMALLEST_GAP <= _validate.positive("gap", gap) <= 1:
        raise UsageError(f"gap must be between {_SMALLEST_GAP} and 1, got {gap!r}.")
    rows = _checked(rows)
    frame = _frame(rows)
    moment, weights = _optimal_moment(_coordinates(rows, frame), gap)
    root = np.linalg.cholesky(moment * frame.into.shape[1])
    whiten = scipy.linalg.solve_triangular(root, frame.into.T, lower=True)
    longest = _longest(rows, whiten)
    size = longest * _UP
    return Ellipsoid(whiten / size, frame.back @ root * size, weights, longest**2 - 1)


def isotropic_ellipsoid(rows: Rows) -> Ellipsoid:
    """Return the smallest ball, centered at 0 and in the span of the rows, that holds them.

    Args:
        rows: As for :func:`minimum_volume_ellipsoid`.

    Raises:
        DataError: As there.

    Example:
        >>> isotropic_ellipsoid(np.array([[3.0, 4.0], [1.0, 0.0]])).unwhiten.round(6).tolist()
        [[5.0, 0.0], [0.0, 5.0]]
    """
    rows = _checked(rows)
    back = _frame(rows).back
    basis = _orthonormal(back)
    unit = np.abs(back).max()  # so that no square overflows
    size = _longest(rows, basis.T / unit) * unit * _UP
    return Ellipsoid(basis.T / size, basis * size, None, None)


def dense_parts(rows: Rows) -> Iterator[tuple[slice, Float[np.ndarray, "part d"]]]:
    """Yield the rows in order, some thousands of numbers at a time, each part as a dense array."""
    height = max(1, _PART // rows.shape[1])
    for start in range(0, rows.shape[0], height):
        part: Any = rows[start : start + height]
        yield slice(start, start + height), part.toarray() if sparse.issparse(part) else part


def checked_rows(name: str, rows: Rows) -> Rows:
    """Return vectors as floats, dense or as compressed sparse rows.

    Raises:
        DataError: The array has not two dimensions, is not numeric, or holds a NaN or an
            infinity; only the index of its row is named.
    """
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


def _checked(rows: Rows) -> Rows:
    """Return rows as floats; refuse what has no ellipsoid."""
    rows = checked_rows("rows", rows)
    if 0 in rows.shape or not (largest := _largest(rows).max()) > 1 / _LARGEST:
        raise DataError(
            "rows must hold a row that is not 0 (and not below 2^-400 everywhere): all of them "
            "say nothing. Nothing was fitted. Check the features."
        )
    if largest > _LARGEST:
        raise DataError("rows must be at most 2^400 in size. Measure them in another unit.")
    return rows


def _largest(rows: Rows) -> Float[np.ndarray, " d"]:
    """Return the largest absolute value in every column."""
    tops = [np.abs(part).max(axis=0) for _, part in dense_parts(rows)]
    return np.asarray(np.max(tops, axis=0))


def _frame(rows: Rows) -> _Frame:
    """Return coordinates of second moment I for the span of the rows.

    A second pass, over rows that the first one made nearly round, sees directions that rounding
    hides from the first: 1e-10 of the longest instead of 1e-8.
    """
    largest = _largest(rows)
    filled = largest > 1 / _LARGEST
    size = np.exp2(np.frexp(largest[filled])[1])  # powers of two: dividing by them is exact
    selected = np.eye(len(largest))[:, filled]
    frame, smallest = _rounder(rows, _Frame(selected / size, selected * size), floor=_FLOOR)
    if smallest < _WELL:
        frame, _ = _rounder(rows, frame, floor=None)
    return frame


def _rounder(rows: Rows, frame: _Frame, *, floor: float | None) -> tuple[_Frame, float]:
    """Return a frame in which the rows are rounder, and their smallest moment before, relative.

    With a floor every direction is kept and those below it are stretched less; without, those
    that have nearly no moment are dropped.
    """
    moment = _second_moment(rows, frame.into)
    values, vectors = scipy.linalg.eigh(moment)
    top = values[-1]
    if floor is None:
        kept = values > _RANK * top
        values, vectors = values[kept], vectors[:, kept]
    else:
        values = np.maximum(values, floor * top)
    size = np.sqrt(values)
    rounder = _Frame(frame.into @ (vectors / size), frame.back @ (vectors * size))
    return rounder, float(values[0] / top)


def _second_moment(rows: Rows, into: Float[np.ndarray, "d r"]) -> Float[np.ndarray, "r r"]:
    """Return the average outer product of the rows in these coordinates."""
    total = np.zeros((into.shape[1],) * 2)
    for _, part in dense_parts(rows):
        inside = part @ into
        total += inside.T @ inside
    return np.asarray(total / rows.shape[0])


def _coordinates(rows: Rows, frame: _Frame) -> np.ndarray:
    """Return all rows in a frame, in single precision: enough to see which ones stick out."""
    inside = np.empty((rows.shape[0], frame.into.shape[1]), dtype=np.float32)
    for part, values in dense_parts(rows):
        inside[part] = values @ frame.into
    return inside


def _longest(rows: Rows, whiten: Float[np.ndarray, "r d"]) -> float:
    """Return the largest norm of a whitened row, in double precision."""
    turned = np.ascontiguousarray(whiten.T)
    return max(float(np.sqrt(_squares(part @ turned).max())) for _, part in dense_parts(rows))


def _squares(rows: np.ndarray) -> np.ndarray:
    """Return the squared norm of every row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def _orthonormal(columns: Float[np.ndarray, "d r"]) -> Float[np.ndarray, "d r"]:
    """Return an orthonormal basis of what the columns span; the axes if that is everything."""
    if columns.shape[0] == columns.shape[1]:
        return np.eye(len(columns))
    return np.linalg.svd(columns / np.abs(columns).max(), full_matrices=False)[0]


@dataclass
class _Design:
    """Weights on a working set of rows, and one on all rows together; they sum to 1."""

    index: Int64[np.ndarray, " w"]
    weights: Float[np.ndarray, " w"]
    together: float

    def moment(self, rows: Float[np.ndarray, "w r"]) -> Float[np.ndarray, "r r"]:
        """Return the second moment: all rows together have the identity."""
        apart = (rows.T * self.weights) @ rows
        return np.asarray(self.together * np.eye(rows.shape[1]) + apart)

    def add(self, index: Int64[np.ndarray, " k"]) -> None:
        """Take more rows in, each with the average weight, and leave out those without any."""
        kept = self.weights > 1e-9 / len(self.weights) if len(self.weights) else slice(None)
        old, weights = self.index[kept], self.weights[kept]
        share = len(index) / (len(index) + len(old) + 1)
        self.index = np.concatenate([old, index])
        self.weights = np.concatenate(
            [weights * (1 - share), np.full(len(index), share / max(1, len(index)))]
        )
        self.together *= 1 - share
        self.normalize()

    def normalize(self) -> None:
        """Make the weights sum to 1."""
        total = self.together + self.weights.sum()
        self.weights, self.together = self.weights / total, self.together / total

    def improve(self, rows: Float[np.ndarray, "w r"], gap: float) -> None:
        """Multiply every weight by its leverage over the rank until none is above 1 + gap."""
        rank = rows.shape[1]
        for _ in range(_ROUNDS):
            inverse = _inverse_root(self.moment(rows))
            leverage = _squares(rows @ inverse.T) / rank
            average = float((inverse * inverse).sum()) / rank
            if max(leverage.max(), average) <= 1 + gap:
                return
            self.weights, self.together = self.weights * leverage, self.together * average
            self.normalize()


def _optimal_moment(
    rows: np.ndarray, gap: float
) -> tuple[Float[np.ndarray, "r r"], Float[np.ndarray, " n"]]:
    """Return the second moment of a D-optimal design for rows of second moment I, and weights."""
    n, rank = rows.shape
    design = _Design(np.zeros(0, dtype=np.int64), np.zeros(0), 1.0)
    moment = np.eye(rank)
    most = max(8 * rank, n // 100, 64)
    for _ in range(_PASSES):
        leverage = _leverage(rows, moment)
        if leverage.max() <= rank * (1 + gap * 0.999):  # single precision
            break
        design.add(_farthest(leverage, design.index, rank * (1 + gap * _INSIDE), most))
        chosen = rows[design.index].astype(np.float64)
        design.improve(chosen, gap * _INSIDE)
        moment = design.moment(chosen)
    weights = np.full(n, design.together / n)
    weights[design.index] += design.weights
    return moment, weights


def _leverage(rows: np.ndarray, moment: Float[np.ndarray, "r r"]) -> np.ndarray:
    """Return xᵀM⁻¹x of every row, in single precision."""
    turned = np.ascontiguousarray(_inverse_root(moment).T.astype(np.float32))
    return np.concatenate([_squares(part @ turned) for _, part in dense_parts(rows)])


def _inverse_root(moment: Float[np.ndarray, "r r"]) -> Float[np.ndarray, "r r"]:
    """Return A with AᵀA = M⁻¹."""
    root = np.linalg.cholesky(moment)
    return np.asarray(scipy.linalg.solve_triangular(root, np.eye(len(root)), lower=True))


def _farthest(
    leverage: np.ndarray, taken: Int64[np.ndarray, " w"], limit: float, most: int
) -> Int64[np.ndarray, " k"]:
    """Return the rows above a limit that are not taken yet, the farthest ones if there are many."""
    out: Bool[np.ndarray, " n"] = leverage > limit
    out[taken] = False
    index = np.flatnonzero(out)
    return index[np.argsort(-leverage[index], kind="stable")[:most]]
