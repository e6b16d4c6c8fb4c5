"""A request is of one form; anything else is refused before the database is asked."""

import math
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from sordino.collection.answers import MOST_ANSWERS, _Submitted, read_submission
from sordino.collection.refusals import Refusal

STUDY = SimpleNamespace(id="5" * 16, by_id={}, feedback=False)


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
        *({"answer": value} for value in (2, -1, True, "1", 1.0, None, math.nan, [1])),
        *({"revision": value} for value in (0, 1_000_001, 10**30, True, 1.0, None)),
        *({"question": value} for value in ("0" * 31, "G" * 32, "0" * 32 + "\n", None)),
        *({"id": value} for value in ("not one", f"{UUID(int=1)}\n", "0" * 9999, ["x"])),
        {"label": 1},
    ],
    ids=repr,
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
