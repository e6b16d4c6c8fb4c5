"""Options that several commands share, worded once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino import _validate
from sordino.errors import UsageError
from sordino.privacy.chain import Row, canonical_json
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, Trust
from sordino.privacy.ledger import Ledger

__all__ = ["AsJson", "Data", "DropIdentical", "DryRun", "Force", "LedgerPath", "Neighbors", "Seed"]


def _data_name(name: str) -> str:
    """Return the name of a data set; refuse one that cannot be written down."""
    if not name or name != name.encode(errors="replace").decode():
        raise UsageError(
            "--data must be a name of at least one character, in valid Unicode. Nothing was done."
        )
    return name


class Neighbors(StrEnum):
    """What one change is, as the command line says it."""

    zero_out = "zero-out"
    add_remove = "add-remove"
    replace = "replace"  # type: ignore[assignment]  # it hides str.replace


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="EPSILON",
        help="Limit on everything spent on this ledger together; by default the epsilon of its "
        "first release. On an existing ledger this changes the limit, and the ledger records it.",
    ),
]
Data = Annotated[
    str,
    typer.Option(
        "--data", metavar="NAME", callback=_data_name, help="The data set's name on the ledger."
    ),
]
Dimension = Annotated[int, typer.Option("--dimension", help="Number of hashed text features.")]
DropIdentical = Annotated[
    bool,
    typer.Option(
        "--drop-identical", help="Drop pairs of identical answers; else they are refused."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be spent; touch nothing.")
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Overwrite the output. A ledger is always kept."),
]
LedgerPath = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="DB",
        help="Ledger of this data set: give the same one for every release of it. By default a "
        "new one beside the output.",
    ),
]
NeighborsOption = Annotated[
    Neighbors,
    typer.Option("--neighbors", help="What one change is; labels are replaced."),
]
OnDevice = Annotated[
    bool,
    typer.Option(
        "--on-device",
        help="These are my own labels and this is my own device: nobody else sees them raw.",
    ),
]
PersonField = Annotated[
    str,
    typer.Option("--person-field", metavar="FIELD", help="Field with a public person id, if any."),
]
Ridge = Annotated[
    float | None,
    typer.Option("--ridge", help="Penalty of the fit; by default chosen on held-out answers."),
]
Seed = Annotated[
    int | None,
    typer.Option("--simulate-seed", min=0, help="Draw coins from a seed, for study: NOT PRIVATE."),
]


def refuse_relation(neighbors: Neighbors) -> None:
    """Refuse a relation under which label privacy is no promise.

    Raises:
        UsageError: The relation is not ``replace``.
    """
    if neighbors is not Neighbors.replace:
        raise UsageError(
            f"--way local protects labels, which are replaced: --neighbors {neighbors.value} is "
            "for record privacy. Nothing was done."
        )


def label_budget(epsilon: float, budget: float | None, *, trust: Trust) -> Guarantee:
    """Return the limit of a new ledger for labels."""
    limit = epsilon if budget is None else _validate.non_negative("--budget", budget)
    return Guarantee(limit, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust=trust)


def future_ledger(path: Path, data: str, limit: Guarantee, *, change: bool) -> Ledger:
    """Return the ledger as :func:`open_ledger` would, for planning: nothing on disk is touched."""
    budget = {"budget": limit.to_dict()}
    rows: list[Row] = []
    if path.exists():
        rows = list(Ledger.read(path).rows)
    else:
        rows.append(_imagined("open", {"data": data, **budget}))
    if change:
        rows.append(_imagined("budget", budget))
    return Ledger(path, rows)


def _imagined(kind: str, payload: dict[str, Any]) -> Row:
    """Return a row that is not written anywhere."""
    return Row(sequence=0, kind=kind, time="", payload=canonical_json(payload))


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
    if change and limit.to_dict() != ledger.budget.to_dict():
        ledger.change_budget(limit)
    return ledger
