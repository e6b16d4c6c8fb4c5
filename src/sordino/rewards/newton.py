"""The minimum of a sum over chunks, inside a ball: Newton's method, a pass over the data a step.

Several ridges are solved for at once, since reading costs more than adding up. Each pass measures
the loss and its gradient at a point of every ridge, and one Hessian, where it is needed most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from jaxtyping import Float
from scipy.special import expit

from sordino.engines.engine import ChunkedRows
from sordino.errors import ConvergenceError
from sordino.mechanisms.grid import row_weights

from .covariance import debiased_slope
from .pair_losses import softplus, weighted_grams
from .solver import Solution

_PASSES = 60
_ROUNDING = 1e-12  # relative, of a loss that is a sum of very many
_SPHERE = 1 - 1e-12  # of the ball: beyond it a point is on its surface


@dataclass(frozen=True, eq=False)
class Measured:
    """The summed loss at some points."""

    values: Float[np.ndarray, " k"]  # at each point
    gradients: Float[np.ndarray, "k d"]  # likewise
    hessian: Float[np.ndarray, "d d"]  # at the one point that was asked for

    def plus(self, other: Measured) -> Measured:
        """Return the sum of two parts of the data."""
        return Measured(
            self.values + other.values,
            self.gradients + other.gradients,
            self.hessian + other.hessian,
        )


@dataclass(frozen=True, eq=False)
class ChunkedLoss:
    """Σ (softplus(θᵀx) − yθᵀx) − pullᵀθ over rows in many files."""

    # Source: docs/central.md, "Label privacy, one Gaussian release"; docs/local.md, debiased
    # likelihood.

    rows: ChunkedRows  # x, and y beside them if they are decided
    pull: Float[np.ndarray, " d"]  # what is known of Σ yx besides
    # Whether every y, 0 or 1, is known. Else it is left out, and the pull is all that is known of Σ
    # yx.
    decided: bool = False
    longest: float = math.inf  # rows that are longer count less; with infinity every one counts 1

    def measure(self, points: Float[np.ndarray, "k d"], bent: int) -> Measured:
        """Return the loss at some points, and its Hessian at one of them, in one pass."""
        found = self.rows.fold(_Measure(points, bent, self.decided, self.longest), Measured.plus)
        known = points @ self.pull
        return Measured(found.values - known, found.gradients - self.pull, found.hessian)


@dataclass(frozen=True, eq=False)
class _Measure:
    """The task: the loss of a block at some points."""

    points: Float[np.ndarray, "k d"]
    bent: int
    decided: bool
    longest: float

    def __call__(self, _first: int, block: Any, *others: Any) -> Measured:
        """Return values and gradients at all points, and the Hessian at one."""
        margins = np.asarray(block @ self.points.T)
        counted = row_weights(block, self.longest)
        [hessian] = weighted_grams(block, counted * debiased_slope(margins[:, self.bent]))
        values, slopes = counted @ softplus(margins), counted[:, np.newaxis] * expit(margins)
        if self.decided:
            # in one sum, which is small at the minimum: two large ones would not cancel exactly
            labels = others[0]
            slopes -= labels[:, np.newaxis]
            values = values - labels @ margins
        return Measured(values, np.asarray((block.T @ slopes).T), hessian)


@dataclass(eq=False)
class _Search:
    """The way to the minimum for one ridge."""

    ridge: float  # Λ
    point: Float[np.ndarray, " d"]  # where the loss is measured next
    # The best point so far, with its objective and gradient, both with the ridge.
    best: tuple[Float[np.ndarray, " d"], float] | None = None
    solution: Solution | None = None
    # The certificate at the last point: the gradient that neither ridge nor ball explains.
    size: float = math.inf
    nearest: Solution | None = None  # the point of the least certificate

    def take(
        self, value: float, gradient: Float[np.ndarray, " d"], ball: float, atol: float, passes: int
    ) -> bool:
        """Take in a measurement; return whether the next point needs a Hessian."""
        theta = self.point
        whole = gradient + self.ridge * theta
        pushed = (
            max(0.0, -float(whole @ theta) / ball**2) if _norm(theta) >= ball * _SPHERE else 0.0
        )
        size = _norm(whole + pushed * theta)
        found = Solution(theta=theta, gradient_norm=size, multiplier=pushed, passes=passes)
        if self.nearest is None or size < self.nearest.gradient_norm:
            self.nearest = found
        total = value + 0.5 * self.ridge * float(theta @ theta)
        if self.best is not None and total > self.best[1] + _ROUNDING * abs(self.best[1]):
            self.point = (theta + self.best[0]) / 2
            return False
        self.best = theta, total
        self.size = size
        if size <= atol:
            self.solution = found
        return self.solution is None


def minimize_chunked(
    loss: ChunkedLoss,
    ridges: Sequence[float],
    *,
    ball: float,
    atol: float,
    starts: Float[np.ndarray, "k d"],
    settles: bool = False,
) -> tuple[tuple[Solution, ...], Float[np.ndarray, " k"]]:
    """Return one certified solution for each ridge, and the loss there without the ridge."""
    # Source: docs/local.md, the fit: F(θ) over ‖θ‖ ≤ B, and its first-order conditions.
    searches = [
        _Search(ridge, _inside(start, ball)) for ridge, start in zip(ridges, starts, strict=True)
    ]
    values = np.zeros(len(searches))
    for passes in range(1, _PASSES + 1):
        open_ones = [index for index, search in enumerate(searches) if search.solution is None]
        if not open_ones:
            return tuple(search.solution for search in searches if search.solution), values
        points = np.stack([searches[index].point for index in open_ones])
        bent = int(np.argmax([searches[index].size for index in open_ones]))
        found = loss.measure(points, bent)
        for place, index in enumerate(open_ones):
            search, gradient = searches[index], found.gradients[place]
            values[index] = found.values[place]
            if search.take(float(found.values[place]), gradient, ball, atol, passes):
                search.point = _newton(search.point, gradient, found.hessian, search.ridge, ball)
    if settles:
        return tuple(search.nearest for search in searches if search.nearest), values
    raise ConvergenceError(
        f"The fit was not certified to atol={atol!r} within {_PASSES} passes over the files; "
        "nothing was returned. Raise the ridge or atol."
    )


def _newton(
    theta: Float[np.ndarray, " d"],
    gradient: Float[np.ndarray, " d"],
    hessian: Float[np.ndarray, "d d"],
    ridge: float,
    ball: float,
) -> Float[np.ndarray, " d"]:
    """Return the minimum over the ball of the quadratic that fits the loss here, plus the ridge."""
    # Source: Nocedal & Wright 2006, ch. 4.3: θ(ν) = (H + (Λ + ν)I)⁻¹(Hθ₀ − g), ‖θ(ν)‖ = B or ν = 0.
    values, vectors = np.linalg.eigh(hessian)
    bend = np.maximum(values, 0.0) + ridge
    target = vectors.T @ (hessian @ theta - gradient)

    def moved(pushed: float) -> Float[np.ndarray, " d"]:
        return np.asarray(target / (bend + pushed))

    if _norm(moved(0.0)) <= ball:
        return np.asarray(vectors @ moved(0.0))
    most = _norm(target) / ball  # there the norm is at most the ball's
    pushed = _root(lambda nu: 1 / ball - 1 / _norm(moved(nu)), most)
    return _inside(np.asarray(vectors @ moved(pushed)), ball)


def _root(function: Callable[[float], float], most: float) -> float:
    """Return where a function that falls from above 0 to below it crosses."""
    if function(most) >= 0:  # by rounding
        return most
    return float(scipy.optimize.brentq(function, 0.0, most, xtol=1e-300, rtol=1e-15))


def _inside(theta: Float[np.ndarray, " d"], ball: float) -> Float[np.ndarray, " d"]:
    """Return weights, shortened until they are not outside the ball."""
    while (length := _norm(theta)) > ball:
        theta = theta * (ball / length * (1 - 2**-52))
    return theta


def _norm(vector: Float[np.ndarray, " d"]) -> float:
    """Return the Euclidean length."""
    return math.sqrt(float(vector @ vector))
