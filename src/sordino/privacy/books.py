"""What the rows of a ledger say, added up: what every unit was promised, and what is left of it.

A label lies in a record, and a record in what a person has. A ledger keeps each release under the
unit and the relation that it was analyzed for; here its event is read for one changed unit of a
smaller kind, so that releases of several kinds compose. The proof is in docs/privacy.md, "Accounts
by unit".
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from sordino import _validate
from sordino.errors import BudgetExceeded, PrivacyError

from . import accounting
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
    Unit,
    ZeroConcentratedEvent,
    merge,
    never_less,
    never_more,
)
from .ledger_chain import Row, event_of, promise_of
from .project import LEDGER

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


_OFFERED = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 3, 5))
_LEAST_OFFERED, _MOST_OFFERED = 1e-6, 1e-3  # a delta that a message may propose


@dataclass(frozen=True)
class Account:
    """What all releases on a ledger promise together to one unit."""

    unit: Unit
    guarantee: Guarantee | None  # None if a release does not cover the unit, or there is none
    uncovered: tuple[str, ...] = ()  # ids of the releases that do not

    def __str__(self) -> str:
        """Return the promise in one line, or why there is none."""
        if self.guarantee is not None:
            return str(self.guarantee)
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
        return {name: promise.get(name) for name in terms} | {
            "caveats": caveats,
            "says": str(self),
        }


@dataclass
class _Spent:
    """What the releases that cover a unit spent, read for one of that unit that changes."""

    unit: Unit
    replaced: Spend = field(default_factory=Spend)  # if it is replaced by any other
    own: Spend = field(default_factory=Spend)  # releases of the unit under another relation
    promises: set[Guarantee] = field(default_factory=set)  # sizes apart, each kind once
    uncovered: list[str] = field(default_factory=list)  # ids of the releases that cover it not

    def relation(self, *more: Guarantee) -> NeighboringRelation:
        """Return what one change is: the releases' own, or ``REPLACE_ONE`` if they differ."""
        terms = {(promise.unit, promise.neighbors) for promise in {*self.promises, *more}}
        same = {neighbors for unit, neighbors in terms if terms == {(self.unit, neighbors)}}
        return same.pop() if same else REPLACE_ONE

    def spend(self, relation: NeighboringRelation) -> Spend:
        """Return the events under :meth:`relation`."""
        return self.replaced if relation is REPLACE_ONE else self.own

    def add(self, event: Event, promise: Guarantee, scope: str, count: int) -> None:
        """Take in one more release that covers the unit."""
        self.promises.add(promise)
        self.replaced.add(scope, event_for(event, promise, self.unit, REPLACE_ONE), count)
        if promise.unit == self.unit and promise.neighbors is not REPLACE_ONE:
            self.own.add(scope, event, count)

    def total(self, delta: float, relation: NeighboringRelation | None = None) -> Guarantee | None:
        """Return what everything that covers the unit promises to it; None before any spend."""
        if not self.promises:
            return None
        relation = self.relation() if relation is None else relation
        spend = self.spend(relation)
        terms = [replace(held, unit=self.unit, neighbors=relation) for held in self.promises]
        epsilon = spend.epsilon(neighbors=relation, delta=delta)
        total = merge(terms, epsilon=epsilon, delta=delta)
        return total.with_caveats(DECLARED_DISJOINT) if spend.rests_on_declaration else total


def _scope(data: str, scope: str) -> str:
    """Return the name of a scope in an account: that of another data set is another scope."""
    return f"{data}\0{scope}" if data and scope and scope != EVERYTHING else scope


def _empty() -> dict[Unit, _Spent]:
    return {unit: _Spent(unit) for unit in UNITS}


@dataclass
class Books:
    """What the rows of one ledger say, added up; every row is checked as it is taken in."""

    data: str  # name of the data set
    budgets: dict[Unit, Guarantee] = field(default_factory=dict)  # the limits that hold now
    # those that were set, by the name of the data set for which they were
    limits: dict[Unit, dict[str, Guarantee]] = field(default_factory=dict)
    spent: dict[Unit, _Spent] = field(default_factory=_empty)

    def take(self, row: Row, payload: dict[str, Any], units: Collection[Unit] = UNITS) -> None:
        """Take in the next row, in the accounts of some units."""
        if row.kind == "reserve":
            self._spend(row, units)
        elif row.kind == "budget":
            budget = Guarantee.from_dict(payload["budget"])
            self.refuse_other_terms(budget)
            # A limit on one data set and one on each of them hold both, whichever was set last.
            limits = self.limits.setdefault(budget.unit, {})
            limits[row.data] = budget
            self.budgets[budget.unit] = replace(
                budget,
                epsilon=min(limit.epsilon for limit in limits.values()),
                delta=min(limit.delta for limit in limits.values()),
            )
        elif row.kind == "disjoint":
            self._declare(names_of(payload["scopes"]), payload["rule"], row.data, units)
        else:
            raise LookupError(row.kind)

    def _declare(self, scopes: list[str], rule: str, data: str, units: Collection[Unit]) -> None:
        self.check_disjoint(scopes, rule, data)
        # Where all records of a person lie in one scope, all their labels do. A record that is
        # replaced may go to another person, and a person may have several slots.
        for unit in {"label", DISJOINT_RULES[rule]}.intersection(units):
            named = frozenset(_scope(data, scope) for scope in scopes)
            for spend in (self.spent[unit].replaced, self.spent[unit].own):
                spend.groups.append(named)

    def _spend(self, row: Row, units: Collection[Unit]) -> None:
        event, promise = event_of(row), promise_of(row)
        self.refuse_mixing(promise)
        if not row.scope:
            raise TypeError(row.kind)
        count = _validate.integer("count", row.count, at_least=1)
        accounting.fits(
            {event: count}, neighbors=promise.neighbors, epsilon=math.inf, delta=0.0
        )  # refuses what no accountant supports
        for spent in (self.spent[unit] for unit in units):
            if covers(promise, spent.unit):
                spent.add(event, promise, _scope(row.data, row.scope), count)
            else:
                spent.uncovered.append(row.release_id)

    def check(
        self, event: Event, promise: Guarantee, scope: str, count: int, *, data: str, name: str
    ) -> None:
        """Refuse a spend that does not belong here, or that would pass the budget of a unit."""
        self.refuse_mixing(promise, name)
        for unit in sorted(self.budgets, key=lambda unit: unit != promise.unit):  # its own first
            if not covers(promise, unit):
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
            before, read = spent.spend(relation), event_for(event, promise, unit, relation)
            after = before.with_one_more(_scope(data, scope), read, count)
            if not after.fits(limit):
                self._refuse(before, after, limit, name, whose)

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
        left = spent.spend(relation).remaining_epsilon(replace(budget, neighbors=relation))
        return left if relation is budget.neighbors else left / 2 * (1 - 1e-12)  # of two steps

    def fits(self, promise: Guarantee) -> bool:
        """Return whether what was spent lies within the budgets that a release had to fit."""
        return all(
            spent.spend(spent.relation()).fits(replace(budget, neighbors=spent.relation()))
            for budget in self.budgets.values()
            if covers(promise, budget.unit) and (spent := self.spent[budget.unit])
        )

    def accounts(self, delta: float | None) -> dict[Unit, Account]:
        """Return what all releases promise together to each unit; see ``Ledger.accounts``."""
        budget = next(iter(self.budgets.values()), None)
        found: dict[Unit, Account] = {}
        for unit, spent in self.spent.items():
            held = self.budgets.get(unit, budget)
            if held is None:  # then nothing was spent
                found[unit] = Account(unit, None)
                continue
            grown = (
                group_approximate(held.epsilon, held.delta, steps)[1]
                for steps in (1, 2, 4)
                if math.isfinite(held.epsilon) or steps == 1
            )
            for allowed in [d for d in grown if d < 1] if delta is None else [delta]:
                total = None if spent.uncovered else spent.total(allowed)
                found[unit] = Account(unit, total, tuple(spent.uncovered))
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
                f"{' and '.join(self.budgets)} changes. Nothing was released. H{way[1:]}."
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

    def check_disjoint(self, scopes: Any, rule: str, data: str) -> None:
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


def names_of(value: object) -> list[str]:
    """Return a list of texts as it is."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError(value)
    return value
