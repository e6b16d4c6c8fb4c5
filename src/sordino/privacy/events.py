"""What a mechanism did, as one of a closed set of values.

A mechanism hands over an event, the ledger stores it as a kind and a few numbers, and
``accounting`` turns events into a guarantee. The table is closed: nothing that is read from a
file can name a class. What one change of the data is (the relation) belongs to the entry that
holds the event, not to the event.

The values of one private label: what it can be replaced by when one label changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from sordino._validate import failure_probability, integer, non_negative, positive
from sordino.errors import LedgerDamaged, UsageError


def _finite(name: str, value: object) -> float:
    """Return value as a float; refuse what is below zero or not finite."""
    result = non_negative(name, value)
    if result == math.inf:
        raise UsageError(f"{name} must be finite, got {value!r}.")
    return result


def _chance(name: str, value: object) -> float:
    """Return value as a float in (0, 1]."""
    result = positive(name, value)
    if result > 1:
        raise UsageError(f"{name} must be in (0, 1], got {result!r}.")
    return result


@dataclass(frozen=True)
class Event:
    """What one release did: the parent of the closed set below."""

    def __post_init__(self) -> None:
        """Check every number by what its field says."""
        for item in fields(self):
            checked = item.metadata["check"](item.name, getattr(self, item.name))
            object.__setattr__(self, item.name, checked)


# What every number of an event is checked by.
_POSITIVE: Final = {"check": positive}
_FINITE: Final = {"check": _finite}
_AT_LEAST_ONE: Final = {"check": partial(integer, at_least=1)}


@dataclass(frozen=True)
class RandomizedResponseEvent(Event):
    """One label answered by a coin: kept, or made uniform on the other categories."""

    # Source: Warner (1965); Kairouz, Oh, Viswanath (2016).

    # Pure loss of one label when it is replaced; finite, greater than 0.
    epsilon: float = field(metadata=_POSITIVE)
    # Number of possible labels; at least 2.
    categories: int = field(default=2, metadata={"check": partial(integer, at_least=2)})


@dataclass(frozen=True)
class GaussianEvent(Event):
    """A value released with Gaussian noise."""

    # Source: Dong, Roth, Su (2022), Theorem 2.7 (mu-GDP).

    # Sensitivity under the entry's relation divided by the standard deviation.
    mu: float = field(metadata=_FINITE)


@dataclass(frozen=True)
class PureEvent(Event):
    """Any release whose log-ratios are at most epsilon."""

    # Source: Dwork, McSherry, Nissim, Smith (2006), Definition 1.

    epsilon: float = field(metadata=_FINITE)


@dataclass(frozen=True)
class ApproximateEvent(Event):
    """Any release that is (epsilon, delta)-private, of which nothing else is known."""

    # Source: Dwork, Kenthapadi, McSherry, Mironov, Naor (2006), Definition 1.

    epsilon: float = field(metadata=_FINITE)
    delta: float = field(metadata={"check": failure_probability})  # from 0 to below 1


@dataclass(frozen=True)
class ZeroConcentratedEvent(Event):
    """Any release that is rho-zCDP."""

    # Source: Bun, Steinke (2016), Definition 1.1.

    rho: float = field(metadata=_FINITE)


@dataclass(frozen=True)
class BoundedRangeEvent(Event):
    """Independent draws from one policy whose log-ratios lie in an interval of known length."""

    # Source: Durfee, Rogers (2019), Definition 3.1.

    bounded_range: float = field(metadata=_FINITE)  # length of the interval, per draw
    draws: int = field(default=1, metadata=_AT_LEAST_ONE)  # independent, from this one policy


@dataclass(frozen=True)
class PoissonGaussianEvent(Event):
    """Noised sums of a fresh Poisson sample each, as in the steps of DP-SGD."""

    # Only the noised sums are released: neither who was drawn nor how many.
    # Source: Abadi et al. (2016), Algorithm 1; docs/privacy.md, "Poisson-sampled Gaussian".

    # Standard deviation of the noise divided by the bound on the norm of one contribution, whatever
    # the relation; finite, greater than 0.
    noise_multiplier: float = field(metadata=_POSITIVE)
    # Chance of each contribution to be drawn, on its own; in (0, 1].
    sampling_probability: float = field(metadata={"check": _chance})
    steps: int = field(metadata=_AT_LEAST_ONE)  # number of such sums


@dataclass(frozen=True)
class NonPrivateEvent(Event):
    """A release that protects nobody; its spend is infinite under every relation."""


EVENTS: Mapping[str, type[Event]] = MappingProxyType(
    {
        "randomized-response": RandomizedResponseEvent,
        "gaussian": GaussianEvent,
        "pure": PureEvent,
        "approximate": ApproximateEvent,
        "zero-concentrated": ZeroConcentratedEvent,
        "bounded-range": BoundedRangeEvent,
        "poisson-gaussian": PoissonGaussianEvent,
        "non-private": NonPrivateEvent,
    }
)
KINDS: Mapping[type[Event], str] = MappingProxyType({cls: kind for kind, cls in EVENTS.items()})


def event_to_row(event: Event) -> tuple[str, dict[str, float | int]]:
    """Return the kind and the parameters of an event, as the ledger stores them."""
    kind = KINDS.get(type(event))
    if kind is None:
        raise UsageError(f"event must be one of {', '.join(EVENTS)}; got {type(event).__name__}.")
    return kind, {field.name: getattr(event, field.name) for field in fields(event)}


def event_from_row(kind: str, params: Mapping[str, Any]) -> Event:
    """Return the event that a ledger row describes, reading the closed table only."""
    cls = EVENTS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise LedgerDamaged(f"A ledger entry of an unknown kind; known: {', '.join(EVENTS)}.")
    wanted = {field.name: field.type for field in fields(cls)}
    if not isinstance(params, Mapping) or set(params) != set(wanted):
        raise LedgerDamaged(f"A ledger entry of kind {kind!r} must hold exactly {list(wanted)}.")
    for name, annotation in wanted.items():
        # JSON may have written 1.0 as 1, but a count is never a float and a bool is neither.
        allowed = (int,) if annotation == "int" else (float, int)
        if type(params[name]) not in allowed:
            raise LedgerDamaged(f"{name} of a ledger entry of kind {kind!r} has a wrong type.")
    try:
        return cls(**params)
    except (UsageError, OverflowError):  # without its words, which quote the ledger
        problem = f"A parameter of a ledger entry of kind {kind!r} is out of range."
    raise LedgerDamaged(problem)


UNDECIDED: Final = 2
"""A tie, "both bad" or "skip": y = ½, as private as 1 (the first is preferred) and 0."""

FAIR: Final = 2**63
"""An undecided label is answered by 1 on the words below this one: half of all 2^64."""
