"""What becomes of invitations and answers over HTTP: stored once, or refused with a reason."""

import secrets
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select

from sordino import _random
from sordino.collection.answers import handle_of, revoke, states
from sordino.collection.database import ANSWERS
from sordino.collection.refusals import REFUSALS

ONE_KIND = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # refused before it matters


def test_answers_are_stored_once_however_often_they_are_sent(talk, answer):
    talk = talk()
    device, asked = talk.open()
    sent = [answer(question) for question in asked]
    for _ in range(3):
        value = talk.send(device, *sent).json()
        told = {"stored": [one["id"] for one in sent], "refused": []}
        assert value == told | {"spent": 4, "questions": [], "completion": None}
    assert talk.count() == 4
    with talk.engine.begin() as connection:
        rows = connection.execute(select(ANSWERS)).mappings().all()
    stored = [{name: row[name] for name in sent[0]} for row in rows]
    assert sorted(stored, key=lambda one: one["id"]) == sorted(sent, key=lambda one: one["id"])


def test_the_same_answer_twice_in_one_request_is_stored_once(talk, answer):
    talk = talk()
    device, asked = talk.open()
    one = answer(asked[0])
    value = talk.send(device, one, one).json()
    assert (value["stored"], value["refused"], value["spent"]) == ([one["id"]] * 2, [], 1)


def test_two_devices_that_open_at_once_do_not_both_get_in(talk):
    talk = talk(people=8)
    for token in talk.tokens:
        with ThreadPoolExecutor(4) as pool:
            opened = [
                pool.submit(talk.post, "/api/open", token, {"device": secrets.token_urlsafe(32)})
                for _ in range(4)
            ]
        status = sorted(one.result().status_code for one in opened)
        assert status == [200, 409, 409, 409]


@ONE_KIND
@pytest.mark.parametrize(
    "token", ["", "x", "x" * 43, "ä" * 43, "' OR 1=1 --", "<script>", "x" * 9999]
)
def test_a_token_that_nobody_has_opens_nothing(talk, token):
    talk = talk()
    body, headers = {"device": "d" * 43}, {"Authorization": b"Bearer " + token.encode()}
    response = talk.client.post("/api/open", json=body, headers=headers)
    assert talk.is_refused(response, "unknown-invitation")
    assert response.headers["www-authenticate"] == "Bearer"
    assert talk.is_refused(talk.client.post("/api/open", json=body), "unknown-invitation")
    answers = talk.client.post("/api/answers", json={}, headers=headers)
    assert answers.status_code in {400, 401}


def test_a_device_that_nobody_opened_stores_nothing(talk, answer):
    talk = talk()
    _, asked = talk.open()
    stranger = secrets.token_urlsafe(32)
    assert talk.is_refused(talk.send(stranger, answer(asked[0])), "unknown-device")
    assert talk.is_refused(talk.send(talk.tokens[0], answer(asked[0])), "unknown-device")
    assert talk.is_refused(talk.client.post("/api/answers", json={}), "unknown-device")
    assert talk.count() == 0


def test_the_clock_of_the_service_decides_what_has_expired(talk, answer, monkeypatch):
    talk = talk(days=1)
    device, asked = talk.open()
    now = _random.seconds_since_1970()
    talk.send(device, answer(asked[0]))
    for later, fits in ((-90_000, True), (86_000, True), (86_500, False), (0, True)):
        monkeypatch.setattr(_random, "seconds_since_1970", lambda later=later: now + later)
        queued = answer(asked[1], name=str(uuid.UUID(int=later % 2**64)))
        response = talk.send(device, queued)
        again = talk.post("/api/open", talk.tokens[0], {"device": device})
        first = talk.post("/api/open", talk.tokens[1], {"device": "e" * 43})
        if fits:
            assert [one.status_code for one in (response, again, first)] == [200, 200, 200]
        else:
            for one in (response, again, first):
                assert talk.is_refused(one, "invitation-expired")
    assert talk.count() == 2


def test_what_was_withdrawn_takes_nothing_more_and_keeps_what_it_has(talk, answer):
    talk = talk()
    device, asked = talk.open()
    talk.send(device, answer(asked[0]))
    revoke(talk.engine, [handle_of(talk.study, token) for token in talk.tokens[:2]])
    assert talk.is_refused(talk.send(device, answer(asked[1])), "invitation-revoked")
    for token in talk.tokens[:2]:
        response = talk.post("/api/open", token, {"device": device})
        assert talk.is_refused(response, "invitation-revoked")
    assert talk.count() == 1
    talk.open(talk.tokens[2])
    assert sorted(row["state"] for row in states(talk.engine)) == ["opened", "revoked", "revoked"]


def test_each_answer_of_a_request_is_refused_alone(talk, answer):
    talk = talk()
    device, asked = talk.open()
    other = next(one.id for one in talk.study.questions if one.id not in asked)
    good = answer(asked[0])
    sent = [answer(other), answer("0" * 32), good, answer(asked[1], 2)]
    value = talk.send(device, *sent).json()
    assert value["stored"] == [good["id"]]
    assert value["spent"] == 1
    assert {row["id"]: row["code"] for row in value["refused"]} == {
        sent[0]["id"]: "unknown-question",
        sent[1]["id"]: "unknown-question",
        sent[3]["id"]: "revision-skipped",
    }
    assert all(row["message"] == REFUSALS[row["code"]].message for row in value["refused"])


def test_an_id_is_of_one_answer(talk, answer):
    talk = talk()
    device, asked = talk.open()
    one = answer(asked[0], answer=1)
    talk.send(device, one)
    assert talk.codes(talk.send(device, {**one, "answer": 0})) == ["id-reused"]
    assert talk.codes(talk.send(device, {**one, "question": asked[1]})) == ["id-reused"]
    assert talk.codes(talk.send(device, answer(asked[0], answer=1))) == ["already-answered"]
    assert talk.count() == 1


def test_a_changed_mind_is_refused_where_the_first_answer_stands(talk, answer):
    talk = talk()
    device, asked = talk.open()
    first = answer(asked[0])
    talk.send(device, first)
    assert talk.codes(talk.send(device, answer(asked[0], 2))) == ["changes-refused"]
    assert talk.send(device, first).json()["spent"] == 1


def test_a_changed_mind_is_paid_and_counts_for_the_cap(talk, answer):
    talk = talk(changes="paid", cap=4)
    device, asked = talk.open()
    first, second = answer(asked[0]), answer(asked[0], 2)
    assert talk.codes(talk.send(device, first, second)) == []
    assert talk.codes(talk.send(device, answer(asked[0], 4))) == ["revision-skipped"]
    assert talk.codes(talk.send(device, answer(asked[1]), answer(asked[1], 2))) == []
    value = talk.send(device, answer(asked[2]), answer(asked[0], 3)).json()
    assert [row["code"] for row in value["refused"]] == ["cap-reached"] * 2
    assert value["spent"] == 4
    again = talk.send(device, first, second).json()
    assert (again["refused"], again["spent"]) == ([], 4)
    assert talk.count() == 2


def test_of_answers_that_race_one_is_stored(talk, answer):
    talk = talk(people=1, questions=12, cap=12)
    device, asked = talk.open()
    with ThreadPoolExecutor(8) as pool:
        for question in asked:
            rivals = [answer(question) for _ in range(4)]
            told = list(pool.map(lambda one: talk.send(device, one).json(), rivals))
            assert sum(len(one["stored"]) for one in told) == 1
    assert talk.count() == 12
