"""What the columns of other people's files mean: decided once, by their names, never by a label.

A schema turns a row into one of our own fields: ``prompt``, with ``first``, ``second`` and
``label``, or ``chosen`` and ``rejected`` (pairs); ``candidates`` and ``ranks`` (rankings);
``completion`` and ``label`` (thumbs) or ``rating`` (ratings). A battle has ``first_name`` and
``second_name``, with texts or without. Nothing else knows another name.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any, Final

from sordino._markup import harmless
from sordino.errors import DataError, UsageError

from .records import FIELDS, JUDGING_FIELDS, LABELS, PERSON, is_list

PAIRS, RANKINGS, THUMBS, RATINGS = "pairs", "rankings", "thumbs", "ratings"
CHOICES: Final = "randomized choices"
"""First places of rankings, or choices of one of a few: a file that a die has answered."""
TRAJECTORIES: Final = "trajectories"
"""Pairs, by their columns, whose sides look like steps."""
COMPARED: Final = (PAIRS, THUMBS, RATINGS)
"""What is read as comparisons: of two answers, or of one with an absent one."""

_UNDECIDED: Final = 0.5
_SAID: Final = (
    "'model_a' or 'model_b', 'A' or 'B', 'left' or 'right', 'response_1' or 'response_2', 'tie', "
    "'both bad', 'both good', 'neither' or 'skip'"
)


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What some columns mean; paths go into objects (``info.post``), and know others (``|``)."""

    name: str  # of the schema, in words
    kind: str = PAIRS
    needs: tuple[str, ...] = ()  # the columns that must be there
    fields: tuple[tuple[str, str], ...] = ()  # (our field, path); none: rows are ours already
    label: tuple[str, ...] = ()  # a rule, and the paths that it looks at
    each: tuple[str, ...] = ()  # lists of which every element is a judgment of its own
    only: str = ""  # a list of one other model; a row that names none or several is no battle
    judges: str = ""  # the field of such an element that says whose it is
    levels: tuple[int, int] | None = None  # of ratings, where the schema says them
    persons: str | None = PERSON  # the column that says who judged; None: nobody is looked for
    person_field: str = PERSON  # what it is called in a row of ours

    @property
    def columns(self) -> tuple[str, ...]:
        """Return every column that is read."""
        persons = [self.persons] if self.persons else []
        paths = [path for _, path in self.fields]
        paths += [*self.label[1:], *self.each, *self.needs, *persons]
        names = (one for path in paths for one in path.split("|") if not one.startswith("="))
        return tuple(dict.fromkeys(part for one in names for part in (one, one.split(".")[0])))

    @property
    def unasked(self) -> bool:
        """Return whether all that is known of a vote is whose answers met."""
        return bool(self.fields) and not {"prompt", *_TEXTS} & {name for name, _ in self.fields}

    def rows(
        self, rows: Iterator[tuple[str, Any]], *, whole: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Yield (place, row) in our own fields; ``whole`` if these are all rows of the input."""
        if self.unasked:
            yield from self._counted(rows, whole=whole)
        elif not self.fields and self.persons == self.person_field:
            yield from rows
        else:
            yield from self._made(rows)

    def _counted(
        self, rows: Iterator[tuple[str, Any]], *, whole: bool
    ) -> Iterator[tuple[str, Any]]:
        """Yield rows whose question is how often their person had these two before."""
        # A person's second vote on two models is no repeat of the first, and nothing else tells
        # them apart. Votes of nobody in particular are of one question: who gave them is not known,
        # which a promise then says.
        seen: Counter[tuple[str, ...]] = Counter()
        for place, row in self._made(rows):
            person = row.get(self.person_field) if isinstance(row, Mapping) else None
            if person is not None and not whole:
                raise DataError(
                    f"{place}: nothing says which question a vote was about, and files that are "
                    "read in pieces must say it where persons are named. Nothing was released. "
                    "Name a column with an id of the question: --columns prompt=COLUMN."
                )
            if person is not None:
                sides = (str(row.get("first_name")), str(row.get("second_name")))
                vote = str(person), *sorted(sides)
                yield place, {**row, "prompt": str(seen[vote])}
                seen[vote] += 1
            else:
                yield place, row

    def _made(self, rows: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        for place, row in rows:
            if not isinstance(row, Mapping):
                yield place, row  # whoever parses it refuses it
            elif not self.fields:
                others = {name: row[name] for name in row if name not in _PEOPLE_OF_OURS}
                yield place, others | self._people(row)
            else:
                for where, one in self._judgments(row, place):
                    yield where, self._row(one, where)

    def rating_among(self, names: Iterable[str]) -> str:
        """Return which column is the rating and which others could be; nothing of other kinds."""
        taken = dict(self.fields).get("rating", "rating") if self.kind == RATINGS else ""
        others = [name for name in ratings_among(names) if name != taken] if taken else []
        if not others:
            return taken
        return f"{taken}; not read: {', '.join(others)} (--columns rating={others[0]})"

    def _judgments(
        self, row: Mapping[str, Any], place: str
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if self.only:  # how many there are does not depend on what was judged
            with suppress(DataError):
                others = _value(row, self.only, place)
                if is_list(others) and len(others) == 1:
                    yield place, {**row, self.only: others[0]}
            return
        if not self.each:
            yield place, row
            return
        # How many there are is public, as the number of labels of a record is.
        lists = [_value(row, name, place) for name in self.each]
        if not all(is_list(one) and len(one) == len(lists[0]) for one in lists):
            raise DataError(f"{place}: {_named(self.each)} must be lists, all as long.")
        for number, parts in enumerate(zip(*lists, strict=True), start=1):
            known = parts[0] if isinstance(parts[0], Mapping) else {}
            named = dict(zip(self.each, parts, strict=True))
            yield f"{place}, part {number}", {**row, **named, **known}

    def _row(self, row: Mapping[str, Any], place: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, path in self.fields:
            make = _FORMS.get(path.partition(":")[0]) if ":" in path else None
            if make is not None:
                made[name] = make(row, path.partition(":")[2].split(","), place)
                continue
            # which of two answers is missing would tell which was chosen
            said = " or ".join(each for one, each in self.fields if one in _RANKED_TEXTS)
            said = said if name in _RANKED_TEXTS else ""
            value = row[path] if path in row else _value(row, path, place, said)
            made[name] = _text(value) if name in _TEXTS else value
        if self.levels is not None:
            made["levels"] = self.levels
        if self.label:
            rule, *paths = self.label
            made["label"] = _RULES[rule](row, paths, place)
        if "prompt" in made and _says_its_prompt(made):
            del made["prompt"]
        return made | self._people(row)

    def _people(self, row: Mapping[str, Any]) -> dict[str, Any]:
        ends = [end for end in ("", "s") if self.persons and f"{self.persons}{end}" in row]
        return {f"{self.person_field}{end}": row[f"{self.persons}{end}"] for end in ends}


OWN: Final = Schema(name="our own fields")
_RANKED_TEXTS: Final = ("chosen", "rejected")
_BESIDE: Final = ("first_name", "second_name", "family")
"""What may be said of judgments of any schema: whose answers met, and in which group."""
_TEXTS: Final = ("prompt", "first", "second", *_RANKED_TEXTS, "completion")
_PEOPLE_OF_OURS: Final = (PERSON, f"{PERSON}s")


def _named(names: Collection[str]) -> str:
    return " and ".join(f"column {name!r}" for name in names)


_MISSING: Final = object()


def _value(row: Mapping[str, Any], path: str, place: str, said: str = "") -> Any:
    """Return what stands at the first path of several that is there; `said` is its name if not."""
    for one in path.split("|"):
        if one.startswith("="):  # what is meant where nothing is said
            return one[1:]
        value: Any = row
        for part in (one,) if one in row else one.split("."):
            if isinstance(value, Mapping):
                value = value.get(part, _MISSING)
            elif is_list(value) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                value = _MISSING
        if value is not _MISSING and value is not None:
            return value
    raise DataError(f"{place}: column {said or path.replace('|', ' or ')!r} is missing.")


def _text(value: Any) -> Any:
    """Return a text, or messages of role and content, of what the public schemas write."""
    if isinstance(value, str):
        parsed: Any = None
        if value[:2] in {"[{", '["'} and value.endswith("]"):  # a list in a cell of a table
            with suppress(ValueError, RecursionError):
                parsed = json.loads(value)
        return value if parsed is None else _text(parsed)
    if isinstance(value, Mapping):
        names = (name for name in ("content", "value", "text", "full_text") if name in value)
        said = value.get(next(names, ""))
        return said if isinstance(said, str) and "role" not in value else _text([value])
    if not is_list(value):
        return value
    if value and all(isinstance(one, str) or one is None for one in value):
        return value[0] if len(value) == 1 else "\n\n".join(one or "" for one in value)
    return [_message(one) if isinstance(one, Mapping) else one for one in value]


_ROLES: Final = {"human": "user", "prompter": "user", "gpt": "assistant", "bot": "assistant"}


def _message(one: Mapping[str, Any]) -> dict[str, Any]:
    role = one.get("role", one.get("from"))
    said = next((one[n] for n in ("content", "value", "text") if one.get(n) is not None), None)
    if is_list(said):  # parts of a message, of which texts count
        said = "".join(part.get("text") or "" for part in said if isinstance(part, Mapping))
    return {"role": _ROLES.get(role, role) if isinstance(role, str) else role, "content": said}


def _says_its_prompt(row: Mapping[str, Any]) -> bool:
    """Return whether both answers are conversations that begin with the prompt."""
    # A rule on texts, alike in both: the prompt is then what both begin with.
    given = (row.get(name) for name in ("first", "second", *_RANKED_TEXTS))
    sides = [side for side in given if side is not None]
    said = [
        side[0].get("content") if isinstance(side[0], Mapping) else None
        for side in sides
        if is_list(side) and len(side) > 1
    ]
    return len(said) == len(sides) == 2 and said[0] == said[1] and said[0] is not None  # noqa: PLR2004


# How a prompt or an answer is made of several columns.


def _turns(row: Mapping[str, Any], paths: Sequence[str], place: str) -> Any:
    """Return the messages of turns in two columns, or one text where there is one turn."""
    said = [_value(row, path, place) for path in paths]
    for index, one in enumerate(said):
        with suppress(ValueError, RecursionError, TypeError):
            said[index] = json.loads(one)
    asked, given = ([one] if isinstance(one, str) else one for one in said)
    if not is_list(asked) or not is_list(given) or len(asked) != len(given):
        raise DataError(f"{place}: {_named(paths)} must be lists of texts, both as long.")
    both = zip(asked, given, strict=True)
    return [
        {"role": role, "content": text or ""}
        for turn in both
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]


def _joined(row: Mapping[str, Any], paths: Sequence[str], place: str) -> str:
    """Return texts one below the other, without those that are empty or missing."""
    del place
    return "\n\n".join(str(row[path]) for path in paths if row.get(path))


def _listed(row: Mapping[str, Any], paths: Sequence[str], place: str) -> list[Any]:
    """Return one field of every element of a list."""
    elements = _value(row, paths[0], place)
    return [_text(_value(one, paths[1], place)) for one in elements if isinstance(one, Mapping)]


def _chat(row: Mapping[str, Any], paths: Sequence[str], place: str) -> Any:
    """Return a message of a chat that is kept as a tree, or those above it."""
    known, at = _value(row, paths[0], place), _value(row, paths[1], place)
    path: list[Any] = []
    known = known if isinstance(known, Mapping) else {}
    while isinstance(known.get(at), Mapping) and len(path) < len(known):
        path.append(_message(known[at]))
        at = known[at].get("parentId")
    if not path:
        raise DataError(f"{place}: the message that was rated is not in {paths[0]!r}.")
    return path[0]["content"] if paths[2] == "answer" else path[:0:-1]


def _whole(row: Mapping[str, Any], paths: Sequence[str], place: str) -> list[Any]:
    """Return one field of every element of a list, as the whole numbers that they are."""
    found = _listed(row, paths, place)
    return [int(one) if isinstance(one, float) and one.is_integer() else one for one in found]


_FORMS: Final[Mapping[str, Callable[[Mapping[str, Any], Sequence[str], str], Any]]] = {
    "turns": _turns,
    "joined": _joined,
    "listed": _listed,
    "whole": _whole,
    "chat": _chat,
}


# What a label says. None of these tells in a message what stood there.


def _number(row: Mapping[str, Any], path: str, place: str, wanted: str) -> float:
    value, number = _value(row, path, place), None
    if isinstance(value, (int, float, str)):
        with suppress(ValueError):
            number = float(value)
    if number is None or number != number:  # noqa: PLR0124 (NaN is not itself)
        raise DataError(f"{place}: column {path!r} must be {wanted}.")
    return number


def _one_of(known: Mapping[float, float], wanted: str) -> Callable[..., float]:
    def rule(row: Mapping[str, Any], paths: Sequence[str], place: str) -> float:
        number = _number(row, paths[0], place, wanted)
        if number not in known:
            raise DataError(f"{place}: column {paths[0]!r} must be {wanted}.")
        return known[number]

    return rule


def _winner(row: Mapping[str, Any], paths: Sequence[str], place: str) -> float:
    value = _value(row, paths[0], place)
    value = value.get("selected", value.get("value")) if isinstance(value, Mapping) else value
    words = value if isinstance(value, str) else ""
    words = " ".join(words.lower().replace("_", " ").replace("-", " ").split())
    if words not in _WORDS:
        raise DataError(
            f"{place}: column {paths[0]!r} must say who won: {_SAID}. If it holds 1 where the "
            f"first answer won and 0 where the other did, say so: --columns label={paths[0]}."
        )
    return _WORDS[words]


def _words_or(numbers: Callable[..., float]) -> Callable[..., float]:
    def rule(row: Mapping[str, Any], paths: Sequence[str], place: str) -> float:
        with suppress(DataError):
            return _winner(row, paths, place)
        return numbers(row, paths, place)

    return rule


def _or_name(words: Callable[..., float]) -> Callable[..., float]:
    def rule(row: Mapping[str, Any], paths: Sequence[str], place: str) -> float:
        said, *names = (str(row.get(path, "")).strip() for path in paths)
        plain = [" ".join(name.lower().replace("_", " ").split()) for name in names]
        if [_WORDS.get(name, side) for name, side in zip(plain, (1, 0), strict=True)] != [1, 0]:
            raise DataError(
                f"{place}: a name in {_named(paths[1:])} is also a word that says who won, and "
                f"means another side: {_SAID}. Nothing was read. Give that model another name."
            )
        if said in names:
            return _UNDECIDED if names[0] == names[1] else float(said == names[0])
        return words(row, paths, place)

    return rule


def _below(middle: float, wanted: str) -> Callable[..., float]:
    def rule(row: Mapping[str, Any], paths: Sequence[str], place: str) -> float:
        number = _number(row, paths[0], place, f"a number: {wanted}")
        return _UNDECIDED if number in (0, middle) else float(number < middle)

    return rule


def _greater(row: Mapping[str, Any], paths: Sequence[str], place: str) -> float:
    one, other = (_number(row, path, place, "a number") for path in paths)
    return _UNDECIDED if one == other else float(one > other)


def _only(row: Mapping[str, Any], paths: Sequence[str], place: str) -> float:
    marks = [_number(row, path, place, "0 or 1") for path in paths]
    if sorted(marks) != [0, 0, 1]:
        raise DataError(f"{place}: of {_named(paths)} one must be 1 and the others 0.")
    return (1, 0, _UNDECIDED)[marks.index(1)]


def _named_model(row: Mapping[str, Any], paths: Sequence[str], place: str) -> float:
    chosen, one, other = (row.get(path) for path in paths[:3])
    tie = str(row.get(paths[3])).lower() in {"true", "1", "1.0"}
    if tie or one == other:  # of two of one name nobody can tell which won: a public rule
        return _UNDECIDED
    if chosen not in (one, other):
        raise DataError(f"{place}: column {paths[0]!r} must be one of the two models.")
    return float(chosen == one)


def _thumb(row: Mapping[str, Any], paths: Sequence[str], place: str) -> bool:
    number = _number(row, paths[0], place, "above 0 for a thumb up, or below 0")
    if number == 0:
        raise DataError(f"{place}: column {paths[0]!r} must be above 0, or below 0.")
    return number > 0


_RULES: Final[Mapping[str, Callable[..., Any]]] = {
    "winner": _winner,
    "name or winner": _or_name(_winner),
    "first if 1": _one_of({1: 1, 0: 0, _UNDECIDED: _UNDECIDED}, "1 (the first answer), 0 or 0.5"),
    "number from 1": _below(1.5, "1 where the first answer is better, or 2"),
    "from 1": _words_or(_one_of({1: 1, 2: 0, 1.5: _UNDECIDED}, f"1, 2 or {_SAID}")),
    "from 0": _words_or(_one_of({0: 1, 1: 0, _UNDECIDED: _UNDECIDED}, f"0, 1 or {_SAID}")),
    "name or from 1": _or_name(
        _words_or(_one_of({1: 1, 2: 0, 1.5: _UNDECIDED}, f"1, 2 or {_SAID}"))
    ),
    "sign": _below(0, "below 0 where the first answer is better"),
    "greater": _greater,
    "only": _only,
    "model": _named_model,
    "thumb": _thumb,
    "up or down": lambda row, paths, place: float(_thumb(row, paths, place)),
    "value": lambda row, paths, place: _value(row, paths[0], place),
}
"""How a label is read, by what a schema calls the way."""


def _loaded(**said: Any) -> Schema:
    """Return a public schema; a label is a rule and its columns, with colons between them."""
    known = {name: said.pop(name) for name in [*said] if name in Schema.__dataclass_fields__}
    for name, mark in (("needs", None), ("each", None), ("label", ":")):
        known[name] = tuple(known.get(name, "").split(mark)) if known.get(name) else ()
    known["levels"] = tuple(known["levels"]) if "levels" in known else None
    return Schema(**known, fields=tuple(said.items()))


_TABLE: Final = tomllib.loads(Path(__file__).with_name("schemas.toml").read_text("utf-8"))
_WORDS: Final[Mapping[str, float]] = {  # what a winner may be called
    word: value
    for name, value in (("first", 1), ("second", 0), ("undecided", _UNDECIDED))
    for word in _TABLE["winners"][name].split("|")
}
PUBLIC: Final = tuple(_loaded(**each) for each in _TABLE["schema"])
"""Public schemas: the first whose columns are all there counts."""
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {  # what many call the fields of our own
    name: tuple(words.split()) for name, words in _TABLE["names"].items()
}
_PROMPTS, _WINNERS, _COMPLETIONS = (_NAMES[n] for n in ("prompts", "winners", "completions"))
_NAMED: Final = (  # names of whose answers met, and how whoever gives them so says which was better
    ("first_name", "second_name", "winner"),
    *(
        (f"{word}{gap}{one}{end}", f"{word}{gap}{other}{end}", style)
        for word in _NAMES["named"]
        for end in ("", "_name")
        for gap in ("_", "")
        for one, other, style in (("a", "b", "winner"), ("1", "2", "from 1"))
    ),
)
_RANKED: Final = tuple(tuple(pair.split(":")) for pair in _NAMES["ranked"])
PEOPLE: Final = frozenset(_NAMES["people"])  # what columns are called that say who judged
_SIDES: Final = (  # two answers, and how whoever names them so says which is better
    ("first", "second", "winner"),
    ("left", "right", "winner"),
    ("model_a_response", "model_b_response", "winner"),
    *(
        (f"{word}{gap}{one}", f"{word}{gap}{other}", style)
        for word in _NAMES["sides"]
        for gap in ("_", "")
        for one, other, style in (("a", "b", "winner"), ("1", "2", "from 1"), ("0", "1", "from 0"))
    ),
)
_MAPPED: Final = (*(f for f in JUDGING_FIELDS if f not in {"answer", "items"}), *_NAMES["more"])
"""What `columns` may give a column for, besides the person."""
_JUDGING: Final = frozenset({"label", LABELS, "ranks", *_NAMES["thumbs"], *_NAMES["ratings"]})
_JUDGED: Final = (
    frozenset({path for each in PUBLIC for path in each.label[1:]})
    | {*_WINNERS, *_JUDGING, *JUDGING_FIELDS, *_MAPPED}
) - {"completion", "feedback", "preferred"}
"""What columns are called that mean something of their own: judgments, which must not be read as a
public text, and fields of ours."""


_SHOWN: Final = ("prompt", "family", "completion")
_TELLING: Final = frozenset({"feedback", *(name for pair in _RANKED for name in pair)})
"""What columns are called that tell a judgment where they stand alone, as a text that is shown."""


def parsed_columns(text: str | None) -> dict[str, str]:
    """Return the mapping of ``--columns prompt=question,first=response_a``."""
    found: dict[str, str] = {}
    for part in (text or "").split(",") if text else ():
        field_, mark, name = (word.strip() for word in part.partition("="))
        if not mark or not field_ or not name or field_ in found:
            raise UsageError(
                "--columns must say FIELD=COLUMN for every field once, with commas between them: "
                "--columns prompt=question,first=response_a,second=response_b,winner=winner. "
                "Nothing was read."
            )
        found[field_] = name
    return found


def decide(
    names: Collection[str],
    *,
    columns: Mapping[str, str] | None = None,
    person_field: str | None = PERSON,
    kinds: Collection[str] = (PAIRS, RANKINGS, THUMBS, RATINGS, CHOICES),
    asks: bool = True,
    table: bool = False,
) -> Schema:
    """Return what the columns of one input mean: from their names alone, once."""
    # `asks` refuses a column that looks like a person's id and is not used. In a `table` the names
    # may be a record, if its first line names nothing.
    names = tuple(names)
    columns = _checked(names, columns, person_field, table=table)
    called = person_field or PERSON
    who = columns.pop(PERSON, columns.pop(called, person_field))
    if "difference" in names and not columns:
        return Schema(name="vectors", persons=who, person_field=called)
    schema = _with_names(names, columns, kinds)
    schema = schema and replace(schema, persons=who, person_field=called)
    if schema is None or schema.kind not in kinds:
        rated = ratings_among(names)
        if RATINGS in kinds and len(rated) > 1 and {*map(_plain_name, names)} & {*_COMPLETIONS}:
            raise DataError(
                f"Several columns may be the rating: {', '.join(rated)}. Nothing was read. One "
                f"attribute is judged at a time; say which: --columns rating={rated[0]} (in Python "
                f"columns={{'rating': {rated[0]!r}}})."
            )
        plain = {_plain_name(name) for name in names}
        for pair in _RANKED:  # which of the two is there would tell which answer was chosen
            if schema is None and len(plain & {*pair}) == 1:
                raise DataError(
                    f"columns {' and '.join(map(repr, pair))} are both needed; one is missing. "
                    "Nothing was read."
                )
        raise DataError(_unknown(names, columns, kinds, schema, table=table))
    read = {*schema.label[1:], *(path for _, path in schema.fields), *_JUDGED}
    if who and {who, f"{who}s", _plain_name(who)} & read:
        raise UsageError(
            f"The person field must not be {who!r}, which says what was judged, or how: person ids "
            "are published. Nothing was read."
        )
    people = people_among(names, schema)
    if asks and who == PERSON and people and not {PERSON, f"{PERSON}s"} & {*names}:
        raise UsageError(
            f"Column {people[0]!r} looks like ids of the people who judged, and is not used: a "
            "promise about one label is weaker for somebody who gave many. Nothing was read. "
            f"Say whose judgments they are: --person-field {quote(people[0])} (person_field="
            f"{people[0]!r}); or that it does not matter: --no-persons (person_field=None)."
        )
    return schema


def _checked(
    names: tuple[str, ...], columns: Mapping[str, str] | None, who: str | None, *, table: bool
) -> dict[str, str]:
    """Return a mapping from our fields to columns, after refusing one that cannot be meant."""
    people = {PERSON, f"{PERSON}s"} | ({who, f"{who}s"} if who else set())
    if not isinstance(columns or {}, Mapping) or not set(columns or ()) <= {*_MAPPED, *people}:
        known = ", ".join(dict.fromkeys((*_MAPPED, PERSON)))
        raise UsageError(
            f"columns must be a mapping from our fields ({known}) to columns of the data. Nothing "
            "was read."
        )
    columns = dict(columns or {})
    for name_, column in columns.items():
        if column not in names and column.split(".")[0] not in names:
            close = get_close_matches(column, names, 1, 0.6)
            found = f"Did you mean {close[0]!r}? " if close else ""
            found += f"Found: {_listing(names)}."
            if table and not (_known_names(names) or {*columns.values()} & {*names}):
                found = f"None of its {len(names)} columns has a name that is known. {_UNQUOTED}"
            raise UsageError(
                f"columns: there is no column {column!r} for {name_!r}. Nothing was read. {found}"
            )
        plain = _plain_name(column)
        answer = column == "answer" and not {"first", "second"} <= {*names}
        own = bool({column, plain} & _JUDGED) and not answer
        own |= name_ in _SHOWN and plain in _TELLING
        if column != name_ and own and not {name_, column} <= {*_JUDGING, *_WINNERS}:
            raise UsageError(
                f"columns: {column!r} means something of its own, so it cannot be read as "
                f"{name_!r}: a judgment could be published. Nothing was read. Rename it."
            )
    if len(set(columns.values())) < len(columns):
        raise UsageError("columns must name a different column for every field. Nothing was read.")
    return columns


def _with_names(
    names: tuple[str, ...], columns: Mapping[str, str], kinds: Collection[str]
) -> Schema | None:
    """Return what columns mean, where some that were given stand beside a schema that is known."""
    # Whose answers met, and in which group; or another attribute that was rated on the same scale.
    beside = {name: columns[name] for name in (*_BESIDE, "rating") if name in columns}
    rest = {name: column for name, column in columns.items() if name not in beside}
    found = _found(names, rest, kinds) if beside else None
    if found is None or found.kind not in kinds or ("rating" in beside and not found.levels):
        return _found(names, columns, kinds)
    known = found.fields or tuple((name, name) for name in FIELDS if name in names)
    fields = (*(each for each in known if each[0] not in beside), *beside.items())
    return replace(found, fields=fields)


def _found(
    names: tuple[str, ...], columns: Mapping[str, str], kinds: Collection[str]
) -> Schema | None:
    """Return what columns mean, of a kind that is wanted if that can be, or None."""
    if not columns:
        public = next((each for each in PUBLIC if {*each.needs} <= {*names}), None)
        if public is not None:
            return public
        own = [kind for kind in _own_kinds({*names}) if kind in kinds] or _own_kinds({*names})
        # a prompt under another name is not passed over, nor is one that is misspelled
        asks = [] if "prompt" in names else [n for n in names if _plain_name(n) in _PROMPTS]
        if own and own[0] == PAIRS and "prompt" not in names:
            near = get_close_matches("prompt", [_plain_name(n) for n in names], 1, 0.8)
            if len(asks) > 1 or (near and not asks):
                return None
        if own and not (own[0] == PAIRS and (asks or {"rating", "completion"} & {*names})):
            return replace(OWN, kind=own[0])
        if own:
            ours = ("prompt", "chosen", "rejected", "first", "second", "label", LABELS)
            same = [(name, name) for name in ours if name in names]
            return replace(OWN, kind=PAIRS, fields=(*same, *(("prompt", one) for one in asks)))
    own_fields = {n: n for n in names if n in _MAPPED and n not in columns.values()}
    fields = own_fields | dict(columns) if columns else {}
    known = {_plain_name(name): name for name in reversed(names) if name not in fields.values()}
    prompts = [known[one] for one in _PROMPTS if one in known]
    if "prompt" not in fields and len(prompts) == 1:
        fields["prompt"] = prompts[0]
    made = _pairs_of(fields, known) or _single_of(fields, known)
    if made is None or not ("prompt" in made[1] or columns or "first" not in made[1]):
        return None
    kind, found, label = made
    return Schema(
        name="columns as you said" if columns else "columns by their usual names",
        kind=kind,
        fields=tuple(found.items()),
        label=label,
    )


def _own_kinds(names: set[str]) -> list[str]:
    """Return what may be read of columns that are called as ours are."""
    sides, said = {"first", "second"} <= names, {"label", LABELS, "answer", "rating"} & names
    kinds = [RANKINGS] if {"ranking", "ranks", "items"} & names else []
    kinds += [PAIRS] if {"chosen", "rejected"} <= names or (sides and said) else []
    if "completion" in names:
        kinds += [RATINGS] if "rating" in names else [THUMBS] if said else []
    return kinds or ([CHOICES] if {"candidates", "answer"} <= names else [])


_Made = tuple[str, dict[str, str], tuple[str, ...]]


def _pairs_of(fields: Mapping[str, str], known: Mapping[str, str]) -> _Made | None:
    fields = dict(fields)
    rest = {name: fields.pop(name) for name in ("label", "winner", LABELS) if name in fields}
    if not {"first", "second"} & fields.keys():
        ranked = [] if rest else [pair for pair in _RANKED if {*pair} <= known.keys()]
        if {"chosen", "rejected"} <= fields.keys():
            return PAIRS, fields, ()
        if len(ranked) == 1 and not {"chosen", "rejected"} & fields.keys():
            better, worse = (known[name] for name in ranked[0])
            return PAIRS, fields | {"chosen": better, "rejected": worse}, ()
    sides = _sides_of(fields, known)
    if sides is None:
        return None
    fields, style = sides
    bare = {"first_name", "label"} <= known.keys() and "first" not in fields
    if bare and not rest:  # ours, without texts
        rest = {"label": known["label"]}
    if {"label", LABELS} & rest.keys():
        return PAIRS, fields | {name: rest[name] for name in rest if name != "winner"}, ()
    winners = [known[name] for name in _WINNERS if name in known]
    winner = rest.get("winner") or (winners[0] if len(winners) == 1 else None)
    named = f"name or {style}" in _RULES and {"first_name", "second_name"} <= fields.keys()
    names = (fields["first_name"], fields["second_name"]) if named else ()
    label = f"name or {style}" if named else style
    return None if winner is None else (PAIRS, fields, (label, winner, *names))


def _sides_of(
    fields: dict[str, str], known: Mapping[str, str]
) -> tuple[dict[str, str], str] | None:
    """Return fields with those of both answers, or of who gave them, and how these are called."""
    texts, named = (
        [each for each in usual if {*each[:2]} <= known.keys()] for usual in (_SIDES, _NAMED)
    )
    styles = ["winner"]
    if len(named) == 1 and not {"first_name", "second_name"} & fields.keys():
        fields |= {"first_name": known[named[0][0]], "second_name": known[named[0][1]]}
        fields |= {"family": known["family"]} if "family" in known else {}
        styles = [named[0][2]]
    if {"first", "second"} <= fields.keys():
        return fields, "winner"
    if len(texts) == 1 and not {"first", "second"} & fields.keys():
        return fields | {"first": known[texts[0][0]], "second": known[texts[0][1]]}, texts[0][2]
    if texts or {"first", "second"} & fields.keys():
        return None
    if not {"first_name", "second_name"} <= fields.keys():
        return None
    # No texts: the names stand for them, and a question may be known by a number.
    asked = [known[one] for one in _NAMES["ids"] if one in known]
    return ({"prompt": asked[0]} if asked else {}) | fields, styles[0]


def _single_of(fields: Mapping[str, str], known: Mapping[str, str]) -> _Made | None:
    fields = dict(fields)
    wanted = {"completion": _COMPLETIONS, "rating": _NAMES["ratings"], "label": _NAMES["thumbs"]}
    for name, usual in wanted.items():
        found = [known[one] for one in usual if one in known]
        if name == "rating" and found and "label" not in fields:
            found = ratings_among(known.values())  # no attribute is passed over without a word
        if name not in fields and len(found) == 1 and not (name == "label" and "rating" in fields):
            fields[name] = found[0]
    if "completion" not in fields or not {"rating", "label"} & fields.keys():
        return None
    return (RATINGS if "rating" in fields else THUMBS), fields, ()


_NEEDED: Final = {
    PAIRS: "a prompt and two answers, with which is better (prompt, first, second, label; or "
    "prompt, chosen, rejected), or two names and who won (first_name, second_name, winner)",
    RANKINGS: "a prompt, candidates and their order (prompt, candidates, ranking or ranks); "
    "or two trajectories, lists of steps (first, second, label; or chosen, rejected)",
    THUMBS: "a prompt, an answer and a thumb (prompt, completion, label)",
    RATINGS: "a prompt, an answer and its rating (prompt, completion, rating)",
}


_USUAL: Final = {
    "prompt": _PROMPTS,
    "first": tuple(each[0] for each in _SIDES),
    "second": tuple(each[1] for each in _SIDES),
    "label": _WINNERS,
}


_UNQUOTED: Final = (
    "The first line must name the columns; what stands there is not quoted, for it may be a record."
)

_LIKEWISE: Final = (
    "(likewise chosen and rejected; or first_name, second_name and winner). Users in their order "
    "of arrival: sordino optimize --help. A log of arms and rewards: sordino bandit --help."
)


def _known_names(names: Sequence[str]) -> list[str]:
    """Return the names that tell columns from a record: none of them may be what a record says."""
    every = {*_COMPLETIONS, *_RANKED_TEXTS, *(one for usual in _USUAL.values() for one in usual)}
    plain = map(_plain_name, names)
    return [name for name in plain if name in every and name.replace("_", " ") not in _WORDS]


def _unknown(
    names: tuple[str, ...],
    columns: Mapping[str, str],
    kinds: Collection[str],
    found: Schema | None,
    *,
    table: bool,
) -> str:
    """Return what is said of columns that were not understood."""
    if not names:
        return "The input is empty: no record in it, or the first has no field."
    needed = "; or ".join(_NEEDED[kind] for kind in _NEEDED if kind in kinds)
    if found is not None:
        ways = {RANKINGS: " A reward of rankings: sordino align --noise estimate."}
        ways[CHOICES] = " A reward of them: sordino align. A board: sordino rank."
        return (
            f"These are {found.kind} ({found.name}), and {' or '.join(kinds)} are needed. Nothing "
            f"was read. Found: {_listing(names)}. Needed: {needed}.{ways.get(found.kind, '')}"
        )
    plain = {_plain_name(name): name for name in names}
    if table and not _known_names(names):  # they may be a record
        return (
            f"None of the {len(names)} columns of this table has a name that is known. Nothing was "
            f"read. {_UNQUOTED} Needed: {needed}. Say which is which: --columns {_typed({})} "
            f"{_LIKEWISE}"
        )
    guess: dict[str, str] = {}
    for name, usual in _USUAL.items():
        close = get_close_matches(name, plain, 1, 0.75) or [
            one for one in plain if get_close_matches(one, usual, 1, 0.85)
        ]
        free = [plain[one] for one in close if plain[one] not in guess.values()]
        guess |= {name: free[0]} if free else {}
    guess |= {name: columns[name] for name in columns if name in _USUAL}
    meant = (
        f"Say which is which: --columns {_typed(guess)} (in Python columns=), with a column's name "
        f"for each COLUMN {_LIKEWISE}"
    )
    return (
        f"It is not clear what the columns mean. Nothing was read. Found: {_listing(names)}. "
        f"Needed: {needed}. {meant if PAIRS in kinds else 'Call them so in the file.'}"
    )


def _typed(guess: Mapping[str, str]) -> str:
    return quote(",".join(f"{role}={guess.get(role, 'COLUMN')}" for role in _USUAL))


def _listing(names: Sequence[str]) -> str:
    shown = [name if len(name) <= _LONG else f"{name[:_LONG]}…" for name in names[:_MOST]]
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return harmless(", ".join(shown) + more)


_LONG, _MOST = 40, 30  # characters of a name, and names, that a message holds


def ratings_among(names: Iterable[str]) -> list[str]:
    """Return the columns that look like ratings of an answer, each of another attribute."""
    return [n for n in names if _plain_name(n) in {*_NAMES["ratings"], *_NAMES["attributes"]}]


def people_among(names: Collection[str], schema: Schema | None = None) -> list[str]:
    """Return the columns that look like ids of people, and those of the elements of a column."""
    nested = [schema.judges] if schema and schema.judges else []
    return [n for n in names if _plain_name(n.rpartition(".")[2]) in PEOPLE] + nested


def _plain_name(name: str) -> str:
    return re.sub(r"[\s\-]+", "_", name.strip()).lower()
