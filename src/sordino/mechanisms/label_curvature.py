"""How far one label of public questions can move a fit inside a ball: the curvature it meets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import linalg
from scipy.special import expit

from sordino import _validate
from sordino.mechanisms._bounded_gram import BLOCK, ROUNDING, BoundedGram
from sordino.mechanisms._outward import UP, dense_blocks, farthest_rows, public_rows, size

__all__ = ["LabelCurvature", "least_slope"]


def least_slope(margin: float) -> float:
    """Return σ′(margin), the least curvature of a pair whose |θᵀx| is at most margin, rounded down.

    Args:
        margin: ball·bound, from 0.

    Source:
        docs/intrinsic.md, "Withheld rewards of preferences": γ = σ(BX)σ(−BX).

    Example:
        >>> round(least_slope(0.0), 9)
        0.25
    """
    return float(_least_slopes(np.array(_validate.non_negative("margin", margin))))


def _least_slopes(margins: np.ndarray) -> np.ndarray:
    # An exponent that is wrong by a share of 2^-50 changes the result by that times the exponent.
    margins = margins * (1 + 2.0**-30)
    return np.asarray(expit(margins) * expit(-margins) * (1 - 2.0**-40))


@dataclass(frozen=True)
class LabelCurvature:
    """The least curvature of the fit over a ball, for public pairs: factored once, asked often.

    M = ridge·I + Σ γ_i x_i x_iᵀ with γ_i = σ(B‖x_i‖)σ(−B‖x_i‖). One flipped label moves the
    weights by Δ with ‖Δ‖_M ≤ max_i ‖x_i‖_{M⁻¹}, whatever the labels are. Build it with :meth:`of`.

    Attributes:
        ball: B.
        leverage: Upper bound on max_i ‖x_i‖_{M⁻¹}; infinite where M may be singular.
    """

    ball: float
    leverage: float
    _factor: Float[np.ndarray, "d d"] = field(repr=False)
    _wrong: float = field(repr=False)  # of a solution of the factor, as a share of its length
    _shift: float = field(repr=False)  # the same, as a share of what is solved for

    @classmethod
    def of(cls, differences: Any, *, ridge: float, ball: float) -> LabelCurvature:
        """Return the curvature of these pairs.

        What is factored is below M by the sum of all rounding errors, so that every norm in its
        inverse is an upper bound: with e the rounding bound of the second moment and of the
        factor, L Lᵀ ≤ t·Σγxxᵀ + (ridge − t·e)·I ≤ M, t = 1 unless M may be singular up to e. The
        range is at most about 1 + 2e/λ_min(M) times the exact one.

        Args:
            differences: x, shape (n, d), dense or sparse; public.
            ridge: λr, 0 (then nothing but the ball may bound the range) or within 1e-60 and 1e60.
            ball: B, the bound on the norm of the weights, within the same sizes.

        Raises:
            UsageError: A setting is out of range.
            DataError: The differences are not finite numbers of usable size.

        Source:
            docs/intrinsic.md, "Withheld rewards of preferences".
        """
        ridge, ball = size("ridge", ridge, zero=True), size("ball", ball)
        rows = public_rows("differences", differences)
        n, d = rows.shape
        lengths = [np.linalg.norm(block, axis=1) for block in dense_blocks(rows, BLOCK)]
        gram = BoundedGram.of(rows, _least_slopes(ball * np.concatenate([np.zeros(0), *lengths])))
        factor, least = _lower_factor(gram, ridge)
        if not n or not least > 0:
            return cls(ball, math.inf if n else 0.0, np.zeros((d, d)), 0.0, 0.0)
        leverage = max(_longest(factor, block) for block in dense_blocks(rows, 8 * BLOCK))
        wrong = (d + 4) * ROUNDING * float(np.linalg.norm(factor)) / math.sqrt(least)
        return cls(ball, leverage, factor, wrong, ROUNDING / math.sqrt(least))

    def range(self, queries: Any, *, inexactness: float = 0.0) -> float:
        """Return a bound on how far apart the changes of two scores are after one flipped label.

        Args:
            queries: φ of the candidates of one question, shape (k, d), dense or sparse; public.
            inexactness: ξ, by which a computed score may differ from the exact one.

        Raises:
            DataError: The queries are not finite numbers of usable size, or not d of them.
            UsageError: The inexactness is out of range.

        Source:
            docs/intrinsic.md, "Withheld rewards of preferences": max_i ‖x_i‖_{M⁻¹} ·
            max_{a,a′} ‖φ_a − φ_a′‖_{M⁻¹}, and at most 2B·max_{a,a′} ‖φ_a − φ_a′‖.

        Example:
            >>> pairs = LabelCurvature.of(np.full((10, 1), 2.0), ridge=1.0, ball=0.2)
            >>> round(pairs.range(np.array([[1.0], [-1.0]])), 6)
            0.376988
        """
        slack = 4 * size("inexactness", inexactness, zero=True)
        rows = public_rows("queries", queries, d=len(self._factor))
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        moved = rows - rows[:1]
        if not self.leverage or not moved.any():
            return slack * UP
        plain = 2 * self.ball * farthest_rows(moved)
        if math.isinf(self.leverage):
            return (plain + slack) * UP
        scale = math.ldexp(1.0, math.frexp(float(np.abs(moved).max()))[1])
        moved /= scale
        inside = _solved(self._factor, moved)
        wrong = self._wrong * np.linalg.norm(inside, axis=1).max()
        wrong += self._shift * np.linalg.norm(moved, axis=1).max()
        spread = (farthest_rows(inside) + 2 * float(wrong)) * scale
        return (min(self.leverage * spread, plain) + slack) * UP


def _lower_factor(gram: BoundedGram, ridge: float) -> tuple[Float[np.ndarray, "d d"], float]:
    """Return a triangular L with L Lᵀ below the exact matrix, and a lower bound on its spectrum.

    Factoring A and solving with the factor of A are exact for matrices that are off by at most
    (4d + 16)·2^-52·trace A together. The bound is 0 or less where A may be singular.
    """
    d = len(gram.matrix)
    share = (4 * d + 16) * ROUNDING
    error = gram.error + share * gram.trace
    below = error + share * d * ridge
    least = 0.49 * ridge  # errors are at most a quarter of the ridge, and counted twice
    if ridge < 4 * error:
        lowest = linalg.eigvalsh(gram.matrix, subset_by_index=[0, 0], check_finite=False)[0]
        least = float(lowest) + ridge - 4 * below
        if ridge and least < 0.49 * ridge:  # G ≥ t(G̃ − e) for every t within 0 and 1, because G ≥ 0
            times = ridge / (4 * error)
            return _factor(gram.matrix * times, ridge * (0.75 - share * d)), 0.49 * ridge
    return (_factor(gram.matrix, ridge - below), least) if least > 0 else (0 * gram.matrix, 0.0)


def _factor(matrix: np.ndarray, shift: float) -> np.ndarray:
    """Return the triangular factor of a matrix plus a multiple of the identity."""
    shifted = matrix + shift * np.eye(len(matrix))
    return np.asarray(linalg.cholesky(shifted, lower=True, check_finite=False))


def _solved(factor: np.ndarray, rows: Float[np.ndarray, "b d"]) -> Float[np.ndarray, "b d"]:
    """Return L⁻¹ of every row."""
    return np.asarray(linalg.solve_triangular(factor, rows.T, lower=True, check_finite=False).T)


def _longest(factor: np.ndarray, rows: Float[np.ndarray, "b d"]) -> float:
    """Return the largest norm of L⁻¹x over rows, rounded up."""
    return float(np.linalg.norm(_solved(factor, rows), axis=1).max()) * UP
