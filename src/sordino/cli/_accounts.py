"""How a command opens the ledger that it spends on, or imagines it for a plan.

What draws from a withheld estimate spend, said once and composed from the ledger.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sordino import _validate
from sordino.errors import PrivacyError, PrivacyWarning
from sordino.privacy import accounting
from sordino.privacy.attempts import request_of
from sordino.privacy.events import Event, event_to_row
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
    merge,
    never_less,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import Row, canonical_json
from sordino.privacy.spend import EVERYTHING, event_of, promise_of

_NOT_OF_THE_RELEASE = frozenset(
    {
        "address",
        "as_json",
        "budget",
        "budget_delta",
        "dry_run",
        "engine",
        "evaluate",
        "force",
        "scratch",
        "truth",
    }
)


def name_of_command(command: str, options: Mapping[str, Any]) -> str:
    """Return the name of a command, by which it finds what it paid for before."""
    given = {name: told for name, told in options.items() if name not in _NOT_OF_THE_RELEASE}
    return request_of({"command": command, **given})


@dataclass(frozen=True)
class Budget:
    """What the user said of a ledger's limit: ``--budget`` and ``--budget-delta``, or None."""

    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no limit."""
        if self.epsilon is not None:
            _validate.non_negative("--budget", self.epsilon)
        if self.delta is not None:
            _validate.failure_probability("--budget-delta", self.delta)

    @property
    def given(self) -> bool:
        """Return whether anything was said."""
        return (self.epsilon, self.delta) != (None, None)

    def of(self, limit: Guarantee) -> Guarantee:
        """Return a limit with what was said in the place of what it has."""
        epsilon = limit.epsilon if self.epsilon is None else self.epsilon
        return replace(
            limit, epsilon=epsilon, delta=limit.delta if self.delta is None else self.delta
        )


@dataclass(frozen=True, kw_only=True)
class Limit:
    """What a run spends, and what the user said of the limit of the ledger that pays."""

    run: Guarantee
    budget: Budget


def spending_limit(
    epsilon: float,
    budget: Budget,
    *,
    unit: Unit,
    trust: Trust,
    delta: float = 0.0,
    neighbors: NeighboringRelation = REPLACE_ONE,
) -> Limit:
    """Return the limit of a run: of a new ledger what it spends, unless more was said."""
    run = Guarantee(epsilon, delta=delta, unit=unit, neighbors=neighbors, trust=trust)
    return Limit(run=run, budget=budget)


def future_ledger(path: Path, data: str, limit: Limit, *, request: str | None = None) -> Ledger:
    """Return the ledger as :func:`open_ledger` would, for planning: nothing on disk is touched."""
    if not path.exists():
        budget = limit.budget.of(limit.run).to_dict()
        return Ledger(path, [_imagined("open", {"data": data, "budget": budget})])
    known = Ledger.read(path)
    _refuse_other_unit(known, limit.run)
    if not limit.budget.given:
        return known.continuing(request)
    budget = limit.budget.of(known.budget).to_dict()
    return Ledger(path, [*known.rows, _imagined("budget", {"budget": budget})]).continuing(request)


def _imagined(kind: str, payload: dict[str, Any], **columns: Any) -> Row:
    """Return a row that is not written anywhere."""
    return Row(sequence=0, kind=kind, time="", payload=canonical_json(payload), **columns)


def open_ledger(path: Path, data: str, limit: Limit) -> Ledger:
    """Return the ledger at a path, made if there is none."""
    # What the user said of the limit becomes that of a ledger that is there, in a row of its own;
    # what was left out stays as it is on the ledger.
    if not path.exists():
        return Ledger.open(path, data=data, budget=limit.budget.of(limit.run))
    ledger = Ledger.open(path, data=data)
    _refuse_other_unit(ledger, limit.run)
    changed = limit.budget.of(ledger.budget)
    if changed.to_dict() != ledger.budget.to_dict():
        ledger.change_budget(changed)
    return ledger


def with_spend(ledger: Ledger, event: Event, promise: Guarantee) -> Ledger:
    """Return the ledger as it would be after a spend, for planning the next one."""
    ledger.check(event, promise=promise)
    if ledger.was_paid(event, promise):
        return ledger
    kind, parameters = event_to_row(event)
    spent = {
        "release_id": "planned",
        "scope": EVERYTHING,
        "event": kind,
        "parameters": canonical_json(parameters),
        "count": 1,
        "unit": promise.unit,
        "neighbors": promise.neighbors.name,
        "trust": promise.trust,
        "randomness": promise.randomness,
    }
    row = _imagined("reserve", {"caveats": list(promise.caveats)}, **spent)
    return Ledger(ledger.path, [*ledger.rows, row])


def _refuse_other_unit(ledger: Ledger, limit: Guarantee) -> None:
    """Refuse a ledger that counts other changes: of another unit, or under another relation."""
    # What a run tells (numbers of records, times) depends on the relation, so that the ledger's
    # must be the one that was asked for.
    counted, wanted = ledger.budget.unit, limit.unit
    if counted != wanted:
        raise PrivacyError(
            f"{ledger.path.name} counts {counted} changes; this release is about {wanted} changes. "
            f"Nothing was released. Units cannot be mixed: use --unit {counted} or another ledger."
        )
    relation = ledger.budget.neighbors
    if relation != limit.neighbors:
        raise PrivacyError(
            f"{ledger.path.name} counts changes under {relation.name}; this release is about "
            f"{limit.neighbors.name}. Nothing was released. Relations cannot be mixed: use "
            f"--neighbors {_SAID[relation]} or another ledger."
        )


_SAID = {
    REPLACE_SPECIAL: "zero-out",
    ADD_OR_REMOVE_ONE: "add-remove",
    REPLACE_ONE: "replace",
}


_VACUOUS = 20.0  # as for a policy in Python


def describe_draw(bounded_range: float) -> dict[str, Any]:
    """Return what one draw promises by itself."""
    return {"epsilon": bounded_range, "delta": 0.0, "bounded_range": bounded_range}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep a policy from warning: a command says the same once, in its own words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        yield


def warn_if_vacuous(bounded_range: float, way_out: str) -> None:
    """Warn where one draw protects nobody; call it before anything is drawn."""
    # Warns:
    #     PrivacyWarning: One draw may have a privacy loss above 20.
    if bounded_range > _VACUOUS:
        warnings.warn(
            f"One draw has epsilon={never_less(bounded_range)}, which protects nobody. Nothing "
            f"was drawn yet. {way_out}",
            PrivacyWarning,
            stacklevel=2,
        )


def paid_since(ledger: Ledger, before: int, delta: float) -> Guarantee:
    """Return what the entries after so many rows promise together, composed anew."""
    # If another process spends on the same ledger meanwhile, its entries count here too: too much
    # is said then, never too little.
    rows = [row for row in ledger.rows[before:] if row.kind == "reserve"]
    events = Counter[Any]()
    for row in rows:
        events[event_of(row)] += row.count
    relation = ledger.budget.neighbors
    epsilon = accounting.composed_epsilon(events, neighbors=relation, delta=delta)
    return merge([promise_of(row, delta=delta) for row in rows], epsilon=epsilon, delta=delta)
