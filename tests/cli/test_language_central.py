"""Training on raw judgments from the command line: what is paid, refused, told and gone on with."""

import json
import shutil
from contextlib import suppress

import pytest
from tests.tiers import few

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


@pytest.mark.deep
def test_nothing_is_told_that_was_computed_from_the_pairs(ready):
    """Two files that differ in number, one with a pair that says nothing: all told is equal."""
    told, logs = [], []
    same = {"prompt": "p", "chosen": "kind", "rejected": "kind"}
    for records, out in ((kind_rows(), "one"), ([*kind_rows(23), same], "two")):
        ready.write("in.jsonl", records)
        said = ready.run(*REWARD, "--steps", "2", "--out", out, "--json")
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


@pytest.mark.parametrize("command", few([REWARD, DPO], first=1), ids=["reward", "dpo"])
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
        (["--resume"], 2, "nothing to finish"),
        (["--resume", "--dry-run"], 2, "nothing to finish"),
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


@pytest.mark.deep
@pytest.mark.parametrize("more", [["--delta", "0.2"], ["--delta", "9e-4", "--units", "2000"]])
def test_a_large_delta_that_was_accepted_stays_with_the_checkpoint(ready, more):
    refused(ready, [*REWARD, *more], 2, "--accept-weak")
    said = ready.run(*REWARD, *more, "--accept-weak", "--steps", "1", "--json")
    assert said.code == 0, said.err
    assert (next(iter(said.value)), said.value["verdict"]["word"]) == (
        "verdict", "too weak a promise",
    )  # fmt: skip
    for caveats in (said.value["caveats"], json.loads((ready / "made/sordino.json").read_text())):
        assert "weak-promise" in (caveats if isinstance(caveats, list) else caveats["caveats"])
    assert "**Too weak a promise.**" in (ready / "made/README.md").read_text()


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
@pytest.mark.parametrize("more", [[], ["--save-every", "2"]], ids=["whole", "parts"])
def test_a_killed_run_goes_on_for_nothing(ready, monkeypatch, more):
    """It stops in its third step, of which the first two may be kept in a checkpoint."""
    from sordino.language.dp_sgd.training import CentralTraining

    step = CentralTraining.training_step

    def killed(self, *inputs):
        if self.state.global_step == 2:
            self._pay()
            raise KeyboardInterrupt
        return step(self, *inputs)

    run = [*REWARD, *more]
    refused(ready, [*run, "--resume"], 2, "nothing to finish")
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(CentralTraining, "training_step", killed)
        assert ready.run(*run).code == 130
    assert (ready / "made/checkpoint-2").is_dir() == bool(more)
    spends = Ledger.read(ready / "made.spend.db").spends
    assert len(spends) == (2 if more else 1)
    taken = []
    with monkeypatch.context() as patch:
        patch.setattr(
            CentralTraining, "training_step", lambda *given: taken.append(1) or step(*given)
        )
        said = ready.run(*run, "--resume", "--json")
    assert said.code == 0, said.err
    assert len(taken) == (2 if more else 4)  # a step whose checkpoint is there is never drawn again
    assert [row.release_id for row in Ledger.read(ready / "made.spend.db").spends] == [
        row.release_id for row in spends
    ]
    assert said.value["spend"] <= 2.0
    promise = json.loads((ready / "made/sordino.json").read_text())
    assert len(promise["sources"][0]["release_ids"]) == len(spends)
    refused(ready, run, 2, "exists already", "another name")


@pytest.mark.deep
def test_steps_whose_checkpoint_is_gone_are_not_drawn_again(ready, monkeypatch):
    from sordino.language.dp_sgd.training import CentralRewardTrainer

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(CentralRewardTrainer, "text_reward", killed)
        assert ready.run(*REWARD).code == 130
    shutil.move(ready / "made/checkpoint-4", ready / "elsewhere")
    said = ready.run(*REWARD)
    assert said.code == 2, said.err
    assert "Nothing was drawn again" in said.err
    shutil.move(ready / "elsewhere", ready / "made/checkpoint-4")
    assert ready.run(*REWARD).code == 0
    assert len(Ledger.read(ready / "made.spend.db").spends) == 1
    assert not list((ready / "made").glob("*checkpoint*"))


@pytest.mark.deep
def test_a_checkpoint_is_seen_only_when_it_is_recorded(ready, monkeypatch):
    """Between the two it is hidden; what was not recorded is drawn again, and nobody saw it."""
    from sordino.language.dp_sgd.privacy import CentralRun

    def killed(*_):
        raise KeyboardInterrupt

    run = [*REWARD, "--save-every", "2"]
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(CentralRun, "commit", killed)
        assert ready.run(*run).code == 130
    assert [path.name for path in (ready / "made").iterdir()] == [".checkpoint.partial"]
    assert (ready / "made/.checkpoint.partial/checkpoint-2/trainer_state.json").exists()
    said = ready.run(*run)
    assert said.code == 0, said.err
    assert not list((ready / "made").glob(".*"))
    rows = Ledger.read(ready / "made.spend.db").rows
    assert [row.kind for row in rows][:5] == ["open", "reserve", "commit", "reserve", "commit"]


@pytest.mark.deep
def test_an_entry_whose_step_failed_is_paid_anew(ready, monkeypatch):
    """That it failed was seen, so nothing may be drawn on it again."""
    from sordino.language.dp_sgd import training

    def failing(*_, **__):
        raise FloatingPointError

    with monkeypatch.context() as patch:
        patch.setattr(training, "add_gradient_noise", failing)
        assert ready.run(*REWARD).code != 0
    said = ready.run(*REWARD)
    assert said.code == 3, said.err
    assert ready.run(*REWARD, "--budget", "5").code == 0
    assert len(Ledger.read(ready / "made.spend.db").spends) == 2


@pytest.mark.deep
def test_a_new_run_over_an_old_one_leaves_no_checkpoint_to_go_on_from(ready):
    assert ready.run(*REWARD, "--save-every", "2").code == 0
    assert ready.run(*REWARD, "--force", "--budget", "5").code == 0
    assert not list((ready / "made").glob("checkpoint-*"))
