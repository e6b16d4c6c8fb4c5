"""Options that several commands share, worded once."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sordino import _validate
from sordino.errors import UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy import guarantee
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privatization.persons import coin_for_person

__all__ = [
    "AllOffered",
    "AsJson",
    "Cap",
    "Data",
    "DropIdentical",
    "DryRun",
    "Force",
    "LedgerPath",
    "NamedOffered",
    "Neighbors",
    "Seed",
    "Unit",
    "UnitOption",
]


def _data_name(name: str) -> str:
    """Return the name of a data set; refuse one that cannot be written down."""
    if not name or name != name.encode(errors="replace").decode():
        raise UsageError(
            "--data must be a name of at least one character, in valid Unicode. Nothing was done."
        )
    return name


_RELATIONS = {
    "zero-out": guarantee.REPLACE_SPECIAL,
    "add-remove": guarantee.ADD_OR_REMOVE_ONE,
    "replace": REPLACE_ONE,
}


class Neighbors(StrEnum):
    """What one change is, as the command line says it."""

    zero_out = "zero-out"
    add_remove = "add-remove"
    replace_one = "replace"

    @property
    def relation(self) -> guarantee.NeighboringRelation:
        """Return the relation itself."""
        return _RELATIONS[self.value]


class Unit(StrEnum):
    """Whose change is hidden."""

    label = "label"
    record = "record"
    person = "person"

    @property
    def whose(self) -> guarantee.Unit:
        """Return the unit itself."""
        return self.value

    @property
    def counted(self) -> guarantee.Unit:
        """Return whose changes a ledger of randomized labels counts."""
        return "person" if self is Unit.person else "label"


AlignNeighbors = Annotated[
    Neighbors | None,
    typer.Option(
        "--neighbors",
        help="What one change is. Labels are replaced; records are made empty (zero-out) unless "
        "you say otherwise. Under add-remove their number is private too.",
    ),
]
AlignUnit = Annotated[
    Unit,
    typer.Option(
        "--unit",
        help="What --epsilon is about: one label, all labels of one person together (needs person "
        "ids), or one whole record, prompt and answers included (central only).",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Bound = Annotated[
    float | None,
    typer.Option(
        "--bound",
        help="Norm to which the features of every record are shortened, with --unit record. By "
        "default 0.6 with --way central, and 1 for a confidence set or --way intrinsic.",
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
Cap = Annotated[
    int | None,
    typer.Option(
        "--cap",
        metavar="M",
        min=1,
        help="Use at most M different questions of each person, chosen at random; leave out the "
        "others. Needs person ids.",
    ),
]
Data = Annotated[
    str,
    typer.Option(
        "--data", metavar="NAME", callback=_data_name, help="The data set's name on the ledger."
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        "--delta",
        help="Failure probability allowed with --way central, below 1 in the number of records. "
        "1e-6 by default.",
    ),
]
Dimension = Annotated[int, typer.Option("--dimension", help="Number of hashed text features.")]
AskedDimension = Annotated[
    int | None,
    typer.Option(
        "--dimension",
        help="Number of hashed text features. By default 512; for --way central 28, without words, "
        "unless 20,000 judgments or more can teach words.",
    ),
]
AllOffered = Annotated[
    bool,
    typer.Option(
        "--all-offered",
        help="Of ballots without a field 'offered': everybody could list every item. Items that a "
        "ballot leaves out tie below the others, and which they are stays private.",
    ),
]
NamedOffered = Annotated[
    bool,
    typer.Option(
        "--named-offered",
        help="Of ballots without a field 'offered': each was offered just the items it names, "
        "which makes public what it names (not the order). With neither option ballots must name "
        "every item, and that they do is public.",
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
MetricsEpsilon = Annotated[
    float | None,
    typer.Option(
        "--metrics-epsilon",
        metavar="EPSILON",
        help="With --way central: hold out one question in five, and spend this much more on "
        "measuring the result on them. Without it, what is not free is not told.",
    ),
]
Moment = Annotated[
    bool,
    typer.Option(
        "--second-moment",
        help="With --unit record: also release the noised second moment of the records, which "
        "others can plan with. --confidence needs it and brings it along.",
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
Page = Annotated[
    Path | None,
    typer.Option("--out", metavar="PAGE", help="Page to write (.html): claimed against measured."),
]
PersonField = Annotated[
    str,
    typer.Option("--person-field", metavar="FIELD", help="Field with a public person id, if any."),
]
Ball = Annotated[
    float,
    typer.Option(
        "--ball",
        help="Bound on the norm of the weights. A confidence set takes it as a promise about the "
        "truth: choose it before you look.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="auto|debiased|mixture",
        help="Likelihood of the fit; auto refines by the mixture where that clearly pays.",
    ),
]
Ridge = Annotated[
    float | None,
    typer.Option("--ridge", help="Penalty of the fit; by default chosen on held-out answers."),
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


def refuse_relation(neighbors: Neighbors) -> None:
    """Refuse a relation under which label privacy is no promise.

    Raises:
        UsageError: The relation is not ``replace``.
    """
    if neighbors is not Neighbors.replace_one:
        raise UsageError(
            f"Labels are replaced: --neighbors {neighbors.value} is for whole records. Nothing was "
            "done. Leave it out, or use --way central --unit record."
        )


def refuse_records(unit: Unit) -> None:
    """Refuse a unit that randomized labels say nothing about.

    Raises:
        UsageError: The unit is ``record``.
    """
    if unit is Unit.record:
        raise UsageError(
            "Randomized labels protect labels, not records: prompts and answers stay as they are. "
            "Nothing was done. Use --unit label, or --unit person for all labels of one person."
        )


def choose_coin(
    epsilon: float, *, unit: Unit, cap: int | None, most: Callable[[], int]
) -> RandomizedResponse:
    """Return the coin for one label: all of epsilon, or the share of one label of a person.

    Args:
        epsilon: What may be spent on one label, or on all labels of one person together.
        unit: Which of the two.
        cap: The most labels of one person that are used.
        most: Returns how many labels of one person there are, if there is no cap.
    """
    if unit is not Unit.person:
        return RandomizedResponse(epsilon)
    return coin_for_person(_validate.positive("epsilon", epsilon), labels=cap or most())
