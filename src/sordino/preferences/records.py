"""One comparison, read from a mapping into a form that does not depend on the label.

Whatever the file calls its columns, a record ends as (prompt, first, second, outcome, person),
where ``first`` and ``second`` are ordered by a hash of their text. The outcome says which is
preferred, if any, and is the only part of a raw record that is private. A record may hold the
labels of several people. A thumb or a rating of one answer is a comparison with an absent one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, cast

import numpy as np

from sordino import _validate
from sordino.errors import DataError, UsageError
from sordino.privacy.guarantee import CODES, MOST_LEVELS, SHARES, UNDECIDED

LABELS: Final = "labels"  # the field of a record that holds one label for each of several people

WANTED: Final = (  # what a label may say, for messages
    '0 or 1 (1: \'first\' is preferred), or "tie", "both bad", "both good" or "skip"; '
    'write "skip" where nobody decided'
)

_NUMBERS: Mapping[Any, int] = {0: 0, 1: 1, 0.5: UNDECIDED}
_WORDS: Mapping[str, int] = {
    **dict.fromkeys(("1", "1.0", "first"), 1),
    **dict.fromkeys(("0", "0.0", "second"), 0),
    **dict.fromkeys(("0.5", "tie", "tie (bothbad)", "skip"), UNDECIDED),
    **dict.fromkeys(("both bad", "both_bad", "bothbad"), UNDECIDED),
    **dict.fromkeys(("both good", "both_good", "bothgood"), UNDECIDED),
}
_THUMBS: Mapping[Any, int] = {
    **dict.fromkeys((True, 1, "1", "1.0", "true", "yes", "up", "thumbs up", "like", "liked"), 1),
    **dict.fromkeys((False, 0, -1, "0", "0.0", "-1", "false", "no", "down", "thumbs down"), 0),
    **dict.fromkeys(("good", "👍"), 1),
    **dict.fromkeys(("dislike", "disliked", "bad", "👎"), 0),
    **dict.fromkeys((0.5, "0.5", "skip"), UNDECIDED),
}
_THUMB = 'true or false (also 1 and 0, or "up" and "down"), or "skip" where nobody decided'
_OTHERS = ("label", "answer", "chosen", "rejected")
_QUESTION = ("prompt", "first", "second", "completion", "family", "first_name", "second_name")


def label_value(value: object) -> int | None:
    """Return 1, 0 or 2 (undecided) for what a raw label says, or None if it says nothing."""
    if isinstance(value, str):
        return _WORDS.get(" ".join(value.lower().split()))
    plain = isinstance(value, Real) and not isinstance(value, bool)
    return _NUMBERS.get(value) if plain else None


def turned(outcome: Any, *, swap: Any) -> Any:
    """Return outcomes after their answers were swapped: undecided stays undecided."""
    found = np.where(swap, _TURNED[outcome], outcome).astype(np.int8)
    return found if found.ndim else int(found)


_TURNED: Final = np.array([CODES[1 - share] for share in SHARES], dtype=np.int8)


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a list, and no text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def looks_like_steps(side: object) -> bool:
    """Return whether a side is a trajectory: steps of numbers, or states and actions."""
    if isinstance(side, Mapping):
        return {"states", "actions"} <= side.keys()
    step = side[0] if is_list(side) and side else None
    return is_list(step) and bool(step) and isinstance(step[0], Real)


Text: TypeAlias = str | list[dict[str, Any]]
"""A text, or a list of chat messages with ``role`` and ``content``."""


@dataclass(frozen=True, slots=True)
class Absent:
    """What a single answer is held against: no text, and what people of a family expect."""

    family: str = ""  # of prompts; public


Alternative: TypeAlias = Text | Absent


class Names(NamedTuple):
    """Whose answers met, beside their texts, and in which public group of prompts."""

    first: str
    second: str  # nothing where a single answer was judged
    group: str = ""

    def turned(self, *, swap: bool) -> Names:
        """Return the same of two answers that were swapped, or not."""
        return Names(self.second, self.first, self.group) if swap else self


@dataclass(frozen=True, slots=True)
class Levels:
    """The whole numbers that a rating may be: declared, and never taken from the ratings."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.high - self.low < MOST_LEVELS:
            raise UsageError(
                f"levels must be from 2 to {MOST_LEVELS} whole numbers, got {self}. Nothing was "
                "read."
            )

    @classmethod
    def of(cls, value: object) -> Levels:
        """Return levels that are written ``"1..5"``, or given as ``(1, 5)``."""
        if isinstance(value, Levels):
            return value
        with suppress(TypeError, ValueError):
            low, high = cast("Any", value.split("..") if isinstance(value, str) else value)
            return cls(int(low), int(high))
        raise UsageError(
            f"levels must be the lowest and the highest rating, such as 1..5, got {value!r}. "
            "Nothing was read."
        )

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    @property
    def parts(self) -> int:
        """Return the least number of which every rating, and half of all, is a whole share."""
        steps = self.high - self.low
        return steps if steps % 2 == 0 else 2 * steps

    def code(self, rating: Any) -> int | None:
        """Return the code of a rating, or None if it is no level."""
        if isinstance(rating, str) and rating.strip().lower() == "skip":
            return UNDECIDED
        level = math.nan
        if not isinstance(rating, bool) and isinstance(rating, (str, Real)):
            with suppress(ValueError, OverflowError):
                level = float(rating)
        if not (self.low <= level <= self.high and level.is_integer()):
            return None
        return CODES[Fraction(int(level) - self.low, self.high - self.low)]


_TEXT_OR_MESSAGES = "a text, or a list of messages with a 'role' and a 'content' text each"
PERSON = "person"  # name of the field that may be left out; one that the user named may not
_TURN = "\n\nAssistant:"
FIELDS = (  # what a record may hold besides who gave it
    *("prompt", "chosen", "rejected", "first", "second", "completion"),
    *("label", LABELS, "rating", "answer", "levels", "family", "first_name", "second_name"),
)
JUDGING_FIELDS = (*FIELDS, "ranking", "ranks", "candidates", "items", "offered")
"""What a record of any kind may hold besides who gave it."""


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """One comparison in canonical order."""

    # `second` is absent where a single answer was judged. `outcome` is 1 if `first` is preferred, 0
    # if `second` is, and `UNDECIDED` if a raw label says neither, or the code of a level: the raw
    # label of a raw record, the randomized answer of a privatized one. `key` identifies the
    # question (prompt and unordered pair of answers), not the outcome; `where` says where it stood,
    # for messages; `cut` says that the prompt is what both answers began with, and `shared` that
    # the record it was read from has others like it, or that two were put together.

    prompt: Text
    first: Text
    second: Alternative
    outcome: int
    privatized: bool
    person: str | None
    key: bytes
    where: str
    cut: bool = False
    levels: Levels | None = None  # of a rating
    asked: tuple[bytes, ...] = ()  # other keys by which a ledger knows what was asked
    names: Names | None = None  # of whose answers they are, if it is said
    shared: bool = False

    @property
    def named(self) -> bool:
        """Return whether it is said whose answers they are."""
        return self.names is not None

    @property
    def alone(self) -> bool:
        """Return whether a single answer was judged."""
        return isinstance(self.second, Absent)

    @property
    def identical(self) -> bool:
        """Return whether both answers are the same, so that nothing can be preferred."""
        if isinstance(self.first, str) or isinstance(self.second, str | Absent):
            return self.first == self.second
        return encoded(self.first) == encoded(self.second)

    @property
    def empty(self) -> bool:
        """Return whether an answer says nothing; alike in both, whichever is preferred."""
        # nothing is expected of an answer that is absent
        sides = [side for side in (self.first, self.second) if not isinstance(side, Absent)]
        return not all(any(part.strip() for part in _said(side)) for side in sides)

    @property
    def size(self) -> int:
        """Return the number of characters of its texts, about what it takes in memory."""
        texts = (self.prompt, self.first, self.second)
        return sum(len(part) for text in texts for part in _said(text))


def family_of(text: object) -> str:
    """Return the public group of a prompt, which stands for the answer that is absent."""
    return text.family if isinstance(text, Absent) else ""


def told_beside(text: object, names: Names | None) -> str:
    """Return what is public of a record beside its question and person, or nothing."""
    return family_of(text) if names is None else json.dumps(["names", family_of(text), *names])


def _said(text: Alternative) -> list[str]:
    if isinstance(text, Absent):
        return []
    return [text] if isinstance(text, str) else [turn["content"] for turn in text]


def framed(part: bytes) -> bytes:
    """Return bytes with their length in front, so that no two lists of parts look alike."""
    return len(part).to_bytes(8, "big") + part


def encoded(text: Text) -> bytes:
    """Return a text as bytes; raises UnicodeEncodeError for a lone surrogate."""
    if isinstance(text, str):
        return b"s" + text.encode()
    plain = json.dumps(text, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return b"m" + plain.encode()


def canonical(prompt: Text, one: Text, other: Alternative) -> tuple[bool, bytes]:
    """Return whether two answers must be swapped, and the key of their question."""
    # Of a single answer it is that of a ballot of one: no family is in it, so that one label has
    # one coin.
    # The order is by SHA-256 of the length-prefixed prompt and answer. It is fixed before any label
    # is looked at, and is the same on every machine.
    # Source: docs/local.md, "Order".
    given = (one,) if isinstance(other, Absent) else (one, other)
    order, key = candidate_order(prompt, given)
    return order[0] == 1, key


def candidate_order(prompt: Text, candidates: Sequence[Text]) -> tuple[list[int], bytes]:
    """Return the canonical order of a ballot's candidates, and the key of its question."""
    # The order is by SHA-256 of the length-prefixed prompt and candidate; of two candidates it is
    # that of `canonical`, and so is the key.
    # Source: docs/rankings.md, "Order of candidates".
    start = hashlib.sha256(framed(encoded(prompt)))
    digests = []
    for candidate in candidates:
        whole = start.copy()
        whole.update(framed(encoded(candidate)))
        digests.append(whole.digest())
    order = sorted(range(len(digests)), key=digests.__getitem__)
    return order, hashlib.sha256(b"".join(digests[index] for index in order)).digest()


def person_key(person: str) -> bytes:
    """Return a fixed-length key for a public person id."""
    return hashlib.sha256(framed(person.encode())).digest()


def parse_records(
    row: object, where: str, *, person_field: str = "person", levels: Levels | None = None
) -> Iterator[Record]:
    """Yield one record for every label of a row: one, or as many as its ``labels`` hold."""
    if not isinstance(row, Mapping) or not {LABELS, f"{person_field}s"} & row.keys():
        yield _parse_record(row, where, person_field=person_field, levels=levels)
        return
    # How many labels there are, and who gave them, is public.
    people = f"{person_field}s"
    if LABELS not in row:
        raise DataError(f"{where}: field {people!r} is for records with {LABELS!r}, a list.")
    others = [name for name in _OTHERS if name in row]
    if row.get(person_field) is not None:
        others.append(person_field)
    if others:
        raise DataError(
            f"{where}: fields {LABELS!r} and {' and '.join(map(repr, others))} exclude each other: "
            f"{LABELS!r} is one judgment for each of several people, who are named in {people!r}."
        )
    labels, persons = row[LABELS], row.get(people)
    if not is_list(labels) or not labels:
        raise DataError(f"{where}: field {LABELS!r} must be a list of at least one label.")
    if persons is not None and (not is_list(persons) or len(persons) != len(labels)):
        raise DataError(f"{where}: field {people!r} must be a list of one id for each label.")
    question = {name: row[name] for name in _QUESTION if name in row}
    for index, label in enumerate(labels):
        person = {} if people not in row else {person_field: persons and persons[index]}
        one = {**question, "label": label, **person}
        made = _parse_record(one, f"{where}, label {index + 1}", person_field=person_field)
        yield replace(made, shared=True) if len(labels) > 1 else made


def _parse_record(
    row: object, where: str, *, person_field: str = "person", levels: Levels | None = None
) -> Record:
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object with named fields.")
    if (own := row.get("levels")) is not None:
        said: Levels | None = None
        with suppress(UsageError):  # which would quote it
            said = Levels.of(own)
        if said is None or levels not in (None, said):
            raise DataError(
                f"{where}: field 'levels' must be the lowest and the highest rating, such as 1..5, "
                "as they were declared, if they were."
            )
        levels = said
    names = names_of(row, where)
    if names is not None and not {"first", "chosen", "completion"} & row.keys():
        # No texts: the names stand for them, and what was asked may be a number.
        about = "" if row.get("prompt") is None else row["prompt"]
        about = str(about) if isinstance(about, Integral) else about
        row = {**row, "prompt": about, "first": names.first, "second": names.second}
    privatized, prompt, one, other, outcome = _sides(row, where, levels)
    person = person_of(row, where, person_field)
    try:
        swap, key = canonical(prompt, one, other)
    except (UnicodeEncodeError, TypeError, ValueError):
        swap, key = False, b""
    if not key:
        raise DataError(f"{where}: a text is not valid Unicode.")
    first, second = (other, one) if swap and not isinstance(other, Absent) else (one, other)
    outcome = turned(outcome, swap=swap)
    names = names and names.turned(swap=swap and not isinstance(other, Absent))
    rated = levels if "rating" in row or (privatized and own is not None) else None
    asked = () if rated is None else (key,)
    key, cut = rated_key(key, str(rated or "")), "prompt" not in row
    return Record(
        prompt, first, second, outcome, privatized, person, key, where, cut, rated, asked, names
    )


def named_fields(names: Names | None) -> dict[str, str]:
    """Return the fields that say whose answers met."""
    said = zip(("first_name", "second_name", "family"), names or (), strict=False)
    return {name: value for name, value in said if value}


def names_of(row: Mapping[str, Any], where: str) -> Names | None:
    """Return whose answers a record holds, if both are named, or the only one is."""
    named = [name for name in ("first_name", "second_name") if row.get(name) is not None]
    if len(named) < (1 if "completion" in row else 2):
        return None
    said = [_validate.person_id(f"{where}: field {name!r}", row[name]) for name in named]
    group = row.get("family")
    group = str(group) if isinstance(group, Integral) else group  # also true and false
    if group is not None and not isinstance(group, str):
        raise DataError(f"{where}: field 'family' must be a text: a public group of prompts.")
    return Names(said[0], said[1] if said[1:] else "", (group or "").strip())


def rated_key(key: bytes, levels: str) -> bytes:
    """Return the key of a question that asks for a rating: a thumb is another judgment."""
    return hashlib.sha256(key + levels.encode()).digest() if levels else key


def paired_ratings(records: Iterable[Record]) -> Iterator[Record]:
    """Yield disjoint pairs of the rated answers to one prompt, each rating in one of them."""
    # Of one person, where persons are named. Which answers are put together the order of their
    # keys says, which reads no rating; one that is left over is left out, whatever it was rated.
    groups: dict[tuple[bytes, str | None], list[Record]] = {}
    for record in records:
        if record.levels is None or not record.alone:
            raise DataError(
                f"{record.where}: pairs are made of ratings of single answers, and this is none. "
                "Leave ratings='pairs' (--ratings) out."
            )
        groups.setdefault((encoded(record.prompt), record.person), []).append(record)
    if all(len(group) == 1 for group in groups.values()):
        raise DataError(
            "No prompt has two rated answers (of one person, where persons are named), so there "
            "is nothing to compare. Take each rating by itself: leave ratings='pairs' (--ratings) "
            "out."
        )
    for group in groups.values():
        group.sort(key=lambda record: record.key)
        for one, other in zip(group[::2], group[1::2], strict=False):
            swap, key = canonical(one.prompt, one.first, other.first)
            first, second = (other, one) if swap else (one, other)
            gap = SHARES[first.outcome] - SHARES[second.outcome]
            outcome = UNDECIDED if gap == 0 else int(gap > 0)
            asked = one.asked + other.asked  # by them a ledger knows that these are their ratings
            names = first.names and second.names and first.names._replace(second=second.names.first)
            made = replace(first, second=second.first, outcome=outcome, key=key, names=names)
            yield replace(made, levels=None, asked=asked, shared=True)


def refuse_person_field(name: str, fields: Sequence[str] = FIELDS) -> None:
    """Refuse a field as person id that says what was judged, or how."""
    if name in fields:
        raise UsageError(
            f"The person field must not be {name!r}: person ids are published. Nothing was read."
        )


def _sides(
    row: Mapping[str, Any], where: str, levels: Levels | None
) -> tuple[bool, Text, Text, Alternative, int]:
    """Return whether the record is privatized, its texts as given, and its outcome."""
    outcomes = [name for name in ("label", "rating", "answer") if name in row]
    ranked = [name for name in ("chosen", "rejected") if name in row]
    alone = "completion" in row
    others = [name for name in ("completion", "first", "second", *ranked) if alone and name in row]
    if len(outcomes) > 1 or (outcomes and ranked) or len(others) > 1:
        named = dict.fromkeys(outcomes + ranked if len(others) < 2 else others)  # noqa: PLR2004
        raise DataError(
            f"{where}: fields {' and '.join(map(repr, named))} exclude each other: 'label', "
            "'rating' and 'chosen'/'rejected' are raw judgments, 'answer' is a randomized one, and "
            "'completion' is an answer that was judged by itself."
        )
    if outcomes:
        (said,) = outcomes
        privatized = said == "answer"
        if privatized:  # as it was published, without anything left to cut
            read_text(row, "prompt", where)
        question: tuple[Text, Text, Alternative]
        if alone:
            answer = read_text(row, "completion", where)
            prompt, family = read_text(row, "prompt", where), row.get("family")
            if not (family is None or isinstance(family, str)):
                raise DataError(
                    f"{where}: field 'family' must be a text: a public group of prompts."
                )
            question = prompt, answer, Absent(family or "")
        else:
            question = question_of(row, "first", "second", where)
        return privatized, *question, _outcome(row[said], said, where, levels, alone=alone)
    if not ranked and (alone or ("first" in row and "second" in row)):
        raise DataError(
            f"{where}: field 'label' (or 'answer') is missing. A label must be "
            f"{_THUMB if alone else WANTED}."
        )
    return False, *question_of(row, "chosen", "rejected", where), 1


def _outcome(value: Any, said: str, where: str, levels: Levels | None, *, alone: bool) -> int:
    """Return what a label, a rating or a randomized answer says."""
    # A message does not say what stood there instead.
    if said == "answer":
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if whole and int(value) in (0, 1):
            return int(value)
        meant = "the answer is liked" if alone else "'first' is preferred"
        raise DataError(f"{where}: field 'answer' must be 0 or 1 (1: {meant}).")
    if said == "rating":
        if levels is None:
            raise DataError(
                f"{where}: which levels a rating may have must be declared, and is never taken "
                "from the ratings. Nothing was read. Give the lowest and the highest: "
                "levels='1..5' (--levels 1..5)."
            )
        outcome, wanted = levels.code(value), f'a whole number in {levels}, or "skip"'
    elif alone:
        word = " ".join(value.lower().split()) if isinstance(value, str) else value
        plain = isinstance(word, (str, Real))
        outcome, wanted = _THUMBS.get(word) if plain else None, _THUMB
    else:
        outcome, wanted = label_value(value), WANTED
    if outcome is None:
        raise DataError(f"{where}: field {said!r} must be {wanted}.")
    return outcome


def question_of(
    row: Mapping[str, Any], one: str, other: str, where: str
) -> tuple[Text, Text, Text]:
    """Return prompt and answers in the order of two fields, which must be of one kind."""
    # An error names both fields: which of two answers is malformed tells which was chosen.
    if one not in row or other not in row:
        raise DataError(f"{where}: fields {one!r} and {other!r} are both needed; one is missing.")
    first, second = _as_text(row[one]), _as_text(row[other])
    alike = isinstance(first, str) == isinstance(second, str)
    if first is None or second is None or first == [] or second == [] or not alike:
        walks = looks_like_steps(row[one]) and looks_like_steps(row[other])
        way = (
            " They look like trajectories. Nothing was read. Learn from them with sordino align; "
            "sordino inspect shows how."
        )
        raise DataError(
            f"{where}: fields {one!r} and {other!r} must both be {_TEXT_OR_MESSAGES}."
            + (way if walks else "")
        )
    if "prompt" in row:
        return read_text(row, "prompt", where), first, second
    cut = _shared(first, second)
    return first[:cut], first[cut:], second[cut:]


def read_text(row: Mapping[str, Any], name: str, where: str) -> Text:
    """Return one field as a text or as a list of messages."""
    if name not in row:
        raise DataError(f"{where}: field {name!r} is missing.")
    text = _as_text(row[name])
    if text is None or (text == [] and name != "prompt"):
        raise DataError(f"{where}: field {name!r} must be {_TEXT_OR_MESSAGES}.")
    return text


def _as_text(value: object) -> Text | None:
    """Return a text, or messages of role and content alone, or None if it is neither."""
    # Other fields of a message, and the order of its fields, go nowhere: they may differ between
    # the chosen and the rejected answer.
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        return None
    messages = [
        {"role": message.get("role"), "content": message.get("content")}
        for message in value
        if isinstance(message, Mapping)
    ]
    texts = (part for message in messages for part in message.values())
    if len(messages) < len(value) or not all(isinstance(part, str) for part in texts):
        return None
    return messages


def messages_of(text: Text, role: str) -> list[dict[str, Any]]:
    """Return chat messages: a text is one turn of somebody in that role."""
    return [{"role": role, "content": text}] if isinstance(text, str) else list(text)


def alike(prompts: Sequence[Text], *answers: Sequence[Text]) -> list[Sequence[Text]]:
    """Return columns of texts as trl takes them: all of them chat messages if any is."""
    columns = [prompts, *answers]
    if all(isinstance(text, str) for column in columns for text in column):
        return columns
    roles = ("user", *["assistant"] * len(answers))
    chats: list[Sequence[Text]] = [
        [messages_of(text, role) for text in column]
        for column, role in zip(columns, roles, strict=True)
    ]
    if [] in chats[0]:
        raise DataError(
            f"prompt of pair {chats[0].index([])} has no message, and trl needs one. Nothing was "
            "made. Leave such pairs out."
        )
    return chats


def person_of(row: object, where: str, person_field: str) -> str | None:
    """Return the public person id of a record of named fields, or None if there is none."""
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object with named fields.")
    if person_field != PERSON and person_field not in row:
        raise DataError(
            f"{where}: the person field {person_field!r} is missing. Is it spelled as in the file? "
            "sordino inspect shows the columns."
        )
    value = row.get(person_field)
    return None if value is None else _validate.person_id(f"{where}: field {person_field!r}", value)


def refuse_some_named(person: str | None, first: str | None, where: str) -> None:
    """Refuse a record that names a person where the first does not, and the reverse."""
    if (person is None) != (first is None):
        raise DataError(f"{where}: a person id is given for some records and not for others.")


def _shared(one: Text, other: Text) -> int:
    """Return how much of both sides is their prompt."""
    # Messages share whole messages; transcripts share up to their last common "Assistant:" turn;
    # other texts share up to a common space. The rule is symmetric in the two sides.
    if isinstance(one, str) and isinstance(other, str):
        common = os.path.commonprefix([one, other])  # noqa: RUF071 (by character is meant)
        turn = common.rfind(_TURN)
        return turn + len(_TURN) if turn >= 0 else max(common.rfind(" "), common.rfind("\n")) + 1
    cut, most = 0, min(len(one), len(other)) - 1
    while cut < most and one[cut] == other[cut]:
        cut += 1
    return cut
