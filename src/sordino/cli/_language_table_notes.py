"""What a reader of a comparison must know beside its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sordino.privacy.guarantee import CAVEATS, Guarantee, never_less

__all__ = ["table_notes"]


def table_notes(value: dict[str, Any], *, seeds: int) -> Iterator[str]:
    """Yield what stands below the table.

    Args:
        value: What ``table.json`` holds.
        seeds: Releases at each epsilon.
    """
    if value["simulated"]:
        yield "**SIMULATED: a seed was used, so nothing here is private.**"
    yield (
        f"Win rate: how often the judge prefers an answer to that of the reference, on "
        f"{value['prompts']} held-out prompts. No policy was trained on them. A tie counts one "
        "half."
    )
    if value["reference"] == "built":
        yield (
            "The reference was built from the texts of this file, those of the held-out prompts "
            "among them; it saw no judgment."
        )
    if seeds > 1:
        yield f"Intervals are over {seeds} seeds: coins, training and draws."
    yield from _on_judge(value["judge"])
    yield from _on_costs(value, seeds)
    yield "Held-out accuracy is measured on randomized answers and corrected for their flips."


def _on_judge(judge: dict[str, Any]) -> Iterator[str]:
    """Yield what the judge learned from."""
    promise = Guarantee.from_dict(judge["guarantee"], judge["caveats"])
    if judge["pairs"] is None:
        yield f"The judge's labels: {promise}."
    else:
        yield (
            f"The judge learned from {judge['pairs']} other judgments, unprotected: the table "
            "tells about them."
        )


def _on_costs(value: dict[str, Any], seeds: int) -> Iterator[str]:
    """Yield what one release costs a label, and what all of them do."""
    if seeds > 1:
        yield (
            f"The epsilon of a row's labels is that of one release. Each of the {seeds} seeds has "
            "a release of its own, all of the same judgments: the last column adds them up."
        )
    if len({row["method"] for row in value["rows"]} - {"reference"}) > 1:
        yield "Methods at one epsilon share its releases, which count once in the total."
    if value["guarantee"] is None:
        return
    total = Guarantee.from_dict(value["guarantee"], value["caveats"])
    yield (
        f"Whoever sees this table sees all its rows: together, by the ledger, epsilon="
        f"{never_less(total.epsilon)} per label. Promise: {total}."
    )
    yield from (f"`{name}`: {CAVEATS[name]}" for name in total.caveats)
