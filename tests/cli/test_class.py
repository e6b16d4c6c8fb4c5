"""``sordino align --class``: the likeliest of public candidates, and nothing that is not so."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.architecture.test_readme import blocks, run_bash
from tests.soundness.forgeries import Draft
from tests.tiers import few

import sordino
from sordino import cli
from sordino.environments.annotators import simulate_pairs
from sordino.rewards.confidence import DisagreementSet
from sordino.rewards.finite import FiniteRewards

N = 400
ALIGN = ("align", "in.jsonl", "--class", "class.csv", "--epsilon", 2, "--simulate-seed", 1)


@pytest.fixture
def ready(folder):
    """Pairs of simulated people, and scores of every answer by the truth and by others."""
    rows, truth = simulate_pairs(N, seed=1)
    rows = list(rows)
    folder.write("in.jsonl", rows)
    texts = dict.fromkeys(
        (row["prompt"], row[side]) for row in rows for side in ("chosen", "rejected")
    )
    told = ["prompt,completion,truth,long,flat"]
    for prompt, answer in texts:
        worth = 0.5 + float(truth.score([answer])[0]) / 8
        told.append(f'"{prompt}","{answer}",{worth!r},{len(answer) / 1000!r},0.5')
    folder.write("class.csv", told)
    return folder


@pytest.mark.deep
def test_the_likeliest_candidate_is_told_chosen_with_and_audited(ready):
    told = ready.process(*ALIGN, "--confidence", 0.9, "--out", "run", "--json").value
    pairs = sordino.read_pairs(ready / "in.jsonl")
    known = FiniteRewards.read(ready / "class.csv")
    ledger = sordino.Ledger.open(
        ready / "again.db", data="x", budget=sordino.Guarantee.from_dict(told["guarantee"])
    )
    coin = sordino.RandomizedResponse(2.0)
    fitted = known.fit(sordino.privatize(pairs, coin, ledger=ledger, simulate_seed=1))
    likely = dict(told["class"]["likeliest"])
    names = [name for name, _ in told["class"]["likeliest"]]
    assert names[0] == known.names[int(np.argmax(fitted.weights))] == "truth"
    np.testing.assert_allclose([likely[name] for name in known.names], fitted.statistic)
    reward = sordino.RewardModel.load(ready / "run/reward.json", features=known)
    whole = fitted.ellipsoid
    assert isinstance(reward.ellipsoid, DisagreementSet)
    np.testing.assert_allclose(reward.ellipsoid.spread, whole.spread, atol=1e-12)
    assert reward.ellipsoid.radius(0.9) == pytest.approx(whole.radius(0.9))
    assert told["class"]["possible"] == 3  # of so few answers nothing is sure
    asked = {"prompt": pairs.prompts[0], "candidates": [pairs.first[0], pairs.second[0]]}
    ready.write("ask.jsonl", [asked])
    drawn = ready.run("choose", "run", "ask.jsonl", "--class", "class.csv", "--json").value
    policy = sordino.pessimistic_policy(fitted, temperature=0.5, confidence=0.9)
    chances = policy.probabilities([asked["prompt"]], [asked["candidates"]])[0]
    assert np.isclose(drawn["choices"][0]["probability"], chances).any()
    assert ready.run("audit", "run", "run").code == 0
    page = (ready / "run/report.html").read_text(encoding="utf-8")
    assert "truth, of 3 candidates" in page


OTHER = {
    "another candidate is chosen": ("weights", "reward.json", [0.0, 1.0, 0.0]),
    "another likelihood": (("class", "likeliest", 0, 1), "result.json", -1.0),
    "another name": (("class", "likeliest", 0, 0), "result.json", "long"),
    "fewer that are possible": (("class", "possible"), "result.json", 1),
}


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    home = tmp_path_factory.mktemp("class")
    rows, _ = simulate_pairs(60, seed=1)
    (home / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ("brevity", "sentences", "commas")
    lines = [json.dumps({"name": name, "weights": {name: 0.4}}) + "\n" for name in names]
    (home / "class.jsonl").write_text("".join(lines))
    words = ["--class", home / "class.jsonl", "--epsilon", 2, "--confidence", 0.9]
    words += ["--ledger", home / "spend.db"]
    assert cli.run(list(map(str, ["align", home / "in.jsonl", *words, "--out", home / "run"]))) == 0
    return home / "run"


@pytest.mark.parametrize(("path", "name", "value"), OTHER.values(), ids=OTHER)
def test_what_does_not_follow_from_the_answers_is_refuted(audited, path, name, value, tmp_path):
    draft = Draft(audited, tmp_path, ledger=audited.parent / "spend.db")
    assert draft.refuted_by() == ()
    if name == "reward.json":
        best = int(np.argmax(draft.read(name)["weights"]))
        value = np.roll(np.eye(3)[best], 1).tolist()
        path = ("weights",)
    draft.change(name, *path, to=value)
    if name == "reward.json":  # and the result follows, as a careful forger would have it
        names, chosen = draft.read("reward.json")["features"]["names"], int(np.argmax(value))
        told = draft.read("result.json")["class"]["likeliest"]
        told.sort(key=lambda row: row[0] != names[chosen])
        draft.change("result.json", "class", "likeliest", to=told)
        assert {"digests", "mechanism"} == set(draft.refuted_by())
    else:
        assert draft.refuted_by() == ("mechanism",)


BAD = {
    "a score beyond 1": ("prompt,completion,a\nx,y,1.5", (), 4, "in [0, 1]"),
    "a score that is missing": ("prompt,completion,a\nx,y,0.5", (), 4, "no score of the answer"),
    "a score twice": ("prompt,completion,a\nx,y,0.5\nx,y,0.6", (), 4, "twice"),
    "a text for a score": ("prompt,completion,a\nx,y,good", (), 4, "finite number"),
    "no candidate": ("prompt,completion\nx,y", (), 4, "rows of prompt, completion"),
    "weights that are too long": ('{"name": "a", "weights": [1, 2]}', (), 4, "at most 0.5"),
    "two of one name": ('{"name": "a", "weights": [0]}\n' * 2, (), 4, "new name"),
    "a signal that does not exist": ('{"name": "a", "weights": {"b": 1}}', (), 4, "new name"),
    "another noise": (None, ("--noise", "draws", "--draws", 3), 2, "no way"),
    "a ridge": (None, ("--ridge", 2), 2, "one of them is taken as it is"),
    "a ball": (None, ("--ball", 2), 2, "one of them is taken as it is"),
    "no such file": (None, ("--class", "none.csv"), 7, "cannot be read"),
}


@pytest.mark.parametrize(("text", "more", "code", "why"), BAD.values(), ids=BAD)
def test_a_class_that_cannot_be_meant_spends_nothing(ready, text, more, code, why):
    if text is not None:
        (ready / "bad.jsonl" if text[0] == "{" else ready / "bad.csv").write_text(text + "\n")
        more = ("--class", "bad.jsonl" if text[0] == "{" else "bad.csv")
    before = ready.state()
    said = ready.run(*ALIGN, *more, "--out", "run")
    assert (said.code, why in said.err) == (code, True), said.err
    assert ready.state() == before


def test_without_its_class_a_reward_scores_nothing(ready):
    assert ready.run(*ALIGN, "--out", "run").code == 0
    ready.write("ask.jsonl", [{"prompt": "x", "candidates": ["a", "b"]}])
    said = ready.run("choose", "run", "ask.jsonl")
    assert (said.code, "names alone" in said.err) == (2, True)
    (ready / "class.csv").write_text("prompt,completion,truth,long,flat\nx,a,0,0,0\nx,b,0,0,1\n")
    said = ready.run("choose", "run", "ask.jsonl", "--class", "class.csv")
    assert (said.code, "not the features of the file" in said.err) == (4, True)


@pytest.mark.parametrize(
    ("page", "section"),
    few(
        [("local.md", "Finite reward class"), ("policy_optimization.md", "Online alignment")],
        first=1,
    ),
)
def test_the_examples_of_the_documents_run(folder, page, section):
    text = (Path(__file__).parents[2] / "docs" / page).read_text("utf-8")
    [(language, script)] = blocks(text.partition(f"## {section}\n")[2].partition("\n## ")[0])
    assert (language, len(script.splitlines()) <= 10) == ("bash", True)
    assert run_bash(script, folder.path) == (0, None)
