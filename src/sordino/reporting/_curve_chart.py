"""The figure of a run that shows accuracy against ε: foreseen, chosen and measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sordino.reporting._numbers import percent, plain

__all__ = ["curve_values"]

_Plain = Mapping[str, Any]

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
