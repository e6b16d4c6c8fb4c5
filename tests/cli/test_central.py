"""``sordino align --noise estimate`` as a user would run it, with a mistake or two."""

import json

import numpy as np
import pytest

import sordino
from sordino import cli

GOOD = ["calm", "bright", "short", "plain", "warm", "clear", "kind", "brief"]
BAD = ["wordy", "vague", "loud", "cold", "long", "harsh", "odd", "rude"]
CANARY = "zanzibar"


def write_rows(path, n, *, people=False, seed=0, flip=0.1):
    """Judgments in which words decide, mostly; one prompt holds a canary."""
    generator = np.random.default_rng(seed)
    with path.open("w") as file:
        for index in range(n):
            good, bad = (
                " ".join(generator.choice(words, 3)) + f" {index}" for words in (GOOD, BAD)
            )
            turned = generator.random() < flip
            row = {
                "prompt": f"{seed} {CANARY} {index}",
                "chosen": bad if turned else good,
                "rejected": good if turned else bad,
            }
            file.write(json.dumps(row | ({"person": f"p{index % 40}"} if people else {})) + "\n")
    return path


def align(folder, *options, data=None, code=0):
    """Run align with noise on the estimate; return result and what was printed."""
    source = data or write_rows(folder / "prefs.jsonl", 400)
    command = ["align", str(source), "--out", str(folder / "run"), "--noise", "estimate"]
    assert cli.run([*command, "--dimension", "32", *options]) == code


def result_of(folder):
    """Return what a run wrote."""
    return json.loads((folder / "run" / "result.json").read_text())


UNITS = {
    "label": [],
    "person": ["--unit", "person", "--cap", "3"],
    "record": ["--unit", "record"],
    "record, number hidden": ["--unit", "record", "--neighbors", "add-remove"],
    "record, replaced": ["--unit", "record", "--neighbors", "replace"],
    "record, with its moment": ["--unit", "record", "--second-moment"],
    "record, pessimistic": ["--unit", "record", "--confidence", "0.9"],
    "label, pessimistic": ["--confidence", "0.9"],
}


@pytest.mark.parametrize("metrics", [[], ["--metrics-epsilon", "4"]], ids=["free", "bought"])
@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_end_to_end(tmp_path, capsys, unit, metrics):
    """Result, reward, report, ledger, certificate and audit belong together."""
    data = write_rows(tmp_path / "prefs.jsonl", 400, people="person" in unit)
    align(tmp_path, "--epsilon", "2", *UNITS[unit], *metrics, data=data)
    said = capsys.readouterr()
    assert CANARY not in said.out + said.err
    assert said.err == ""
    result = result_of(tmp_path)
    promise = result["guarantee"]
    assert promise["unit"] == unit.split(",")[0]
    assert promise["delta"] == 1e-6
    assert promise["randomness"] == "system"
    assert promise["trust"] == "central"
    assert promise == result["certificate"]["guarantee"]
    assert (promise["epsilon"] > 2) == bool(metrics)
    assert promise["epsilon"] <= 6
    assert (result["metrics"] is None) == (not metrics)
    assert (result["reward"]["accuracy"] is None) == (not metrics)
    assert (result["policy"]["win_rate"] is None) == (not metrics)
    assert (result["policy"]["win_rate_interval"] is None) == (not metrics)
    reward = sordino.RewardModel.load(tmp_path / "run" / "reward.json")
    ledger = sordino.Ledger.read(tmp_path / "run" / "spend.db")
    assert len(ledger.spends) == 1 + bool(metrics)
    assert sordino.certify(reward, ledger).guarantee.to_dict() == promise
    assert sordino.audit(tmp_path / "run").refuted is False
    page = (tmp_path / "run" / "report.html").read_text()
    assert ">None<" not in page
    assert "nan" not in page.lower().split()


@pytest.mark.parametrize("unit", ["label", "person", "record"])
def test_what_costs_nothing_and_what_does(tmp_path, capsys, unit):
    """Under label privacy likelihood and slope are free; under record privacy nothing is."""
    data = write_rows(tmp_path / "prefs.jsonl", 400, people=unit == "person")
    align(tmp_path, "--epsilon", "4", "--unit", unit, "--simulate-seed", "1", data=data)
    capsys.readouterr()
    reward = result_of(tmp_path)["reward"]
    free = {"negative_log_likelihood", "calibration_slope"}
    for name in ("accuracy", "negative_log_likelihood", "calibration_slope"):
        told = reward[name] is not None or f"{name}_reason" in reward
        assert told == (unit != "record" and name in free), name


def test_what_was_bought_is_near_the_truth(tmp_path, capsys):
    """9 of 10 judgments follow the words: seeded, so that it cannot fail by chance."""
    data = write_rows(tmp_path / "prefs.jsonl", 3000)
    options = ["--epsilon", "4", "--metrics-epsilon", "4", "--simulate-seed", "3"]
    align(tmp_path, *options, data=data)
    capsys.readouterr()
    label = result_of(tmp_path)
    align(
        tmp_path,
        *options,
        "--unit",
        "record",
        "--force",
        "--ledger",
        str(tmp_path / "r.db"),
        data=data,
    )
    for result in (label, result_of(tmp_path)):
        reward, policy = result["reward"], result["policy"]
        assert abs(reward["accuracy"] - 0.9) < 4 * reward["accuracy_standard_error"] + 0.02
        assert reward["accuracy_standard_error"] < 0.05
        low, high = policy["win_rate_interval"]
        assert 0.5 < low < policy["win_rate"] < high <= 1


def test_a_reward_for_a_third_party(tmp_path, capsys):
    """Weights and moment in one file are enough to be pessimistic with, by choose."""
    align(tmp_path, "--epsilon", "4", "--unit", "record", "--confidence", "0.9")
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        json.dumps({"prompt": "x", "candidates": ["calm kind", "odd rude"]}) + "\n"
    )
    capsys.readouterr()
    assert cli.run(
        [
            "choose",
            str(questions),
            "--run",
            str(tmp_path / "run"),
            "--out",
            str(tmp_path / "c.jsonl"),
        ]
    ) in (0, 2)


def test_a_plan_touches_nothing(tmp_path, capsys):
    for more in ([], ["--metrics-epsilon", "1"]):
        align(tmp_path, "--epsilon", "1", "--dry-run", "--json", *more)
        plan = json.loads(capsys.readouterr().out)
        assert not (tmp_path / "run").exists()
        assert plan["mechanism"]["name"] == "label-gaussian"
        assert (plan["metrics"] is None) == (not more)
        assert plan["spend"] == plan["guarantee"]["epsilon"]
    align(
        tmp_path,
        "--epsilon",
        "1",
        "--unit",
        "record",
        "--neighbors",
        "add-remove",
        "--dry-run",
        "--json",
    )
    plan = json.loads(capsys.readouterr().out)
    assert plan["pairs"] is None
    assert plan["dropped_identical"] is None


def test_a_second_run_on_the_ledger_adds_up_or_is_refused(tmp_path, capsys):
    ledger = ["--ledger", str(tmp_path / "l.db")]
    align(tmp_path, "--epsilon", "1", "--budget", "1.6", *ledger)
    align(tmp_path, "--epsilon", "1", "--force", *ledger)
    result = result_of(tmp_path)
    assert result["guarantee"]["epsilon"] <= 1
    assert 1 < result["certificate"]["ledger"]["total"]["epsilon"] < 1.6
    capsys.readouterr()
    align(tmp_path, "--epsilon", "1", "--force", *ledger, code=3)
    assert "BudgetExceeded" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result


def test_a_record_ledger_whose_delta_is_used_up_can_be_raised_and_says_so(tmp_path, capsys):
    ledger, run = ["--ledger", str(tmp_path / "l.db")], ["--epsilon", "1", "--unit", "record"]
    align(tmp_path, *run, "--budget", "5", *ledger)
    capsys.readouterr()
    for more in ([], ["--budget", "9"], ["--delta", "1e-5"]):
        align(tmp_path, *run, "--force", *more, *ledger, code=3)
        said = capsys.readouterr().err
        assert "delta is used up" in said
        assert "--budget-delta" in said
    before = sordino.Ledger.read(tmp_path / "l.db").rows
    align(tmp_path, *run, "--force", "--budget-delta", "2e-6", *ledger)
    account = sordino.Ledger.read(tmp_path / "l.db")
    assert account.rows[len(before)].kind == "budget"
    assert (account.budget.epsilon, account.budget.delta) == (5, 2e-6)
    assert account.total().epsilon == pytest.approx(2)


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (["--unit", "label"], "1/n=1/400"),
        (["--unit", "record"], "1/n=1/400"),
        (["--unit", "record", "--neighbors", "add-remove"], "delta must be below 0.001"),
    ],
)
def test_a_delta_that_protects_nobody_is_refused(tmp_path, capsys, unit, said, more):
    align(tmp_path, "--epsilon", "1", "--delta", ".5", *unit, *more, code=2)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_metrics_that_no_longer_fit_are_refused_before_the_fit(tmp_path, capsys):
    ledger = ["--ledger", str(tmp_path / "l.db")]
    align(tmp_path, "--epsilon", "1", "--budget", "1.05", "--metrics-epsilon", "1", *ledger, code=3)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "l.db").exists()


def test_a_ledger_without_delta_says_what_to_do(tmp_path, capsys):
    data = write_rows(tmp_path / "prefs.jsonl", 400)
    ledger = ["--ledger", str(tmp_path / "l.db")]
    command = [
        "align",
        str(data),
        "--out",
        str(tmp_path / "local"),
        "--epsilon",
        "1",
        "--dimension",
        "32",
    ]
    assert cli.run([*command, *ledger]) == 0
    capsys.readouterr()
    align(tmp_path, "--epsilon", "1", *ledger, data=data, code=3)
    said = capsys.readouterr().err
    assert "delta is too small" in said
    assert "--budget-delta" in said
    more = ["--budget", "3", "--budget-delta", "1e-6"]
    align(tmp_path, "--epsilon", "1", *more, *ledger, data=data)
    total = result_of(tmp_path)["certificate"]["ledger"]["total"]
    assert total["epsilon"] > 1.5


def test_a_ledger_under_another_relation_is_refused(tmp_path, capsys):
    """What a run tells depends on the relation: it must be the ledger's, whoever forgot it."""
    for made, asked in (("ADD_OR_REMOVE_ONE", []), ("REPLACE_SPECIAL", ["add-remove"])):
        path = tmp_path / f"{made}.db"
        budget = sordino.Guarantee(
            20.0,
            delta=1e-5,
            unit="record",
            neighbors=getattr(sordino, made),
            trust="central",
        )
        sordino.Ledger.open(path, data="preferences", budget=budget)
        options = ["--neighbors", *asked] if asked else []
        more = ["--epsilon", "1", "--unit", "record", "--ledger", str(path), *options]
        for again in ([], ["--dry-run"], ["--metrics-epsilon", "1"]):
            align(tmp_path, *more, *again, code=2)
            assert "--neighbors" in capsys.readouterr().err
        assert not sordino.Ledger.read(path).spends


def test_a_public_file_is_no_oracle_of_private_records(tmp_path, capsys):
    """Whether a question is in the private file is private too: no exit code may tell."""
    data = write_rows(tmp_path / "prefs.jsonl", 200)
    inside = write_rows(tmp_path / "inside.jsonl", 5)
    outside = write_rows(tmp_path / "outside.jsonl", 5, seed=9)
    for index, public in enumerate((inside, outside)):
        more = ["--evaluate", str(public), "--ledger", str(tmp_path / f"{index}.db"), "--force"]
        align(tmp_path, "--epsilon", "1", "--unit", "record", *more, data=data)
        assert result_of(tmp_path)["public_evaluation"]["pairs"] == 5
    align(tmp_path, "--epsilon", "1", "--evaluate", str(inside), "--force", data=data, code=2)
    assert "--evaluate" in capsys.readouterr().err


MISTAKES = {
    "no epsilon": ([], 2, "--epsilon"),
    "no delta left": (["--epsilon", "1", "--delta", "0"], 2, "--delta"),
    "certain failure": (["--epsilon", "1", "--delta", "1"], 2, "--delta"),
    "relation of labels": (["--epsilon", "1", "--neighbors", "zero-out"], 2, "--unit record"),
    "bound of labels": (["--epsilon", "1", "--bound", "1"], 2, "--bound"),
    "moment of labels": (["--epsilon", "1", "--second-moment"], 2, "--second-moment"),
    "cap of labels": (["--epsilon", "1", "--cap", "2"], 2, "--unit person"),
    "method": (["--epsilon", "1", "--method", "mixture"], 2, "--method"),
    "persons unknown": (["--epsilon", "1", "--unit", "person"], 4, "person"),
    "small ridge": (
        ["--epsilon", "1", "--unit", "record", "--ridge", "0.01"],
        2,
        "would do",
    ),
    "truth of records": (
        ["--epsilon", "1", "--unit", "record", "--truth", "truth.json"],
        2,
        "--evaluate",
    ),
    "bound of nothing": (["--epsilon", "1", "--unit", "record", "--bound", "0"], 2, "--bound"),
    "no metrics": (["--epsilon", "1", "--metrics-epsilon", "0"], 2, "--metrics-epsilon"),
    "draws": (["--epsilon", "1", "--noise", "draws"], 2, "draws"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained_and_costs_nothing(tmp_path, capsys, mistake):
    options, code, named = MISTAKES[mistake]
    align(tmp_path, *options, code=code)
    said = capsys.readouterr().err
    assert named in said
    assert CANARY not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "option",
    [
        ["--delta", "1e-6"],
        ["--bound", "1"],
        ["--second-moment"],
        ["--metrics-epsilon", "1"],
        ["--unit", "record"],
    ],
    ids=" ".join,
)
def test_the_local_way_says_what_is_not_for_it(tmp_path, capsys, option):
    data = write_rows(tmp_path / "prefs.jsonl", 100)
    assert (
        cli.run(["align", str(data), "--out", str(tmp_path / "r"), "--epsilon", "1", *option]) == 2
    )
    assert option[0] in capsys.readouterr().err + "--unit"


def test_randomized_answers_need_no_curator(tmp_path, capsys):
    raw = write_rows(tmp_path / "prefs.jsonl", 100)
    given = tmp_path / "private.jsonl"
    assert cli.run(["privatize", str(raw), "--epsilon", "1", "--out", str(given)]) == 0
    align(tmp_path, "--epsilon", "1", data=given, code=2)
    assert "--noise labels" in capsys.readouterr().err
