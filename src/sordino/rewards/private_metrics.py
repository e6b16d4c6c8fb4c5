"""Metrics that are bought: which rows are kept for them, what they say, and what all of it costs.

A reward is fitted without one fifth of the questions, and a second release reads those alone. So
nothing in the metrics was fitted to what they measure, and the ledger holds an entry for each.
On labels the margins are public vectors like any others, and one sum of three numbers a row is
released as a fit's is. On records everything is private, and so is how many are held out: one sum
of four numbers is released, the count among them, and metrics are ratios of released numbers.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, Final

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino import _random, _validate
from sordino._validate import Integers, Numbers, Vector
from sordino.engines.engine import Rows
from sordino.errors import BudgetExceeded, DataError, PrivacyError, UsageError
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.grid import Matrix
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.mechanisms.randomized_response import label_shares
from sordino.preferences.chunk_survey import ChunkSurvey
from sordino.preferences.comparisons import FOLDS
from sordino.preferences.pairs import Pairs
from sordino.privacy import accounting
from sordino.privacy.guarantee import Event, Guarantee, NeighboringRelation, merge
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import Row, digest_of_array, event_of

from .evidence import added_and_largest, counted_vectors
from .label_release import Judged, KnownSum, release_sum
from .metrics import Estimate, increasing_root, legible, numbers_of
from .model import RewardModel
from .pair_losses import debiased_slope, softplus
from .release_checks import MEASURED, NOTE, held_out_rows, record_differences, record_promise

SHARE: Final = 1 / FOLDS
"""Share of the questions that is held out, about."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateMetrics:
    """What a reward measures on rows that it did not see, and what that cost."""

    # Made by `measure_labels` or `measure_records`. All of it may be published.

    # How often the reward prefers the preferred answer; no preference counts ½.
    accuracy: Estimate | None
    negative_log_likelihood: Estimate | None  # mean logistic loss of one judgment
    # Factor by which scores should be multiplied; 1 is calibrated.
    calibration_slope: Estimate | None
    # How often the Gibbs policy picks the preferred of the two answers.
    win_rate: Estimate | None
    pairs: int | None  # how many rows were held out and count; None where that is private
    guarantee: Guarantee  # what the purchase alone promises
    release_id: str  # the ledger entry that paid
    judged: str  # SHA-256 of what the judged reward was fitted on
    reason: str | None = None  # why nothing is told, where nothing is

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics under the names that a result gives them."""
        rate = self.win_rate
        won = {
            "win_rate": None if rate is None else rate.value,
            "win_rate_interval": None if rate is None else rate.share_interval,
        }
        return legible(numbers_of(self) | won)

    def attached(self, reward: RewardModel, ledger: Ledger) -> RewardModel:
        """Return the reward with both entries, and with what both promise together."""
        # Whoever publishes a reward beside its metrics publishes both, so that is what the reward
        # states then, and what `certify` finds.
        # Source: docs/central.md, "Metrics that are paid for".
        if reward.artifact != self.judged:
            raise UsageError("These metrics are of another reward. Nothing was attached.")
        ids = tuple(dict.fromkeys((*reward.release_ids, self.release_id)))
        promise = merge(
            [reward.guarantee, self.guarantee],
            epsilon=_together(_events(_entries(ids, ledger)), ledger),
            delta=ledger.budget.delta,
        )
        return replace(reward, release_ids=ids, guarantee=promise)


def _refuse_unfit(reward: object, event: Event, ledger: Ledger, *, method: str) -> None:
    """Refuse a reward that saw what would judge it, or that could not state both promises."""
    if not isinstance(reward, RewardModel) or reward.method != method:
        raise UsageError(
            f"reward must be a RewardModel with method={method!r}, got "
            f"{getattr(reward, 'method', type(reward).__name__)!r}. Nothing was spent."
        )
    rows = _entries(reward.release_ids, ledger)
    if any(NOTE not in (json.loads(row.payload).get("details") or {}) for row in rows):
        raise UsageError(
            "This reward was fitted on all rows, also on those that would judge it. Nothing was "
            "spent. Fit it with held_out=True."
        )
    _together(_events(rows) + Counter([event]), ledger)


def _entries(release_ids: Iterable[str], ledger: Ledger) -> list[Row]:
    """Return the rows that paid for a release."""
    wanted = set(release_ids)
    rows = [row for row in ledger.spends if row.release_id in wanted]
    if not wanted or {row.release_id for row in rows} != wanted:
        raise PrivacyError(
            "The ledger lacks an entry that paid for this reward. Nothing was spent. Use the "
            "ledger that the reward was released on."
        )
    return rows


def _events(rows: Iterable[Row]) -> Counter[Event]:
    """Return how often each event happened."""
    events: Counter[Event] = Counter()
    for row in rows:
        events[event_of(row)] += row.count
    return events


def _together(events: Counter[Event], ledger: Ledger) -> float:
    """Return the ε of a reward and its metrics together, at the δ of the ledger."""
    budget = ledger.budget
    epsilon = accounting.composed_epsilon(events, neighbors=budget.neighbors, delta=budget.delta)
    if math.isinf(epsilon):
        raise BudgetExceeded(
            f"A reward and its metrics together have no finite epsilon at the ledger's "
            f"delta={budget.delta!r}: the reward alone needs all of it. Nothing was spent. Use a "
            "ledger with a larger delta, or a reward with a smaller one."
        )
    return epsilon


def measure_labels(
    reward: RewardModel,
    judgments: Pairs | ChunkSurvey,
    mechanism: LabelGaussian,
    *,
    ledger: Ledger,
    temperature: float,
    simulate_seed: int | None = None,
) -> PrivateMetrics:
    """Return what a reward measures on labels that it was fitted without, and pay for it.

    Guarantee:
        That of the mechanism for one label, or for all labels of one person, as
        :func:`~sordino.rewards.label_release.release_labels` states it: the three numbers are
        public, being made of released weights and public features. With the release of the
        reward it composes on the ledger. Shown by tests/soundness/test_private_metrics.py and
        tests/soundness/test_chunk_metrics.py.
    """
    # One sum Σ y v is released over the held-out rows that count, v = (sign(m), 2σ(m/temperature) −
    # 1, m) with m = θᵀx; accuracy, win rate, likelihood and calibration slope all follow from it.
    # Their standard errors cover the choice of these questions and labels, judgments being
    # independent of each other, and the noise; the slope's holds for these questions. Of files each
    # sum is a pass; no list of margins is ever made.
    # Source: docs/central.md, "Metrics that are paid for".
    judged = Judged.of("measure_labels", judgments, mechanism, ledger)
    temperature = _validate.positive("temperature", temperature)
    entropy = _random.entropy(simulate_seed)
    judged = judged.part("held-out")
    _refuse_unfit(reward, mechanism.event, ledger, method=mechanism.name)
    judged.promise(mechanism, ledger, entropy)  # refused before the work on texts
    margins = _margins(reward, judged)
    sums, sizes = _all_sums(margins, temperature)
    if sizes[2] == 0:
        raise DataError(
            "The reward scores both answers of every held-out pair alike: it prefers nothing, so "
            "there is nothing to measure. Nothing was spent."
        )
    known, released = release_sum(
        judged,
        mechanism,
        margins.turned(partial(_columns, temperature, sizes), len(sizes)),
        details=MEASURED,
        ledger=ledger,
        entropy=entropy,
    )
    return PrivateMetrics(
        **_estimates(released.value, known, margins, (sums, sizes), temperature),
        guarantee=released.guarantee,
        release_id=released.release_ids[0],
        judged=reward.artifact,
    )


def _margins(reward: RewardModel, judged: Judged) -> Rows:
    """Return θᵀx of rows in memory, 0 where not held out; or of those in files that count."""
    source = judged.source
    if isinstance(source, Pairs):
        chosen = held_out_rows(source)
        part = source.part(np.flatnonzero(chosen).tolist())
        margins = np.zeros(len(source))
        margins[chosen] = reward.score_features(part.differences(reward.features))
        return Rows.of(margins)
    rows = counted_vectors(source, reward.features)
    if rows.shape[1] != len(reward.weights):
        raise DataError(f"rows must have shape (n, {len(reward.weights)}), got {rows.shape}.")
    return rows.turned(partial(_scored, reward.weights), 1)


def _scored(weights: Float[np.ndarray, " d"], block: Matrix) -> Float[np.ndarray, " k"]:
    """Return the margins of a block; no label is read."""
    return np.asarray(block @ weights, dtype=np.float64)


def _label_columns(margins: Numbers, temperature: float) -> Float[np.ndarray, "n 3"]:
    """Return v = (sign(m), 2σ(m/temperature) − 1, m), which labels are summed with."""
    # Source: docs/central.md, "Metrics that are paid for".
    with np.errstate(over="ignore", under="ignore"):
        tilted = np.tanh(margins / (2 * temperature))  # 2σ(m) − 1 without its rounding near 0
    return np.stack([np.sign(margins), tilted, margins], axis=1)


def _columns(
    temperature: float, sizes: Float[np.ndarray, " 3"], margins: Float[np.ndarray, " k"]
) -> Float[np.ndarray, "k 3"]:
    """Return the columns that labels are summed with, each divided by its largest size."""
    # A column of zeros (scores that vanish beside the temperature) stays one, and carries no noise.
    return _label_columns(margins, temperature) / np.where(sizes > 0, sizes, 1.0)


def _all_sums(
    margins: Rows, temperature: float
) -> tuple[Float[np.ndarray, " 7"], Float[np.ndarray, " 3"]]:
    """Return what all margins add up to, as below; refuse files that changed."""
    sums, sizes = margins.fold(partial(_margin_sums, temperature), added_and_largest)
    if sums[0] != margins.shape[0]:
        raise DataError("The input changed while it was read. Nothing was spent.")
    return sums, sizes


def _margin_sums(
    temperature: float, _first: int, margins: Numbers, _labels: object = 0
) -> list[np.ndarray]:
    """Return what some margins add up to, and the largest size of each column; without labels."""
    # How many; #{m < 0} + ½ #{m = 0}; Σ (1 − p) and Σ (1 − p)², p = σ(m/temperature); Σ softplus(m)
    # and Σ m over m > 0, and over m < 0.
    with np.errstate(over="ignore"):
        loses = expit(-margins / temperature)
    sums = (
        len(margins),
        np.sum(margins < 0) + np.sum(margins == 0) / 2,
        loses.sum(),
        loses @ loses,
        softplus(margins).sum(),
        margins[margins > 0].sum(),
        margins[margins < 0].sum(),
    )
    sizes = np.abs(_label_columns(margins, temperature)).max(axis=0, initial=0.0)
    return [np.array(sums, dtype=np.float64), sizes]


def _slope_sums(
    slope: float, _first: int, margins: Numbers, _labels: object = 0
) -> Float[np.ndarray, " 4"]:
    """Return what some margins add up to if labels have chances σ(bm), for a slope b."""
    # Σ σ(bm)m, which Σ ym would be; its derivative Σ σ′(bm)m²; and of the loss softplus(m) − ym the
    # expected Σ and the expected Σ of squares.
    first, second = softplus(-margins), softplus(margins)
    chances = expit(slope * margins)
    return np.array(
        [
            chances @ margins,
            debiased_slope(slope * margins) @ margins**2,
            chances @ first + (1 - chances) @ second,
            chances @ first**2 + (1 - chances) @ second**2,
        ]
    )


def _estimates(
    value: Vector,
    released: KnownSum,
    margins: Rows,
    known: tuple[Float[np.ndarray, " 7"], Float[np.ndarray, " 3"]],
    temperature: float,
) -> dict[str, Any]:
    """Return numbers of :class:`PrivateMetrics`, by name, of the released Σ y v with its noise."""
    # Source: docs/central.md, "Metrics that are paid for". A row is right 0 or 1 times (or ½). Of
    # one that wins with 1 − p + y(2p − 1) the square is (1 − p)² + y(2p − 1) for y = 0 and 1, and
    # less for ½. How far losses spread is taken at chances σ(bm), b the slope, which have the same
    # mean loss.
    (sums, sizes), counted = known, released.counted(margins)
    if counted is not margins:
        sums, _ = _all_sums(counted, temperature)
    rows, below, loses, loses_squared, whole_loss, highest, lowest = sums.tolist()
    totals, factor, k = value * sizes, released.factor, int(rows)
    variances = np.diagonal(factor @ factor.T) * sizes**2  # of the noise

    def estimate(mean: float, variance: float, noise: float) -> Estimate:
        """Return a mean over rows, from the variance of one row and that of the summed noise."""
        return Estimate(float(mean), float(np.sqrt(max(variance, 0.0) / k + noise / k**2)))

    # The root b of Σ σ(bm)m = total; None where no finite b fits.
    # Source: docs/local.md, metrics on randomized labels.
    total, unit, root = float(totals[2]), float(sizes[2]), None

    def rising(slope: float) -> Float[np.ndarray, " two"]:
        reached, bend, *_ = counted.fold(partial(_slope_sums, slope / unit), add)
        return np.array([(reached - total) / unit, bend / unit**2])

    if lowest < total < highest and (in_units := increasing_root(rising)) is not None:
        root = in_units / unit
    bent = counted.fold(partial(_slope_sums, root or 0.0), add)
    right = (below + totals[0]) / k
    share = min(max(right, 0.0), 1.0)
    won = (loses + totals[1]) / k
    square = (loses_squared + totals[1]) / k
    loss = (whole_loss - totals[2]) / k
    _, information, *losses = bent.tolist()
    (mean, spread), slope = (total / k for total in losses), None
    if root is not None:
        error = float(np.sqrt(information + variances[2]))
        slope = Estimate(root, error / information if information else np.inf)
    return {
        "accuracy": estimate(right, share * (1 - share), variances[0]),
        "negative_log_likelihood": estimate(loss, spread - mean**2, variances[2]),
        "calibration_slope": slope,
        "win_rate": estimate(won, square - won**2, variances[1]),
        "pairs": k,
    }


METRICS_PASSES: Final = 18
"""How often files are read for metrics, about; none of it is for the fit."""


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
    ledger: Ledger,
    temperature: float,
    simulate_seed: int | None = None,
) -> PrivateMetrics:
    """Return what a reward measures on records that it was fitted without, and pay for it.

    Guarantee:
        GaussianEvent of the mechanism for one record, under the relation of the ledger's budget. w
        is a function of its own record and of released weights, which the mechanism cuts to
        :data:`RECORD_BOUND`. It composes with the release of the reward, whatever one change does.
        Which side a record is on depends on its own question, so no other record changes sides with
        it. Zero-out: a record of identical answers, or of features that do not differ, adds nothing
        to the fit but a constant and w = 0 here, so that emptying a record is removing it from its
        side; add/remove: one side gains or loses one record. Either way the other release reads the
        same records as before. Replace: the new record may be on the other side. Then the fit loses
        a record and the metrics gain one, or the reverse; each is the replacement of a record by an
        empty one, or of an empty one, which both mechanisms promise to hide, and the two promises
        are composed. Shown by tests/soundness/test_private_metrics.py.
    """
    # The sum of w = (1, correct − ½, win − ½, loss/cap − ½) over the held-out records is released.
    # The loss is that of margins cut to ±4 and cap the largest there is. An undecided judgment is
    # half correct and half won, and its loss is the mean of both sides. Standard errors are read
    # off the released sum alone: they hold for the choice of records, which spread as far as
    # numbers of that mean can (too wide for win rate and loss), and for the noise.
    # Source: docs/central.md, "Metrics that are paid for".
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
    temperature = _validate.positive("temperature", temperature)
    entropy = _random.entropy(simulate_seed)
    n, read = len(pairs) + pairs.dropped, reward.features
    promise = record_promise(mechanism, ledger, entropy, n=n, features=read)
    _refuse_unfit(reward, mechanism.event, ledger, method="objective-perturbation")
    ledger.check(mechanism.event, promise=promise)  # before the work on texts
    part = pairs.part(np.flatnonzero(held_out_rows(pairs)).tolist())
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
        win_rate=won,
        pairs=None,
        guarantee=promise,
        release_id=released.release_ids[0],
        judged=reward.artifact,
        reason=None if told else _TOO_FEW,
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


def _record_margins(rows: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " d"]) -> Numbers:
    """Return θᵀx of every record, to the last bit the same whatever the other records are."""
    # A product of matrices may add up a row in an order that depends on how many rows there are,
    # and so one record could turn the sign of another one's margin. A margin that overflows in both
    # directions prefers nothing.
    with np.errstate(all="ignore"):
        products = np.ascontiguousarray(rows) * weights
        totals = np.asarray(np.add.reduce(products, axis=1))
    return np.where(np.isnan(totals), 0.0, totals)


def _measured(margins: Numbers, labels: Integers, temperature: float) -> Float[np.ndarray, "n 4"]:
    """Return (1, correct − ½, win − ½, loss/cap − ½) of every record."""
    first = label_shares(labels)
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
