"""Descent with L-BFGS steps on top of an approximate Hessian: the passes over the data.

A pass is one multiplication by the rows of the loss and one by their transpose. The line search
needs neither: along a step the objective is a function of margins that are already known.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from sordino._validate import finite_array
from sordino.errors import ConvergenceError, DataError

from ._curvature import Solver, inverse
from ._margins import MarginLoss, as_margin_loss
from .likelihoods import DebiasedLogistic

__all__ = ["Metric", "Point", "Work", "descend", "norm"]

_MEMORY = 12  # pairs of steps and gradient changes that L-BFGS keeps
_BLOCK = 1 << 18  # numbers of a block of rows that stays in cache: 2 MiB
_ROWS = 4096  # rows whose sum rounds to next to nothing; longer sums are added up more finely
_SPARSE_ROWS = 512
_FAR = 100.0  # a step this long is taken wherever it goes down (the loss may be unbounded)
_REUSE = 2.0  # ratio of shifts within which one factorization serves both
_ENOUGH = 0.4  # share of the slope that may be left along a step


@dataclass(frozen=True)
class Point:
    """Weights, their margins, and the gradient of the loss alone (no ridge) there.

    ``exact`` says that the margins were multiplied out at these weights and not carried along.
    """

    theta: np.ndarray
    margins: np.ndarray
    gradient: np.ndarray
    exact: bool

    @property
    def norm(self) -> float:
        """The Euclidean length of the weights."""
        return norm(self.theta)


class Work:
    """One data set being fitted: what is shared by all solves on it, and the pass counter."""

    def __init__(
        self,
        loss: DebiasedLogistic | MarginLoss,
        atol: float,
        max_passes: int,
        *,
        settles: bool = False,
    ) -> None:
        self.loss = as_margin_loss(loss)
        self.matrix = self.loss.rows
        self.transposed = self.loss.rows.T
        self.atol = atol
        self.max_passes = max_passes
        self.settles = settles  # for a point at which rounding ends the descent
        self.passes = 0

    def first(self, start: np.ndarray | None) -> Point:
        """Return the starting point; refuse data on which its gradient is not finite."""
        n, d = self.matrix.shape
        if start is not None and np.shape(start) != (d,):
            raise DataError(f"start must have shape ({d},), got {np.shape(start)}.")
        with np.errstate(all="ignore"):
            if start is None:
                point = self.at(np.zeros(d), np.zeros(n), exact=True)
            else:
                point = self.exactly(finite_array("start", start, ndim=1))
        # 0·NaN and 0·∞ are NaN, so any such entry shows here, for no pass of its own.
        if not np.isfinite(point.gradient).all():
            raise DataError("differences must be finite: there is a NaN or an infinity.")
        return point

    def at(self, theta: np.ndarray, margins: np.ndarray, *, exact: bool) -> Point:
        """Return the point at theta, whose margins are known."""
        residuals = self.loss.slopes(margins)
        residuals -= self.loss.targets
        return Point(theta, margins, self._summed(residuals) - self.loss.known_sum, exact)

    def _summed(self, residuals: np.ndarray) -> np.ndarray:
        """Return Σ rᵢxᵢ; its rounding must stay below the certificate, however many rows there are.

        Sums of a few thousand rows are added in extended precision.
        """
        if len(residuals) <= _ROWS:
            return np.asarray(self.transposed @ residuals)
        total, first = np.zeros(self.matrix.shape[1], dtype=np.longdouble), 0
        for part in self._parts:
            last = first + part.shape[1]
            total += part @ residuals[first:last]
            first = last
        return total.astype(np.float64)

    @cached_property
    def _parts(self) -> list[Any]:
        """Return the transposes of a few rows at a time.

        Of sparse rows fewer: their sums are made one by one, where BLAS keeps several.
        """
        n, sparse = self.matrix.shape[0], issparse(self.matrix)
        size = _SPARSE_ROWS if sparse else _ROWS
        some = [(first, first + size) for first in range(0, n, size)]
        if sparse:
            return [_some_rows(self.matrix, *ends).T for ends in some]
        return [self.transposed[:, slice(*ends)] for ends in some]

    def exactly(self, theta: np.ndarray) -> Point:
        """Return the point at theta with margins multiplied out: one pass."""
        self.spend()
        n, d = self.matrix.shape
        if issparse(self.matrix) or n * d <= 4 * _BLOCK or not self.loss.row_by_row:
            return self.at(theta, self.matrix @ theta, exact=True)
        # Block by block, so that rows are read from memory once and not twice.
        margins, gradient = np.empty(n), np.zeros(d, dtype=np.longdouble)
        size = min(_ROWS, max(1, _BLOCK // d))
        for first in range(0, n, size):
            rows = slice(first, first + size)
            block = self.matrix[rows]
            margins[rows] = block @ theta
            residuals = self.loss.slopes(margins[rows])
            residuals -= self.loss.targets[rows]
            gradient += block.T @ residuals
        return Point(theta, margins, gradient.astype(float) - self.loss.known_sum, exact=True)

    def spend(self) -> None:
        """Count one pass; give up where they are used up."""
        self.passes += 1
        if self.passes > self.max_passes:
            raise self.failure()

    def failure(self) -> ConvergenceError:
        """Return the error of a fit that is not certified (it says nothing about the data)."""
        return ConvergenceError(
            f"The fit was not certified to atol={self.atol!r} within "
            f"max_passes={self.max_passes!r}; nothing was returned. Raise the ridge, atol or "
            "max_passes (an atol near the rounding error of the gradient is out of reach)."
        )


def _some_rows(matrix: Any, first: int, last: int) -> csr_array:
    """Return rows of a sparse matrix that share its numbers: nothing is copied but their places."""
    places = matrix.indptr[first : last + 1]
    inside = slice(int(places[0]), int(places[-1]))
    parts = matrix.data[inside], matrix.indices[inside], places - places[0]
    return csr_array(parts, shape=(len(places) - 1, matrix.shape[1]), copy=False)


def descend(
    metric: Metric,
    point: Point,
    shift: float,
    atol: float,
    leave: Callable[[Point, float], bool] | None = None,
) -> Point:
    """Return an exact point where the gradient with the shift is at most atol, or one to leave.

    Where rounding stops the descent before, and the work settles for that, it is the last point.

    Source:
        docs/local.md, the fit: F(θ) without its ball.

    Raises:
        ConvergenceError: The passes were used up, or rounding stopped the descent.
    """
    work = metric.work
    metric.shift_to(shift)
    while True:
        gradient = point.gradient + shift * point.theta
        size = norm(gradient)
        if leave is not None and leave(point, size):
            return point
        if size <= atol and point.exact:
            return point
        if size <= atol:
            point = work.exactly(point.theta)
            continue
        metric.age(point)
        following = _step(work, point, -metric.solve(gradient), gradient, shift)
        if following is None:
            if not metric.recover(point):
                return point if point.exact else work.exactly(point.theta)
            continue
        metric.learn(point, following)
        point = following


class Metric:
    """The inverse Hessian that L-BFGS builds on top of the approximate one.

    What it learns is about the loss alone, so that it survives a change of the shift.

    Source:
        docs/local.md, debiased likelihood (Hessian).
    """

    def __init__(self, work: Work, point: Point) -> None:
        """Measure the approximate Hessian at the point."""
        self.work = work
        self._curvature = work.loss.bend(point.margins)
        self._pairs: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=_MEMORY)
        self._age = 0
        self._shift = self._factored = 0.0
        self._base: Solver | None = None

    def shift_to(self, shift: float) -> None:
        """Use the shift (ridge and multiplier) from now on."""
        self._shift = shift
        if not self._factored / _REUSE <= shift <= self._factored * _REUSE:
            self._base = None

    def age(self, point: Point) -> None:
        """Count a pass; measure the Hessian here when the last one has been used enough."""
        if self._age >= self._curvature.patience:
            self._refresh(point)
        self._age += 1

    def recover(self, point: Point) -> bool:
        """Forget what was learned; where there is nothing to forget, give up or settle."""
        if self._age <= 1:
            if self.work.settles:
                return False
            raise self.work.failure()
        self._refresh(point)
        return True

    def _refresh(self, point: Point) -> None:
        self._curvature.refresh(point.margins)
        self._pairs.clear()
        self._age, self._base = 0, None

    def solve(self, gradient: np.ndarray) -> np.ndarray:
        """Return the inverse Hessian times the gradient (the two loops of L-BFGS)."""
        if self._base is None:
            self._base = inverse(self._curvature.matrix, self._shift)
            self._factored = self._shift
        vector, used = gradient, []
        for step, change in reversed(self._pairs):
            shifted = change + self._shift * step
            curvature = float(step @ shifted)
            share = float(step @ vector) / curvature
            used.append((step, shifted, curvature, share))
            vector = vector - share * shifted
        vector = self._base(vector)
        for step, shifted, curvature, share in reversed(used):
            vector = vector + (share - float(shifted @ vector) / curvature) * step
        return vector

    def learn(self, point: Point, following: Point) -> None:
        """Keep the step and the change of the loss gradient along it."""
        step = following.theta - point.theta
        change = following.gradient - point.gradient
        if float(step @ change) > 1e-14 * norm(step) * norm(change):
            self._pairs.append((step, change))


def _step(
    work: Work, point: Point, direction: np.ndarray, gradient: np.ndarray, shift: float
) -> Point | None:
    """Return the point after one step along the direction, or None where none helps.

    The whole step is tried first, and judged by its gradient: close to the minimum, differences
    of margins have lost the digits that a line search would need.
    """
    whole = work.exactly(point.theta + direction)
    line = _Line(work, point, direction, whole.margins - point.margins, shift)
    following = whole.gradient + shift * whole.theta
    slope, end = float(gradient @ direction), float(following @ direction)
    if line.accepts(1.0, slope, end) or (line.span <= 1 and 2 * norm(following) < norm(gradient)):
        return whole
    length = line.search(slope, end)
    if length is None:
        return None
    theta = point.theta + length * direction
    return work.at(theta, point.margins + length * line.change, exact=False)


class _Line:
    """The objective along a step, which needs the margins and no pass over the data."""

    def __init__(
        self,
        work: Work,
        point: Point,
        direction: np.ndarray,
        change: np.ndarray,
        shift: float,
    ) -> None:
        self._margins, self._loss = point.margins, work.loss
        self.change = change
        self.span = work.loss.span(change)
        self._linear = shift * float(point.theta @ direction) - float(change @ work.loss.targets)
        self._linear -= float(np.sum(work.loss.known_sum * direction))
        self._square = shift * float(direction @ direction)

    def slope(self, length: float) -> float:
        """Return the derivative of the objective along the step."""
        slopes = self._loss.slopes(self._margins + length * self.change)
        return float(self.change @ slopes) + self._linear + length * self._square

    def falls(self, length: float) -> bool:
        """Return whether the objective is no larger than at the start, up to rounding."""
        before = self._loss.convex(self._margins)
        gain = float(np.sum(self._loss.convex(self._margins + length * self.change) - before))
        gain += length * self._linear + 0.5 * length**2 * self._square
        return gain <= 1e-12 * (float(np.sum(np.abs(before))) + abs(length * self._linear))

    def accepts(self, length: float, slope: float, here: float) -> bool:
        """Return whether a length, with its slope, is a step worth taking.

        The objective is convex, so that its slope rises with the length: left of the minimum
        every length goes down. Right of it the value is compared, unless the span is at most 1
        (no margin of a pair moves by more): then the curvature varies by less than e along the
        step, and a slope that ends at 0.4 of its start cannot have gone up in sum.
        """
        if here <= 0 and length > _FAR:
            return True
        small = abs(here) <= -_ENOUGH * slope
        return small and (here <= 0 or length * self.span <= 1 or self.falls(length))

    def search(self, slope: float, end: float) -> float | None:
        """Return a step length other than 1, whose slope is the end, that is accepted."""
        if not slope < 0:
            return None
        low, high, length, here = (0.0, slope), None, 1.0, end
        for _ in range(60):
            if here < 0:
                low = (length, here)
            else:
                high = (length, here)
            length = _between(low, high)
            here = self.slope(length)
            if self.accepts(length, slope, here):
                return length
        return None


def _between(low: tuple[float, float], high: tuple[float, float] | None) -> float:
    """Return the next length to try: the secant's, kept away from the ends."""
    if high is None:
        return 4 * low[0]
    width = high[0] - low[0]
    share = low[1] / (low[1] - high[1])
    return low[0] + width * min(max(share, 0.1), 0.9)


def norm(vector: np.ndarray) -> float:
    """Return the Euclidean length.

    Source:
        the definition.
    """
    return math.sqrt(float(vector @ vector))
