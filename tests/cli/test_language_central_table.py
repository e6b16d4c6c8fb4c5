"""Rows on raw judgments in a comparison: what they cost, what they promise, when they run."""

from contextlib import suppress
from dataclasses import replace

import pytest

from sordino.cli._language_study import Comparison, Study, table_notes
from sordino.errors import BudgetExceeded
from sordino.language.studies.comparison_table import PreferenceSplit, markdown_table
from sordino.privacy.accounting import composed_epsilon
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_guarantee_and_caveats

from .conftest import CANARY, kind_rows

pytest.importorskip("trl", reason="the extra 'language' is not installed")

STUDY = [
    "language", "table", "in.jsonl", "--out", "study", "--quick", "--epsilons", "2", "--seeds",
    "2", "--public-judge-half", "--central-epsilon", "8", "--central-epsilon", "2",
]  # fmt: skip


@pytest.fixture
def small(folder, quicker):
    """Return a folder in which a study is quick."""
    folder.write("in.jsonl", kind_rows())
    return folder


def paid(folder):
    """Return how many entries the ledger of the central rows has."""
    rows = Ledger.read(folder / "study.spend.db").rows
    return sum(row.kind == "reserve" and row.unit == "record" for row in rows)


@pytest.mark.deep
def test_a_study_pays_every_central_run_and_promises_records_apart(small):
    planned = small.run(*STUDY, "--dry-run", "--json")
    assert (planned.code, planned.value["runs"]) == (0, 6)
    assert (planned.value["central"]["runs"], planned.value["spend"]) == (4, 4.0)
    assert "on central rows" in small.run(*STUDY, "--dry-run").out
    assert not (small / "study").exists()
    said = small.run(*STUDY, "--json")
    assert (said.code, said.err) == (0, "")
    value = said.value
    assert [(row["labels"], row["seeds"], row["unit"]) for row in value["rows"]] == [
        ("label-free", 2, "label"), ("epsilon=2", 2, "label"),
        ("central, epsilon=2", 2, "record"), ("central, epsilon=8", 2, "record"),
    ]  # fmt: skip
    ledger = Ledger.read(small / "study.spend.db", data="preferences-training", unit="record")
    assert (ledger.budget.unit, ledger.budget.neighbors) == ("record", REPLACE_SPECIAL)
    assert (len(ledger.spends), paid(small)) == (6, 4)  # two of labels
    assert value["central"]["public"] == ["prompts", "answers", "number of judgments"]
    promise = value["central"]["guarantee"]
    assert (promise["unit"], promise["neighbors"]) == ("record", "REPLACE_SPECIAL")
    assert value["central"]["spent"] == promise["epsilon"] == ledger.total().epsilon
    assert planned.value["central"]["spend"] == pytest.approx(promise["epsilon"], rel=1e-5)
    assert value["guarantee"]["epsilon"] == value["spent"] == 4.0  # of labels, without them
    label = value["accounts"]["label"]["epsilon"]  # and with them
    assert max(4.0, promise["epsilon"]) < label < 4.0 + 2 * promise["epsilon"]
    assert value["accounts"]["record"]["epsilon"] is None
    two, eight = value["rows"][2:]
    assert (two["releases"], two["epsilon_of_one_release"], two["delta"]) == (2, 2.0, 1e-6)
    assert 2.0 < two["epsilon_of_all_releases"] < 4.0  # composed, not added
    assert eight["epsilon_of_all_releases"] < promise["epsilon"]
    assert two["held_out_accuracy"] is None
    assert value["seconds"] is None  # times tell of records
    assert {curve["labels"] for curve in value["curves"]} == {"epsilon=2"}
    table = (small / "study/table.md").read_text()
    assert f"epsilon={promise['epsilon']:.3g}"[:-1] in table
    assert "per record, δ=1e-06 |" in table
    assert f"for one label, {value['accounts']['label']['says']}" in table
    assert "Held-out accuracy of central rows is not measured" in table
    assert CANARY not in table + (small / "study/table.json").read_text()


@pytest.mark.deep
def test_finished_central_runs_are_kept_and_an_interrupted_one_is_gone_on_with(small, monkeypatch):
    from sordino.language.dp_sgd.training import CentralTraining

    step = CentralTraining.training_step

    def killed(self, *inputs):
        if paid(small) == 1 and self.state.global_step == 1:
            raise KeyboardInterrupt
        return step(self, *inputs)

    study = [*STUDY, "--seeds", "1"]
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(CentralTraining, "training_step", killed)
        assert small.run(*study).code == 130
    assert paid(small) == 1
    said = small.run(*study, "--json")
    assert said.code == 0, said.err
    assert paid(small) == 2  # nobody saw what was drawn, so it is not paid for again
    assert [row["releases"] for row in said.value["rows"][2:]] == [1, 1]
    (small / "study/table.json").unlink()
    (small / "study/runs/dpo-central-epsilon=8-0.json").unlink()
    for unit in ("record", "label"):
        again = small.run(*study)
        assert (again.code, f"sordino budget set {unit} " in again.err) == (3, True), again.err
        raised = ["budget", "set", unit, "40", "--ledger", "study.spend.db"]
        assert small.run(*raised, "--data", "preferences-training").code == 0
    assert small.run(*study).code == 0
    assert paid(small) == 3  # the other run is kept


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--central-epsilon", "8"], 2, "--central-epsilon"),
        (["--central-epsilon", "-1"], 2, "--central-epsilon"),
        (["--no-central"], 2, "--no-central"),
    ],
)
def test_central_rows_that_cannot_be_are_refused_at_once(small, words, code, said):
    before = small.state()
    done = small.run(*STUDY, *words)
    assert done.code == code, done.err
    assert said in done.err
    assert small.state() == before


def test_notes_state_both_promises_and_never_their_sum():
    labels = Guarantee(4.0, delta=0.0, unit="label", neighbors=REPLACE_ONE, trust="central")
    records = Guarantee(
        3.3, delta=1e-6, unit="record", neighbors=REPLACE_SPECIAL, trust="central",
        caveats=("real-arithmetic", "timing"),
    )  # fmt: skip
    value = {
        "simulated": False, "prompts": 4, "reference": "built", "rows": [],
        "accounts": {"label": {"says": "epsilon=11"}},
        "judge": {"pairs": 20}, **describe_guarantee_and_caveats(labels),
        "central": {"units": 30.0, "spent": 3.3, **describe_guarantee_and_caveats(records)},
    }  # fmt: skip
    value["judge"] |= describe_guarantee_and_caveats(labels)
    notes = "\n".join(table_notes(value, seeds=3))
    assert "epsilon=4 per label, without the central rows" in notes
    assert str(records) in notes
    assert "for one label, epsilon=11." in notes
    assert "7.3" not in notes
    assert "`timing`:" in notes
    assert "count as public" in notes
    without = "\n".join(table_notes({**value, "central": None}, seeds=3))
    assert "entral rows" not in without


def test_a_row_says_whose_cost_it_states():
    share = {"mean": 0.5, "low": 0.4, "high": 0.6}
    row = {
        "method": "dpo", "labels": "central, epsilon=2", "win_rate": share, "length_matched": None,
        "held_out_accuracy": None, "seeds": 3, "unit": "record", "delta": 1e-6,
        "epsilon_of_all_releases": 3.5,
    }  # fmt: skip
    line = markdown_table([row], []).splitlines()[2]
    assert line == (
        "| DPO | central, epsilon=2 | 0.500 [0.400, 0.600] | not known |  | 3 | "
        "3.5 per record, δ=1e-06 |"
    )


def study(tmp_path, *, n=25, **changed):
    """Return a study with rows on raw judgments."""
    import sordino
    from sordino.language.studies.pipeline import QUICK

    pairs = sordino.read_pairs(kind_rows(30))
    settings = Comparison(
        source=tmp_path, out=tmp_path, model=tmp_path, epsilons="1", seeds=2,
        central_epsilon=[2.0], ledger=tmp_path / "spend.db", data="d", **changed,
    )  # fmt: skip
    sizes = replace(QUICK, central=replace(QUICK.central, steps=2, expected_batch=8))
    parts = PreferenceSplit(range(n), [*range(25, 30)], [])
    return Study(settings=settings, pairs=pairs, parts=parts, sizes=sizes, records=pairs)


def test_the_delta_is_below_one_over_the_records(tmp_path):
    assert study(tmp_path).delta == 1e-6
    assert study(tmp_path, n=10**7).delta == pytest.approx(1e-8)


@pytest.mark.deep
def test_a_plan_counts_every_run_that_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Study, "_refuse_texts", lambda _: None)
    found = study(tmp_path)
    event = found.privacy(2.0).event(2)
    both = composed_epsilon({event: 2}, neighbors=REPLACE_SPECIAL, delta=1e-6)
    assert found.planned()["central"]["spend"] == both
    path = found.settings.ledger_path
    Ledger.open(path, data="d", budget=Guarantee.per_label(100.0, delta=1e-6))
    budget = Guarantee(100.0, delta=1e-6, unit="record", neighbors=REPLACE_SPECIAL, trust="central")
    ledger = Ledger.open(path, data="d", budget=budget)

    def limit(epsilon):
        ledger.change_budget(replace(budget, epsilon=epsilon))

    limit(both)
    found.check()
    for epsilon in (both * 0.99, 2.0):
        limit(epsilon)
        with pytest.raises(BudgetExceeded, match="budget set record"):
            found.check()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/dpo-central-epsilon=2-1.json").touch()
    found.check()
    with pytest.raises(BudgetExceeded):
        study(tmp_path, force=True).check()


def test_a_batch_is_no_larger_than_all_records(tmp_path):
    terms = study(tmp_path, n=5).privacy(2.0)
    assert (terms.sampling_probability, terms.expected_batch) == (1.0, 5.0)
