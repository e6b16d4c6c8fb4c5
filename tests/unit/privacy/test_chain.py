"""The rows of a ledger: durable, typed, chained."""

import pytest

from sordino.errors import FileSystemError, LedgerDamaged, LedgerError, UsageError
from sordino.privacy import ledger_chain

FIRST = {"kind": "open", "time": "t", "payload": '{"format":"sordino.ledger","version":2}'}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "spend.db"
    ledger_chain.create(path, **FIRST)
    return path


def test_every_connection_waits_until_a_commit_is_on_the_disk(path):
    with ledger_chain.connect(path) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA fullfsync").fetchone() == (1,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("statement", ["UPDATE rows SET kind = 'x'", "DELETE FROM rows"])
def test_rows_are_never_changed_by_accident(path, statement):
    with pytest.raises(LedgerDamaged), ledger_chain.connect(path) as connection:
        connection.execute(statement)
    with ledger_chain.connect(path) as connection:
        assert len(ledger_chain.verified(connection, path)) == 1


def test_a_second_creation_leaves_the_first_ledger_alone(path):
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        ledger_chain.create(path, **FIRST)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["spend.db"]


def test_a_ledger_held_by_another_process_says_try_again(path, monkeypatch):
    monkeypatch.setattr(ledger_chain, "_BUSY_SECONDS", 0.05)
    with (
        ledger_chain.connect(path) as other,
        ledger_chain.transaction(other),
        pytest.raises(LedgerError, match="held by another process") as caught,
        ledger_chain.connect(path) as connection,
        ledger_chain.transaction(connection),
    ):
        pass
    assert not isinstance(caught.value, LedgerDamaged)


def test_a_missing_file_is_not_made_by_connecting(tmp_path):
    with pytest.raises(FileSystemError), ledger_chain.connect(tmp_path / "none.db"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["", None, 3, b"text", "half \ud800", ["text"]])
def test_a_text_that_no_file_can_hold_is_refused(value):
    with pytest.raises(UsageError, match="scope must be a text"):
        ledger_chain.text("scope", value)


def test_equal_values_give_equal_json():
    assert ledger_chain.canonical_json({"b": 1, "a": [1.5, "x"]}) == '{"a":[1.5,"x"],"b":1}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", {"a": object()}])
def test_what_json_cannot_hold_is_a_usage_error(value):
    with pytest.raises(UsageError, match="details must be"):
        ledger_chain.strict_json("details", value)
