"""A public link makes each device a person with one cap; a question that comes along gets one coin.

What is stored of a question is its words and nothing else: not who sent it, and not when.
"""

import json
from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy import select

from sordino.collection.answers import (
    export_answers,
    handle_of,
    invite,
    open_invitation,
    progress_of,
    read_sent_questions,
    read_submission,
    revoke,
    states,
    store,
)
from sordino.collection.arena import chooser_of
from sordino.collection.database import (
    ANSWERS,
    INVITATIONS,
    PERSONS,
    QUESTIONS,
    frozen,
    open_database,
)
from sordino.collection.refusals import Refusal
from sordino.collection.study import Study, make_question, sent_question
from sordino.errors import DataError
from sordino.preferences.pairs import read_pairs
from sordino.preferences.records import Levels


@pytest.fixture
def begun(tmp_path):
    """Returns a maker of open studies with their engine and their public token."""
    engines = []

    def begin(**settings):
        terms = {"cap": 2, "most_persons": 3, "feedback": True} | settings
        study = Study(
            id="5" * 16, title="t", epsilon=1.0, open=True, questions=(), folder=tmp_path,
            database=f"{len(engines)}.db", **terms,
        )  # fmt: skip
        engine = frozen(open_database(study.database_url), study, create=True)
        engines.append(engine)
        return engine, study, invite(engine, study, count=1, days=1)[0]

    yield begin
    for engine in engines:
        engine.dispose()


def thumb(number):
    row = {"prompt": f"p{number}", "completion": f"a{number}"}
    return json.loads(json.dumps(make_question(row, "row").to_dict()))


def join(engine, study, token, device):
    with engine.begin() as connection:
        chooser = chooser_of(study)
        return open_invitation(connection, study, chooser, token=token, device=device).questions


def send(engine, study, device, *questions, number=0, answer=1, revision=1):
    answers = [
        {"id": str(UUID(int=number + i)), "question": one["id"], "revision": revision,
         "answer": answer} for i, one in enumerate(questions)
    ]  # fmt: skip
    body = {"study": study.id, "answers": answers, "questions": list(questions)}
    with engine.begin() as connection:
        sent, told = read_submission(body, study), read_sent_questions(body, study)
        reply = store(connection, study, chooser_of(study), device, sent, told)
    return [row["code"] for row in reply["refused"]], reply["spent"]


def rows(engine, table):
    with engine.connect() as connection:
        return connection.execute(select(table)).all()


def devices(count):
    return [chr(ord("a") + number) * 43 for number in range(count)]


def test_each_device_that_joins_is_one_person_and_the_study_takes_so_many(begun):
    engine, study, token = begun()
    for device in devices(3) * 2:
        assert join(engine, study, token, device) == []
    with pytest.raises(Refusal, match="as many people"):
        join(engine, study, token, "z" * 43)
    assert len(rows(engine, PERSONS)) == 3
    assert len(rows(engine, INVITATIONS)) == 4  # a refusal wrote nothing
    told = progress_of(engine, study)["invitations"]
    assert (told["made"], told["opened"]) == (1, 3)
    join(engine, study, token, "a" * 43)  # who is in stays in


def test_withdrawing_the_public_link_ends_every_device_that_joined_with_it(begun):
    engine, study, token = begun()
    (other,) = invite(engine, study, count=1, days=1)
    for device, with_token in zip(devices(3), (token, token, other), strict=True):
        join(engine, study, with_token, device)
    revoke(engine, [handle_of(study, token)])
    assert sum(row["state"] == "revoked" for row in states(engine)) == 3
    for device in devices(2):
        with pytest.raises(Refusal, match="withdrawn"):
            send(engine, study, device, thumb(1))
        with pytest.raises(Refusal, match="withdrawn"):
            join(engine, study, token, device)
    assert send(engine, study, devices(3)[2], thumb(1)) == ([], 1)


def test_one_person_gives_one_answer_to_a_question_and_no_more_than_the_cap(begun):
    engine, study, token = begun()
    for device in devices(2):
        join(engine, study, token, device)
        assert send(engine, study, device, thumb(1)) == ([], 1)
        assert send(engine, study, device, thumb(1), number=9, answer=0)[0] == ["already-answered"]
        assert send(engine, study, device, thumb(2), number=2) == ([], 2)
        assert send(engine, study, device, thumb(3), number=3) == (["cap-reached"], 2)
    assert {(row.id, row.asked) for row in rows(engine, QUESTIONS)} == {
        (thumb(1)["id"], 0), (thumb(2)["id"], 0)
    }  # fmt: skip
    assert [row.answer for row in rows(engine, ANSWERS)] == [1] * 4


def test_a_question_is_stored_under_its_own_name_or_not_at_all(begun):
    engine, study, token = begun(cap=9)
    device = devices(1)[0]
    join(engine, study, token, device)
    right = thumb(1)
    pair = make_question({"prompt": "p", "first": "x", "second": "y"}, "row").to_dict()
    pair = json.loads(json.dumps(pair))
    wrong = [
        right | {"id": "0" * 32}, right | {"prompt": "other"}, right | {"ask": "rating"},
        right | {"ask": "choice"}, right | {"more": 1}, right | {"answers": ["a1", "b"]},
        right | {"answers": [3]}, right | {"answers": "a"}, right | {"prompt": None},
        pair | {"answers": pair["answers"][::-1]}, pair | {"answers": ["x", "x"]},
        right | {"answers": ["x" * 60_000]}, right | {"ask": ["thumb"]},
    ]  # fmt: skip
    for number, question in enumerate(wrong):
        assert send(engine, study, device, question, number=number)[0] == ["unknown-question"]
        with pytest.raises(DataError):
            sent_question(question)
    assert rows(engine, QUESTIONS) == rows(engine, ANSWERS) == []
    assert send(engine, study, device, right, pair, number=50) == ([], 2)
    rated = {"prompt": "p", "completion": "a", "ask": "rating"}
    rating = make_question(rated, "row", Levels(1, 5)).to_dict()
    rating = json.loads(json.dumps(rating))
    assert sent_question(rating, Levels(1, 5)).ask == "rating"


def test_requests_of_another_form_are_refused(begun):
    _, study, _ = begun()
    answer = {"id": str(UUID(int=1)), "question": "f" * 32, "revision": 1, "answer": 1}
    plain = {"study": study.id, "answers": [answer]}
    assert read_sent_questions(plain | {"questions": [3, {}, None]}, study) == {}
    for questions in (3, {}, [{}] * 51):
        with pytest.raises(Refusal, match="not of the form"):
            read_sent_questions(plain | {"questions": questions}, study)
    with pytest.raises(Refusal, match="not of the form"):
        read_submission(plain, study)
    closed = replace(study, feedback=False)
    with pytest.raises(Refusal, match="not of the form"):
        read_submission(plain | {"questions": []}, closed)


def test_a_file_tells_neither_who_came_first_nor_what_was_asked_first(begun, tmp_path):
    files = set()
    for number, order in enumerate(([1, 2, 3], [3, 1, 2])):
        engine, study, token = begun(cap=3)
        device = devices(1)[0]
        join(engine, study, token, device)
        for index in order:
            assert send(engine, study, device, thumb(index), number=index)[0] == []
        with engine.begin() as connection:
            for table, name in ((PERSONS, "id"), (ANSWERS, "person")):
                connection.execute(table.update().values({name: "1" * 32}))
        out = tmp_path / f"{number}.jsonl"
        manifest = export_answers(engine, study, out, unit="person")[out]
        files.add(out.read_bytes())
        pairs = read_pairs(out)
        assert pairs.guarantee == manifest.guarantee == study.guarantee("person")
        assert manifest.epsilon == pytest.approx(3.0)
    assert len(files) == 1


@pytest.mark.parametrize(
    "embed", ["chat.example.org", "http://a.example.org", "https://a/b", "https://a;", "*",
              "https://*.a.org", "https://A.org", "https://a.org 'self'", 3]
)  # fmt: skip
def test_only_whole_origins_may_be_let_in(begun, embed):
    with pytest.raises(Exception, match="embed"):
        begun(embedded_in=(embed,))
