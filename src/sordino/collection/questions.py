"""The public questions of a study: a prompt and two answers each, in canonical order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sordino.errors import DataError
from sordino.preferences.files import read_mappings
from sordino.preferences.records import FIELDS, Text, canonical, read_text

__all__ = ["Question", "digest_of_questions", "read_questions"]

_JUDGMENTS: Final = (*(set(FIELDS) - {"prompt", "first", "second"}), "person", "persons")
_MOST: Final = 20_000  # questions of a study
_LONGEST: Final = 50_000  # characters of one question: a page has to show it


@dataclass(frozen=True, slots=True)
class Question:
    """One public question; ``first`` and ``second`` are in canonical order.

    Attributes:
        id: 32 hexadecimal digits that the texts decide; the same whichever answer is named first.
        prompt: What the two answers answer.
        first: The answer whose preference is written as 1.
        second: The other one.
    """

    id: str
    prompt: Text
    first: Text
    second: Text

    def to_dict(self) -> dict[str, Any]:
        """Return the question as the page is told it."""
        return {
            "id": self.id,
            "prompt": self.prompt,
            "first": self.first,
            "second": self.second,
        }


def read_questions(path: Path) -> tuple[Question, ...]:
    """Return the questions of a JSON Lines file, in its order.

    Each line is an object with ``prompt``, ``first`` and ``second``: texts, or lists of messages
    with ``role`` and ``content``. Which answer is named first changes nothing.

    Raises:
        DataError: A line is none, holds a judgment, has two equal answers, repeats an earlier
            question or is too long; the line is named.
        FileSystemError: The file cannot be read.
    """
    found: dict[str, str] = {}
    questions = []
    for where, row in read_mappings(path):
        question = _question(row, where)
        if question.id in found:
            raise DataError(f"{where}: this question stands in {found[question.id]} already.")
        if len(found) == _MOST:
            raise DataError(f"{where}: a study has at most {_MOST} questions.")
        found[question.id] = where
        questions.append(question)
    return tuple(questions)


def _question(row: Mapping[str, Any], where: str) -> Question:
    """Return one question in canonical order."""
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
    return Question(key.hex()[:32], prompt, first, second)


def _size(text: Text) -> int:
    """Return how many characters a text or a list of messages has."""
    return len(text) if isinstance(text, str) else sum(len(turn["content"]) for turn in text)


def digest_of_questions(questions: tuple[Question, ...]) -> str:
    """Return one SHA-256 for public questions in their order."""
    return hashlib.sha256("\n".join(question.id for question in questions).encode()).hexdigest()
