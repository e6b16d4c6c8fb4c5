"""Closing summaries: a few lines in the words of a person.

Closing summaries of what is drawn from a withheld estimate, or will be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sordino.mechanisms.catalogue import hides_ballots, is_noised_sum
from sordino.privacy.guarantee import Guarantee, never_less, never_more
from sordino.privacy.ledger import Ledger

_UNBOUGHT = "not measured (--metrics-epsilon buys it)"
UNREAD = "not measured: files are read in pieces"
_UNSCORED = "not measured: rankings are not scored"
_LISTED = 5  # items
_SUMS = {
    None: ("labels", "labels"),
    "borda": ("ranks", "ballots"),
    "first-choice": ("first choices", "ballots"),
}
_SHOWN = {"negative_log_likelihood": "log loss", "calibration_slope": "calibration slope"}
_RELATIONS = {
    "REPLACE_SPECIAL": "zero-out, unless --neighbors says otherwise",
    "ADD_OR_REMOVE_ONE": "add-remove",
    "REPLACE_ONE": "replace",
}


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


def _estimate(measured: Mapping[str, Any], name: str, digits: int = 3) -> str:
    """Return a measured number with its standard error, or a sentence where there is none."""
    if measured[name] is None:
        return str(measured.get(f"{name}_reason") or "not available: none fits what was released")
    error = _number(measured.get(f"{name}_standard_error"), digits)
    return f"{_number(measured[name], digits)} ± {error}"


def describe_accuracy(measured: Mapping[str, Any]) -> str:
    """Return an accuracy with its standard error."""
    return _estimate(measured, "accuracy")


def dropped_row(dropped: int | None) -> dict[str, str]:
    """Return a line on pairs that were left out, if any were and it is public how many."""
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
    data, mechanism, rows = result["data"], result["mechanism"], {}
    if "epsilon_per_label" in mechanism and result["guarantee"]["unit"] == "person":
        share = never_less(mechanism["epsilon_per_label"])
        rows["each label"] = f"epsilon={share}; all labels of one person keep the guarantee"
    if "persons" in data and result["guarantee"]["unit"] == "person":
        rows["persons"] = f"{data['persons']:,}"
    if data["capped"]:
        what = "ballots" if _of_rankings(result) else "pairs"
        rows["left out"] = f"{data['capped']:,} {what}, by the cap for one person"
    return rows


def align_rows(result: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the closing summary of a run; a line is left out where its number is private."""
    central, ledger = result["noise"] == "estimate", result["certificate"]["ledger"]
    pairs, seconds = result["data"]["pairs"], result["seconds"]
    rows = {
        "guarantee": describe_promise(result["guarantee"]),
        "caveats": ", ".join(result["caveats"]) or "none",
        **(_curator_rows(result) if central else {}),
        **_person_rows(result),
        **({} if pairs is None else {"pairs": f"{pairs:,}{_in_files(result['data'])}"}),
        **_ballot_rows(result, result["data"]),
        **dropped_row(result["data"]["dropped_identical"]),
        **(_central_metrics(result) if central else {}),
    }
    if not central:  # randomized answers tell it for nothing
        rows["accuracy"] = f"{describe_accuracy(result['reward'])} (held out, debiased)"
        rows["calibration slope"] = _estimate(result["reward"], "calibration_slope", 2)
        rows["win rate"] = _wins(result["policy"])
    if "public_evaluation" in result:
        public = result["public_evaluation"]
        rows["on public data"] = f"accuracy {_number(public['accuracy'])} on {public['pairs']:,}"
    if "truth" in result:
        rows["KL regret"] = _number(result["truth"]["kl_regret"], 4)
    rows["ledger head"] = ledger["head"]
    rows["ledger rows"] = f"{ledger['rows']} (note the head elsewhere)"
    rows["report"] = str(folder / "report.html")
    return rows | ({} if seconds is None else {"seconds": _number(seconds, 1)})


def _in_files(data: Mapping[str, Any]) -> str:
    """Return in how many files the judgments were, if they were read in chunks."""
    if "files" not in data:
        return ""
    left_out = data["records"] - data["pairs"]
    rest = f", without {left_out:,} repeats and pairs beyond the cap" if left_out else ""
    return f" in {data['files']:,} files{rest}"


def _of_rankings(told: Mapping[str, Any]) -> bool:
    """Return whether a run, or a plan of one, is about rankings."""
    return hides_ballots((told.get("mechanism") or {}).get("name"))


def _ballot_rows(told: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on how many ballots there are, and on the best of what everybody ranked."""
    ballots, items = data.get("ballots"), told.get("items") or []
    rows = {} if ballots is None else {"ballots": f"{ballots:,}"}
    if items:
        more = [f"and {len(items) - _LISTED:,} more"] if len(items) > _LISTED else []
        rows["best items"] = "\n".join([*map(_item, items[:_LISTED]), *more])
    return rows


def _item(item: Mapping[str, Any]) -> str:
    """Return the worth of one item, less the mean of all, in one line."""
    low, high = item["interval"] or (None, None)
    name, ends = " ".join(item["name"].split()), f" [{_signed(low)}, {_signed(high)}]"
    if item["worth"] is None:
        return f"{name}: no data (no ballot was offered it)"
    return f"{name}: {_signed(item['worth'])}{'' if low is None else ends}"


def _signed(value: float | None) -> str:
    """Return a measured number with its sign; nothing is 0.00 with one."""
    return "not available" if value is None else f"{value:+.2f}".replace("-0.00", "+0.00")


def _wins(policy: Mapping[str, Any]) -> str:
    """Return how often a policy wins, with the interval."""
    if policy["win_rate"] is None:
        reason = policy.get("win_rate_reason") or "not available"
        return f"{reason}, at temperature {policy['temperature']:g}"
    low, high = policy["win_rate_interval"]
    return (
        f"{_number(policy['win_rate'])} [{_number(low)}, {_number(high)}] at temperature "
        f"{policy['temperature']:g}"
    )


def _central_metrics(result: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what a curator bought, and on what came free with one noised sum."""
    if _of_rankings(result):
        return {"accuracy": _UNSCORED}
    if _in_files(result["data"]) and not _is_for_sale(result):
        return {"accuracy": UNREAD}
    reward, policy, bought = result["reward"], result["policy"], result["metrics"] is not None
    lacking = "too few records to stand out from the noise" if bought else _UNBOUGHT
    lacking = reward.get("accuracy_reason") or lacking
    whence = "held out, bought" if bought else "from the released sum, free"
    rows = {"accuracy": lacking}
    if reward["accuracy"] is not None:
        rows["accuracy"] = f"{describe_accuracy(reward)} (held out, bought)"
    for name, digits in (("negative_log_likelihood", 3), ("calibration_slope", 2)):
        if reward[name] is not None or f"{name}_reason" in reward:
            rows[_SHOWN[name]] = f"{_estimate(reward, name, digits)} ({whence})"
    if policy["win_rate"] is not None:
        rows["win rate"] = _wins(policy)
    return rows


def _is_for_sale(told: Mapping[str, Any]) -> bool:
    """Return whether metrics can be bought on files that are read in chunks: of labels alone."""
    name = told["mechanism"]["name"]
    return is_noised_sum(name) and not hides_ballots(name)


def _curator_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what a curator's run, or a plan of one, adds as noise and buys."""
    unit, relation = (told["guarantee"][name] for name in ("unit", "neighbors"))
    rows = {"mechanism": _mechanism(told["mechanism"])}
    if unit == "record":
        rows["neighbors"] = f"{relation} ({_RELATIONS[relation]})"
    if told["metrics"] is not None:
        rows["metrics"] = f"bought: {_loss(told['metrics'])}, counted in the guarantee"
    return rows


def _mechanism(told: Mapping[str, Any]) -> str:
    """Return a curator's mechanism in one line."""
    if is_noised_sum(told["name"]):
        return _sum(told)
    if hides_ballots(told["name"]):
        return (
            f"weights of a tilted objective, {_loss(told)}, features cut to {told['bound']:g}, at "
            f"most {told['candidates']:,} candidates of a ballot, ridge {told['ridge']:.4g}"
        )
    moment = ", and the second moment" if told["second_moment"] else ""
    return (
        f"weights of a tilted objective{moment}, {_loss(told)}, records cut to {told['bound']:g}, "
        f"ridge {told['ridge']:.4g}"
    )


def _sum(told: Mapping[str, Any]) -> str:
    """Return one noised sum in one line."""
    what, of_person = _SUMS[told.get("statistic")]
    most = told["records_per_person"]
    cap = "" if most is None else f", at most {most:,} {of_person} of a person"
    return f"one noised sum of {what}, {_loss(told)}{cap}"


def _loss(told: Mapping[str, Any]) -> str:
    """Return what one release may cost."""
    return f"epsilon={never_less(told['epsilon'])}, delta={never_less(told['delta'])}"


def plan_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return what a dry run has to say."""
    # which ones only all records can tell
    perhaps = (f"{name} if a question occurs twice" for name in plan.get("possible_caveats", ()))
    rows = {
        "would spend": f"epsilon={never_less(plan['spend'])}",
        "guarantee": describe_promise(plan["guarantee"]),
        "caveats": "; ".join([", ".join(plan["caveats"]) or "none", *perhaps]),
        **(unit_rows(plan) if "epsilon_per_label" in plan else {}),
        **_planned_rows(plan),
        **_ballot_rows(plan, plan),
        **dropped_row(plan.get("dropped_identical")),
    }
    if "largest_person_epsilon" in plan:
        rows["most about one person"] = (
            f"epsilon={never_less(plan['largest_person_epsilon'])} "
            f"({plan['largest_person_labels']} labels)"
        )
    if "files" in plan:
        rows |= _files_rows(plan["files"])
    return rows | {"touched": "nothing (dry run)"}


def _files_rows(planned: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on files that will be read in chunks."""
    rows, passes = planned["rows"], planned["passes"]
    size = "packed" if rows is None else f"{rows:,} rows"  # lines of JSON Lines
    read = "" if rows is None else f": {rows * passes:,} rows read in all"
    return {
        "files": f"{planned['files']:,}, {size}, in {planned['blocks']:,} blocks",
        "passes": f"about {passes}{read} (engine {planned['engine']})",
    }


def _planned_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what a curator would add as noise, and would not measure."""
    if "mechanism" not in plan:
        return {}
    rows = _curator_rows(plan)
    if "files" in plan and not _is_for_sale(plan):
        return rows | {"accuracy": UNREAD}
    if "metrics" in rows:
        return rows
    return rows | {"accuracy": _UNSCORED if _of_rankings(plan) else _UNBOUGHT}


# arms
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
        least = one["least_count"]
        rows["test of counts"] += (
            f"; every arm has at least {least:,} records beside any one"
            if least >= 1
            else "; an arm may be too rare, so all draws are from the reference"
        )
    if told["temperature"] is None:
        rows["policy"] = "as sharp as the test allows"
    else:
        rows["policy"] = (
            f"temperature {told['temperature']:.6g}, regularization {told['regularization']:.6g}"
        )
    if "contexts" in one:
        given = one["contexts"]
        rows["contexts"] = (
            "one, of zeros (--contexts FILE draws for others)"
            if given == "zeros"
            else f"{given:,}, drawn for one after the other"
        )
    return rows


def _most(draws: list[str]) -> str:
    """Return which arms were drawn most often, in few lines."""
    counted = sorted(Counter(draws).items(), key=lambda pair: -pair[1])
    lines = [f"{' '.join(name.split())}: {times:,}" for name, times in counted[:_LISTED]]
    left = len(counted) - _LISTED
    return "\n".join([*lines, *([f"and {left:,} more arms"] if left > 0 else [])])


def prepared_rows(told: Mapping[str, Any], folder: Path | None) -> dict[str, str]:
    """Return what draws will cost that ``sordino align --noise draws`` prepared, or would."""
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
    """Return the closing summary of answers that were drawn from a withheld reward, or would be."""
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
