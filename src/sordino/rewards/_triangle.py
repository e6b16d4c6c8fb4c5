"""A symmetric matrix as a text: its lower triangle, packed."""

from __future__ import annotations

import base64

import numpy as np
from jaxtyping import Float

__all__ = ["packed", "unpacked"]


def packed(matrix: Float[np.ndarray, "d d"]) -> str:
    """Return the lower triangle of a symmetric matrix, row by row, in base 64.

    Example:
        >>> unpacked(packed(np.eye(2)), 2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    lower = matrix[np.tril_indices(len(matrix))].astype("<f8")
    return base64.b64encode(lower.tobytes()).decode()


def unpacked(text: str, d: int) -> Float[np.ndarray, "d d"]:
    """Return the d × d matrix that :func:`packed` wrote; ValueError if the text is another's."""
    lower = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8")
    if len(lower) != d * (d + 1) // 2:
        raise ValueError("The text has another length.")
    matrix = np.zeros((d, d))
    matrix[np.tril_indices(d)] = lower
    return matrix + np.tril(matrix, -1).T
