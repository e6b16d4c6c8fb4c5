"""Two questions about ellipsoids: how far a way stays inside, and which point is shortest."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

__all__ = ["SPAN", "share_inside", "shortest"]

SPAN = 300.0
"""Range of the logarithm of a multiplier, around the largest curvature."""


def share_inside(
    start: Float[np.ndarray, " d"],
    way: Float[np.ndarray, " d"],
    radius: float,
    metric: Float[np.ndarray, "d d"] | None,
) -> float:
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


def shortest(
    values: Float[np.ndarray, " d"], middle: Float[np.ndarray, " d"], radius: float
) -> Float[np.ndarray, " d"]:
    """Return the shortest θ with Σ values·(θ − middle)² ≤ radius²."""

    def theta(log_weight: float) -> Float[np.ndarray, " d"]:
        weighted = math.exp(log_weight) * (values / values.max())
        return np.asarray(middle * (weighted / (1 + weighted)))

    def excess(log_weight: float) -> float:
        return float(np.sum(values * (middle - theta(log_weight)) ** 2)) - radius**2

    if float(np.sum(values * middle**2)) <= radius**2:
        return np.zeros_like(middle)
    if excess(SPAN) > 0:
        return np.where(values > 0, middle, 0.0)
    return theta(float(brentq(excess, -SPAN, SPAN, xtol=1e-13)))
