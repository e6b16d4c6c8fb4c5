"""What a label may say, in every spelling, and records with the labels of several people."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import DataError
from sordino.preferences.pairs import read_pairs
from sordino.preferences.records import _parse_record, label_value, parse_records, turned
from sordino.privacy.guarantee import UNDECIDED

QUESTION = {"prompt": "p", "first": "a", "second": "b"}
SPELLINGS = {
    1: [1, 1.0, "1", "1.0", "first", " First ", np.int64(1), np.float64(1.0), np.uint8(1)],
    0: [0, 0.0, -0.0, "0", "0.0", "second", "SECOND\n", np.int64(0), np.float32(0.0)],
    UNDECIDED: [
        0.5, "0.5", "tie", "Tie", " TIE\t", "both bad", "Both  Bad", "both_bad", "bothbad",
        "tie (bothbad)", "Tie (BothBad)", "both good", "both_good", "bothgood", "skip", "Skip",
        np.float64(0.5), np.float16(0.5), np.str_("tie"),
    ],
}  # fmt: skip
NONE_OF_THEM = [
    None, "", " ", "null", "nan", "none", 2, -1, 3, "2", 0.25, 1.5, float("nan"), float("inf"),
    True, False, "true", np.True_, [], [1], {}, b"1", "a", "chosen", 10**400, 1j, "tie?", "½",
]  # fmt: skip
ALL = [(value, said) for value, spellings in SPELLINGS.items() for said in spellings]


@pytest.mark.parametrize(("value", "said"), ALL)
def test_every_spelling(value, said):
    assert label_value(said) == value
    record = _parse_record(QUESTION | {"label": said}, "line 1")
    turned_row = {"prompt": "p", "first": "b", "second": "a", "label": said}
    other = _parse_record(turned_row, "line 1")
    if value == UNDECIDED:
        assert record.outcome == other.outcome == UNDECIDED
    else:
        assert (record.outcome == 1) == ((record.first == "a") == bool(value))
        assert other.outcome == 1 - record.outcome
    assert type(record.outcome) is int
    assert not record.privatized


@pytest.mark.parametrize("said", NONE_OF_THEM, ids=repr)
def test_what_says_nothing_is_refused_and_never_quoted(said):
    assert label_value(said) is None
    with pytest.raises(DataError) as caught:
        _parse_record(QUESTION | {"label": said}, "line 7")
    assert str(caught.value) == (
        "line 7: field 'label' must be 0 or 1 (1: 'first' is preferred), or \"tie\", \"both bad\", "
        '"both good" or "skip"; write "skip" where nobody decided.'
    )
    assert caught.value.__context__ is None


def test_a_missing_label_says_to_write_skip():
    with pytest.raises(DataError, match=r"'label' .*missing.*write \"skip\""):
        _parse_record(QUESTION, "line 1")


@pytest.mark.parametrize("said", [0.5, "tie", "skip", 2, "1", 1.0, "first", None, True])
def test_a_randomized_answer_is_0_or_1_and_nothing_else(said):
    with pytest.raises(DataError, match="'answer' must be 0 or 1"):
        _parse_record(QUESTION | {"answer": said}, "line 1")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ROWS = st.lists(
    st.tuples(TEXTS, TEXTS, TEXTS, st.sampled_from([0, 1, UNDECIDED]), st.booleans()), min_size=1
)


def public(pairs):
    return (
        pairs.keys, pairs.public_digest, pairs.prompts, pairs.first, pairs.second, pairs.persons,
        pairs.dropped, len(pairs), repr(pairs),
    )  # fmt: skip


def as_rows(drawn, *, swapped, labels=None):
    rows = []
    for index, (prompt, one, other, own, swap) in enumerate(drawn):
        said = own if labels is None else labels[index]
        row = {"prompt": prompt, "first": f"{one}1", "second": f"{other}2", "person": index % 2}
        if swapped and swap:
            row |= {"first": row["second"], "second": row["first"]}
            said = turned(said, swap=True)
        rows.append(row | {"label": SPELLINGS[said][index % 3]})
    return rows


@given(ROWS, st.data())
def test_which_column_is_first_and_what_was_said_leave_no_trace(drawn, data):
    pairs = read_pairs(as_rows(drawn, swapped=False))
    shuffled = read_pairs(as_rows(drawn, swapped=True))
    assert public(pairs) == public(shuffled)
    assert pairs.labels.tolist() == shuffled.labels.tolist()
    size = {"min_size": len(drawn), "max_size": len(drawn)}
    others = data.draw(st.lists(st.sampled_from([0, 1, UNDECIDED]), **size))
    assert public(read_pairs(as_rows(drawn, swapped=True, labels=others))) == public(pairs)
    preferred = [
        {1: first, 0: second, UNDECIDED: None}[label]
        for first, second, label in zip(pairs.first, pairs.second, pairs.labels, strict=True)
    ]
    assert preferred == [
        {1: f"{one}1", 0: f"{other}2", UNDECIDED: None}[label] for _, one, other, label, _ in drawn
    ]
    assert pairs.labels.dtype == np.int8


# --- several people ---


def parse_all(row, **named):
    return list(parse_records(row, "line 3", **named))


def test_people_may_be_left_out_and_named_otherwise():
    assert [r.person for r in parse_all(QUESTION | {"labels": [1, 1]})] == [None, None]
    assert [r.person for r in parse_all(QUESTION | {"labels": (1,), "persons": None})] == [None]
    row = QUESTION | {"labels": ["skip"], "raters": ["ana"], "persons": ["not", "read"]}
    assert [r.person for r in parse_all(row, person_field="rater")] == ["ana"]


def test_one_row_for_each_person_says_the_same(tmp_path):
    people, labels = ["ana", "ben", "ana"], [1, "tie", 0]
    rows = [QUESTION | {"label": la, "person": p} for la, p in zip(labels, people, strict=True)]
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(QUESTION | {"labels": labels, "persons": people}))
    together, apart = read_pairs(path), read_pairs(rows)
    assert public(together) == public(apart)
    assert together.labels.tolist() == apart.labels.tolist()
    assert together.first_rows().tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"labels": []}, "'labels' must be a list of at least one"),
        ({"labels": None}, "'labels' must be a list"),
        ({"labels": "10"}, "'labels' must be a list"),
        ({"labels": 1}, "'labels' must be a list"),
        ({"labels": {"ana": 1}}, "'labels' must be a list"),
        ({"labels": [1], "label": 1}, "'labels' and 'label' exclude"),
        ({"labels": [1], "label": None}, "'labels' and 'label' exclude"),
        ({"labels": [1], "answer": 1}, "'labels' and 'answer' exclude"),
        ({"labels": [1], "chosen": "a", "rejected": "b"}, "'chosen' and 'rejected' exclude"),
        ({"labels": [1], "person": "ana"}, "'labels' and 'person' exclude"),
        ({"label": 1, "persons": ["ana"]}, "'persons' is for records with 'labels'"),
        ({"labels": [1, 0], "persons": ["ana"]}, "'persons' must be a list of one id"),
        ({"labels": [1], "persons": "a"}, "'persons' must be a list"),
        ({"labels": [1, None]}, "line 3, label 2: field 'label' must be"),
        ({"labels": [1, "CANARY"]}, "line 3, label 2: field 'label' must be"),
        ({"labels": [1, 0], "persons": ["ana", 1.5]}, "line 3, label 2: field 'person' must be"),
    ],
)
def test_records_of_several_people_that_cannot_be_used(more, words):
    with pytest.raises(DataError, match=words) as caught:
        parse_all(QUESTION | more)
    assert "CANARY" not in str(caught.value)
