"""Invitations: links that nobody can guess, each for one device of one person.

A token is stored as a digest, so a copy of the database invites nobody. The person behind it gets a
random id when the link is first opened, and only the invitation leads to that id. How far a study
has come is told by counts of invitations, people and answers: nothing of any person, and no count
depends on what anybody answered.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, Engine, Executable, Row, delete, func, insert, select, update

from sordino import _random, _validate
from sordino.collection.database import (
    ANSWERS,
    FAILURES,
    INVITATIONS,
    PERSONS,
    QUESTIONS,
    locked,
    reading,
    rewrite,
    sorted_anew,
    take_turn,
)
from sordino.collection.refusals import Refusal
from sordino.collection.study import Study
from sordino.errors import DataError, FileSystemError, UsageError
from sordino.preferences.records import Text

_DAY: Final = 86_400
_MOST_DAYS: Final = 3_650
_MOST: Final = 100_000  # invitations at once
_HANDLE: Final = 16  # hexadecimal digits by which an organizer names an invitation


def digest_of_secret(study: Study, kind: str, secret: str) -> str:
    """Return under what a token or a device's secret is stored: of this study and no other."""
    # A secret has 256 bits of entropy, so that a fast digest is as good as a slow one.
    return hashlib.sha256(f"{study.id} {kind} {secret}".encode()).hexdigest()


def handle_of(study: Study, token: str) -> str:
    """Return the name of an invitation, which invites nobody."""
    return digest_of_secret(study, "invitation", token)[:_HANDLE]


def invite(engine: Engine, study: Study, *, count: int, days: float) -> list[str]:
    """Return new tokens, which are stored nowhere."""
    count = _validate.integer("count", count, at_least=1, at_most=_MOST)
    if not _validate.positive("days", days) <= _MOST_DAYS:
        raise UsageError(f"days must be at most {_MOST_DAYS}, got {days!r}.")
    expires = _random.seconds_since_1970() + round(days * _DAY)
    tokens = [_random.new_token() for _ in range(count)]
    rows = [
        {
            "token": digest_of_secret(study, "invitation", token),
            "expires": expires,
            "revoked": False,
        }
        for token in tokens
    ]
    _write(engine, [insert(INVITATIONS).values(row) for row in rows], "No invitation was made.")
    return tokens


def _write(engine: Engine, statements: Iterable[Executable], otherwise: str) -> int:
    """Carry out statements, all or none; return how many rows the last one touched."""
    reason, touched = "", 0
    try:
        with engine.begin() as connection:
            take_turn(connection)
            for statement in statements:
                touched = connection.execute(statement).rowcount
    except FAILURES as error:
        reason = type(error).__name__
    if reason:
        raise FileSystemError(f"The database cannot be written ({reason}). {otherwise}")
    return touched


def revoke(engine: Engine, handles: Sequence[str]) -> None:
    """Withdraw invitations for good; what was answered stays."""
    with reading(engine) as connection:
        known = list(connection.execute(select(INVITATIONS.c.token)).scalars())
    found = []
    for handle in handles:
        wanted = handle.strip().lower()
        matches = [token for token in known if len(wanted) >= _HANDLE and token.startswith(wanted)]
        if len(matches) != 1:
            raise DataError(
                f"{handle!r} names {len(matches)} invitations. None was withdrawn. `sordino "
                "collect status STUDY --invitations` lists the handles."
            )
        found.append(matches[0])
    chosen = update(INVITATIONS).where(INVITATIONS.c.token.in_(found)).values(revoked=True)
    _write(engine, [chosen], "None was withdrawn.")


def forget(engine: Engine) -> int:
    """Drop every link from an invitation to a person, and every device; return how many links."""
    # Nobody can send answers after that, and nobody who holds the database can tell who gave which,
    # or who came first. What browsers called their answers and the order in which somebody was
    # asked go as well; an export needs neither.
    with reading(engine) as connection:
        linked = select(func.count()).where(INVITATIONS.c.person.is_not(None))
        links = int(connection.execute(linked).scalar_one())
    _write(
        engine,
        [
            *locked(engine),
            update(PERSONS).values(device=None, questions="[]"),
            update(ANSWERS).values(id=""),
            delete(INVITATIONS),
            *sorted_anew(engine),
        ],
        "Every link is still there.",
    )
    rewrite(engine)
    return links


def states(engine: Engine) -> list[dict[str, object]]:
    """Return handle, state and expiry of every invitation; not who or what is behind it."""
    with reading(engine) as connection:
        rows = connection.execute(select(INVITATIONS).order_by(INVITATIONS.c.token)).all()
    now, found = _random.seconds_since_1970(), []
    for row in rows:
        state = _end(row, now) or ("made" if row.person is None else "opened")
        found.append({"handle": row.token[:_HANDLE], "state": state, "expires": row.expires})
    return found


def _end(row: Row[Any], now: int) -> str:
    """Return why an invitation can no longer be used; an empty text if it can."""
    return "revoked" if row.revoked else "expired" if row.expires <= now else ""


def refuse_withdrawn(row: Row[Any]) -> None:
    """Refuse an invitation that was revoked or has expired, by the clock of the service."""
    end = _end(row, _random.seconds_since_1970())
    if end:
        raise Refusal(f"invitation-{end}")


def open_invitation(
    connection: Connection, study: Study, *, token: str, device: str
) -> tuple[list[str], int]:
    """Return which questions a person is asked, in their order, and when the invitation ends."""
    # The first device that opens an invitation is the only one: its memory of what it answered is
    # what keeps a question from being answered by two coins.
    invited = INVITATIONS.c.token == digest_of_secret(study, "invitation", token)
    row = connection.execute(select(INVITATIONS).where(invited).with_for_update()).first()
    if row is None:
        raise Refusal("unknown-invitation")
    refuse_withdrawn(row)
    digest = digest_of_secret(study, "device", device)
    if row.person is not None:
        person = connection.execute(select(PERSONS).where(PERSONS.c.id == row.person)).one()
        if person.device != digest:
            raise Refusal("invitation-in-use")
        return json.loads(person.questions), row.expires
    if connection.execute(select(PERSONS.c.id).where(PERSONS.c.device == digest)).first():
        raise Refusal("invitation-in-use")
    questions = _ask(connection, study)
    person_id = _random.new_release_id() + _random.new_release_id()
    values = {"id": person_id, "device": digest, "questions": json.dumps(questions), "spent": 0}
    connection.execute(insert(PERSONS), values)
    connection.execute(update(INVITATIONS).where(invited).values(person=person_id))
    return questions, row.expires


def _ask(connection: Connection, study: Study) -> list[str]:
    """Return the questions that fewest people were asked, in a random order; note them as asked."""
    # No answer is looked at: who is asked what, and in which order, tells nothing of anybody.
    rows = connection.execute(select(QUESTIONS)).all()
    words = _random.entropy(None).words(len(rows))
    keys = np.array([row.asked for row in rows])
    fewest = np.lexsort((words, keys))[: study.most_questions]
    order = np.argsort(words[fewest] >> np.uint64(32) ^ words[fewest] << np.uint64(32))
    chosen = [str(rows[index].id) for index in fewest[order]]
    asked = update(QUESTIONS).where(QUESTIONS.c.id.in_(chosen))
    connection.execute(asked.values(asked=QUESTIONS.c.asked + 1))
    return chosen


_SHOWN: Final = 80  # characters of a prompt


def progress_of(engine: Engine, study: Study) -> dict[str, object]:
    """Return what an organizer is shown of a study."""
    # Of `invitations`, `made` counts all, `opened` those that a device has opened, `revoked` and
    # `expired` those that can no longer be used. A study is `closed` when no invitation is left
    # that could.
    now = _random.seconds_since_1970()
    per_question = select(ANSWERS.c.question, func.count()).group_by(ANSWERS.c.question)
    with reading(engine) as connection:
        rows = connection.execute(select(INVITATIONS)).all()
        counts = {question: int(n) for question, n in connection.execute(per_question)}
        persons = connection.execute(select(func.count(ANSWERS.c.person.distinct()))).scalar_one()
    ends = Counter(_end(row, now) for row in rows)
    return {
        "title": study.title,
        "study": study.id,
        "epsilon": study.epsilon,
        "flip_probability": study.coin.flip_probability,
        "cap": study.most_labels,
        "person_epsilon": study.guarantee("person").epsilon,
        "questions": len(study.questions),
        "invitations": {
            "made": len(rows),
            "opened": sum(row.person is not None for row in rows),
            "revoked": ends["revoked"],
            "expired": ends["expired"],
        },
        "answers": sum(counts.values()),
        "persons": int(persons),
        "per_question": [
            {"id": asked.id, "prompt": _start(asked.prompt), "answers": counts.get(asked.id, 0)}
            for asked in study.questions
        ],
        "closed": not ends[""],
    }


def _start(prompt: Text) -> str:
    """Return the beginning of a prompt on one line; of messages, of the last one."""
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"] if prompt else ""
    line = " ".join(text[: 4 * _SHOWN].split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
