"""The rewards that may be true, the least a policy earns under any, and what makes it largest.

Here is the one way into the conic solver. A second-order cone program gives a policy that is exact,
for what fits into memory. For all else the policy whose worst case is best is found from best
responses alone, with its duality gap. A best response is the policy that is best under one reward.
A few of them are kept, the best mixture of these is found exactly, and the best response to that
mixture's worst reward is added, until it adds nothing. One engine serves candidates, Markov
decision processes and whatever a user can answer for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import clarabel
import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import brentq, nnls

from sordino import _validate
from sordino._validate import Square, Vector
from sordino.errors import ConvergenceError, DataError, UsageError
from sordino.rewards.confidence import AnswersNeeded, Ellipsoid

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


@runtime_checkable
class Ellipsoidal(Protocol):
    """A confidence set that is an ellipsoid, as a fitted reward keeps one or a user makes it."""

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
    confidence: float = 0.0  # how often the set holds the true reward, if it is one of a fit
    radius_scale: float = 1.0  # what the radius of the fit was multiplied by

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
        ball = getattr(known, "ball", None)
        return cls(
            center=known.center,
            metric=known.metric,
            radius=_validate.non_negative("radius_scale", radius_scale) * known.radius(confidence),
            ball=ball if within_ball else None,
            confidence=confidence,
            radius_scale=float(radius_scale),
        )

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
        # what the ellipsoid does not bound
        free = np.linalg.norm(q[self.curvatures == 0]) > _FLAT * np.linalg.norm(q)
        bounded = None if free else self._at(0.0, q)
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
        for _ in range(200):  # halvings, more than floats can tell apart
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


Block: TypeAlias = tuple[Any, Float[np.ndarray, " _"], list[Any]]
"""Rows A, their bounds b, and the cones that b − Ax is in."""

_GOOD = {"Solved", "AlmostSolved", "InsufficientProgress", "NumericalError", "MaxIterations"}


def solve_conic(
    cost: Float[np.ndarray, " x"], blocks: Sequence[Block], *, quadratic: np.ndarray | None = None
) -> tuple[Float[np.ndarray, " x"], Float[np.ndarray, " z"]]:
    """Return the minimizer of a conic program, and the multipliers of its rows."""
    # Every caller certifies by itself what is returned, so an answer that the solver only calls
    # almost solved is passed on.
    # Source: docs/planning.md, "Two solvers": minimize costᵀx + xᵀPx/2 subject to b − Ax in a cone.
    matrix = sparse.csc_matrix(sparse.vstack([block for block, _, _ in blocks]))
    bounds = np.concatenate([bound for _, bound, _ in blocks])
    n = len(cost)
    squares = (
        sparse.csc_matrix((n, n)) if quadratic is None else sparse.triu(quadratic, format="csc")
    )
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1  # the same numbers on every machine
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-10  # in its own units
    solver = clarabel.DefaultSolver(
        squares, cost, matrix, bounds, [cone for *_, group in blocks for cone in group], settings
    )
    found = solver.solve()
    x, z = np.array(found.x), np.array(found.z)
    if str(found.status) not in _GOOD or not (np.isfinite(x).all() and np.isfinite(z).all()):
        raise ConvergenceError(
            f"The conic solver stopped with {found.status}. No policy was returned. Bring features "
            "and weights to a common scale of about 1."
        )
    return x, z


def refuse_gap(upper: float, value: float, gap: float) -> None:
    """Refuse a solution that its own certificate does not show to be within the gap."""
    if upper - value > gap:
        raise ConvergenceError(
            f"gap={gap!r} could not be certified: {upper - value:.3g} was reached. No policy was "
            "returned. Allow a larger gap, or solver='frank-wolfe', or bring features and weights "
            "to a common scale of about 1."
        )


def reach_of(rewards: PlausibleRewards) -> Vector:
    """Return how far the set reaches along each axis at most: units in which it has size 1."""
    # Source: docs/planning.md, "Two solvers".
    with np.errstate(divide="ignore"):
        widths = rewards.radius / np.sqrt(rewards.curvatures)
    if rewards.ball is None:  # what nothing bounds is no direction to search
        return np.where(np.isfinite(widths), widths, 0.0)
    return np.minimum(np.where(rewards.curvatures > 0, widths, np.inf), 2 * rewards.ball)


def second_order_rows(rewards: PlausibleRewards, columns: int) -> list[Block]:
    """Return the rows that keep θ = center + reach · z in the set, z the first d variables."""
    # Source: docs/planning.md, "Two solvers".
    reach, d = reach_of(rewards), len(rewards.center)
    found = []
    if rewards.radius > 0:
        shape = np.sqrt(rewards.curvatures) * reach / rewards.radius
        found.append(_cone(shape, np.zeros(d), columns))
    if rewards.ball is not None:
        found.append(_cone(reach / rewards.ball, rewards.middle / rewards.ball, columns))
    return found


def _cone(shape: Vector, middle: Vector, columns: int) -> Block:
    """Return the rows of ‖middle + shape · z‖ ≤ 1."""
    d = len(shape)
    at = np.arange(d)
    matrix = sparse.csc_matrix((-shape, (at + 1, at)), shape=(d + 1, columns))
    return matrix, np.concatenate([[1.0], middle]), [clarabel.SecondOrderConeT(d + 1)]


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowProgram:
    """Policies as the points of a polytope: x ≥ 0, constraints · x = totals."""

    features: Any  # what each variable adds to the mean features, shape (m, d), dense or sparse
    constraints: Any  # shape (c, m), dense or sparse
    totals: Float[np.ndarray, " c"]  # shape (c,)


def solve_flows(
    rewards: PlausibleRewards, program: FlowProgram, *, reference_vector: Vector
) -> tuple[Float[np.ndarray, " m"], Vector]:
    """Return the x whose worst case is best, and the reward that shows it."""
    # Source: docs/planning.md, "Two solvers": maximize θ̂ᵀ(q − u) − radius·‖q − u‖_{M⁻¹} − B‖u‖, q
    # = featuresᵀx − v; without a ball u = 0.
    turned = sparse.csc_array(program.features @ rewards.axes)
    # in units in which features and rewards are of size 1
    unit = float(abs(turned).max()) or 1.0
    scale = float(np.linalg.norm(rewards.middle) + np.linalg.norm(reach_of(rewards))) or 1.0
    (m, d), c, eye = turned.shape, len(program.totals), sparse.eye_array
    seen = rewards.curvatures > 0
    shape = np.zeros(d)
    shape[seen] = rewards.radius / scale / np.sqrt(rewards.curvatures[seen])
    bound = sparse.csc_array(([-1.0], ([0], [0])), shape=(d + 1, 1))
    width, length = (
        sparse.diags_array(-each, offsets=-1, shape=(d + 1, d)) for each in (shape, np.ones(d))
    )
    zero, positive, norm = clarabel.ZeroConeT, clarabel.NonnegativeConeT, clarabel.SecondOrderConeT
    # The variables: x; p and u, p + u = q, and p = 0 where nothing was seen; bounds on their norms.
    rows: list[tuple[Any, int, list[Any]]] = [
        (zero, c, [program.constraints, None, None, None, None]),
        (zero, d, [turned.T / unit, -eye(d), -eye(d), None, None]),
        (positive, m, [-eye(m), None, None, None, None]),
        (zero, d - int(seen.sum()), [None, eye(d, format="csr")[~seen], None, None, None]),
        (norm, d + 1, [None, width, None, bound, None]),
        (norm, d + 1, [None, None, length, None, bound]),
    ]
    cost = [np.zeros(m), -rewards.middle / scale, np.zeros(d), np.ones(1)]
    if rewards.ball is None:
        rows = [(cone, size, [x, p, one]) for cone, size, (x, p, _, one, _) in rows[:-1]]
        del cost[2]
    else:
        cost.append(np.full(1, rewards.ball / scale))
    rows = [row for row in rows if row[1]]
    bounds = np.zeros(sum(size for _, size, _ in rows))
    bounds[: c + d] = np.append(program.totals, reference_vector @ rewards.axes / unit)
    matrix = sparse.block_array([parts for *_, parts in rows], format="csc")
    cones = [cone(size) for cone, size, _ in rows]
    found, multipliers = solve_conic(np.concatenate(cost), [(matrix, bounds, cones)])
    # what one more unit of features would be worth is the reward that is worst for the policy
    theta = rewards.axes @ (-scale * multipliers[c : c + d])
    return np.maximum(found[:m], 0.0), rewards.pulled(theta)


Response: TypeAlias = tuple[Vector, Any]
"""Mean features of a policy, and whatever tells which policy it is."""

_BestResponse: TypeAlias = Callable[[Vector], Response]
"""From a reward θ to the policy whose mean features q make θᵀq largest."""

_IDLE = 5  # rounds after which a response that the mixture does not use is forgotten
_PROGRESS = 0.01  # of the gap: what the value gains at least between two times of forgetting
_NEGLIGIBLE = 1e-9  # a weight that only an interior-point solver gives
_ROUNDING = 1e-12  # relative to the values: a gap below it is none
_PLANES = 200  # best responses that are asked for how many answers are needed
_NEAR = 0.01  # of what the estimate promises: a gain below it is none there


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mixture:
    """Policies and how often each is followed; worst-case optimal up to the gap."""

    weights: Float[np.ndarray, " j"]  # > 0, summing to 1; at most d + 1
    responses: tuple[Response, ...]  # mean features of every policy, and what the oracle said of it
    # Mean features of the mixture, less the reference vector, shape (d,).
    moments: Vector
    value: float  # its worst case, the least θᵀ moments over the set
    upper: float  # what no policy exceeds in the worst case
    theta: Vector  # the reward that shows `upper`

    @property
    def gap(self) -> float:
        """How much a better policy could gain in the worst case, at most."""
        return max(self.upper - self.value, 0.0)


def best_mixture(
    rewards: PlausibleRewards,
    best_response: _BestResponse,
    *,
    reference_vector: Vector | None = None,
    start: Sequence[Response] = (),
    gap: float = 1e-4,
) -> Mixture:
    """Return the mixture of policies whose worst case is best, certified up to the gap."""
    # Source: docs/planning.md, "Frank–Wolfe by best responses".
    wanted, d = _validate.positive("gap", gap), len(rewards.center)
    offset = np.zeros(d) if reference_vector is None else reference_vector
    kept = _Columns(rewards, one_for_each_feature("reference_vector", offset, d))
    for response in start:
        kept.add(response)
    shown = rewards.inner
    upper = kept.add(best_response(shown)) @ shown
    marked = -math.inf
    for rounds in range(1, 2001):  # noqa: B007 (for the message)
        theta, weights = kept.solve()
        moments = weights @ kept.moments
        value = kept.worst(moments)
        found = best_response(theta)
        reached = float(theta @ (kept.checked(found)[0] - kept.offset))
        if reached < upper:
            upper, shown = reached, theta
        if upper - value <= wanted:
            return kept.mixture(weights, upper=float(upper), theta=shown)
        if reached <= float(np.max(kept.moments @ theta)) + _ROUNDING * kept.size:
            break  # nothing is left to add, so what is left of the gap is rounding
        kept.idle = np.where(weights > _NEGLIGIBLE, 0, kept.idle + 1)
        # forgetting without progress would ask the same questions again for ever
        if value - marked >= _PROGRESS * (upper - value):
            marked = value
            kept.forget()
        kept.add(found)
    raise ConvergenceError(
        f"gap={gap!r} could not be certified: {upper - value:.3g} was reached in {rounds} rounds, "
        f"for values of about {kept.size:.3g}. No policy was returned. Allow a larger gap, or "
        "bring features and weights to a common scale of about 1."
    )


def stated(
    reward: Any,
    rewards: PlausibleRewards,
    best_response: _BestResponse,
    offset: Vector,
    *,
    certain: bool,
) -> dict[str, Any]:
    """Return the fields of a result that say how much it proves, and how many answers it takes."""
    # A policy is certain to gain on the reference if the rewards under which none does are farther
    # from the center than the radius. The nearest of them is found by cutting planes, one best
    # response each; the way to it is that of a mixture.
    # Source: docs/local.md, "Where pessimism bites".
    known, now = getattr(reward, "ellipsoid", reward), getattr(reward, "pairs", None)
    needed = AnswersNeeded(1.0, now) if certain else None
    if not certain and isinstance(known, Ellipsoid):
        kept, root = _Columns(rewards, offset), np.sqrt(rewards.curvatures)
        theta, way = rewards.center, np.zeros(len(offset))
        most = left = float(kept.add(best_response(theta)) @ theta)
        while left > _NEAR * most and len(kept.moments) <= _PLANES:
            weights, _ = nnls((kept.moments @ rewards.axes / root).T, root * rewards.middle)
            way = weights @ kept.moments
            theta = rewards.center - rewards.axes @ (way @ rewards.axes / rewards.curvatures)
            left = float(kept.add(best_response(theta)) @ theta)
        needed = AnswersNeeded.of(
            known, way, confidence=rewards.confidence, scale=rewards.radius_scale, now=now
        )
    terms = {name: getattr(rewards, name) for name in ("confidence", "radius_scale")}
    return terms | {"guarantee": getattr(reward, "guarantee", None), "needed": needed}


class _Columns:
    """The policies that are kept, and the best mixture of them."""

    def __init__(self, rewards: PlausibleRewards, offset: Vector) -> None:
        self.rewards, self.offset = rewards, offset
        self.responses: list[Response] = []
        self.moments = np.empty((0, len(offset)))
        # for how many rounds the best mixture has done without each policy
        self.idle = np.empty(0, dtype=np.int64)

    def checked(self, response: object) -> Response:
        """Return a response; refuse one that is no pair, or whose features are none."""
        if not isinstance(response, tuple) or len(response) != 2:  # noqa: PLR2004
            response = (response, None)
        return one_for_each_feature(
            "best_response(theta)", response[0], len(self.offset)
        ), response[1]

    def add(self, response: object) -> Vector:
        """Keep one more policy; return its mean features less the reference vector."""
        found = self.checked(response)
        self.responses.append(found)
        self.moments = np.vstack([self.moments, found[0] - self.offset])
        self.idle = np.append(self.idle, 0)
        return np.asarray(self.moments[-1])

    def forget(self) -> None:
        """Drop the policies that the best mixture has done without for some rounds."""
        chosen = self.idle <= _IDLE
        self.responses = [self.responses[at] for at in np.flatnonzero(chosen)]
        self.moments, self.idle = self.moments[chosen], self.idle[chosen]

    @property
    def size(self) -> float:
        """The largest value that any kept policy has under any reward of the set, about."""
        turned = self.moments @ self.rewards.axes
        reach = np.linalg.norm(turned * reach_of(self.rewards), axis=1)
        return float(np.max(abs(turned @ self.rewards.middle) + reach)) or 1.0

    def worst(self, moments: Vector) -> float:
        """Return the worst case of a mixture; refuse one that nothing bounds."""
        value = self.rewards.worst(moments).value
        if value == -math.inf:
            raise UsageError(
                "Nothing bounds the worst case: policies differ from the reference vector in a "
                "direction that no comparison saw. No policy was returned. Subtract the mean "
                "features of a reference policy, or fit with a ridge, or give a ball."
            )
        return value

    def solve(self) -> tuple[Vector, Float[np.ndarray, " j"]]:
        """Return the reward that is worst for the best mixture, and the mixture's weights."""
        # In θ: minimize the largest θᵀq over the set; the multipliers are the weights.
        rewards, (count, d) = self.rewards, self.moments.shape
        if rewards.radius == 0:
            best = np.argmax(self.moments @ rewards.center)
            return rewards.center, (np.arange(count) == best).astype(np.float64)
        turned, size = self.moments @ rewards.axes / self.size, reach_of(rewards)
        rows = sparse.csc_matrix(np.hstack([turned * size, -np.ones((count, 1))]))
        linear = (rows, -(turned @ rewards.middle), [clarabel.NonnegativeConeT(count)])
        cost = np.append(np.zeros(d), 1.0)
        x, multipliers = solve_conic(cost, [linear, *second_order_rows(rewards, d + 1)])
        weights = np.maximum(multipliers[:count], 0.0)
        theta = rewards.pulled(rewards.axes @ (rewards.middle + size * x[:d]))
        return theta, weights / weights.sum()

    def mixture(self, weights: Float[np.ndarray, " j"], *, upper: float, theta: Vector) -> Mixture:
        """Return the result, in as few policies as its mean features allow."""
        some = np.where(weights > _NEGLIGIBLE, weights, 0.0)
        fewer = _few(self.moments, some / some.sum())
        lost = self.rewards.worst(fewer @ self.moments).value
        asked = self.rewards.worst(weights @ self.moments).value
        # tidying up must not cost more than the rounding that it removes
        weights = fewer if lost >= asked - _NEGLIGIBLE * self.size else weights
        used = np.flatnonzero(weights)
        moments = weights @ self.moments
        return Mixture(
            weights=weights[used],
            responses=tuple(self.responses[at] for at in used),
            moments=moments,
            value=self.rewards.worst(moments).value,
            upper=upper,
            theta=theta,
        )


def _few(
    moments: Float[np.ndarray, "j d"], weights: Float[np.ndarray, " j"]
) -> Float[np.ndarray, " j"]:
    """Return weights of at most d + 1 rows with the same mean (Carathéodory)."""
    weights = weights.copy()
    while np.count_nonzero(weights) > moments.shape[1] + 1:
        used = np.flatnonzero(weights)[: moments.shape[1] + 2]
        system = np.column_stack([moments[used], np.ones(len(used))])
        way = np.linalg.qr(system, mode="complete")[0][:, -1]  # moves no mean, and no total
        with np.errstate(divide="ignore"):
            steps = np.where(way > 0, weights[used] / way, math.inf)
        first = int(np.argmin(steps))
        weights[used] = np.maximum(weights[used] - steps[first] * way, 0.0)
        weights[used[first]] = 0.0
    return np.asarray(weights / weights.sum())


def one_for_each_feature(name: str, value: object, d: int) -> Vector:
    """Return d finite numbers."""
    array = _validate.finite_array(name, value, ndim=1)
    if len(array) != d:
        raise DataError(f"{name} must have {d} entries, one for each feature, got {len(array)}.")
    return array
