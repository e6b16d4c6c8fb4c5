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
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

from sordino._validate import failure_probability, integer, non_negative, positive
from sordino.errors import LedgerDamaged, UsageError


def _finite(name: str, value: Any) -> float:
    """Return value as a float; refuse what is below zero or not finite."""
    result = non_negative(name, value)
    if result == math.inf:
        raise UsageError(f"{name} must be finite, got {value!r}.")
    return result


@dataclass(frozen=True)
class Event:
    """What one release did: the parent of the closed set below."""

    __slots__ = ()

    def _set(self, **values: float) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class RandomizedResponseEvent(Event):
    """One label answered by a coin: kept, or made uniform on the other categories.

    Args:
        epsilon: Pure loss of one label when it is replaced; finite, greater than 0.
        categories: Number of possible labels; at least 2.

    Raises:
        UsageError: If an argument is out of range.

    Source:
        Warner (1965); Kairouz, Oh, Viswanath (2016).
    """

    epsilon: float
    categories: int = 2

    def __post_init__(self) -> None:
        """Check the settings."""
        self._set(
            epsilon=positive("epsilon", self.epsilon),
            categories=integer("categories", self.categories, at_least=2),
        )


@dataclass(frozen=True)
class GaussianEvent(Event):
    """A value released with Gaussian noise.

    Args:
        mu: Sensitivity under the entry's relation divided by the standard deviation; finite, at
            least 0.

    Raises:
        UsageError: If mu is out of range.

    Source:
        Dong, Roth, Su (2022), Theorem 2.7 (mu-GDP).
    """

    mu: float

    def __post_init__(self) -> None:
        """Check the setting."""
        self._set(mu=_finite("mu", self.mu))


@dataclass(frozen=True)
class PureEvent(Event):
    """Any release whose log-ratios are at most epsilon.

    Args:
        epsilon: Pure loss; finite, at least 0.

    Raises:
        UsageError: If epsilon is out of range.

    Source:
        Dwork, McSherry, Nissim, Smith (2006), Definition 1.
    """

    epsilon: float

    def __post_init__(self) -> None:
        """Check the setting."""
        self._set(epsilon=_finite("epsilon", self.epsilon))


@dataclass(frozen=True)
class ApproximateEvent(Event):
    """Any release that is (epsilon, delta)-private, of which nothing else is known.

    Args:
        epsilon: Loss; finite, at least 0.
        delta: Failure probability; from 0 to below 1.

    Raises:
        UsageError: If an argument is out of range.

    Source:
        Dwork, Kenthapadi, McSherry, Mironov, Naor (2006), Definition 1.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        """Check the settings."""
        self._set(
            epsilon=_finite("epsilon", self.epsilon),
            delta=failure_probability("delta", self.delta),
        )


@dataclass(frozen=True)
class ZeroConcentratedEvent(Event):
    """Any release that is rho-zCDP.

    Args:
        rho: Zero-concentrated loss; finite, at least 0.

    Raises:
        UsageError: If rho is out of range.

    Source:
        Bun, Steinke (2016), Definition 1.1.
    """

    rho: float

    def __post_init__(self) -> None:
        """Check the setting."""
        self._set(rho=_finite("rho", self.rho))


@dataclass(frozen=True)
class BoundedRangeEvent(Event):
    """Independent draws from one policy whose log-ratios lie in an interval of known length.

    Args:
        bounded_range: Length of the interval, per draw; finite, at least 0.
        draws: Number of independent draws from this one policy; at least 1.

    Raises:
        UsageError: If an argument is out of range.

    Source:
        Durfee, Rogers (2019), Definition 3.1.
    """

    bounded_range: float
    draws: int = 1

    def __post_init__(self) -> None:
        """Check the settings."""
        self._set(
            bounded_range=_finite("bounded_range", self.bounded_range),
            draws=integer("draws", self.draws, at_least=1),
        )


@dataclass(frozen=True)
class PoissonGaussianEvent(Event):
    """Noised sums of a fresh Poisson sample each, as in the steps of DP-SGD.

    Only the noised sums are released: neither who was drawn nor how many.

    Args:
        noise_multiplier: Standard deviation of the noise divided by the bound on the norm of one
            contribution, whatever the relation; finite, greater than 0.
        sampling_probability: Chance of each contribution to be drawn, on its own; in (0, 1].
        steps: Number of such sums; at least 1.

    Raises:
        UsageError: If an argument is out of range.

    Source:
        Abadi et al. (2016), Algorithm 1; docs/privacy.md, "Poisson-sampled Gaussian".
    """

    noise_multiplier: float
    sampling_probability: float
    steps: int

    def __post_init__(self) -> None:
        """Check the settings."""
        chance = positive("sampling_probability", self.sampling_probability)
        if chance > 1:
            raise UsageError(f"sampling_probability must be in (0, 1], got {chance!r}.")
        self._set(
            noise_multiplier=positive("noise_multiplier", self.noise_multiplier),
            sampling_probability=chance,
            steps=integer("steps", self.steps, at_least=1),
        )


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
_KINDS: Mapping[type[Event], str] = MappingProxyType({cls: kind for kind, cls in EVENTS.items()})


def event_to_row(event: Event) -> tuple[str, dict[str, float | int]]:
    """Return the kind and the parameters of an event, as the ledger stores them.

    Args:
        event: One of the events of this module; a subclass is refused.

    Returns:
        The name in ``EVENTS`` and a new dict of plain numbers.

    Raises:
        UsageError: If the value is not one of the closed set.

    Example:
        >>> event_to_row(PureEvent(0.5))
        ('pure', {'epsilon': 0.5})
    """
    kind = _KINDS.get(type(event))
    if kind is None:
        raise UsageError(f"event must be one of {', '.join(EVENTS)}; got {type(event).__name__}.")
    return kind, {field.name: getattr(event, field.name) for field in fields(event)}


def event_from_row(kind: str, params: Mapping[str, Any]) -> Event:
    """Return the event that a ledger row describes, reading the closed table only.

    Args:
        kind: A name in ``EVENTS``.
        params: Exactly the parameters of that kind: floats, and whole numbers for counts.

    Returns:
        The event, equal to the one that was stored.

    Raises:
        LedgerDamaged: If the kind is unknown, a parameter is missing, unknown or of another type,
            or a value is out of range.

    Example:
        >>> event_from_row("gaussian", {"mu": 0.25})
        GaussianEvent(mu=0.25)
    """
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
