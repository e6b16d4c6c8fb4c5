"""Two figures of an audit: claimed against measured loss, and labels read out.

Coordinates across are percentages, so that text keeps its size at every width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sordino.privacy.guarantee import float_from_json

from .wording import plain

_Plain = Mapping[str, Any]

_LINEAR = 10.0  # times the claim up to which steps are equal; beyond it, each is ten times more
_BELOW = 0.7  # powers of ten that a logarithmic axis shows below the claim
_ZERO = 0.12  # of the width: from 0 to the first power of ten
_ENDLESS = 0.87  # of the width: where numbers end if there is an infinite one
_ROOM, _LOG_ROOM = 1.15, 2.5  # times the largest number: there is always room for an arrow
_LARGEST, _SMALLEST = 1e300, 1e-300
_TICKS = 4
_LETTER = 0.012  # of the width: half a letter on a phone
_STEPS = (1.0, 2.0, 5.0, 10.0)
_ASIDE = 0.25  # of the width at either end: text there is written inward
_HEAD, _ROW, _ROW_WITH_POWER, _FOOT = 26, 54, 78, 44
_BAR_HEAD, _BAR_ROW, _BAR_FOOT = 26, 40, 20
_MOST_BARS = 12
_LONGEST = 34  # characters of a title beside a bar


class _Axis:
    """Where a loss stands between 0 and the largest number, or infinity."""

    def __init__(self, claimed: float, numbers: Sequence[float]) -> None:
        finite = [number for number in (claimed, *numbers) if number < math.inf]
        largest = min(_LARGEST, max(finite, default=0.0))
        self.top = (largest if largest > _SMALLEST else 1.0) * _ROOM
        self.endless = math.inf in numbers
        self.end = _ENDLESS if self.endless else 1.0
        self.logarithmic = _SMALLEST < claimed < largest / _LINEAR
        if self.logarithmic:
            self.first = math.floor(math.log10(claimed) - _BELOW)
            self.powers = math.log10(largest * _LOG_ROOM) - self.first

    def at(self, loss: float) -> float:
        """Return the place of a loss as a share of the width."""
        if loss == math.inf:
            return 1.0
        if not self.logarithmic:
            return min(1.0, loss / self.top) * self.end
        low = 10.0**self.first
        if loss <= low:
            return _ZERO * loss / low
        part = min(1.0, (math.log10(loss) - self.first) / self.powers)
        return _ZERO + (self.end - _ZERO) * part

    def ticks(self) -> list[dict[str, str]]:
        """Return place and text of every mark below the axis."""
        marks = [0.0, *(self._powers() if self.logarithmic else self._steps())]
        marks += [math.inf] if self.endless else []
        return [self._tick(mark) for mark in marks]

    def _tick(self, mark: float) -> dict[str, str]:
        """Return place and text of one mark; its text stays inside the figure."""
        x, text = self.at(mark), plain(mark, 6).removeprefix("1 × ")
        side = "start" if x == 0 else "end" if x > 1 - _LETTER * len(text) else "middle"
        return {"x": _at(x), "text": text, "side": side}

    def _powers(self) -> list[float]:
        """Return a few powers of ten, at equal steps."""
        last = self.first + math.floor(self.powers)
        step = max(1, math.ceil((last - self.first) / _TICKS))
        return [10.0**power for power in range(self.first, last + 1, step)]

    def _steps(self) -> list[float]:
        """Return a few round numbers, at equal steps."""
        power = 10.0 ** math.floor(math.log10(self.top / _TICKS))
        step = next(step * power for step in _STEPS if step * power * _TICKS >= self.top * 0.999)
        return [step * number for number in range(1, math.floor(self.top / step) + 1)]


def _at(share: float) -> str:
    """Return a share of the width as an SVG coordinate."""
    return f"{100 * share:.2f}%"


def _inward(share: float) -> str:
    """Return on which side of a place text stays inside the figure."""
    return "start" if share < _ASIDE else "end" if share > 1 - _ASIDE else "middle"


def interval_values(audit: _Plain) -> list[dict[str, Any]]:
    """Return what the template needs to draw claimed against measured, for every claim in turn."""
    panels: dict[tuple[str, Any], list[_Plain]] = {}
    for found in audit["measured"]:
        panels.setdefault((found["metric"], found["claimed"]), []).append(found)
    return [_panel(rows, audit) for rows in panels.values()]


def _panel(rows: list[_Plain], audit: _Plain) -> dict[str, Any]:
    """Return one figure: measurements on one scale, against one claim."""
    claimed = float_from_json(rows[0]["claimed"])
    numbers = [
        float_from_json(row[key])
        for row in rows
        for key in ("lower", "upper", "power")
        if row[key] is not None and not (key != "lower" and row[key] == "inf")
    ]
    axis, y, drawn = _Axis(claimed, numbers), _HEAD, []
    for row in rows:
        drawn.append(_interval(axis, row, y))
        y += _ROW_WITH_POWER if drawn[-1]["power"] else _ROW
    return {
        "title": f"{rows[0]['scale'].capitalize()}, claimed against measured",
        "label": _panel_label(rows),
        "height": y + _FOOT,
        "bottom": y,
        "endless": claimed == math.inf,
        "claim": _at(axis.at(claimed)),
        "claim_text": _claim_text(rows[0]),
        "claim_side": "start" if claimed == math.inf else _inward(axis.at(claimed)),
        "rows": drawn,
        "ticks": axis.ticks(),
        "logarithmic": axis.logarithmic,
        "scale": _scale_text(rows[0], audit),
    }


def _interval(axis: _Axis, row: _Plain, y: int) -> dict[str, Any]:
    """Return where one measurement stands: a bar to its lower bound, a line to its upper one."""
    lower = float_from_json(row["lower"])
    upper = math.inf if row["upper"] is None else float_from_json(row["upper"])
    power = math.inf if row["power"] is None else float_from_json(row["power"])
    return {
        "y": y,
        "text": _lower_text(row),
        "aside": f"with {row['confidence_text']} confidence",
        "low": _at(axis.at(lower)),
        "high": _at(axis.end if upper == math.inf > lower else axis.at(max(lower, upper))),
        "open": upper == math.inf > lower,
        "breaks": row["breaks"],
        "power": None if power == math.inf else _at(axis.at(power)),
        "power_text": f"would have detected {row['symbol']} ≥ {row['power_text']}",
    }


def _lower_text(row: _Plain) -> str:
    """Return the lower bound in a few words."""
    return "unlimited" if row["lower"] == "inf" else f"at least {row['lower_text']}"


def _claim_text(row: _Plain) -> str:
    """Return the claim in a few words."""
    return "no limit is claimed" if row["claimed"] == "inf" else f"claimed: {row['claimed_text']}"


def _scale_text(row: _Plain, audit: _Plain) -> str:
    """Return what the axis measures."""
    per = f" per {audit['claim']['unit']}" if row["metric"] == "epsilon" else ""
    return f"{row['symbol']}{per}: less privacy to the right"


def _panel_label(rows: list[_Plain]) -> str:
    """Return the figure in words."""
    told = [_claim_text(rows[0])]
    for row in rows:
        upper = "" if row["upper"] in {None, "inf"} else f" and at most {row['upper_text']}"
        told.append(f"measured {_lower_text(row)}{upper} with {row['confidence_text']} confidence")
        if row["power_text"]:
            told.append(f"would have detected {row['power_text']} or more")
    return f"{rows[0]['scale']}: {'; '.join(told)}."


def share_values(audit: _Plain) -> dict[str, Any] | None:
    """What the template needs to draw the labels read out, or None if no attack reads any."""
    rows = [found for found in audit["findings"] if found["recovered"] is not None]
    if not rows:
        return None
    shown = rows[:_MOST_BARS]
    limited, allowed = audit["claim"]["promise"], audit["allowed"]
    head = _BAR_HEAD if limited else 0
    return {
        "label": _shares_label(shown, audit),
        "height": head + _BAR_ROW * len(shown) + _BAR_FOOT,
        "bottom": head + _BAR_ROW * len(shown),
        "allowed": _at(allowed) if limited else None,
        "allowed_text": f"allowed: {audit['allowed_text']}",
        "allowed_side": _inward(allowed),
        "rows": [_bar(row, head + _BAR_ROW * place) for place, row in enumerate(shown)],
        "total": len(rows) if len(rows) > len(shown) else None,
    }


def _bar(row: _Plain, y: int) -> dict[str, Any]:
    """Return where one bar stands."""
    title = row["title"]
    return {
        "y": y,
        "title": title if len(title) <= _LONGEST else f"{title[:_LONGEST]}…",
        "text": row["recovered_text"],
        "width": _at(min(1.0, max(0.0, row["recovered"]))),
        "breaks": row["outcome"] == "refutes",
    }


def _shares_label(rows: list[_Plain], audit: _Plain) -> str:
    """Return the figure in words."""
    told = ", ".join(f"{row['title']} {row['recovered_text']}" for row in rows)
    limit = f"; the claim allows {audit['allowed_text']}" if audit["claim"]["promise"] else ""
    return (
        f"Share of labels that each attack reads out: {told}{limit}; a coin toss is right in 50%."
    )
