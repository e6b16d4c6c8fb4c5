"""Stored answers: the first one stays, nothing raw is kept, and settings are never mixed."""

import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing

import numpy as np
import pytest

from sordino.errors import FileSystemError, LedgerDamaged, PrivacyError
from sordino.preferences.memo import AnswerMemo, Counts

SETTINGS = {"threshold": "7", "randomness": "system", "ledger": "abc"}
ANA, BEN = b"ana".ljust(32), b"ben".ljust(32)
Q, R = b"q".ljust(32), b"r".ljust(32)


def opened(path, *, dry_run=False, **changes):
    return AnswerMemo.open(path, settings=SETTINGS | changes, dry_run=dry_run)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spend.memo.db"


def test_the_first_answer_stays(path):
    with opened(path) as memo:
        memo.remember({(ANA, Q): 1}, "r1")
        memo.remember({(ANA, Q): 0, (BEN, Q): 0}, "r2")
        assert memo.recall([(ANA, Q), (BEN, Q), (BEN, R)]) == {
            (ANA, Q): 1,
            (BEN, Q): 0,
        }
    with opened(path) as memo:
        assert memo.recall([(ANA, Q)]) == {(ANA, Q): 1}


def test_staging_counts_and_writes_nothing(path):
    with opened(path) as memo:
        memo.remember({(ANA, Q): 1}, "r1")
        memo.stage([(ANA, Q), (ANA, R), (ANA, R), (BEN, Q)])
        assert memo.counts(None) == Counts(persons=2, labels=2, fresh=1, ever=2, left_out=0)
        assert memo.counts(1) == Counts(persons=2, labels=1, fresh=1, ever=1, left_out=1)
        assert memo.release_ids() == ("r1",)
    with opened(path) as memo:
        assert memo.counts(None) == Counts(persons=0, labels=0, fresh=0, ever=1, left_out=0)


@pytest.mark.parametrize("name", SETTINGS)
def test_other_settings_are_refused(path, name):
    with opened(path):
        pass
    with pytest.raises(PrivacyError, match=name), opened(path, **{name: "other"}):
        pass


def test_a_dry_run_makes_no_file(path):
    with opened(path, dry_run=True) as memo:
        memo.stage([(ANA, Q)])
        assert memo.counts(None) == Counts(persons=1, labels=1, fresh=1, ever=1, left_out=0)
    assert not path.exists()


def test_a_dry_run_sees_stored_answers_and_changes_nothing(path):
    with opened(path) as memo:
        memo.remember({(ANA, Q): 1}, "r1")
    before = path.read_bytes(), path.stat().st_mtime_ns
    with opened(path, dry_run=True) as memo:
        memo.stage([(ANA, Q), (BEN, Q)])
        assert memo.counts(None) == Counts(persons=2, labels=1, fresh=1, ever=1, left_out=0)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_what_is_no_memo_is_refused(path):
    path.write_bytes(b"something else" * 50)
    with pytest.raises(LedgerDamaged, match="memo"), opened(path):
        pass


def test_a_missing_folder(tmp_path):
    with pytest.raises(FileSystemError, match="cannot be used"), opened(tmp_path / "no" / "m.db"):
        pass


def test_only_hashes_answers_and_ids_are_stored(path):
    with opened(path) as memo:
        memo.remember({(ANA, Q): 1}, "r1")
    connection = sqlite3.connect(path)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(answers)")]
    connection.close()
    assert columns == ["person", "question", "answer", "release_id"]


def test_stored_answers_survive_a_second_reader(path):
    with opened(path) as one, opened(path) as other:
        one.remember({(ANA, Q): 1}, "r1")
        other.remember({(ANA, Q): 0}, "r2")
        assert one.recall([(ANA, Q)]) == other.recall([(ANA, Q)]) == {(ANA, Q): 1}


# --- at most so many questions of one person ---


class Words:
    """Words that are decided beforehand, and how many were taken."""

    randomness = "system"

    def __init__(self, *words):
        self.words_left = list(words)

    def words(self, n):
        taken, self.words_left = self.words_left[:n], self.words_left[n:]
        assert len(taken) == n
        return np.array(taken, dtype=np.uint64)


def questions(n, person=ANA):
    return [(person, b"q%03d" % index) for index in range(n)]


def test_the_smallest_words_of_every_person_stay(path):
    keys = [*questions(3), *questions(3, BEN), (b"cid", Q)]
    with opened(path) as memo:
        memo.stage(keys)
        entropy = Words(1, 2, 0, 5, 2**63 - 1, 2**64 - 1)  # the last one is negative when signed
        memo.choose(1, entropy)
        assert entropy.words_left == []  # none for the person with one question
        assert memo.staged(keys) == {(ANA, b"q002"), (BEN, b"q002"), (b"cid", Q)}


def test_nothing_is_drawn_where_nobody_has_more(path):
    with opened(path) as memo:
        memo.stage(questions(3))
        memo.choose(3, Words())
        assert memo.staged(questions(4)) == set(questions(3))


@pytest.mark.parametrize("cap", [1, 2, 3, 4])
def test_stored_questions_come_first_whatever_is_drawn(path, cap):
    stored = {(ANA, b"q001"): 1, (ANA, b"q003"): 0}
    with opened(path) as memo:
        memo.remember(stored, "r1")
        memo.stage(questions(5))
        fresh = memo.counts(cap).fresh
        memo.choose(cap, Words(0, 9, 1, 8, 2))
        left = memo.staged(questions(5))
        assert len(left) == cap
        assert len(left & stored.keys()) == min(cap, 2)
        assert len(left - stored.keys()) == fresh == max(0, cap - 2)


@pytest.mark.parametrize("cap", [20, 7, 3, 1])
def test_counts_do_not_change_when_questions_are_chosen(path, cap):
    generator = np.random.default_rng(11)
    keys = [(b"p%d" % generator.integers(9), b"q%d" % generator.integers(30)) for _ in range(150)]
    with opened(path) as memo:
        memo.remember(dict.fromkeys(keys[:40], 1) | {(b"old", Q): 1}, "r1")
        memo.stage(keys)
        before = memo.counts(cap)
        memo.choose(cap, Words(*generator.integers(0, 2**63, size=len(keys))))
        assert memo.counts(cap) == before._replace(left_out=0)
        sizes = Counter(person for person, _ in memo.staged(keys))
        assert (len(sizes), max(sizes.values())) == (before.persons, before.labels)


def test_more_questions_than_are_drawn_at_once(path, monkeypatch):
    monkeypatch.setattr("sordino.preferences.memo._CHUNK", 7)
    words = list(np.random.default_rng(3).permutation(50))
    with opened(path) as memo:
        memo.stage(questions(50))
        memo.choose(10, Words(*words))
        assert memo.staged(questions(50)) == {
            questions(50)[words.index(rank)] for rank in range(10)
        }


def test_a_scratch_memo_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with AnswerMemo.scratch() as memo:
        memo.stage(questions(4))
        assert memo.counts(None).labels == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("came_to", ["touched", "tables"])
def test_a_memo_that_was_killed_in_the_making_holds_nothing_yet(path, came_to):
    path.touch()
    if came_to == "tables":
        with opened(path):
            pass
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM settings")
            connection.commit()
    before = path.read_bytes()
    with opened(path, dry_run=True) as memo:
        memo.stage([(ANA, Q)])
        assert memo.counts(None) == Counts(1, 1, 1, 1, 0)
    assert path.read_bytes() == before
    with opened(path) as memo:
        memo.remember({(ANA, Q): 1}, "r1")


def test_what_a_killed_process_had_begun_to_store_is_taken_back(path):
    """Also by whoever only plans: SQLite's journal beside the file may not be read without."""
    with opened(path) as memo:
        memo.remember({(ANA, Q): 1}, "r1")
    code = """
import os, sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("PRAGMA cache_size = 1")
held.execute("BEGIN IMMEDIATE")
for n in range(5000):
    held.execute("INSERT INTO answers VALUES (?, ?, 0, 'r2')", (n.to_bytes(32, 'big'),) * 2)
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert path.with_name(f"{path.name}-journal").exists()
    with opened(path, dry_run=True) as memo:
        assert memo.payers() == {"r1"}
