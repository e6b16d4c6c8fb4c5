"""What the page sends: checked, stored once for each (person, question), never above the cap."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, insert, select, update

from sordino.collection.database import ANSWERS, INVITATIONS, PERSONS
from sordino.collection.invitations import digest_of_secret, refuse_withdrawn
from sordino.collection.refusals import REFUSALS, Refusal
from sordino.collection.study import Study

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
