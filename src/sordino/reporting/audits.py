"""What an audit says, as one plain dict: the claim, what was measured, and what was tried."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from sordino._version import __version__
from sordino.auditing.findings import ATTACKS, Audit, Detectable, Finding, Measurement
from sordino.privacy.guarantee import CAVEATS, float_to_json, never_less, never_more

from .wording import (
    SAID,
    WORDS,
    at_least,
    at_most,
    belief_percent,
    describe_guarantee,
    real,
    shortened,
)

CONFIDENTIAL = "Computed from raw judgments: not for publication."

_VERDICTS = {"refuted": "REFUTED", "not refuted": "Not refuted", "cannot tell": "Cannot tell"}
_SCALES = {  # symbol and name
    "epsilon": ("ε", "ε"),
    "mu": ("μ", "μ of the Gaussian trade-off"),
    "bounded range": ("bounded range", "bounded range"),
}
_LONGEST = 160  # characters of one name
_LONG_NAME = re.compile(rf"\S{{{_LONGEST + 1},}}")
_LONGEST_SUMMARY = 800  # characters; names of a file are in it
_DIGITS = 4
_EXACT = 17  # digits that tell any two floats apart
_OFTEN, _NEVER = 0.01, 1e-12  # chances between them are told as one in so many


def describe_audits(audits: Audit | Sequence[Audit]) -> list[dict[str, Any]]:
    """Return one audit or several as plain dicts, in the order given."""
    return [_describe_audit(audit) for audit in ([audits] if isinstance(audits, Audit) else audits)]


def _describe_audit(audit: Audit) -> dict[str, Any]:
    claim = describe_guarantee(audit.claim)
    tried = sum(found.ran for found in audit.findings)
    breaks = sum(found.outcome == "refutes" for found in audit.findings)
    detects = audit.would_have_found
    return {
        "kind": audit.kind,
        "kind_text": "Released file" if audit.kind == "release" else audit.kind.capitalize(),
        "subject": shortened(audit.subject, _LONGEST),
        "refuted": audit.refuted,
        "inconclusive": audit.verdict == "cannot tell",
        "verdict": _VERDICTS[audit.verdict],
        "reasons": [shortened(text, _LONGEST_SUMMARY) for text in audit.reasons],
        "statement": _statement(audit, breaks, tried),
        "detects": detects and f"{_SCALES[detects.metric][0]} ≥ {at_least(detects.loss)}",
        "detects_text": detects and _detects(detects),
        "claim": claim,
        "claim_text": f"ε = {claim['epsilon_text']}, δ = {claim['delta_text']}",
        "caveats": [{"name": name, "text": CAVEATS[name]} for name in audit.claim.caveats],
        "measured": [_measurement(found, refuted=audit.refuted) for found in audit.measured],
        "findings": [_finding(found) for found in audit.findings],
        "tried": tried,
        "breaks": breaks,
        "level_text": f"once in {_once_in(audit.level)}",
        "confidential": audit.confidential,
        "confidential_text": CONFIDENTIAL,
        "version": __version__,
    }


def _statement(audit: Audit, breaks: int, tried: int) -> str:
    """Return the verdict in one or two sentences that promise nothing."""
    if breaks:
        counted = "1 attack breaks it" if breaks == 1 else f"{breaks} attacks break it"
        return SAID["broken"].format(counted=counted, tried=tried)
    if not tried:
        return "Nothing was tried, so this says nothing about the claim."
    if math.isinf(audit.claim.epsilon):
        return "No limit is claimed, so no attack can show that more was lost."
    if audit.reasons:
        return "Nobody can tell from this audit whether what is claimed holds."
    counted = "1 attack was tried and did" if tried == 1 else f"{tried} attacks were tried and did"
    return SAID["not_broken"].format(counted=counted)


def _detects(detects: Detectable) -> str:
    """Return in a sentence or two which loss would have been found, how often, and by what."""
    told = {"symbol": _SCALES[detects.metric][0], "loss": at_least(detects.loss)}
    if detects.false_alarms == 0:
        return SAID["exact"].format(**told)
    title = ATTACKS.get(detects.attack, {}).get("title", detects.attack)
    once = _once_in(detects.false_alarms)
    return SAID["power"].format(**told, power=100 * detects.power, title=title, once=once)


def _measurement(found: Measurement, *, refuted: bool) -> dict[str, Any]:
    numbers = {name: getattr(found, name) for name in ("claimed", "lower", "upper", "power")}
    symbol, scale = _SCALES[found.metric]
    beyond, digits = found.lower > found.claimed, _DIGITS
    while beyond and digits < _EXACT:  # so many that the lower bound is seen to be above the claim
        if float(never_more(found.lower, digits)) > float(never_less(found.claimed, digits)):
            break
        digits += 1
    detects = "" if found.power is None else at_least(found.power)
    return {
        "metric": found.metric,
        "symbol": symbol,
        "scale": scale,
        **{key: None if v is None else float_to_json(v) for key, v in numbers.items()},
        "claimed_text": at_least(found.claimed, digits),
        "lower_text": at_most(found.lower, digits),
        "upper_text": "no bound" if found.upper is None else at_least(found.upper),
        "power_text": "none" if found.power == math.inf else detects,
        "confidence_text": _percent_at_most(found.confidence, 6),
        "beyond": beyond,
        "breaks": beyond and refuted,
    }


def _percent_at_most(share: float, digits: int) -> str:
    """Return a share as a percentage that is never more than it is."""
    return f"{at_most(float(Decimal(repr(share)).scaleb(2)), digits)}%"


def _finding(found: Finding) -> dict[str, Any]:
    known = ATTACKS.get(found.attack, {})
    title, tries = known.get("title", found.attack), known.get("tries", "")
    recovered = real("recovered", found.recovered)
    chance = real("p_value", found.p_value)
    summary = _LONG_NAME.sub(lambda name: shortened(name[0], _LONGEST), found.summary)
    return {
        "attack": found.attack,
        "title": title,
        "tries": tries,
        "needs": found.needs,
        "outcome": found.outcome,
        "outcome_text": WORDS["outcomes"][found.outcome],
        "summary": shortened(summary, _LONGEST_SUMMARY),
        "recovered_text": "" if recovered is None else _percent_at_most(recovered, _DIGITS),
        "p_value": chance,
        "chance_text": "" if chance is None else _chance(chance),
    }


def _chance(chance: float) -> str:
    """Return how often chance alone gives such evidence, never less often than it does."""
    if chance >= _OFTEN:
        return f"in {belief_percent(min(1.0, chance))} of audits"
    if chance < _NEVER:
        return "less than once in 10¹² audits"
    return f"at most once in {_once_in(chance)} audits"


def _once_in(chance: float) -> str:
    return at_most(float(1 / Decimal(repr(chance))), 2)
