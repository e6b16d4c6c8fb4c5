"""Language models on the command line: what is spent, refused, written and gone on with."""

import json
import math
import shutil
import sys

import pytest

from sordino.cli import _language_study
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import judge

from .conftest import CANARY, KIND_WORDS, TINY, kind_rows, refused

pytest.importorskip("trl", reason="the extra 'language' is not installed")

REWARD = ["language", "reward", "in.jsonl", "--model", "tiny", "--out", "rm"]
DPO = ["language", "dpo", "in.jsonl", "--model", "tiny", "--out", "policy"]
PAID = ["--epsilon", "2"]
TABLE = [
    "language", "table", "in.jsonl", "--out", "study", "--quick", "--epsilons", "2,0.5",
    "--seeds", "2",
]  # fmt: skip
STUDY = [*TABLE, "--public-judge-half", "--no-central"]


def spent(path, data=None):
    total = Ledger.read(path, data=data).total()
    return 0.0 if total is None else total.epsilon


def test_a_tiny_model_reads_no_label(folder):
    folder.write("in.jsonl", kind_rows())
    assert folder.run(*TINY, "--out", "one", "--json").value["texts"] == 120
    folder.write("in.jsonl", kind_rows(turn=True))
    assert folder.run(*TINY, "--out", "two").code == 0
    for name in ("model.safetensors", "tokenizer.json"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()
    refused(folder, [*TINY, "--out", "one"], 2, "exists already")


@pytest.mark.deep
def test_raw_judgments_are_randomized_first_and_kept(ready):
    said = ready.run(*REWARD, *PAID, "--json")
    assert (said.code, said.err) == (0, "")
    value = said.value
    assert value["guarantee"] == {
        "epsilon": 2.0, "delta": 0.0, "unit": "label", "neighbors": "REPLACE_ONE",
        "trust": "central", "randomness": "system",
    }  # fmt: skip
    assert value["caveats"] == ["randomized-at-ingestion"]
    assert (value["spend"], value["pairs"], value["dropped_overlong"]) == (2.0, 60, 0)
    assert value["answers"] == "rm.answers.jsonl"
    assert (next(iter(value)), value["verdict"]["word"]) == ("verdict", "usable")
    assert value["verdict"]["says"] == "Nothing was measured."
    assert {"rm.answers.jsonl", "rm.answers.manifest.json", "rm.spend.db"} <= ready.names()
    ledger = Ledger.read(ready / "rm.spend.db")
    assert value["ledger"] == {"head": ledger.head.digest, "rows": ledger.head.rows}
    (source,) = json.loads((ready / "rm/sordino.json").read_text())["sources"]
    assert source["release_ids"] == [row.release_id for row in ledger.spends]
    assert not list((ready / "rm").glob("*.db"))  # a checkpoint is published as a whole
    assert json.loads((ready / "rm/training_log.json").read_text())


@pytest.mark.deep
def test_training_on_answers_again_spends_nothing(ready):
    assert ready.run(*REWARD, *PAID).code == 0
    before = (ready / "rm.spend.db").read_bytes()
    refused(ready, [*DPO[:6], "rm", *PAID], 2, "rm exists already")
    again = ["language", "dpo", "rm.answers.jsonl", *DPO[3:]]
    said = ready.run(*again, "--ledger", "rm.spend.db", "--json")
    assert (said.code, said.value["spend"], said.value["answers"]) == (0, 0.0, None)
    assert (ready / "rm.spend.db").read_bytes() == before
    assert not (ready / "policy.spend.db").exists()
    promise = json.loads((ready / "policy/sordino.json").read_text())
    assert (promise["kind"], promise["guarantee"]["epsilon"]) == ("policy", 2.0)
    assert promise["sources"][0]["release_ids"] == [
        row.release_id for row in Ledger.read(ready / "rm.spend.db").spends
    ]


@pytest.mark.deep
def test_a_checkpoint_promises_what_its_start_was_trained_on_too(ready):
    """The second release alone would be epsilon=1, and without a seed."""
    assert ready.run(*REWARD, *PAID, "--simulate-seed", "1").code == 0
    more = ["language", "reward", "in.jsonl", "--model", "rm", "--out", "rm2", "--epsilon", "1"]
    planned = ready.run(*more, "--dry-run", "--json")
    assert (planned.code, planned.value["spend"]) == (0, 1.0)
    said = ready.run(*more, "--json")
    assert said.code == 0, said.err
    written = json.loads((ready / "rm2/sordino.json").read_text())
    for told in (planned.value, said.value, written):
        assert told["guarantee"]["epsilon"] == 3.0
        assert told["guarantee"]["randomness"] == "simulated"
    assert "simulated" in said.value["caveats"] or "SIMULATED" in said.err
    assert "SIMULATED" in planned.err
    assert spent(ready / "rm2.spend.db") == 1.0


def test_a_template_that_refuses_is_met_before_anything_is_spent(ready, built):
    copied = shutil.copytree(built, ready / "strict")
    (copied / "chat_template.jinja").write_text("{{ raise_exception(messages[0]['content']) }}")
    refused(ready, [*REWARD, *PAID, "--model", "strict"], 2, "chat template")
    refused(ready, [*STUDY, "--model", "strict"], 2, "chat template")


@pytest.mark.deep
def test_a_tiny_model_over_a_reward_keeps_nothing_of_its_promise(ready):
    assert ready.run(*REWARD, *PAID).code == 0
    private = {"sordino.json", "README.md", "uncertainty.safetensors", "training_log.json"}
    assert private <= {path.name for path in (ready / "rm").iterdir()}
    assert ready.run(*TINY, "--out", "rm", "--force").code == 0
    assert private.isdisjoint(path.name for path in (ready / "rm").iterdir())


def test_a_reward_is_no_policy_to_start_from(ready):
    assert ready.run(*REWARD, *PAID).code == 0
    refused(ready, [*DPO[:4], "rm", *DPO[5:], *PAID], 2, "*ForCausalLM")


def test_answers_of_an_earlier_run_are_not_paid_for_twice_by_accident(ready):
    ready.write("rm.answers.jsonl", [])
    refused(ready, [*REWARD, *PAID], 2, "rm.answers.jsonl", "spends nothing")


@pytest.mark.parametrize("command", [REWARD, DPO], ids=["reward", "dpo"])
def test_a_dry_run_touches_nothing(ready, command):
    before = ready.state()
    said = ready.run(*command, *PAID, "--dry-run", "--json")
    assert (said.code, said.value["spend"], said.value["pairs"]) == (0, 2.0, 60)
    assert ready.state() == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "raw judgments"),
        (["--epsilon", "-1"], 2, "epsilon"),
        ([*PAID, "--max-length", "2"], 4, "answers are never cut"),
        ([*PAID, "--max-length", "65"], 2, "--max-length"),
        ([*PAID, "--ledger", "rm/spend.db"], 2, "inside rm"),
        ([*PAID, "--model", "nowhere"], 7, "no folder"),
        ([*PAID, "--learning-rate", "0"], 2, "learning_rate"),
        ([*PAID, "--strict", "--sft", "chosen.jsonl"], 2, "seems to tell the judgments"),
        ([*PAID, "--ledger", "full.db", "--data", "other"], 3, "budget"),
    ],
)
def test_what_can_be_refused_is_refused_before_anything_is_spent(ready, words, code, said):
    told = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in kind_rows()]
    ready.write("chosen.jsonl", told)
    if "full.db" in words:
        ready.write("small.jsonl", kind_rows(3))
        made = ["privatize", "small.jsonl", "--epsilon", "2", "--out", "small.out.jsonl"]
        assert ready.run(*made, "--ledger", "full.db").code == 0
    refused(ready, [*REWARD, *words], code, said)


def test_a_text_of_one_side_is_warned_of(ready):
    ready.write("chosen.jsonl", [{"text": row["chosen"]} for row in kind_rows()])
    said = ready.run(*REWARD, *PAID, "--sft", "chosen.jsonl", "--dry-run")
    assert said.code == 0
    assert "PrivacyWarning" in said.err
    both = [{"text": row[side]} for row in kind_rows() for side in ("chosen", "rejected")]
    ready.write("both.jsonl", both)
    assert ready.run(*REWARD, *PAID, "--sft", "both.jsonl", "--dry-run").err == ""


@pytest.mark.deep
def test_without_privacy_the_ledger_says_so(ready):
    assert ready.run(*REWARD, *PAID).code == 0
    plain = [*DPO, "--non-private"]
    refused(ready, [*plain, "--ledger", "rm.spend.db"], 3, "over the budget")
    said = ready.run(*plain)
    assert said.code == 0
    assert "NOT PRIVATE" in said.out
    assert spent(ready / "policy.spend.db") == float("inf")
    assert not (ready / "policy.answers.jsonl").exists()
    promise = json.loads((ready / "policy/sordino.json").read_text())
    assert promise["guarantee"]["epsilon"] in ("inf", "Infinity", None)


@pytest.mark.deep
def test_a_seed_is_for_study_and_says_so(ready):
    said = ready.run(*REWARD, *PAID, "--simulate-seed", "1")
    assert said.code == 0
    assert "SIMULATED" in said.out
    assert "SIMULATED" in (ready / "rm/README.md").read_text()
    again = [*REWARD[:-1], "rm2", *PAID, "--simulate-seed", "1"]
    assert ready.run(*again).code == 0
    answers = [(ready / f"{name}.answers.jsonl").read_bytes() for name in ("rm", "rm2")]
    assert answers[0] == answers[1]
    weights = [(ready / name / "model.safetensors").read_bytes() for name in ("rm", "rm2")]
    assert weights[0] == weights[1]


def test_answers_that_are_randomized_promise_what_they_promised(ready):
    made = ["privatize", "in.jsonl", "--epsilon", "2", "--out", "p.jsonl"]
    assert ready.run(*made).code == 0
    command = [*REWARD[:2], "p.jsonl", *REWARD[3:]]
    refused(ready, [*command, "--epsilon", "1"], 2, "too late")
    refused(ready, [*command, "--non-private"], 2, "too late")
    assert ready.run(*command, "--epsilon", "3", "--dry-run", "--json").value["spend"] == 0.0
    told = ready.value_of(*command, "--json")  # of no project, and no ledger is named
    assert (told["spend"], told["ledger"]) == (0.0, None)
    assert not (ready / ".sordino").exists()


@pytest.mark.deep
def test_a_policy_costs_nothing_and_is_measured(ready):
    assert ready.run(*REWARD, *PAID).code == 0
    before = (ready / "rm.spend.db").read_bytes()
    ready.write("prompts.jsonl", [{"prompt": f"say {word}"} for word in KIND_WORDS])
    command = ["language", "policy", "--reward", "rm", "--model", "tiny", "--out", "p"]
    steps = ["--prompts", "prompts.jsonl", "--steps", "2", "--max-new-tokens", "6"]
    said = ready.run(*command, *steps, "--batch-size", "4", "--json")
    assert (said.code, said.err) == (0, "")
    assert (said.value["spend"], said.value["guarantee"]["epsilon"]) == (0.0, 2.0)
    assert (next(iter(said.value)), said.value["verdict"]["word"]) == ("verdict", "usable")
    assert (ready / "rm.spend.db").read_bytes() == before
    measure = ["language", "evaluate", "p", "--reference", "tiny", *steps[:2]]
    found = ready.run(
        *measure, "--judge", "rm", "--max-new-tokens", "6", "--json", "--out", "w.json"
    )
    assert (found.code, found.err) == (0, "")
    assert found.value["n"] == found.value["prompts"] == 8
    assert found.value["judge_shares_answers"] is True
    assert found.value["policy_guarantee"]["epsilon"] == 2.0
    assert found.value["policy_guarantee"]["caveats"] == ["randomized-at-ingestion"]
    assert found.value["judge_guarantee"]["epsilon"] == 2.0
    assert found.value["reference_guarantee"] is None
    assert "guarantee" not in found.value  # whose?
    assert json.loads((ready / "w.json").read_text()) == found.value
    code = "import sys; [print('{\"preference\": 1.0}') for line in sys.stdin]"
    (ready / "judge.py").write_text(code)
    program = ["--judge-command", f"{sys.executable} judge.py", "--n", "3"]
    asked = [*measure, *program]
    shown = ready.run(*asked, "--max-new-tokens", "4").out
    assert "nobody said" in shown
    assert "policy's labels" in shown
    assert "reference's labels" in shown
    for broken in ("", "  ", "judge 'unclosed"):
        refused(ready, [*measure, "--judge-command", broken], 2, "--judge-command")
    refused(ready, measure, 2, "Give one judge")
    refused(ready, [*measure, "--judge", "tiny"], 2, "sordino.json")


@pytest.mark.deep
def test_a_weak_promise_is_refused_or_stays_with_the_checkpoint(ready):
    weak = [*REWARD, "--epsilon", "21"]
    refused(ready, weak, 2, "--accept-weak")
    said = ready.run(*weak, "--accept-weak")
    assert said.code == 0, said.err
    assert said.out.splitlines()[1].startswith("verdict")
    assert "too weak a promise" in said.out
    assert "**Too weak a promise.** ε = 21 per label" in (ready / "rm/README.md").read_text()
    assert "weak-promise" in json.loads((ready / "rm/sordino.json").read_text())["caveats"]
    (row,) = Ledger.read(ready / "rm.spend.db").spends
    assert "weak-promise" in json.loads(row.payload)["caveats"]


@pytest.mark.deep
def test_a_judge_that_shares_any_release_with_the_policy_is_named(ready):
    """The policy was trained on other answers last, and on the judge's before."""
    assert ready.run(*REWARD, *PAID).code == 0
    first = ["language", "dpo", "rm.answers.jsonl", "--model", "tiny", "--out", "p1"]
    assert ready.run(*first).code == 0
    more = ["language", "dpo", "in.jsonl", "--model", "p1", "--out", "p2", "--epsilon", "1"]
    assert ready.run(*more).code == 0
    ready.write("prompts.jsonl", [{"prompt": "say kind"}, {"prompt": "say warm"}])
    measure = ["language", "evaluate", "p2", "--reference", "p1", "--prompts", "prompts.jsonl"]
    found = ready.run(*measure, "--judge", "rm", "--max-new-tokens", "4", "--json").value
    assert found["judge_shares_answers"] is True
    assert found["policy_guarantee"]["epsilon"] == 3.0
    assert found["reference_guarantee"]["epsilon"] == 2.0


@pytest.fixture
def small(ready, quicker):
    """Return a folder in which a study is quick."""
    return ready


@pytest.mark.deep
def test_a_study_is_written_and_says_what_it_spent(small):
    said = small.run(*STUDY, "--non-private", "--dry-run", "--json")
    assert (said.code, said.value["runs"]) == (0, 6)
    assert not (small / "study").exists()
    said = small.run(*STUDY, "--update", "dpo,rebel", "--json")
    assert (said.code, said.err) == (0, "")
    value = said.value
    assert value == json.loads((small / "study/table.json").read_text())
    kinds = [(row["method"], row["labels"], row["seeds"]) for row in value["rows"]]
    assert kinds == [
        ("reference", "label-free", 2), ("dpo", "epsilon=0.5", 2), ("dpo", "epsilon=2", 2),
        ("rebel", "epsilon=0.5", 2), ("rebel", "epsilon=2", 2),
    ]  # fmt: skip
    assert (
        value["spent"] == spent(small / "study.spend.db", "preferences-training") == 5.0
    )  # one for both
    assert (
        Ledger.read(small / "study.spend.db", data="preferences-judge").total().epsilon == math.inf
    )
    assert (next(iter(value)), value["verdict"]) == ("verdict", judge(value))
    assert value["judge"]["pairs"] + value["pairs"] == 60
    assert {curve["method"] for curve in value["curves"]} == {"dpo", "rebel"}
    assert all(len(curve["held_out_accuracy"]["mean"]) > 0 for curve in value["curves"])
    assert "<svg" in (small / "study/curves.svg").read_text()
    table = (small / "study/table.md").read_text()
    assert "reward, then REBEL | epsilon=2" in table
    costs = [
        (row["releases"], row["epsilon_of_one_release"], row["epsilon_of_all_releases"])
        for row in value["rows"]
    ]
    assert costs == [(0, 0.0, 0.0), (2, 0.5, 1.0), (2, 2.0, 4.0), (2, 0.5, 1.0), (2, 2.0, 4.0)]
    assert value["guarantee"]["epsilon"] == 5.0  # whoever sees the table sees every release
    assert value["caveats"] == sorted({*value["caveats"], "randomized-at-ingestion"})
    assert "epsilon=5 per label" in table
    assert "`randomized-at-ingestion`:" in table
    assert "nothing was trained on" not in table  # the built reference read their texts
    assert "those of the held-out prompts among them" in table
    assert "SIMULATED" not in table + (small / "study/curves.svg").read_text()
    assert CANARY not in "".join(
        path.read_text(errors="ignore") for path in (small / "study").glob("*.*") if path.is_file()
    )
    refused(small, STUDY, 2, "table.json exists already")


def test_a_study_spends_of_the_project_that_knows_its_judgments(small):
    ledger = ["--ledger", "l.db"]
    align = ["align", "in.jsonl", "--out", "run", "--dimension", "16", "--epsilon", "1"]
    assert small.run(*align, "--budget", "5.5", *ledger).code == 0
    judged = [*TABLE, "--public-judge-half", "--no-central", *ledger]
    refused(small, judged, 3, "epsilon=6 in total")  # five of the study, and one before
    assert small.run("budget", "set", "label", "6", *ledger).code == 0
    refused(small, judged, 3, "epsilon=inf", "sordino budget set label inf")
    assert small.run("budget", "set", "label", "inf", *ledger).code == 0
    before = small.state()
    said = small.run(*judged, "--dry-run", "--json")
    assert (said.code, said.value["spend"]) == (0, 5.0), said.err
    assert small.state() == before


@pytest.mark.deep
def test_a_study_in_a_project_is_counted_there_and_tells_what_its_own_rows_cost(small, monkeypatch):
    monkeypatch.setattr(f"{type(small).__module__}.apart", lambda words: [str(w) for w in words])
    align = ["align", "in.jsonl", "--out", "run", "--dimension", "16", "--epsilon", "1"]
    assert small.run(*align, "--budget", "inf").code == 0
    value = small.run(*STUDY, "--json").value
    assert value["guarantee"]["epsilon"] == value["spent"] == 5.0
    assert value["accounts"]["label"]["epsilon"] == "inf"  # with the judge's half
    ledger = Ledger.read(small / ".sordino/ledger.db")
    assert len(ledger.data_sets) == 1
    assert len(ledger.spends) == 6
    assert not list(small.path.rglob("*.spend.db"))


@pytest.mark.deep
def test_an_interrupted_study_goes_on_and_pays_once(small):
    assert small.run(*STUDY, "--non-private").code == 0
    before = json.loads((small / "study/table.json").read_text())
    for name in ("table.json", "runs/dpo-epsilon=2-1.json"):
        (small / "study" / name).unlink()
    rows = Ledger.read(small / "study.spend.db").rows
    refused(small, [*STUDY, "--non-private", "--epsilons", "1"], 2, "another study")
    assert small.run(*STUDY, "--non-private").code == 0
    again = json.loads((small / "study/table.json").read_text())
    assert again["rows"] == before["rows"]
    assert Ledger.read(small / "study.spend.db").rows == rows
    assert [row.kind for row in rows].count("reserve") == 6  # five releases, and the judge's half


@pytest.mark.deep
def test_labels_that_protect_nobody_are_paid_for_once_whichever_seed_was_interrupted(
    small, monkeypatch
):
    done, runs = _language_study._once, []

    def stopping(path, named, fare):
        if "non-private-1" in path.name and not runs:  # that of seed 0 is kept by now
            runs.append(path)
            raise KeyboardInterrupt
        return done(path, named, fare)

    monkeypatch.setattr(_language_study, "_once", stopping)
    command = [*STUDY, "--non-private"]
    assert small.run(*command).code == 130
    assert small.run(*command).code == 0
    rows = Ledger.read(small / "study.spend.db").rows
    assert [row.event for row in rows if row.kind == "reserve"].count("non-private") == 2  # a judge


@pytest.mark.deep
def test_a_study_that_starts_anew_pays_anew(small):
    assert small.run(*STUDY).code == 0
    refused(small, [*STUDY, "--force"], 3, "over the budget")
    assert small.run(*STUDY, "--force", "--budget", "10").code == 0
    assert spent(small / "study.spend.db", "preferences-training") == 10.0


@pytest.mark.deep
def test_kept_answers_that_were_changed_are_refused(small):
    assert small.run(*STUDY).code == 0
    (small / "study/table.json").unlink()
    (small / "study/runs/dpo-epsilon=2-0.json").unlink()
    kept = small / "study/answers/epsilon=2-0.json"
    value = json.loads(kept.read_text())
    value["answers"][0] = 1 - value["answers"][0]
    kept.write_text(json.dumps(value))
    said = small.run(*STUDY)
    assert said.code == 4, said.err
    assert "changed" in said.err


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (TABLE, 2, "--public-judge-half"),
        ([*STUDY, "--judge", "tiny"], 2, "--public-judge-half"),
        ([*STUDY, "--epsilons", "1,1"], 2, "--epsilons"),
        ([*STUDY, "--epsilons", "1,inf"], 2, "--epsilons"),
        ([*STUDY, "--update", "ppo"], 2, "--update"),
        ([*STUDY, "--update", "dpo,dpo"], 2, "twice"),
        ([*TABLE, "--no-central", "--judge", "tiny"], 2, "sordino.json"),
        ([*TABLE, "--no-central", "--judge", "tiny", "--dry-run"], 2, "sordino.json"),
        ([*STUDY, "--model", "nowhere", "--dry-run"], 7, "no folder"),
        ([*STUDY, "--budget", "1"], 3, "over the budget"),
    ],
)
def test_a_study_that_cannot_be_is_refused_at_once(small, command, code, said):
    refused(small, command, code, said)


def test_a_study_needs_raw_judgments(small):
    assert small.run("privatize", "in.jsonl", "--epsilon", "2", "--out", "p.jsonl").code == 0
    refused(small, [*STUDY[:2], "p.jsonl", *STUDY[3:]], 4, "randomized already")


@pytest.mark.deep
def test_a_study_starts_from_no_model_that_was_trained_on_judgments(small):
    assert small.run(*DPO, *PAID).code == 0
    assert small.run(*REWARD, *PAID).code == 0
    for more in ([], ["--dry-run"]):
        refused(small, [*STUDY, "--model", "policy", *more], 2, "label-free", "policy was trained")
        refused(small, [*STUDY, "--model", "rm", *more], 2, "*ForCausalLM")
    (small / "policy/sordino.json").unlink()  # its weights still say so
    refused(small, [*STUDY, "--model", "policy"], 2, "policy was trained")


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--model", "tiny"]])
def test_texts_that_no_study_can_use_are_met_before_anything_is_spent(small, more):
    small.write("in.jsonl", [*kind_rows(), {"prompt": "p", "chosen": "kind", "rejected": " "}])
    refused(small, [*STUDY, *more], 4, "pair 60", "is empty")
    small.write("in.jsonl", [{**row, "chosen": 99 * "kind "} for row in kind_rows()])
    refused(small, [*STUDY, *more], 4, "fit")


@pytest.mark.deep
def test_a_simulated_study_says_so_everywhere(small):
    said = small.run(*STUDY, "--simulate-seed", "1", "--seeds", "1")
    assert said.code == 0
    assert "SIMULATED" in said.out
    for name in ("table.md", "curves.svg"):
        assert "SIMULATED" in (small / "study" / name).read_text()
    value = json.loads((small / "study/table.json").read_text())
    assert value["simulated"] is True
    assert value["guarantee"]["randomness"] == "simulated"


@pytest.mark.deep
def test_a_simulated_judge_marks_the_study(small):
    assert small.run(*REWARD, *PAID, "--simulate-seed", "1").code == 0
    said = small.run(*TABLE, "--no-central", "--judge", "rm", "--seeds", "1", "--epsilons", "1")
    assert said.code == 0, said.err
    assert "SIMULATED" in said.out
    assert "The judge's labels: SIMULATED" in (small / "study/table.md").read_text()
    value = json.loads((small / "study/table.json").read_text())
    assert value["simulated"] is True
    assert value["guarantee"]["randomness"] == "system"  # of the policies' labels


@pytest.mark.deep
def test_epsilons_that_are_nearly_the_same_are_kept_apart(small):
    said = small.run(*STUDY, "--epsilons", "1,1.0000001", "--seeds", "1", "--json")
    assert [row["labels"] for row in said.value["rows"]] == [
        "label-free", "epsilon=1", "epsilon=1.0000001",
    ]  # fmt: skip
    assert len(list((small / "study/answers").iterdir())) == 2
    assert said.value["spent"] == pytest.approx(2.0000001)


def test_a_missing_library_is_named_with_its_remedy(ready, monkeypatch):
    from sordino import errors

    def missing(name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(errors, "import_module", missing)
    refused(ready, [*REWARD, *PAID], 2, "MissingExtra", "pip install 'sordino[language]'")
