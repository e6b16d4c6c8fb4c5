"""What an organizer is shown: counts, and nothing that an answer decides."""

import json

import pytest

pytest.importorskip("sqlalchemy")
from sqlalchemy import update

from sordino.collection.answers import (
    forget,
    handle_of,
    invite,
    open_invitation,
    progress_of,
    revoke,
)
from sordino.collection.arena import chooser_of
from sordino.collection.database import ANSWERS, INVITATIONS, frozen, open_database
from sordino.collection.study import new_study
from sordino.errors import FileSystemError

LONG = "word " * 40


@pytest.fixture
def study(tmp_path):
    prompts = [LONG, "short", [], [{"role": "user", "content": "hi\nthere"}]]
    rows = [{"prompt": p, "first": f"a {n}", "second": f"b {n}"} for n, p in enumerate(prompts)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return new_study(
        tmp_path / "s.toml", title="T", questions=tmp_path / "q.jsonl", epsilon=0.5, cap=3
    )


@pytest.fixture
def begun(engine, study):
    """The database of a study that has begun, of each kind."""
    return frozen(engine, study, create=True)


def opened(engine, study, token, letter):
    with engine.begin() as connection:
        opened = open_invitation(
            connection, study, chooser_of(study), token=token, device=letter * 43
        )
    return opened.questions


def answered(engine, person, question, answer):
    values = {"person": person, "question": question, "revision": 1, "id": "i" * 36}
    with engine.begin() as connection:
        connection.execute(ANSWERS.insert(), values | {"answer": answer})


def test_a_study_that_has_begun(begun, study):
    invite(begun, study, count=3, days=1)
    told = progress_of(begun, study)
    assert told["invitations"] == {"made": 3, "opened": 0, "revoked": 0, "expired": 0}
    assert (told["answers"], told["persons"], told["questions"]) == (0, 0, 4)
    assert (told["title"], told["study"], told["cap"]) == ("T", study.id, 3)
    assert told["epsilon"] == 0.5
    assert told["person_epsilon"] == pytest.approx(1.5)
    assert told["flip_probability"] == study.coin.flip_probability
    assert not told["closed"]
    assert [row["id"] for row in told["per_question"]] == [q.id for q in study.questions]
    prompts = [row["prompt"] for row in told["per_question"]]
    assert prompts[1:] == ["short", "", "hi there"]
    assert len(prompts[0]) == 80
    assert prompts[0].endswith("…")
    json.dumps(told)


def test_each_invitation_counts_where_it_belongs(begun, study):
    tokens = invite(begun, study, count=5, days=1)
    for token, letter in zip(tokens[:3], "abc", strict=True):
        opened(begun, study, token, letter)
    revoke(begun, [handle_of(study, tokens[0])])
    late = INVITATIONS.c.token.startswith(handle_of(study, tokens[4]))
    with begun.begin() as connection:
        connection.execute(update(INVITATIONS).where(late).values(expires=1))
    told = progress_of(begun, study)
    assert told["invitations"] == {"made": 5, "opened": 3, "revoked": 1, "expired": 1}
    assert not told["closed"]


def test_answers_are_counted_whatever_they_say(begun, study):
    invite(begun, study, count=1, days=1)
    first, second = (question.id for question in study.questions[:2])
    for place, (person, question) in enumerate([("p", first), ("p", second), ("q", first)]):
        answered(begun, person, question, place % 2)
    told = progress_of(begun, study)
    with begun.begin() as connection:
        connection.execute(update(ANSWERS).values(answer=1))
    assert progress_of(begun, study) == told
    assert (told["answers"], told["persons"]) == (3, 2)
    assert [row["answers"] for row in told["per_question"]] == [2, 1, 0, 0]


def test_it_is_closed_when_nobody_can_send(begun, study):
    (token,) = invite(begun, study, count=1, days=1)
    opened(begun, study, token, "a")
    assert not progress_of(begun, study)["closed"]
    assert forget(begun) == 1
    told = progress_of(begun, study)
    assert told["closed"]
    assert told["invitations"]["made"] == 0


def test_a_database_that_is_gone_is_said_so(tmp_path, study):
    broken = open_database(f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(FileSystemError, match="cannot be read"):
        progress_of(broken, study)
