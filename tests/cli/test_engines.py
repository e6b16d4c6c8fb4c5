"""Judgments in many files, as a user would align on them, with a mistake or two."""

import json
import shutil
import sys

import numpy as np
import pytest

import sordino
from sordino.preferences.pairs import Pairs

from .conftest import CANARY, refused
from .many_files import text_rows, texts_in, vectors_in, write_vectors

CENTRAL = ["--noise", "estimate", "--epsilon", "2", "--out", "out"]
TEXTS = ["align", "texts", *CENTRAL, "--dimension", "32"]
VECTORS = ["align", "vectors", *CENTRAL]


@pytest.fixture
def texts(folder):
    return texts_in(folder)


@pytest.fixture
def vectors(folder):
    return vectors_in(folder)


def whole_run(folder, command):
    """Run a command; see that everything it wrote belongs together, and quotes nothing."""
    said = folder.run(*command, "--json")
    assert (said.code, said.err) == (0, "")
    result = json.loads((folder / "out/result.json").read_text())
    assert said.value == result
    outputs = {f"out/{name}" for name in ("result.json", "report.html", "reward.json", "spend.db")}
    assert {name for name in folder.names() if name.startswith("out")} == outputs
    for name in outputs:
        assert CANARY.encode() not in (folder / name).read_bytes()
    assert CANARY not in said.out
    reward = sordino.RewardModel.load(folder / "out/reward.json")
    ledger = sordino.Ledger.read(folder / "out/spend.db")
    assert len(ledger.spends) == 1
    assert sordino.certify(reward, ledger).guarantee.to_dict() == result["guarantee"]
    assert sordino.audit(folder / "out").refuted is False
    page = (folder / "out/report.html").read_text()
    assert ">None<" not in page
    assert "nan" not in page.lower().split()
    return result, reward


# --- whole runs ---


@pytest.mark.parametrize("more", [[], ["--engine", "process"]], ids=["folder", "engine"])
def test_texts_in_many_files_end_to_end(texts, more):
    result, reward = whole_run(texts, [*TEXTS, *more])
    assert result["caveats"] == ["person-group"]
    assert result["guarantee"]["epsilon"] <= 2
    data = result["data"]
    assert (data["pairs"], data["records"], data["files"]) == (300, 300, 3)
    assert len(reward.weights) == 32


def test_vectors_in_many_files_end_to_end(vectors):
    result, reward = whole_run(vectors, VECTORS)
    assert result["caveats"] == []
    assert len(reward.weights) == 6
    assert result["policy"]["kl"] > 0


def test_people_in_many_files_with_a_cap_and_a_pessimistic_policy(texts):
    options = ["--unit", "person", "--cap", "4", "--confidence", "0.9", "--scale", "0.1"]
    result, _ = whole_run(texts, [*TEXTS, *options])
    assert result["guarantee"]["unit"] == "person"
    assert (result["data"]["pairs"], result["data"]["records"]) == (80, 300)
    assert result["policy"]["kind"] == "pessimistic"
    assert "pairs in 3 files, without 220" not in texts.run("report", "out", "--force").out


def test_a_question_that_occurs_twice_without_person_ids_is_said(folder):
    (folder / "texts").mkdir()
    folder.write("texts/0.jsonl", text_rows(60))
    folder.write("texts/1.jsonl", [*text_rows(60, first=60), *text_rows(60)[:1]])
    result, _ = whole_run(folder, TEXTS)
    assert result["caveats"] == ["repeats-not-linked"]


def test_the_same_weights_as_from_one_file_in_memory(vectors):
    """One file and no engine goes the old way; the sum and its noise are the same."""
    seed = ["--simulate-seed", "5"]
    assert vectors.run(*VECTORS, *seed, "--ball", "10").code == 0
    in_files = sordino.RewardModel.load(vectors / "out/reward.json")
    rows, labels = zip(
        *(write_vectors(vectors / "again.parquet", 300, seed=file) for file in range(3)),
        strict=True,
    )
    budget = sordino.Guarantee(
        2.0, delta=1e-6, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    in_memory = sordino.fit_reward(
        Pairs.from_features(np.concatenate(rows), np.concatenate(labels)),
        mechanism=sordino.LabelGaussian(2.0, delta=1e-6),
        ledger=sordino.Ledger.open(vectors / "m.db", data="preferences", budget=budget),
        simulate_seed=5,
        ball=10.0,
    )
    np.testing.assert_allclose(in_files.weights, in_memory.weights, rtol=0.05, atol=0.01)


def test_one_file_of_json_lines_goes_the_usual_way(texts):
    """Its metrics show it: a file in memory is measured on, files in chunks are not."""
    one = ["align", "texts/0.jsonl", *CENTRAL, "--dimension", "32"]
    assert texts.run(*one).code == 0
    usual = json.loads((texts / "out/result.json").read_text())
    told = usual["reward"]  # 220 pairs are too few at times, by the noise
    if told["negative_log_likelihood"] is None:
        assert "too few" in told["negative_log_likelihood_reason"]
    assert "files" not in usual["data"]
    assert texts.run(*one, "--force", "--engine", "process", "--ledger", "other.db").code == 0
    chunked = json.loads((texts / "out/result.json").read_text())
    assert chunked["data"]["files"] == 1
    assert chunked["reward"]["negative_log_likelihood"] is None
    assert "negative_log_likelihood_reason" not in chunked["reward"]
    assert chunked["reward"]["accuracy"] is None


def test_the_closing_table_and_the_page_say_what_was_not_measured(texts):
    said = texts.run(*TEXTS, "--unit", "person", "--cap", "4")
    assert said.code == 0
    assert "80 in 3 files, without 220 repeats and pairs beyond the cap" in said.out
    assert "not measured (--metrics-epsilon buys it)" in said.out
    page = (texts / "out/report.html").read_text()
    assert "nothing is measured on those for free" in page
    assert "--metrics-epsilon buys" in page


def test_a_second_run_on_the_ledger_adds_up_and_other_files_are_refused(texts):
    shared = ["--ledger", "shared.db"]
    assert texts.run(*TEXTS, "--budget", "3.2", *shared).code == 0
    assert texts.run(*TEXTS, "--force", *shared).code == 0
    ledger = sordino.Ledger.read(texts / "shared.db")
    assert len(ledger.spends) == 2
    refused(texts, [*TEXTS, "--force", *shared], 3, "BudgetExceeded")
    texts.write("texts/3.jsonl", text_rows(10, first=900, people=True))
    said = texts.run(*TEXTS, "--force", "--budget", "9", *shared)
    assert said.code == 6, said.err
    assert len(sordino.Ledger.read(texts / "shared.db").spends) == 2


@pytest.mark.deep
def test_ray_finds_what_this_process_finds(texts):
    pytest.importorskip("ray")
    seed = ["--simulate-seed", "1"]
    assert texts.run(*TEXTS, *seed).code == 0
    here = (texts / "out/reward.json").read_bytes()
    said = texts.process(*TEXTS, *seed, "--force", "--ledger", "ray.db", "--engine", "ray")
    assert said.code == 0, said.err
    assert CANARY not in said.out + said.err
    there = json.loads((texts / "out/reward.json").read_bytes())
    assert there["weights"] == json.loads(here)["weights"]


# --- plans ---


@pytest.mark.parametrize("engine", [[], ["--engine", "ray"]], ids=["process", "ray"])
def test_a_plan_touches_nothing_and_starts_nothing(texts, engine):
    if engine:
        pytest.importorskip("ray")
    before = texts.state()
    said = texts.run(*TEXTS, *engine, "--dry-run", "--json")
    assert (said.code, said.err, texts.state()) == (0, "", before)
    plan = said.value
    assert plan["files"] == {
        "engine": engine[1] if engine else "process",
        "files": 3,
        "blocks": 3,
        "rows": 300,
        "passes": 18,
    }
    assert plan["spend"] == plan["guarantee"]["epsilon"]
    assert plan["caveats"] == ["person-group"]
    assert plan["possible_caveats"] == []
    if engine:
        assert not sys.modules["ray"].is_initialized()


def test_a_plan_says_what_only_all_records_can_tell(vectors):
    said = vectors.run(*VECTORS, "--dry-run")
    assert said.code == 0
    assert "none; repeats-not-linked if a question occurs twice" in " ".join(said.out.split())
    assert "in 3 blocks" in said.out
    refused(vectors, [*VECTORS, "--dry-run", "--budget", "1"], 3, "budget")


# --- what is refused: nothing is released, and no ledger is made ---


def test_a_file_that_is_missing(texts):
    refused(texts, ["align", "texts", "nowhere.jsonl", *CENTRAL], 7, "nowhere.jsonl")


def test_a_parquet_file_that_was_cut_short(vectors):
    whole = (vectors / "vectors/1.parquet").read_bytes()
    (vectors / "vectors/1.parquet").write_bytes(whole[: len(whole) // 2])
    refused(vectors, VECTORS, 4, "1.parquet", "cut short")


def test_a_line_that_was_cut_short(texts):
    path = texts / "texts/2.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    refused(texts, TEXTS, 4, "2.jsonl", "cut short")


@pytest.mark.parametrize("other", ["width", "columns"])
def test_a_file_of_another_schema(vectors, other):
    more = {"person": ["p"] * 20} if other == "columns" else {}
    write_vectors(vectors / "vectors/9.parquet", 20, d=6 if more else 7, **more)
    refused(vectors, VECTORS, 4, "9.parquet")


def test_a_record_that_cannot_be_used(texts):
    texts.write("texts/8.jsonl", [{"prompt": f"{CANARY} 1", "chosen": f"{CANARY} 2"}])
    refused(texts, TEXTS, 4, "8.jsonl")


def test_files_that_overlap(texts):
    """The same person and question in two files, and one file under two names."""
    texts.write("more.jsonl", text_rows(100, people=True)[7:8])
    refused(texts, ["align", "texts", "more.jsonl", *CENTRAL], 4, "0.jsonl", "more.jsonl")
    refused(texts, ["align", "texts", "texts/0.jsonl", *CENTRAL], 2, "0.jsonl", "twice")


def test_an_address_that_does_not_answer(texts):
    pytest.importorskip("ray")
    command = [*TEXTS, "--engine", "ray", "--address", "127.0.0.1:1"]
    for more in ([], ["--dry-run"]):
        refused(texts, [*command, *more], 2, "127.0.0.1:1", "Nothing was read")


@pytest.mark.parametrize("missing", ["ray", "pyarrow"])
def test_an_extra_that_is_not_installed(texts, vectors, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    command = [*TEXTS, "--engine", "ray"] if missing == "ray" else VECTORS
    for more in ([], ["--dry-run"]):
        refused(texts, [*command, *more], 2, "MissingExtra", "pip install 'sordino[scale]'")


@pytest.mark.parametrize(
    "options",
    [
        ["--noise", "labels"],
        ["--noise", "draws", "--draws", "3"],
        ["--unit", "person"],
        ["--evaluate", "texts/0.jsonl"],
        ["--truth", "texts/0.jsonl"],
        ["--address", "auto"],
        ["--scratch", "nowhere"],
        ["--method", "debiased"],
    ],
    ids=lambda options: " ".join(options[:2]),
)
def test_what_is_not_built_for_many_files(texts, options):
    named = options[0] if options[0] != "--scratch" else "folder"
    refused(texts, [*TEXTS, *options], 7 if "nowhere" in options else 2, named)


def test_options_of_chunks_are_refused_for_one_file_in_memory(texts):
    one = ["align", "texts/0.jsonl", *CENTRAL]
    refused(texts, [*one, "--scratch", "."], 2, "--scratch")
    refused(texts, [*one, "--address", "auto"], 2, "--address")


def test_what_does_not_go_with_vectors(vectors):
    refused(vectors, [*VECTORS, "--dimension", "64"], 2, "--dimension", "vectors of 6")
    refused(vectors, [*VECTORS, "--unit", "person", "--cap", "2"], 4, "person ids")
    refused(vectors, [*VECTORS, "--unit", "person", "--cap", "2", "--dry-run"], 4, "person ids")


def test_a_confidence_set_that_would_be_too_large_is_refused_before_the_spend(vectors):
    shutil.rmtree(vectors / "vectors")
    (vectors / "vectors").mkdir()
    write_vectors(vectors / "vectors/0.parquet", 30, d=1100)
    refused(vectors, [*VECTORS, "--confidence", "0.9"], 2, "--confidence", "1100")


def test_kinds_that_are_mixed_and_kinds_that_are_not_read(texts, vectors):
    refused(texts, ["align", "texts", "vectors", *CENTRAL], 2, "one kind")
    (texts / "a.csv").write_text("prompt,chosen,rejected\na,b,c\n")
    refused(texts, ["align", "a.csv", *CENTRAL, "--engine", "process"], 2, "a.csv")
    (texts / "empty").mkdir()
    refused(texts, ["align", "empty", *CENTRAL], 2, "No file")
