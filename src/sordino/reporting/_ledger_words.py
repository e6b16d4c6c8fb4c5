"""What was spent: budget, total and entries of a ledger, as plain text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from sordino.privacy.guarantee import float_from_json, float_to_json
from sordino.reporting._numbers import at_least, at_most, whole
from sordino.reporting.wording import read_guarantee

__all__ = ["describe_ledger"]

_SHORT = 12  # characters of a release id that a table shows


def describe_ledger(ledger: Mapping[str, Any]) -> dict[str, Any]:
    """Return budget, spend and entries, rounded so that nothing looks cheaper than it was."""
    budget = read_guarantee("ledger.budget", ledger.get("budget"))
    total = ledger.get("total") and read_guarantee("ledger.total", ledger["total"])
    entries = list(ledger.get("entries") or ())
    spent = total.epsilon if total else _spent_without_total(ledger, budget.epsilon)
    remaining = _remaining(ledger, budget.epsilon, spent)
    return {
        "budget_text": _pair(budget.epsilon, budget.delta),
        "budget_epsilon_text": at_most(budget.epsilon),
        "unit": budget.unit,
        "change": budget.change,
        "spent": None if spent is None else float_to_json(spent),
        "spent_text": "not available" if spent is None else at_least(spent),
        "total_text": _pair(total.epsilon, total.delta) if total else "",
        "remaining_text": "not available" if remaining is None else at_most(remaining),
        "share": _share(spent, budget.epsilon),
        "over": spent is not None and spent > budget.epsilon,
        "head": str(ledger.get("head") or ""),
        "rows": whole(int(ledger.get("rows", len(entries)))),
        "entries": [_entry(entry) for entry in entries],
        "simulated": any(part.simulated for part in (budget, total) if part)
        or any(entry.get("randomness") == "simulated" for entry in entries),
    }


def _pair(epsilon: float, delta: float) -> str:
    """Return ε and δ in one phrase."""
    return f"ε = {at_least(epsilon)}, δ = {at_least(delta)}"


def _spent_without_total(ledger: Mapping[str, Any], budget: float) -> float | None:
    """Return the spend when no total is given: 0 for an unused ledger, else what is missing."""
    remaining = ledger.get("remaining_epsilon")
    if remaining is not None and math.isfinite(budget):
        return max(0.0, budget - float_from_json(remaining))
    spends = any(entry.get("kind") == "reserve" for entry in ledger.get("entries") or ())
    return None if spends else 0.0


def _remaining(ledger: Mapping[str, Any], budget: float, spent: float | None) -> float | None:
    """Return what may still be spent, at least 0."""
    stated = ledger.get("remaining_epsilon")
    if stated is not None:
        return max(0.0, float_from_json(stated))
    if spent is None:
        return None
    return math.inf if math.isinf(budget) else max(0.0, budget - spent)


def _share(spent: float | None, budget: float) -> float | None:
    """Return the part of the budget that is spent, in [0, 1]; None if that has no meaning."""
    if spent is None or math.isinf(budget):
        return None
    return min(1.0, spent / budget) if budget > 0 else 1.0


def _value(value: Any) -> str:
    """Return one parameter as text, exactly as the ledger holds it."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row of the ledger as text."""
    release = str(entry.get("release_id") or "")
    parameters = entry.get("parameters") or {}
    return {
        "sequence": str(entry.get("sequence", "")),
        "time": str(entry.get("time") or "").replace("T", " ").replace("Z", " UTC"),
        "kind": str(entry.get("kind") or ""),
        "event": str(entry.get("event") or ""),
        "parameters": ", ".join(f"{key} {_value(value)}" for key, value in parameters.items()),
        "count": str(entry.get("count") or ""),
        "scope": str(entry.get("scope") or ""),
        "release": release,
        "release_text": release if len(release) <= _SHORT else f"{release[:_SHORT]}…",
    }
