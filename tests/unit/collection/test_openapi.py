"""The service does what its description says, whatever is sent: made-up requests of every form."""

import secrets
import uuid

import pytest
from tests.tiers import few

pytest.importorskip("schemathesis")
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sordino.collection import refusals
from sordino.collection.service import _description

ROUTES = [
    (method.upper(), path)
    for path, methods in _description()["paths"].items()
    for method in methods
]
CASES = [
    (method, path, mode)
    for method, path in ROUTES
    for mode in GenerationMode
    if mode == GenerationMode.POSITIVE or method == "POST"  # nothing else has a wrong form
]
EXAMPLES = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture
def world(talk, answer, monkeypatch):
    """Return a study, the routes of its description, and a right secret for each of them."""
    monkeypatch.setattr(refusals.Buckets, "take", lambda *_, **__: None)
    talk = talk(people=500, changes="paid", cap=6)
    device, asked = talk.open(talk.tokens.pop())
    talk.send(device, answer(asked[0]))
    schema = schemathesis.openapi.from_asgi("/openapi.json", running(talk.client.app))
    return talk, schema, device, asked


def running(app):
    """Return an application that runs already: each call would start it anew."""

    async def answer(scope, receive, send):
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})

    return answer


def right(talk, device, path):
    """Return a secret that a route takes."""
    if path == "/api/open":
        return talk.tokens[0]
    return device if path in {"/api/answers", "/api/move", "/api/claim"} else talk.admin_token


@pytest.mark.parametrize(("known", "examples"), few([(True, 8), (True, 40), (False, 40)], first=1))
@pytest.mark.parametrize(("method", "path", "mode"), few(CASES, first=4))
def test_every_response_is_as_described(world, method, path, known, mode, examples):
    talk, schema, device, asked = world
    operation = schema[path][method]
    statuses = set()

    @settings(EXAMPLES, max_examples=examples)
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case):
        secret = right(talk, device, path) if known else secrets.token_urlsafe(32)
        case.headers["Authorization"] = f"Bearer {secret}"
        if mode == GenerationMode.POSITIVE and path in SENT:
            case.body["study"] = talk.study.id
        if path == "/api/answers" and mode == GenerationMode.POSITIVE:
            case.body["answers"][0]["question"] = asked[0]
        response = case.call()
        statuses.add(response.status_code)
        case.validate_response(response, checks=CHECKS)

    send()
    public = path in {"/api/health", "/api/texts"}
    if mode == GenerationMode.POSITIVE:
        assert (200 in statuses) == (known or public)
        assert (401 in statuses) == (not known and not public)
    else:
        assert 400 in statuses


SENT = {"/api/answers", "/api/move", "/api/claim"}  # whose bodies name a study
ANSWER = st.fixed_dictionaries(
    {
        "id": st.integers(0, 9).map(lambda n: str(uuid.UUID(int=n))),
        "question": st.integers(0, 6),
        "revision": st.integers(1, 4),
        "answer": st.integers(0, 1),
    }
)


def test_made_up_answers_of_a_right_form_are_all_accounted_for(world):
    talk, _, device, asked = world
    spent = [0]
    names = [*asked, "f" * 32]

    @settings(EXAMPLES, max_examples=60)
    @given(answers=st.lists(ANSWER, min_size=1, max_size=5))
    def send(answers):
        rows = [one | {"question": names[one["question"] % len(names)]} for one in answers]
        response = talk.send(device, *rows)
        assert response.status_code == 200, response.text
        value = response.json()
        told = value["stored"] + [row["id"] for row in value["refused"]]
        assert set(told) == {one["id"] for one in answers}
        assert spent[0] <= value["spent"] <= 6
        spent[0] = value["spent"]

    send()
    assert spent[0] == 6
