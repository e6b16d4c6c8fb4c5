"""Closing summaries: a few lines in the words of a person, of what was done or will be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from sordino.privacy.guarantee import Guarantee, never_less
from sordino.reporting.summary import summarize
from sordino.reporting.wording import describe_metrics, percent, person_rows


def promise_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines on what is promised, and with which caveats."""
    promise = Guarantee.from_dict(told["guarantee"], told["caveats"])
    return {"guarantee": promise.sentence, "caveats": ", ".join(promise.caveats) or "none"}


def ledger_rows(head: str, rows: int) -> dict[str, str]:
    """Return the lines on the ledger that paid."""
    return {"ledger head": head, "ledger rows": f"{rows} (note the head elsewhere)"}


def closing_rows(told: Mapping[str, Any], folder: Path | None) -> dict[str, str]:
    """Return the lines with which a run ends: promise, its page in lines, ledger, and report."""
    head, seconds = told["certificate"]["ledger"], told["seconds"]
    page = {} if folder is None else {"report": str(folder / "report.html")}
    timed = {} if seconds is None else {"seconds": f"{seconds:.1f}"}
    rows = promise_rows(told) | choice_rows(told) | dict(summarize(told)["lines"])
    return rows | ledger_rows(head["head"], head["rows"]) | page | timed


def verdict_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return the line with which a closing summary begins, where there is a verdict."""
    found = told.get("verdict")
    return {"verdict": f"{found['word']}. {found['says']}"} if found else {}


def dropped_row(dropped: int | None) -> dict[str, str]:
    """Return a line on pairs that were left out, if any were and it is public how many."""
    return {"dropped": f"{dropped:,} left out for their texts"} if dropped else {}


def unit_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return lines on what one label of a person costs, and on what a cap leaves out."""
    rows = {}
    if plan["guarantee"]["unit"] == "person":
        epsilon = Guarantee.from_dict(plan["guarantee"]).epsilon
        told = person_rows(plan["epsilon_per_label"], epsilon)
        rows = {name.lower(): text for name, text in told} | {"persons": f"{plan['persons']:,}"}
    if plan.get("capped_questions"):
        left_out = plan["capped_questions"]
        rows["left out"] = f"{left_out:,} answers, by the cap of {plan['cap']:,} for one person"
    return rows


def shortened(text: object, most: int = 60) -> str:
    """Return the beginning of a text, or the end of a chat, on one line."""
    turns = [text] if isinstance(text, str) else [turn["content"] for turn in cast("Any", text)]
    flat = " ".join(" ".join(map(str, turns)).split())
    return flat if len(flat) <= most else f"{flat[:most].rstrip()}…"


def impossible(row: Mapping[str, Any]) -> str:
    """Return why a kind of noise could not be taken, in its first sentence."""
    return f"not possible here ({row['left_out'].partition('. ')[0].rstrip('.')})"


def choice_rows(told: Mapping[str, Any]) -> dict[str, str]:
    """Return which kind of noise --noise auto took, and which it could not take."""
    kinds = (told.get("chosen") or {}).get("kinds", {})
    out = [f"{name}: {impossible(row)}" for name, row in kinds.items() if "left_out" in row]
    return {"noise": "\n".join([f"{told['noise']}, taken by auto", *out])} if kinds else {}


def forecast_rows(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return what is foreseen of each kind of noise, which is best, and the first record."""
    told = plan.get("forecast")
    if told is None or not told["kinds"]:
        return {}
    lines, tells = [], False
    for name, row in told["kinds"].items():
        if "left_out" in row:
            lines.append(f"{name}: {impossible(row)}")
        elif row["accuracy"] is None:
            lines.append(f"{name}: nothing is foreseen of it")
        else:
            best, low, high = map(percent, (row["accuracy"], *row["interval"]))
            lines.append(f"{name}: {best} ({low} to {high}){'' if row['tells'] else ', a guess'}")
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
    rows = {"would spend": f"epsilon={never_less(plan['spend'])}", **promise_rows(plan)}
    rows["caveats"] = "; ".join([rows["caveats"], *perhaps])
    rows |= unit_rows(plan) if "epsilon_per_label" in plan else {}
    if rating := plan.get("rating") or (plan.get("forecast") or {}).get("rating"):
        rows["rating"] = rating
    if "mechanism" in plan and "board" not in plan:  # of a curator, who measures a reward
        promise = Guarantee.from_dict(plan["guarantee"], plan["caveats"])
        curated = {"noise": "estimate", "data": plan, **plan}
        rows["measured"] = describe_metrics(curated, promise, measured=True)
    rows |= dropped_row(plan.get("dropped"))
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
