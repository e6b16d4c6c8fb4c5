"""Options that several commands share, worded once.

Options as a user writes them: lists with commas, and their names in errors.

Which engine reads many files, what it is asked about them, and a bar for every pass.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino import _validate
from sordino.engines.engine import Engine, InProcess
from sordino.engines.ray_data import RayData, refuse_silent_address
from sordino.errors import SordinoError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.chunks import Chunks
from sordino.privacy import guarantee
from sordino.privacy.guarantee import REPLACE_ONE
from sordino.privatization.randomization import coin_for_person

from ._app import Bar


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
        help="Failure probability allowed with --noise estimate, below 1 in the number of records. "
        "1e-6 by default.",
    ),
]
Dimension = Annotated[int, typer.Option("--dimension", help="Number of hashed text features.")]
AskedDimension = Annotated[
    int | None,
    typer.Option(
        "--dimension",
        help="Number of hashed text features. By default 512; for --noise estimate 28, without "
        "words, unless 20,000 judgments or more can teach words.",
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
        help="With --noise estimate: hold out one question in five, and spend this much more on "
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
    """Refuse a relation under which label privacy is no promise."""
    if neighbors is not Neighbors.replace_one:
        raise UsageError(
            f"Labels are replaced: --neighbors {neighbors.value} is for whole records. Nothing was "
            "done. Leave it out, or use --noise estimate --unit record."
        )


def refuse_records(unit: Unit) -> None:
    """Refuse a unit that randomized labels say nothing about."""
    if unit is Unit.record:
        raise UsageError(
            "Randomized labels protect labels, not records: prompts and answers stay as they are. "
            "Nothing was done. Use --unit label, or --unit person for all labels of one person."
        )


def choose_coin(
    epsilon: float, *, unit: Unit, cap: int | None, most: Callable[[], int]
) -> RandomizedResponse:
    """Return the coin for one label: all of epsilon, or the share of one label of a person."""
    if unit is not Unit.person:
        return RandomizedResponse(epsilon)
    return coin_for_person(_validate.positive("epsilon", epsilon), labels=cap or most())


@contextmanager
def named_option(option: str) -> Iterator[None]:
    """Say in an error which option it is about."""
    problem: SordinoError | None = None
    try:
        yield
    except SordinoError as error:
        problem = error
    if problem is not None:
        raise type(problem)(f"{option}: {problem}")


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


_TABLE = ".parquet"


class EngineKind(StrEnum):
    """Where many files are read."""

    process = "process"
    ray = "ray"


Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="With --engine ray: of a running cluster, or auto for the one that this machine "
        "belongs to. Without it Ray is started here, and stopped afterwards.",
    ),
]
EngineOption = Annotated[
    EngineKind | None,
    typer.Option(
        "--engine",
        help="Read files piece by piece, in this process or by Ray: for more judgments than memory "
        "holds. Several files, folders and Parquet are always read so.",
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        "--scratch",
        metavar="DIR",
        help="Folder for what is exchanged between machines, which all of them see at the same "
        "place; taken away at the end.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where many files are read, as the options say."""

    kind: EngineKind | None = None  # which engine; None where the user did not say
    address: str | None = None  # of a Ray cluster
    scratch: Path | None = None  # A folder that all machines see

    def __post_init__(self) -> None:
        """Refuse an address that nothing would use."""
        if self.address is not None and self.kind is not EngineKind.ray:
            raise UsageError("--address is for --engine ray. Nothing was done. Give both.")

    def reads(self, sources: Sequence[Path]) -> bool:
        """Return whether files are read in chunks; refuse a folder for them if not."""
        several = len(sources) > 1 or any(
            path.suffix == _TABLE or path.is_dir() for path in sources
        )
        if several or self.kind is not None:
            return True
        if self.scratch is not None:
            raise UsageError(
                "--scratch is for files that are read in pieces. Nothing was done. Leave it out, "
                "or give --engine too."
            )
        return False

    @property
    def name(self) -> str:
        """Return the engine's name."""
        return (self.kind or EngineKind.process).value

    def refuse_missing(self) -> None:
        """Refuse an engine that is not installed or does not answer; none is started."""
        if self.kind is EngineKind.ray:
            RayData(self.address)
        if self.address is not None:
            refuse_silent_address(self.address)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Yield the engine; whatever it started is stopped afterwards."""
        if self.kind is not EngineKind.ray:
            yield InProcess()
            return
        ended = signal.getsignal(signal.SIGTERM)
        with RayData(self.address) as found:
            signal.signal(signal.SIGTERM, ended)  # Ray's own says neither what happened nor 143
            yield found


class Passes:
    """One bar for many passes over the same files."""

    def __init__(self, bar: Bar, expected: int | None = None) -> None:
        """Expect so many passes."""
        self._bar = bar
        self._of = "" if expected is None else f" of about {expected}"
        self._passes, self._before = 0, math.inf

    def __call__(self, done: int, total: int) -> None:
        """Take note of how much of a pass is done."""
        if done <= self._before:
            self._passes += 1
            self._bar.describe(f"Pass {self._passes}{self._of}")
        self._before = done
        self._bar(done, total)

    def stop_counting(self, description: str) -> None:
        """Say what is done from now on, where how far it is would tell of private records."""
        self._bar.describe(description)


def describe_files(chunks: Chunks, place: Place, *, passes: int) -> dict[str, Any]:
    """Return what is known of many files before a record of them is read."""
    # Their bytes are not in it: they tell how long labels are. Lines and rows do not.
    return {
        "engine": place.name,
        "files": chunks.chunks[-1].file + 1,
        "blocks": len(chunks.chunks),
        "rows": chunks.rows,
        "passes": passes,
    }


def files_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what :func:`describe_files` found."""
    rows, passes = told["rows"], told["passes"]
    size = "packed" if rows is None else f"{rows:,} rows"  # lines of JSON Lines
    read = "" if rows is None else f": {rows * passes:,} rows read in all"
    return {
        "files": f"{told['files']:,}, {size}, in {told['blocks']:,} blocks",
        "passes": f"about {passes}{read} (engine {told['engine']})",
    }
