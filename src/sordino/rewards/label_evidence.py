"""What a fit sees after all labels were released as one sum: public vectors, the sum, its noise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from sordino._random import SimulatedEntropy, normals
from sordino.mechanisms._row_sums import row_weights
from sordino.rewards._gram import weighted_grams
from sordino.rewards.covariance import debiased_slope
from sordino.rewards.likelihoods import DebiasedLogistic
from sordino.rewards.shrinkage import secant_slope

__all__ = ["SHARE", "LabelEvidence", "Thinned"]

SHARE = 0.5  # c: how much noise a part that is fitted gets; the other gets 1/c
_ROWS = 32  # rows a feature that a matrix rests on
_FLOPS = 1 << 27  # a matrix this cheap takes every row


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelEvidence:
    """What a fit sees after all labels were released as one sum; all of it is public.

    Attributes:
        differences: x, one row for each pair that counts.
        statistic: T̃ = Σ wyx + noise, w = min(1, longest/‖x‖).
        factor: F; the noise has covariance V = FFᵀ.
        feature_bound: Bound L on the norm of one answer's features.
        rounding: How far the grid moved the sum at most, in standard deviations of the noise.
        inflation: Variance of T̃ over that of the released sum: above 1 for a part of it.
        longest: Rows that are longer count less; with infinity every one counts 1.
    """

    differences: Float[np.ndarray, "n d"] | csr_array
    statistic: Float[np.ndarray, " d"]
    factor: Float[np.ndarray, "d r"]
    feature_bound: float
    rounding: float = 0.0
    inflation: float = 1.0
    longest: float = np.inf

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
        """Return the evidence in an orthonormal basis of what the vectors span, and that basis.

        Weights that minimize a loss and a ridge lie in that span, and keep their norm there.
        """
        basis = np.linalg.qr(self.factor)[0]
        inside = {
            "differences": np.asarray(self.differences @ basis),
            "statistic": basis.T @ self.statistic,
            "factor": basis.T @ self.factor,
        }
        return replace(self, **inside), basis

    def information(self, theta: Float[np.ndarray, " d"]) -> Float[np.ndarray, "d d"]:
        """Return H = Σ wσ′(θᵀx)xxᵀ: the curvature, and at least the variance of Σ wyx.

        It rests on enough rows.

        Source:
            docs/central.md, "Label privacy, one Gaussian release".
        """
        return self._grams(self.weights * self._slopes(theta))[0]

    def mean_and_spread(
        self, theta: Float[np.ndarray, " d"]
    ) -> tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"]]:
        """Return Σ wa(θᵀx)xxᵀ, which takes θ to the mean of T̃ − Σwx/2; and the covariance of T̃.

        Source:
            docs/central.md, "Label privacy, one Gaussian release"; a of
            :func:`~sordino.rewards.shrinkage.secant_slope`.
        """
        margins = np.asarray(self.differences @ theta)
        bends = self.weights * secant_slope(margins)
        both = self._grams(bends, self.weights**2 * debiased_slope(margins))
        return both[0], self.inflation * (both[1] + self.covariance)

    def variance_along(self, theta: Float[np.ndarray, " d"]) -> float:
        """Return θᵀ(H + V)θ, the variance of T̃ᵀθ; no matrix is made.

        Source:
            docs/central.md, "Label privacy, one Gaussian release".
        """
        margins = np.asarray(self.differences @ theta)
        drawn = float(debiased_slope(margins) @ (self.weights * margins) ** 2)
        return drawn + float(np.sum((theta @ self.factor) ** 2))

    def thinned(self, theta: Float[np.ndarray, " d"], draws: int, purpose: str) -> list[Thinned]:
        """Return pairs of independent parts of T̃, to fit on and to judge by, several times.

        The split is drawn from what was released, so it hides nothing and needs no entropy: it
        comes from a digest of T̃, and the same T̃ is always split the same way.

        Source:
            docs/central.md, "Label privacy, one Gaussian release": T₁ = T̃ + cξ, T₂ = T̃ − ξ/c,
            ξ ~ N(0, H + V).

        Args:
            theta: An estimate, at which H is measured.
            draws: How many splits.
            purpose: Splits for different purposes are independent.
        """
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
    """Two parts of one released sum, each of them unbiased and independent of the other.

    Attributes:
        fitted: Evidence with T₁.
        judged: T₂, by which a fit on T₁ is judged.
    """

    fitted: LabelEvidence
    judged: Float[np.ndarray, " d"]

    def score(self, theta: Float[np.ndarray, " d"]) -> float:
        """Return the loss of weights from T₁ on T₂, summed: unbiased for fresh answers.

        Source:
            docs/central.md, "Label privacy, one Gaussian release".
        """
        loss = replace(self.fitted.loss, pull=self.judged)
        return loss.value(theta)
