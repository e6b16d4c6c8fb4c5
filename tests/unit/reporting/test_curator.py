"""The page of a curator's run: what was released, why a metric is missing, who is ahead."""

import copy
import re

import pytest

from sordino.errors import DataError
from sordino.reporting import render_report, summarize
from sordino.reporting.html import _item_values
from sordino.reporting.summary import _describe_items

from .pages import (
    CLEAR,
    HOSTILE,
    KINDS,
    SIZE,
    assert_no_hole,
    of_pairs,
    of_rankings,
    page_of,
    words,
)

CLOSE = [("Ada", 1.0, 0.6), ("Bo", 0.2, 0.5), ("Cy", -1.2, 0.2)]
SOLD = {"accuracy", "negative_log_likelihood", "win_rate"}


def told(result):
    """The metrics that a page tells, and what it says of them all."""
    summary = summarize(result)
    parts = (summary[name]["metrics"] for name in ("reward", "policy"))
    return {row["key"] for part in parts for row in part}, summary["metrics_note"]


@pytest.mark.parametrize("name", KINDS)
def test_a_page_has_no_hole(name, ledger):
    assert_no_hole(of_pairs(name), ledger=ledger)


@pytest.mark.parametrize("name", ["label", "person"])
def test_of_labels_likelihood_and_slope_are_free(name):
    metrics, note = told(of_pairs(name))
    assert {"negative_log_likelihood", "calibration_slope"} == metrics - {"kl", "temperature"}
    assert "split into two independent parts" in note
    assert "--metrics-epsilon buys them" in note


@pytest.mark.parametrize("name", ["zero-out", "add-remove"])
def test_of_records_nothing_is_free(name):
    (metrics, note), text = told(of_pairs(name)), words(of_pairs(name))
    assert metrics == {"temperature"}
    assert "every metric would be a release: --metrics-epsilon buys accuracy" in note
    assert text.count(note) == 1  # what is missing is said once
    assert "Standard errors Not available: prompts and answers are private" in text
    assert "word for word" not in text
    assert ("number of the records" in text) == (name == "zero-out")


@pytest.mark.parametrize("name", [kind for kind in KINDS if "+" in kind])
def test_what_was_bought_and_what_it_cost(name):
    result = of_pairs(name)
    (metrics, note), records = told(result), result["guarantee"]["unit"] == "record"
    assert "20% of the questions" in note
    assert "ε = 0.5, δ = 1 × 10⁻⁶" in note
    assert ("8,123 pairs" in note) != records
    assert "split into" not in note
    assert "does not stand out from the noise" in note
    assert "Reward alone ε = 1, δ = 1 × 10⁻⁶." in words(result)
    assert metrics >= SOLD
    result["reward"]["accuracy"] = None  # drowned by the noise
    assert "accuracy" not in told(result)[0]


SAID = {
    "label": (
        {},
        "One sum over all labels, with noise",
        "Changing one label moves it by at most 0.2367 of its standard deviation",
        "exact whole numbers",
        "It is shaped to the comparisons",
        "This machine saw the raw labels.",
        "without privacy), for one noised sum of all labels.",
    ),
    "another shape": ({"kind": "label", "shaped": False}, "It is the same in every direction"),
    "person": (
        {},
        "Changing all labels of one person",
        "At most 5 records of a person count.",
        "This machine saw the raw labels.",
    ),
    "zero-out": (
        {},
        "the objective is tilted",
        "standard deviation 8.51",
        "A record of a length above 2 is shrunk",
        "Ridge 3.08",
        "This machine saw the raw records.",
    ),
    "a second moment": (
        {"kind": "zero-out", "second_moment": True, "second_moment_mu": 0.0871},
        "Second moment Released too, for confidence sets. One record more or less moves it by",
    ),
    "ballots": (
        {},
        "One sum of ranks over all ballots, with noise",
        "Changing one ballot moves it by at most 0.2367 of its standard deviation",
        "no rounding tells a ballot",
        "one noised sum stands for all ballots",
        "approximate, for many ballots; the noise is counted in",
        "Learned from 504 ballots: a reward model and a policy.",
        "short ballots shrink the worths",
    ),
    "first choices": (
        {"kind": "ballots", "statistic": "first-choice", "records_per_person": 3},
        "One sum of first choices over all ballots",
        "Changing all ballots of one person",
        "At most 3 ballots of a person count.",
    ),
    "private ballots": (
        {},
        "the objective is tilted",
        "standard deviation 60.2 in every coordinate",
        "longer than 2.5 are shrunk",
        "Candidates At most 4 in one ballot",
        "Ridge 31.1: part of the promise",
        "Plackett–Luce",
    ),
}


def run_of(kind):
    if "ballots" in kind:
        return of_rankings(records=kind == "private ballots")
    return of_pairs(kind)


@pytest.mark.parametrize("name", SAID)
def test_the_mechanism_in_plain_words(name):
    changed, *told = SAID[name]
    changed = dict(changed)
    result = run_of(changed.pop("kind", name))
    result["mechanism"] |= changed
    text = words(result)
    for sentence in told:
        assert sentence in text, sentence
    assert ("Second moment" in text) == (name == "a second moment")
    result["guarantee"]["randomness"] = "simulated"
    assert "exact whole numbers" not in words(result)


def test_other_noise_and_unknown_mechanisms_have_no_such_rows(result):
    assert summarize(result)["mechanism"] is None
    other = of_pairs("label")
    other["mechanism"] = {"name": "laplace"}
    assert summarize(other)["mechanism"] is None


def test_a_curve_of_a_noised_sum_says_what_buys_accuracy():
    page = page_of(of_pairs("label"))
    assert "ε per label: less privacy to the right" in page
    assert '<code class="option">--metrics-epsilon</code> buys them.' in page


def leaking():
    """A run that states every size it must not, as a careless writer might."""
    result = of_pairs("add-remove+metrics")
    result["data"] = {"name": "preferences", "pairs": SIZE, "persons": SIZE, "ballots": SIZE}
    result["metrics"]["pairs"] = SIZE
    result["seconds"] = SIZE / 1000
    result["utility"] = copy.deepcopy(of_pairs("label")["utility"])
    return result


def test_how_many_records_there_are_is_nowhere_on_the_page(ledger):
    bins = [{"predicted": 0.5, "observed": 0.5, "low": 0.4, "high": 0.6, "pairs": SIZE}]
    summary = summarize(leaking(), calibration=bins, ledger=ledger)
    page = render_report(summary)
    for text in (page, str(summary)):
        assert not re.search(r"40[.,]?6", text)
    assert "Duration" not in page
    assert summary["prediction"] is None
    assert "01:37" not in page  # how long it took tells the size as well
    assert "2026-11-21" in page
    other = leaking()
    other["guarantee"]["neighbors"] = "REPLACE_SPECIAL"  # the same words find a size that is there
    assert "40,617 pairs" in page_of(other, ledger=ledger)
    assert "01:37" in page_of(other, ledger=ledger)


def test_a_pessimistic_policy_says_so_where_texts_are_private():
    result = of_pairs("zero-out")
    assert "How it treats what is uncertain" not in words(result)
    result["policy"] |= {"kind": "pessimistic", "confidence": 0.9, "scale": 0.1}
    assert "How it treats what is uncertain (heuristic)" in words(result)
    assert "0.1 times the one that holds with 90% confidence" in words(result)


# Who is ahead.


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("choices", [False, True])
def test_a_page_of_rankings_has_no_hole_and_no_score(records, choices):
    rows = [(*row[:2], None) for row in CLEAR] if records else CLEAR
    result = of_rankings(rows, records=records, choices=choices)
    assert_no_hole(result)
    text = words(result)
    assert "—" not in text.split()
    assert ("Picked" in text) == ("25.0%" in text) == choices
    assert text.count("Rankings are not scored") == 1
    for absent in ("--metrics-epsilon", "Accuracy", "Win rate"):
        assert absent not in text


def test_every_item_the_best_first():
    text = words(of_rankings())
    assert text.index("Who is ahead") < text.index("How good the reward is")
    assert "Ada +2.00 +1.70 to +2.30 25.0% Bo +0.50 +0.10 to +0.90 25.0% Cy" in text
    assert "Ballots 504 Items 4" in text


def test_without_items_nothing_of_it(result):
    for told in (result, of_rankings() | {"items": None}, of_rankings() | {"items": []}):
        assert summarize(told)["worths"] is None
        assert "Who is ahead" not in page_of(told)


AHEAD = "Ada is ahead: no other interval reaches up to this one's."
OPEN = "It is not settled who is ahead: the interval of "
UNKNOWN = "No intervals are known: there are too few ballots"


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (CLEAR, AHEAD),
        (CLOSE, OPEN + "Ada overlaps that of Bo."),
        # The last overlaps neither neighbor above it, but the first, which reaches far down.
        ([("Ada", 1.0, 2.5), ("Bo", 0.9, 0.1), ("Cy", -1.0, 0.1)], "that of Bo and Cy."),
        ([("Ada", 1.0, 0.5), ("Bo", 0.0, 0.5)], OPEN),  # ends that touch overlap
        ([("Ada", 1.001, 0.5), ("Bo", 0.0, 0.5)], AHEAD),
        ([(f"i{k}", -0.01 * k, 1.0) for k in range(9)], "that of i1, i2, i3 and 5 more."),
        ([*CLEAR[:-1], ("Di", -2.6, None)], UNKNOWN),  # one that is missing leaves all open
    ],
)
def test_how_much_of_the_order_is_settled(rows, note):
    told = _describe_items(of_rankings(rows), records=False)
    assert note in told["notes"][0]


def test_private_ballots_have_no_interval():
    rows = [(name, worth, None) for name, worth, _ in CLEAR]
    text = words(of_rankings(rows, records=True))
    assert "ballots are private, and would decide them. How much" in text
    for absent in ("95% interval", "short ballots"):
        assert absent not in text


def test_many_items_are_folded_away_and_all_there():
    rows = [(f"item {place:03}", 1 - place / 50, 0.05) for place in range(100)]
    shown = page_of(of_rankings(rows))
    assert "The other 80 items" in shown
    assert "from place 21 on" in shown
    assert [f"item {k:03}" for k in range(100)] == re.findall(r'dir="auto">(item \d+)<', shown)
    assert "The other" not in page_of(of_rankings(rows[:20]))


def test_names_are_shown_and_nothing_else():
    shown = page_of(of_rankings([(HOSTILE, 1.0, 0.1), ("", -1.0, 0.1)]))
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "unnamed" in shown


def drawn(page, tag, name):
    return re.findall(rf'<{tag}"[^>]* {name}="([\d.]+%)"', page[page.index("standings") :])


def test_the_chart_has_one_axis_for_all():
    shown = page_of(of_rankings([("Ada", 1.0, 0.5), ("Bo", -1.0, 2.0)]))
    assert drawn(shown, 'line class="mark', "x1") == ["65.67%"] * 2  # 3 + 94 * 3 / 4.5
    assert drawn(shown, 'line class="range', "x1") == ["76.11%", "3.00%"]
    assert drawn(shown, 'line class="range', "x2") == ["97.00%", "86.56%"]
    assert drawn(shown, 'circle class="dot', "cx") == ["86.56%", "44.78%"]
    assert ">−3.00</text>" in shown
    assert ">+1.50</text>" in shown
    rows = [("Ada", 0.0, None), ("Bo", -0.0, None)]  # all alike
    values = _item_values(_describe_items(of_rankings(rows), records=True))
    assert (values["low_text"], values["high_text"]) == ("", "")
    assert {row["text"] for row in values["first"]} == {"+0.00"}
    assert set(drawn(page_of(of_rankings(rows)), 'circle class="dot', "cx")) == {"3.00%"}


def test_a_worth_that_is_no_number():
    result = of_rankings()
    result["items"][0]["worth"] = "much"
    with pytest.raises(DataError, match=r"items\.worth must be a number"):
        summarize(result)
    result["items"][0]["worth"] = None
    assert [row["name"] for row in summarize(result)["worths"]["rows"]] == ["Bo", "Cy", "Di"]
