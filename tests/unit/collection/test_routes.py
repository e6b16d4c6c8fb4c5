"""Every address of the service over HTTP: the one shape of errors, headers, and odd bodies."""

import asyncio
import json

import pytest

from sordino.collection.refusals import POLICY

AS_JSON = {"Content-Type": "application/json"}
ONE_KIND = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # refused before it matters


@ONE_KIND
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"\x00",
        b"null",
        b"[]",
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b"1" * 60_000,
        b'{"device": NaN}',
        b'{"device": 1e999}',
        b'{"device": "\\ud800"}',
        b'{"device": "\\u0000"}',
        b'{"device": "%s", "x": 1}' % (b"d" * 43),
        b'{"device": "%s\\n"}' % (b"d" * 43),
        b'{"study": "\\udfff", "answers": [{}]}',
        b'{"study": 1, "answers": []}',
        b'{"answers": [1]}',
    ],
    ids=lambda raw: f"{raw[:12]!r}-{len(raw)}",
)
def test_bodies_of_another_form_are_refused(talk, raw):
    talk = talk()
    device, _ = talk.open()
    for path, secret in (("/api/open", talk.tokens[1]), ("/api/answers", device)):
        response = talk.post(path, secret, content=raw, headers=AS_JSON)
        assert talk.is_refused(response, "bad-request")


def test_a_name_that_stands_twice_is_refused(talk, answer):
    talk = talk()
    device, asked = talk.open()
    one = json.dumps(answer(asked[0], answer=0))
    raw = f'{{"study": "{talk.study.id}", "answers": [{one[:-1]}, "answer": 1}}]}}'
    response = talk.post("/api/answers", device, content=raw.encode(), headers=AS_JSON)
    assert talk.is_refused(response, "bad-request")


@ONE_KIND
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "json"])
def test_only_json_is_read(talk, kind):
    talk = talk()
    headers = {} if kind is None else {"Content-Type": kind}
    response = talk.post("/api/open", talk.tokens[0], content=b"{}", headers=headers)
    assert talk.is_refused(response, "not-json")


def test_a_body_is_at_most_64_kib_declared_or_not(talk, answer):
    talk = talk()
    device, asked = talk.open()
    body = json.dumps({"study": talk.study.id, "answers": [answer(asked[0])]}).encode()
    full = body + b" " * (64 * 1024 - len(body))

    def in_parts(raw):
        yield from (raw[at : at + 999] for at in range(0, len(raw), 999))

    for content in (full + b" ", in_parts(full + b" ")):
        response = talk.post("/api/answers", device, content=content, headers=AS_JSON)
        assert talk.is_refused(response, "too-large")
    response = talk.post("/api/open", "x", content=full + b" ", headers=AS_JSON)
    assert talk.is_refused(response, "too-large")  # whoever sends it
    for content in (full, in_parts(full)):
        response = talk.post("/api/answers", device, content=content, headers=AS_JSON)
        assert response.status_code == 200
    for length in ("99999999999999999999999", "-1", "x"):
        more = AS_JSON | {"Content-Length": length}
        response = talk.post("/api/answers", device, content=in_parts(body), headers=more)
        assert talk.is_refused(response, "too-large")


def answered_to(talk, messages):
    """What the application sends to somebody who opens an invitation in these messages."""
    sent = []

    async def receive():
        return messages.pop(0) if messages else await asyncio.sleep(3600)

    async def send(message):
        sent.append(message)

    authorization = f"Bearer {talk.tokens[0]}".encode()
    scope = {
        "type": "http", "method": "POST", "path": "/api/open", "query_string": b"",
        "headers": [(b"authorization", authorization), (b"content-type", b"application/json")],
    }  # fmt: skip
    asyncio.run(talk.client.app(scope, receive, send))
    return sent


def test_a_body_that_does_not_come_is_not_waited_for(talk, monkeypatch):
    monkeypatch.setattr("sordino.collection.refusals._SECONDS", 0.05)
    sent = answered_to(talk(), [])
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["error"]["code"] == "too-slow"


@ONE_KIND
def test_a_sender_that_leaves_in_the_middle_is_no_bug(talk, caplog):
    begun = {"type": "http.request", "body": b'{"dev', "more_body": True}
    with caplog.at_level("INFO"):
        answered_to(talk(), [begun, {"type": "http.disconnect"}])
    ours = [record for record in caplog.records if record.name == "sordino.collection"]
    assert [record.levelname for record in ours] == ["INFO"]
    assert ours[0].fields["status"] == 400


@ONE_KIND
@pytest.mark.parametrize(
    "path",
    ["/x", "/api", "/api/x", "/page/..%2fstudy.py", "/page/languages/en.json", "/admin/",
     "/api/open/", "/%00"],
)  # fmt: skip
def test_other_addresses_have_nothing(talk, path):
    talk = talk()
    for response in (
        talk.client.get(path, follow_redirects=False),
        talk.client.post(path, json={}, follow_redirects=False),
    ):
        assert response.status_code in {404, 405}
        talk.has_headers(response, api=path.startswith("/api/"))
    assert talk.client.get(path).json()["error"]["code"] == "not-found"


@ONE_KIND
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "NONSENSE"])
def test_other_methods_are_refused(talk, method):
    talk = talk()
    for path in ("/api/open", "/api/answers", "/api/health", "/"):
        response = talk.client.request(method, path)
        assert response.status_code == 405
        assert response.json()["error"]["code"] == "method-not-allowed"
        assert "allow" in response.headers
        talk.has_headers(response, api=path.startswith("/api/"))


def test_the_policy_lets_a_page_load_nothing_from_elsewhere():
    allowed = dict(line.partition(" ")[::2] for line in POLICY.split("; "))
    assert allowed["default-src"] == "'none'"
    assert allowed["img-src"] == "'self' data:"
    wider = {"img-src", "require-trusted-types-for", "trusted-types"}
    assert {allowed[name] for name in allowed.keys() - wider} == {"'none'", "'self'"}
    assert allowed["trusted-types"] == "worker"  # none that makes HTML


@ONE_KIND
def test_what_is_public_has_every_header(talk):
    talk = talk()
    for path in ("/", "/admin", "/worker.js", "/page/style.css", "/openapi.json"):
        response = talk.client.get(path)
        assert response.status_code == 200
        talk.has_headers(response, api=False)
    scripts = talk.client.get("/page/vendor/purify.es.mjs")
    assert scripts.headers["content-type"].startswith("text/javascript")
    for path in ("/api/health", "/api/texts"):
        response = talk.client.get(path)
        assert response.status_code == 200
        talk.has_headers(response, api=True)
    assert talk.client.get("/api/health").json()["study"] == talk.study.id


def test_the_admin_view_needs_its_token(talk, answer):
    talk = talk()
    for path in ("status", "export"):
        for headers in ({}, {"Authorization": f"Bearer {talk.tokens[0]}"}):
            response = talk.client.get(f"/api/admin/{path}", headers=headers)
            assert talk.is_refused(response, "not-admin")
    assert talk.is_refused(talk.admin("export"), "no-answers")
    device, asked = talk.open()
    talk.send(device, answer(asked[0]))
    assert talk.admin().json()["answers"] == 1
    assert talk.admin("export").content[:2] == b"PK"
    talk.has_headers(talk.admin("export"), api=True)


@ONE_KIND
def test_a_bug_is_told_without_its_content(talk, monkeypatch, answer):
    talk = talk()
    device, asked = talk.open()
    with monkeypatch.context() as patch:
        patch.setattr("sordino.collection.service.store", lambda *_, **__: 1 / 0)
        patch.setattr("sordino.collection.service._description", lambda: 1 / 0)
        assert talk.is_refused(talk.send(device, answer(asked[0])), "server-error")
        assert talk.client.get("/openapi.json").json()["error"]["code"] == "server-error"
        talk.has_headers(talk.client.get("/openapi.json"), api=False)
    assert talk.codes(talk.send(device, answer(asked[0]))) == []


def test_a_title_may_change_and_comes_back_as_text(talk, answer):
    odd = "\"><script>alert(1)</script>'; DROP TABLE sordino_answers; --\u202e\n"
    talk = talk(title=odd, prompt=odd)
    response = talk.post("/api/open", talk.tokens[0], {"device": "d" * 43})
    value = response.json()
    assert value["study"]["title"] == odd
    assert all(question["prompt"].startswith(odd) for question in value["questions"])
    assert response.headers["content-type"] == "application/json"
    assert talk.admin().json()["title"] == odd
    assert talk.count() == 0
