"""Noise on labels over many files: a privatized file for each, and a reward from all of them."""

import pytest

import sordino
from sordino.preferences import chunk_reading

from .conftest import CANARY, refused
from .many_files import texts_in, vectors_in

PRIVATIZE = ["privatize", "texts", "--epsilon", "1", "--out", "answers"]


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
    told = texts.run(*PRIVATIZE, "--dry-run")
    assert "about 4" in told.out
    assert texts.run(*PRIVATIZE).code == 0
    assert sordino.Ledger.read(texts / "answers.spend.db").total().epsilon == plan.value["spend"]
    refused(texts, PRIVATIZE, 2, "exists")
    again = texts.run(*PRIVATIZE, "--force", "--json")  # the same answers, which cost nothing
    assert (again.code, again.value["spend"]) == (0, 0.0)


@pytest.mark.deep
@pytest.mark.parametrize("options", [[], ["--unit", "person"]], ids=["label", "person"])
def test_files_are_read_as_often_as_the_plan_says(texts, monkeypatch, options):
    passes = texts.run(*PRIVATIZE, *options, "--dry-run", "--json").value["files"]["passes"]
    read, honest = [], chunk_reading._pairs
    monkeypatch.setattr(chunk_reading, "_pairs", lambda *chunk: read.append(1) or honest(*chunk))
    assert texts.run(*PRIVATIZE, *options).code == 0
    assert len(read) == 3 * passes


def test_answers_that_are_refused_leave_nothing(texts, vectors):
    refused(texts, [*PRIVATIZE, "--budget", "0.5"], 3, "budget")
    refused(texts, [*PRIVATIZE, "--on-device"], 2, "--on-device")
    refused(texts, [*PRIVATIZE, "--unit", "record"], 2, "records")
    refused(texts, ["privatize", "texts", "--epsilon", "1", "--out", "texts"], 2, "among the raw")
    by_person = ["privatize", "vectors", "--epsilon", "1", "--out", "a", "--unit", "person"]
    refused(texts, by_person, 4, "person ids")
    path = texts / "texts/2.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    refused(texts, PRIVATIZE, 4, "2.jsonl")
    refused(texts, ["fit", "texts", "--out", "r.json"], 4, "manifest")
    refused(texts, ["fit", "texts", "--out", "r.json", "--method", "mixture"], 2, "mixture")
    refused(texts, ["fit", "texts/0.jsonl", "--out", "r.json", "--scratch", "."], 2, "--scratch")


@pytest.mark.deep
def test_answers_of_one_file_go_the_usual_way(texts):
    one = ["privatize", "texts/0.jsonl", "--epsilon", "4", "--out", "a.jsonl"]
    assert texts.run(*one).code == 0
    assert texts.run("fit", "a.jsonl", "--out", "r.json", "--json").value["reward"]["accuracy"]
    in_chunks = texts.run("fit", "a.jsonl", "--out", "r.json", "--force", "--engine", "process")
    assert in_chunks.code == 0


@pytest.mark.deep
def test_two_releases_of_the_same_labels_in_one_folder(folder):
    """Written as files, one by one, into one folder: it was fitted as one release."""
    rows = [{"prompt": f"q{at}", "chosen": f"a{at}", "rejected": f"b{at}"} for at in range(40)]
    folder.write("one.jsonl", rows)
    folder.write("two.jsonl", [*rows, {"prompt": "more", "chosen": "a", "rejected": "b"}])
    (folder / "answers").mkdir()
    for name in ("one", "two"):
        words = ["--epsilon", "1", "--out", f"answers/{name}.jsonl", "--ledger", f"{name}.db"]
        assert folder.run("privatize", f"{name}.jsonl", *words).code == 0
    refused(folder, ["fit", "answers", "--out", "r.json"], 2, "several releases")
    told = folder.run("audit", "release", "answers", "--epsilon", "1", "--json")
    [found] = [one for one in told.value["findings"] if one["attack"] == "releases"]
    assert found["outcome"] == "warning"
    assert (found["details"]["releases"], found["details"]["questions"]) == (2, 40)
    assert "holds 2 releases" in found["summary"]
