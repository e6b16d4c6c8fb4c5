"""From the debiased estimate to the maximum of the likelihood of what was released.

The likelihood of randomized answers is not convex, so the search starts at the debiased
estimate, which is close where there are many answers; a single step from there is already
efficient. Where no better point is found, the start stays.
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
from jaxtyping import Float

from sordino._validate import positive
from sordino.errors import ConvergenceError

from ._gram import weighted_grams
from .covariance import mixture_information
from .likelihoods import MixtureLogistic
from .solver import Solution

__all__ = ["refine"]

_MOST_STEPS = 200
_MOST_HALVINGS = 40


def refine(
    loss: MixtureLogistic,
    start: Float[np.ndarray, " d"],
    *,
    ridge: float,
    atol: float,
    ball: float,
) -> Solution:
    """Return a stationary point of the mixture likelihood plus ridge, certified.

    Newton's method with step-halving; where the Hessian is not positive definite, the expected
    one takes its place (Fisher scoring). A step is halved until the loss falls and the ball
    holds.

    Source:
        docs/local.md, mixture likelihood; method of scoring, Fisher 1925.

    Args:
        loss: The released answers.
        start: The debiased estimate.
        ridge: Λ > 0 of (Λ/2)‖θ‖².
        atol: Largest norm of the gradient that is accepted.
        ball: Bound on the norm of the weights.

    Raises:
        ConvergenceError: No stationary point was found inside the ball.
    """
    search = _Search(loss, positive("ridge", ridge), ball)
    theta, passes = np.array(start, dtype=np.float64), 0
    while passes < _MOST_STEPS:
        gradient = search.gradient(theta)
        size = float(np.linalg.norm(gradient))
        if size <= atol:
            return Solution(theta=theta, gradient_norm=size, multiplier=0.0, passes=passes)
        following = search.step(theta, gradient)
        if following is None:
            break
        theta, passes = following, passes + 1
    raise ConvergenceError(
        f"No stationary point of the mixture likelihood was found within atol={atol!r} inside the "
        f"ball of {ball!r}; nothing was returned. Use method='debiased', or raise the ridge."
    )


class _Search:
    """The penalized loss, and one step of scoring on it."""

    def __init__(self, loss: MixtureLogistic, ridge: float, ball: float) -> None:
        self._loss, self._ridge, self._ball = loss, ridge, ball

    def _value(self, theta: np.ndarray) -> float:
        return self._loss.value(theta) + 0.5 * self._ridge * float(theta @ theta)

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Return the gradient with the ridge."""
        return self._loss.gradient(theta) + self._ridge * theta

    def _curvature(self, theta: np.ndarray) -> np.ndarray:
        """Return the Hessian where it is positive definite, else what is expected of it."""
        ridge = self._ridge * np.eye(len(theta))
        observed = self._loss.hessian(theta) + ridge
        with suppress(np.linalg.LinAlgError):
            np.linalg.cholesky(observed)
            return np.asarray(observed)
        margins = np.asarray(self._loss.differences @ theta)
        weights = mixture_information(margins, self._loss.flip_probability)
        return np.asarray(weighted_grams(self._loss.differences, weights)[0] + ridge)

    def step(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        """Return the first of a halving sequence of points that is better, or None."""
        direction = -np.linalg.solve(self._curvature(theta), gradient)
        value, slope = self._value(theta), float(gradient @ direction)
        rounding = 1e-12 * (1 + abs(value))
        for halving in range(_MOST_HALVINGS):
            share = 0.5**halving
            following = np.asarray(theta + share * direction)
            inside = math.sqrt(float(following @ following)) <= self._ball
            if inside and self._value(following) <= value + 1e-4 * share * slope + rounding:
                return following
        return None
