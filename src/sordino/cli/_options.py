"""Options that several commands share, worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino.errors import UsageError

from ._settings import Neighbors, Unit, _data_name

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Bound = Annotated[
    float | None,
    typer.Option(
        "--bound",
        help="Norm to which the features of every record are shortened, with --unit record. By "
        "default 0.6 with --noise estimate, and 1 for a confidence set or --noise draws.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="EPSILON",
        help="Limit on everything spent on this ledger together; by default the epsilon of its "
        "first release. On an existing ledger this changes the limit, and the ledger records it.",
    ),
]
BudgetDelta = Annotated[
    float | None,
    typer.Option(
        "--budget-delta",
        metavar="DELTA",
        help="Limit on the delta of everything spent on this ledger together; by default the "
        "delta of its first release. On an existing ledger this changes the limit, and the ledger "
        "records it.",
    ),
]
Data = Annotated[
    str,
    typer.Option(
        "--data", metavar="NAME", callback=_data_name, help="The data set's name on the ledger."
    ),
]
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
Page = Annotated[
    Path | None,
    typer.Option("--out", metavar="PAGE", help="Page to write (.html): claimed against measured."),
]
PersonField = Annotated[
    str,
    typer.Option("--person-field", metavar="FIELD", help="Field with a public person id, if any."),
]
Seed = Annotated[
    int | None,
    typer.Option("--simulate-seed", min=0, help="Draw coins from a seed, for study: NOT PRIVATE."),
]
UnitOption = Annotated[
    Unit,
    typer.Option(
        "--unit",
        help="What --epsilon is about: one label, or all labels of one person together (needs "
        "person ids).",
    ),
]


def split_names(option: str, given: str | None) -> tuple[str, ...]:
    """Return the names in a list with commas; refuse an empty one."""
    if given is None:
        return ()
    names = tuple(name.strip() for name in given.split(","))
    if not all(names):
        raise UsageError(
            f"{option} must be names with commas between them, such as a,b:8; one of them is "
            "empty. Nothing was done."
        )
    return names
