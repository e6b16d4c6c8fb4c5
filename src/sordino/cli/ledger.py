"""``sordino ledger``: what was spent, and whether the record is whole."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import typer

from sordino.errors import UsageError
from sordino.privacy import exports
from sordino.privacy.books import Account
from sordino.privacy.exports import Form
from sordino.privacy.guarantee import size
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import ledger_path
from sordino.reporting.result import describe_ledger_rows
from sordino.runs.settings import Argument, Json, Option

from . import COMMANDS, app, command, finish, grid

ledger = typer.Typer(help=COMMANDS["ledger"], no_args_is_help=True)
app.add_typer(ledger, name="ledger")


@dataclass(frozen=True, kw_only=True)
class _Show(Json):
    path: Path | None = Argument(
        "The ledger; by default the project's.", required=False, metavar="[DB]"
    )
    data: str | None = Option("Of which data set; by default of each.", metavar="NAME")

    @property
    def where(self) -> Path:
        return self.path or ledger_path(Path.cwd())

    def tell(self, title: str, found: Ledger, rows: dict[str, str], value: dict[str, Any]) -> None:
        """Say what a ledger holds, and whether a seed was used for anything on it."""
        simulated = any(held.simulated for held in found.accounts().values())
        finish(title, rows, value, as_json=self.as_json, simulated=simulated)


@command(ledger, _Show, name="show")
def _show(settings: _Show) -> None:
    """Show the budget, the total and every entry."""
    found = Ledger.read(settings.where, data=settings.data)
    view, total = describe_ledger_rows(found), found.total()
    rows = {
        "data": view["data"] or f"{len(found.data_sets)} data sets; what is largest of each",
        **{f"budget of a {unit}": str(budget) for unit, budget in found.budgets.items()},
        **{f"one {unit}": account["says"] for unit, account in view["accounts"].items()},
        "caveats": ", ".join(total.caveats if total else ()) or "none",
        "head": view["head"],
        "rows": str(view["rows"]),
    }
    settings.tell("sordino ledger", found, rows, view)
    if not settings.as_json:
        sets = [] if found.data else found.data_sets
        if table := [(name, *map(_short, found.about(name).accounts().values())) for name in sets]:
            grid("data sets", ("data", "one label", "one record", "one person"), table)
        columns = ("sequence", "time", "data", "kind", "event", "parameters", "count", "release_id")
        grid("entries", columns, [[str(row[name]) for name in columns] for row in view["entries"]])


def _short(held: Account) -> str:
    return "not protected" if held.uncovered else size(held.guarantee)


@dataclass(frozen=True, kw_only=True)
class _Verify(_Show):
    head: str | None = Option("A head noted earlier; it must be in it.", metavar="DIGEST")


@command(ledger, _Verify, name="verify")
def _verify(settings: _Verify) -> None:
    """Check that no row was edited, and that the ledger is not older than a noted head."""
    head = settings.head
    if head is not None and not re.fullmatch("[0-9a-fA-F]{64}", head):
        raise UsageError("--head must be a whole digest of 64 hexadecimal digits.")
    found = Ledger.read(settings.where, expected_head=head and head.lower())
    anchor = "contains the noted head" if head else "not checked against a noted head"
    value = {"head": found.head.digest, "rows": found.head.rows, "intact": True, "anchor": anchor}
    rows = {
        "chain": "intact: no row was edited, inserted or reordered",
        "anchor": anchor,
        "head": found.head.digest,
        "rows": str(found.head.rows),
    }
    settings.tell("sordino ledger verify", found, rows, value)


@dataclass(frozen=True, kw_only=True)
class _Export(_Show):
    form: str = Option(
        "What to write it for.", "model-card", choices=get_args(Form), metavar="FORM"
    )


@command(ledger, _Export, name="export")
def _export(settings: _Export) -> None:
    """Print the promise of everything on a ledger for dp_accounting, OpenDP's registry or the Hub.

    Redirect it to a file. Nothing is spent, and a simulated promise is never exported as one that
    protects.
    """
    found = Ledger.read(settings.where, data=settings.data)
    text = exports.export(found, cast("Form", settings.form))
    if settings.as_json:
        finish("", {}, {"form": settings.form, "text": text}, as_json=True)
    else:
        sys.stdout.write(text)
