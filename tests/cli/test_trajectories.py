"""Trajectories in ``align``: every noise and unit, and what no record may tell."""

import json

import numpy as np
import pytest
from tests.tiers import few

import sordino
from sordino.preferences.trajectories import Trajectories

GENERATOR = np.random.default_rng(7)
TABLE = GENERATOR.uniform(-0.5, 0.5, size=(5, 2, 3))
TASTE = np.array([2.0, -1.5, 0.8])
RECORDS = ["--unit", "record", "--horizon", "4", "--step-bound", "1", "--dimension", "3"]


def walks(n=120, *, size=0.5):
    found = []
    for at in range(n):
        one, other = GENERATOR.uniform(-size, size, size=(2, 4, 3)).round(3)
        won = TASTE @ (one - other).sum(axis=0) > GENERATOR.logistic()
        sides = {"first": one.tolist(), "second": other.tolist()}
        found.append({**sides, "label": int(won), "person": f"p{at % 40}"})
    return found


def visits(n=40):
    found = []
    for _ in range(n):
        states, actions = GENERATOR.integers(0, 5, (2, 4)), GENERATOR.integers(0, 2, (2, 4))
        sides = [
            {"states": one.tolist(), "actions": other.tolist()}
            for one, other in zip(states, actions, strict=True)
        ]
        found.append({"first": sides[0], "second": sides[1], "label": int(states[0, 0] > 1)})
    return found


CELLS = [
    ("labels", "label", ["--no-persons"]),
    ("labels", "person", []),
    ("estimate", "label", ["--no-persons", "--confidence", ".9"]),
    ("estimate", "person", ["--metrics-epsilon", "1"]),
    ("estimate", "record", RECORDS),
]


@pytest.mark.parametrize(("noise", "unit", "words"), few(CELLS, first=3))
def test_every_noise_and_unit_learns_and_keeps_its_promise(folder, noise, unit, words):
    folder.write("walks.jsonl", walks())
    said = ["--epsilon", "2", "--unit", unit, "--noise", noise, *words, "--out", "run"]
    plan = folder.run("align", "walks.jsonl", *said, "--dry-run", "--json")
    assert (plan.code, set(plan.value["forecast"]["kinds"])) == (0, {"labels", "estimate", "draws"})
    done = folder.run("align", "walks.jsonl", *said)
    assert done.code == 0, done.err
    result = json.loads((folder / "run/result.json").read_text())
    assert result["guarantee"] == plan.value["guarantee"]
    told = {name: result["data"][name] for name in ("judged", "horizon", "step_bound")}
    bound = 1.0 if "--step-bound" in words else None
    assert told == {"judged": "trajectories", "horizon": 4, "step_bound": bound}
    assert folder.run("audit", "run", "run").code == 0
    assert sordino.RewardModel.load(folder / "run").weights.shape == (3,)


def test_a_table_is_public_and_one_process_does_it_all(folder):
    folder.write("walks.jsonl", visits())
    np.save(folder / "table.npy", TABLE)
    word = folder.run("inspect", "walks.jsonl", "--json").value["next"]
    assert "--step-features TABLE" in word
    words = word.replace("TABLE", "table.npy").replace(" --dry-run", "").split()[1:]
    done = folder.run(*words, "--drop", "identical", "--simulate-seed", "1")
    assert done.code == 0, done.err
    folder.write("ask.jsonl", [{"prompt": "Which?", "candidates": ["one", "other"]}])
    refused = folder.run("choose", "run", "ask.jsonl")  # among texts, of which it knows nothing
    assert (refused.code, "feature differences" in refused.err) == (2, True), refused.err


def test_a_call_takes_rows_and_what_was_read(tmp_path):
    rows = walks()
    terms = {"epsilon": 2, "noise": "estimate", "simulate_seed": 3}
    found = sordino.align(rows, **terms, no_persons=True, ledger=tmp_path / "a.db")
    steps = [[row[side] for row in rows] for side in ("first", "second")]
    read = Trajectories.from_steps(*steps, [row["label"] for row in rows])
    same = sordino.align(read, **terms, ledger=tmp_path / "b.db")
    assert found.reward.weights.tolist() == same.reward.weights.tolist()
    with pytest.raises(sordino.errors.UsageError, match="step_bound"):
        sordino.align(read, **terms, step_bound=1.0, ledger=tmp_path / "b.db")


def test_no_hidden_trajectory_is_longer_than_was_said_nor_tells_that_it_is_one(folder):
    """Ten million times as long a step moves a fit, its plan and a draw by no more."""
    folder.write("usual.jsonl", walks(30))
    folder.write("long.jsonl", [*walks(29), *walks(1, size=1e7)])
    folder.write("none.jsonl", [])
    said = ["--noise", "estimate", "--epsilon", "2", "--out", "o", "--dry-run", "--json"]
    said += ["--neighbors", "add-remove"]
    refused = folder.run("align", "usual.jsonl", *said, "--unit", "record")
    assert (refused.code, "it has to be said" in refused.err) == (2, True)
    plans = [
        folder.run("align", f"{name}.jsonl", *said, *RECORDS).value
        for name in ("usual", "long", "none")
    ]
    assert plans[0] == plans[1] == plans[2]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--horizon", "3"], 4, "must have 3 steps"),
        (["--step-bound", "0"], 2, "--step-bound must be"),
        (["--dimension", "5"], 2, "a step has 3 features"),
        (["--noise", "draws", "--draws", "1"], 2, "These are vectors"),
        (["--noise", "estimate", "--unit", "record"], 2, "it has to be said"),
        (["--noise", "estimate", "--unit", "record", "--horizon", "4"], 2, "--step-features"),
        (["--noise", "estimate", *RECORDS[:4], "--dimension", "3"], 2, "--bound"),
        (["--noise", "draws", "--unit", "person", "--draws", "1"], 2, "--noise estimate"),
        (["--unit", "record"], 2, "protect labels"),
        (["--step-features", "none.json"], 7, "none.json"),
        (["--step-features", "walks.jsonl"], 2, "must be a table"),
        (["--all-offered"], 2, "only ballots over items"),
        (["--intercept", "one"], 2, "these are trajectories"),
    ],
)
def test_what_cannot_be_met_says_what_can(folder, words, code, said):
    folder.write("walks.jsonl", walks(12))
    state = folder.state()
    people = [] if "--unit" in words else ["--no-persons"]
    words = [*words, *people, "--epsilon", "1", "--out", "run"]
    refused = folder.run("align", "walks.jsonl", *words)
    assert (refused.code, said in refused.err) == (code, True), refused.err
    assert folder.state() == state
