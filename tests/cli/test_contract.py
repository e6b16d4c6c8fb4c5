"""What a run writes and says: one JSON object, dry runs, ledgers, public files, dropped pairs."""

import json
import re
import sqlite3

import pytest

from sordino.privacy.ledger import Ledger

from .conftest import CANARY, pair, refused

ALIGN = ["align", "in.jsonl", "--out", "out", "--epsilon", "1"]
PRIVATIZE = ["privatize", "in.jsonl", "--out", "out.jsonl", "--epsilon", "1"]
both = pytest.mark.parametrize("command", [ALIGN, PRIVATIZE], ids=["align", "privatize"])
WRITTEN = {
    "align": {"out/spend.db", "out/result.json", "out/report.html", "out/reward.json"},
    "privatize": {"out.spend.db", "out.jsonl", "out.manifest.json"},
}
SAME = {"prompt": f"{CANARY} p", "chosen": f"{CANARY} x", "rejected": f"{CANARY} x"}


def database(command):
    return "out/spend.db" if command[0] == "align" else "out.spend.db"


@pytest.fixture
def ready(folder, pairs):
    folder.write("in.jsonl", pairs)
    return folder


def test_align_writes_what_the_contract_says(ready):
    said = ready.run(*ALIGN, "--json")
    assert (said.code, said.err) == (0, "")
    outputs = {"result.json", "report.html", "reward.json", "spend.db"}
    assert ready.names() == {"in.jsonl"} | {f"out/{name}" for name in outputs}
    result = said.value
    assert result == json.loads((ready / "out/result.json").read_text())
    fields = {
        "guarantee": {"epsilon", "delta", "unit", "neighbors", "trust", "randomness"},
        "data": {"pairs"},
        "reward": {
            "accuracy", "accuracy_standard_error", "negative_log_likelihood", "calibration_slope",
        },
        "policy": {"temperature", "win_rate", "win_rate_interval", "kl"},
    }  # fmt: skip
    assert all(names <= set(result[field]) for field, names in fields.items())
    assert result["guarantee"] == {
        "epsilon": 1.0, "delta": 0.0, "unit": "label", "neighbors": "REPLACE_ONE",
        "trust": "central", "randomness": "system",
    }  # fmt: skip
    assert result["caveats"] == ["randomized-at-ingestion"]
    assert result["seconds"] > 0


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "out.jsonl", "--out", "reward.json"],
        ["choose", "out", "q.jsonl"],
        ["choose", "out", "q.jsonl", "--out", "chosen.jsonl"],
        ["ledger", "show", "out.spend.db"],
        ["ledger", "verify", "out.spend.db"],
        ["report", "out", "--force"],
        ["simulate", "pairs", "--out", "s.jsonl", "--n", "5"],
        [*ALIGN, "--force", "--dry-run", "--budget", "9"],
        [*PRIVATIZE, "--force", "--dry-run", "--budget", "9"],
        [*PRIVATIZE, "--force", "--budget", "9", "--simulate-seed", "1"],
    ],
)
def test_json_is_exactly_one_object_on_stdout(done, words):
    said = done.run(*words, "--json")
    assert said.code == 0, said.err
    assert isinstance(said.value, dict)
    if "--simulate-seed" in words:
        assert "SIMULATED" in said.err
    else:
        assert said.err == ""


@both
@pytest.mark.parametrize("people", [False, True], ids=["no ids", "ids"])
def test_dry_run_touches_nothing_and_says_what_the_run_then_spends(ready, pairs, command, people):
    rows = [row | ({"person": f"p{i % 3}"} if people else {}) for i, row in enumerate(pairs)]
    ready.write("in.jsonl", rows)
    before = ready.state()
    plan = ready.run(*command, "--dry-run", "--json")
    assert (plan.code, ready.state()) == (0, before)
    assert ready.run(*command).code == 0
    ledger = Ledger.read(ready / database(command))
    assert plan.value["spend"] == ledger.total().epsilon == 1.0
    assert set(plan.value["caveats"]) == set(ledger.total().caveats)
    if people:
        details = json.loads(ledger.spends[0].payload)["details"]
        assert details == {"largest_person_labels": 14, "largest_person_epsilon": 14.0}
        assert {name: plan.value[name] for name in details} == details
    before = ready.state()
    more = [*command, "--force", "--dry-run", "--budget", "5", "--json"]
    again = ready.run(*more)
    assert (again.code, ready.state()) == (0, before)
    assert again.value["spend"] == (0.0 if people else 1.0)


@both
def test_dry_run_refuses_what_the_run_would_refuse(ready, command):
    refused(ready, [*command, "--dry-run", "--budget", "0.5"], 3, "budget")
    assert ready.run(*command).code == 0
    refused(ready, [*command, "--dry-run"], 2, "exists")
    refused(ready, [*command, "--dry-run", "--force"], 3, "budget")
    refused(ready, [*command, "--dry-run", "--force", "--data", "other"], 3, "budget")


@both
def test_judgments_of_other_questions_have_a_budget_of_their_own(ready, pairs, command):
    ledger = ["--ledger", "shared.db", "--force"]
    assert ready.run(*command, *ledger).code == 0
    ready.write("in.jsonl", pairs[::-1])
    refused(ready, [*command, *ledger], 3, "budget")
    ready.write("in.jsonl", [p | {"prompt": f"other {p['prompt']}"} for p in pairs])
    assert ready.run(*command, *ledger).code == 0


@both
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE rows SET parameters = '{\"epsilon\": 0.1}' WHERE kind = 'reserve'",
        "UPDATE rows SET payload = replace(payload, '1.0', '100.0') WHERE kind = 'open'",
        "DELETE FROM rows WHERE kind = 'reserve'",
        "DROP TABLE rows",
    ],
)
def test_edited_ledger(done, command, edit):
    path = done / database(command)
    with sqlite3.connect(path) as connection:
        for trigger in ("no_update", "no_delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        connection.execute(edit)
    connection.close()
    refused(done, [*command, "--force", "--budget", "9"], 8, "edger")
    for words in (["ledger", "verify"], ["ledger", "show"]):
        said = done.run(*words, path)
        assert (said.code, said.out) == (8, "")


@both
@pytest.mark.parametrize("content", [b"", b"not a ledger", b"SQLite format 3\0" + b"x" * 200])
def test_a_file_that_is_no_ledger(ready, command, content):
    (ready / "spend.db").write_bytes(content)
    said = ready.run(*command, "--ledger", "spend.db")
    assert (said.code, said.out) == (8, "")
    assert (ready / "spend.db").read_bytes() == content
    assert ready.names() <= {"in.jsonl", "spend.db", "spend.db-wal", "spend.db-shm"}


def test_a_name_of_a_data_set_commands_no_terminal(ready):
    assert ready.run(*PRIVATIZE, "--data", "a\x1b[31mb\u202ec").code == 0
    said = ready.run("ledger", "show", "out.spend.db")
    assert "\x1b[31m" not in said.out
    assert "\u202e" not in said.out


def test_a_memo_that_was_damaged(ready, pairs):
    ready.write("in.jsonl", [row | {"person": "p"} for row in pairs])
    assert ready.run(*PRIVATIZE).code == 0
    [stored] = (ready / "out.spend.memo").glob("*.npy")
    stored.write_bytes(b"no memo" * 100)
    refused(ready, [*PRIVATIZE, "--force"], 8, "memo")


@both
def test_dropped_pairs_are_counted_everywhere(ready, pairs, command):
    ready.write("in.jsonl", [SAME, *pairs, SAME, SAME])
    refused(ready, command, 4, "line 1", "--drop", "identical")
    command = [*command, "--drop", "identical"]
    plan = ready.run(*command, "--dry-run", "--json").value
    assert (plan["pairs"], plan["dropped"]) == (40, 3)
    assert re.search(r"dropped +3 ", ready.run(*command, "--dry-run").out)
    said = ready.run(*command)
    assert said.code == 0
    assert re.search(r"(dropped +3 |without 3 )", said.out)
    value = ready.run(*command, "--json", "--force", "--budget", "9").value
    assert (value["data"] if command[0] == "align" else value)["dropped"] == 3
    if command[0] == "align":
        assert value["data"]["pairs"] == 40
    else:
        assert len((ready / "out.jsonl").read_text().splitlines()) == 40


@pytest.mark.parametrize("change", ["same", "reversed", "turned", "more", "half", "privatized"])
def test_evaluate_refuses_the_private_file(ready, pairs, change):
    public = {
        "same": pairs,
        "reversed": pairs[::-1],
        "turned": [p | {"chosen": p["rejected"], "rejected": p["chosen"]} for p in pairs],
        "more": [*pairs, *(pair(index) for index in range(100, 130))],
        "half": pairs[:10],
        "privatized": pairs,
    }[change]
    ready.write("public.jsonl", public)
    command = ALIGN
    if change == "privatized":
        assert ready.run(*PRIVATIZE).code == 0
        command = ["align", "out.jsonl", "--out", "out"]
    refused(ready, [*command, "--evaluate", "public.jsonl"], 2, "--evaluate", "private")


@pytest.mark.parametrize("shared", [0, 5])
def test_a_public_file_is_measured_on_without_questions_of_the_private_one(ready, pairs, shared):
    ready.write("public.jsonl", [*pairs[:shared], *(pair(index) for index in range(100, 130))])
    more = ["--accept-weak"] if shared else []
    result = ready.run(*ALIGN, "--evaluate", "public.jsonl", *more, "--json").value
    told = result["public_evaluation"]
    assert ("public-overlap" in result["caveats"]) is bool(shared)
    assert set(told) >= {"pairs", "accuracy", "negative_log_likelihood", "win_rate"}
    assert told["pairs"] == 30


def test_too_few_questions_are_refused_before_anything_is_spent(folder):
    folder.write("in.jsonl", [pair(0)])
    refused(folder, ALIGN, 4, "too few")


def test_truth_of_a_simulation(folder):
    words = ["simulate", "pairs", "--out", "in.jsonl", "--truth", "t.json", "--n", "60"]
    assert folder.run(*words).code == 0
    result = folder.run(*ALIGN, "--truth", "t.json", "--json").value
    assert set(result["truth"]) == {"kl_regret", "value", "best_value"}
    (folder / "t.json").write_text("{}")
    before = folder.state()
    assert folder.run(*ALIGN, "--truth", "t.json", "--force", "--budget", "9").code == 4
    assert folder.state() == before


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@both
def test_a_handful_of_pairs(folder, pairs, command, n):
    """It works, or it is refused before anything is spent; no crash is seen."""
    folder.write("in.jsonl", pairs[:n])
    said = folder.run(*command)
    assert "InternalError" not in said.err
    assert said.code in {0, 4}
    assert folder.names() - {"in.jsonl"} == (set() if said.code else WRITTEN[command[0]])
    if said.code == 0:
        assert len(Ledger.read(folder / database(command)).spends) == 1


def test_what_cannot_be_measured_is_null_and_nothing_crashes(folder, pairs):
    """One person is one cluster, which has no standard error."""
    folder.write("in.jsonl", [row | {"person": "p"} for row in pairs])
    said = folder.run(*ALIGN, "--json")
    assert said.value["reward"]["accuracy_standard_error"] is None
    assert said.value == json.loads((folder / "out/result.json").read_text())
    said = folder.run(*ALIGN, "--force")
    assert (said.code, "too few" in said.out) == (0, True)
    assert folder.run(*PRIVATIZE).code == 0
    said = folder.run("fit", "out.jsonl", "--out", "reward.json")
    assert (said.code, "too few" in said.out) == (0, True)


def test_a_ledger_has_a_budget_for_each_unit(ready):
    """Labels first, then whole records of the same file, which spends of the labels' budget too."""
    said = ready.run("budget", "set", "label", "2.5", "--delta", "1e-4", "--ledger", "all.db")
    assert (said.code, said.err) == (0, "")
    assert ready.run(*ALIGN, "--ledger", "all.db").code == 0
    records = ["--noise", "estimate", "--unit", "record", "--delta", "1e-6", "--ledger", "all.db"]
    second = ["align", "in.jsonl", "--out", "second", "--epsilon", "1", *records]
    refused(ready, second, 2, "no budget for record changes")
    words = ["record", "1", "--delta", "1e-6", "--ledger", "all.db"]
    assert ready.run("budget", "set", *words).code == 0
    refused(ready, second, 3, "in total for a label", "all.db")
    assert ready.run("budget", "set", "label", "3", "--ledger", "all.db").code == 0
    spent = ready.run(*second, "--json").value["spent"]
    set_anew = ready.run("budget", "set", "record", "1", "--ledger", "all.db", "--json")
    assert spent == set_anew.value["accounts"]
    assert spent["label"]["epsilon"] == pytest.approx(3, rel=1e-3)
    assert spent["record"]["epsilon"] is spent["person"]["epsilon"] is None
    assert "treated prompts and answers as public" in spent["record"]["says"]
    for again in (False, True):
        page = (ready / "second/report.html").read_text()
        said = f"One record, once all releases of the ledger are seen: {spent['record']['says']}."
        assert said in page
        assert "ε = 1 of 1" in page
        words = ["report", "second", "--ledger", "all.db", "--force"]
        assert again or ready.run(*words).code == 0
    assert ready.run("audit", "run", "second", "--ledger", "all.db").code == 0
