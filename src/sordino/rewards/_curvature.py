"""An approximate Hessian that is cheap to build, to shift by a ridge and to invert."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy.sparse import issparse
from scipy.special import expit

from ._gram import weighted_grams
from .likelihoods import DebiasedLogistic

__all__ = ["Curvature", "inverse"]

_DENSE_FEATURES = 4096  # above this a d by d matrix costs more than the passes it saves
_PASSES_PER_FEATURE = 1 / 16  # dense passes that cost twice one Hessian, for each feature
_FEW = 16  # passes that are not worth saving
_FLOPS = 1 << 26  # a Hessian this cheap takes every row

Solver = Callable[[np.ndarray], np.ndarray]


class Curvature:
    """Σ σ′(margin) xxᵀ over evenly spaced rows, or its diagonal where that is the better deal.

    Only the speed of the solver rests on it, so a sample of the rows is enough: 32 rows a
    feature put the eigenvalues of the whitened Hessian within a factor of about two. Passes
    over sparse rows are so cheap that the diagonal is tried first.

    Source:
        docs/local.md, debiased likelihood (Hessian).

    Attributes:
        patience: Passes after which measuring the whole matrix anew is worth its price.
        matrix: What was measured: a matrix, or its diagonal.
    """

    def __init__(self, loss: DebiasedLogistic, margins: Float[np.ndarray, " n"]) -> None:
        """Measure at the given margins."""
        n, d = loss.differences.shape
        self._loss, matrix = loss, cast("Any", loss.differences)
        self._dense = d <= _DENSE_FEATURES
        filled = matrix.nnz / max(n * d, 1) if issparse(matrix) else 1.0
        passes = _PASSES_PER_FEATURE * d / max(filled, 1e-9)
        self.patience = max(1.0, passes) if self._dense else math.inf
        whole = self._dense and (filled == 1 or passes < _FEW)
        # At first a quarter of the rows at most: a rough matrix costs a pass or two.
        rows = min(32, max(8, n // (4 * max(d, 1))))
        self.matrix = self._measure(margins, rows) if whole else self._diagonal(margins)

    def refresh(self, margins: Float[np.ndarray, " n"]) -> None:
        """Measure again at the given margins, on more rows.

        Source:
            docs/local.md, debiased likelihood (Hessian).
        """
        self.matrix = self._measure(margins, 128) if self._dense else self._diagonal(margins)

    def _measure(
        self, margins: Float[np.ndarray, " n"], rows_per_feature: int
    ) -> Float[np.ndarray, "d d"]:
        n, d = self._loss.differences.shape
        step = max(1, n // max(rows_per_feature * d, _FLOPS // max(d, 1) ** 2, 1))
        [total] = weighted_grams(self._loss.differences, self._weights(margins), step=step)
        return np.asarray(total * (n / max(len(range(0, n, step)), 1)))

    def _diagonal(self, margins: Float[np.ndarray, " n"]) -> Float[np.ndarray, " d"]:
        rows: Any = self._loss.differences
        squares = rows.power(2) if issparse(rows) else rows * rows
        return np.asarray(squares.T @ self._weights(margins))

    def _weights(self, margins: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return σ′ of each margin, as much as its row counts."""
        probabilities = expit(margins)
        return np.asarray(self._loss.weights * probabilities * (1 - probabilities))


def inverse(matrix: Float[np.ndarray, " *size"], shift: float) -> Solver:
    """Return the function v ↦ (matrix + shift·I)⁻¹v.

    A matrix that is not positive definite in floating point gets the smallest of a few extra
    shifts that makes it so.

    Source:
        docs/local.md, the fit (F with its ridge).
    """
    diagonal = matrix if matrix.ndim == 1 else np.diagonal(matrix)
    scale = float(diagonal.max(initial=0.0)) or 1.0
    if matrix.ndim == 1:
        inverted = 1 / (matrix + (shift + 1e-12 * scale))
        return lambda vector: inverted * vector
    for jitter in (0.0, 1e-12, 1e-9, 1e-6):
        shifted = matrix.copy()
        shifted.flat[:: len(matrix) + 1] += shift + jitter * scale
        try:
            # NumPy throughout: SciPy's own BLAS threads and NumPy's get in each other's way.
            whiten = np.linalg.inv(np.linalg.cholesky(shifted))
        except np.linalg.LinAlgError:
            continue
        return lambda vector: np.asarray(whiten.T @ (whiten @ vector))
    return inverse(diagonal, shift)
