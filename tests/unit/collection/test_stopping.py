"""A service that is told to stop finishes what is under way, and ends well."""

import json
import os
import signal
import subprocess
import sys
import threading
from http.client import HTTPConnection

import pytest
from sqlalchemy import select
from tests.tiers import few

pytest.importorskip("uvicorn")
from sordino.collection.answers import invite
from sordino.collection.database import ANSWERS, frozen
from sordino.collection.service import listener
from sordino.collection.study import DATABASE_VARIABLE

PEOPLE = 12


def is_served(port):
    link = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        link.request("GET", "/api/health")
        return link.getresponse().status == 200
    except OSError:
        return False
    finally:
        link.close()


@pytest.fixture
def service(engine, make_study, tmp_path):
    """Return a service as a process of its own, its port, and invitations."""
    study = make_study()
    tokens = invite(frozen(engine, study, create=True), study, count=PEOPLE, days=1)
    with listener("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    url = engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    words = ["collect", "serve", str(tmp_path / "study.toml"), "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sordino", *words],
            env=os.environ | {DATABASE_VARIABLE: url},
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    while not is_served(port):
        assert process.poll() is None, (tmp_path / "log").read_text()
        threading.Event().wait(0.05)
    yield study, process, port, tokens
    process.kill()
    process.wait()


def begun(port, path, secret, body):
    """Begin to send a request; return its connection and what is not sent yet."""
    raw = json.dumps(body).encode()
    link = HTTPConnection("127.0.0.1", port, timeout=20)
    link.putrequest("POST", path)
    link.putheader("Authorization", f"Bearer {secret}")
    link.putheader("Content-Type", "application/json")
    link.putheader("Content-Length", str(len(raw)))
    link.endheaders(raw[:10])
    return link, raw[10:]


def told(link, rest):
    link.send(rest)
    response = link.getresponse()
    value = response.status, json.loads(response.read())
    link.close()
    return value


@pytest.mark.deep
@pytest.mark.parametrize("number", few([signal.SIGTERM, signal.SIGINT], first=1))
def test_what_is_under_way_is_stored_and_acknowledged(service, engine, answer, number):
    study, process, port, tokens = service
    sent, links = [], []
    for place, token in enumerate(tokens):
        device = f"{place:043d}"
        status, opened = told(*begun(port, "/api/open", token, {"device": device}))
        assert status == 200
        one = answer(opened["questions"][0]["id"])
        sent.append(one["id"])
        body = {"study": study.id, "answers": [one]}
        links.append(begun(port, "/api/answers", device, body))
    assert is_served(port)  # so that all of them have begun to arrive
    process.send_signal(number)
    while is_served(port):
        threading.Event().wait(0.01)
    threading.Event().wait(0.5)  # it waits for them
    for (link, rest), name in zip(links, sent, strict=True):
        stored = {"stored": [name], "refused": [], "spent": 1}
        assert told(link, rest) == (200, stored | {"questions": [], "completion": None})
    assert process.wait(20) == 0
    with engine.begin() as connection:
        assert set(connection.execute(select(ANSWERS.c.id)).scalars()) == set(sent)
