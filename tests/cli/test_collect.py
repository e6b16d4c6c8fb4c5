"""A study file from outside: what it promises, and what no study can be."""

import pytest

pytest.importorskip("sqlalchemy")

from sordino.collection.study import read_study

from .collecting import INIT, INVITE, QUESTIONS, changed, edit
from .conftest import refused


@pytest.fixture
def study(folder):
    """A folder with a study that nobody was invited to."""
    folder.write("questions.jsonl", QUESTIONS)
    said = folder.run(*INIT, "--questions", "questions.jsonl")
    assert said.code == 0, said.err
    return folder


@pytest.fixture
def begun(study):
    """A folder with a study that has begun."""
    said = study.run(*INVITE)
    assert said.code == 0, said.err
    return study


# --- init ---


def test_init_says_what_it_promises(folder):
    said = folder.run(*INIT, "--title", "Kitchen")
    assert (said.code, said.err) == (0, "")
    words = " ".join(said.out.split())
    for part in (
        "epsilon=1;", "2.72 times", "73.2 %", "26.8%", "about 1 in 3.72", "at most 5 answers",
        "epsilon=5 together", "149 times", "12, public", "collect invite study.toml",
    ):  # fmt: skip
        assert part in words, part
    assert folder.names() == {"study.toml", "questions.jsonl"}
    found = read_study(folder / "study.toml")
    assert (found.title, found.cap, len(found.questions)) == ("Kitchen", 5, 12)


@pytest.mark.parametrize(
    ("epsilon", "flipped", "odds", "note"),
    [("0.7", "33.1%", "1 in 3.02)", "about 33%"), ("2", "11.9%", "1 in 8.39)", "about 11%"),
     ("5", "0.669%", "1 in 150)", "about 0.66%")],
)  # fmt: skip
def test_no_number_is_rounded_in_favor_of_the_promise(folder, epsilon, flipped, odds, note):
    words = " ".join(folder.run(*INIT, "--epsilon", epsilon).out.split())
    assert flipped in words
    assert odds in words
    assert note in (folder / "study.toml").read_text()


def test_init_as_json(folder):
    value = folder.run(*INIT, "--json").value
    assert value["person_epsilon"] == pytest.approx(5)
    assert value["flip_probability"] == pytest.approx(0.2689, abs=1e-4)
    assert (value["trust"], value["examples"], value["questions"]) == ("local", True, 12)


def test_a_cap_that_is_never_reached_is_named(folder):
    said = folder.run("collect", "init", "study.toml")
    assert "the promise counts 12" in " ".join(said.out.split())
    assert "too much to protect a person's taste as a whole" in " ".join(said.out.split())


def test_questions_that_are_there_are_used_and_kept(folder):
    folder.write("questions.jsonl", QUESTIONS[:7])
    before = (folder / "questions.jsonl").read_bytes()
    said = folder.run(*INIT, "--json")
    assert (said.value["questions"], said.value["examples"]) == (7, False)
    assert any("was there already" in note for note in said.value["notes"])
    assert (folder / "questions.jsonl").read_bytes() == before


def test_a_study_is_not_overwritten(study):
    refused(study, INIT, 2, "exists already")
    assert study.run(*INIT, "--force").code == 0


def test_a_study_with_answers_is_not_begun_anew(begun):
    refused(begun, [*INIT, "--force"], 2, "study.db", "earlier study")


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--epsilon", "0"], 2, "epsilon"),
        (["--epsilon", "nan"], 2, "epsilon"),
        (["--title", " "], 2, "title"),
        (["--title", "x" * 301], 2, "title"),
        (["--questions", "none.jsonl"], 7, "none.jsonl"),
    ],
)
def test_what_no_study_can_have_leaves_nothing(folder, words, code, part):
    said = folder.run(*INIT, *words)
    assert said.code == code, said.err
    if code == 2:
        assert part in said.err
    assert folder.names() == set()


def test_a_study_has_the_name_of_one(folder):
    refused(folder, ["collect", "init", "study"], 2, ".toml")


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([changed(QUESTIONS[0], label=1)], "'label'"),
        ([{"prompt": "p", "chosen": "a", "rejected": "b"}], "'chosen'"),
        ([changed(QUESTIONS[0], answer=1)], "'answer'"),
        ([changed(QUESTIONS[0], person="ann")], "'person'"),
        ([changed(QUESTIONS[0], second=QUESTIONS[0]["first"])], "same"),
        ([QUESTIONS[0], QUESTIONS[1], QUESTIONS[0]], "line 1"),
        (
            [QUESTIONS[0], {"prompt": QUESTIONS[0]["prompt"], "first": QUESTIONS[0]["second"],
                            "second": QUESTIONS[0]["first"]}],
            "line 1",
        ),
        ([changed(QUESTIONS[0], second=None)], "'second'"),
        (["{"], "JSON"),
        ([], "empty"),
    ],
)  # fmt: skip
def test_questions_that_cannot_be_asked(folder, rows, part):
    folder.write("questions.jsonl", rows)
    refused(folder, [*INIT, "--questions", "questions.jsonl"], 4, part)


# --- the study file ---


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("cap = 5", "cap = 5\nseed = 3", "a setting that no study has"),
        ("cap = 5", "", "'cap'"),
        ("cap = 5", "cap = 0", "cap"),
        ("cap = 5", 'cap = "five"', "cap"),
        ("epsilon = 1.0", "epsilon = -1", "epsilon"),
        ('changes = "refused"', 'changes = "free"', "changes"),
        ("ties = true", "ties = 3", "ties"),
        ("cap = 5", "cap 5", "TOML"),
        ('languages = ["en", "de"]', 'languages = "en"', "languages"),
    ],
)
def test_a_study_file_that_cannot_be_used(study, old, new, part):
    edit(study, old, new)
    refused(study, INVITE, 4, part)


def test_a_study_that_is_not_there(folder):
    refused(folder, INVITE, 7, "study.toml")
