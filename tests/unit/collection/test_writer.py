"""One thread writes: in order, together, durable before it says so, and never ended by a bug."""

import queue
import threading

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import OperationalError

from sordino.collection import database as module
from sordino.collection.database import QUESTIONS, Writer, open_database
from sordino.collection.refusals import Refusal


@pytest.fixture
def engine(tmp_path):
    engine = open_database(f"sqlite:///{tmp_path / 'w.db'}")
    QUESTIONS.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def writer(engine):
    writer = Writer(engine)
    writer.start()
    yield writer
    writer.stop()


def add(name):
    return lambda connection: connection.execute(insert(QUESTIONS), {"id": name, "asked": 0})


def names(engine):
    with engine.connect() as connection:
        return set(connection.execute(select(QUESTIONS.c.id)).scalars())


def held(writer):
    """Keep the thread busy until the returned event is set, so that jobs wait together."""
    started, go = threading.Event(), threading.Event()
    writer.submit(lambda _: (started.set(), go.wait(20)))
    assert started.wait(20)
    return go


def test_what_waits_shares_one_transaction(writer, engine):
    begun = []
    go = held(writer)
    counting = lambda name: lambda connection: begun.append(connection) or add(name)(connection)  # noqa: E731
    futures = [writer.submit(counting(str(number))) for number in range(9)]
    go.set()
    for future in futures:
        future.result(20)
    assert len(set(map(id, begun))) == 1
    assert names(engine) == set("012345678")


def test_nothing_is_acknowledged_before_it_is_committed(writer, engine, monkeypatch):
    go = held(writer)
    seen = queue.Queue()
    future = writer.submit(add("a"))
    future.add_done_callback(lambda _: seen.put(names(engine)))
    go.set()
    assert seen.get(timeout=20) == {"a"}


def test_a_refused_job_does_not_disturb_the_others(writer, engine):
    def refused(_):
        raise Refusal("unknown-device")

    go = held(writer)
    futures = [writer.submit(job) for job in (add("a"), refused, add("b"))]
    go.set()
    futures[2].result(20)
    with pytest.raises(Refusal, match="not opened"):
        futures[1].result(20)
    assert names(engine) == {"a", "b"}


def test_a_row_that_another_process_wrote_takes_only_its_own_job_along(writer, engine):
    with engine.begin() as connection:
        add("b")(connection)
    go = held(writer)
    futures = [writer.submit(add(name)) for name in "abc"]
    go.set()
    futures[0].result(20), futures[2].result(20)
    with pytest.raises(Refusal) as refusal:
        futures[1].result(20)
    assert refusal.value.code == "database-down"
    assert names(engine) == {"a", "b", "c"}


def test_a_database_that_fails_stores_nothing_of_what_it_refused(writer, engine):
    def fail(_):
        raise OperationalError("secret statement", {}, Exception("down"))

    go = held(writer)
    futures = [writer.submit(job) for job in (add("a"), fail, add("b"))]
    go.set()
    for future in futures:
        with pytest.raises(Refusal) as refusal:
            future.result(20)
        assert (refusal.value.status, refusal.value.wait) == (503, 2)
    assert names(engine) == set()
    writer.submit(add("c")).result(20)
    assert names(engine) == {"c"}


def test_a_bug_does_not_end_the_thread(writer, engine):
    with pytest.raises(ZeroDivisionError):
        writer.submit(lambda _: 1 / 0).result(20)
    writer.submit(add("a")).result(20)


def test_too_much_that_waits_is_refused_at_once(engine, monkeypatch):
    monkeypatch.setattr(module, "_WAITING", 2)
    writer = Writer(engine)
    writer.submit(add("a"))
    writer.submit(add("b"))
    with pytest.raises(Refusal) as refusal:
        writer.submit(add("c"))
    assert refusal.value.code == "database-down"


def test_it_finishes_what_waits_before_it_ends(engine):
    writer = Writer(engine)
    futures = [writer.submit(add(name)) for name in "abc"]
    writer.start()
    writer.stop()
    assert all(future.done() for future in futures)
    assert names(engine) == {"a", "b", "c"}
