"""What the rows of a ledger say, added up: what every unit was promised, and what is left of it.

A label lies in a record, and a record in what a person has. A ledger keeps each release under the
unit and the relation that it was analyzed for; here its event is read for one changed unit of a
smaller kind, so that releases of several kinds compose. The proof is in docs/privacy.md, "Accounts
by unit".

Judgments that share a question are one data set, whatever they are called: each release of any of
them counts in it. A release whose questions are private, and that names no data set, counts in
every one. A person may have judged in several, so persons have one account for all. The proof is in
docs/privacy.md, "Data sets".
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from hashlib import sha256
from operator import or_
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sordino import _validate
from sordino.errors import BudgetExceeded, LedgerDamaged, LedgerMismatch, PrivacyError

from . import accounting, ledger_chain
from .accountants import decimal, float_down
from .accounting import DISJOINT_RULES, EVERYTHING, Spend
from .conversions import float_up, group_approximate
from .guarantee import (
    DECLARED_DISJOINT,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    ApproximateEvent,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    Guarantee,
    NeighboringRelation,
    NonPrivateEvent,
    PoissonGaussianEvent,
    PureEvent,
    RandomizedResponseEvent,
    Unit,
    event_from_row,
    event_to_row,
    merge,
    never_less,
    never_more,
)
from .ledger_chain import LEDGER, Arrived, Row, canonical_json, event_of, other_ledgers, promise_of
from .persons import Classes, Roster, Rosters, Use, Uses

UNITS: tuple[Unit, ...] = get_args(Unit)
"""From the smallest to the largest: what protects one protects those before it."""


# What grows with the number of changes.
_SIZES = {GaussianEvent: "mu", PureEvent: "epsilon", BoundedRangeEvent: "bounded_range"}


def covers(promise: Guarantee, unit: Unit) -> bool:
    """Return whether a promise hides anything of a unit: its own unit is as large, or larger."""
    # Where only the labels of a person are protected, nothing else of their records is.
    if unit == "record" and "labels-only" in promise.caveats:
        return False
    return UNITS.index(promise.unit) >= UNITS.index(unit)


def event_for(use: Use, unit: Unit, relation: NeighboringRelation) -> Event:
    """Return an event that bounds what a release shows when one unit changes."""
    # It was analyzed for units that are as large, or so many labels of the person who changes. The
    # relation is the release's own if the units are the same, else REPLACE_ONE.
    if (use.unit, use.neighbors) == (unit, relation):
        return use.event
    # A new label is one way to replace a record, or what a person has. A new record may be of
    # another person, and then two persons change.
    touched = 2 if (unit, use.unit) == ("record", "person") else use.labels
    # What is replaced goes away and comes back, if that is what the release was analyzed for.
    event, steps = use.event, touched * (1 if use.neighbors is REPLACE_ONE else 2)
    if type(event) in _SIZES:
        name = _SIZES[type(event)]
        # rounded up as accounting reads it: by the decimal that is printed
        size = float_up(steps * decimal(getattr(event, name)))
        return replace(event, **{name: size}) if math.isfinite(size) else NonPrivateEvent()
    if isinstance(event, ApproximateEvent):
        epsilon, delta = group_approximate(event.epsilon, event.delta, steps)
        epsilon = max(epsilon, float_up(steps * decimal(event.epsilon)))
        held = delta < 1 and math.isfinite(epsilon)
        return ApproximateEvent(epsilon, delta) if held else NonPrivateEvent()
    if isinstance(event, PoissonGaussianEvent) and touched > 1:
        # One of two is drawn at most as often as this, and together they move a sum twice as far;
        # of more likewise.
        chance = decimal(event.sampling_probability)
        return PoissonGaussianEvent(
            float_down(decimal(event.noise_multiplier) / touched),
            min(1.0, float_up(1 - (1 - chance) ** touched)),
            event.steps,
        )
    # Randomized response and Poisson samples say the same number under every relation: the loss
    # of a label that is replaced, and the noise over the bound on one contribution.
    return event


_SLACK = 1e-9  # of rounding
_OFFERED = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 3, 5))
_LEAST_OFFERED, _MOST_OFFERED = 1e-6, 1e-3  # a delta that a message may propose


@dataclass(frozen=True)
class Account:
    """What all releases on a ledger promise together to one unit."""

    unit: Unit
    guarantee: Guarantee | None  # None if a release does not cover the unit, or there is none
    uncovered: tuple[str, ...] = ()  # ids of the releases that do not
    persons: int = 0  # how many took part in releases that say who; it is of whoever has the most

    def __str__(self) -> str:
        """Return the promise in one line, or why there is none."""
        if self.guarantee is not None:
            most = f"; the most of {self.persons:,} persons" if self.persons > 1 else ""
            return f"{self.guarantee}{most}"
        if not self.uncovered:
            return "nothing"
        reason = {
            "record": "treated prompts and answers as public",
            "person": "counted each judgment of a person by itself",
        }[self.unit]
        first, *others = self.uncovered
        more = f" and {len(others)} more" if others else ""
        return f"not protected: release {first}{more} {reason}"

    @property
    def simulated(self) -> bool:
        """Return whether a seed was used for what is promised."""
        return self.guarantee is not None and self.guarantee.simulated

    def to_dict(self) -> dict[str, object]:
        """Return the account as JSON holds it: what is not covered has no size, and a reason."""
        terms = ("epsilon", "delta", "neighbors", "trust", "randomness")
        promise = {} if self.guarantee is None else self.guarantee.to_dict()
        caveats = [] if self.guarantee is None else list(self.guarantee.caveats)
        return {name: promise.get(name) for name in terms} | {"caveats": caveats, "says": str(self)}


@dataclass
class Spent:
    """What the releases that cover a unit spent, read for one of that unit that changes."""

    # Of persons, releases may say who took part, and in how many judgments of each.
    unit: Unit
    rosters: Rosters
    replaced: Spend = field(default_factory=Spend)  # if it is replaced by any other
    own: Spend = field(default_factory=Spend)  # releases of the unit under another relation
    promises: set[Guarantee] = field(default_factory=set)  # sizes apart, each kind once
    uncovered: list[str] = field(default_factory=list)  # ids of the releases that cover it not
    listed: list[tuple[str, str, Use, int]] = field(default_factory=list)  # id, roster, what, count
    _people: Classes = field(default_factory=Classes)
    _counted: int = 0  # how many of those listed are in it
    _found: dict[tuple[float, NeighboringRelation, int], float] = field(default_factory=dict)

    def relation(self, *more: Guarantee) -> NeighboringRelation:
        """Return what one change is: the releases' own, or ``REPLACE_ONE`` if they differ."""
        terms = {(promise.unit, promise.neighbors) for promise in {*self.promises, *more}}
        same = {neighbors for unit, neighbors in terms if terms == {(self.unit, neighbors)}}
        return same.pop() if same else REPLACE_ONE

    @property
    def people(self) -> Classes:
        """Return everybody who took part in a release that says so, by what was done to them."""
        new = self.listed[self._counted :]
        rosters = self.rosters.of(digest for _, digest, *_ in new)
        for (*_, use, count), roster in zip(new, rosters, strict=True):
            self._people.add(roster, partial(_share, use, count))
            self._counted += 1
        return self._people

    def add(self, use: Use, count: int, promise: Guarantee) -> None:
        """Take in one more release that covers the unit, and that any may be in."""
        self.promises.add(promise)
        self.replaced.add(use.scope, event_for(use, self.unit, REPLACE_ONE), count)
        if use.unit == self.unit and use.neighbors is not REPLACE_ONE:
            self.own.add(use.scope, use.event, count)
        self._found.clear()

    def add_listed(
        self, release_id: str, roster: str, use: Use, count: int, promise: Guarantee
    ) -> None:
        """Take in one more release that says who took part: nobody else is in it."""
        if promise.unit == "label":  # what is said of the number of a person's labels is counted
            named = set(promise.caveats) - {"person-group", "person-total"}
            promise = replace(promise, caveats=(*named, "labels-only"))
        self.promises.add(promise)
        # Who is in which scope is known, whatever was declared of them.
        self.listed.append((release_id, roster, use._replace(scope=EVERYTHING), count))

    def leave_labels_out(self) -> None:
        """Count labels of persons no more: the budget is about the presence of whole persons."""
        # Nothing else is listed before the first budget for persons.
        self.uncovered += [release_id for release_id, *_ in self.listed]
        self.listed, self.promises = [], set()
        self._people, self._counted = Classes(), 0
        self._found.clear()

    def _with(self, spend: Spend, use: Use, count: int, relation: NeighboringRelation) -> Spend:
        """Return what is spent of a unit once a release was made so often."""
        return spend.with_one_more(use.scope, event_for(use, self.unit, relation), count)

    def _of(self, relation: NeighboringRelation, uses: Uses) -> Spend:
        """Return the events of one: those of everybody, and what was done to this one."""
        spend = self.replaced if relation is REPLACE_ONE else self.own
        for use, count in uses.items():
            spend = self._with(spend, use, count, relation)
        return spend

    def spend(self, relation: NeighboringRelation) -> Spend:
        """Return events under :meth:`relation` that nobody exceeds."""
        return self._of(relation, self.people.done().together)

    def epsilon(self, delta: float, relation: NeighboringRelation) -> float:
        """Return the largest loss of any unit."""
        asked = delta, relation, len(self.listed)
        if asked not in self._found:
            self._found[asked], _ = self.people.done().largest(
                lambda uses: self._of(relation, uses).epsilon(neighbors=relation, delta=delta)
            )
        return self._found[asked]

    def remaining_epsilon(self, limit: Guarantee) -> float:
        """Return the largest further pure epsilon that still fits whichever unit it is of."""
        return -self.people.done().largest(
            lambda uses: -self._of(limit.neighbors, uses).remaining_epsilon(limit)
        )[0]

    def over(
        self, limit: Guarantee, use: Use | None, count: int, roster: Roster | None
    ) -> tuple[Spend, Spend] | None:
        """Return what is spent of a unit that passes a limit, without one more use and with it."""
        # The limit is under the relation of everything together; no use asks about what was spent,
        # and a roster about its persons alone.
        relation, known = limit.neighbors, self.people.done(roster)
        exposures, more = known, use
        if roster is not None and use is not None:
            exposures, more = self.people.done_after(roster, partial(_share, use, count)), None

        def spend(uses: Uses) -> Spend:
            held = self._of(relation, uses)
            return held if more is None else self._with(held, more, count, relation)

        passed, uses = exposures.largest(lambda uses: not spend(uses).fits(limit), at_most=0)
        return (self._of(relation, known.together), spend(uses)) if passed else None

    def total(self, delta: float, relation: NeighboringRelation | None = None) -> Guarantee | None:
        """Return what everything that covers the unit promises to it; None before any spend."""
        if not self.promises:
            return None
        relation = self.relation() if relation is None else relation
        terms = [replace(held, unit=self.unit, neighbors=relation) for held in self.promises]
        total = merge(terms, epsilon=self.epsilon(delta, relation), delta=delta)
        spend = self.spend(relation)  # of which some may not count: it was declared disjoint
        declared = any(len(group & spend.events.keys()) > 1 for group in spend.groups)
        return total.with_caveats(DECLARED_DISJOINT) if declared else total


def _share(use: Use, count: int, labels: int) -> tuple[Use, int]:
    """Return what a release does to a person of whom it has so many judgments, and how often."""
    if isinstance(use.event, RandomizedResponseEvent):  # each label has a coin of its own
        return use, labels * (count if use.unit == "label" else 1)
    return (use._replace(labels=labels) if use.unit == "label" else use), count


def _scope(data: str, scope: str) -> str:
    """Return the name of a scope in an account: that of another data set is another scope."""
    return f"{data}\0{scope}" if data and scope and scope != EVERYTHING else scope


@dataclass
class Books:
    """What the rows of one ledger say, added up; every row is checked as it is taken in."""

    data: str  # name of the data set
    persons: Spent
    budgets: dict[Unit, Guarantee] = field(default_factory=dict)  # the limits that hold now
    # those that were set, by the name of the data set for which they were
    limits: dict[Unit, dict[str, Guarantee]] = field(default_factory=dict)
    spent: dict[Unit, Spent] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing spent of labels and records; persons have one account for all."""
        rosters, units = self.persons.rosters, UNITS[:-1]
        self.spent = {unit: Spent(unit, rosters) for unit in units} | {"person": self.persons}

    def take(self, row: Row, payload: dict[str, Any], units: Collection[Unit] = UNITS) -> None:
        """Take in the next row, in the accounts of some units."""
        if row.kind == "reserve":
            self._spend(row, units)
        elif row.kind == "budget":
            budget = Guarantee.from_dict(payload["budget"])
            self.refuse_other_terms(budget)
            # A limit on one data set and one on each of them hold both, whichever was set last.
            first = budget.unit in units and budget.unit not in self.budgets
            if first and budget.unit == "person" and budget.neighbors is not REPLACE_ONE:
                self.persons.leave_labels_out()
            limits = self.limits.setdefault(budget.unit, {})
            limits[row.data] = budget
            self.budgets[budget.unit] = replace(
                budget,
                epsilon=min(limit.epsilon for limit in limits.values()),
                delta=min(limit.delta for limit in limits.values()),
            )
        elif row.kind == "disjoint":
            scopes, rule = _names_of(payload["scopes"]), payload["rule"]
            self.check_disjoint(scopes, rule, row.data)
            # Where all records of a person lie in one scope, all their labels do. A record that is
            # replaced may go to another person, and a person may have several slots.
            for unit in {"label", DISJOINT_RULES[rule]}.intersection(units):
                named = frozenset(_scope(row.data, scope) for scope in scopes)
                for spend in (self.spent[unit].replaced, self.spent[unit].own):
                    spend.groups.append(named)
        else:
            raise LookupError(row.kind)

    def _spend(self, row: Row, units: Collection[Unit]) -> None:
        event, promise = event_of(row), promise_of(row)
        self.refuse_mixing(promise)
        if not row.scope:
            raise TypeError(row.kind)
        count = _validate.integer("count", row.count, at_least=1)
        accounting.fits(
            {event: count}, neighbors=promise.neighbors, epsilon=math.inf, delta=0.0
        )  # refuses what no accountant supports
        use = Use(_scope(row.data, row.scope), event, promise.unit, promise.neighbors, 1)
        roster = json.loads(row.payload).get("persons")
        _names_of([roster] if roster is not None else [])
        for spent in (self.spent[unit] for unit in units):
            if spent.unit == "person" and roster is not None and self._lists(promise):
                spent.add_listed(row.release_id, roster, use, count, promise)
            elif covers(promise, spent.unit):
                spent.add(use, count, promise)
            else:
                spent.uncovered.append(row.release_id)

    def receive(self, release_id: str, event: Event, promise: Guarantee, roster: str) -> None:
        """Take in answers that were private before they came, with who gave them."""
        if self._lists(promise):
            use = Use(EVERYTHING, event, promise.unit, promise.neighbors, 1)
            # About labels, as they are here: it may lie beside promises about whole records.
            promise = replace(promise, unit="label")
            self.persons.add_listed(release_id, roster, use, 1, promise)
        else:
            self.persons.uncovered.append(release_id)

    def check_arrived(self, event: Event, promise: Guarantee, roster: Roster, name: str) -> None:
        """Refuse answers that were private before they came, if a person would have too much."""
        budget = self.budgets.get("person")
        if budget is not None and self._lists(promise):
            use = Use(EVERYTHING, event, promise.unit, promise.neighbors, 1)
            relation = self.persons.relation(replace(promise, unit="label"))
            limit = replace(budget, neighbors=relation)
            if (steps := self.persons.over(limit, use, 1, roster)) is not None:
                self._refuse(*steps, limit, name, " for a person")

    def _lists(self, promise: Guarantee) -> bool:
        """Return whether a release that says who took part counts for those alone."""
        if promise.hides_texts:
            raise TypeError(promise.unit)
        budget = self.budgets.get("person")
        if budget is None or budget.neighbors is REPLACE_ONE:
            return True
        # Who takes part is public there: of persons who are added or removed it says nothing.
        return (promise.unit, promise.neighbors) == ("person", budget.neighbors)

    def check(
        self,
        event: Event,
        promise: Guarantee,
        scope: str,
        count: int,
        *,
        data: str,
        name: str,
        roster: Roster | None,
    ) -> None:
        """Refuse a spend that does not belong here, or that would pass the budget of a unit."""
        self.refuse_mixing(promise, name)
        use = Use(_scope(data, scope), event, promise.unit, promise.neighbors, 1)
        for unit in sorted(self.budgets, key=lambda unit: unit != promise.unit):  # its own first
            listed = unit == "person" and roster is not None and self._lists(promise)
            if not listed and not covers(promise, unit):
                continue
            spent, whose = self.spent[unit], "" if unit == promise.unit else f" for a {unit}"
            relation = spent.relation(promise)
            budget = self.budgets[unit]
            if budget.neighbors is not REPLACE_ONE and promise.neighbors is not budget.neighbors:
                raise PrivacyError(
                    f"{name} limits what is spent of a {unit} under {budget.neighbors.name}, of "
                    f"which a release under {promise.neighbors.name} says nothing. Nothing was "
                    "released. Use the same relation, or another ledger."
                )
            limit = replace(budget, neighbors=relation)
            if (steps := spent.over(limit, use, count, roster if listed else None)) is not None:
                self._refuse(*steps, limit, name, whose)

    def _refuse(
        self, before: Spend, after: Spend, budget: Guarantee, name: str, whose: str
    ) -> None:
        """Refuse a spend that does not fit, with the way out; for want of delta, one that does."""
        limits = self.limits[budget.unit]
        would = after.epsilon(neighbors=budget.neighbors, delta=budget.delta)
        for times in _OFFERED if math.isinf(would) else ():  # for the message: not the least
            delta = float(f"{(budget.delta or _LEAST_OFFERED) * times:.3g}")
            if not delta < _MOST_OFFERED:
                break
            epsilon = after.epsilon(neighbors=budget.neighbors, delta=delta)
            if math.isinf(epsilon):
                continue
            allowed = f"delta={never_more(budget.delta)}"
            problem = f"delta is too small{whose}: {name} allows {allowed}"
            if budget.delta and before.events:
                problem = f"delta is used up{whose}: what was spent in {name} leaves too little of "
                problem += f"its {allowed}"
            enough = replace(budget, epsilon=max(epsilon, budget.epsilon), delta=delta)
            data = min(limits, key=lambda name: limits[name].delta)
            raise BudgetExceeded(
                f"{problem} for this release to have a finite epsilon beside it. Nothing was "
                "released. Use a mechanism with a smaller delta, or with none; or "
                f"{owners_way('raise it', enough, name, data)}: at that delta everything together "
                f"would have epsilon={never_less(epsilon)}. A new ledger would not count what was "
                "spent."
            )
        left = never_more(before.remaining_epsilon(budget))
        data = min(limits, key=lambda name: limits[name].epsilon)
        raise BudgetExceeded(
            f"This release would spend epsilon={never_less(would)} in total{whose}, over the "
            f"budget of epsilon={never_more(budget.epsilon, 15)} (delta="
            f"{never_more(budget.delta, 15)}) in {name}; {left} is left. Nothing was released. "
            "Lower the mechanism's epsilon, or "
            f"{owners_way('raise it', replace(budget, epsilon=would, delta=0.0), name, data)}."
        )

    def remaining_epsilon(self, unit: Unit) -> float:
        """Return the largest further pure epsilon of a unit's own that still fits, by bisection."""
        spent, budget = self.spent[unit], self.budgets[unit]
        relation = spent.relation(budget)
        limit = replace(budget, neighbors=relation)
        left = spent.remaining_epsilon(limit)
        return left if relation is budget.neighbors else left / 2 * (1 - 1e-12)  # of two steps

    def fits(self, promise: Guarantee, roster: str | None) -> bool:
        """Return whether what was spent lies within the budgets that a release had to fit."""
        for unit, budget in self.budgets.items():
            listed = None
            if unit == "person" and roster is not None and self._lists(promise):
                listed = self.persons.rosters[roster]
            limit = replace(budget, neighbors=self.spent[unit].relation())
            counts = listed is not None or covers(promise, unit)
            if counts and self.spent[unit].over(limit, None, 1, listed) is not None:
                return False
        return True

    def accounts(self, delta: float | None) -> dict[Unit, Account]:
        """Return what all releases promise together to each unit; see ``Ledger.accounts``."""
        budget = next(iter(self.budgets.values()), None)
        found: dict[Unit, Account] = {}
        for unit, spent in self.spent.items():
            held = self.budgets.get(unit, budget)
            persons = len(self.persons.people) if unit == "person" else 0
            if held is None:  # then nothing was spent
                found[unit] = Account(unit, None, (), persons)
                continue
            grown = (
                group_approximate(held.epsilon, held.delta, steps)[1]
                for steps in (1, 2, 4)
                if math.isfinite(held.epsilon) or steps == 1
            )
            for allowed in [d for d in grown if d < 1] if delta is None else [delta]:
                total = None if spent.uncovered else spent.total(allowed)
                found[unit] = Account(unit, total, tuple(spent.uncovered), persons)
                if total is None or math.isfinite(total.epsilon):
                    break
        return found

    def refuse_mixing(self, promise: Guarantee, name: str = LEDGER.name) -> None:
        """Refuse a promise that cannot be counted here."""
        budget = self.budgets.get(promise.unit)
        if budget is None:
            way = owners_way("set one", promise, name)
            raise PrivacyError(
                f"{name} has no budget for {promise.unit} changes, only for "
                f"{' and '.join(self.budgets)} changes. Nothing was released; {way}."
            )
        if promise.unit == "record" and "labels-only" in promise.caveats:
            raise PrivacyError(
                "A promise about records hides more than labels: labels-only is none. Nothing was "
                "released. Use unit='label'."
            )
        if promise.neighbors is not budget.neighbors:
            raise PrivacyError(
                f"This ledger counts {budget.unit} changes under {budget.neighbors.name}; the "
                f"release is about {promise.neighbors.name}. Nothing was released. Relations of "
                "one unit cannot be mixed: keep a ledger for each."
            )
        if promise.trust == "central" and any(b.trust == "local" for b in self.budgets.values()):
            raise PrivacyError(
                "This ledger promises that nobody but the person sees raw judgments "
                "(trust='local'), but this process saw them. Nothing was released."
            )
        earlier = {held for held in self.spent["person"].promises if held.unit == "person"}
        grades = {"labels-only" in held.caveats for held in earlier}
        if promise.unit == "person" and grades - {"labels-only" in promise.caveats}:
            raise PrivacyError(
                "Person-level promises about labels only and about whole records cannot share a "
                "ledger. Nothing was released."
            )

    def refuse_other_terms(self, budget: Guarantee) -> None:
        """Refuse a budget that counts something else than the unit's budget before."""
        before = self.budgets.get(budget.unit, budget)
        trusts = {other.trust for other in (before, *self.budgets.values())}
        if budget.neighbors is not before.neighbors or trusts != {budget.trust}:
            raise PrivacyError(
                "A unit's budget may change in size only: neighbors and trust are the ledger's. "
                "Nothing was recorded."
            )

    def check_disjoint(self, scopes: Sequence[str], rule: str, data: str) -> None:
        """Refuse a rule that one change could alter, and scopes of which that cannot be said."""
        unit = DISJOINT_RULES.get(rule)
        budget = self.budgets.get(unit) if unit else None
        if budget is None:
            budget = next(iter(self.budgets.values()))
        # Every release covers labels, so theirs are all the scopes that were spent in.
        known = self.spent["label"].replaced
        known.check_disjoint(scopes, rule, budget)
        known.check_disjoint([_scope(data, scope) for scope in scopes], rule, budget)


def owners_way(verb: str, limit: Guarantee, name: str, data: str = "") -> str:
    """Return how the data's owner sets a budget: in Python, and on the command line."""
    usual = REPLACE_ONE if limit.unit == "label" else REPLACE_SPECIAL
    said = "" if limit.neighbors is usual or verb == "raise it" else limit.neighbors.option
    options = {
        "--delta": never_less(limit.delta) if limit.delta else "",
        "--neighbors": said,
        "--data": data and shlex.quote(data),
        "--ledger": "" if name == LEDGER.name else shlex.quote(name),
    }
    command = f"sordino budget set {limit.unit} {never_less(limit.epsilon, 3)}"
    command += "".join(f" {option} {value}" for option, value in options.items() if value)
    return f"have the data's owner {verb}: change_budget, or on the command line {command}"


def _names_of(value: object) -> list[str]:
    """Return a list of texts as it is."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError(value)
    return value


EVERY = ""
"""In place of the name of a data set: the questions are private, so it may be any of them."""

_UNNAMED = "preferences"  # the data set that nobody named
_NOT_OURS = (  # what reading a value that this library never writes may raise
    *(ArithmeticError, AttributeError, LookupError, PrivacyError),
    *(RecursionError, TypeError, ValueError),
)


class DataSets:
    """The books of every data set on one ledger; every row is checked as it is taken in."""

    def __init__(self, rows: Iterable[Row], rosters: Rosters) -> None:
        self.names: dict[str, str] = {}  # every name, and the oldest of the same data set
        self.questions: list[Row] = []  # the rows that say which questions are whose
        self.paid: dict[str, str] = {}  # ids of the entries that spent or received, and of what
        self.committed: dict[str, dict[str, str]] = {}  # what entries released, by their ids
        self.persons = Spent("person", rosters)
        self.mark: str | None = None  # of the secret that persons are known by
        self.artifacts: dict[str, set[str]] = {}  # what was released here, and what paid for it
        self._unnamed: dict[str, list[str]] = {}  # ids of arrivals that name nobody, by artifact
        # Digests of the coins that arrived, by what they were drawn with.
        self.arrived: dict[tuple[str, str, str], list[str]] = {}
        self._books = {EVERY: Books(EVERY, self.persons)}
        self._entered: list[tuple[Row, dict[str, Any]]] = []
        self._opened = False
        for row in rows:
            self.take(row)

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Return the data sets by their oldest names."""
        return tuple(name for name in self._books if name != EVERY)

    def of(self, data: str) -> tuple[Books, ...]:
        """Return the books that a release of a data set counts in, its own first."""
        if data == EVERY:
            return tuple(self._books.values())
        return (self._books[self.names.get(data, EVERY)],)

    def take(self, row: Row) -> None:
        """Take in the next row."""
        try:
            payload = {**json.loads(row.payload), **json.loads(row.parameters)}
            if (row.kind == "open") is self._opened:  # the first row, and no other
                raise LookupError(row.kind)
            self._opened = True
            if row.kind not in {"commit", "repeat"}:  # which have what they are about
                self._name(row, _names_of(payload.get("joins", [])))
            if "questions" in payload:
                self.questions.append(row)
            if payload.get("secret", self.mark) != (self.mark or payload.get("secret")):
                raise LookupError("secret")  # persons would not be known again
            self.mark = payload.get("secret", self.mark)
            if row.kind == "open" and "budget" in payload:
                self._enter(replace(row, kind="budget"), payload)
            elif row.kind in {"commit", "repeat", "receive"}:
                self._outcome(row, payload)
            elif row.kind != "open" and (row.sequence or row.kind != "data"):  # in no file
                self._enter(row, payload)
        except _NOT_OURS:
            raise LedgerDamaged(
                f"Row {row.sequence} of the ledger says what no sordino writes. Nothing was "
                "released. Restore the ledger from a backup whose head you noted."
            ) from None

    def _outcome(self, row: Row, payload: dict[str, Any]) -> None:
        """Take in the digest of what an earlier entry paid for, or of what was private before."""
        if not isinstance(payload["artifact"], str):
            raise TypeError(row.kind)
        if row.kind == "receive":
            promise = Guarantee.from_dict(payload["promise"], _names_of(payload["caveats"]))
            self.paid[row.release_id] = row.data
            if "persons" in payload:
                _names_of([payload["persons"], payload["coins"]])
                kind, parameters = payload["event"]
                event = event_from_row(kind, parameters)
                self._books[EVERY].receive(row.release_id, event, promise, payload["persons"])
                drawn = payload["details"]["release"], kind, canonical_json(parameters)
                self.arrived.setdefault(drawn, []).append(payload["coins"])
            elif "counted" not in payload:  # nobody said whose answers they are
                self._unnamed.setdefault(payload["artifact"], []).append(row.release_id)
                self.persons.uncovered.append(row.release_id)
                return
            for release_id in self._unnamed.pop(payload["artifact"], []):  # until now
                self.persons.uncovered.remove(release_id)
        elif row.release_id not in self.paid:
            raise LookupError(row.kind)
        else:
            said = json.loads(row.payload)
            if row.kind == "commit":
                self.committed[row.release_id] = dict(said)
            self.refuse_undrawn(row.release_id, said, LEDGER.name)  # a repeat by hand
            self.artifacts.setdefault(payload["artifact"], set()).add(row.release_id)

    def refuse_undrawn(self, release_id: str, found: Mapping[str, str], name: str) -> None:
        """Refuse to say of an entry that it paid for what it did not draw."""
        # An entry whose run died before its commit may still be gone on with, so what it drew is
        # known, and fixed, when it is committed.
        known = self.committed.get(release_id, {})
        same = "drawn" in found if not known else known.get("drawn") == found.get("drawn")
        if not same:
            raise PrivacyError(
                f"What is stored for entry {release_id} of {name} is not what it drew: it was "
                "changed, or is of another ledger. Nothing was released. Restore what was stored "
                "beside the ledger, or start a new ledger, whose total is apart from this one."
            )
        if "drawn" not in found and known["artifact"] != found.get("artifact"):
            raise PrivacyError(
                f"Entry {release_id} of {name} paid for one artifact, and this is another. Nothing "
                "was released. Pay for it, or release the first again."
            )

    def receive(
        self, manifest: Arrived, answers: Iterable[tuple[bytes, bytes]] | None, name: str
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return what a row must say of who gave answers elsewhere, and what lies beside it."""
        # Of each answer it needs the keys of person and question; None if nobody is named.
        promise = manifest.guarantee
        if paid := self.artifacts.get(manifest.sha256):  # the answers were paid for here
            for row in (row for row, _ in self._entered if row.release_id in paid):
                coin, terms = getattr(event_of(row), "epsilon", 0.0), promise_of(row)
                simulated = terms.simulated and not promise.simulated
                other = simulated or (promise.trust, terms.trust) == ("local", "central")
                if other or promise.epsilon < coin * (1 - _SLACK):
                    raise PrivacyError(
                        "The manifest promises more than the answers were paid for on this ledger. "
                        "Nothing was recorded. Restore the manifest that came with them."
                    )
            return {"counted": True}, {}
        if answers is None:
            return {}, {}
        if promise.hides_texts:
            raise PrivacyError("Only where who answered is public may persons be digested.")
        # Of a label there is one coin, whenever the file that holds it arrives. What a manifest
        # promises to a person is for all that the person gave.
        whole, rosters = promise.unit == "person", self.persons.rosters
        event = PureEvent(promise.epsilon) if whole else RandomizedResponseEvent(promise.epsilon)
        kind, parameters = event_to_row(event)
        drawn = manifest.release_id, kind, canonical_json(parameters)
        known = self.arrived.get(drawn, [])
        coins = ((person, b"" if whole else question) for person, question in answers)
        roster, beside = rosters.arrived(coins, known, self.mark)
        if not len(roster.digests):  # they arrived before
            return {"counted": True}, {}
        self._books[EVERY].check_arrived(event, promise, roster, name)
        kept = {roster.digest: roster.packed, sha256(beside).hexdigest(): beside}
        said: dict[str, Any] = dict(zip(("persons", "coins"), kept, strict=True))
        return {**said, "secret": rosters.mark, "event": [kind, parameters]}, kept

    def _name(self, row: Row, joins: Sequence[str]) -> None:
        """Take in a name of a data set, and with which others it is one."""
        if row.data == EVERY:
            return
        same = {self.names[name] for name in joins} | {self.names.get(row.data, row.data)}
        oldest = next((name for name in self.names.values() if name in same), row.data)
        self.names |= {name: oldest for name, first in self.names.items() if first in same}
        self.names[row.data] = oldest
        if same == {oldest} and oldest in self._books:
            return
        self._books = {name: books for name, books in self._books.items() if name not in same}
        books = self._books[oldest] = Books(oldest, self.persons)
        for entered, payload in self._entered:
            if self._is_about(entered, oldest):
                books.take(entered, payload, ("label", "record"))

    def _is_about(self, row: Row, data: str) -> bool:
        return row.data == EVERY or self.names[row.data] == data

    def counts(self, row: Row, data: str) -> bool:
        """Return whether a row counts in a data set."""
        return EVERY in {row.data, data} or self.names[row.data] == self.names.get(data)

    def _spent(self, data: str, unit: Unit) -> tuple[list[Spent], NeighboringRelation]:
        """Return what was spent of a unit of a data set, or of each, and under which relation."""
        spent = [books.spent[unit] for books in self.of(data)]
        relations = {held.relation() for held in spent if held.promises}
        return spent, relations.pop() if len(relations) == 1 else REPLACE_ONE

    def events(self, data: str, unit: Unit) -> Counter[Event]:
        """Return what was done at most to one unit of a data set, or of whichever it is."""
        spent, relation = self._spent(data, unit)
        return reduce(or_, (held.spend(relation).together() for held in spent))

    def total(self, data: str, unit: Unit, delta: float) -> Guarantee | None:
        """Return what everything promises to one unit of a data set, or of whichever it is."""
        spent, relation = self._spent(data, unit)
        totals = (held.total(delta, relation) for held in spent)
        found = [total for total in totals if total is not None]
        if not found:
            return None
        # The largest of some totals, which may rest on the names of data sets.
        epsilon, delta = max(one.epsilon for one in found), max(one.delta for one in found)
        total = merge(found, epsilon=epsilon, delta=delta)
        # Names tell data sets apart, or questions as they are written: who rewrites one, or writes
        # it as numbers, has made another data set of the same judgments.
        rows = (row for row, _ in self._entered if row.kind == "reserve" and row.data != EVERY)
        sets = {self.names[row.data] for row in rows}
        whole = len(sets) <= 1 if data == EVERY else sets <= {self.names.get(data)}
        return total if unit == "person" or whole else total.with_caveats(DECLARED_DISJOINT)

    def accounts(self, data: str, delta: float | None) -> dict[Unit, Account]:
        """Return what all releases promise together to each unit; see ``Ledger.accounts``."""
        each = [books.accounts(delta) for books in self.of(data)]
        found: dict[Unit, Account] = {}
        for unit in UNITS:
            uncovered = dict.fromkeys(name for one in each for name in one[unit].uncovered)
            held = [one[unit].guarantee for one in each]
            deltas = [one.delta for one in held if one is not None]
            total = None if uncovered or not deltas else self.total(data, unit, max(deltas))
            found[unit] = Account(unit, total, tuple(uncovered), each[0][unit].persons)
        return found

    def overlaps(self, path: Path, questions: np.ndarray) -> dict[str, np.ndarray]:
        """Return the data sets that have some of the questions, and which of them each has."""
        found: dict[str, np.ndarray] = {}
        if not self.questions:  # and there may be no file yet
            return found
        with ledger_chain.connect_reader(path) as connection:
            for row in self.questions:
                digest = json.loads(row.payload)["questions"]
                value = ledger_chain.beside(connection, "questions", row.sequence, digest)
                has = np.isin(questions, np.frombuffer(value, "<u8"))
                if has.any():
                    name = self.names[row.data]
                    found[name] = found.get(name, has) | has
        return found

    def resolved(
        self, path: Path, name: str, questions: np.ndarray | None
    ) -> tuple[str, dict[str, Any], np.ndarray | None]:
        """Return which data set is meant, what a row must say of it, and which are new in it."""
        if questions is None:
            return name, {}, None
        shared = self.overlaps(path, questions)
        seen = np.zeros(len(questions), dtype=bool)
        for has in shared.values():
            seen |= has
        others = [other for other in self.data_sets if other in shared]  # the oldest first
        numbered = (f"{_UNNAMED}-{number}" for number in range(2, len(self.names) + 3))
        new = next(other for other in (_UNNAMED, *numbered) if other not in self.names)
        name = name or next(iter(others), new)
        payload: dict[str, Any] = {}
        if joins := [other for other in others if other != self.names.get(name)]:
            payload["joins"] = joins
        if not seen.all():
            payload["questions"] = ledger_chain.digest_of_questions(questions[~seen])
        return name, payload, questions[~seen]

    def _enter(self, row: Row, payload: dict[str, Any]) -> None:
        """Enter a row in the books that it is about, and once in the account of persons."""
        if row.kind == "budget" and payload["budget"]["unit"] == "person":
            row = replace(row, data=EVERY)
        units: Collection[Unit] = UNITS
        for name, books in self._books.items():
            if self._is_about(row, name):
                books.take(row, payload, units)
                units = ("label", "record")
        self._entered.append((row, payload))
        if row.kind == "reserve":
            self.paid[row.release_id] = row.data


def refuse_known(path: Path, questions: np.ndarray) -> None:
    """Refuse judgments of which another ledger of the project counts what was spent."""
    for other in other_ledgers(path):
        with ledger_chain.connect_reader(other) as connection:
            sets = DataSets(ledger_chain.verified(connection, other), Rosters(other))
        if known := sets.overlaps(other, questions):
            raise LedgerMismatch(
                f"The ledger {other.name} of this project knows these judgments as the data set "
                f"{next(iter(known))!r}, and {path.name} would not count what was spent there. "
                "Nothing was released. Spend on that one: leave --ledger out, or name "
                f"{other.name}."
            )
