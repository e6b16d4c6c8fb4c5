# ruff: noqa: S311, S608 (seeded flips; statements of our own)
"""What the ledger promises: edits are seen, races do not overspend, failures do not spend."""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import asdict, fields
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from tests.tiers import few

import sordino
from sordino import _random
from sordino._files import sha256_of
from sordino.errors import (
    BudgetExceeded,
    FileSystemError,
    LedgerDamaged,
    LedgerError,
    SordinoError,
)
from sordino.privacy import ledger_chain
from sordino.privacy.guarantee import GaussianEvent, PureEvent
from sordino.privacy.ledger import Ledger

TERMS = {"delta": 0.0, "unit": "label", "neighbors": sordino.REPLACE_ONE, "trust": "central"}
BUDGET = sordino.Guarantee(2.0, **TERMS)
PROMISE = sordino.Guarantee(0.1, **TERMS)
EVENT = PureEvent(0.1)
COLUMNS = [field.name for field in fields(ledger_chain.Row)]
OTHERS = ",".join(COLUMNS[1:])
SWAP = ((3, 99), (4, 3), (99, 4))


def arrived(folder, promise):
    """Return a file that is private already, and what its manifest says."""
    file = folder / "answers.jsonl"
    file.write_bytes(b"{}\n")
    manifest = {"sha256": sha256_of(file), "release_id": "5" * 16, "guarantee": promise}
    return file, SimpleNamespace(**manifest)


def story(path):
    """Return a ledger of seven rows, of every kind."""
    ledger = Ledger.open(path, data="answers", budget=BUDGET)
    ledger.declare_disjoint(["a", "b"], rule="public-fields")
    entry = ledger.reserve(EVENT, promise=PROMISE, details={"m": 3})
    entry.commit("0" * 64)
    ledger.repeat(entry.release_id, "0" * 64)
    ledger.receive(*arrived(path.parent, PROMISE))
    ledger.change_budget(sordino.Guarantee(3.0, **TERMS))
    return ledger


@pytest.fixture
def path(tmp_path):
    return story(tmp_path / "spend.db").path


def raw(path, *statements):
    """Run statements as somebody who edits the file, triggers out of the way."""
    with sqlite3.connect(path) as connection:
        for verb in ("update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS no_{verb}")
        for statement in statements:
            connection.execute(*statement if isinstance(statement, tuple) else (statement,))
    connection.close()


def rehash(path, rows):
    """Write rows with a chain that is consistent, as an attacker would."""
    table = ",".join(COLUMNS)
    raw(path, "DELETE FROM rows")
    last = None
    with sqlite3.connect(path) as connection:
        for row in rows:
            values = {**row, "sequence": last.sequence + 1 if last else 1}
            values["previous"] = last.digest if last else "0" * 64
            last = ledger_chain.Row(**values)
            last = ledger_chain.Row(**{**values, "digest": last.computed_digest()})
            marks = ",".join("?" * len(COLUMNS))
            connection.execute(
                f"INSERT INTO rows ({table}) VALUES ({marks})", tuple(asdict(last).values())
            )
    connection.close()


def refused(path):
    """Check that neither reading nor opening gives a ledger, and that both say it is damaged."""
    for attempt in (Ledger.read, Ledger.open):
        with pytest.raises(SordinoError) as caught:
            attempt(path)
        assert caught.value.exit_code == 8, caught.value
        assert "/" not in str(caught.value).replace("`sordino ledger verify --head`", "")


# Edits


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("sequence", few(range(1, 8), 3, 7))
def test_an_edit_of_any_column_of_any_row_is_seen(path, sequence, column):
    with sqlite3.connect(path) as connection:
        query = f"SELECT {column} FROM rows WHERE sequence = ?"
        (value,) = connection.execute(query, (sequence,)).fetchone()
    connection.close()
    other = value + 100 if isinstance(value, int) else value[:-1] + "~"
    raw(path, (f"UPDATE rows SET {column} = ? WHERE sequence = ?", (other, sequence)))
    refused(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM rows WHERE sequence = 1",
        "DELETE FROM rows WHERE sequence = 3",
        "DELETE FROM rows",
        *(
            f"INSERT INTO rows SELECT {place}, {OTHERS} FROM rows WHERE sequence = 3"
            for place in (8, 0, -5)
        ),
        "UPDATE rows SET sequence = sequence + 1 - 2 * (sequence % 2) + 100",
        [f"UPDATE rows SET sequence = {to} WHERE sequence = {at}" for at, to in SWAP],
        "UPDATE rows SET digest = X'00' WHERE sequence = 2",
        "DROP TABLE rows",
        "ALTER TABLE rows RENAME COLUMN kind TO sort",
        "ALTER TABLE rows RENAME TO entries",
    ],
)
def test_rows_taken_away_added_or_moved_are_seen(path, statement):
    try:
        raw(path, *([statement] if isinstance(statement, str) else statement))
    except sqlite3.IntegrityError:  # a type that the table refuses
        raw(path, "UPDATE rows SET digest = '' WHERE sequence = 2")
    refused(path)


def resealed(rows):
    """Return rows of which each has its own digest, whatever the one before says."""
    for row in rows:
        sealed = ledger_chain.Row(**row)
        yield tuple({**row, "digest": sealed.computed_digest()}.values())


@pytest.mark.parametrize("gap", [True, False])
def test_a_row_taken_out_is_seen_though_each_row_is_sealed_anew(path, gap):
    rows = [asdict(row) for row in Ledger.read(path).rows]
    del rows[5]  # no other row needs it
    for number, row in enumerate(rows if not gap else []):
        row["sequence"] = number + 1  # numbers close the gap, the chain does not
    if gap:  # the chain closes the gap, numbers do not
        for before, row in pairwise(rows):
            before["digest"] = ledger_chain.Row(**before).computed_digest()
            row["previous"] = before["digest"]
    raw(path, "DELETE FROM rows")
    marks = ",".join("?" * len(COLUMNS))
    raw(path, *((f"INSERT INTO rows VALUES ({marks})", values) for values in resealed(rows)))
    refused(path)


def test_values_of_other_types_are_seen(path):
    names = ",".join(COLUMNS)
    raw(path, f"CREATE TABLE loose ({names})", "INSERT INTO loose SELECT * FROM rows")
    raw(path, "DROP TABLE rows", "ALTER TABLE loose RENAME TO rows")
    assert len(Ledger.read(path).rows) == 7
    shutil.copy(path, path.with_name("whole.db"))
    for value in (b"bytes", None, 1.0, 7, "\udc80"):
        for column in COLUMNS:
            shutil.copy(path.with_name("whole.db"), path)
            change = f"UPDATE rows SET {column} = ? WHERE sequence = 3"
            if value == "\udc80":
                raw(path, f"UPDATE rows SET {column} = CAST(X'ff80' AS TEXT) WHERE sequence = 3")
            else:
                raw(path, (change, (value,)))
            if column == "sequence" and value in (1.0, 7):
                raw(path, "UPDATE rows SET sequence = 3.0 WHERE sequence = 1")
            refused(path)


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 0.5, 0.75])
def test_a_file_cut_short_is_seen(path, size):
    content = path.read_bytes()
    path.write_bytes(content[: int(size * len(content)) if isinstance(size, float) else size])
    refused(path)


@pytest.mark.parametrize("seed", few(range(80), first=20))
def test_flipped_bytes_are_seen_or_change_nothing(path, seed):
    before = Ledger.read(path).rows
    content, rng = bytearray(path.read_bytes()), random.Random(seed)
    used = [place for place, byte in enumerate(content) if byte]
    for _ in range(1 + seed % 4):
        place = rng.choice(used) if seed % 2 else rng.randrange(len(content))
        content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))
    for attempt in (Ledger.read, Ledger.open):
        try:
            found = attempt(path)
        except (LedgerError, FileSystemError):
            continue
        assert found.rows == before


def test_a_flipped_ledger_never_spends_without_a_record(path):
    content = path.read_bytes()
    for seed in range(60):
        copy = path.with_name(f"{seed}.db")
        changed, rng = bytearray(content), random.Random(1000 + seed)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        copy.write_bytes(bytes(changed))
        try:
            entry = Ledger.open(copy).reserve(EVENT, promise=PROMISE)
        except (LedgerError, FileSystemError):
            continue
        assert entry.release_id in {row.release_id for row in Ledger.read(copy).spends}


@pytest.mark.parametrize("content", [b"", b"prompt,answer\n", b"\x00" * 5000, b"SQLite format 3\0"])
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "spend.db"
    path.write_bytes(content)
    refused(path)
    assert path.read_bytes() == content


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "spend.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    before = path.read_bytes()
    refused(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["spend.db"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 3}, "newer sordino"),
        ({"version": 1}, "older sordino"),
        ({"version": "2"}, "not a sordino ledger"),
        ({"version": True}, "not a sordino ledger"),
        ({"version": 0}, "not a sordino ledger"),
        ({"version": None}, "not a sordino ledger"),
        ({"format": "sordino.memo"}, "not a sordino ledger"),
        ({"budget": {}}, "no sordino writes"),
        ({"budget": []}, "no sordino writes"),
        ({"budget": {**BUDGET.to_dict(), "epsilon": -1}}, "no sordino writes"),
        ({"budget": {**BUDGET.to_dict(), "epsilon": float("nan")}}, "no sordino writes"),
        ({"budget": {**BUDGET.to_dict(), "unit": ["label"]}}, "no sordino writes"),
        ({"budget": {**BUDGET.to_dict(), "neighbors": {}}}, "no sordino writes"),
    ],
)
def test_a_first_row_of_another_kind_is_refused(path, change, words):
    rows = [asdict(row) for row in Ledger.read(path).rows]
    rows[0]["payload"] = json.dumps({**json.loads(rows[0]["payload"]), **change})
    rehash(path, rows)
    kind = LedgerError if words in {"newer sordino", "older sordino"} else LedgerDamaged
    with pytest.raises(LedgerError, match=words) as caught:
        Ledger.read(path)
    assert caught.type is kind
    refused(path)


def test_a_newer_ledger_says_so_even_if_its_rows_hold_more(path):
    rows = [asdict(row) for row in Ledger.read(path).rows]
    rows[0]["payload"] = json.dumps({**json.loads(rows[0]["payload"]), "version": 3})
    rehash(path, rows)
    raw(path, "ALTER TABLE rows ADD COLUMN more TEXT", "UPDATE rows SET digest = 'other'")
    with pytest.raises(LedgerError, match="newer sordino"):
        Ledger.open(path)


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (2, {"kind": "refund"}),
        (2, {"kind": "open"}),
        (2, {"event": "magic"}),
        (2, {"event": "os.system"}),
        (2, {"event": "randomized-response"}),
        (2, {"parameters": "{}"}),
        (2, {"parameters": "[]"}),
        (2, {"parameters": "not json"}),
        (2, {"parameters": "[" * 100_000}),
        (2, {"parameters": '{"epsilon":NaN}'}),
        (2, {"parameters": '{"epsilon":-0.1}'}),
        (2, {"parameters": '{"epsilon":"0.1"}'}),
        (2, {"count": 0}),
        (2, {"count": -3}),
        (2, {"scope": ""}),
        (2, {"unit": "record"}),
        (2, {"unit": "universe"}),
        (2, {"neighbors": "REPLACE_SPECIAL"}),
        (2, {"neighbors": "SOME"}),
        (2, {"trust": "nobody"}),
        (2, {"randomness": "dice"}),
        (2, {"payload": "[]"}),
        (2, {"payload": "null"}),
        (2, {"payload": "{}"}),
        (2, {"payload": '{"caveats":"labels-only"}'}),
        (2, {"payload": '{"caveats":[[]]}'}),
        (3, {"release_id": "another"}),
        (3, {"payload": "{}"}),
        (4, {"release_id": "another"}),
        (5, {"payload": '{"artifact":"x","caveats":[],"promise":{}}'}),
        (6, {"payload": json.dumps({"budget": {**BUDGET.to_dict(), "trust": "local"}})}),
        (6, {"payload": '{"budget":null}'}),
        (1, {"payload": '{"scopes":["a","b"],"rule":"by taste"}'}),
        (1, {"payload": '{"scopes":"ab","rule":"public-fields"}'}),
        (1, {"payload": '{"scopes":[["a"],["b"]],"rule":"public-fields"}'}),
        (1, {"payload": '{"scopes":["a","b"],"rule":[]}'}),
        (1, {"payload": '{"scopes":["a","all"],"rule":"public-fields"}'}),
    ],
)
def test_rows_that_no_sordino_writes_are_refused_though_the_chain_holds(path, row, change):
    rows = [asdict(found) for found in Ledger.read(path).rows]
    rows[row] |= change
    rehash(path, rows)
    refused(path)


def test_an_unknown_row_stays_refused_in_a_process_that_met_it(path):
    ledger = Ledger.open(path)
    rows = [asdict(row) for row in ledger.rows]
    rehash(path, [*rows, {**rows[2], "kind": "refund"}])
    for _ in range(3):
        with pytest.raises(LedgerDamaged):
            ledger.reserve(EVENT, promise=PROMISE)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (8,)
    connection.close()


# What the chain does not show, and what does


def test_a_rewritten_chain_is_seen_only_with_a_noted_head(path):
    noted = Ledger.read(path).head
    rows = [asdict(row) for row in Ledger.read(path).rows]
    rows[2]["count"] = 2
    rehash(path, rows)
    assert Ledger.read(path).rows[2].count == 2
    with pytest.raises(LedgerDamaged, match="does not contain the head"):
        Ledger.read(path, expected_head=noted.digest)
    with pytest.raises(LedgerDamaged, match="does not contain the head"):
        Ledger.open(path, expected_head=noted.digest)


def test_newest_rows_cut_off_are_seen_only_with_a_noted_head(path):
    noted = Ledger.read(path).head
    raw(path, "DELETE FROM rows WHERE sequence > 4")
    assert len(Ledger.read(path).rows) == 4
    with pytest.raises(LedgerDamaged, match=noted.digest[:12]):
        Ledger.open(path, expected_head=noted.digest)


def test_a_ledger_that_grew_still_contains_its_noted_head(path):
    noted = Ledger.read(path).head
    Ledger.open(path).reserve(EVENT, promise=PROMISE)
    assert len(Ledger.open(path, expected_head=noted.digest).rows) == noted.rows + 1


def test_a_deleted_ledger_is_not_made_again_where_a_head_was_noted(path):
    noted = Ledger.read(path).head
    path.unlink()
    with pytest.raises(LedgerDamaged):
        Ledger.open(path, data="answers", budget=BUDGET, expected_head=noted.digest)
    assert not path.exists()


@pytest.mark.parametrize("meanwhile", [0, 1, 2])
def test_an_older_copy_put_back_is_refused_on_the_next_write(path, meanwhile):
    ledger = Ledger.open(path)
    old = path.read_bytes()
    ledger.reserve(EVENT, promise=PROMISE).commit("3" * 64)
    path.write_bytes(old)
    for _ in range(meanwhile):
        Ledger.open(path).reserve(EVENT, promise=PROMISE)
    for _ in range(2):
        with pytest.raises(LedgerDamaged, match="replaced while in use"):
            ledger.reserve(EVENT, promise=PROMISE)
    assert len(Ledger.read(path).rows) == 7 + meanwhile


def test_a_ledger_that_is_gone_is_not_made_again_by_a_write(path):
    ledger = Ledger.open(path)
    path.unlink()
    with pytest.raises(LedgerDamaged, match="is gone"):
        ledger.reserve(EVENT, promise=PROMISE)
    assert not path.exists()


def test_rows_left_in_the_log_of_a_deleted_ledger_are_not_forgotten(path):
    connection = sqlite3.connect(path)  # it keeps the log from being folded in
    connection.execute("SELECT * FROM rows").fetchall()
    Ledger.open(path).reserve(EVENT, promise=PROMISE)
    log = path.with_name("spend.db-wal").read_bytes()
    connection.close()
    path.unlink()
    path.with_name("spend.db-wal").write_bytes(log)
    with pytest.raises(LedgerDamaged, match="still holds rows"):
        Ledger.open(path, data="answers", budget=BUDGET)
    assert not path.exists()


@pytest.mark.parametrize(
    "body",
    [
        "DELETE FROM rows WHERE sequence = NEW.sequence;",
        "UPDATE rows SET digest = 'other' WHERE sequence = NEW.sequence;",
    ],
)
def test_a_trigger_that_swallows_rows_stops_the_release(path, body):
    raw(path, f"CREATE TRIGGER thief AFTER INSERT ON rows BEGIN {body} END")
    with pytest.raises(LedgerDamaged):
        Ledger.open(path).reserve(EVENT, promise=PROMISE)
    assert len(Ledger.read(path).rows) == 7


# Races

RACE = textwrap.dedent(
    """
    import os, sys, time
    from pathlib import Path
    import sordino
    from sordino.errors import BudgetExceeded
    from sordino.privacy.guarantee import PureEvent

    folder, rivals = Path(sys.argv[1]), int(sys.argv[2])
    terms = {"delta": 0.0, "unit": "label", "neighbors": sordino.REPLACE_ONE, "trust": "central"}
    budget, promise = sordino.Guarantee(3.0, **terms), sordino.Guarantee(0.1, **terms)
    start = time.time() + 0.2
    for rival in range(rivals):
        if os.fork() == 0:
            code = 9
            try:
                while time.time() < start:
                    pass
                ledger = sordino.Ledger.open(folder / "spend.db", data="answers", budget=budget)
                with (folder / f"{rival}.ids").open("w") as ids:
                    for _ in range(31):
                        entry = ledger.reserve(PureEvent(0.1), promise=promise)
                        print(entry.release_id, file=ids, flush=True)
                        entry.commit("0" * 64)
            except BudgetExceeded:
                code = 3
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
            os._exit(code)
    ends = [os.WEXITSTATUS(os.wait()[1]) for _ in range(rivals)]
    sys.exit(0 if ends == [3] * rivals else 1)
    """
)


@pytest.mark.deep
@pytest.mark.parametrize("rivals", few([2, 3, 4, 8], 3))
def test_rivals_neither_overspend_nor_lose_an_entry(tmp_path, rivals):
    command = [sys.executable, "-c", RACE, str(tmp_path), str(rivals)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    ledger = Ledger.read(tmp_path / "spend.db")
    given = [line for file in tmp_path.glob("*.ids") for line in file.read_text().split()]
    assert len(given) == 30
    assert sorted(row.release_id for row in ledger.spends) == sorted(given)
    assert [row.kind for row in ledger.rows].count("commit") == 30
    assert [row.kind for row in ledger.rows].count("open") == 1
    assert ledger.total().epsilon == 3.0
    assert not list(tmp_path.glob(".*"))


def test_threads_share_one_ledger_without_losing_or_doubling_an_entry(tmp_path, monkeypatch):
    take = Ledger._take
    monkeypatch.setattr(Ledger, "_take", lambda *row: (time.sleep(0.005), take(*row)))
    ledger = Ledger.open(tmp_path / "spend.db", data="answers", budget=BUDGET)
    given = []

    def spend():
        try:
            while True:
                given.append(ledger.reserve(EVENT, promise=PROMISE).release_id)
        except BudgetExceeded:
            pass

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == 20
    assert ledger.rows == Ledger.read(ledger.path).rows
    assert sorted(row.release_id for row in ledger.spends) == sorted(given)


# Failures


def test_an_interruption_inside_a_write_leaves_no_row_and_no_lock(path, monkeypatch):
    ledger = Ledger.open(path)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledger_chain, "_refuse_other_end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.reserve(EVENT, promise=PROMISE)
    assert len(Ledger.read(path).rows) == 7
    ledger.reserve(EVENT, promise=PROMISE)
    assert len(Ledger.read(path).rows) == len(ledger.rows) == 8


def test_a_row_that_is_durable_counts_though_the_process_was_interrupted(path, monkeypatch):
    ledger = Ledger.open(path)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ledger.reserve(EVENT, promise=PROMISE)
    ledger.reserve(EVENT, promise=PROMISE)
    assert ledger.rows == Ledger.read(path).rows
    assert ledger.total().epsilon == pytest.approx(0.3)


FULL = textwrap.dedent(
    """
    import resource, sys
    from pathlib import Path
    import sordino
    from sordino.errors import FileSystemError
    from sordino.privacy.guarantee import PureEvent

    folder, size, start = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    terms = {"delta": 0.0, "unit": "label", "neighbors": sordino.REPLACE_ONE, "trust": "central"}
    budget, promise = sordino.Guarantee(900.0, **terms), sordino.Guarantee(0.1, **terms)
    path = folder / "spend.db"
    if start:
        sordino.Ledger.open(path, data="answers", budget=budget)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    given = 0
    try:
        ledger = sordino.Ledger.open(path, data="answers", budget=budget)
        for given in range(1000):
            ledger.reserve(PureEvent(0.1), promise=promise)
    except FileSystemError as error:
        print(given, error)
        sys.exit(error.exit_code)
    """
)


def run_full(folder, size, start):
    command = [sys.executable, "-c", FULL, str(folder), str(size), str(int(start))]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("size", few([0, 1000, 5000, 9000], 0, 5000))
def test_a_full_disk_stops_creation_and_leaves_nothing_behind(tmp_path, size):
    done = run_full(tmp_path, size, start=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert "Nothing was released" in done.stdout
    if not (tmp_path / "spend.db").exists():
        assert list(tmp_path.iterdir()) == []
    Ledger.open(tmp_path / "spend.db", data="answers", budget=sordino.Guarantee(900.0, **TERMS))


@pytest.mark.parametrize("size", few([12_500, 16_500, 20_000, 40_000, 41_500], 12_500, 40_000))
def test_a_full_disk_stops_spending_and_loses_no_entry(tmp_path, size):
    done = run_full(tmp_path, size, start=True)
    assert (done.returncode, done.stderr) == (7, "")
    given, _, words = done.stdout.partition(" ")
    assert words.startswith("spend.db cannot be read or written")
    assert "free space" in words
    ledger = Ledger.open(tmp_path / "spend.db")
    assert len(ledger.spends) == int(given)
    ledger.reserve(EVENT, promise=PROMISE)


def test_a_path_that_cannot_be_a_ledger_is_explained(tmp_path):
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "nowhere.db").symlink_to(tmp_path / "missing" / "spend.db")
    places = [
        tmp_path / "folder.db",
        tmp_path / "missing" / "spend.db",
        tmp_path / "file" / "spend.db",
        tmp_path / "nowhere.db",
        tmp_path / ("long" * 100 + ".db"),
        tmp_path / "null\0.db",
    ]
    for place in places:
        wrong = sordino.UsageError if place == places[0] else FileSystemError
        with pytest.raises(wrong) as caught:
            Ledger.open(place, data="answers", budget=BUDGET)
        assert "Nothing was released" in str(caught.value)
        assert str(tmp_path) not in str(caught.value)
        with pytest.raises(wrong):
            Ledger.read(place)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder.db", "nowhere.db"]


@pytest.mark.parametrize("data", [2024, 0, b"answers", ["answers"], "answers\0a"])
def test_a_name_that_is_no_text_leaves_the_ledger_as_it_is(tmp_path, data):
    """A number was hashed as one and read back as a text: nobody could open the ledger again."""
    path = tmp_path / "spend.db"
    before = Ledger.open(path, data="answers", budget=BUDGET).head
    with pytest.raises(sordino.UsageError, match=r"data must be (a text|str)"):
        Ledger.open(path, data=data, budget=BUDGET)
    assert Ledger.read(path).head == before


def test_no_scope_is_called_like_one_of_other_data(tmp_path):
    """Who spent of private questions in such a scope shared the share of another data set."""
    terms = TERMS | {"unit": "person", "neighbors": sordino.REPLACE_SPECIAL}
    budget, path = sordino.Guarantee(9.0, **terms), tmp_path / "spend.db"
    known = Ledger.open(path, data="answers", budget=budget)
    known.declare_disjoint(["a", "b"], rule="person-id")
    whole, promise = Ledger.open(path, data="", budget=budget), sordino.Guarantee(0.1, **terms)
    with pytest.raises(sordino.UsageError, match="scope must be a text"):
        whole.reserve(EVENT, promise=promise, scope="answers\0a")
    assert len(Ledger.read(path).rows) == 2


def test_names_that_mean_something_in_a_url_are_only_names(tmp_path):
    for name in ("a?mode=memory.db", "b#c.db", "d%20e.db", "f g.db", "é.db"):
        Ledger.open(tmp_path / name, data="answers", budget=BUDGET)
        assert (tmp_path / name).is_file()
        assert len(Ledger.read(tmp_path / name).rows) == 1


@pytest.fixture
def frozen(path):
    """Return a ledger on a file system mounted for reading only."""
    folder = path.parent / "frozen"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        shutil.copy(path, folder / "spend.db")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield folder / "spend.db"
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_read_only_folder_can_be_read_and_never_spends(frozen):
    assert len(Ledger.read(frozen).rows) == 7
    with pytest.raises(FileSystemError, match="folder can be written"):
        Ledger.open(frozen).reserve(EVENT, promise=PROMISE)
    with pytest.raises(FileSystemError, match="cannot be created"):
        Ledger.open(frozen.with_name("new.db"), data="answers", budget=BUDGET)


def test_reading_leaves_no_file_behind_and_changes_none(path):
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    Ledger.read(path).total()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


# Nothing raw


def fixed(monkeypatch):
    """Inject release ids and a clock."""
    ids = iter(range(10**6))
    monkeypatch.setattr(_random, "new_release_id", lambda: f"{next(ids):016x}")
    monkeypatch.setattr(ledger_chain, "new_release_id", lambda: f"{next(ids):016x}")
    monkeypatch.setattr(_random, "now", lambda: "2024-05-06T07:08:09Z")


def test_injected_ids_and_clock_give_byte_identical_ledgers(tmp_path, monkeypatch):
    ledgers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with monkeypatch.context() as patch:
            fixed(patch)
            ledgers.append(story(tmp_path / name / "spend.db"))
    one, two = ledgers
    assert one.rows == two.rows
    assert one.head == two.head
    assert one.path.read_bytes() == two.path.read_bytes()


def test_no_path_and_no_file_stamp_reaches_the_ledger(tmp_path):
    folder = tmp_path / "CANARY-folder"
    folder.mkdir()
    ledger = story(folder / "CANARY-name.db")
    status = ledger.path.stat()
    content = ledger.path.read_bytes()
    stored = "".join(str(value) for row in ledger.rows for value in vars(row).values())
    assert b"CANARY" not in content
    for word in ("CANARY", str(tmp_path), os.uname().nodename, str(status.st_ino)):
        assert word not in stored
    for stamp in (status.st_mtime_ns, int(status.st_mtime)):
        assert str(stamp) not in stored
    assert "CANARY-folder" not in repr(ledger)
    known = {row.digest for row in ledger.rows} | {mark * 64 for mark in "f0123456789"}
    words = [word.strip('"{},:[]') for word in json.dumps([asdict(r) for r in ledger.rows]).split()]
    assert {word for word in words if len(word) == 64} <= known


# The limit


def test_twenty_tenths_fit_into_two_and_one_more_is_refused_before_it_is_written(tmp_path):
    ledger = Ledger.open(tmp_path / "spend.db", data="answers", budget=BUDGET)
    for _ in range(20):
        ledger.reserve(EVENT, promise=PROMISE)
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve(EVENT, promise=PROMISE)
    assert ledger.path.read_bytes() == before
    assert ledger.total().epsilon == 2.0
    assert ledger.remaining_epsilon() == 0.0
    message = str(caught.value)
    assert "would spend epsilon=2.1 in total, over the budget of epsilon=2 " in message
    assert " in spend.db; 0 is left. Nothing was released. Lower" in message
    way = "the data's owner raise it: change_budget, or on the command line sordino budget set"
    assert message.endswith(f"{way} label 2.1 --data answers --ledger spend.db.")
    assert caught.value.exit_code == 3


def test_many_draws_in_one_entry_cost_as_much_as_one_by_one(tmp_path):
    ledger = Ledger.open(tmp_path / "spend.db", data="answers", budget=BUDGET)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(EVENT, promise=PROMISE, count=21)
    ledger.reserve(EVENT, promise=PROMISE, count=20)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(EVENT, promise=PROMISE)


@pytest.mark.parametrize("count", [0, -1, -20, 1.0, True, "3", None, 2**63])
def test_a_count_that_would_make_a_release_free_is_refused(path, count):
    ledger = Ledger.open(path)
    with pytest.raises(sordino.UsageError):
        ledger.reserve(EVENT, promise=PROMISE, count=count)
    with pytest.raises(sordino.UsageError):
        ledger.check(EVENT, promise=PROMISE, count=count)
    assert len(Ledger.read(path).rows) == 7


def test_splits_by_different_rules_add_for_the_unit_that_both_touch(tmp_path):
    ledger = Ledger.open(tmp_path / "spend.db", data="answers", budget=BUDGET)
    ledger.declare_disjoint(["east", "west"], rule="public-fields")
    ledger.declare_disjoint(["short", "long"], rule="public-fields")
    one = PureEvent(1.0)
    for scope in ("east", "west", "short", "long"):
        ledger.reserve(one, promise=PROMISE, scope=scope)
    assert ledger.total().epsilon == 2.0  # an eastern short label is in two of them
    with pytest.raises(BudgetExceeded):
        ledger.reserve(EVENT, promise=PROMISE, scope="east")


def test_gaussian_spends_compose_as_one_gaussian_not_by_adding(tmp_path):
    terms = {**TERMS, "delta": 1e-6}
    budget = sordino.Guarantee(2.0, **terms)
    ledger = Ledger.open(tmp_path / "spend.db", data="answers", budget=budget)
    for _ in range(4):
        ledger.reserve(GaussianEvent(0.1), promise=PROMISE)
    other = Ledger.open(tmp_path / "other.db", data="answers", budget=budget)
    other.reserve(GaussianEvent(0.2), promise=PROMISE)
    assert ledger.total().epsilon == pytest.approx(other.total().epsilon, rel=1e-9)
    alone = Ledger.open(tmp_path / "alone.db", data="answers", budget=budget)
    alone.reserve(GaussianEvent(0.1), promise=PROMISE)
    assert ledger.total().epsilon < 2.2 * alone.total().epsilon


# Time


@pytest.mark.parametrize("unit", ["label", "record", "person"])
def test_no_row_says_when_a_curator_had_read_records_or_persons(tmp_path, monkeypatch, unit):
    """The first row too is written after reading, which takes longer the more there is to read."""
    monkeypatch.setattr(_random.time, "time", lambda: 1_000_000_007.0)
    terms = TERMS | {"unit": unit}
    ledger = Ledger.open(tmp_path / "l.db", data="x", budget=sordino.Guarantee(2.0, **terms))
    promise = sordino.Guarantee(0.1, **terms)
    ledger.reserve(EVENT, promise=promise).commit("0" * 64)
    ledger.receive(*arrived(tmp_path, promise))
    ledger.change_budget(sordino.Guarantee(3.0, **terms))
    clocks = {row.time.partition("T")[2] for row in Ledger.read(tmp_path / "l.db").rows}
    assert clocks == {"01:46:47Z"} if unit == "label" else clocks == {"00:00:00Z"}


def drawing(values):
    """Return a draw that gives another value each time, and the values it gave."""
    given = []

    def draw():
        given.append(next(values))
        return np.array([float(given[-1])])

    return draw, given


def test_an_interrupted_draw_is_never_drawn_again(tmp_path):
    """What was stored is what the entry released; what was not stored was seen by nobody."""
    ledger = Ledger.open(tmp_path / "spend.db", data="t", budget=PROMISE)
    draw, given = drawing(iter(range(9)))
    for end in (KeyboardInterrupt, SystemExit, None):
        try:
            with ledger.attempt("f" * 64):
                entry = ledger.reserve(EVENT, promise=PROMISE)
                value = entry.drawn_once(draw)
                entry.commit("0" * 64)
                if end is not None:
                    raise end
        except (KeyboardInterrupt, SystemExit):
            continue
    assert (value, given, len(ledger.spends)) == (np.array([0.0]), [0], 1)
    with pytest.raises(sordino.errors.BudgetExceeded), ledger.attempt("f" * 64):
        ledger.reserve(EVENT, promise=PROMISE)  # it has ended, so that is another release


def test_an_entry_whose_draw_failed_is_paid_anew(tmp_path):
    ledger = Ledger.open(tmp_path / "spend.db", data="t", budget=PROMISE)

    def fail():
        raise ArithmeticError

    with pytest.raises(ArithmeticError), ledger.attempt("f" * 64):
        ledger.reserve(EVENT, promise=PROMISE).drawn_once(fail)
    with pytest.raises(sordino.errors.BudgetExceeded), ledger.attempt("f" * 64):
        ledger.reserve(EVENT, promise=PROMISE)


def test_a_command_that_still_runs_is_not_taken_over(tmp_path):
    one = Ledger.open(tmp_path / "spend.db", data="t", budget=BUDGET)
    other = Ledger.open(tmp_path / "spend.db")
    with one.attempt("f" * 64):
        one.reserve(EVENT, promise=PROMISE)
        with pytest.raises(sordino.errors.FileSystemError, match="running"):
            other.attempt("f" * 64).__enter__()
    with other.attempt("e" * 64):
        other.reserve(EVENT, promise=PROMISE)
    assert len(Ledger.read(tmp_path / "spend.db").spends) == 2


def test_an_entry_paid_for_one_artifact_whoever_wrote_the_row(path):
    """A repeat by hand, with digests that fit, says of another artifact that it was paid for."""
    rows = Ledger.read(path).rows
    (known,) = (row for row in rows if row.kind == "repeat")
    terms = {"kind": "repeat", "time": "", "data": known.data, "release_id": known.release_id}
    payload = ledger_chain.canonical_json({"artifact": "1" * 64})
    with ledger_chain.connect(path) as connection, ledger_chain.transaction(connection):
        ledger_chain.append(connection, rows[-1], **terms, payload=payload)
    with pytest.raises(LedgerDamaged, match="says what no sordino writes"):
        Ledger.read(path)
