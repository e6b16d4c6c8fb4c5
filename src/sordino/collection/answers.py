"""Randomized answers into the database, and out of it as a file with its manifest beside it.

What the page sends is checked, and stored once for each (person, question), never above the cap.
In a file lines stand in the order of the questions and then of random person ids, so that nothing
tells who answered first. What is written is private already: whoever has it learns from it for
nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, func, insert, select, update

from sordino._files import atomic_draft, clear, refuse_output, sha256_of, to_json
from sordino.collection.database import ANSWERS, INVITATIONS, PERSONS, reading
from sordino.collection.invitations import digest_of_secret, refuse_withdrawn
from sordino.collection.refusals import REFUSALS, Refusal
from sordino.collection.study import Question, Study
from sordino.errors import DataError, UsageError
from sordino.preferences.files import line_of
from sordino.preferences.pairs import Manifest, manifest_path
from sordino.privacy.guarantee import Unit
from sordino.privatization.answers import manifest_of

_AT_ONCE: Final = 1 << 16  # answers in memory; those to one question always are together
_QUESTIONS: Final = 500  # in one query
_ENDINGS: Final = (".jsonl", ".jsonl.gz")
_NAME: Final = Path("answers.jsonl")
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)


def export_answers(
    engine: Engine, study: Study, out: Path, *, unit: Unit, force: bool = False
) -> Manifest:
    """Write the answers of a study with their manifest beside them, and return the manifest.

    Guarantee:
        That of :meth:`Study.guarantee`; nothing is drawn and nothing is spent here. Shown by
        tests/unit/collection/test_exporting.py.
    """
    if not out.name.endswith(_ENDINGS):
        raise UsageError(
            "Answers are JSON Lines: give a name that ends in .jsonl or .jsonl.gz. Nothing was "
            "done."
        )
    note_path = manifest_path(out)
    for path in (out, note_path):
        refuse_output(path, force=force)
    promise = study.guarantee(unit)
    with (
        atomic_draft(out, force=force) as draft,
        atomic_draft(note_path, force=force) as note,
        closing(_lines(engine, study)) as lines,
    ):
        draft.file.writelines(lines)
        draft.finish()
        manifest = manifest_of(study.coin, promise, sha256_of(draft.path), study.id)
        note.file.write(to_json(manifest.to_dict()).encode())
        note.finish()
        clear(out, force=force)  # no moment with a file and another's manifest
    return manifest


def export_zip(engine: Engine, study: Study, *, unit: Unit) -> bytes:
    """Return the same two files, promised as they are, in a zip archive that holds no time."""
    promise = study.guarantee(unit)
    whole, digest = io.BytesIO(), hashlib.sha256()
    with zipfile.ZipFile(whole, "w") as archive, closing(_lines(engine, study)) as lines:
        with archive.open(_entry(_NAME.name), "w") as file:
            for line in lines:
                digest.update(line)
                file.write(line)
        manifest = manifest_of(study.coin, promise, digest.hexdigest(), study.id)
        note = to_json(manifest.to_dict())
        archive.writestr(_entry(manifest_path(_NAME).name), note)
    return whole.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    """Return a file of an archive, without the time at which it was made."""
    entry = zipfile.ZipInfo(name, _NO_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _lines(engine: Engine, study: Study) -> Generator[bytes]:
    """Yield every answer as a line, of one state of the database."""
    one = select(ANSWERS.c.question, func.count()).group_by(ANSWERS.c.question)
    given = select(func.count().label("given")).select_from(ANSWERS).group_by(ANSWERS.c.person)
    with reading(engine) as connection:
        counts = {question: int(count) for question, count in connection.execute(one)}
        if not counts:
            raise DataError("There are no answers yet. Nothing was written.")
        most = connection.execute(select(func.max(given.subquery().c.given))).scalar_one()
        if counts.keys() - {asked.id for asked in study.questions} or most > study.most_labels:
            raise DataError(
                "The database holds answers that this study does not take: to questions that it "
                "does not ask, or more of one person than its cap. Nothing was written."
            )
        for questions in _together(study.questions, counts):
            yield from _answers(connection, questions)


def _together(questions: Sequence[Question], counts: dict[str, int]) -> Iterator[list[Question]]:
    """Yield questions in their order, as many at once as have few enough answers together."""
    some: list[Question] = []
    waiting = 0
    for question in questions:
        count = counts.get(question.id, 0)
        if some and (waiting + count > _AT_ONCE or len(some) == _QUESTIONS):
            yield some
            some, waiting = [], 0
        if count:
            some.append(question)
            waiting += count
    if some:
        yield some


def _answers(connection: Connection, questions: Sequence[Question]) -> Iterator[bytes]:
    """Yield the answers to some questions, in the order of these and then of person ids."""
    places = {question.id: place for place, question in enumerate(questions)}
    chosen = select(ANSWERS.c.question, ANSWERS.c.person, ANSWERS.c.answer).where(
        ANSWERS.c.question.in_(places)
    )
    rows = connection.execute(chosen)
    for place, person, answer in sorted((places[row[0]], row[1], row[2]) for row in rows):
        asked = questions[place]
        yield line_of(asked.prompt, asked.first, asked.second, answer, person)


MOST_ANSWERS: Final = 50
"""Answers in one request."""

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_QUESTION: Final = re.compile(r"[0-9a-f]{32}\Z")
_MOST_REVISIONS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Submitted:
    """One randomized answer as it arrived."""

    id: str  # what the page calls it; the same answer is sent again under the same id
    question: str  # which question it answers
    revision: int  # 1, or more where a mind was changed and the study takes that
    answer: int  # 1 if the randomized answer prefers `first`, else 0


def read_submission(body: object, study: Study) -> tuple[_Submitted, ...]:
    """Return the answers of a request."""
    if not isinstance(body, Mapping) or body.keys() != {"study", "answers"}:
        raise Refusal("bad-request")
    answers = body["answers"]
    if not isinstance(answers, list) or not 1 <= len(answers) <= MOST_ANSWERS:
        raise Refusal("bad-request")
    read = []
    for value in answers:
        if not isinstance(value, Mapping) or value.keys() != set(_Submitted.__dataclass_fields__):
            raise Refusal("bad-request")
        texts = ((value["id"], _ID), (value["question"], _QUESTION))
        numbers = ((value["revision"], 1, _MOST_REVISIONS), (value["answer"], 0, 1))
        fits = all(isinstance(text, str) and form.match(text) for text, form in texts)
        if not fits or not all(type(n) is int and low <= n <= high for n, low, high in numbers):
            raise Refusal("bad-request")
        read.append(_Submitted(**value))
    if not isinstance(body["study"], str):
        raise Refusal("bad-request")
    if body["study"] != study.id:
        raise Refusal("wrong-study")
    return tuple(read)


@dataclass
class _Person:
    """What is stored of one person, kept in step with what is about to be written."""

    id: str
    asked: set[str]
    spent: int
    stored: dict[str, _Submitted]

    def refusal(self, study: Study, new: _Submitted) -> str | None:
        """Return why an answer is not stored; None if it is, or was before."""
        if new.question not in self.asked:
            return "unknown-question"
        if any(old.id == new.id and old != new for old in self.stored.values()):
            return "id-reused"
        old = self.stored.get(new.question)
        if old is not None and (old == new or new.revision < old.revision):
            return None  # stored before; a later one may have taken its place
        # An answer that would be a release of its own.
        latest = 0 if old is None else old.revision
        reasons = {
            "already-answered": new.revision == latest,
            "revision-skipped": new.revision > latest + 1,
            "changes-refused": latest > 0 and study.changes != "paid",
            "cap-reached": self.spent >= study.most_labels,
        }
        return next((code for code, applies in reasons.items() if applies), None)


def store(
    connection: Connection, study: Study, device: str, answers: tuple[_Submitted, ...]
) -> dict[str, object]:
    """Store what can be stored, and return what the page is told."""
    # The person who has this device is locked until the transaction ends.
    query = (
        select(PERSONS, INVITATIONS.c.expires, INVITATIONS.c.revoked)
        .join(INVITATIONS, INVITATIONS.c.person == PERSONS.c.id)
        .where(PERSONS.c.device == digest_of_secret(study, "device", device))
        .with_for_update()
    )
    row = connection.execute(query).first()
    if row is None:
        raise Refusal("unknown-device")
    refuse_withdrawn(row)
    rows = connection.execute(select(ANSWERS).where(ANSWERS.c.person == row.id))
    before = {
        one.question: _Submitted(one.id, one.question, one.revision, one.answer) for one in rows
    }
    person = _Person(row.id, set(json.loads(row.questions)), row.spent, before)
    refused = []
    for answer in answers:
        code, old = person.refusal(study, answer), person.stored.get(answer.question)
        if code is not None:
            message = REFUSALS[code].message
            refused.append({"id": answer.id, "code": code, "message": message})
        elif old is None or answer.revision > old.revision:
            _write(connection, person, answer)
    if person.spent != row.spent:
        chosen = update(PERSONS).where(PERSONS.c.id == person.id)
        connection.execute(chosen.values(spent=person.spent))
    without = {each["id"] for each in refused}
    stored = [answer.id for answer in answers if answer.id not in without]
    return {"stored": stored, "refused": refused, "spent": person.spent}


def _write(connection: Connection, person: _Person, new: _Submitted) -> None:
    """Write one answer, in the place of an earlier one of the same person if there is one."""
    values = {"revision": new.revision, "id": new.id, "answer": new.answer}
    if new.question in person.stored:
        same = (ANSWERS.c.person == person.id) & (ANSWERS.c.question == new.question)
        connection.execute(update(ANSWERS).where(same).values(values))
    else:
        keys = {"person": person.id, "question": new.question}
        connection.execute(insert(ANSWERS), keys | values)
    person.stored[new.question] = new
    person.spent += 1
