"""A guarantee in plain words: what it bounds, for whom, and what it leaves open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sordino.errors import DataError
from sordino.privacy.guarantee import CAVEATS, Guarantee, float_to_json
from sordino.reporting._numbers import at_least, belief_percent

__all__ = [
    "METRICS_NOTES",
    "SIMULATED",
    "WAYS",
    "describe_guarantee",
    "hides_texts",
    "read_guarantee",
]

SIMULATED = (
    "Randomness came from a seed. Whoever knows the seed can undo the noise, so nothing is "
    "protected. For study only, never for release."
)

WAYS: Mapping[str, str] = {
    "local": "Each label is randomized first; everything after that is learned from randomized "
    "labels only.",
    "central": "A trusted curator reads the raw judgments and releases a noisy estimate.",
    "intrinsic": "The estimate is never released; each sampled action carries the noise and "
    "spends.",
    "per-update": "Noise is added to each update of the policy, one batch at a time.",
}

METRICS_NOTES: Mapping[str, str] = {
    "local": "Every metric below is computed from randomized labels, debiased, and on pairs that "
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
    """Return the guarantee that a plain dict holds.

    Raises:
        DataError: A field is missing.
    """
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
    """Return a guarantee as plain values and sentences.

    Args:
        guarantee: The promise, with its caveats.

    Returns:
        A JSON-like dict; every number in it that bounds something is rounded up.
    """
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
