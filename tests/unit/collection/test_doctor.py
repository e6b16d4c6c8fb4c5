"""A service is looked at from outside: what a proxy breaks is found, and nothing secret is sent."""

import http.client
import os
import shutil
import ssl
import subprocess
import threading
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.tiers import few

pytest.importorskip("uvicorn")
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from sordino.cli import run
from sordino.collection import doctor
from sordino.collection.database import frozen
from sordino.collection.doctor import examine
from sordino.collection.service import listener, make_app

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture
def served(engine, make_study, request):
    """Return a study, and the port at which its service runs, at the root or where it is told."""
    study = make_study()
    app = make_app(frozen(engine, study, create=True), study)
    if path := getattr(request, "param", ""):
        app = Starlette(routes=[Mount(path, app)])
    listening = listener("127.0.0.1", 0)
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield study, listening.getsockname()[1]
    server.should_exit = True
    thread.join()


class Handler(BaseHTTPRequestHandler):
    """What stands between: it passes on what it is asked, and changes what a test says."""

    def pass_on(self):
        length = int(self.headers.get("Content-Length", 0))
        body, headers = self.rfile.read(length) or None, dict(self.headers)
        self.server.seen.append(headers)
        self.server.before(headers)
        link = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        chunked = "Content-Length" not in headers and body is not None
        link.request(self.command, self.path, body, headers, encode_chunked=chunked)
        answer = link.getresponse()
        reply = {"status": answer.status, "body": answer.read(), "headers": answer.getheaders()}
        self.server.after(self.path, reply)
        self.send_response_only(reply["status"])
        for name, value in reply["headers"]:
            if name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply["body"])))
        self.end_headers()
        self.wfile.write(reply["body"])
        link.close()

    do_GET = do_POST = pass_on  # noqa: N815

    def log_message(self, *_):
        pass


def overwrite(headers):
    headers["X-Forwarded-For"] = "203.0.113.9"


@pytest.fixture
def proxy():
    """Return a maker of proxies before a port."""
    made = []

    def make(behind, *, before=overwrite, after=lambda *_: None, tls=None):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.behind, server.before, server.after, server.seen = behind, before, after, []
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.02))
        thread.start()
        made.append((server, thread))
        return server

    yield make
    for server, thread in made:
        server.shutdown()
        thread.join()
        server.server_close()


def states(found):
    return {one["check"]: one["ok"] for one in found}


def wrong(found):
    """Return which checks found a problem, each with something to do."""
    problems = [one for one in found if one["ok"] is False]
    assert all(one["do"] for one in problems)
    assert not any(one["do"] for one in found if one not in problems)
    return {one["check"] for one in problems}


ALL = {
    "TLS",
    "service",
    "clock",
    "headers",
    "page",
    "X-Forwarded-For",
}


def test_a_service_behind_an_honest_proxy_has_no_problem(served, proxy):
    study, port = served
    server = proxy(port)
    url = f"http://127.0.0.1:{server.server_port}"
    found = examine(url, study, probe=True)
    assert wrong(found) == set()
    told = states(found)
    assert told.keys() == ALL
    assert {name for name, ok in told.items() if ok is None} == {"TLS"}
    assert len(server.seen) < 100
    assert {headers.get("Authorization") for headers in server.seen} == {"Bearer doctor"}


def test_without_probe_little_is_asked_and_no_wrong_secret_is_needed(served, proxy):
    study, port = served
    server = proxy(port)
    found = examine(f"http://127.0.0.1:{server.server_port}")
    assert wrong(found) == set()
    assert states(found)["X-Forwarded-For"] is None
    assert sum("X-Forwarded-For" in headers for headers in server.seen) == len(server.seen)
    assert wrong(examine(f"http://127.0.0.1:{port}", study)) == set()


@pytest.mark.parametrize("served", ["/some/where"], indirect=True)
def test_a_page_under_a_path_is_looked_at_there(served):
    study, port = served
    assert wrong(examine(f"http://127.0.0.1:{port}/some/where", study)) == set()
    assert wrong(examine(f"http://127.0.0.1:{port}", study)) == {"service"}


def test_another_study_and_nothing_at_all_are_told(served, make_study):
    study, port = served
    url = f"http://127.0.0.1:{port}"
    assert wrong(examine(url, make_study())) == {"service"}
    with listener("127.0.0.1", 0) as closed:
        free = closed.getsockname()[1]
    assert wrong(examine(f"http://127.0.0.1:{free}", study)) == {"service"}


def renamed(name, value):
    """Return a change of responses: a header with another value."""

    def change(_, reply):
        kept = [(n, v) for n, v in reply["headers"] if n.lower() != name.lower()]
        reply["headers"] = [*kept, *([] if value is None else [(name, value)])]

    return change


def only_api(change):
    return lambda path, reply: change(path, reply) if path.startswith("/api/") else None


def added(name, value):
    return lambda _, reply: reply["headers"].append((name, value))


def rewritten(path, reply):
    if path == "/page/style.css":
        reply["body"] = reply["body"].replace(b"\n", b"", 1)


def an_older_page(path, reply):
    if path == "/api/health":
        start = reply["body"].index(b'"page":"') + 8
        reply["body"] = reply["body"][:start] + b"0" * 64 + reply["body"][start + 64 :]


def an_error_page(_, reply):
    reply["status"], reply["body"] = 502, b"<html>Bad gateway"


BROKEN = {
    "policy dropped": (renamed("Content-Security-Policy", None), "headers"),
    "policy loosened": (renamed("Content-Security-Policy", "default-src *"), "headers"),
    "policy twice": (added("Content-Security-Policy", "default-src *"), "headers"),
    "measured": (only_api(added("Server-Timing", "edge;dur=1")), "headers"),
    "kept": (only_api(renamed("Cache-Control", "max-age=60")), "headers"),
    "from a cache": (added("Age", "3"), "headers"),
    "a cookie": (added("Set-Cookie", "edge=1"), "headers"),
    "slow clock": (renamed("Date", formatdate(1.7e9, usegmt=True)), "clock"),
    "rewritten": (rewritten, "page"),
    "another page": (an_older_page, "page"),
    "down": (an_error_page, "service"),
}


@pytest.mark.parametrize("broken", few(BROKEN, first=5))
def test_what_a_proxy_breaks_is_named(served, proxy, broken):
    study, port = served
    change, check = BROKEN[broken]
    server = proxy(port, after=change)
    assert wrong(examine(f"http://127.0.0.1:{server.server_port}", study)) == {check}


def test_a_forged_address_is_found_and_only_there(served, proxy):
    """A proxy that lets senders say who they are is the same as none at all."""
    study, port = served
    for passed_on in (proxy(port, before=lambda _: None).server_port, port):
        url = f"http://127.0.0.1:{passed_on}"
        assert wrong(examine(url, study, probe=True)) == {"X-Forwarded-For"}
        assert wrong(examine(url, study)) == set()


def test_a_limit_that_is_not_there_is_found(served, proxy):
    def open_to_guesses(path, reply):
        reply["status"] = 401 if path.startswith("/api/admin") else reply["status"]

    server = proxy(served[1], after=open_to_guesses)
    found = examine(f"http://127.0.0.1:{server.server_port}", probe=True)
    assert wrong(found) == {"X-Forwarded-For"}
    assert len(server.seen) < 120


def test_a_database_that_is_down_is_told(served, tmp_path, engine):
    engine.dispose()
    (tmp_path / "study.db").rename(tmp_path / "away.db")
    (tmp_path / "study.db").mkdir()
    (found,) = (one for one in examine(f"http://127.0.0.1:{served[1]}") if one["ok"] is False)
    assert (found["check"], found["found"][:3]) == ("service", "503")


def certificate(folder, days):
    """Return a context of a server whose certificate lasts for so many days, and its file."""
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate, and is not here")
    names = [str(folder / f"{name}.pem") for name in ("key", "certificate")]
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=x"
    )
    more = ["-addext", "subjectAltName=DNS:localhost", "-days", str(days)]
    files = ["-keyout", names[0], "-out", names[1]]
    subprocess.run([*command.split(), *more, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(names[1], names[0])
    return context, names[1]


@pytest.mark.parametrize("days", few([90, 2], first=1))
def test_tls(served, proxy, tmp_path, monkeypatch, days):
    study, port = served
    context, file = certificate(tmp_path, days)
    server = proxy(port, tls=context)
    monkeypatch.setattr(http.client.HTTPSConnection, "default_port", server.server_port)
    monkeypatch.setenv("SSL_CERT_FILE", file)
    found = examine("https://localhost", study)
    assert (wrong(found), states(found)["TLS"]) == (set(), True)
    monkeypatch.setattr(
        doctor, "seconds_since_1970", lambda: __import__("time").time() + 86_400 * (days - 0.3)
    )
    told = examine("https://localhost", study)
    assert {"TLS", "clock"} <= wrong(told)
    assert states(told).keys() == ALL


def test_nothing_is_sent_over_a_line_that_is_not_trusted(served, proxy, tmp_path):
    study, port = served
    server = proxy(port, tls=certificate(tmp_path, 90)[0])
    url = f"https://localhost:{server.server_port}"
    assert wrong(examine(url, study, probe=True)) == {"TLS", "service"}
    assert server.seen == []


def test_the_command_prints_a_line_for_each_check_and_ends_with_a_code(served, tmp_path, capsys):
    _, port = served
    url = f"http://127.0.0.1:{port}"
    study = os.fspath(tmp_path / "study.toml")
    assert run(["collect", "doctor", url, "--study", study]) == 0
    lines = capsys.readouterr().out
    assert all(name in lines for name in ALL)
    assert "PROBLEM" not in lines
    assert run(["collect", "doctor", url, "--probe"]) == 7
    assert "PROBLEM: whoever forges it is not slowed down" in capsys.readouterr().out
    assert run(["collect", "doctor", "ftp://x"]) == 2
