"""Whether a cluster answers is known in seconds, and nothing else is taken for one."""

import contextlib
import socket
import threading
import time

import pytest

from sordino.engines import ray_data
from sordino.engines.ray_data import answers

SETTINGS = bytes([0, 0, 6, 4, 0, 0, 0, 0, 0])


@contextlib.contextmanager
def listening(behave):
    """Something that listens on this machine, and what it does with who connects."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        if behave is not None:
            threading.Thread(target=lambda: behave(server.accept()[0]), daemon=True).start()
        yield "127.0.0.1:" + str(server.getsockname()[1])


def saying(*words):
    def behave(connection):
        with connection, contextlib.suppress(OSError):
            for word in words:
                connection.sendall(word)
                time.sleep(0.02)
            connection.recv(1)

    return behave


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch):
    monkeypatch.setattr(ray_data, "_PATIENCE", 0.5)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)


@pytest.mark.parametrize("words", [[SETTINGS], [SETTINGS[:4], SETTINGS[4:]]])
def test_what_opens_as_ray_does_answers(words):
    with listening(saying(*words)) as address:
        assert answers(address)


@pytest.mark.parametrize(
    "behave",
    [
        None,  # takes connections and says nothing
        saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        saying(b"SSH-2.0-OpenSSH_9.6\r\n"),
        lambda connection: connection.close(),
        saying(*[b"\0"] * 100),  # a little at a time
    ],
)
def test_what_listens_and_is_no_cluster_does_not_answer(behave):
    with listening(behave) as address:
        start = time.monotonic()
        assert not answers(address)
        assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    "address",
    [
        *["auto", "", ":", "localhost:", "localhost:0", "localhost:99999999", "localhost:-1"],
        *["a:²", "[::1]:1", "127.0.0.1:1", "no host at all:80", "x" * 300 + ":80", "\0:80"],
    ],
)
def test_what_is_no_address_does_not_answer(address):
    assert not answers(address)


def test_with_encryption_it_is_enough_that_something_listens(monkeypatch):
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with listening(None) as address:
        assert answers(address)
