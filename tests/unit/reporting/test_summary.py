"""The summary says what the inputs say, and no more."""

import itertools
import json
import math

import numpy as np
import pytest

from sordino.errors import DataError, UsageError
from sordino.reporting import calibration_bins, summarize


def test_bins_are_unbiased_over_every_outcome_of_the_randomization():
    flip = 0.3
    labels = np.array([0.0, 1, 1, 0, 1, 1, 0, 1])
    differences = np.array([-2.0, -1.5, -1.0, 0.3, 0.3, 0.9, 1.5, 4.0])
    mean = np.zeros(3)
    total = 0.0
    for flips in itertools.product((0, 1), repeat=8):
        weight = flip ** sum(flips) * (1 - flip) ** (8 - sum(flips))
        answers = np.abs(labels - np.array(flips))
        bins = calibration_bins(differences, answers, flip, bins=3)
        mean += weight * np.array([row["observed"] for row in bins])
        total += weight
    truth = calibration_bins(differences, labels, 0.0, bins=3)
    assert total == pytest.approx(1.0)
    assert mean == pytest.approx([row["observed"] for row in truth], abs=1e-12)


def test_bins_state_the_formula_of_their_interval():
    answers = np.array([1.0, 0, 1, 1])
    (row,) = calibration_bins(np.zeros(4), answers, 0.25)
    assert row["pairs"] == 4
    assert row["predicted"] == 0.5
    assert row["observed"] == pytest.approx(1.0)
    # Wilson: shares p at which the observed one is 1.96 standard errors away.
    for end in (row["low"], row["high"]):
        share = 0.25 + 0.5 * end
        assert abs(0.75 - share) == pytest.approx(1.96 * np.sqrt(share * (1 - share) / 4))


@pytest.mark.parametrize("pairs", [3, 10, 40])
def test_intervals_of_small_groups_hold(pairs):
    # Every outcome, chances from .05 to .95: at least .83 each, .93 in the mean. The normal
    # interval held with chance .41 to .84 for groups of two to five.
    chances = np.linspace(0.05, 0.95, 91)
    held = np.zeros(91)
    for right in range(pairs + 1):
        answers = (np.arange(pairs) < right).astype(float)
        (row,) = calibration_bins(np.zeros(pairs), answers, 0.0)
        weight = math.comb(pairs, right) * chances**right * (1 - chances) ** (pairs - right)
        held += weight * ((row["low"] <= chances) & (chances <= row["high"]))
    assert held.min() > 0.83
    assert held.mean() > 0.93


def test_bins_are_quantiles_in_order_and_keep_ties_together_in_any_order():
    rng = np.random.default_rng(5)
    differences, answers = rng.normal(size=1000), rng.integers(0, 2, 1000).astype(float)
    bins = calibration_bins(differences, answers, 0.1)
    assert [row["pairs"] for row in bins] == [100] * 10
    predicted = [row["predicted"] for row in bins]
    assert predicted == sorted(predicted)
    assert predicted[0] == pytest.approx(np.mean(1 / (1 + np.exp(-np.sort(differences)[:100]))))
    tied = np.repeat([0.0, 1.0], [700, 300])
    order = rng.permutation(1000)
    shuffled = calibration_bins(tied[order], answers[order], 0.1)
    assert [row["pairs"] for row in shuffled] == [700, 300]
    assert [row["observed"] for row in shuffled] == pytest.approx(
        [row["observed"] for row in calibration_bins(tied, answers, 0.1)]
    )


def test_bins_cover_the_truth_at_the_stated_rate():
    # Seeded. 400 groups of 500 answers: the rate has a standard error of 1.1 points, so a right
    # formula fails here at most once in 10^4 seeds; 1.64 for 1.96, or no debiasing, fails always.
    rng = np.random.default_rng(11)
    differences = np.repeat(np.linspace(-2, 2, 400), 500)
    share = 1 / (1 + np.exp(-differences))
    labels = rng.random(len(share)) < share
    answers = np.where(rng.random(len(share)) < 0.25, ~labels, labels).astype(float)
    bins = calibration_bins(differences, answers, 0.25, bins=400)
    covered = np.mean([row["low"] <= row["predicted"] <= row["high"] for row in bins])
    assert len(bins) == 400
    assert 0.91 <= covered <= 0.99


def test_extreme_differences_raise_no_warning():
    bins = calibration_bins(np.array([-1e4, 1e4]), np.array([0.0, 1.0]), 0.0, bins=2)
    assert [row["predicted"] for row in bins] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("differences", "targets", "flip", "bins", "error"),
    [
        ([0.0, 1.0], [1.0], 0.1, 2, DataError),
        ([], [], 0.1, 2, DataError),
        ([0.0], [0.5], 0.1, 2, DataError),
        ([math.nan], [1.0], 0.1, 2, DataError),
        ([0.0], [1.0], 0.5, 2, UsageError),
        ([0.0], [1.0], -0.1, 2, UsageError),
        ([0.0], [1.0], 0.1, 0, UsageError),
    ],
)
def test_bins_refuse_what_they_cannot_use(differences, targets, flip, bins, error):
    with pytest.raises(error):
        calibration_bins(np.array(differences), np.array(targets), flip, bins)


def test_the_summary_is_plain_json_and_repeatable(result, ledger, calibration):
    first = summarize(result, calibration=calibration, ledger=ledger)
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    assert summarize(result, calibration=calibration, ledger=ledger) == first


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
    assert "This machine saw the raw labels" in summarize(result)["guarantee"]["trust_text"]
    result["guarantee"]["trust"] = "local"
    assert "Nobody but the person" in summarize(result)["guarantee"]["trust_text"]


def test_only_local_metrics_are_said_to_be_debiased(result):
    assert "randomized labels, debiased" in summarize(result)["metrics_note"]
    result["noise"] = "central"
    assert "debiased" not in summarize(result)["metrics_note"]


def test_a_label_promise_lists_prompts_participation_and_counts_as_unprotected(result):
    gaps = " ".join(summarize(result)["guarantee"]["unprotected"])
    for word in ("prompts", "answers", "took part", "order", "number", "crowd", "Several labels"):
        assert word in gaps


def test_a_secret_number_of_records_is_not_shown(result, calibration):
    result["guarantee"].update(unit="record", neighbors="ADD_OR_REMOVE_ONE")
    summary = summarize(result, calibration=calibration)
    assert summary["pairs"] is None
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
    assert "apart from δ = 1 × 10⁻⁶" in summary["statement"]


@pytest.mark.parametrize("epsilon", ["inf", math.inf])
def test_an_infinite_epsilon_is_no_promise(result, epsilon):
    result["guarantee"]["epsilon"] = epsilon
    summary = summarize(result)
    assert "No promise" in summary["statement"]
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
    assert "Were the randomness real, nobody" in summary["statement"]


def test_spend_is_rounded_against_the_reader(result, ledger):
    ledger["total"] = {**ledger["total"], "epsilon": 1.99999}
    ledger["remaining_epsilon"] = 1.00001
    spend = summarize(result, ledger=ledger)["spend"]
    assert (spend["spent_text"], spend["remaining_text"]) == ("2", "1")
    assert spend["share"] == pytest.approx(1.99999 / 3)
    assert spend["over"] is False


def test_spend_without_a_total(result, ledger):
    ledger["total"] = None
    assert summarize(result, ledger=ledger)["spend"]["spent_text"] == "2"
    ledger["remaining_epsilon"] = None
    spend = summarize(result, ledger=ledger)["spend"]
    assert (spend["spent_text"], spend["remaining_text"]) == ("not available", "not available")
    ledger["entries"] = []
    spend = summarize(result, ledger=ledger)["spend"]
    assert (spend["spent_text"], spend["remaining_text"], spend["share"]) == ("0", "3", 0.0)


def test_overspending_and_an_infinite_budget_are_told_apart(result, ledger):
    ledger["remaining_epsilon"] = None
    ledger["total"] = {**ledger["total"], "epsilon": 4.0}
    spend = summarize(result, ledger=ledger)["spend"]
    assert (spend["over"], spend["share"], spend["remaining_text"]) == (True, 1.0, "0")
    ledger["budget"]["epsilon"] = "inf"
    spend = summarize(result, ledger=ledger)["spend"]
    assert (spend["over"], spend["share"], spend["remaining_text"]) == (False, None, "∞")


def test_metrics_carry_intervals_of_95_percent(result):
    accuracy, _, slope = summarize(result)["reward"]["metrics"]
    assert accuracy["interval"] == pytest.approx([0.64 - 1.96 * 0.012, 0.64 + 1.96 * 0.012])
    assert accuracy["detail"] == "± 2.4 points (95%)"
    assert slope["detail"] == "± 0.2 (95%)"
    assert summarize(result)["policy"]["metrics"][0]["detail"] == "58.0% to 64.0% (95%)"


def test_null_metrics_have_a_reason_and_no_interval(result):
    result["reward"].update(accuracy=None, calibration_slope=math.nan)
    summary = summarize(result, reasons={"accuracy": "Because it was not held out."})
    accuracy, loss, slope = summary["reward"]["metrics"]
    assert (accuracy["text"], accuracy["interval"]) == ("not available", None)
    assert accuracy["reason"] == "Because it was not held out."
    assert slope["value"] is None
    assert slope["reason"]
    assert loss["reason"] == ""


def test_a_metric_of_zero_is_a_value(result):
    result["policy"]["kl"] = 0.0
    assert summarize(result)["policy"]["metrics"][1]["text"] == "0"


def test_caveats_take_the_given_sentence_then_the_librarys_then_say_so(result):
    result["caveats"] = ["real-arithmetic", "weather", "own"]
    texts = {"own": "My sentence."}
    rows = {row["name"]: row["text"] for row in summarize(result, caveat_texts=texts)["caveats"]}
    assert "floating-point" in rows["real-arithmetic"]
    assert rows["weather"] == "No sentence is on file for this caveat."
    assert rows["own"] == "My sentence."


def test_only_the_guarantee_is_required(result):
    summary = summarize({"guarantee": result["guarantee"]})
    for part in ("spend", "reward", "policy", "public", "pairs", "data"):
        assert summary[part] is None
    with pytest.raises(DataError, match="randomness"):
        summarize({"guarantee": {k: v for k, v in result["guarantee"].items() if k[:3] != "ran"}})
    with pytest.raises(DataError, match=r"result\.guarantee"):
        summarize({})
