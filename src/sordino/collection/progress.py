"""How far a study has come: counts of invitations, people and answers, and nothing of any person.

No count depends on what anybody answered.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from sqlalchemy import Engine, func, select

from sordino._random import seconds_since_1970
from sordino.collection.database import ANSWERS, INVITATIONS, reading
from sordino.collection.study import Study
from sordino.preferences.records import Text

__all__ = ["progress_of"]

_SHOWN: Final = 80  # characters of a prompt


def progress_of(engine: Engine, study: Study) -> dict[str, Any]:
    """Return what an organizer is shown of a study.

    Of ``invitations``, ``made`` counts all, ``opened`` those that a device has opened, ``revoked``
    and ``expired`` those that can no longer be used. A study is ``closed`` when no invitation is
    left that could.

    Args:
        engine: The database of the study.
        study: Its study.

    Raises:
        FileSystemError: The database cannot be read.
    """
    now = seconds_since_1970()
    per_question = select(ANSWERS.c.question, func.count()).group_by(ANSWERS.c.question)
    with reading(engine) as connection:
        invitations = _invitations(connection.execute(select(INVITATIONS)).all(), now)
        counts = {question: int(n) for question, n in connection.execute(per_question)}
        persons = connection.execute(select(func.count(ANSWERS.c.person.distinct()))).scalar_one()
    usable = invitations.pop("usable")
    return {
        "title": study.title,
        "study": study.id,
        "epsilon": study.epsilon,
        "flip_probability": study.coin.flip_probability,
        "cap": study.most_labels,
        "person_epsilon": study.guarantee("person").epsilon,
        "questions": len(study.questions),
        "invitations": invitations,
        "answers": sum(counts.values()),
        "persons": int(persons),
        "per_question": [
            {"id": asked.id, "prompt": _start(asked.prompt), "answers": counts.get(asked.id, 0)}
            for asked in study.questions
        ],
        "closed": not usable,
    }


def _invitations(rows: Any, now: int) -> dict[str, int]:
    """Return how many invitations there are of each kind, and how many can be used."""
    found: Counter[str] = Counter()
    for row in rows:
        found["made"] += 1
        found["opened"] += row.person is not None
        end = "revoked" if row.revoked else "expired" if row.expires <= now else "usable"
        found[end] += 1
    return {name: found[name] for name in ("made", "opened", "revoked", "expired", "usable")}


def _start(prompt: Text) -> str:
    """Return the beginning of a prompt on one line; of messages, of the last one."""
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"] if prompt else ""
    line = " ".join(text[: 4 * _SHOWN].split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
