"""``sordino estimate`` as a user meets it: a table, one JSON object, a picture, refusals."""

import json

import pytest

import sordino

ASK = ["estimate", "--n", "20000", "--dimension", "8", "--epsilon", "1"]


def test_a_table_in_plain_words_that_touches_nothing(folder):
    said = folder.run(*ASK, "--target", "0.64", "--labels-per-person", "5")
    assert (said.code, said.err) == (0, "")
    text = " ".join(said.out.split())
    assert "the true reward predicts 65.0% of judgments" in text
    assert "needs 1,976 labels with noise on labels" in text
    assert "at most 73.2%" in text
    assert "5 labels is protected with epsilon 5" in text
    assert "719 labels with noise on the estimate, records hidden" in text
    assert "noise on the estimate, labels hidden is best here" in text
    assert folder.names() == set()


def test_one_json_object_and_nothing_else(folder):
    said = folder.run(*ASK, "--target", "0.64", "--accuracy", "0.7", "--delta", "1e-5", "--json")
    assert (said.code, said.err) == (0, "")
    found = sordino.estimate(
        20_000, dimension=8, epsilon=1.0, delta=1e-5, accuracy=0.7, target=0.64
    )
    assert said.value == found.to_dict()
    assert folder.names() == set()


def test_three_ways_are_compared_in_json(folder):
    value = folder.run(*ASK, "--json").value
    assert list(value["ways"]) == ["labels", "label-estimate", "record-estimate"]
    assert value["ways"]["record-estimate"]["unit"] == "record"
    assert value["left_out"] == {}


def test_without_delta_the_ways_of_a_curator_are_left_out(folder):
    said = folder.run(*ASK, "--delta", "0")
    assert (said.code, said.err) == (0, "")
    assert "left out, needs delta above 0" in " ".join(said.out.split())
    value = folder.run(*ASK, "--delta", "0", "--json").value
    assert list(value["ways"]) == ["labels"]


def test_an_unreachable_target_is_an_answer(folder):
    said = folder.run(*ASK, "--target", "0.7")
    assert said.code == 0
    assert "no number of labels reaches it" in " ".join(said.out.split())
    assert (
        folder.run(*ASK, "--target", "0.7", "--json").value["ways"]["labels"]["labels_needed"]
        is None
    )


@pytest.mark.parametrize("name", ["plot.svg", "plot.png", "plot.pdf"])
def test_a_picture(folder, name):
    said = folder.run(*ASK, "--out", name)
    assert said.code == 0, said.err
    assert folder.names() == {name}
    assert name in said.out
    again = folder.run(*ASK, "--out", name)
    assert (again.code, again.out) == (2, "")
    assert "exists" in again.err
    forced = folder.run(*ASK, "--out", name, "--force", "--json")
    assert forced.code == 0
    assert json.loads(forced.out)["n"] == 20_000


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (["--n", "0"], "n must"),
        (["--n", "-5"], "n must"),
        (["--dimension", "0"], "dimension"),
        (["--epsilon", "0"], "epsilon"),
        (["--epsilon", "-1"], "epsilon"),
        (["--epsilon", "inf"], "epsilon"),
        (["--epsilon", "nan"], "epsilon"),
        (["--delta", "1"], "delta"),
        (["--accuracy", "0.5"], "accuracy"),
        (["--accuracy", "1"], "accuracy"),
        (["--target", "0.5"], "target"),
        (["--target", "1"], "target"),
        (["--labels-per-person", "0"], "labels_per_person"),
        (["--out", "plot.jpg"], ".svg, .png or .pdf"),
        (["--out", "plot"], ".svg, .png or .pdf"),
    ],
)
def test_settings_out_of_range(folder, change, word):
    said = folder.run(*ASK, *change)
    assert (said.code, said.out) == (2, "")
    assert word in said.err
    assert len(said.err.splitlines()) == 1
    assert folder.names() == set()


@pytest.mark.parametrize("missing", ["--n", "--epsilon"])
def test_a_question_needs_its_numbers(folder, missing):
    at = ASK.index(missing)
    said = folder.run(*ASK[:at], *ASK[at + 2 :])
    assert said.code == 2
    assert missing in said.err


def test_a_picture_in_a_missing_folder(folder):
    said = folder.run(*ASK, "--out", "missing/plot.svg")
    assert (said.code, said.out) == (7, "")
    assert "cannot be written" in said.err
