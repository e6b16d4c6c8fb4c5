"""Budgets for whole people and caps on their answers, as a user meets them."""

import json
from collections import Counter

import pytest
from tests.tiers import few

from sordino.privacy.ledger import Ledger

from .conftest import pair, refused

ALIGN = ["align", "in.jsonl", "--out", "out", "--epsilon", "4"]
PRIVATIZE = ["privatize", "in.jsonl", "--out", "out.jsonl", "--epsilon", "4"]
PERSON = ["--unit", "person"]
both = pytest.mark.parametrize("command", [ALIGN, PRIVATIZE], ids=["align", "privatize"])


def database(command):
    return "out/spend.db" if command[0] == "align" else "out.spend.db"


@pytest.fixture
def people(folder):
    """Forty questions to eight people: five each."""
    folder.write("in.jsonl", [pair(index, person=f"p{index % 8}") for index in range(40)])
    return folder


@pytest.mark.parametrize(
    ("cap", "share", "used"), [(None, 0.8, 40), (4, 1.0, 32), (8, 0.5, 40)], ids=str
)
def test_align_promises_a_total_for_each_person(people, cap, share, used):
    more = [] if cap is None else ["--cap", cap]
    said = people.run(*ALIGN, *PERSON, *more, "--json")
    assert said.code == 0, said.err
    result = said.value
    assert result["guarantee"]["unit"] == "person"
    assert result["guarantee"]["epsilon"] == share * min(cap or 5, 5) <= 4.0
    assert result["caveats"] == ["labels-only", "randomized-at-ingestion"]
    assert result["mechanism"]["epsilon_per_label"] == share
    data = result["data"]
    assert (data["pairs"], data["capped"], data["persons"]) == (used, 40 - used, 8)
    ledger = Ledger.read(people / "out/spend.db")
    assert ledger.budget.unit == "person"
    assert ledger.budget.epsilon == 4.0
    assert ledger.total().epsilon == result["guarantee"]["epsilon"]
    assert [row.count for row in ledger.spends] == [min(cap or 5, 5)]
    details = json.loads(ledger.spends[0].payload)["details"]
    assert details["largest_person_epsilon"] == result["guarantee"]["epsilon"]
    assert result["certificate"]["guarantee"] == result["guarantee"]


@pytest.mark.parametrize("cap", [None, 3])
def test_privatize_writes_a_manifest_for_the_person(people, cap):
    more = [] if cap is None else ["--cap", cap]
    said = people.run(*PRIVATIZE, *PERSON, *more, "--json")
    assert said.code == 0, said.err
    manifest = json.loads((people / "out.manifest.json").read_text())
    assert (manifest["unit"], manifest["epsilon"]) == ("person", 4.0)
    assert manifest["caveats"] == ["labels-only", "randomized-at-ingestion"]
    assert said.value["epsilon_per_label"] == pytest.approx(4 / (cap or 5))
    assert said.value["capped_questions"] == 8 * (5 - (cap or 5))
    rows = [json.loads(line) for line in (people / "out.jsonl").read_text().splitlines()]
    assert Counter(row["person"] for row in rows) == dict.fromkeys(
        (f"p{i}" for i in range(8)), cap or 5
    )
    order = [int(row["prompt"].split()[-1]) for row in rows]
    assert order == sorted(order)


@pytest.mark.parametrize("cap", few([[], ["--cap", "4"]], first=1), ids=["all", "capped"])
def test_answers_that_arrive_private_keep_the_promise_to_a_person(people, cap):
    assert people.run(*PRIVATIZE, *PERSON, *cap).code == 0
    for more in ([], PERSON):
        said = people.run("align", "out.jsonl", "--out", "run", "--force", "--json", *more)
        assert said.code == 0, said.err
        assert (said.value["guarantee"]["unit"], said.value["guarantee"]["epsilon"]) == (
            "person",
            4.0,
        )
        assert said.value["mechanism"]["epsilon_per_label"] == (1.0 if cap else 0.8)
        assert (said.value["data"]["capped"], said.value["data"]["persons"]) == (0, 8)
    assert people.run("fit", "out.jsonl", "--out", "reward.json").code == 0
    page = (people / "run/report.html").read_text()
    assert "between any two sets of labels of one person" in page


@both
def test_a_cap_bounds_what_a_label_budget_costs_one_person(people, command):
    plan = people.run(*command, "--cap", "2", "--dry-run", "--json").value
    assert (plan["spend"], plan["guarantee"]["unit"]) == (4.0, "label")
    assert (plan["largest_person_labels"], plan["largest_person_epsilon"]) == (2, 8.0)
    assert plan["capped_questions"] == 24
    assert people.run(*command, "--cap", "2").code == 0
    ledger = Ledger.read(people / database(command))
    assert (ledger.total().epsilon, ledger.total().unit) == (4.0, "label")
    assert "person-total" in ledger.total().caveats


@both
@pytest.mark.parametrize("cap", few([[], ["--cap", "3"]], ["--cap", "3"]), ids=["all", "capped"])
def test_a_dry_run_touches_nothing_and_says_what_the_run_then_spends(people, command, cap):
    before = people.state()
    plan = people.run(*command, *PERSON, *cap, "--dry-run", "--json")
    assert (plan.code, people.state()) == (0, before)
    plan = plan.value
    most = 3 if cap else 5
    assert (plan["spend"], plan["guarantee"]["epsilon"]) == (4.0, 4.0)
    assert plan["epsilon_per_label"] == pytest.approx(4 / most)
    assert (plan["labels_per_person"], plan["persons"]) == (most, 8)
    assert plan["capped_questions"] == 8 * (5 - most)
    again = people.run(*command, *PERSON, *cap, "--dry-run", "--json")
    assert again.value == plan  # no draw shows in it
    shown = people.run(*command, *PERSON, *cap, "--dry-run").out
    said = people.run(*command, *PERSON, *cap)
    assert said.code == 0
    for text in (shown, said.out):
        assert "epsilon=4" in text
        assert "when all labels of one person are" in " ".join(text.split())
        (line,) = (one for one in text.splitlines() if one.startswith("one label "))
        assert f"ε = {4 / most:.3g}"[:7] in line
        assert bool(cap) == ("left out" in text or "beyond the cap" in text)
    assert Ledger.read(people / database(command)).total().epsilon == 4.0
    free = people.run(*command, *PERSON, *cap, "--force", "--dry-run", "--json").value
    assert free["spend"] == 0.0
    assert {name: free[name] for name in ("guarantee", "persons", "capped_questions")} == {
        name: plan[name] for name in ("guarantee", "persons", "capped_questions")
    }


@both
def test_running_again_is_free_and_the_same(people, command):
    assert people.run(*command, *PERSON, "--cap", "3").code == 0
    name = "out/result.json" if command[0] == "align" else "out.jsonl"
    before = (people / name).read_text()
    assert people.run(*command, *PERSON, "--cap", "3", "--force").code == 0
    after = (people / name).read_text()
    if command[0] == "align":
        before, after = (json.loads(text)["reward"] for text in (before, after))
    assert after == before
    ledger = Ledger.read(people / database(command))
    assert [row.kind for row in ledger.rows] == ["open", "reserve", "commit", "repeat"]


@both
@pytest.mark.parametrize("more", [PERSON, [*PERSON, "--cap", "3"], ["--cap", "3"]], ids=str)
def test_person_ids_are_needed(folder, pairs, command, more):
    folder.write("in.jsonl", pairs)
    for again in ([], ["--dry-run"]):
        refused(folder, [*command, *more, *again], 4, "person ids", "--person-field")


@both
def test_a_unit_is_not_of_records_and_a_cap_is_a_whole_number(people, command):
    refused(people, [*command, "--unit", "record"], 2, "--unit person", "Nothing was done")
    for cap in ("0", "-1", "1.5", "many"):
        refused(people, [*command, "--cap", cap], 2, "--cap", lines=None)


@both
def test_a_ledger_counts_one_unit(people, command):
    ledger = ["--ledger", "shared.db", "--budget", "9", "--force"]
    assert people.run(*command, *ledger).code == 0
    refused(people, [*command, *PERSON, *ledger[:2], "--force"], 2, "only for label changes")
    with_budget = people.run(*command, *PERSON, *ledger)  # answers are stored for labels already
    assert (with_budget.code, "unit=person" in with_budget.err) == (2, True)
    assert people.run(*command, *PERSON, "--ledger", "other.db", "--force").code == 0
    refused(people, [*command, "--force", "--ledger", "other.db"], 2, "only for person changes")


@both
def test_a_budget_is_for_the_person(people, command):
    refused(people, [*command, *PERSON, "--budget", "3"], 3, "epsilon=4")
    assert people.run(*command, *PERSON, "--budget", "4").code == 0


@both
def test_a_larger_cap_needs_a_larger_budget_and_pays_for_what_is_new(people, command):
    assert people.run(*command, *PERSON, "--cap", "2").code == 0
    more = [command[0], *command[1:-1], "6", *PERSON, "--cap", "3", "--force"]  # 2 each, as before
    refused(people, more, 3, "budget of epsilon=4")
    assert people.run(*more, "--budget", "6").code == 0
    ledger = Ledger.read(people / database(command))
    assert [row.count for row in ledger.spends] == [2, 1]
    assert ledger.total().epsilon == 6.0


def test_labels_that_were_randomized_one_by_one_promise_nothing_more(people):
    assert people.run(*PRIVATIZE).code == 0
    refused(people, ["align", "out.jsonl", "--out", "run", *PERSON], 2, "per label")
    refused(people, ["align", "out.jsonl", "--out", "run", "--cap", "2"], 2, "--cap")


def test_a_cap_that_leaves_too_few_is_refused_before_anything_is_spent(people):
    refused(people, [*ALIGN, *PERSON, "--cap", "1"], 4, "leaves 8 answers of 8 persons", "dozen")


def test_a_share_without_information_is_refused(people):
    refused(people, [*ALIGN[:-1], "1e-6", *PERSON], 2, "for 5 labels of one person")
