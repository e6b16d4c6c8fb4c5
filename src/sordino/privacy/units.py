"""What a release promises to another unit: a label lies in a record, and a record in a person.

A ledger keeps each release under the unit and the relation that it was analyzed for. Here its
event is read for one changed unit of a smaller kind, so that releases of several kinds compose.
The proof is in docs/privacy.md, "Accounts by unit".
"""

from __future__ import annotations

from typing import get_args

from .accountants import decimal
from .conversions import float_up, replace_from_add_remove
from .guarantee import (
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
)

UNITS: tuple[Unit, ...] = get_args(Unit)
"""From the smallest to the largest: what protects one protects those before it."""


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
