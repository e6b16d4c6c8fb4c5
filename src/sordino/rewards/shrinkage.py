"""How much of a released estimate is signal: what noise alone would explain is taken out again.

A fit of a noised sum takes every direction alike, but the noise is known: its covariance is public.
So the most that can be learned of the weights is their mean given what was released, for a prior
that all directions share. How wide that prior is, the release itself says, by its likelihood.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from sordino.rewards.covariance import debiased_slope
from sordino.rewards.isotropic import spread_of

__all__ = ["ASSUMED", "Measure", "inside_ball", "secant_slope", "shrunk_weights"]

Measure = Callable[
    [Float[np.ndarray, " d"]], tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]]
]
"""From weights θ to Σ a(θᵀx)xxᵀ, a of :func:`secant_slope`, and the covariance of the sum."""

ASSUMED = 0.65
"""How well a perfect reward predicts one judgment, before anything is known."""

_ROUNDS = 3  # of the curvature, which depends on the weights; a fourth changes nothing
_POWERS = np.arange(-10, 9) / 2  # of two: widths of the prior over the one that ASSUMED means
_DOUBTS = np.array([0.25, 2.0])  # standard deviations of the logarithm of that width,
_BELIEFS = np.array([0.9, 0.1])  # and how likely each: people agree about as usual, or not at all
_RANK = 1e-9  # of the largest variance: below it nothing is released along a direction


def secant_slope(margins: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return (σ(m) − ½)/m, which takes a margin to its expected answer; ¼ at 0.

    Source:
        docs/central.md, "Label privacy, one Gaussian release".

    Example:
        >>> secant_slope(np.array([0.0, 2.0])).round(4).tolist()
        [0.25, 0.1904]
    """
    small = np.abs(margins) < 1e-6  # noqa: PLR2004 (where the quotient rounds to its limit)
    known = np.where(small, 1.0, margins)
    return np.asarray(np.where(small, debiased_slope(margins), np.tanh(known / 2) / (2 * known)))


def shrunk_weights(
    theta: Float[np.ndarray, " d"], ridge: float, measure: Measure, *, mean_square: float
) -> Float[np.ndarray, " d"]:
    """Return the mean of the weights given what was released; it costs nothing more.

    Source:
        docs/central.md, "Label privacy, one Gaussian release": s = (A + ΛI)θ̂ is the released sum
        without its mean, s ∼ N(Aθ, C); with θ ∼ N(0, τ²I) the mean of θ is τ²Aᵀ(τ²AAᵀ + C)⁻¹s. Of
        τ the mean is taken by its likelihood, log τ ∼ .9 N(log τ₀, ¼²) + .1 N(log τ₀, 2²).

    Args:
        theta: The certified minimizer with a ridge, θ̂.
        ridge: Λ, with the multiplier of a ball that binds.
        measure: A and C at some weights.
        mean_square: The mean of ‖x‖², which with :data:`ASSUMED` gives τ₀.
    """
    total = measure(theta)[0] @ theta + ridge * theta
    usual = spread_of(ASSUMED) / np.sqrt(mean_square)
    weights = np.zeros(len(theta))
    for _ in range(_ROUNDS):
        weights = _posterior_mean(total, *measure(weights), usual * 2.0**_POWERS)
    return weights


def inside_ball(weights: Float[np.ndarray, " d"], ball: float) -> Float[np.ndarray, " d"]:
    """Return weights, shortened to the ball where they are outside."""
    length = float(np.linalg.norm(weights))
    return weights if length <= ball else weights * (ball / length * (1 - 2.0**-50))


def _posterior_mean(
    total: Float[np.ndarray, " d"],
    bend: Float[np.ndarray, "d d"],
    spread: Float[np.ndarray, "d d"],
    widths: Float[np.ndarray, " k"],
) -> Float[np.ndarray, " d"]:
    """Return E[θ | s], averaged over the widths of the prior by what s says of them."""
    variances, directions = np.linalg.eigh(spread)
    known = variances > _RANK * variances[-1]
    whiten = (directions[:, known] / np.sqrt(variances[known])).T
    left, sizes, right = np.linalg.svd(whiten @ bend, full_matrices=False)
    seen = left.T @ (whiten @ total)
    gains = 1 + np.outer(widths, sizes) ** 2
    logs = -0.5 * np.sum(np.log(gains) + seen**2 / gains, axis=1)
    apart = np.log(widths / widths[list(_POWERS).index(0)])[:, np.newaxis]
    logs += np.log(np.exp(-0.5 * (apart / _DOUBTS) ** 2) @ (_BELIEFS / _DOUBTS))
    chances = np.exp(logs - logs.max())
    shares = chances / chances.sum() @ (widths[:, np.newaxis] ** 2 * sizes / gains)
    return np.asarray(right.T @ (shares * seen))
