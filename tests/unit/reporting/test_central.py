"""The page of a curator's run: what was released, why a metric is missing, and no secret size."""

import copy
import re

import pytest

from sordino.reporting import render_report, summarize

DELTA = 1e-6
LABELS = {
    "name": "label-gaussian", "epsilon": 1.0, "delta": DELTA, "mu": 0.2367, "shaped": True,
    "records_per_person": None,
}  # fmt: skip
RECORDS = {
    "name": "objective-perturbation", "epsilon": 1.0, "delta": DELTA, "bound": 2.0, "ridge": 3.08,
    "standard_deviation": 8.51, "second_moment": False, "second_moment_mu": 0.0,
}  # fmt: skip
BOUGHT = {
    "name": "label-gaussian", "epsilon": 0.5, "delta": DELTA, "mu": 0.124, "share": 0.2,
    "pairs": 8123,
}  # fmt: skip
METRICS = ("accuracy", "negative_log_likelihood", "calibration_slope")
UNITS = {
    "label": ("label", "REPLACE_ONE", []),
    "person": ("person", "REPLACE_ONE", ["labels-only"]),
    "zero-out": ("record", "REPLACE_SPECIAL", ["real-arithmetic"]),
    "add-remove": ("record", "ADD_OR_REMOVE_ONE", ["real-arithmetic"]),
}
KINDS = [*UNITS, *(f"{name}+metrics" for name in UNITS)]
SIZE = 40617  # no other number on a page begins so


def made(name):
    """What result.json holds of one run."""
    kind, _, bought = name.partition("+")
    unit, neighbors, caveats = UNITS[kind]
    records, hidden = unit == "record", kind == "add-remove"
    mechanism = RECORDS if records else LABELS | ({"records_per_person": 5} if caveats else {})
    measured = dict.fromkeys([*METRICS, *(f"{key}_standard_error" for key in METRICS)])
    if not records:
        measured |= {"negative_log_likelihood": 0.61, "calibration_slope": 0.95}
    if bought:
        measured |= {"accuracy": 0.66, "accuracy_standard_error": 0.02}
        measured["negative_log_likelihood"] = 0.62
    return {
        "noise": "estimate",
        "guarantee": {
            "epsilon": 1.2 if bought else 1.0, "delta": DELTA, "unit": unit,
            "neighbors": neighbors, "trust": "central", "randomness": "system",
        },
        "caveats": caveats,
        "mechanism": copy.deepcopy(mechanism),
        "metrics": {**BOUGHT, "pairs": None if records else 8123} if bought else None,
        "data": {"name": "preferences", "pairs": None if hidden else SIZE},
        "reward": {
            **measured, "method": mechanism["name"], "method_asked": "auto",
            "weight_standard_error": None if records else 0.3, "ridge": 3.08,
            "gradient_norm": 1e-8, "features": {"kind": "hashed-text", "dimension": 512},
        },
        "policy": {
            "kind": "gibbs", "confidence": None, "scale": None, "temperature": 0.5,
            "win_rate": 0.6 if bought else None,
            "win_rate_interval": [0.55, 0.65] if bought else None,
            "kl": None if records else 0.05, "pessimism": None,
        },
        "utility": None if kind != "label" else {
            "curve": [{"epsilon": 0.1, "accuracy": 0.6}, {"epsilon": 10.0, "accuracy": 0.64}],
            "assumed_accuracy": 0.65, "effective_dimension": 12, "chosen_epsilon": 1.0,
        },
        "decisive": None,
        "examples": None,
        "calibration": [],
        "seconds": None if hidden else 3.2,
    }  # fmt: skip


def words(result, **parts):
    page = render_report(summarize(result, **parts))
    text = re.sub(r"<style>.*?</style>|<title>.*?</title>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", text).replace("&#39;", "'").split())


def reasons(result):
    summary = summarize(result)
    rows = [*summary["reward"]["metrics"], *summary["policy"]["metrics"]]
    return {row["key"]: row["reason"] for row in rows if row["value"] is None}


@pytest.mark.parametrize("name", KINDS)
def test_a_page_has_no_hole(name, ledger):
    text = words(made(name), ledger=ledger)
    assert "None" not in text.replace("None were recorded", "")
    assert "?" not in text
    assert "nan" not in text.split()
    page = render_report(summarize(made(name)))
    assert not re.search(r"<(dl|dd|dt|p|h2|h3|ul)[^>]*>\s*</\1>", page)
    assert "SIMULATED" not in text


@pytest.mark.parametrize("name", ["label", "person"])
def test_of_labels_likelihood_and_slope_are_free(name):
    summary = summarize(made(name))
    assert "split into two independent parts" in summary["metrics_note"]
    assert "were not bought" in summary["metrics_note"]
    assert reasons(made(name)) == {
        "accuracy": "Held-out accuracy is no function of what was released; --metrics-epsilon "
        "buys it.",
        "win_rate": "The win rate is no function of what was released; --metrics-epsilon buys it.",
    }


@pytest.mark.parametrize("name", ["zero-out", "add-remove"])
def test_of_records_nothing_is_free(name):
    found = reasons(made(name))
    sold = (
        "Prompts, answers and labels are private, so every metric is a release: "
        "--metrics-epsilon buys it, or --evaluate a public file."
    )
    assert {found[key] for key in ("accuracy", "negative_log_likelihood", "win_rate")} == {sold}
    assert "cannot be bought" in found["calibration_slope"]
    assert "private" in found["kl"]
    text = words(made(name))
    assert text.count(sold) == 2  # once for the reward, once for the policy
    assert "Standard errors Not available: prompts and answers are private" in text


@pytest.mark.parametrize("name", [kind for kind in KINDS if "+" in kind])
def test_what_was_bought_and_what_it_cost(name):
    note = summarize(made(name))["metrics_note"]
    assert "20% of the questions" in note
    assert "ε = 0.5, δ = 1 × 10⁻⁶" in note
    assert ("8,123 pairs" in note) == (made(name)["guarantee"]["unit"] != "record")
    assert "split into" not in note
    assert "Reward alone ε = 1, δ = 1 × 10⁻⁶." in words(made(name))
    found = reasons(made(name))
    assert not {"accuracy", "win_rate", "negative_log_likelihood"} & set(found)


def test_a_purchase_that_the_noise_drowned_says_so():
    result = made("add-remove+metrics")
    result["reward"]["accuracy"] = None
    assert "too few records" in reasons(result)["accuracy"]


def test_the_mechanism_in_plain_words():
    text = words(made("label"))
    assert "One sum over all labels, with noise" in text
    assert "Changing one label moves it by at most 0.2367 of its standard deviation" in text
    assert "exact whole numbers" in text
    text = words(made("person"))
    assert "Changing all labels of one person" in text
    assert "At most 5 records of a person count." in text
    text = words(made("zero-out"))
    assert "the objective is tilted" in text
    assert "standard deviation 8.51" in text
    assert "A record of a length above 2 is shrunk" in text
    assert "Ridge 3.08" in text
    assert "Second moment" not in text


def test_a_second_moment_and_another_shape_of_noise():
    result = made("zero-out")
    result["mechanism"] |= {"second_moment": True, "second_moment_mu": 0.0871}
    assert "Second moment Released too, for confidence sets. One record more or less" in words(
        result
    )
    result = made("label")
    result["mechanism"]["shaped"] = False
    assert "the same in every direction" in words(result)


def test_simulated_noise_is_not_said_to_be_exact():
    result = made("label")
    result["guarantee"]["randomness"] = "simulated"
    text = words(result)
    assert "exact whole numbers" not in text
    assert "SIMULATED" in text


def test_other_ways_and_unknown_mechanisms_have_no_such_rows(result):
    assert summarize(result)["mechanism"] is None
    told = made("label")
    told["mechanism"] = {"name": "laplace"}
    assert summarize(told)["mechanism"] is None


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("label", "raw labels."),
        ("person", "raw labels."),
        ("zero-out", "raw prompts, answers and labels."),
        ("add-remove", "raw prompts, answers and labels."),
    ],
)
def test_who_saw_what(name, seen):
    assert f"This machine saw the {seen}" in words(made(name))


def test_what_records_leave_open():
    assert "word for word" not in words(made("zero-out"))
    assert "number of the records" in words(made("zero-out"))
    assert "number of the records" not in words(made("add-remove"))


def leaking():
    """A run that states every size it must not, as a careless writer might."""
    result = made("add-remove+metrics")
    result["data"] = {"name": "preferences", "pairs": SIZE, "persons": SIZE}
    result["metrics"]["pairs"] = SIZE
    result["seconds"] = SIZE / 1000
    result["utility"] = copy.deepcopy(made("label")["utility"])
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
    assert "40,617 pairs" in render_report(summarize(other, ledger=ledger))
    assert "01:37" in render_report(summarize(other, ledger=ledger))


def test_the_curve_is_named_for_the_way():
    text = words(made("label"))
    assert "without privacy), for one noised sum of all labels." in text
    assert "ε per label: less privacy to the right" in render_report(summarize(made("label")))
    result = made("label")
    result["utility"]["measured"] = {"accuracy": 0.9, "interval": [0.7, 1.1]}
    text = words(result)
    assert "The noise is right on average" in text
    assert "randomization" not in text.partition("other budgets")[2].partition("Caveats")[0]


def test_a_pessimistic_policy_says_so_where_texts_are_private():
    result = made("zero-out")
    result["policy"] |= {"kind": "pessimistic", "confidence": 0.9, "scale": 0.1}
    text = words(result)
    assert "How it treats what is uncertain (heuristic)" in text
    assert "0.1 times the one that holds with 90% confidence" in text
    assert "How it treats what is uncertain" not in words(made("zero-out"))


def test_a_budget_that_is_used_up_shows_no_dust(ledger):
    ledger["budget"] = {**ledger["budget"], "epsilon": 1.98537}
    ledger["total"] = {**ledger["total"], "epsilon": 1.98537}
    ledger["remaining_epsilon"] = 3e-16
    text = words(made("label"), ledger=ledger)
    assert "Spent: ε = 1.986 of 1.986" in text
    assert "Remaining: 0" in text


def test_options_are_not_broken_at_their_hyphens():
    page = render_report(summarize(made("label")))
    assert '<code class="option">--metrics-epsilon</code> buys it.' in page


def test_what_is_missing_altogether_is_said_once():
    page = render_report(summarize(made("zero-out")))
    assert "<dt>Accuracy, log loss</dt>" in page
    assert "figure-of-merit" in render_report(summarize(made("label")))
