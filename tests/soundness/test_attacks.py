"""Attacks that once worked; each recovered labels, or spent more than was recorded."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.privatized import privatize_file

import sordino
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.preferences.pairs import manifest_path
from sordino.privacy.guarantee import PureEvent


def chat(content: str, **extra) -> dict:
    return {"role": "assistant", "content": content, **extra}


def swapped(row: dict) -> dict:
    return row | {"chosen": row["rejected"], "rejected": row["chosen"]}


CHATS = {
    "key order": {
        "prompt": [{"role": "user", "content": "q"}],
        "chosen": [{"role": "assistant", "content": "yes"}],
        "rejected": [{"content": "no", "role": "assistant"}],
    },
    "extra fields": {
        "prompt": "q",
        "chosen": [chat("yes", score=9.5)],
        "rejected": [chat("no", score=2)],
    },
    "implicit prompt": {
        "chosen": [{"role": "user", "content": "hi"}, chat("yes")],
        "rejected": [{"content": "hi", "role": "user"}, chat("no")],
    },
    "equal but not alike": {
        "chosen": [{"role": "user", "content": "hi", "turn": 1}, chat("yes")],
        "rejected": [{"role": "user", "content": "hi", "turn": 1.0}, chat("no")],
    },
}


@pytest.mark.parametrize("row", CHATS.values(), ids=CHATS)
def test_the_column_of_a_message_shows_nowhere(row):
    one, other = (sordino.read_pairs([given]) for given in (row, swapped(row)))
    assert one.labels[0] != other.labels[0]
    for name in ("keys", "public_digest", "prompts", "first", "second"):
        assert getattr(one, name) == getattr(other, name)
        assert repr(getattr(one, name)) == repr(getattr(other, name))


@pytest.mark.parametrize("row", CHATS.values(), ids=CHATS)
def test_a_file_of_chats_holds_role_and_content_only(tmp_path, ledger, row):
    raw = tmp_path / "raw.jsonl"
    raw.write_text(json.dumps(row) + "\n")
    coin = sordino.RandomizedResponse(1.0)
    privatize_file(raw, tmp_path / "out.jsonl", coin, ledger=ledger(1.0))
    text = (tmp_path / "out.jsonl").read_text()
    assert "score" not in text
    assert "turn" not in text
    assert '"content":"no","role"' not in text


@pytest.fixture
def pairs():
    return sordino.read_pairs(
        [{"prompt": f"q{i}", "chosen": "yes", "rejected": "no"} for i in range(20)]
    )


def test_one_entry_pays_for_one_coin_per_question(pairs):
    with pytest.raises(DataError, match="labels"):
        replace(pairs, labels=np.tile(pairs.labels, 1000))
    for name in ("prompts", "first", "second"):
        with pytest.raises(DataError, match=name):
            replace(pairs, **{name: getattr(pairs, name) * 2})
    with pytest.raises(DataError, match="persons"):
        replace(pairs, persons=("a",))


def test_labels_are_bits_that_nobody_changes_later(pairs):
    for labels in (np.full(20, 3), np.full(20, np.nan), np.array(["1"] * 20)):
        with pytest.raises(DataError, match="labels"):
            replace(pairs, labels=labels)
    with pytest.raises(ValueError, match="read-only"):
        pairs.labels[0] = 1


def test_pairs_written_chosen_first_are_not_released(pairs, ledger):
    rows = zip(pairs.first, pairs.second, pairs.labels, strict=True)
    sides = [(a, b) if label else (b, a) for a, b, label in rows]
    written = replace(
        pairs,
        first=tuple(one for one, _ in sides),
        second=tuple(other for _, other in sides),
        labels=np.ones(20, dtype=np.int8),
    )
    account = ledger(1.0)
    with pytest.raises(PrivacyError, match="canonical order"):
        sordino.privatize(written, sordino.RandomizedResponse(1.0), ledger=account)
    assert not account.spends
    given = sordino.Pairs.from_features([[1.0, 2.0], [3.0, -1.0]], [1, 0])
    with pytest.raises(PrivacyError, match="canonical order"):
        sordino.privatize(
            replace(given, given=-given.given), sordino.RandomizedResponse(1.0), ledger=account
        )


def test_other_answers_do_not_inherit_a_promise(pairs, ledger):
    private = sordino.privatize(pairs, sordino.RandomizedResponse(1.0), ledger=ledger(1.0))
    with pytest.raises(PrivacyError, match="not the answers"):
        replace(private, answers=1 - private.answers)
    with pytest.raises(PrivacyError, match="flipped with probability"):
        replace(private, flip_probability=0.0)


def linked(pairs, names):
    people = tuple(names[i % len(names)] for i in range(len(pairs)))
    rows = zip(pairs.prompts, pairs.first, pairs.second, people, strict=True)
    return sordino.read_pairs(
        [{"prompt": p, "chosen": a, "rejected": b, "person": who} for p, a, b, who in rows]
    )


def test_stored_answers_do_not_become_local(pairs, ledger):
    mine, account = linked(pairs, ["me"]), ledger(1.0)
    coin = sordino.RandomizedResponse(1.0)
    sordino.privatize(mine, coin, ledger=account)
    with pytest.raises(PrivacyError, match="trust"):
        sordino.privatize(mine, coin, ledger=account, on_device=True)


def test_the_device_of_one_person_does_not_hold_the_labels_of_several(pairs, ledger):
    account = ledger(1.0, trust="local")
    coin = sordino.RandomizedResponse(1.0)
    with pytest.raises(PrivacyError, match="several people"):
        sordino.privatize(linked(pairs, ["a", "b"]), coin, ledger=account, on_device=True)
    assert not account.spends
    mine = sordino.privatize(linked(pairs, ["a"]), coin, ledger=account, on_device=True)
    assert mine.guarantee.trust == "local"


def test_people_are_not_asked_again_because_a_memo_was_lost(pairs, ledger):
    account, coin = ledger(3.0), sordino.RandomizedResponse(1.0)
    mine = linked(pairs, ["a", "b"])
    sordino.privatize(mine, coin, ledger=account)
    shutil.rmtree(account.path.with_suffix(".memo"))
    with pytest.raises(PrivacyError, match="is gone"):
        sordino.privatize(mine, coin, ledger=account)
    assert len(account.spends) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [(None, "b"), ([], [chat("b")]), ("a", [chat("b")]), ([{"role": 1}], [chat("b")]), (3, "b")],
)
def test_an_error_does_not_tell_which_answer_was_chosen(one, other):
    def said(row):
        with pytest.raises(DataError) as caught:
            sordino.read_pairs([row])
        return str(caught.value)

    row = {"prompt": "q", "chosen": one, "rejected": other}
    assert said(row) == said(swapped(row))
    lacking = [{"prompt": "q", "chosen": other}, {"prompt": "q", "rejected": other}]
    assert said(lacking[0]) == said(lacking[1])


@pytest.mark.parametrize(
    "change",
    [
        {"trust": "local"},
        {"trust": "local", "caveats": ["randomized-at-ingestion"]},
        {"caveats": []},
        {"version": True},
        {"version": -5},
        {"epsilon": "1.0"},
        {"epsilon": "inf"},
        {"epsilon": 10**400},
        {"flip_probability": "0.2689414213699951"},
        {"flip_probability": 0},
    ],
    ids=str,
)
def test_a_manifest_that_contradicts_itself_is_refused(tmp_path, ledger, change):
    raw, out = tmp_path / "raw.jsonl", tmp_path / "out.jsonl"
    raw.write_text('{"prompt": "q", "chosen": "a", "rejected": "b"}\n')
    privatize_file(raw, out, sordino.RandomizedResponse(1.0), ledger=ledger(1.0))
    note = manifest_path(out)
    note.write_text(json.dumps(json.loads(note.read_text()) | change))
    with pytest.raises(DataError, match=r"out\.manifest\.json"):
        sordino.read_pairs(out)


def test_settings_that_no_float_can_hold_are_settings(ledger, budget, pairs):
    for epsilon in (10**400, 1e-7, 1e-18):
        with pytest.raises(UsageError, match="epsilon"):
            sordino.RandomizedResponse(epsilon)
    for mechanism in (sordino.NonPrivate(), None):
        with pytest.raises(UsageError, match="RandomizedResponse"):
            sordino.privatize(pairs, mechanism, ledger=ledger(1.0))
    account = ledger(float("inf"))
    account.reserve(PureEvent(1e308), promise=budget(float("inf")), count=10)
    assert account.total().epsilon == float("inf")
    with pytest.raises(DataError, match="differences"):
        sordino.Pairs.from_features([[1.0], [2.0, 3.0]], [0, 1])
    with pytest.raises(DataError, match="person"):
        sordino.read_pairs([{"prompt": "q", "chosen": "a", "rejected": "b", "person": 10**5000}])
