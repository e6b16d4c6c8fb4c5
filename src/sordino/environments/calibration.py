"""Whether predicted rewards are on the scale of the true ones, where the truth is known."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import expit, roots_jacobi

from sordino import _validate
from sordino.environments.values import checked_flip
from sordino.rewards.likelihoods import DebiasedLogistic
from sordino.rewards.solver import minimize_ridge

__all__ = ["plain_logistic_scale", "population_slope", "sphere_coordinate"]

_NODES = 64
_STEEPEST = 1e6  # no slope of interest is larger; the fit needs some bound


def population_slope(predicted: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> float:
    """Return the factor that brings predicted reward differences to the scale of the true ones.

    It minimizes the expected logistic loss of factor · predicted over the people's answers, so
    1 is calibrated, below 1 too sure, above 1 not sure enough. Errors in the direction of the
    weights lower it as well.

    Source:
        docs/local.md, metrics on randomized labels: root b of Σ (σ(bΔ̂) − σ(Δ))Δ̂ = 0.

    Args:
        predicted: Δ̂ on comparisons that nothing was fitted on.
        true: Δ on the same.

    Example:
        >>> true = np.array([1.0, -2.0, 0.5])
        >>> round(population_slope(true / 4, true), 6)
        4.0
    """
    loss = DebiasedLogistic(predicted[:, None], targets=expit(true))
    atol = 1e-9 * max(float(np.abs(predicted).sum()), np.finfo(float).tiny)
    return float(minimize_ridge(loss, ridge=0.0, ball=_STEEPEST, atol=atol).theta[0])


def plain_logistic_scale(
    size: float, *, dimension: int, flip_probability: float, unit_differences: bool = False
) -> float:
    """Return what logistic regression makes of the reward's scale if it ignores the flips.

    With any number of answers, plain logistic regression on randomized answers converges to
    c·θ*. Its calibration slope is 1/c; c tends to κ for small rewards.

    Source:
        docs/local.md, debiased likelihood; White 1982 (misspecified likelihoods): c solves
        E x(σ(cΔ) − κσ(Δ) − f) = 0, a single equation because x points anywhere.

    Args:
        size: ‖θ*‖ > 0.
        dimension: d ≥ 2.
        flip_probability: f, in [0, 1/2).
        unit_differences: Whether x itself is a uniform unit vector; otherwise it is the
            difference of two.

    Example:
        >>> flip = 1 / (1 + np.exp(1.0))
        >>> scale = plain_logistic_scale(
        ...     4.0, dimension=64, flip_probability=flip, unit_differences=True
        ... )
        >>> round(1 / scale, 2)
        2.26
    """
    norm = _validate.positive("size", size)
    flip = checked_flip(flip_probability)
    values, weights = sphere_coordinate(dimension)
    if not unit_differences:
        values = np.subtract.outer(values, values).ravel()
        weights = np.multiply.outer(weights, weights).ravel()
    margins = norm * values
    kept = (1 - 2 * flip) * (expit(margins) - 0.5)

    def score(scale: float) -> float:
        return float(weights @ (values * (expit(scale * margins) - 0.5 - kept)))

    return float(brentq(score, 0.0, 1.0, xtol=1e-14))


def sphere_coordinate(
    dimension: int, *, nodes: int = _NODES
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Return values and probabilities that stand for one coordinate of a uniform unit vector.

    Source:
        Gauss–Jacobi quadrature of the density ∝ (1 − u²)^((d − 3)/2); exact for polynomials of
        degree 2·nodes − 1.

    Args:
        dimension: d ≥ 2.
        nodes: How many values.

    Example:
        >>> values, weights = sphere_coordinate(8)
        >>> round(float(weights @ values**2), 12)
        0.125
    """
    _validate.integer("dimension", dimension, at_least=2)
    power = (dimension - 3) / 2
    values, weights = roots_jacobi(_validate.integer("nodes", nodes, at_least=1), power, power)
    return values, weights / weights.sum()
