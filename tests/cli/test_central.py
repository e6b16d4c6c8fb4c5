"""``align --noise estimate`` on pairs, ballots, and judgments in many files, with mistakes."""

import json
import re
import sys

import numpy as np
import pytest
from tests.tiers import few

import sordino
from sordino.rewards.estimation import EXPECTED_PASSES
from sordino.rewards.private_metrics import METRICS_PASSES
from sordino.runs.progress import Bar

from .conftest import CANARY, refused
from .many_files import text_rows, texts_in, vectors_in, write_vectors

pytestmark = pytest.mark.usefixtures("few_parts")

CENTRAL = ["--noise", "estimate", "--epsilon", "2", "--out", "out"]
PAIRS = ["align", "prefs.jsonl", *CENTRAL, "--dimension", "32"]
VOTES = ["align", "votes.jsonl", *CENTRAL]
TEXTS = ["align", "texts", *CENTRAL, "--dimension", "32"]
VECTORS = ["align", "vectors", *CENTRAL]
RECORD = ["--unit", "record"]
BOUGHT = ["--metrics-epsilon", "4"]
NUMBERS = ("accuracy", "negative_log_likelihood", "calibration_slope")
ITEMS = ("apple", "banana", "cherry", "date")


def ballots(n=300, seed=0):
    """Ballots over four items, the first two ahead; some are short."""
    generator = np.random.default_rng(seed)
    worths = np.array([1.5, 1.0, 0.0, -1.0])
    rows = [{"items": list(ITEMS)}]
    for index in range(n):
        order = np.argsort(-(worths + generator.gumbel(size=4)))
        names = [ITEMS[i] for i in order[: generator.integers(1, 5)]]
        rows.append({"ranking": names, "offered": ITEMS, "person": f"p{index % 50}"})
    return rows


@pytest.fixture
def ready(folder):
    """Return a folder with the same kinds of judgments in one file, and in many."""
    rows = text_rows(400)
    people = [row | {"person": f"p{at % 40}"} for at, row in enumerate(rows)]
    folder.write("prefs.jsonl", rows)
    folder.write("owned.jsonl", people)
    folder.write("votes.jsonl", ballots())
    return vectors_in(texts_in(folder))


def result_of(folder):
    return json.loads((folder / "out/result.json").read_text())


def whole_run(folder, command, *, spends=1):
    """Run a command; see that everything it wrote belongs together, and quotes nothing."""
    said = folder.run(*command, "--json")
    assert (said.code, said.err) == (0, "")
    result = result_of(folder)
    assert said.value == result
    outputs = {f"out/{name}" for name in ("result.json", "report.html", "reward.json", "spend.db")}
    made = {name for name in folder.names() if name.startswith("out")}
    assert made - {"out/spend.db.secret"} == outputs  # where persons are named
    for name in outputs:
        assert CANARY.encode() not in (folder / name).read_bytes()
    assert CANARY not in said.out
    reward = sordino.RewardModel.load(folder / "out/reward.json")
    ledger = sordino.Ledger.read(folder / "out/spend.db")
    assert len(ledger.spends) == spends
    promise = result["guarantee"]
    assert sordino.certify(reward, ledger).guarantee.to_dict() == promise
    assert promise == result["certificate"]["guarantee"]
    told = (promise["delta"], promise["randomness"], promise["trust"])
    assert told == (1e-6, "system", "central")
    assert promise["epsilon"] <= 2 if spends == 1 else 2 < promise["epsilon"] <= 6
    assert sordino.audit(folder / "out").refuted is False
    page = (folder / "out/report.html").read_text()
    assert ">None<" not in page
    assert "nan" not in page.lower().split()
    return result, reward


UNITS = {
    "label": [],
    "person": ["--unit", "person", "--cap", "3"],
    "record": RECORD,
    "record, number hidden": [*RECORD, "--neighbors", "add-remove"],
    "record, replaced": [*RECORD, "--neighbors", "replace"],
    "record, with its moment": [*RECORD, "--second-moment"],
    "record, pessimistic": [*RECORD, "--confidence", "0.9"],
    "label, pessimistic": ["--confidence", "0.9"],
}


@pytest.mark.parametrize("metrics", few([[], BOUGHT], BOUGHT), ids=["free", "bought"])
@pytest.mark.parametrize(
    "unit", few(UNITS, "label", "person", "record, number hidden", "record, pessimistic")
)
def test_every_unit_end_to_end(ready, unit, metrics):
    """Result, reward, report, ledger, certificate and audit belong together."""
    command = [PAIRS[0], "owned.jsonl" if unit == "person" else "prefs.jsonl", *PAIRS[2:]]
    result, _ = whole_run(ready, [*command, *UNITS[unit], *metrics], spends=1 + bool(metrics))
    assert result["guarantee"]["unit"] == unit.split(",")[0]
    assert "files" not in result["data"]  # one file of JSON Lines is read into memory
    assert (result["metrics"] is None) == (not metrics)
    assert (result["reward"]["accuracy"] is None) == (not metrics)
    assert (result["policy"]["win_rate"] is None) == (not metrics)
    assert (result["policy"]["win_rate_interval"] is None) == (not metrics)


@pytest.mark.parametrize("unit", few([unit for unit in UNITS if "moment" not in unit][:5], first=2))
def test_an_election_end_to_end(ready, unit):
    result, reward = whole_run(ready, [*VOTES, *UNITS[unit]])
    names = [item["name"] for item in result["items"]]
    assert sorted(names) == sorted(ITEMS)
    worths = [item["worth"] for item in result["items"]]
    assert worths == sorted(worths, reverse=True)
    assert abs(sum(worths)) < 1e-6
    assert (result["data"]["ballots"] is None) == ("hidden" in unit)
    assert (result["seconds"] is None) == unit.startswith("record")
    assert result["reward"]["accuracy"] is None
    assert [name for name, *_ in reward.worths()] == names
    page = (ready / "out/report.html").read_text()
    assert all(name in page for name in ITEMS)


FILES = {
    "texts": (TEXTS, ["person-group"]),
    "texts, engine": ([*TEXTS, "--engine", "process"], ["person-group"]),
    "vectors": (VECTORS, []),
    "persons": ([*TEXTS, *UNITS["person"], "--confidence", "0.9", "--scale", "0.1"], None),
    "records": ([*TEXTS, *RECORD], None),
    "records, number hidden": ([*TEXTS, *UNITS["record, number hidden"]], None),
    "records, vectors": ([*VECTORS, *RECORD, "--confidence", "0.9", "--bound", "1"], None),
    "bought": ([*TEXTS, *BOUGHT], None),
    "bought, persons": ([*TEXTS, *BOUGHT, *UNITS["person"]], None),
    "bought, vectors": ([*VECTORS, *BOUGHT], None),
}


@pytest.mark.parametrize("kind", few(FILES, first=4))
def test_many_files_end_to_end(ready, kind):
    command, caveats = FILES[kind]
    bought = kind.startswith("bought")
    result, reward = whole_run(ready, command, spends=1 + bought)
    if caveats is not None:
        assert result["caveats"] == caveats
    data = result["data"]
    if "records" not in kind:
        assert data["files"] == 3
        if "persons" not in kind:  # of whom not all records count
            assert data["pairs"] == (900 if "vectors" in kind else 300)
    assert len(reward.weights) == (6 if "vectors" in kind else 32)
    assert (result["guarantee"]["unit"] == "person") == ("persons" in kind)
    if bought:
        metrics = result["metrics"]
        told = (metrics["name"], metrics["epsilon"], metrics["share"])
        assert told == ("label-gaussian", 4.0, 0.2)
        assert "persons" not in kind or metrics["pairs"] <= 60 == reward.pairs
        assert metrics["pairs"] + reward.pairs == data["pairs"]
        low, high = result["policy"]["win_rate_interval"]
        assert low <= result["policy"]["win_rate"] <= high
        page = (ready / "out/report.html").read_text()
        assert "one noised sum over them is bought" in page
        assert "for free" not in page
    if kind == "persons":
        assert (data["pairs"], data["records"]) == (60, 300)
        assert result["policy"]["kind"] == "pessimistic"
    if "records" in kind:
        assert reward.method == "objective-perturbation"
        assert (reward.pairs is None) == ("hidden" in kind)
        assert (reward.ellipsoid is not None) == ("vectors" in kind)


def test_a_question_that_occurs_twice_without_person_ids_is_said(folder):
    (folder / "texts").mkdir()
    folder.write("texts/0.jsonl", text_rows(60))
    folder.write("texts/1.jsonl", [*text_rows(60, first=60), *text_rows(60)[:1]])
    result, _ = whole_run(folder, TEXTS)
    assert result["caveats"] == ["repeats-not-linked"]


def test_rankings_of_answers_give_a_reward_of_texts(folder):
    generator = np.random.default_rng(0)
    rows = []
    for index in range(120):
        answers = [f"{word} answer {index}" for word in ("kind", "plain", "rude")]
        order = generator.permutation(3) if index % 4 == 0 else [0, 1, 2]
        ranking = [answers[i] for i in order]
        rows.append({"prompt": f"Question {index}?", "candidates": answers, "ranking": ranking})
    folder.write("votes.jsonl", rows)
    words = [*VOTES, "--epsilon", "8", "--dimension", "32", "--simulate-seed", "1"]
    assert folder.run(*words).code == 0
    result = result_of(folder)
    assert (result["items"], result["policy"]["choices"]) == (None, None)
    reward = sordino.RewardModel.load(folder / "out/reward.json")
    kind, rude = reward.score(["Q?"] * 2, ["kind answer", "rude answer"])
    assert kind > rude


@pytest.mark.parametrize(
    "more", few([["--epsilon", "8", "--metrics-epsilon", "2"], RECORD], first=1)
)
def test_one_file_says_in_chunks_what_it_says_in_memory(folder, more):
    """The same names with numbers; another ledger of one file gives another digest alone."""
    folder.write("prefs.jsonl", text_rows(300))
    found = []
    for place in ([], ["--force", "--ledger", "other.db", "--engine", "process"]):
        assert folder.run(*PAIRS, *more, "--simulate-seed", "3", *place).code == 0
        found.append((result_of(folder), sordino.RewardModel.load(folder / "out/reward.json")))
    (usual, kept), (chunked, reward) = found
    for name in ("metrics", "guarantee", "mechanism"):
        assert chunked[name] == usual[name]
    assert set(chunked["reward"]) == set(usual["reward"])
    if more == RECORD:
        assert chunked["data"].keys() == usual["data"].keys()
        assert np.linalg.norm(reward.weights - kept.weights) < 1e-4  # other noise on the output
        return
    for name in NUMBERS:
        error = usual["reward"][f"{name}_standard_error"]
        # the same noise; another way to the ridge and the fit, and other rounding
        assert chunked["reward"][name] == pytest.approx(usual["reward"][name], abs=error)
        assert chunked["reward"][f"{name}_standard_error"] == pytest.approx(error, rel=0.5)


@pytest.mark.deep
def test_ray_finds_what_this_process_finds(ready):
    pytest.importorskip("ray")
    seed = ["--simulate-seed", "1"]
    assert ready.run(*TEXTS, *seed).code == 0
    here = (ready / "out/reward.json").read_bytes()
    said = ready.process(*TEXTS, *seed, "--force", "--ledger", "ray.db", "--engine", "ray")
    assert said.code == 0, said.err
    assert CANARY not in said.out + said.err
    there = json.loads((ready / "out/reward.json").read_bytes())
    assert there["weights"] == json.loads(here)["weights"]


def test_the_bar_does_not_count_passes_over_records(ready, monkeypatch):
    said = []
    monkeypatch.setattr(Bar, "describe", lambda _, description: said.append(description))
    assert ready.run(*TEXTS, *RECORD).code == 0
    assert said == ["Pass 1", "Fitting"]


@pytest.mark.parametrize("unit", ["label", "person", "record"])
def test_what_costs_nothing_and_what_does(ready, unit):
    """Under label privacy likelihood and slope are free; under record privacy nothing is."""
    words = ["--epsilon", "4", "--unit", unit, "--simulate-seed", "1"]
    assert ready.run(PAIRS[0], "owned.jsonl", *PAIRS[2:], *words).code == 0
    reward = result_of(ready)["reward"]
    free = {"negative_log_likelihood", "calibration_slope"}
    for name in NUMBERS:
        told = reward[name] is not None or f"{name}_reason" in reward
        assert told == (unit != "record" and name in free), name


def test_what_was_bought_is_near_the_truth(folder):
    """9 of 10 judgments follow the words: seeded, so that it cannot fail by chance."""
    folder.write("prefs.jsonl", text_rows(3000))
    words = [*PAIRS, "--epsilon", "4", *BOUGHT, "--simulate-seed", "3"]
    for more in ([], [*RECORD, "--force", "--ledger", "r.db"]):
        assert folder.run(*words, *more).code == 0
        reward, policy = result_of(folder)["reward"], result_of(folder)["policy"]
        assert abs(reward["accuracy"] - 0.9) < 4 * reward["accuracy_standard_error"] + 0.02
        assert reward["accuracy_standard_error"] < 0.05
        low, high = policy["win_rate_interval"]
        assert 0.5 < low < policy["win_rate"] < high <= 1


def test_the_closing_table_and_the_page_say_what_was_not_measured(ready):
    said = ready.run(*TEXTS, *UNITS["person"])
    assert said.code == 0
    page = (ready / "out/report.html").read_text()
    page = re.sub(r"<[^>]*>", "", page)
    for text in (" ".join(said.out.split()), page):
        assert "60 in 3 files, without 240 repeats by the same person or beyond the cap" in text
        assert "nothing is measured on those for free. --metrics-epsilon buys" in text
    said = ready.run(*TEXTS, *BOUGHT, "--force", "--ledger", "other.db")
    assert "one noised sum over them is bought, at ε = 4" in " ".join(said.out.split())


def test_public_judgments_are_told_apart_only_where_that_tells_nothing(ready):
    """Of records it is private which questions there are."""
    ready.write("inside.jsonl", text_rows(5))
    ready.write("outside.jsonl", text_rows(5, first=900))
    for name in ("inside", "outside"):
        more = ["--evaluate", f"{name}.jsonl", "--ledger", f"{name}.db", "--force"]
        assert ready.run(*PAIRS, *RECORD, *more).code == 0
        assert result_of(ready)["public_evaluation"]["pairs"] == 5
    refused(ready, [*PAIRS, "--evaluate", "inside.jsonl", "--force"], 2, "--evaluate")


PLANS = {
    "pairs": (PAIRS, 400, "label-gaussian", False),
    "pairs, bought": ([*PAIRS, *BOUGHT], 400, "label-gaussian", True),
    "records": ([*PAIRS, *UNITS["record, number hidden"]], None, "objective-perturbation", False),
    "ballots": (VOTES, None, "ranking-gaussian", False),
    "texts": (TEXTS, None, "label-gaussian", False),
    "texts, bought": ([*TEXTS, *BOUGHT], None, "label-gaussian", True),
    "texts, ray": ([*TEXTS, "--engine", "ray"], None, "label-gaussian", False),
    "texts, records": ([*TEXTS, *RECORD], None, "objective-perturbation", False),
}


@pytest.mark.parametrize("kind", few(PLANS, "pairs", "ballots", "texts, bought", "texts, records"))
def test_a_plan_touches_nothing_and_starts_nothing(ready, kind):
    command, pairs, mechanism, bought = PLANS[kind]
    if "ray" in kind:
        pytest.importorskip("ray")
    before = ready.state()
    said = ready.run(*command, "--dry-run", "--json")
    assert (said.code, said.err, ready.state()) == (0, "", before)
    plan = said.value
    assert (plan["pairs"], plan["mechanism"]["name"]) == (pairs, mechanism)
    assert (plan["metrics"] is not None) == bought
    assert plan["spend"] == plan["guarantee"]["epsilon"]
    shown = " ".join(ready.run(*command, "--dry-run").out.split())
    assert ("is bought, at ε = 4" in shown) == bought
    if kind == "ballots":
        assert (plan["ballots"], plan["mechanism"]["statistic"]) == (300, "borda")
    if not kind.startswith("texts") or "records" in kind:
        assert "files" not in plan  # the size of files tells how many records there are
        return
    passes = EXPECTED_PASSES + (METRICS_PASSES if bought else 0)
    told = {"engine": "ray" if "ray" in kind else "process", "files": 3, "blocks": 3}
    assert plan["files"] == {**told, "rows": 300, "passes": passes}
    assert plan["possible_caveats"] == []
    if "ray" in kind:
        assert not sys.modules["ray"].is_initialized()


def test_a_plan_says_what_only_all_records_can_tell(ready):
    said = ready.run(*VECTORS, "--dry-run")
    assert said.code == 0
    assert "none; repeats-not-linked if a question occurs twice" in " ".join(said.out.split())
    assert "in 3 blocks" in said.out


@pytest.mark.parametrize("command", [PAIRS, TEXTS], ids=["memory", "files"])
def test_a_second_run_on_the_ledger_adds_up_or_is_refused(ready, command):
    shared = ["--ledger", "shared.db"]
    assert ready.run(*command, "--budget", "3.2", *shared).code == 0
    assert ready.run(*command, "--force", *shared).code == 0
    result = result_of(ready)
    assert result["guarantee"]["epsilon"] <= 2 < result["certificate"]["ledger"]["total"]["epsilon"]
    refused(ready, [*command, "--force", *shared], 3, "BudgetExceeded")
    assert result_of(ready) == result
    ready.write("texts/3.jsonl", text_rows(10, first=900, people=True))
    ready.write("prefs.jsonl", text_rows(410))  # a superset is the same data set
    refused(ready, [*command, "--force", *shared], 3, "BudgetExceeded")
    assert ready.run(*command, "--force", "--budget", "9", *shared).code == 0
    assert result_of(ready)["certificate"]["ledger"]["total"]["epsilon"] > 3.2


def test_a_record_ledger_whose_delta_is_used_up_can_be_raised_and_says_so(ready):
    run = [*PAIRS, "--epsilon", "1", *RECORD, "--ledger", "l.db"]
    assert ready.run(*run, "--budget", "5").code == 0
    for more in ([], ["--budget", "9"], ["--delta", "1e-5"]):
        refused(ready, [*run, "--force", *more], 3, "delta is used up", "set record")
    before = sordino.Ledger.read(ready / "l.db").rows
    assert ready.run(*run, "--force", "--budget-delta", "2e-6").code == 0
    account = sordino.Ledger.read(ready / "l.db")
    assert account.rows[len(before)].kind == "budget"
    assert (account.budget.epsilon, account.budget.delta) == (5, 2e-6)
    assert account.total().epsilon == pytest.approx(2)


def test_a_ledger_without_delta_says_what_to_do(ready):
    local = ["align", "prefs.jsonl", "--out", "local", "--epsilon", "1", "--dimension", "32"]
    assert ready.run(*local, "--ledger", "l.db").code == 0
    command = [*PAIRS, "--ledger", "l.db"]
    refused(ready, command, 3, "delta is too small", "--delta 1e-06")
    assert ready.run(*command, "--budget", "5", "--budget-delta", "1e-6").code == 0
    assert result_of(ready)["certificate"]["ledger"]["total"]["epsilon"] > 2


@pytest.mark.parametrize(
    ("made", "asked"),
    [("ADD_OR_REMOVE_ONE", []), ("REPLACE_SPECIAL", ["--neighbors", "add-remove"])],
)
def test_a_ledger_under_another_relation_is_refused(ready, made, asked):
    """What a run tells depends on the relation: it must be the ledger's, whoever forgot it."""
    relation = getattr(sordino, made)
    budget = sordino.Guarantee(20.0, delta=1e-5, unit="record", neighbors=relation, trust="central")
    sordino.Ledger.open(ready / "l.db", data="preferences", budget=budget)
    said = ready.run(*PAIRS, *RECORD, "--ledger", "l.db", *asked)
    assert said.code == 2
    assert "Relations cannot be mixed" in said.err
    assert not (ready / "out").exists()


CAP = ["--unit", "person", "--cap", "2"]
MISTAKES = {
    "no delta left": (PAIRS, ["--delta", "0"], 2, "--delta"),
    "certain failure": (PAIRS, ["--delta", "1"], 2, "--delta"),
    "delta of one label": (PAIRS, ["--delta", ".5"], 2, "1/n=1/400"),
    "delta of one record": (PAIRS, ["--delta", ".5", *RECORD], 2, "1/n=1/400"),
    "delta, number hidden": (
        PAIRS, ["--delta", ".5", *UNITS["record, number hidden"]], 2, "delta must be below 0.001"
    ),
    "relation of labels": (PAIRS, ["--neighbors", "zero-out"], 2, "--unit record"),
    "bound of labels": (PAIRS, ["--bound", "1"], 2, "--bound"),
    "moment of labels": (PAIRS, ["--second-moment"], 2, "--second-moment"),
    "cap of labels": (PAIRS, ["--cap", "2"], 2, "--unit person"),
    "persons unknown": (PAIRS, ["--unit", "person"], 4, "person"),
    "small ridge": (PAIRS, [*RECORD, "--ridge", "0.01"], 2, "would do"),
    "truth of records": (PAIRS, [*RECORD, "--truth", "truth.json"], 2, "--evaluate"),
    "bound of nothing": (PAIRS, [*RECORD, "--bound", "0"], 2, "--bound"),
    "no metrics": (PAIRS, ["--metrics-epsilon", "0"], 2, "--metrics-epsilon"),
    "metrics beyond": (PAIRS, ["--budget", "2.1", *BOUGHT], 3, "BudgetExceeded"),
    "ballots and draws": (VOTES, ["--noise", "draws", "--draws", "3"], 2, "--noise estimate"),
    "ballots and metrics": (VOTES, BOUGHT, 2, "--metrics-epsilon"),
    "ballots and sets": (VOTES, ["--confidence", "0.9"], 2, "--confidence"),
    "ballots, small ridge": (VOTES, [*RECORD, "--ridge", "0.001"], 2, "ridge"),
    "vectors and labels": (VECTORS, ["--noise", "labels"], 2, "--noise"),
    "vectors and draws": (VECTORS, ["--noise", "draws", "--draws", "3"], 2, "--noise"),
    "files, no cap": (TEXTS, ["--unit", "person"], 2, "--unit"),
    "files and public ones": (TEXTS, ["--evaluate", "texts/0.jsonl"], 2, "--evaluate"),
    "files and truth": (TEXTS, ["--truth", "texts/0.jsonl"], 2, "--truth"),
    "address alone": (TEXTS, ["--address", "auto"], 2, "--address"),
    "no scratch": (TEXTS, ["--scratch", "nowhere"], 7, "folder"),
    "records bought": (TEXTS, [*RECORD, *BOUGHT], 2, "--metrics-epsilon"),
    "records, public ones": (TEXTS, [*RECORD, "--evaluate", "texts/0.jsonl"], 2, "--evaluate"),
    "files, metrics beyond": (TEXTS, ["--budget", "2.1", *BOUGHT], 3, "BudgetExceeded"),
    "no such file": ([*TEXTS[:2], "nowhere.jsonl", *TEXTS[2:]], [], 7, "nowhere.jsonl"),
    "one file twice": ([*TEXTS[:2], "texts/0.jsonl", *TEXTS[2:]], [], 2, "twice"),
    "mixed kinds": ([*TEXTS[:2], "vectors", *TEXTS[2:]], [], 2, "one kind"),
    "memory, scratch": (PAIRS, ["--scratch", "."], 2, "--scratch"),
    "vectors, dimension": (VECTORS, ["--dimension", "64"], 2, "vectors of 6"),
    "vectors, persons": (VECTORS, CAP, 4, "person ids"),
    "vectors, budget": (VECTORS, ["--budget", "1"], 3, "budget"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", few(MISTAKES, first=16))
def test_a_mistake_is_explained_and_costs_nothing(ready, mistake):
    command, options, code, named = MISTAKES[mistake]
    for more in ([], ["--dry-run"]):
        if mistake != "no scratch" or not more:  # a plan needs none
            refused(ready, [*command, *options, *more], code, named)


def test_randomized_answers_need_no_curator(ready):
    assert ready.run("privatize", "prefs.jsonl", "--epsilon", "1", "--out", "p.jsonl").code == 0
    refused(ready, ["align", "p.jsonl", *CENTRAL], 2, "--noise labels")


def spoil(folder, name, text):
    """Replace a file by another text, or by the first part of its own."""
    path = folder / name
    whole = path.read_bytes() if path.exists() else b""
    path.write_bytes(whole[:text] if isinstance(text, int) else text.encode())


@pytest.mark.parametrize(
    ("command", "name", "text", "code", "words"),
    [
        (VECTORS, "vectors/1.parquet", 2000, 4, ["1.parquet", "cut short"]),
        (TEXTS, "texts/2.jsonl", -30, 4, ["2.jsonl", "line 100"]),
        (TEXTS, "texts/8.jsonl", f'{{"prompt": "{CANARY}"}}\n', 4, ["8.jsonl"]),
        (
            VOTES,
            "votes.jsonl",
            f'{{"items": ["a", "b"]}}\n{{"ranking": ["{CANARY}"]}}',
            4,
            ["line 2"],
        ),
        (["align", "a.csv", *CENTRAL, "--engine", "process"], "a.csv", "prompt\n", 4, ["a.csv"]),
    ],
)
def test_a_file_that_cannot_be_used(ready, command, name, text, code, words):
    spoil(ready, name, text)
    refused(ready, command, code, *words)


def test_an_address_that_does_not_answer(ready):
    pytest.importorskip("ray")
    command = [*TEXTS, "--engine", "ray", "--address", "127.0.0.1:1"]
    for more in ([], ["--dry-run"]):
        refused(ready, [*command, *more], 2, "127.0.0.1:1", "Nothing was read")


@pytest.mark.parametrize(("missing", "extra"), [("ray", "scale"), ("pyarrow", "files")])
def test_an_extra_that_is_not_installed(ready, monkeypatch, missing, extra):
    monkeypatch.setitem(sys.modules, missing, None)
    command = [*TEXTS, "--engine", "ray"] if missing == "ray" else VECTORS
    for more in ([], ["--dry-run"]):
        refused(ready, [*command, *more], 2, "MissingExtra", f"pip install 'sordino[{extra}]'")


def test_a_confidence_set_that_would_be_too_large_is_refused_before_the_spend(folder):
    (folder / "vectors").mkdir()
    write_vectors(folder / "vectors/0.parquet", 30, d=1100)
    refused(folder, [*VECTORS, "--confidence", "0.9"], 2, "--confidence", "1100")
