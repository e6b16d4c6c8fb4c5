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
            "The reference was built from the texts of "
            + (
                "this file, those of the held-out prompts among them"
                if value["central"] is None
                else "the judge's half"
            )
            + "; it saw no judgment."
        )
    if seeds > 1:
        yield f"Intervals are over {seeds} seeds: coins, training and draws."
    yield from _on_judge(value["judge"])
    yield from _on_costs(value, seeds)
    yield "Held-out accuracy is measured on randomized answers and corrected for their flips."
    if value["central"] is not None:
        yield from _on_central(value, seeds)


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
    others = "" if value["central"] is None else ", without the central rows"
    yield (
        f"Whoever sees this table sees all its rows: together, by the ledger, epsilon="
        f"{never_less(total.epsilon)} per label{others}. Promise: {total}."
    )
    yield from (f"`{name}`: {CAVEATS[name]}" for name in total.caveats)


def _on_central(value: dict[str, Any], seeds: int) -> Iterator[str]:
    """Yield what rows on raw judgments promise, and what they leave out."""
    central = value["central"]
    runs = f"; each of the {seeds} seeds is a run of its own, and paid for" if seeds > 1 else ""
    yield (
        "Central rows: DPO on raw judgments, in every step of which the gradient of each record is "
        f"clipped and the sum is noised{runs}."
    )
    if central["guarantee"] is not None:
        total = Guarantee.from_dict(central["guarantee"], central["caveats"])
        yield (
            f"All central rows together, by a ledger of their own: {total}. It is about other "
            "changes than the promise to labels: neither covers the rows of the other, and the two "
            "are never added up."
        )
        mine = (name for name in total.caveats if name not in value["caveats"])
        yield from (f"`{name}`: {CAVEATS[name]}" for name in mine)
    yield (
        "The promise to records is about what training took from one; the reference has read none "
        "of them. Prompts, and how many judgments there are, count as public here."
    )
    yield (
        "Held-out accuracy of central rows is not measured: on raw judgments it would be a release "
        "of its own."
    )
