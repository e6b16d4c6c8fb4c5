"""What `fit` says of a reward from answers in many files: what it measures, as for one file."""

import json
import shutil

import numpy as np
import pytest

import sordino
from sordino import cli

from .conftest import CANARY, refused
from .many_files import text_rows

NAMES = {
    f"{metric}{of}"
    for metric in ("accuracy", "negative_log_likelihood", "calibration_slope")
    for of in ("", "_standard_error")
}
FIT = ["fit", "answers", "--out", "reward.json", "--dimension", "32"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Answers in three files, nearly as they were given, made once."""
    where = tmp_path_factory.mktemp("made")
    (where / "texts").mkdir()
    for file in range(3):
        lines = (json.dumps(row) + "\n" for row in text_rows(200, first=200 * file, people=True))
        (where / f"texts/{file}.jsonl").write_text("".join(lines))
    told = ["privatize", where / "texts", "--epsilon", "6", "--out", where / "answers"]
    assert cli.run([str(word) for word in told]) == 0
    return where


@pytest.fixture
def answers(folder, made):
    """A working folder with them in it."""
    shutil.copytree(made, folder.path, dirs_exist_ok=True)
    return folder


def test_a_fit_of_many_files_says_what_it_measures(answers):
    said = answers.run(*FIT, "--json")
    assert (said.code, said.err) == (0, "")
    assert CANARY not in said.out
    found = said.value["reward"]
    assert set(found) == NAMES
    assert all(np.isfinite(value) for value in found.values())
    # only the coins are new each time: of 600 answers one or two flip, and each moves the accuracy
    # by 1/120 at most, so that about ten of those held out would have to: less than one run in 1e10
    assert found["accuracy"] == pytest.approx(0.9, abs=0.1)
    assert 0.01 < found["accuracy_standard_error"] < 0.06
    told = answers.run(*FIT, "--force")
    line = f"{found['accuracy']:.3f} ± {found['accuracy_standard_error']:.3f}"
    assert line in told.out
    assert said.value["files"] == 3


def test_it_is_what_one_file_of_the_same_answers_is_measured_on(answers):
    """One file has five fits, so that the numbers differ: by the errors that are stated."""
    lines = b"".join((answers / f"texts/{file}.jsonl").read_bytes() for file in range(3))
    (answers / "one.jsonl").write_bytes(lines)
    answers.run("privatize", "one.jsonl", "--epsilon", "6", "--out", "one-answers.jsonl")
    one = ["fit", "one-answers.jsonl", "--out", "one.json", "--dimension", "32", "--json"]
    in_memory = answers.run(*one).value["reward"]
    found = answers.run(*FIT, "--json").value["reward"]
    assert set(found) == set(in_memory)
    errors = np.hypot(found["accuracy_standard_error"], in_memory["accuracy_standard_error"])
    assert abs(found["accuracy"] - in_memory["accuracy"]) < 4 * errors
    ratio = found["accuracy_standard_error"] / in_memory["accuracy_standard_error"]
    assert 1.4 < ratio < 3.4  # a fifth of the answers: √5, and nothing is scaled


def test_metrics_change_nothing_of_the_reward(answers):
    assert answers.run(*FIT).code == 0
    reward = sordino.RewardModel.load(answers / "reward.json")
    alone = sordino.fit_reward(
        sordino.find_chunks(answers / "answers", privatized=True),
        features=sordino.HashedText(dimension=32),
    )
    assert np.array_equal(reward.weights, alone.weights)
    assert reward.pairs == 600


def test_too_few_questions_are_refused_as_for_one_file(folder):
    (folder / "texts").mkdir()
    folder.write("texts/0.jsonl", text_rows(1))
    assert folder.run("privatize", "texts", "--epsilon", "1", "--out", "answers").code == 0
    refused(folder, FIT, 4, "too few different questions")
    assert not (folder / "reward.json").exists()
    one = ["privatize", "texts/0.jsonl", "--epsilon", "1", "--out", "one.jsonl"]
    assert folder.run(*one).code == 0
    refused(folder, ["fit", "one.jsonl", "--out", "r.json"], 4, "too few different questions")
