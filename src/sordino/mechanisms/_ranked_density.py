"""Exact arithmetic of tilted objectives of rankings, for made-up records: what an auditor plays.

A record is the features of its candidates, best first: an array (K, d). The tilt under which θ is
the minimizer is a function of θ, so that the density of the minimizer is known in closed form.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Integer

from sordino.errors import ConvergenceError
from sordino.mechanisms.base import WorstCase
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    NeighboringRelation,
)

__all__ = ["log_density", "minimizers", "worst_case"]

_STEPS = 500
_SHARES = 24
_BLOCK = 1 << 12
_PULL = 30.0  # how far records that hardly differ pull the weights, in 1/(2L)


def minimizers(
    records: Float[np.ndarray, "n k d"], tilts: Float[np.ndarray, "t d"], ridge: float, atol: float
) -> Float[np.ndarray, "t d"]:
    """Return the minimizer of every tilted objective, by damped Newton steps.

    Raises:
        ConvergenceError: A gradient stays above ``atol``.
    """
    known = np.unique(records, axis=0, return_counts=True)
    found = [
        _solved(known, tilts[start : start + _BLOCK], ridge, atol)
        for start in range(0, len(tilts), _BLOCK)
    ]
    return np.concatenate(found)


def log_density(
    theta: Float[np.ndarray, "t d"],
    records: Float[np.ndarray, "n k d"],
    ridge: float,
    standard_deviation: float,
) -> Float[np.ndarray, " t"]:
    """Return the log-density of the minimizer at every row of theta, up to one constant."""
    known = np.unique(records, axis=0, return_counts=True)
    gradient, hessian, _ = _derivatives(theta, known, ridge)
    distance = (gradient / standard_deviation) ** 2
    return np.asarray(np.linalg.slogdet(hessian)[1] - distance.sum(axis=1) / 2)


def worst_case(
    neighbors: NeighboringRelation,
    bound: float,
    shape: tuple[int, int],
    ridge: float,
    standard_deviation: float,
) -> WorstCase:
    """Return two neighboring inputs whose weights lie where a record's slope is nearly largest.

    There the last candidate of the one record is the best by far, so that every stage errs by 2L.
    """
    k, d = shape
    around = _pull(bound, shape, ridge, standard_deviation)
    far = np.zeros((1, k, d))
    far[..., 0] = -bound
    far[:, -1, 0] = bound
    empty = np.zeros((0 if neighbors == ADD_OR_REMOVE_ONE else 1, k, d))
    other = -far if neighbors == REPLACE_ONE else empty
    return WorstCase(np.concatenate([around, far]), np.concatenate([around, other]))


def _pull(
    bound: float, shape: tuple[int, int], ridge: float, standard_deviation: float
) -> Float[np.ndarray, "n k d"]:
    """Return records that hold the first weight at about 30/(2L).

    Their first candidate is a little better or worse than all the others, which are alike. Some
    balance the ridge; others each other there, so many that the tilt moves the weights little.
    """
    k, d = shape
    target = _PULL / (2 * bound)
    short = 1 / target
    up, down = ((k - 1) / (math.exp(sign) + k - 1) for sign in (1.0, -1.0))  # of not being first
    # The tilt moves the weights by s over the curvature: a fifteenth of the target.
    curvature = 15 * standard_deviation / target
    back = _few(curvature / (short**2 * (down * (1 - down) + down * (1 - up))))
    along = _few((ridge * target / short + back * down) / up)
    record = np.zeros((k, d))
    record[0, 0] = short
    return np.concatenate([np.tile(record, (along, 1, 1)), np.tile(-record, (back, 1, 1))])


def _few(count: float) -> int:
    """Return a whole number of records that fits into memory."""
    return min(math.ceil(count), 10**6)


Known = tuple[Float[np.ndarray, "u k d"], Integer[np.ndarray, " u"]]


def _derivatives(
    theta: Float[np.ndarray, "t d"], known: Known, ridge: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return gradients without the tilt, Hessians, and values, at every row of theta."""
    records, counts = known
    gradient, hessian = ridge * theta, np.tile(ridge * np.eye(theta.shape[1]), (len(theta), 1, 1))
    value = ridge / 2 * (theta * theta).sum(axis=1)
    scores = np.einsum("td,ukd->tuk", theta, records)
    for stage in range(records.shape[1] - 1):
        left, features = scores[:, :, stage:], records[:, stage:]
        top = left.max(axis=2, keepdims=True)
        weights = np.exp(left - top)
        total = weights.sum(axis=2, keepdims=True)
        chances = weights / total
        middle = np.einsum("tuk,ukd->tud", chances, features)
        gradient = gradient + np.einsum("u,tud->td", counts, middle - features[:, 0])
        value = value + (top + np.log(total) - left[:, :, :1])[..., 0] @ counts
        spread = features - middle[:, :, np.newaxis]
        hessian = hessian + np.einsum(
            "u,tuk,tukd,tuke->tde", counts, chances, spread, spread, optimize=True
        )
    return gradient, hessian, value


def _solved(known: Known, tilts: np.ndarray, ridge: float, atol: float) -> np.ndarray:
    """Return the minimizers of one block of tilts."""
    theta, left = np.zeros_like(tilts), np.arange(len(tilts))
    for _ in range(_STEPS):
        gradient, hessian, value = _derivatives(theta[left], known, ridge)
        gradient += tilts[left]
        rough = np.linalg.norm(gradient, axis=1) > atol
        left, gradient, value = left[rough], gradient[rough], value[rough]
        if not len(left):
            return theta
        step = np.linalg.solve(hessian[rough], gradient[..., np.newaxis])[..., 0]
        value += (tilts[left] * theta[left]).sum(axis=1)
        theta[left] -= step * _shares(theta[left], step, tilts[left], value, known, ridge)
    raise ConvergenceError(f"A tilted objective was not minimized in {_STEPS} steps.")


def _shares(
    theta: np.ndarray,
    step: np.ndarray,
    tilts: np.ndarray,
    value: np.ndarray,
    known: Known,
    ridge: float,
) -> np.ndarray:
    """Return the first power of 1/2 times which every step does not raise its objective."""
    share, open_ = np.ones(len(theta)), np.arange(len(theta))
    for _ in range(_SHARES):
        at = theta[open_] - share[open_, np.newaxis] * step[open_]
        found = _derivatives(at, known, ridge)[2] + (tilts[open_] * at).sum(axis=1)
        open_ = open_[found > value[open_] + 1e-12 * (1 + np.abs(value[open_]))]
        if not len(open_):
            break
        share[open_] /= 2
    return np.asarray(share[:, np.newaxis])
