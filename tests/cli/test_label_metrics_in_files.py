"""Metrics that are bought on labels in many files, as a user would, with a mistake or two."""

import json

import pytest

import sordino
from sordino.rewards.estimation import EXPECTED_PASSES
from sordino.rewards.private_metric_releases import METRICS_PASSES

from .conftest import CANARY, refused
from .many_files import text_rows, texts_in, vectors_in

CENTRAL = ["--noise", "estimate", "--epsilon", "8", "--metrics-epsilon", "2", "--out", "out"]
TEXTS = ["align", "texts", *CENTRAL, "--dimension", "32"]
NUMBERS = ("accuracy", "negative_log_likelihood", "calibration_slope")


@pytest.fixture
def texts(folder):
    """A folder of three files of texts."""
    return texts_in(folder)


def result_of(folder):
    return json.loads((folder / "out/result.json").read_text())


def test_metrics_are_bought_on_texts_in_many_files(texts):
    said = texts.run(*TEXTS)
    assert (said.code, said.err) == (0, "")
    assert CANARY not in said.out
    result, ledger = result_of(texts), sordino.Ledger.read(texts / "out/spend.db")
    assert len(ledger.spends) == 2
    assert 8 < result["guarantee"]["epsilon"] < 10
    reward = sordino.RewardModel.load(texts / "out/reward.json")
    assert sordino.certify(reward, ledger).guarantee.to_dict() == result["guarantee"]
    assert sordino.audit(texts / "out").refuted is False
    bought = result["metrics"]
    assert (bought["name"], bought["epsilon"], bought["share"]) == ("label-gaussian", 2.0, 0.2)
    assert bought["pairs"] + reward.pairs == result["data"]["pairs"] == 300
    for name in NUMBERS:
        assert result["reward"][f"{name}_standard_error"] > 0
    low, high = result["policy"]["win_rate_interval"]
    assert low <= result["policy"]["win_rate"] <= high
    assert "(held out, bought)" in said.out
    assert "bought: epsilon=2" in said.out
    page = (texts / "out/report.html").read_text()
    assert "Every metric below was bought" in page
    assert "for free" not in page
    assert ">None<" not in page


def test_the_same_output_as_in_memory(folder):
    """The same names with numbers; another ledger of one file gives another digest alone."""
    folder.write("one.jsonl", text_rows(300))
    command = ["align", "one.jsonl", *CENTRAL, "--dimension", "32", "--simulate-seed", "3"]
    assert folder.run(*command).code == 0
    usual = result_of(folder)
    more = ["--force", "--ledger", "other.db", "--engine", "process"]
    assert folder.run(*command, *more).code == 0
    chunked = result_of(folder)
    assert chunked["metrics"] == usual["metrics"]
    assert set(chunked["reward"]) == set(usual["reward"])
    assert chunked["guarantee"] == usual["guarantee"]
    for name in NUMBERS:
        error = usual["reward"][f"{name}_standard_error"]
        # the same noise; another way to the ridge and the fit, and other rounding
        assert chunked["reward"][name] == pytest.approx(usual["reward"][name], abs=error)
        assert chunked["reward"][f"{name}_standard_error"] == pytest.approx(error, rel=0.5)


def test_persons_and_vectors(folder):
    texts_in(folder)
    assert folder.run(*TEXTS, "--unit", "person", "--cap", "3").code == 0
    result = result_of(folder)
    assert result["guarantee"]["unit"] == "person"
    assert result["metrics"]["pairs"] <= 60 == result["data"]["pairs"] - result["metrics"]["pairs"]
    vectors_in(folder)
    vectors = ["align", "vectors", *CENTRAL, "--force", "--ledger", "vectors.db"]
    assert folder.run(*vectors).code == 0
    assert result_of(folder)["reward"]["accuracy"] > 0.5


def test_a_plan_counts_spend_and_passes_of_metrics(texts):
    before = texts.state()
    said = texts.run(*TEXTS, "--dry-run", "--json")
    assert (said.code, said.err, texts.state()) == (0, "", before)
    plan = said.value
    assert 8 < plan["spend"] < 10
    assert plan["metrics"]["epsilon"] == 2.0
    assert plan["files"]["passes"] == EXPECTED_PASSES + METRICS_PASSES
    assert "bought: epsilon=2" in texts.run(*TEXTS, "--dry-run").out
    refused(texts, [*TEXTS, "--dry-run", "--budget", "8.1"], 3, "budget")


def test_a_budget_without_room_for_metrics_spends_nothing(texts):
    refused(texts, [*TEXTS, "--budget", "8.1"], 3, "BudgetExceeded")
    assert not (texts / "out").exists()


def test_too_few_questions_spend_nothing(folder):
    (folder / "texts").mkdir()
    folder.write("texts/0.jsonl", text_rows(1))
    refused(folder, TEXTS, 4, "too few different questions")
