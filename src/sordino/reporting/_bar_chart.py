"""The figure of a run that shows the features that decide: a bar for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["bar_values"]

_Plain = Mapping[str, Any]

_ROW, _HEAD = 52, 26
_LONGEST = 36  # characters of a name beside a bar


def bar_values(decisive: _Plain) -> dict[str, Any]:
    """Return what the template needs to draw a bar for each feature, left or right of zero."""
    rows = decisive["rows"]
    largest = max(abs(row["effect"]) for row in rows) or 1.0
    return {
        "label": _bars_label(rows),
        "height": _HEAD + _ROW * len(rows),
        "rows": [_bar(row, _HEAD + _ROW * place, largest) for place, row in enumerate(rows)],
    }


def _bar(row: _Plain, y: int, largest: float) -> dict[str, Any]:
    """Return where one bar stands; lengths are shares of half the width."""
    effect = 50 * row["effect"] / largest
    name = row["name"]
    return {
        "y": y,
        "name": name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…",
        "text": row["effect_text"],
        "x": f"{50 + min(0.0, effect):.2f}%",
        "width": f"{abs(effect):.2f}%",
    }


def _bars_label(rows: list[_Plain]) -> str:
    """Return the figure in words."""
    told = ", ".join(f"{row['name']} {row['effect_text']}" for row in rows)
    return f"Effect of a usual difference on the log odds of being preferred: {told}."
