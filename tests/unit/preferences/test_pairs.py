"""Pairs: what is public does not depend on labels, and what is dropped is counted."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sordino.errors import DataError, UsageError
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs, PrivatePairs, read_pairs

ROWS = [{"prompt": f"p{i}", "chosen": f"a{i}", "rejected": f"b{i}"} for i in range(20)]
SAME = {"prompt": "p", "chosen": "x", "rejected": "x"}


def public(pairs):
    return (
        pairs.keys, pairs.public_digest, pairs.prompts, pairs.first, pairs.second, pairs.persons,
        pairs.dropped, len(pairs), repr(pairs),
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[::-1],
        lambda rows: rows[:-1],
        lambda rows: [*rows, SAME],
        lambda rows: [rows[0] | {"prompt": "other"}, *rows[1:]],
        lambda rows: [rows[0] | {"chosen": "other"}, *rows[1:]],
        lambda rows: [row | {"person": "p"} for row in rows],
    ],
)
def test_the_digest_sees_every_public_change(change):
    other = read_pairs(change(ROWS), drop=["identical"])
    assert other.public_digest != read_pairs(ROWS).public_digest


def test_answers_need_a_file_with_a_manifest():
    with pytest.raises(DataError, match="manifest"):
        read_pairs([{"prompt": "p", "first": "a", "second": "b", "answer": 1}])


def test_identical_answers_are_dropped_and_counted():
    rows = [SAME, *ROWS, SAME]
    with pytest.raises(DataError, match="record 1: both answers are the same"):
        read_pairs(rows)
    pairs = read_pairs(rows, drop=["identical"])
    assert (len(pairs), pairs.dropped) == (20, 2)
    assert read_pairs(ROWS, drop=["identical"]).dropped == 0
    with pytest.raises(DataError, match="No pair is left"):
        read_pairs([SAME], drop=["identical"])


# --- first_rows ---


def test_first_rows_of_people():
    people = ["ana", "ana", "ben", "ana", "ben"]
    questions = [0, 0, 0, 1, 0]
    rows = [
        {"prompt": f"{q}", "chosen": "ab"[i % 2], "rejected": "ba"[i % 2], "person": who}
        for i, (who, q) in enumerate(zip(people, questions, strict=True))
    ]
    assert read_pairs(rows).first_rows().tolist() == [True, False, True, True, False]


def test_first_rows_without_people_are_all_rows():
    rows = [{"prompt": "p", "chosen": "a", "rejected": "b"}] * 3
    assert read_pairs(rows).first_rows().tolist() == [True] * 3


# --- from_features ---

FLOATS = st.floats(-1e6, 1e6).map(lambda x: x + 0.0)
MATRICES = arrays.arrays(
    np.float64, arrays.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=FLOATS
)


@given(MATRICES, st.data())
def test_features_turned_by_sign_turn_the_label(rows, data):
    rows = rows[(rows != 0).any(axis=1)]
    if not len(rows):
        return
    n = len(rows)
    labels = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    turns = np.array(data.draw(st.lists(st.sampled_from([-1, 1]), min_size=n, max_size=n)))
    pairs = Pairs.from_features(rows, labels)
    turned = Pairs.from_features(rows * turns[:, None], labels ^ (turns < 0))
    other = Pairs.from_features(rows, 1 - labels)
    assert public(pairs) == public(turned) == public(other)
    assert pairs.given.tobytes() == turned.given.tobytes() == other.given.tobytes()
    assert pairs.labels.tolist() == turned.labels.tolist() == (1 - other.labels).tolist()
    signs = np.where(pairs.labels == 1, 1, -1)[:, None] * pairs.given
    assert np.array_equal(signs, np.where(labels == 1, 1, -1)[:, None] * rows)


def test_a_leading_zero_and_a_negative_zero():
    pairs = Pairs.from_features([[0.0, -2.0], [-0.0, 2.0]], [1, 1])
    assert pairs.given.tolist() == [[0.0, 2.0], [0.0, 2.0]]
    assert not np.signbit(pairs.given).any()
    assert pairs.labels.tolist() == [0, 1]
    assert pairs.keys[0] == pairs.keys[1]


@pytest.mark.parametrize(
    ("rows", "labels", "word"),
    [
        ([[1.0], [float("nan")]], [0, 1], "row 1"),
        ([[float("inf")]], [0], "row 0"),
        ([[1.0], [0.0]], [0, 1], "row 1 is zero"),
        ([[1.0]], [2], "0 or 1"),
        ([[1.0]], [0.25], "0 or 1"),
        ([[1.0]], [float("nan")], "0 or 1"),
        ([[1.0]], ["1"], "0 or 1"),
        ([[1.0]], [1, 0], "0 or 1"),
        ([[1.0]], 1, "0 or 1"),
        ([1.0], [1], "dimension"),
        (np.zeros((0, 2)), [], "empty"),
        ([["a"]], [1], "numeric"),
        ([[1j]], [1], "numeric"),
    ],
)
def test_arrays_that_cannot_be_used(rows, labels, word):
    with pytest.raises(DataError, match=word):
        Pairs.from_features(rows, labels)


def test_features_are_needed_for_texts_and_refused_for_numbers():
    texts, numbers = read_pairs(ROWS), Pairs.from_features([[1.0]], [1])
    features = HashedText(dimension=16)
    assert texts.differences(features).shape == (20, 16)
    assert numbers.differences(None).tolist() == [[1.0]]
    for pairs, given_features in ((texts, None), (numbers, features)):
        with pytest.raises(UsageError, match="features"):
            pairs.differences(given_features)


# --- undecided labels ---


def test_features_take_one_half_for_undecided_and_keep_it_when_turned():
    pairs = Pairs.from_features([[1.0], [-1.0], [-1.0], [1.0]], [0.5, 0.5, 1, 1])
    assert pairs.labels.tolist() == [2, 2, 0, 1]
    assert pairs.labels.dtype == np.int8
    same = Pairs.from_features([[1.0], [1.0], [1.0], [-1.0]], [0, 1, 0.5, 0.5])
    assert public(pairs) == public(same)


def test_a_part_is_other_data_for_a_ledger():
    pairs = Pairs.from_features([[1.0], [2.0], [3.0]], [1, 0.5, 0])
    left = pairs.part([0, 2])
    assert (left.given.tolist(), left.labels.tolist()) == ([[1.0], [3.0]], [1, 0])
    assert left.public_digest == Pairs.from_features([[1.0], [3.0]], [0, 0]).public_digest
    assert left.public_digest != pairs.public_digest


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_the_rows_of_a_part_may_be_any_sequence(kind):
    pairs = Pairs.from_features([[1.0], [2.0], [3.0]], [1, 0, 1])
    part = pairs.part(kind((0, 1)))
    assert (part.given.tolist(), part.labels.tolist()) == ([[1.0], [2.0]], [1, 0])
    assert pairs.part(kind(())).given.shape == (0, 1)


@pytest.mark.parametrize(
    ("settings", "error", "word"),
    [
        ({"persons": "ann"}, DataError, "one id for each row"),  # not one for each letter
        ({"persons": 5}, UsageError, "persons must be Iterable"),
        ({"parts": "x"}, UsageError, "parts must be int, got str"),
        ({"parts": 0}, UsageError, "parts must be a whole number of at least 1"),
        ({"parts": True}, UsageError, "parts must be int, got bool"),
        ({"hides_records": "no"}, UsageError, "hides_records must be bool"),
    ],
)
def test_settings_of_arrays_are_checked(settings, error, word):
    with pytest.raises(error, match=word):
        Pairs.from_features([[1.0], [2.0], [3.0]], [1, 0, 1], **settings)


def test_a_manifest_beside_raw_judgments_is_not_ignored(tmp_path):
    row = {"prompt": "p", "chosen": "a", "rejected": "b"}
    (tmp_path / "raw.jsonl").write_text(json.dumps(row))
    for source in ([row], tmp_path / "raw.jsonl"):
        with pytest.raises(UsageError, match="raw judgments, and manifest is for randomized"):
            read_pairs(source, manifest=tmp_path / "raw.manifest.json")


@pytest.mark.parametrize("rows", [[0, 0], [True, False, True], [-1], [3], [0.0], [[0]]])
def test_no_row_is_taken_twice(rows):
    """A mask once took the first two rows again and again: what hides one record hid none."""
    pairs = Pairs.from_features([[1.0], [2.0], [3.0]], [1, 0, 1])
    for mistaken in (rows, np.array(rows)):
        with pytest.raises(DataError, match="each once"):
            pairs.part(mistaken)


def test_texts_do_not_stand_beside_features():
    pairs = Pairs.from_features([[1.0], [2.0]], [1, 0])
    with pytest.raises(DataError, match="exclude each other"):
        replace(pairs, prompts=("p", "p"), first=("a", "c"), second=("b", "d"))


def test_pairs_cannot_be_compared_or_shown():
    pairs = read_pairs(ROWS)
    assert repr(pairs) == "Pairs(n=20)"
    assert pairs != read_pairs(ROWS)
    assert "PrivatePairs" not in repr(pairs)
    assert not isinstance(pairs, PrivatePairs)
