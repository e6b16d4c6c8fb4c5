"""The set around weights released under record privacy that holds the truth.

Only what was released enters it: the weights, the noised second moment and public settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino._validate import failure_probability, finite_array, non_negative, positive
from sordino.errors import DataError, UsageError
from sordino.mechanisms.objective_perturbation import ObjectivePerturbation
from sordino.mechanisms.second_moment import SecondMoment

from ._ellipsoid import Ellipsoid
from ._triangle import packed, unpacked
from .confidence import quadratic_tail
from .covariance import debiased_slope
from .released_moment import ReleasedMoment

__all__ = ["RecordEllipsoid", "least_ridge", "record_ellipsoid", "refuse_small_ridge"]

KIND = "record"
MOMENT_FAILURE = 1e-3
"""Probability that the noise of the second moment may be larger than the metric allows for."""
_ROOM = 1e-6  # relative: what the metric keeps above 0 at the least ridge


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordEllipsoid(Ellipsoid):
    """All θ with ‖θ − center‖_M ≤ radius: it holds the true weights as often as stated.

    Valid for a reward that is linear in the features as they were used (shrunk to the bound, and
    on the grid of the second moment), independent answers, and ``ball`` chosen before the data
    were seen with ‖θ*‖ ≤ ball. It is conservative by a factor of about 3 to 5.

    Source:
        docs/central.md, "Confidence under record privacy": M = γ(G̃ − νI) + ΛI, and ‖θ̂ − θ*‖_M ≤
        (1/(2√γ))√(d + 2√(dt) + 2t) + ΛB/√λ_min(M) + s√h(M⁻¹, t) + (τ/Λ)√λ_max(M) + s_o√h(M, t).

    Attributes:
        center: The released weights, shape (d,).
        metric: M, shape (d, d).
        slope: γ = σ′(RB), the least curvature of one answer inside the ball.
        ball: B.
        ridge: Λ.
        standard_deviation: s, the noise of every coordinate of the tilt.
        output_standard_deviation: s_o, the noise of every weight; 0 if there is none.
        inexactness: τ/Λ, how far the minimizer was from the exact one at most.
        moment_failure: Probability with which the metric is too large.
    """

    center: Float[np.ndarray, " d"]
    metric: Float[np.ndarray, "d d"]
    slope: float
    ball: float
    ridge: float
    standard_deviation: float
    output_standard_deviation: float
    inexactness: float
    moment_failure: float

    def __post_init__(self) -> None:
        """Refuse what is no ellipsoid."""
        d = len(finite_array("center", self.center, ndim=1))
        if not d or finite_array("metric", self.metric, ndim=2).shape != (d, d):
            raise DataError(f"metric must have shape ({d}, {d}), got {self.metric.shape}.")
        for name in ("slope", "ball", "ridge", "standard_deviation"):
            positive(name, getattr(self, name))
        for name in ("output_standard_deviation", "inexactness"):
            non_negative(name, getattr(self, name))
        failure_probability("moment_failure", self.moment_failure)
        if not self._eigenvalues[0] > 0:
            raise DataError("metric must be positive definite.")

    def radius(self, confidence: float) -> float:
        """Return how far the truth lies from the center at most, in the metric.

        What may fail: the size of the noise of the moment (``moment_failure``), and, with equal
        shares of the rest, the answers, the tilt and the noise of the weights.

        Source:
            docs/central.md, "Confidence under record privacy".

        Args:
            confidence: How often the set holds the truth, in (0, 1 − moment_failure).

        Raises:
            UsageError: The confidence is larger than this metric allows.
        """
        level = failure_probability("confidence", confidence, zero=False)
        left = (1 - self.moment_failure) - level
        if left <= 0:
            raise UsageError(
                f"confidence must be below {1 - self.moment_failure:g} for this set, got "
                f"{confidence!r}: the noise of the second moment exceeds its bound with "
                f"probability {self.moment_failure:g}."
            )
        events = 3 if self.output_standard_deviation else 2
        t, d = math.log(events / left), len(self.center)
        answers = math.sqrt(quadratic_tail(d, d, 1.0, t) / self.slope) / 2
        bias = self.ridge * self.ball / math.sqrt(self._eigenvalues[0])
        tilt = self.standard_deviation * math.sqrt(_tail(1 / self._eigenvalues, t))
        inexact = self.inexactness * math.sqrt(self._eigenvalues[-1])
        output = self.output_standard_deviation * math.sqrt(_tail(self._eigenvalues, t))
        return answers + bias + tilt + inexact + output

    @cached_property
    def _eigenvalues(self) -> Float[np.ndarray, " d"]:
        """Return the eigenvalues of the metric, least first."""
        return np.asarray(np.linalg.eigvalsh(self.metric))

    def to_dict(self) -> dict[str, Any]:
        """Return the set as JSON holds it; the metric as its packed lower triangle."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays = {"center": self.center.tolist(), "metric": packed(self.metric)}
        return {"kind": KIND} | plain | arrays

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RecordEllipsoid:
        """Return what :meth:`to_dict` wrote.

        Raises:
            DataError: A field is missing or malformed.
            UsageError: A number is out of range.
        """
        try:
            kind = values["kind"]
            plain = {name: values[name] for name in cls.__dataclass_fields__}
            center = np.array(values["center"], dtype=np.float64)
            metric = unpacked(values["metric"], len(center))
        except (KeyError, OverflowError, TypeError, ValueError):
            kind = None
        if kind != KIND:
            raise DataError("The confidence set has a field that is missing or malformed.")
        return cls(**{**plain, "center": center, "metric": metric})


def _tail(eigenvalues: Float[np.ndarray, " d"], t: float) -> float:
    """Return h(K, t) of a matrix with these eigenvalues, all positive."""
    total, squares = float(eigenvalues.sum()), float((eigenvalues**2).sum())
    return quadratic_tail(total, squares, float(eigenvalues.max()), t)


def _slope(bound: float, ball: float) -> float:
    """Return γ = σ′(RB); refuse a product at which nothing is left of it."""
    slope = float(debiased_slope(np.array([bound * ball]))[0])
    if slope == 0:
        raise UsageError(
            f"ball={ball!r} is too large for a confidence set with bound={bound!r}: their product "
            "must be below 700. Choose a smaller ball before you look at the data."
        )
    return slope


def least_ridge(noise: SecondMoment, *, d: int, ball: float) -> float:
    """Return the least ridge for which the noise of a second moment leaves a confidence set.

    Source:
        docs/central.md, "Confidence under record privacy": Λ ≥ 2γν, so that γG ≤ M on the event
        that the noise is at most ν.

    Args:
        noise: What releases the second moment.
        d: Number of features.
        ball: B, chosen before the data are seen.
    """
    norm = noise.operator_norm_bound(d, failure_probability=MOMENT_FAILURE)
    return 2 * _slope(noise.bound, ball) * norm * (1 + _ROOM)


def refuse_small_ridge(ridge: float, noise: SecondMoment, *, d: int, ball: float) -> None:
    """Refuse a ridge that is too small for a confidence set; only public numbers enter.

    Raises:
        UsageError: A larger ridge is needed; the message says which.
    """
    least = least_ridge(noise, d=d, ball=ball)
    if ridge < least:
        raise UsageError(
            f"ridge={ridge!r} is too small for a confidence set with this second moment, {d} "
            f"features and ball={ball!r}. Nothing was spent. Build both mechanisms with "
            f"ridge={_rounded_up(least):.6g}; or with a larger epsilon or share, so that "
            "the noise of the second moment is at most "
            f"{noise.standard_deviation * ridge / least:.6g}; or leave the set out "
            "(ellipsoid=False)."
        )


def _rounded_up(value: float) -> float:
    """Return a number that is no smaller when it is written with six digits."""
    return value * (1 + 1e-5)


def record_ellipsoid(
    center: Float[np.ndarray, " d"],
    moment: ReleasedMoment,
    mechanism: ObjectivePerturbation,
    *,
    ball: float,
) -> RecordEllipsoid:
    """Return the confidence set of weights that were released together with a second moment.

    Only what was released and public settings enter it, so it costs nothing.

    Source:
        docs/central.md, "Confidence under record privacy": M = γ(G̃ − νI) + ΛI. Differs: ν fails
        with a fixed probability, so that one metric serves every confidence.

    Args:
        center: The released weights: a minimizer over ‖θ‖ ≤ ball, and its noise.
        moment: Of the records that were fitted.
        mechanism: What released the weights.
        ball: B, chosen before the data were seen.

    Raises:
        UsageError: The ridge is too small for the noise of the moment.
    """
    ridge = mechanism.ridge
    assert ridge is not None  # noqa: S101 - for the type checker: it is set once it is built
    refuse_small_ridge(ridge, moment.mechanism, d=moment.d, ball=ball)
    slope = _slope(moment.bound, ball)
    norm = moment.operator_norm_bound(failure_probability=MOMENT_FAILURE)
    metric = slope * (moment.matrix - norm * np.eye(moment.d)) + ridge * np.eye(moment.d)
    return RecordEllipsoid(
        center=center,
        metric=_at_least(metric, ridge - 2 * slope * norm),
        slope=slope,
        ball=ball,
        ridge=ridge,
        standard_deviation=mechanism.standard_deviation,
        output_standard_deviation=mechanism.output_standard_deviation,
        inexactness=mechanism.mu_output * mechanism.output_standard_deviation / 2,
        moment_failure=MOMENT_FAILURE,
    )


def _at_least(metric: Float[np.ndarray, "d d"], least: float) -> Float[np.ndarray, "d d"]:
    """Return the metric with no eigenvalue below ``least``.

    Wherever the noise is within its bound, all are above: only where the set may fail anyway is
    anything changed.
    """
    values, vectors = np.linalg.eigh(metric)
    if values[0] >= least:
        return metric
    lifted = (vectors * np.maximum(values, least)) @ vectors.T
    return np.asarray((lifted + lifted.T) / 2)
