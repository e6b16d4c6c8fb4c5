"""Whoever asks for too much waits, and nobody else; a database that is down loses nothing."""

import secrets
import sqlite3
import threading

import pytest
from sqlalchemy import create_engine, event, func, select, text
from starlette.testclient import TestClient
from tests.tiers import few

from sordino.collection import refusals
from sordino.collection.answers import handle_of, revoke
from sordino.collection.database import ANSWERS, open_database
from sordino.collection.refusals import Buckets, Refusal

ONE_KIND = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that stands until it is moved."""

    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(refusals, "clock", clock)
    return clock


def taken(buckets, sender, *, cost=1.0):
    """Return how long a sender is told to wait; 0 if it may go on."""
    try:
        buckets.take(sender, cost=cost)
    except Refusal as refusal:
        return refusal.wait if refusal.code == "too-many-requests" else -1
    return 0


def test_a_burst_then_a_rate_and_the_wait_is_enough(clock):
    buckets = Buckets(burst=3, rate=0.5)
    assert [taken(buckets, "a") for _ in range(5)] == [0, 0, 0, 2, 2]
    assert taken(buckets, "b") == 0
    clock.now += 2
    assert [taken(buckets, "a") for _ in range(2)] == [0, 2]
    clock.now += 10_000
    assert [taken(buckets, "a") for _ in range(4)] == [0, 0, 0, 2]


def test_looking_costs_nothing_and_a_dear_thing_needs_all_of_its_cost(clock):
    buckets = Buckets(burst=4, rate=1)
    assert [taken(buckets, "a", cost=0) for _ in range(100)] == [0] * 100
    assert taken(buckets, "a", cost=4) == 0
    assert taken(buckets, "a", cost=0) == 1
    clock.now += 2
    assert taken(buckets, "a", cost=4) == 2


def test_what_was_taken_can_be_given_back_and_no_more_than_that(clock):
    buckets = Buckets(burst=4, rate=1)
    assert taken(buckets, "a", cost=4) == 0
    buckets.give_back("a", cost=3)
    assert [taken(buckets, "a") for _ in range(4)] == [0, 0, 0, 1]
    for sender in ("a", "b"):
        buckets.give_back(sender, cost=100)
        assert taken(buckets, sender, cost=4) == 0
        assert taken(buckets, sender, cost=4) == 4


def test_senders_are_forgotten_so_that_memory_is_bounded(monkeypatch, clock):
    monkeypatch.setattr(refusals, "_MOST_SENDERS", 10)
    buckets = Buckets(burst=1, rate=1)
    for sender in range(1000):
        assert taken(buckets, str(sender)) == 0
    assert len(buckets._senders) == 10
    assert taken(buckets, "999") == 1


@ONE_KIND
def test_one_device_that_sends_too_much_slows_nobody_else(talk, answer, clock):
    talk = talk()
    (device, asked), (other, others) = talk.open(), talk.open(talk.tokens[1])
    sent = answer(asked[0])
    status = [talk.send(device, sent).status_code for _ in range(70)]
    assert status == [200] * 60 + [429] * 10
    refused = talk.send(device, sent)
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["code"] == "too-many-requests"
    assert talk.send(other, answer(others[0])).status_code == 200
    clock.now += 1
    assert [talk.send(device, sent).status_code for _ in range(6)] == [200] * 5 + [429]


@ONE_KIND
@pytest.mark.parametrize("form", ["of a secret", "of none"])
def test_guessing_slows_its_sender_and_nobody_who_was_right(talk, answer, clock, form):
    talk = talk()
    device, asked = talk.open()
    body = {"device": "d" * 43}
    status = []
    for _ in range(40):
        guess = secrets.token_urlsafe(32) if form == "of a secret" else "x"
        status.append(talk.post("/api/open", guess, body).status_code)
    assert status == [401] * 30 + [429] * 10
    wait = int(talk.post("/api/open", guess, body).headers["retry-after"])
    assert 1 <= wait <= 2
    assert talk.post("/api/open", talk.tokens[1], body).status_code == 429
    assert talk.send(device, answer(asked[0])).status_code == 200
    client = TestClient(talk.client.app, client=("203.0.113.7", 1))
    headers = {"Authorization": f"Bearer {talk.tokens[1]}"}
    assert client.post("/api/open", headers=headers, json=body).status_code == 200
    clock.now += wait
    assert talk.post("/api/open", talk.tokens[2], {"device": "e" * 43}).status_code == 200


def at_once(talk, secrets_of_senders, monkeypatch):
    """Send requests that are all on their way before the first is answered; return statuses."""
    from sordino.collection import service as routes

    number, arrived, told = len(secrets_of_senders), threading.Semaphore(0), []
    goes_on, found = threading.Event(), routes.open_invitation

    def slow(*arguments, **more):
        goes_on.wait(30)
        return found(*arguments, **more)

    def ask(secret):
        arrived.release()
        body = {"device": secrets.token_urlsafe(32)}
        told.append(talk.post("/api/open", secret, body).status_code)

    monkeypatch.setattr(routes, "open_invitation", slow)
    threads = [threading.Thread(target=ask, args=(one,)) for one in secrets_of_senders]
    for thread in threads:
        thread.start()
    for _ in range(number):
        assert arrived.acquire(timeout=30)
    threading.Event().wait(1)
    goes_on.set()
    for thread in threads:
        thread.join()
    return told


def _joins(talk):
    return "/api/open", talk.tokens[0], {"device": secrets.token_urlsafe(32)}


def _looks(talk):
    return "/api/preview", talk.tokens[0], {}


def _guesses(talk):
    return "/api/open", secrets.token_urlsafe(32), {"device": "d" * 43}


def _tries(talk):
    code = "".join(secrets.choice("0123456789ABCDEF") for _ in range(12))
    return "/api/claim", secrets.token_urlsafe(32), {"study": talk.study.id, "code": code}


@ONE_KIND
@pytest.mark.parametrize(
    ("own", "others", "asks", "burst"),
    few(
        [
            *(
                ("2001:db8:1:2:{0:x}::{0:x}", ["2001:db8:1:3::1", "2001:db8:2:2::1"], asks, burst)
                for asks, burst in ((_joins, 30), (_looks, 60), (_guesses, 30), (_tries, 30))
            ),
            ("fe80::{0:x}%eth{0}", ["2001:db8:1:2::1", "192.0.2.1"], _guesses, 30),
            ("::ffff:192.0.2.1", ["::ffff:192.0.2.2", "192.0.2.2"], _guesses, 30),
            ("{1}192.0.2.1", ["192.0.2.2", "::ffff:192.0.2.2"], _guesses, 30),
        ],
        first=4,
    ),
)
def test_who_has_a_network_of_ipv6_has_one_share(talk, clock, own, others, asks, burst):
    """A mapped address counts as the IPv4 address that it is."""
    talk = talk(open=True, questions=2)

    def status(host):
        path, secret, body = asks(talk)
        headers = {"Authorization": f"Bearer {secret}"}
        client = TestClient(talk.client.app, client=(host, 1))
        return client.post(path, headers=headers, json=body).status_code

    told = [status(own.format(n, "::ffff:" * (n % 2))) for n in range(burst + 5)]
    assert [one == 429 for one in told] == [False] * burst + [True] * 5
    assert 429 not in [status(host) for host in others]


@ONE_KIND
def test_guesses_that_come_together_are_counted_before_they_are_looked_up(talk, clock, monkeypatch):
    talk = talk()
    told = at_once(talk, [secrets.token_urlsafe(32) for _ in range(60)], monkeypatch)
    assert sorted(told) == [401] * 30 + [429] * 30


@pytest.mark.deep
@ONE_KIND
def test_secrets_that_are_right_cost_nothing_in_the_end(talk, clock, monkeypatch):
    talk = talk(people=60)
    for at in (0, 20, 40):
        assert at_once(talk, talk.tokens[at : at + 20], monkeypatch) == [200] * 20
    guess = lambda: talk.post("/api/open", secrets.token_urlsafe(32), {"device": "d" * 43})  # noqa: E731
    assert [guess().status_code for _ in range(31)] == [401] * 30 + [429]


@ONE_KIND
def test_an_expired_invitation_is_no_guess(talk, clock):
    talk = talk(people=1)
    revoke(talk.engine, [handle_of(talk.study, talk.tokens[0])])
    opened = [talk.post("/api/open", talk.tokens[0], {"device": "d" * 43}) for _ in range(50)]
    assert {one.status_code for one in opened} == {403}


@ONE_KIND
def test_guessing_the_admin_token_slows_too(talk, clock):
    talk = talk()
    headers = {"Authorization": "Bearer " + "x" * 43}

    def ask():
        return talk.client.get("/api/admin/status", headers=headers).status_code

    assert [ask() for _ in range(32)] == [401] * 30 + [429] * 2
    clock.now += 1  # half of what a guess costs: nothing is told
    assert [ask() for _ in range(3)] == [429] * 3
    assert talk.admin().status_code == 429
    clock.now += 1
    assert talk.admin().status_code == 200


def count(engine):
    with engine.begin() as connection:
        return connection.execute(select(func.count()).select_from(ANSWERS)).scalar_one()


def keeps_what_could_not_be_stored(talk, answer, *, down, up):
    """Send answers before, while and after a database is down; all of them are there once."""
    device, asked = talk.open()
    before, queued = answer(asked[0]), answer(asked[1])
    assert talk.send(device, before).status_code == 200
    down()
    try:
        for _ in range(2):
            response = talk.send(device, before, queued)
            assert response.status_code == 503, response.text
            assert response.json()["error"]["code"] == "database-down"
            assert int(response.headers["retry-after"]) >= 1
        opened = talk.post("/api/open", talk.tokens[1], {"device": "d" * 43})
        assert opened.status_code == 503
    finally:
        up()
    assert talk.client.get("/api/health").status_code == 200
    value = talk.send(device, before, queued).json()
    assert (value["stored"], value["spent"]) == ([before["id"], queued["id"]], 2)
    assert talk.post("/api/open", talk.tokens[1], {"device": "d" * 43}).status_code == 200
    assert count(talk.engine) == 2


@pytest.fixture
def impatient(monkeypatch):
    """Let SQLite wait for a lock for a moment only."""
    from sordino.collection import database

    settings = {**database._SQLITE, "connect_args": {**database._SQLITE["connect_args"]}}
    settings["connect_args"]["timeout"] = 0.05
    monkeypatch.setattr(database, "_SQLITE", settings)


@pytest.mark.usefixtures("impatient")
class TestSQLite:
    @ONE_KIND
    def test_locked(self, talk, answer, tmp_path):
        talk = talk()
        other = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
        keeps_what_could_not_be_stored(
            talk,
            answer,
            down=lambda: other.execute("BEGIN IMMEDIATE"),
            up=lambda: other.execute("ROLLBACK"),
        )
        other.close()

    @ONE_KIND
    def test_full(self, talk, answer, tmp_path):
        talk = talk(questions=200, cap=200, weak=True)
        pages = []

        def bound(connection, *_):
            for most in pages:
                connection.execute(f"PRAGMA max_page_count={most}")

        event.listen(talk.engine, "connect", bound)

        def down():
            with talk.engine.connect() as connection:
                pages.append(connection.execute(text("PRAGMA page_count")).scalar_one())
            talk.engine.dispose()

        def up():
            pages[:] = [10**6]
            talk.engine.dispose()

        device, asked = talk.open()
        down()
        sent = [answer(question) for question in asked]
        status = [talk.send(device, *sent[at : at + 50]).status_code for at in (0, 50, 100, 150)]
        assert 503 in status
        up()
        for at in (0, 50, 100, 150):
            assert talk.send(device, *sent[at : at + 50]).status_code == 200
        assert count(talk.engine) == 200

    def test_its_folder_is_away(self, make_study, talk_on, tmp_path, answer):
        folder = tmp_path / "mounted"
        folder.mkdir()
        engine = open_database(f"sqlite:///{folder / 'study.db'}")
        talk = talk_on(engine, make_study())

        def down():
            engine.dispose()
            folder.rename(tmp_path / "away")

        def up():
            engine.dispose()
            (tmp_path / "away").rename(folder)

        with talk.client:
            keeps_what_could_not_be_stored(talk, answer, down=down, up=up)
        engine.dispose()


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_postgresql_that_takes_nobody_in(talk, answer):
    talk = talk()
    url, name = talk.engine.url.set(database="postgres"), talk.engine.url.database

    def allow(yes):
        owner = create_engine(url, isolation_level="AUTOCOMMIT")
        with owner.connect() as connection:
            connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {yes}"))
            ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
            connection.execute(text(ends), {"name": name})
        owner.dispose()

    keeps_what_could_not_be_stored(
        talk, answer, down=lambda: allow("false"), up=lambda: allow("true")
    )


@ONE_KIND
def test_a_queue_that_is_full_says_so(talk, answer, monkeypatch):
    from sordino.collection import service as routes

    monkeypatch.setattr("sordino.collection.database._WAITING", 1)
    talk = talk()
    device, asked = talk.open()
    goes_on, store = threading.Event(), routes.store

    def slow(connection, **arguments):
        goes_on.wait(30)
        return store(connection, **arguments)

    monkeypatch.setattr(routes, "store", slow)
    told = []
    senders = [
        threading.Thread(target=lambda: told.append(talk.send(device, answer(asked[0]))))
        for _ in range(6)
    ]
    for sender in senders:
        sender.start()
    while len(told) < 4:
        threading.Event().wait(0.01)
    goes_on.set()
    for sender in senders:
        sender.join()
    assert [one.status_code for one in told[:4]] == [503] * 4
    assert sorted(one.status_code for one in told[4:]) == [200, 200]
    assert count(talk.engine) == 1
