"""The curves δ(ε) of objective perturbation: a minimizer released after its objective was tilted.

Every curve is an expectation over noise N of something that grows with a loss f(N), and f is
convex in N. So on a cell of noise the loss stays below its chord, and a sum over cells bounds the
expectation from above, however coarse the cells are. Here μ is the bound on one record's gradient
over the standard deviation of the tilt, and κ that bound squared over the ridge.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from sordino._validate import integer, non_negative, number, positive

from ._cells import LARGEST_LOSS, Curve, chi_cells, normal_cells
from .gaussian import gaussian_delta

__all__ = [
    "amp_delta",
    "objective_perturbation_curve",
    "objective_perturbation_delta",
    "objective_perturbation_delta_closed_form",
    "objective_perturbation_delta_ranked",
    "slack_of_jacobian",
]

_CELLS = 4096
_REACH = 10.0  # standard deviations past the first noise that matters; beyond, δ is taken as 1
_LOWEST = -12.0  # what lies below counts as much as what lies there
_FARTHEST = 1e6
_HALVINGS = 50
_UP = 1 + 1e-10  # more than sums and tails of the normal lose to rounding
_LARGEST_MU, _LARGEST_KAPPA = 1e4, 1e100  # beyond, only a simple bound


def slack_of_jacobian(kappa: float) -> float:
    """Return J = log(1 + κ/4), the most that curvature adds to the loss.

    Source:
        docs/central.md, "Objective perturbation": the logistic loss has slope s and curvature
        s(1 − s), so that log(1 + κ s(1 − s)) ≤ log(1 + κ/4).

    Example:
        >>> slack_of_jacobian(0.0)
        0.0
    """
    return math.log1p(non_negative("kappa", kappa) / 4)


def objective_perturbation_delta_closed_form(epsilon: float, mu: float, kappa: float) -> float:
    """Return a simple upper bound on the δ of objective perturbation, under zero-out or add/remove.

    Args:
        epsilon: Any real number.
        mu: Bound on one record's gradient over the standard deviation of the tilt, ≥ 0.
        kappa: Squared bound on a record's features over the ridge, ≥ 0.

    Source:
        docs/central.md, "Objective perturbation": the Jacobian is split off, J = log(1 + κ/4).

    Example:
        >>> round(objective_perturbation_delta_closed_form(1.0, 0.25, 1.0) * 1e5, 4)
        9.5259
    """
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

    Args:
        epsilon: Any real number.
        mu: Bound on one record's gradient over the standard deviation of the tilt, ≥ 0.
        kappa: Squared bound on a record's features over the ridge, ≥ 0.
        mu_output: 0 for an exact minimizer. Otherwise twice the distance from it over the
            standard deviation of the noise that is added to it; composed with it (root of the
            sum of squares), μ of a further Gaussian release.

    Returns:
        An upper bound, within about 0.05 % of the expectation below.

    Guarantee:
        (ε, result) for one record replaced by an empty one, added or removed; the bound on its
        features is enforced by clipping. Shown by tests/soundness/test_curves.py.

    Source:
        docs/central.md, "Objective perturbation": δ(ε) = E[(1 − e^{ε − f*(N)})₊], N standard
        normal, f*(N) = max over t in [0, 1] of log(1 + κt(1 − t)) + tμN + t²μ²/2. Given the exact
        minimizer, what else is released is Gaussian: E[gaussian_delta(ε − f*(N), μ_output)].

    Example:
        >>> 2.924e-6 < objective_perturbation_delta(1.0, 0.25, 1.0) < 2.926e-6
        True
    """
    epsilon, mu, kappa = _checked(epsilon, mu, kappa)
    mu_output = non_negative("mu_output", mu_output)
    simple = 1.0 if mu_output else objective_perturbation_delta_closed_form(epsilon, mu, kappa)
    if mu == 0 or not _moderate(epsilon, mu, kappa, mu_output):
        return _alone(epsilon - slack_of_jacobian(kappa), mu, mu_output, simple)
    noise = _edges(_first_noise(epsilon, mu, kappa, mu_output))
    curve = Curve(normal_cells(noise), _largest_loss(noise, mu, kappa))
    return min(simple, curve.delta(epsilon, mu_output))


def objective_perturbation_curve(
    mu: float, kappa: float, mu_output: float = 0.0
) -> Callable[[float], float]:
    """Return :func:`objective_perturbation_delta` as a function of ε, for many of them.

    Args:
        mu: Bound on one record's gradient over the standard deviation of the tilt, > 0.
        kappa: Squared bound on a record's features over the ridge, ≥ 0.
        mu_output: As for :func:`objective_perturbation_delta`.

    Guarantee:
        As :func:`objective_perturbation_delta`; shown by tests/soundness/test_curves.py.

    Source:
        docs/central.md, "Objective perturbation": as :func:`objective_perturbation_delta`; the
        largest loss on every cell is found once.
    """
    mu, kappa = positive("mu", mu), non_negative("kappa", kappa)
    mu_output = non_negative("mu_output", mu_output)
    if not _moderate(0.0, mu, kappa, mu_output):
        return lambda epsilon: objective_perturbation_delta(epsilon, mu, kappa, mu_output)
    noise = np.linspace(_LOWEST, -_LOWEST, _CELLS + 1)
    curve = Curve(normal_cells(noise), _largest_loss(noise, mu, kappa))
    return lambda epsilon: curve.delta(epsilon, mu_output)


def amp_delta(epsilon: float, mu: float, kappa: float, mu_output: float) -> float:
    """Return a simple upper bound on δ where the minimizer is inexact and noised once more.

    The Jacobian is split off, so that :func:`objective_perturbation_delta` with ``mu_output`` is
    never larger and often far smaller.

    Args:
        epsilon: Any real number.
        mu: Bound on one record's gradient over the standard deviation of the tilt, ≥ 0.
        kappa: Squared bound on a record's features over the ridge; 0 for the leg of a removal,
            which has no Jacobian.
        mu_output: As for :func:`objective_perturbation_delta`.

    Guarantee:
        As :func:`objective_perturbation_delta`, for any minimizer within that distance; shown by
        tests/soundness/test_curves.py.

    Source:
        docs/central.md, "Objective perturbation": E[gaussian_delta(ε − J − max(0, μN + μ²/2),
        μ_output)].

    Example:
        >>> 6.371e-7 < amp_delta(1.0, 0.2, 0.5, 0.05) < 6.38e-7
        True
    """
    epsilon, mu, kappa = _checked(epsilon, mu, kappa)
    mu_output, spare = non_negative("mu_output", mu_output), epsilon - slack_of_jacobian(kappa)
    if mu == 0 or not _moderate(epsilon, mu, kappa, mu_output):
        return _alone(spare, mu, mu_output, 1.0)
    noise = _edges(_first_noise(epsilon, mu, kappa, mu_output))
    losses = np.maximum(0.0, mu * noise + mu * mu / 2)
    return Curve(normal_cells(noise), _rounded_up(losses, mu * noise)).delta(spare, mu_output)


def objective_perturbation_delta_ranked(
    epsilon: float, mu: float, jacobian: float, rank: int
) -> float:
    """Return δ of objective perturbation where one record's curvature has a rank above one.

    Args:
        epsilon: Any real number.
        mu: Bound on one record's gradient over the standard deviation of the tilt, ≥ 0.
        jacobian: J, the bound on the log-determinant that one record can add, ≥ 0.
        rank: Rank of that record's Hessian, ≥ 1.

    Guarantee:
        (ε, result) for one record replaced by an empty one, added or removed; shown by
        tests/soundness/test_curves.py.

    Source:
        docs/central.md, "Objective perturbation": E[(1 − e^{ε − J − μQ − μ²/2})₊], Q chi
        distributed with ``rank`` degrees of freedom.

    Example:
        >>> 9.01e-6 < objective_perturbation_delta_ranked(1.0, 0.2, math.log(1.1), 3) < 9.02e-6
        True
    """
    epsilon, mu = number("epsilon", epsilon), non_negative("mu", mu)
    spare = epsilon - non_negative("jacobian", jacobian)
    rank = integer("rank", rank, at_least=1)
    if mu == 0 or not _moderate(spare, mu, 0.0, 0.0):
        return _alone(spare, mu, 0.0, 1.0)
    first = min(max((spare - _margin(spare)) / mu - mu / 2, 0.0), _FARTHEST)
    ends = np.linspace(first, first + _REACH + 2 * math.sqrt(rank), _CELLS + 1)
    losses = mu * ends + mu * mu / 2
    return Curve(chi_cells(ends, rank), _rounded_up(losses, losses)).delta(spare, 0.0)


def _checked(epsilon: float, mu: float, kappa: float) -> tuple[float, float, float]:
    """Return the three arguments of a curve."""
    return number("epsilon", epsilon), non_negative("mu", mu), non_negative("kappa", kappa)


def _moderate(epsilon: float, mu: float, kappa: float, mu_output: float) -> bool:
    """Return whether no square overflows."""
    return (
        abs(epsilon) <= LARGEST_LOSS
        and max(mu, mu_output) <= _LARGEST_MU
        and kappa <= _LARGEST_KAPPA
    )


def _alone(spare: float, mu: float, mu_output: float, simple: float) -> float:
    """Return δ without a tilt's loss (μ = 0), or what is known where numbers are extreme."""
    if math.isnan(spare):  # ∞ − ∞
        return 1.0
    return gaussian_delta(spare, mu_output) if mu == 0 else simple


def _margin(spare: float) -> float:
    """Return how far below ε a loss lies that rounding cannot lift above it."""
    return 1e-9 * (1 + abs(spare))


def _first_noise(epsilon: float, mu: float, kappa: float, mu_output: float) -> float:
    """Return a noise below which next to nothing is missed: f* ≤ J + max(0, μN + μ²/2)."""
    spare = epsilon - slack_of_jacobian(kappa)
    spare -= _margin(spare) + 10 * mu_output + mu_output**2
    return min(spare / mu, _FARTHEST) - mu / 2 if spare > 0 else _LOWEST


def _edges(first: float) -> Float[np.ndarray, " ends"]:
    """Return the ends of cells of a normal, from ``first`` on."""
    start = max(first, _LOWEST)
    return np.linspace(start, max(start, 0.0) + _REACH, _CELLS + 1)


def _largest_loss(
    noise: Float[np.ndarray, " m"], mu: float, kappa: float
) -> Float[np.ndarray, " m"]:
    """Return f*(N) = max over t in [0, 1] of log(1 + κt(1 − t)) + tμN + t²μ²/2, rounded up.

    The loss is convex in t in the middle and concave on both sides, so its maximum lies on one of
    the sides; with t → 1 − t the right side becomes a left one.
    """
    tilt, end = mu * noise, _convex_from(mu, kappa)
    left = _side_maximum(tilt, mu, kappa, end)
    right = _side_maximum(-(tilt + mu * mu), mu, kappa, end) + tilt + mu * mu / 2
    return _rounded_up(np.maximum(left, right), tilt)


def _convex_from(mu: float, kappa: float) -> float:
    """Return the t ≤ 1/2 from which the loss is convex in t, up to 1 − t.

    Its second derivative in t is μ² − (κ² + 4κ)w² + 2κw, w = 1/(1 + κt(1 − t)): at least 0 once
    1/w is at least (κ + 4)/(1 + √(1 + μ²(1 + 4/κ))).
    """
    if kappa == 0:
        return 0.0
    root = math.sqrt(1 + mu * mu + 4 * (mu / kappa) * mu)
    height = (kappa + 3 - root) / (1 + root) / kappa  # of t(1 − t)
    return 0.0 if height <= 0 else 2 * height / (1 + math.sqrt(max(0.0, 1 - 4 * height)))


def _side_maximum(
    tilt: Float[np.ndarray, " m"], mu: float, kappa: float, end: float
) -> Float[np.ndarray, " m"]:
    """Return the maximum of log(1 + κt(1 − t)) + t·tilt + t²μ²/2 over t in [0, end].

    It is concave there: bisection on the slope, and below the tangent at the bracket's left end.
    """
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


def _rounded_up(losses: np.ndarray, tilt: np.ndarray) -> np.ndarray:
    """Return losses raised by more than rounding can have lowered them; never falling."""
    return np.maximum.accumulate(losses + 1e-14 * (1 + np.abs(losses) + np.abs(tilt)))
