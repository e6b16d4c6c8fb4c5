"""Stored answers: the first one stays, nothing raw is kept, and settings are never mixed."""

import json

import numpy as np
import pytest

from sordino.errors import DataError, FileSystemError, LedgerDamaged, PrivacyError
from sordino.preferences.memo import AnswerMemo, parts_of

SETTINGS = {"threshold": "7", "randomness": "system", "ledger": "abc"}
GENERATOR = np.random.default_rng(2)
KEYS = np.sort(np.frombuffer(GENERATOR.bytes(32 * 50), "S32"))
ANSWERS = GENERATOR.integers(2, size=50).astype(np.int8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spend.memo"


def opened(path, parts=1, tilings=None, **changes):
    AnswerMemo.make(path, SETTINGS | changes)
    return AnswerMemo.bound(path, SETTINGS | changes, tilings or {}, parts)


def kept(path, parts, release_id, keys=KEYS, answers=ANSWERS):
    """Store answers in so many parts, and return the memo."""
    memo, own = opened(path, parts), parts_of(keys, parts)
    for part in range(parts):
        memo.keep(part, release_id, keys[own == part], answers[own == part])
    return memo


def test_what_an_entry_stored_first_stays(path):
    memo = kept(path, 1, "a1")
    memo.keep(0, "a1", KEYS, 1 - ANSWERS)
    stored = opened(path).stored(0)
    assert np.array_equal(stored.keys, KEYS)
    assert np.array_equal(stored.answers, ANSWERS)
    assert stored.paid_for(KEYS[3:9]) == {"a1"}
    known, places = stored.places(np.array([KEYS[7], b"nobody"]))
    assert known.tolist() == [True, False]
    assert places[0] == 7


@pytest.mark.parametrize("reads", [1, 4, 8])
@pytest.mark.parametrize("wrote", [1, 4])
def test_answers_are_found_in_however_many_parts_they_were_written(path, wrote, reads):
    kept(path, wrote, "a1", KEYS[:30], ANSWERS[:30])
    kept(path, 1, "b2", KEYS[30:], ANSWERS[30:])
    memo, found = opened(path, reads), {}
    for part in range(reads):
        stored = memo.stored(part)
        assert set(parts_of(stored.keys, reads)) <= {part}
        found |= dict(zip(stored.keys, stored.answers, strict=True))
    assert found == dict(zip(KEYS, ANSWERS, strict=True))
    assert memo.entries() == {"a1": {(n, wrote) for n in range(wrote)}, "b2": {(0, 1)}}


def test_two_answers_to_one_question_are_refused(path):
    kept(path, 1, "a1")
    kept(path, 4, "b2", KEYS[5:6], ANSWERS[5:6])
    with pytest.raises(PrivacyError, match="at the same time"):
        opened(path).stored(0)


def test_a_closed_entry_stores_nothing_more_and_keeps_what_it_has(path):
    memo, own = opened(path, 4, {"a1": 4}), parts_of(KEYS, 4)
    memo.keep(2, "a1", KEYS[own == 2], ANSWERS[own == 2])
    memo.close(["a1", "of another kind"])
    for part in range(4):
        memo.keep(part, "a1", KEYS[own == part], ANSWERS[own == part])
    assert np.array_equal(opened(path).stored(0).keys, KEYS[own == 2])
    assert memo.entries()["a1"] == {(part, 4) for part in range(4)}


def test_a_digest_tells_of_every_answer_of_an_entry(path):
    memo = kept(path, 4, "a1")
    before = [memo.digests(["a1", "none"], part) for part in range(4)]
    assert [len(found) for found in before] == [1] * 4
    place = path / "001-004-a1.npy"
    rows = np.load(place)
    rows["answer"][0] ^= 1
    np.save(place, rows)
    after = [memo.digests(["a1"], part) for part in range(4)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [
        True, False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_other_settings_are_refused(path, name):
    opened(path)
    with pytest.raises(PrivacyError, match=name):
        opened(path, **{name: "other"})


def test_where_there_is_none_nothing_is_made_to_plan(path):
    memo = AnswerMemo.bound(path, SETTINGS, {}, 1)
    assert len(memo.stored(0).keys) == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("nonsense", DataError),
        ('{"format": "sordino.memo", "version": 2, "settings": 3}', LedgerDamaged),
        (None, LedgerDamaged),
    ],
)
def test_what_is_no_memo_is_refused(path, content, error):
    kept(path, 1, "a1")
    if content is None:
        (path / "settings.json").unlink()
    else:
        (path / "settings.json").write_text(content)
    with pytest.raises(error):
        opened(path)


def test_a_missing_folder(tmp_path):
    with pytest.raises(FileSystemError, match="cannot be made"):
        opened(tmp_path / "no" / "m.memo")


def test_only_hashes_answers_and_ids_are_stored(path):
    kept(path, 1, "a1")
    assert {each.name for each in path.iterdir()} == {"settings.json", "000-001-a1.npy"}
    assert np.load(path / "000-001-a1.npy").dtype.names == ("key", "answer")
    told = json.loads((path / "settings.json").read_text())
    assert told == {"format": "sordino.memo", "version": 2, "settings": SETTINGS}
    assert path.stat().st_mode & 0o777 == 0o700
