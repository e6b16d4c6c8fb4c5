"""A reward that its curator keeps, on the command line: align prepares, and each answer spends."""

import json

import numpy as np
import pytest

from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import event_of

from .conftest import CANARY, refused, same_bytes

ALIGN = ["align", "in.jsonl", "--noise", "draws", "--epsilon", "1", "--out", "run"]
DRAWS = ["--draws", "10"]
RECORD = ["--unit", "record"]
CHOOSE = ["choose", "run", "q.jsonl", "--judgments", "in.jsonl"]
QUESTIONS = [
    {"prompt": "q1", "candidates": ["yes, then", "no, sorry", "perhaps"]},
    {"prompt": "q2", "candidates": ["no, sorry", "yes, then"]},
]
units = pytest.mark.parametrize("more", [[], RECORD], ids=["label", "record"])


@pytest.fixture
def ready(folder, pairs):
    folder.write("in.jsonl", pairs)
    folder.write("q.jsonl", QUESTIONS)
    return folder


@pytest.fixture
def prepared(ready):
    assert ready.run(*ALIGN, *DRAWS).code == 0
    return ready


def result_of(folder):
    return json.loads((folder / "run/result.json").read_text())


@units
def test_align_spends_nothing_and_writes_no_weight(ready, more):
    said = ready.run(*ALIGN, *DRAWS, *more, "--json")
    assert (said.code, said.err) == (0, "")
    assert ready.names() == {"in.jsonl", "q.jsonl", "run/result.json", "run/spend.db"}
    result = result_of(ready)
    assert said.value == result
    assert set(result) == {
        "format", "version", "sordino", "noise", "guarantee", "caveats", "temperature", "ridge",
        "ball", "bound", "draws", "per_draw", "dimension", "reading", "data", "public_digest",
        "spent", "verdict",
    }  # fmt: skip
    assert result["noise"] == "draws"
    ledger = Ledger.read(ready / "run/spend.db")
    assert [row.kind for row in ledger.rows] == ["open"]
    assert (ledger.budget.epsilon, ledger.budget.delta) == (1.0, 1e-6)
    assert 0.99 < result["guarantee"]["epsilon"] <= 1
    assert ledger.budget.unit == result["guarantee"]["unit"] == ("record" if more else "label")


@units
def test_what_is_written_of_records_depends_on_none(ready, pairs, more):
    """Of labels it depends on the questions alone."""
    assert ready.run(*ALIGN, *DRAWS, *more).code == 0
    one = (ready / "run/result.json").read_bytes()
    turned = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in pairs]
    others = {"labels": turned} | ({"fewer": pairs[:7], "other": turned[3:]} if more else {})
    for rows in others.values():
        ready.write("in.jsonl", rows)
        assert ready.run(*ALIGN, *DRAWS, *more, "--force").code == 0
        assert (ready / "run/result.json").read_bytes() == one


def test_a_dry_run_touches_nothing_and_says_what_is_written(ready):
    before = ready.state()
    plan = ready.run(*ALIGN, *DRAWS, "--dry-run", "--json")
    assert (plan.code, plan.err, ready.state()) == (0, "", before)
    assert plan.value["spend"] == 0.0
    assert "each answer" in ready.run(*ALIGN, *DRAWS, "--dry-run").out
    assert "--judgments" in ready.run(*ALIGN, *DRAWS).out
    result = result_of(ready)
    assert all(
        result[name] == value
        for name, value in plan.value.items()
        if name not in {"spend", "forecast"}
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--temperature", "2"], {"temperature": 2.0}),
        (["--ridge", "7"], {"ridge": 7.0}),
        ([], {"temperature": 0.5}),
    ],
)
@units
def test_what_is_left_out_is_chosen_so_that_all_draws_fit(ready, given, kept, more):
    assert ready.run(*ALIGN, *DRAWS, *given, *more).code == 0
    result = result_of(ready)
    assert all(result[name] == pytest.approx(value, rel=1e-9) for name, value in kept.items())
    assert 0.99 < result["guarantee"]["epsilon"] <= 1


MISTAKES = {
    "no draws": ([], "--draws is needed"),
    "no draw": (["--draws", "0"], "--draws"),
    "person": ([*DRAWS, "--unit", "person"], "--unit person"),
    "seed": ([*DRAWS, "--simulate-seed", "1"], "--simulate-seed"),
    "evaluate": ([*DRAWS, "--evaluate", "q.jsonl"], "--evaluate"),
    "truth": ([*DRAWS, "--truth", "q.jsonl"], "--truth"),
    "bound of labels": ([*DRAWS, "--bound", "1"], "--bound"),
    "relation of labels": ([*DRAWS, "--neighbors", "zero-out"], "zero-out"),
    "delta": ([*DRAWS, "--delta", "1"], "--delta"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained_and_leaves_nothing(ready, mistake):
    more, word = MISTAKES[mistake]
    refused(ready, [*ALIGN, *more], 2, word)


def test_draws_that_cost_nothing_or_too_much_are_refused_at_once(ready):
    words = [word for word in ALIGN if word not in {"--epsilon", "1"}]
    refused(ready, [*words, *DRAWS], 2, "--epsilon")
    refused(ready, [*ALIGN, *DRAWS, "--temperature", "0.1", "--ridge", "1"], 3, "budget")


def test_randomized_answers_and_rankings_are_for_noise_elsewhere(ready):
    assert ready.run("privatize", "in.jsonl", "--epsilon", "1", "--out", "p.jsonl").code == 0
    words = ["align", "p.jsonl", *ALIGN[2:], *DRAWS]
    refused(ready, words, 2, "--noise labels")
    ready.write("ranks.jsonl", [{"ranking": ["a", "b", "c"]}] * 3)
    refused(ready, ["align", "ranks.jsonl", *ALIGN[2:], *DRAWS], 2, "rankings", "--noise draws")


@units
def test_each_answer_is_charged_before_it_is_drawn(ready, more):
    assert ready.run(*ALIGN, *DRAWS, *more).code == 0
    planned = result_of(ready)["per_draw"]["bounded_range"]
    said = ready.run(*CHOOSE, "--json")
    assert (said.code, said.err) == (0, "")
    (row,) = Ledger.read(ready / "run/spend.db").spends
    assert row.count == 2
    assert 0 < event_of(row).bounded_range <= planned
    assert row.unit == ("record" if more else "label")
    assert ("asked" in json.loads(row.payload)) == (not more)
    told = said.value
    assert told["guarantee"]["epsilon"] == Ledger.read(ready / "run/spend.db").total().epsilon
    rows = told["choices"]
    assert [set(row) for row in rows] == [{"prompt", "answer"}] * 2  # no probability
    assert all(row["answer"] in q["candidates"] for row, q in zip(rows, QUESTIONS, strict=True))
    assert "probability" not in said.out


def test_answers_are_printed_or_written(prepared):
    said = prepared.run(*CHOOSE)
    assert said.code == 0
    assert [set(json.loads(line)) for line in said.out.splitlines()] == [{"prompt", "answer"}] * 2
    assert said.err.startswith("Spent: epsilon=")
    said = prepared.run(*CHOOSE, "--out", "a.jsonl")
    assert (said.code, said.err) == (0, "")
    assert "remaining epsilon" in said.out
    assert len((prepared / "a.jsonl").read_text().splitlines()) == 2
    refused(prepared, [*CHOOSE, "--out", "a.jsonl"], 2, "exists")


def test_a_dry_run_of_answers(prepared):
    before = prepared.state()
    plan = prepared.run(*CHOOSE, "--dry-run", "--json")
    assert (plan.code, plan.err, prepared.state()) == (0, "", before)
    planned = prepared.run(*CHOOSE, "--dry-run").out
    assert "would spend" in planned
    assert "nothing (dry run)" in planned
    assert prepared.run(*CHOOSE, "--json").value["guarantee"]["epsilon"] == plan.value["spend"]


@units
def test_all_planned_draws_fit_and_no_budget_is_passed(ready, more, monkeypatch):
    assert ready.run(*ALIGN, *DRAWS, *more, "--dimension", "512").code == 0
    ready.write("q.jsonl", [{"prompt": f"p {i}", "candidates": [f"a {i}", "b"]} for i in range(10)])
    assert ready.run(*CHOOSE).code == 0
    ready.write("q.jsonl", QUESTIONS * 50)

    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr("sordino.mechanisms.gibbs.draw_actions", never)
    refused(ready, CHOOSE, 3, "Nothing was released", "fewer answers")
    refused(ready, [*CHOOSE, "--dry-run"], 3, "Nothing was released")


def test_another_ledger_and_another_temperature(ready):
    assert ready.run(*ALIGN, *DRAWS, "--ledger", "l.db").code == 0
    refused(ready, CHOOSE, 7, "no ledger ledger.db")
    words = [*CHOOSE, "--ledger", "l.db"]
    hot = ready.run(*words, "--temperature", "50", "--json").value
    usual = ready.run(*words, "--json").value
    assert hot["guarantee"]["epsilon"] < usual["guarantee"]["epsilon"] / 50
    refused(ready, [*words, "--temperature", "0.01"], 3, "--temperature")
    refused(ready, [*words, "--temperature", "0"], 2, "temperature")


def test_a_vacuous_answer_is_refused_unless_it_is_accepted(ready):
    assert ready.run(*ALIGN, *DRAWS, "--budget", "100000").code == 0
    command = [*CHOOSE, "--temperature", "0.0005"]
    refused(ready, command, 2, "--accept-weak")
    said = ready.run(*command, "--accept-weak")
    assert (said.code, said.err.count("PrivacyWarning")) == (0, 0)


def test_judgments_are_needed_and_must_be_the_same(prepared, pairs):
    refused(prepared, CHOOSE[:3], 2, "--judgments")
    refused(prepared, [*CHOOSE[:4], "none.jsonl"], 7, "cannot be read")
    prepared.write("other.jsonl", pairs[1:])
    refused(prepared, [*CHOOSE[:4], "other.jsonl"], 8, "--judgments")
    prepared.write("bad.jsonl", ["{"])
    refused(prepared, [*CHOOSE[:4], "bad.jsonl"], 4, "line 1")
    prepared.write("q.jsonl", [{"prompt": "p", "candidates": []}])
    refused(prepared, CHOOSE, 4, "line 1", "candidates")


def test_a_folder_that_was_spoiled(prepared):
    result = result_of(prepared)
    for change in ({"ridge": "x"}, {"temperature": -1}, {"reading": {}}, {"guarantee": {}}):
        (prepared / "run/result.json").write_text(json.dumps(result | change))
        said = prepared.run(*CHOOSE)
        assert (said.code in {2, 4}, said.out) == (True, ""), change
        assert "InternalError" not in said.err
    (prepared / "run/result.json").write_text(json.dumps(result | {"version": 2}))
    refused(prepared, CHOOSE, 4, "newer")
    assert not Ledger.read(prepared / "run/spend.db").spends


@pytest.mark.parametrize("command", [["report", "run"], ["audit", "run", "run"]])
def test_there_is_nothing_to_report_or_to_audit(prepared, command):
    refused(prepared, command, 4, "cannot be used")


def test_answers_of_other_runs_stay_free(ready):
    assert ready.run("align", "in.jsonl", "--epsilon", "1", "--out", "run").code == 0
    before = ready.state()
    said = ready.run("choose", "run", "q.jsonl")
    assert (said.code, said.err, ready.state()) == (0, "", before)
    assert all("probability" in json.loads(line) for line in said.out.splitlines())
    for more in (["--judgments", "in.jsonl"], ["--ledger", "run/spend.db"], ["--dry-run"]):
        refused(ready, ["choose", "run", "q.jsonl", *more], 2, more[0], "free")


def told(folder, monkeypatch, rows, more):
    """Every byte that is printed, its draws being replaced by constant ones."""
    folder.write("in.jsonl", rows)
    (folder / "l.db").unlink(missing_ok=True)
    with same_bytes(
        monkeypatch, lambda self, scores, *, entropy: np.zeros(self.draws, dtype=np.int64)
    ):
        words = [["--ledger", "l.db", "--force"], ["--ledger", "l.db", "--json"]]
        one = folder.run(*ALIGN, *DRAWS, *more, *words[0])
        two = folder.run(*CHOOSE, *words[1])
    assert (one.code, two.code) == (0, 0), one.err + two.err
    chain = [row.digest for row in Ledger.read(folder / "l.db").rows]
    return one, two, (folder / "run/result.json").read_bytes(), chain


@pytest.mark.parametrize("neighbors", ["zero-out", "add-remove", "replace"])
def test_every_byte_but_the_answers_is_public_of_records(ready, pairs, monkeypatch, neighbors):
    more = [*RECORD, "--neighbors", neighbors]
    one = told(ready, monkeypatch, pairs, more)
    same = {"prompt": f"{CANARY}", "chosen": f"{CANARY} x", "rejected": f"{CANARY} x"}
    for rows in (pairs[1:], [*pairs, same], pairs[::-1], pairs[:3]):
        assert told(ready, monkeypatch, rows, more) == one
    assert CANARY not in repr(one)


def test_every_byte_but_the_answers_is_public_of_labels(ready, pairs, monkeypatch):
    one = told(ready, monkeypatch, pairs, [])
    turned = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in pairs]
    assert told(ready, monkeypatch, turned, []) == one


def test_of_records_the_ridge_is_that_of_the_documents(ready):
    """λr = D·X·σ(B·X)/(ε·η) for one draw without δ, B being large."""
    words = [*ALIGN, *RECORD, "--draws", "1", "--delta", "0", "--temperature", "0.5"]
    assert ready.run(*words).code == 0
    assert result_of(ready)["ridge"] == pytest.approx(2 * 1 / (1 * 0.5), rel=1e-5)
    words = [*words, "--neighbors", "replace", "--force", "--ledger", "x.db"]
    assert ready.run(*words).code == 0
    assert result_of(ready)["ridge"] == pytest.approx(2 * 2 * 1 / (1 * 0.5), rel=1e-5)
