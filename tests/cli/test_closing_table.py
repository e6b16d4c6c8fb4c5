"""What the command line says when a curator's run ends: no hole, and no number that is private."""

from pathlib import Path

import pytest

from sordino.runs.tables import closing_rows, plan_rows

TERMS = {"epsilon": 1.0, "delta": 1e-6}
LABELS = {"name": "label-gaussian", **TERMS, "mu": 0.24, "shaped": True, "records_per_person": None}
RECORDS = {
    "name": "objective-perturbation", **TERMS, "bound": 2.0, "ridge": 3.083,
    "standard_deviation": 8.5, "second_moment": True, "second_moment_mu": 0.1,
}  # fmt: skip
BORDA = LABELS | {"name": "ranking-gaussian", "statistic": "borda"}
RANKED = {
    "name": "ranked-perturbation", **TERMS, "bound": 1.0, "candidates": 7, "dimension": 7,
    "ridge": 31.0612, "standard_deviation": 60.0,
}  # fmt: skip
METRICS = ("accuracy", "negative_log_likelihood", "calibration_slope")
NOTHING = dict.fromkeys([*METRICS, *(f"{name}_standard_error" for name in METRICS)])
FREE = NOTHING | {
    "negative_log_likelihood": 0.61, "negative_log_likelihood_standard_error": 0.02,
    "calibration_slope": 0.9, "calibration_slope_standard_error": 0.1,
}  # fmt: skip
BOUGHT = {"name": "gaussian", "epsilon": 0.5, "delta": 1e-7, "mu": 0.1, "share": 0.2, "pairs": None}
WON = {"temperature": 0.5, "win_rate": 0.6, "win_rate_interval": [0.55, 0.65], "kl": None}
HIDDEN = {
    "mechanism": RECORDS, "unit": "record", "neighbors": "ADD_OR_REMOVE_ONE", "seconds": None,
    "data": {"pairs": None, "dropped": None, "capped": None},
}  # fmt: skip
ITEMS = [
    {"name": f"item {place}", "worth": 3.0 - place, "interval": [2.5 - place, 3.5 - place]}
    for place in range(7)
]
BALLOTS = {"pairs": None, "ballots": 1504, "items": 7, "dropped": None, "capped": 0}
UNSEEN = HIDDEN | {
    "mechanism": RANKED, "data": BALLOTS | {"ballots": None, "capped": None},
    "items": [item | {"interval": None} for item in ITEMS[:2]],
}  # fmt: skip
UNSCORED = "Rankings are not scored: nothing was measured, and no metric can be bought."
UNBOUGHT = "--metrics-epsilon buys them."


def made(mechanism=LABELS, *, unit="label", neighbors="REPLACE_ONE", data=None, **changes):
    return {
        "verdict": {"word": "usable", "says": "Better than a guess."},
        "noise": "estimate",
        "guarantee": {
            **TERMS, "unit": unit, "neighbors": neighbors, "trust": "central",
            "randomness": "system",
        },
        "caveats": [],
        "mechanism": mechanism,
        "metrics": None,
        "data": {"name": "p", "pairs": 4000, "dropped": 0, "capped": 0} | (data or {}),
        "reward": NOTHING | {"method": mechanism["name"]},
        "policy": WON | {"win_rate": None, "win_rate_interval": None},
        "certificate": {"ledger": {"head": "ab" * 32, "rows": 3}},
        "seconds": 1.5,
        **changes,
    }  # fmt: skip


PERSONS = {"persons": 300, "capped": 12, "dropped": 3}
# What is told, in whole lines or their ends; and what is not.
RUNS = {
    "labels": (
        {"reward": FREE},
        {"measured": UNBOUGHT, "pairs": "4,000",
         "calibration slope": "0.9 ± 0.2 (95%)", "seconds": "1.5"},
        {"accuracy", "win rate", "persons", "log loss"},  # the last one the verdict tells
    ),
    "persons": (
        {"mechanism": LABELS | {"records_per_person": 5}, "unit": "person", "data": PERSONS},
        {"persons": "300", "cap": "At most 5 records of a person count.",
         "pairs": "4,000 without 12 beyond the cap for one person and 3 for their texts"},
        {"one label"},
    ),
    "records": (
        HIDDEN,
        {"measured": "--evaluate measures on a public file.",
         "guarantee": "when one record is added or removed (ADD_OR_REMOVE_ONE), trust: central"},
        {"pairs", "seconds", "log loss", "win rate", "reward alone"},
    ),
    "bought": (
        {"metrics": BOUGHT, "policy": WON, "verdict": {"word": "usable", "says": "Yes."},
         "reward": FREE | {"accuracy": 0.66, "accuracy_standard_error": 0.02}},
        {"reward alone": "ε = 1, δ = 1 × 10⁻⁶.", "win rate": "60.0% (55.0% to 65.0%, 95%)",
         "log loss": "0.61 ± 0.039 (95%)",
         "measured": "it does not stand out from the noise."},
        {"accuracy"},  # which the verdict tells
    ),
    "answers that nobody chose between, and too vague": (
        {"data": {"judged": "answers"},
         "reward": FREE | {"calibration_slope": None, "calibration_slope_reason": "too few"}},
        {"answers": "4,000", "calibration slope": "too few to tell"}, {"pairs", "win rate"},
    ),
    "rankings": (
        {"mechanism": BORDA, "data": BALLOTS, "items": ITEMS},
        {"ballots": "1,504", "items": "7", "measured": UNSCORED,
         "best items": "item 4: −1.00 (−1.50 to −0.50, 95%)\nand 2 more"},
        {"pairs", "win rate", "log loss"},
    ),
    "rankings of persons": (
        {"mechanism": BORDA | {"statistic": "first-choice", "records_per_person": 3},
         "data": BALLOTS | PERSONS | {"dropped": None, "items": None},
         "unit": "person", "items": None},
        {"ballots": "1,504 without 12 beyond the cap for one person"},
        {"best items"},
    ),
    "rankings that are hidden": (
        UNSEEN,
        {"best items": "item 0: +3.00\nitem 1: +2.00"},
        {"ballots", "pairs", "seconds"},
    ),
    "a name takes one line, and nothing has no sign of less": (
        {"mechanism": BORDA, "data": BALLOTS,
         "items": [{"name": "a\nname  of\tparts", "worth": -0.001, "interval": [-0.5, 0.498]}]},
        {"best items": "a name of parts: +0.00 (−0.50 to +0.50, 95%)"}, set(),
    ),
}  # fmt: skip
PLANS = {
    "labels": ({}, {"measured": UNBOUGHT, "would spend": "epsilon=1"}, set()),
    "records": (
        {**HIDDEN, "metrics": BOUGHT},
        {"measured": "it does not stand out from the noise."}, {"dropped", "pairs"},
    ),
    "rankings": (
        {"mechanism": BORDA, "data": BALLOTS, "items": None, "ballots": 1504},
        {"measured": UNSCORED}, {"pairs", "dropped"},
    ),
    "hidden rankings": (
        UNSEEN | {"ballots": 1504}, {"measured": UNSCORED}, {"pairs", "dropped"},
    ),
    "a board": (
        {"mechanism": BORDA, "data": BALLOTS, "items": None, "board": {}}, {}, {"measured"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_a_run(run):
    changes, told, untold = RUNS[run]
    rows = closing_rows(made(**changes), Path("out"))
    assert not any("None" in text or "nan" in text for text in rows.values())
    assert {name: rows[name].endswith(text) for name, text in told.items()} == dict.fromkeys(
        told, True
    )
    assert not untold & set(rows)


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan(plan):
    changes, told, untold = PLANS[plan]
    value = made(**changes)
    value |= {
        "spend": 1.0,
        **{name: value["data"][name] for name in ("pairs", "dropped")},
    }
    rows = plan_rows(value)
    assert not any("None" in text for text in rows.values())
    assert all(rows[name].endswith(text) for name, text in told.items())
    assert not untold & set(rows)
