"""What a release promises to another unit: a label lies in a record, and a record in a person.

A ledger keeps each release under the unit and the relation that it was analyzed for. Here its
event is read for one changed unit of a smaller kind, so that releases of several kinds compose.
The proof is in docs/privacy.md, "Accounts by unit".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

from .accountants import decimal, float_down
from .conversions import float_up, group_approximate
from .guarantee import (
    REPLACE_ONE,
    ApproximateEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PureEvent,
    Unit,
    ZeroConcentratedEvent,
)

UNITS: tuple[Unit, ...] = get_args(Unit)
"""From the smallest to the largest: what protects one protects those before it."""


_SIZES = {
    GaussianEvent: ("mu", 1),
    PureEvent: ("epsilon", 1),
    ZeroConcentratedEvent: ("rho", 2),  # Bun, Steinke (2016), Proposition 1.9
    BoundedRangeEvent: ("bounded_range", 1),
}
"""What grows with the number of changes, and with which power of it."""


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
    if (promise.unit, promise.neighbors) == (unit, relation):
        return event
    # A new label is one way to replace a record, or what a person has. A new record may be of
    # another person, and then two persons change.
    touched = 2 if (unit, promise.unit) == ("record", "person") else 1
    # What is replaced goes away and comes back, if that is what the release was analyzed for.
    return _of_steps(event, touched * (1 if promise.neighbors is REPLACE_ONE else 2), touched)


def _of_steps(event: Event, steps: int, touched: int) -> Event:
    """Return the event of some changes after one another, which touch so many units."""
    if type(event) in _SIZES:
        name, power = _SIZES[type(event)]
        # rounded up as accounting reads it: by the decimal that is printed
        size = float_up(steps**power * decimal(getattr(event, name)))
        return replace(event, **{name: size}) if math.isfinite(size) else NonPrivateEvent()
    if isinstance(event, ApproximateEvent):
        epsilon, delta = group_approximate(event.epsilon, event.delta, steps)
        epsilon = max(epsilon, float_up(steps * decimal(event.epsilon)))
        held = delta < 1 and math.isfinite(epsilon)
        return ApproximateEvent(epsilon, delta) if held else NonPrivateEvent()
    if isinstance(event, PoissonGaussianEvent) and touched > 1:
        # One of two is drawn at most as often as this, and together they move a sum twice as far.
        chance = decimal(event.sampling_probability)
        return PoissonGaussianEvent(
            float_down(decimal(event.noise_multiplier) / touched),
            min(1.0, float_up(1 - (1 - chance) ** touched)),
            event.steps,
        )
    # Randomized response and Poisson samples say the same number under every relation: the loss
    # of a label that is replaced, and the noise over the bound on one contribution.
    return event
