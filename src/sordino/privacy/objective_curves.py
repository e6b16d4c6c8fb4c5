"""The curves δ(ε) of objective perturbation: a minimizer released after its objective was tilted.

Every curve is an expectation over noise N of something that grows with a loss f(N), and f is
convex in N. So on a cell of noise the loss stays below its chord, and a sum over cells bounds the
expectation from above, however coarse the cells are. Here μ is the bound on one record's gradient
over the standard deviation of the tilt, and κ that bound squared over the ridge.

Replacing a record is removing and adding one. The removal is a Gaussian leg without a Jacobian, the
addition has one; both are followed on probabilities of events, which loses less than adding ε and δ
twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx, gammainc, gammaincc, ndtr

from sordino._validate import integer, non_negative, number, positive

from .conversions import gaussian_delta

_LARGEST_LOSS = 1e9  # losses beyond it are read as this one

_UP = 1 + 1e-10  # more than sums and tails of the normal lose to rounding
_SMALLEST = 2.3e-308  # what underflows is rounded up to about the smallest normal float
_LEAST_MU = 1e-9
_BEYOND = 8e-24  # at ε = 10μ + μ² gaussian_delta is at most Φ(−10)
_OVERFLOW = -37.0


@dataclass(frozen=True)
class _Cells:
    """Masses of cells of noise, and where in each cell its mean lies at most, from 0 to 1."""

    mass: Float[np.ndarray, " m"]
    mean: Float[np.ndarray, " m"]
    below: float
    above: float


@dataclass(frozen=True)
class _Curve:
    """Losses at the ends of cells, never less than the true ones, which are convex in the noise."""

    cells: _Cells
    losses: Float[np.ndarray, " ends"]

    def delta(self, epsilon: float, mu_output: float) -> float:
        """Return an upper bound on E[gaussian_delta(ε − loss, μ_output)]."""
        # gaussian_delta falls in ε, has a second derivative of at least −1, and of at least 0 above
        # μ²/2. On a cell it therefore exceeds its chord by at most (rise of the loss)²/8, or not at
        # all.
        epsilon = min(max(epsilon, -_LARGEST_LOSS), _LARGEST_LOSS)
        spare = epsilon - self.losses
        missed = _missed(spare, mu_output)
        bulge = np.where(spare[1:] < mu_output**2 / 2, np.diff(self.losses) ** 2 / 8, 0.0)
        inside = missed[:-1] + self.cells.mean * np.diff(missed) + bulge
        outside = self.cells.below * float(missed[0]) + self.cells.above
        return min(1.0, (float(inside @ self.cells.mass) + outside) * _UP + _SMALLEST)


def _normal_cells(ends: Float[np.ndarray, " ends"]) -> _Cells:
    """Return the cells of a standard normal, whose log-density has the slope −N."""
    lower, upper = ndtr(ends), ndtr(-ends)
    mass = np.where(ends[1:] > 0, upper[:-1] - upper[1:], np.diff(lower))
    return _Cells(mass, _mean(ends, -ends[:-1]), float(lower[0]), float(upper[-1]))


def _mean(
    ends: Float[np.ndarray, " ends"], slope: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " m"]:
    """Return where the mean of every cell lies at most, as a share of the cell."""
    # A log-density of slope at most k on a cell of width h has its mean at most k h²/12 past the
    # middle: that is so of the exponential of slope k, and the ratio to it falls.
    return np.asarray(np.minimum(1.0, 0.5 + np.maximum(slope, 0.0) * np.diff(ends) / 12))


def _missed(spare: Float[np.ndarray, " m"], mu: float) -> Float[np.ndarray, " m"]:
    """Return an upper bound on gaussian_delta of many ε, within about 1e-8 where μ ≥ 1e-5."""
    # δ(ε) = φ(u)(R(u) − R(u + μ)), u = ε/μ − μ/2, R the Mills ratio; for ε < 0 the mirror image.
    # The difference loses digits in proportion to 1/μ, which the last factor makes up for.
    missed = np.asarray(-np.expm1(np.minimum(0.0, spare)))
    if mu > 0:
        mu = max(mu, _LEAST_MU)
        near = np.abs(spare) <= 10 * mu + mu * mu
        # an upper bound on gaussian_delta where |ε| ≤ 10μ + μ²
        size = np.abs(spare[near])
        below = size / mu - mu / 2
        tails = np.sqrt(np.pi / 2) * (_scaled_tail(below) - _scaled_tail(below + mu))
        density = np.exp(-below * below / 2) / math.sqrt(2 * math.pi)
        lost = 1e-9 + 1e-14 * (1 + np.abs(below)) / mu
        # where u is far below zero the Mills ratio overflows, and δ is 1 as far as floats can tell
        delta = np.where(below > _OVERFLOW, density * tails * (1 + lost), 1.0)
        mirrored = np.exp(-size) * delta - np.expm1(-size)
        missed[near] = np.where(spare[near] < 0, mirrored, delta)
        missed[~near] += _BEYOND
    return np.asarray(np.minimum(1.0, missed))


def _scaled_tail(values: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Return erfcx(values/√2), the Mills ratio up to √(π/2); where it would overflow, large."""
    return np.asarray(erfcx(np.maximum(values, _OVERFLOW) / math.sqrt(2)))


_CELLS = 4096
_REACH = 10.0  # standard deviations past the first noise that matters; beyond, δ is taken as 1
_LOWEST = -12.0  # what lies below counts as much as what lies there
_FARTHEST = 1e6
_HALVINGS = 50
_LARGEST_MU, _LARGEST_KAPPA = 1e4, 1e100  # beyond, only a simple bound


def slack_of_jacobian(kappa: float) -> float:
    """Return J = log(1 + κ/4), the most that curvature adds to the loss."""
    # Source: docs/central.md, "Objective perturbation": the logistic loss has slope s and curvature
    # s(1 − s), so that log(1 + κ s(1 − s)) ≤ log(1 + κ/4).
    return math.log1p(non_negative("kappa", kappa) / 4)


def _objective_perturbation_delta_closed_form(epsilon: float, mu: float, kappa: float) -> float:
    """A simple upper bound on the δ of objective perturbation, under zero-out or add/remove."""
    # Source: docs/central.md, "Objective perturbation": the Jacobian is split off, J = log(1 +
    # κ/4).
    spare, mu = number("epsilon", epsilon) - slack_of_jacobian(kappa), non_negative("mu", mu)
    if math.isnan(spare):  # ∞ − ∞
        return 1.0
    if spare >= 0:
        return gaussian_delta(spare, mu)
    # 1 − 2e^x Φ(−μ/2) = (1 − e^x) + e^x·(2Φ(μ/2) − 1): no difference of nearly equal numbers
    missed = -math.expm1(spare) + math.exp(spare) * math.erf(mu / math.sqrt(8))
    return min(1.0, missed * _UP)


def objective_perturbation_delta(
    epsilon: float, mu: float, kappa: float, mu_output: float = 0.0
) -> float:
    """Return δ of objective perturbation under zero-out or add/remove.

    Guarantee:
        (ε, result) for one record replaced by an empty one, added or removed; the bound on its
        features is enforced by clipping. Shown by tests/soundness/test_curves.py.
    """
    # Source: docs/central.md, "Objective perturbation": δ(ε) = E[(1 − e^{ε − f*(N)})₊], N standard
    # normal, f*(N) = max over t in [0, 1] of log(1 + κt(1 − t)) + tμN + t²μ²/2. Given the exact
    # minimizer, what else is released is Gaussian: E[gaussian_delta(ε − f*(N), μ_output)].
    epsilon, mu = number("epsilon", epsilon), non_negative("mu", mu)
    kappa, mu_output = non_negative("kappa", kappa), non_negative("mu_output", mu_output)
    simple = 1.0 if mu_output else _objective_perturbation_delta_closed_form(epsilon, mu, kappa)
    spare = epsilon - slack_of_jacobian(kappa)
    if math.isnan(spare):  # ∞ − ∞
        return 1.0
    if mu == 0:  # without a tilt's loss
        return gaussian_delta(spare, mu_output)
    if not _moderate(epsilon, mu, kappa, mu_output):
        return simple
    # The first noise that matters: f* ≤ J + max(0, μN + μ²/2), less what rounding may lift above ε.
    spare -= 1e-9 * (1 + abs(spare)) + 10 * mu_output + mu_output**2
    first = min(spare / mu, _FARTHEST) - mu / 2 if spare > 0 else _LOWEST
    start = max(first, _LOWEST)
    noise = np.linspace(start, max(start, 0.0) + _REACH, _CELLS + 1)
    curve = _Curve(_normal_cells(noise), _largest_loss(noise, mu, kappa))
    return min(simple, curve.delta(epsilon, mu_output))


def objective_perturbation_curve(
    mu: float, kappa: float, mu_output: float = 0.0
) -> Callable[[float], float]:
    """Return :func:`objective_perturbation_delta` as a function of ε, for many of them.

    Guarantee:
        As :func:`objective_perturbation_delta`; shown by tests/soundness/test_curves.py.
    """
    # Source: docs/central.md, "Objective perturbation": as `objective_perturbation_delta`; the
    # largest loss on every cell is found once.
    mu, kappa = positive("mu", mu), non_negative("kappa", kappa)
    mu_output = non_negative("mu_output", mu_output)
    if not _moderate(0.0, mu, kappa, mu_output):
        return lambda epsilon: objective_perturbation_delta(epsilon, mu, kappa, mu_output)
    noise = np.linspace(_LOWEST, -_LOWEST, _CELLS + 1)
    curve = _Curve(_normal_cells(noise), _largest_loss(noise, mu, kappa))
    return lambda epsilon: curve.delta(epsilon, mu_output)


def _moderate(epsilon: float, mu: float, kappa: float, mu_output: float) -> bool:
    """Return whether no square overflows."""
    return (
        abs(epsilon) <= _LARGEST_LOSS
        and max(mu, mu_output) <= _LARGEST_MU
        and kappa <= _LARGEST_KAPPA
    )


def _largest_loss(
    noise: Float[np.ndarray, " m"], mu: float, kappa: float
) -> Float[np.ndarray, " m"]:
    """Return f*(N) = max over t in [0, 1] of log(1 + κt(1 − t)) + tμN + t²μ²/2, rounded up."""
    # The loss is convex in t in the middle and concave on both sides, so its maximum lies on one of
    # the sides; with t → 1 − t the right side becomes a left one. It is convex from this t ≤ 1/2
    # on, up to 1 − t: its second derivative in t is μ² − (κ² + 4κ)w² + 2κw, w = 1/(1 + κt(1 − t)),
    # at least 0 once 1/w is at least (κ + 4)/(1 + √(1 + μ²(1 + 4/κ))).
    tilt, end = mu * noise, 0.0
    if kappa > 0:
        root = math.sqrt(1 + mu * mu + 4 * (mu / kappa) * mu)
        height = max(0.0, (kappa + 3 - root) / (1 + root) / kappa)  # of t(1 − t)
        end = 2 * height / (1 + math.sqrt(max(0.0, 1 - 4 * height)))
    left = _side_maximum(tilt, mu, kappa, end)
    right = _side_maximum(-(tilt + mu * mu), mu, kappa, end) + tilt + mu * mu / 2
    losses = np.maximum(left, right)
    # raised by more than rounding can have lowered them; never falling
    return np.maximum.accumulate(losses + 1e-14 * (1 + np.abs(losses) + np.abs(tilt)))


def _side_maximum(
    tilt: Float[np.ndarray, " m"], mu: float, kappa: float, end: float
) -> Float[np.ndarray, " m"]:
    """Return the maximum of log(1 + κt(1 − t)) + t·tilt + t²μ²/2 over t in [0, end]."""
    # It is concave there: bisection on the slope, and below the tangent at the bracket's left end.
    end = min(end, 0.5)
    low, high = np.zeros_like(tilt), np.full_like(tilt, end)
    for _ in range(_HALVINGS if end > 0 else 0):
        middle = (low + high) / 2
        rising = _slope(middle, tilt, mu, kappa) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    steepest = np.maximum(_slope(low, tilt, mu, kappa), 0.0)
    loss = np.log1p(kappa * low * (1 - low)) + low * tilt + (low * mu) ** 2 / 2
    return np.asarray(loss + steepest * (high - low))


def _slope(t: np.ndarray, tilt: np.ndarray, mu: float, kappa: float) -> np.ndarray:
    bend = kappa * (1 - 2 * t) / (1 + kappa * t * (1 - t))
    return np.asarray(bend + tilt + mu * mu * t)


_LINES = 32  # of each leg, in every round
_ROUNDS = 4
_POINTS = 64
_LEAST, _MOST = 1e-300, 1e3  # probabilities between which the supremum is searched
_LARGEST_EPSILON = 300.0
_MARGIN = 1e-12


def objective_perturbation_delta_replace_one(
    epsilon: float, mu: float, kappa: float, mu_output: float = 0.0
) -> float:
    """Return δ of objective perturbation when one record is replaced.

    Guarantee:
        (ε, result) for one record replaced by any other; the bound on its features is enforced by
        clipping. Shown by tests/soundness/test_curves.py.
    """
    # Source: docs/central.md, "Objective perturbation": sup over q of F(Φ(Φ⁻¹(q) + μ)) − e^ε q,
    # with F(x) = min over e of e^e x + δ(e).
    epsilon, mu = non_negative("epsilon", epsilon), positive("mu", mu)
    mu_output = non_negative("mu_output", mu_output)
    forward = objective_perturbation_curve(mu, kappa, mu_output)
    # An upper bound on sup over q of F(F_reverse(q)) − e^ε q.
    reverse: Callable[[float], float] = partial(gaussian_delta, mu=mu)  # takes a record away
    if mu_output:
        reverse = objective_perturbation_curve(mu, 0.0, mu_output)
    # Any finite set of lines bounds both legs. More of them are drawn where the supremum lies.
    epsilon = min(epsilon, _LARGEST_EPSILON)  # δ falls in ε
    losses, width = np.linspace(0.0, epsilon, _LINES), epsilon / (_LINES - 1)
    ahead, back = _Lines.of(forward, losses), _Lines.of(reverse, losses)
    bound = 1.0
    for _ in range(_ROUNDS):
        pairs = _active(ahead, back, epsilon)
        bound = min(bound, _bound(ahead, back, pairs, epsilon))
        if width <= _MARGIN:
            break
        ahead += _Lines.of(forward, ahead.around([i for i, _ in pairs], width))
        back += _Lines.of(reverse, back.around([j for _, j in pairs], width))
        width *= 4 / _LINES
    return min(bound, _bound(ahead, back, _active(ahead, back, epsilon), epsilon))


@dataclass(frozen=True)
class _Lines:
    """Lines e^e q + δ(e) above what an event of probability q becomes over one leg."""

    losses: Float[np.ndarray, " m"]
    heights: Float[np.ndarray, " m"]

    @classmethod
    def of(cls, curve: Callable[[float], float], losses: Float[np.ndarray, " m"]) -> _Lines:
        # δ is taken at slightly smaller ones, so that rounding of the slopes is paid for.
        return cls(losses, np.array([curve(max(0.0, x - _MARGIN * (1 + x))) for x in losses]))

    def __add__(self, other: _Lines) -> _Lines:
        losses = np.concatenate([self.losses, other.losses])
        return _Lines(losses, np.concatenate([self.heights, other.heights]))

    def lowest(self, q: Float[np.ndarray, " p"]) -> tuple[np.ndarray, np.ndarray]:
        """Return which line is lowest at every q, and its value."""
        values = np.exp(self.losses)[:, np.newaxis] * q + self.heights[:, np.newaxis]
        return values.argmin(axis=0), values.min(axis=0)

    def around(self, used: list[int], width: float) -> Float[np.ndarray, " m"]:
        """Return further losses near those of some lines, at least 0."""
        chosen = self.losses[used]
        low, high = max(0.0, float(chosen.min()) - width), float(chosen.max()) + width
        return np.linspace(low, high, _LINES)


def _active(ahead: _Lines, back: _Lines, epsilon: float) -> list[tuple[int, int]]:
    """Return the pairs of lines that meet where the (concave) difference is largest."""
    low, high = math.log(_LEAST), math.log(_MOST)
    for _ in range(8):
        q = np.exp(np.linspace(low, high, _POINTS))
        values = ahead.lowest(back.lowest(q)[1])[1] - math.exp(epsilon) * q
        best, step = int(values.argmax()), (high - low) / (_POINTS - 1)
        middle = low + best * step
        low, high = middle - step, middle + step
    ends = np.exp(np.array([low, high]))
    second, risen = back.lowest(ends)
    return list(zip(ahead.lowest(risen)[0].tolist(), second.tolist(), strict=True))


def _bound(ahead: _Lines, back: _Lines, pairs: list[tuple[int, int]], epsilon: float) -> float:
    """Return what two pairs of lines prove."""
    # A pair is one line of slope e^{e₁ + e₂} above everything. So is any mixture of two of them,
    # and one of slope at most e^ε bounds the difference by its height.
    # relative to e^ε, which the slopes' margin keeps from rounding
    slopes = [float(ahead.losses[i] + back.losses[j]) - epsilon for i, j in pairs]
    heights = [
        float(math.exp(ahead.losses[i]) * back.heights[j] + ahead.heights[i]) for i, j in pairs
    ]
    known = [1.0, *(h for s, h in zip(slopes, heights, strict=True) if s <= 0)]
    if slopes[0] > 0 > slopes[1]:
        steep, flat = math.expm1(slopes[0]), -math.expm1(slopes[1])
        share = flat / (steep + flat)
        known.append(share * heights[0] + (1 - share) * heights[1])
    return min(1.0, min(known) * _UP)


_LARGEST_RANKED_MU, _LARGEST_RANKED_EPSILON = 1e4, 1e9  # beyond, nothing is stated but 1


def slack_of_trace(trace_over_ridge: float, rank: int) -> float:
    """J = r·log(1 + t/(rΛ)), the most that curvature of trace t and rank r adds to the loss."""
    # Source: docs/central.md, "Rankings": log det(I + B/Λ) with the eigenvalues of B equal, which
    # is the most by concavity.
    rank = integer("rank", rank, at_least=1)
    return rank * math.log1p(non_negative("trace_over_ridge", trace_over_ridge) / rank)


def ranked_amp_delta(
    epsilon: float, mu: float, jacobian: float, rank: int, mu_output: float
) -> float:
    """Return δ of a tilted minimizer that is inexact and noised once more, for curvature of a rank.

    Guarantee:
        (ε, result) for any minimizer within that distance, and any change whose gradients stay in
        one space of that dimension; an upper bound on the expectation below. Shown by
        tests/soundness/test_ranking_objective_perturbation.py.
    """
    # Source: docs/central.md, "Rankings": the exact minimizer's loss is at most J + μQ + μ²/2, Q
    # the length of the tilt in that space over its standard deviation, chi distributed; given it,
    # the output is Gaussian, so that δ(ε) ≤ E[gaussian_delta(ε − J − μQ − μ²/2, μ_output)].
    mu, mu_output = positive("mu", mu), non_negative("mu_output", mu_output)
    spare = number("epsilon", epsilon) - non_negative("jacobian", jacobian)
    rank = integer("rank", rank, at_least=1)
    if not (abs(spare) <= _LARGEST_RANKED_EPSILON and max(mu, mu_output) <= _LARGEST_RANKED_MU):
        return 1.0
    # Below this noise next to nothing is missed: gaussian_delta is at most Φ(−10) there.
    least = spare - 1e-9 * (1 + abs(spare)) - 10 * mu_output - mu_output**2
    first = max(least / mu - mu / 2, 0.0)
    ends = np.linspace(first, max(first, math.sqrt(rank)) + _REACH, _CELLS + 1)
    losses = mu * ends + mu * mu / 2
    rounded = losses + 1e-14 * (1 + 2 * np.abs(losses))
    # The cells of a chi distribution, whose log-density has the slope (r − 1)/Q − Q.
    above, below = (tail(rank / 2, ends**2 / 2) for tail in (gammaincc, gammainc))
    mass = np.where(below[1:] < 0.5, np.diff(below), above[:-1] - above[1:])  # noqa: PLR2004
    slope = (rank - 1) / np.maximum(ends[:-1], 1e-300) - ends[:-1]
    cells = _Cells(mass, _mean(ends, slope), float(below[0]), float(above[-1]))
    return _Curve(cells, rounded).delta(spare, mu_output)
