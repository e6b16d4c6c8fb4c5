"""Questions are public, in canonical order, and hold no judgment."""

import json

import pytest

from sordino.collection.study import _read_questions
from sordino.errors import DataError
from sordino.preferences.records import Levels

QUESTION = {"prompt": "How?", "first": "Slowly.", "second": "Fast."}


def write(folder, *rows):
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_which_answer_is_named_first_changes_nothing(tmp_path):
    turned = QUESTION | {"first": QUESTION["second"], "second": QUESTION["first"]}
    one, other = (_read_questions(write(tmp_path, row)) for row in (QUESTION, turned))
    assert one == other
    assert len(one[0].id) == 32


def test_messages_are_read_as_well_as_texts(tmp_path):
    asked = [{"role": "user", "content": "How?"}]
    row = {
        "prompt": asked,
        "first": [{"role": "assistant", "content": "Slowly."}],
        "second": [{"role": "assistant", "content": "Fast."}],
    }
    (question,) = _read_questions(write(tmp_path, row))
    assert question.to_dict()["prompt"] == asked


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (QUESTION | {"label": 1}, "'label' is no part of a question"),
        (QUESTION | {"answer": 0}, "'answer' is no part of a question"),
        (QUESTION | {"person": "ann"}, "'person' is no part of a question"),
        ({"prompt": "p", "chosen": "a", "rejected": "b"}, "'chosen' is no part"),
        (QUESTION | {"second": QUESTION["first"]}, "two answers are the same"),
        (QUESTION | {"second": [{"role": "a", "content": "b"}]}, "must all be texts"),
        ({"prompt": "p", "first": "a"}, "'second' is missing"),
        (QUESTION | {"first": "\ud800"}, "not valid Unicode"),
        (QUESTION | {"first": "x" * 50_001}, "at most 50000 characters"),
        (QUESTION | {"first": 3}, "'first' must be"),
    ],
)
def test_what_is_no_question_is_refused_by_its_line(tmp_path, row, said):
    with pytest.raises(DataError, match=f"line 2.*{said}"):
        _read_questions(write(tmp_path, QUESTION | {"prompt": "Another?"}, row))


def test_a_question_that_is_asked_twice_is_refused_also_when_turned(tmp_path):
    turned = QUESTION | {"first": QUESTION["second"], "second": QUESTION["first"]}
    with pytest.raises(DataError, match="line 2: this question stands in line 1 already"):
        _read_questions(write(tmp_path, QUESTION, turned))


def test_a_study_has_a_largest_number_of_questions(tmp_path, monkeypatch):
    monkeypatch.setattr("sordino.collection.study._MOST", 2)
    rows = [QUESTION | {"prompt": str(number)} for number in range(3)]
    with pytest.raises(DataError, match="line 3: a study has at most 2 questions"):
        _read_questions(write(tmp_path, *rows))


def test_the_fields_of_a_row_say_what_it_asks_for(tmp_path):
    few = ["c", "a", "b"]
    rows = [
        {"prompt": "p", "completion": "a"},
        {"prompt": "p", "candidates": few, "names": ["C", "A", "B"]},
        {"prompt": "q", "candidates": few, "ask": "ranking"},
    ]
    thumb, choice, ranking = _read_questions(write(tmp_path, *rows))
    (rating,) = _read_questions(write(tmp_path, rows[0]), Levels(1, 5))
    asked = [(one.ask, one.outcomes) for one in (thumb, rating, choice, ranking)]
    assert asked == [("thumb", 2), ("rating", 2), ("choice", 3), ("ranking", 3)]
    assert thumb.id != rating.id  # a thumb is another judgment of the same answer
    assert dict(zip(choice.answers, choice.names, strict=True)) == {"a": "A", "b": "B", "c": "C"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "p", "completion": "a", "ask": "rating"}, "a rating needs levels"),
        ({"prompt": "p", "completion": "a", "ask": "choice"}, "field 'ask' must be one of"),
        ({"prompt": "p", "candidates": ["a"]}, "a list of 2 to 10 answers"),
        ({"prompt": "p", "candidates": ["a", "b"], "names": ["x"]}, "one name for each candidate"),
        ({"prompt": "p", "candidates": ["a", "b", "a"]}, "two answers are the same"),
    ],
)
def test_a_row_that_asks_for_nothing_it_can_have_is_refused(tmp_path, row, said):
    with pytest.raises(DataError, match=f"line 1.*{said}"):
        _read_questions(write(tmp_path, row))
