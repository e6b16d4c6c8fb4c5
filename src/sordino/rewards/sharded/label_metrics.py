"""Metrics on held-out labels in many files: one noised sum, and sums of margins over pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from jaxtyping import Float, Integer

from sordino import _validate
from sordino.engines.engine import Engine, Taken
from sordino.engines.rows import PiecedRows
from sordino.errors import DataError, UsageError
from sordino.mechanisms.label_gaussian import LabelGaussian
from sordino.mechanisms.pieced_labels import PiecedStatistic
from sordino.preferences.shard_survey import ShardSurvey
from sordino.privacy.ledger import Ledger
from sordino.rewards.margin_sums import (
    MarginSums,
    NoisedSums,
    SlopeSums,
    label_columns,
    refuse_no_preference,
)
from sordino.rewards.metrics import FARTHEST
from sordino.rewards.model import RewardModel
from sordino.rewards.paid_metrics import MEASURED, PaidMetrics, refuse_unfit
from sordino.rewards.release_checks import entropy_of
from sordino.rewards.sharded.evidence import counted_vectors
from sordino.rewards.sharded.release import (
    checked_promise,
    refuse_other_settings,
    release_sum_of_shards,
)
from sordino.rewards.sharded.root import crossing

__all__ = ["METRICS_PASSES", "measure_label_shards"]

METRICS_PASSES: Final = 18
"""How often files are read for metrics, about; none of it is for the fit."""


def measure_label_shards(
    reward: RewardModel,
    survey: ShardSurvey,
    mechanism: LabelGaussian,
    *,
    ledger: Ledger,
    engine: Engine,
    temperature: float,
    simulate_seed: int | None = None,
    taken: Taken | None = None,
) -> PaidMetrics:
    """Return what a reward measures on labels that it was fitted without, and pay for it.

    The same as :func:`~sordino.rewards.paid_label_metrics.measure_labels`, with a pass over the
    files for each sum; no list of margins is ever made.

    Args:
        reward: Fitted on the other part of the survey with a mechanism for labels.
        survey: The held-out part, the second that
            :meth:`~sordino.preferences.shard_survey.ShardSurvey.divided` returns.
        mechanism: The noise; with the survey's ``records_per_person``.
        ledger: The ledger that the reward was released on; the spend is recorded before noise is
            drawn.
        engine: Where the files are read.
        temperature: Of the policy whose win rate is measured, > 0.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.
        taken: Called as pieces are done, once for each pass.

    Raises:
        UsageError: The reward saw these labels, the survey is of other rows, or a setting is out
            of range.
        PrivacyError: The ledger is about another unit or lacks the reward's entry.
        DataError: The reward prefers nothing in these rows, or the files changed.
        BudgetExceeded: The spend would pass the budget; no noise was drawn.
        LedgerMismatch: The ledger belongs to other prompts and answers.

    Guarantee:
        That of the mechanism for one label, or for all labels of one person, as
        :func:`~sordino.rewards.sharded.release.release_shards` states it: the three numbers are
        public, being made of released weights and public features. With the release of the
        reward it composes on the ledger. Shown by tests/soundness/test_shard_metrics.py.

    Source:
        docs/central.md, "Metrics that are paid for".
    """
    refuse_other_settings("measure_label_shards", survey, mechanism, ledger)
    temperature = _validate.positive("temperature", temperature)
    if survey.part != "held-out":
        raise UsageError(
            "The survey must be of the held-out rows. Nothing was released. Take the second part "
            "of survey.divided()."
        )
    entropy = entropy_of(simulate_seed)
    refuse_unfit(reward, mechanism.event, ledger, method="label-gaussian")
    promise = checked_promise(survey, mechanism, ledger, entropy)
    margins = _margins(reward, counted_vectors(survey, engine, reward.features, taken=taken))
    known = margins.fold(partial(_margin_sums, temperature), MarginSums.plus)
    if known.rows != survey.counted:
        raise DataError("The input changed while it was read. Nothing was spent.")
    refuse_no_preference(float(known.sizes[2]))
    columns = _OfMargins(margins.read, partial(_columns, temperature, known.sizes))
    released = release_sum_of_shards(
        survey,
        mechanism,
        replace(margins, read=columns, shape=(known.rows, len(known.sizes))),
        promise=promise,
        details=MEASURED,
        ledger=ledger,
        entropy=entropy,
    )
    return PaidMetrics(
        **_noised_sums(margins, known, released.statistic).estimates(),
        event=mechanism.event,
        guarantee=promise,
        release_id=released.release_id,
        artifact=released.artifact,
        judged=reward.artifact,
    )


def _margins(reward: RewardModel, rows: PiecedRows) -> PiecedRows:
    """Return θᵀx of the rows that count, with their labels beside them.

    Raises:
        DataError: The vectors have other features than the reward.
    """
    n, d = rows.shape
    if d != len(reward.weights):
        raise DataError(f"rows must have shape (n, {len(reward.weights)}), got {rows.shape}.")
    read = _OfMargins(rows.read, partial(_scored, reward.weights))
    return replace(rows, read=read, shape=(n, 1))


@dataclass(frozen=True)
class _OfMargins:
    """From a piece to its blocks with something else in place of the vectors."""

    read: Callable[[Any], Iterable[tuple[Any, ...]]]
    turned: Callable[[Any], np.ndarray]

    def __call__(self, piece: Any) -> Iterator[tuple[int, np.ndarray, Integer[np.ndarray, " k"]]]:
        """Yield (number of the first row, what is made of the block, labels)."""
        for first, block, labels in self.read(piece):
            yield first, self.turned(block), labels


def _scored(weights: Float[np.ndarray, " d"], block: Any) -> Float[np.ndarray, " k"]:
    """Return the margins of a block; no label is read."""
    return np.asarray(block @ weights, dtype=np.float64)


def _columns(
    temperature: float, sizes: Float[np.ndarray, " 3"], margins: Float[np.ndarray, " k"]
) -> Float[np.ndarray, "k 3"]:
    """Return the columns that labels are summed with, each divided by its largest size.

    A column of zeros (scores that vanish beside the temperature) stays one, and carries no noise.
    """
    return label_columns(margins, temperature) / np.where(sizes > 0, sizes, 1.0)


def _margin_sums(
    temperature: float, _first: int, margins: Float[np.ndarray, " k"], _labels: Any
) -> MarginSums:
    """Return what the margins of one block add up to."""
    return MarginSums.of(margins, temperature)


def _slope_sums(
    slopes: list[float], _first: int, margins: Float[np.ndarray, " k"], _labels: Any
) -> SlopeSums:
    """Return what the margins of one block add up to at some slopes."""
    return SlopeSums.of(margins, slopes)


def _noised_sums(margins: PiecedRows, known: MarginSums, released: PiecedStatistic) -> NoisedSums:
    """Return the released sum on the scale of the columns, and all sums that go with it."""
    totals = released.value * known.sizes
    spread = released.factor * known.sizes[:, np.newaxis]
    slope = _slope(margins, known, float(totals[2]))
    return NoisedSums(
        known=known,
        totals=totals,
        variances=np.einsum("ij,ij->i", spread, spread),
        slope=slope,
        bent=margins.fold(partial(_slope_sums, [slope or 0.0]), SlopeSums.plus),
    )


def _slope(margins: PiecedRows, known: MarginSums, pull: float) -> float | None:
    """Return the root b of Σ σ(bm)m = pull; None where no finite b fits.

    Source:
        docs/local.md, metrics on randomized labels.
    """
    if not known.negative < pull < known.positive:
        return None
    unit = float(known.sizes[2])

    def rising(trials: Float[np.ndarray, " k"]) -> Float[np.ndarray, "2 k"]:
        slopes = (trials / unit).tolist()
        found = margins.fold(partial(_slope_sums, slopes), SlopeSums.plus)
        return np.stack([(found.pulls - pull) / unit, found.information / unit**2])

    root = crossing(rising, FARTHEST)
    return None if root is None else root / unit
