"""Exact arithmetic of tilted logistic objectives, for made-up records: what an auditor plays with.

F(θ) = Σ log(1 + e^{−θᵀz}) + (Λ/2)‖θ‖² + bᵀθ. The tilt under which θ is the minimizer is a function
of θ, so that the density of the minimizer is known in closed form.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino.errors import ConvergenceError
from sordino.mechanisms.base import WorstCase
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    NeighboringRelation,
)

__all__ = ["clipped", "log_density", "minimizers", "worst_case"]

_STEPS = 500
_SHRINKS = 0.9
_SHARES = 24
_BLOCK = 1 << 14
_PULL = 30.0  # how far short records pull the weights, in 1/R
_LEAN = 0.25  # sine of the angle between the pull and a replaced record
_STIFF = 200


def clipped(values: Float[np.ndarray, "n d"], bound: float) -> Float[np.ndarray, "n d"]:
    """Return every row shrunk to a norm of at most ``bound``, up to rounding."""
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
    shape = values / np.where(largest > 0, largest, 1.0)  # no square overflows
    length = np.maximum(np.linalg.norm(shape, axis=1, keepdims=True), 1.0)
    return np.asarray(shape * np.minimum(largest, bound / length))


def minimizers(
    records: Float[np.ndarray, "n d"], tilts: Float[np.ndarray, "t d"], ridge: float, atol: float
) -> Float[np.ndarray, "t d"]:
    """Return the minimizer of every tilted objective.

    Newton's method. Where a full step does not shrink the gradient, the share of it that lowers
    the objective most is taken.

    Raises:
        ConvergenceError: A gradient stays above ``atol``.
    """
    rows, counts = np.unique(records, axis=0, return_counts=True)
    found = [
        _solved(rows, counts, tilts[start : start + _BLOCK], ridge, atol)
        for start in range(0, len(tilts), _BLOCK)
    ]
    return np.concatenate(found)


def _solved(
    rows: np.ndarray, counts: np.ndarray, tilts: np.ndarray, ridge: float, atol: float
) -> np.ndarray:
    """Return the minimizers of one block of tilts."""
    theta, left = np.zeros_like(tilts), np.arange(len(tilts))
    for _ in range(_STEPS):
        gradient, hessian = _derivatives(theta[left], rows, counts, ridge)
        gradient += tilts[left]
        size = np.linalg.norm(gradient, axis=1)
        rough = size > atol
        left, size = left[rough], size[rough]
        if not len(left):
            return theta
        step = np.linalg.solve(hessian[rough], gradient[rough][..., np.newaxis])[..., 0]
        full = tilts[left] + _derivatives(theta[left] - step, rows, counts, ridge)[0]
        damped = np.linalg.norm(full, axis=1) > _SHRINKS * size
        share = np.ones(len(left))
        if damped.any():
            far = (theta[left][damped], step[damped], tilts[left][damped])
            share[damped] = _best_share(*far, rows, counts, ridge)
        theta[left] -= step * share[:, np.newaxis]
    raise ConvergenceError(f"A tilted objective was not minimized in {_STEPS} steps.")


def _best_share(
    theta: np.ndarray,
    step: np.ndarray,
    tilts: np.ndarray,
    rows: np.ndarray,
    counts: np.ndarray,
    ridge: float,
) -> np.ndarray:
    """Return the power of 1/2 times which every step lowers its objective most."""
    shares = 0.5 ** np.arange(_SHARES)
    values = []
    for share in shares:
        at = theta - share * step
        loss = np.logaddexp(0.0, -at @ rows.T) @ counts
        values.append(loss + ((ridge / 2 * at + tilts) * at).sum(axis=1))
    return np.asarray(shares[np.argmin(values, axis=0)])


def _derivatives(
    theta: np.ndarray, rows: np.ndarray, counts: np.ndarray, ridge: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return gradients without the tilt, and Hessians, at every row of theta."""
    margins = theta @ rows.T
    slopes, bends = counts * expit(-margins), counts * expit(margins) * expit(-margins)
    hessian = np.einsum("tn,ni,nj->tij", bends, rows, rows, optimize=True)
    return ridge * theta - slopes @ rows, hessian + ridge * np.eye(rows.shape[1])


def log_density(
    theta: Float[np.ndarray, "t d"],
    records: Float[np.ndarray, "n d"],
    ridge: float,
    standard_deviation: float,
) -> Float[np.ndarray, " t"]:
    """Return the log-density of the minimizer at every row of theta, up to one constant."""
    rows, counts = np.unique(records, axis=0, return_counts=True)
    tilt, hessian = _derivatives(theta, rows, counts, ridge)
    distance = (tilt / standard_deviation) ** 2
    return np.asarray(np.linalg.slogdet(hessian)[1] - distance.sum(axis=1) / 2)


def worst_case(
    neighbors: NeighboringRelation, bound: float, ridge: float, standard_deviation: float
) -> WorstCase:
    """Return two neighboring inputs whose weights lie where a record's slope is nearly 1."""
    noise = standard_deviation / bound
    if neighbors == REPLACE_ONE:
        around = _pull(np.array([0.0, -1.0]), bound, ridge, noise)
        stiff = np.repeat([[bound, 0.0], [-bound, 0.0]], _few(_STIFF + 10 * noise), axis=0)
        right = bound * np.array([[math.sqrt(1 - _LEAN**2), _LEAN]])
        one, other = (np.vstack([around, stiff, row]) for row in (right, right * [[-1.0, 1.0]]))
        return WorstCase(one, other)
    around = _pull(np.array([-1.0]), bound, ridge, noise)
    others = {REPLACE_SPECIAL: np.zeros((1, 1)), ADD_OR_REMOVE_ONE: np.zeros((0, 1))}
    return WorstCase(np.vstack([around, [[bound]]]), np.vstack([around, others[neighbors]]))


def _pull(direction: np.ndarray, bound: float, ridge: float, noise: float) -> np.ndarray:
    """Return short records that hold the weights at about 30/R in one direction.

    Some balance the ridge. Others balance each other there, so many that the tilt moves the
    weights by only a few 1/R.
    """
    short = bound / _PULL
    against_ridge = ridge * (_PULL / bound) / (short * float(expit(-1.0)))
    stiff = noise * _PULL**2 / 4 / (float(expit(1.0) * expit(-1.0)) * (1 + math.exp(-1.0)))
    along, back = _few(against_ridge + stiff), _few(stiff * math.exp(-1.0))
    return np.vstack(
        [np.tile(short * direction, (along, 1)), np.tile(-short * direction, (back, 1))]
    )


def _few(count: float) -> int:
    """Return a whole number of records that fits into memory."""
    return min(math.ceil(count), 10**6)
