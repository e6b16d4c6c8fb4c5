"""Two services on one database: people who send to both at once are stored once, and nobody waits.

The race of two real processes is in tests/soundness/test_collection_kills.py.
"""

import subprocess
import sys
from functools import partial

import pytest
from sqlalchemy import insert, select

from sordino.collection.answers import _Submitted, store
from sordino.collection.arena import chooser_of
from sordino.collection.database import PERSONS, QUESTIONS, Writer, make_tables, open_database

ROUNDS = 5


@pytest.fixture
def writers(engine):
    """Return two writers with connections of their own, which wait for :meth:`start`."""
    engines = [open_database(engine.url.render_as_string(hide_password=False)) for _ in range(2)]
    yield lambda: [Writer(one) for one in engines]
    for one in engines:
        one.dispose()


def results_of(pair, told):
    """Let two writers work at once, and return what each job made."""
    for writer in pair:
        writer.start()
    results = [future.result(60) for future in told]
    for writer in pair:
        writer.stop()
    return results


def test_groups_in_opposite_orders_do_not_stop_each_other(talk, writers, answer):
    talk = talk(people=40, questions=ROUNDS, cap=ROUNDS, weak=True)
    held = [talk.open(token) for token in talk.tokens]
    terms = {"study": talk.study, "chooser": chooser_of(talk.study)}
    for number in range(ROUNDS):
        pair, told = writers(), []
        for writer, people in zip(pair, (held, held[::-1]), strict=True):
            for device, asked in people:
                one = (_Submitted(**answer(asked[number])),)
                job = partial(store, **terms, device=device, answers=one)
                told.append(writer.submit(job))
        results = results_of(pair, told)
        assert sum(len(result["stored"]) for result in results) == len(held)
        codes = [row["code"] for result in results for row in result["refused"]]
        assert codes == ["already-answered"] * len(held)
    assert talk.count() == ROUNDS * len(held)


def test_two_services_together_store_no_more_than_the_cap(talk, writers, answer):
    """Each sends a label and its change; whoever comes second sees what the first one stored."""
    talk = talk(people=20, questions=2, cap=2, changes="paid", weak=True)
    if talk.engine.dialect.name == "postgresql":  # a server may be set up so
        name = talk.engine.url.database
        with talk.engine.begin() as connection:
            level = "SET default_transaction_isolation = 'repeatable read'"
            connection.exec_driver_sql(f"ALTER DATABASE {name} {level}")
    held = [talk.open(token) for token in talk.tokens]
    terms, told = {"study": talk.study, "chooser": chooser_of(talk.study)}, []
    pair = writers()
    for writer, place in zip(pair, (0, 1), strict=True):
        for device, asked in held:
            labels = (_Submitted(**answer(asked[place], revision=turn)) for turn in (1, 2))
            job = partial(store, **terms, device=device, answers=tuple(labels))
            told.append(writer.submit(job))
    results = results_of(pair, told)
    assert sum(len(result["stored"]) for result in results) == 2 * len(held)
    assert {result["spent"] for result in results} == {2}


def test_people_who_come_at_once_are_asked_different_questions_equally_often(talk, writers):
    import json
    from collections import Counter

    from sordino.collection.answers import open_invitation

    talk = talk(people=24, questions=8, cap=2)
    pair, told = writers(), []
    for at, token in enumerate(talk.tokens):
        device = f"{at:043d}"
        job = lambda link, token=token, device=device: open_invitation(  # noqa: E731
            link, talk.study, chooser_of(talk.study), token=token, device=device
        )
        told.append(pair[at % 2].submit(job))
    asked = [opened.questions for opened in results_of(pair, told)]
    assert set(Counter(name for names in asked for name in names).values()) == {6}
    with talk.engine.begin() as connection:
        rows = connection.execute(select(PERSONS.c.questions)).scalars().all()
    assert sorted(map(json.loads, rows)) == sorted(asked)


def test_what_is_acknowledged_is_durable_however_a_server_is_set_up(engine):
    """A lost answer would be asked again, and a second coin tossed for it."""
    asked, durable = "PRAGMA synchronous", 2
    if engine.dialect.name == "postgresql":
        asked, durable, name = "SHOW synchronous_commit", "on", engine.url.database
        with engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
        engine.dispose()  # what is set so holds for connections that come after it
    with engine.begin() as connection:
        assert connection.exec_driver_sql(asked).scalar_one() == durable


LOOK = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1])
found = other.execute("SELECT id FROM sordino_questions ORDER BY id").fetchall()
other.close()
print(*(name for (name,) in found))
"""


def test_what_one_process_stores_others_see_after_its_tables_were_made_again(tmp_path):
    """As by an invitation in the process of the service: SQLite's locks must stay with it."""
    path = tmp_path / "study.db"
    url = f"sqlite:///{path}"
    service, again = open_database(url), open_database(url)
    make_tables(service)
    seen = []
    for name in ("one", "two"):
        with service.begin() as connection:
            connection.execute(insert(QUESTIONS).values(id=name, asked=0))
        make_tables(again)
        words = [sys.executable, "-c", LOOK, str(path)]
        seen.append(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert seen == ["one\n", "one two\n"]
    service.dispose()
    again.dispose()
