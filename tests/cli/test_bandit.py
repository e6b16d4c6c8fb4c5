"""Arms from logged pulls on the command line: what is promised, refused, written and never told."""

import json
from collections import Counter

import numpy as np
import pytest

from sordino.privacy import accounting
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE
from sordino.privacy.ledger import Ledger
from sordino.privacy.ledger_chain import event_of

from .conftest import CANARY, refused, same_bytes

KEYS = {
    "format", "version", "guarantee", "temperature", "regularization", "draws", "per_draw",
    "caveats", "spent", "seconds", "verdict", "odds_bound",
}  # fmt: skip
COMMON = ["bandit", "logs.csv", "--arm", "item", "--reward", "click", "--out", "out"]
PUBLIC = ["--arms", "3", "--reward-range", "0", "1"]
RUN = [*COMMON, *PUBLIC, "--epsilon", "1", "--draws", "20"]
LINEAR = [
    *COMMON, "--arms", "arms.csv:item", "--reward-range", "0", "1", "--method", "linear",
    "--action-features", "arms.csv", "--context-columns", "age,city:4", "--epsilon", "1",
]  # fmt: skip
LABEL = [*COMMON, *PUBLIC, "--unit", "label", "--draws", "10"]


def records(n, seed=0):
    """Pulls whose rewards say that arm 2 is best."""
    generator = np.random.default_rng(seed)
    arms = generator.integers(0, 3, n)
    clicks = generator.random(n) < np.array([0.1, 0.3, 0.9])[arms]
    return [
        f"{arm},{int(click)},{generator.uniform(-1, 1):.3f},{CANARY}{arm}"
        for arm, click in zip(arms, clicks, strict=True)
    ]


def write(path, rows, header="item,click,age,city"):
    path.write_text("\n".join([header, *rows]) + "\n")


@pytest.fixture
def ready(folder):
    write(folder / "logs.csv", records(3000))
    write(folder / "arms.csv", ["0,0.0", "1,0.5", "2,1.0"], header="item,size")
    write(folder / "contexts.csv", ["0.5,x", "-1,y"], header="age,city")
    return folder


def result_of(folder):
    return json.loads((folder / "out/result.json").read_text())


def flat(text):
    """A table as if it had one line."""
    return " ".join(text.split())


@pytest.mark.parametrize("unit", ["record", "label"])
def test_the_result_has_exactly_the_keys_of_the_contract(ready, unit):
    said = ready.run(*RUN, "--unit", unit, "--json")
    assert (said.code, said.err) == (0, "")
    assert ready.names() - {"logs.csv", "arms.csv", "contexts.csv"} == {
        "out/result.json", "out/spend.db",
    }  # fmt: skip
    result = result_of(ready)
    assert said.value == result
    assert set(result) == KEYS
    assert result["guarantee"] == {
        "epsilon": result["guarantee"]["epsilon"], "delta": 1e-6, "unit": unit,
        "neighbors": "ADD_OR_REMOVE_ONE" if unit == "record" else "REPLACE_ONE",
        "trust": "central", "randomness": "system",
    }  # fmt: skip
    assert len(result["draws"]) == 20
    assert set(result["draws"]) <= {"0", "1", "2"}
    assert (result["seconds"] is None) == (unit == "record")  # a time tells the number of records


def test_the_guarantee_is_what_the_ledger_composes(ready):
    assert ready.run(*RUN).code == 0
    result, ledger = result_of(ready), Ledger.read(ready / "out/spend.db")
    (row,) = ledger.spends
    event = event_of(row)
    assert (event.draws, row.count) == (20, 1)
    assert event.bounded_range == result["per_draw"]["bounded_range"]
    again = accounting.composed_epsilon({event: 1}, neighbors=ADD_OR_REMOVE_ONE, delta=1e-6)
    assert result["guarantee"]["epsilon"] == again == ledger.total().epsilon
    assert 0.99 < again <= 1
    assert not row.time.endswith("Z") or row.time.endswith("T00:00:00Z")  # no clock for records


def test_a_run_on_a_ledger_with_history_promises_its_own_part(ready):
    words = ["--ledger", "shared.db", "--force"]
    assert ready.run(*RUN, *words, "--budget", "5").code == 0
    first = result_of(ready)["guarantee"]["epsilon"]
    assert ready.run(*RUN, *words).code == 0
    assert result_of(ready)["guarantee"]["epsilon"] == first
    assert Ledger.read(ready / "shared.db").total().epsilon > first


def test_a_dry_run_touches_nothing_and_says_what_the_run_then_spends(ready):
    before = ready.state()
    plan = ready.run(*RUN, "--dry-run", "--json")
    assert (plan.code, plan.err, ready.state()) == (0, "", before)
    said = ready.run(*RUN, "--dry-run")
    assert all(word in said.out for word in ("would spend", "each draw", "temperature", "record"))
    assert ready.state() == before
    assert ready.run(*RUN).code == 0
    result = result_of(ready)
    assert plan.value["spend"] == result["guarantee"]["epsilon"]
    assert plan.value["per_draw"] == result["per_draw"]
    assert plan.value["temperature"] == result["temperature"]
    assert plan.value["regularization"] == result["regularization"]
    assert plan.value["draws"] == 20


def test_what_would_be_released_must_be_given(ready):
    said = refused(ready, [*COMMON, "--reward-range", "0", "1", "--epsilon", "1"], 2, "--arms")
    assert "Read from the logs, they would be released" in said
    said = refused(ready, [*COMMON, "--arms", "3", "--epsilon", "1"], 2, "--reward-range")
    assert "Read from the logs, it would be released" in said


MISTAKES = {
    "no epsilon": (PUBLIC, "--epsilon is needed"),
    "range upside down": (["--arms", "3", "--reward-range", "1", "0"], "--reward-range"),
    "range of nothing": (["--arms", "3", "--reward-range", "1", "1"], "--reward-range"),
    "no number of arms": (["--arms", "0", "--reward-range", "0", "1"], "arms"),
    "arms without a column": (["--arms", "arms.csv", "--reward-range", "0", "1"], "--arms"),
    "arms from the logs": (["--arms", "logs.csv:item", "--reward-range", "0", "1"], "--arms"),
    "contexts from the logs": (
        [*PUBLIC, "--method", "linear", "--context-columns", "age", "--contexts", "logs.csv"],
        "--contexts",
    ),
    "reference from the logs": ([*PUBLIC, "--reference", "logs.csv"], "--reference"),
    "person": ([*PUBLIC, "--unit", "person"], "--unit person"),
    "relation of labels": ([*PUBLIC, "--unit", "label", "--neighbors", "add-remove"], "replaced"),
    "center outside": ([*PUBLIC, "--center", "2"], "--center"),
    "negative penalty": ([*PUBLIC, "--penalty", "-1"], "--penalty"),
    "delta": ([*PUBLIC, "--delta", "1"], "--delta"),
    "linear options": ([*PUBLIC, "--context-columns", "age"], "--method linear"),
    "contexts of nothing": ([*PUBLIC, "--method", "linear", "--contexts", "x"], "have no contexts"),
    "empty column": ([*PUBLIC, "--method", "linear", "--context-columns", "age,,b"], "a name"),
    "all three": ([*PUBLIC, "--temperature", "1", "--regularization", "1"], "--epsilon with both"),
    "test alone": ([*PUBLIC, "--test-delta", "1e-7"], "--test-epsilon"),
    "test of all": ([*PUBLIC, "--test-epsilon", "1"], "below 1"),
    "test without delta": ([*PUBLIC, "--test-epsilon", "0.5", "--delta", "0"], "--delta"),
    "test and temperature": ([*PUBLIC, "--test-epsilon", "0.5", "--temperature", "1"], "decides"),
    "test of labels": ([*PUBLIC, "--test-epsilon", "0.5", "--unit", "label"], "--unit record"),
    "negative budget": ([*PUBLIC, "--budget", "-1"], "--budget"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained_and_costs_nothing(ready, mistake):
    more, word = MISTAKES[mistake]
    epsilon = [] if mistake == "no epsilon" else ["--epsilon", "1"]
    for again in ([], ["--dry-run"]):
        refused(ready, [*COMMON, *more, *epsilon, *again], 2, word)


def test_no_draw_is_no_run(ready):
    refused(ready, [*RUN, "--draws", "0"], 2, "--draws", lines=None)


@pytest.mark.parametrize(
    ("unit", "words"),
    [("label", ["line 3", "'click'"]), ("record", ["Which one it is, and why, is not said"])],
)
@pytest.mark.parametrize("value", ["x", "nan"])
def test_bad_logs(folder, value, unit, words):
    write(folder / "logs.csv", ["0,1", f"1,{value}"], header="item,click")
    refused(folder, [*RUN, "--unit", unit], 4, *words)


@pytest.mark.parametrize(("unit", "word"), [("label", "'things'"), ("record", "lacks a field")])
def test_a_field_that_is_not_there(ready, unit, word):
    command = [*RUN[:3], "things", *RUN[4:], "--unit", unit]
    refused(ready, command, 4, word)


def test_files_that_are_not_there_or_in_the_way(ready):
    refused(ready, ["bandit", "none.csv", *RUN[2:]], 7, "cannot be read")
    assert ready.run(*RUN).code == 0
    refused(ready, RUN, 2, "exists", "another name")
    refused(ready, [*RUN, "--force"], 3, "budget")
    assert ready.run(*RUN, "--force", "--budget", "2").code == 0


def test_over_budget_draws_nothing(ready, monkeypatch):
    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr("sordino.mechanisms.gibbs.draw_actions", never)
    refused(ready, [*RUN, "--budget", "0.5"], 3, "0.5", "Nothing was released")
    refused(ready, [*RUN, "--budget", "0.5", "--dry-run"], 3, "0.5")
    contexts = [*LINEAR, "--contexts", "contexts.csv", "--budget", "0.5"]
    refused(ready, contexts, 3, "0.5", "Nothing was released")
    refused(ready, [*RUN, "--test-epsilon", "0.6", "--budget", "0.5"], 3, "0.5")


def test_a_ledger_with_less_delta_says_so(ready):
    words = ["--ledger", "shared.db", "--force"]
    assert ready.run(*RUN, *words, "--delta", "0", "--budget", "3").code == 0
    more = [*RUN, *words, "--epsilon", "2.5"]
    refused(ready, more, 3, "delta=1e-06", "allows delta=0", "--budget-delta")


def test_a_vacuous_guarantee_is_refused_unless_it_is_accepted(ready):
    words = [*COMMON, *PUBLIC, "--temperature", "0.01", "--regularization", "1"]
    refused(ready, words, 2, "epsilon=24.99", "--accept-weak")
    said = ready.run(*words, "--accept-weak")
    assert (said.code, said.err) == (0, "")
    assert "epsilon=25" in said.out
    quiet = ready.run(*words[:-3], "0.02", "--regularization", "1", "--force", "--budget", "99")
    assert (quiet.code, quiet.err) == (0, "")


SURE = [(0, 0), ('"1"', 0.0), (2, 1)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.csv", "item,probability\n0,0\n1,0\n2,1\n"),
        ("r.csv", "arm,probability\n2,1\n1,0\n0,0\n"),
        ("r.jsonl", "".join(f'{{"arm": {a}, "probability": {p}}}\n' for a, p in SURE)),
    ],
)  # fmt: skip
def test_a_reference_that_knows_one_arm(ready, name, text):
    (ready / name).write_text(text)
    assert ready.run(*RUN, "--reference", name, "--json").value["draws"] == ["2"] * 20


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("r.csv", "arm,probability\n0,0.5\n1,0.5\n", "'2'"),
        ("r.csv", "arm,probability\n0,0.5\n1,0.5\n2,0\n7,0\n", "no arm '7'"),
        ("r.csv", "arm,probability\n0,0.5\n1,0.5\n1,0\n", "line 4"),
        ("r.csv", "arm,probability\n0,0.5\n1,0.4\n2,0.2\n", "sum to 1"),
        ("r.csv", "arm,probability\n0,0.5\n1,x\n2,0.2\n", "line 3"),
        ("r.csv", "arm,share\n0,0.5\n", "'probability'"),
    ],
)
def test_a_reference_that_is_none(ready, name, text, word):
    (ready / name).write_text(text)
    refused(ready, [*RUN, "--reference", name], 4, "--reference", word)


def test_draws_are_names_of_the_catalogue(ready):
    write(ready / "names.csv", ["a,1", "b,2", "0,3"], header="name,size")
    words = [*COMMON, "--arms", "names.csv:name", "--reward-range", "0", "1", "--epsilon", "1"]
    assert set(ready.run(*words, "--draws", "50", "--json").value["draws"]) <= {"a", "b", "0"}


def test_a_regression_draws_for_every_context(ready):
    said = ready.run(*LINEAR, "--draws", "4")
    assert said.code == 0
    assert "zeros" in said.out
    assert result_of(ready)["per_draw"]["contexts"] == "zeros"
    assert 0.99 < result_of(ready)["guarantee"]["epsilon"] <= 1
    said = ready.run(*LINEAR, "--draws", "4", "--contexts", "contexts.csv", "--force",
                     "--ledger", "two.db")  # fmt: skip
    assert said.code == 0, said.err
    result = result_of(ready)
    assert (len(result["draws"]), result["per_draw"]["contexts"]) == (8, 2)
    assert 0.99 < result["guarantee"]["epsilon"] <= 1
    assert result["caveats"] == ["real-arithmetic"]
    (row,) = Ledger.read(ready / "two.db").spends
    assert row.count == 8


def test_contexts_in_several_blocks_stay_within_the_plan(ready, monkeypatch):
    monkeypatch.setattr("sordino.runs.bandit_run._BLOCK", 3)
    words = [*LINEAR, "--draws", "4", "--contexts", "contexts.csv", "--simulate-seed", "0"]
    plan = ready.run(*words, "--dry-run", "--json").value
    assert ready.run(*words).code == 0
    result = result_of(ready)
    assert len(result["draws"]) == 8
    assert result["guarantee"]["epsilon"] <= plan["spend"] <= 1
    assert [row.count for row in Ledger.read(ready / "out/spend.db").spends] == [3, 3, 2]
    monkeypatch.setattr("sordino.runs.bandit_run._BLOCK", 10)
    words = [*words, "--temperature", "1", "--draws", "20", "--force", "--budget", "9", "--json"]
    drawn = ready.run(*words).value["draws"]
    assert drawn[:10] != drawn[10:20]  # a block has a seed of its own


def test_features_of_arms_follow_their_names(ready):
    write(ready / "turned.csv", ["2,1.0", "0,0.0", "1,0.5"], header="item,size")
    words = [*LINEAR, "--draws", "30", "--simulate-seed", "5", "--json"]
    one = ready.run(*words).value["draws"]
    turned = ["turned.csv" if word == "arms.csv" else word for word in words]
    more = ["--force", "--ledger", "x.db"]
    assert ready.run(*turned, *more).value["draws"] == one
    write(ready / "turned.csv", ["2,1.0", "0,0.0"], header="item,size")
    refused(ready, [*turned, *more], 4, "--action-features", "'1'")


@pytest.mark.parametrize("more", [[], ["--temperature", "0.2"]], ids=["alone", "temperature"])
@pytest.mark.parametrize("method", ["multi-armed", "linear"])
def test_rewards_alone(ready, method, more):
    result = ready.run(*LABEL, "--epsilon", "1", "--method", method, *more, "--json").value
    assert result["guarantee"]["unit"] == "label"
    assert result["guarantee"]["epsilon"] <= 1
    if more:
        assert result["temperature"] >= 0.2
    else:
        assert result["guarantee"]["epsilon"] > 0.99


def test_logs_add_up_whatever_their_arms_and_rewards(ready):
    words = [*LABEL, "--epsilon", "1", "--ledger", "l.db", "--force"]
    assert ready.run(*words, "--budget", "9").code == 0
    write(ready / "logs.csv", records(3000, seed=1))
    assert ready.run(*words).code == 0  # who was asked what does not tell logs apart: it adds up
    first = Ledger.read(ready / "l.db").total().epsilon
    rows = [row.split(",") for row in records(3000)]
    write(ready / "logs.csv", [",".join([arm, "0.5", *rest]) for arm, _, *rest in rows])
    assert ready.run(*words).code == 0
    assert Ledger.read(ready / "l.db").total().epsilon > first > 1


@pytest.mark.parametrize(("n", "found"), [(3000, True), (30, False)])
def test_a_test_of_counts_is_part_of_epsilon(ready, n, found):
    write(ready / "logs.csv", records(n))
    words = [*RUN, "--test-epsilon", "0.5", "--simulate-seed", "2"]
    plan = ready.run(*words, "--dry-run", "--json").value
    assert plan["temperature"] is None
    assert 0.99 < plan["spend"] <= 1
    said = ready.run(*words)
    assert said.code == 0
    result = result_of(ready)
    assert set(result) == KEYS
    kinds = [row.event for row in Ledger.read(ready / "out/spend.db").spends]
    assert kinds == ["approximate", "bounded-range"]
    assert result["guarantee"]["epsilon"] <= plan["spend"]
    assert (result["per_draw"]["least_count"] >= 1) == found
    assert (result["per_draw"]["epsilon"] > 0) == found
    assert ("every arm has at least" if found else "from the reference") in flat(said.out)


def told(folder, monkeypatch, rows, words):
    """Every byte that a run writes and prints, its draws being replaced by constant ones."""
    for name in ("out/result.json", "out/spend.db"):
        (folder / name).unlink(missing_ok=True)
    if (folder / "out").exists():
        (folder / "out").rmdir()
    write(folder / "logs.csv", rows)
    with same_bytes(
        monkeypatch, lambda self, scores, *, entropy: np.arange(self.draws) % len(scores)
    ) as patch:
        patch.setattr(
            "sordino.mechanisms.minimum_count_release.MinimumCount.release",
            lambda self, counts, *, entropy: np.array([7]),
        )
        plan = folder.run(*words, "--dry-run")
        said = folder.run(*words)
    assert (plan.code, said.code) == (0, 0), said.err
    chain = [row.digest for row in Ledger.read(folder / "out/spend.db").rows]
    return plan, said, (folder / "out/result.json").read_bytes(), chain


ROWS = records(300)
CHANGES = {
    "one less": ROWS[1:],
    "one more": [*ROWS, f"1,1,0.5,{CANARY}"],
    "another": [f"0,1,0.5,{CANARY}", *ROWS[1:]],
    "an arm of no catalogue": [*ROWS, f"99,1,0.5,{CANARY}"],
    "a reward beyond": [*ROWS[1:], f"2,1000,0.5,{CANARY}"],
    "a context beyond": [*ROWS[1:], f"2,1,1000,{CANARY}"],
    "all others": records(77, seed=9),
    "none of the catalogue": [f"99,1,0.5,{CANARY}"],
}
WAYS = {
    "arms": RUN,
    "arms, table of JSON": [*RUN, "--json"],
    "replace": [*RUN, "--neighbors", "replace"],
    "seed": [*RUN, "--simulate-seed", "3"],
    "tested": [*RUN, "--test-epsilon", "0.5"],
    "linear": LINEAR,
    "contexts": [*LINEAR, "--contexts", "contexts.csv", "--draws", "3"],
}


@pytest.mark.deep
@pytest.mark.parametrize("way", WAYS)
def test_every_byte_but_the_draws_is_public(ready, monkeypatch, way):
    """Also the number of records, of dropped ones and of clipped rewards."""
    one = told(ready, monkeypatch, ROWS, WAYS[way])
    assert CANARY not in repr(one)
    for name, rows in CHANGES.items():
        assert told(ready, monkeypatch, rows, WAYS[way]) == one, name


def test_simulated_is_said(ready):
    said = ready.run(*RUN, "--simulate-seed", "1")
    assert "SIMULATED" in said.out
    assert result_of(ready)["guarantee"]["randomness"] == "simulated"
    one = result_of(ready)["draws"]
    assert ready.run(*RUN, "--simulate-seed", "1", "--force", "--budget", "9").code == 0
    assert result_of(ready)["draws"] == one


def test_a_good_arm_is_drawn_more_often(ready):
    """In 200 draws at epsilon 20: P(fewer than half from arm 2) is below 1e-12."""
    words = [*COMMON, *PUBLIC, "--epsilon", "20", "--draws", "200", "--simulate-seed", "1"]
    assert ready.run(*words).code == 0
    assert Counter(result_of(ready)["draws"])["2"] > 100
