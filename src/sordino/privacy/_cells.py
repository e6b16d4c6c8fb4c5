"""Expectations over noise of what a convex loss misses, bounded from above on cells of noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx, gammainc, gammaincc, ndtr

__all__ = ["LARGEST_LOSS", "Cells", "Curve", "chi_cells", "normal_cells"]

LARGEST_LOSS = 1e9
"""Losses beyond it are read as this one."""

_UP = 1 + 1e-10  # more than sums and tails of the normal lose to rounding
_SMALLEST = 2.3e-308  # what underflows is rounded up to about the smallest normal float
_LEAST_MU = 1e-9
_BEYOND = 8e-24  # at ε = 10μ + μ² gaussian_delta is at most Φ(−10)
_OVERFLOW = -37.0


@dataclass(frozen=True)
class Cells:
    """Masses of cells of noise, and where in each cell its mean lies at most, from 0 to 1."""

    mass: Float[np.ndarray, " m"]
    mean: Float[np.ndarray, " m"]
    below: float
    above: float


@dataclass(frozen=True)
class Curve:
    """Losses at the ends of cells, never less than the true ones, which are convex in the noise."""

    cells: Cells
    losses: Float[np.ndarray, " ends"]

    def delta(self, epsilon: float, mu_output: float) -> float:
        """Return an upper bound on E[gaussian_delta(ε − loss, μ_output)].

        gaussian_delta falls in ε, has a second derivative of at least −1, and of at least 0 above
        μ²/2. On a cell it therefore exceeds its chord by at most (rise of the loss)²/8, or not at
        all.
        """
        epsilon = min(max(epsilon, -LARGEST_LOSS), LARGEST_LOSS)
        spare = epsilon - self.losses
        missed = _missed(spare, mu_output)
        bulge = np.where(spare[1:] < mu_output**2 / 2, np.diff(self.losses) ** 2 / 8, 0.0)
        inside = missed[:-1] + self.cells.mean * np.diff(missed) + bulge
        outside = self.cells.below * float(missed[0]) + self.cells.above
        return min(1.0, (float(inside @ self.cells.mass) + outside) * _UP + _SMALLEST)


def normal_cells(ends: Float[np.ndarray, " ends"]) -> Cells:
    """Return the cells of a standard normal, whose log-density has the slope −N."""
    lower, upper = ndtr(ends), ndtr(-ends)
    mass = np.where(ends[1:] > 0, upper[:-1] - upper[1:], np.diff(lower))
    return Cells(mass, _mean(ends, -ends[:-1]), float(lower[0]), float(upper[-1]))


def chi_cells(ends: Float[np.ndarray, " ends"], rank: int) -> Cells:
    """Return the cells of a chi distribution, whose log-density has the slope (r − 1)/Q − Q."""
    above, below = (tail(rank / 2, ends**2 / 2) for tail in (gammaincc, gammainc))
    mass = np.where(below[1:] < 0.5, np.diff(below), above[:-1] - above[1:])  # noqa: PLR2004
    slope = (rank - 1) / np.maximum(ends[:-1], 1e-300) - ends[:-1]
    return Cells(mass, _mean(ends, slope), float(below[0]), float(above[-1]))


def _mean(
    ends: Float[np.ndarray, " ends"], slope: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " m"]:
    """Return where the mean of every cell lies at most, as a share of the cell.

    A log-density of slope at most k on a cell of width h has its mean at most k h²/12 past the
    middle: that is so of the exponential of slope k, and the ratio to it falls.
    """
    return np.asarray(np.minimum(1.0, 0.5 + np.maximum(slope, 0.0) * np.diff(ends) / 12))


def _missed(spare: Float[np.ndarray, " m"], mu: float) -> Float[np.ndarray, " m"]:
    """Return an upper bound on gaussian_delta of many ε, within about 1e-8 where μ ≥ 1e-5.

    δ(ε) = φ(u)(R(u) − R(u + μ)), u = ε/μ − μ/2, R the Mills ratio; for ε < 0 the mirror image.
    The difference loses digits in proportion to 1/μ, which the last factor makes up for.
    """
    missed = np.asarray(-np.expm1(np.minimum(0.0, spare)))
    if mu > 0:
        mu = max(mu, _LEAST_MU)
        near = np.abs(spare) <= 10 * mu + mu * mu
        missed[near] = _gaussian_deltas(spare[near], mu)
        missed[~near] += _BEYOND
    return np.asarray(np.minimum(1.0, missed))


def _gaussian_deltas(spare: Float[np.ndarray, " m"], mu: float) -> Float[np.ndarray, " m"]:
    """Return an upper bound on gaussian_delta where |ε| ≤ 10μ + μ²."""
    size = np.abs(spare)
    near = size / mu - mu / 2
    tails = np.sqrt(np.pi / 2) * (_scaled_tail(near) - _scaled_tail(near + mu))
    density = np.exp(-near * near / 2) / math.sqrt(2 * math.pi)
    lost = 1e-9 + 1e-14 * (1 + np.abs(near)) / mu
    # where u is far below zero the Mills ratio overflows, and δ is 1 as far as floats can tell
    delta = np.where(near > _OVERFLOW, density * tails * (1 + lost), 1.0)
    mirrored = np.exp(-size) * delta - np.expm1(-size)
    return np.asarray(np.where(spare < 0, mirrored, delta))


def _scaled_tail(values: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Return erfcx(values/√2), the Mills ratio up to √(π/2); where it would overflow, large."""
    return np.asarray(erfcx(np.maximum(values, _OVERFLOW) / math.sqrt(2)))
