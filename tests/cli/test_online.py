"""``sordino online``: one entry before the first round, and nobody is asked or charged twice."""

import json

import numpy as np
import pytest
from tests.soundness.forgeries import Draft

from sordino import cli
from sordino.environments.annotators import simulate_pairs
from sordino.environments.preference_worlds import LinearPreferences
from sordino.privacy.ledger import Ledger
from sordino.runs.online_run import _Recorded

CANARY = "CANARY"
WORLD = ("online", "linear", "--rounds", 300, "--epsilon", 1, "--simulate-seed", 3, "--out", "run")
DATA = ("online", "in.jsonl", "--rounds", 60, "--epsilon", 1, "--simulate-seed", 3, "--out", "run")
PROJECT = ("--ledger", ".sordino/ledger.db")
PRIVATIZE = ("privatize", "in.jsonl", "--epsilon", 1, "--out", "answers.jsonl", *PROJECT)


@pytest.fixture
def recorded(folder):
    rows = [row | {"extra": CANARY} for row in simulate_pairs(80, seed=1)[0]]
    folder.write("in.jsonl", rows)
    return folder


def spent(folder):
    rows = Ledger.read(folder / ".sordino/ledger.db").rows
    return [row for row in rows if row.kind == "reserve"]


@pytest.mark.parametrize(
    ("words", "learned"),
    [
        (WORLD, "debiased"),
        ((*WORLD[:1], "hard", *WORLD[2:], "--ball", 2), "debiased"),
        ((*WORLD, "--class", "class.jsonl", "--size", 0.5), "finite-class"),
        (DATA, "debiased"),
        ((*DATA, "--class", "class.jsonl", "--exploration", "uniform"), "finite-class"),
    ],
    ids=["linear", "hard", "class", "recorded", "recorded class"],
)
def test_rounds_are_planned_paid_once_learned_and_audited(recorded, words, learned):
    size = 4 if words[1] != "in.jsonl" else 28
    named = {"first": np.eye(size)[0] / 2, "second": -np.eye(size)[0] / 2}
    rows = [{"name": name, "weights": weights.tolist()} for name, weights in named.items()]
    recorded.write("class.jsonl", rows)
    before = recorded.state()
    assert recorded.run(*words, "--dry-run", "--json").value["spend"] == pytest.approx(1)
    assert recorded.state() == before
    told = recorded.run(*words, "--json").value
    assert len(spent(recorded)) == 1
    assert told["guarantee"]["epsilon"] == pytest.approx(1)
    assert told["reward"]["method"] == learned
    unsure = learned == "finite-class" and told["online"]["possible"] == 2
    assert (told["verdict"]["word"] == "too few answers") >= unsure
    assert 0 < told["online"]["asked"] <= told["online"]["rounds"] == words[3]
    assert ("truth" in told) is (words[1] != "in.jsonl")
    assert recorded.run("audit", "run", "run").code == 0
    page = (recorded / "run/report.html").read_text(encoding="utf-8")
    assert "one was asked" in page
    assert CANARY not in page + (recorded / "run/result.json").read_text(encoding="utf-8")


def test_an_interrupted_run_goes_on_where_it_stopped(folder, monkeypatch):
    """What was drawn before is not drawn again, and the end is that of a run in one piece."""
    ask, labels = LinearPreferences.prefer, []

    def prefer(self, contexts, first, second, rng):
        if len(labels) == 40:
            raise KeyboardInterrupt
        labels.append(len(first))
        return ask(self, contexts, first, second, rng)

    whole = folder.run(*WORLD[:-1], "whole", "--data", "other", "--json").value
    monkeypatch.setattr(LinearPreferences, "prefer", prefer)
    assert folder.run(*WORLD).code == 130
    paid, before = spent(folder), sum(labels)
    assert len(paid) == 2
    labels.insert(0, 0)  # it is not stopped again
    after = folder.run(*WORLD, "--resume", "--json")
    assert after.code == 0, after.err
    assert spent(folder) == paid
    assert sum(labels) == whole["online"]["asked"] == after.value["online"]["asked"] > before > 0
    rewards = [json.loads((folder / name / "reward.json").read_text()) for name in ("whole", "run")]
    assert rewards[0].pop("release_ids") != rewards[1].pop("release_ids")
    assert rewards[0] == rewards[1]
    assert (whole["online"], whole["truth"]) == (after.value["online"], after.value["truth"])


def test_recorded_judgments_are_randomized_once_and_asked_once(recorded):
    told = recorded.run(*DATA, "--json").value
    again = recorded.run(*PRIVATIZE)
    assert again.code == 3, again.err  # the labels were paid for, asked or not
    assert told["online"]["asked"] < 60
    said = recorded.run(*DATA, "--rounds", 81, "--force")
    assert (said.code, "80 judgments are recorded" in said.err) == (2, True)
    world = _Recorded(texts=np.zeros((3, 2, 1)), answers=np.array([1, 0, 1]), feature_bound=1.0)
    assert world.recorded(np.array([0, 1, 2]), np.array([0, 0, 1])).tolist() == [1, 0, 0]


def test_answers_that_are_randomized_already_cost_nothing(recorded):
    assert recorded.run("init").code == 0
    assert recorded.run(*PRIVATIZE).code == 0
    paid = len(spent(recorded))
    told = recorded.run("online", "answers.jsonl", "--rounds", 60, "--out", "run", "--json").value
    assert len(spent(recorded)) == paid
    assert told["mechanism"]["epsilon_per_label"] == pytest.approx(1)
    assert recorded.run("audit", "run", "run").code == 0


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ((*WORLD[:1], "marsh", *WORLD[2:]), 2, "no world and no file"),
        (("online", "hard", *WORLD[2:], "--size", 1), 2, "of the world linear"),
        ((*WORLD, "--unit", "person"), 2, "not told apart"),
        ((*WORLD, "--unit", "record"), 2, "labels, not records"),
        ((*WORLD, "--temperature", 0), 2, "temperature"),
        ((*WORLD, "--class", "class.jsonl"), 4, "this world has 4 features"),
        ((*WORLD, "--budget", 0.5), 3, "over the budget"),
        (("online", "linear", "--out", "run"), 2, "--epsilon is needed"),
        ((*DATA, "--class", "scores.csv"), 4, "no score of the answer"),
        ((*DATA, "--resume"), 2, "nothing to finish"),
    ],
)
def test_what_cannot_be_asked_asks_nobody(recorded, words, code, why):
    recorded.write("class.jsonl", [{"name": "a", "weights": [0.5]}])
    recorded.write("scores.csv", ["prompt,completion,a", "x,y,0.5"])
    said = recorded.run(*words)
    assert (said.code, why in said.err) == (code, True), said.err
    assert not (recorded / "run").exists()
    assert not (recorded / ".sordino").exists() or not spent(recorded)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    home = tmp_path_factory.mktemp("online")
    words = ["online", "linear", "--rounds", 200, "--epsilon", 1, "--scale", 0.5]
    words += ["--out", home / "run", "--ledger", home / "spend.db"]
    assert cli.run(list(map(str, words))) == 0
    return home


TAMPERED = {
    "more rounds": (("online", "rounds"), 400),
    "more that were asked": (("online", "asked"), 199),
    "a proved bonus": (("online", "heuristic"), False),
    "a full bonus": (("online", "scale"), 1.0),
    "a smaller loss": (("mechanism", "epsilon_per_label"), 0.5),
    "a truth of people": (("online", "world"), None),
    "more flips": (("mechanism", "flip_probability"), 0.4),
}


@pytest.mark.parametrize(("path", "value"), TAMPERED.values(), ids=TAMPERED)
def test_a_value_of_the_rounds_that_was_changed_is_refuted(audited, path, value, tmp_path):
    draft = Draft(audited / "run", tmp_path, ledger=audited / "spend.db")
    assert draft.refuted_by() == ()
    draft.change("result.json", *path, to=value)
    assert draft.refuted_by() == ("mechanism",)


def test_a_weak_promise_that_was_accepted_stays_with_the_result(folder):
    words = ("online", "linear", "--rounds", 40, "--epsilon", 25, "--out", "run", "--json")
    assert folder.run(*words).code == 2
    told = folder.run(*words, "--accept-weak").value
    assert "weak-promise" in told["caveats"]
    assert folder.run("audit", "run", "run").code == 0
