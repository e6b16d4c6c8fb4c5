"""What the service can learn is what was sent: exact checks of what it tells, asks and keeps.

The coin itself is in the browser: tests/browser/test_randomize.py compares it, word by word, with
the mechanism's.
"""

import itertools
import json
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import select

from sordino import _random
from sordino.collection.answers import (
    _Submitted,
    export_answers,
    forget,
    invite,
    open_invitation,
    store,
)
from sordino.collection.arena import chooser_of
from sordino.collection.database import ANSWERS, PERSONS, QUESTIONS, frozen, open_database
from sordino.collection.refusals import Refusal
from sordino.collection.study import Question, Study
from sordino.preferences.pairs import read_pairs
from sordino.preferences.records import canonical

DEVICE = "d" * 43


def question(number):
    texts = ("a", "b")
    swap, key = canonical(f"p{number}", *texts)
    answers = texts[::-1] if swap else texts
    return Question(key.hex()[:32], f"p{number}", answers)


def make_study(folder, *, questions=2, cap=2, changes="refused", epsilon=1.0):
    return Study(
        id="5" * 16, title="t", epsilon=epsilon, cap=cap, changes=changes, database="s.db",
        questions=tuple(question(number) for number in range(questions)), folder=folder,
    )  # fmt: skip


@pytest.fixture
def begun(tmp_path):
    """Returns a function that begins a study and opens one invitation."""
    engines = []

    def begin(study, *, devices=(DEVICE,)):
        engine = frozen(open_database(study.database_url), study, create=True)
        engines.append(engine)
        tokens = invite(engine, study, count=len(devices), days=1)
        asked = []
        for token, device in zip(tokens, devices, strict=True):
            with engine.begin() as connection:
                asked.append(
                    open_invitation(
                        connection, study, chooser_of(study), token=token, device=device
                    )[0]
                )
        return engine, asked

    yield begin
    for engine in engines:
        engine.dispose()


def sent(number, question, revision, answer):
    return _Submitted(str(UUID(int=number)), question, revision, answer)


def play(engine, study, script):
    """Send one answer after the other; return what each was told, and what is stored."""
    told = []
    for answer in script:
        with engine.begin() as connection:
            told.append(store(connection, study, chooser_of(study), DEVICE, (answer,)))
    with engine.connect() as connection:
        rows = connection.execute(select(ANSWERS)).all()
    return told, rows, told[-1]["spent"]


@pytest.mark.deep
@pytest.mark.parametrize("changes", ["refused", "paid"])
@pytest.mark.parametrize("cap", [1, 2, 3])
def test_no_order_of_answers_stores_two_or_spends_more_than_the_cap(begun, tmp_path, changes, cap):
    """Every script of up to four answers out of two questions and three revisions."""
    study = make_study(tmp_path, cap=cap, changes=changes)
    engine, (asked,) = begun(replace(study, questions=study.questions))
    kinds = list(itertools.product(asked, (1, 2, 3)))
    for length in (1, 2, 3, 4):
        for script in itertools.product(kinds, repeat=length):
            with engine.begin() as connection:
                connection.execute(ANSWERS.delete())
            answers = [sent(i, *kind, answer=i % 2) for i, kind in enumerate(script)]
            told, rows, spent = play(engine, study, answers)
            coins = sum(row.revision for row in rows)
            assert spent == coins <= cap, script
            assert len({row.question for row in rows}) == len(rows)
            if changes == "refused":
                assert all(row.revision == 1 for row in rows)
            for row in rows:
                kept = [one for one in answers if str(one.id) == row.id]
                assert [(one.answer, one.question) for one in kept] == [(row.answer, row.question)]
            acknowledged = {name for reply in told for name in reply["stored"]}
            latest = {row.question: row.revision for row in rows}
            for one in answers:
                if one.id in acknowledged:
                    assert latest[one.question] >= one.revision
        if length == 3 and cap != 2:
            break  # four answers tell nothing new of these


def test_nobody_is_asked_or_may_answer_more_than_the_cap(begun, tmp_path):
    study = make_study(tmp_path, questions=9, cap=4)
    engine, (asked,) = begun(study)
    assert len(asked) == len(set(asked)) == 4
    others = {one.id for one in study.questions} - set(asked)
    told, rows, spent = play(engine, study, [sent(1, others.pop(), 1, 0)])
    assert told[0]["refused"][0]["code"] == "unknown-question"
    assert (rows, spent) == ([], 0)


def test_an_answer_is_acknowledged_again_and_stored_once(begun, tmp_path):
    study = make_study(tmp_path)
    engine, (asked,) = begun(study)
    one = sent(1, asked[0], 1, 1)
    told, rows, spent = play(engine, study, [one, one, one])
    assert [reply["stored"] for reply in told] == [[one.id]] * 3
    assert (len(rows), spent) == (1, 1)
    other = one._replace(answer=0)
    told, rows, spent = play(engine, study, [other])
    assert told[0]["refused"][0]["code"] == "id-reused"
    assert (rows[0].answer, spent) == (1, 1)


def test_what_the_page_is_told_does_not_depend_on_a_bit(begun, tmp_path):
    """The same requests with other bits get the same replies: nothing comes back of an answer."""
    study = make_study(tmp_path, cap=3, changes="paid")
    engine, (asked,) = begun(study)
    kinds = [(asked[0], 1), (asked[1], 1), (asked[0], 2), (asked[0], 2), (asked[1], 3)]
    replies = []
    for bits in itertools.product((0, 1), repeat=len(kinds)):
        with engine.begin() as connection:
            connection.execute(ANSWERS.delete())
        script = [
            sent(i, *kind, bit) for i, (kind, bit) in enumerate(zip(kinds, bits, strict=True))
        ]
        replies.append(json.dumps(play(engine, study, script)[0]))
    assert len(set(replies)) == 1


def test_who_is_asked_what_does_not_depend_on_any_answer(begun, tmp_path, monkeypatch):
    """With the same words the second person is asked the same, whatever the first one answered."""
    asked = set()
    for bits in itertools.product((0, 1), repeat=2):
        rng = np.random.default_rng(7)
        words = lambda n, rng=rng: rng.integers(0, 2**64, size=n, dtype=np.uint64)  # noqa: E731
        monkeypatch.setattr(_random.SystemEntropy, "words", lambda _, n, words=words: words(n))
        folder = tmp_path / f"{bits[0]}{bits[1]}"
        folder.mkdir()
        study = make_study(folder, questions=6, cap=2)
        engine, (first,) = begun(study)
        play(engine, study, [sent(i, name, 1, bits[i]) for i, name in enumerate(first)])
        (token,) = invite(engine, study, count=1, days=1)
        with engine.begin() as connection:
            second = open_invitation(
                connection, study, chooser_of(study), token=token, device="e" * 43
            ).questions
        assert not set(first) & set(second)  # those that fewest people were asked
        asked.add(tuple(second))
    assert len(asked) == 1


def test_everybody_is_asked_in_an_order_of_their_own_and_questions_are_shared_evenly(
    begun, tmp_path
):
    study = make_study(tmp_path, questions=6, cap=4)
    devices = tuple(chr(ord("A") + number) * 43 for number in range(24))
    engine, asked = begun(study, devices=devices)
    assert len({tuple(one) for one in asked}) > 20
    with engine.connect() as connection:
        counts = connection.execute(select(QUESTIONS.c.asked)).scalars().all()
    assert set(counts) == {16}


@pytest.mark.parametrize("unit", ["person", "label"])
def test_a_file_of_answers_does_not_tell_in_which_order_they_came(begun, tmp_path, unit):
    """Whoever answers first, and whatever comes first: the same bytes."""
    files = set()
    for number, order in enumerate(([0, 1, 2], [2, 0, 1], [1, 2, 0])):
        folder = tmp_path / str(number)
        folder.mkdir()
        study = make_study(folder, questions=3, cap=3)
        devices = ("x" * 43, "y" * 43)
        engine, _ = begun(study, devices=devices)
        with engine.begin() as connection:
            for row in connection.execute(select(PERSONS)).all():
                name = "0" * 32 if row.device == devices_digest(study, devices[0]) else "1" * 32
                same = PERSONS.c.id == row.id
                connection.execute(PERSONS.update().where(same).values(id=name))
        for index in order:
            for person in ("01", "10")[number % 2]:
                row = {
                    "person": person * 32, "question": study.questions[index].id, "revision": 1,
                    "id": str(UUID(int=index)), "answer": index % 2,
                }  # fmt: skip
                with engine.begin() as connection:
                    connection.execute(ANSWERS.insert().values(row))
        made = export_answers(engine, study, folder / "a.jsonl", unit=unit)
        (manifest,) = made.values()
        files.add((folder / "a.jsonl").read_bytes())
        pairs = read_pairs(folder / "a.jsonl")
        assert pairs.guarantee == manifest.guarantee == study.guarantee(unit)
        assert pairs.label_epsilon == study.coin.realized_epsilon
    assert len(files) == 1


def devices_digest(study, device):
    from sordino.collection.answers import digest_of_secret

    return digest_of_secret(study, "device", device)


def test_after_forgetting_nothing_leads_from_an_invitation_to_an_answer(begun, tmp_path):
    study = make_study(tmp_path)
    engine, (asked,) = begun(study)
    play(engine, study, [sent(1, asked[0], 1, 1)])
    assert forget(engine) == 1
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM sordino_invitations").scalar() == 0
        assert connection.execute(select(PERSONS.c.device)).scalars().all() == [None]
        assert len(connection.execute(select(ANSWERS)).all()) == 1
    with engine.begin() as connection, pytest.raises(Refusal, match="not opened"):
        store(connection, study, chooser_of(study), DEVICE, (sent(2, asked[1], 1, 1),))
