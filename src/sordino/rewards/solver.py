"""The one solver of reward fits: ridge and ball, and a certificate that is checked.

The objective is ``F(θ) = Σ [softplus(θᵀx) − ỹθᵀx] + (ridge/2)‖θ‖²`` over ``‖θ‖ ≤ ball``, or
the same with another convex function of margins that are linear in θ, as that of ballots.
Passes over the data (one multiplication by the differences, one by their transpose) are
L-BFGS steps whose first metric is an approximate Hessian, refreshed when that is cheaper than
going on; with few features this is Newton's method. What is returned carries the norm of the
gradient at exactly the returned weights, and nothing uncertified is ever returned but by
:func:`nearest_minimum`, for releases in which a refusal would be an output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import issparse

from sordino._validate import integer, non_negative, positive
from sordino.errors import ConvergenceError, UsageError

from ._descent import Metric, Point, Work, descend, norm
from ._margins import MarginLoss, as_margin_loss
from .likelihoods import DebiasedLogistic

__all__ = ["Solution", "minimize_ridge", "nearest_minimum", "ridge_path"]

_SAMPLE = 32  # rows a feature of the sample that a large fit starts on
_MOST_PASSES = 10_000  # of a fit that is never refused: rounding ends it long before
_SPHERE = 1 - 1e-12  # of the ball: beyond it a point is on its surface
_HASTY = 20  # multipliers that are tried on unfinished minimizers


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A minimizer and the proof that it is one.

    Source:
        docs/local.md, the fit: first-order conditions of F over the ball.
        ‖∇F(θ) + multiplier·θ‖ = gradient_norm, multiplier ≥ 0, and multiplier = 0 or ‖θ‖ = ball.

    Attributes:
        theta: The weights; never outside the ball.
        gradient_norm: The certificate, computed anew at ``theta``; at most the ``atol`` asked,
            unless it comes from :func:`nearest_minimum`.
        multiplier: ν, what the ball pushes back; 0 where it does not bind.
        passes: Passes over all the data that were used (those over a starting sample are not
            counted).
    """

    theta: Float[np.ndarray, " d"]
    gradient_norm: float
    multiplier: float
    passes: int


def minimize_ridge(
    loss: DebiasedLogistic | MarginLoss,
    *,
    ridge: float,
    atol: float,
    ball: float | None = None,
    start: Float[np.ndarray, " d"] | None = None,
    max_passes: int = 1000,
) -> Solution:
    """Return the weights that minimize the loss plus ridge inside the ball, certified.

    Source:
        docs/local.md, the fit: F(θ) over ‖θ‖ ≤ B.

    Args:
        loss: The summed loss of the data.
        ridge: Λ ≥ 0 of (Λ/2)‖θ‖².
        atol: Largest norm of the gradient (with the multiplier's term) that is accepted.
        ball: B > 0, or None for no bound. With ridge 0 it is needed: the loss of debiased
            answers can fall without end.
        start: Where to start; 0 if not given. It does not change what is found.
        max_passes: Passes over the data after which the fit is given up.

    Raises:
        UsageError: A setting is out of range, or there is neither ridge nor ball.
        DataError: The differences hold a NaN or an infinity.
        ConvergenceError: The certificate was not reached; nothing is returned.

    Example:
        >>> loss = DebiasedLogistic(np.array([[1.0], [1.0]]), targets=np.array([1.5, 1.5]))
        >>> solution = minimize_ridge(loss, ridge=0.0, ball=2.0, atol=1e-9)
        >>> round(float(solution.theta[0]), 6), round(solution.multiplier, 6)
        (2.0, 0.619203)
    """
    shift = _ridge(ridge, ball)
    work = Work(loss, positive("atol", atol), integer("max_passes", max_passes, at_least=1))
    bound = math.inf if ball is None else positive("ball", ball)
    multiplier = 0.0
    if start is None:
        start, multiplier = _sampled_start(loss, shift, ball)
    point = work.first(start)
    return _solve(Metric(work, point), point, shift, bound, multiplier)


def nearest_minimum(
    loss: DebiasedLogistic | MarginLoss, *, ridge: float, atol: float, ball: float
) -> Solution:
    """Return what :func:`minimize_ridge` does or, where rounding stops it before, its best point.

    Whether private data allow a certificate must not show, so that nothing is refused here. In
    real numbers every certificate is reached: the objective is ridge-strongly convex. In floats
    the gradient ends at its rounding, which whoever uses this has to keep below what is paid for.

    Source:
        docs/central.md, "Objective perturbation": an inexact minimizer.

    Args:
        loss: The summed loss of the data.
        ridge: Λ > 0.
        atol: Norm of the gradient that is good enough.
        ball: B > 0.

    Raises:
        UsageError: A setting is out of range.
        DataError: The differences hold a NaN or an infinity.
    """
    shift, bound = _ridge(ridge, None), positive("ball", ball)
    work = Work(loss, positive("atol", atol), _MOST_PASSES, settles=True)
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

    def __init__(self, work: Work, ridge: float, ball: float) -> None:
        self._work, self._ridge, self._ball = work, ridge, ball
        self._size = math.inf

    def take(self, point: Point) -> None:
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
    loss: DebiasedLogistic | MarginLoss,
    ridges: Sequence[float],
    *,
    atol: float,
    ball: float | None = None,
    max_passes: int = 1000,
) -> tuple[Solution, ...]:
    """Return one certified solution for each ridge, in the order given.

    Faster than one fit after the other: each starts where the next larger ridge ended, and all
    share one approximate Hessian.

    Source:
        docs/local.md, the fit: F(θ) over ‖θ‖ ≤ B.

    Args:
        loss: The summed loss of the data.
        ridges: The Λ ≥ 0 to solve for.
        atol: As in :func:`minimize_ridge`.
        ball: As in :func:`minimize_ridge`.
        max_passes: Passes over the data after which one of the fits is given up.

    Raises:
        UsageError: As in :func:`minimize_ridge`.
        ConvergenceError: As in :func:`minimize_ridge`.
    """
    shifts = [_ridge(ridge, ball) for ridge in ridges]
    bound = math.inf if ball is None else positive("ball", ball)
    work = Work(loss, positive("atol", atol), integer("max_passes", max_passes, at_least=1))
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
    loss: DebiasedLogistic | MarginLoss, ridge: float, ball: float | None
) -> tuple[np.ndarray | None, float]:
    """Return a rough solution on evenly spaced rows, where the data are many times more."""
    whole = as_margin_loss(loss)
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
    point: Point,
    ridge: float,
    ball: float,
    multiplier: float,
    seen: Callable[[Point], None] = lambda _: None,
) -> Solution:
    """Minimize without the ball; where that leaves it, on the sphere."""

    def outside(point: Point, size: float) -> bool:
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


def _certified(work: Work, point: Point, ridge: float, multiplier: float) -> Solution:
    """Return the solution at an exact point; refuse one without its certificate."""
    size = norm(point.gradient + (ridge + multiplier) * point.theta)
    if not (point.exact and size <= work.atol):
        raise work.failure()
    return Solution(
        theta=point.theta, gradient_norm=size, multiplier=multiplier, passes=work.passes
    )


def _on_sphere(
    metric: Metric,
    point: Point,
    ridge: float,
    ball: float,
    multiplier: float,
    seen: Callable[[Point], None],
) -> Solution:
    """Find the multiplier ν whose minimizer θ(ν) has the norm of the ball.

    1/‖θ(ν)‖ rises with ν and is almost a straight line, so that Newton's method needs a
    handful of steps. The first are taken from unfinished minimizers, each a pass or two; should
    that not settle, the rest are taken from finished ones, within a bracket started anew.
    """
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


def _tolerance(work: Work, size: float, trial: int) -> float:
    """Return how far the minimizer for one multiplier is worth finishing."""
    if trial < _HASTY:
        return max(0.1 * size, 0.25 * work.atol)
    return work.atol * max(0.5 ** (trial - _HASTY + 1), 1e-3)


def _scaled(work: Work, point: Point, ball: float) -> Point:
    """Return the exact point on the sphere, rounded to its inside."""
    theta = point.theta * (ball / point.norm * (1 - 2**-52))
    while norm(theta) > ball:
        theta = theta * (1 - 2**-53)
    return work.exactly(theta)


def _next_multiplier(
    metric: Metric, point: Point, ridge: float, multiplier: float, ball: float
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
