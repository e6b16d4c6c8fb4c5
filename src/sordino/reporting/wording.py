"""A guarantee in plain words: what it bounds, for whom, and what it leaves open.

Numbers as people read them: a bound never looks smaller than it is.

What was spent: budget, total and entries of a ledger, as plain text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any

from sordino.errors import DataError
from sordino.privacy.guarantee import CAVEATS, Guarantee, float_from_json, float_to_json

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LARGEST_PLAIN = 6  # powers of ten beyond this one are written as such
_SMALLEST_PLAIN = -4
_CERTAIN = 6  # decimals after which a percentage may show as 100


def real(name: str, value: Any) -> float | None:
    """Return value as a float, None if it is missing, NaN or infinite."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{name} must be a number or null, got {type(value).__name__}.")
    return float(value) if math.isfinite(value) else None


def _written(number: Decimal) -> str:
    """Return a decimal without trailing zeros, as a power of ten when it is long."""
    number = number.normalize()
    exponent = number.adjusted()
    if number and not _SMALLEST_PLAIN <= exponent < _LARGEST_PLAIN:
        mantissa = f"{number.scaleb(-exponent).normalize():f}"
        return f"{mantissa} × 10{str(exponent).translate(_SUPERSCRIPTS)}".replace("-", "−")
    return f"{number:,f}".replace("-", "−")


def _rounded(value: float, digits: int, rounding: str) -> str:
    """Return value in at most ``digits`` significant digits, rounded as told."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    with localcontext(prec=digits, rounding=rounding) as context:
        return _written(context.create_decimal(repr(float(value))))


def at_least(value: float, digits: int = 4) -> str:
    """Return an upper bound as text that is never smaller than the bound."""
    return _rounded(value, digits, ROUND_CEILING)


def at_most(value: float, digits: int = 4) -> str:
    """Return what is left as text that is never larger than it is."""
    return _rounded(value, digits, ROUND_FLOOR)


def plain(value: float, digits: int = 3) -> str:
    """Return a measured number, rounded to the nearest."""
    return _rounded(value, digits, ROUND_HALF_EVEN)


def percent(value: float, decimals: int = 1) -> str:
    """Return a measured share as a percentage."""
    return f"{100 * value:.{decimals}f}%".replace("-", "−")


def whole(value: float) -> str:
    """Return a count with separators."""
    return f"{value:,.0f}"


def belief_percent(value: float) -> str:
    """Return the bound on a belief as a percentage, rounded up, short of 100 if it is."""
    share = Decimal(repr(value)) * 100
    for decimals in range(1, _CERTAIN + 1):
        shown = share.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING)
        if shown < 100:  # noqa: PLR2004
            return f"{_written(shown)}%"
    return "100%"


SIMULATED = (
    "Randomness came from a seed. Whoever knows the seed can undo the noise, so nothing is "
    "protected. For study only, never for release."
)

NOISE_TEXTS: Mapping[str, str] = {
    "labels": "Each label is randomized first; everything after that is learned from randomized "
    "labels only.",
    "estimate": "A trusted curator reads the raw judgments and releases a noisy estimate.",
    "draws": "The estimate is never released; each sampled action carries the noise and spends.",
    "per-update": "Noise is added to each update of the policy, one batch at a time.",
}

METRICS_NOTES: Mapping[str, str] = {
    "labels": "Every metric below is computed from randomized labels, debiased, and on pairs that "
    "were held out from the fit. That costs no further privacy; it makes the intervals wider.",
    "other": "Every metric below is a release of its own, or computed from what was already "
    "released. Whatever would have cost more privacy is not shown.",
}

_QUESTIONS = {
    "REPLACE_ONE": "between any two values of one {unit}",
    "ADD_OR_REMOVE_ONE": "that {one} in the data at all",
    "REPLACE_SPECIAL": "that {one} used, and not replaced by {empty}",
}
_UNITS = {
    "label": {"unit": "label", "one": "one label was", "empty": "a fair coin"},
    "record": {"unit": "record", "one": "one record was", "empty": "an empty one"},
    "person": {
        "unit": "person’s set of records",
        "one": "all records of one person were",
        "empty": "empty ones",
    },
    "labels of a person": {
        "unit": "person’s set of labels",
        "one": "all labels of one person were",
        "empty": "fair coins",
    },
}
_TWO_SETS = "between any two sets of labels of one person"
_TRUST = {
    "local": "Nobody but the person saw the raw label: it was randomized before it left "
    "the device.",
    "central": "This machine saw the raw {seen}. The promise covers what was released, not what "
    "this machine, or whoever holds the raw file, could look up.",
}
_LABEL_GAPS = (
    "The prompts and the answers, word for word.",
    "That somebody took part, and who was asked what.",
    "The order and the number of the records.",
)
_PERSON_GAPS = (
    "The prompts and the answers, word for word.",
    "That somebody took part, who was asked what, and how many judgments each person gave.",
    "The order and the number of the records.",
)
_RECORD_GAPS = (
    "That somebody took part, and with how many records.",
    "The order and the number of the records.",
)
_SEVERAL = (
    "Several {unit}s of one person together: the bound is about one {unit}. For m of them it "
    "is weaker (m times ε when δ is 0)."
)
_CROWD = (
    "What is true of the crowd. A pattern learned from everybody also says something about "
    "people whose data were never used."
)


def read_guarantee(
    name: str, values: Mapping[str, Any] | None, caveats: tuple[str, ...] = ()
) -> Guarantee:
    """Return the guarantee that a plain dict holds."""
    required = ("epsilon", "delta", "unit", "neighbors", "trust", "randomness")
    missing = [key for key in required if key not in (values or {})]
    if values is None or missing:
        raise DataError(f"{name} lacks {', '.join(missing)}; no report was made.")
    names = caveats or tuple(values.get("caveats") or ())
    return Guarantee.from_dict(values, [caveat for caveat in names if caveat in CAVEATS])


def hides_texts(guarantee: Guarantee) -> bool:
    """Return whether the promise covers prompts and answers, and not judgments only."""
    return guarantee.unit != "label" and "labels-only" not in guarantee.caveats


def _about_label_sets(guarantee: Guarantee) -> bool:
    """Return whether the promise is about all labels of one person, and about nothing else."""
    return guarantee.unit == "person" and "labels-only" in guarantee.caveats


def _unit(guarantee: Guarantee) -> Mapping[str, str]:
    """Return the words for what one change is about."""
    return _UNITS["labels of a person" if _about_label_sets(guarantee) else guarantee.unit]


def _question(guarantee: Guarantee) -> str:
    """Return what the odds are about, as a part of a sentence."""
    if _about_label_sets(guarantee) and guarantee.neighbors.name == "REPLACE_ONE":
        return _TWO_SETS
    return _QUESTIONS[guarantee.neighbors.name].format(**_unit(guarantee))


def _unprotected(guarantee: Guarantee) -> list[str]:
    """Return what the promise does not cover, one sentence each."""
    gaps: tuple[str, ...] = ()
    if _about_label_sets(guarantee):
        gaps = _PERSON_GAPS
    elif not hides_texts(guarantee):
        gaps = _LABEL_GAPS
    elif guarantee.neighbors.name != "ADD_OR_REMOVE_ONE":
        gaps = _RECORD_GAPS
    several = () if guarantee.unit == "person" else (_SEVERAL.format(unit=guarantee.unit),)
    return [*gaps, *several, _CROWD]


def _trust(guarantee: Guarantee) -> str:
    """Return who saw the raw judgments."""
    seen = "prompts, answers and labels" if hides_texts(guarantee) else "labels"
    return _TRUST[guarantee.trust].format(seen=seen)


def _slack(guarantee: Guarantee) -> str:
    """Return what delta adds to the bound."""
    if guarantee.delta == 0:
        return "δ = 0: the bound has no exceptions."
    return (
        f"δ = {at_least(guarantee.delta)}: every probability may exceed the bound by at most "
        "this much."
    )


def _odds(guarantee: Guarantee, question: str) -> str:
    """Return what epsilon means, in odds and in belief."""
    if math.isinf(guarantee.epsilon):
        return "ε is infinite: this release makes no promise, and may reveal every judgment."
    aside = "" if guarantee.delta == 0 else " (apart from the slack δ)"
    belief = "A belief" if guarantee.delta == 0 else "With the same exception, a belief"
    return (
        "Somebody who knows everything else, and sees everything that was released, can shift "
        f"the odds {question} by at most a factor of "
        f"e^ε\u00a0=\u00a0{at_least(guarantee.odds)}{aside}. "
        f"{belief} of 50% before can become at most {_belief_text(guarantee)} after."
    )


def _between(guarantee: Guarantee) -> str:
    """Return what follows for two different values, if one change is not a replacement."""
    if guarantee.neighbors.name == "REPLACE_ONE" or math.isinf(guarantee.epsilon):
        return ""
    unit = _unit(guarantee)["unit"]
    return f"Between two values of one {unit}, the odds can shift by that factor squared."


def _belief(guarantee: Guarantee) -> float:
    """Return the largest belief that a prior of one half can reach, e^ε / (1 + e^ε)."""
    return 1 / (1 + math.exp(-guarantee.epsilon))


def _belief_text(guarantee: Guarantee) -> str:
    """Return the largest belief as a percentage, rounded up."""
    return belief_percent(_belief(guarantee))


def describe_guarantee(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee as plain values and sentences."""
    question = _question(guarantee)
    return {
        **guarantee.to_dict(),
        "epsilon": float_to_json(guarantee.epsilon),
        "epsilon_text": at_least(guarantee.epsilon),
        "delta_text": at_least(guarantee.delta),
        "factor_text": at_least(guarantee.odds),
        "promise": not math.isinf(guarantee.epsilon),
        "belief": _belief(guarantee),
        "belief_text": _belief_text(guarantee),
        "question": question,
        "odds": _odds(guarantee, question),
        "slack": _slack(guarantee),
        "between": _between(guarantee),
        "change": guarantee.change,
        "trust_text": _trust(guarantee),
        "unprotected": _unprotected(guarantee),
        "simulated": guarantee.simulated,
    }


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
