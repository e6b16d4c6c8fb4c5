"""A backup is one file of one state, the same from both databases, and comes back whole or not."""

import io
import json
import os
import subprocess
import sys
import threading
import zipfile

import pytest
from sqlalchemy import Boolean, Column, Integer, MetaData, String, select

from sordino.collection import backup as module
from sordino.collection.answers import export_zip, forget, handle_of, reissue, revoke
from sordino.collection.backup import restore, write_backup
from sordino.collection.database import (
    ANSWERS,
    INVITATIONS,
    PERSONS,
    TABLES,
    frozen,
    open_database,
    reading,
)
from sordino.errors import DataError, FileSystemError, LedgerMismatch, UsageError

ONE_KIND = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


def everything(engine):
    """Return all rows of all tables."""
    with reading(engine) as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(select(table)).all()), key=repr)
            for table in TABLES.sorted_tables
        }


def packed(talk):
    file = io.BytesIO()
    write_backup(talk.engine, talk.study, file)
    return file.getvalue()


@pytest.fixture
def answered(talk, answer):
    """Return a study with answers, one invitation that is open, and one that was revoked."""
    talk = talk(people=5)
    for token in talk.tokens[:3]:
        device, asked = talk.open(token)
        talk.send(device, *map(answer, asked[:3]))
    talk.last = device, asked
    revoke(talk.engine, [handle_of(talk.study, talk.tokens[4])])
    return talk


@pytest.fixture
def blank(tmp_path):
    """Return an engine on an SQLite database that is not there yet."""
    made = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    yield made
    made.dispose()


@pytest.fixture
def empty(engine, blank, request):
    """Return an engine on an empty database of the other kind, where there is one."""
    if engine.dialect.name == "postgresql" or "SORDINO_TEST_POSTGRES" not in os.environ:
        yield blank
        return
    made = open_database(request.getfixturevalue("postgres"))
    yield made
    made.dispose()


@pytest.fixture
def file(answered, tmp_path):
    path = tmp_path / "backup.zip"
    path.write_bytes(packed(answered))
    return path


def test_everything_comes_back_and_a_device_goes_on(answered, file, empty, talk_on, answer):
    before = export_zip(answered.engine, answered.study, unit="person")
    rows = restore(empty, answered.study, file, nothing_since=True)
    assert rows == {name: len(found) for name, found in everything(empty).items()}
    assert (rows[ANSWERS.name], rows[PERSONS.name], rows[INVITATIONS.name]) == (9, 3, 5)
    assert everything(empty) == everything(answered.engine)
    assert export_zip(frozen(empty, answered.study, create=False), answered.study, unit="person") \
        == before  # fmt: skip
    device, asked = answered.last
    again = talk_on(empty, answered.study, people=1)
    assert packed(again) != file.read_bytes()
    with again.client:
        assert again.codes(again.send(device, answer(asked[0]))) == ["already-answered"]
        assert again.send(device, answer(asked[3])).json()["spent"] == 4
        assert again.open(answered.tokens[3])[1]
        revoked = again.post("/api/open", answered.tokens[4], {"device": "d" * 43})
        assert again.is_refused(revoked, "invitation-revoked")


def test_whoever_answered_since_is_not_asked_by_another_device(
    answered, file, empty, talk_on, answer
):
    """A device that moved after the backup would toss a second coin for what it does not know."""
    device, asked = answered.last
    answered.send(device, answer(asked[3]))
    restore(empty, answered.study, file)
    assert len(everything(empty)[ANSWERS.name]) == 9
    again = talk_on(empty, answered.study, people=1)
    with again.client:
        assert again.is_refused(again.send(device, answer(asked[3])), "invitation-revoked")
        for token in answered.tokens:
            told = again.post("/api/open", token, {"device": "d" * 43})
            assert again.is_refused(told, "invitation-revoked")
        assert again.open()[1]  # a new invitation


@pytest.mark.parametrize("which", [2, 3], ids=["who answered", "who opened nothing before"])
def test_no_new_link_is_made_for_whoever_may_have_answered_since(answered, file, empty, which):
    """It would let a device that knows of no coin toss a second one, for the same person."""
    restore(empty, answered.study, file)
    before = everything(empty)
    with pytest.raises(UsageError, match="ended with a restore"):
        reissue(empty, answered.study, handle_of(answered.study, answered.tokens[which]), days=1)
    assert everything(empty) == before


def test_both_databases_write_the_same_bytes(answered, file, empty, tmp_path):
    restore(empty, answered.study, file, nothing_since=True)
    with (tmp_path / "again.zip").open("wb") as again:
        write_backup(empty, answered.study, again)
    assert (tmp_path / "again.zip").read_bytes() == file.read_bytes()


def test_no_time_and_no_order_of_arrival_is_in_the_file(answered, file):
    with zipfile.ZipFile(file) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        for table in TABLES.sorted_tables:
            rows = [json.loads(row) for row in archive.open(f"{table.name}.jsonl")]
            keys = [[row[column.name] for column in table.primary_key] for row in rows]
            assert keys == sorted(keys)
            assert keys or table not in (ANSWERS, INVITATIONS, PERSONS)


def test_a_backup_while_people_answer_is_of_one_state(
    answered, answer, empty, monkeypatch, tmp_path
):
    """What is stored after the first table was read is in none of the others."""
    device, asked = answered.last
    read, stored = threading.Event(), threading.Event()
    asked_for = module.select

    def slow(table):
        if table is TABLES.sorted_tables[1]:
            read.set()
            assert stored.wait(20)
        return asked_for(table)

    def send():
        read.wait(20)
        answered.send(device, answer(asked[3]))
        answered.open(answered.tokens[3])
        stored.set()

    before = everything(answered.engine)
    sender = threading.Thread(target=send)
    sender.start()
    with monkeypatch.context() as patch:
        patch.setattr(module, "select", slow)
        (tmp_path / "b.zip").write_bytes(packed(answered))
    sender.join()
    restore(empty, answered.study, tmp_path / "b.zip", nothing_since=True)
    assert everything(empty) == before != everything(answered.engine)


def test_tables_and_columns_that_came_later_are_copied_too(
    engine, make_study, monkeypatch, tmp_path
):
    later, study = MetaData(), make_study()
    for table in TABLES.sorted_tables:
        table.to_metadata(later)
    from sqlalchemy import Table, insert

    moves = Table(
        *("sordino_later", later, Column("z", Integer, primary_key=True)),
        *(Column("open", Boolean, nullable=False), Column("name", String(9))),
    )
    monkeypatch.setattr("sordino.collection.database.TABLES", later)
    monkeypatch.setattr(module, "TABLES", later)
    with frozen(engine, study, create=True).begin() as connection:
        connection.execute(insert(moves), [{"z": 10, "open": True, "name": None},
                                           {"z": 9, "open": False, "name": "ü"}])  # fmt: skip
    path, other = tmp_path / "backup.zip", open_database(f"sqlite:///{tmp_path / 'later.db'}")
    with path.open("wb") as file:
        write_backup(engine, study, file)
    assert restore(other, study, path, nothing_since=True)["sordino_later"] == 2
    with reading(other) as connection:
        rows = connection.execute(select(moves).order_by(moves.c.z)).all()
    assert list(map(tuple, rows)) == [(9, False, "ü"), (10, True, None)]
    other.dispose()
    monkeypatch.undo()
    with pytest.raises(DataError, match="another version"):
        restore(other, study, path)


def changed(file, change):
    """Write an archive anew with other contents."""
    with zipfile.ZipFile(file) as archive:
        contents = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    change(contents)
    with zipfile.ZipFile(file, "w") as archive:
        for name, raw in contents.items():
            archive.writestr(name, raw)


def one_bit(contents):
    row = contents["sordino_answers.jsonl"]
    at = row.index(b'"answer": ') + 10
    turned = b"%d" % (1 - int(row[at : at + 1]))
    contents["sordino_answers.jsonl"] = row[:at] + turned + row[at + 1 :]


def noted(**values):
    def change(contents):
        note = json.loads(contents["backup.json"])
        contents["backup.json"] = json.dumps(note | values).encode()

    return change


DAMAGE = {
    "a bit": one_bit,
    "a row less": lambda c: c.update({"sordino_persons.jsonl": b""}),
    "a table less": lambda c: c.pop("sordino_persons.jsonl"),
    "no note": lambda c: c.pop("backup.json"),
    "another note": lambda c: c.update({"backup.json": b"[]"}),
    "another format": noted(format="x"),
    "another version": noted(version=2),
    "no digests": noted(sha256={}),
    "other columns": noted(columns={}),
    "no terms": noted(terms=None),
}


@ONE_KIND
@pytest.mark.parametrize("damage", [*DAMAGE, "cut short", "no archive", "nothing"])
def test_a_damaged_file_restores_nothing(answered, file, blank, damage, tmp_path):
    if damage in DAMAGE:
        changed(file, DAMAGE[damage])
    raw = {"cut short": file.read_bytes()[:-40], "no archive": b"x" * 99, "nothing": b""}
    file.write_bytes(raw.get(damage, file.read_bytes()))
    with pytest.raises(DataError, match="Nothing was restored") as error:
        restore(blank, answered.study, file)
    assert "sordino_" not in str(error.value)
    assert not (tmp_path / "other.db").exists()


@ONE_KIND
def test_a_file_of_another_study_restores_nothing(answered, file, blank, make_study):
    other = make_study()
    with pytest.raises(LedgerMismatch, match="another study"):
        restore(blank, other, file)
    dearer = make_study(id=answered.study.id, cap=3)
    with pytest.raises(LedgerMismatch, match="before it changed"):
        restore(blank, dearer, file)
    with pytest.raises(FileSystemError, match=r"gone\.zip"):
        restore(blank, other, file.with_name("gone.zip"))


def test_a_database_that_holds_anything_is_left_as_it_is(answered, file):
    before = everything(answered.engine)
    with pytest.raises(UsageError, match="holds something already"):
        restore(answered.engine, answered.study, file)
    assert everything(answered.engine) == before


def test_what_fails_in_the_middle_restores_nothing(answered, file, empty, monkeypatch):
    made, seen = module.insert, []

    def fail(table):
        seen.append(table)
        if len(seen) == 10:
            raise OSError
        return made(table)

    monkeypatch.setattr(module, "_AT_ONCE", 2)
    with monkeypatch.context() as patch:
        patch.setattr(module, "insert", fail)
        with pytest.raises(FileSystemError, match="Nothing was restored"):
            restore(empty, answered.study, file, nothing_since=True)
    assert not any(everything(empty).values())
    restore(empty, answered.study, file, nothing_since=True)
    assert everything(empty) == everything(answered.engine)


KILLED = """
import os, sys
from pathlib import Path
from sordino.collection import backup
from sordino.collection.database import open_database
from sordino.collection.study import read_study
made, seen = backup.insert, []
backup._AT_ONCE = 2
backup.insert = lambda table: os._exit(9) if len(seen) == 9 else seen.append(table) or made(table)
backup.restore(open_database(sys.argv[1]), read_study(Path(sys.argv[2])), Path(sys.argv[3]))
"""


@pytest.mark.deep
def test_what_is_killed_in_the_middle_restores_nothing(answered, file, empty, tmp_path):
    url = empty.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", KILLED, url, tmp_path / "study.toml", file]
    assert subprocess.run(command, check=False).returncode == 9
    assert not any(everything(empty).values())
    restore(empty, answered.study, file, nothing_since=True)
    assert everything(empty) == everything(answered.engine)


def test_a_backup_after_forgetting_holds_no_link(answered, file):
    forget(answered.engine)
    with zipfile.ZipFile(io.BytesIO(packed(answered))) as archive:
        assert archive.read(f"{INVITATIONS.name}.jsonl") == b""
        assert {json.loads(row)["device"] for row in archive.open(f"{PERSONS.name}.jsonl")} == {
            None
        }
    with zipfile.ZipFile(file) as archive:  # which is why an older one must be deleted
        assert archive.read(f"{INVITATIONS.name}.jsonl").count(b"\n") == 5
