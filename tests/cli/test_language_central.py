"""Training on raw judgments from the command line: what is paid, refused, told and gone on with."""

import json
from contextlib import suppress

import pytest

from sordino.privacy.ledger import Ledger

from .conftest import kind_rows, refused

pytest.importorskip("trl", reason="the extra 'language' is not installed")

CENTRAL = ["--noise", "updates", "--units", "60", "--steps", "4", "--batch", "8", "--epsilon", "2"]
START = ["in.jsonl", "--model", "tiny", "--out", "made"]
REWARD, DPO = (["language", name, *START, *CENTRAL] for name in ("reward", "dpo"))


def owned(n=60):
    """Raw records of seven people whose preferred answers are kind."""
    return [{**row, "person": f"p{at % 7}"} for at, row in enumerate(kind_rows(n))]


@pytest.mark.deep
@pytest.mark.parametrize(("command", "kind"), [(REWARD, "reward"), (DPO, "policy")])
def test_a_checkpoint_is_paid_for_and_carries_its_promise(ready, command, kind):
    said = ready.run(*command, "--json")
    assert (said.code, said.err) == (0, "")
    told = said.value["guarantee"]
    wanted = ("record", "ADD_OR_REMOVE_ONE", "central", 1e-6)
    assert tuple(told[name] for name in ("unit", "neighbors", "trust", "delta")) == wanted
    assert 1.99 < told["epsilon"] <= 2.0
    assert said.value["caveats"] == ["person-group", "real-arithmetic", "timing"]
    ledger = Ledger.read(ready / "made.spend.db")
    assert said.value["ledger"] == {"head": ledger.head.digest, "rows": ledger.head.rows}
    assert (ledger.budget.unit, ledger.budget.neighbors.name) == wanted[:2]
    promise = json.loads((ready / "made/sordino.json").read_text())
    assert (promise["kind"], promise["guarantee"]) == (kind, told)
    (source,) = promise["sources"]
    assert source["release_ids"] == [row.release_id for row in ledger.spends]
    assert not list((ready / "made").glob("*.db"))  # a checkpoint is published as a whole


def test_nothing_is_told_that_was_computed_from_the_pairs(ready):
    """Two files that differ in number, one with a pair that says nothing: all told is equal."""
    told, logs = [], []
    same = {"prompt": "p", "chosen": "kind", "rejected": "kind"}
    for records, out in ((kind_rows(), "one"), ([*kind_rows(23), same], "two")):
        ready.write("in.jsonl", records)
        said = ready.run(*REWARD, "--out", out, "--json")
        assert said.code == 0, said.err
        told.append({name: at for name, at in said.value.items() if name != "ledger"})
        logs.append((ready / out / "training_log.json").read_text())
    assert told[0] == told[1]
    assert logs[0] == logs[1]
    assert not {"loss", "pairs", "accuracy", "seconds"} & set(said.value)


def test_what_the_command_chose_is_said(ready):
    few = ["--noise", "updates", "--units", "60", "--epsilon", "2", "--batch", "9"]
    said = ready.run("language", "dpo", *START, *few, "--dry-run")
    assert said.code == 0, said.err
    shown = " ".join(said.out.split())
    for chosen in ("--unit record", "--neighbors add-remove", "--delta 1e-06", "--steps 200"):
        assert chosen in shown
    assert "--batch" not in shown


@pytest.mark.parametrize("command", [REWARD, DPO], ids=["reward", "dpo"])
def test_a_dry_run_touches_nothing(ready, command):
    before = ready.state()
    said = ready.run(*command, "--dry-run", "--json")
    assert (said.code, said.err, said.value["spend"]) == (0, "", 2.0)
    assert said.value["privacy"]["steps"] == 4
    assert said.value["privacy"]["sampling_probability"] == pytest.approx(8 / 60)
    assert said.value["privacy"]["noise_multiplier"] > 0.5
    assert ready.state() == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--unit", "person", "--cap", "2"], 2, "person ids"),
        (["--unit", "person"], 2, "--cap"),
        (["--unit", "label"], 2, "--unit record"),
        (["--cap", "2"], 2, "--unit person"),
        (["--neighbors", "replace"], 2, "zero-out"),
        (["--batch", "61"], 2, "--units"),
        (["--batch", "0"], 2, "--batch"),
        (["--delta", "1"], 2, "delta"),
        (["--epsilon", "-1"], 2, "epsilon"),
        (["--clip", "0"], 2, "clip"),
        (["--sft", "in.jsonl"], 2, "--sft"),
        (["--resume", "--force"], 2, "--resume"),
        (["--resume", "--dry-run"], 2, "--resume"),
        (["--out", "tiny"], 2, "exists already"),
        (["--max-length", "2"], 4, "which one is not said"),
        (["--model", "nowhere"], 7, "no folder"),
        (["--ledger", "made/spend.db"], 2, "inside made"),
        (["--budget", "1"], 3, "over the budget"),
        (["--ledger", "labels.db"], 2, "label changes"),
    ],
)
def test_what_can_be_refused_is_refused_before_anything_is_spent(ready, words, code, said):
    if "labels.db" in words:
        made = ["privatize", "in.jsonl", "--epsilon", "2", "--out", "p.jsonl"]
        assert ready.run(*made, "--ledger", "labels.db").code == 0
    refused(ready, [*REWARD, *words], code, said)


def test_noise_on_labels_is_of_labels(ready):
    command = ["language", "dpo", *START, "--epsilon", "2", "--unit", "record"]
    refused(ready, command, 2, "--unit", "--noise updates")


def test_guess_and_epsilon_are_needed(ready):
    refused(
        ready, ["language", "dpo", *START, "--noise", "updates", "--epsilon", "2"], 2, "--units"
    )
    refused(ready, ["language", "dpo", *START, *CENTRAL[:-2]], 2, "--epsilon")


def test_answers_that_are_randomized_need_no_curator(ready):
    assert ready.run("privatize", "in.jsonl", "--epsilon", "2", "--out", "p.jsonl").code == 0
    refused(ready, [*REWARD[:2], "p.jsonl", *REWARD[3:]], 2, "--noise labels")


def test_a_large_delta_is_refused_by_public_numbers(ready):
    refused(ready, [*REWARD, "--delta", "0.2", "--dry-run"], 2, "delta must be below 0.001")
    said = ready.run(*REWARD, "--delta", "0.2").err
    ready.write("in.jsonl", kind_rows(5))  # the refusal does not depend on how many there are
    assert ready.run(*REWARD, "--delta", "0.2", "--dry-run").err == said


@pytest.mark.deep
def test_persons_are_hidden_whole_and_a_seed_says_so(ready):
    ready.write("in.jsonl", owned())
    more = ["--unit", "person", "--cap", "3", "--neighbors", "zero-out", "--units", "9"]
    said = ready.run(*REWARD, *more, "--simulate-seed", "1")
    assert said.code == 0, said.err
    assert "SIMULATED" in said.out
    assert "SIMULATED" in (ready / "made/README.md").read_text()
    budget = Ledger.read(ready / "made.spend.db").budget
    assert (budget.unit, budget.neighbors.name) == ("person", "REPLACE_SPECIAL")
    again = ready.run(*REWARD, *more, "--simulate-seed", "1", "--out", "again")
    assert again.code == 0
    made = [(ready / name / "model.safetensors").read_bytes() for name in ("made", "again")]
    assert made[0] == made[1]


@pytest.mark.deep
def test_a_killed_run_goes_on_and_pays_again_for_what_was_lost(ready, monkeypatch):
    """It stops in its third step, of which the first two are kept in a checkpoint."""
    from sordino.language.dp_sgd.training import CentralTraining

    step = CentralTraining.training_step

    def killed(self, *inputs):
        if self.state.global_step == 2:
            self._pay()
            raise KeyboardInterrupt
        return step(self, *inputs)

    run = [*REWARD, "--save-every", "2"]
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(CentralTraining, "training_step", killed)
        assert ready.run(*run).code == 130
    assert (ready / "made/checkpoint-2").is_dir()
    spends = Ledger.read(ready / "made.spend.db").spends
    assert len(spends) == 2
    said = ready.run(*run, "--resume")
    assert said.code == 3, said.err
    assert "--budget" in said.err
    assert len(Ledger.read(ready / "made.spend.db").spends) == 2
    said = ready.run(*run, "--resume", "--budget", "3", "--json")
    assert said.code == 0, said.err
    assert len(Ledger.read(ready / "made.spend.db").spends) == 3
    assert 2.0 < said.value["spend"] <= 3.0  # what was lost stays paid for, and is promised
    promise = json.loads((ready / "made/sordino.json").read_text())
    assert len(promise["sources"][0]["release_ids"]) == 3
    refused(ready, [*run, "--resume", "--budget", "3"], 2, "all of its 4 steps")
    refused(ready, run, 2, "exists already")


@pytest.mark.deep
def test_a_new_run_over_an_old_one_leaves_no_checkpoint_to_go_on_from(ready):
    assert ready.run(*REWARD, "--save-every", "2").code == 0
    assert ready.run(*REWARD, "--force", "--budget", "5").code == 0
    assert not list((ready / "made").glob("checkpoint-*"))
