"""A study: what is asked, how private each answer is, and how much one person may give.

It is a TOML file that a person can read. What bears on the promise is frozen when the first
invitation is made: a study that was changed afterwards is refused.

The public questions of a study: a prompt and one answer, two, or a few, in canonical order.

Last, the files and words of the page, read once, with one digest by which anybody can compare them.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast, get_args
from urllib.parse import urlsplit

from sordino import _validate
from sordino._files import explained, write_text
from sordino._random import moment, new_release_id
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.mechanisms.randomized_response import KaryRandomizedResponse, RandomizedResponse
from sordino.preferences.files import read_rows
from sordino.preferences.records import (
    Levels,
    Text,
    candidate_order,
    is_list,
    names_of,
    rated_key,
    read_text,
)
from sordino.privacy.guarantee import (
    ADAPTIVE_QUESTIONS,
    DEVICE_PERSONS,
    REPLACE_ONE,
    Guarantee,
    Unit,
    never_more,
    weak_caveats,
)
from sordino.privacy.ledger_chain import digest_of_json

_JUDGMENTS: Final = (
    "chosen",
    "rejected",
    "label",
    "labels",
    "rating",
    "answer",
    "ranking",
    "ranks",
)
_MOST: Final = 20_000  # questions of a study
_LONGEST: Final = 50_000  # characters of one question: a page has to show it
AHEAD: Final = 3
"""How many questions a person has in hand where they are chosen one by one: nobody waits."""

_MOST_CANDIDATES: Final = 10  # so that an answer is one digit, whichever it is

Ask = Literal["pair", "thumb", "rating", "choice", "ranking"]
"""What a question asks for: which of two is better, whether one is good, how good it is, the best
of a few, or their order, of which only the first place is randomized and leaves the device."""

_ANSWERS: Final = {
    "pair": ("first", "second"),
    **dict.fromkeys(("thumb", "rating"), ("completion",)),
    **dict.fromkeys(("choice", "ranking"), ("candidates",)),
}
"""The fields in which the answers of a question stand."""


@dataclass(frozen=True, slots=True)
class Question:
    """One public question; ``answers`` are in canonical order."""

    id: str  # 32 hexadecimal digits that the texts decide; the same in whatever order they came
    prompt: Text  # what the answers answer
    # One of a thumb or a rating; two of a pair, of which a preference for the first is written as
    # 1; a few of a choice or a ranking, of which the best is written as its place, from 0.
    answers: tuple[Text, ...]
    ask: Ask = "pair"
    # Whose answers they are, in the same order: beside answers that are exported, not on the page.
    names: tuple[str, ...] | None = None
    family: str = ""  # a public group of prompts, exported likewise

    @property
    def outcomes(self) -> int:
        """Return how many answers there are to tell apart: a bit, but for a choice."""
        return len(self.answers) if self.ask in {"choice", "ranking"} else 2

    def to_dict(self) -> dict[str, Any]:
        """Return the question as the page is told it."""
        return {"id": self.id, "ask": self.ask, "prompt": self.prompt, "answers": self.answers}


def make_question(row: Mapping[str, Any], where: str, levels: Levels | None = None) -> Question:
    """Return the question of one row, whose fields say what it asks for."""
    ask = _asked(row, where, levels)
    prompt, (given, names) = read_text(row, "prompt", where), _answers_of(row, ask, where)
    if len({isinstance(text, str) for text in given}) > 1:
        raise DataError(f"{where}: the answers must all be texts, or all messages.")
    if sum(map(_size, (prompt, *given))) > _LONGEST:
        raise DataError(f"{where}: a question has at most {_LONGEST} characters.")
    if any(text == other for at, text in enumerate(given) for other in given[:at]):
        raise DataError(f"{where}: two answers are the same, so neither can be preferred.")
    try:
        order, key = candidate_order(prompt, given)
    except UnicodeEncodeError:
        order, key = [], b""
    if not key:
        raise DataError(f"{where}: a text is not valid Unicode.")
    return Question(
        rated_key(key, str(levels) if ask == "rating" else "").hex()[:32],
        prompt,
        tuple(given[at] for at in order),
        ask,
        names and tuple(names[at] for at in order),
        str(row.get("family") or "").strip(),
    )


def sent_question(value: object, levels: Levels | None = None) -> Question:
    """Return a question as a page sends it: under its own name, and in canonical order."""
    has = value if isinstance(value, Mapping) else {}
    ask, answers = has.get("ask"), has.get("answers")
    fields = _ANSWERS.get(ask, ()) if isinstance(ask, str) else ()
    question = None
    if (
        fields not in {(), ("candidates",)}
        and isinstance(answers, list)
        and len(answers) == len(fields)
    ):
        row = {"ask": ask, "prompt": has.get("prompt"), **dict(zip(fields, answers, strict=True))}
        question = make_question(row, "the question", levels)
    if question is None or question.to_dict() | {"answers": list(question.answers)} != value:
        raise DataError("This is no question that goes by its own name.")
    return question


def _asked(row: Mapping[str, Any], where: str, levels: Levels | None) -> Ask:
    """Return what a row asks for, by its fields; refuse one that says what was answered."""
    judged = [name for name in (*_JUDGMENTS, "person", "persons") if name in row]
    if judged:
        raise DataError(
            f"{where}: field {judged[0]!r} is no part of a question. A study asks anew: give "
            "'prompt' with 'first' and 'second', with 'completion', or with 'candidates', in an "
            "order that no judgment decided."
        )
    named = next((name for name in ("candidates", "completion") if name in row), "first")
    usual = {"candidates": "choice", "completion": "rating" if levels else "thumb", "first": "pair"}
    ask = row.get("ask", usual[named])
    if not isinstance(ask, str) or _ANSWERS.get(ask, ("",))[0] != named:
        raise DataError(
            f"{where}: field 'ask' must be one of {', '.join(get_args(Ask))}, and fit the answers: "
            "'first' and 'second' of a pair, 'completion' of a thumb or a rating, 'candidates' of "
            "a choice or a ranking."
        )
    if ask == "rating" and levels is None:
        raise DataError(f'{where}: a rating needs levels in the study, such as levels = "1..5".')
    return cast("Ask", ask)


def _answers_of(
    row: Mapping[str, Any], ask: str, where: str
) -> tuple[list[Text], tuple[str, ...] | None]:
    """Return the answers of a question as they stand there, and whose they are if that is said."""
    if (fields := _ANSWERS[ask]) != ("candidates",):
        named = names_of(row, where)
        names = named and (named.first, named.second)[: len(fields)]
        return [read_text(row, name, where) for name in fields], names
    given, names = row["candidates"], row.get("names")
    if not is_list(given) or not 2 <= len(given) <= _MOST_CANDIDATES:  # noqa: PLR2004
        raise DataError(f"{where}: 'candidates' must be a list of 2 to {_MOST_CANDIDATES} answers.")
    if names is not None:
        if not is_list(names) or len(names) != len(given):
            raise DataError(f"{where}: 'names' must be a list with one name for each candidate.")
        names = tuple(_validate.person_id(f"{where}: field 'names'", name) for name in names)
    return [read_text({"candidates": text}, "candidates", where) for text in given], names


def _read_questions(path: Path, levels: Levels | None = None) -> tuple[Question, ...]:
    # Each line is an object. A text is a text, or a list of messages with `role` and `content`.
    # Which answer is named first changes nothing.
    found: dict[str, str] = {}
    questions: list[Question] = []
    for where, row in read_rows(path):
        for one in _pairs_of(row, where):
            question = make_question(one, where, levels)
            if question.id in found:
                raise DataError(f"{where}: this question stands in {found[question.id]} already.")
            if len(found) == _MOST:
                raise DataError(f"{where}: a study has at most {_MOST} questions.")
            found[question.id] = where
            questions.append(question)
    return tuple(questions)


def _pairs_of(row: Mapping[str, Any], where: str) -> Iterator[Mapping[str, Any]]:
    """Yield a row, or every pair of its candidates where it asks for pairs."""
    if row.get("ask") != "pair" or "candidates" not in row:
        yield row
        return
    given, names = _answers_of(row, "choice", where)
    rest = {name: value for name, value in row.items() if name not in {"candidates", "names"}}
    for (i, one), (j, other) in combinations(enumerate(given), 2):
        named = {"first_name": names[i], "second_name": names[j]} if names else {}
        yield rest | {"first": one, "second": other} | named


def _size(text: Text) -> int:
    return len(text) if isinstance(text, str) else sum(len(turn["content"]) for turn in text)


Choose = Literal["fewest", "uncertain", "optimistic"]

_Changes = Literal["refused", "paid"]
"""What happens to a person who changed their mind: nothing, or a new release that is paid for."""

DATABASE_VARIABLE: Final = "SORDINO_DATABASE"
"""Where a database URL with a password is given, so that it stands in no file."""

_LONGEST_TITLE: Final = 300
_LONGEST_CODE: Final = 100
_LONGEST_ADDRESS: Final = 2_000
_FROZEN: Final = (
    *("id", "epsilon", "cap", "accept_weak", "ties", "skips", "changes", "choose", "tick_seconds"),
    *("project", "project_epsilon", "open"),
)
_ORIGIN: Final = re.compile(
    r"(https://([a-z0-9-]+\.)*[a-z0-9-]+|http://([a-z0-9-]+\.)*localhost|http://127\.0\.0\.1)"
    r"(:[0-9]{1,5})?\Z"
)
FEEDBACK: Final = "feedback"
"""What a study says in place of a file of questions that nobody knows before they are asked."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """The settings of a study and its questions."""

    id: str  # 16 hexadecimal digits that no other study has
    title: str  # what people see at the top of the page
    epsilon: float  # bound on the privacy loss of one label
    cap: int  # the most labels that one person gives, changes of mind included
    accept_weak: bool = False  # whether a promise that protects next to nobody is made, and said
    ties: bool = True  # whether "both are equally good" is a choice; it is a label like any other
    skips: bool = False  # whether "I would rather not say" is one; it is the same label as a tie
    levels: Levels | None = None  # of ratings: the lowest and the highest
    # How the next question is chosen: the one that fewest people were asked; of two names whose
    # difference is known least; or by the optimistic rule, from randomized answers.
    choose: Choose = "fewest"
    changes: _Changes = "refused"  # whether a changed mind is refused, or paid for as a new release
    tick_seconds: int = 15  # the page sends what is waiting once in so many seconds
    markdown: bool = True  # whether texts are read as Markdown, or shown as they are
    # A device spends at most so much in all studies of one project at one address: it keeps count.
    project: str | None = None
    project_epsilon: float | None = None
    minimum: int = 0  # fewer answers are not exported unless that is asked for
    completion_code: str | None = None  # what a panel is shown by whoever has sent all answers
    return_url: str | None = None  # where whoever has sent all answers may go
    open: bool = False  # whether one link is for any number of devices, each of them a person
    most_persons: int = 10_000  # of an open study; others join no more
    embedded_in: tuple[
        str, ...
    ] = ()  # origins of pages that may show the widget; closed by default
    feedback: bool = False  # whether questions come with their answers, from the page around
    # Codes of languages that come with sordino, or paths of files like theirs.
    languages: tuple[str, ...] = ("en", "de", "es", "fr")
    database: str  # an SQLite file beside the study, or the URL of a PostgreSQL database
    questions: tuple[Question, ...] = field(repr=False)  # what is asked
    folder: Path  # where the study lies; paths in it start there

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", RandomizedResponse(self.epsilon).epsilon)
        _validate.release_id("id", self.id)
        _validate.integer("cap", self.cap, at_least=1, at_most=100_000)
        _validate.integer("tick_seconds", self.tick_seconds, at_least=1, at_most=3600)
        _validate.one_of("changes", self.changes, get_args(_Changes))
        _validate.one_of("choose", self.choose, get_args(Choose))
        other = self.feedback or any(question.ask != "pair" for question in self.questions)
        if self.chooses and other:
            raise UsageError(
                f'choose = "{self.choose}" is for pairs; other questions are asked too.'
            )
        if self.choose == "uncertain" and not all(question.names for question in self.questions):
            raise UsageError(
                'choose = "uncertain" compares names: every question needs first_name and '
                "second_name, or names beside its candidates."
            )
        object.__setattr__(self, "levels", None if self.levels is None else Levels.of(self.levels))
        sizes = {one.outcomes for one in self.questions if one.ask in {"choice", "ranking"}}
        if len(sizes) > 1:
            raise UsageError(
                "All choices and rankings of a study must have as many candidates: there is one "
                f"die for them all. Here are some with {' and '.join(map(str, sorted(sizes)))}."
            )
        _validate.integer("most_persons", self.most_persons, at_least=1, at_most=1_000_000)
        for name in ("ties", "skips", "accept_weak", "markdown", "open"):
            _validate.one_of(name, getattr(self, name), (True, False))
        _validate.integer("minimum", self.minimum, at_least=0)
        self._check_panel()
        for name in ("title", "database"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise UsageError(f"{name} must be a text that is not empty.")
        if not all(isinstance(name, str) for name in self.languages) or not self.languages:
            raise UsageError("languages must be a list of at least one code or file.")
        if len(self.title) > _LONGEST_TITLE:
            raise UsageError(f"title must have at most {_LONGEST_TITLE} characters.")
        if self.questions or self.feedback:
            self.guarantee("person")  # refuses one that is too weak; a label's is never weaker
            self._check_project()

    def _check_panel(self) -> None:
        """Refuse what a panel, or a page around the widget, could not use: codes and addresses."""
        if not all(isinstance(one, str) and _ORIGIN.match(one) for one in self.embedded_in):
            # What is no origin would stand in a header that says who may show the widget.
            raise UsageError(
                "embedded_in must be a list of origins such as https://chat.example.org: scheme "
                "and host in small letters, a port if it is not the usual one, and no path. Plain "
                "http is for localhost."
            )
        code, address = self.completion_code, self.return_url
        if code is not None and not (isinstance(code, str) and 0 < len(code) <= _LONGEST_CODE):
            raise UsageError(f"completion_code must be a text of 1 to {_LONGEST_CODE} characters.")
        if address is None:
            return
        try:
            parts = urlsplit(address)
            known = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
        except (ValueError, AttributeError):
            known = False
        if not known or len(address) > _LONGEST_ADDRESS or not address.isprintable():
            raise UsageError("return_url must be an address that begins with https://.")

    def _check_project(self) -> None:
        """Refuse a study that alone may cost a device more than its project allows."""
        name, most = self.project, self.project_epsilon
        if (name is None) != (most is None):
            raise UsageError("project and project_epsilon need each other: a name, and a bound.")
        if name is None or most is None:
            return
        if not isinstance(name, str) or not 0 < len(name.strip()) <= _LONGEST_CODE:
            raise UsageError(f"project must be a name of 1 to {_LONGEST_CODE} characters.")
        _validate.positive("project_epsilon", most)
        # In decimals, as people write and as the page counts: 3 times 0.1 is 0.3.
        cost = self.most_labels * Decimal(repr(float(self.epsilon)))
        if cost > Decimal(repr(float(most))):
            raise UsageError(
                f"One invitation may cost epsilon={cost} ({self.most_labels} answers), over "
                f"project_epsilon={most}. Lower epsilon or cap."
            )

    @cached_property
    def by_id(self) -> Mapping[str, Question]:
        """Return every question by its id."""
        return {question.id: question for question in self.questions}

    @property
    def coin(self) -> RandomizedResponse:
        """Return what the page answers pairs, thumbs and ratings with, on each person's device."""
        return RandomizedResponse(self.epsilon)

    @property
    def die(self) -> KaryRandomizedResponse | None:
        """Return what it answers choices and rankings with; None where there are none."""
        sides = [one.outcomes for one in self.questions if one.ask in {"choice", "ranking"}]
        return KaryRandomizedResponse(self.epsilon, sides[0]) if sides else None

    @property
    def mechanisms(self) -> tuple[RandomizedResponse | KaryRandomizedResponse, ...]:
        """Return the coin, and the die if there is one."""
        return (self.coin,) if self.die is None else (self.coin, self.die)

    @property
    def most_questions(self) -> int:
        """Return how many questions one person is asked."""
        return self.cap if self.feedback else min(self.cap, len(self.questions))

    @property
    def chooses(self) -> bool:
        """Return whether questions are chosen while people answer."""
        return self.choose != "fewest"

    @property
    def most_labels(self) -> int:
        """Return how many labels one person can give: the cap, or fewer if there is less to ask."""
        return self.cap if self.changes == "paid" else self.most_questions

    def guarantee(self, unit: Unit) -> Guarantee:
        """Return what the answers of this study promise.

        Guarantee:
            Pure ε for a label, and :attr:`most_labels` times as much for a person, ``REPLACE_ONE``,
            trust ``"local"``: a label is randomized before it leaves the device, and the page and
            the service both refuse more labels. Shown by tests/soundness/test_collection.py.
        """
        if unit == "label" and self.changes == "paid":
            raise UsageError(
                "This study lets people change their mind for another epsilon, so its promise is "
                "about a person. Nothing was written. Use unit 'person'."
            )
        # Coin and die keep epsilon on 64-bit words, and a person may answer whatever loses more.
        labels = self.most_labels if unit == "person" else None
        terms: dict[str, Any] = {"neighbors": REPLACE_ONE, "trust": "local", "labels": labels}
        kept = [one.guarantee(unit=unit, **terms) for one in self.mechanisms]
        promise = max(kept, key=lambda one: one.epsilon)
        ways = "a smaller epsilon or cap, as all answers of one invitation count together"
        weak = weak_caveats([promise.epsilon], accepted=self.accept_weak, ways=ways)
        chosen = (ADAPTIVE_QUESTIONS,) if self.choose == "optimistic" else ()
        total = () if unit == "person" else ("person-total",)
        devices = (DEVICE_PERSONS,) if self.open else ()
        return promise.with_caveats(*weak, *total, *chosen, *devices)

    @cached_property
    def terms(self) -> dict[str, Any]:
        """Return what is frozen: everything that the promise depends on."""
        frozen = {name: getattr(self, name) for name in _FROZEN}
        ids = "\n".join(f"{question.ask} {question.id}" for question in self.questions)
        die = self.die
        return frozen | {
            "threshold": str(self.coin.threshold),
            "levels": self.levels and str(self.levels),
            "die": die and {"categories": die.categories, "threshold": str(die.threshold)},
            "questions": FEEDBACK if self.feedback else sha256(ids.encode()).hexdigest(),
        }

    def told(self, expires: int) -> dict[str, Any]:
        """Return what a page is told of this study, before anybody answers anything."""
        return self._told | {"expires": moment(expires)}

    @cached_property
    def _told(self) -> dict[str, Any]:
        """Return what every page is told: to account for a person takes long, once is enough."""
        names = ("id", "title", "epsilon", "ties", "skips", "changes", "choose", "tick_seconds")
        return {name: getattr(self, name) for name in names} | {
            "markdown": self.markdown,
            "feedback": self.feedback,
            "open": self.open,
            "cap": self.most_labels,
            "asks": self.most_questions,
            "threshold": self.terms["threshold"],
            "die": self.terms["die"],
            "levels": self.levels and [self.levels.low, self.levels.high],
            "project": self.project and {"name": self.project, "epsilon": self.project_epsilon},
            "caveats": list(self.guarantee("person").caveats),
        }

    @property
    def digest(self) -> str:
        """Return one SHA-256 for all that is frozen."""
        return digest_of_json(self.terms)

    @property
    def database_url(self) -> str:
        """Return where answers are stored: what the environment says, or what the study does."""
        wanted = os.environ.get(DATABASE_VARIABLE) or self.database
        if "://" not in wanted:
            return f"sqlite:///{(self.folder / wanted).absolute()}"
        if wanted.startswith(("postgresql://", "postgres://")):
            return "postgresql+psycopg://" + wanted.partition("://")[2]
        return wanted


def read_study(path: Path) -> Study:
    """Return the study that a TOML file describes, with its questions."""
    with explained(f"{path.name} cannot be read"):
        raw = path.read_bytes()
    try:
        values = tomllib.loads(raw.decode())
    except (ValueError, RecursionError):
        values = {}
    if not values:
        raise DataError(f"{path.name} is no study: it is not a TOML file with settings.")
    named = _settings(values, path.name)
    feedback = named["questions"] == FEEDBACK
    questions = path.parent / named.pop("questions")
    problem = ""
    try:
        levels = None if named.get("levels") is None else Levels.of(named["levels"])
        asked = () if feedback else _read_questions(questions, levels)
        return Study(**named, questions=asked, feedback=feedback, folder=path.parent)
    except DataError as error:
        problem = f"{questions.name}, {error}"
    except UsageError as error:
        problem = f"{path.name}: {error}".replace("say --accept-weak", "write accept_weak = true")
    raise DataError(problem)


def _settings(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the settings of a file, of which none is missing and none is unknown."""
    known = Study.__dataclass_fields__.keys() - {"folder", "feedback"}
    needed = {"id", "title", "epsilon", "cap", "database", "questions"}
    if missing := sorted(needed - values.keys()):
        raise DataError(f"{name} lacks the setting {missing[0]!r}.")
    if not values.keys() <= known:
        raise DataError(
            f"{name} has a setting that no study has. Known are {', '.join(sorted(known))}."
        )
    settings = dict(values)
    if not isinstance(settings["questions"], str) or not settings["questions"]:
        raise DataError(f"{name}: questions must be the name of a file.")
    for key, what in (("languages", "codes or files"), ("embedded_in", "origins")):
        if not isinstance(settings.get(key, []), list):
            raise DataError(f"{name}: {key} must be a list of {what}.")
        if key in settings:
            settings[key] = tuple(settings[key])
    return settings


def new_study(  # noqa: PLR0913 (each is one choice of the user)
    path: Path,
    *,
    title: str,
    questions: Path,
    epsilon: float,
    cap: int,
    accept_weak: bool = False,
    levels: Levels | None = None,
    open: bool = False,  # noqa: A002 (the setting's name)
    force: bool = False,
) -> Study:
    """Write a study file that can be edited, and return the study."""
    feedback = questions == Path(FEEDBACK)
    study = Study(
        id=new_release_id(),
        title=title,
        epsilon=epsilon,
        cap=cap,
        accept_weak=accept_weak,
        database=f"{path.stem}.db",
        questions=() if feedback else _read_questions(questions, levels),
        levels=levels,
        open=open,
        feedback=feedback,
        folder=path.parent,
    )
    file = os.path.relpath(questions.absolute(), path.parent.absolute())
    file = FEEDBACK if feedback else file
    names = Study.__dataclass_fields__.keys() - {"folder", "questions", "levels", "feedback"}
    values = {name: _toml(getattr(study, name)) for name in names}
    flips = never_more(100 * study.coin.flip_probability, 2)
    scale = 'levels = "{}"' if levels else '# levels = "1..5"'
    shown = values | {"questions": _toml(file), "flips": flips, "levels": scale.format(levels)}
    template = (files("sordino.collection") / "study.toml.template").read_text("utf-8")
    write_text(path, template.format(**shown), force=force)
    return study


def _toml(value: object) -> str:
    """Return a value as TOML writes it; its basic strings are JSON's, but for one character."""
    if isinstance(value, tuple) and all(isinstance(part, str) for part in value):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value).replace("\x7f", "\\u007f")


_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",  # licences
}
_DIGEST: Final = b"__PAGE__"  # written in place of it: the page's own digest, so that caches end
_FIRST: Final = "en"
_PLACE: Final = re.compile(r"\{\w+\}", re.ASCII)  # as the page fills them in
_HALF: Final = re.compile("[\ud800-\udfff]")  # no character, and nothing that can be sent


class Page(NamedTuple):
    """All files of the page by name, and one SHA-256 for all of them as they lie here."""

    files: Mapping[str, tuple[bytes, str]]  # what is sent: bytes and their Content-Type
    # Of names and contents, words in all languages included; it depends on a study only if that
    # brings words of its own.
    digest: str


def _folder() -> Traversable:
    return files("sordino.collection") / "page"


def read_page(languages: Iterable[Mapping[str, Any]] = ()) -> Page:
    """Return the files of the page."""
    found = {
        f"{inside}{entry.name}": entry.read_bytes()
        for inside in ("", "vendor/")
        for entry in (_folder() / inside).iterdir()
        if entry.is_file() and Path(entry.name).suffix in _KINDS
    }
    packaged = {  # the languages that come with sordino
        f"languages/{entry.name}": entry.read_bytes()
        for entry in (_folder() / "languages").iterdir()
        if entry.name.endswith(".json")
    }
    known = {_digest_of_words(json.loads(raw)) for raw in packaged.values()}
    own = sorted({_digest_of_words(words) for words in languages} - known)
    whole = sorted((found | packaged).items())
    lines = [f"{name} {sha256(raw).hexdigest()}\n" for name, raw in whole]
    lines += [f"own {one}\n" for one in own]
    digest = sha256("".join(lines).encode()).hexdigest()
    sent = {
        name: (raw.replace(_DIGEST, digest.encode()), _KINDS[Path(name).suffix])
        for name, raw in found.items()
    }
    return Page(sent, digest)


def _digest_of_words(language: Mapping[str, Any]) -> str:
    """Return a SHA-256 of one language that does not depend on how its file is laid out."""
    return digest_of_json({name: language[name] for name in ("code", "name", "texts")})


def read_languages(study: Study) -> list[dict[str, Any]]:
    """Return the texts of the page in each language of a study, the first one first."""
    # A language is the code of one that comes with sordino, or a JSON file like theirs beside the
    # study: `code`, `name` and `texts` with every key. A text must have the same `{places}` as the
    # English one: numbers that people decide by are filled in there.
    folder = _folder() / "languages"
    wanted = json.loads((folder / f"{_FIRST}.json").read_text("utf-8"))["texts"]
    found = []
    for name in study.languages:
        packaged = folder / f"{name}.json"
        inside = name.isalpha() and packaged.is_file()
        value: object = None
        try:
            value = json.loads((packaged if inside else study.folder / name).read_text("utf-8"))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            problem = f"The language file {name!r} cannot be read ({reason})."
            raise FileSystemError(problem) from None
        except (ValueError, RecursionError):
            pass  # it holds no object
        told = value if isinstance(value, dict) else {}
        texts = told.get("texts")
        if not isinstance(texts, dict) or not told.keys() >= {"code", "name"}:
            raise DataError(f"The language file {name!r} must hold 'code', 'name' and 'texts'.")
        other = sorted(texts.keys() ^ wanted.keys())
        words = [told["code"], told["name"], *texts.values()]
        if other or not all(isinstance(w, str) and w and not _HALF.search(w) for w in words):
            what = "missing" if other and other[0] in wanted else "unknown"
            key = f" ({other[0]!r} is {what})" if other else ""
            raise DataError(f"The language file {name!r} must give every text of the page{key}.")
        for key, text in texts.items():
            places = set(_PLACE.findall(wanted[key]))
            if set(_PLACE.findall(text)) != places:
                needed = ", ".join(sorted(places)) or "none"
                raise DataError(
                    f"The language file {name!r} must have the same places in braces as the "
                    f"English texts: in {key!r} {needed}."
                )
        found.append({"code": told["code"], "name": told["name"], "texts": texts})
    return found
