"""The set around an estimate that holds the truth, with an explicit radius.

It is centered at the debiased estimate inside the ball, which is what the proof is about; a
refined estimate (mixture) has no such set of its own.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino._validate import failure_probability, finite_array, integer, non_negative, positive
from sordino.errors import DataError

from ._gram import blocks, weighted_grams
from .covariance import debiased_slope
from .solver import Solution

__all__ = ["ConfidenceEllipsoid", "confidence_ellipsoid", "quadratic_tail"]


def quadratic_tail(trace: float, trace_of_square: float, largest: float, t: float) -> float:
    """Return the level that ξᵀKξ exceeds with probability at most e^−t, ξ 1-sub-Gaussian.

    Source:
        Hsu, Kakade & Zhang 2012, Theorem 2.1; docs/local.md, confidence and pessimism:
        h(K, t) = tr K + 2√(tr(K²)t) + 2‖K‖t.

    Args:
        trace: tr K.
        trace_of_square: tr K².
        largest: ‖K‖, the largest eigenvalue.
        t: > 0.

    Example:
        >>> quadratic_tail(1.0, 1.0, 1.0, 1.0)
        5.0
    """
    return trace + 2 * math.sqrt(trace_of_square * t) + 2 * largest * t


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfidenceEllipsoid:
    """All θ with ‖θ − center‖_M ≤ radius: it holds the true weights as often as stated.

    Valid for a linear reward, questions that were fixed before anybody answered, independent
    answers, and ``ball`` chosen before the data were seen with ‖θ*‖ ≤ ball. It is conservative
    by a factor of about 3 to 5.

    Source:
        docs/local.md, confidence and pessimism: ‖θ̂ − θ*‖_M ≤
        (1/(2κ))√h(M^{-1/2}GM^{-1/2}, t) + ΛB/√λ_min(M), t = log(candidates/(1 − confidence)).

    Attributes:
        center: θ̂, the debiased minimizer inside the ball, shape (d,).
        metric: M = Σ σ′(‖xᵢ‖B) xᵢxᵢᵀ + ΛI, shape (d, d).
        kappa: κ = 1 − 2·flip probability.
        ball: B.
        ridge: Λ.
        candidates: How many ridges were tried on the same answers; 1 if it was given.
        gradient_norm: What is left of the gradient at the center; it widens the radius.
        least_eigenvalue: λ_min(M).
        trace, trace_of_square, largest: tr K, tr K² and ‖K‖ of K = M^{-1/2}GM^{-1/2}, G =
            Σ xᵢxᵢᵀ.
    """

    center: Float[np.ndarray, " d"]
    metric: Float[np.ndarray, "d d"]
    kappa: float
    ball: float
    ridge: float
    candidates: int
    gradient_norm: float
    least_eigenvalue: float
    trace: float
    trace_of_square: float
    largest: float

    def __post_init__(self) -> None:
        """Refuse what is no ellipsoid."""
        d = len(finite_array("center", self.center, ndim=1))
        if finite_array("metric", self.metric, ndim=2).shape != (d, d):
            raise DataError(f"metric must have shape ({d}, {d}), got {self.metric.shape}.")
        for name in ("kappa", "ball", "ridge", "least_eigenvalue"):
            positive(name, getattr(self, name))
        for name in ("gradient_norm", "trace", "trace_of_square", "largest"):
            non_negative(name, getattr(self, name))
        integer("candidates", self.candidates, at_least=1)

    def __repr__(self) -> str:
        """Return the size and the radius; no weights."""
        return f"ConfidenceEllipsoid(d={len(self.center)}, radius(0.95)={self.radius(0.95):.4g})"

    def radius(self, confidence: float) -> float:
        """Return how far the truth lies from the center at most, in the metric.

        Source:
            docs/local.md, confidence and pessimism.

        Args:
            confidence: How often the set holds the truth, in (0, 1).
        """
        level = failure_probability("confidence", confidence, zero=False)
        t = math.log(self.candidates / (1 - level))
        noise = math.sqrt(quadratic_tail(self.trace, self.trace_of_square, self.largest, t))
        bias = (self.ridge * self.ball + self.gradient_norm) / math.sqrt(self.least_eigenvalue)
        return noise / (2 * self.kappa) + bias

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

    def to_dict(self) -> dict[str, Any]:
        """Return the set as JSON holds it; the metric as its packed lower triangle."""
        lower = self.metric[np.tril_indices(len(self.center))].astype("<f8")
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        packed = base64.b64encode(lower.tobytes()).decode()
        return plain | {"center": self.center.tolist(), "metric": packed}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ConfidenceEllipsoid:
        """Return what :meth:`to_dict` wrote.

        Raises:
            DataError: A field is missing or malformed.
            UsageError: A number is out of range.
        """
        try:
            center = np.array(values["center"], dtype=np.float64)
            metric = _unpacked(values["metric"], len(center))
            np.linalg.cholesky(metric)
            plain = {name: values[name] for name in cls.__dataclass_fields__}
        except (KeyError, TypeError, ValueError, np.linalg.LinAlgError):
            plain = {}
        if not plain:
            raise DataError("The confidence set has a field that is missing or malformed.")
        return cls(**{**plain, "center": center, "metric": metric})


def _unpacked(text: str, d: int) -> Float[np.ndarray, "d d"]:
    """Return the symmetric matrix of a packed lower triangle."""
    lower = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8")
    matrix = np.zeros((d, d))
    matrix[np.tril_indices(d)] = lower
    return matrix + np.tril(matrix, -1).T


def confidence_ellipsoid(
    differences: Any,
    solution: Solution,
    *,
    flip_probability: float,
    ball: float,
    ridge: float,
    candidates: int,
) -> ConfidenceEllipsoid:
    """Return the confidence set of a debiased fit inside a ball.

    Only public numbers and the released estimate enter it, so it costs nothing.

    Source:
        docs/local.md, confidence and pessimism: M = Σ wᵢxᵢxᵢᵀ + ΛI, wᵢ = σ′(‖xᵢ‖B).

    Args:
        differences: x, shape (n, d), dense or sparse.
        solution: The certified minimizer.
        flip_probability: f, in [0, 1/2).
        ball: B, chosen before the data were seen.
        ridge: Λ > 0.
        candidates: How many ridges were tried on the same answers.
    """
    lengths = np.sqrt(np.asarray((differences**2).sum(axis=1)).ravel())
    flattest = debiased_slope(lengths * ball)
    gram, bent = weighted_grams(differences, np.ones(len(lengths)), flattest)
    metric = bent + ridge * np.eye(len(bent))
    whiten = np.linalg.inv(np.linalg.cholesky(metric))
    spread = whiten @ gram @ whiten.T
    return ConfidenceEllipsoid(
        center=solution.theta,
        metric=metric,
        kappa=1 - 2 * flip_probability,
        ball=ball,
        ridge=ridge,
        candidates=candidates,
        gradient_norm=solution.gradient_norm,
        least_eigenvalue=max(float(np.linalg.eigvalsh(metric)[0]), ridge),
        trace=float(np.trace(spread)),
        trace_of_square=float(np.sum(spread**2)),
        largest=float(np.linalg.eigvalsh(spread)[-1]),
    )
