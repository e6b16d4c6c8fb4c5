"""The figures of the report, drawn as inline SVG that follows the page's colors.

Bars use percentages as coordinates, so that their text keeps its size at every width.

The figure of a run that shows the features that decide: a bar for each.

The figure of a run that shows accuracy against ε: foreseen, chosen and measured.

The one template environment: escapes everything, and fails on whatever is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from .wording import percent, plain

if TYPE_CHECKING:
    from jinja2 import Environment

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


_WIDTH, _HEIGHT = 384.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 372.0, 30.0, 248.0
_USUAL = (0.1, 10.0)  # epsilons that the axis always covers
_MARKS = (1.0, 3.0)  # of every power of ten
_STEP = 0.05  # between shares on the axis; doubled where there are many
_LINES = 7
_OVER = 2  # steps that an interval may add to the axis before it is cut


class _Axes:
    """Where an ε and a share stand in the plot."""

    def __init__(self, prediction: _Plain) -> None:
        epsilons = [point[0] for point in prediction["points"]]
        self.low = min(_USUAL[0], *epsilons)
        self.high = max(_USUAL[1], *epsilons)
        self.bottom, self.top = _range(prediction)

    def x(self, epsilon: float) -> float:
        """Return the horizontal place of an ε, on a logarithmic axis."""
        part = math.log(epsilon / self.low) / math.log(self.high / self.low)
        return _LEFT + (_RIGHT - _LEFT) * part

    def y(self, share: float) -> float:
        """Return the vertical place of a share, moved onto the plot."""
        part = (min(self.top, max(self.bottom, share)) - self.bottom) / (self.top - self.bottom)
        return _BOTTOM - (_BOTTOM - _TOP) * part

    def x_ticks(self) -> list[tuple[str, str]]:
        """Return place and text of every mark below the plot."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        marks = [mark * 10.0**power for power in powers for mark in _MARKS]
        inside = [mark for mark in marks if self.low * 0.999 <= mark <= self.high * 1.001]
        return [(f"{self.x(mark):.1f}", f"{mark:g}") for mark in inside]

    def y_ticks(self) -> list[tuple[str, str]]:
        """Return place and text of every mark beside the plot."""
        first, last = round(self.bottom / _STEP), round(self.top / _STEP)
        step = 1 if last - first <= _LINES else 2
        marks = [_STEP * number for number in range(first, last + 1) if number % step == 0]
        return [(f"{self.y(mark):.1f}", percent(mark, 0)) for mark in marks]


def _range(prediction: _Plain) -> tuple[float, float]:
    """Return the shares between which the plot extends, in whole steps."""
    measured, ceiling = prediction["measured"], prediction["ceiling"]
    shares = [0.5 - _STEP, 0.5, *(point[1] for point in prediction["points"])]
    shares += [] if ceiling is None else [ceiling + _STEP / 2]
    shares += [measured["value"]] if measured else []
    low, high = math.floor(min(shares) / _STEP), math.ceil(max(shares) / _STEP)
    ends = (measured and measured["interval"]) or [low * _STEP, high * _STEP]
    wanted = math.floor(ends[0] / _STEP), math.ceil(ends[1] / _STEP)
    low, high = max(low - _OVER, min(low, wanted[0])), min(high + _OVER, max(high, wanted[1]))
    return max(0, low) * _STEP, min(round(1 / _STEP), high) * _STEP


def curve_values(prediction: _Plain) -> dict[str, Any]:
    """Return what the template needs to draw accuracy against ε."""
    axes = _Axes(prediction)
    chosen, ceiling = prediction["chosen"], prediction["ceiling"]
    path = " L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in prediction["points"])
    return {
        "label": _curve_label(prediction),
        "box": f"0 0 {_WIDTH:g} {_HEIGHT:g}",
        "left": _LEFT,
        "right": _RIGHT,
        "top": _TOP,
        "bottom": _BOTTOM,
        "x_ticks": axes.x_ticks(),
        "y_ticks": axes.y_ticks(),
        "path": f"M{path}",
        "guess": f"{axes.y(0.5):.1f}",
        "ceiling": None if ceiling is None else f"{axes.y(ceiling):.1f}",
        "ceiling_text": f"without privacy: {prediction['ceiling_text']}",
        "aside": _aside(axes, chosen),
        "chosen": chosen and _chosen(axes, chosen),
        "measured": chosen and _measured(axes, prediction["measured"]),
    }


def _aside(axes: _Axes, chosen: _Plain | None) -> dict[str, Any]:
    """Return where the lines are named: on the side where no ε is marked."""
    if chosen and axes.x(chosen["epsilon"]) < (_LEFT + _RIGHT) / 2:
        return {"x": _RIGHT - 4, "side": "end"}
    return {"x": _LEFT + 4, "side": "start"}


def _chosen(axes: _Axes, chosen: _Plain) -> dict[str, str]:
    """Return where the chosen ε and its prediction stand; its text stays inside the plot."""
    x = axes.x(chosen["epsilon"])
    middle = (_LEFT + _RIGHT) / 2
    near = _LEFT + 24 < x < _RIGHT - 24
    return {
        "x": f"{x:.1f}",
        "y": f"{axes.y(chosen['accuracy']):.1f}",
        "text": f"ε = {chosen['epsilon_text']}",
        "side": "middle" if near else "start" if x < middle else "end",
    }


def _measured(axes: _Axes, measured: _Plain | None) -> dict[str, Any] | None:
    """Return where the measured accuracy and its interval stand, and where they are cut."""
    if measured is None:
        return None
    low, high = measured["interval"] or [measured["value"]] * 2
    return {
        "y": f"{axes.y(measured['value']):.1f}",
        "low": f"{axes.y(low):.1f}",
        "high": f"{axes.y(high):.1f}",
        "cut_low": low < axes.bottom - 1e-9,
        "cut_high": high > axes.top + 1e-9,
    }


def _curve_label(prediction: _Plain) -> str:
    """Return the figure in words."""
    (first, low), (last, high) = prediction["points"][0], prediction["points"][-1]
    chosen, measured = prediction["chosen"], prediction["measured"]
    start = f"Predicted accuracy goes from {percent(low)} at ε = {plain(first)}"
    told = [f"{start} to {percent(high)} at ε = {plain(last)}"]
    told += [f"{chosen['text']} at the chosen ε = {chosen['epsilon_text']}"] if chosen else []
    if chosen and measured:
        interval = f", 95% interval {measured['detail']}" if measured["detail"] else ""
        told.append(f"measured there {measured['text']}{interval}")
    ceiling = prediction["ceiling_text"]
    told += [f"{ceiling} is assumed without privacy"] if ceiling else []
    return "; ".join([*told, "guessing is 50%"]) + "."


@cache
def environment() -> Environment:
    """Return the environment that renders the page and its figures."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    return Environment(
        loader=PackageLoader("sordino.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


_SIDE = 320.0  # of the calibration plot, in its own units
_CHART_LEFT, _CHART_TOP = 52.0, 12.0
_NARROW, _WIDE = 0.8, 0.93  # beliefs at which a label changes sides
_LARGEST_DOT = 6.0


def draw_figures(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return every figure that the summary has numbers for, by name."""
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
    """Return, for every example, one figure for each answer: how likely it is before and after."""
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
        left=_CHART_LEFT,
        top=_CHART_TOP,
        side=_SIDE,
        ticks=[(f"{_x(tick):.1f}", f"{_y(tick):.1f}", f"{tick:g}") for tick in ticks],
        points=[_point(row, largest) for row in bins],
    )


def _x(share: float) -> float:
    """Return the horizontal place of a predicted share."""
    return _CHART_LEFT + _SIDE * _inside(share)


def _y(share: float) -> float:
    """Return the vertical place of an observed share."""
    return _CHART_TOP + _SIDE * (1 - _inside(share))


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
