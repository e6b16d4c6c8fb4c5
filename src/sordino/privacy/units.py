"""What a release promises to another unit: a label lies in a record, and a record in a person.

A ledger keeps each release under the unit and the relation that it was analyzed for. Here its
event is read for one changed unit of a smaller kind, so that releases of several kinds compose.
The proof is in docs/privacy.md, "Accounts by unit".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from .accountants import decimal
from .accounting import Spend
from .conversions import float_up, replace_from_add_remove
from .guarantee import (
    DECLARED_DISJOINT,
    REPLACE_ONE,
    ApproximateEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
    NonPrivateEvent,
    PureEvent,
    Unit,
    ZeroConcentratedEvent,
    float_to_json,
    merge,
    size,
)
from .ledger_chain import Row, event_of, promise_of

UNITS: tuple[Unit, ...] = get_args(Unit)
"""From the smallest to the largest: what protects one protects those before it."""


@dataclass(frozen=True)
class Account:
    """What all releases from one data set promise together to one unit."""

    unit: Unit
    guarantee: Guarantee | None  # None if a release does not cover the unit, or there is none
    uncovered: tuple[str, ...] = ()  # ids of the releases that do not

    def __str__(self) -> str:
        """Return the promise in one line, or why there is none."""
        if self.guarantee is not None:
            return f"{size(self.guarantee)} ({self.guarantee.neighbors.name})"
        if not self.uncovered:
            return "nothing"
        reason = {
            "record": "treated prompts and answers as public",
            "person": "counted each judgment of a person by itself",
        }[self.unit]
        first, *others = self.uncovered
        more = f" and {len(others)} more" if others else ""
        return f"not protected: release {first}{more} {reason}"

    def to_dict(self) -> dict[str, object]:
        """Return the account as JSON holds it: what is not covered has no size, and a reason."""
        promise = self.guarantee
        return {
            "epsilon": None if promise is None else float_to_json(promise.epsilon),
            "delta": None if promise is None else promise.delta,
            "neighbors": None if promise is None else promise.neighbors.name,
            "says": str(self),
        }


def accounts(
    spends: Sequence[Row], groups: Sequence[frozenset[str]], budget: Guarantee, delta: float | None
) -> dict[str, Account]:
    """Return what spending rows of one data set promise together to each unit that changes.

    Args:
        spends: The rows, whatever units they were analyzed for.
        groups: Scopes of which one unit lies in one at most; see ``Ledger.declare_disjoint``.
        budget: The limit on them.
        delta: As in ``Ledger.accounts``.
    """
    two_steps = replace_from_add_remove(budget.epsilon, budget.delta)[1]
    found = {}
    for unit in UNITS:
        for allowed in [budget.delta, two_steps] if delta is None else [delta]:
            found[unit] = _account(unit, spends, groups, allowed)
            if (held := found[unit].guarantee) is None or math.isfinite(held.epsilon):
                break
    return found


def _account(
    unit: Unit, spends: Sequence[Row], groups: Sequence[frozenset[str]], delta: float
) -> Account:
    promises = [promise_of(row) for row in spends]
    uncovered = [
        row.release_id
        for row, promise in zip(spends, promises, strict=True)
        if not covers(promise, unit)
    ]
    if uncovered or not spends:
        return Account(unit, None, tuple(uncovered))
    own = {(promise.unit, promise.neighbors) for promise in promises}
    (_, relation), *others = own
    if others or own != {(unit, relation)}:
        relation = REPLACE_ONE  # the one that every other leads to
    spend = Spend(groups=list(groups))
    for row, promise in zip(spends, promises, strict=True):
        spend.add(row.scope, event_for(event_of(row), promise, unit, relation), row.count)
    terms = [replace(promise, unit=unit, neighbors=relation) for promise in promises]
    total = merge(terms, epsilon=spend.epsilon(neighbors=relation, delta=delta), delta=delta)
    declared = (DECLARED_DISJOINT,) if spend.rests_on_declaration else ()
    return Account(unit, total.with_caveats(*declared))


def covers(promise: Guarantee, unit: Unit) -> bool:
    """Return whether a promise hides anything of a unit: its own unit is as large, or larger."""
    # Where only the labels of a person are protected, nothing else of their records is.
    if unit == "record" and "labels-only" in promise.caveats:
        return False
    return UNITS.index(promise.unit) >= UNITS.index(unit)


def event_for(event: Event, promise: Guarantee, unit: Unit, relation: NeighboringRelation) -> Event:
    """Return an event that bounds what a release shows when one unit changes.

    Args:
        event: What the release did, under the unit and relation of ``promise``.
        promise: What it was analyzed for; it must cover ``unit``.
        unit: What changes.
        relation: The promise's own if the units are the same, else ``REPLACE_ONE``.
    """
    if (promise.unit, promise.neighbors) == (unit, relation) or promise.neighbors is REPLACE_ONE:
        # A new label is one way to replace a record, and a new record one way to replace what a
        # person has: the change is among those that the release was analyzed for.
        return event
    return _of_two_steps(event)


def _of_two_steps(event: Event) -> Event:
    """Return the event of two changes after one another, over what is empty or absent."""
    # Randomized response and Poisson samples say the same number under every relation: the loss
    # of a label that is replaced, and the noise over the bound on one contribution.
    match event:
        case GaussianEvent():
            return GaussianEvent(_times(2, event.mu))
        case PureEvent():
            return PureEvent(_times(2, event.epsilon))
        case ZeroConcentratedEvent():  # Bun, Steinke (2016), Proposition 1.9
            return ZeroConcentratedEvent(_times(4, event.rho))
        case BoundedRangeEvent():
            return BoundedRangeEvent(_times(2, event.bounded_range), event.draws)
        case ApproximateEvent():
            epsilon, delta = replace_from_add_remove(event.epsilon, event.delta)
            return ApproximateEvent(epsilon, delta) if delta < 1 else NonPrivateEvent()
    return event


def _times(factor: int, value: float) -> float:
    """Return a multiple, rounded up as accounting reads it: by the decimal that is printed."""
    return float_up(factor * decimal(value))
