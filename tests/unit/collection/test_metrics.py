"""Metrics say how the service does, and nothing of anybody or of what anybody answered."""

import re

import pytest

from sordino.collection.answers import handle_of

ONE_KIND = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
LINE = re.compile(r'(sordino_\w+)(?:\{((?:\w+="[^"\\\n]*",?)+)\})? ([0-9.e-]+)\Z')
LABELS = {"route", "status", "code", "version", "page", "study"}


def asked(talk):
    response = talk.client.get("/api/metrics", headers=bearer(talk.admin_token))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return response.text


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def read(text):
    """Return the value of every line, if all are of the format and of a family that has a kind."""
    kinds = dict(re.findall(r"# TYPE (\w+) (counter|gauge)\n", text))
    found = {}
    for line in text.removesuffix("\n").split("\n"):
        if not line.startswith("#"):
            name, labels, value = LINE.match(line).groups()
            assert name in kinds
            assert set(re.findall(r'(\w+)="', labels or "")) <= LABELS
            assert line.rpartition(" ")[0] not in found
            found[line.rpartition(" ")[0]] = float(value)
    return found


def test_requests_refusals_and_the_database_are_counted(talk, answer):
    talk = talk()
    device, questions = talk.open()
    talk.send(device, *map(answer, questions[:3]))
    talk.send(device, answer(questions[0]), answer("f" * 32))
    talk.post("/api/open", "x" * 43, {"device": "d" * 43})
    talk.client.get("/api/nothing/of/that/name")
    found = read(asked(talk))
    requests = {name: n for name, n in found.items() if name.startswith("sordino_requests_total")}
    assert requests == {
        'sordino_requests_total{route="/api/open",status="200"}': 1,
        'sordino_requests_total{route="/api/open",status="401"}': 1,
        'sordino_requests_total{route="/api/answers",status="200"}': 2,
        'sordino_requests_total{route="other",status="404"}': 1,
    }
    refusals = {name: n for name, n in found.items() if name.startswith("sordino_refusals_total")}
    codes = ("already-answered", "unknown-question", "unknown-invitation", "not-found")
    assert refusals == {f'sordino_refusals_total{{code="{code}"}}': 1 for code in codes}
    gauges = ("answers", "database_up", "writer_waiting")
    assert [found[f"sordino_{name}"] for name in gauges] == [3, 1, 0]
    (build,) = (name for name in found if name.startswith("sordino_build_info"))
    health = talk.client.get("/api/health").json()
    assert f'page="{health["page"]}"' in build
    assert f'study="{talk.study.id}"' in build
    again = read(asked(talk))
    assert again['sordino_requests_total{route="/api/metrics",status="200"}'] == 1


@ONE_KIND
def test_only_the_admin_sees_them(talk):
    talk = talk()
    for headers in ({}, bearer(talk.tokens[0]), bearer("x" * 43)):
        assert talk.is_refused(talk.client.get("/api/metrics", headers=headers), "not-admin")


@ONE_KIND
def test_a_database_that_is_down_is_told(talk, tmp_path):
    talk = talk()
    talk.engine.dispose()
    (tmp_path / "study.db").rename(tmp_path / "away.db")
    (tmp_path / "study.db").mkdir()
    found = read(asked(talk))
    assert found["sordino_database_up"] == 0
    assert "sordino_answers" not in found


@ONE_KIND
def test_nothing_in_them_depends_on_an_answer_or_names_anybody(talk, answer, monkeypatch):
    """The same people who answer the other way round leave the same counts."""
    monkeypatch.setattr("sordino.collection.refusals.clock", lambda: 0.0)
    texts = []
    for label in (0, 1):
        each = talk(id="0123456789abcdef")
        with each.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM sordino_answers")
        for token in each.tokens:
            device, questions = each.open(token)
            sent = [answer(question, answer=label) for question in questions]
            each.send(device, *sent, answer(questions[0], answer=1 - label))
            each.send(device, sent[0])
        texts.append(asked(each))
        secrets = [*each.tokens, device, *questions, sent[0]["id"], "testclient"]
        handles = [handle_of(each.study, token) for token in each.tokens]
        assert not any(secret in texts[-1] for secret in (*secrets, *handles))
    assert texts[0] == texts[1]
