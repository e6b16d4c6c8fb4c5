"""An invitation is for one device of one person, for a while, and can be withdrawn."""

import re

import pytest
from sqlalchemy import select

from sordino.collection.answers import (
    digest_of_secret,
    handle_of,
    invite,
    open_invitation,
    revoke,
    states,
)
from sordino.collection.arena import chooser_of
from sordino.collection.database import INVITATIONS, PERSONS, frozen, open_database
from sordino.collection.refusals import Refusal
from sordino.collection.study import Question, Study
from sordino.errors import DataError, UsageError

ONE, OTHER = "a" * 43, "b" * 43


@pytest.fixture
def study(tmp_path):
    questions = tuple(Question(f"{n:032x}", "p", "a", "b") for n in range(5))
    return Study(
        id="5" * 16, title="t", epsilon=1, cap=3, database="s.db", questions=questions,
        folder=tmp_path,
    )  # fmt: skip


@pytest.fixture
def engine(study):
    engine = frozen(open_database(study.database_url), study, create=True)
    yield engine
    engine.dispose()


def opened(engine, study, token, device=ONE):
    with engine.begin() as connection:
        return open_invitation(connection, study, chooser_of(study), token=token, device=device)


def refusal(engine, study, token, device=ONE):
    with pytest.raises(Refusal) as refused:
        opened(engine, study, token, device)
    return refused.value.code


def test_tokens_are_long_different_and_stored_nowhere(engine, study, tmp_path):
    tokens = invite(engine, study, count=50, days=1)
    assert len(set(tokens)) == 50
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in tokens)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not [token for token in tokens if token.encode() in stored]
    assert digest_of_secret(study, "invitation", tokens[0]).encode() in stored


def test_one_device_opens_as_often_as_it_likes_and_another_never(engine, study):
    (token,) = invite(engine, study, count=1, days=1)
    first = opened(engine, study, token)
    assert len(first[0]) == 3
    assert opened(engine, study, token) == first
    assert refusal(engine, study, token, OTHER) == "invitation-in-use"
    with engine.connect() as connection:
        assert len(connection.execute(select(PERSONS)).all()) == 1


def test_one_device_secret_is_for_one_invitation(engine, study):
    one, other = invite(engine, study, count=2, days=1)
    opened(engine, study, one)
    assert refusal(engine, study, other) == "invitation-in-use"
    opened(engine, study, other, OTHER)


def test_a_person_is_a_random_id_that_nothing_leads_to_but_the_invitation(engine, study):
    (token,) = invite(engine, study, count=1, days=1)
    opened(engine, study, token)
    with engine.connect() as connection:
        person = connection.execute(select(PERSONS)).one()
        assert connection.execute(select(INVITATIONS.c.person)).scalar_one() == person.id
    assert re.fullmatch(r"[0-9a-f]{32}", person.id)
    for kind in ("invitation", "device", "person"):
        for secret in (token, ONE):
            assert digest_of_secret(study, kind, secret)[:32] != person.id


def test_a_handle_is_long_enough_for_any_number_of_invitations(engine, study):
    (token,) = invite(engine, study, count=1, days=1)
    assert re.fullmatch(r"[0-9a-f]{16}", handle_of(study, token))
    assert states(engine)[0]["handle"] == handle_of(study, token)
    with pytest.raises(DataError, match="None was withdrawn"):
        revoke(engine, [handle_of(study, token)[:15]])


@pytest.mark.parametrize("handle", ["", "%", "0" * 16, "a", "' OR 1=1 --"])
def test_only_a_whole_handle_withdraws(engine, study, handle):
    tokens = invite(engine, study, count=3, days=1)
    with pytest.raises(DataError, match="None was withdrawn"):
        revoke(engine, [handle_of(study, tokens[0]), handle])
    assert {row["state"] for row in states(engine)} == {"made"}


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"count": 1.5}, {"days": 0}, {"days": -1}, {"days": 1e9}]
)
def test_numbers_out_of_range_make_no_invitation(engine, study, wrong):
    with pytest.raises(UsageError):
        invite(engine, study, **({"count": 1, "days": 1} | wrong))
    assert states(engine) == []
