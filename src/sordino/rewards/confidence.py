"""The set around an estimate that holds the truth, with an explicit radius.

It is centered at the debiased estimate inside the ball, which is what the proof is about; a
refined estimate (mixture) has no such set of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino._validate import failure_probability, finite_array, integer, non_negative, positive
from sordino.engines.rows import PiecedRows
from sordino.errors import DataError
from sordino.mechanisms._row_sums import row_weights

from ._ellipsoid import Ellipsoid
from ._gram import weighted_grams
from ._triangle import packed, unpacked
from .covariance import debiased_slope
from .solver import Solution

__all__ = [
    "ConfidenceEllipsoid",
    "NoiseTerm",
    "confidence_ellipsoid",
    "flattest_curvature",
    "quadratic_tail",
    "whitened",
]


_NEW: Mapping[str, Any] = {"noise": (), "splits": 1}  # what sets of earlier files do not say


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


@dataclass(frozen=True, kw_only=True)
class NoiseTerm:
    """One source of error of an estimate: factor · √(ξᵀKξ), ξ 1-sub-Gaussian.

    Source:
        docs/local.md, confidence and pessimism. With trace alone, K a number, nothing is random.

    Attributes:
        factor: What the length is multiplied by.
        trace, trace_of_square, largest: tr K, tr K² and ‖K‖.
    """

    factor: float
    trace: float
    trace_of_square: float
    largest: float

    def __post_init__(self) -> None:
        """Refuse what is no size."""
        for name in self.__dataclass_fields__:
            non_negative(name, getattr(self, name))

    @classmethod
    def of(cls, factor: float, shape: Float[np.ndarray, "r r"]) -> NoiseTerm:
        """Return the term of a matrix K.

        Source:
            docs/local.md, confidence and pessimism.

        Args:
            factor: What the length is multiplied by.
            shape: K, symmetric and positive semidefinite.
        """
        return cls(
            factor=factor,
            trace=float(np.trace(shape)),
            trace_of_square=float(np.sum(shape**2)),
            largest=float(np.linalg.eigvalsh(shape)[-1]),
        )

    def reach(self, t: float) -> float:
        """Return what the term exceeds with probability at most e^−t.

        Source:
            docs/local.md, confidence and pessimism: factor · √h(K, t).
        """
        return self.factor * math.sqrt(
            quadratic_tail(self.trace, self.trace_of_square, self.largest, t)
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConfidenceEllipsoid(Ellipsoid):
    """All θ with ‖θ − center‖_M ≤ radius: it holds the true weights as often as stated.

    Valid for a linear reward, questions that were fixed before anybody answered, independent
    answers, and ``ball`` chosen before the data were seen with ‖θ*‖ ≤ ball. It is conservative
    by a factor of about 3 to 5.

    Source:
        docs/local.md, confidence and pessimism: ‖θ̂ − θ*‖_M ≤
        (1/(2κ))√h(M^{-1/2}GM^{-1/2}, t) + ΛB/√λ_min(M) + what every term of ``noise`` reaches,
        t = log(splits · candidates/(1 − confidence)).

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
        noise: What was added to the answers' sum, or to the estimate, measured in the metric.
        splits: Into how many equal parts the chance of a failure is divided: one for each
            source of error that is random.
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
    noise: tuple[NoiseTerm, ...] = ()
    splits: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no ellipsoid."""
        d = len(finite_array("center", self.center, ndim=1))
        if finite_array("metric", self.metric, ndim=2).shape != (d, d):
            raise DataError(f"metric must have shape ({d}, {d}), got {self.metric.shape}.")
        for name in ("kappa", "ball", "ridge", "least_eigenvalue"):
            positive(name, getattr(self, name))
        for name in ("gradient_norm", "trace", "trace_of_square", "largest"):
            non_negative(name, getattr(self, name))
        for name in ("candidates", "splits"):
            integer(name, getattr(self, name), at_least=1)

    def radius(self, confidence: float) -> float:
        """Return how far the truth lies from the center at most, in the metric.

        Source:
            docs/local.md, confidence and pessimism.

        Args:
            confidence: How often the set holds the truth, in (0, 1).
        """
        level = failure_probability("confidence", confidence, zero=False)
        t = math.log(self.splits * self.candidates / (1 - level))
        return self._bias + sum(term.reach(t) for term in (self._answers, *self.noise))

    @property
    def _bias(self) -> float:
        """Return what ridge and solver move the center by at most."""
        return (self.ridge * self.ball + self.gradient_norm) / math.sqrt(self.least_eigenvalue)

    @property
    def _answers(self) -> NoiseTerm:
        """Return the error that comes from the answers themselves."""
        return NoiseTerm(
            factor=1 / (2 * self.kappa),
            trace=self.trace,
            trace_of_square=self.trace_of_square,
            largest=self.largest,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the set as JSON holds it; the metric as its packed lower triangle."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        noise = [vars(term) for term in self.noise]
        return plain | {
            "center": self.center.tolist(),
            "metric": packed(self.metric),
            "noise": noise,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ConfidenceEllipsoid:
        """Return what :meth:`to_dict` wrote.

        Raises:
            DataError: A field is missing or malformed.
            UsageError: A number is out of range.
        """
        try:
            center = np.array(values["center"], dtype=np.float64)
            metric = unpacked(values["metric"], len(center))
            np.linalg.cholesky(metric)
            known = {**_NEW, **values}
            plain = {name: known[name] for name in cls.__dataclass_fields__}
            plain["noise"] = tuple(NoiseTerm(**term) for term in known["noise"])
        except (KeyError, TypeError, ValueError, np.linalg.LinAlgError):
            plain = {}
        if not plain:
            raise DataError("The confidence set has a field that is missing or malformed.")
        return cls(**{**plain, "center": center, "metric": metric})


def confidence_ellipsoid(  # noqa: PLR0913 (each is one public number)
    differences: Any,
    solution: Solution,
    *,
    flip_probability: float,
    ball: float,
    ridge: float,
    candidates: int,
    covariance: Float[np.ndarray, "d d"] | None = None,
    rounding: float = 0.0,
    longest: float = math.inf,
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
        covariance: V, of Gaussian noise that was added to Σ yx; None where nothing was.
        rounding: How far Σ yx was moved at most before that, in standard deviations.
        longest: Rows that are longer count less in the sum and in the fit.
    """
    gram, metric = flattest_curvature(differences, ball=ball, ridge=ridge, longest=longest)
    answers = NoiseTerm.of(1 / 2, whitened(gram, metric))
    return ConfidenceEllipsoid(
        center=solution.theta,
        metric=metric,
        kappa=1 - 2 * flip_probability,
        ball=ball,
        ridge=ridge,
        candidates=candidates,
        gradient_norm=solution.gradient_norm,
        least_eigenvalue=max(float(np.linalg.eigvalsh(metric)[0]), ridge),
        trace=answers.trace,
        trace_of_square=answers.trace_of_square,
        largest=answers.largest,
        noise=() if covariance is None else _added(whitened(covariance, metric), rounding),
        splits=1 if covariance is None else 2,
    )


def _added(shape: Float[np.ndarray, "d d"], rounding: float) -> tuple[NoiseTerm, ...]:
    """Return what noise in Σ yx does to the estimate, and rounding before it, which is certain."""
    drawn = NoiseTerm.of(1.0, shape)
    certain = NoiseTerm(factor=rounding, trace=drawn.largest, trace_of_square=0.0, largest=0.0)
    return (drawn, certain) if rounding else (drawn,)


def flattest_curvature(
    differences: Any, *, ball: float, ridge: float, longest: float = math.inf
) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]]:
    """Return G = Σ cᵢ²xᵢxᵢᵀ, and M: the least curvature of the loss anywhere in the ball.

    Source:
        docs/local.md, confidence and pessimism: M = Σ cᵢwᵢxᵢxᵢᵀ + ΛI, wᵢ = σ′(‖xᵢ‖B),
        cᵢ = min(1, longest/‖xᵢ‖): a residual that counts c times has c² of its variance.

    Args:
        differences: x, shape (n, d), dense or sparse, or in pieces.
        ball: B.
        ridge: Λ > 0.
        longest: Rows that are longer count less; with infinity every one counts 1.
    """
    if isinstance(differences, PiecedRows):
        gram, bent = differences.fold(partial(_grams, ball, longest), _each_added)
    else:
        gram, bent = _grams(ball, longest, 0, differences)
    return gram, bent + ridge * np.eye(len(bent))


def _grams(ball: float, longest: float, _first: int, differences: Any, *_: Any) -> list[np.ndarray]:
    """Return Σ cᵢ²xᵢxᵢᵀ and Σ cᵢwᵢxᵢxᵢᵀ of some rows."""
    lengths = np.sqrt(np.asarray((differences**2).sum(axis=1)).ravel())
    counted = row_weights(differences, longest)
    return weighted_grams(differences, counted**2, counted * debiased_slope(lengths * ball))


def _each_added(one: list[np.ndarray], other: list[np.ndarray]) -> list[np.ndarray]:
    """Return the sums of the first matrices and of the second."""
    return [mine + theirs for mine, theirs in zip(one, other, strict=True)]


def whitened(
    matrix: Float[np.ndarray, "d d"], metric: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, "d d"]:
    """Return a matrix with the eigenvalues of M^{-1/2} · matrix · M^{-1/2}.

    Source:
        docs/local.md, confidence and pessimism.

    Args:
        matrix: Symmetric.
        metric: M, positive definite.
    """
    whiten = np.linalg.inv(np.linalg.cholesky(metric))
    return np.asarray(whiten @ matrix @ whiten.T)
