"""Over HTTP: codes by which a study moves, previews, minimums, forecasts, and codes for panels."""

import secrets

import pytest
from sqlalchemy import select, update
from starlette.testclient import TestClient

from sordino.collection import service
from sordino.collection.database import ANSWERS, TABLES
from sordino.collection.service import make_app, make_preview

ONE_KIND = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def move(talk, device, step="code"):
    return talk.post("/api/move", device, {"study": talk.study.id, "step": step})


def take(talk, code, device):
    return talk.post("/api/claim", device, {"study": talk.study.id, "code": code})


def test_a_study_moves_with_all_that_is_stored_and_the_old_device_is_unknown(talk, answer):
    talk = talk()
    device, asked = talk.open()
    talk.send(device, answer(asked[2]), answer(asked[0]))
    code, new = move(talk, device).json()["code"], secrets.token_urlsafe(32)
    for _ in range(2):  # a device that did not hear it asks again
        value = take(talk, code, new).json()
        assert [question["id"] for question in value["questions"]] == asked
        wanted = [{"question": asked[place], "revision": 1} for place in (0, 2)]
        assert value["stored"] == wanted  # in the order of the questions, not of arrival
    for gone in (talk.send(device, answer(asked[1])), move(talk, device, "stay")):
        assert talk.is_refused(gone, "unknown-device")
    assert talk.is_refused(take(talk, code, secrets.token_urlsafe(32)), "unknown-code")
    assert talk.codes(talk.send(new, answer(asked[1]), answer(asked[0]))) == ["already-answered"]
    assert talk.admin().json()["persons"] == 1


@ONE_KIND
def test_a_code_ends_after_fifteen_minutes_and_with_the_process(talk, monkeypatch):
    talk = talk()
    device, _ = talk.open()
    told = move(talk, device).json()
    assert told["seconds"] == 900
    now = service.clock()
    with monkeypatch.context() as later:
        later.setattr(service, "clock", lambda: now + 901)
        assert talk.is_refused(take(talk, told["code"], "n" * 43), "unknown-code")
    app = make_app(talk.engine, talk.study, admin_token=talk.admin_token)
    before, code = talk.client, move(talk, device).json()["code"]
    with TestClient(app) as talk.client:
        assert talk.is_refused(take(talk, code, "n" * 43), "unknown-code")
    talk.client = before
    assert take(talk, code, "n" * 43).status_code == 200


@ONE_KIND
def test_whoever_guesses_codes_is_slowed_down_also_a_device_that_was_known(talk):
    talk = talk()
    device, _ = talk.open()
    assert take(talk, move(talk, device).json()["code"], "n" * 43).status_code == 200
    statuses = [take(talk, "0" * 12, device).status_code for _ in range(40)]
    assert set(statuses) == {401, 429}
    assert statuses.count(401) <= 31


@ONE_KIND
@pytest.mark.parametrize("code", ["0" * 11, "0" * 13, "O" * 12, "a" * 12, 12, None])
def test_a_code_of_another_form_is_refused(talk, code):
    talk = talk()
    assert talk.is_refused(take(talk, code, "n" * 43), "bad-request")


def dump(engine):
    """Return all that is stored."""
    with engine.connect() as connection:
        return {one.name: connection.execute(select(one)).all() for one in TABLES.sorted_tables}


def test_a_preview_writes_nothing_and_the_invitation_opens_elsewhere(talk):
    talk = talk(cap=3)
    before = dump(talk.engine)
    for secret in (talk.tokens[0], talk.admin_token):
        value = talk.post("/api/preview", secret, {}).json()
        assert len(value["questions"]) == 3
        assert value["stored"] == []
    assert dump(talk.engine) == before
    assert talk.is_refused(talk.post("/api/preview", "x" * 43, {}), "unknown-invitation")
    assert len(talk.open()[1]) == 3


def test_a_study_is_shown_without_a_database_and_takes_nothing(make_study):
    with TestClient(make_preview(make_study())) as client:
        assert client.get("/", follow_redirects=False).headers["location"] == "?preview"
        assert client.get("/?preview").text.startswith("<!doctype html>")
        assert len(client.post("/api/preview", json={}).json()["questions"]) == 4
        for path in ("/api/open", "/api/answers", "/api/move", "/api/admin/status", "/admin"):
            assert client.post(path, json={}).status_code == 404


def forecast(labels):
    return labels / 100, 1 / labels


@ONE_KIND
def test_a_forecast_knows_how_many_answers_there_are_and_no_more(
    engine, make_study, answer, talk_on
):
    """Three invitations, four questions each; one person gave two answers, whatever they say."""
    told = []
    study = make_study(minimum=5)
    talk = talk_on(engine, study)
    app = make_app(talk.engine, study, admin_token=talk.admin_token, foresee=forecast)
    with TestClient(app) as talk.client:
        device, asked = talk.open()
        for bit in (0, 1):
            talk.send(device, answer(asked[bit], answer=bit))
        for bit in (0, 1):
            with talk.engine.begin() as connection:
                connection.execute(update(ANSWERS).values(answer=bit))
            told.append(talk.admin().json()["forecast"])
        assert talk.is_refused(talk.admin("export"), "too-few-answers")
    assert told[0] == told[1]
    assert [(one["when"], one["answers"]) for one in told[0]] == [
        ("now", 2), ("minimum", 5), ("all", 12),
    ]  # fmt: skip
    assert told[0][0]["accuracy"] == 0.02


def test_a_code_and_a_way_back_for_whoever_is_done(talk, answer):
    talk = talk(completion_code="C1", return_url="https://panel.example/x")
    for token in talk.tokens[:2]:
        device, asked = talk.open(token)
        sent = [answer(question) for question in asked]
        assert talk.send(device, *sent[:3]).json()["completion"] is None
        told = [talk.send(device, sent[3]).json()["completion"] for _ in range(2)]
        assert told == [{"code": "C1", "url": "https://panel.example/x"}] * 2
