"""``sordino budget``: how much may be spent, by decision of whoever owns the data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from sordino.errors import UsageError
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import ledger_path
from sordino.runs.settings import (
    Argument,
    Json,
    LedgerOption,
    LedgerPath,
    Neighbors,
    PrivacyOption,
    Unit,
)

from . import COMMANDS, app, command, finish

budget = typer.Typer(help=COMMANDS["budget"], no_args_is_help=True)
app.add_typer(budget, name="budget")


@dataclass(frozen=True, kw_only=True)
class _SetBudget(Json):
    unit: Unit = Argument("Whose changes are counted.", metavar="UNIT")
    epsilon: float = Argument("Limit on what all releases may spend.", metavar="EPSILON")
    ledger: LedgerPath = None
    delta: float | None = PrivacyOption("Limit on delta; by default as it was, or 0.")
    neighbors: Neighbors | None = PrivacyOption(
        "What one change is, for a unit without a budget: labels are replaced, and so are "
        "those of persons (replace) where releases of labels named persons; else records and "
        "persons are made empty (zero-out), and labels of persons do not count."
    )
    data: str | None = LedgerOption(
        "Only for the data set of this name; by default for each.", metavar="NAME"
    )


@command(budget, _SetBudget, name="set")
def _set(settings: _SetBudget) -> None:
    """Set the limit on what all releases may spend of one unit; the ledger records it."""
    unit, here = settings.unit.whose, Path.cwd()
    path = settings.ledger or ledger_path(here)
    known = Ledger(path, Ledger.read(path).rows, settings.data) if path.exists() else None
    before = None if known is None else known.budgets.get(unit)
    if unit == "person" and settings.data is not None:
        raise UsageError(
            "Persons have one account for all data sets, and one budget. Nothing was set. Leave "
            "--data out."
        )
    labels = unit == "label" or (unit == "person" and known and known.accounts()[unit].persons)
    relation = REPLACE_ONE if labels else REPLACE_SPECIAL
    delta, relation = (before.delta, before.neighbors) if before else (0.0, relation)
    delta = delta if settings.delta is None else settings.delta
    relation = relation if settings.neighbors is None else settings.neighbors.relation
    trust = "central" if known is None or not known.budgets else (before or known.budget).trust
    limit = Guarantee(settings.epsilon, delta=delta, unit=unit, neighbors=relation, trust=trust)
    if before is None:
        ledger = Ledger.open(path, data=settings.data, budget=limit)
    else:
        ledger = Ledger.open(path, data=settings.data, unit=unit)
        ledger.change_budget(limit)
    accounts, now = ledger.accounts(), ledger.budget.to_dict()
    rows = {
        "ledger": str(path.relative_to(here) if path.is_relative_to(here) else path),
        "before": str(before or "none"),
        "now": str(ledger.budget),
        **{f"one {name}": str(held) for name, held in accounts.items()},
    }
    if unit == "person" and ledger.budget.neighbors is not REPLACE_ONE:
        rows["labels"] = "of persons do not spend of it: --neighbors replace counts them"
    value = {"budget": now, "accounts": {name: held.to_dict() for name, held in accounts.items()}}
    simulated = any(held.simulated for held in accounts.values())
    finish("sordino budget", rows, value, as_json=settings.as_json, simulated=simulated)
