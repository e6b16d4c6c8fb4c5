"""Options that several commands share, worded once."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino import _validate
from sordino.errors import PrivacyError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.privacy import guarantee
from sordino.privacy.chain import Row, canonical_json
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, Trust
from sordino.privacy.ledger import Ledger
from sordino.privacy.spend import refuse_other_terms
from sordino.privatization.persons import coin_for_person

__all__ = [
    "AsJson",
    "Cap",
    "Data",
    "DropIdentical",
    "DryRun",
    "Force",
    "LedgerPath",
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
            f"--way local protects labels, which are replaced: --neighbors {neighbors.value} is "
            "for record privacy. Nothing was done."
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


def _refuse_other_unit(ledger: Ledger, unit: guarantee.Unit) -> None:
    """Refuse a ledger that counts the changes of another unit.

    Raises:
        PrivacyError: It does.
    """
    counted = ledger.budget.unit
    if counted != unit:
        raise PrivacyError(
            f"{ledger.path.name} counts {counted} changes; this release is about {unit} changes. "
            f"Nothing was released. Units cannot be mixed: use --unit {counted} or another ledger."
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


def spending_limit(
    epsilon: float, budget: float | None, *, unit: guarantee.Unit, trust: Trust
) -> Guarantee:
    """Return the limit of a new ledger."""
    limit = epsilon if budget is None else _validate.non_negative("--budget", budget)
    return Guarantee(limit, delta=0.0, unit=unit, neighbors=REPLACE_ONE, trust=trust)


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
    _refuse_other_unit(known, limit.unit)
    if not change:
        return known
    refuse_other_terms(known.budget, limit)
    return Ledger(path, [*known.rows, _imagined("budget", budget)])


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
