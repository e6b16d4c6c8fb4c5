"""A plan by compared trajectories, or by a released reward: paid once, certified, and audited."""

import json
import shutil

import numpy as np
import pytest

from sordino.auditing.compliance import Compliance
from sordino.auditing.runs.replay import audit_run
from sordino.privacy.ledger import Ledger

from .conftest import CANARY, Folder, refused

MOVES = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.9, 0.1], [0.1, 0.9]]])  # states, actions, states
WORLD = {
    "transitions": MOVES.tolist(), "features": [[[0.0], [0.0]], [[1.0], [1.0]]], "initial": 0,
    "horizon": 3,
}  # fmt: skip
RUN = ["plan", "said.jsonl", "--world", "world.json", "--epsilon", "2", "--ball", "2", "--out",
       "out"]  # fmt: skip
LEDGER = ["--ledger", "spend.db"]


def said(n):
    """Whoever was longer in state 1 went better; 2,000 say so clearly, 60 do not."""
    generator = np.random.default_rng(0)
    for number in range(n):
        few, many = sorted(generator.choice(4, 2, replace=False).tolist())
        sides = [{"states": [1] * k + [0] * (3 - k), "actions": [0] * 3} for k in (many, few)]
        person = f"{CANARY}{number}"
        yield {"chosen": sides[0], "rejected": sides[1], "person": person}


def prepared(home, n=2000):
    home.write("said.jsonl", said(n))
    (home / "world.json").write_text(json.dumps(WORLD), encoding="utf-8")
    rows = [f"{s},{a},{t},{MOVES[s, a, t]}" for s in range(2) for a in range(2) for t in range(2)]
    text = "\n".join(["state,action,next,probability", *rows])
    (home / "world.csv").write_text(f"{text}\n", encoding="utf-8")
    return home


@pytest.fixture
def ready(folder):
    return prepared(folder)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished plan, made once."""
    home = prepared(Folder(tmp_path_factory.mktemp("planned"), None))
    return home, home.value_of(*RUN, *LEDGER, "--json")


def result_of(folder, name="out"):
    return json.loads((folder / name / "result.json").read_text("utf-8"))


def test_a_plan_is_paid_for_once_and_certain(done):
    home, told = done
    assert told == result_of(home)
    files = {"report.html", "result.json", "reward.json", "plan.json"}
    assert {path.name for path in (home / "out").iterdir()} == files
    (row,) = Ledger.read(home / "spend.db").spends
    assert (row.count, told["guarantee"]["unit"], told["noise"]) == (1, "label", "estimate")
    plan = told["plan"]
    assert not plan["vacuous"]
    assert 0 < plan["value"] <= plan["upper"] <= plan["value"] + plan["gap"] * (1 + 1e-9)
    assert plan["suboptimality"] > 0
    policy = np.array(json.loads((home / "out/plan.json").read_text("utf-8"))["policy"])
    assert policy.shape == (3, 2, 2)
    assert policy[0, 0, 1] > 0.99  # towards state 1
    assert CANARY not in "".join((home / "out" / name).read_text("utf-8") for name in files)
    page = (home / "out/report.html").read_text("utf-8")
    assert "What the plan rests on" in page
    assert "every trajectory, step by step" in page  # of which there are no prompts
    assert "prompts and the answers" not in page


def test_what_was_released_is_planned_with_for_nothing(done, folder):
    home, _ = done
    shutil.copytree(home.path, folder.path, dirs_exist_ok=True)
    before = (folder / "spend.db").read_bytes()
    again = ["plan", "out", "--world", "world.json", "--out", "again", *LEDGER]
    plan = folder.run(*again, "--dry-run", "--json")
    assert (plan.code, plan.value["spend"]) == (0, 0.0)
    assert folder.run(*again, "--scale", "0.5").code == 0
    told, first = result_of(folder, "again"), result_of(folder)
    assert (folder / "spend.db").read_bytes() == before
    assert told["guarantee"] == first["guarantee"]
    assert told["plan"]["value"] > first["plan"]["value"]
    assert "Heuristic" in told["verdict"]["says"]
    page = (folder / "again/report.html").read_text("utf-8")
    assert "by a heuristic (0.5 of the proved radius)" in page
    assert audit_run(folder / "again", ledger=folder / "spend.db").verdict == "not refuted"
    table = [*again[:3], "world.csv", "--horizon", "3", "--initial", "0", "--out", "other", *LEDGER]
    refused(folder, table, 2, "features is missing")  # of four, and the reward has one
    assert folder.run(*again, "--epsilon", "1", "--force").code == 2


@pytest.mark.parametrize("noise", ["estimate", "labels"])
def test_of_too_few_answers_it_is_said_how_many_would_do(folder, noise):
    prepared(folder, 60)
    assert folder.run(*RUN, *LEDGER, "--noise", noise).code == 0
    told = result_of(folder)
    assert told["plan"]["vacuous"]
    assert told["verdict"]["word"] == "too few answers"
    assert 60 < told["plan"]["answers_needed"] == told["verdict"]["answers_needed"]
    policy = json.loads((folder / "out/plan.json").read_text("utf-8"))["policy"]
    assert np.allclose(policy, 0.5, atol=0.01)  # the reference
    assert audit_run(folder / "out", ledger=folder / "spend.db").verdict == "not refuted"


MISTAKES = {
    "no epsilon": ([*RUN[:4], "--out", "out"], 2, "--epsilon is needed"),
    "no horizon": ([*RUN[:3], "world.csv", *RUN[4:]], 2, "--horizon is needed"),
    "another horizon": ([*RUN, "--horizon", "4"], 4, "4 steps"),
    "no such world": ([*RUN[:3], "none.json", *RUN[4:]], 7, "none.json"),
    "no world": ([*RUN[:3], "said.jsonl", *RUN[4:]], 4, "cannot be used as a world"),
    "cap": ([*RUN, "--cap", "1"], 2, "--unit person"),
    "records": ([*RUN, "--unit", "record"], 2, "record"),
    "budget": ([*RUN, "--budget", "0.5"], 3, "BudgetExceeded"),
    "confidence": ([*RUN, "--confidence", "1"], 2, "--confidence"),
    "no reward": (["plan", "here", *RUN[2:]], 7, "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "code", "text"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_spend_nothing(ready, words, code, text):
    refused(ready, [*words, *LEDGER], code, text)


def test_no_mistake_says_which_of_two_went_better(ready):
    steps, visits = [[1.0]] * 3, {"states": [0] * 3, "actions": [0] * 3}
    told = set()
    for sides in ((steps, visits), (visits, steps)):
        ready.write("said.jsonl", [dict(zip(("chosen", "rejected"), sides, strict=True))])
        told.add(ready.run(*RUN, *LEDGER).err)
    assert len(told) == 1
    assert "states" in told.pop()


def test_a_dry_run_says_what_the_run_spends(ready):
    before = ready.state()
    plan = ready.run(*RUN, *LEDGER, "--dry-run", "--json")
    assert (plan.code, plan.value["pairs"]) == (0, 2000)
    assert plan.value["spend"] == pytest.approx(2)
    assert ready.state() == before


FORGED = {
    "value": ("result.json", ["plan", "value"], 1.5),
    "suboptimality": ("result.json", ["plan", "suboptimality"], 0.0),
    "vacuous": ("result.json", ["plan", "vacuous"], True),
    "confidence": ("result.json", ["plan", "confidence"], 0.99),
    "ball": ("result.json", ["plan", "ball"], 20.0),
    "policy": ("plan.json", ["policy", 0, 0], [1.0, 0.0]),
    "world": ("plan.json", ["world", "transitions", 0, 1], [0.0, 1.0]),
    "bound": ("plan.json", ["theta", 0], 0.0),
    "epsilon": ("result.json", ["guarantee", "epsilon"], 0.5),
    "own value": ("plan.json", ["value"], 1.5),
    "own epsilon": ("plan.json", ["guarantee", "epsilon"], 0.5),
    "own label": ("plan.json", ["label"], "heuristic"),
    "no plan": ("result.json", ["plan"], None),
}  # fmt: skip


@pytest.mark.parametrize(("name", "path", "value"), FORGED.values(), ids=FORGED)
def test_a_plan_that_is_worth_less_than_is_told_is_refuted(done, tmp_path, name, path, value):
    home, _ = done
    shutil.copytree(home / "out", tmp_path / "out")
    file = tmp_path / "out" / name
    held = whole = json.loads(file.read_text("utf-8"))
    for step in path[:-1]:
        held = held[step]
    held[path[-1]] = value
    if value is None:
        del held[path[-1]]
    file.write_text(json.dumps(whole), encoding="utf-8")
    found = audit_run(tmp_path / "out", ledger=home / "spend.db")
    where = "claim" if (name, path[0]) == ("result.json", "guarantee") else "mechanism"
    assert where in found.refuted_by


def test_a_check_knows_what_paid_for_the_plan(done):
    home, _ = done
    found = Compliance.of(home / "out", home / "spend.db", None)
    told = {file.name: file.state for file in found.artifacts}
    assert told == {"plan.json": "met", "result.json": "met", "reward.json": "met"}
    forged = json.loads((home / "out/plan.json").read_text("utf-8"))
    forged["guarantee"]["epsilon"] = 0.5
    shutil.copytree(home / "out", home / "forged")
    (home / "forged/plan.json").write_text(json.dumps(forged), encoding="utf-8")
    found = Compliance.of(home / "forged", home / "spend.db", None)
    assert next(file.state for file in found.artifacts if file.name == "plan.json") == "not met"
