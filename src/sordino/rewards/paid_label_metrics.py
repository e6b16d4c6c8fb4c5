"""Metrics on held-out labels, bought with one noised sum of three numbers a row.

The weights were fitted without these labels. So the margins are public vectors like any others,
and the labels enter through one sum that is released as a fit's is.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from sordino import _validate
from sordino.mechanisms.label_gaussian import LabelGaussian, LabelStatistic
from sordino.preferences.pairs import Pairs
from sordino.privacy.ledger import Ledger
from sordino.rewards.label_metrics import slope_of_sum
from sordino.rewards.label_release import countable_rows, refuse_other_arguments, release_sum
from sordino.rewards.margin_sums import (
    MarginSums,
    NoisedSums,
    SlopeSums,
    label_columns,
    refuse_no_preference,
)
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
    sums = _noised_sums(found.statistic, scales, margins, temperature)
    return PaidMetrics(
        **sums.estimates(),
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
    refuse_no_preference(float(np.abs(margins).max()))
    return margins


def _vectors(
    margins: Float[np.ndarray, " n"], temperature: float
) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, " 3"]]:
    """Return (sign, 2σ(m/temperature) − 1, m), each divided by its largest size, and those sizes.

    A column of zeros (scores that vanish beside the temperature) stays one, and carries no noise.
    """
    columns = label_columns(margins, temperature)
    sizes = np.abs(columns).max(axis=0)
    return columns / np.where(sizes > 0, sizes, 1.0), sizes


def _noised_sums(
    released: LabelStatistic,
    scales: Float[np.ndarray, " 3"],
    margins: Float[np.ndarray, " n"],
    temperature: float,
) -> NoisedSums:
    """Return the sums on the scale of the columns, with the rows that count."""
    margins, totals = margins[released.used], released.value * scales
    found = slope_of_sum(margins, float(totals[2]))
    slope = None if found is None else found[0]
    return NoisedSums(
        known=MarginSums.of(margins, temperature),
        totals=totals,
        variances=np.diagonal(released.covariance) * scales**2,
        slope=slope,
        bent=SlopeSums.of(margins, [slope or 0.0]),
    )
