"""What all ellipsoids of weights share: a center and a metric, whatever the radius is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino.errors import DataError

from ._gram import blocks

__all__ = ["Ellipsoid"]


class Ellipsoid(ABC):
    """All θ with ‖θ − center‖_M ≤ radius; a subclass says what the radius is.

    Attributes:
        center: The weights in the middle, shape (d,).
        metric: M, symmetric and positive definite, shape (d, d).
    """

    center: Float[np.ndarray, " d"]
    metric: Float[np.ndarray, "d d"]

    @abstractmethod
    def radius(self, confidence: float) -> float:
        """Return how far the truth lies from the center at most, in the metric."""

    def __repr__(self) -> str:
        """Return the size and the radius; no weights."""
        name = type(self).__name__
        return f"{name}(d={len(self.center)}, radius(0.95)={self.radius(0.95):.4g})"

    def widths(self, rows: Any) -> Float[np.ndarray, " m"]:
        """Return ‖row‖_{M⁻¹} of every row: times the radius, a bound on how wrong θ̂ᵀrow is.

        Source:
            docs/local.md, confidence and pessimism: |(θ̂ − θ*)ᵀv| ≤ ‖θ̂ − θ*‖_M ‖v‖_{M⁻¹}.

        Args:
            rows: Shape (m, d), dense or sparse.

        Raises:
            DataError: The number of columns is not d.
        """
        if rows.ndim != 2 or rows.shape[1] != len(self.center):  # noqa: PLR2004
            raise DataError(f"rows must have shape (m, {len(self.center)}), got {rows.shape}.")
        widths = np.zeros(rows.shape[0])
        for block, chosen in blocks(rows):
            widths[chosen] = np.linalg.norm(block @ self._whiten.T, axis=1)
        return widths

    def distance(self, theta: Float[np.ndarray, " d"]) -> float:
        """Return ‖θ − center‖_M.

        Source:
            docs/local.md, confidence and pessimism.
        """
        gap = np.asarray(theta) - self.center
        return math.sqrt(max(float(gap @ self.metric @ gap), 0.0))

    def contains(self, theta: Float[np.ndarray, " d"], confidence: float) -> bool:
        """Return whether weights lie in the set.

        Source:
            docs/local.md, confidence and pessimism.
        """
        return self.distance(theta) <= self.radius(confidence)

    @cached_property
    def _whiten(self) -> Float[np.ndarray, "d d"]:
        """Return W with WᵀW = M⁻¹."""
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.metric)))
