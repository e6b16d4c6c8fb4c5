"""What metrics are made of: sums over public margins, in memory or in files, and one noised sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino.errors import DataError
from sordino.rewards.covariance import debiased_slope
from sordino.rewards.likelihoods import softplus
from sordino.rewards.metrics import Estimate

__all__ = ["MarginSums", "NoisedSums", "SlopeSums", "label_columns", "refuse_no_preference"]


def label_columns(margins: Float[np.ndarray, " n"], temperature: float) -> Float[np.ndarray, "n 3"]:
    """Return v = (sign(m), 2σ(m/temperature) − 1, m), which labels are summed with.

    Source:
        docs/central.md, "Metrics that are paid for".
    """
    with np.errstate(over="ignore", under="ignore"):
        tilted = np.tanh(margins / (2 * temperature))  # 2σ(m) − 1 without its rounding near 0
    return np.stack([np.sign(margins), tilted, margins], axis=1)


def refuse_no_preference(largest: float) -> None:
    """Refuse to measure a reward that prefers nothing; margins are public.

    Args:
        largest: The largest |m| of the held-out pairs.

    Raises:
        DataError: It is 0.
    """
    if largest == 0:
        raise DataError(
            "The reward scores both answers of every held-out pair alike: it prefers nothing, so "
            "there is nothing to measure. Nothing was spent."
        )


@dataclass(frozen=True, eq=False)
class MarginSums:
    """What some margins add up to; no label is in it.

    Attributes:
        rows: How many.
        below: #{m < 0} + ½ #{m = 0}.
        loses: Σ (1 − p), p = σ(m/temperature).
        loses_squared: Σ (1 − p)².
        softplus: Σ softplus(m).
        positive, negative: Σ of the m above 0, and of those below.
        squares: Σ m².
        sizes: The largest size of each of :func:`label_columns`.
    """

    rows: int
    below: float
    loses: float
    loses_squared: float
    softplus: float
    positive: float
    negative: float
    squares: float
    sizes: Float[np.ndarray, " 3"]

    @classmethod
    def of(cls, margins: Float[np.ndarray, " n"], temperature: float) -> MarginSums:
        """Return the sums of some margins."""
        with np.errstate(over="ignore"):
            loses = expit(-margins / temperature)
        return cls(
            rows=len(margins),
            below=float(np.sum(margins < 0) + np.sum(margins == 0) / 2),
            loses=float(loses.sum()),
            loses_squared=float(loses @ loses),
            softplus=float(softplus(margins).sum()),
            positive=float(margins[margins > 0].sum()),
            negative=float(margins[margins < 0].sum()),
            squares=float(margins @ margins),
            sizes=np.abs(label_columns(margins, temperature)).max(axis=0, initial=0.0),
        )

    def plus(self, other: MarginSums) -> MarginSums:
        """Return the sums of both."""
        return MarginSums(
            self.rows + other.rows,
            self.below + other.below,
            self.loses + other.loses,
            self.loses_squared + other.loses_squared,
            self.softplus + other.softplus,
            self.positive + other.positive,
            self.negative + other.negative,
            self.squares + other.squares,
            np.maximum(self.sizes, other.sizes),
        )


@dataclass(frozen=True, eq=False)
class SlopeSums:
    """What some margins add up to if labels have chances σ(bm), for some slopes b.

    Attributes:
        pulls: Σ σ(bm)m, what Σ ym would be.
        information: Σ σ′(bm)m², its slope in b.
        losses: Σ of the expected loss softplus(m) − ym.
        squares: Σ of its expected square.
    """

    pulls: Float[np.ndarray, " b"]
    information: Float[np.ndarray, " b"]
    losses: Float[np.ndarray, " b"]
    squares: Float[np.ndarray, " b"]

    @classmethod
    def of(cls, margins: Float[np.ndarray, " n"], slopes: Sequence[float]) -> SlopeSums:
        """Return the sums of some margins."""
        first, second = softplus(-margins), softplus(margins)
        sums = np.array([_at_slope(margins, first, second, slope) for slope in slopes])
        return cls(*sums.T)

    def plus(self, other: SlopeSums) -> SlopeSums:
        """Return the sums of both."""
        return SlopeSums(
            self.pulls + other.pulls,
            self.information + other.information,
            self.losses + other.losses,
            self.squares + other.squares,
        )


def _at_slope(margins: Any, first: Any, second: Any, slope: float) -> tuple[float, ...]:
    """Return the four sums of :class:`SlopeSums` at one slope."""
    chances = expit(slope * margins)
    return (
        float(chances @ margins),
        float(debiased_slope(slope * margins) @ margins**2),
        float(chances @ first + (1 - chances) @ second),
        float(chances @ first**2 + (1 - chances) @ second**2),
    )


@dataclass(frozen=True, eq=False)
class NoisedSums:
    """The released Σ y v with its noise, and all that is public of the margins it is about.

    Attributes:
        known: Sums of the margins of all rows that count.
        totals: The released sum, on the scale of the columns.
        variances: Of its noise.
        slope: The root b of Σ σ(bm)m = Σ ym; None where there is none.
        bent: Sums at that slope; at 0 where there is none.
    """

    known: MarginSums
    totals: Float[np.ndarray, " 3"]
    variances: Float[np.ndarray, " 3"]
    slope: float | None
    bent: SlopeSums

    def estimates(self) -> dict[str, Any]:
        """Return the numbers of :class:`~sordino.rewards.paid_metrics.PaidMetrics`, by name."""
        return {
            "accuracy": self._accuracy(),
            "negative_log_likelihood": self._loss(),
            "calibration_slope": self._slope(),
            "win_rate": self._win_rate().interval(lower=0.0, upper=1.0),
            "pairs": self.known.rows,
        }

    def _accuracy(self) -> Estimate:
        """Return (Σ y sign + #{m < 0} + ½ #{m = 0})/k; it is 0 or 1 (or ½) a row.

        Source:
            docs/central.md, "Metrics that are paid for".
        """
        value = (self.known.below + self.totals[0]) / self.known.rows
        share = min(max(value, 0.0), 1.0)
        return self._estimate(value, share * (1 - share), self.variances[0])

    def _win_rate(self) -> Estimate:
        """Return (Σ (1 − p) + Σ y(2p − 1))/k.

        Source:
            docs/central.md, "Metrics that are paid for": of a row that wins with 1 − p + y(2p − 1)
            the square is (1 − p)² + y(2p − 1) for y = 0 and 1, and less for ½.
        """
        value = (self.known.loses + self.totals[1]) / self.known.rows
        square = (self.known.loses_squared + self.totals[1]) / self.known.rows
        return self._estimate(value, square - value**2, self.variances[1])

    def _loss(self) -> Estimate:
        """Return (Σ softplus(m) − Σ ym)/k.

        Source:
            docs/central.md, "Metrics that are paid for": how far losses spread is taken at
            chances σ(bm), b the slope, which have the same mean loss.
        """
        value = (self.known.softplus - self.totals[2]) / self.known.rows
        mean, square = (
            float(sums[0]) / self.known.rows for sums in (self.bent.losses, self.bent.squares)
        )
        return self._estimate(value, square - mean**2, self.variances[2])

    def _slope(self) -> Estimate | None:
        """Return the root b of Σ σ(bm)m = Σ ym; None where there is none.

        Source:
            docs/central.md, "Metrics that are paid for".
        """
        if self.slope is None:
            return None
        information = float(self.bent.information[0])
        error = float(np.sqrt(information + self.variances[2]))
        return Estimate(self.slope, error / information if information else np.inf)

    def _estimate(self, value: float, variance: float, noise: float) -> Estimate:
        """Return a mean over rows, from the variance of one row and that of the summed noise."""
        k = self.known.rows
        return Estimate(float(value), float(np.sqrt(max(variance, 0.0) / k + noise / k**2)))
