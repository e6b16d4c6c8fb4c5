"""How a command opens the ledger that it spends on, or imagines it for a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sordino import _validate
from sordino.errors import PrivacyError
from sordino.privacy.chain import Row, canonical_json
from sordino.privacy.events import Event, event_to_row
from sordino.privacy.guarantee import (
    ADD_OR_REMOVE_ONE,
    REPLACE_ONE,
    REPLACE_SPECIAL,
    Guarantee,
    NeighboringRelation,
    Trust,
    Unit,
)
from sordino.privacy.ledger import Ledger
from sordino.privacy.spend import EVERYTHING, refuse_other_terms

__all__ = ["future_ledger", "open_ledger", "spending_limit", "with_spend"]


def spending_limit(
    epsilon: float,
    budget: float | None,
    *,
    unit: Unit,
    trust: Trust,
    delta: float = 0.0,
    neighbors: NeighboringRelation = REPLACE_ONE,
) -> Guarantee:
    """Return the limit of a new ledger."""
    limit = epsilon if budget is None else _validate.non_negative("--budget", budget)
    return Guarantee(limit, delta=delta, unit=unit, neighbors=neighbors, trust=trust)


def future_ledger(path: Path, data: str, limit: Guarantee, *, change: bool) -> Ledger:
    """Return the ledger as :func:`open_ledger` would, for planning: nothing on disk is touched.

    Raises:
        PrivacyError: It counts the changes of another unit, or its budget would change in more
            than size.
    """
    budget = {"budget": limit.to_dict()}
    if not path.exists():
        return Ledger(path, [_imagined("open", {"data": data, **budget})])
    known = Ledger.read(path)
    _refuse_other_unit(known, limit)
    if not change:
        return known
    refuse_other_terms(known.budget, limit)
    return Ledger(path, [*known.rows, _imagined("budget", budget)])


def _imagined(kind: str, payload: dict[str, Any], **columns: Any) -> Row:
    """Return a row that is not written anywhere."""
    return Row(sequence=0, kind=kind, time="", payload=canonical_json(payload), **columns)


def open_ledger(path: Path, data: str, limit: Guarantee, *, change: bool) -> Ledger:
    """Return the ledger at a path, made with the limit if there is none.

    Args:
        path: The SQLite file.
        data: The data set's name.
        limit: The limit of a new ledger.
        change: Whether an existing ledger's limit is to become this one.
    """
    if not path.exists():
        return Ledger.open(path, data=data, budget=limit)
    ledger = Ledger.open(path, data=data)
    _refuse_other_unit(ledger, limit)
    if change and limit.to_dict() != ledger.budget.to_dict():
        ledger.change_budget(limit)
    return ledger


def with_spend(ledger: Ledger, event: Event, promise: Guarantee) -> Ledger:
    """Return the ledger as it would be after a spend, for planning the next one.

    Raises:
        BudgetExceeded: The spend would pass the budget.
        PrivacyError: The promise does not fit the ledger.
    """
    ledger.check(event, promise=promise)
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
    """Refuse a ledger that counts other changes: of another unit, or under another relation.

    What a run tells (numbers of records, times) depends on the relation, so that the ledger's
    must be the one that was asked for.

    Raises:
        PrivacyError: It does.
    """
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
