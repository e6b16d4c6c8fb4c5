"""``sordino estimate`` as a user meets it: a table, one JSON object, a picture, refusals."""

import pytest

import sordino

from .conftest import refused

ASK = ["estimate", "--n", "20000", "--dimension", "8", "--epsilon", "1"]


def test_a_table_in_plain_words_that_touches_nothing(folder):
    said = folder.run(*ASK, "--target", "0.64")
    assert (said.code, said.err) == (0, "")
    text = " ".join(said.out.split())
    assert "the true reward predicts 65.0% of judgments" in text
    assert "needs 1,976 labels with noise on labels" in text
    assert "at most 73.2%" in text
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


def test_a_picture_is_written_once_and_only_where_it_can_be(folder):
    said = folder.run(*ASK, "--out", "plot.svg")
    assert (said.code, folder.names()) == (0, {"plot.svg"}), said.err
    assert "plot.svg" in said.out
    refused(folder, [*ASK, "--out", "plot.svg"], 2, "exists")
    forced = folder.run(*ASK, "--out", "plot.svg", "--force", "--json")
    assert (forced.code, forced.value["n"]) == (0, 20_000)
    refused(folder, [*ASK, "--out", "missing/plot.svg"], 7, "cannot be written")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (["--n", "0"], "n must"),
        (["--out", "plot.png"], "end in .svg"),
    ],
)
def test_a_question_that_cannot_be_answered(folder, change, word):
    refused(folder, [*ASK, *change], 2, word)
