"""Noise on labels over many files: a privatized file for each, and a reward from all of them."""

import json
import shutil

import numpy as np
import pytest
from tests.apart import apart
from tests.tiers import few

import sordino
from sordino import cli
from sordino.preferences import chunks
from sordino.privatization import publication

from .conftest import CANARY, refused
from .many_files import text_rows, texts_in, vectors_in

pytestmark = pytest.mark.usefixtures("few_parts")

PRIVATIZE = ["privatize", "texts", "--epsilon", "1", "--out", "answers"]
FIT = ["fit", "answers", "--out", "reward.json", "--dimension", "32"]
NAMES = {
    f"{metric}{of}"
    for metric in ("accuracy", "negative_log_likelihood", "calibration_slope")
    for of in ("", "_standard_error")
}


@pytest.fixture
def texts(folder):
    return texts_in(folder)


@pytest.fixture
def vectors(folder):
    return vectors_in(folder)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["texts", "vectors"])
def test_answers_in_many_files_end_to_end(texts, vectors, kind):
    said = texts.run("privatize", kind, "--epsilon", "1", "--out", "answers", "--json")
    assert (said.code, said.err) == (0, "")
    assert (said.value["spend"], said.value["files"], said.value["epsilon"]) == (1.0, 3, 1.0)
    ledger = sordino.Ledger.read(texts / "answers.spend.db")
    assert len(ledger.spends) == 1
    assert said.value["ledger"] == {"head": ledger.head.digest, "rows": 3}
    ending = "jsonl" if kind == "texts" else "parquet"
    names = {path.name for path in (texts / "answers").iterdir()}
    assert names == {f"{at}.{end}" for at in range(3) for end in (ending, "manifest.json")}
    fitted = texts.run("fit", "answers", "--out", "reward.json", "--json")
    assert (fitted.code, fitted.err) == (0, "")
    assert fitted.value["guarantee"]["epsilon"] == 1.0
    said_of_it = fitted.value["reward"]  # a number, or why there is none
    assert isinstance(said_of_it["accuracy"], float) or said_of_it["accuracy_reason"]
    assert CANARY not in said.out + fitted.out
    reward = sordino.RewardModel.load(texts / "reward.json")
    assert reward.guarantee.epsilon == 1.0
    assert len(reward.weights) == (512 if kind == "texts" else 6)


@pytest.mark.deep
def test_people_in_many_files_share_their_epsilon(texts):
    """Without a cap the most labels of one person decide, over all files together."""
    said = texts.run(*PRIVATIZE, "--unit", "person", "--json")
    assert said.code == 0, said.err
    assert said.value["unit"] == "person"
    assert said.value["epsilon_per_label"] == pytest.approx(1 / 15, rel=1e-6)
    assert texts.run("fit", "answers", "--out", "r.json").code == 0


@pytest.mark.deep
def test_a_plan_of_answers_touches_nothing_and_says_what_the_run_spends(texts):
    before = texts.state()
    plan = texts.run(*PRIVATIZE, "--dry-run", "--json")
    assert (plan.code, texts.state()) == (0, before)
    assert (plan.value["files"]["blocks"], plan.value["files"]["passes"]) == (3, 4)
    assert "about 4" in texts.run(*PRIVATIZE, "--dry-run").out
    assert texts.run(*PRIVATIZE).code == 0
    assert sordino.Ledger.read(texts / "answers.spend.db").total().epsilon == plan.value["spend"]
    refused(texts, PRIVATIZE, 2, "exists")
    again = texts.run(*PRIVATIZE, "--force", "--json")  # the same answers, which cost nothing
    assert (again.code, again.value["spend"]) == (0, 0.0)


@pytest.mark.deep
@pytest.mark.parametrize("options", [[], ["--unit", "person"]], ids=["label", "person"])
def test_files_are_read_as_often_as_the_plan_says(texts, monkeypatch, options):
    passes = texts.run(*PRIVATIZE, *options, "--dry-run", "--json").value["files"]["passes"]
    read, honest = [], chunks._rows
    monkeypatch.setattr(chunks, "_rows", lambda *chunk: read.append(1) or honest(*chunk))
    assert texts.run(*PRIVATIZE, *options).code == 0
    assert len(read) == 3 * passes


@pytest.mark.parametrize(
    ("command", "code", "word"),
    [
        ([*PRIVATIZE, "--budget", "0.5"], 3, "budget"),
        ([*PRIVATIZE, "--on-device"], 2, "--on-device"),
        ([*PRIVATIZE, "--unit", "record"], 2, "records"),
        ([*PRIVATIZE[:-1], "texts"], 2, "among the raw"),
        ([PRIVATIZE[0], "vectors", *PRIVATIZE[2:], "--unit", "person"], 4, "person ids"),
        (["fit", "texts", "--out", "r.json"], 4, "manifest"),
        (["fit", "texts", "--out", "r.json", "--method", "mixture"], 2, "mixture"),
        (["fit", "texts/0.jsonl", "--out", "r.json", "--scratch", "."], 2, "--scratch"),
    ],
)
def test_answers_that_are_refused_leave_nothing(texts, vectors, command, code, word):
    refused(texts, command, code, word)


@pytest.mark.parametrize("problem", ["damaged", "other relation"])
def test_a_ledger_that_cannot_pay_is_refused_before_files_are_read(texts, monkeypatch, problem):
    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr("sordino.preferences.chunk_survey.survey_chunks", never)
    path = texts / "l.db"
    relation = sordino.ADD_OR_REMOVE_ONE if problem == "other relation" else sordino.REPLACE_ONE
    unit = "person" if problem == "other relation" else "label"
    budget = sordino.Guarantee(4.0, delta=0.0, unit=unit, neighbors=relation, trust="central")
    sordino.Ledger.open(path, budget=budget)
    if problem == "damaged":
        path.write_bytes(b"no ledger")
    code, word = {
        "damaged": (8, "l.db"),
        "other relation": (2, "add-remove"),
    }[problem]
    refused(texts, [*PRIVATIZE, "--ledger", "l.db", "--unit", unit], code, word)


@pytest.mark.deep
def test_answers_of_one_file_go_the_usual_way(texts):
    one = ["privatize", "texts/0.jsonl", "--epsilon", "4", "--out", "a.jsonl"]
    assert texts.run(*one).code == 0
    assert texts.run("fit", "a.jsonl", "--out", "r.json", "--json").value["reward"]["accuracy"]
    in_chunks = texts.run("fit", "a.jsonl", "--out", "r.json", "--force", "--engine", "process")
    assert in_chunks.code == 0


@pytest.mark.deep
@pytest.mark.parametrize("kind", few(["texts", "vectors"], first=1))
def test_the_same_command_lets_the_rest_appear(texts, vectors, monkeypatch, kind):
    """Its ledger has nothing left. Texts name who answered, vectors do not."""
    command = [PRIVATIZE[0], kind, *PRIVATIZE[2:], "--json"]
    honest, seen = publication._show, []

    def show(made, final, **given):
        seen.append(made)
        if len(seen) == 2:
            raise OSError(28, "No space left on device")
        honest(made, final, **given)

    monkeypatch.setattr(publication, "_show", show)
    failed = texts.run(*command)
    assert failed.code != 0
    assert "give the same command again" in failed.out + failed.err
    unread = texts.run("fit", "answers", "--out", "reward.json")
    assert unread.code != 0
    assert "was interrupted" in unread.out + unread.err
    rows = len(sordino.Ledger.read(texts / "answers.spend.db").rows)
    said = texts.run(*command)
    assert said.code == 0, said.err
    assert (said.value["spend"], said.value["files"], said.value["epsilon"]) == (0.0, 3, 1.0)
    assert len(sordino.Ledger.read(texts / "answers.spend.db").rows) == rows
    assert len(list((texts / "answers").iterdir())) == 6
    assert texts.run("fit", "answers", "--out", "reward.json").code == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Answers in three files, nearly as they were given, made once."""
    where = tmp_path_factory.mktemp("made")
    (where / "texts").mkdir()
    for file in range(3):
        lines = (json.dumps(row) + "\n" for row in text_rows(200, first=200 * file, people=True))
        (where / f"texts/{file}.jsonl").write_text("".join(lines))
    told = ["privatize", where / "texts", "--epsilon", "6", "--out", where / "answers"]
    assert cli.run(apart(told)) == 0
    return where


@pytest.fixture
def answers(folder, made):
    """A working folder with them in it."""
    shutil.copytree(made, folder.path, dirs_exist_ok=True)
    return folder


def test_a_fit_of_many_files_says_what_it_measures_and_that_changes_nothing(answers):
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
    error = 196 * found["accuracy_standard_error"]
    line = f"Held-out accuracy {found['accuracy']:.1%} ± {error:.1f} points (95%)"
    assert line in answers.run(*FIT, "--force").out
    assert said.value["files"] == 3
    reward = sordino.RewardModel.load(answers / "reward.json")
    alone = sordino.fit_reward(
        sordino.find_chunks(answers / "answers", privatized=True),
        features=sordino.HashedText(dimension=32),
    )
    assert np.array_equal(reward.weights, alone.weights)
    assert reward.pairs == 600


@pytest.mark.deep
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
