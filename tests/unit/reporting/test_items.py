"""The page of a run of rankings: who is ahead, how settled that is, and no hole for a metric."""

import copy
import re

import pytest

from sordino.errors import DataError
from sordino.reporting import render_report, summarize
from sordino.reporting.figures import item_values
from sordino.reporting.summary import describe_items

SUM = {
    "name": "ranking-gaussian", "epsilon": 1.0, "delta": 1e-6, "mu": 0.2367, "statistic": "borda",
    "shaped": True, "records_per_person": None,
}  # fmt: skip
TILT = {
    "name": "ranked-perturbation", "epsilon": 1.0, "delta": 1e-6, "bound": 2.5, "candidates": 4,
    "dimension": 3, "ridge": 31.06, "standard_deviation": 60.25,
}  # fmt: skip
METRICS = ("accuracy", "negative_log_likelihood", "calibration_slope")
CLEAR = [("Ada", 2.0, 0.3), ("Bo", 0.5, 0.4), ("Cy", 0.1, 0.3), ("Di", -2.6, 0.5)]
CLOSE = [("Ada", 1.0, 0.6), ("Bo", 0.2, 0.5), ("Cy", -1.2, 0.2)]
SIZE = 40617


def items_of(rows):
    return [
        {"name": name, "worth": worth, "interval": reach and [worth - reach, worth + reach]}
        for name, worth, reach in rows
    ]


def made(rows=CLEAR, *, records=False, choices=True):
    """What result.json holds of one run of rankings."""
    mechanism = TILT if records else SUM
    share = 1 / max(1, len(rows))
    return {
        "noise": "estimate",
        "guarantee": {
            "epsilon": 1.0, "delta": 1e-6, "unit": "record" if records else "label",
            "neighbors": "ADD_OR_REMOVE_ONE" if records else "REPLACE_ONE", "trust": "central",
            "randomness": "system",
        },
        "caveats": ["real-arithmetic"] if records else [],
        "mechanism": copy.deepcopy(mechanism),
        "metrics": None,
        "data": {
            "name": "votes", "pairs": None, "ballots": None if records else 504,
            "items": len(rows), "dropped_identical": None, "capped": None if records else 0,
        },
        "reward": {
            **dict.fromkeys([*METRICS, *(f"{key}_standard_error" for key in METRICS)]),
            "method": mechanism["name"], "method_asked": "auto",
            "weight_standard_error": None if records else 0.1, "ridge": 31.06,
            "gradient_norm": 1e-8, "features": None,
        },
        "policy": {
            "kind": "gibbs", "confidence": None, "scale": None, "temperature": 0.5, "kl": None,
            "win_rate": None, "win_rate_interval": None, "pessimism": None,
            "choices": [{"name": name, "probability": share} for name, *_ in rows]
            if choices else None,
        },
        "items": items_of(rows),
        "utility": None, "decisive": None, "examples": None, "calibration": [],
        "seconds": None if records else 2.1,
    }  # fmt: skip


def page(result):
    return render_report(summarize(result))


def words(result):
    text = re.sub(r"<style>.*?</style>|<title>.*?</title>", " ", page(result), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", text).replace("&#39;", "'").split())


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("choices", [False, True])
def test_a_page_has_no_hole(records, choices):
    result = made([(*row[:2], None) for row in CLEAR] if records else CLEAR, records=records)
    result["policy"]["choices"] = result["policy"]["choices"] if choices else None
    text = words(result)
    assert "None" not in text.replace("None were recorded", "")
    assert not {"nan", "inf", "?", "—"} & set(text.split())
    assert not re.search(r"<(dl|dd|dt|p|h2|h3|ul|td)[^>]*>\s*</\1>", page(result))
    assert ("Picked" in text) == choices
    assert ("25.0%" in text) == choices


def test_every_item_the_best_first():
    text = words(made())
    assert text.index("Who is ahead") < text.index("How good the reward is")
    assert "Ada +2.00 +1.70 to +2.30 25.0% Bo +0.50 +0.10 to +0.90 25.0% Cy" in text
    assert "Learned from 504 ballots: a reward model and a policy." in text
    assert "Ballots 504 Items 4" in text
    assert "Reward accuracy" not in text
    assert "Win rate" not in text


def test_without_items_nothing_of_it(result):
    for told in (result, made() | {"items": None}, made() | {"items": []}):
        assert summarize(told)["worths"] is None
        assert "Who is ahead" not in page(told)
    assert "Learned from 4,000 pairs" in page(result)
    assert "Reward accuracy" in page(result)


def test_an_order_that_is_settled_and_one_that_is_not():
    told = describe_items(made(CLEAR), records=False)
    assert told["notes"][0] == (
        "Ada is ahead: no other interval reaches up to this one's. Where intervals overlap, the "
        "order of these is not settled. Across a heavy line none overlap."
    )
    assert [row["divided"] for row in told["rows"]] == [False, True, False, True]
    told = describe_items(made(CLOSE), records=False)
    assert told["notes"][0].startswith(
        "It is not settled who is ahead: the interval of Ada overlaps that of Bo."
    )
    assert [row["divided"] for row in told["rows"]] == [False, False, True]


def test_intervals_that_hang_together_are_not_divided():
    """The last overlaps neither neighbor above it, but the first, which reaches far down."""
    rows = [("Ada", 1.0, 2.5), ("Bo", 0.9, 0.1), ("Cy", -1.0, 0.1)]
    told = describe_items(made(rows), records=False)
    assert not any(row["divided"] for row in told["rows"])
    assert "overlaps that of Bo and Cy." in told["notes"][0]
    assert "heavy line" not in told["notes"][0]


@pytest.mark.parametrize(("gap", "ahead"), [(1.0, False), (1.001, True)])
def test_ends_that_touch_overlap(gap, ahead):
    told = describe_items(made([("Ada", gap, 0.5), ("Bo", 0.0, 0.5)]), records=False)
    assert told["notes"][0].startswith("Ada is ahead") == ahead
    assert told["rows"][1]["divided"] == ahead


def test_many_that_could_be_first_are_not_all_named():
    told = describe_items(made([(f"i{k}", -0.01 * k, 1.0) for k in range(9)]), records=False)
    assert "overlaps that of i1, i2, i3 and 5 more." in told["notes"][0]


def test_short_ballots_are_explained_where_they_are_completed_by_ties():
    assert "short ballots shrink the worths" in words(made())
    assert "short ballots" not in words(made(records=True))


def test_private_ballots_have_no_interval():
    rows = [(name, worth, None) for name, worth, _ in CLEAR]
    text = words(made(rows, records=True))
    assert "ballots are private, and would decide them. How much" in text
    assert "95% interval" not in text
    assert "heavy line" not in text
    text = words(made(rows))
    assert "No intervals are known: there are too few ballots for this epsilon, or it is" in text


def test_one_missing_interval_leaves_the_order_open():
    told = describe_items(made([*CLEAR[:-1], ("Di", -2.6, None)]), records=False)
    assert "cannot be said" in told["notes"][0]
    assert not any(row["divided"] for row in told["rows"])


def test_names_are_shown_and_nothing_else():
    name = '<script>alert("x")</script> https://a.example \u202eevil'
    shown = page(made([(name, 1.0, 0.1), ("", -1.0, 0.1)]))
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "://" not in shown
    assert "\u202e" not in shown
    assert "unnamed" in shown


def test_many_items_are_folded_away_and_all_there():
    rows = [(f"item {place:03}", 1 - place / 50, 0.05) for place in range(100)]
    shown = page(made(rows))
    assert "The other 80 items" in shown
    assert "from place 21 on" in shown
    assert [f"item {k:03}" for k in range(100)] == re.findall(r'dir="auto">(item \d+)<', shown)
    assert "The other" not in page(made(rows[:20]))


def test_the_chart_has_one_axis_for_all():
    shown = page(made([("Ada", 1.0, 0.5), ("Bo", -1.0, 2.0)]))
    chart = shown[shown.index("standings") :]
    places = [re.findall(rf'<{tag}[^>]* {name}="([\d.]+%)"', chart) for tag, name in (
        ('line class="mark"', "x1"), ('line class="range"', "x1"),
        ('line class="range"', "x2"), ('circle class="dot"', "cx"),
    )]  # fmt: skip
    assert places == [
        ["65.67%"] * 2,  # 3 + 94 * 3 / 4.5
        ["76.11%", "3.00%"],
        ["97.00%", "86.56%"],
        ["86.56%", "44.78%"],
    ]
    for text in ("−3.00", "+1.50"):
        assert f'y="12">{text}<' in shown or f'text-anchor="end">{text}<' in shown


def test_items_that_are_all_alike_can_be_drawn():
    rows = [("Ada", 0.0, None), ("Bo", -0.0, None)]
    drawn = item_values(describe_items(made(rows), records=True))
    assert (drawn["low_text"], drawn["high_text"]) == ("", "")
    assert {row["text"] for row in drawn["first"]} == {"+0.00"}
    shown = page(made(rows))
    assert "Who is ahead" in shown
    assert set(re.findall(r'class="dot" cx="(.*?)"', shown)) == {"3.00%"}


def test_a_worth_that_is_no_number():
    result = made()
    result["items"][0]["worth"] = "much"
    with pytest.raises(DataError, match=r"items\.worth must be a number"):
        summarize(result)
    result["items"][0]["worth"] = None
    assert [row["name"] for row in summarize(result)["worths"]["rows"]] == ["Bo", "Cy", "Di"]


def test_both_mechanisms_in_plain_words():
    text = words(made())
    assert "One sum of ranks over all ballots, with noise" in text
    assert "Changing one ballot moves it by at most 0.2367 of its standard deviation" in text
    assert "no rounding tells a ballot" in text
    assert "one noised sum stands for all ballots" in text
    assert "approximate, for many ballots; the noise is counted in" in text
    result = made()
    result["mechanism"] |= {"statistic": "first-choice", "records_per_person": 3}
    text = words(result)
    assert "One sum of first choices over all ballots" in text
    assert "Changing all ballots of one person" in text
    assert "At most 3 ballots of a person count." in text
    text = words(made(records=True))
    assert "the objective is tilted" in text
    assert "standard deviation 60.2 in every coordinate" in text
    assert "longer than 2.5 are shrunk" in text
    assert "Candidates At most 4 in one ballot" in text
    assert "Ridge 31.1: part of the promise" in text
    assert "Plackett–Luce" in text


def test_rankings_are_not_scored_and_it_is_said_once():
    for result in (made(), made(records=True)):
        assert words(result).count("Rankings are not scored here") == 1
        assert "--metrics-epsilon" not in page(result)


def test_how_many_private_ballots_there_are_is_nowhere():
    result = made(records=True)
    result["data"]["ballots"] = SIZE
    summary = summarize(result)
    for text in (render_report(summary), str(summary)):
        assert not re.search(r"40[.,]?6", text)
    result["guarantee"]["neighbors"] = "REPLACE_SPECIAL"
    assert "Learned from 40,617 ballots" in words(result)
