"""The one solver of reward fits: ridge and ball, and a certificate that is checked.

The objective is ``F(θ) = Σ [softplus(θᵀx) − ỹθᵀx] + (ridge/2)‖θ‖²`` over ``‖θ‖ ≤ ball``, or
the same with another convex function of margins that are linear in θ, as that of ballots.
In memory, passes over the data (one multiplication by the differences, one by their transpose)
are L-BFGS steps whose first metric is an approximate Hessian, refreshed when that is cheaper
than going on; with few features this is Newton's method. The line search takes no pass: along a
step the objective is a function of margins that are known. Over files, where reading costs more
than adding up, each pass is a step of Newton's method for all ridges at once.

What is returned carries the norm of the gradient at exactly the returned weights, and nothing
uncertified is ever returned but by :func:`nearest_minimum`, for releases in which a refusal would
be an output.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.optimize
from jaxtyping import Float
from scipy.sparse import issparse
from scipy.special import expit

from sordino._validate import Square, Vector, finite_array, integer, non_negative, positive
from sordino.engines.engine import Rows
from sordino.errors import ConvergenceError, DataError, UsageError
from sordino.mechanisms.grid import Matrix, each_added, row_weights
from sordino.mechanisms.objective_perturbation import (
    ObjectivePerturbation,
    RankingObjectivePerturbation,
)

from .pair_losses import (
    DebiasedLogistic,
    MarginLoss,
    Solver,
    debiased_slope,
    inverse,
    softplus,
    weighted_grams,
)

_Tilt = ObjectivePerturbation | RankingObjectivePerturbation
"""What tilts an objective whose minimizer is released."""

_MEMORY = 12  # pairs of steps and gradient changes that L-BFGS keeps
_BLOCK = 1 << 18  # numbers of a block of rows that stays in cache: 2 MiB
_ROWS = 4096  # rows whose sum rounds to next to nothing; longer sums are added up more finely
_SPARSE_ROWS = 512
_FAR = 100.0  # a step this long is taken wherever it goes down (the loss may be unbounded)
_REUSE = 2.0  # ratio of shifts within which one factorization serves both
_ENOUGH = 0.4  # share of the slope that may be left along a step


@dataclass(frozen=True, eq=False)
class ChunkedLoss:
    """Σ w(softplus(θᵀx) − yθᵀx) − pullᵀθ over rows in files."""

    # Source: docs/central.md, "Label privacy, one Gaussian release"; docs/local.md, debiased
    # likelihood.

    rows: Rows  # x, and y beside them if they are decided
    pull: Vector  # what is known of Σ wyx besides
    # Whether every y, 0 or 1, is known. Else it is left out, and the pull is all that is known.
    decided: bool = False
    longest: float = math.inf  # rows that are longer count less; with infinity every one counts 1
    sample: DebiasedLogistic | None = None  # the same of evenly spaced rows, to start from

    def measure(
        self, points: Float[np.ndarray, "k d"], bent: int
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k d"], Square]:
        """Return values and gradients at some points, and the Hessian at one, in one pass."""
        task = partial(_measured_block, points, bent, self.decided, self.longest)
        values, gradients, hessian = self.rows.fold(task, each_added)
        return values - points @ self.pull, gradients - self.pull, hessian


def _measured_block(
    points: Float[np.ndarray, "k d"],
    bent: int,
    decided: bool,  # noqa: FBT001 (of a task, which takes what it is bound to by place)
    longest: float,
    _first: int,
    block: Matrix,
    *others: Float[np.ndarray, " k"],
) -> list[np.ndarray]:
    """Return values and gradients of a block at some points, and the Hessian at one."""
    margins, counted = np.asarray(block @ points.T), row_weights(block, longest)
    [hessian] = weighted_grams(block, counted * debiased_slope(margins[:, bent]))
    values, slopes = counted @ softplus(margins), counted[:, np.newaxis] * expit(margins)
    if decided:
        # in one sum, which is small at the minimum: two large ones would not cancel exactly
        labels = others[0]
        slopes -= labels[:, np.newaxis]
        values = values - labels @ margins
    return [values, np.asarray((block.T @ slopes).T), hessian]


Objective = MarginLoss | ChunkedLoss


@dataclass(frozen=True)
class _Iterate:
    """Weights, their margins, and the gradient of the loss alone (no ridge) there."""

    # `exact` says that the margins were multiplied out at these weights and not carried along.

    theta: np.ndarray
    margins: np.ndarray
    gradient: np.ndarray
    exact: bool


class _FitState:
    """One data set being fitted: what is shared by all solves on it, and the pass counter."""

    def __init__(
        self,
        loss: MarginLoss,
        atol: float,
        max_passes: int,
        ball: float | None = None,
        *,
        settles: bool = False,
    ) -> None:
        """Start at zero, having passed over nothing."""
        self.loss = loss
        self.matrix = self.loss.rows
        self.transposed = self.loss.rows.T
        self.atol = positive("atol", atol)
        self.max_passes = integer("max_passes", max_passes, at_least=1)
        self.ball = math.inf if ball is None else positive("ball", ball)
        self.settles = settles  # for a point at which rounding ends the descent
        self.seen: Callable[[_Iterate], object] = lambda _: None  # told of points on the way
        self.passes = 0

    def first(self, start: np.ndarray | None) -> _Iterate:
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

    def at(self, theta: np.ndarray, margins: np.ndarray, *, exact: bool) -> _Iterate:
        """Return the point at theta, whose margins are known."""
        residuals = self.loss.slopes(margins)
        residuals -= self.loss.targets
        if len(residuals) <= _ROWS:
            gradient = np.asarray(self.transposed @ residuals)
        else:
            # The rounding of Σ rᵢxᵢ must stay below the certificate, however many rows there are:
            # sums of a few thousand are added in extended precision.
            total, first = np.zeros(self.matrix.shape[1], dtype=np.longdouble), 0
            for part in self._parts:
                last = first + part.shape[1]
                total += part @ residuals[first:last]
                first = last
            gradient = total.astype(np.float64)
        return _Iterate(theta, margins, gradient - self.loss.linear_term, exact)

    @cached_property
    def _parts(self) -> list[Any]:
        """Return the transposes of a few rows at a time."""
        # Of sparse rows fewer: their sums are made one by one, where BLAS keeps several.
        size = _SPARSE_ROWS if issparse(self.matrix) else _ROWS
        firsts = range(0, self.matrix.shape[0], size)
        return [self.matrix[first : first + size].T for first in firsts]

    def exactly(self, theta: np.ndarray) -> _Iterate:
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
        return _Iterate(theta, margins, gradient.astype(float) - self.loss.linear_term, exact=True)

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


def _descend(
    metric: _Metric,
    point: _Iterate,
    shift: float,
    atol: float,
    leave: Callable[[_Iterate, float], bool] | None = None,
) -> _Iterate:
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


class _Metric:
    """The inverse Hessian that L-BFGS builds on top of the approximate one."""

    # What it learns is about the loss alone, so that it survives a change of the shift.
    # Source: docs/local.md, debiased likelihood (Hessian).

    def __init__(self, work: _FitState, point: _Iterate) -> None:
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

    def age(self, point: _Iterate) -> None:
        """Count a pass; measure the Hessian here when the last one has been used enough."""
        if self._age >= self._curvature.patience:
            self._refresh(point)
        self._age += 1

    def recover(self, point: _Iterate) -> bool:
        """Forget what was learned; where there is nothing to forget, give up or settle."""
        if self._age <= 1:
            if self.work.settles:
                return False
            raise self.work.failure()
        self._refresh(point)
        return True

    def _refresh(self, point: _Iterate) -> None:
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

    def learn(self, point: _Iterate, following: _Iterate) -> None:
        """Keep the step and the change of the loss gradient along it."""
        step = following.theta - point.theta
        change = following.gradient - point.gradient
        if float(step @ change) > 1e-14 * norm(step) * norm(change):
            self._pairs.append((step, change))


def _step(
    work: _FitState, point: _Iterate, direction: np.ndarray, gradient: np.ndarray, shift: float
) -> _Iterate | None:
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
        work: _FitState,
        point: _Iterate,
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
            if high is None:
                length = 4 * low[0]
            else:  # the secant's, kept away from the ends
                share = low[1] / (low[1] - high[1])
                length = low[0] + (high[0] - low[0]) * min(max(share, 0.1), 0.9)
            here = self.slope(length)
            if self.accepts(length, slope, here):
                return length
        return None


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

    theta: Vector  # the weights; never outside the ball
    # The certificate, computed anew at `theta`; at most the `atol` asked, unless it comes from
    # `nearest_minimum`.
    gradient_norm: float
    multiplier: float  # ν, what the ball pushes back; 0 where it does not bind
    # Passes over all the data that were used (those over a starting sample are not counted).
    passes: int
    value: float | None = None  # the loss there without the ridge, where no pass was needed for it


def minimize_ridge(
    loss: Objective,
    *,
    ridge: float,
    atol: float,
    ball: float | None = None,
    start: Vector | None = None,
    max_passes: int = 1000,
) -> Solution:
    """Return the weights that minimize the loss plus ridge inside the ball, certified."""
    # Source: docs/local.md, the fit: F(θ) over ‖θ‖ ≤ B.
    shift = _ridge(ridge, ball)
    if isinstance(loss, ChunkedLoss):
        return _minimize_chunked(loss, [shift], ball=ball, atol=atol, start=start)[0]
    work, multiplier = _FitState(loss, atol, max_passes, ball), 0.0
    if start is None:
        start, multiplier = _sampled_start(loss, shift, ball)
    point = work.first(start)
    return _solve(_Metric(work, point), point, shift, multiplier)


def nearest_minimum(loss: Objective, *, ridge: float, atol: float, ball: float) -> Solution:
    """What :func:`minimize_ridge` does or, where rounding stops it before, its best point."""
    # Whether private data allow a certificate must not show, so that nothing is refused here. In
    # real numbers every certificate is reached: the objective is ridge-strongly convex. In floats
    # the gradient ends at its rounding, which whoever uses this has to keep below what is paid for.
    # Source: docs/central.md, "Objective perturbation": an inexact minimizer.
    shift, bound = _ridge(ridge, None), positive("ball", ball)
    if isinstance(loss, ChunkedLoss):
        return _minimize_chunked(loss, [shift], ball=bound, atol=atol, settles=True)[0]
    work = _FitState(loss, atol, _MOST_PASSES, bound, settles=True)
    best: list[Solution] = []  # by what neither ridge nor ball explains of it

    def take(point: _Iterate) -> None:
        """Take in a point, if its margins were multiplied out inside the ball."""
        if point.exact and norm(point.theta) <= bound:
            size, pushed = _unexplained(point.theta, point.gradient, shift, bound)
            if not best or size < best[0].gradient_norm:
                best[:] = [
                    Solution(
                        theta=point.theta, gradient_norm=size, multiplier=pushed, passes=work.passes
                    )
                ]

    work.seen = take
    start, multiplier = _sampled_start(loss, shift, ball)
    origin = work.first(None)
    take(origin)
    ways = [(origin, 0.0)]  # a rough start may be on the wrong side of the ball
    if start is not None:
        ways.insert(0, (work.first(start), multiplier))
    for point, pushed in ways:
        with suppress(ConvergenceError):
            return _solve(_Metric(work, point), point, shift, pushed)
    return best[0]


def _unexplained(
    theta: np.ndarray, gradient: np.ndarray, ridge: float, ball: float
) -> tuple[float, float]:
    """Return the gradient that neither ridge nor ball explains, and what the ball pushes back."""
    whole, pushed = gradient + ridge * theta, 0.0
    if norm(theta) >= ball * _SPHERE:
        pushed = max(0.0, -float(whole @ theta) / ball**2)
    return norm(whole + pushed * theta), pushed


def ridge_path(
    loss: Objective,
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
    if isinstance(loss, ChunkedLoss):
        return _minimize_chunked(loss, shifts, ball=ball, atol=atol)
    work = _FitState(loss, atol, max_passes, ball)
    found: dict[int, Solution] = {}
    point, multiplier = work.first(None), 0.0
    metric = _Metric(work, point)
    for index in sorted(range(len(shifts)), key=lambda i: -shifts[i]):
        work.passes = 0
        found[index] = _solve(metric, point, shifts[index], multiplier)
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
    n, d = loss.rows.shape
    step = n // max(_SAMPLE * d, 1000)
    if step < 4:  # noqa: PLR2004
        return None, 0.0
    sample = loss.sample(step)
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


def _solve(metric: _Metric, point: _Iterate, ridge: float, multiplier: float) -> Solution:
    """Minimize without the ball; where that leaves it, on the sphere."""
    work, ball = metric.work, metric.work.ball

    def outside(point: _Iterate, size: float) -> bool:
        work.seen(point)
        # The first test is a proof (F is ridge-strongly convex), the second a guess, which
        # _on_sphere takes back where it was wrong.
        distance = size / ridge if ridge > 0 else math.inf
        length = norm(point.theta)
        return length - distance > ball or length > 2 * ball

    if multiplier == 0:
        leave = None if math.isinf(ball) else outside
        point = _descend(metric, point, ridge, work.atol, leave)
        work.seen(point)
        if norm(point.theta) <= ball:
            return _certified(work, point, ridge, 0.0)
        multiplier = _next_multiplier(metric, point, ridge, 0.0)[0]
    return _on_sphere(metric, point, ridge, multiplier)


def _certified(work: _FitState, point: _Iterate, ridge: float, multiplier: float) -> Solution:
    """Return the solution at an exact point; refuse one without its certificate."""
    size = norm(point.gradient + (ridge + multiplier) * point.theta)
    if not (point.exact and size <= work.atol):
        raise work.failure()
    return Solution(
        theta=point.theta, gradient_norm=size, multiplier=multiplier, passes=work.passes
    )


def _on_sphere(metric: _Metric, point: _Iterate, ridge: float, multiplier: float) -> Solution:
    """Find the multiplier ν whose minimizer θ(ν) has the norm of the ball."""
    # 1/‖θ(ν)‖ rises with ν and is almost a straight line, so that Newton's method needs a
    # handful of steps. The first are taken from unfinished minimizers, each a pass or two; should
    # that not settle, the rest are taken from finished ones, within a bracket started anew.
    work, ball = metric.work, metric.work.ball
    low, high = 0.0, math.inf
    for trial in range(3 * _HASTY):
        if trial == _HASTY:
            low, high = 0.0, math.inf
        if trial < _HASTY:
            size = norm(point.gradient + (ridge + multiplier) * point.theta)
            tolerance = max(0.1 * size, 0.25 * work.atol)
        else:
            tolerance = work.atol * max(0.5 ** (trial - _HASTY + 1), 1e-3)
        point = _descend(metric, point, ridge + multiplier, tolerance)
        following, offset = _next_multiplier(metric, point, ridge, multiplier)
        if offset > 0:
            low = max(low, multiplier)
        else:
            high = min(high, multiplier)
        if abs(offset) < 0.1:  # noqa: PLR2004
            # the exact point on the sphere, rounded to its inside
            theta = point.theta * (ball / norm(point.theta) * (1 - 2**-52))
            while norm(theta) > ball:
                theta = theta * (1 - 2**-53)
            point = work.exactly(theta)
            work.seen(point)
            pushed = -float(point.gradient @ point.theta) / ball**2 - ridge
            if norm(point.gradient + (ridge + max(pushed, 0.0)) * point.theta) <= work.atol:
                return _certified(work, point, ridge, max(pushed, 0.0))
        if low == 0 and following * ball <= work.atol / 2 and high * ball <= work.atol:
            point = _descend(metric, point, ridge, work.atol)
            work.seen(point)
            if norm(point.theta) <= ball:
                return _certified(work, point, ridge, 0.0)
        multiplier = _inside(following, low, high)
    raise work.failure()


def _inside(multiplier: float, low: float, high: float) -> float:
    """Return the multiplier if it is strictly inside the bracket, else a point that is."""
    if low < multiplier < high:
        return multiplier
    if math.isinf(high):
        return max(2 * low, 1e-300)
    return low + 0.5 * (high - low) if low > 0 else 0.1 * high


def _next_multiplier(
    metric: _Metric, point: _Iterate, ridge: float, multiplier: float
) -> tuple[float, float]:
    """Return Newton's next ν for 1/‖θ(ν)‖ = 1/ball, and ‖θ(ν)‖/ball − 1 as predicted."""
    shift = ridge + multiplier
    metric.shift_to(shift)
    theta = point.theta - metric.solve(point.gradient + shift * point.theta)
    square = float(theta @ theta)
    if square == 0:
        return 0.0, -1.0
    offset = math.sqrt(square) / metric.work.ball - 1
    return multiplier + offset * square / float(theta @ metric.solve(theta)), offset


def ridge_of(mechanism: _Tilt) -> float:
    """Return Λ, which a mechanism has once it is built."""
    assert mechanism.ridge is not None  # noqa: S101 - for the type checker
    return mechanism.ridge


def minimize_tilted(loss: Objective, mechanism: _Tilt, *, ball: float) -> Solution:
    """Return the minimizer of a tilted objective inside the ball; it is never refused."""
    # Feasible, and pushed back by the ball only on its sphere: it is within atol/Λ of the exact
    # one, for the objective is Λ-strongly convex.
    # Source: docs/central.md, "Objective perturbation": an inexact minimizer.
    # The mechanism pays for twice its `atol`, and its least `atol` is above what rounding leaves of
    # a gradient: see `usable_atol`. To refuse what rounding left would tell of the records.
    found = nearest_minimum(loss, ridge=ridge_of(mechanism), atol=mechanism.atol, ball=ball)
    return replace(found, gradient_norm=min(found.gradient_norm, mechanism.atol))


def refuse_drowned(mechanism: _Tilt, *, d: int, ball: float) -> None:
    """Refuse settings with which the noise of the output alone leaves the ball."""
    if mechanism.output_standard_deviation * math.sqrt(d) > ball:
        raise UsageError(
            f"The noise that hides how exact the minimizer is, "
            f"{mechanism.output_standard_deviation:.3g} in each of {d} weights, is larger than "
            f"ball={ball!r}: nothing would be learned. Nothing was spent. Use a larger ridge, a "
            "smaller atol, or a larger ball."
        )


_FILE_PASSES = 60
_ROUNDING = 1e-12  # relative, of a loss that is a sum of very many


@dataclass(eq=False)
class _RidgeSearch:
    """The way to the minimum for one ridge over files."""

    ridge: float  # Λ
    point: Vector  # where the loss is measured next
    size: float = math.inf  # the certificate at the last point that was no worse
    best: tuple[Vector, float] | None = None  # that point, with its objective
    nearest: Solution | None = None  # at the point of the least certificate
    solution: Solution | None = None

    def take(self, value: float, gradient: Vector, ball: float, atol: float, passes: int) -> bool:
        """Take in a measurement; return whether the next point needs a Hessian."""
        theta = self.point
        size, pushed = _unexplained(theta, gradient, self.ridge, ball)
        found = Solution(
            theta=theta, gradient_norm=size, multiplier=pushed, passes=passes, value=value
        )
        if self.nearest is None or size < self.nearest.gradient_norm:
            self.nearest = found
        total = value + 0.5 * self.ridge * float(theta @ theta)
        if self.best is not None and total > self.best[1] + _ROUNDING * abs(self.best[1]):
            self.point = (theta + self.best[0]) / 2
            return False
        self.best, self.size = (theta, total), size
        if size <= atol:
            self.solution = found
        return self.solution is None


def _minimize_chunked(
    loss: ChunkedLoss,
    ridges: Sequence[float],
    *,
    ball: float | None,
    atol: float,
    start: Vector | None = None,
    settles: bool = False,
) -> tuple[Solution, ...]:
    """Return one certified solution for each ridge, from passes over files that all share."""
    # Each pass measures the loss and its gradient at a point of every ridge that is not done, and
    # one Hessian, where it is needed most.
    bound = math.inf if ball is None else ball
    n, d = loss.rows.shape
    starts = [np.zeros(d) if start is None else start] * len(ridges)
    if start is None and loss.sample is not None:  # so that few passes over the files are left
        rows: Any = loss.sample.differences
        share = rows.shape[0] / n
        # A tenth of the sampling noise of the gradient: more would be precision about nothing.
        rough = 0.05 * math.sqrt(float(np.vdot(rows, rows)))
        path = ridge_path(loss.sample, [ridge * share for ridge in ridges], ball=ball, atol=rough)
        starts = [found.theta for found in path]
    searches = [
        _RidgeSearch(ridge, _shortened(point, bound))
        for ridge, point in zip(ridges, starts, strict=True)
    ]
    for passes in range(1, _FILE_PASSES + 1):
        left = [search for search in searches if search.solution is None]
        if not left:
            return tuple(search.solution for search in searches if search.solution)
        bent = int(np.argmax([search.size for search in left]))
        values, gradients, hessian = loss.measure(np.stack([at.point for at in left]), bent)
        for search, value, gradient in zip(left, values, gradients, strict=True):
            if search.take(float(value), gradient, bound, atol, passes):
                search.point = _newton_step(search.point, gradient, hessian, search.ridge, bound)
    if settles:
        return tuple(search.nearest for search in searches if search.nearest)
    raise ConvergenceError(
        f"The fit was not certified to atol={atol!r} within {_FILE_PASSES} passes over the files; "
        "nothing was returned. Raise the ridge or atol."
    )


def _newton_step(
    theta: Vector, gradient: Vector, hessian: Square, ridge: float, ball: float
) -> Vector:
    """Return the minimum over the ball of the quadratic that fits the loss here, plus the ridge."""
    # Source: Nocedal & Wright 2006, ch. 4.3: θ(ν) = (H + (Λ + ν)I)⁻¹(Hθ₀ − g), ‖θ(ν)‖ = B or ν = 0.
    values, vectors = np.linalg.eigh(hessian)
    bend = np.maximum(values, 0.0) + ridge
    target = vectors.T @ (hessian @ theta - gradient)

    def offset(pushed: float) -> float:
        return 1 / ball - 1 / norm(target / (bend + pushed))

    pushed = 0.0
    if norm(target / bend) > ball:
        pushed = norm(target) / ball  # there the norm is at most the ball's, up to rounding
        if offset(pushed) < 0:
            pushed = scipy.optimize.brentq(offset, 0.0, pushed, xtol=1e-300, rtol=1e-15)
    return _shortened(np.asarray(vectors @ (target / (bend + pushed))), ball)


def _shortened(theta: Vector, ball: float) -> Vector:
    """Return weights, shortened until they are not outside the ball."""
    while (length := norm(theta)) > ball:
        theta = theta * (ball / length * (1 - 2**-52))
    return theta
