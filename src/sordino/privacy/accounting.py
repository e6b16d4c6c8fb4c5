"""Events in, guarantee out: the only place that composes, and the only one that runs dp_accounting.

Two accountants, each with its own column in the support table:

``closed``  formulas (``closed_bounds``) for everything; exact for a few releases
``pld``     privacy loss distributions of dp_accounting; tighter for long mixtures

Both give upper bounds, so the least is reported. An event that none supports under the
relation is refused: nothing is guessed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, product

from sordino._validate import failure_probability, integer, non_negative, one_of, positive
from sordino.errors import PrivacyError, UsageError

from .accountants import (
    SUPPORT,
    Shown,
    attained,
    closed_bounds,
    decimal,
    float_down,
    loss_distribution_bound,
    mixed_bound,
    plain,
    samples,
)
from .conversions import bracket_up, gaussian_mu, narrow
from .guarantee import (
    ADD_OR_REMOVE_ONE,
    EVENTS,
    KINDS,
    Event,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
    Unit,
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
    if NonPrivateEvent() in counts:
        return math.inf
    bounds = chain(_closed(counts, neighbors), _numerical(counts, neighbors, delta))
    return min(bound.epsilon(delta) for bound in bounds)


def fits(events: Events, *, neighbors: NeighboringRelation, epsilon: float, delta: float) -> bool:
    """Return whether these releases are shown to keep (epsilon, delta) together."""
    # True is a proof, as in `composed_epsilon`; False may only mean not shown.
    # Cheap bounds come first; loss distributions only where they could help.
    # Source: as `composed_epsilon`.
    counts = _counted(events, neighbors)
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    return _fit_counted(counts, neighbors, epsilon, delta, numerical=True)


def largest_pure_epsilon(
    events: Events, *, neighbors: NeighboringRelation, epsilon: float, delta: float
) -> float:
    """Return the largest loss x such that one more pure release of x still fits the budget."""
    # `fits` holds with one more `PureEvent(result)`, unless the result is 0 (the budget may then be
    # spent already).
    # Source: docs/privacy.md, "Ledger" (bisection on the composed guarantee).
    counts = _counted(events, neighbors)
    epsilon, delta = non_negative("epsilon", epsilon), failure_probability("delta", delta)
    if epsilon == math.inf:
        return math.inf

    def holds(extra: float, *, numerical: bool) -> bool:
        more = _counted([*counts.items(), (PureEvent(extra), 1)], neighbors)
        return _fit_counted(more, neighbors, epsilon, delta, numerical=numerical)

    if NonPrivateEvent() in counts or not holds(0.0, numerical=True):
        return 0.0
    # how much a pure release may add to a bound that holds
    spent = [bound.epsilon(delta) for bound in closed_bounds(counts, neighbors)]
    left = [float_down(decimal(epsilon) - decimal(one)) for one in spent if one <= epsilon]
    left = left or [0.0 if spent else epsilon]
    fitting = (extra for extra in sorted(left, reverse=True) if holds(extra, numerical=False))
    known = next(fitting, 0.0)
    if delta == 0:
        return known
    too_much = bracket_up(lambda extra: not holds(extra, numerical=True), max(1.0, 2 * epsilon))[1]
    return _largest(holds, known, too_much)


def calibrate(
    make_event: Callable[[float], Event],
    budget_epsilon: float,
    budget_delta: float,
    *,
    neighbors: NeighboringRelation,
    bracket: tuple[float, float] = (1e-9, 1e9),
    count: int = 1,
) -> float:
    """Return the largest parameter whose event fits the budget."""
    # `fits` was true of the event at the result, whether or not the loss really grows with the
    # parameter.
    # Source: docs/privacy.md, "Ledger" (bisection on the composed guarantee).
    low, high = bracket
    epsilon = non_negative("budget_epsilon", budget_epsilon)
    delta = failure_probability("budget_delta", budget_delta)
    if not 0 < low < high < math.inf:
        raise UsageError(f"bracket must be two positive numbers, smaller first, got {bracket!r}.")

    def holds(parameter: float, *, numerical: bool) -> bool:
        counts = _counted([(make_event(parameter), count)], neighbors)
        return _fit_counted(counts, neighbors, epsilon, delta, numerical=numerical)

    if not holds(low, numerical=True):
        raise PrivacyError(
            f"No parameter of at least {low!r} keeps epsilon={epsilon!r}, delta={delta!r}. Nothing "
            "was calibrated. Raise the budget, or lower the bracket."
        )
    return high if holds(high, numerical=True) else _largest(holds, low, high)


def _largest(holds: Callable[..., bool], fits_at: float, too_much: float) -> float:
    """Return the largest value that fits: closed forms first, then a few numerical steps."""
    if fits_at == 0 and not holds(math.ulp(0.0), numerical=True):
        return fits_at  # as of a budget that is spent: nothing larger fits either
    if holds(fits_at, numerical=False):
        fits_at = narrow(lambda x: holds(x, numerical=False), too_much, fits_at, rtol=1e-9)[1]
    steps = iter(range(_NUMERICAL_STEPS))

    def affordable(value: float) -> bool:
        return next(steps, None) is not None and holds(value, numerical=True)

    return narrow(affordable, too_much, fits_at, rtol=1e-9)[1]


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


def _closed(counts: Mapping[Event, int], neighbors: NeighboringRelation) -> Iterator[Shown]:
    yield from closed_bounds(counts, neighbors)
    if (mixed := mixed_bound(counts, neighbors)) is not None:
        yield mixed


def _numerical(
    counts: Mapping[Event, int], neighbors: NeighboringRelation, delta: float
) -> Iterator[Shown]:
    """Yield the bounds that run dp_accounting, where they could beat the closed forms."""
    if delta <= 0 or (sum(counts.values()) == 1 and not samples(counts)):
        return
    if delta < _LEAST_DELTA or all(isinstance(event, GaussianEvent) for event in counts):
        return
    # a formula is exact already of one pure loss, and of a short sum
    (first, *others), mixed = counts, mixed_bound(counts, neighbors)
    pure = not others and isinstance(first, PureEvent | RandomizedResponseEvent)
    exact = attained(first, neighbors) if pure else mixed is not None and mixed.exact
    if not exact and (distribution := loss_distribution_bound(counts, neighbors)) is not None:
        yield distribution


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
    if NonPrivateEvent() in counts:
        return False
    bounds = chain(_closed(counts, neighbors), _numerical(counts, neighbors, delta * numerical))
    return any(bound.fits(epsilon, delta) for bound in bounds)


_RTOL = 1e-4
_WIDE = 1e-3  # wider cells: a δ that is less than a hundredth more, in a fifth of the time
_UNSURE = 1.02


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

    def holds(noise: float, *, certified: bool = False) -> bool:
        event = PoissonGaussianEvent(noise, sampling_probability, steps)
        counts, numerical = _counted([(event, 1)], neighbors), True
        if not certified and samples(counts) and delta >= _LEAST_DELTA:
            rough = loss_distribution_bound(counts, neighbors, widest=_WIDE)
            shown = 1.0 if rough is None else rough.delta(epsilon)
            if shown <= delta:
                return True
            numerical = shown <= delta * _UNSURE  # else only a formula might show less
        return _fit_counted(counts, neighbors, epsilon, delta, numerical=numerical)

    # about the noise of many sums that are worth mu together: their central limit
    mu, chance = gaussian_mu(epsilon, delta), sampling_probability
    one, _ = plain(PoissonGaussianEvent(1.0, chance, steps), 1, neighbors)
    assert isinstance(one, GaussianEvent)  # noqa: S101 - for the type checker
    start = one.mu / math.sqrt(max(math.log1p((mu / chance) ** 2 / steps), 1e-300))
    if holds(start):
        least, too_little = start, start / 2
        while too_little > 0 and holds(too_little):
            least, too_little = too_little, too_little / 2
    else:
        too_little, least = bracket_up(holds, start)
    if least == math.inf:
        raise PrivacyError(
            f"No noise is shown to keep epsilon={epsilon!r}, delta={delta!r} over {steps} steps. "
            "Nothing was calibrated. Raise the budget."
        )
    least = narrow(holds, too_little, least, rtol=_RTOL)[1]
    while not holds(least, certified=True):  # narrow cells say the same as a rule
        least *= 1 + _RTOL
    return least


EVERYTHING = "all"  # the scope of a spend that names none: it concerns every unit

_MOST_WORLDS = 10_000

DISJOINT_RULES: Mapping[str, Unit] = {
    "public-fields": "label",
    "person-id": "person",
    "slot": "record",
}
"""Public rules by which scopes may share no unit, and the unit that each rule is about.

``public-fields``: the scope is a function of prompts, answers and order, which one label does
not change. ``person-id``: all records of one person lie in one scope. ``slot``: a record keeps
its slot, so only relations that keep the number of slots may use it.
"""


@dataclass
class Spend:
    """Events per scope, and which scopes are disjoint by a public rule."""

    # Inside a scope events compose. Scopes of one declaration touch different units, so only the
    # largest of them counts. Scopes of different declarations may share units (two ways to split
    # the same people), so the largest of each declaration add up, as do all other scopes.

    events: dict[str, Counter[Event]] = field(default_factory=dict)
    groups: list[frozenset[str]] = field(default_factory=list)

    def add(self, scope: str, event: Event, count: int) -> None:
        """Count one more spend."""
        self.events.setdefault(scope, Counter())[event] += count

    def with_one_more(self, scope: str, event: Event, count: int) -> Spend:
        """Return what the spend would be, leaving this one as it is."""
        after = Spend({name: events.copy() for name, events in self.events.items()}, self.groups)
        after.add(scope, event, count)
        return after

    def _shared(self) -> Counter[Event]:
        """Return what touches every unit: all in scopes of no group."""
        apart = frozenset[str]().union(*self.groups)
        some = (events for scope, events in self.events.items() if scope not in apart)
        return sum(some, Counter[Event]())

    def worlds(self) -> Iterator[Counter[Event]]:
        """Yield what can touch one unit: all that is shared, and one scope of each group."""
        shared, different = self._shared(), list[Iterable[Counter[Event]]]()
        for group in self.groups:  # equal spends are composed once
            spends = [self.events[scope] for scope in group if scope in self.events] or [Counter()]
            different.append({frozenset(events.items()): events for events in spends}.values())
        for chosen in product(*different):
            world = shared.copy()
            for events in chosen:
                world.update(events)
            yield world

    def together(self) -> Counter[Event]:
        """Return events that lose at least what any one unit lost, whichever scope it is in."""
        # Each world has at most so many of an event: the most that one scope of a group has.
        found = self._shared()
        for group in self.groups:
            most: Counter[Event] = Counter()
            for scope in group:
                most |= self.events.get(scope, Counter())
            found.update(most)
        return found

    def epsilon(self, *, neighbors: NeighboringRelation, delta: float) -> float:
        """Return the composed bound for the worst-off unit."""
        spent = partial(composed_epsilon, neighbors=neighbors, delta=delta)
        return max(map(spent, self.worlds()))

    def fits(self, budget: Guarantee) -> bool:
        """Return whether the composed bound lies within the budget."""
        neighbors, size = budget.neighbors, {"epsilon": budget.epsilon, "delta": budget.delta}
        return all(fits(world, neighbors=neighbors, **size) for world in self.worlds())

    def remaining_epsilon(self, budget: Guarantee) -> float:
        """Return the largest further pure epsilon, in a shared scope, that still fits."""
        neighbors, size = budget.neighbors, {"epsilon": budget.epsilon, "delta": budget.delta}
        return min(largest_pure_epsilon(w, neighbors=neighbors, **size) for w in self.worlds())

    def check_disjoint(self, scopes: Sequence[str], rule: str, budget: Guarantee) -> None:
        """Refuse a rule that one change could alter, and scopes of which that cannot be said."""
        if DISJOINT_RULES.get(rule) != budget.unit:
            raise UsageError(
                f"Scopes of a ledger that counts {budget.unit} changes cannot be disjoint by "
                f"{rule!r}; the rules are {dict(DISJOINT_RULES)}. Nothing was recorded."
            )
        if rule == "slot" and budget.neighbors is ADD_OR_REMOVE_ONE:
            raise UsageError(
                "Adding or removing a record moves the slots of others: under ADD_OR_REMOVE_ONE "
                "scopes cannot be disjoint by slot. Nothing was recorded."
            )
        if isinstance(scopes, str) or not all(isinstance(name, str) and name for name in scopes):
            raise UsageError("Scopes must be a list of names of at least one character.")
        if len(set(scopes)) < 2:  # noqa: PLR2004 (disjoint from what?)
            raise UsageError("Disjoint scopes are at least two. Nothing was recorded.")
        if EVERYTHING in scopes:
            raise UsageError(
                f"The scope {EVERYTHING!r} concerns every unit, so it is disjoint from none. "
                "Nothing was recorded."
            )
        if any(not group.isdisjoint(scopes) for group in self.groups):
            raise UsageError(
                "A scope was declared disjoint from others before; that says nothing of these. "
                "Nothing was recorded. Name all scopes of one rule in one declaration."
            )
        if math.prod(len(group) for group in (*self.groups, set(scopes))) > _MOST_WORLDS:
            raise UsageError(
                f"More than {_MOST_WORLDS} combinations of disjoint scopes would have to be "
                "composed at every spend. Nothing was recorded. Declare fewer scopes."
            )
        if not self.events.keys().isdisjoint(scopes):
            raise UsageError(
                "A scope can be declared disjoint only before it is first spent in. Nothing was "
                "recorded."
            )
