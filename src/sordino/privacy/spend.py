"""The arithmetic of a ledger: how spends of several scopes add up for the worst-off unit."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from sordino import _validate
from sordino.errors import BudgetExceeded, LedgerDamaged, PrivacyError, UsageError
from sordino.privacy import accounting
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    Event,
    Guarantee,
    NeighboringRelation,
    Unit,
    event_from_row,
    never_less,
    never_more,
)

from .ledger_chain import Row

__all__ = [
    "DISJOINT_RULES",
    "EVERYTHING",
    "Books",
    "_Spend",
    "_refuse_mixing",
    "check_disjoint",
    "event_of",
    "promise_of",
]

EVERYTHING = "all"
"""The scope of a spend that names none: it concerns every unit."""

_MOST_WORLDS = 10_000
_OFFERED = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 3, 5))
_LEAST_OFFERED, _MOST_OFFERED = 1e-6, 1e-3  # a delta that a message may propose
_NOT_OURS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    PrivacyError,
    RecursionError,
    TypeError,
    ValueError,
)  # what reading a value that this library never writes may raise

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
class _Spend:
    """Events per scope, and which scopes are disjoint by a public rule."""

    # Inside a scope events compose. Scopes of one declaration touch different units, so only the
    # largest of them counts. Scopes of different declarations may share units (two ways to split
    # the same people), so the largest of each declaration add up, as do all other scopes.

    events: dict[str, Counter[Event]] = field(default_factory=dict)
    groups: list[frozenset[str]] = field(default_factory=list)

    def add(self, scope: str, event: Event, count: int) -> None:
        """Count one more spend."""
        self.events.setdefault(scope, Counter())[event] += count

    def with_one_more(self, scope: str, event: Event, count: int) -> _Spend:
        """Return what the spend would be, leaving this one as it is."""
        after = _Spend({name: events.copy() for name, events in self.events.items()}, self.groups)
        after.add(scope, event, count)
        return after

    def worlds(self) -> Iterator[Counter[Event]]:
        """Yield what can touch one unit: all that is shared, and one scope of each group."""
        apart = frozenset[str]().union(*self.groups)
        shared: Counter[Event] = Counter()
        for scope, events in self.events.items():
            if scope not in apart:
                shared.update(events)
        for chosen in product(*(self._different(group) for group in self.groups)):
            world = shared.copy()
            for events in chosen:
                world.update(events)
            yield world

    def _different(self, group: frozenset[str]) -> Iterable[Counter[Event]]:
        """Return the spends in the scopes of a group, each only once."""
        spends = [self.events[scope] for scope in group if scope in self.events] or [Counter()]
        return {frozenset(events.items()): events for events in spends}.values()

    @property
    def rests_on_declaration(self) -> bool:
        """Return whether a spend does not count because its scope was declared disjoint."""
        return any(len(group & self.events.keys()) > 1 for group in self.groups)

    def epsilon(self, *, neighbors: NeighboringRelation, delta: float) -> float:
        """Return the composed bound for the worst-off unit."""
        return max(
            accounting.composed_epsilon(world, neighbors=neighbors, delta=delta)
            for world in self.worlds()
        )

    def fits(self, budget: Guarantee) -> bool:
        """Return whether the composed bound lies within the budget."""
        return all(
            accounting.fits(
                world, neighbors=budget.neighbors, epsilon=budget.epsilon, delta=budget.delta
            )
            for world in self.worlds()
        )

    def finite_above(self, budget: Guarantee) -> tuple[float, float] | None:
        """Return (ε, δ) at a delta above a budget's where epsilon is finite; or None."""
        # One of a few round multiples, for a message: not the least.
        start = budget.delta or _LEAST_OFFERED
        for times in _OFFERED:
            delta = float(f"{start * times:.3g}")
            if not delta < _MOST_OFFERED:
                break
            epsilon = self.epsilon(neighbors=budget.neighbors, delta=delta)
            if math.isfinite(epsilon):
                return epsilon, delta
        return None

    def remaining_epsilon(self, budget: Guarantee) -> float:
        """Return the largest further pure epsilon, in a shared scope, that still fits."""
        return min(
            accounting.largest_pure_epsilon(
                world, neighbors=budget.neighbors, epsilon=budget.epsilon, delta=budget.delta
            )
            for world in self.worlds()
        )


def check_disjoint(
    scopes: Sequence[str], rule: str, budget: Guarantee, groups: Sequence[frozenset[str]] = ()
) -> None:
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
            f"The scope {EVERYTHING!r} concerns every unit, so it is disjoint from none. Nothing "
            "was recorded."
        )
    if any(not group.isdisjoint(scopes) for group in groups):
        raise UsageError(
            "A scope was declared disjoint from others before; that says nothing of these. "
            "Nothing was recorded. Name all scopes of one rule in one declaration."
        )
    if math.prod(len(group) for group in (*groups, set(scopes))) > _MOST_WORLDS:
        raise UsageError(
            f"More than {_MOST_WORLDS} combinations of disjoint scopes would have to be composed "
            "at every spend. Nothing was recorded. Declare fewer scopes."
        )


def event_of(row: Row) -> Event:
    """Return the event that a row says took place."""
    return event_from_row(row.event, json.loads(row.parameters))


def promise_of(row: Row, *, delta: float = 0.0) -> Guarantee:
    """Return what one spending row promises on its own, for a failure probability ``delta``."""
    relation = NeighboringRelation[row.neighbors]
    return Guarantee.from_dict(
        {
            "epsilon": accounting.composed_epsilon(
                {event_of(row): row.count}, neighbors=relation, delta=delta
            ),
            "delta": delta,
            "unit": row.unit,
            "neighbors": row.neighbors,
            "trust": row.trust,
            "randomness": row.randomness,
        },
        caveats=json.loads(row.payload)["caveats"],
    )


def _refuse_mixing(budget: Guarantee, promise: Guarantee, earlier: Iterable[Guarantee]) -> None:
    """Refuse a promise that cannot be composed with what a ledger counts."""
    if (promise.unit, promise.neighbors) != (budget.unit, budget.neighbors):
        raise PrivacyError(
            f"This ledger counts {budget.unit} changes under {budget.neighbors.name}; the "
            f"release is about {promise.unit} under {promise.neighbors.name}. Nothing was "
            "released. Relations cannot be mixed: keep a ledger for each."
        )
    if budget.trust == "local" and promise.trust == "central":
        raise PrivacyError(
            "This ledger promises that nobody but the person sees raw judgments "
            "(trust='local'), but this process saw them. Nothing was released."
        )
    grades = {"labels-only" in other.caveats for other in earlier}
    if promise.unit == "person" and grades - {"labels-only" in promise.caveats}:
        raise PrivacyError(
            "Person-level promises about labels only and about whole records cannot share a "
            "ledger. Nothing was released."
        )


@dataclass
class Books:
    """What the rows of one ledger say, added up; every row is checked as it is taken in."""

    data: str  # name of the data set
    budget: Guarantee  # the limit that holds now
    spend: _Spend = field(default_factory=_Spend)  # what was spent
    # What spending rows promise, sizes apart, each kind once.
    promises: set[Guarantee] = field(default_factory=set)
    public_digest: str | None = None  # digest of the public fields, once one was recorded
    paid: set[str] = field(default_factory=set)  # ids of the entries that spent or received
    committed: set[str] = field(default_factory=set)  # ids of the entries whose outcome is recorded

    @classmethod
    def of(cls, first: Row) -> Books:
        """Return the books that a ledger's first row opens."""
        try:
            payload = json.loads(first.payload)
            if first.kind == "open" and isinstance(payload["data"], str):
                return cls(payload["data"], Guarantee.from_dict(payload["budget"]))
        except _NOT_OURS:
            pass
        raise LedgerDamaged("The first row does not open a ledger. Nothing was released.")

    def take(self, row: Row) -> None:
        """Take in the next row."""
        try:
            self._take(row, {**json.loads(row.payload), **json.loads(row.parameters)})
        except _NOT_OURS:
            raise LedgerDamaged(
                f"Row {row.sequence} of the ledger says what no sordino writes. Nothing was "
                "released. Restore the ledger from a backup whose head you noted."
            ) from None

    def _take(self, row: Row, payload: dict[str, Any]) -> None:
        """Take in a row of any kind but the first."""
        if row.kind == "reserve":
            self._reserve(row, payload)
        elif row.kind in {"commit", "repeat"}:  # the digest of what an earlier entry paid for
            if row.release_id not in self.paid or not isinstance(payload["artifact"], str):
                raise LookupError(row.kind)
            if row.kind == "commit":
                self.committed.add(row.release_id)
        elif row.kind == "receive":  # a file that was already private
            Guarantee.from_dict(payload["promise"], _names(payload["caveats"]))
            if not isinstance(payload["artifact"], str):
                raise TypeError(row.kind)
            self.paid.add(row.release_id)
        elif row.kind == "budget":
            budget = Guarantee.from_dict(payload["budget"])
            refuse_other_terms(self.budget, budget)
            self.budget = budget
        elif row.kind == "disjoint":
            scopes = _names(payload["scopes"])
            self.check_disjoint(scopes, payload["rule"])
            self.spend.groups.append(frozenset(scopes))
        else:
            raise LookupError(row.kind)

    def check(self, event: Event, promise: Guarantee, scope: str, count: int, *, name: str) -> None:
        """Refuse a spend that does not belong here, or that would pass the budget."""
        budget = self.budget
        _refuse_mixing(budget, promise, self.promises)
        after = self.spend.with_one_more(scope, event, count)
        if after.fits(budget):
            return
        would = after.epsilon(neighbors=budget.neighbors, delta=budget.delta)
        if math.isinf(would) and (way := after.finite_above(budget)):
            raise BudgetExceeded(_delta_too_small(self.spend, budget, way, name))
        left = never_more(self.spend.remaining_epsilon(budget))
        raise BudgetExceeded(
            f"This release would spend epsilon={never_less(would)} in total, over the budget of "
            f"epsilon={never_more(budget.epsilon, 15)} (delta={never_more(budget.delta, 15)}) in "
            f"{name}; {left} is left. Nothing was released. Lower the mechanism's epsilon, or have "
            "the data's owner raise the budget (the ledger records it)."
        )

    def _reserve(self, row: Row, payload: dict[str, Any]) -> None:
        """Take in a spend."""
        event, promise = event_of(row), _stated(row, payload["caveats"])
        _refuse_mixing(self.budget, promise, self.promises)
        digest = payload.get("public_digest")
        if not isinstance(digest, str | None) or not row.scope:
            raise TypeError(row.kind)
        count = _validate.integer("count", row.count, at_least=1)
        accounting.fits(
            {event: count}, neighbors=promise.neighbors, epsilon=math.inf, delta=0.0
        )  # refuses what no accountant supports
        self.spend.add(row.scope, event, count)
        self.promises.add(promise)
        self.paid.add(row.release_id)
        self.public_digest = self.public_digest or digest

    def check_disjoint(self, scopes: Sequence[str], rule: str) -> None:
        """Refuse a declaration that would undercount; errors as in :func:`check_disjoint`."""
        check_disjoint(scopes, rule, self.budget, self.spend.groups)
        if not self.spend.events.keys().isdisjoint(scopes):
            raise UsageError(
                "A scope can be declared disjoint only before it is first spent in. Nothing was "
                "recorded."
            )


def _delta_too_small(before: _Spend, budget: Guarantee, way: tuple[float, float], name: str) -> str:
    """Return that a budget's delta leaves a release no finite epsilon, and the ways out."""
    allowed = f"delta={never_more(budget.delta)}"
    problem = f"delta is used up: what was spent in {name} leaves too little of its {allowed}"
    if not budget.delta or not before.events:
        problem = f"delta is too small: {name} allows {allowed}"
    epsilon, delta = way
    return (
        f"{problem} for this release to have a finite epsilon beside it. Nothing was released. "
        "Use a mechanism with a smaller delta, or with none; or have the data's owner raise the "
        "limit on delta with change_budget (on the command line --budget-delta), which the ledger "
        f"records: at delta={never_less(delta)} everything together would have epsilon="
        f"{never_less(epsilon)}, and the budget's epsilon is {never_more(budget.epsilon)}. A new "
        "ledger would not count what was spent."
    )


def refuse_other_terms(old: Guarantee, new: Guarantee) -> None:
    """Refuse a budget that counts something else than the one before."""
    fixed = ("unit", "neighbors", "trust")
    if any(getattr(new, name) != getattr(old, name) for name in fixed):
        raise PrivacyError(
            "A budget may change in size only: unit, neighbors and trust are the ledger's."
        )


def _names(value: object) -> list[str]:
    """Return a list of texts as it is."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError(value)
    return value


def _stated(row: Row, caveats: object) -> Guarantee:
    """Return what a spending row promises, its size left open."""
    return Guarantee.from_dict(
        {
            "epsilon": math.inf,
            "delta": 0.0,
            "unit": row.unit,
            "neighbors": row.neighbors,
            "trust": row.trust,
            "randomness": row.randomness,
        },
        caveats=_names(caveats),
    )
