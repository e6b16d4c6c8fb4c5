"""A data set that a released reward labeled: its files, its card, its promise, and refusals."""

import hashlib
import json
import shutil

import pytest
import yaml

import sordino
from sordino.cli import synthesize

from .conftest import CANARY, pair

ASKED = [{"prompt": f"p {i}", "candidates": ["yes, then do", "no", "maybe so"]} for i in range(5)]
MAKE = ["synthesize", "out", "q.jsonl", "--out", "made"]
FILES = {"made/README.md", "made/train.jsonl", "made/sordino.json"}


@pytest.fixture
def ready(done):
    done.write("q.jsonl", ASKED)
    return done


def test_a_data_set_is_made_for_nothing_and_says_its_promise(ready):
    before = ready.names()
    spent = (ready / "out/spend.db").read_bytes()
    said = ready.run(*MAKE, "--json")
    assert (said.code, said.err) == (0, "")
    assert ready.names() == before | FILES
    assert (ready / "out/spend.db").read_bytes() == spent
    data, reward = (ready / "made/train.jsonl").read_bytes(), ready / "out/reward.json"
    kept = json.loads((ready / "made/sordino.json").read_text())
    source = json.loads(reward.read_text())
    for name in ("guarantee", "caveats", "release_ids", "artifact"):
        assert kept[name] == source[name]
    assert kept["files"] == {"train.jsonl": hashlib.sha256(data).hexdigest()}
    assert kept["certificate"]["digest"] == kept["reward"]
    assert (
        kept["certificate"]["ledger"]["head"]
        == sordino.Ledger.read(ready / "out/spend.db").head.digest
    )
    text = (ready / "made/README.md").read_text()
    front = yaml.safe_load(text.split("---")[1])
    assert front["privacy"]["epsilon"] == 1.0
    assert front["configs"][0]["data_files"] == [{"split": "train", "path": "train.jsonl"}]
    for told in (kept["reward"], kept["files"]["train.jsonl"], "randomized-at-ingestion",
                 kept["certificate"]["ledger"]["head"]):  # fmt: skip
        assert told in text
    assert len(sordino.read_pairs(ready / "made")) == 5  # one pair for a prompt
    assert ready.run("inspect", "made").code == 0
    checked = ready.run("check", "--ledger", "out/spend.db", "--json").value["artifacts"]
    assert {each["name"]: each["state"] for each in checked}["made/sordino.json"] == "met"
    assert not any(CANARY in (ready / name).read_text() for name in FILES)


def test_every_two_and_likely_ones_are_the_same_again(ready):
    more = ["--pairs", "all", "--labels", "likely"]
    made = []
    for name in ("one", "two"):
        assert ready.run(*MAKE[:-1], name, *more).code == 0
        made.append([(ready / name / f).read_bytes() for f in
                     ("README.md", "sordino.json", "train.jsonl")])  # fmt: skip
        ready.write("q.jsonl", [row | {"candidates": row["candidates"][::-1]} for row in ASKED])
    assert made[0] == made[1]  # whatever the order of candidates: no time, no seed, no path
    rows = [json.loads(line) for line in made[0][2].splitlines()]
    assert len(rows) == 15
    assert all(row["score_chosen"] >= row["score_rejected"] for row in rows)


def test_what_is_labeled_in_parts_is_what_is_labeled_at_once(ready, monkeypatch):
    """Rows are written as they are made: no part is lost, and all of them have one form."""
    chat = [{"role": "user", "content": "p 5"}]
    ready.write("q.jsonl", [*ASKED, ASKED[0] | {"prompt": chat}])
    whole = []
    for name, size in (("one", 1000), ("two", 2)):
        monkeypatch.setattr(synthesize, "_PROMPTS", size)
        assert ready.run(*MAKE[:-1], name, "--labels", "likely").code == 0
        whole.append((ready / name / "train.jsonl").read_bytes())
    assert whole[0] == whole[1]
    rows = [json.loads(line) for line in whole[0].splitlines()]
    assert [row["prompt"][0]["content"] for row in rows] == [f"p {i}" for i in range(6)]


def test_a_reward_alone_has_no_certificate_unless_its_ledger_is_named(ready):
    (ready / "else").mkdir()
    shutil.copy(ready / "out/reward.json", ready / "else/reward.json")
    words = ["synthesize", "else/reward.json", "q.jsonl", "--out", "made"]
    assert ready.run(*words).code == 0
    assert json.loads((ready / "made/sordino.json").read_text())["certificate"] is None
    assert "Certificate: none" in (ready / "made/README.md").read_text()
    assert ready.run(*words, "--force", "--ledger", "out/spend.db").code == 0
    assert json.loads((ready / "made/sordino.json").read_text())["certificate"]
    sordino.RewardModel.load(ready / "else/reward.json").save_pretrained(ready / "saved")
    assert ready.run("synthesize", "saved", "q.jsonl", "--out", "of_saved").code == 0
    ready.run("init")
    other = ready.run("privatize", "in.jsonl", "--epsilon", "1", "--out", "more.jsonl",
                      "--ledger", "other.db")  # fmt: skip
    assert other.code == 0
    said = ready.run(*words, "--force", "--ledger", "other.db")
    assert said.code == 2
    assert "lacks an entry" in said.err


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"ranking": [1, 0, 2]}, 2, "'ranking' says what somebody preferred"),
        ({"chosen": "yes, then do"}, 2, "'chosen' says what somebody preferred"),
        ({"candidates": ["no", "no"]}, 4, "at least two different"),
        ({"candidates": "no"}, 4, "'candidates' must be a list"),
    ],
)
def test_judgments_and_what_cannot_be_compared_are_refused(ready, change, code, said):
    ready.write("q.jsonl", [ASKED[0] | change])
    before = ready.names()
    answer = ready.run(*MAKE)
    assert answer.code == code
    assert said in answer.err
    assert ready.names() == before


def test_withheld_rewards_private_texts_and_existing_folders_are_refused(ready):
    for noise, name, code, words in (
        (["draws", "--draws", "5"], "hidden", 4, "withheld"),
        (["estimate", "--unit", "record", "--delta", "1e-5"], "records", 2, "--declare-public"),
    ):
        ready.write(f"{name}.jsonl", [pair(index) for index in range(40)])
        made = ready.run("align", f"{name}.jsonl", "--epsilon", "1", "--out", name,
                         "--noise", *noise)  # fmt: skip
        assert made.code == 0, made.err
        said = ready.run("synthesize", name, "q.jsonl", "--out", "made")
        assert (said.code, words in said.err) == (code, True), said.err
        assert not (ready / "made").exists()
    words = ["synthesize", "records", "q.jsonl", "--out", "made", "--declare-public"]
    assert ready.run(*words).code == 0
    assert "is what the maker declared" in (ready / "made/README.md").read_text()
    assert ready.run(*words).code == 2
    assert "exists already" in ready.run(*words).err
