"""``sordino ledger``: what was spent, and whether the record is whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from sordino.cli import _options as options
from sordino.cli._app import COMMANDS, app
from sordino.errors import UsageError
from sordino.privacy.accountants import support_table
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_ledger_rows

from ._app import finish, grid
from ._tables import ledger_rows

ledger = typer.Typer(help=COMMANDS["ledger"], no_args_is_help=True)
app.add_typer(ledger, name="ledger")

Path_ = Annotated[Path, typer.Argument(metavar="DB", help="The ledger.")]


def _simulated(ledger: Ledger) -> bool:
    """Return whether a seed was used for anything on a ledger."""
    total = ledger.total()
    return total is not None and total.simulated


@ledger.command("show")
def show(path: Path_, as_json: options.AsJson = False) -> None:
    """Show the budget, the total and every entry."""
    found = Ledger.read(path)
    view = describe_ledger_rows(found)
    simulated = _simulated(found)
    finish("sordino ledger", ledger_rows(view), view, as_json=as_json, simulated=simulated)
    if not as_json:
        columns = ("sequence", "time", "kind", "event", "parameters", "count", "release_id")
        grid("entries", columns, [[str(row[name]) for name in columns] for row in view["entries"]])


@ledger.command("verify")
def verify(
    path: Path_,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="DIGEST", help="A head noted earlier; it must be in it."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Check that no row was edited, and that the ledger is not older than a noted head."""
    if head is not None and not re.fullmatch("[0-9a-fA-F]{64}", head):
        raise UsageError("--head must be a whole digest of 64 hexadecimal digits.")
    found = Ledger.read(path, expected_head=head and head.lower())
    anchor = "contains the noted head" if head else "not checked against a noted head"
    value = {"head": found.head.digest, "rows": found.head.rows, "intact": True, "anchor": anchor}
    rows = {
        "chain": "intact: no row was edited, inserted or reordered",
        "anchor": anchor,
        "head": found.head.digest,
        "rows": str(found.head.rows),
    }
    simulated = _simulated(found)
    finish("sordino ledger verify", rows, value, as_json=as_json, simulated=simulated)


@ledger.command("support")
def support(as_json: options.AsJson = False) -> None:
    """Show which events can be composed under which relation, and how."""
    rows = support_table()
    if as_json:
        finish("", {}, {"support": rows}, as_json=True)
        return
    columns = tuple(rows[0])
    grid("support", columns, [[str(row[name]) for name in columns] for row in rows])
