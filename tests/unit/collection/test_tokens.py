"""Secrets of people are nowhere but with them: not stored, not logged, of no use elsewhere."""

import copy
import io
import json
import logging
import traceback

import pytest
from sqlalchemy import MetaData, column, insert, inspect, select, table, text
from sqlalchemy.exc import IntegrityError
from starlette.testclient import TestClient

from sordino.collection import refusals
from sordino.collection.answers import (
    digest_of_secret,
    forget,
    handle_of,
    revoke,
    states,
)
from sordino.collection.database import ANSWERS, INVITATIONS, PERSONS
from sordino.collection.service import make_app
from sordino.errors import DataError


def everything(engine, folder):
    """Return every byte of a database: its files, or all rows of all of its tables."""
    if engine.dialect.name == "sqlite":
        return b"".join(path.read_bytes() for path in sorted(folder.glob("study.db*")))
    tables = MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:
        rows = [connection.execute(select(one)).all() for one in tables.sorted_tables]
    return repr(rows).encode()


def test_no_secret_is_in_the_database(talk, answer, tmp_path):
    talk = talk(people=5)
    held = [talk.open(token) for token in talk.tokens[:3]]
    for device, asked in held:
        talk.send(device, *[answer(question) for question in asked])
    revoke(talk.engine, [handle_of(talk.study, talk.tokens[4])])
    raw = everything(talk.engine, tmp_path)
    for secret in (*talk.tokens, *(device for device, _ in held), talk.admin_token):
        assert secret.encode() not in raw
    assert digest_of_secret(talk.study, "device", held[0][0]).encode() in raw


def test_links_that_were_dropped_are_gone_from_the_file(talk, answer, tmp_path):
    talk = talk(people=60, questions=30, cap=30, weak=True)
    held = [talk.open(token) for token in talk.tokens[:20]]
    for device, asked in held:
        talk.send(device, *[answer(question) for question in asked[:10]])
    digests = [digest_of_secret(talk.study, "invitation", token) for token in talk.tokens]
    digests += [digest_of_secret(talk.study, "device", device) for device, _ in held]
    with talk.engine.begin() as connection:  # what browsers called their answers
        digests += connection.execute(select(ANSWERS.c.id)).scalars()
    before = everything(talk.engine, tmp_path)
    assert all(digest.encode() in before for digest in digests)
    assert forget(talk.engine) == 20
    raw = everything(talk.engine, tmp_path)
    assert not [digest for digest in digests if digest.encode() in raw]
    with talk.engine.begin() as connection:
        assert len(connection.execute(select(ANSWERS)).all()) == 200
        assert set(connection.execute(select(PERSONS.c.device)).scalars()) == {None}
    assert states(talk.engine) == []


def test_a_copy_of_the_database_lets_nobody_into_another_study(talk, answer):
    talk = talk()
    device, asked = talk.open()
    other = copy.copy(talk.study)
    object.__setattr__(other, "id", "0" * 16)
    with TestClient(make_app(talk.engine, other, admin_token=talk.admin_token)) as client:
        for token in talk.tokens:
            headers = {"Authorization": f"Bearer {token}"}
            response = client.post("/api/open", headers=headers, json={"device": device})
            assert response.json()["error"]["code"] == "unknown-invitation"
        body = {"study": other.id, "answers": [answer(asked[0])]}
        headers = {"Authorization": f"Bearer {device}"}
        response = client.post("/api/answers", headers=headers, json=body)
        assert response.json()["error"]["code"] == "unknown-device"


def test_a_digest_from_the_database_opens_nothing(talk):
    talk = talk()
    with talk.engine.begin() as connection:
        stored = connection.execute(select(INVITATIONS.c.token)).scalars().all()
    for digest in stored:
        for secret in (digest, digest[:43]):
            assert talk.post("/api/open", secret, {"device": "d" * 43}).status_code == 401


def test_a_log_holds_nothing_of_anybody(talk, answer, capfd):
    talk = talk(people=4)
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(refusals._Lines())
    root = logging.getLogger()
    root.addHandler(handler)
    before = refusals.LOG.level
    refusals.LOG.setLevel(logging.DEBUG)
    try:
        said = busy(talk, answer)
    finally:
        root.removeHandler(handler)
        refusals.LOG.setLevel(before)
    written = lines.getvalue() + "".join(capfd.readouterr())
    assert written.count("\n") > 20
    for secret in (*said, *talk.tokens, talk.admin_token, "testclient", "T-shirt"):
        assert secret not in written
        assert secret[:12] not in written
    parsed = [json.loads(line) for line in lines.getvalue().splitlines()]
    ours = [line for line in parsed if line["event"] == "request"]
    allowed = {"time", "level", "event", "method", "route", "status", "milliseconds"}
    assert all(line.keys() == allowed for line in ours)
    assert {line["route"] for line in ours} >= {"/api/open", "/api/answers", "other"}


def busy(talk, answer):
    """Send all kinds of requests; return every secret and id in them."""
    said = []
    for token in talk.tokens:
        device, asked = talk.open(token)
        answers = [answer(question) for question in asked]
        talk.send(device, *answers)
        talk.send(device, {**answers[0], "answer": 1 - answers[0]["answer"]})
        talk.send(device, *answers, study="T-shirt")
        talk.client.get(f"/{token}?device={device}")
        talk.client.get(f"/page/{token}")
        talk.client.get(f"/api/{asked[0]}", headers={"User-Agent": device, "Cookie": token})
        talk.client.request(f"X{token[:12].replace('-', 'x')}".upper(), f"/{device}")
        talk.post("/api/answers", device, content=b'{"T-shirt')
        said += [device, *asked, *(one["id"] for one in answers)]
    talk.admin()
    return said


def test_a_bug_tells_no_secret(talk, answer, monkeypatch, caplog, capfd):
    talk = talk()
    device, asked = talk.open()
    one = answer(asked[0])

    def broken(_, *, device, answers, **__):
        raise RuntimeError(device, answers)

    monkeypatch.setattr("sordino.collection.service.store", broken)
    with caplog.at_level(0):
        assert talk.send(device, one).status_code == 500
    said = caplog.text + "".join(map(repr, caplog.records)) + "".join(capfd.readouterr())
    said += "".join(str(vars(record)) for record in caplog.records if record.name != "httpx")
    for secret in (device, one["id"], one["question"], talk.admin_token):
        assert secret not in said


def test_an_error_that_python_shows_holds_no_secret(talk):
    talk = talk()
    device, _ = talk.open()
    with pytest.raises(DataError) as refused:
        revoke(talk.engine, ["0" * 16])
    shown = "".join(traceback.format_exception(refused.value))
    for secret in (*talk.tokens, device, talk.admin_token):
        assert secret not in shown
        assert secret not in repr(talk.client.app.user_middleware)
        assert secret not in repr([route.endpoint for route in talk.client.app.routes])


def test_an_error_of_the_database_shows_no_row(talk):
    talk = talk()
    _, asked = talk.open()
    row = {"person": "q" * 32, "question": asked[0], "revision": 1, "id": "i" * 36, "answer": None}
    with talk.engine.connect() as connection, pytest.raises(IntegrityError) as refused:
        connection.execute(insert(ANSWERS), row)
    shown = str(refused.value).partition("DETAIL")[0]
    for secret in (asked[0], "q" * 32, "i" * 36):
        assert secret not in shown


COLUMNS = {
    "sordino_study": {"digest", "terms"},
    "sordino_questions": {"id", "asked", "content"},
    "sordino_invitations": {"token", "expires", "revoked", "person", "parent"},
    "sordino_persons": {"id", "device", "questions", "moving"},
    "sordino_answers": {"person", "question", "revision", "id", "answer"},
}


def test_no_time_and_no_order_of_arrival_is_stored(talk):
    talk = talk()
    seen = inspect(talk.engine)
    tables = seen.get_table_names()
    assert {name: {one["name"] for one in seen.get_columns(name)} for name in tables} == COLUMNS
    for name in tables:
        for one in seen.get_columns(name):
            assert one.get("autoincrement") is not True
            assert one["default"] is None
    if talk.engine.dialect.name == "sqlite":
        with talk.engine.begin() as connection:
            for name in tables:
                with pytest.raises(Exception, match="no such column"):
                    connection.execute(select(column("rowid")).select_from(table(name)))
    else:
        assert seen.get_sequence_names() == []


def test_expiry_is_the_same_for_invitations_made_together(talk):
    talk = talk(people=50)
    assert len({one["expires"] for one in states(talk.engine)}) == 1


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_an_sqlite_file_reads_the_same_in_whatever_order_answers_came(talk, answer):
    talk = talk()
    people = [talk.open(token) for token in talk.tokens]
    for device, asked in reversed(people):
        for question in reversed(asked):
            talk.send(device, answer(question))
    with talk.engine.begin() as connection:
        keys = connection.execute(text("SELECT person, question FROM sordino_answers")).all()
    assert len(keys) == 12
    assert keys == sorted(keys)
