"""Closing summaries: a few lines in the words of a person, of what was done or will be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from sordino.privacy.guarantee import Guarantee, NeighboringRelation, never_less
from sordino.reporting.result import MEANINGLESS
from sordino.reporting.wording import hides_ballots, is_noised_sum, is_of_rankings, judged
from sordino.rewards.metrics import REACH

_UNBOUGHT = "not measured (--metrics-epsilon buys it)"
UNREAD = "not measured: files are read in pieces"
_UNSCORED = "not measured: rankings are not scored"
_LISTED = 5  # items
_SHOWN = {"negative_log_likelihood": "log loss", "calibration_slope": "calibration slope"}


def describe_promise(values: Mapping[str, Any]) -> str:
    """Return a guarantee of a JSON result in one line."""
    promise = Guarantee.from_dict(values)
    return (
        f"epsilon={never_less(promise.epsilon)}, delta={never_less(promise.delta)} per "
        f"{promise.unit} ({promise.neighbors.name}), trust: {promise.trust}"
    )


def promise_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines on what is promised, and with which caveats."""
    return {
        "guarantee": describe_promise(told["guarantee"]),
        "caveats": ", ".join(told["caveats"]) or "none",
    }


def ledger_rows(head: str, rows: int) -> dict[str, str]:
    """Return the lines on the ledger that paid."""
    return {"ledger head": head, "ledger rows": f"{rows} (note the head elsewhere)"}


def closing_rows(head: str, rows: int, folder: Path | None) -> dict[str, str]:
    """Return the lines on the ledger that paid, and on the report, if it was written."""
    report = {} if folder is None else {"report": str(folder / "report.html")}
    return ledger_rows(head, rows) | report


def verdict_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return the line with which a closing summary begins, where there is a verdict."""
    found = told.get("verdict")
    return {"verdict": f"{found['word']}. {found['says']}"} if found else {}


def _number(value: float | None, digits: int = 3) -> str:
    return "not available" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def describe_estimate(measured: Mapping[str, Any], name: str, digits: int = 3) -> str:
    """Return a measured number with its 95% interval, or a sentence where there is none."""
    if measured[name] is None:
        return str(measured.get(f"{name}_reason") or "not available: none fits what was released")
    error = measured.get(f"{name}_standard_error")
    reach = "" if error is None else f" ± {_number(REACH * error, digits)} (95%)"
    return f"{_number(measured[name], digits)}{reach}"


def dropped_row(dropped: int | None) -> dict[str, str]:
    """Return a line on pairs that were left out, if any were and it is public how many."""
    return {"dropped": f"{dropped:,} left out for their texts"} if dropped else {}


def unit_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what one label of a person costs, and on what a cap leaves out."""
    rows = {}
    if plan["guarantee"]["unit"] == "person":
        most = f"at most {plan['labels_per_person']:,} of one person"
        rows["each label"] = f"epsilon={never_less(plan['epsilon_per_label'])}, {most}"
        rows["persons"] = f"{plan['persons']:,}"
    if plan.get("capped_questions"):
        left_out = plan["capped_questions"]
        rows["left out"] = f"{left_out:,} answers, by the cap of {plan['cap']:,} for one person"
    return rows


def align_rows(result: Mapping[str, Any], folder: Path | None) -> dict[str, str]:
    """Return the closing summary of a run; a line is left out where its number is private."""
    central, ledger = result["noise"] == "estimate", result["certificate"]["ledger"]
    pairs, seconds = result["data"]["pairs"], result["seconds"]
    data, mechanism = result["data"], result["mechanism"]
    counted: dict[str, str] = {}
    if "epsilon_per_label" in mechanism and result["guarantee"]["unit"] == "person":
        share = never_less(mechanism["epsilon_per_label"])
        counted["each label"] = f"epsilon={share}; all labels of one person keep the guarantee"
    if "persons" in data and result["guarantee"]["unit"] == "person":
        counted["persons"] = f"{data['persons']:,}"
    if data["capped"]:
        what = "ballots" if is_of_rankings(result) else judged(result)
        counted["left out"] = f"{data['capped']:,} {what}, by the cap for one person"
    rows = {
        **promise_rows(result),
        **(_curator_rows(result) if central else {}),
        **counted,
        **({} if pairs is None else {judged(result): f"{pairs:,}{_in_files(data)}"}),
        **_ballot_rows(result, data),
        **dropped_row(data["dropped"]),
    }
    if among := result.get("class"):  # the candidates of a finite class
        rows["chosen"] = f"{among['likeliest'][0][0]}, of {among['candidates']:,} candidates"
        left = among["possible"]
        rows |= {} if left is None else {"confidence set": f"{left:,} candidates"}
    told = {"accuracy", "negative_log_likelihood", "accuracy_reason"}
    some = any(result["reward"].get(name) is not None for name in told)
    if some and result["verdict"]["word"] in MEANINGLESS:
        rows["measured"] = "nothing that tells more than a guess (the numbers are in result.json)"
    elif central or is_of_rankings(result):
        rows |= _central_metrics(result)
    else:  # randomized answers tell it for nothing
        rows["accuracy"] = f"{describe_estimate(result['reward'], 'accuracy')} (held out, debiased)"
        rows["calibration slope"] = describe_estimate(result["reward"], "calibration_slope", 2)
        if judged(result) == "pairs":
            rows["win rate"] = _wins(result["policy"])
    likes = result["reward"].get("likes")
    rows |= {} if likes is None else {"always the same": _number(max(likes, 1 - likes))}
    if "public_evaluation" in result:
        public = result["public_evaluation"]
        rows["on public data"] = f"accuracy {_number(public['accuracy'])} on {public['pairs']:,}"
    if "truth" in result:
        rows["KL regret"] = _number(result["truth"]["kl_regret"], 4)
    rows |= closing_rows(ledger["head"], ledger["rows"], folder)
    return rows | ({} if seconds is None else {"seconds": _number(seconds, 1)})


def _in_files(data: Mapping[str, Any]) -> str:
    if "files" not in data:
        return ""
    left_out = data["records"] - data["pairs"]
    rest = f", without {left_out:,} repeats and pairs beyond the cap" if left_out else ""
    return f" in {data['files']:,} files{rest}"


def _ballot_rows(told: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, str]:
    ballots, items = data.get("ballots"), told.get("items") or []
    rows = {} if ballots is None else {"ballots": f"{ballots:,}"}
    if items:
        more = [f"and {len(items) - _LISTED:,} more"] if len(items) > _LISTED else []
        rows["best items"] = "\n".join([*map(_item, items[:_LISTED]), *more])
    return rows


def _item(item: Mapping[str, Any]) -> str:
    """Return the worth of one item, less the mean of all, in one line."""
    low, high = item["interval"] or (None, None)
    name, ends = " ".join(item["name"].split()), f" [{_signed(low)}, {_signed(high)}] (95%)"
    if item["worth"] is None:
        return f"{name}: no data (no ballot was offered it)"
    return f"{name}: {_signed(item['worth'])}{'' if low is None else ends}"


def _signed(value: float | None) -> str:
    """Return a measured number with its sign; nothing is 0.00 with one."""
    return "not available" if value is None else f"{value:+.2f}".replace("-0.00", "+0.00")


def _wins(policy: Mapping[str, Any]) -> str:
    if policy["win_rate"] is None:
        reason = policy.get("win_rate_reason") or "not available"
        return f"{reason}, at temperature {policy['temperature']:g}"
    reach = ", ".join(map(_number, policy["win_rate_interval"]))
    return f"{_number(policy['win_rate'])} [{reach}] (95%) at temperature {policy['temperature']:g}"


def _central_metrics(result: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what a curator bought, and on what came free with one noised sum."""
    if is_of_rankings(result):
        return {"accuracy": _UNSCORED}
    if _in_files(result["data"]) and not _is_for_sale(result):
        return {"accuracy": UNREAD}
    reward, policy, bought = result["reward"], result["policy"], result["metrics"] is not None
    lacking = "too few records to stand out from the noise" if bought else _UNBOUGHT
    lacking = reward.get("accuracy_reason") or lacking
    whence = "held out, bought" if bought else "from the released sum, free"
    rows = {"accuracy": lacking}
    if reward["accuracy"] is not None:
        rows["accuracy"] = f"{describe_estimate(reward, 'accuracy')} (held out, bought)"
    for name, digits in (("negative_log_likelihood", 3), ("calibration_slope", 2)):
        if reward[name] is not None or f"{name}_reason" in reward:
            rows[_SHOWN[name]] = f"{describe_estimate(reward, name, digits)} ({whence})"
    if policy["win_rate"] is not None:
        rows["win rate"] = _wins(policy)
    return rows


def _is_for_sale(told: Mapping[str, Any]) -> bool:
    """Return whether metrics can be bought on files that are read in chunks: of labels alone."""
    name = told["mechanism"]["name"]
    return is_noised_sum(name) and not hides_ballots(name)


def _curator_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what one change is in a curator's run, or a plan of one, and what it buys."""
    unit, relation = (told["guarantee"][name] for name in ("unit", "neighbors"))
    rows = {}
    if unit == "record":
        said = NeighboringRelation[relation].option
        chosen = ", unless --neighbors says otherwise" if said == "zero-out" else ""
        rows["neighbors"] = f"{relation} ({said}{chosen})"
    if (bought := told["metrics"]) is not None:
        cost = f"epsilon={never_less(bought['epsilon'])}, delta={never_less(bought['delta'])}"
        rows["metrics"] = f"bought: {cost}, counted in the guarantee"
    return rows


def shortened(text: object, most: int = 60) -> str:
    """Return the beginning of a text, or the end of a chat, on one line."""
    turns = [text] if isinstance(text, str) else [turn["content"] for turn in cast("Any", text)]
    flat = " ".join(" ".join(map(str, turns)).split())
    return flat if len(flat) <= most else f"{flat[:most].rstrip()}…"


def _left_out(row: Mapping[str, Any]) -> str:
    """Return why a kind of noise could not be taken, in its first sentence."""
    return f"not possible here ({row['left_out'].partition('. ')[0].rstrip('.')})"


def choice_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return which kind of noise --noise auto took, and which it could not take."""
    kinds = (told.get("chosen") or {}).get("kinds", {})
    out = [f"{name}: {_left_out(row)}" for name, row in kinds.items() if "left_out" in row]
    return {"noise": "\n".join([f"{told['noise']}, taken by auto", *out])} if kinds else {}


def forecast_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return what is foreseen of each kind of noise, which is best, and the first record."""
    told = plan.get("forecast")
    if told is None or not told["kinds"]:
        return {}
    lines, tells = [], False
    for name, row in told["kinds"].items():
        if "left_out" in row:
            lines.append(f"{name}: {_left_out(row)}")
        elif row["accuracy"] is None:
            lines.append(f"{name}: nothing is foreseen of it")
        else:
            low, high = row["interval"]
            reach = f"{_number(row['accuracy'])} [{_number(low)}, {_number(high)}]"
            lines.append(f"{name}: {reach}{'' if row['tells'] else ', a guess'}")
            tells = tells or row["tells"]
    rest = "; how well people can be predicted is not known (--evaluate PUBLIC says)"
    best = f"--noise {told['best']}, from {told['from']}{'' if tells else rest}"
    rows = {"foreseen": "\n".join(lines), "best": best}
    if told["n"] is not None:
        rows["judgments"] = f"{told['n']:,}"
    if told["first_record"] is not None:
        texts = [f"{name}: {text}" for name, text in told["first_record"].items()]
        raw = "(raw, as it was read; its judgment is not shown)"
        rows["first record"] = "\n".join([*texts, raw])
    return rows


def plan_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return what a dry run has to say."""
    # which ones only all records can tell
    perhaps = (f"{name} if a question occurs twice" for name in plan.get("possible_caveats", ()))
    rows = {
        "would spend": f"epsilon={never_less(plan['spend'])}",
        "guarantee": describe_promise(plan["guarantee"]),
        "caveats": "; ".join([", ".join(plan["caveats"]) or "none", *perhaps]),
        **(unit_rows(plan) if "epsilon_per_label" in plan else {}),
    }
    if rating := plan.get("rating") or (plan.get("forecast") or {}).get("rating"):
        rows["rating"] = rating
    if "mechanism" in plan:
        rows |= _curator_rows(plan)
        if "files" in plan and not _is_for_sale(plan):
            rows["accuracy"] = UNREAD
        elif plan["metrics"] is None:
            rows["accuracy"] = _UNSCORED if is_of_rankings(plan) else _UNBOUGHT
    rows |= _ballot_rows(plan, plan) | dropped_row(plan.get("dropped"))
    if "largest_person_epsilon" in plan:
        most = f"epsilon={never_less(plan['largest_person_epsilon'])}"
        rows["most about one person"] = f"{most} ({plan['largest_person_labels']} labels)"
    rows |= _files_rows(plan["files"]) if "files" in plan else {}
    return rows


def _files_rows(planned: Mapping[str, Any]) -> dict[str, str]:
    rows, passes = planned["rows"], planned["passes"]
    size = "packed" if rows is None else f"{rows:,} rows"  # lines of JSON Lines
    read = "" if rows is None else f": {rows * passes:,} rows read in all"
    return {
        "files": f"{planned['files']:,}, {size}, in {planned['blocks']:,} blocks",
        "passes": f"about {passes}{read} (engine {planned['engine']})",
    }
