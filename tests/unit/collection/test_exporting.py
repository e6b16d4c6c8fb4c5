"""Answers out of the database: order, manifest, what is refused, and who can read them."""

import io
import itertools
import json
import zipfile
from functools import partial

import numpy as np
import pytest

pytest.importorskip("sqlalchemy")
from sqlalchemy import insert, update

from sordino._random import entropy
from sordino.auditing.releases import leaks
from sordino.auditing.releases.recipes import coin_recipes
from sordino.auditing.releases.seed_attack import attack_coins
from sordino.collection.answers import export_answers, export_zip
from sordino.collection.database import ANSWERS, PERSONS, frozen, open_database
from sordino.collection.study import new_study
from sordino.errors import DataError, UsageError
from sordino.preferences.pairs import read_manifest, read_pairs


def person_id(index):
    return f"{index * 2654435761 % 2**32:08x}" + "0" * 24


def make_study(folder, *, questions=6, epsilon=1.0, cap=4, **more):
    rows = [{"prompt": f"p {n}", "first": f"a {n} ü", "second": f"b {n}"} for n in range(questions)]
    (folder / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return new_study(
        folder / "s.toml",
        title="T",
        questions=folder / "q.jsonl",
        epsilon=epsilon,
        cap=cap,
        **more,
    )


def fill(engine, study, persons, *, most=None):
    """Store answers of so many people, each to a turn of the questions, straight in the tables."""
    ids = [question.id for question in study.questions]
    most = study.most_questions if most is None else most
    labels = np.arange(persons * most) % 3 % 2
    answers = iter(study.coin.release(labels, entropy=entropy(None)).tolist())
    rows, people = [], []
    for index in range(persons):
        asked = [ids[(index + turn) % len(ids)] for turn in range(most)]
        people.append({"id": person_id(index), "device": None, "questions": json.dumps(asked)})
        rows += [
            {
                "person": person_id(index),
                "question": name,
                "revision": 1,
                "id": f"{index:08x}-0000-4000-8000-{place:012x}",
                "answer": next(answers),
            }
            for place, name in enumerate(asked)
        ]
    with engine.begin() as connection:
        connection.execute(insert(PERSONS), people)
        connection.execute(insert(ANSWERS), rows)
    return rows


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path)


@pytest.fixture
def begun(engine, study):
    """The database of a study that has begun, of each kind."""
    return frozen(engine, study, create=True)


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_rows_stand_by_question_and_then_by_person(tmp_path, begun, study):
    stored = fill(begun, study, 9)
    export_answers(begun, study, tmp_path / "a.jsonl", unit="person")
    rows = lines(tmp_path / "a.jsonl")
    assert all(list(row) == ["prompt", "first", "second", "answer", "person"] for row in rows)
    order = {question.prompt: place for place, question in enumerate(study.questions)}
    places = [(order[row["prompt"]], row["person"]) for row in rows]
    assert places == sorted(places)
    wanted = {(row["person"], row["question"]): row["answer"] for row in stored}
    names = {question.prompt: question.id for question in study.questions}
    found = {(row["person"], names[row["prompt"]]): row["answer"] for row in rows}
    assert found == wanted
    by_prompt = {question.prompt: question for question in study.questions}
    for row in rows:  # canonical order, so that 1 means the same everywhere
        asked = by_prompt[row["prompt"]]
        assert (row["first"], row["second"]) == asked.answers


def test_the_order_of_arrival_shows_nowhere(tmp_path, begun, study):
    """The same answers, stored in another order, are the same bytes."""
    rows = fill(begun, study, 9)
    export_answers(begun, study, tmp_path / "a.jsonl", unit="person")
    with begun.begin() as connection:
        connection.execute(ANSWERS.delete())
        connection.execute(insert(ANSWERS), rows[::-1])
    export_answers(begun, study, tmp_path / "b.jsonl", unit="person")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("unit", "epsilon", "caveat"), [("person", 4, "labels-only"), ("label", 1, "person-total")]
)
def test_the_manifest_says_what_was_promised(tmp_path, begun, study, unit, epsilon, caveat):
    fill(begun, study, 5)
    (manifest,) = export_answers(begun, study, tmp_path / "a.jsonl", unit=unit).values()
    assert manifest == read_manifest(tmp_path / "a.jsonl")
    assert manifest.epsilon == pytest.approx(epsilon)
    assert manifest.epsilon <= epsilon * (1 + 1e-12)
    assert (manifest.trust, manifest.neighbors) == ("local", "REPLACE_ONE")
    assert manifest.caveats == (caveat,)
    assert manifest.flip_probability == study.coin.flip_probability
    pairs = read_pairs(tmp_path / "a.jsonl")
    assert (len(pairs), len(set(pairs.persons))) == (20, 5)
    assert pairs.guarantee == study.guarantee(unit)
    assert pairs.label_epsilon == pytest.approx(study.coin.realized_epsilon, rel=1e-12)


def test_fewer_answers_than_the_cap_promise_no_more(tmp_path, begun, study):
    """What a person may give counts, not what they gave: otherwise the number would tell."""
    fill(begun, study, 5, most=2)
    (manifest,) = export_answers(begun, study, tmp_path / "a.jsonl", unit="person").values()
    assert manifest.epsilon == pytest.approx(4)
    assert read_pairs(tmp_path / "a.jsonl").guarantee.epsilon == manifest.epsilon


def test_the_archive_holds_the_same_two_files_and_no_time(tmp_path, begun, study):
    fill(begun, study, 5)
    packed = export_zip(begun, study, unit="person")
    assert packed == export_zip(begun, study, unit="person")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.namelist() == ["answers.jsonl", "answers.manifest.json"]
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        archive.extractall(tmp_path / "out")
    export_answers(begun, study, tmp_path / "answers.jsonl", unit="person")
    for name in ("answers.jsonl", "answers.manifest.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_several_queries_make_one_file(tmp_path, begun, study, monkeypatch):
    fill(begun, study, 40)
    export_answers(begun, study, tmp_path / "whole.jsonl", unit="person")
    monkeypatch.setattr("sordino.collection.answers._AT_ONCE", 2)
    export_answers(begun, study, tmp_path / "parts.jsonl", unit="person")
    assert (tmp_path / "parts.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_audit_of_the_file_finds_nothing(tmp_path, begun, study, monkeypatch):
    core = [recipe for recipe in coin_recipes() if recipe.core]
    monkeypatch.setattr(leaks, "attack_coins", partial(attack_coins, recipes=core))
    fill(begun, study, 100)
    export_answers(begun, study, tmp_path / "a.jsonl", unit="person")
    found = leaks.audit_release(tmp_path / "a.jsonl", epsilon=4.0, unit="person", seeds=range(5))
    assert found.refuted_by == ()


# --- refused ---


def test_nothing_to_export_leaves_nothing_behind(tmp_path, begun, study):
    before = set(tmp_path.iterdir())
    with pytest.raises(DataError, match="no answers yet"):
        export_answers(begun, study, tmp_path / "a.jsonl", unit="person")
    with pytest.raises(DataError, match="no answers yet"):
        export_zip(begun, study, unit="person")
    assert set(tmp_path.iterdir()) - before <= {tmp_path / "s.db-wal", tmp_path / "s.db-shm"}


@pytest.mark.parametrize("name", ["a.csv", "a.gz"])
def test_other_names_are_refused(tmp_path, begun, study, name):
    fill(begun, study, 2)
    with pytest.raises(UsageError, match=r"\.jsonl"):
        export_answers(begun, study, tmp_path / name, unit="person")
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("there", ["a.jsonl", "a.manifest.json"])
def test_what_exists_is_kept_unless_forced(tmp_path, begun, study, there):
    fill(begun, study, 2)
    (tmp_path / there).write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        export_answers(begun, study, tmp_path / "a.jsonl", unit="person")
    assert (tmp_path / there).read_text() == "mine"
    export_answers(begun, study, tmp_path / "a.jsonl", unit="person", force=True)
    assert len(read_pairs(tmp_path / "a.jsonl")) == 8


@pytest.mark.parametrize("wrong", ["question", "cap"])
def test_more_than_the_study_takes_is_not_promised(tmp_path, begun, study, wrong):
    fill(begun, study, 3, most=4 if wrong == "question" else 5)
    if wrong == "question":
        gone = ANSWERS.c.question == study.questions[0].id
        with begun.begin() as connection:
            connection.execute(update(ANSWERS).where(gone).values(question="0" * 32))
    with pytest.raises(DataError, match="does not take"):
        export_answers(begun, study, tmp_path / "a.jsonl", unit="person")
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.deep
def test_memory_holds_a_part_of_many_answers(tmp_path):
    """A hundred thousand answers: what Python holds at the peak is a fraction of the file."""
    import tracemalloc

    study = make_study(tmp_path, questions=200, cap=50, accept_weak=True)
    engine = frozen(open_database(study.database_url), study, create=True)
    for start in range(0, 2000, 500):
        several(engine, study, range(start, start + 500))
    tracemalloc.start()
    export_answers(engine, study, tmp_path / "a.jsonl", unit="person")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    with (tmp_path / "a.jsonl").open() as file:
        assert sum(1 for _ in file) == 100_000
    assert peak < 60e6, peak
    engine.dispose()


def several(engine, study, people):
    ids = [question.id for question in study.questions]
    rows = [
        {
            "person": person_id(index),
            "question": ids[(index + turn) % len(ids)],
            "revision": 1,
            "id": f"{index:08x}-0000-4000-8000-{turn:012x}",
            "answer": (index + turn) % 2,
        }
        for index, turn in itertools.product(people, range(study.cap))
    ]
    with engine.begin() as connection:
        connection.execute(insert(ANSWERS), rows)


def test_whose_answers_met_stands_beside_answers_and_not_on_the_page(tmp_path, engine):
    rows = [{"prompt": f"p {n}", "first": f"a {n}", "second": f"b {n}", "first_name": "x",
             "second_name": "y"} for n in range(6)]  # fmt: skip
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    study = new_study(
        tmp_path / "s.toml", title="T", questions=tmp_path / "q.jsonl", epsilon=1.0, cap=4
    )
    assert study.questions[0].to_dict().keys() == {"id", "ask", "prompt", "answers"}
    fill(frozen(engine, study, create=True), study, 3)
    export_answers(engine, study, tmp_path / "out.jsonl", unit="person")
    found = read_pairs(tmp_path / "out.jsonl")
    for first, names in zip(found.first, found.names, strict=True):
        assert names[:2] == (("x", "y") if first.startswith("a") else ("y", "x"))
