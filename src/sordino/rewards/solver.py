"""The one solver of reward fits: ridge and ball, and a certificate that is checked.

The objective is ``F(θ) = Σ [softplus(θᵀx) − ỹθᵀx] + (ridge/2)‖θ‖²`` over ``‖θ‖ ≤ ball``, or
the same with another convex function of margins that are linear in θ, as that of ballots.
Passes over the data (one multiplication by the differences, one by their transpose) are
L-BFGS steps whose first metric is an approximate Hessian, refreshed when that is cheaper than
going on; with few features this is Newton's method. What is returned carries the norm of the
gradient at exactly the returned weights, and nothing uncertified is ever returned but by
:func:`nearest_minimum`, for releases in which a refusal would be an output.

Descent with L-BFGS steps on top of an approximate Hessian: the passes over the data.

A pass is one multiplication by the rows of the loss and one by their transpose. The line search
needs neither: along a step the objective is a function of margins that are already known.

The minimizer of a tilted objective: never refused, nor drowned by the noise added to it.

From the debiased estimate to the maximum of the likelihood of what was released.

The likelihood of randomized answers is not convex, so the search starts at the debiased
estimate, which is close where there are many answers; a single step from there is already
efficient. Where no better point is found, the start stays.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, issparse

from sordino._validate import finite_array, integer, non_negative, positive
from sordino.errors import ConvergenceError, DataError, UsageError

from .covariance import mixture_information
from .pair_losses import (
    MarginLoss,
    MixtureLogistic,
    Solver,
    inverse,
    weighted_grams,
)

_MEMORY = 12  # pairs of steps and gradient changes that L-BFGS keeps
_BLOCK = 1 << 18  # numbers of a block of rows that stays in cache: 2 MiB
_ROWS = 4096  # rows whose sum rounds to next to nothing; longer sums are added up more finely
_SPARSE_ROWS = 512
_FAR = 100.0  # a step this long is taken wherever it goes down (the loss may be unbounded)
_REUSE = 2.0  # ratio of shifts within which one factorization serves both
_ENOUGH = 0.4  # share of the slope that may be left along a step


@dataclass(frozen=True)
class Iterate:
    """Weights, their margins, and the gradient of the loss alone (no ridge) there."""

    # `exact` says that the margins were multiplied out at these weights and not carried along.

    theta: np.ndarray
    margins: np.ndarray
    gradient: np.ndarray
    exact: bool

    @property
    def norm(self) -> float:
        """The Euclidean length of the weights."""
        return norm(self.theta)


class FitState:
    """One data set being fitted: what is shared by all solves on it, and the pass counter."""

    def __init__(
        self,
        loss: MarginLoss,
        atol: float,
        max_passes: int,
        *,
        settles: bool = False,
    ) -> None:
        """Start at zero, having passed over nothing."""
        self.loss = loss
        self.matrix = self.loss.rows
        self.transposed = self.loss.rows.T
        self.atol = atol
        self.max_passes = max_passes
        self.settles = settles  # for a point at which rounding ends the descent
        self.passes = 0

    def first(self, start: np.ndarray | None) -> Iterate:
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

    def at(self, theta: np.ndarray, margins: np.ndarray, *, exact: bool) -> Iterate:
        """Return the point at theta, whose margins are known."""
        residuals = self.loss.slopes(margins)
        residuals -= self.loss.targets
        return Iterate(theta, margins, self._summed(residuals) - self.loss.linear_term, exact)

    def _summed(self, residuals: np.ndarray) -> np.ndarray:
        """Σ rᵢxᵢ; its rounding must stay below the certificate, however many rows there are."""
        # Sums of a few thousand rows are added in extended precision.
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
        """Return the transposes of a few rows at a time."""
        # Of sparse rows fewer: their sums are made one by one, where BLAS keeps several.
        n, sparse = self.matrix.shape[0], issparse(self.matrix)
        size = _SPARSE_ROWS if sparse else _ROWS
        some = [(first, first + size) for first in range(0, n, size)]
        if sparse:
            return [_some_rows(self.matrix, *ends).T for ends in some]
        return [self.transposed[:, slice(*ends)] for ends in some]

    def exactly(self, theta: np.ndarray) -> Iterate:
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
        return Iterate(theta, margins, gradient.astype(float) - self.loss.linear_term, exact=True)

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
    point: Iterate,
    shift: float,
    atol: float,
    leave: Callable[[Iterate, float], bool] | None = None,
) -> Iterate:
    """Return an exact point where the gradient with the shift is at most atol, or one to leave."""
    # Where rounding stops the descent before, and the work settles for that, it is the last point.
    # Source: docs/local.md, the fit: F(θ) without its ball.
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
    """The inverse Hessian that L-BFGS builds on top of the approximate one."""

    # What it learns is about the loss alone, so that it survives a change of the shift.
    # Source: docs/local.md, debiased likelihood (Hessian).

    def __init__(self, work: FitState, point: Iterate) -> None:
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

    def age(self, point: Iterate) -> None:
        """Count a pass; measure the Hessian here when the last one has been used enough."""
        if self._age >= self._curvature.patience:
            self._refresh(point)
        self._age += 1

    def recover(self, point: Iterate) -> bool:
        """Forget what was learned; where there is nothing to forget, give up or settle."""
        if self._age <= 1:
            if self.work.settles:
                return False
            raise self.work.failure()
        self._refresh(point)
        return True

    def _refresh(self, point: Iterate) -> None:
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

    def learn(self, point: Iterate, following: Iterate) -> None:
        """Keep the step and the change of the loss gradient along it."""
        step = following.theta - point.theta
        change = following.gradient - point.gradient
        if float(step @ change) > 1e-14 * norm(step) * norm(change):
            self._pairs.append((step, change))


def _step(
    work: FitState, point: Iterate, direction: np.ndarray, gradient: np.ndarray, shift: float
) -> Iterate | None:
    """Return the point after one step along the direction, or None where none helps."""
    # The whole step is tried first, and judged by its gradient: close to the minimum, differences
    # of margins have lost the digits that a line search would need.
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
        work: FitState,
        point: Iterate,
        direction: np.ndarray,
        change: np.ndarray,
        shift: float,
    ) -> None:
        self._margins, self._loss = point.margins, work.loss
        self.change = change
        self.span = work.loss.span(change)
        self._linear = shift * float(point.theta @ direction) - float(change @ work.loss.targets)
        self._linear -= float(np.sum(work.loss.linear_term * direction))
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
        """Return whether a length, with its slope, is a step worth taking."""
        # The objective is convex, so that its slope rises with the length: left of the minimum
        # every length goes down. Right of it the value is compared, unless the span is at most 1
        # (no margin of a pair moves by more): then the curvature varies by less than e along the
        # step, and a slope that ends at 0.4 of its start cannot have gone up in sum.
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
    """Return the Euclidean length."""
    # Source: the definition.
    return math.sqrt(float(vector @ vector))


_SAMPLE = 32  # rows a feature of the sample that a large fit starts on
_MOST_PASSES = 10_000  # of a fit that is never refused: rounding ends it long before
_SPHERE = 1 - 1e-12  # of the ball: beyond it a point is on its surface
_HASTY = 20  # multipliers that are tried on unfinished minimizers


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A minimizer and the proof that it is one."""

    # Source: docs/local.md, the fit: first-order conditions of F over the ball. ‖∇F(θ) +
    # multiplier·θ‖ = gradient_norm, multiplier ≥ 0, and multiplier = 0 or ‖θ‖ = ball.

    theta: Float[np.ndarray, " d"]  # the weights; never outside the ball
    # The certificate, computed anew at `theta`; at most the `atol` asked, unless it comes from
    # `nearest_minimum`.
    gradient_norm: float
    multiplier: float  # ν, what the ball pushes back; 0 where it does not bind
    # Passes over all the data that were used (those over a starting sample are not counted).
    passes: int


def minimize_ridge(
    loss: MarginLoss,
    *,
    ridge: float,
    atol: float,
    ball: float | None = None,
    start: Float[np.ndarray, " d"] | None = None,
    max_passes: int = 1000,
) -> Solution:
    """Return the weights that minimize the loss plus ridge inside the ball, certified."""
    # Source: docs/local.md, the fit: F(θ) over ‖θ‖ ≤ B.
    shift = _ridge(ridge, ball)
    work = FitState(loss, positive("atol", atol), integer("max_passes", max_passes, at_least=1))
    bound = math.inf if ball is None else positive("ball", ball)
    multiplier = 0.0
    if start is None:
        start, multiplier = _sampled_start(loss, shift, ball)
    point = work.first(start)
    return _solve(Metric(work, point), point, shift, bound, multiplier)


def nearest_minimum(loss: MarginLoss, *, ridge: float, atol: float, ball: float) -> Solution:
    """What :func:`minimize_ridge` does or, where rounding stops it before, its best point."""
    # Whether private data allow a certificate must not show, so that nothing is refused here. In
    # real numbers every certificate is reached: the objective is ridge-strongly convex. In floats
    # the gradient ends at its rounding, which whoever uses this has to keep below what is paid for.
    # Source: docs/central.md, "Objective perturbation": an inexact minimizer.
    shift, bound = _ridge(ridge, None), positive("ball", ball)
    work = FitState(loss, positive("atol", atol), _MOST_PASSES, settles=True)
    best = _Best(work, shift, bound)
    start, multiplier = _sampled_start(loss, shift, ball)
    origin = work.first(None)
    best.take(origin)
    ways = [(origin, 0.0)]  # a rough start may be on the wrong side of the ball
    if start is not None:
        ways.insert(0, (work.first(start), multiplier))
    for point, pushed in ways:
        with suppress(ConvergenceError):
            return _solve(Metric(work, point), point, shift, bound, pushed, best.take)
    return best.solution


class _Best:
    """The best point inside the ball so far, by what neither ridge nor ball explains of it."""

    solution: Solution

    def __init__(self, work: FitState, ridge: float, ball: float) -> None:
        self._work, self._ridge, self._ball = work, ridge, ball
        self._size = math.inf

    def take(self, point: Iterate) -> None:
        """Take in a point; only one whose margins were multiplied out inside the ball counts."""
        if not point.exact or point.norm > self._ball:
            return
        whole = point.gradient + self._ridge * point.theta
        pushed = 0.0
        if point.norm >= self._ball * _SPHERE:
            pushed = max(0.0, -float(whole @ point.theta) / self._ball**2)
        size = norm(whole + pushed * point.theta)
        if size < self._size:
            self._size = size
            self.solution = Solution(
                theta=point.theta,
                gradient_norm=size,
                multiplier=pushed,
                passes=self._work.passes,
            )


def ridge_path(
    loss: MarginLoss,
    ridges: Sequence[float],
    *,
    atol: float,
    ball: float | None = None,
    max_passes: int = 1000,
) -> tuple[Solution, ...]:
    """Return one certified solution for each ridge, in the order given."""
    # Faster than one fit after the other: each starts where the next larger ridge ended, and all
    # share one approximate Hessian.
    # Source: docs/local.md, the fit: F(θ) over ‖θ‖ ≤ B.
    shifts = [_ridge(ridge, ball) for ridge in ridges]
    bound = math.inf if ball is None else positive("ball", ball)
    work = FitState(loss, positive("atol", atol), integer("max_passes", max_passes, at_least=1))
    found: dict[int, Solution] = {}
    point, multiplier = work.first(None), 0.0
    metric = Metric(work, point)
    for index in sorted(range(len(shifts)), key=lambda i: -shifts[i]):
        work.passes = 0
        found[index] = _solve(metric, point, shifts[index], bound, multiplier)
        multiplier = found[index].multiplier
        point = work.exactly(found[index].theta)
    return tuple(found[index] for index in range(len(shifts)))


def _ridge(ridge: float, ball: float | None) -> float:
    """Return the ridge; refuse one that leaves the problem without a minimum."""
    value = non_negative("ridge", ridge)
    if math.isinf(value):
        raise UsageError("ridge must be finite, got inf.")
    if value == 0 and ball is None:
        raise UsageError(
            "ridge must be greater than 0 where ball is None: the loss of debiased answers can "
            "fall without end. Give a ridge, or a ball that bounds the weights."
        )
    return value


def _sampled_start(
    loss: MarginLoss, ridge: float, ball: float | None
) -> tuple[np.ndarray | None, float]:
    """Return a rough solution on evenly spaced rows, where the data are many times more."""
    whole = loss
    n, d = whole.rows.shape
    step = n // max(_SAMPLE * d, 1000)
    if step < 4:  # noqa: PLR2004
        return None, 0.0
    sample = whole.sample(step)
    rows: Any = sample.rows
    squares = float(np.sum(rows.data**2) if issparse(rows) else np.vdot(rows, rows))
    if not 0 < squares < math.inf:
        return None, 0.0
    try:
        # A tenth of the sampling noise of the gradient: more would be precision about nothing.
        rough = minimize_ridge(
            sample, ridge=ridge / step, ball=ball, atol=0.05 * math.sqrt(squares), max_passes=50
        )
    except ConvergenceError:
        return None, 0.0
    return rough.theta, rough.multiplier * step


def _solve(
    metric: Metric,
    point: Iterate,
    ridge: float,
    ball: float,
    multiplier: float,
    seen: Callable[[Iterate], None] = lambda _: None,
) -> Solution:
    """Minimize without the ball; where that leaves it, on the sphere."""

    def outside(point: Iterate, size: float) -> bool:
        seen(point)
        # The first test is a proof (F is ridge-strongly convex), the second a guess, which
        # _on_sphere takes back where it was wrong.
        distance = size / ridge if ridge > 0 else math.inf
        return point.norm - distance > ball or point.norm > 2 * ball

    work = metric.work
    if multiplier == 0:
        leave = None if math.isinf(ball) else outside
        point = descend(metric, point, ridge, work.atol, leave)
        seen(point)
        if point.norm <= ball:
            return _certified(work, point, ridge, 0.0)
        multiplier = _next_multiplier(metric, point, ridge, 0.0, ball)[0]
    return _on_sphere(metric, point, ridge, ball, multiplier, seen)


def _certified(work: FitState, point: Iterate, ridge: float, multiplier: float) -> Solution:
    """Return the solution at an exact point; refuse one without its certificate."""
    size = norm(point.gradient + (ridge + multiplier) * point.theta)
    if not (point.exact and size <= work.atol):
        raise work.failure()
    return Solution(
        theta=point.theta, gradient_norm=size, multiplier=multiplier, passes=work.passes
    )


def _on_sphere(
    metric: Metric,
    point: Iterate,
    ridge: float,
    ball: float,
    multiplier: float,
    seen: Callable[[Iterate], None],
) -> Solution:
    """Find the multiplier ν whose minimizer θ(ν) has the norm of the ball."""
    # 1/‖θ(ν)‖ rises with ν and is almost a straight line, so that Newton's method needs a
    # handful of steps. The first are taken from unfinished minimizers, each a pass or two; should
    # that not settle, the rest are taken from finished ones, within a bracket started anew.
    work = metric.work
    low, high = 0.0, math.inf
    for trial in range(3 * _HASTY):
        if trial == _HASTY:
            low, high = 0.0, math.inf
        tolerance = _tolerance(
            work, norm(point.gradient + (ridge + multiplier) * point.theta), trial
        )
        point = descend(metric, point, ridge + multiplier, tolerance)
        following, offset = _next_multiplier(metric, point, ridge, multiplier, ball)
        if offset > 0:
            low = max(low, multiplier)
        else:
            high = min(high, multiplier)
        if abs(offset) < 0.1:  # noqa: PLR2004
            point = _scaled(work, point, ball)
            seen(point)
            pushed = -float(point.gradient @ point.theta) / ball**2 - ridge
            if norm(point.gradient + (ridge + max(pushed, 0.0)) * point.theta) <= work.atol:
                return _certified(work, point, ridge, max(pushed, 0.0))
        if low == 0 and following * ball <= work.atol / 2 and high * ball <= work.atol:
            point = descend(metric, point, ridge, work.atol)
            seen(point)
            if point.norm <= ball:
                return _certified(work, point, ridge, 0.0)
        multiplier = _inside(following, low, high)
    raise work.failure()


def _tolerance(work: FitState, size: float, trial: int) -> float:
    """Return how far the minimizer for one multiplier is worth finishing."""
    if trial < _HASTY:
        return max(0.1 * size, 0.25 * work.atol)
    return work.atol * max(0.5 ** (trial - _HASTY + 1), 1e-3)


def _scaled(work: FitState, point: Iterate, ball: float) -> Iterate:
    """Return the exact point on the sphere, rounded to its inside."""
    theta = point.theta * (ball / point.norm * (1 - 2**-52))
    while norm(theta) > ball:
        theta = theta * (1 - 2**-53)
    return work.exactly(theta)


def _next_multiplier(
    metric: Metric, point: Iterate, ridge: float, multiplier: float, ball: float
) -> tuple[float, float]:
    """Return Newton's next ν for 1/‖θ(ν)‖ = 1/ball, and ‖θ(ν)‖/ball − 1 as predicted."""
    shift = ridge + multiplier
    metric.shift_to(shift)
    theta = point.theta - metric.solve(point.gradient + shift * point.theta)
    square = float(theta @ theta)
    if square == 0:
        return 0.0, -1.0
    offset = math.sqrt(square) / ball - 1
    return multiplier + offset * square / float(theta @ metric.solve(theta)), offset


def _inside(multiplier: float, low: float, high: float) -> float:
    """Return the multiplier if it is strictly inside the bracket, else a point that is."""
    if low < multiplier < high:
        return multiplier
    if math.isinf(high):
        return max(2 * low, 1e-300)
    return low + 0.5 * (high - low) if low > 0 else 0.1 * high


@runtime_checkable
class Tilt(Protocol):
    """What a minimizer must know of the mechanism that tilts its objective."""

    @property
    def ridge(self) -> float | None:
        """Return the strength of the penalty, Λ."""
        ...

    @property
    def atol(self) -> float:
        """Return the largest norm of a gradient that is accepted."""
        ...

    @property
    def output_standard_deviation(self) -> float:
        """Return the noise that is added to every weight."""
        ...


def ridge_of(mechanism: Tilt) -> float:
    """Return Λ, which a mechanism has once it is built."""
    assert mechanism.ridge is not None  # noqa: S101 - for the type checker
    return mechanism.ridge


def minimize_tilted(loss: MarginLoss, mechanism: Tilt, *, ball: float) -> Solution:
    """Return the minimizer of a tilted objective inside the ball; it is never refused."""
    # Feasible, and pushed back by the ball only on its sphere: it is within atol/Λ of the exact
    # one, for the objective is Λ-strongly convex.
    # Source: docs/central.md, "Objective perturbation": an inexact minimizer.
    ridge = ridge_of(mechanism)
    return within_allowance(
        nearest_minimum(loss, ridge=ridge, atol=mechanism.atol, ball=ball), mechanism
    )


def within_allowance(solution: Solution, mechanism: Tilt) -> Solution:
    """Return a minimizer as the mechanism takes it: what exceeds ``atol`` is rounding."""
    # The mechanism pays for twice its `atol`, and its least `atol` is above what rounding leaves of
    # a gradient: see `usable_atol`. To refuse what rounding left would tell of the records.
    # Source: docs/central.md, "Objective perturbation": an inexact minimizer.
    return replace(solution, gradient_norm=min(solution.gradient_norm, mechanism.atol))


def refuse_drowned(mechanism: Tilt, *, d: int, ball: float) -> None:
    """Refuse settings with which the noise of the output alone leaves the ball."""
    if mechanism.output_standard_deviation * math.sqrt(d) > ball:
        raise UsageError(
            f"The noise that hides how exact the minimizer is, "
            f"{mechanism.output_standard_deviation:.3g} in each of {d} weights, is larger than "
            f"ball={ball!r}: nothing would be learned. Nothing was spent. Use a larger ridge, a "
            "smaller atol, or a larger ball."
        )


_MOST_STEPS = 200
_MOST_HALVINGS = 40


def refine(
    loss: MixtureLogistic,
    start: Float[np.ndarray, " d"],
    *,
    ridge: float,
    atol: float,
    ball: float,
) -> Solution:
    """Return a stationary point of the mixture likelihood plus ridge, certified."""
    # Newton's method with step-halving; where the Hessian is not positive definite, the expected
    # one takes its place (Fisher scoring). A step is halved until the loss falls and the ball
    # holds.
    # Source: docs/local.md, mixture likelihood; method of scoring, Fisher 1925.
    search = _Search(loss, positive("ridge", ridge), ball)
    theta, passes = np.array(start, dtype=np.float64), 0
    while passes < _MOST_STEPS:
        gradient = search.gradient(theta)
        size = float(np.linalg.norm(gradient))
        if size <= atol:
            return Solution(theta=theta, gradient_norm=size, multiplier=0.0, passes=passes)
        following = search.step(theta, gradient)
        if following is None:
            break
        theta, passes = following, passes + 1
    raise ConvergenceError(
        f"No stationary point of the mixture likelihood was found within atol={atol!r} inside the "
        f"ball of {ball!r}; nothing was returned. Use method='debiased', or raise the ridge."
    )


class _Search:
    """The penalized loss, and one step of scoring on it."""

    def __init__(self, loss: MixtureLogistic, ridge: float, ball: float) -> None:
        self._loss, self._ridge, self._ball = loss, ridge, ball

    def _value(self, theta: np.ndarray) -> float:
        return self._loss.value(theta) + 0.5 * self._ridge * float(theta @ theta)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Return the gradient with the ridge."""
        return self._loss.gradient(theta) + self._ridge * theta

    def _curvature(self, theta: np.ndarray) -> np.ndarray:
        """Return the Hessian where it is positive definite, else what is expected of it."""
        ridge = self._ridge * np.eye(len(theta))
        observed = self._loss.hessian(theta) + ridge
        with suppress(np.linalg.LinAlgError):
            np.linalg.cholesky(observed)
            return np.asarray(observed)
        margins = np.asarray(self._loss.differences @ theta)
        weights = mixture_information(margins, self._loss.flip_probability)
        return np.asarray(weighted_grams(self._loss.differences, weights)[0] + ridge)

    def step(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        """Return the first of a halving sequence of points that is better, or None."""
        direction = -np.linalg.solve(self._curvature(theta), gradient)
        value, slope = self._value(theta), float(gradient @ direction)
        rounding = 1e-12 * (1 + abs(value))
        for halving in range(_MOST_HALVINGS):
            share = 0.5**halving
            following = np.asarray(theta + share * direction)
            inside = math.sqrt(float(following @ following)) <= self._ball
            if inside and self._value(following) <= value + 1e-4 * share * slope + rounding:
                return following
        return None
