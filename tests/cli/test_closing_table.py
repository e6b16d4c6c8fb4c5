"""What the command line says when a curator's run ends: no hole, and no number that is private."""

from pathlib import Path

import pytest

from sordino.runs.tables import align_rows, plan_rows

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
UNSCORED = "not measured: rankings are not scored"
UNBOUGHT = "not measured (--metrics-epsilon buys it)"


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
        "reward": NOTHING,
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
        {"accuracy": UNBOUGHT,
         "log loss": "0.610 ± 0.039 (95%) (from the released sum, free)", "pairs": "4,000",
         "calibration slope": "0.90 ± 0.20 (95%) (from the released sum, free)", "seconds": "1.5"},
        {"win rate", "metrics", "neighbors", "left out", "dropped"},
    ),
    "persons": (
        {"mechanism": LABELS | {"records_per_person": 5}, "unit": "person", "data": PERSONS},
        {"persons": "300",
         "left out": "12 pairs, by the cap for one person",
         "dropped": "3 left out for their texts"},
        {"each label"},
    ),
    "records": (
        HIDDEN,
        {"accuracy": UNBOUGHT,
         "neighbors": "ADD_OR_REMOVE_ONE (add-remove)"},
        {"pairs", "dropped", "left out", "seconds", "log loss", "win rate", "metrics"},
    ),
    "made empty": (
        {"mechanism": RECORDS, "unit": "record", "neighbors": "REPLACE_SPECIAL"},
        {"neighbors": "REPLACE_SPECIAL (zero-out, unless --neighbors says otherwise)"}, set(),
    ),
    "replaced": (
        {"mechanism": RECORDS, "unit": "record"}, {"neighbors": "REPLACE_ONE (replace)"}, set(),
    ),
    "bought": (
        {"metrics": BOUGHT, "policy": WON,
         "reward": FREE | {"accuracy": 0.66, "accuracy_standard_error": 0.02}},
        {"metrics": "bought: epsilon=0.5, delta=1e-07, counted in the guarantee",
         "accuracy": "0.660 ± 0.039 (95%) (held out, bought)", "log loss": "(held out, bought)",
         "win rate": "0.600 [0.550, 0.650] (95%) at temperature 0.5"},
        set(),
    ),
    "bought, and drowned": (
        {**HIDDEN, "metrics": BOUGHT},
        {"accuracy": "too few records to stand out from the noise"}, set(),
    ),
    "rankings": (
        {"mechanism": BORDA, "data": BALLOTS, "items": ITEMS},
        {"ballots": "1,504",
         "best items": "item 4: -1.00 [-1.50, -0.50] (95%)\nand 2 more", "accuracy": UNSCORED},
        {"pairs", "win rate", "dropped", "left out", "log loss"},
    ),
    "rankings of persons": (
        {"mechanism": BORDA | {"statistic": "first-choice", "records_per_person": 3},
         "data": BALLOTS | PERSONS | {"dropped": None, "items": None},
         "unit": "person", "items": None},
        {"left out": "12 ballots, by the cap for one person"},
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
        {"best items": "a name of parts: +0.00 [-0.50, +0.50] (95%)"}, set(),
    ),
}  # fmt: skip
PLANS = {
    "labels": ({}, {"accuracy": UNBOUGHT, "would spend": "epsilon=1"}, set()),
    "records": (
        {**HIDDEN, "metrics": BOUGHT},
        {"metrics": "counted in the guarantee", "neighbors": "(add-remove)"},
        {"accuracy", "dropped", "pairs"},
    ),
    "rankings": (
        {"mechanism": BORDA, "data": BALLOTS, "items": None, "ballots": 1504},
        {"ballots": "1,504", "accuracy": UNSCORED}, {"pairs", "dropped", "metrics"},
    ),
    "hidden rankings": (
        UNSEEN | {"ballots": 1504}, {"accuracy": UNSCORED}, {"pairs", "dropped", "metrics"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_a_run(run):
    changes, told, untold = RUNS[run]
    rows = align_rows(made(**changes), Path("out"))
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
