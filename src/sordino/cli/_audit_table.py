"""An audit in a few lines: the verdict, the numbers, and what was tried."""

from __future__ import annotations

from sordino.auditing.findings import Audit, Measurement
from sordino.cli._table import describe_promise
from sordino.privacy.guarantee import never_less, never_more

__all__ = ["audit_rows", "finding_rows"]

_ORDER = ("refutes", "warning", "clear", "skipped")
_WORDS = {"refutes": "REFUTES", "warning": "warning", "clear": "clear", "skipped": "not tried"}


def audit_rows(found: Audit) -> dict[str, str]:
    """Return the verdict and every number that was measured, in words."""
    rows = {
        "verdict": _verdict(found),
        "claim": describe_promise(found.claim.to_dict()),
        "subject": found.subject,
    }
    for measured in found.measured:  # of several in one metric the decisive one comes first
        rows.setdefault(f"measured {measured.metric}", _measured(measured))
    if found.confidential:
        rows["confidential"] = "computed from raw judgments: not for publication"
    return rows


def _verdict(found: Audit) -> str:
    """Return the verdict, with what broke the claim."""
    if found.refuted:
        return f"REFUTED by {', '.join(found.refuted_by)}"
    return "not refuted (which is no proof)"


def _measured(found: Measurement) -> str:
    """Return one measurement; bounds are rounded away from what they bound."""
    text = f"at least {never_more(found.lower, 4)} ({100 * found.confidence:g} % confidence)"
    text += f", claimed {never_less(found.claimed)}"
    if found.power is not None:
        text += f"; would have detected {never_less(found.power, 4)} or more"
    return text


def finding_rows(found: Audit) -> list[list[str]]:
    """Return (attack, outcome, sentence) of everything that was tried, what refutes first."""
    ordered = sorted(found.findings, key=lambda finding: _ORDER.index(finding.outcome))
    return [[each.attack, _WORDS[each.outcome], each.summary] for each in ordered]
