"""A study: what is asked, how private each answer is, and how much one person may give.

It is a TOML file that a person can read. What bears on the promise is frozen when the first
invitation is made: a study that was changed afterwards is refused.

The public questions of a study: a prompt and two answers each, in canonical order.

Last, the files and words of the page, read once, with one digest by which anybody can compare them.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from sordino import _validate
from sordino._files import explained, write_text
from sordino._random import new_release_id
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.files import read_rows
from sordino.preferences.records import FIELDS, Names, Text, canonical, names_of, read_text
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee, Unit, never_more, weak_caveats
from sordino.privacy.ledger_chain import digest_of_json

_JUDGMENTS: Final = (
    *(set(FIELDS) - {"prompt", "first", "second", "first_name", "second_name"}),
    "person",
    "persons",
)
_MOST: Final = 20_000  # questions of a study
_LONGEST: Final = 50_000  # characters of one question: a page has to show it


@dataclass(frozen=True, slots=True)
class Question:
    """One public question; ``first`` and ``second`` are in canonical order."""

    id: str  # 32 hexadecimal digits that the texts decide; the same whichever answer is named first
    prompt: Text  # what the two answers answer
    first: Text  # the answer whose preference is written as 1
    second: Text  # the other one
    names: Names | None = None  # whose answers they are: beside answers that are exported, not here

    def to_dict(self) -> dict[str, Any]:
        """Return the question as the page is told it."""
        return {"id": self.id, "prompt": self.prompt, "first": self.first, "second": self.second}


def _read_questions(path: Path) -> tuple[Question, ...]:
    # Each line is an object with `prompt`, `first` and `second`: texts, or lists of messages with
    # `role` and `content`. Which answer is named first changes nothing.
    found: dict[str, str] = {}
    questions = []
    for where, row in read_rows(path):
        judged = sorted(name for name in _JUDGMENTS if name in row)
        if judged:
            raise DataError(
                f"{where}: field {judged[0]!r} is no part of a question. A study asks anew: give "
                "'prompt', 'first' and 'second' only, in an order that no judgment decided."
            )
        prompt, one, other = (read_text(row, name, where) for name in ("prompt", "first", "second"))
        if isinstance(one, str) != isinstance(other, str):
            raise DataError(f"{where}: 'first' and 'second' must both be texts, or both messages.")
        if sum(map(_size, (prompt, one, other))) > _LONGEST:
            raise DataError(f"{where}: a question has at most {_LONGEST} characters.")
        if one == other:
            raise DataError(f"{where}: both answers are the same, so nothing can be preferred.")
        try:
            swap, key = canonical(prompt, one, other)
        except UnicodeEncodeError:
            swap, key = False, b""
        if not key:
            raise DataError(f"{where}: a text is not valid Unicode.")
        first, second = (other, one) if swap else (one, other)
        names = names_of(row, where)
        question = Question(
            key.hex()[:32], prompt, first, second, names and names.turned(swap=swap)
        )
        if question.id in found:
            raise DataError(f"{where}: this question stands in {found[question.id]} already.")
        if len(found) == _MOST:
            raise DataError(f"{where}: a study has at most {_MOST} questions.")
        found[question.id] = where
        questions.append(question)
    return tuple(questions)


def _size(text: Text) -> int:
    return len(text) if isinstance(text, str) else sum(len(turn["content"]) for turn in text)


_Changes = Literal["refused", "paid"]
"""What happens to a person who changed their mind: nothing, or a new release that is paid for."""

DATABASE_VARIABLE: Final = "SORDINO_DATABASE"
"""Where a database URL with a password is given, so that it stands in no file."""

_LONGEST_TITLE: Final = 300
_FROZEN: Final = ("id", "epsilon", "cap", "accept_weak", "ties", "skips", "changes", "tick_seconds")


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
    changes: _Changes = "refused"  # whether a changed mind is refused, or paid for as a new release
    tick_seconds: int = 15  # the page sends what is waiting once in so many seconds
    # Codes of languages that come with sordino, or paths of files like theirs.
    languages: tuple[str, ...] = ("en", "de")
    database: str  # an SQLite file beside the study, or the URL of a PostgreSQL database
    questions: tuple[Question, ...] = field(repr=False)  # what is asked
    folder: Path  # where the study lies; paths in it start there

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", RandomizedResponse(self.epsilon).epsilon)
        _validate.release_id("id", self.id)
        _validate.integer("cap", self.cap, at_least=1, at_most=100_000)
        _validate.integer("tick_seconds", self.tick_seconds, at_least=1, at_most=3600)
        _validate.one_of("changes", self.changes, get_args(_Changes))
        for name in ("ties", "skips", "accept_weak"):
            _validate.one_of(name, getattr(self, name), (True, False))
        for name in ("title", "database"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise UsageError(f"{name} must be a text that is not empty.")
        if not all(isinstance(name, str) for name in self.languages) or not self.languages:
            raise UsageError("languages must be a list of at least one code or file.")
        if len(self.title) > _LONGEST_TITLE:
            raise UsageError(f"title must have at most {_LONGEST_TITLE} characters.")
        if self.questions:
            self.guarantee("person")  # refuses one that is too weak; a label's is never weaker

    @property
    def coin(self) -> RandomizedResponse:
        """Return what the page answers with, on the device of each person."""
        return RandomizedResponse(self.epsilon)

    @property
    def most_questions(self) -> int:
        """Return how many questions one person is asked."""
        return min(self.cap, len(self.questions))

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
        labels = self.most_labels if unit == "person" else None
        promise = self.coin.guarantee(
            unit=unit, neighbors=REPLACE_ONE, trust="local", labels=labels
        )
        ways = "a smaller epsilon or cap, as all answers of one invitation count together"
        weak = weak_caveats([promise.epsilon], accepted=self.accept_weak, ways=ways)
        return promise.with_caveats(*weak, *(() if unit == "person" else ("person-total",)))

    @property
    def terms(self) -> dict[str, Any]:
        """Return what is frozen: everything that the promise depends on."""
        values = asdict(self)
        frozen = {name: values[name] for name in _FROZEN}
        ids = "\n".join(question.id for question in self.questions)
        return frozen | {
            "threshold": str(self.coin.threshold),
            "questions": sha256(ids.encode()).hexdigest(),
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
    questions = path.parent / named.pop("questions")
    problem = ""
    try:
        return Study(**named, questions=_read_questions(questions), folder=path.parent)
    except DataError as error:
        problem = f"{questions.name}, {error}"
    except UsageError as error:
        problem = f"{path.name}: {error}".replace("say --accept-weak", "write accept_weak = true")
    raise DataError(problem)


def _settings(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the settings of a file, of which none is missing and none is unknown."""
    known = Study.__dataclass_fields__.keys() - {"folder"}
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
    if "languages" in settings:
        if not isinstance(settings["languages"], list):
            raise DataError(f"{name}: languages must be a list of codes or files.")
        settings["languages"] = tuple(settings["languages"])
    return settings


_TEMPLATE: Final = """\
# A study of sordino: people compare two answers, and each choice is randomized on their own device.
# What bears on the promise (epsilon, cap, accept_weak, ties, skips, changes, tick_seconds,
# questions) is frozen with the first invitation. The title and the languages may change later.

id = {id}
title = {title}
questions = {questions}  # JSON Lines: prompt, first, second

epsilon = {epsilon}  # privacy loss of one label: about {flips}% of the answers are flipped
cap = {cap}  # the most labels per invitation, protected with cap times epsilon together
accept_weak = {accept_weak}  # go on where that is above 20; page and exports then say so

ties = {ties}  # may people say that both are equally good?
skips = {skips}  # may people say that they would rather not say?
changes = {changes}  # "paid": a changed mind is a new answer and costs another epsilon

tick_seconds = {tick_seconds}  # the page sends only once in so many seconds: times tell little
languages = {languages}  # en and de are here; a file of your own is a path
database = {database}  # or postgresql://..., which is better said in SORDINO_DATABASE
"""


def new_study(
    path: Path,
    *,
    title: str,
    questions: Path,
    epsilon: float,
    cap: int,
    accept_weak: bool = False,
    force: bool = False,
) -> Study:
    """Write a study file that can be edited, and return the study."""
    study = Study(
        id=new_release_id(),
        title=title,
        epsilon=epsilon,
        cap=cap,
        accept_weak=accept_weak,
        database=f"{path.stem}.db",
        questions=_read_questions(questions),
        folder=path.parent,
    )
    file = os.path.relpath(questions.absolute(), path.parent.absolute())
    values = {name: _toml(value) for name, value in asdict(study).items() if name != "folder"}
    flips = never_more(100 * study.coin.flip_probability, 2)
    shown = values | {"questions": _toml(file), "flips": flips}
    write_text(path, _TEMPLATE.format(**shown), force=force)
    return study


def _toml(value: object) -> str:
    """Return a value as TOML writes it; its basic strings are JSON's, but for one character."""
    if isinstance(value, tuple) and all(isinstance(part, str) for part in value):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value).replace("\x7f", "\\u007f")


_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
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
        entry.name: entry.read_bytes()
        for entry in _folder().iterdir()
        if entry.is_file() and Path(entry.name).suffix in _KINDS
    }
    packaged = {  # the languages that come with sordino
        f"languages/{entry.name}": entry.read_bytes()
        for entry in (_folder() / "languages").iterdir()
        if entry.name.endswith(".json")
    }
    known = {_digest_of_words(json.loads(raw)) for raw in packaged.values()}
    own = sorted({_digest_of_words(words) for words in languages} - known)
    lines = [
        *(
            f"{name} {sha256(raw).hexdigest()}\n"
            for name, raw in sorted((found | packaged).items())
        ),
        *(f"own {one}\n" for one in own),
    ]
    digest = sha256("".join(lines).encode()).hexdigest()
    sent = {
        name: (raw.replace(_DIGEST, digest.encode()), _KINDS[Path(name).suffix])
        for name, raw in found.items()
    }
    return Page(sent, digest)


def _digest_of_words(language: Mapping[str, Any]) -> str:
    """Return a SHA-256 of one language that does not depend on how its file is laid out."""
    words = {name: language[name] for name in ("code", "name", "texts")}
    return digest_of_json(words)


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
