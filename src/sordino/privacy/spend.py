"""The arithmetic of a ledger: how spends of several scopes add up for the worst-off unit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sordino.errors import PrivacyError, UsageError
from sordino.privacy import accounting
from sordino.privacy.chain import Row
from sordino.privacy.events import Event, event_from_row
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    Guarantee,
    NeighboringRelation,
    Unit,
)

__all__ = [
    "DISJOINT_RULES",
    "Spend",
    "check_disjoint",
    "event_of",
    "promise_of",
    "refuse_mixing",
]

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
    """Events per scope, and which scopes are disjoint by a public rule.

    Inside a scope events compose. Scopes that were declared disjoint by a rule that one change
    cannot alter touch different units, so only the largest counts; all other scopes add.
    """

    events: dict[str, Counter[Event]] = field(default_factory=dict)
    disjoint: set[str] = field(default_factory=set)

    def add(self, scope: str, event: Event, count: int) -> None:
        """Count one more spend."""
        self.events.setdefault(scope, Counter())[event] += count

    def with_one_more(self, scope: str, event: Event, count: int) -> Spend:
        """Return what the spend would be, leaving this one as it is."""
        after = Spend({name: events.copy() for name, events in self.events.items()}, self.disjoint)
        after.add(scope, event, count)
        return after

    def worlds(self) -> Iterator[Counter[Event]]:
        """Yield what can touch one unit: everything shared, and one of the disjoint scopes."""
        shared: Counter[Event] = Counter()
        for scope, events in self.events.items():
            if scope not in self.disjoint:
                shared.update(events)
        apart = [events for scope, events in self.events.items() if scope in self.disjoint]
        yield from (shared + events for events in apart or [Counter()])

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

    def remaining_epsilon(self, budget: Guarantee) -> float:
        """Return the largest further pure epsilon, in a shared scope, that still fits."""
        return min(
            accounting.largest_pure_epsilon(
                world, neighbors=budget.neighbors, epsilon=budget.epsilon, delta=budget.delta
            )
            for world in self.worlds()
        )


def check_disjoint(scopes: Iterable[str], rule: str, budget: Guarantee) -> None:
    """Refuse a rule that one change could alter.

    Raises:
        UsageError: The rule is not in the closed list, or does not fit the ledger's relation.
    """
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
    if not all(isinstance(scope, str) and scope for scope in scopes):
        raise UsageError("Scopes must be names of at least one character.")


def event_of(row: Row) -> Event:
    """Return the event that a row says took place.

    Raises:
        LedgerDamaged: The row names an event that is not in the closed table.
    """
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


def refuse_mixing(budget: Guarantee, promise: Guarantee, earlier: Iterable[Row]) -> None:
    """Refuse a promise that cannot be composed with what a ledger counts.

    Raises:
        PrivacyError: It is of another unit or relation, of weaker trust, or of another grade.
    """
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
    grades = {"labels-only" in promise_of(row).caveats for row in earlier}
    if promise.unit == "person" and grades - {"labels-only" in promise.caveats}:
        raise PrivacyError(
            "Person-level promises about labels only and about whole records cannot share a "
            "ledger. Nothing was released."
        )
