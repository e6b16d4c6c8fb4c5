"""What the measurements of the collection service share: a server, a database, and cheap people.

A server is a process of its own that runs ``serve``; people are coroutines on bare sockets, so that
what is measured is the service and not its client.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError

from sqlalchemy import Engine, create_engine, select, text

from sordino.collection.answers import digest_of_secret, invite
from sordino.collection.database import ANSWERS, PERSONS, frozen, open_database, reading
from sordino.collection.service import listener, make_app, serve
from sordino.collection.study import DATABASE_VARIABLE, Study, new_study, read_study
from sordino.preferences.records import Levels

__all__ = [
    "POSTGRES",
    "Answer",
    "Person",
    "Server",
    "begin_study",
    "database",
    "invited",
    "stored_of",
]

POSTGRES = "SORDINO_TEST_POSTGRES"
EPSILON = 1.0
AGAIN = {429, 503}  # "keep it, and send it again"


def begin_study(folder: Path, *, questions: int, cap: int, changes: str) -> Path:
    """Write a study of made-up questions of every kind, and return its file."""
    kinds: list[dict[str, Any]] = [
        {"first": "one", "second": "other"},
        {"completion": "one", "ask": "thumb"},
        {"completion": "one", "ask": "rating"},
        {"candidates": ["one", "other", "third"]},
        {"candidates": ["one", "other", "third"], "ask": "ranking"},
    ]
    lines = [
        json.dumps({"prompt": f"question {n}", **kinds[n % len(kinds)]}) for n in range(questions)
    ]
    (folder / "questions.jsonl").write_text("\n".join(lines) + "\n")
    file = folder / "study.toml"
    terms: dict[str, Any] = {"epsilon": EPSILON, "cap": cap, "accept_weak": True}  # of nobody
    lines_file, levels = folder / "questions.jsonl", Levels(1, 5)
    new_study(file, title="Load", questions=lines_file, levels=levels, **terms)
    text = file.read_text().replace('changes = "refused"', f'changes = "{changes}"')
    file.write_text(text)
    return file


@contextmanager
def database(kind: str, folder: Path, address: str | None = None) -> Iterator[str]:
    """Yield the URL of a new database, and drop it afterwards.

    Args:
        kind: ``"sqlite"`` or ``"postgresql"``.
        folder: Where an SQLite file is made.
        address: A PostgreSQL server; the one of the tests if left out.
    """
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'study.db'}"
        return
    address = address or os.environ[POSTGRES]
    base, name = address.rpartition("/")[0], f"load_{secrets.token_hex(6)}"
    _as_owner(address, f"CREATE DATABASE {name}")
    try:
        yield f"{base}/{name}"
    finally:
        _as_owner(address, f"DROP DATABASE {name} WITH (FORCE)")


def _as_owner(address: str, statement: str) -> None:
    """Carry out a statement that stands outside of transactions."""
    url = address.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


def invited(file: Path, url: str, count: int) -> tuple[Study, Engine, list[str]]:
    """Return a study on a database, and new tokens."""
    os.environ[DATABASE_VARIABLE] = url
    study = read_study(file)
    engine = frozen(open_database(study.database_url), study, create=True)
    return study, engine, invite(engine, study, count=count, days=1)


class Server:
    """A process that serves a study, and can be killed and started again at the same port."""

    def __init__(self, file: Path, url: str, *, way: str = "") -> None:
        """Choose a port; :meth:`start` starts the process.

        Args:
            file: The study.
            url: Its database.
            way: ``"alone"``: a transaction for each submit; ``"hasty"``: people may send as fast as
                they can; ``"early"``: the same with a planted bug, which acknowledges before it
                commits.
        """
        self._command = [sys.executable, __file__, str(file), way]
        self._environment = os.environ | {DATABASE_VARIABLE: url}
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port: int = taken.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.log = file.parent / f"log-{self.port}"

    def start(self, seconds: float = 60) -> Server:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            command = [*self._command, str(self.port)]
            self._process = subprocess.Popen(command, env=self._environment, stderr=log)
        self.wait(seconds)
        return self

    def wait(self, seconds: float = 60) -> None:
        """Wait until it answers."""
        end = time.monotonic() + seconds
        while not self._is_healthy():
            if self._process is None or self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"The server did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def _is_healthy(self) -> bool:
        """Return whether it answers."""
        address = f"http://127.0.0.1:{self.port}/api/health"
        with suppress(URLError, OSError), urllib.request.urlopen(address, timeout=5) as response:
            return bool(response.status == 200)
        return False

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        """Send a signal, and wait until the process is gone."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)

    def core_seconds(self) -> float:
        """Return how long cores have worked for it."""
        import psutil

        if self._process is None:
            return 0.0
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)


@dataclass(frozen=True)
class Answer:
    """A randomized answer as a page sends it."""

    id: str
    question: str
    revision: int
    answer: int

    @classmethod
    def drawn(cls, question: str, revision: int = 1) -> Answer:
        """Return an answer with a coin of its own."""
        # a die has at least two sides, so that a coin is an answer to whatever is asked
        return cls(str(uuid.uuid4()), question, revision, secrets.randbelow(2))


@dataclass
class Person:
    """Somebody with a page: sends answers one after the other until each is acknowledged.

    Attributes:
        token: The invitation.
        port: Where the service listens.
        asked: The questions, once it was opened.
        acknowledged: What the service said is stored.
        refused: Codes of what it refused.
        again: How often something had to be sent again.
        waits: Seconds from each submit to its acknowledgment.
    """

    study: Study
    token: str
    port: int
    device: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    asked: list[str] = field(default_factory=list)
    acknowledged: list[Answer] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    again: int = 0
    waits: list[float] = field(default_factory=list)
    _streams: Any = None

    async def open(self) -> None:
        """Open the invitation."""
        value = await self._insist("/api/open", self.token, {"device": self.device})
        self.asked = [question["id"] for question in value["questions"]]

    async def send(self, *answers: Answer) -> dict[str, Any]:
        """Send answers under the same ids until the service has said what became of each."""
        body = {"study": self.study.id, "answers": [vars(answer) for answer in answers]}
        start = time.perf_counter()
        value = await self._insist("/api/answers", self.device, body)
        self.waits.append(time.perf_counter() - start)
        self.acknowledged += [answer for answer in answers if answer.id in value["stored"]]
        self.refused += [row["code"] for row in value["refused"]]
        return value

    async def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _insist(self, path: str, secret: str, body: Any) -> dict[str, Any]:
        """Return the answer to a request that is sent until it is answered."""
        while True:
            status = 503
            value: dict[str, Any] = {}
            with suppress(OSError, EOFError, ValueError):
                status, value = await self._request(path, secret, json.dumps(body).encode())
            if status == 200:
                return value
            await self.close()
            if status not in AGAIN:
                raise SystemExit(f"{path} was answered with {status}: {value}")
            self.again += 1
            await asyncio.sleep(0.05 + secrets.randbelow(100) / 1000)

    async def _request(self, path: str, secret: str, raw: bytes) -> tuple[int, Any]:
        """Return the status and the JSON of one response on a connection that is kept."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
        )
        writer.write(head.encode() + raw)
        start = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(start.partition(b"content-length:")[2].split(b"\r\n")[0])
        return int(start.split()[1]), json.loads(await reader.readexactly(size))


def stored_of(engine: Engine, study: Study, people: list[Person]) -> dict[str, Any]:
    """Return the answers that the database holds of each person, by device and question."""
    digests = {digest_of_secret(study, "device", one.device): one.device for one in people}
    with reading(engine) as connection:  # one state, while others go on writing
        persons = connection.execute(select(PERSONS)).all()
        answers = connection.execute(select(ANSWERS)).all()
    engine.dispose()
    found: dict[str, dict[str, Answer]] = {row.id: {} for row in persons}
    for row in answers:
        found[row.person][row.question] = Answer(row.id, row.question, row.revision, row.answer)
    if sum(map(len, found.values())) != len(answers):
        raise SystemExit("A person has two answers to one question.")
    return {digests[row.device]: found[row.id] for row in persons}


def _acknowledge_first(writer: Any, jobs: list[Any]) -> None:
    """Do jobs as the writer does, but tell of each before the transaction is committed."""
    from sordino.collection.refusals import Refusal

    with writer._engine.begin() as connection:
        for job, future in jobs:
            try:
                future.set_result(job(connection))
            except Refusal as refusal:
                future.set_exception(refusal)
        time.sleep(0.005)  # as long as many disks take to write


def _serve(file: str, way: str, port: str) -> None:
    """Be the server."""
    from sordino.collection import database as writer
    from sordino.collection import service

    if way in {"hasty", "early"}:
        vars(service)["Buckets"].take = lambda *_, **__: None
    if way == "alone":
        writer._TOGETHER = 1  # type: ignore[misc]
    if way == "early":
        setattr(writer.Writer, "_do", _acknowledge_first)  # noqa: B010 (it is no method to mypy)
    study = read_study(Path(file))
    engine = frozen(open_database(study.database_url), study, create=False)
    serve(make_app(engine, study), listening=listener("127.0.0.1", int(port)))


if __name__ == "__main__":
    _serve(*sys.argv[1:])
