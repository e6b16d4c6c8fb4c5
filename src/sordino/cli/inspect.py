"""``sordino inspect``: what a file is, how it is understood, and what to type next."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, cast

import numpy as np

from sordino.errors import SordinoError, UsageError
from sordino.preferences.ballots import UNSAID
from sordino.preferences.comparisons import TextRules, looks_swapped
from sordino.preferences.containers import contained
from sordino.preferences.files import (
    COMPARED_SIDES,
    COMPARISONS,
    compares_steps,
    preflib_ending,
    records_of,
)
from sordino.preferences.rankings import Rankings, read_rankings
from sordino.preferences.records import JUDGING_FIELDS, Record
from sordino.preferences.schemas import (
    CHOICES,
    COMPARED,
    PAIRS,
    RANKINGS,
    RATINGS,
    THUMBS,
    TRAJECTORIES,
    Schema,
    decide,
    people_among,
)
from sordino.preferences.trajectories import read_trajectories
from sordino.privacy.guarantee import SHARES, UNDECIDED
from sordino.runs.settings import Argument, Json, PrivacyOption, Rated, Unit

from . import app, command, finish, grid

_RAW = "raw: it shows texts and judgments that are private. Keep it as you keep the data."
_SHOWN, _LONGEST = 3, 60  # records, and characters of a text
_JUDGED = {"prompt", "first", "chosen", "ranking", "ranks"}  # judgments, whatever else there is
_LOG, _USERS = "a log of pulls", "users, with a reward of every action"
_REWARDED = (
    (_LOG, "reward", {"arm", "action", "a"}),
    (_USERS, "rewards", {"context", "candidates"}),
)
_BEWARE = {
    "swapped": "prompts look like answers and answers like prompts: are they swapped?",
    "numbers": "answers are texts of numbers: trajectories are read from JSON Lines",
}
_OF_LABELS = ("ties or undecided", "with ties, or not all listed")  # counts that no unit publishes


@dataclass(frozen=True, kw_only=True)
class _Inspect(Json, Rated):
    sources: list[Path] = Argument(
        "Judgments in any form: files, or folders of them.", metavar="DATA..."
    )
    unit: Unit = PrivacyOption(
        "Whose change would be hidden, which decides what of it is public.", Unit.label
    )


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
        self.kind = "randomized answers" if record.privatized else self.kind
        self.named |= record.names is not None
        if len(self.shown) < _SHOWN:
            texts = {"prompt": record.prompt, "first": record.first, "second": record.second}
            if record.alone:
                texts = {"prompt": record.prompt, "completion": record.first}
            said = {0: "0", 1: "1", UNDECIDED: "undecided"}.get(record.outcome, "between")
            if record.levels is not None:
                said = f"{float(SHARES[record.outcome]):.2g} of the scale {record.levels}"
            self.shown.append(
                {
                    "place": record.where,
                    **{name: _short(text) for name, text in texts.items()},
                    "answer" if record.privatized else "label": said,
                    **({} if record.person is None else {"person": record.person}),
                }
            )
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
        found = {name: self.counts[name] for name in ("judgments", *list(self.counts)[1:])}
        found["different questions"] = len(self.questions)
        if self.persons:
            found |= {"persons": len(self.persons), "most of one": max(self.persons.values())}
        return found


def _shortened(row: object) -> dict[str, str]:
    return {name: _short(value) for name, value in row.items()} if isinstance(row, Mapping) else {}


def _short(text: object) -> str:
    if isinstance(text, list) and all(isinstance(turn, Mapping) for turn in text):
        text = " | ".join(f"{turn['role']}: {turn['content']}" for turn in text)
    text = " ".join(str(text).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


@command(app, _Inspect)
def inspect(settings: _Inspect) -> None:
    """Say what data are, how they are understood, and what to type next; nothing is spent."""
    source = settings.sources[0] if len(settings.sources) == 1 else settings.sources
    told: dict[str, Any] = {"output": _RAW, "unit": settings.unit.value}
    problem: SordinoError | None = None
    try:
        for part in _looked_at(settings, source):
            told |= part
    except SordinoError as error:
        problem = error
    told["next"] = _next(settings, told) if problem is None else None
    told["problem"] = None if problem is None else str(problem)
    rows = {"this output": told["output"], "format": told.get("format", "not known")}
    rows |= {name: told[name] for name in ("schema", "kind", "rating") if told.get(name)}
    if told.get("people"):
        rows["ids of people?"] = ", ".join(told["people"])
    for name in _BEWARE.keys() & told.keys():
        rows |= {"beware": _BEWARE[name]} if told[name] else {}
    rows |= {f"unit {name}": said for name, said in told.get("units", {}).items()}
    rows |= {"next": told["next"]} if told["next"] else {}
    finish("sordino inspect", rows, told, as_json=settings.as_json)
    tables = {"Columns": [("column", "read as"), *told.get("columns", {}).items()]}
    for row in told.get("rows", ()):
        tables[row["place"]] = [("field", "as read"), *list(row.items())[1:]]
    tables[f"Counts, with --unit {told['unit']}"] = [
        ("count", "", "which is"),
        *(
            (name, f"{one['count']:,}", "public" if one["public"] else "private")
            for name, one in told.get("counts", {}).items()
        ),
    ]
    for title, (head, *lines) in tables.items() if not settings.as_json else ():
        if lines:
            grid(title, head, lines)
    sys.stdout.flush()
    if problem is not None:
        raise problem


def _looked_at(settings: _Inspect, source: Path | list[Path]) -> Iterator[dict[str, Any]]:
    """Yield what is known, part after part, as far as the data can be read."""
    reading = settings.reading
    asked = {name: reading[name] for name in ("columns", "person_field")}
    if isinstance(source, Path) and preflib_ending(source):
        yield {"format": "PrefLib", "kind": RANKINGS}
        yield _listed(settings, RANKINGS, source, asked)
        return
    found = contained(source)
    first: Any = next(found.rows, ("", {}))[1]
    if isinstance(first, Mapping) and {*first} == {"items"}:  # which everybody ranks
        first = next(found.rows, ("", first))[1]
    names = found.names or (tuple(first) if isinstance(first, Mapping) else ())
    yield {"format": found.what, "columns": dict.fromkeys(names, "not used")}
    for kind, reward, others in _REWARDED:
        if reward in names and others & {*names} and not _JUDGED & {*names}:
            yield {"kind": kind}
            return
    yield {"people": people_among(names)}
    schema = decide(names, **asked, asks=False, table=found.table)
    people = people_among(names, schema)
    kind = TRAJECTORIES if schema.kind == PAIRS and compares_steps(first) else schema.kind
    sides = [first.get(name) for name in COMPARED_SIDES] if kind == TRAJECTORIES else []
    yield {"people": people, "schema": schema.name, "kind": kind, "columns": _roles(schema, names)}
    yield {"rating": schema.rating_among(names)}
    if kind in (RANKINGS, TRAJECTORIES, CHOICES):
        yield {"named": kind == CHOICES and "names" in names}
        start = islice(contained(source).rows, _SHOWN)
        yield {"rows": [{"place": at, **_shortened(row)} for at, row in start]}
        if asked["person_field"] == "person" and "person" not in names:
            asked["person_field"] = None  # nobody is asked whose they are: it is said
        yield _listed(settings, kind, source, asked, people, sides)
        return
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
        "numbers": all(str(text).startswith("[[") for text in seen.texts[0][1:]),
        "units": _units(counts, people, reading["person_field"]),
    }


def _listed(
    settings: _Inspect,
    kind: str,
    source: Path | list[Path],
    asked: Mapping[str, Any],
    people: Sequence[str] = (),
    sides: Sequence[Any] = (),
) -> dict[str, Any]:
    """Return what is counted of rankings or trajectories, and what their command must say."""
    words: list[str] = []
    if kind in {CHOICES, RANKINGS}:
        try:
            ballots = read_rankings(source, **asked)
        except UsageError as error:
            if str(error) != UNSAID:
                raise
            words = ["--all-offered"]  # of the two ways on the one that publishes less
            ballots = read_rankings(source, **asked, offered="all")
        counts, persons = {"judgments": len(ballots)}, ballots.persons
        counts["different questions"] = len({*ballots.keys})
        said = "most candidates of one" if kind == RANKINGS else "candidates of each"
        counts[said] = int(ballots.sizes.max())
        if isinstance(ballots, Rankings):
            counts["with ties, or not all listed"] = int(np.sum(~ballots.complete))
    elif any(isinstance(side, Mapping) for side in sides):
        words, persons = ["--step-features TABLE"], None
        steps = next(side["states"] for side in sides if isinstance(side, Mapping))
        words += [f"--horizon {len(steps)} --step-bound 1"] if settings.unit is Unit.record else []
        counts = {"judgments": sum(1 for _ in contained(source).rows)}
    else:
        walks = read_trajectories(
            cast("Path", source), person_field=asked["person_field"], drop=["identical"]
        )
        pairs, persons = walks.pairs, walks.pairs.persons
        counts = {
            "judgments": len(walks) + pairs.dropped,
            "of the same sum": pairs.dropped,
            "ties or undecided": int(np.sum(pairs.labels == UNDECIDED)),
            "steps of each": walks.horizon,
            "features of a step": pairs.differences(None).shape[1],
        }
        words = ["--drop identical"] if pairs.dropped else []
        if settings.unit is Unit.record:
            width = counts["features of a step"]
            words = [f"--horizon {walks.horizon} --dimension {width} --step-bound 1"]
    if persons is not None:
        of = Counter(persons)
        counts |= {"persons": len(of), "most of one": max(of.values())}
    return {
        "counts": _public(counts, settings.unit),
        "units": _units(counts, people, settings.reading["person_field"]),
        "words": words,
    }


def _roles(schema: Schema, names: tuple[str, ...]) -> dict[str, str]:
    roles = dict.fromkeys(names, "not used")
    for name in names if not schema.fields else ():
        roles[name] = name if name in JUDGING_FIELDS else "not used"
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
    return {
        name: {"count": count, "public": unit is not Unit.record and name not in _OF_LABELS}
        for name, count in counts.items()
    }


def _units(counts: Mapping[str, int], people: Sequence[str], field_: str | None) -> dict[str, str]:
    n, person = counts["judgments"], "needs ids: name their column with --person-field"
    if "persons" in counts:
        most = f"of whom one gave {counts['most of one']:,}"
        person = f"all labels of one of {counts['persons']:,} persons, {most}"
    elif people and field_ is not None:
        person = f"needs ids: --person-field {quote(people[0])}"
    return {
        "label": f"one of {n:,} judgments; prompts, answers and who judged count as public",
        "record": "one whole row, texts included; with --noise estimate or draws",
        "person": person,
    }


def _terms(settings: _Inspect, told: Mapping[str, Any]) -> list[str]:
    """Return what to say of noise and unit; what hidden rows would tell must be said."""
    record, named = settings.unit is Unit.record, told.get("named")
    estimate = told["kind"] == RANKINGS or record or "counts" not in told
    alone = record and not named and told["kind"] in {THUMBS, RATINGS}
    return [
        *(["--noise estimate"] if estimate and not named else []),
        "--epsilon 1",
        *([f"--unit {settings.unit}"] if settings.unit is not Unit.label else []),
        *(["--items NAMES"] if record and named else []),
        *(["--intercept one"] if alone else []),
    ]


def _next(settings: _Inspect, told: Mapping[str, Any]) -> str:
    data = " ".join(quote(str(path)) for path in settings.sources)
    private = {CHOICES: ("align", "run"), "randomized answers": ("fit", "reward.json")}
    if told["kind"] in private:
        verb, out = ("rank", "board") if told["named"] else private[told["kind"]]
        return f"sordino {verb} {data} --out {out}"
    if told["kind"] == _LOG:
        return "sordino bandit --help"
    if told["kind"] == _USERS:
        return f"sordino optimize {data} --reward-range LOW HIGH --epsilon 1 --out run --dry-run"
    counts = told.get("counts", {})
    verb = "sordino rank" if told.get("named") else "sordino align"
    words = [verb, data, *_terms(settings, told)]
    words += told.get("words", [])
    words += [f"--columns {quote(settings.columns)}"] if settings.columns else []
    words += [f"--levels {settings.levels}"] if settings.levels else []
    if settings.person_field != "person":
        words.append(f"--person-field {quote(settings.person_field)}")
    elif settings.no_persons:
        words.append("--no-persons")
    elif told.get("people") and "persons" not in counts and settings.unit is not Unit.record:
        words.append(f"--person-field {quote(told['people'][0])}")
    drop = [word for word in (settings.drop or "").split(",") if word]
    for word in ("empty", "identical"):
        if word not in drop and counts.get(f"{word} answers", {"count": 0})["count"]:
            drop.append(word)
    words += [f"--drop {','.join(drop)}"] if drop else []
    return " ".join([*words, "--out run --dry-run"])
