"""Every kind of question from a database of randomized answers to what is learned of it."""

import io
import json
import zipfile

import pytest

pytest.importorskip("sqlalchemy")
from sqlalchemy import insert

import sordino
from sordino._files import sha256_of
from sordino._random import entropy
from sordino.collection.answers import export_zip
from sordino.collection.database import ANSWERS, PERSONS, open_database
from sordino.collection.study import read_study
from sordino.preferences.records import Levels

MODELS = ["ant", "bee", "cow", "doe"]
KINDS = ("pair", "thumb", "rating", "choice")
PERSONS_ASKED = 90


def questions():
    for n in range(10):
        one, two = MODELS[n % 4], MODELS[(n + 1 + n // 4) % 4]
        yield {"prompt": f"p {n}", "first": f"kind {one} {n}", "second": f"rude {two} {n}"}
        yield {
            "prompt": f"t {n}",
            "completion": f"{'kind' if n % 2 else 'rude'} {n}",
            "ask": "thumb",
        }
        yield {"prompt": f"r {n}", "completion": f"{'kind' if n % 2 else 'rude'} {n}"}
        names = [MODELS[(n + turn) % 4] for turn in range(3)]
        yield {
            "prompt": f"c {n}",
            "candidates": [f"{name} says {n}" for name in names],
            "names": names,
            "ask": ("choice", "ranking")[n % 2],
        }


def truth(question):
    """What everybody really thinks, as the page would code it before the coin."""
    kind = ["kind" in str(text) for text in question.answers]
    if question.ask in {"choice", "ranking"}:
        return min(range(3), key=lambda at: question.names[at])  # ant, else bee
    if question.ask == "rating":
        return Levels.of("1..5").code(5 if kind[0] else 2)
    return int(kind[0])


def give(folder):
    found = read_study(folder / "study.toml")
    engine, source = open_database(found.database_url), entropy(None)
    people, rows = [], []
    for person in range(PERSONS_ASKED):
        own = [found.questions[(person + 7 * turn) % 40] for turn in range(found.cap)]
        name, ids = f"{person * 2654435761 % 2**32:032x}", json.dumps([one.id for one in own])
        people.append({"id": name, "device": f"{person:064x}", "questions": ids, "spent": 20})
        for turn, one in enumerate(own):
            drawn = found.mechanisms[one.ask in {"choice", "ranking"}]
            answer = int(drawn.release([truth(one)], entropy=source)[0])
            key = f"{person:08x}-0000-4000-8000-{turn:012x}"
            rows.append({"person": name, "question": one.id, "revision": 1, "id": key,
                         "answer": answer})  # fmt: skip
    with engine.begin() as connection:
        connection.execute(insert(PERSONS), people)
        connection.execute(insert(ANSWERS), rows)
    engine.dispose()


@pytest.fixture
def study(folder):
    folder.write("questions.jsonl", list(questions()))
    (folder / "study.toml").write_text(
        'id = "0123456789abcdef"\ntitle = "T"\nquestions = "questions.jsonl"\nepsilon = 1.0\n'
        'cap = 20\ndatabase = "study.db"\nlevels = "1..5"\n'
    )
    done = folder.run("collect", "invite", "study.toml", "--count", "2")
    assert done.code == 0, done.err
    give(folder)
    return folder


@pytest.mark.deep
def test_each_kind_goes_from_the_database_to_what_it_teaches(study):
    told = study.run("collect", "status", "study.toml", "--json").value
    assert told["answers"] == 1800
    export = ["collect", "export", "study.toml", "--out", "a.jsonl", "--forget"]
    done = study.run(*export, "--json").value
    assert list(done["files"]) == [f"a.{kind}.jsonl" for kind in KINDS]
    assert {note["release_id"] for note in done["files"].values()} == {"0123456789abcdef"}
    assert {note["epsilon"] for note in done["files"].values()} == {20.0}
    assert done["files"]["a.choice.jsonl"]["categories"] == 3
    for kind in KINDS:
        said = ["--dimension", "16", "--ledger", "spend.db", "--out", f"run-{kind}"]
        plan = study.run("align", f"a.{kind}.jsonl", *said, "--dry-run", "--json")
        assert plan.code == 0, plan.err
        assert plan.value["spend"] == 0
        learned = study.run("align", f"a.{kind}.jsonl", *said)
        assert learned.code == 0, learned.err
        result = json.loads((study / f"run-{kind}/result.json").read_text())
        assert (result["guarantee"]["trust"], result["guarantee"]["unit"]) == ("local", "person")
        assert result["guarantee"]["epsilon"] == 20.0
        assert study.run("audit", "run", f"run-{kind}", "--ledger", "spend.db").code == 0
    mechanism = result["mechanism"]
    assert (mechanism["name"], mechanism["categories"]) == ("randomized-choice", 3)
    assert mechanism["epsilon_per_label"] == pytest.approx(1.0)
    ledger = sordino.Ledger.open(study / "spend.db", data="preferences")
    assert ledger.total().epsilon == 20.0  # of a person, in all four files together
    accuracy = json.loads((study / "run-pair/result.json").read_text())["reward"]["accuracy"]
    assert accuracy > 0.5


def test_choices_of_named_candidates_make_a_board(study):
    study.run("collect", "export", "study.toml", "--out", "a.jsonl")
    done = study.run("rank", "a.choice.jsonl", "--out", "board")
    assert done.code == 0, done.err
    result = json.loads((study / "board/result.json").read_text())
    assert result["guarantee"]["epsilon"] == 20.0
    assert result["mechanism"]["categories"] == 3
    best = [row["name"] for row in result["leaderboard"]["items"]]
    assert (sorted(best), best[0]) == (MODELS, "ant")
    said = study.run("audit", "run", "board")
    assert said.code == 0, said.out
    for lie in ({"categories": 2}, {"flip_probability": 0.01}):
        path = study / "board/result.json"
        path.write_text(json.dumps(result | {"mechanism": result["mechanism"] | lie}))
        assert study.run("audit", "run", "board").code == 5
    again = study.run("rank", "a.choice.jsonl", "--out", "twice", "--update", "board")
    assert "would count twice" in again.err
    for words in (["--noise", "estimate"], ["--ties", "davidson"], ["--style", "all"]):
        assert study.run("rank", "a.choice.jsonl", "--out", "no", *words).code == 2
    nobody = study.run(
        "align", "a.choice.jsonl", "--noise", "estimate", "--epsilon", "1", "--out", "no"
    )
    assert nobody.code == 2
    assert "randomized already" in nobody.err


def test_a_file_of_choices_says_what_it_is(study):
    study.run("collect", "export", "study.toml", "--out", "a.jsonl")
    told = study.run("inspect", "a.choice.jsonl", "--json").value
    assert (told["kind"], told["problem"]) == ("randomized choices", None)
    assert told["counts"]["candidates of each"]["count"] == 3
    assert told["next"] == "sordino rank a.choice.jsonl --out board"
    assert study.run("inspect", "a.choice.jsonl").code == 0
    for command in (["privatize"], ["fit"]):
        words = [*command, "a.choice.jsonl", "--out", "x.jsonl"]
        wrong = study.run(*words, *(["--epsilon", "1"] if command == ["privatize"] else []))
        assert wrong.code in {2, 4}, wrong.err
        assert "randomized choices" in wrong.err


def test_an_audit_refutes_a_claim_that_the_die_does_not_keep_or_cannot_tell(study):
    study.run("collect", "export", "study.toml", "--out", "a.jsonl")
    audit = ["audit", "release", "a.choice.jsonl", "--unit", "person", "--epsilon"]
    assert study.run(*audit, "20").code == 6
    assert "--raw" in study.run(*audit, "20").out
    refuted = study.run(*audit, "3", "--json")
    assert (refuted.code, refuted.value["refuted_by"]) == (5, ["claim"])
    found = read_study(study / "study.toml")
    rows = [json.loads(line) for line in (study / "a.choice.jsonl").read_text().splitlines()]
    best = {one.prompt: truth(one) for one in found.questions}
    raw = [
        {name: row[name] for name in ("prompt", "candidates", "person")}
        | {"ranking": [best[row["prompt"]]]}
        for row in rows
    ]
    study.write("raw.jsonl", raw)
    words = ["--raw", "raw.jsonl", "--unit", "label", "--json"]
    honest = study.run("audit", "release", "a.choice.jsonl", "--epsilon", "1.1", *words)
    assert honest.code == 6, honest.out
    assert 0 < honest.value["lower_bound"] < 1.1
    told = [{**row, "answer": best[row["prompt"]]} for row in rows]  # nothing was replaced
    study.write("a.choice.jsonl", told)
    note = json.loads((study / "a.choice.manifest.json").read_text())
    note["sha256"] = sha256_of(study / "a.choice.jsonl")
    (study / "a.choice.manifest.json").write_text(json.dumps(note))
    caught = study.run("audit", "release", "a.choice.jsonl", "--epsilon", "1.1", *words)
    assert (caught.code, caught.value["refuted_by"]) == (5, ["flip-rate"])
    study.write("a.choice.jsonl", [*rows[1:], {**rows[0], "label": 1}])
    assert study.run("audit", "release", "a.choice.jsonl", "--epsilon", "1.1").code == 4


def test_one_kind_keeps_its_name_and_the_archive_holds_the_same_files(study):
    study.run("collect", "export", "study.toml", "--out", "answers.jsonl")
    found = read_study(study / "study.toml")
    engine = open_database(found.database_url)
    with zipfile.ZipFile(io.BytesIO(export_zip(engine, found, unit="person"))) as archive:
        names = archive.namelist()
        assert names == [
            name
            for kind in KINDS
            for name in (f"answers.{kind}.jsonl", f"answers.{kind}.manifest.json")
        ]
        for name in names:
            assert archive.read(name) == (study / name).read_bytes()
    engine.dispose()
