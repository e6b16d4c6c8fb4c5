"""Closing summaries of what is drawn from a withheld estimate, or will be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sordino.cli._table import describe_promise
from sordino.privacy.guarantee import never_less, never_more
from sordino.privacy.ledger import Ledger

__all__ = ["bandit_plan_rows", "bandit_rows", "chosen_rows", "prepared_rows"]

_LISTED = 5  # arms
_HIDDEN = {
    "label": "one reward; who was given which arm is public (--unit record hides that too)",
    "record": "one record: arm, reward and context",
}


def bandit_rows(result: Mapping[str, Any], ledger: Ledger, folder: Path) -> dict[str, str]:
    """Return the closing summary of a run."""
    draws = result["draws"]
    rows = {
        **_promise_rows(result),
        **_policy_rows(result),
        "draws": f"{len(draws):,}",
        "drawn": _most(draws),
        "ledger head": ledger.head.digest,
        "ledger rows": f"{ledger.head.rows} (note the head elsewhere)",
        "written": str(folder / "result.json"),
    }
    seconds = result["seconds"]
    return rows | ({} if seconds is None else {"seconds": f"{seconds:.1f}"})


def bandit_plan_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return what a dry run has to say."""
    return {
        "would spend": f"epsilon={never_less(plan['spend'])}",
        **_promise_rows(plan),
        **_policy_rows(plan),
        "draws": f"{plan['draws']:,}",
        "touched": "nothing (dry run)",
    }


def _promise_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what is promised, and of whom."""
    return {
        "guarantee": describe_promise(told["guarantee"]),
        "hidden": _HIDDEN[told["guarantee"]["unit"]],
        "caveats": ", ".join(told["caveats"]) or "none",
    }


def _policy_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what is drawn from, and what one draw costs."""
    one = told["per_draw"]
    rows = {"each draw": f"epsilon={never_less(one['epsilon'])}"}
    if "test" in one:
        test = one["test"]
        rows["test of counts"] = (
            f"epsilon={never_less(test['epsilon'])}, delta={never_less(test['delta'])}"
        )
    if "least_count" in one:
        rows["test of counts"] += f"; {_found(one['least_count'])}"
    if told["temperature"] is None:
        rows["policy"] = "as sharp as the test allows"
    else:
        rows["policy"] = (
            f"temperature {told['temperature']:.6g}, regularization {told['regularization']:.6g}"
        )
    if "contexts" in one:
        rows["contexts"] = _contexts(one["contexts"])
    return rows


def _found(count: int) -> str:
    """Return what a test of counts found."""
    if count < 1:
        return "an arm may be too rare, so all draws are from the reference"
    return f"every arm has at least {count:,} records beside any one"


def _contexts(given: int | str) -> str:
    """Return what contexts the draws are for."""
    if given == "zeros":
        return "one, of zeros (--contexts FILE draws for others)"
    return f"{given:,}, drawn for one after the other"


def _most(draws: list[str]) -> str:
    """Return which arms were drawn most often, in few lines."""
    counted = sorted(Counter(draws).items(), key=lambda pair: -pair[1])
    lines = [f"{' '.join(name.split())}: {times:,}" for name, times in counted[:_LISTED]]
    left = len(counted) - _LISTED
    return "\n".join([*lines, *([f"and {left:,} more arms"] if left > 0 else [])])


def prepared_rows(told: Mapping[str, Any], folder: Path | None) -> dict[str, str]:
    """Return what draws will cost that ``sordino align --way intrinsic`` prepared, or would.

    Args:
        told: The result, or the plan of one.
        folder: Where the result was written; None for a plan.
    """
    one, count = told["per_draw"], told["draws"]
    rows = {
        "spent": "nothing yet: every answer that choose draws spends",
        "each answer": f"epsilon={never_less(one['epsilon'])} at most, whatever is asked",
        f"{count:,} answers": describe_promise(told["guarantee"]),
        "caveats": ", ".join(told["caveats"]) or "none",
        "policy": f"temperature {told['temperature']:.6g}, ridge {told['ridge']:.6g}, ball "
        f"{told['ball']:g}",
    }
    if folder is None:
        return rows | {"touched": "nothing (dry run)"}
    return rows | {
        "written": str(folder / "result.json"),
        "draw with": f"sordino choose {folder} PROMPTS --judgments PREFS",
    }


def chosen_rows(told: Mapping[str, Any], out: Path | None) -> dict[str, str]:
    """Return the closing summary of answers that were drawn from a withheld reward, or would be.

    Args:
        told: The result, or the plan of one.
        out: Where the answers were written.
    """
    planned = "spend" in told
    rows = {
        "prompts": f"{told['prompts']:,}",
        "would spend" if planned else "spent": describe_promise(told["guarantee"]),
        "caveats": ", ".join(told["caveats"]) or "none",
        "each answer": f"epsilon={never_less(told['per_draw']['epsilon'])} at most",
    }
    if planned:
        return rows | {"touched": "nothing (dry run)"}
    written = {} if out is None else {"written": out.name}
    return rows | {"remaining epsilon": f"{never_more(told['remaining_epsilon'])}"} | written
