"""Which accountant supports which event under which relation, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dp_accounting import NeighboringRelation

from .events import EVENTS

__all__ = ["ACCOUNTANTS", "SUPPORT", "support_table"]

ACCOUNTANTS = ("closed", "pld", "rdp")

_NO_COIN = (
    "randomized response reveals that there was a label, so adding or removing a record is "
    "unprotected"
)
_SAMPLED = "RdpAccountant is looser for Poisson samples, and does not know REPLACE_ONE"
_CLOSED = "closed form"
_TRANSLATED = "translated for dp_accounting"


def _why_not(kind: str, neighbors: NeighboringRelation, accountant: str) -> str:
    """Return why a cell is unsupported, or nothing if it is supported."""
    if kind == "randomized-response" and neighbors == NeighboringRelation.ADD_OR_REMOVE_ONE:
        return _NO_COIN
    if accountant == "closed":
        return ""
    if kind == "non-private":
        return "its spend is infinite, which needs no accountant"
    if kind == "bounded-range":
        return "dp_accounting 0.6.0 has no such event"
    if accountant == "pld":
        return "a bound on all Rényi orders has no loss distribution" if "zero" in kind else ""
    return _why_not_rdp(kind, neighbors)


def _why_not_rdp(kind: str, neighbors: NeighboringRelation) -> str:
    """Return why the Rényi accountant does not take an event, or nothing if it does."""
    if kind in {"pure", "approximate"}:
        return "dp_accounting 0.6.0 has no such event"
    if kind == "poisson-gaussian":
        return _SAMPLED
    if kind == "gaussian" and neighbors == NeighboringRelation.REPLACE_ONE:
        return "RdpAccountant ignores REPLACE_ONE for Gaussians and under-reports"
    return ""


def _table() -> dict[tuple[str, NeighboringRelation, str], tuple[bool, str]]:
    cells = {}
    for kind in EVENTS:
        for neighbors in NeighboringRelation:
            for accountant in ACCOUNTANTS:
                why_not = _why_not(kind, neighbors, accountant)
                why = _CLOSED if accountant == "closed" else _TRANSLATED
                cells[kind, neighbors, accountant] = (not why_not, why_not or why)
    return cells


SUPPORT: Mapping[tuple[str, NeighboringRelation, str], tuple[bool, str]] = MappingProxyType(
    _table()
)
"""(event kind, relation, accountant) → (supported, why)."""


def support_table() -> list[dict[str, str | bool]]:
    """Return the support table as rows that print: event, relation, accountant, supported, why.

    Returns:
        One new dict per cell, in a fixed order.

    Example:
        >>> sum(row["supported"] for row in support_table() if row["accountant"] == "closed")
        23
    """
    return [
        {
            "event": kind,
            "relation": neighbors.name,
            "accountant": accountant,
            "supported": supported,
            "why": why,
        }
        for (kind, neighbors, accountant), (supported, why) in SUPPORT.items()
    ]
