"""``sordino inspect``: what a file is, how it is understood, and what to type next."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from sordino.errors import SordinoError
from sordino.preferences.comparisons import TextRules, looks_swapped
from sordino.preferences.containers import contained
from sordino.preferences.files import COMPARISONS, records_of
from sordino.preferences.ranking_files import holds_rankings, read_rankings
from sordino.preferences.records import Absent, Record
from sordino.preferences.schemas import (
    COMPARED,
    RANKINGS,
    RATINGS,
    THUMBS,
    Schema,
    decide,
    people_among,
)
from sordino.privacy.guarantee import SHARES, UNDECIDED
from sordino.runs.settings import Argument, Json, PrivacyOption, Rated, Unit

from ._app import app, command, finish, grid

_RAW = "raw: it shows texts and judgments that are private. Keep it as you keep the data."
_SHOWN, _LONGEST = 3, 60  # records, and characters of a text
_LOGGED = ("arm", "action", "a")


@dataclass(frozen=True, kw_only=True)
class _Inspect(Json, Rated):
    """What is looked at, and for which unit."""

    sources: Annotated[
        list[Path], Argument("Judgments in any form: files, or folders of them.", metavar="DATA...")
    ]
    unit: Annotated[
        Unit,
        PrivacyOption("Whose change would be hidden, which decides what of it is public."),
    ] = Unit.label


@dataclass
class _Seen:
    """What is counted while records go by."""

    shown: list[dict[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    questions: Counter[bytes] = field(default_factory=Counter)
    persons: Counter[str] = field(default_factory=Counter)
    texts: list[tuple[Any, Any, Any]] = field(default_factory=list)
    kind: str = ""
    named: bool = False  # whether it is said whose answers met

    def add(self, record: Record, dropped: TextRules) -> None:
        """Count one record."""
        self.kind = "randomized answers" if record.privatized else self.kind
        self.named |= record.names is not None
        if len(self.shown) < _SHOWN:
            self.shown.append(_described(record))
        self.counts["judgments"] += 1
        self.counts["ties or undecided"] += record.levels is None and record.outcome == UNDECIDED
        self.counts["identical answers"] += record.identical
        self.counts["empty answers"] += record.empty
        self.counts["left out by --drop"] += dropped.drops(record)
        self.questions[record.key] += 1
        if record.person is not None:
            self.persons[record.person] += 1
        if len(self.texts) < 1000:  # noqa: PLR2004 (enough to tell)
            self.texts.append((record.prompt, record.first, record.second))

    def told(self) -> dict[str, int]:
        """Return all counts."""
        found = {name: self.counts[name] for name in ("judgments", *list(self.counts)[1:])}
        found["different questions"] = len(self.questions)
        if self.persons:
            found |= {"persons": len(self.persons), "most of one": max(self.persons.values())}
        return found


def _described(record: Record) -> dict[str, str]:
    alone = isinstance(record.second, Absent)
    sides = (
        {"completion": record.first} if alone else {"first": record.first, "second": record.second}
    )
    said = {0: "0", 1: "1", UNDECIDED: "undecided"}.get(record.outcome, "between")
    if record.levels is not None:
        said = f"{float(SHARES[record.outcome]):.2g} of the scale {record.levels}"
    who = {} if record.person is None else {"person": record.person}
    texts = {"prompt": record.prompt, **sides}
    return {
        "place": record.where,
        **{name: _short(text) for name, text in texts.items()},
        "answer" if record.privatized else "label": said,
        **who,
    }


def _short(text: Any) -> str:
    if isinstance(text, list):
        text = " | ".join(f"{turn['role']}: {turn['content']}" for turn in text)
    text = " ".join(str(text).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


@command(app, _Inspect)
def inspect(settings: _Inspect) -> None:
    """Say what data are, how they are understood, and what to type next; nothing is spent."""
    source: Any = settings.sources[0] if len(settings.sources) == 1 else settings.sources
    told: dict[str, Any] = {"output": _RAW, "unit": settings.unit.value}
    problem: SordinoError | None = None
    try:
        for part in _looked_at(settings, source):
            told |= part
    except SordinoError as error:
        problem = error
    told["next"] = _next(settings, told) if problem is None else None
    told["problem"] = None if problem is None else str(problem)
    _say(told, as_json=settings.as_json)
    if problem is not None:
        raise problem


def _looked_at(settings: _Inspect, source: Any) -> Iterator[dict[str, Any]]:
    """Yield what is known, part after part, as far as the data can be read."""
    reading = settings.reading
    asked = {name: reading[name] for name in ("columns", "person_field")}
    preflib = isinstance(source, Path) and source.suffix in {".soc", ".soi", ".toc", ".toi"}
    if preflib or (not reading["columns"] and holds_rankings(source)):
        ballots = read_rankings(source, **asked, offered="named" if preflib else None)
        yield {"format": "PrefLib" if preflib else contained(source).what, "kind": RANKINGS}
        yield {"counts": _public({"ballots": len(ballots)}, settings.unit)}
        return
    found = contained(source)
    first: Any = next(found.rows, ("", {}))[1]
    names = found.names or (tuple(first) if isinstance(first, Mapping) else ())
    yield {"format": found.what, "columns": dict.fromkeys(names, "not used")}
    if {"reward"} <= {*names} and {*_LOGGED} & {*names}:
        yield {"kind": "a log of pulls"}
        return
    yield {"people": people_among(names)}
    schema = decide(names, **asked, asks=False, table=found.table)
    people = people_among(names, schema)
    yield {
        "people": people,
        "schema": schema.name,
        "kind": schema.kind,
        "columns": _roles(schema, names),
    }
    if schema.name == "vectors" or schema.kind not in COMPARED:
        return
    seen, rules = _Seen(kind=schema.kind), TextRules.of(reading["drop"], reading["longest"])
    try:
        rows = COMPARISONS.rows(source, **asked, asks=False)
        records = records_of(rows, person_field=reading["person_field"], levels=reading["levels"])
        for record in records:
            seen.add(record, rules)
    finally:
        yield {"kind": seen.kind, "rows": seen.shown, "named": seen.named}
    counts = seen.told()
    yield {
        "counts": _public(counts, settings.unit),
        "swapped": looks_swapped(seen.texts),
        "units": _units(counts, people, reading["person_field"]),
    }


def _roles(schema: Schema, names: tuple[str, ...]) -> dict[str, str]:
    """Return what each column is taken for."""
    roles = dict.fromkeys(names, "not used")
    for name in names if not schema.fields else ():
        roles[name] = name if name in COMPARISONS.fields else "not used"
    parts = [(path, name) for name, path in schema.fields]
    parts += [(path, "label, which is private") for path in schema.label[1:]]
    parts += [(path, "one judgment for each element") for path in schema.each]
    parts += [(schema.persons or "", "who judged")]
    for path, role in parts:
        for one in path.partition(":")[2].split(",") if ":" in path else path.split("|"):
            name = one if one in roles else one.split(".")[0]
            if name in roles:
                roles[name] = (
                    role if roles[name] in ("not used", name) else f"{roles[name]}, {role}"
                )
    return roles


def _public(counts: Mapping[str, int], unit: Unit) -> dict[str, dict[str, Any]]:
    """Return counts, each with whether it is public where the unit is what is hidden."""
    public = unit is not Unit.record
    return {
        name: {"count": count, "public": public and name != "ties or undecided"}
        for name, count in counts.items()
    }


def _units(counts: Mapping[str, int], people: list[str], field_: str | None) -> dict[str, str]:
    n = counts["judgments"]
    person = "needs ids: name their column with --person-field"
    if "persons" in counts:
        person = (
            f"all labels of one of {counts['persons']:,} persons, of whom one gave "
            f"{counts['most of one']:,}"
        )
    elif people and field_ is not None:
        person = f"needs ids: --person-field {people[0]}"
    return {
        "label": f"one of {n:,} judgments; prompts, answers and who judged count as public",
        "record": "one whole row, texts included; with --noise estimate or draws",
        "person": person,
    }


def _terms(settings: _Inspect, told: Mapping[str, Any]) -> list[str]:
    """Return what to say of noise and unit; what hidden rows would tell must be said."""
    record, named = settings.unit is Unit.record, told.get("named")
    estimate = told["kind"] == RANKINGS or record or "counts" not in told
    return [
        *(["--noise estimate"] if estimate and not named else []),
        "--epsilon 1",
        *([f"--unit {settings.unit}"] if settings.unit is not Unit.label else []),
        *(["--items NAMES"] if record and named else []),
        *(
            ["--intercept one"]
            if record and not named and told["kind"] in {THUMBS, RATINGS}
            else []
        ),
    ]


def _next(settings: _Inspect, told: Mapping[str, Any]) -> str:
    """Return the command to type next."""
    data = " ".join(str(path) for path in settings.sources)
    if told["kind"] == "randomized answers":
        way = f"sordino rank {data} --out board"
        return way if told["named"] else f"sordino fit {data} --out reward.json"
    if told["kind"] == "a log of pulls":
        return "sordino bandit --help"
    counts = told.get("counts", {})
    verb = "sordino rank" if told.get("named") else "sordino align"
    words = [verb, data, *_terms(settings, told)]
    words += [f"--columns {settings.columns}"] if settings.columns else []
    words += [f"--levels {settings.levels}"] if settings.levels else []
    if settings.person_field != "person":
        words.append(f"--person-field {settings.person_field}")
    elif settings.no_persons:
        words.append("--no-persons")
    elif told.get("people") and "persons" not in counts and settings.unit is not Unit.record:
        words.append(f"--person-field {told['people'][0]}")
    drop = [word for word in (settings.drop or "").split(",") if word]
    for word in ("empty", "identical"):
        if word not in drop and counts.get(f"{word} answers", {"count": 0})["count"]:
            drop.append(word)
    words += [f"--drop {','.join(drop)}"] if drop else []
    return " ".join([*words, "--out run --dry-run"])


def _say(told: dict[str, Any], *, as_json: bool) -> None:
    """Print what is known, in tables or as JSON."""
    rows = {"this output": told["output"], "format": told.get("format", "not known")}
    rows |= {name: told[name] for name in ("schema", "kind") if told.get(name)}
    if told.get("people"):
        rows["ids of people?"] = ", ".join(told["people"])
    if told.get("swapped"):
        rows["beware"] = "prompts look like answers and answers like prompts: are they swapped?"
    rows |= {f"unit {name}": said for name, said in told.get("units", {}).items()}
    if told["next"]:
        rows["next"] = told["next"]
    finish("sordino inspect", rows, told, as_json=as_json)
    if not as_json:
        if told.get("columns"):
            grid("Columns", ("column", "read as"), [list(each) for each in told["columns"].items()])
        for row in told.get("rows", ()):
            grid(row["place"], ("field", "as read"), [list(each) for each in list(row.items())[1:]])
        if told.get("counts"):
            counted = [
                [name, f"{one['count']:,}", "public" if one["public"] else "private"]
                for name, one in told["counts"].items()
            ]
            grid(f"Counts, with --unit {told['unit']}", ("count", "", "which is"), counted)
    sys.stdout.flush()
