"""A world described by public numbers only, to foresee how well a reward can be learned.

Feature differences x have norm about 1 and no preferred direction, so that the reward difference
Δ = θᵀx is normal. Along θ and across it the estimate scatters differently: scatter along θ changes
the scale of the reward, scatter across it the order of the answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfc

from ._half_normal import advantage, mean, sizes
from .covariance import debiased_noise, debiased_slope, mixture_information

__all__ = [
    "Method",
    "Scatter",
    "asymptotic_scatter",
    "lost_accuracy",
    "penalized_scatter",
    "spread_of",
]

Method = Literal["debiased", "mixture"]

_NEVER = 1e-12  # chance of a flip below which nothing here changes
_LOG_RANGE = 40.0  # logarithms of the spreads at which a float tells the accuracy from 1/2 and 1


def spread_of(accuracy: float) -> float:
    """Return the standard deviation of Δ at which knowing Δ predicts a judgment this well.

    Source:
        docs/local.md, planning: accuracy = E σ(|Δ|) = ½ + ½ E tanh(|Δ|/2).

    Args:
        accuracy: Share of judgments that the true reward predicts, in (1/2, 1).

    Example:
        >>> round(spread_of(0.65), 4)
        0.8277
    """

    def excess(logarithm: float) -> float:
        return mean(advantage(math.exp(logarithm))) / 2 - (accuracy - 0.5)

    if excess(_LOG_RANGE) <= 0:  # as near to 1 as floats go
        return math.exp(_LOG_RANGE)
    return math.exp(brentq(excess, -_LOG_RANGE, _LOG_RANGE, xtol=1e-14))


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """What an estimate of the weights aims at, and how far one pair lets it scatter around that.

    An estimated reward difference at x with g = √d·uᵀx is normal around signal·g, with variance
    (along·g² + (d − 1)·across)/n.

    Source:
        docs/local.md, planning: n·Cov = d·(along·uuᵀ + across·(I − uuᵀ)), u = θ/‖θ‖.

    Attributes:
        signal: Standard deviation of the reward difference that is aimed at.
        along: n/d times the variance of the weight in the direction of θ.
        across: n/d times the variance in each of the d − 1 other directions.
        dimension: d.
    """

    signal: float
    along: float
    across: float
    dimension: int

    def standard_error(self, n: float) -> float:
        """Return the standard error of a reward difference, x of norm 1 in any direction.

        It is that of each weight too, in the quadratic mean over directions.

        Source:
            docs/local.md, planning: √(tr Cov/d).
        """
        return math.sqrt((self.along + (self.dimension - 1) * self.across) / n)


def asymptotic_scatter(
    spread: float, flip_probability: float, *, dimension: int, method: Method = "debiased"
) -> Scatter:
    """Return how the estimate scatters when there are many pairs and the ridge is small.

    Source:
        docs/local.md, planning. With x ∼ N(0, I/d) and g = √d·uᵀx, E[w(Δ)xxᵀ] is E[w g²]/d along
        θ and E[w]/d across it; the covariance is A⁻¹E[p(1 − p)/κ² xxᵀ]A⁻¹ with A = E[σ′xxᵀ], or
        (E[κ²σ′²/(p(1 − p)) xxᵀ])⁻¹ for the mixture.

    Args:
        spread: Standard deviation of Δ.
        flip_probability: f, in [0, 1/2).
        dimension: Number of features d.
        method: Which estimate: ``"debiased"``, or ``"mixture"``, which scatters less.

    Example:
        >>> found = asymptotic_scatter(1e-9, 0.25, dimension=3)
        >>> round(found.along, 6), round(found.across, 6)  # 4/κ²
        (16.0, 16.0)
    """
    squares = sizes() ** 2
    margins = spread * sizes()
    # Without flips, or with next to none, both are the maximum of the one likelihood.
    if method == "mixture" and flip_probability > _NEVER:
        bend = noise = mixture_information(margins, flip_probability)
    else:
        bend, noise = debiased_slope(margins), debiased_noise(margins, flip_probability)
    return Scatter(
        signal=spread,
        along=mean(noise * squares) / mean(bend * squares) ** 2,
        across=mean(noise) / mean(bend) ** 2,
        dimension=dimension,
    )


def penalized_scatter(spread: float, flip_probability: float, *, dimension: int) -> Scatter:
    """Return how the estimate scatters when the ridge is large: then it is the mean of (ỹ − ½)x.

    Such a mean has lost the scale of the reward and kept its direction. Where rewards are large
    it scatters less than an estimate that must find the scale too.

    Source:
        docs/local.md, planning: E (ỹ − ½)x = E[(σ(Δ) − ½)g]·u/√d, and (ỹ − ½)² = 1/(4κ²).

    Args:
        spread: Standard deviation of Δ.
        flip_probability: f, in [0, 1/2).
        dimension: Number of features d.
    """
    signal = mean(advantage(spread) * sizes()) / 2
    noise = 1 / (2 * (1 - 2 * flip_probability)) ** 2
    return Scatter(signal=signal, along=noise - signal**2, across=noise, dimension=dimension)


def lost_accuracy(spread: float, scatter: Scatter, n: float) -> float:
    """Return by how much an estimate from n pairs predicts judgments worse than the truth does.

    Source:
        docs/local.md, planning: E[tanh(|Δ|/2)·P(Δ̂ has the wrong sign | Δ)].

    Args:
        spread: Standard deviation of Δ.
        scatter: How far one pair lets the estimate scatter.
        n: Number of pairs, > 0.

    Example:
        >>> spread = spread_of(0.65)
        >>> private = asymptotic_scatter(spread, 0.27, dimension=8)
        >>> round(0.65 - lost_accuracy(spread, private, 20_000), 3)
        0.649
    """
    noise = scatter.along * sizes() ** 2 + (scatter.dimension - 1) * scatter.across
    certainty = scatter.signal * sizes() * np.sqrt(n / noise)
    return mean(advantage(spread) * erfc(certainty / math.sqrt(2))) / 2
