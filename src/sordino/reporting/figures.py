"""The figures of the report, drawn as inline SVG that follows the page's colors.

Bars use percentages as coordinates, so that their text keeps its size at every width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sordino.reporting._bar_chart import bar_values
from sordino.reporting._curve_chart import curve_values
from sordino.reporting._numbers import percent
from sordino.reporting._templates import environment

__all__ = ["draw_choices", "draw_figures"]

_SIDE = 320.0  # of the calibration plot, in its own units
_LEFT, _TOP = 52.0, 12.0
_NARROW, _WIDE = 0.8, 0.93  # beliefs at which a label changes sides
_LARGEST_DOT = 6.0


def draw_figures(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return every figure that the summary has numbers for, by name.

    Args:
        summary: What ``summarize`` returned.

    Returns:
        SVG elements as safe markup: ``belief``, ``budget``, ``calibration``, ``curve``,
        ``bars``, and one for each metric with an interval, by its key. A figure without numbers
        is left out.
    """
    prediction, decisive = summary["prediction"], summary["decisive"]
    drawn = {
        "belief": _belief(summary["guarantee"]),
        "budget": _budget(summary["spend"]),
        "calibration": _calibration(summary["calibration"]),
        "curve": _draw("curve", **curve_values(prediction)) if prediction else "",
        "bars": _draw("bars", **bar_values(decisive)) if decisive else "",
    }
    for part in ("reward", "policy"):
        for metric in (summary[part] or {"metrics": []})["metrics"]:
            if metric["key"] in {"accuracy", "win_rate"}:
                drawn[metric["key"]] = _interval(metric)
    return {name: svg for name, svg in drawn.items() if svg}


def draw_choices(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return, for every example, one figure for each answer: how likely it is before and after.

    Args:
        summary: What ``summarize`` returned.
    """
    rows = (summary["examples"] or {"rows": []})["rows"]
    return [[_choice(answer) for answer in row["answers"]] for row in rows]


def _choice(answer: Mapping[str, Any]) -> str:
    """Draw the probability of one answer, with a mark where it was before."""
    label = (
        f"Probability of this answer: {answer['reference_text']} before, "
        f"{answer['policy_text']} after."
    )
    before, after = _at(answer["reference"]), _at(answer["policy"])
    return _draw("choice", label=label, before=before, after=after)


def _draw(name: str, **values: Any) -> str:
    """Return one figure from the template of that name."""
    macros = environment().get_template("figures.svg.j2").module
    svg: str = getattr(macros, name)(**values)
    return svg


def _inside(value: float) -> float:
    """Return value moved into [0, 1]."""
    return min(1.0, max(0.0, value))


def _at(value: float) -> str:
    """Return a share as an SVG coordinate."""
    return f"{100 * _inside(value):.2f}%"


def _belief(guarantee: Mapping[str, Any]) -> str:
    """Draw how far a belief of one half can move."""
    if not guarantee["promise"]:
        return ""
    belief = float(guarantee["belief"])
    sides = ("end", "start") if belief < _NARROW else ("middle", "middle")
    sides = ("start", "end") if belief > _WIDE else sides
    label = f"A belief of 50% before can become at most {guarantee['belief_text']} after."
    return _draw(
        "belief",
        label=label,
        low=_at(1 - belief),
        high=_at(belief),
        width=_at(2 * belief - 1),
        low_text=f"{_low_text(guarantee['belief_text'])}",
        high_text=guarantee["belief_text"],
        low_side=sides[0],
        high_side=sides[1],
    )


def _low_text(high: str) -> str:
    """Return 100% minus a percentage, with the digits that it is written in."""
    digits = high.rstrip("%")
    decimals = len(digits.partition(".")[2])
    return f"{100 - float(digits):.{decimals}f}%"


def _budget(spend: Mapping[str, Any] | None) -> str:
    """Draw how much of the budget is spent."""
    if spend is None or spend["share"] is None:
        return ""
    label = (
        f"Spent ε = {spend['spent_text']} of {spend['budget_epsilon_text']}; "
        f"{spend['remaining_text']} remaining."
    )
    return _draw("budget", label=label, width=_at(spend["share"]), over=spend["over"])


def _interval(metric: Mapping[str, Any]) -> str:
    """Draw a share and its interval against one half."""
    value = metric["value"]
    if value is None:
        return ""
    low, high = metric["interval"] or (value, value)
    detail = f", 95% interval {percent(low)} to {percent(high)}" if metric["interval"] else ""
    return _draw(
        "interval",
        label=f"{metric['label']} {metric['text']}{detail}; guessing is 50%.",
        value=_at(value),
        low=_at(low),
        high=_at(high),
    )


def _calibration(bins: list[Mapping[str, Any]]) -> str:
    """Draw observed against predicted shares, with intervals and the diagonal."""
    if not bins:
        return ""
    largest = max((row["pairs"] or 1.0) for row in bins)
    label = (
        f"Calibration: observed against predicted share in {len(bins)} groups. "
        "Points on the diagonal are predicted as often as they happen."
    )
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    return _draw(
        "calibration",
        label=label,
        left=_LEFT,
        top=_TOP,
        side=_SIDE,
        ticks=[(f"{_x(tick):.1f}", f"{_y(tick):.1f}", f"{tick:g}") for tick in ticks],
        points=[_point(row, largest) for row in bins],
    )


def _x(share: float) -> float:
    """Return the horizontal place of a predicted share."""
    return _LEFT + _SIDE * _inside(share)


def _y(share: float) -> float:
    """Return the vertical place of an observed share."""
    return _TOP + _SIDE * (1 - _inside(share))


def _point(row: Mapping[str, Any], largest: float) -> dict[str, str | bool]:
    """Return where one group is drawn; its area follows its number of pairs."""
    pairs = row["pairs"] or 1.0
    return {
        "x": f"{_x(row['predicted']):.1f}",
        "y": f"{_y(row['observed']):.1f}",
        "low": f"{_y(row['low']):.1f}",
        "high": f"{_y(row['high']):.1f}",
        "cut_low": row["low"] < 0,
        "cut_high": row["high"] > 1,
        "outside": not 0 <= row["observed"] <= 1,
        "radius": f"{max(2.5, _LARGEST_DOT * math.sqrt(pairs / largest)):.1f}",
        "text": f"predicted {percent(row['predicted'])}, observed {percent(row['observed'])}",
    }
