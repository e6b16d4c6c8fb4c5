"""Metrics on held-out labels, bought with one noised sum of three numbers a row.

The weights were fitted without these labels. So the margins are public vectors like any others,
and the labels enter through one sum that is released as a fit's is.

Metrics on held-out records, bought with one noised sum of four numbers a record.

Everything about a record is private, and so is how many are held out: the count is released with
noise like the rest, and metrics are ratios of released numbers.

Metrics on held-out labels in many files: one noised sum, and sums of margins over chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import expit

from sordino import _validate
from sordino.engines.engine import ChunkedRows, Engine, Taken
from sordino.errors import DataError, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.label_sum import ChunkedStatistic, LabelGaussian, LabelStatistic
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.pairs import Pairs
from sordino.privacy.events import UNDECIDED
from sordino.privacy.guarantee import NeighboringRelation
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_array

from .chunk_evidence import counted_vectors
from .chunk_metrics import crossing
from .label_release import (
    checked_promise,
    countable_rows,
    refuse_other_arguments,
    refuse_other_settings,
    release_sum,
    release_sum_of_chunks,
)
from .metrics import (
    FARTHEST,
    Estimate,
    MarginSums,
    NoisedSums,
    SlopeSums,
    label_columns,
    refuse_no_preference,
    slope_of_sum,
)
from .model import RewardModel
from .private_metrics import MEASURED, PrivateMetrics, checked_rows, refuse_one_sided, refuse_unfit
from .release_checks import entropy_of, record_differences, record_promise


def measure_labels(
    reward: RewardModel,
    pairs: Pairs,
    mechanism: LabelGaussian,
    *,
    held_out: Bool[np.ndarray, " n"],
    ledger: Ledger,
    temperature: float,
    simulate_seed: int | None = None,
) -> PrivateMetrics:
    """Return what a reward measures on labels that it was fitted without, and pay for it.

    Guarantee:
        That of the mechanism for one label, or for all labels of one person, as
        :func:`~sordino.rewards.label_release.release_labels` states it: the three numbers are
        public, being made of released weights and public features. With the release of the
        reward it composes on the ledger. Shown by tests/soundness/test_private_metrics.py.
    """
    # One sum Σ y v is released over the held-out rows that count, v = (sign(m), 2σ(m/temperature) −
    # 1, m) with m = θᵀx; accuracy, win rate, likelihood and calibration slope all follow from it.
    # Their standard errors cover the choice of these questions and labels, judgments being
    # independent of each other, and the noise; the slope's holds for these questions.
    # Source: docs/central.md, "Metrics that are paid for".
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
    return PrivateMetrics(
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
    """Return (sign, 2σ(m/temperature) − 1, m), each over its largest size, and those sizes."""
    # A column of zeros (scores that vanish beside the temperature) stays one, and carries no noise.
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


RECORD_BOUND = math.sqrt(1 + 3 / 4)
"""Bound on the norm of what one record adds: a count, and three numbers in [−½, ½]."""

_MARGIN: Final = 4.0  # larger margins count as this in the loss
_MOST_LOSS: Final = float(np.logaddexp(0.0, _MARGIN))
_LEAST: Final = 5.0  # standard deviations of noise that the noised count must reach
_TOO_FEW = (
    "The noised number of held-out records is below five standard deviations of its noise, so "
    "ratios to it would say nothing. Use a larger epsilon or more records."
)


def record_metrics_mechanism(
    epsilon: float, *, delta: float, neighbors: NeighboringRelation
) -> GaussianMechanism:
    """Return the noise of least size that keeps (epsilon, delta) for metrics on records."""
    return GaussianMechanism.calibrated(
        epsilon, delta=delta, bound=RECORD_BOUND, neighbors=neighbors
    )


def measure_records(
    reward: RewardModel,
    pairs: Pairs,
    mechanism: GaussianMechanism,
    *,
    held_out: Bool[np.ndarray, " n"],
    ledger: Ledger,
    temperature: float,
    simulate_seed: int | None = None,
) -> PrivateMetrics:
    """Return what a reward measures on records that it was fitted without, and pay for it.

    Guarantee:
        GaussianEvent of the mechanism for one record, under the relation of the ledger's budget.
        w is a function of its own record and of released weights, which the mechanism cuts to
        :data:`RECORD_BOUND`. It composes with the release of the reward, whatever one change
        does. Which side a record is on depends on its own question, so no other record changes
        sides with it. Zero-out: a record of identical answers, or of features that do not differ,
        adds nothing to the fit but a constant and w = 0 here, so that emptying a record is
        removing it from its side; add/remove: one side gains or loses one record. Either way the
        other release reads the same records as before. Replace: the new record may be on the
        other side. Then the fit loses a record and the metrics gain one, or the reverse; each is
        the replacement of a record by an empty one, or of an empty one, which both mechanisms
        promise to hide, and the two promises are composed. Shown by
        tests/soundness/test_private_metrics.py.
    """
    # The sum of w = (1, correct − ½, win − ½, loss/cap − ½) over the held-out records is released.
    # The loss is that of margins cut to ±4 and cap the largest there is. An undecided judgment is
    # half correct and half won, and its loss is the mean of both sides. Standard errors are read
    # off the released sum alone: they hold for the choice of records, which spread as far as
    # numbers of that mean can (too wide for win rate and loss), and for the noise.
    # Source: docs/central.md, "Metrics that are paid for".
    _refuse_other_arguments(pairs, mechanism, ledger)
    temperature = _validate.positive("temperature", temperature)
    entropy = entropy_of(simulate_seed)
    n, read = len(pairs) + pairs.dropped, reward.features
    promise = record_promise(mechanism, ledger, entropy, n=n, features=read)
    chosen = checked_rows(pairs, held_out)
    refuse_unfit(reward, mechanism.event, ledger, method="objective-perturbation")
    ledger.check(mechanism.event, promise=promise)  # before the work on texts
    part = pairs.part(np.flatnonzero(chosen).tolist())
    vectors = _record_vectors(reward, part, temperature)
    released = ledger.charge(
        mechanism.event,
        lambda: mechanism.release(vectors, entropy=entropy),
        digest=digest_of_array,
        promise=promise,
        details=dict(MEASURED),
    )
    sums = released.value
    told = sums[0] >= _LEAST * mechanism.standard_deviation
    correct, won, loss = _ratios(sums, mechanism.standard_deviation) if told else (None,) * 3
    return PrivateMetrics(
        accuracy=correct,
        negative_log_likelihood=loss,
        calibration_slope=None,
        win_rate=None if won is None else won.interval(lower=0.0, upper=1.0),
        pairs=None,
        event=mechanism.event,
        guarantee=promise,
        release_id=released.release_id,
        artifact=released.artifact,
        judged=reward.artifact,
        reason=None if told else _TOO_FEW,
    )


def _refuse_other_arguments(pairs: object, mechanism: object, ledger: object) -> None:
    """Refuse what is no raw pairs, and a mechanism that this sum or this ledger is not for."""
    if not isinstance(pairs, Pairs):
        raise UsageError(f"pairs must be raw judgments (Pairs), got {type(pairs).__name__}.")
    if not isinstance(mechanism, GaussianMechanism) or not isinstance(ledger, Ledger):
        raise UsageError("measure_records needs a GaussianMechanism and a Ledger.")
    made = (mechanism.bound, mechanism.records_per_person, mechanism.neighbors)
    if made != (RECORD_BOUND, None, ledger.budget.neighbors):
        raise UsageError(
            f"mechanism must have bound={RECORD_BOUND!r}, no records_per_person and the ledger's "
            f"neighbors={ledger.budget.neighbors.name}, got bound={mechanism.bound!r}, "
            f"records_per_person={mechanism.records_per_person!r}, "
            f"neighbors={mechanism.neighbors.name}. Nothing was spent. Make it with "
            "record_metrics_mechanism."
        )


def _record_vectors(
    reward: RewardModel, part: Pairs, temperature: float
) -> Float[np.ndarray, "n 4"]:
    """Return w of every record, a function of that record alone; 0 where both answers are alike."""
    rows = record_differences(part, reward.features)
    if rows.shape[1] != len(reward.weights):
        raise UsageError(
            f"The reward weighs {len(reward.weights)} features, and records have {rows.shape[1]}. "
            "Nothing was spent."
        )
    vectors = _measured(_record_margins(rows, reward.weights), part.labels, temperature)
    return np.where(rows.any(axis=1, keepdims=True), vectors, 0.0)


def _record_margins(
    rows: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " n"]:
    """Return θᵀx of every record, to the last bit the same whatever the other records are."""
    # A product of matrices may add up a row in an order that depends on how many rows there are,
    # and so one record could turn the sign of another one's margin. A margin that overflows in both
    # directions prefers nothing.
    with np.errstate(all="ignore"):
        products = np.ascontiguousarray(rows) * weights
        totals = np.asarray(np.add.reduce(products, axis=1))
    return np.where(np.isnan(totals), 0.0, totals)


def _measured(
    margins: Float[np.ndarray, " n"], labels: Integer[np.ndarray, " n"], temperature: float
) -> Float[np.ndarray, "n 4"]:
    """Return (1, correct − ½, win − ½, loss/cap − ½) of every record."""
    first = np.where(labels == UNDECIDED, 0.5, labels)
    with np.errstate(over="ignore", under="ignore"):
        chances = expit(margins / temperature)
    cut = np.clip(margins, -_MARGIN, _MARGIN)
    loss = first * np.logaddexp(0.0, -cut) + (1 - first) * np.logaddexp(0.0, cut)
    columns = [
        (first - 0.5) * np.sign(margins),
        (first - 0.5) * (2 * chances - 1),
        loss / _MOST_LOSS - 0.5,
    ]
    return np.stack([np.ones(len(margins)), *columns], axis=1)


def _ratios(sums: Float[np.ndarray, " 4"], spread: float) -> tuple[Estimate, Estimate, Estimate]:
    """Return correct, won and loss for each record, from the noised sums alone."""
    # Source: docs/central.md, "Metrics that are paid for": u = ½ + S/N, with variance u(1 − u)/N +
    # s²(1 + (S/N)²)/N²; numbers in [0, 1] of mean u spread no further.
    count, ratios = float(sums[0]), sums[1:] / sums[0]
    means = np.clip(0.5 + ratios, 0.0, 1.0)
    errors = np.sqrt(means * (1 - means) / count + (spread / count) ** 2 * (1 + ratios**2))
    correct, won, loss = (
        Estimate(float(size * (0.5 + ratio)), float(size * error))
        for size, ratio, error in zip((1.0, 1.0, _MOST_LOSS), ratios, errors, strict=True)
    )
    return correct, won, loss


METRICS_PASSES: Final = 18
"""How often files are read for metrics, about; none of it is for the fit."""


def measure_label_chunks(
    reward: RewardModel,
    survey: ChunkSurvey,
    mechanism: LabelGaussian,
    *,
    ledger: Ledger,
    engine: Engine,
    temperature: float,
    simulate_seed: int | None = None,
    taken: Taken | None = None,
) -> PrivateMetrics:
    """Return what a reward measures on labels that it was fitted without, and pay for it.

    Guarantee:
        That of the mechanism for one label, or for all labels of one person, as
        :func:`~sordino.rewards.label_release.release_chunks` states it: the three numbers are
        public, being made of released weights and public features. With the release of the
        reward it composes on the ledger. Shown by tests/soundness/test_chunk_metrics.py.
    """
    # The same as `measure_labels`, with a pass over the files for each sum; no list of margins is
    # ever made.
    # Source: docs/central.md, "Metrics that are paid for".
    refuse_other_settings("measure_label_chunks", survey, mechanism, ledger)
    temperature = _validate.positive("temperature", temperature)
    if survey.part != "held-out":
        raise UsageError(
            "The survey must be of the held-out rows. Nothing was released. Take the second part "
            "of survey.divided()."
        )
    entropy = entropy_of(simulate_seed)
    refuse_unfit(reward, mechanism.event, ledger, method="label-gaussian")
    promise = checked_promise(survey, mechanism, ledger, entropy)
    margins = _chunk_margins(reward, counted_vectors(survey, engine, reward.features, taken=taken))
    known = margins.fold(partial(_margin_sums, temperature), MarginSums.plus)
    if known.rows != survey.counted:
        raise DataError("The input changed while it was read. Nothing was spent.")
    refuse_no_preference(float(known.sizes[2]))
    columns = _OfMargins(margins.read, partial(_columns, temperature, known.sizes))
    released = release_sum_of_chunks(
        survey,
        mechanism,
        replace(margins, read=columns, shape=(known.rows, len(known.sizes))),
        promise=promise,
        details=MEASURED,
        ledger=ledger,
        entropy=entropy,
    )
    return PrivateMetrics(
        **_noised_chunk_sums(margins, known, released.statistic).estimates(),
        event=mechanism.event,
        guarantee=promise,
        release_id=released.release_id,
        artifact=released.artifact,
        judged=reward.artifact,
    )


def _chunk_margins(reward: RewardModel, rows: ChunkedRows) -> ChunkedRows:
    """Return θᵀx of the rows that count, with their labels beside them."""
    n, d = rows.shape
    if d != len(reward.weights):
        raise DataError(f"rows must have shape (n, {len(reward.weights)}), got {rows.shape}.")
    read = _OfMargins(rows.read, partial(_scored, reward.weights))
    return replace(rows, read=read, shape=(n, 1))


@dataclass(frozen=True)
class _OfMargins:
    """From a chunk to its blocks with something else in place of the vectors."""

    read: Callable[[Any], Iterable[tuple[Any, ...]]]
    turned: Callable[[Any], np.ndarray]

    def __call__(self, chunk: Any) -> Iterator[tuple[int, np.ndarray, Integer[np.ndarray, " k"]]]:
        """Yield (number of the first row, what is made of the block, labels)."""
        for first, block, labels in self.read(chunk):
            yield first, self.turned(block), labels


def _scored(weights: Float[np.ndarray, " d"], block: Any) -> Float[np.ndarray, " k"]:
    """Return the margins of a block; no label is read."""
    return np.asarray(block @ weights, dtype=np.float64)


def _columns(
    temperature: float, sizes: Float[np.ndarray, " 3"], margins: Float[np.ndarray, " k"]
) -> Float[np.ndarray, "k 3"]:
    """Return the columns that labels are summed with, each divided by its largest size."""
    # A column of zeros (scores that vanish beside the temperature) stays one, and carries no noise.
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


def _noised_chunk_sums(
    margins: ChunkedRows, known: MarginSums, released: ChunkedStatistic
) -> NoisedSums:
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


def _slope(margins: ChunkedRows, known: MarginSums, pull: float) -> float | None:
    """Return the root b of Σ σ(bm)m = pull; None where no finite b fits."""
    # Source: docs/local.md, metrics on randomized labels.
    if not known.negative < pull < known.positive:
        return None
    unit = float(known.sizes[2])

    def rising(trials: Float[np.ndarray, " k"]) -> Float[np.ndarray, "2 k"]:
        slopes = (trials / unit).tolist()
        found = margins.fold(partial(_slope_sums, slopes), SlopeSums.plus)
        return np.stack([(found.pulls - pull) / unit, found.information / unit**2])

    root = crossing(rising, FARTHEST)
    return None if root is None else root / unit
