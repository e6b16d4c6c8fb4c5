"""Metrics on held-out labels, bought with one noised sum of three numbers a row.

The weights were fitted without these labels. So the margins are public vectors like any others,
and the labels enter through one sum that is released as a fit's is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from sordino import _validate
from sordino.errors import DataError
from sordino.mechanisms.label_gaussian import LabelGaussian, LabelStatistic
from sordino.preferences.pairs import Pairs
from sordino.privacy.ledger import Ledger
from sordino.rewards.label_metrics import slope_of_sum
from sordino.rewards.label_release import countable_rows, refuse_other_arguments, release_sum
from sordino.rewards.metrics import Estimate
from sordino.rewards.model import RewardModel
from sordino.rewards.paid_metrics import (
    MEASURED,
    PaidMetrics,
    checked_rows,
    refuse_one_sided,
    refuse_unfit,
)

__all__ = ["measure_labels"]


def measure_labels(
    reward: RewardModel,
    pairs: Pairs,
    mechanism: LabelGaussian,
    *,
    held_out: Bool[np.ndarray, " n"],
    ledger: Ledger,
    temperature: float,
    simulate_seed: int | None = None,
) -> PaidMetrics:
    """Return what a reward measures on labels that it was fitted without, and pay for it.

    One sum Σ y v is released over the held-out rows that count, v = (sign(m), 2σ(m/temperature)
    − 1, m) with m = θᵀx; accuracy, win rate, likelihood and calibration slope all follow from it.
    Their standard errors cover the choice of these questions and labels, judgments being
    independent of each other, and the noise; the slope's holds for these questions.

    Args:
        reward: Fitted with the same ``held_out`` and a mechanism for labels.
        pairs: All pairs, as for the fit.
        mechanism: The noise; with ``records_per_person`` if the ledger counts persons.
        held_out: From :func:`~sordino.rewards.paid_metrics.held_out_rows`.
        ledger: The ledger that the reward was released on; the spend is recorded before noise is
            drawn.
        temperature: Of the policy whose win rate is measured, > 0.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        UsageError: The reward saw these labels, or a setting is out of range.
        PrivacyError: Other rows are held out than the public rule says, the pairs are not raw, or
            the ledger is about another unit or lacks the reward's entry.
        DataError: Nothing or everything is held out, or the reward prefers nothing in it.
        BudgetExceeded: The spend would pass the budget; no noise was drawn.
        LedgerMismatch: The ledger belongs to other prompts and answers.

    Guarantee:
        That of the mechanism for one label, or for all labels of one person, as
        :func:`~sordino.rewards.label_release.release_labels` states it: the three numbers are
        public, being made of released weights and public features. With the release of the
        reward it composes on the ledger. Shown by tests/soundness/test_paid_metrics.py.

    Source:
        docs/central.md, "Metrics that are paid for".
    """
    refuse_other_arguments("measure_labels", pairs, mechanism, ledger)
    temperature = _validate.positive("temperature", temperature)
    chosen = checked_rows(pairs, held_out)
    refuse_one_sided(chosen)
    refuse_unfit(reward, mechanism.event, ledger, method="label-gaussian")
    margins = _margins(reward, pairs, chosen)
    vectors, scales = _vectors(margins, temperature)
    rows = countable_rows(pairs)
    found = release_sum(
        pairs,
        mechanism,
        vectors=vectors,
        rows=rows[chosen[rows]],
        details=MEASURED,
        ledger=ledger,
        simulate_seed=simulate_seed,
    )
    sums = _Sums.of(found.statistic, scales, margins, temperature)
    return PaidMetrics(
        accuracy=sums.accuracy(),
        negative_log_likelihood=sums.loss(),
        calibration_slope=sums.slope(),
        win_rate=sums.win_rate().interval(lower=0.0, upper=1.0),
        pairs=len(sums.margins),
        event=mechanism.event,
        guarantee=found.guarantee,
        release_id=found.release_id,
        artifact=found.artifact,
        judged=reward.artifact,
    )


def _margins(
    reward: RewardModel, pairs: Pairs, chosen: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return θᵀx of the held-out rows, and 0 elsewhere; no label is read."""
    part = pairs.part(np.flatnonzero(chosen).tolist())
    margins = np.zeros(len(pairs))
    margins[chosen] = reward.score_features(part.differences(reward.features))
    if not margins.any():
        raise DataError(
            "The reward scores both answers of every held-out pair alike: it prefers nothing, so "
            "there is nothing to measure. Nothing was spent."
        )
    return margins


def _vectors(
    margins: Float[np.ndarray, " n"], temperature: float
) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, " 3"]]:
    """Return (sign, 2σ(m/temperature) − 1, m), each divided by its largest size, and those sizes.

    A column of zeros (scores that vanish beside the temperature) stays one, and carries no noise.
    """
    with np.errstate(over="ignore", under="ignore"):
        tilted = np.tanh(margins / (2 * temperature))  # 2σ(m) − 1 without its rounding near 0
    columns = np.stack([np.sign(margins), tilted, margins], axis=1)
    sizes = np.abs(columns).max(axis=0)
    return columns / np.where(sizes > 0, sizes, 1.0), sizes


@dataclass(frozen=True, eq=False)
class _Sums:
    """The released Σ y v with its noise, and the public margins that it is about."""

    margins: Float[np.ndarray, " k"]
    temperature: float
    totals: Float[np.ndarray, " 3"]
    variances: Float[np.ndarray, " 3"]

    @classmethod
    def of(
        cls,
        released: LabelStatistic,
        scales: Float[np.ndarray, " 3"],
        margins: Float[np.ndarray, " n"],
        temperature: float,
    ) -> _Sums:
        """Return the sums on the scale of the vectors, with the rows that count."""
        noise = np.diagonal(released.covariance) * scales**2
        return cls(margins[released.used], temperature, released.value * scales, noise)

    def accuracy(self) -> Estimate:
        """Return (Σ y sign + #{m < 0} + ½ #{m = 0})/k; it is 0 or 1 (or ½) a row.

        Source:
            docs/central.md, "Metrics that are paid for".
        """
        below = np.sum(self.margins < 0) + np.sum(self.margins == 0) / 2
        value = (float(below) + self.totals[0]) / len(self.margins)
        share = min(max(value, 0.0), 1.0)
        return self._estimate(value, share * (1 - share), self.variances[0])

    def win_rate(self) -> Estimate:
        """Return (Σ (1 − p) + Σ y(2p − 1))/k.

        Source:
            docs/central.md, "Metrics that are paid for": of a row that wins with 1 − p + y(2p − 1)
            the square is (1 − p)² + y(2p − 1) for y = 0 and 1, and less for ½.
        """
        loses = expit(-self.margins / self.temperature)
        value = (float(loses.sum()) + self.totals[1]) / len(loses)
        square = (float(loses @ loses) + self.totals[1]) / len(loses)
        return self._estimate(value, square - value**2, self.variances[1])

    def loss(self) -> Estimate:
        """Return (Σ softplus(m) − Σ ym)/k.

        Source:
            docs/central.md, "Metrics that are paid for": how far losses spread is taken at
            chances σ(bm), b the slope, which have the same mean loss.
        """
        first, second = (np.logaddexp(0.0, sign * self.margins) for sign in (-1.0, 1.0))
        value = (float(second.sum()) - self.totals[2]) / len(second)
        slope = slope_of_sum(self.margins, self.totals[2])
        chances = np.full(len(first), 0.5) if slope is None else expit(slope[0] * self.margins)
        mean = float(np.mean(chances * first + (1 - chances) * second))
        square = float(np.mean(chances * first**2 + (1 - chances) * second**2))
        return self._estimate(value, square - mean**2, self.variances[2])

    def slope(self) -> Estimate | None:
        """Return the root b of Σ σ(bm)m = Σ ym; None where there is none.

        Source:
            docs/central.md, "Metrics that are paid for".
        """
        found = slope_of_sum(self.margins, self.totals[2])
        if found is None:
            return None
        value, information = found
        error = float(np.sqrt(information + self.variances[2]))
        return Estimate(value, error / information if information else np.inf)

    def _estimate(self, value: float, variance: float, noise: float) -> Estimate:
        """Return a mean over rows, from the variance of one row and that of the summed noise."""
        k = len(self.margins)
        return Estimate(float(value), float(np.sqrt(max(variance, 0.0) / k + noise / k**2)))
