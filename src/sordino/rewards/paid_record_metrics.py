"""Metrics on held-out records, bought with one noised sum of four numbers a record.

Everything about a record is private, and so is how many are held out: the count is released with
noise like the rest, and metrics are ratios of released numbers.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import expit

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.preferences.labels import UNDECIDED
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import NeighboringRelation
from sordino.privacy.ledger import Ledger
from sordino.rewards.metrics import Estimate
from sordino.rewards.model import RewardModel
from sordino.rewards.paid_metrics import MEASURED, PaidMetrics, checked_rows, refuse_unfit
from sordino.rewards.record_checks import record_differences, record_promise
from sordino.rewards.release_checks import entropy_of

__all__ = ["RECORD_BOUND", "measure_records", "record_metrics_mechanism"]

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
    """Return the noise of least size that keeps (epsilon, delta) for metrics on records.

    Args:
        epsilon: Bound on the privacy loss of one record, finite and above 0.
        delta: Failure probability, in (0, 1).
        neighbors: What one change is: that of the ledger.

    Raises:
        UsageError: A setting is out of range.

    Example:
        >>> from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
        >>> noise = record_metrics_mechanism(1.0, delta=1e-6, neighbors=ADD_OR_REMOVE_ONE)
        >>> round(noise.standard_deviation, 4)
        5.5887
    """
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
) -> PaidMetrics:
    """Return what a reward measures on records that it was fitted without, and pay for it.

    The sum of w = (1, correct − ½, win − ½, loss/cap − ½) over the held-out records is released.
    The loss is that of margins cut to ±4 and cap the largest there is. An undecided judgment is
    half correct and half won, and its loss is the mean of both sides. Standard errors are read off
    the released sum alone: they hold for the choice of records, which spread as far as numbers
    of that mean can (too wide for win rate and loss), and for the noise.

    Args:
        reward: Fitted with the same ``held_out`` by objective perturbation.
        pairs: All pairs, as for the fit.
        mechanism: From :func:`record_metrics_mechanism`.
        held_out: From :func:`~sordino.rewards.paid_metrics.held_out_rows`.
        ledger: The ledger that the reward was released on; the spend is recorded before noise is
            drawn.
        temperature: Of the policy whose win rate is measured, > 0.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Returns:
        The metrics; each None, with a reason, where the noised count is too small. The slope is
        always None.

    Raises:
        UsageError: The reward saw these records, or the mechanism is another one.
        PrivacyError: Other rows are held out than the public rule says, or the ledger counts
            something else or lacks the reward's entry.
        DataError: Features are not finite. Which record it is is not said.
        BudgetExceeded: The spend would pass the budget; no noise was drawn.

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
        tests/soundness/test_paid_metrics.py.

    Source:
        docs/central.md, "Metrics that are paid for".
    """
    _refuse_other_arguments(pairs, mechanism, ledger)
    temperature = _validate.positive("temperature", temperature)
    entropy = entropy_of(simulate_seed)
    n, read = len(pairs) + pairs.dropped, reward.features
    promise = record_promise(mechanism, ledger, entropy, n=n, features=read)
    chosen = checked_rows(pairs, held_out)
    refuse_unfit(reward, mechanism.event, ledger, method="objective-perturbation")
    ledger.check(mechanism.event, promise=promise)  # before the work on texts
    part = pairs.part(np.flatnonzero(chosen).tolist())
    vectors = _vectors(reward, part, temperature)
    reservation = ledger.reserve(mechanism.event, promise=promise, details=dict(MEASURED))
    sums = reservation.drawn_once(lambda: mechanism.release(vectors, entropy=entropy))
    artifact = hashlib.sha256(sums.astype("<f8").tobytes()).hexdigest()
    reservation.commit(artifact)
    told = sums[0] >= _LEAST * mechanism.standard_deviation
    correct, won, loss = _ratios(sums, mechanism.standard_deviation) if told else (None,) * 3
    return PaidMetrics(
        accuracy=correct,
        negative_log_likelihood=loss,
        calibration_slope=None,
        win_rate=None if won is None else won.interval(lower=0.0, upper=1.0),
        pairs=None,
        event=mechanism.event,
        guarantee=promise,
        release_id=reservation.release_id,
        artifact=artifact,
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


def _vectors(reward: RewardModel, part: Pairs, temperature: float) -> Float[np.ndarray, "n 4"]:
    """Return w of every record, a function of that record alone; 0 where both answers are alike."""
    rows = record_differences(part, reward.features)
    if rows.shape[1] != len(reward.weights):
        raise UsageError(
            f"The reward weighs {len(reward.weights)} features, and records have {rows.shape[1]}. "
            "Nothing was spent."
        )
    vectors = _measured(_margins(rows, reward.weights), part.labels, temperature)
    return np.where(rows.any(axis=1, keepdims=True), vectors, 0.0)


def _margins(
    rows: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " d"]
) -> Float[np.ndarray, " n"]:
    """Return θᵀx of every record, to the last bit the same whatever the other records are.

    A product of matrices may add up a row in an order that depends on how many rows there are,
    and so one record could turn the sign of another one's margin. A margin that overflows in both
    directions prefers nothing.
    """
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
    """Return correct, won and loss for each record, from the noised sums alone.

    Source:
        docs/central.md, "Metrics that are paid for": u = ½ + S/N, with variance
        u(1 − u)/N + s²(1 + (S/N)²)/N²; numbers in [0, 1] of mean u spread no further.
    """
    count, ratios = float(sums[0]), sums[1:] / sums[0]
    means = np.clip(0.5 + ratios, 0.0, 1.0)
    errors = np.sqrt(means * (1 - means) / count + (spread / count) ** 2 * (1 + ratios**2))
    correct, won, loss = (
        Estimate(float(size * (0.5 + ratio)), float(size * error))
        for size, ratio, error in zip((1.0, 1.0, _MOST_LOSS), ratios, errors, strict=True)
    )
    return correct, won, loss
