"""The rewards that may be true, and the least a policy earns under any of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from sordino import _validate
from sordino._validate import Square, Vector
from sordino.errors import DataError, UsageError

_SPAN = 300.0  # range of the logarithm of a multiplier, around the largest curvature


def _share_inside(start: Vector, way: Vector, radius: float, metric: Square | None) -> float:
    """Return how much of a way, at most all of it, stays within a radius of zero."""
    turned = way if metric is None else metric @ way
    square, slope = float(way @ turned), float(start @ turned)
    left = radius**2 - float(start @ (start if metric is None else metric @ start))
    if square + 2 * slope <= left:
        return 1.0
    # the stable root of square·t² + 2·slope·t = left
    root = math.sqrt(max(slope**2 + square * max(left, 0.0), 0.0))
    share = max(left, 0.0) / (slope + root) if slope > 0 else (root - slope) / square
    return min(max(share, 0.0), 1.0)


def _shortest(values: Vector, middle: Vector, radius: float) -> Vector:
    """Return the shortest θ with Σ values·(θ − middle)² ≤ radius²."""

    def theta(log_weight: float) -> Vector:
        weighted = math.exp(log_weight) * (values / values.max())
        return np.asarray(middle * (weighted / (1 + weighted)))

    def excess(log_weight: float) -> float:
        return float(np.sum(values * (middle - theta(log_weight)) ** 2)) - radius**2

    if float(np.sum(values * middle**2)) <= radius**2:
        return np.zeros_like(middle)
    if excess(_SPAN) > 0:
        return np.where(values > 0, middle, 0.0)
    return theta(float(brentq(excess, -_SPAN, _SPAN, xtol=1e-13)))


_FLAT = 1e-9  # relative: a direction is unbounded only where more than rounding points there
_STEPS = 200  # halvings, more than floats can tell apart


@runtime_checkable
class Ellipsoidal(Protocol):
    """A confidence set that is an ellipsoid: what a fitted reward keeps."""

    @property
    def center(self) -> Vector:
        """Return the weights in the middle."""

    @property
    def metric(self) -> Square:
        """Return M, in whose norm the set is a ball."""

    def radius(self, confidence: float) -> float:
        """Return how large the set is, in the metric."""


class WorstCase(NamedTuple):
    """The least value of a policy, and the reward under which it is so low."""

    value: float
    theta: Vector


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlausibleRewards:
    """All θ with ‖θ − center‖_M ≤ radius and, where a ball is given, ‖θ‖ ≤ ball."""

    # Source: docs/planning.md, "The worst case".

    center: Vector  # θ̂, shape (d,)
    # M, symmetric and positive semidefinite, shape (d, d). Where it is singular and no ball is
    # given, nothing bounds the reward in some directions.
    metric: Square
    radius: float  # ≥ 0, finite
    ball: float | None = None  # B > 0, or None

    def __post_init__(self) -> None:
        d = len(_validate.finite_array("center", self.center, ndim=1))
        if not d or _validate.finite_array("metric", self.metric, ndim=2).shape != (d, d):
            raise DataError(f"metric must have shape ({d}, {d}), got {np.shape(self.metric)}.")
        if _validate.non_negative("radius", self.radius) == math.inf:
            raise UsageError("radius must be finite, got inf.")
        largest = float(abs(self.metric).max())
        uneven = float(abs(self.metric - self.metric.T).max())
        if largest == 0 or uneven > _FLAT * largest or self.curvatures[0] < 0:
            raise DataError("metric must be symmetric and positive semidefinite, and not zero.")
        if self.ball is not None:
            _validate.positive("ball", self.ball)
            # no ball may meet the ellipsoid nowhere, or in one point
            least = float(np.linalg.norm(_shortest(self.curvatures, self.middle, self.radius)))
            outside = np.linalg.norm(self.center) > self.ball
            if outside and least >= self.ball * (1 - _FLAT):
                seen = self.curvatures > 0
                # the same question with the roles of the two sets exchanged
                m, c = self.curvatures[seen], self.middle[seen]
                needed = float(np.linalg.norm(_shortest(1 / m, np.sqrt(m) * c, self.ball)))
                raise UsageError(
                    f"No reward is both in the confidence set (radius {self.radius:.6g}) and in "
                    f"the ball of {self.ball!r}: the nearest has norm {least:.6g}. Nothing was "
                    f"planned. Take a ball above {least:.6g}; or a higher confidence or "
                    f"radius_scale, for a radius above {needed:.6g}; or leave the ball out."
                )

    @classmethod
    def of(
        cls,
        known: Ellipsoidal,
        *,
        confidence: float,
        radius_scale: float = 1.0,
        within_ball: bool = True,
    ) -> PlausibleRewards:
        """Return the rewards that a confidence set does not exclude."""
        # Source: docs/planning.md, "The worst case".
        ball = getattr(known, "ball", None)
        return cls(
            center=known.center,
            metric=known.metric,
            radius=_validate.non_negative("radius_scale", radius_scale) * known.radius(confidence),
            ball=ball if within_ball else None,
        )

    def __repr__(self) -> str:
        """Return the sizes; no weights."""
        ball = "" if self.ball is None else f", ball={self.ball:g}"
        return f"PlausibleRewards(d={len(self.center)}, radius={self.radius:.4g}{ball})"

    @cached_property
    def _spectrum(self) -> tuple[Vector, Square]:
        values, vectors = np.linalg.eigh(self.metric)
        rounding = len(values) * np.finfo(float).eps * abs(values).max()
        return np.where(abs(values) <= rounding, 0.0, values), vectors

    @property
    def axes(self) -> Square:
        """The directions in which the metric is diagonal, one in every column."""
        return self._spectrum[1]

    @property
    def curvatures(self) -> Vector:
        """The eigenvalues of the metric, least first; 0 where nothing was seen."""
        return self._spectrum[0]

    @cached_property
    def middle(self) -> Vector:
        """The center, in the directions of the axes."""
        return np.asarray(self.center @ self.axes)

    def worst(self, moments: Vector) -> WorstCase:
        """Return the least value of θᵀq over the set, and a θ that attains it."""
        # Where a ball is given the value is a lower bound by duality, whatever the number of steps,
        # and it is −inf where nothing bounds it.
        # Source: docs/planning.md, "The worst case": without a ball θ̂ᵀq − radius·‖q‖_{M⁻¹}; with
        # one, the largest such value over the ellipsoids M + γI that hold the intersection.
        found = _validate.finite_array("moments", moments, ndim=1)
        if len(found) != len(self.center):
            raise DataError(f"moments must have {len(self.center)} entries, got {len(found)}.")
        size = float(abs(found).max())
        if size == 0:
            return WorstCase(0.0, self.inner)
        q = found / size @ self.axes
        bounded = self._at(0.0, q) if not self._open(q) else None
        if self.ball is not None:
            inside = bounded is not None and np.linalg.norm(bounded.theta) <= self.ball
            bounded = bounded if inside else self._in_ball(self.ball, q)
        if bounded is None:
            return WorstCase(-math.inf, np.full(len(q), np.nan))
        return WorstCase(bounded.value * size, self.axes @ bounded.theta)

    def most(self, rows: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Return a bound on θᵀrow over the set, for every row."""
        # Source: docs/planning.md, "Certificate": θ̂ᵀx + radius·‖x‖_{M⁻¹}, and no more than B‖x‖.
        turned = rows @ self.axes
        estimates, squares = turned @ self.middle, np.square(turned, out=turned)
        seen = self.curvatures > 0
        weights = np.divide(1.0, self.curvatures, out=np.zeros_like(self.middle), where=seen)
        bound = estimates + self.radius * np.sqrt(squares @ weights)
        if self.ball is None and seen.all():
            return np.asarray(bound)
        total = squares @ np.ones(len(weights))
        bound = np.where(squares @ ~seen > _FLAT**2 * total, math.inf, bound)
        return bound if self.ball is None else np.minimum(bound, self.ball * np.sqrt(total))

    def pulled(self, theta: Vector) -> Vector:
        """Return the last point inside the set on the way from :attr:`inner` to θ."""
        # A solver leaves the set by a rounding; a bound must not.
        # Source: docs/planning.md, "The worst case".
        start, way = self.inner, theta - self.inner
        shares = [_share_inside(start - self.center, way, self.radius, self.metric)]
        if self.ball is not None:
            shares.append(_share_inside(start, way, self.ball, None))
        return np.asarray(start + min(shares) * way)

    @cached_property
    def inner(self) -> Vector:
        """A reward inside the set: the center, or what lies between it and the nearest to 0."""
        if self.ball is None or np.linalg.norm(self.center) <= self.ball:
            return self.center
        least = self.axes @ _shortest(self.curvatures, self.middle, self.radius)
        way = self.center - least
        return np.asarray(least + 0.5 * _share_inside(least, way, self.ball, None) * way)

    def _open(self, q: Vector) -> bool:
        """Return whether the ellipsoid does not bound θᵀq."""
        outside = np.linalg.norm(q[self.curvatures == 0])
        return bool(outside > _FLAT * np.linalg.norm(q))

    def _at(self, share: float, q: Vector) -> WorstCase:
        """Return the worst case over {‖θ − θ̂‖²_M + γ‖θ‖² ≤ radius² + γB²}, along the axes."""
        seen = self.curvatures + share > 0
        m, c, q = self.curvatures[seen], self.middle[seen], q[seen]
        shape, ball = m + share, self.ball or 0.0
        room = self.radius**2 + share * (ball**2 - float(np.sum(m * c**2 / shape)))
        reach, width = math.sqrt(max(room, 0.0)), math.sqrt(float(np.sum(q**2 / shape)))
        center = m * c / shape
        # a policy that leaves nothing to chance has no worst direction
        theta = np.where(seen, 0.0, self.middle)
        theta[seen] = center - (reach / width * (q / shape) if width else 0.0)
        return WorstCase(float(center @ q) - reach * width, theta)

    def _in_ball(self, ball: float, q: Vector) -> WorstCase:
        """Return the worst case of an intersection in which the ball is felt."""
        edge = -ball * q / np.linalg.norm(q)
        if np.sum(self.curvatures * (edge - self.middle) ** 2) <= self.radius**2:
            return WorstCase(-ball * float(np.linalg.norm(q)), edge)
        # the weight γ of the ball is right where the worst reward lies on its surface
        low, high = math.log(self.curvatures[-1]) - _SPAN, math.log(self.curvatures[-1]) + _SPAN
        for _ in range(_STEPS):
            middle = (low + high) / 2
            theta = self._at(math.exp(middle), q).theta
            # one of the two constraints is broken; at either end only one of them is exact
            length = float(theta @ theta) / ball**2
            away = float(np.sum(self.curvatures * (theta - self.middle) ** 2))
            outside = length * self.radius**2 > away
            low, high = (middle, high) if outside else (low, middle)
            if high - low <= 1e-15 * abs(middle):  # neighboring floats
                break
        return self._at(math.exp(high), q)
