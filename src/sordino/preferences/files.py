"""Judgments from any source, one at a time: what its columns mean, and one record after another."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sordino.errors import DataError, SordinoError, UsageError

from .containers import Progress, Rows, contained, separator
from .records import (
    FIELDS,
    PERSON,
    Absent,
    Alternative,
    Levels,
    Names,
    Record,
    Text,
    looks_like_steps,
    named_fields,
    parse_records,
    refuse_person_field,
    refuse_some_named,
)
from .schemas import COMPARED, PAIRS, RANKINGS, TRAJECTORIES, Schema, decide

TWO_FORMS = (  # why both forms are refused in one input, for messages
    "a prompt is given for some records and not for others. What both answers begin with is then "
    "cut from some only, and if those are the decided ones, the others can be told to be ties. "
    "Nothing was released. Give every record a prompt, or none."
)
_UNTOLD = (
    "A record cannot be used: it is malformed, or lacks a field (is a name that you gave "
    "misspelled?), or holds several labels, or two files hold the same ones. Nothing was released. "
    "Which one it is, and why, is not said, because all of a record is private here. Read the data "
    "yourself to find it: sordino.read_pairs and the other readers in Python name place and field."
)


@contextmanager
def untold(*, hides_records: bool) -> Iterator[None]:
    """Say of a record that cannot be used nothing but that there is one, where they are private."""
    try:
        yield
    except DataError:
        if not hides_records:
            raise
    else:
        return
    raise DataError(_UNTOLD)


def read_rows(
    source: object,
    *,
    person_field: str | None = None,
    answers: bool = False,
    unnamed: bool = False,
    empty: bool = False,
    progress: Progress | None = None,
) -> Rows:
    """Return (place, row) for every row of a file, a folder, a frame, or an iterable, as it is."""
    # A source must hold a record unless it may be `empty`; a table whose columns may be `unnamed`
    # may have no row, and any columns.
    found = contained(
        source, person_field=person_field, answers=answers, unnamed=unnamed, progress=progress
    )
    return found.rows if empty or (unnamed and found.table) else _some(found.rows)


def _some(rows: Rows) -> Rows:
    row = None
    for row in rows:
        yield row
    if row is None:
        raise DataError("The input is empty: no record in it.")


def _by_first(rows: Rows, meant: Callable[[Iterable[str]], Schema]) -> Rows:
    for place, row in rows:
        named = isinstance(row, Mapping) and all(isinstance(name, str) for name in row)
        whole = chain([(place, row)], rows)
        yield from meant(row).rows(whole) if named else whole


PREFLIB = {  # by ending, whether a ballot lists everything, and whether it may hold ties
    ".soc": (True, False),
    ".soi": (False, False),
    ".toc": (True, True),
    ".toi": (False, True),
}


def preflib_ending(path: Path) -> str:
    """Return which file of PrefLib one is by its name, or nothing; refuse one without ballots."""
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending in (".cat", ".wmd", ".pwg", ".tog", ".mjg", ".wmg"):
        raise DataError(
            f"A PrefLib file {ending} holds no rankings of people. Nothing was read. Known are "
            f"{', '.join(PREFLIB)}."
        )
    return ending if ending in PREFLIB else ""


def kind_of(source: object) -> str:
    """Return what kind of judgments a source holds, by name or columns; pairs if nothing tells."""
    if isinstance(source, Path) and preflib_ending(source):
        return RANKINGS
    # Pairs and trajectories have the same columns: how both sides of the first record look tells.
    with suppress(SordinoError, TypeError):  # rows that are none, as of [1, 2], tell nothing
        names, schema, rows = _meant(source)
        if schema.kind != PAIRS or len({*COMPARED_SIDES} & {*names}) < 2:  # noqa: PLR2004 (both)
            return schema.kind
        first = names if isinstance(names, Mapping) else next(rows, ("", ()))[1]
        return TRAJECTORIES if compares_steps(first) else PAIRS
    return PAIRS


def compares_steps(row: object) -> bool:
    """Return whether a record compares two trajectories."""
    sides = [row.get(name) for name in COMPARED_SIDES] if isinstance(row, Mapping) else []
    return sum(map(looks_like_steps, sides)) > 1


def rating_of(source: object, columns: Mapping[str, str] | None = None) -> str:
    """Return which column of a source is the rating and which others could be, or nothing."""
    with suppress(SordinoError):
        names, schema, _ = _meant(source, columns)
        return schema.rating_among(name for name in names if isinstance(name, str))
    return ""


def _meant(
    source: object, columns: Mapping[str, str] | None = None
) -> tuple[Iterable[Any], Schema, Rows]:
    # One row at most is read; whether the source can be used is another question.
    if isinstance(source, Path) and not (os.path.isfile(source) or os.path.isdir(source)):  # noqa: PTH112, PTH113 (they never raise)
        raise UsageError(f"{source.name} is no file, and what is read once is not read here.")
    found = contained(source)
    names = found.names or next(found.rows, ("", ()))[1]
    named = tuple(name for name in names if isinstance(name, str))
    return names, decide(named, columns=columns, asks=False), found.rows


COMPARED_SIDES = ("first", "second", "chosen", "rejected")
"""The fields of what is compared; a record has two of them."""


class _Judgment(Protocol):
    """What a row of any kind is read into."""

    @property
    def person(self) -> str | None:
        """Return who gave it, or None."""

    @property
    def where(self) -> str:
        """Return where it stood, for messages."""


J = TypeVar("J", bound=_Judgment)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What differs where judgments of one kind are read: a new kind has one, and a file."""

    fields: tuple[str, ...]  # that say what was judged, or how: a person id stands in none
    judges: tuple[str, ...] = (PAIRS,)  # what schemas call judgments of this kind
    not_in_tables: str = ""  # why no table is read, or nothing where tables are
    alike: tuple[tuple[str, str], ...] = ()  # what no two of one input may differ in; what is said

    def rows(
        self,
        source: object,
        *,
        person_field: str | None = PERSON,
        columns: Mapping[str, str] | None = None,
        asks: bool = True,
        empty: bool = False,
        progress: Progress | None = None,
    ) -> Rows:
        """Return (place, row) in our own fields for every row; ``empty`` if there may be none."""
        # What the columns mean is decided once. `asks` whose judgments they are, if a column may
        # say it: not where all of a record is private, as persons are then not known.
        refuse_person_field(person_field or PERSON, self.fields)
        named = isinstance(source, (str, Path)) and separator(Path(source)) is not None
        if self.not_in_tables and named:
            raise DataError(self.not_in_tables)
        found = contained(source, person_field=person_field, progress=progress)
        if self.not_in_tables and found.table:
            raise DataError(self.not_in_tables)
        if found.table and not found.names:
            raise DataError("The input is empty: no record in it.")

        def meant(names: Iterable[str]) -> Schema:
            return decide(
                tuple(names),
                columns=columns,
                person_field=person_field,
                kinds=self.judges,
                asks=asks,
                table=found.table,
            )

        rows = _by_first(found.rows, meant)
        if found.names is not None:  # refused here and now, for they are of no record
            rows = meant(found.names).rows(found.rows)
        return rows if empty else _some(rows)

    def judgments(
        self,
        rows: Iterable[tuple[str, object]],
        parse: Callable[[object, str], Iterable[J]],
        *,
        hides_records: bool,
    ) -> Iterator[J]:
        """Yield what ``parse`` makes of every row; all name a person, or none does."""
        # Where all of a record is private, some may name a person and others not.
        first: J | None = None
        for place, row in rows:
            for one in parse(row, place):
                first = first or one
                for name, problem in self.alike:
                    if getattr(one, name) != getattr(first, name):
                        raise DataError(f"{one.where}: {problem}")
                if not hides_records:
                    refuse_some_named(one.person, first.person, one.where)
                yield one


RATINGS = ("levels", "pairs")
"""Whether each rating is taken by itself, or two of them as a comparison."""

COMPARISONS = Kind(  # of two answers, raw or randomized
    fields=FIELDS,
    judges=COMPARED,
    alike=(
        ("privatized", "raw judgments and randomized answers in one file."),
        ("cut", TWO_FORMS),
        ("alone", "judgments of one answer and of two in one file. Nothing was released."),
        ("levels", "ratings with other levels than the others. Nothing was released."),
        ("named", "whose answers met is said of some records and not of others."),
    ),
)


def records_of(
    rows: Iterable[tuple[str, object]],
    *,
    person_field: str | None,
    hides_records: bool = False,
    levels: Levels | None = None,
) -> Iterator[Record]:
    """Yield the records of (place, row), one for every label, all of the first one's kind."""
    person_field = person_field or PERSON
    refuse_person_field(person_field)

    def parse(row: object, where: str) -> Iterator[Record]:
        for record in parse_records(row, where, person_field=person_field, levels=levels):
            if hides_records and record.shared:  # what hides one judgment hides one of many
                raise DataError(where)
            yield record

    return COMPARISONS.judgments(rows, parse, hides_records=hides_records)


def line_of(
    prompt: Text,
    first: Text,
    second: Alternative,
    answer: int,
    person: str | None,
    levels: Levels | None = None,
    names: Names | None = None,
) -> bytes:
    """Return the fields of one privatized record as a line."""
    row: dict[str, Any] = {"prompt": prompt, "first": first, "second": second}
    if isinstance(second, Absent):
        row = {"prompt": prompt, "completion": first}
        row |= {"family": second.family} if second.family else {}
    row |= named_fields(names)
    row |= {} if levels is None else {"levels": str(levels)}
    return _answered(row, answer, person)


def choice_line(
    prompt: Text,
    candidates: Sequence[Text],
    answer: int,
    person: str | None,
    names: Sequence[str] | None = None,
) -> bytes:
    """Return the fields of one randomized choice as a line, whatever it was the first place of."""
    row: dict[str, Any] = {"prompt": prompt, "candidates": list(candidates)}
    return _answered(row | ({"names": list(names)} if names else {}), answer, person)


def _answered(row: dict[str, Any], answer: int, person: str | None) -> bytes:
    row |= {"answer": int(answer)} | ({} if person is None else {"person": person})
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
