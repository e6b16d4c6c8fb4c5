"""What tests of studies share: questions, commands, and answers as a page would send them."""

import json

from sqlalchemy import insert

from sordino._random import entropy
from sordino.collection.database import ANSWERS, PERSONS, open_database
from sordino.collection.study import read_study

from .conftest import CANARY

INIT = ["collect", "init", "study.toml", "--cap", "5"]
INVITE = ["collect", "invite", "study.toml", "--count", "2"]
EXPORT = ["collect", "export", "study.toml", "--out", "answers.jsonl"]
QUESTIONS = [
    {"prompt": f"{CANARY} p {n}", "first": f"{CANARY} kind {n}", "second": f"{CANARY} rude {n}"}
    for n in range(40)
]


def changed(row, **values):
    return {name: value for name, value in (row | values).items() if value is not None}


def give(folder, *, persons):
    found = read_study(folder / "study.toml")
    engine = open_database(found.database_url)
    coins, people, rows = entropy(None), [], []
    for person in range(persons):
        asked = [found.questions[(7 * person + turn) % 40] for turn in range(found.cap)]
        labels = [int("kind" in question.answers[0]) for question in asked]
        ids = json.dumps([question.id for question in asked])
        name = f"{person * 2654435761 % 2**32:032x}"
        people.append({"id": name, "device": f"{person:064x}", "questions": ids})
        rows += [
            {
                "person": name,
                "question": question.id,
                "revision": 1,
                "id": f"{person:08x}-0000-4000-8000-{turn:012x}",
                "answer": int(answer),
            }
            for turn, (question, answer) in enumerate(
                zip(asked, found.coin.release(labels, entropy=coins), strict=True)
            )
        ]
    with engine.begin() as connection:
        connection.execute(insert(PERSONS), people)
        connection.execute(insert(ANSWERS), rows)
    engine.dispose()


def edit(folder, old, new):
    text = (folder / "study.toml").read_text()
    assert old in text
    (folder / "study.toml").write_text(text.replace(old, new))
