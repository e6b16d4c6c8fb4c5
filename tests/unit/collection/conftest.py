"""What tests of the service share: a study, a database of each kind, and people who talk to it."""

import json
import os
import secrets
import uuid

import pytest

pytest.importorskip("starlette")
pytest.importorskip("sqlalchemy")
from sqlalchemy import create_engine, func, select, text
from starlette.testclient import TestClient

from sordino.collection.answers import invite
from sordino.collection.database import ANSWERS, frozen, open_database
from sordino.collection.refusals import POLICY, REFUSALS
from sordino.collection.service import make_app
from sordino.collection.study import new_study, read_study


@pytest.fixture
def make_study(tmp_path):
    """Return a maker of studies; settings replace lines of the file."""

    def make(*, questions=6, epsilon=1.0, cap=4, title="T", prompt="p", weak=False, **settings):
        rows = [
            {"prompt": f"{prompt} {n}", "first": f"a {n}", "second": f"b {n}"}
            for n in range(questions)
        ]
        file, lines = tmp_path / "study.toml", tmp_path / "questions.jsonl"
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        terms = {"epsilon": epsilon, "cap": cap, "accept_weak": weak}
        new_study(file, title=title, questions=lines, force=True, **terms)
        old = file.read_text().splitlines()
        for name, value in settings.items():
            given = (at for at, line in enumerate(old) if line.startswith(f"{name} = "))
            place = next(given, len(old))
            old[place : place + 1] = [f"{name} = {json.dumps(value)}"]
        file.write_text("\n".join(old) + "\n")
        return read_study(file)

    return make


def _as_owner(address, statement):
    engine = create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.fixture
def postgres():
    """Return the URL of a new PostgreSQL database, dropped afterwards."""
    address = os.environ.get("SORDINO_TEST_POSTGRES")
    if not address:
        pytest.skip("SORDINO_TEST_POSTGRES names no PostgreSQL server")
    address = "postgresql+psycopg://" + address.partition("://")[2]
    name = f"test_{uuid.uuid4().hex}"
    _as_owner(address, f"CREATE DATABASE {name}")
    yield f"{address.rpartition('/')[0]}/{name}"
    _as_owner(address, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.deep)])
def engine(request, tmp_path):
    """Return an engine on a new database of each kind."""
    sqlite = f"sqlite:///{tmp_path / 'study.db'}"
    url = sqlite if request.param == "sqlite" else request.getfixturevalue("postgres")
    made = open_database(url)
    yield made
    made.dispose()


class Talk:
    """A study on a database behind a client, and tokens for it."""

    admin_token = "admin-token-" + "x" * 31

    def __init__(self, engine, study, *, people=3, days=1):
        self.engine, self.study = frozen(engine, study, create=True), study
        self.tokens = invite(self.engine, study, count=people, days=days)
        app = make_app(self.engine, study, admin_token=self.admin_token)
        self.client = TestClient(app, raise_server_exceptions=False)

    def post(self, path, secret, body=None, **more):
        headers = {"Authorization": f"Bearer {secret}"} | more.pop("headers", {})
        content = {} if body is None else {"json": body}
        return self.client.post(path, headers=headers, **content, **more)

    def open(self, token=None, device=None):
        """Open an invitation; return the device and the questions."""
        device = device or secrets.token_urlsafe(32)
        response = self.post("/api/open", token or self.tokens[0], {"device": device})
        assert response.status_code == 200, response.text
        return device, [question["id"] for question in response.json()["questions"]]

    def send(self, device, *answers, study=None):
        body = {"study": study or self.study.id, "answers": list(answers)}
        return self.post("/api/answers", device, body)

    def admin(self, path="status"):
        return self.client.get(
            f"/api/admin/{path}", headers={"Authorization": f"Bearer {self.admin_token}"}
        )

    def count(self):
        """Return how many answers are stored."""
        with self.engine.begin() as connection:
            return connection.execute(select(func.count()).select_from(ANSWERS)).scalar_one()

    @staticmethod
    def codes(response):
        """Return why answers of a request that is fine were refused."""
        assert response.status_code == 200, response.text
        return [row["code"] for row in response.json()["refused"]]

    @staticmethod
    def is_refused(response, code):
        """Return whether a response is just this refusal, in the one shape, with every header."""
        reason = REFUSALS[code]
        assert response.status_code == reason.status, response.text
        assert response.json() == {"error": {"code": code, "message": reason.message}}
        Talk.has_headers(response, api=True)
        if reason.status in {429, 503}:
            assert int(response.headers["retry-after"]) >= 1
        return True

    @staticmethod
    def has_headers(response, *, api):
        found = response.headers
        assert found.get_list("content-security-policy") == [POLICY]
        assert found["referrer-policy"] == "no-referrer"
        assert found["x-content-type-options"] == "nosniff"
        assert found["cross-origin-opener-policy"] == "same-origin"
        assert found["cross-origin-resource-policy"] == "same-origin"
        assert found["origin-agent-cluster"] == "?1"
        assert "geolocation=()" in found["permissions-policy"]
        assert "set-cookie" not in found
        assert "server" not in found
        if api:
            assert found["cache-control"] == "no-store"


def drawn(question, revision=1, answer=None, name=None):
    """Return an answer as a page sends it."""
    return {
        "id": name or str(uuid.uuid4()),
        "question": question,
        "revision": revision,
        "answer": secrets.randbelow(2) if answer is None else answer,
    }


@pytest.fixture
def talk(engine, make_study):
    """Return a maker of studies that can be talked to."""
    opened = []

    def begin(*, people=3, days=1, **settings):
        talk = Talk(engine, make_study(**settings), people=people, days=days)
        talk.client.__enter__()
        opened.append(talk)
        return talk

    yield begin
    for one in opened:
        one.client.__exit__(None, None, None)


@pytest.fixture
def talk_on():
    """Return what makes a study on an engine that can be talked to."""
    return Talk


@pytest.fixture
def answer():
    """Return the maker of answers."""
    return drawn
