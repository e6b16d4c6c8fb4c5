"""Metrics that were bought: which rows are kept for them, what they say, and what all of it costs.

A reward is fitted without one fifth of the questions, and a second release reads those alone. So
nothing in the metrics was fitted to what they measure, and the ledger holds an entry for each.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from jaxtyping import Bool

from sordino.errors import BudgetExceeded, PrivacyError, UsageError
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.folds import FOLDS, held_out_questions, refuse_one_side
from sordino.privacy import accounting
from sordino.privacy.events import Event, GaussianEvent
from sordino.privacy.guarantee import Guarantee, merge
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import Row
from sordino.privacy.spend import event_of

from .metrics import Estimate, Interval, legible
from .model import RewardModel

SHARE: Final = 1 / FOLDS
"""Share of the questions that is held out, about."""

_NOTE: Final = "held_out"
UNREAD: Final[Mapping[str, str]] = {_NOTE: "unread"}
"""What a ledger entry says of a release that did not read the held-out rows."""
MEASURED: Final[Mapping[str, str]] = {_NOTE: "measured"}
"""What it says of a release that read nothing else."""


def held_out_rows(pairs: Comparisons) -> Bool[np.ndarray, " n"]:
    """Return which rows are kept for metrics: one fifth of the questions, by their keys alone."""
    # It is a public rule that looks at one row at a time: no label, no order, no other record and
    # no coin decides. All answers to one question are on one side.
    # Source: docs/central.md, "Metrics that are paid for".
    return held_out_questions(pairs.keys)


def checked_rows(pairs: Comparisons, held_out: Bool[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Return the rows that are held out; refuse all but those of the public rule."""
    # A mask of the user's own could be made from labels, or from other records than the row's own;
    # then what a release promises would not hold. How many rows there are is not said.
    expected, given = held_out_rows(pairs), np.asarray(held_out)
    if given.dtype != np.bool_ or not np.array_equal(given, expected):
        raise PrivacyError(
            "held_out must be what held_out_rows(pairs) returns for the same pairs: it reads "
            "nothing but questions, and other rows could be chosen by their labels. Nothing was "
            "spent."
        )
    return expected


def refuse_one_sided(rows: Bool[np.ndarray, " n"]) -> None:
    """Refuse a hold-out of nothing or of everything; only where questions are public."""
    refuse_one_side(pairs=len(rows), held_out=int(rows.sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateMetrics:
    """What a reward measures on rows that it did not see, and what that cost."""

    # Made by `measure_labels` or `measure_records`. All of it may be published.

    # How often the reward prefers the preferred answer; no preference counts ½.
    accuracy: Estimate | None
    negative_log_likelihood: Estimate | None  # mean logistic loss of one judgment
    # Factor by which scores should be multiplied; 1 is calibrated.
    calibration_slope: Estimate | None
    # How often the Gibbs policy picks the preferred of the two answers, with a 95 % interval.
    win_rate: Interval | None
    pairs: int | None  # how many rows were held out and count; None where that is private
    event: GaussianEvent  # what the purchase did
    guarantee: Guarantee  # what the purchase alone promises
    release_id: str  # the ledger entry that paid
    artifact: str  # SHA-256 of the released sum
    judged: str  # SHA-256 of what the judged reward was fitted on
    reason: str | None = None  # why nothing is told, where nothing is

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics under the names that a result gives them."""
        values: dict[str, Any] = {}
        for name in ("accuracy", "negative_log_likelihood", "calibration_slope"):
            found: Estimate | None = getattr(self, name)
            values[name] = None if found is None else found.value
            values[f"{name}_standard_error"] = None if found is None else found.standard_error
        rate = self.win_rate
        values["win_rate"] = None if rate is None else rate.value
        values["win_rate_interval"] = None if rate is None else [rate.lower, rate.upper]
        return legible(values)

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


def refuse_unfit(reward: Any, event: Event, ledger: Ledger, *, method: str) -> None:
    """Refuse a reward that saw what would judge it, or that could not state both promises."""
    if not isinstance(reward, RewardModel) or reward.method != method:
        raise UsageError(
            f"reward must be a RewardModel with method={method!r}, got "
            f"{getattr(reward, 'method', type(reward).__name__)!r}. Nothing was spent."
        )
    rows = _entries(reward.release_ids, ledger)
    if any(_NOTE not in (json.loads(row.payload).get("details") or {}) for row in rows):
        raise UsageError(
            "This reward was fitted on all rows, also on those that would judge it. Nothing was "
            "spent. Fit it with held_out=held_out_rows(pairs)."
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
