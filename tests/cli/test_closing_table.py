"""What the command line says when a curator's run ends: no hole, and no number that is private."""

from pathlib import Path

import pytest

from sordino.cli._tables import align_rows, plan_rows

LABELS = {
    "name": "label-gaussian", "epsilon": 1.0, "delta": 1e-6, "mu": 0.24, "shaped": True,
    "records_per_person": None,
}  # fmt: skip
RECORDS = {
    "name": "objective-perturbation", "epsilon": 1.0, "delta": 1e-6, "bound": 2.0, "ridge": 3.083,
    "standard_deviation": 8.5, "second_moment": True, "second_moment_mu": 0.1,
}  # fmt: skip
METRICS = ("accuracy", "negative_log_likelihood", "calibration_slope")
NOTHING = dict.fromkeys([*METRICS, *(f"{name}_standard_error" for name in METRICS)])
FREE = {
    "negative_log_likelihood": 0.61, "negative_log_likelihood_standard_error": 0.02,
    "calibration_slope": 0.9, "calibration_slope_standard_error": 0.1,
}  # fmt: skip


def made(mechanism=LABELS, *, unit="label", neighbors="REPLACE_ONE", data=None, **changes):
    return {
        "noise": "estimate",
        "guarantee": {
            "epsilon": 1.0, "delta": 1e-6, "unit": unit, "neighbors": neighbors,
            "trust": "central", "randomness": "system",
        },
        "caveats": [],
        "mechanism": mechanism,
        "metrics": None,
        "data": {"name": "p", "pairs": 4000, "dropped_identical": 0, "capped": 0} | (data or {}),
        "reward": NOTHING,
        "policy": {"temperature": 0.5, "win_rate": None, "win_rate_interval": None, "kl": None},
        "certificate": {"ledger": {"head": "ab" * 32, "rows": 3}},
        "seconds": 1.5,
        **changes,
    }  # fmt: skip


HIDDEN = {
    "mechanism": RECORDS, "unit": "record", "neighbors": "ADD_OR_REMOVE_ONE", "seconds": None,
    "data": {"pairs": None, "dropped_identical": None, "capped": None},
}  # fmt: skip


def rows(**changes):
    found = align_rows(made(**changes), Path("out"))
    assert not any("None" in text or "nan" in text for text in found.values())
    return found


def test_labels_without_a_purchase():
    found = rows(reward=NOTHING | FREE)
    assert found["mechanism"] == "one noised sum of labels, epsilon=1, delta=1e-06"
    assert found["accuracy"] == "not measured (--metrics-epsilon buys it)"
    assert found["log loss"] == "0.610 ± 0.020 (from the released sum, free)"
    assert found["calibration slope"] == "0.90 ± 0.10 (from the released sum, free)"
    assert (found["pairs"], found["seconds"]) == ("4,000", "1.5")
    assert not {"win rate", "metrics", "neighbors", "left out", "dropped"} & set(found)


def test_persons():
    mechanism = LABELS | {"records_per_person": 5}
    data = {"persons": 300, "capped": 12, "dropped_identical": 3}
    found = rows(mechanism=mechanism, unit="person", data=data)
    assert found["mechanism"].endswith("at most 5 labels of a person")
    assert (found["persons"], found["left out"][:8]) == ("300", "12 pairs")
    assert "each label" not in found
    assert found["dropped"] == "3 with identical answers"


def test_records_that_may_come_and_go_have_no_number():
    found = rows(**HIDDEN)
    assert found["mechanism"] == (
        "weights of a tilted objective, and the second moment, epsilon=1, delta=1e-06, records "
        "cut to 2, ridge 3.083"
    )
    assert found["neighbors"] == "ADD_OR_REMOVE_ONE (add-remove)"
    assert found["accuracy"].startswith("not measured")
    kept = {"guarantee", "caveats", "mechanism", "neighbors", "accuracy", "report"}
    assert set(found) == kept | {"ledger head", "ledger rows"}


@pytest.mark.parametrize(
    ("neighbors", "word"), [("REPLACE_SPECIAL", "zero-out, unless"), ("REPLACE_ONE", "(replace)")]
)
def test_what_one_change_of_a_record_is(neighbors, word):
    told = rows(mechanism=RECORDS, unit="record", neighbors=neighbors)["neighbors"]
    assert told.startswith(neighbors)
    assert word in told


BOUGHT = {"name": "gaussian", "epsilon": 0.5, "delta": 1e-7, "mu": 0.1, "share": 0.2, "pairs": None}
WON = {"temperature": 0.5, "win_rate": 0.6, "win_rate_interval": [0.55, 0.65], "kl": None}


def test_what_was_bought():
    reward = NOTHING | FREE | {"accuracy": 0.66, "accuracy_standard_error": 0.02}
    found = rows(metrics=BOUGHT, reward=reward, policy=WON)
    assert found["metrics"] == "bought: epsilon=0.5, delta=1e-07, counted in the guarantee"
    assert found["accuracy"] == "0.660 ± 0.020 (held out, bought)"
    assert found["log loss"].endswith("(held out, bought)")
    assert found["win rate"] == "0.600 [0.550, 0.650] at temperature 0.5"


def test_a_purchase_that_the_noise_drowned():
    found = rows(**HIDDEN, metrics=BOUGHT)
    assert "too few records" in found["accuracy"]


def plan(**changes):
    told = made(**changes)
    told |= {"spend": 1.0, **{key: told["data"][key] for key in ("pairs", "dropped_identical")}}
    found = plan_rows(told)
    assert not any("None" in text for text in found.values())
    return found


def test_a_plan():
    found = plan()
    assert found["mechanism"].startswith("one noised sum of labels")
    assert found["accuracy"] == "not measured (--metrics-epsilon buys it)"
    assert found["would spend"] == "epsilon=1"
    assert found["touched"] == "nothing (dry run)"
    found = plan(**HIDDEN, metrics=BOUGHT)
    assert found["metrics"].startswith("bought: epsilon=0.5")
    assert found["neighbors"].startswith("ADD_OR_REMOVE_ONE")
    assert not {"accuracy", "dropped", "pairs"} & set(found)


BORDA = {
    "name": "ranking-gaussian", "epsilon": 1.0, "delta": 1e-6, "mu": 0.24, "statistic": "borda",
    "shaped": True, "records_per_person": None,
}  # fmt: skip
RANKED = {
    "name": "ranked-perturbation", "epsilon": 1.0, "delta": 1e-6, "bound": 1.0, "candidates": 7,
    "dimension": 7, "ridge": 31.0612, "standard_deviation": 60.0,
}  # fmt: skip
ITEMS = [
    {"name": f"item {place}", "worth": 3.0 - place, "interval": [2.5 - place, 3.5 - place]}
    for place in range(7)
]
BALLOTS = {"pairs": None, "ballots": 1504, "items": 7, "dropped_identical": None, "capped": 0}
UNSEEN = {
    "mechanism": RANKED, "unit": "record", "neighbors": "ADD_OR_REMOVE_ONE", "seconds": None,
    "data": BALLOTS | {"ballots": None, "capped": None},
    "items": [item | {"interval": None} for item in ITEMS[:2]],
}  # fmt: skip


def test_rankings():
    found = rows(mechanism=BORDA, data=BALLOTS, items=ITEMS)
    assert found["mechanism"] == "one noised sum of ranks, epsilon=1, delta=1e-06"
    assert found["ballots"] == "1,504"
    first, *_, last = found["best items"].split("\n")
    assert first == "item 0: +3.00 [+2.50, +3.50]"
    assert last == "and 2 more"
    assert found["best items"].count("\n") == 5
    assert found["accuracy"] == "not measured: rankings are not scored"
    assert not {"pairs", "win rate", "dropped", "left out", "log loss"} & set(found)


def test_rankings_of_persons():
    mechanism = BORDA | {"statistic": "first-choice", "records_per_person": 3}
    data = BALLOTS | {"persons": 30, "capped": 12, "items": None}
    found = rows(mechanism=mechanism, data=data, unit="person", items=None)
    assert found["mechanism"].startswith("one noised sum of first choices, ")
    assert found["mechanism"].endswith("at most 3 ballots of a person")
    assert found["left out"] == "12 ballots, by the cap for one person"
    assert "best items" not in found


def test_private_rankings_have_no_number_and_no_interval():
    found = rows(**UNSEEN)
    assert found["mechanism"] == (
        "weights of a tilted objective, epsilon=1, delta=1e-06, features cut to 1, at most 7 "
        "candidates of a ballot, ridge 31.06"
    )
    assert found["best items"] == "item 0: +3.00\nitem 1: +2.00"
    assert not {"ballots", "pairs", "seconds"} & set(found)


def test_a_name_takes_one_line_and_nothing_has_no_sign_of_less():
    item = {"name": "a\nname  of\tparts", "worth": -0.001, "interval": [-0.5, 0.498]}
    found = rows(mechanism=BORDA, data=BALLOTS, items=[item])
    assert found["best items"] == "a name of parts: +0.00 [-0.50, +0.50]"


@pytest.mark.parametrize("changes", [{"mechanism": BORDA, "data": BALLOTS}, UNSEEN])
def test_a_plan_of_rankings(changes):
    found = plan(**{"items": None, "ballots": 1504} | changes)
    assert found["ballots"] == "1,504"
    assert found["accuracy"] == "not measured: rankings are not scored"
    assert not {"pairs", "dropped", "metrics"} & set(found)
