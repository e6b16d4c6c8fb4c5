"""Questions that are chosen while people answer: from counts and randomized answers alone."""

import itertools
import json

import numpy as np
import pytest
from sqlalchemy import select

from sordino.collection.arena import chooser_of
from sordino.collection.database import ANSWERS, PERSONS, QUESTIONS, frozen, open_database
from sordino.collection.study import AHEAD, new_study, read_study
from sordino.errors import DataError

ANSWERED = [
    "yes",
    "a long answer, with many words and a list:\n- one\n- two",
    "I cannot say.",
    "no!",
]


@pytest.fixture
def arena(tmp_path):
    """Returns a maker of studies that may ask all pairs of four answers to each prompt."""

    def make(choose, *, prompts=6, cap=8, answers=ANSWERED, names="ABCD", **changed):
        rows = [
            {"prompt": f"p {n}", "candidates": [f"{n} {text}" for text in answers], "ask": "pair"}
            | ({"names": list(names)} if names else {})
            for n in range(prompts)
        ]
        lines, file = tmp_path / "questions.jsonl", tmp_path / "study.toml"
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
        new_study(file, title="T", questions=lines, epsilon=1.0, cap=cap, force=True)
        text = file.read_text().replace('choose = "fewest"', f'choose = "{choose}"')
        for name, value in changed.items():
            text = text.replace(f"{name} = ", f"{name} = {json.dumps(value)} #", 1)
        file.write_text(text)
        return read_study(file)

    return make


def test_candidates_that_are_asked_in_pairs_are_all_pairs_of_them(arena):
    study = arena("optimistic")
    assert len(study.questions) == 6 * 6
    assert {question.ask for question in study.questions} == {"pair"}
    for question in study.questions:
        for text, name in zip(question.answers, question.names, strict=True):
            assert text.partition(" ")[2] == ANSWERED["ABCD".index(name)]


@pytest.mark.parametrize("choose", ["uncertain", "optimistic"])
def test_a_person_has_a_few_questions_in_hand_and_is_asked_no_more_than_the_cap(
    arena, engine, talk_on, answer, choose
):
    talk = talk_on(engine, arena(choose, cap=8), people=1)
    with talk.client:
        device, hand = talk.open()
        assert len(hand) == AHEAD
        seen, told = list(hand), None
        while hand:
            body = talk.send(device, answer(hand.pop(0))).json()
            told = [question["id"] for question in body["questions"]]
            assert set(hand) <= set(told)  # again, as a reply may be lost
            assert len(told) <= AHEAD
            seen += [name for name in told if name not in seen]
            hand = told
        assert len(seen) == len(set(seen)) == 8
        again = talk.post("/api/open", talk.tokens[0], {"device": device}).json()
    assert [question["id"] for question in again["questions"]] == seen
    with engine.connect() as connection:
        counts = connection.execute(select(QUESTIONS.c.asked)).scalars().all()
    assert sum(counts) == 8


def _database(tmp_path, study, name="one"):
    return frozen(open_database(f"sqlite:///{tmp_path}/{name}.db"), study, create=True)


def test_the_next_question_about_names_is_the_one_that_is_known_least(arena, tmp_path):
    """No pair of names is asked twice before all were asked once, and no answer is read."""
    study = arena("uncertain", cap=12)
    engine = _database(tmp_path, study)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE sordino_answers")
        chosen = chooser_of(study).choose(connection, (), 12)
    pairs = [frozenset(study.by_id[name].names) for name in chosen]
    assert len(set(pairs[:6])) == 6
    assert all(pairs.count(both) == 2 for both in set(pairs))
    prompts = [study.by_id[name].prompt for name in chosen]
    assert max(map(prompts.count, prompts)) <= 6


def _fill(engine, study, prefer, rng, count=400):
    """Answer pairs at random as people would whose taste is known, by the study's own coin."""
    from sordino._random import entropy

    questions = [study.questions[i] for i in rng.integers(0, len(study.questions), count)]
    labels = np.array([int(prefer(*question.answers)) for question in questions])
    coins = study.coin.release(labels, entropy=entropy(7))
    rows = [
        {"person": f"{n:032x}", "question": one.id, "revision": 1, "id": "", "answer": int(bit)}
        for n, (one, bit) in enumerate(zip(questions, coins, strict=True))
    ]
    with engine.begin() as connection:
        connection.execute(ANSWERS.insert(), rows)


def test_what_is_asked_turns_to_what_randomized_answers_like(arena, tmp_path):
    """Of people who like long answers: the long one is in most questions afterwards, not before."""
    study = arena("optimistic", prompts=40, names=None)
    engine, chooser = _database(tmp_path, study), chooser_of(study)

    def with_long():
        with engine.begin() as connection:
            chosen = chooser.choose(connection, (), 120)
        return np.mean([any("list" in text for text in study.by_id[n].answers) for n in chosen])

    before = with_long()
    _fill(engine, study, lambda one, other: len(one) > len(other), np.random.default_rng(3))
    chooser.refresh(engine)
    assert before < 0.65  # half of all pairs have it
    assert with_long() > before + 0.1


def test_the_optimistic_choice_depends_on_stored_answers_and_public_words_alone(
    arena, tmp_path, monkeypatch
):
    """Same randomized answers and words: same questions, whoever gave them and in what order."""
    from sordino import _random

    study, chosen = arena("optimistic"), set()
    bits = [(question.id, at % 2) for at, question in enumerate(study.questions[:9])]
    for number, order in enumerate((bits, bits[::-1])):
        engine = _database(tmp_path, study, str(number))
        rows = [
            {
                "person": f"{number}{at:031x}",
                "question": name,
                "revision": 1,
                "id": "",
                "answer": bit,
            }
            for at, (name, bit) in enumerate(order)
        ]
        with engine.begin() as connection:
            connection.execute(ANSWERS.insert(), rows)
        rng = np.random.default_rng(5)
        words = lambda n, rng=rng: rng.integers(0, 2**64, size=n, dtype=np.uint64)  # noqa: E731
        monkeypatch.setattr(_random.SystemEntropy, "words", lambda _, n, words=words: words(n))
        chooser = chooser_of(study)
        chooser.refresh(engine)
        with engine.begin() as connection:
            chosen.add(tuple(chooser.choose(connection, (), 5)))
    assert len(chosen) == 1


def test_where_two_policies_draw_nothing_new_the_rarest_question_is_asked(arena, tmp_path):
    study = arena("optimistic", prompts=1, cap=6)
    engine = _database(tmp_path, study)
    known = [question.id for question in study.questions[:-1]]
    with engine.begin() as connection:
        assert chooser_of(study).choose(connection, known, 3) == [study.questions[-1].id]


def test_it_learns_again_when_a_share_of_all_answers_is_new(arena, tmp_path):
    study = arena("optimistic", prompts=30)
    engine, chooser = _database(tmp_path, study), chooser_of(study)
    chooser.learned(engine, 0)
    chooser._executor.submit(int).result(30)
    assert chooser.read == 0
    _fill(engine, study, lambda one, other: one > other, np.random.default_rng(1), count=100)
    chooser.learned(engine, 100)
    chooser._executor.submit(int).result(30)
    assert chooser.read == chooser.learner.asked == 100
    for _ in range(3):  # less than 4 % are new
        chooser.learned(engine, 1)
    chooser._executor.submit(int).result(30)
    assert chooser.learner.asked == 100


@pytest.mark.parametrize(
    ("choose", "changed", "said"),
    [
        ("uncertain", {"names": None}, "every question needs first_name"),
        ("newest", {}, "choose must be"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(arena, choose, changed, said):
    with pytest.raises(DataError, match=said):
        arena(choose, **changed)


def test_a_study_that_chooses_by_answers_asks_for_pairs_only(tmp_path):
    (tmp_path / "q.jsonl").write_text(json.dumps({"prompt": "p", "completion": "a"}) + "\n")
    new_study(tmp_path / "s.toml", title="T", questions=tmp_path / "q.jsonl", epsilon=1.0, cap=1)
    file = tmp_path / "s.toml"
    file.write_text(file.read_text().replace('"fewest"', '"optimistic"', 1))
    with pytest.raises(DataError, match="is for pairs"):
        read_study(file)


def test_rows_of_the_person_say_what_was_asked_in_which_order(arena, engine, talk_on, answer):
    talk = talk_on(engine, arena("optimistic"), people=1)
    with talk.client:
        device, hand = talk.open()
        talk.send(device, answer(hand[1]), answer("f" * 32))
    with engine.connect() as connection:
        kept = json.loads(connection.execute(select(PERSONS.c.questions)).scalar_one())
    assert kept[:AHEAD] == hand
    assert len(kept) == AHEAD + 1
    assert len(list(itertools.chain(kept))) == len(set(kept))
