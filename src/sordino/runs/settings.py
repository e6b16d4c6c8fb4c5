"""A command's options as data: one frozen class declares each of them once.

A field says what its option is called, what ``--help`` says of it and on which panel, and with
which kinds of noise it has a meaning. The command line makes a command of such a class, and
:func:`refuse_foreign` refuses what does not belong where the noise is.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, cast, get_type_hints

from sordino import _validate
from sordino._files import refuse_existing, sha256_of
from sordino.errors import SordinoError, UsageError, modules_of_extra
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.comparisons import TextRules
from sordino.preferences.files import RATINGS
from sordino.preferences.pairs import Pairs, PrivatePairs, read_pairs
from sordino.preferences.records import PERSON, Levels
from sordino.preferences.schemas import parsed_columns
from sordino.privacy import guarantee
from sordino.privacy.guarantee import WEAKEST_EPSILON, Guarantee, weak_caveats
from sordino.privacy.ledger_chain import is_begun, ledger_path, request_of
from sordino.privatization.randomization import coin_for_person

from .progress import Bar, Passes

if TYPE_CHECKING:
    from sordino.engines.engine import Engine
    from sordino.preferences.chunk_survey import ChunkSurvey
    from sordino.preferences.chunks import Chunks

T = TypeVar("T")

PRIVACY = "Privacy"
_JUDGMENTS = "Judgments"
FIT = "Reward and policy"
_TRAINING = "Training"
LEDGER = "Ledger"
FILES = "Many files"
_PANELS = ("", PRIVACY, _JUDGMENTS, FIT, _TRAINING, LEDGER, FILES)


@dataclass(frozen=True)
class Declared:
    """What a field of settings says of its option, or of what is given without a name."""

    help: str
    _: KW_ONLY
    panel: str | None = ""  # of `--help`; empty for the first, None for what has no name
    noise: tuple[str, ...] = ()  # the kinds with which it has a meaning; none for all
    why: str | None = None  # what is said of it elsewhere, if that is not said of all alike
    flag: str | None = None  # made of the field's name if it is left out
    metavar: str | None = None
    min: int | None = None
    max: int | None = None
    callback: Callable[[Any], Any] | None = None  # refuses a value as it is read
    choices: tuple[str, ...] = ()  # the words that it takes; none for any


def _declare(said: str, default: object = None, *, required: bool = False, **more: Any) -> Any:
    default = MISSING if required else default
    return field(default=default, metadata={"said": Declared(said, **more)})


Argument = partial(_declare, panel=None, required=True)
Option = partial(_declare, panel="")
PrivacyOption = partial(_declare, panel=PRIVACY)
DataOption = partial(_declare, panel=_JUDGMENTS)
FitOption = partial(_declare, panel=FIT)
TrainingOption = partial(_declare, panel=_TRAINING)
LedgerOption = partial(_declare, panel=LEDGER)
_FilesOption = partial(_declare, panel=FILES)


def declared(settings: Any) -> list[tuple[Field[Any], Any, Declared]]:
    """Return every field with its type and what it declares, panel by panel."""
    hints = get_type_hints(settings, include_extras=True)
    known = {each.name: each for each in fields(settings)}
    # what is a command's own comes before what it shares
    names = (name for home in settings.__mro__ for name in inspect.get_annotations(home))
    found = []
    for name in dict.fromkeys(name for name in names if name in known):
        own, kind = known[name], hints[name]
        said = own
        if not own.metadata:  # several commands share it
            kind, said = kind.__origin__, kind.__metadata__[0]
        found.append((own, kind, said.metadata["said"]))
    return sorted(found, key=lambda one: (None, *_PANELS).index(one[2].panel))


def flag_of(own: Field[Any], said: Declared) -> str:
    """Return what an option is called on the command line."""
    return said.flag or f"--{own.name.replace('_', '-')}"


def refuse_foreign(settings: object, here: str, why: str) -> None:
    """Refuse options that have no meaning where the noise is, or with the method that was chosen.

    A value that is the option's default was not given.
    """
    wrong: dict[str, list[str]] = {}
    for each, _, said in declared(type(settings)):
        foreign = bool(said.noise) and here not in said.noise
        if foreign and getattr(settings, each.name) != each.default:
            wrong.setdefault(said.why or why, []).append(flag_of(each, said))
    for reason, names in wrong.items():
        refuse_given(dict.fromkeys(names, True), reason)


def refuse_given(options: Mapping[str, object], why: str) -> None:
    """Refuse options that have no meaning here; one that was left out is None, or False."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        raise UsageError(f"{' and '.join(given)}: {why}. Nothing was done. Leave it out.")


def refuse_options(settings: object, why: str, *names: str) -> None:
    """Refuse options of some names, as :func:`refuse_given` does."""
    flags = {f"--{name.replace('_', '-')}": getattr(settings, name) for name in names}
    refuse_given(flags, why)


def _module_of(package: str, extra: str) -> Callable[[str], Any]:
    """Return what loads modules of a package that needs an extra."""
    need = f"The {extra} commands need libraries that are not installed. Nothing was done."
    return lambda name: modules_of_extra(extra, need, f"sordino.{package}.{name}")[0]


language_module = _module_of("language", "language")
collection_module = _module_of("collection", "collect")


def terms_of(settings: object, make: Callable[..., T], /, **more: object) -> T:
    """Return what is made of public settings, whose names are those of a command's options."""
    known = {each.name for each in fields(settings)}  # type: ignore[arg-type]  # a dataclass
    named = inspect.signature(make).parameters.keys() & known
    return make(**{name: getattr(settings, name) for name in named} | more)


@contextmanager
def reworded(say: Callable[[str], str]) -> Iterator[None]:
    """Say an error in other words."""
    problem: SordinoError | None = None
    try:
        yield
    except SordinoError as error:
        problem = error
    if problem is not None:
        raise type(problem)(say(str(problem)))


def named_option(option: str) -> AbstractContextManager[None]:
    """Say in an error which option it is about."""
    return reworded(lambda said: f"{option}: {said}")


# What is private, and of whom.


class Neighbors(StrEnum):
    """What one change is, as the command line says it."""

    zero_out = "zero-out"
    add_remove = "add-remove"
    replace_one = "replace"

    @property
    def relation(self) -> guarantee.NeighboringRelation:
        """Return the relation itself."""
        return next(each for each in guarantee.NeighboringRelation if each.option == self.value)


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


LabelUnit = Annotated[
    Unit,
    PrivacyOption(
        "What --epsilon is about: one label, or all labels of one person together (needs person "
        "ids)."
    ),
]
RewardRange = Annotated[
    tuple[float, float] | None,
    DataOption(
        "Least and largest reward, such as 0 1: needed with a file, and never read from it; "
        "rewards beyond are set to the nearer end silently.",
        metavar="LOW HIGH",
    ),
]
Cap = Annotated[
    int | None,
    PrivacyOption(
        "Use at most M different questions of each person, chosen at random; leave out the "
        "others. Needs person ids.",
        noise=("labels", "estimate"),
        metavar="M",
        min=1,
    ),
]
PersonField = Annotated[str, DataOption("Field with a public person id, if any.", metavar="FIELD")]
Lora = Annotated[int, TrainingOption("Low-rank adapters; 0: all weights.", metavar="RANK", min=0)]
LedgerPath = Annotated[
    Path | None,
    LedgerOption(
        "The ledger that pays. By default the project's: the nearest .sordino/ledger.db in or "
        "above the working directory, or a new one there.",
        metavar="DB",
    ),
]
RunLedger = Annotated[
    Path | None,
    LedgerOption(
        "The run's ledger; by default spend.db beside it, or else its project's.", metavar="DB"
    ),
]
DELTA = 1e-6  # the failure probability where none is given


def refuse_relation(neighbors: Neighbors | None) -> None:
    """Refuse a relation under which label privacy is no promise."""
    if neighbors not in {None, Neighbors.replace_one}:
        raise UsageError(
            f"Labels are replaced: --neighbors {neighbors} is for whole records. Nothing was "
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
    epsilon: float,
    *,
    unit: Unit,
    cap: int | None,
    most: Callable[[], int],
    make: Callable[[float], Any] = RandomizedResponse,
) -> RandomizedResponse:
    """Return the coin for one label: all of epsilon, or the share of one label of a person."""
    if unit is not Unit.person:
        coin = make(epsilon)
    else:
        total = _validate.positive("epsilon", epsilon)
        coin = coin_for_person(total, labels=cap or most(), make=make)
    return cast("RandomizedResponse", coin)


# What several commands share, worded once.


@dataclass(frozen=True, kw_only=True)
class Json:
    """How a command answers."""

    as_json: bool = Option("Print one JSON object and nothing else.", False, flag="--json")


@dataclass(frozen=True, kw_only=True)
class Output(Json):
    """Whether a command may overwrite."""

    force: bool = Option("Overwrite the output. A ledger is always kept.", False)


def _data_name(name: str | None) -> str | None:
    if name is None:
        return None
    if not name or name != name.encode(errors="replace").decode():
        raise UsageError(
            "--data must be a name of at least one character, in valid Unicode. Nothing was done."
        )
    return name


# What decides neither what is drawn nor where it goes: an interrupted command may change it
_NOT_OF_THE_RELEASE = {
    *("address", "as_json", "budget", "budget_delta", "dry_run", "engine"),
    *("evaluate", "force", "resume", "scratch", "truth"),
}


@dataclass(frozen=True)
class Budget:
    """What the user said of a ledger's limit: ``--budget`` and ``--budget-delta``, or None."""

    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
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
        delta = limit.delta if self.delta is None else self.delta
        return replace(limit, epsilon=epsilon, delta=delta)


_DataName = Annotated[
    str | None,
    LedgerOption(
        "The data set's name on the ledger. By default its questions say which it is; where they "
        "are private the release counts in every data set.",
        metavar="NAME",
        callback=_data_name,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Spending(Output):
    """What every command that spends can be told."""

    title: ClassVar[str]  # what the command is called

    dry_run: bool = Option("Print what would be spent; touch nothing.", False)
    resume: bool = LedgerOption(
        "Only finish what the same command paid for before it was interrupted, for nothing; "
        "begin nothing. The same command does so without it, too.",
        False,
    )
    simulate_seed: int | None = PrivacyOption(
        "Draw coins from a seed, for study: NOT PRIVATE.", min=0
    )
    accept_weak: bool = PrivacyOption(
        f"Go on although next to nobody is protected: epsilon above {WEAKEST_EPSILON:g}, delta "
        "not below 1 in the number of units, or a file declared public that shares questions "
        "with the private one. A caveat then stays with what is released.",
        False,
    )

    def accepted(self, losses: Iterable[float]) -> tuple[str, ...] | None:
        """Return the caveats that were accepted, None without; refuse an ε that nobody accepted."""
        caveats = weak_caveats(losses, accepted=self.accept_weak)
        return caveats if self.accept_weak else None

    @property
    def ledger_path(self) -> Path:
        """Return where the spend is recorded."""
        raise NotImplementedError

    @property
    def asked(self) -> tuple[Path | None, ...]:
        """Return the public files that say what is drawn: other questions are another command."""
        return ()

    @cached_property
    def request(self) -> str:
        """Return the name of the command, by which it finds what it paid for before."""
        said = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in _NOT_OF_THE_RELEASE
        }
        files = [sha256_of(path) for path in self.asked if path is not None and path.is_file()]
        return request_of({"command": type(self).__name__, **said, "asked": repr(files)})

    @property
    def is_begun(self) -> bool:
        """Return whether this command was interrupted after it had paid."""
        return is_begun(self.ledger_path, self.request)

    def refuse_nothing_to_resume(self) -> None:
        """Refuse to begin anything with ``--resume``."""
        if self.resume and not self.is_begun:
            raise UsageError(
                f"--resume: no interrupted run of this command paid on {self.ledger_path.name}, "
                "so there is nothing to finish. Nothing was done."
            )


@dataclass(frozen=True, kw_only=True)
class Paying(Spending):
    """What a command may spend on a data set, and where that is recorded."""

    ledger: LedgerPath = None
    budget: float | None = LedgerOption(
        "Limit on everything spent on this ledger together; by default the epsilon of its first "
        "release. On an existing ledger this changes the limit, and the ledger records it.",
        metavar="EPSILON",
    )
    budget_delta: float | None = LedgerOption(
        "Limit on the delta of everything spent on this ledger together; by default the "
        "delta of its first release. On an existing ledger this changes the limit, and the "
        "ledger records it.",
        metavar="DELTA",
    )
    data: _DataName = None

    @property
    def limits(self) -> Budget:
        """Return what the user said of the ledger's limit."""
        return Budget(self.budget, self.budget_delta)

    @property
    def ledger_path(self) -> Path:
        """Return where the spend is recorded."""
        return self.ledger or ledger_path(Path.cwd())


@dataclass(frozen=True, kw_only=True)
class IntoFolder(Paying):
    """Where a run goes."""

    # None for a call that keeps them in memory
    out: Path | None = Option("Folder for the results.", required=True, metavar="DIR")

    def refuse_folder(self) -> None:
        """Refuse a folder that holds anything but what an interrupted run left: no result."""
        left = False
        if self.out is None:
            return
        if self.out.is_dir() and not os.path.lexists(self.out / "result.json"):
            names = (path.name for path in self.out.iterdir())
            own = (".", self.ledger_path.stem)
            left = self.is_begun or all(name.startswith(own) for name in names)
        refuse_existing(self.out, force=self.force or left, spends=True)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How pairs are read."""

    columns: str | None = DataOption(
        "What our fields are called in the data, where their names do not say it: "
        "prompt=question,first=response_a,second=response_b,winner=vote.",
        metavar="FIELD=COLUMN,...",
    )
    person_field: PersonField = "person"
    no_persons: bool = DataOption(
        "It does not matter who judged: read no ids, and do not ask for them.", False
    )
    drop: str | None = DataOption(
        "Leave out pairs for their texts: identical (refused otherwise), empty, overlong "
        "(beyond --longest; of a language model, an answer that does not fit it).",
        metavar="empty,identical,overlong",
    )
    longest: int | None = DataOption("Most characters of prompt and answers together.", min=1)

    measures_tokens: ClassVar[bool] = False  # whether a model says what is overlong

    @property
    def drops_unfit(self) -> bool:
        """Return whether pairs with an answer that a model cannot read are left out."""
        words = (self.drop or "").replace(" ", "").split(",")
        return self.measures_tokens and self.longest is None and "overlong" in words

    @property
    def reading(self) -> dict[str, Any]:
        """Return how data are read, refusing what cannot be meant."""
        if self.no_persons and self.person_field != PERSON:
            raise UsageError(
                "--no-persons and --person-field exclude each other. Nothing was done. Give one."
            )
        words = (word.strip() for word in (self.drop or "").split(","))
        drop = tuple(w for w in words if w and not (w == "overlong" and self.drops_unfit))
        with named_option("--drop"):
            TextRules.of(drop, self.longest)
        return {
            "columns": parsed_columns(self.columns),
            "person_field": None if self.no_persons else self.person_field,
            "drop": drop,
            "longest": self.longest,
        }

    def read(self, source: object, **more: Any) -> Pairs | PrivatePairs:
        """Return the pairs of a source; a bar shows how far reading them is."""
        with Bar.shown("Reading") as bar:
            return read_pairs(source, **self.reading, **more, progress=bar)


def answers_of_study(path: Path) -> Path:
    """Return a file of all that people answered so far in a study, beside it; nothing is drawn."""
    answers, database, study = map(collection_module, ("answers", "database", "study"))
    found, out = study.read_study(path), path.with_name(f"{path.stem}.answers.jsonl")
    engine = database.frozen(database.open_database(found.database_url), found, create=False)
    try:
        made: dict[Path, Any] = answers.export_answers(
            engine, found, out, unit="person", force=True
        )
    finally:
        engine.dispose()
    if len(made) > 1:
        raise UsageError(
            "This study asks for several kinds of judgments, and one kind is learned from at a "
            f"time. Nothing was done. Give one of {', '.join(path.name for path in made)}."
        )
    return next(iter(made))


@dataclass(frozen=True, kw_only=True)
class Rated(Reading):
    """How judgments are read, and what ratings of single answers are."""

    levels: str | None = DataOption(
        "Of ratings: the lowest and the highest, such as 1..5. Declared, and never taken from "
        "the ratings.",
        metavar="LOW..HIGH",
    )
    ratings: str = DataOption(
        "Take each rating by itself, or make disjoint pairs of the rated answers to one "
        "prompt, by a public rule.",
        RATINGS[0],
        choices=RATINGS,
    )

    @property
    def reading(self) -> dict[str, Any]:
        """Return how data are read, refusing what cannot be meant."""
        levels = None if self.levels is None else Levels.of(self.levels)
        return super().reading | {"levels": levels, "ratings": self.ratings}

    @property
    def reading_in_chunks(self) -> dict[str, Any]:
        """Return how they are read in pieces; refuse pairs of ratings."""
        if self.ratings != RATINGS[0]:
            raise UsageError(
                "--ratings pairs compares the rated answers to one prompt, which may lie in "
                "different pieces, and these files are read in pieces. Nothing was done. Leave it "
                "out, so that each rating counts by itself; or give one file of JSON Lines, which "
                "is read as a whole."
            )
        return {name: value for name, value in self.reading.items() if name != "ratings"}


# Many files.


FEW_ROWS = 100_000  # of a Parquet file that is read in memory


def is_large(path: Path, most: float) -> bool:
    """Return whether a Parquet file holds vectors, or more rows than are read in memory."""
    from sordino.preferences.parquet import DIFFERENCE, arrow_names, row_groups  # noqa: PLC0415

    return DIFFERENCE in arrow_names(path) or sum(row_groups(path)) > most


@dataclass(frozen=True, kw_only=True)
class ManyFiles:
    """Where many files are read."""

    engine: str | None = _FilesOption(
        "Read files piece by piece, in this process or by Ray: for more judgments than memory "
        "holds. Several files, and Parquet of vectors or of many rows, are read so anyway.",
        choices=("process", "ray"),
    )
    address: str | None = _FilesOption(
        "With --engine ray: of a running cluster, or auto for the one that this machine "
        "belongs to. Without it Ray is started here, and stopped afterwards."
    )
    scratch: Path | None = _FilesOption(
        "Folder for what is exchanged between machines, which all of them see at the same "
        "place; taken away at the end.",
        metavar="DIR",
    )

    def reads_chunks(self, sources: Sequence[Path], *, most: float = FEW_ROWS) -> bool:
        """Return whether files are read in pieces; refuse a place for them if not."""
        # By public facts alone, never by bytes, which tell how long labels are. `most` is the
        # number of rows of a Parquet file of texts that memory holds: -1 where it is private.
        if self.address is not None and self.engine != "ray":
            raise UsageError("--address is for --engine ray. Nothing was done. Give both.")
        if self.engine is not None or len(sources) != 1:
            return True
        from sordino.preferences.containers import files_in  # noqa: PLC0415 (as pyarrow is)

        files = files_in(sources[0])
        tables = [path for path in files if path.suffix.lower() == ".parquet"]
        if len(files) != 1 or any(is_large(path, most) for path in tables):
            return True
        if self.scratch is not None:
            raise UsageError(
                "--scratch is for files that are read in pieces. Nothing was done. Leave it out, "
                "or give --engine too."
            )
        return False

    def refuse_missing_engine(self) -> None:
        """Refuse an engine that is not installed or does not answer; none is started."""
        if self.engine != "ray":
            return
        from sordino.engines import ray_data  # noqa: PLC0415 (only where it is asked for)

        ray_data.RayData(self.address)
        if self.address is not None:
            ray_data.refuse_silent_address(self.address)

    @contextmanager
    def started_engine(self) -> Iterator[Engine]:
        """Yield the engine; whatever it started is stopped afterwards."""
        if self.engine != "ray":
            from sordino.engines.engine import InProcess  # noqa: PLC0415 (only for many files)

            yield InProcess()
            return
        from sordino.engines.ray_data import RayData  # noqa: PLC0415 (only where it is asked for)

        ended = signal.getsignal(signal.SIGTERM)
        with RayData(self.address) as started:
            signal.signal(signal.SIGTERM, ended)  # Ray's own says neither what happened nor 143
            yield started

    @contextmanager
    def surveyed(
        self,
        chunks: Chunks,
        passes: int | None = None,
        *,
        most: int | None = None,
        hold_out: bool = False,
    ) -> Iterator[ChunkSurvey]:
        """Yield what is public of many files, read once; its engine stays until the end."""
        from sordino.preferences.chunk_survey import survey_chunks  # noqa: PLC0415 (as above)

        with self.started_engine() as engine, Bar.shown("Reading") as bar:
            taken, scratch = Passes(bar, passes), self.scratch
            with survey_chunks(
                chunks, engine, most=most, hold_out=hold_out, scratch=scratch, taken=taken
            ) as survey:
                yield survey

    def describe_files(self, chunks: Chunks, *, passes: int) -> dict[str, Any]:
        """Return what is known of many files before a record of them is read."""
        # Their bytes are not in it: they tell how long labels are. Lines and rows do not.
        return {
            "engine": self.engine or "process",
            "files": chunks[-1].file + 1,
            "blocks": len(chunks),
            "rows": chunks.rows,
            "passes": passes,
        }
