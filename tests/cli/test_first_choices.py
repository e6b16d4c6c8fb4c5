"""Rankings with noise on labels: the first choice of every ballot goes through a die."""

import json
import math

import pytest

import sordino

ITEMS = ["ale", "beer", "milk", "tea"]


def votes(n=120, *, most=1):
    ballots = [
        {"ranking": [ITEMS[3 - (i % 7) // 3], *ITEMS[:1]][: 1 + i % 2], "person": f"p{i // most}"}
        for i in range(n)
    ]
    return [{"items": ITEMS}, *ballots]


def answers(n=60, *, people=20):
    return [
        {
            "prompt": f"ask {i}",
            "candidates": [f"good answer {i}", f"bad one {i}", "well"],
            "ranking": [i % 2, 2],
            "person": f"p{i % people}",
        }
        for i in range(n)
    ]


CELLS = {
    ("items", "label"): (votes, ["--all-offered"]),
    ("items", "person"): (votes, ["--all-offered"]),
    ("texts", "label"): (answers, ["--dimension", "16"]),
    ("texts", "person"): (answers, ["--dimension", "16"]),
}


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_keeps_its_promise_and_is_audited(folder, cell):
    make, words = CELLS[cell]
    folder.write("in.jsonl", make())
    said = ["in.jsonl", "--epsilon", "3", "--unit", cell[1], *words, "--out", "run"]
    plan = folder.run("align", *said, "--dry-run", "--json").value
    done = folder.run("align", *said)
    assert done.code == 0, done.err
    result = json.loads((folder / "run/result.json").read_text())
    promise, told = result["guarantee"], result["mechanism"]
    assert promise == plan["guarantee"]
    assert (promise["unit"], promise["delta"]) == (cell[1], 0.0)
    of_one = 3 if cell == ("texts", "person") else 1  # ballots of a person
    assert promise["epsilon"] <= 3
    assert math.isclose(of_one * told["epsilon_per_label"], promise["epsilon"], rel_tol=1e-12)
    odds = (told["categories"] - 1) * math.exp(-told["epsilon_per_label"])
    assert math.isclose(told["flip_probability"], odds / (1 + odds), rel_tol=1e-12)
    assert result["reward"]["accuracy"] is None
    assert folder.run("audit", "run", "run").code == 0
    reward = sordino.RewardModel.load(folder / "run")
    assert reward.method == "randomized-choice"
    assert "first choices" in (folder / "run/report.html").read_text()


@pytest.mark.parametrize(
    "lie",
    [
        {"flip_probability": 1 / (1 + math.e**2)},  # of a coin, which turns fewer
        {"epsilon_per_label": 1.0, "flip_probability": 3 / (3 + math.e)},
        {"name": "randomized-response"},
    ],
)
def test_an_audit_holds_the_die_against_what_was_paid(folder, lie):
    folder.write("in.jsonl", votes())
    done = folder.run("align", "in.jsonl", "--all-offered", "--epsilon", "2", "--out", "run")
    assert done.code == 0, done.err
    path = folder / "run/result.json"
    result = json.loads(path.read_text())
    result["mechanism"] |= lie
    path.write_text(json.dumps(result))
    assert folder.run("audit", "run", "run").code == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--noise", "draws", "--draws", "1"], 2, "--noise labels"),
        (["--unit", "record"], 2, "protect labels"),
        (["--cap", "1"], 2, "--cap"),
        (["--method", "mixture"], 2, "--method"),
        (["--step-bound", "1"], 2, "it is for trajectories"),
        (["--evaluate", "in.jsonl"], 2, "it is for pairs"),
    ],
)
def test_what_has_no_proof_says_what_comes_nearest(folder, words, code, said):
    folder.write("in.jsonl", votes(12))
    state = folder.state()
    given = ["align", "in.jsonl", "--all-offered", "--epsilon", "1", *words, "--out", "run"]
    refused = folder.run(*given)
    assert (refused.code, said in refused.err) == (code, True), refused.err
    assert folder.state() == state


def test_ballots_of_different_length_go_behind_one_sum(folder):
    rows = [*votes(12), {"ranking": ["tea"], "offered": ["ale", "tea"], "person": "q"}]
    folder.write("in.jsonl", rows)
    given = ["align", "in.jsonl", "--all-offered", "--epsilon", "1", "--out", "run"]
    refused = folder.run(*given)
    assert (refused.code, "--noise estimate" in refused.err) == (4, True)
    assert folder.run(*given, "--noise", "estimate").code == 0


def test_a_call_takes_rankings_and_auto_takes_what_tells_more(tmp_path):
    orders = [[name] for name in (*ITEMS, "tea") * 20]
    ballots = sordino.Rankings.from_orders(ITEMS, orders, offered="all")
    terms = {"epsilon": 2, "simulate_seed": 1}
    found = sordino.align(ballots, **terms, ledger=tmp_path / "a.db")
    assert (found.result["noise"], found.result["items"][0]["name"]) == ("labels", "tea")
    taken = sordino.align(ballots, **terms, noise="auto", ledger=tmp_path / "b.db")
    assert taken.result["noise"] == "estimate"
