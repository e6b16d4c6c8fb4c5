"""Released files in, ours and other people's: every column, in the order written.

A file is read as an attacker holds it. JSON inside JSON is taken apart level by level, so that
hostile depth costs nothing. What was truly preferred is looked up for every row in the raw file.

Last, from many attacks to one verdict: each has a p-value, and together they err as rarely as said.
"""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Integer
from scipy.special import betainc

from sordino import _validate
from sordino._files import explained
from sordino.auditing.findings import Finding
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.preferences.containers import Progress
from sordino.preferences.files import COMPARISONS, read_rows
from sordino.preferences.pairs import MANIFEST_FORMAT, manifest_path
from sordino.preferences.records import (
    FIELDS,
    LABELS,
    Absent,
    Levels,
    Text,
    canonical,
    label_value,
    parse_records,
    person_of,
    question_of,
    read_text,
    refuse_some_named,
    turned,
)
from sordino.privacy.guarantee import UNDECIDED

# How many levels deep objects and lists may lie in each other.
_DEEPEST = 64

_LONGEST = 8  # a longer list is no record of a few fields


def readable(name: str) -> str:
    r"""Return a name in which no character hides or moves the others."""
    return name if name.isprintable() else ascii(name)


def parts_of(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield what a JSON object or list holds, with the path to it; nothing for anything else."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield f"{path}.{readable(str(name))}", part
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield f"{path}[{index}]", part


def _flattened(row: Mapping[str, object]) -> dict[str, object]:
    """Return a row with what its objects and short lists hold, as columns of their own."""
    # A text that is JSON is one of these, for a table has no other way to hold them. Four levels
    # are taken apart, and lists of at most eight. A name that is taken gets a mark, so that nothing
    # can hide under another's.
    found, level = dict(row), list(row.items())
    for left in reversed(range(4)):  # of a column that are taken apart
        opened = [(path, parsed(value)) for path, value in level]
        level = [part for path, value in opened if _opens(value) for part in parts_of(value, path)]
        for path, value in level:
            if left and _opens(parsed(value)):
                continue
            free = path
            while free in found:
                free += "'"
            found[free] = value
    return found


def _opens(value: object) -> bool:
    """Return whether a value is taken apart."""
    return bool(value) and (
        isinstance(value, Mapping) or (isinstance(value, list | tuple) and len(value) <= _LONGEST)
    )


def parsed(value: object) -> object:
    """Return what a text holds if it is a JSON object or list of few levels; else the value."""
    if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
        with suppress(ValueError, RecursionError):
            found = json.loads(value)
            return value if _is_deep(found) else found
    return value


def _is_deep(value: object) -> bool:
    """Return whether objects and lists lie in each other more than 64 levels deep."""
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [part for one in level for _, part in parts_of(one, "")]
        if not level:
            return False
    return True


Layout = Literal["answer", "completion", "z", "chosen-rejected"]
UNKNOWN = -1
"""The truth of a row that no raw record, or no single one, was found for."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Released:
    """The rows of a released file, with nothing changed that an attacker could use."""

    # `"answer"` (`prompt`, `first`, `second`, `answer`), `"completion"` (`prompt`, `completion`,
    # `answer`: of single answers, beside which `second` is empty), `"z"` (`prompt`, `a1`, `a2`, `z`
    # = ±1 or 0/1) or `"chosen-rejected"`, where the order written *is* the answer, so that every
    # entry of `answers` is 1.
    layout: Layout
    prompts: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...]
    # 1 where the released answer prefers the one written first, else 0.
    answers: Integer[np.ndarray, " n"]
    epsilon: float  # the privacy loss per label that the file claims
    persons: tuple[str, ...] | None = None  # public person ids, or None
    # Every other column, by name; None where a row lacks it.
    columns: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    # What lies beside the file, as JSON, or None; of a folder what all agree on.
    manifest: Mapping[str, object] | None = None
    # The release that each row is of, by its manifest; None unless it is a folder.
    releases: tuple[str, ...] | None = None
    # With the raw file, 1 where the one written first was truly preferred, 0 where the other was,
    # `UNKNOWN` elsewhere; None without the raw file.
    truth: Integer[np.ndarray, " n"] | None = None
    # With a raw file that wrote its answers in an order that is not the label, 1 where the one
    # written first was written first there too, 0 where the other was, `UNKNOWN` elsewhere; None
    # otherwise.
    displayed: Integer[np.ndarray, " n"] | None = None

    def __len__(self) -> int:
        return len(self.prompts)

    def __repr__(self) -> str:
        """Return the layout and the size; never data."""
        return f"Released(n={len(self)}, layout={self.layout!r})"

    @property
    def texts(self) -> Iterator[tuple[str, str, str]]:
        """Yield prompt and answers of each row, in the order written."""
        return zip(self.prompts, self.first, self.second, strict=True)

    @cached_property
    def swapped(self) -> Bool[np.ndarray, " n"]:
        """Return where the order written is not the canonical one, a hash order of the texts."""
        if self.layout == "completion":
            return np.zeros(len(self), dtype=bool)
        return np.array([canonical(*row)[0] for row in self.texts], dtype=bool)

    @cached_property
    def keys(self) -> tuple[bytes, ...]:
        """Return what identifies the question of each row, whatever the order of its answers."""
        return tuple(canonical(*row)[1] for row in self.texts)


_LAYOUTS: Mapping[Layout, tuple[str, ...]] = {
    "answer": ("prompt", "first", "second", "answer"),
    "completion": ("prompt", "completion", "answer"),
    "z": ("prompt", "a1", "a2", "z"),
    "chosen-rejected": ("chosen", "rejected"),
}
"""What a row of each layout must hold; of several that fit, the first counts."""

_LABELS = ("label", LABELS)
_RATING = "rating"
EPSILONS = ("epsilon", "epsilon_float", "eps")
"""What a manifest may call the loss that it states."""
RATES = ("flip_probability", "flip_rate")
"""What it may call the rate of its flips: a coin's, or one that was counted from the flips."""

_PERSON = "person"
_PROMPT = "prompt"  # chosen and rejected may have it, or begin with it
READ = re.compile(r"\.(jsonl|csv|tsv)(\.gz)?$", re.IGNORECASE)
_ENDINGS = (".manifest.json", "_manifest.json", "-manifest.json")
_LARGEST_MANIFEST = 1 << 24
_MOST_COLUMNS = 256
_WORDS: Mapping[str, int] = {"1": 1, "+1": 1, "1.0": 1, "0": 0, "0.0": 0, "-1": -1, "-1.0": -1}
_NUMBERS: Mapping[float, int] = {1: 1, 0: 0, -1: -1}


def read_released(
    path: str | Path,
    *,
    epsilon: float,
    manifest: str | Path | None = None,
    person_field: str = "person",
    progress: Progress | None = None,
) -> Released:
    """Return a file that claims local privacy, with nothing changed that an attacker could use."""
    path = Path(path)
    epsilon = _validate.positive("epsilon", epsilon)
    if person_field in {*FIELDS, *_LAYOUTS["z"]}:  # what was asked or answered
        raise UsageError(f"The person field must not be {person_field!r}. Nothing was read.")
    rows, notes, releases = _Rows(person_field), [], list[str]()
    files = _inside(path)
    for file in files:
        begun = len(rows)
        for where, row in read_rows(
            file, person_field=person_field, answers=True, progress=progress
        ):
            rows.add(row, where if file == path else f"{file.name}, {where}")
        notes.append(_read_manifest_of(file, None if manifest is None else Path(manifest)))
        name = str((notes[-1] or {}).get("release_id") or f"not stated by {file.name}")
        releases += [name] * (len(rows) - begun)
    note = notes[0]
    if files != [path]:  # what all manifests of a folder say
        first, *others = (one or {} for one in notes)
        agreed = {
            name: told
            for name, told in first.items()
            if all(name in one and one[name] == told for one in others) and name != "sha256"
        }
        note = None if None in notes else agreed
    return Released(
        layout=rows.layout,
        prompts=tuple(rows.texts[0]),
        first=tuple(rows.texts[1]),
        second=tuple(rows.texts[2]),
        answers=rows.answers(),
        epsilon=epsilon,
        persons=rows.persons(),
        columns={name: tuple(column) for name, column in rows.columns.items()},
        manifest=note,
        releases=None if files == [path] else tuple(releases),
    )


def raw_fields(
    path: Path, *, manifest: Path | None = None, person_field: str = "person"
) -> tuple[str, ...]:
    """Return the fields by which a file is one of raw judgments; empty if it may be a release."""
    # Only the first row of each file is looked at; of answers, `raw_columns` sees the rest.
    for file in _inside(path):
        rows = read_rows(file, person_field=person_field, answers=True)
        _, row = next(iter(rows), ("", {}))
        layout = layout_of(row)
        told = tuple(name for name in (*_LABELS, _RATING) if name in row)
        if layout is None and told:
            return told
        if layout == "chosen-rejected" and not _randomizes(_read_manifest_of(file, manifest)):
            return _LAYOUTS[layout]
    return ()


def _randomizes(manifest: Mapping[str, object] | None) -> bool:
    """Return whether a manifest says that the order of two answers is a randomized one."""
    # Ours never does: what this library randomizes has an answer, so its manifest beside such a
    # file is that of another.
    has = manifest or {}
    if has.get("format") == MANIFEST_FORMAT:
        return False
    stated = (has.get(name) for name in (*EPSILONS, *RATES))
    return any(isinstance(one, int | float) and not isinstance(one, bool) for one in stated)


def raw_columns(released: Released) -> tuple[str, ...]:
    """Return the columns beside the answers that are raw judgments; empty if there are none."""
    if released.layout == "chosen-rejected":
        return ()
    found = [name for name in _LABELS if _judges(released.columns.get(name, ()))]
    found += [_RATING] if any(released.columns.get(_RATING, ())) else []
    if set(_LAYOUTS["chosen-rejected"]) <= released.columns.keys():
        found += _LAYOUTS["chosen-rejected"]
    return tuple(found)


def _judges(values: tuple[object, ...]) -> bool:
    """Return whether a column is one of labels: something else may go by that name."""
    told = [value for value in map(parsed, values) if value is not None and value != ""]
    each = [part for value in told for part in (value if isinstance(value, list) else [value])]
    return bool(each) and all(label_value(value) is not None for value in each)


def _inside(path: Path) -> list[Path]:
    """Return a file, or the files of a folder that can be read, in the order of their names."""
    if not os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        return [path]
    with explained(f"{path.name} cannot be read"):
        found = [item for item in sorted(path.iterdir()) if READ.search(item.name)]
    if not found:
        raise DataError(f"{path.name} holds no file ending in .jsonl, .csv or .tsv.")
    return found


def layout_of(row: Mapping[str, Any]) -> Layout | None:
    """Return which layout a row has, by the names of its fields, or None."""
    return next((name for name, wanted in _LAYOUTS.items() if set(wanted) <= row.keys()), None)


def flat(text: Text) -> str:
    """Return a text as it is, and chat messages as canonical JSON."""
    if isinstance(text, str):
        return text
    return json.dumps(text, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class _Rows:
    """The rows of a released file, taken in one at a time."""

    def __init__(self, person_field: str) -> None:
        self.layout: Layout = "answer"
        self.texts: tuple[list[str], list[str], list[str]] = ([], [], [])
        self.columns: dict[str, list[object]] = {}
        self._values: list[int] = []
        self._people: list[str | None] = []
        self._person_field = person_field

    def __len__(self) -> int:
        return len(self._values)

    def add(self, row: Mapping[str, Any], where: str) -> None:
        if not self._values:
            layout = layout_of(row)
            if layout is None:
                known = "; or ".join(" ".join(map(repr, names)) for names in _LAYOUTS.values())
                raise DataError(f"{where}: a released row must hold {known}. Nothing was audited.")
            self.layout = layout
        for column, text in zip(self.texts, _texts(row, where, self.layout), strict=True):
            column.append(_unicode(flat(text), where))
        self._values.append(_value(row, where, self.layout))
        # Files of ours call the field "person" whatever it was.
        wanted = self._person_field
        ours = self.layout in {"answer", "completion"} and wanted not in row and _PERSON in row
        name = _PERSON if ours else wanted
        person = person_of(row, where, name)
        if self._people:
            refuse_some_named(person, self._people[0], where)
        self._people.append(person)
        self._keep({*_LAYOUTS[self.layout], _PROMPT, name}, row, where)

    def _keep(self, used: set[str], row: Mapping[str, object], where: str) -> None:
        """Keep every column that the layout does not use, and what lies inside it."""
        # Where a row lacks it there is None.
        kept = {name: value for name, value in row.items() if name not in used}
        for name, value in kept.items():
            if _is_deep(value):
                raise DataError(f"{where}: field {name!r} is nested over {_DEEPEST} levels deep.")
        found = _flattened(kept)
        for name in found:
            if name not in self.columns:
                self.columns[name] = [None] * (len(self._values) - 1)
        if len(self.columns) > _MOST_COLUMNS:
            raise DataError(
                f"{where}: more than {_MOST_COLUMNS} different columns, with those inside others."
            )
        for name, column in self.columns.items():
            column.append(found.get(name, row.get(name)))

    def answers(self) -> Integer[np.ndarray, " n"]:
        """Return 1 where the one written first is preferred, else 0."""
        found = np.array(self._values, dtype=np.int8)
        if (found == -1).any() and (found == 0).any():
            raise DataError("Field 'z' must be -1 or 1, or 0 or 1, in all rows; both are used.")
        return np.asarray(found == 1, dtype=np.int8)

    def persons(self) -> tuple[str, ...] | None:
        return tuple(person for person in self._people if person is not None) or None


def _texts(row: Mapping[str, Any], where: str, layout: Layout) -> tuple[Text, Text, Text]:
    if layout == "chosen-rejected":
        return question_of(row, "chosen", "rejected", where)
    if layout == "completion":
        return read_text(row, "prompt", where), read_text(row, "completion", where), ""
    prompt, one, other, _ = _LAYOUTS[layout]
    return read_text(row, prompt, where), read_text(row, one, where), read_text(row, other, where)


def read_question(row: Mapping[str, Any]) -> tuple[Text, Text, Text] | None:
    """Return prompt and answers of a row of any kind in the order written, or None."""
    layout = layout_of(row)
    paired = {"first", "second"} <= row.keys()  # beside an answer or a label: it is not looked at
    with suppress(DataError):
        if paired:
            texts = question_of(row, "first", "second", "")
        elif layout:
            texts = _texts(row, "", layout)
        else:
            return None
        for text in texts:
            _unicode(flat(text), "")
        return texts
    return None


def row_answer(row: Mapping[str, Any]) -> int:
    """Return 1 where the answer of a released row prefers the one written first, else 0."""
    return int(_value(row, "", layout_of(row) or "answer") == 1)


def _unicode(text: str, where: str) -> str:
    """Return a text that can be written down; half a character cannot."""
    if not text.isascii() and text != text.encode(errors="replace").decode():
        raise DataError(f"{where}: a text is not valid Unicode.")
    return text


def _value(row: Mapping[str, Any], where: str, layout: Layout) -> int:
    """Return the released answer as it is written: 1, 0 or −1."""
    if layout == "chosen-rejected":
        return 1
    name = _LAYOUTS[layout][-1]
    if name not in row:
        raise DataError(f"{where}: field {name!r} is missing.")
    value, found = row[name], None
    if isinstance(value, str):
        found = _WORDS.get(value.strip())
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found = _NUMBERS.get(value)
    if found is None or (found < 0 and layout != "z"):
        permitted = "-1 or 1, or 0 or 1" if layout == "z" else "0 or 1"
        raise DataError(f"{where}: field {name!r} must be {permitted} (1: the one written first).")
    return found


def _read_manifest_of(path: Path, manifest: Path | None = None) -> Mapping[str, Any] | None:
    """Return what a manifest says of a released file, whoever wrote it; None if there is none."""
    manifest = manifest or _beside(path)
    if manifest is None:
        return None
    if os.path.isdir(manifest):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError("The manifest is a folder; give a file.")
    with explained(f"{manifest.name} cannot be read"), manifest.open("rb") as file:
        raw = file.read(_LARGEST_MANIFEST + 1)
    value = None
    if len(raw) <= _LARGEST_MANIFEST:
        with suppress(ValueError, RecursionError):
            value = json.loads(raw)
    if not isinstance(value, Mapping):
        raise DataError(f"{manifest.name} is no manifest: one JSON object is expected.")
    return value


def _beside(path: Path) -> Path | None:
    """Return the manifest beside a file: the longest name that is clearly made from its own."""
    name = re.sub(r"\.(jsonl|csv|tsv)$", "", path.name.removesuffix(".gz"))
    cuts = [found.start() for found in re.finditer(r"[._-]", name) if found.start()]
    # Where a file beside this one has the shorter name for its own, a manifest of it is its.
    ends = [f".{kind}{packed}" for kind in ("jsonl", "csv", "tsv") for packed in ("", ".gz")]
    shorter = [
        name[:cut]
        for cut in reversed(cuts)
        if not any(os.path.lexists(path.with_name(name[:cut] + end)) for end in ends)
    ]
    found = [manifest_path(path)]
    found += [path.with_name(start + end) for start in (name, *shorter) for end in _ENDINGS]
    return next((one for one in found if os.path.isfile(one) and one != path), None)  # noqa: PTH113


_FEWEST = 0.5  # share of rows that must be found, or it is another file
_CHOSEN_FIRST = 0.99  # share of one label in the order written that makes the order the label
_MATCHED, _UNMATCHED, _AMBIGUOUS, _NEITHER = range(4)


class _JoinCounts(NamedTuple):
    """How many rows of a released file were found in the raw one."""

    matched: int  # rows whose truth is known
    unmatched: int  # rows whose question is not in the raw file
    # Rows that raw records with different labels fit, or whose two answers are the same.
    ambiguous: int
    undecided: int  # rows whose raw label says neither, so that there is nothing to recover


class _Judgment(NamedTuple):
    """One raw record: its texts in some order, and 1 if the first one won."""

    texts: tuple[str, str, str]
    outcome: int
    person: str | None
    # Whether that order is that of a `first` and a `second`, which may have been there before the
    # label.
    displays: bool


class _Fit(NamedTuple):
    """What a raw record says of a question, in the canonical order of its texts."""

    outcome: int
    person: str | None
    first: bool


def join_truth(
    released: Released,
    raw: str | Path,
    *,
    person_field: str = "person",
    progress: Progress | None = None,
) -> tuple[Released, _JoinCounts]:
    """Return the same rows with what was truly preferred, and how many were found."""
    # A row is found by its question: letter by letter, and where that fails, after all texts were
    # tidied (NFC, line ends, spaces). Where a question occurs more than once, the person decides,
    # and the n-th judgment of one person goes to the n-th row if there are as many of both;
    # anything else is known only if all labels that fit agree.
    # Of ratings only the lowest and the highest have a truth that an answer can be held against.
    said = next(iter(released.columns.get("levels", ())), None)
    levels = None if said is None else Levels.of(said)
    judgments = list(_judgments(Path(raw), person_field, progress, levels))
    n = len(released)
    starts = (UNKNOWN, UNKNOWN, _UNMATCHED)
    truth, displayed, status = (np.full(n, start, dtype=np.int8) for start in starts)
    for rule in (str, tidied):
        if (status == _UNMATCHED).any():
            _look_up(released, judgments, rule, truth, displayed, status)
    counts = _JoinCounts(*np.bincount(status, minlength=4).tolist())
    found = n - counts.unmatched
    if found < _FEWEST * n or not counts.matched:
        raise DataError(
            f"The raw file does not fit: of {n} released rows, {found} have a question "
            "that is in it, and half of them must, with at least one label that is certain. "
            "Nothing was audited. Give the file that the release was made from."
        )
    # The raw file's order may have been there before its labels, unless it nearly is the label.
    decided = [each.outcome for each in judgments if each.outcome < UNDECIDED]
    share = sum(decided) / max(len(decided), 1)
    displays = all(each.displays for each in judgments) and max(share, 1 - share) < _CHOSEN_FIRST
    return replace(released, truth=truth, displayed=displayed if displays else None), counts


def _judgments(
    raw: Path, person_field: str, progress: Progress | None, levels: Levels | None
) -> Iterator[_Judgment]:
    """Yield every raw record with flat texts, in the order written if that is not the label."""
    for where, row in COMPARISONS.rows(
        raw, person_field=person_field, asks=False, progress=progress
    ):
        named = {person_field, f"{person_field}s"} & row.keys()
        name = person_field if named else "person"
        for record in parse_records(row, where, person_field=name, levels=levels):
            if record.privatized:
                raise DataError(
                    f"{record.where}: a randomized answer, not a raw judgment. The raw file is "
                    "the one that was never released. Nothing was audited."
                )
            if isinstance(record.second, Absent):
                alone = flat(record.prompt), flat(record.first), ""
                yield _Judgment(alone, record.outcome, record.person, displays=False)
                continue
            pair, displays = (flat(record.first), flat(record.second)), "chosen" not in row
            swap = displays and pair[0] != flat(
                question_of(row, "first", "second", record.where)[1]
            )
            texts = (flat(record.prompt), pair[swap], pair[not swap])
            yield _Judgment(texts, turned(record.outcome, swap=swap), record.person, displays)


def tidied(text: str) -> str:
    r"""Return a text in NFC, without spaces around it, each run of white space one space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _look_up(
    has: Released,
    judgments: Sequence[_Judgment],
    rule: Callable[[str], str],
    *found: Integer[np.ndarray, " n"],
) -> None:
    """Look for the rows that were not found yet, by texts after a rule, and note what is found."""
    truth, displayed, status = found
    known: defaultdict[bytes, list[_Fit]] = defaultdict(list)
    for each in judgments:
        swap, key = canonical(*map(rule, each.texts))
        known[key].append(_Fit(turned(each.outcome, swap=swap), each.person, not swap))
    # Rows of one question and person, with how they are turned.
    groups: defaultdict[tuple[bytes, str | None], list[tuple[int, bool]]] = defaultdict(list)
    for row in np.flatnonzero(status == _UNMATCHED).tolist():
        prompt, one, other = map(rule, (has.prompts[row], has.first[row], has.second[row]))
        if one == other:
            status[row] = _AMBIGUOUS
            continue
        swap, key = canonical(prompt, one, other)
        groups[key, has.persons[row] if has.persons else None].append((row, swap))
    for (key, person), rows in groups.items():
        # All records count if the person is not named among them: the ids of a released file may be
        # pseudonyms of those in the raw one.
        fits = known.get(key, [])
        own = [fit for fit in fits if person is not None and fit.person == person]
        paired = bool(own) and len(own) == len(rows)
        for at, (row, swap) in enumerate(rows):
            those = [own[at]] if paired else own or fits
            outcomes, firsts = {fit.outcome for fit in those}, {fit.first for fit in those}
            if len(firsts) == 1:
                displayed[row] = firsts.pop() != swap
            if len(outcomes) > 1:
                status[row] = _AMBIGUOUS
            elif outcomes and min(outcomes) >= UNDECIDED:
                status[row] = _NEITHER
            elif outcomes:
                status[row] = _MATCHED
                truth[row] = turned(outcomes.pop(), swap=swap)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Channel:
    """Something in a released file, other than its answers, that may say who was preferred."""

    # Name of the attack that reads it: `"position"`, `"id-hash"`, `"row-order"`, `"column"`,
    # `"time"`.
    name: str
    # 1 where it says that the answer written first is preferred, 0 where the other is, `UNKNOWN`
    #   where it says nothing. No released answer is used to make them.
    guesses: Integer[np.ndarray, " n"]
    # Which recipe, which column; JSON-like, no data.
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def speaks(self) -> Bool[np.ndarray, " n"]:
        """Return where it says something."""
        return np.asarray(self.guesses != UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one attack found, before it is known how many were tried."""

    attack: str  # name of the attack
    p_value: float  # chance of evidence as strong as this if the claim holds; 1 says nothing
    if_refutes: str  # one sentence for the case that it refutes
    if_clear: str  # one sentence for the case that it does not
    recovered: float | None = None  # share of labels that it reads out, if it reads any
    details: Mapping[str, object] = field(default_factory=dict)  # more numbers, JSON-like; no data
    # From a confidence to a lower bound on ε, for an attack that shows one where it refutes.
    bound: Callable[[float], float] | None = None


def decide(evidence: Sequence[Evidence], level: float) -> list[Finding]:
    """Return every attack with its verdict, in the order given."""
    # Source: Holm 1979: sorted p-values, the i-th of m against level/(m − i + 1), until one fails.
    order = sorted(range(len(evidence)), key=lambda index: evidence[index].p_value)
    refuting: set[int] = set()
    for rank, index in enumerate(order):
        if evidence[index].p_value > level / (len(evidence) - rank):
            break
        refuting.add(index)
    return [
        Finding(
            attack=each.attack,
            outcome="refutes" if index in refuting else "clear",
            summary=each.if_refutes if index in refuting else each.if_clear,
            recovered=each.recovered,
            p_value=each.p_value,
            details=each.details,
        )
        for index, each in enumerate(evidence)
    ]


def at_least(successes: int, n: int, chance: float) -> float:
    """Return the probability that n trials of one chance succeed at least this often."""
    return 1.0 if successes <= 0 else float(betainc(successes, n - successes + 1, chance))


def at_most(successes: int, n: int, chance: float) -> float:
    """Return the probability that n trials of one chance succeed at most this often."""
    return at_least(n - successes, n, 1 - chance)


def mixed_at_least(successes: int, n: int, mean: float) -> float:
    """A bound on the probability of so many successes, whatever the chances of each trial."""
    # Source: Hoeffding 1956, Theorem 4: from one above the expected number on, equal chances make
    # the tail heaviest. Below that the bound is 1.
    return at_least(successes, n, mean) if successes >= n * mean + 1 else 1.0


def agreement_of_coins(epsilon: float) -> float:
    """Return how often two independent coins agree at most on the labels of two persons."""
    # It is a² + (1 − a)² with a = e^ε/(1 + e^ε), attained if both labels are the same.
    kept = math.tanh(epsilon / 2)
    return (1 + kept * kept) / 2
