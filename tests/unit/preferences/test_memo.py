"""Stored answers: the first one stays, nothing raw is kept, and settings are never mixed."""

import sqlite3

import pytest

from sordino.errors import FileSystemError, LedgerDamaged, PrivacyError
from sordino.preferences.memo import AnswerMemo

SETTINGS = {"threshold": "7", "randomness": "system", "ledger": "abc"}
ANA, BEN = b"ana", b"ben"


def opened(path, *, dry_run=False, **changes):
    return AnswerMemo.open(path, settings=SETTINGS | changes, dry_run=dry_run)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spend.memo.db"


def test_the_first_answer_stays(path):
    with opened(path) as memo:
        memo.remember({(ANA, b"q"): 1}, "r1")
        memo.remember({(ANA, b"q"): 0, (BEN, b"q"): 0}, "r2")
        assert memo.recall([(ANA, b"q"), (BEN, b"q"), (BEN, b"r")]) == {
            (ANA, b"q"): 1,
            (BEN, b"q"): 0,
        }
    with opened(path) as memo:
        assert memo.recall([(ANA, b"q")]) == {(ANA, b"q"): 1}


def test_staging_counts_and_writes_nothing(path):
    with opened(path) as memo:
        memo.remember({(ANA, b"q"): 1}, "r1")
        memo.stage([(ANA, b"q"), (ANA, b"r"), (ANA, b"r"), (BEN, b"q")])
        assert memo.fresh() == 2
        assert memo.most_labels() == 2
        assert memo.release_ids() == ("r1",)
    with opened(path) as memo:
        assert memo.fresh() == 0
        assert memo.most_labels() == 1


def test_an_empty_memo(path):
    with opened(path) as memo:
        assert (memo.fresh(), memo.most_labels(), memo.release_ids()) == (0, 0, ())
        assert memo.recall([]) == {}


@pytest.mark.parametrize("name", SETTINGS)
def test_other_settings_are_refused(path, name):
    with opened(path):
        pass
    with pytest.raises(PrivacyError, match=name), opened(path, **{name: "other"}):
        pass


def test_a_dry_run_makes_no_file(path):
    with opened(path, dry_run=True) as memo:
        memo.stage([(ANA, b"q")])
        assert (memo.fresh(), memo.most_labels()) == (1, 1)
    assert not path.exists()


def test_a_dry_run_sees_stored_answers_and_changes_nothing(path):
    with opened(path) as memo:
        memo.remember({(ANA, b"q"): 1}, "r1")
    before = path.read_bytes(), path.stat().st_mtime_ns
    with opened(path, dry_run=True) as memo:
        memo.stage([(ANA, b"q"), (BEN, b"q")])
        assert (memo.fresh(), memo.most_labels()) == (1, 1)
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
        memo.remember({(ANA, b"q"): 1}, "r1")
    connection = sqlite3.connect(path)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(answers)")]
    connection.close()
    assert columns == ["person", "question", "answer", "release_id"]


def test_stored_answers_survive_a_second_reader(path):
    with opened(path) as one, opened(path) as other:
        one.remember({(ANA, b"q"): 1}, "r1")
        other.remember({(ANA, b"q"): 0}, "r2")
        assert one.recall([(ANA, b"q")]) == other.recall([(ANA, b"q")]) == {(ANA, b"q"): 1}
