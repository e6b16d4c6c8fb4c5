"""Vectors in whole steps of a grid, with exact noise; and sums over the rows of a matrix.

What a row adds is bounded by integer arithmetic: floating point only says where a vector points.
A matrix may be in memory, or in chunks that an engine reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Final, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64
from scipy import sparse
from scipy.sparse.linalg import norm as sparse_norm

from sordino import _validate
from sordino._random import Entropy, normals
from sordino._validate import Numbers, Table
from sordino.engines.engine import Rows
from sordino.errors import DataError, UsageError

PersonIds = Sequence[str | int] | np.ndarray

GRID_SLACK = 1 + 2.0**-20
"""What the grid may cost μ: see :class:`sordino.mechanisms.gaussian.GaussianMechanism`."""

STEPS_OF_NOISE = (2**12, 2**52)
"""Least and most noise in steps; above, a saturated draw would be thinkable."""

_MOST = 2**62  # of the square of a norm, and of a sum: both fit 64 bits
_CHUNK = 1 << 20
_LOW_BITS = 12


def matrix(values: object) -> np.ndarray:
    """Return values if they are an array of two dimensions."""
    if not isinstance(values, np.ndarray):
        raise DataError(f"values must be a NumPy array, got {type(values).__name__}.")
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(
            "values must be an array without a mask: what is masked would be used like the rest. "
            "Nothing was released. Leave out those rows, or fill them (values.filled(0))."
        )
    if values.ndim != 2:  # noqa: PLR2004 - records and coordinates
        raise DataError(f"values must be an array of 2 dimensions, got {values.ndim}.")
    return values


def vector_array(values: np.ndarray, *, most: int) -> Table:
    """Return values as an array of floats with one vector in each row."""
    values = matrix(values)
    widest = _MOST // most**2
    if not 1 <= values.shape[1] <= widest:
        raise DataError(
            f"values must have between 1 and {widest} columns on this grid, got "
            f"{values.shape[1]}. A coarser grid allows more."
        )
    return _validate.finite_array("values", values, ndim=2)


def clipped_rows(vectors: Table, most: int, step: float) -> Int64[np.ndarray, "n d"]:
    """Return every vector in whole steps, cut to a norm of at most ``most`` steps."""
    # Guarantee: The squared norm of each row is at most most², in integers, and depends on nothing
    # but that row. Shown by tests/soundness/test_gaussian_mechanism.py.
    return _shortened(_steps(vectors, most, step), most)


def clipped_sum(vectors: Table, most: int, step: float) -> Int64[np.ndarray, " d"]:
    """Return the exact sum of vectors, each first cut to a norm of at most ``most`` steps."""
    # Guarantee: The squared norm of what one row adds is at most most², in integers, and depends on
    # nothing but that row. Shown by tests/soundness/test_gaussian_mechanism.py.
    width = vectors.shape[1]
    rows = max(1, _CHUNK // width)
    total = np.zeros(width, dtype=object)
    for start in range(0, len(vectors), rows):
        part = clipped_rows(vectors[start : start + rows], most, step)
        total += part.sum(axis=0).astype(object)
    return np.array([min(max(int(x), -_MOST), _MOST) for x in total], dtype=np.int64)


def outer_products(steps: Int64[np.ndarray, "n d"]) -> np.ndarray:
    """Return the sum of the outer products of integer rows as Python's integers."""
    # A number of at most 2^24 is split into two of at most 13 bits, so that floats multiply
    # exactly.
    high = (steps >> _LOW_BITS).astype(np.float64)
    low = (steps & (2**_LOW_BITS - 1)).astype(np.float64)
    parts = (high.T @ high, high.T @ low, low.T @ low)
    top, cross, bottom = (part.astype(np.int64).astype(object) for part in parts)
    middle = cross + cross.T
    return np.asarray((top << 2 * _LOW_BITS) + (middle << _LOW_BITS) + bottom, dtype=object)


def refuse_persons(*, given: bool, most: int | None) -> None:
    """Refuse person ids that would be ignored, and a cap without them."""
    if given and most is None:
        raise UsageError(
            "persons is used only with records_per_person, which is not set. Nothing was "
            "released. Leave persons out, or set records_per_person."
        )
    if not given and most is not None:
        raise UsageError(
            f"persons is needed with records_per_person={most}: one id for each row. Nothing was "
            "released."
        )


def first_rows(persons: PersonIds, n: int, most: int) -> Bool[np.ndarray, " n"]:
    """Return which rows count: the first ``most`` of each person, by that person's rows alone."""
    seen: dict[str, int] = {}
    counts = np.zeros(n, dtype=bool)
    for index, person in enumerate(_validate.person_ids(persons, n)):
        seen[person] = seen.get(person, 0) + 1
        counts[index] = seen[person] <= most
    return counts


def whole_steps(values: Table, most: float) -> Int32[np.ndarray, "n d"]:
    """Return public vectors rounded to whole steps; refuse what the grid does not hold."""
    steps = np.rint(values)
    if not (np.einsum("ij,ij->i", steps, steps) <= most**2).all():  # also NaN
        raise DataError(
            "These features are too far apart in size to be rounded to the grid. Nothing was "
            "spent. Measure the features in one unit, or leave out the columns that are tiny "
            "beside the others."
        )
    return np.asarray(steps, dtype=np.int32)


def with_noise(
    total: Int64[np.ndarray, " size"], scale: float, entropy: Entropy
) -> Int64[np.ndarray, " size"]:
    """Return whole numbers with discrete Gaussian noise of this scale.

    Guarantee:
        Exact: OpenDP adds the noise to the numbers given here as unbounded integers and cuts the
        result to 64 bits, which is post-processing.
    """
    if entropy.randomness == "simulated":  # rounded, from one word for each number
        return np.asarray(total + np.rint(normals(entropy, len(total)) * scale).astype(np.int64))
    # Imported only where noise is drawn, and not by its prelude, which costs seven times as much.
    from opendp.domains import atom_domain, vector_domain  # noqa: PLC0415
    from opendp.measurements import make_gaussian  # noqa: PLC0415
    from opendp.metrics import l2_distance  # noqa: PLC0415
    from opendp.mod import enable_features  # noqa: PLC0415

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="f64")
    return np.array(make_gaussian(*space, scale=scale)(total.tolist()), dtype=np.int64)


def _steps(vectors: Table, most: int, step: float) -> Int64[np.ndarray, "n d"]:
    """Return each row rounded to the grid, first shrunk until no coordinate exceeds ``most``."""
    # Every operation acts on single numbers, or takes a maximum: nothing depends on an order of
    # summation, and so on the other rows. What is no number counts as 0: as an integer it would be
    # the least there is, whose square is 0 in 64 bits.
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    # a huge row is cut, a tiny one rounds to 0
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        shape = vectors / np.where(largest > 0, largest, 1.0)
        size = np.minimum(largest / step, float(most))
        steps = np.nan_to_num(shape * size, copy=False, nan=0.0)
    return np.asarray(np.rint(steps), dtype=np.int64)


def _shortened(steps: Int64[np.ndarray, "n d"], most: int) -> Int64[np.ndarray, "n d"]:
    """Return rows of integers of at most ``most`` each, with a norm of at most ``most``."""
    # A longer row is multiplied by most/L and cut toward zero, L a whole number of at least its
    # norm: each coordinate is then at most |k|·most/L, so that the norm is at most `most`.
    square = (steps * steps).sum(axis=1)
    long = square > most * most
    length = root_above(square[long])[:, np.newaxis]
    steps[long] = np.sign(steps[long]) * (np.abs(steps[long]) * most // length)
    return steps


def root_above(square: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Return the least whole numbers whose squares are at least these (at most 2^62)."""
    near = np.sqrt(square.astype(np.float64)).astype(np.int64)
    root = np.maximum(near - 1, 0)  # below, where the float may have been rounded up
    for _ in range(3):
        root += root * root < square
    return root


T = TypeVar("T")

Matrix: TypeAlias = np.ndarray | sparse.sparray | sparse.spmatrix

_PART: Final = 1 << 20  # numbers held at once, densely


def each_added(one: list[np.ndarray], other: list[np.ndarray]) -> list[np.ndarray]:
    """Return the sums of the first arrays, of the second, and so on."""
    return [mine + theirs for mine, theirs in zip(one, other, strict=True)]


def row_sum(rows: Rows, task: Callable[[np.ndarray], T], add: Callable[[T, T], T]) -> T:
    """Return the sum of ``task(block)`` over blocks of the rows, each of them dense."""
    return rows.fold(partial(_dense, task, add), add)


def _dense(
    task: Callable[[np.ndarray], T], add: Callable[[T, T], T], _row: int, block: Matrix, *_: object
) -> T:
    """Return the sum over a block as it was read: sparse, perhaps, and with labels beside it."""
    return reduce(add, (task(part) for _, part in dense_parts(block)))


def dense_parts(
    rows: Matrix, height: int | None = None
) -> Iterator[tuple[slice, Float[np.ndarray, "part d"]]]:
    """Yield the rows in order, some thousands of numbers at a time, each part as a dense array."""
    height = height or max(1, _PART // rows.shape[1])
    for start in range(0, rows.shape[0], height):
        part = rows[start : start + height]
        yield slice(start, start + height), part if isinstance(part, np.ndarray) else part.toarray()


def row_weights(rows: Matrix, longest: float) -> Numbers:
    """Return min(1, longest/‖x‖): how much each row counts, whatever the others are."""
    if longest == np.inf:
        return np.ones(rows.shape[0])
    lengths = (sparse_norm if sparse.issparse(rows) else np.linalg.norm)(rows, axis=1)
    return np.asarray(longest / np.maximum(lengths, longest))


def counting_less(rows: Matrix, longest: float) -> Matrix:
    """Return the rows times their weights, so that none is longer than ``longest``."""
    if longest == np.inf:
        return rows
    return weighted(rows, row_weights(rows, longest))


def weighted(rows: Matrix, weights: Float[np.ndarray, " n"]) -> Matrix:
    """Return every row times its weight."""
    if sparse.issparse(rows):
        return sparse.csr_array(sparse.csr_array(rows).multiply(weights[:, np.newaxis]))
    return np.asarray(rows * weights[:, np.newaxis])
