"""A policy from users of a file: what is promised, refused, resumed, written, and audited."""

import json
import shutil

import numpy as np
import pytest

from sordino import cli
from sordino._files import sha256_of
from sordino.algorithms import policy_optimization
from sordino.auditing.compliance import Compliance
from sordino.auditing.runs.replay import audit_run
from sordino.errors import DataError
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import digest_of_json

from .conftest import CANARY, Folder, refused

RUN = ["optimize", "users.jsonl", "--reward-range", "0", "1", "--epsilon", "1", "--batches", "4",
       "--out", "out"]  # fmt: skip
LEDGER = ["--ledger", "spend.db"]


def users(n=400, **more):
    """People for whom the first of two actions is right where their context is above 0."""
    generator = np.random.default_rng(0)
    for number in range(n):
        x = float(generator.uniform(-1, 1))
        rewards = [0.5 + x / 2, 0.5 - x / 2]
        yield {"person": f"{CANARY}{number}", "context": [x], "rewards": rewards, **more}


@pytest.fixture
def ready(folder):
    folder.write("users.jsonl", users())
    return folder


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run, made once."""
    home = Folder(tmp_path_factory.mktemp("optimized"), None)
    home.write("users.jsonl", users())
    return home, home.value_of(*RUN, *LEDGER, "--json")


def result_of(folder):
    return json.loads((folder / "out/result.json").read_text("utf-8"))


def test_a_run_promises_what_its_worst_batch_spent(done):
    home, told = done
    assert told == result_of(home)
    assert home.names() - {"users.jsonl"} == {
        "out/result.json", "out/policy.json", "out/report.html", "spend.db",
    }  # fmt: skip
    ledger = Ledger.read(home / "spend.db")
    assert len(ledger.spends) == 4
    assert len({row.scope for row in ledger.spends}) == 4
    assert told["guarantee"]["epsilon"] == ledger.total().epsilon <= 1
    assert (told["guarantee"]["unit"], told["noise"]) == ("person", "per-update")
    assert "declared-disjoint" in told["caveats"]
    first, second = told["trained"]["weights"]
    assert first > second  # it learned
    assert told["truth"] is None
    everything = "".join((home / name).read_text("utf-8") for name in (
        "out/result.json", "out/policy.json", "out/report.html"))  # fmt: skip
    assert CANARY not in everything


def test_a_dry_run_touches_nothing_and_says_what_the_run_spends(ready):
    before = ready.state()
    plan = ready.run(*RUN, *LEDGER, "--dry-run", "--json")
    assert (plan.code, ready.state()) == (0, before)
    assert (plan.value["users"], plan.value["batches"]) == (400, 4)
    assert 0.99 < plan.value["spend"] <= 1
    private, plain = (plan.value["foreseen"][key] for key in ("private", "without_privacy"))
    assert 0 < plain < private
    said = ready.run(*RUN, *LEDGER, "--dry-run")
    assert "in a made-up world of these sizes" in " ".join(said.out.split())


MISTAKES = {
    "nothing": (["optimize", "--epsilon", "1", "--out", "out"], 2, "Either a file"),
    "both": ([*RUN, "--world", "sphere"], 2, "Either a file"),
    "no range": (
        ["optimize", "users.jsonl", "--epsilon", "1", "--out", "out"], 2, "--reward-range"),
    "relation": ([*RUN, "--neighbors", "add-remove"], 2, "other batches"),
    "too many": ([*RUN, "--users", "401"], 2, "400 persons"),
    "batches": ([*RUN, "--batches", "401"], 2, "batches"),
    "bound": ([*RUN, "--gradient-bound", "1"], 2, "--update pg"),
    "a world of nothing": (
        ["optimize", "--world", "here:There", "--epsilon", "1", "--out", "out"], 2, "here:There"),
    "a world's range": (
        ["optimize", "--world", "sphere", "--reward-range", "0", "1", "--epsilon", "1", "--out",
         "out"], 2, "states its own bounds"),
    "budget": ([*RUN, "--budget", "0.5"], 3, "BudgetExceeded"),
    "no file": (["optimize", "none.jsonl", *RUN[2:]], 7, "cannot be read"),
    "no persons": ([*RUN, "--person-field", "who"], 4, "two slots"),
    "nothing to resume": ([*RUN, "--resume"], 2, "nothing to finish"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "code", "said"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_spend_nothing(ready, words, code, said):
    refused(ready, [*words, *LEDGER], code, said)


def interrupt(monkeypatch, at, where):
    """Stop the run in a batch, before or after its update was kept."""
    written = policy_optimization._RunState.write
    made = policy_optimization._RegressionUpdate.direction

    def write(state, path):
        written(state, path)
        if where == "kept" and len(state.steps) == at:
            raise KeyboardInterrupt

    def direction(update, batch, *, entropy):
        if where == "paid" and direction.count == at - 1:
            raise KeyboardInterrupt
        direction.count += 1
        return made(update, batch, entropy=entropy)

    direction.count = 0
    monkeypatch.setattr(policy_optimization._RunState, "write", write)
    monkeypatch.setattr(policy_optimization._RegressionUpdate, "direction", direction)


@pytest.mark.parametrize(("where", "entries"), [("kept", 4), ("paid", 5)])
def test_a_run_that_was_stopped_goes_on_and_pays_nothing_twice(ready, monkeypatch, where, entries):
    """Of a batch that was paid for, and whose noise nobody can show to be unseen, it pays again."""
    with monkeypatch.context() as patched:
        interrupt(patched, 3, where)
        assert ready.run(*RUN, *LEDGER).code == 130
    assert ready.names() == {"users.jsonl", "out/.checkpoint.json", "spend.db"}
    kept = json.loads((ready / "out/.checkpoint.json").read_text("utf-8"))["steps"]
    assert len(kept) == (3 if where == "kept" else 2)
    again = [*RUN, *LEDGER, "--resume"]
    if where == "paid":
        assert ready.run(*again).code == 3
        again += ["--budget", "2"]
    assert ready.run(*again).code == 0
    ledger, told = Ledger.read(ready / "spend.db"), result_of(ready)
    assert len(ledger.spends) == entries
    steps = json.loads((ready / "out/policy.json").read_text("utf-8"))["steps"]
    assert steps[: len(kept)] == kept
    assert (told["guarantee"]["epsilon"] <= 1) == (where == "kept")
    assert told["guarantee"]["epsilon"] == ledger.total().epsilon
    assert not (ready / "out/.checkpoint.json").exists()
    assert audit_run(ready / "out", ledger=ready / "spend.db").verdict == "not refuted"


def test_a_run_goes_on_only_with_everybody_in_the_same_slot(ready, monkeypatch):
    """Else a person whose batch is over could be in a later one, and only one batch counts."""
    with monkeypatch.context() as patched:
        interrupt(patched, 2, "kept")
        assert ready.run(*RUN, *LEDGER).code == 130
    rows = list(users())
    ready.write("users.jsonl", rows[200:] + rows[:200])
    said = ready.run(*RUN, *LEDGER)
    assert (said.code, "another persons" in said.err) == (2, True)
    assert len(Ledger.read(ready / "spend.db").spends) == 2


def test_the_truth_of_a_made_up_world_is_told(folder):
    words = ["optimize", "--world", "dosing", "--users", "2000", "--batches", "5", "--epsilon", "2",
             "--update", "rebel", "--oracle", "adaptive-statistics", "--out", "out"]  # fmt: skip
    assert folder.run(*words, "--simulate-seed", "0", *LEDGER).code == 0
    told = result_of(folder)
    losses = told["truth"]["suboptimality"]
    assert len(losses) == 6
    assert losses[-1] == told["truth"]["output"] < losses[0]
    unusable = told["verdict"]["word"] == "not better than a guess"
    assert ("less than half may be" in told["verdict"]["says"]) == unusable
    assert "simulated" in told["caveats"]
    (folder / "mine.py").write_text("from sordino.environments.linear_worlds import Sphere\n"
                                    "class World(Sphere): pass\n")  # fmt: skip
    own = ["optimize", "--world", "mine:World", "--users", "40", "--batches", "2", "--epsilon", "2"]
    assert folder.run(*own, "--out", "own", *LEDGER, "--budget", "9").code == 0
    # of a world of one's own nobody knows whether its truth is private
    assert json.loads((folder / "own/result.json").read_text("utf-8"))["truth"] is None


FORGED = {
    "epsilon": ("result.json", ["guarantee", "epsilon"], 0.5, {"claim"}),
    "mechanism": ("result.json", ["mechanism", "epsilon"], 0.5, {"mechanism"}),
    "update": ("result.json", ["mechanism", "name"], "rebel", {"mechanism"}),
    "caveats": ("result.json", ["caveats"], [], {"caveats"}),
    "weights": ("result.json", ["trained", "weights", 0], 3.5, {"mechanism"}),
    "coverage": ("result.json", ["trained", "coverage"], 1.0, {"mechanism"}),
    "truth": ("result.json", ["truth"], {"suboptimality": [0.5], "output": 0.1}, {"mechanism"}),
    "head": ("result.json", ["certificate", "ledger", "head"], "0" * 64, {"head"}),
    "spent": ("result.json", ["spent", "person", "epsilon"], 0.1, {"totals"}),
    "an update": ("policy.json", ["steps", 1, "weights", 0], 0.25, {"mechanism"}),
    "an entry": ("policy.json", ["steps", 1, "release_id"], "f" * 16, {"mechanism"}),
    "paid": ("policy.json", ["release_ids"], None, {"entries"}),
    "promise": ("policy.json", ["guarantee", "epsilon"], 0.5, {"claim"}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "path", "value", "by"), FORGED.values(), ids=FORGED)
def test_what_does_not_follow_from_the_ledger_is_refuted(done, tmp_path, name, path, value, by):
    home, _ = done
    shutil.copytree(home / "out", tmp_path / "out")
    whole = json.loads((tmp_path / "out" / name).read_text("utf-8"))
    held = whole
    for step in path[:-1]:
        held = held[step]
    held[path[-1]] = held[path[-1]][:-1] if value is None else value
    if name == "policy.json":  # as a careful forger would
        state = policy_optimization._state_of(whole)
        whole["weights"] = state.policy.weights.tolist()
    write(tmp_path / "out" / name, whole)
    if name == "policy.json":
        result = json.loads((tmp_path / "out/result.json").read_text("utf-8"))
        policy = policy_optimization.Run.load(tmp_path / "out/policy.json")
        result["trained"] = policy.told
        result["policy_sha256"] = sha256_of(tmp_path / "out/policy.json")
        result["certificate"]["digest"] = digest_of_json(whole)
        write(tmp_path / "out/result.json", result)
    found = audit_run(tmp_path / "out", ledger=home / "spend.db")
    assert by <= set(found.refuted_by)


@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_a_loss_that_is_no_number_is_malformed(done, tmp_path, name):
    """Nothing is less than NaN, whatever was paid for."""
    home, _ = done
    shutil.copytree(home / "out", tmp_path / "out")
    whole = json.loads((tmp_path / "out/result.json").read_text("utf-8"))
    whole["mechanism"][name] = "nan"
    write(tmp_path / "out/result.json", whole)
    with pytest.raises(DataError, match="missing or malformed"):
        audit_run(tmp_path / "out", ledger=home / "spend.db")


def write(path, whole):
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def test_the_page_and_the_audit_are_made_again(done, tmp_path, monkeypatch):
    home, _ = done
    page = tmp_path / "again.html"
    monkeypatch.chdir(home.path)
    assert cli.run(["report", "out", "--out", str(page), *LEDGER]) == 0
    assert page.read_bytes() == (home / "out/report.html").read_bytes()
    assert "How the policy was improved" in page.read_text("utf-8")
    assert cli.run(["audit", "run", "out", *LEDGER]) == 0


def test_a_check_knows_what_paid_for_the_policy(done):
    home, _ = done
    found = Compliance.of(home / "out", home / "spend.db", None)
    assert [(file.name, file.state) for file in found.artifacts] == [
        ("policy.json", "met"), ("result.json", "met"),
    ]  # fmt: skip
    assert all(len(file.entries) == 4 for file in found.artifacts)
