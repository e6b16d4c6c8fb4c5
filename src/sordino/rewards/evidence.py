"""How much of a released estimate is signal: what noise alone would explain is taken out again.

A fit of a noised sum takes every direction alike, but the noise is known: its covariance is public.
So the most that can be learned of the weights is their mean given what was released, for a prior
that all directions share. How wide that prior is, the release itself says, by its likelihood.

What a fit sees after all labels were released as one sum: public vectors, the sum, its noise.

What a fit sees: feature differences, randomized answers, and who belongs together.

What a fit sees after all rankings were released as one sum: public slates, and that sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csr_array

from sordino._random import SimulatedEntropy, normals
from sordino.errors import DataError
from sordino.mechanisms.grid import row_weights
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import Features
from sordino.preferences.folds import MEASURING, folds_of, question_folds, question_numbers
from sordino.preferences.pairs import PrivatePairs

from .covariance import debiased_slope
from .forecast_model import spread_of
from .pair_losses import DebiasedLogistic, MixtureLogistic, debias, weighted_grams

Measure = Callable[
    [Float[np.ndarray, " d"]], tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]]
]
"""From weights θ to Σ a(θᵀx)xxᵀ, a of :func:`secant_slope`, and the covariance of the sum."""

ASSUMED = 0.65
"""How well a perfect reward predicts one judgment, before anything is known."""

_ROUNDS = 3  # of the curvature, which depends on the weights; a fourth changes nothing
_POWERS = np.arange(-10, 9) / 2  # of two: widths of the prior over the one that ASSUMED means
_DOUBTS = np.array([0.25, 2.0])  # standard deviations of the logarithm of that width,
_BELIEFS = np.array([0.9, 0.1])  # and how likely each: people agree about as usual, or not at all
_RANK = 1e-9  # of the largest variance: below it nothing is released along a direction


def secant_slope(margins: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return (σ(m) − ½)/m, which takes a margin to its expected answer; ¼ at 0."""
    # Source: docs/central.md, "Label privacy, one Gaussian release".
    small = np.abs(margins) < 1e-6  # noqa: PLR2004 (where the quotient rounds to its limit)
    known = np.where(small, 1.0, margins)
    return np.asarray(np.where(small, debiased_slope(margins), np.tanh(known / 2) / (2 * known)))


def shrunk_weights(
    theta: Float[np.ndarray, " d"], ridge: float, measure: Measure, *, mean_square: float
) -> Float[np.ndarray, " d"]:
    """Return the mean of the weights given what was released; it costs nothing more."""
    # Source: docs/central.md, "Label privacy, one Gaussian release": s = (A + ΛI)θ̂ is the released
    # sum without its mean, s ∼ N(Aθ, C); with θ ∼ N(0, τ²I) the mean of θ is τ²Aᵀ(τ²AAᵀ + C)⁻¹s. Of
    # τ the mean is taken by its likelihood, log τ ∼ .9 N(log τ₀, ¼²) + .1 N(log τ₀, 2²).
    total = measure(theta)[0] @ theta + ridge * theta
    usual = spread_of(ASSUMED) / np.sqrt(mean_square)
    weights = np.zeros(len(theta))
    for _ in range(_ROUNDS):
        weights = _posterior_mean(total, *measure(weights), usual * 2.0**_POWERS)
    return weights


def inside_ball(weights: Float[np.ndarray, " d"], ball: float) -> Float[np.ndarray, " d"]:
    """Return weights, shortened to the ball where they are outside."""
    length = float(np.linalg.norm(weights))
    return weights if length <= ball else weights * (ball / length * (1 - 2.0**-50))


def _posterior_mean(
    total: Float[np.ndarray, " d"],
    bend: Float[np.ndarray, "d d"],
    spread: Float[np.ndarray, "d d"],
    widths: Float[np.ndarray, " k"],
) -> Float[np.ndarray, " d"]:
    """Return E[θ | s], averaged over the widths of the prior by what s says of them."""
    variances, directions = np.linalg.eigh(spread)
    known = variances > _RANK * variances[-1]
    whiten = (directions[:, known] / np.sqrt(variances[known])).T
    left, sizes, right = np.linalg.svd(whiten @ bend, full_matrices=False)
    seen = left.T @ (whiten @ total)
    gains = 1 + np.outer(widths, sizes) ** 2
    logs = -0.5 * np.sum(np.log(gains) + seen**2 / gains, axis=1)
    apart = np.log(widths / widths[list(_POWERS).index(0)])[:, np.newaxis]
    logs += np.log(np.exp(-0.5 * (apart / _DOUBTS) ** 2) @ (_BELIEFS / _DOUBTS))
    chances = np.exp(logs - logs.max())
    shares = chances / chances.sum() @ (widths[:, np.newaxis] ** 2 * sizes / gains)
    return np.asarray(right.T @ (shares * seen))


SHARE = 0.5  # c: how much noise a part that is fitted gets; the other gets 1/c
_ROWS = 32  # rows a feature that a matrix rests on
_FLOPS = 1 << 27  # a matrix this cheap takes every row


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelEvidence:
    """What a fit sees after all labels were released as one sum; all of it is public."""

    differences: Float[np.ndarray, "n d"] | csr_array  # x, one row for each pair that counts
    statistic: Float[np.ndarray, " d"]  # T̃ = Σ wyx + noise, w = min(1, longest/‖x‖)
    factor: Float[np.ndarray, "d r"]  # F; the noise has covariance V = FFᵀ
    feature_bound: float  # bound L on the norm of one answer's features
    # How far the grid moved the sum at most, in standard deviations of the noise.
    rounding: float = 0.0
    inflation: float = 1.0  # variance of T̃ over that of the released sum: above 1 for a part of it
    longest: float = np.inf  # rows that are longer count less; with infinity every one counts 1

    def __len__(self) -> int:
        """Return the number of pairs that count."""
        return int(self.differences.shape[0])

    def __repr__(self) -> str:
        """Return the size."""
        return f"LabelEvidence(n={len(self)}, d={len(self.statistic)})"

    @cached_property
    def loss(self) -> DebiasedLogistic:
        """Return the loss that answers enter through their sum alone."""
        return DebiasedLogistic.of_statistic(self.differences, self.statistic, self.weights)

    @cached_property
    def weights(self) -> Float[np.ndarray, " n"]:
        """Return w, how much each row counts."""
        return row_weights(self.differences, self.longest)

    @property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """Return V, the covariance of the noise."""
        return np.asarray(self.factor @ self.factor.T)

    @property
    def squares(self) -> float:
        """Return Σ‖x‖², the trace of G."""
        return float((self.differences**2).sum())

    def in_span(self) -> tuple[LabelEvidence, Float[np.ndarray, "d r"]]:
        """Return the evidence in an orthonormal basis of what the vectors span, and that basis."""
        # Weights that minimize a loss and a ridge lie in that span, and keep their norm there.
        basis = np.linalg.qr(self.factor)[0]
        inside = {
            "differences": np.asarray(self.differences @ basis),
            "statistic": basis.T @ self.statistic,
            "factor": basis.T @ self.factor,
        }
        return replace(self, **inside), basis

    def information(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return H = Σ wσ′(θᵀx)xxᵀ: the curvature, and at least the variance of Σ wyx."""
        # It rests on enough rows.
        # Source: docs/central.md, "Label privacy, one Gaussian release".
        return self._grams(self.weights * self._slopes(theta))[0]

    def mean_and_spread(
        self, theta: Float[np.ndarray, " d"]
    ) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]]:
        """Return Σ wa(θᵀx)xxᵀ, which takes θ to the mean of T̃ − Σwx/2; and the covariance of T̃."""
        # Source: docs/central.md, "Label privacy, one Gaussian release"; a of `secant_slope`.
        margins = np.asarray(self.differences @ theta)
        bends = self.weights * secant_slope(margins)
        both = self._grams(bends, self.weights**2 * debiased_slope(margins))
        return both[0], self.inflation * (both[1] + self.covariance)

    def variance_along(self, theta: Float[np.ndarray, " d"]) -> float:
        """Return θᵀ(H + V)θ, the variance of T̃ᵀθ; no matrix is made."""
        # Source: docs/central.md, "Label privacy, one Gaussian release".
        margins = np.asarray(self.differences @ theta)
        drawn = float(debiased_slope(margins) @ (self.weights * margins) ** 2)
        return drawn + float(np.sum((theta @ self.factor) ** 2))

    def thinned(self, theta: Float[np.ndarray, " d"], draws: int, purpose: str) -> list[Thinned]:
        """Return pairs of independent parts of T̃, to fit on and to judge by, several times."""
        # The split is drawn from what was released, so it hides nothing and needs no entropy: it
        # comes from a digest of T̃, and the same T̃ is always split the same way.
        # Source: docs/central.md, "Label privacy, one Gaussian release": T₁ = T̃ + cξ, T₂ = T̃ −
        # ξ/c, ξ ~ N(0, H + V).
        digest = hashlib.sha256(purpose.encode() + b"\n" + self.statistic.tobytes()).digest()
        entropy = SimulatedEntropy(int.from_bytes(digest[:8], "big"))
        spreads = self.weights * np.sqrt(self._slopes(theta))
        parts = []
        for _ in range(draws):
            drawn = self.differences.T @ (spreads * normals(entropy, len(self)))
            drawn += self.factor @ normals(entropy, self.factor.shape[1])
            fitted = replace(self, statistic=self.statistic + SHARE * drawn, inflation=1 + SHARE**2)
            parts.append(Thinned(fitted, judged=self.statistic - drawn / SHARE))
        return parts

    def _grams(self, *weights: Float[np.ndarray, " n"]) -> list[Float[np.ndarray, "d d"]]:
        """Return Σ wxxᵀ for each list of weights, from enough rows."""
        n, d = self.differences.shape
        step = max(1, n // max(_ROWS * d, _FLOPS // d**2))
        share = len(range(0, n, step)) / n
        totals = weighted_grams(self.differences, *weights, step=step)
        return [np.asarray(total / share) for total in totals]

    def _slopes(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, " n"]:
        """Return σ′(θᵀx)."""
        return debiased_slope(np.asarray(self.differences @ theta))


@dataclass(frozen=True, eq=False)
class Thinned:
    """Two parts of one released sum, each of them unbiased and independent of the other."""

    fitted: LabelEvidence  # evidence with T₁
    judged: Float[np.ndarray, " d"]  # T₂, by which a fit on T₁ is judged

    def score(self, theta: Float[np.ndarray, " d"]) -> float:
        """Return the loss of weights from T₁ on T₂, summed: unbiased for fresh answers."""
        # Source: docs/central.md, "Label privacy, one Gaussian release".
        loss = replace(self.fitted.loss, pull=self.judged)
        return loss.value(theta)


MOST_FEATURES = 1024
"""Most features for which a matrix of features by features is made unasked."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """What a fit sees: feature differences, randomized answers, and who belongs together."""

    # One row per (person, question): a memoized repeat is the same observation.

    differences: Float[np.ndarray, "n d"] | csr_array
    answers: Integer[np.ndarray, " n"]
    flip_probability: float
    feature_bound: float
    questions: Integer[np.ndarray, " n"]
    clusters: Integer[np.ndarray, " n"] | None

    @classmethod
    def of(cls, pairs: PrivatePairs, features: Features | None) -> Design:
        """Return the design of private pairs; repeats of one person are left out."""
        once = np.flatnonzero(pairs.first_rows())
        differences = pairs.differences(features)
        clusters = None
        if pairs.persons is not None:
            clusters = np.unique(np.asarray(pairs.persons), return_inverse=True)[1][once]
        return cls(
            differences=differences[once],
            answers=pairs.answers[once],
            flip_probability=pairs.flip_probability,
            feature_bound=known_feature_bound(differences, features),
            questions=question_numbers(pairs.keys)[once],
            clusters=clusters,
        )

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.answers)

    @property
    def loss(self) -> DebiasedLogistic:
        """Return the debiased loss of all observations."""
        targets = debias(self.answers, self.flip_probability)
        return DebiasedLogistic(self.differences, targets=targets)

    @property
    def mixture(self) -> MixtureLogistic:
        """Return the likelihood of all observations."""
        return MixtureLogistic(self.differences, self.answers, self.flip_probability)

    def part(self, rows: Bool[np.ndarray, " n"]) -> Design:
        """Return some of the observations."""
        index = np.flatnonzero(rows)
        return replace(
            self,
            differences=self.differences[index],
            answers=self.answers[index],
            questions=self.questions[index],
            clusters=None if self.clusters is None else self.clusters[index],
        )

    def folds(self, level: int) -> Integer[np.ndarray, " n"]:
        """Return a fold for every row, by its question alone, so that repeats stay together."""
        # `level` tells the folds that measure from those that choose.
        return folds_of(self.questions, level)


def refuse_too_few(pairs: Comparisons) -> None:
    """Refuse pairs of which none can be held out, from public fields, before anything is spent."""
    if len(np.unique(question_folds(pairs.keys, MEASURING))) < 2:  # noqa: PLR2004 (in and out)
        raise DataError(
            f"{len(pairs)} pairs are too few different questions to measure anything on held-out "
            "ones; a dozen is the least. Nothing was spent."
        )


def known_feature_bound(differences: Any, features: Features | None) -> float:
    """Return the bound on one answer's features; half the largest difference where none is set."""
    # Features are public under a label guarantee, so their largest norm may be used.
    if features is not None:
        return features.feature_bound
    return float(np.sqrt((differences**2).sum(axis=1).max())) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut:
    """Predictions for answers that the fit behind them did not see."""

    # `widening` is by how much errors grow because another fit, on all answers, is spoken of.

    differences: Float[np.ndarray, " n"]
    answers: Integer[np.ndarray, " n"]
    flip_probability: float
    clusters: Integer[np.ndarray, " n"] | None
    widening: float = 1.0
