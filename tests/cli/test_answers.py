"""Files that are private already: their manifest says how, and a wrong one is refused."""

import json
import shutil

import pytest

from sordino.privacy.ledger import Ledger

from .conftest import refused

COMMANDS = {
    "align": ["align", "p.jsonl", "--out", "out"],
    "align dry": ["align", "p.jsonl", "--out", "out", "--dry-run"],
    "fit": ["fit", "p.jsonl", "--out", "reward.json"],
}
commands = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


@pytest.fixture
def private(done):
    for end in ("jsonl", "manifest.json"):
        (done / f"out.{end}").rename(done / f"p.{end}")
    shutil.rmtree(done / "out")
    return done


def change(folder, **values):
    path = folder / "p.manifest.json"
    found = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: v for name, v in found.items() if v is not None}))


def test_the_manifest_has_exactly_the_fields_of_the_design(private):
    found = json.loads((private / "p.manifest.json").read_text())
    assert set(found) == {
        "format", "version", "sha256", "mechanism", "epsilon", "flip_probability", "unit",
        "neighbors", "trust", "caveats", "release_id", "categories",
    }  # fmt: skip
    assert (found["format"], found["version"]) == ("sordino.manifest", 3)
    lines = [json.loads(line) for line in (private / "p.jsonl").read_text().splitlines()]
    assert {tuple(line) for line in lines} == {("prompt", "first", "second", "answer")}


@commands
def test_no_manifest(private, command):
    (private / "p.manifest.json").unlink()
    refused(private, command, 4, "there is no p.manifest.json")


@commands
def test_malformed_manifest(private, command):
    for text in ("", "{", "[]", "7", "null", "{}", '{"format": "other"}', "\ufeff", "\xff\xfe"):
        (private / "p.manifest.json").write_text(text, encoding="latin-1", errors="replace")
        refused(private, command, 4, "not a sordino.manifest file")


def test_a_manifest_that_is_a_folder(private):
    (private / "p.manifest.json").unlink()
    (private / "p.manifest.json").mkdir()
    refused(private, COMMANDS["fit"], 4, "there is no")


INF = float("inf")
NAN = float("nan")
CHANGES = {
    "other file": ({"sha256": "0" * 64}, "another file"),
    "sha256 is a number": ({"sha256": 7}, "wrong type"),
    "smaller epsilon": ({"epsilon": 0.5}, "disagree"),
    "larger epsilon": ({"epsilon": 2.0}, "disagree"),
    "other flips": ({"flip_probability": 0.3}, "disagree"),
    "no noise": ({"flip_probability": 0.0}, "wrong"),
    "NaN flips": ({"flip_probability": NAN}, "is not a sordino.manifest"),
    "epsilon 0": ({"epsilon": 0.0}, "wrong"),
    "epsilon -1": ({"epsilon": -1.0}, "wrong"),
    "epsilon inf": ({"epsilon": "inf"}, "wrong"),
    "epsilon Infinity": ({"epsilon": INF}, "is not a sordino.manifest"),
    "epsilon NaN": ({"epsilon": NAN}, "is not a sordino.manifest"),
    "epsilon text": ({"epsilon": "one"}, "wrong"),
    "epsilon list": ({"epsilon": [1]}, "wrong"),
    "newer": ({"version": 4}, "newer"),
    "version text": ({"version": "1"}, "no version number"),
    "other format": ({"format": "sordino.reward"}, "not a sordino.manifest"),
    "extra key": ({"count": 40}, "exactly the fields"),
    "missing key": ({"trust": None}, "exactly the fields"),
    "missing caveats": ({"caveats": None}, "exactly the fields"),
    "caveats text": ({"caveats": "simulated"}, "wrong"),
    "unknown caveat": ({"caveats": ["unheard-of"]}, "wrong"),
    "caveats of numbers": ({"caveats": [1]}, "wrong"),
    "other mechanism": ({"mechanism": "laplace"}, "another mechanism"),
    "other unit": ({"unit": "person"}, "person"),
    "unknown unit": ({"unit": "soul"}, "wrong"),
    "other neighbors": ({"neighbors": "REPLACE_SPECIAL"}, "another mechanism, unit or relation"),
    "unknown neighbors": ({"neighbors": "NONE"}, "wrong"),
    "unknown trust": ({"trust": "everybody"}, "wrong"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "word"), CHANGES.values(), ids=CHANGES)
def test_wrong_manifest(private, values, word):
    change(private, **values)
    for command in COMMANDS.values():
        refused(private, command, 4, word)


@commands
def test_answers_that_were_edited(private, command):
    path = private / "p.jsonl"
    path.write_text(path.read_text().replace('"answer":1', '"answer":0', 1))
    refused(private, command, 4, "sha256")


def test_answers_give_the_promise_of_their_manifest_and_spend_nothing(private):
    said = private.run(*COMMANDS["align"], "--json")
    assert said.code == 0
    assert said.value["guarantee"]["epsilon"] == 1.0
    assert said.value["guarantee"]["trust"] == "central"
    assert said.value["caveats"] == ["randomized-at-ingestion"]
    ledger = Ledger.read(private / "out/spend.db")
    assert (ledger.total(), [row.kind for row in ledger.rows]) == (None, ["open", "receive"])


def test_answers_from_the_persons_own_device_are_local(folder, pairs):
    folder.write("in.jsonl", pairs)
    words = ["privatize", "in.jsonl", "--epsilon", 2, "--out", "p.jsonl.gz", "--on-device"]
    assert folder.run(*words).code == 0
    assert (folder / "p.manifest.json").exists()
    said = folder.run("align", "p.jsonl.gz", "--out", "out", "--json")
    assert said.value["guarantee"]["trust"] == "local"
    assert (said.value["guarantee"]["epsilon"], said.value["caveats"]) == (2.0, [])


def test_simulated_answers_stay_simulated(folder, pairs):
    folder.write("in.jsonl", pairs)
    words = ["privatize", "in.jsonl", "--epsilon", 2, "--out", "p.jsonl", "--simulate-seed", 1]
    assert "SIMULATED" in folder.run(*words).out
    said = folder.run("align", "p.jsonl", "--out", "out")
    assert "SIMULATED" in said.out
    result = json.loads((folder / "out/result.json").read_text())
    assert result["guarantee"]["randomness"] == "simulated"
    assert "simulated" in result["caveats"]


def test_answers_are_not_randomized_twice_and_raw_judgments_are_not_fitted(private):
    refused(private, ["privatize", "p.jsonl", "--epsilon", 1, "--out", "r.jsonl"], 4)
    refused(private, ["fit", "in.jsonl", "--out", "reward.json"], 2, "raw")
