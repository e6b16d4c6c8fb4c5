"""Frames of three libraries, none of which is installed: stand-ins with their methods."""

import math

import numpy as np
import pytest

from sordino.errors import DataError, UsageError
from sordino.preferences.pairs import Pairs, read_pairs

CANARY = "kanarie"
ROWS = [
    {"prompt": "p", "first": "a", "second": "b", "label": np.int64(1)},
    {"prompt": "q", "first": "c", "second": "d", "label": np.float64(0.5)},
    {"prompt": "r", "first": "f", "second": "e", "label": "tie"},
    {"prompt": "s", "first": "f", "second": "e", "label": 0.0},
]


class Pandas:
    """``DataFrame.columns`` and ``DataFrame.to_dict("records")``."""

    def __init__(self, rows, columns=None):
        self.rows, self.columns = rows, list(rows[0]) if columns is None else columns

    def to_dict(self, orient):
        assert orient == "records"
        return [dict(row) for row in self.rows]


class Polars:
    """``DataFrame.columns`` and ``DataFrame.to_dicts()``; ``to_dict`` means something else."""

    def __init__(self, rows, columns=None):
        self.rows, self.columns = rows, list(rows[0]) if columns is None else columns

    def to_dicts(self):
        return [dict(row) for row in self.rows]

    def to_dict(self, *, as_series=True):
        raise AssertionError


class Arrow:
    """``Table.columns`` are the data; the names are ``column_names``."""

    def __init__(self, rows, columns=None):
        self.rows, self.column_names = rows, list(rows[0]) if columns is None else columns
        self.columns = [[row[name] for row in rows] for name in self.column_names]

    def to_pylist(self):
        return [dict(row) for row in self.rows]


class NAType:
    """As pandas writes nothing in its own columns."""

    def __bool__(self):
        raise TypeError

    def __ne__(self, other):
        return self

    __hash__ = None


KINDS = pytest.mark.parametrize("kind", [Pandas, Polars, Arrow])
MISSING = [None, math.nan, np.float64("nan"), NAType()]


def public(pairs):
    return (pairs.keys, pairs.public_digest, pairs.prompts, pairs.first, pairs.second)


@KINDS
def test_a_frame_says_what_its_rows_say(kind):
    pairs, same = read_pairs(kind(ROWS)), read_pairs(ROWS)
    assert isinstance(pairs, Pairs)
    assert public(pairs) == public(same)
    assert pairs.labels.tolist() == same.labels.tolist()
    assert sorted(pairs.labels[1:3]) == [2, 2]
    assert repr(pairs) == "Pairs(n=4)"


@KINDS
def test_columns_may_be_called_otherwise(kind):
    names = {"prompt": "question", "first": "one", "second": "other", "label": "winner"}
    rows = [{names[name]: value for name, value in row.items()} | {"prompt": 7} for row in ROWS]
    assert public(read_pairs(kind(rows), columns=names)) == public(read_pairs(ROWS))


def test_people_and_identical_answers():
    rows = [row | {"who": np.int64(index % 2)} for index, row in enumerate(ROWS)]
    rows.append(rows[0] | {"second": "a"})
    assert read_pairs(Pandas(rows[:4]), person_field="who").persons == ("0", "1", "0", "1")
    renamed = read_pairs(Pandas(rows[:4]), columns={"person": "who"})
    assert renamed.persons == ("0", "1", "0", "1")
    with pytest.raises(DataError, match="row 4: both answers are the same"):
        read_pairs(Pandas(rows))
    assert read_pairs(Pandas(rows), drop=["identical"]).dropped == 1


def test_several_labels_as_arrays():
    row = {"prompt": "p", "first": "a", "second": "b"}
    row |= {"labels": np.array([1.0, 0.5, 0.0]), "persons": np.array(["x", "y", "z"])}
    pairs = read_pairs(Arrow([row]))
    assert pairs.persons == ("x", "y", "z")
    assert sorted(pairs.labels.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("nothing", MISSING)
@pytest.mark.parametrize("column", ["prompt", "first", "second", "label"])
def test_a_missing_cell_is_refused(nothing, column):
    rows = [*ROWS, ROWS[0] | {column: nothing}]
    with pytest.raises(DataError, match=rf"row 4: fields? .*'{column}'") as caught:
        read_pairs(Pandas(rows))
    assert ('write "skip"' in str(caught.value)) == (column == "label")


@pytest.mark.parametrize("nothing", MISSING)
def test_people_may_be_missing_for_all_but_not_for_some(nothing):
    rows = [row | {"person": nothing} for row in ROWS]
    assert read_pairs(Pandas(rows)).persons is None
    rows[2]["person"] = "ana"
    with pytest.raises(DataError, match="row 2: a person id is given for some"):
        read_pairs(Pandas(rows))


@KINDS
def test_randomized_answers_are_refused(kind):
    rows = [{"prompt": "p", "first": "a", "second": "b", "answer": 1}]
    with pytest.raises(DataError, match=r"'answer' is not read.*manifest"):
        read_pairs(kind(rows))
    with pytest.raises(UsageError, match="columns must be a mapping from our fields"):
        read_pairs(kind(ROWS), columns={"answer": "label"})


@KINDS
def test_two_columns_of_one_name_are_refused(kind):
    with pytest.raises(DataError, match="two columns") as caught:
        read_pairs(kind(ROWS, columns=["prompt", "prompt"]))
    assert "'prompt'" not in str(caught.value)


@KINDS
def test_a_frame_without_rows_or_columns(kind):
    with pytest.raises(DataError, match="empty"):
        read_pairs(kind([], columns=["prompt", "chosen", "rejected"]))
    with pytest.raises(DataError, match="Needed: a prompt and two answers"):
        read_pairs(kind([{"prompt": "p"}]))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"prompt": "none"}, "no column 'none' for 'prompt'"),
        ({"question": "prompt"}, "columns must be a mapping from our fields"),
        ([("prompt", "first")], "columns must be Mapping"),
        ({"prompt": "extra", "first": "extra"}, "a different column for every field"),
        ({"person": "label"}, "'label' means something of its own"),
        ({"person": "chosen"}, "no column 'chosen'"),
        ({"prompt": "second"}, "'second' means something of its own"),
    ],
)
def test_columns_that_cannot_be_used(columns, words):
    rows = [row | {"extra": 1} for row in ROWS]
    with pytest.raises(UsageError, match=words):
        read_pairs(Pandas(rows), columns=columns)


class Lazy:
    """A frame that must be collected first."""

    columns = ("prompt",)


class Odd:
    """Rows in no form that is known."""

    columns = ("prompt", "chosen", "rejected")

    def to_dict(self, size):
        return {"prompt": [CANARY]}


class Failing(Odd):
    def to_dict(self, size):
        raise TypeError(CANARY)


@pytest.mark.parametrize("frame", [None, {}, Lazy(), Odd(), Failing(), Pandas])
def test_what_is_no_frame(frame):
    with pytest.raises(UsageError, match=r"frame must|holds no rows") as caught:
        read_pairs(frame)
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("column", ["prompt", "first", "second", "label", "person", "note"])
@pytest.mark.parametrize(
    "fault", [{"label": 3}, {"first": 1}, {"second": None}, {"prompt": "\ud800"}]
)
def test_a_canary_in_any_cell_is_never_quoted(column, fault):
    row = ROWS[0] | {"person": "x", "note": "", "label": 1} | {column: CANARY}
    with pytest.raises(DataError) as caught:
        read_pairs(Pandas([row, row | fault]))
    assert CANARY not in repr((str(caught.value), caught.value.args, caught.value.__context__))


def test_frames_of_real_libraries():
    """pandas and pyarrow come with the language extra; missing labels are NaN or None there."""
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    rows = [
        {"question": f"q{i}", "first": f"a{i}", "second": f"b{i}", "label": label, "who": i % 2}
        for i, label in enumerate([1, 0, 0.5, 1])
    ]
    frame = pandas.DataFrame(rows)
    given = {"columns": {"prompt": "question"}, "person_field": "who"}
    expected = read_pairs([{**row, "prompt": row["question"]} for row in rows], person_field="who")
    for table in (frame, pyarrow.Table.from_pandas(frame)):
        found = read_pairs(table, **given)
        assert found.labels.tolist() == expected.labels.tolist()
        assert found.keys == expected.keys
        assert found.persons == expected.persons == ("0", "1", "0", "1")
        assert found.public_digest == expected.public_digest
    frame.loc[2, "label"] = None
    with pytest.raises(DataError, match="skip"):
        read_pairs(frame, **given)
