"""Whole records in many files, protected as one file of them is, as a user would."""

import json

import numpy as np
import pytest

import sordino
from sordino.cli._app import Bar

from .conftest import CANARY, refused
from .many_files import text_rows, texts_in, vectors_in

RECORDS = ["--noise", "estimate", "--unit", "record", "--epsilon", "3", "--out", "out"]
TEXTS = ["align", "texts", *RECORDS, "--dimension", "16"]


@pytest.fixture
def texts(folder):
    """A folder of three files of texts."""
    return texts_in(folder)


def result_of(folder):
    return json.loads((folder / "out/result.json").read_text())


@pytest.mark.parametrize("neighbors", ["zero-out", "add-remove"])
def test_records_of_many_files_are_protected(texts, neighbors):
    command = [*TEXTS, "--neighbors", neighbors]
    planned = json.loads(texts.run(*command, "--dry-run", "--json").out)
    assert planned["spend"] == 3
    assert planned["pairs"] is None  # not counted before it is read, if it may be told at all
    assert "files" not in planned  # their size tells how many records there are
    said = texts.run(*command)
    assert (said.code, said.err) == (0, "")
    assert CANARY not in said.out
    result, ledger = result_of(texts), sordino.Ledger.read(texts / "out/spend.db")
    assert result["guarantee"]["unit"] == "record"
    assert result["guarantee"]["epsilon"] == 3
    assert len(ledger.spends) == 1
    reward = sordino.RewardModel.load(texts / "out/reward.json")
    assert reward.method == "objective-perturbation"
    assert (reward.pairs is None) == (neighbors == "add-remove")
    assert sordino.certify(reward, ledger).guarantee.to_dict() == result["guarantee"]
    assert sordino.audit(texts / "out").refuted is False
    assert ">None<" not in (texts / "out/report.html").read_text()


def test_the_bar_does_not_count_passes_over_records(texts, monkeypatch):
    said = []
    monkeypatch.setattr(Bar, "describe", lambda _, description: said.append(description))
    assert texts.run(*TEXTS).code == 0
    assert said == ["Pass 1", "Fitting"]


def test_the_same_as_in_memory(folder):
    folder.write("one.jsonl", text_rows(300))
    command = ["align", "one.jsonl", *RECORDS, "--dimension", "16", "--simulate-seed", "3"]
    assert folder.run(*command).code == 0
    usual, kept = result_of(folder), sordino.RewardModel.load(folder / "out/reward.json")
    more = ["--force", "--ledger", "other.db", "--engine", "process"]
    assert folder.run(*command, *more).code == 0
    chunked, reward = result_of(folder), sordino.RewardModel.load(folder / "out/reward.json")
    assert chunked["guarantee"] == usual["guarantee"]
    assert chunked["mechanism"] == usual["mechanism"]
    assert chunked["data"].keys() == usual["data"].keys()
    assert np.linalg.norm(reward.weights - kept.weights) < 1e-4  # other noise on the output


def test_vectors_and_a_confidence_set(folder):
    vectors_in(folder)
    more = ["--confidence", "0.9", "--bound", "1"]
    said = folder.run("align", "vectors", *RECORDS, *more)
    assert said.code == 0, said.err
    reward = sordino.RewardModel.load(folder / "out/reward.json")
    assert reward.ellipsoid is not None
    assert reward.moment.matrix.shape == (6, 6)


def test_what_is_not_built_for_records_in_many_files(texts):
    refused(texts, [*TEXTS, "--metrics-epsilon", "1"], 2, "--metrics-epsilon")
    refused(texts, [*TEXTS, "--evaluate", "texts/0.jsonl"], 2, "--evaluate")
