"""Closing summaries: a few lines in the words of a person."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sordino.privacy.guarantee import Guarantee, never_less

__all__ = [
    "align_rows",
    "describe_accuracy",
    "describe_promise",
    "dropped_row",
    "ledger_rows",
    "plan_rows",
    "unit_rows",
]


def describe_promise(values: Mapping[str, Any]) -> str:
    """Return a guarantee of a JSON result in one line."""
    promise = Guarantee.from_dict(values)
    return (
        f"epsilon={never_less(promise.epsilon)}, delta={never_less(promise.delta)} per "
        f"{promise.unit} ({promise.neighbors.name}), trust: {promise.trust}"
    )


def _number(value: float | None, digits: int = 3) -> str:
    """Return a measured number, or that there is none."""
    return "not available" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def describe_accuracy(measured: Mapping[str, Any]) -> str:
    """Return an accuracy with its standard error."""
    return f"{_number(measured['accuracy'])} ± {_number(measured['accuracy_standard_error'])}"


def dropped_row(dropped: int) -> dict[str, str]:
    """Return a line on pairs that were left out, if any were."""
    return {"dropped": f"{dropped:,} with identical answers"} if dropped else {}


def unit_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what one label of a person costs, and on what a cap leaves out."""
    rows = {}
    if plan["guarantee"]["unit"] == "person":
        rows["each label"] = (
            f"epsilon={never_less(plan['epsilon_per_label'])}, at most "
            f"{plan['labels_per_person']:,} of one person"
        )
        rows["persons"] = f"{plan['persons']:,}"
    if plan.get("capped_questions"):
        left_out = plan["capped_questions"]
        rows["left out"] = f"{left_out:,} answers, by the cap of {plan['cap']:,} for one person"
    return rows


def _person_rows(result: Mapping[str, Any]) -> dict[str, str]:
    """Return lines of a finished run on one label's share, on people, and on a cap."""
    data, rows = result["data"], {}
    if result["guarantee"]["unit"] == "person":
        share = never_less(result["mechanism"]["epsilon_per_label"])
        rows["each label"] = f"epsilon={share}; all labels of one person keep the guarantee"
        rows["persons"] = f"{data['persons']:,}"
    if data["capped"]:
        rows["left out"] = f"{data['capped']:,} pairs, by the cap for one person"
    return rows


def align_rows(result: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the closing summary of a run."""
    reward, policy = result["reward"], result["policy"]
    low, high = policy["win_rate_interval"]
    rows = {
        "guarantee": describe_promise(result["guarantee"]),
        "caveats": ", ".join(result["caveats"]) or "none",
        **_person_rows(result),
        "pairs": f"{result['data']['pairs']:,}",
        **dropped_row(result["data"]["dropped_identical"]),
        "accuracy": f"{describe_accuracy(reward)} (held out, debiased)",
        "calibration slope": f"{_number(reward['calibration_slope'], 2)} ± "
        f"{_number(reward['calibration_slope_standard_error'], 2)}",
        "win rate": f"{_number(policy['win_rate'])} [{_number(low)}, {_number(high)}] at "
        f"temperature {policy['temperature']:g}",
    }
    if "public_evaluation" in result:
        public = result["public_evaluation"]
        rows["on public data"] = f"accuracy {_number(public['accuracy'])} on {public['pairs']:,}"
    if "truth" in result:
        rows["KL regret"] = _number(result["truth"]["kl_regret"], 4)
    ledger = result["certificate"]["ledger"]
    rows["ledger head"] = ledger["head"]
    rows["ledger rows"] = f"{ledger['rows']} (note the head elsewhere)"
    rows["report"] = str(folder / "report.html")
    rows["seconds"] = _number(result["seconds"], 1)
    return rows


def plan_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return what a dry run has to say."""
    rows = {
        "would spend": f"epsilon={never_less(plan['spend'])}",
        "guarantee": describe_promise(plan["guarantee"]),
        "caveats": ", ".join(plan["caveats"]) or "none",
        **(unit_rows(plan) if "epsilon_per_label" in plan else {}),
        **dropped_row(plan["dropped_identical"]),
    }
    if "largest_person_epsilon" in plan:
        rows["most about one person"] = (
            f"epsilon={never_less(plan['largest_person_epsilon'])} "
            f"({plan['largest_person_labels']} labels)"
        )
    return rows | {"touched": "nothing (dry run)"}


def ledger_rows(view: Mapping[str, Any]) -> dict[str, str]:
    """Return what a ledger says."""
    total = view["total"]
    return {
        "data": view["data"],
        "budget": describe_promise(view["budget"]),
        "spent": "nothing" if total is None else describe_promise(total),
        "remaining epsilon": f"{view['remaining_epsilon']:.6g}",
        "head": view["head"],
        "rows": str(view["rows"]),
    }
