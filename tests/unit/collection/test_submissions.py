"""A request is of one form; anything else is refused before the database is asked."""

import math
from types import SimpleNamespace
from uuid import uuid4

import pytest

from sordino.collection.refusals import Refusal
from sordino.collection.submissions import MOST_ANSWERS, _Submitted, read_submission

STUDY = SimpleNamespace(id="5" * 16)


def answer(**changes):
    return {"id": str(uuid4()), "question": "0" * 32, "revision": 1, "answer": 0} | changes


def body(*answers, **changes):
    return {"study": STUDY.id, "answers": list(answers)} | changes


def test_answers_are_read():
    one, other = answer(), answer(answer=1, revision=2)
    assert read_submission(body(one, other), STUDY) == (_Submitted(**one), _Submitted(**other))


@pytest.mark.parametrize(
    "changes",
    [
        {"answer": 2},
        {"answer": True},
        {"answer": "1"},
        {"answer": 1.0},
        {"answer": None},
        {"answer": math.nan},
        {"answer": [1]},
        {"answer": -1},
        {"revision": 1.0},
        {"revision": None},
        {"revision": 10**30},
        {"question": "\ud800" * 32},
        {"question": "' OR 1=1"},
        {"id": "\x00" * 36},
        {"id": "0" * 9999},
        {"id": ["x"]},
        {"revision": 0},
        {"revision": 1_000_001},
        {"revision": True},
        {"question": "0" * 31},
        {"question": "0" * 33},
        {"question": "G" * 32},
        {"question": "0" * 32 + "\n"},
        {"question": None},
        {"id": "not one"},
        {"id": str(uuid4()).upper().replace("-", "A")},
        {"id": str(uuid4()) + "\n"},
        {"label": 1},
        {"choice": "first"},
    ],
)
def test_an_answer_of_another_form_is_refused(changes):
    with pytest.raises(Refusal) as refusal:
        read_submission(body(answer(), answer(**changes)), STUDY)
    assert refusal.value.code == "bad-request"


@pytest.mark.parametrize(
    "wrong",
    [
        None, [], "text", 3, {}, {"answers": [answer()]}, body(), body(answers="x"),
        body(answer(), more=1), body(answer(), study=3), body(3), body([]),
        body(*(answer() for _ in range(MOST_ANSWERS + 1))),
    ],
)  # fmt: skip
def test_a_body_of_another_form_is_refused(wrong):
    with pytest.raises(Refusal) as refusal:
        read_submission(wrong, STUDY)
    assert refusal.value.code == "bad-request"


def test_answers_to_another_study_are_refused():
    with pytest.raises(Refusal) as refusal:
        read_submission(body(answer(), study="6" * 16), STUDY)
    assert refusal.value.code == "wrong-study"


def test_a_missing_field_is_refused():
    for name in answer():
        less = answer()
        del less[name]
        with pytest.raises(Refusal):
            read_submission(body(less), STUDY)
