"""Events in, guarantee out: the only place that composes, and the only one that runs dp_accounting.

Three accountants, each with its own column in the support table:

``closed``  formulas (``closed_bounds``) for everything; exact for a few releases
``pld``     privacy loss distributions of dp_accounting; tighter for long mixtures
``rdp``     Rényi orders of dp_accounting; tighter for randomized response mixed with zCDP

All of them give upper bounds, so the least is reported. An event that none supports under the
relation is refused: nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Protocol, runtime_checkable

from sordino._validate import failure_probability, integer, non_negative, one_of, positive
from sordino.errors import PrivacyError, UsageError

from .accountants import (
    SUPPORT,
    Bound,
    Shown,
    attained,
    closed_bounds,
    decimal,
    float_down,
    loss_distribution_bound,
    mixed_bound,
    plain,
    renyi_bound,
    samples,
)
from .conversions import bracket_down, bracket_up, gaussian_mu, narrow
from .guarantee import (
    EVENTS,
    KINDS,
    Event,
    GaussianEvent,
    NeighboringRelation,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
)

Events = Mapping[Event, int] | Iterable[tuple[Event, int]]
_NUMERICAL_STEPS = 16
_LEAST_DELTA = 1e-10  # below it the allowance for Fourier transforms would eat the delta


def composed_epsilon(events: Events, *, neighbors: NeighboringRelation, delta: float) -> float:
    """Return the least epsilon that these releases are shown to keep together at delta.

    Guarantee:
        an upper bound for adaptively chosen releases on one data set under the one relation.
        Settings are read as the decimal numbers that they print as; arithmetic is rounded up, and
        loss distributions carry an allowance for their Fourier transforms. Shown by
        ``tests/soundness/test_accounting.py``.
    """
    # Source: docs/privacy.md, "Composition through dp_accounting 0.6.0"; the formulas are cited in
    # `closed_bounds`.
    counts = _counted(events, neighbors)
    delta = failure_probability("delta", delta)
    if not counts:
        return 0.0
    if _non_private(counts):
        return math.inf
    bounds = chain(_closed(counts, neighbors), _numerical(counts, neighbors, delta))
    return min(bound.epsilon(delta) for bound in bounds)


def composed_delta(events: Events, *, neighbors: NeighboringRelation, epsilon: float) -> float:
    """Return the least delta that these releases are shown to keep together at epsilon.

    Guarantee:
        as ``composed_epsilon``.
    """
    # Source: as `composed_epsilon`.
    counts = _counted(events, neighbors)
    epsilon = non_negative("epsilon", epsilon)
    if not counts:
        return 0.0
    if _non_private(counts):
        return 1.0
    closed = min(bound.delta(epsilon) for bound in _closed(counts, neighbors))
    return min([closed, *(bound.delta(epsilon) for bound in _numerical(counts, neighbors, closed))])


def fits(events: Events, *, neighbors: NeighboringRelation, epsilon: float, delta: float) -> bool:
    """Return whether these releases are shown to keep (epsilon, delta) together.

    Guarantee:
        True is a proof, as in ``composed_epsilon``; False may only mean not shown.
    """
    # Cheap bounds come first; loss distributions only where they could help.
    # Source: as `composed_epsilon`.
    counts = _counted(events, neighbors)
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    return _fit_counted(counts, neighbors, epsilon, delta, numerical=True)


def largest_pure_epsilon(
    events: Events, *, neighbors: NeighboringRelation, epsilon: float, delta: float
) -> float:
    """Return the largest loss x such that one more pure release of x still fits the budget.

    Guarantee:
        ``fits`` holds with one more ``PureEvent(result)``, unless the result is 0 (the budget may
        then be spent already).
    """
    # Source: docs/privacy.md, "Ledger" (bisection on the composed guarantee).
    counts = _counted(events, neighbors)
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    if epsilon == math.inf:
        return math.inf

    def holds(extra: float, *, numerical: bool) -> bool:
        more = _counted([*counts.items(), (PureEvent(extra), 1)], neighbors)
        return _fit_counted(more, neighbors, epsilon, delta, numerical=numerical)

    if _non_private(counts) or not holds(0.0, numerical=True):
        return 0.0
    left = [_left(bound, epsilon, delta) for bound in closed_bounds(counts, neighbors)] or [epsilon]
    fitting = (extra for extra in sorted(left, reverse=True) if holds(extra, numerical=False))
    known = next(fitting, 0.0)
    if delta == 0:
        return known
    too_much = bracket_up(lambda extra: not holds(extra, numerical=True), max(1.0, 2 * epsilon))[1]
    return _largest(holds, known, too_much, 1e-9)


def calibrate(
    make_event: Callable[[float], Event],
    budget_epsilon: float,
    budget_delta: float,
    *,
    neighbors: NeighboringRelation,
    bracket: tuple[float, float] = (1e-9, 1e9),
    spent: Events = (),
    count: int = 1,
    rtol: float = 1e-9,
) -> float:
    """Return the largest parameter whose event fits the budget on top of what was spent.

    Guarantee:
        ``fits`` was true of the event at the result, whether or not the loss really grows with the
        parameter.
    """
    # Source: docs/privacy.md, "Ledger" (bisection on the composed guarantee).
    counts, (low, high) = _counted(spent, neighbors), bracket
    epsilon = non_negative("budget_epsilon", budget_epsilon)
    delta = failure_probability("budget_delta", budget_delta)
    if not 0 < low < high < math.inf:
        raise UsageError(f"bracket must be two positive numbers, smaller first, got {bracket!r}.")

    def holds(parameter: float, *, numerical: bool) -> bool:
        more = _counted([*counts.items(), (make_event(parameter), count)], neighbors)
        return _fit_counted(more, neighbors, epsilon, delta, numerical=numerical)

    if not holds(low, numerical=True):
        raise PrivacyError(
            f"No parameter of at least {low!r} keeps epsilon={epsilon!r}, delta={delta!r}. Nothing "
            "was calibrated. Raise the budget, or lower the bracket."
        )
    return high if holds(high, numerical=True) else _largest(holds, low, high, rtol)


@runtime_checkable
class _Holds(Protocol):
    def __call__(self, value: float, /, *, numerical: bool) -> bool: ...


def _largest(holds: _Holds, fits_at: float, too_much: float, rtol: float) -> float:
    """Return the largest value that fits: closed forms first, then a few numerical steps."""
    if holds(fits_at, numerical=False):
        fits_at = narrow(lambda x: holds(x, numerical=False), too_much, fits_at, rtol=rtol)[1]
    steps = iter(range(_NUMERICAL_STEPS))

    def affordable(value: float) -> bool:
        return next(steps, None) is not None and holds(value, numerical=True)

    return narrow(affordable, too_much, fits_at, rtol=rtol)[1]


def _left(bound: Bound, epsilon: float, delta: float) -> float:
    """Return how much a pure release may add to a bound that holds."""
    spent = bound.epsilon(delta)
    return float_down(decimal(epsilon) - decimal(spent)) if spent <= epsilon else 0.0


def _counted(events: Events, neighbors: NeighboringRelation) -> dict[Event, int]:
    """Return how often each event happened; refuse what no accountant supports."""
    one_of("neighbors", neighbors, NeighboringRelation)
    counts: dict[Event, int] = {}
    for event, count in events.items() if isinstance(events, Mapping) else events:
        kind = KINDS.get(type(event))
        if kind is None:
            raise PrivacyError(
                f"{type(event).__name__} is not one of the events that can be accounted for: "
                f"{', '.join(EVENTS)}. Nothing was composed."
            )
        supported, why = SUPPORT[kind, neighbors, "closed"]
        if not supported:
            raise PrivacyError(
                f"No accountant supports {kind} events under {neighbors.name}: {why}. Nothing was "
                "composed. Use a mechanism that is analyzed under this relation."
            )
        if integer("count", count, at_least=0):
            same, times = plain(event, int(count), neighbors, least_chance=1.0)
            counts[same] = counts.get(same, 0) + times
    return counts


def _non_private(counts: Mapping[Event, int]) -> bool:
    return any(isinstance(event, NonPrivateEvent) for event in counts)


def _closed(counts: Mapping[Event, int], neighbors: NeighboringRelation) -> Iterator[Shown]:
    """Yield the bounds that are formulas."""
    yield from closed_bounds(counts, neighbors)
    mixed = mixed_bound(counts, neighbors)
    if mixed is not None:
        yield mixed


def _numerical(
    counts: Mapping[Event, int], neighbors: NeighboringRelation, delta: float
) -> Iterator[Shown]:
    """Yield the bounds that run dp_accounting, where they could beat the closed forms."""
    if delta <= 0 or (sum(counts.values()) == 1 and not samples(counts)):
        return
    if any(isinstance(event, RandomizedResponseEvent) for event in counts):
        orders = renyi_bound(counts, neighbors)
        if orders is not None:
            yield orders
    if delta >= _LEAST_DELTA and not _is_closed(counts, neighbors):
        distribution = loss_distribution_bound(counts, neighbors)
        if distribution is not None:
            yield distribution


def _is_closed(counts: Mapping[Event, int], neighbors: NeighboringRelation) -> bool:
    """Return whether a formula is already exact: only Gaussians, one pure loss, or a short sum."""
    if all(isinstance(event, GaussianEvent) for event in counts):
        return True
    (first, *others) = counts
    if not others and isinstance(first, PureEvent | RandomizedResponseEvent):
        return attained(first, neighbors)
    mixed = mixed_bound(counts, neighbors)
    return mixed is not None and mixed.exact


def _fit_counted(
    counts: Mapping[Event, int],
    neighbors: NeighboringRelation,
    epsilon: float,
    delta: float,
    *,
    numerical: bool,
) -> bool:
    """Return whether a bound shows (epsilon, delta); the arguments are checked."""
    if not counts or epsilon == math.inf:
        return True
    if _non_private(counts):
        return False
    bounds = chain(_closed(counts, neighbors), _numerical(counts, neighbors, delta * numerical))
    return any(bound.fits(epsilon, delta) for bound in bounds)


_RTOL = 1e-4


def calibrated_noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    sampling_probability: float,
    steps: int,
    neighbors: NeighboringRelation,
) -> float:
    """Return the least noise multiplier whose noised sums of Poisson samples fit a budget.

    Guarantee:
        ``fits`` was true of ``PoissonGaussianEvent(result, sampling_probability, steps)``. Below a
        delta of 1e-10 sampling is not made use of. Shown by ``tests/soundness/test_poisson.py``.
    """
    # Source: docs/privacy.md, "Poisson-sampled Gaussian" (bisection; the start is the central limit
    # of Bu, Dong, Long, Su (2020), Section 3).
    epsilon, delta = positive("epsilon", epsilon), failure_probability("delta", delta, zero=False)

    def holds(noise: float) -> bool:
        event = PoissonGaussianEvent(noise, sampling_probability, steps)
        return fits([(event, 1)], neighbors=neighbors, epsilon=epsilon, delta=delta)

    # about the noise of many sums that are worth mu together: their central limit
    mu, chance = gaussian_mu(epsilon, delta), sampling_probability
    one, _ = plain(PoissonGaussianEvent(1.0, chance, steps), 1, neighbors)
    assert isinstance(one, GaussianEvent)  # noqa: S101 - for the type checker
    start = one.mu / math.sqrt(max(math.log1p((mu / chance) ** 2 / steps), 1e-300))
    if holds(start):
        least, too_little = bracket_down(lambda noise: not holds(noise), start)
    else:
        too_little, least = bracket_up(holds, start)
    if least == math.inf:
        raise PrivacyError(
            f"No noise is shown to keep epsilon={epsilon!r}, delta={delta!r} over {steps} steps. "
            "Nothing was calibrated. Raise the budget."
        )
    return narrow(holds, too_little, least, rtol=_RTOL)[1]
