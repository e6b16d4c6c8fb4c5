"""The summary says what the inputs say, and no more."""

import json
import math

import pytest

from sordino.errors import DataError
from sordino.privacy.guarantee import REPLACE_ONE, REPLACE_SPECIAL, Guarantee
from sordino.reporting import summarize
from sordino.reporting.wording import describe_guarantee, read_guarantee


def test_epsilon_is_never_understated(result):
    result["guarantee"]["epsilon"] = 1.99995
    words = summarize(result)["guarantee"]
    assert words["epsilon_text"] == "2"
    assert words["factor_text"] == "7.389"
    result["guarantee"]["epsilon"] = 2.00001
    words = summarize(result)["guarantee"]
    assert float(words["epsilon_text"]) >= 2.00001
    assert float(words["factor_text"]) >= math.exp(2.00001)
    assert words["belief_text"] == "88.1%"


@pytest.mark.parametrize("noise", ["labels", "estimate"])
def test_who_saw_the_labels_follows_trust_and_not_the_noise(result, noise):
    result["noise"] = noise
    summary = summarize(result)
    assert "This machine saw the raw labels" in summary["guarantee"]["trust_text"]
    assert ("randomized labels, debiased" in summary["metrics_note"]) == (noise == "labels")
    result["guarantee"]["trust"] = "local"
    assert "Nobody but the person" in summarize(result)["guarantee"]["trust_text"]


def test_a_label_promise_lists_prompts_participation_and_counts_as_unprotected(result):
    gaps = " ".join(summarize(result)["guarantee"]["unprotected"])
    for word in ("prompts", "answers", "took part", "order", "number", "crowd", "Several labels"):
        assert word in gaps


def test_a_secret_number_of_records_is_not_shown(full, calibration):
    full["guarantee"].update(unit="record", neighbors="ADD_OR_REMOVE_ONE")
    full["decisive"]["source"] = "public"
    summary = summarize(full, calibration=calibration)
    assert summary["facts"] == []
    assert summary["prediction"] is None  # a curve of what this many records would give
    assert {row["pairs"] for row in summary["calibration"]} == {None}
    assert "4,000" not in json.dumps(summary)
    assert "took part" not in " ".join(summary["guarantee"]["unprotected"])
    assert "that factor squared" in summary["guarantee"]["between"]


def test_a_person_promise_about_labels_still_lists_the_prompts(result):
    result["guarantee"]["unit"] = "person"
    assert "prompts" not in " ".join(summarize(result)["guarantee"]["unprotected"])
    result["caveats"] = ["labels-only"]
    assert "prompts" in " ".join(summarize(result)["guarantee"]["unprotected"])


def test_delta_qualifies_every_statement_of_the_bound(result):
    assert "δ = 0: the bound has no exceptions." in summarize(result)["guarantee"]["slack"]
    result["guarantee"]["delta"] = 1e-6
    summary = summarize(result)
    assert "1 × 10⁻⁶" in summary["guarantee"]["slack"]
    assert "apart from" in summary["guarantee"]["odds"]
    assert "With the same exception, a belief of 50%" in summary["guarantee"]["odds"]


@pytest.mark.parametrize("epsilon", ["inf", math.inf])
def test_an_infinite_epsilon_is_no_promise(result, epsilon):
    result["guarantee"]["epsilon"] = epsilon
    summary = summarize(result)
    assert "no promise" in summary["guarantee"]["odds"]
    json.dumps(summary, allow_nan=False)


def test_simulated_anywhere_marks_the_whole_report(result, ledger):
    assert summarize(result, ledger=ledger)["simulated"] is False
    for part in ("budget", "total"):
        marked = {**ledger, part: {**ledger[part], "randomness": "simulated"}}
        assert summarize(result, ledger=marked)["simulated"] is True
    ledger["entries"][0]["randomness"] = "simulated"
    assert summarize(result, ledger=ledger)["simulated"] is True
    result["guarantee"]["randomness"] = "simulated"
    summary = summarize(result)
    assert summary["simulated"] is True
    assert summary["caveats"][0]["name"] == "simulated"


@pytest.mark.parametrize(
    ("budget", "total", "left", "told"),
    [
        (3.0, 1.99999, 1.00001, ("2", "3", "1", False)),  # rounded against the reader
        (3.0, None, 3.0, ("0", "3", "3", False)),
        (3.0, 4.0, -1.0, ("4", "3", "0", True)),
        ("inf", 4.0, "inf", ("4", "∞", "∞", False)),
        (1.98537, 1.98537, 3e-16, ("1.986", "1.986", "0", False)),  # all of it: no dust
    ],
)
def test_what_was_spent(result, ledger, budget, total, left, told):
    ledger["budget"]["epsilon"], ledger["remaining_epsilon"] = budget, left
    ledger["total"] = total and {**ledger["total"], "epsilon": total}
    spend = summarize(result, ledger=ledger)["spend"]
    keys = ("spent_text", "budget_epsilon_text", "remaining_text", "over")
    assert tuple(spend[key] for key in keys) == told
    if budget == "inf":
        assert spend["share"] is None
    else:
        assert spend["share"] == pytest.approx(min(1, float(spend["spent"]) / budget))


def test_a_metric_that_was_not_released_is_not_there_and_a_vague_one_says_so(result):
    result["reward"].update(accuracy=None, calibration_slope=math.nan)
    result["reward"]["calibration_slope_reason"] = "too few"
    result["policy"]["kl"] = 0.0
    summary = summarize(result)
    loss, slope = summary["reward"]["metrics"]
    assert (loss["key"], loss["value"]) == ("negative_log_likelihood", 0.66)
    assert (slope["value"], slope["text"]) == (None, "too few to tell")
    assert summary["policy"]["metrics"][1]["text"] == "0"  # a metric of 0 is a value


def test_caveats_take_the_librarys_sentence_or_say_that_there_is_none(result):
    result["caveats"] = ["real-arithmetic", "weather"]
    rows = {row["name"]: row["text"] for row in summarize(result)["caveats"]}
    assert "floating-point" in rows["real-arithmetic"]
    assert rows["weather"] == "No sentence is on file for this caveat."


def test_only_the_guarantee_is_required(result):
    summary = summarize({"guarantee": result["guarantee"]})
    for part in ("spend", "reward", "policy", "data", "facts", "statement"):
        assert not summary[part]
    with pytest.raises(DataError, match="randomness"):
        summarize({"guarantee": {k: v for k, v in result["guarantee"].items() if k[:3] != "ran"}})
    with pytest.raises(DataError, match=r"result\.guarantee"):
        summarize({})


# A promise to a whole person.


def promise(epsilon=4.0, neighbors=REPLACE_ONE, caveats=("labels-only",)):
    return Guarantee(
        epsilon, delta=0.0, unit="person", neighbors=neighbors, trust="central", caveats=caveats
    )


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 20.0, math.inf])
def test_the_question_is_about_all_labels_of_one_person(epsilon):
    words = describe_guarantee(promise(epsilon))
    assert words["question"] == "between any two sets of labels of one person"
    assert words["change"] == "all labels of one person are replaced by any others"
    assert words["between"] == ""
    if epsilon < math.inf:
        assert "the odds between any two sets of labels of one person by at most" in words["odds"]
    gaps = " ".join(words["unprotected"])
    for word in ("prompts", "answers, word for word", "who was asked what", "how many judgments"):
        assert word in gaps
    assert "m times" not in gaps  # the promise is about the person already
    assert "crowd" in gaps


def test_whole_records_and_labels_that_become_fair_coins_have_words_of_their_own():
    words = describe_guarantee(promise(caveats=()))
    assert words["question"] == "between any two values of one person’s set of records"
    assert "how many judgments" not in " ".join(words["unprotected"])
    words = describe_guarantee(promise(neighbors=REPLACE_SPECIAL))
    assert words["question"] == (
        "that all labels of one person were used, and not replaced by fair coins,"
    )
    assert words["change"] == "all labels of one person are replaced by fair coins"
    assert words["between"].startswith("Between two sets of labels of one person")


def test_a_budget_may_say_what_its_promises_are_about():
    values = promise().to_dict()
    assert "records" in read_guarantee("b", values).change
    assert "labels" in read_guarantee("b", values | {"caveats": ["labels-only"]}).change
    assert "labels" in read_guarantee("b", values, ("labels-only",)).change
