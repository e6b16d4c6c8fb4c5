"""Least squares with a ridge inside a ball."""

from __future__ import annotations

from typing import Final

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh

__all__ = ["minimize_in_ball"]

_STEPS: Final = 200


def minimize_in_ball(
    moment: Float[np.ndarray, "d d"],
    pull: Float[np.ndarray, " d"],
    ball: float | None,
) -> Float[np.ndarray, " d"]:
    """Return the θ that minimizes θᵀΣθ − 2bᵀθ over the ball, up to rounding.

    Private data have been read, and a refusal would tell of them: there is none. In real numbers
    every step is exact, but for a shift that is found to the last bit.

    Args:
        moment: Σ, symmetric and positive definite, shape (d, d).
        pull: b = Σ rφ, shape (d,).
        ball: Bound on ‖θ‖; None for none.

    Source:
        docs/intrinsic.md, "Linear bandits": the first-order conditions, solved in the basis of
        eigenvectors, where ‖θ(ν)‖ falls with ν.
    """
    values, basis = eigh(moment)
    rotated = basis.T @ pull

    def size(shift: float) -> float:
        return float(np.linalg.norm(rotated / (values + shift)))

    shift = 0.0
    if ball is not None and size(0.0) > ball:
        high = float(np.linalg.norm(pull)) / ball  # there the norm is below the ball's
        low = 0.0
        for _ in range(_STEPS):
            shift = low + (high - low) / 2
            low, high = (shift, high) if size(shift) > ball else (low, shift)
        shift = high
    theta = basis @ (rotated / (values + shift))
    for _ in range(3):  # what rounding left over
        residual = pull - moment @ theta - shift * theta
        theta = theta + basis @ ((basis.T @ residual) / (values + shift))
    norm = float(np.linalg.norm(theta))
    if ball is not None and (shift > 0 or norm > ball):
        theta = theta * (ball / norm)  # on the sphere, where a shift may push
    return np.asarray(theta)
