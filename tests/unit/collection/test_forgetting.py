"""After forgetting, files say neither who gave an answer nor who gave one first."""

import os
import secrets

import pytest
from sqlalchemy import create_mock_engine, select, text

from sordino.collection.answers import export_answers, forget, invite
from sordino.collection.database import ANSWERS, INVITATIONS, PERSONS, QUESTIONS, reading
from sordino.errors import FileSystemError


def answered(talk, answer, *, people=12, **settings):
    """Let people answer one after the other, each of them some questions in turn."""
    talk = talk(people=people, questions=8, cap=6, **settings)
    held = [talk.open(token) for token in talk.tokens]
    for turn in range(6):
        for device, asked in secrets.SystemRandom().sample(held, len(held)):
            assert talk.send(device, answer(asked[turn])).status_code == 200
    return talk, held


def rows_of(engine, table):
    with reading(engine) as connection:
        return connection.execute(select(table)).all()


def test_ids_of_browsers_and_orders_of_questions_go_too(talk, answer):
    talk, held = answered(talk, answer)
    before = rows_of(talk.engine, ANSWERS)
    assert forget(talk.engine) == 12
    after = rows_of(talk.engine, ANSWERS)
    kept = [(row.person, row.question, row.revision, row.answer) for row in before]
    assert sorted(kept) == sorted((r.person, r.question, r.revision, r.answer) for r in after)
    assert {row.id for row in after} == {""}
    persons = rows_of(talk.engine, PERSONS)
    assert {(row.device, row.questions) for row in persons} == {(None, "[]")}
    assert rows_of(talk.engine, INVITATIONS) == []
    assert sum(row.asked for row in rows_of(talk.engine, QUESTIONS)) == 72
    assert talk.send(held[0][0], answer(held[0][1][0])).status_code == 401


def test_an_export_is_the_same_before_and_after(talk, answer, tmp_path):
    talk, _ = answered(talk, answer)
    names = [tmp_path / f"{name}.jsonl" for name in ("before", "after", "again")]
    export_answers(talk.engine, talk.study, names[0], unit="person")
    forget(talk.engine)
    export_answers(talk.engine, talk.study, names[1], unit="person")
    assert forget(talk.engine) == 0
    export_answers(talk.engine, talk.study, names[2], unit="person")
    assert len({name.read_bytes() for name in names}) == 1
    assert talk.admin().json()["answers"] == 72
    (token,) = invite(talk.engine, talk.study, count=1, days=1)
    assert talk.post("/api/open", token, {"device": "d" * 43}).status_code == 200


KEYS = {ANSWERS: ("person", "question"), PERSONS: ("id",), QUESTIONS: ("id",)}


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_postgresql_keeps_no_order_of_arrival(talk, answer):
    talk, _ = answered(talk, answer)
    places = "SELECT * FROM {} ORDER BY ctid"
    changes = "SELECT count(DISTINCT xmin::text) FROM {}"
    with talk.engine.begin() as connection:
        assert connection.execute(text(changes.format(ANSWERS.name))).scalar_one() > 1
    forget(talk.engine)
    with talk.engine.begin() as connection:
        for table, names in KEYS.items():
            rows = connection.execute(text(places.format(table.name))).all()
            keys = [tuple(getattr(row, name) for name in names) for row in rows]
            assert keys == sorted(keys)
            assert len(keys) >= 8
            assert connection.execute(text(changes.format(table.name))).scalar_one() == 1
        assert connection.execute(text("SELECT count(*) FROM pg_class WHERE relname = 'copied'")
        ).scalar_one() == 0  # fmt: skip


def kept_of(engine, but=None):
    """Every byte of the files of a database, or of all tables but some, and of their indexes."""
    files = (  # the server may remove one between the list and the reading
        "SELECT pg_read_binary_file(file, 0, (pg_stat_file(file, true)).size, true) FROM"
        " (SELECT 'base/' || oid || '/' || pg_ls_dir('base/' || oid) AS file FROM pg_database"
        " WHERE datname = current_database()) AS files"
    )
    others = (
        "SELECT pg_read_binary_file(pg_relation_filepath(oid)) FROM pg_class"
        " WHERE relkind IN ('r', 'i', 't') AND oid <> ALL (CAST(:names AS regclass[]))"
        " AND oid NOT IN (SELECT indexrelid FROM pg_index"
        " WHERE indrelid = ANY (CAST(:names AS regclass[])))"
    )
    found = text(files) if but is None else text(others).bindparams(names=list(but))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CHECKPOINT"))
        return b"".join(row[0] for row in connection.execute(found) if row[0] is not None)


@pytest.mark.deep
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_postgresql_keeps_no_trace_in_its_catalog_or_files(talk, answer):
    """What ANALYZE would have sampled, autovacuum's too, is searched for in every file."""
    talk, _ = answered(talk, answer)
    tokens = [row.token for row in rows_of(talk.engine, INVITATIONS)]
    devices = [row.device for row in rows_of(talk.engine, PERSONS)]
    people = [row.id for row in rows_of(talk.engine, PERSONS)]
    answers = [row.id for row in rows_of(talk.engine, ANSWERS)]
    sampled = "SELECT count(*) FROM pg_statistic WHERE starelid::regclass::text LIKE 'sordino%'"

    def maintain():
        with talk.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))
            counted = connection.execute(text(sampled)).scalar_one()
            connection.execute(text("VACUUM"))
        return counted

    assert kept_of(talk.engine).count(tokens[0].encode()) > 0  # the search finds what is there
    assert maintain() == 0
    forget(talk.engine)
    assert maintain() == 0
    everything = kept_of(talk.engine)
    for one in (*tokens, *devices, *answers):
        assert one.encode() not in everything
    elsewhere = kept_of(talk.engine, (ANSWERS.name, PERSONS.name))
    assert not [one for one in people if one.encode() in elsewhere]


def test_postgresql_is_told_to_sample_no_column():
    """Without a server: what makes the tables."""
    said = []
    engine = create_mock_engine(
        "postgresql+psycopg://", lambda one, *_, **__: said.append(str(one))
    )
    PERSONS.metadata.create_all(engine, checkfirst=False)
    for table in PERSONS.metadata.sorted_tables:
        (settings,) = [one for one in said if one.startswith(f"ALTER TABLE {table.name} ")]
        for column in table.columns:
            assert f'ALTER COLUMN "{column.name}" SET STATISTICS 0' in settings


@pytest.mark.deep
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_somebody_who_reads_for_long_keeps_every_link(talk, answer):
    talk, _ = answered(talk, answer, people=2)
    with reading(talk.engine) as connection:
        connection.execute(select(ANSWERS)).all()
        with pytest.raises(FileSystemError, match="Every link is still there"):
            forget(talk.engine)
    assert len(rows_of(talk.engine, INVITATIONS)) == 2
    assert {row.id for row in rows_of(talk.engine, ANSWERS)} != {""}
    assert forget(talk.engine) == 2


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_only_its_owner_may_read_an_sqlite_file(talk, answer, tmp_path):
    before = os.umask(0)
    try:
        talk, _ = answered(talk, answer, people=1)
        found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("study.db*")}
    finally:
        os.umask(before)
    assert found == dict.fromkeys(("study.db", "study.db-wal", "study.db-shm"), 0o600)
