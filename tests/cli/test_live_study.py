"""A study that chooses its questions, from its database to what is learned at any moment."""

import json

import numpy as np
import pytest

pytest.importorskip("sqlalchemy")
from sqlalchemy import insert

from sordino._random import entropy
from sordino.collection.database import ANSWERS, PERSONS, frozen, open_database
from sordino.collection.study import new_study, read_study

NAMES = ("brief", "kind", "rude")


@pytest.fixture
def study(folder, tmp_path):
    """Returns a maker of studies on three named answers to each prompt, with answers of people."""

    def make(choose):
        texts = {"brief": "Yes.", "kind": "Yes, of course:\n- gladly\n- at once", "rude": "no!!"}
        rows = [
            {
                "prompt": f"Number {n}, please?",
                "candidates": [f"{n} {texts[name]}" for name in NAMES],
                "names": list(NAMES),
                "ask": "pair",
            }
            for n in range(20)
        ]
        lines, file = tmp_path / "questions.jsonl", tmp_path / "study.toml"
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
        new_study(file, title="T", questions=lines, epsilon=2.0, cap=6)
        file.write_text(file.read_text().replace('"fewest"', f'"{choose}"', 1))
        answer(file, 0, 60)
        return file

    return make


def answer(file, first, last):
    """Store answers of some people, who like kindness, as the page would have sent them."""
    found = read_study(file)
    engine = frozen(open_database(found.database_url), found, create=True)
    rng, coins, people, rows = np.random.default_rng(first), entropy(first), [], []
    for person in range(first, last):
        asked = [found.questions[at] for at in rng.permutation(len(found.questions))[:6]]
        better = [one.names[0] == "kind" or one.names[1] == "rude" for one in asked]
        better = np.where(rng.random(6) < 0.7, better, rng.random(6) < 0.5)
        bits = found.coin.release(better.astype(int), entropy=coins)
        name = f"{person:032x}"
        ids = json.dumps([one.id for one in asked])
        people.append({"id": name, "device": f"{person:064x}", "questions": ids})
        rows += [
            {"person": name, "question": one.id, "revision": 1, "id": "", "answer": int(bit)}
            for one, bit in zip(asked, bits, strict=True)
        ]
    with engine.begin() as connection:
        connection.execute(insert(PERSONS), people)
        connection.execute(insert(ANSWERS), rows)
    engine.dispose()


def test_a_policy_is_learned_from_a_study_while_people_answer(folder, study):
    file = study("optimistic")
    told = folder.run("online", file, "--out", "run", "--json").value
    assert told["online"]["rounds"] == told["online"]["asked"] == 360
    assert told["guarantee"]["epsilon"] == pytest.approx(12, rel=1e-6)
    assert (told["guarantee"]["unit"], told["guarantee"]["trust"]) == ("person", "local")
    assert "adaptive-questions" in told["caveats"]
    answer(file, 60, 80)
    again = folder.run("online", file, "--out", "run", "--force", "--json").value
    assert again["online"]["rounds"] == 480
    assert again["online"]["radius"] != told["online"]["radius"]
    refused = folder.run("online", file, "--out", "x", "--rounds", "7", "--json")
    assert "a study has asked already" in refused.err


def test_a_board_of_a_study_is_published_again_for_nothing(folder, study):
    file = study("uncertain")
    first = folder.run("rank", file, "--out", "board", "--json").value
    best = (folder / "board/leaderboard.csv").read_text().splitlines()[1]
    assert best.split(",")[3] == "kind"
    answer(file, 60, 90)
    again = folder.run("rank", file, "--out", "board", "--force", "--json").value
    assert again["guarantee"]["epsilon"] == first["guarantee"]["epsilon"]
    assert again != first


def test_intervals_for_fixed_questions_are_refused_where_answers_chose_them(folder, study):
    file = study("optimistic")
    refused = folder.run("rank", file, "--out", "board", "--json")
    assert "depends on earlier votes" in refused.err
    collected = file.with_name("study.answers.jsonl")
    assert collected.exists()
    learned = folder.run("align", collected, "--out", "run", "--json").value
    assert "adaptive-questions" in learned["caveats"]
    reward = json.loads((folder / "run/reward.json").read_text())
    assert reward["ellipsoid"] is None
    assert reward["standard_errors"] is None
    terms = ("--confidence", "0.9", "--out", "x", "--json")
    refused = folder.run("align", collected, *terms)
    assert "no confidence set" in refused.err
