"""Parts of the page that a run may lack: each is right when it is there, and silent when not."""

import html
import math
import re

import pytest

from sordino.errors import DataError, PrivacyError
from sordino.reporting import summarize
from sordino.rewards.metrics import REACH

from .pages import page_of, words


def figure(page, start):
    """Return a figure, and what it is called."""
    found = re.search(rf'<svg[^>]*aria-label="({start}[^"]*)".*?</svg>', page, re.DOTALL)
    return found[0], html.unescape(found[1])


def test_a_run_without_the_parts_has_none_of_them(result):
    summary = summarize(result)
    for part in ("prediction", "decisive", "confidence", "examples", "fit"):
        assert not summary[part]
    for title in ("What other budgets", "What decides", "Before and after", "How it was fitted"):
        assert title not in page_of(result)


def test_every_part_is_told(full, calibration, ledger):
    text = words(full, calibration=calibration, ledger=ledger)
    for told in (
        "4,000 labels, an effective dimension of 12 and an assumed accuracy of 65.0% without",
        "before anything was spent",
        "62.0% at ε = 2",
        "64.0%, with its 95% interval from 61.6% to 66.4%",
        "an assumption, not a limit",
        "The 2 largest of 512 features",
        "which the promise treats as public",
        "−8 −0.8",
        "word group 317 +2 +0.2",
        "The texts are from the file that the user declared public",
        "50.0% before, 75.0% after",
        "no judgment is shown",
        "95%: at least that often the true reward",
        "3.21: what the width",
        "14.2 on average",
        "more than 1.61 times as likely",
        "refined by the likelihood of the randomized answers",
        "Automatically: refining the fit promised a clearly smaller error",
        "one below 0.12",
    ):
        assert told in text, told
    assert "heuristic" not in text.lower()
    assert "too careful" not in text


def test_figures_say_in_words_what_they_show(full):
    page = page_of(full)
    _, curve = figure(page, "Predicted accuracy")
    assert "from 52.0% at ε = 0.1 to 64.9% at ε = 10" in curve
    assert "62.0% at the chosen ε = 2" in curve
    assert "measured there 64.0%, 95% interval 61.6% to 66.4%" in curve
    assert "guessing is 50%" in curve
    assert "refusals −0.8, word group 317 +0.2" in figure(page, "Effect of a usual")[1]
    assert figure(page, "Probability of this answer: 50.0% before, 75.0%")


def test_the_curve_is_drawn_where_its_numbers_are(full):
    page = page_of(full)
    (path,) = re.findall(r'class="line" d="M([^"]+)"', page)
    points = [tuple(map(float, point.split())) for point in path.split(" L")]
    assert [x for x, _ in points] == pytest.approx(
        [46 + 326 * (math.log10(epsilon) + 1) / 2 for epsilon in (0.1, 1, 2, 4, 10)], abs=0.06
    )
    # The axis runs from 45% to 70%, which the end of the interval needs.
    height = [248 - 218 * (share - 0.45) / 0.25 for share in (0.52, 0.6, 0.62, 0.64, 0.649)]
    assert [y for _, y in points] == pytest.approx(height, abs=0.06)
    mark, dot = re.findall(r'class="dot" cx="([\d.]+)" cy="([\d.]+)"', page)[0]
    assert float(mark) == pytest.approx(46 + 326 * (math.log10(2) + 1) / 2, abs=0.06)
    assert float(dot) == pytest.approx(248 - 218 * (0.62 - 0.45) / 0.25, abs=0.06)


def test_an_interval_far_beyond_the_curve_is_on_the_axis(full):
    full["reward"] |= {"accuracy": 0.7, "accuracy_standard_error": 0.1}
    svg, _ = figure(page_of(full), "Predicted accuracy")
    ends = re.findall(r'class="range".*?y1="([\d.]+)" y2="([\d.]+)"', svg)[0]
    assert [float(end) for end in ends] == [  # from 45% to 90%
        pytest.approx(248 - 218 * (end - 0.45) / 0.45, abs=0.06) for end in (0.504, 0.896)
    ]


@pytest.mark.parametrize(("low", "high", "said"), [(0.66, 0.74, True), (0.64, 0.76, False)])
def test_clearly_more_than_assumed_says_that_the_assumption_was_too_careful(full, low, high, said):
    error = (high - low) / 2 / REACH
    full["reward"] |= {"accuracy": (low + high) / 2, "accuracy_standard_error": error}
    assert ("the assumption was too careful" in words(full)) == said


def test_the_measured_accuracy_is_the_rewards_own(full):
    prediction = summarize(full)["prediction"]
    assert prediction["measured"]["interval"] == pytest.approx([0.61648, 0.66352])
    full["reward"]["accuracy"] = None
    assert summarize(full)["prediction"]["measured"] is None
    assert "diamond" not in words(full)


@pytest.mark.parametrize("chosen", [None, 0.01, 3.0, 50.0, math.nan])
def test_an_epsilon_off_the_curve_is_not_marked(full, chosen):
    full["utility"]["chosen_epsilon"] = chosen
    text = words(full)
    assert "What other budgets" in text
    assert "The dot is" not in text
    assert "diamond" not in text


def test_rows_of_a_curve_without_a_number_are_left_out(full):
    points = full["utility"]["curve"]
    points += [
        {"epsilon": 0.0, "accuracy": 0.5},
        {"epsilon": 3.0, "accuracy": None},
        {"epsilon": 5.0, "accuracy": math.nan},
    ]
    assert len(summarize(full)["prediction"]["points"]) == 5
    full["utility"]["curve"] = points[:1]  # no line
    assert summarize(full)["prediction"] is None
    full["utility"]["curve"] = [{"epsilon": "a lot", "accuracy": 0.5}]
    with pytest.raises(DataError, match="epsilon"):
        summarize(full)


def test_texts_that_the_promise_protects_give_no_spread(full):
    full["guarantee"]["unit"] = "record"
    with pytest.raises(PrivacyError, match="spread"):
        summarize(full)
    full["caveats"] = ["labels-only"]
    assert summarize(full)["decisive"] is not None
    full["caveats"] = []
    full["decisive"]["source"] = "public"
    assert "the file that the user declared public" in words(full)


@pytest.mark.parametrize("source", [None, "comparisons", "private", 7, "released"])
def test_examples_of_unknown_origin_are_refused(full, source):
    full["examples"]["source"] = source
    if source == "released":
        assert "an answer file that had been released before" in words(full)
        return
    with pytest.raises(DataError, match="unknown origin"):
        summarize(full)


@pytest.mark.parametrize("changed", [{"text": "see x://y"}, {"policy": None}])
def test_an_example_with_an_address_or_without_a_number_is_left_out(full, changed):
    full["examples"]["rows"][0]["answers"][1] |= changed
    assert summarize(full)["examples"] is None


def test_a_chance_is_never_rounded_to_certainty(full):
    answers = full["examples"]["rows"][0]["answers"]
    answers[0]["policy"], answers[1]["policy"] = 0.99996, 0.00004
    assert "over 99.9% after" in words(full)
    assert "under 0.1% after" in words(full)


@pytest.mark.parametrize("scale", [0.0, 0.3, 0.99999])
@pytest.mark.parametrize("heuristic", [True, False])  # the scale alone says it
def test_a_heuristic_bonus_is_labelled_and_proves_nothing(full, scale, heuristic):
    full["policy"]["pessimism"].update(scale=scale, heuristic=heuristic)
    text = words(full)
    assert "How it treats what is uncertain (heuristic)" in text
    assert "nothing is proved" in text
    assert "is 1 times" not in text
    assert "at least that often" not in text


def test_confidence_is_never_rounded_up_and_missing_numbers_leave_their_row_out(full):
    full["policy"]["pessimism"]["confidence"] = 0.99999999
    assert "99.9999%: at least" in words(full)
    full["policy"]["pessimism"] = {"kind": "optimistic", "radius": math.nan}
    assert [name for name, _ in summarize(full)["confidence"]["rows"]] == ["Kind"]
    assert "explores" in words(full)


def test_fits_say_which_likelihood_and_who_chose_it(full):
    full["reward"].update(method="debiased")
    assert "did not promise" in words(full)
    full["reward"].update(method_asked="debiased", weight_standard_error=None)
    text = words(full)
    assert "Chosen By the user." in text
    assert "Not available: they are made for up to 1,024 features." in text
    full["reward"] = {"method": "of my own"}
    assert "Likelihood of my own" in words(full)


def test_a_page_about_persons_reads_as_one(full, ledger):
    full["caveats"] = ["labels-only"]
    for promise in (full["guarantee"], ledger["budget"], ledger["total"]):
        promise["unit"] = "person"
    text = words(full, ledger=ledger)
    assert "ε per person" in text
    assert "All labels of one person are replaced by any others" in text
    assert "between any two values of one label" not in text
    assert "Several" not in text
