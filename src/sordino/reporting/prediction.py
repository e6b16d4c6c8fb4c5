"""What was foreseen before anything was spent: accuracy against ε, from sizes alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sordino.privacy.guarantee import float_from_json

from .wording import at_least, percent, plain, real

_Plain = Mapping[str, Any]
_Point = tuple[float, float]


def describe_prediction(
    source: _Plain | None, accuracy: _Plain | None, *, pairs: str | None
) -> dict[str, Any] | None:
    """Return the privacy–utility curve in words and numbers, or None if there is none."""
    points = _points((source or {}).get("curve") or ())
    if source is None or pairs is None or len(points) < 2:  # noqa: PLR2004 (a line has two ends)
        return None
    ceiling = _share("assumed_accuracy", source.get("assumed_accuracy"))
    chosen = _chosen(points, source.get("chosen_epsilon"))
    measured = _measured(source.get("measured"), accuracy)
    return {
        "points": [list(point) for point in points],
        "ceiling": ceiling,
        "ceiling_text": None if ceiling is None else percent(ceiling),
        "sizes": _sizes(source, pairs, ceiling),
        "chosen": chosen,
        "measured": measured,
        "above": ceiling is not None and _clearly_above(measured, ceiling),
        "rows": [{"epsilon": at_least(x), "accuracy": percent(y)} for x, y in points],
    }


def _points(rows: Any) -> list[_Point]:
    """Return the curve from the smallest ε up; rows without both numbers are left out."""
    points = {}
    for row in rows:
        epsilon = _epsilon(row.get("epsilon"))
        share = _share("utility.accuracy", row.get("accuracy"))
        if epsilon is not None and share is not None:
            points[epsilon] = share
    return sorted(points.items())


def _epsilon(value: Any) -> float | None:
    """Return an ε that a logarithmic axis can show, or None."""
    number = real("utility.epsilon", float_from_json(value) if value == "inf" else value)
    return number if number is not None and number > 0 else None


def _share(name: str, value: Any) -> float | None:
    """Return a number in [0, 1], or None."""
    number = real(name, value)
    return number if number is not None and 0 <= number <= 1 else None


def _chosen(points: list[_Point], value: Any) -> dict[str, Any] | None:
    """Return the prediction at the chosen ε, read off the line between its neighbors."""
    epsilon = _epsilon(value)
    if epsilon is None or not points[0][0] <= epsilon <= points[-1][0]:
        return None
    share = _between(points, epsilon)
    return {
        "epsilon": epsilon,
        "epsilon_text": at_least(epsilon),
        "accuracy": share,
        "text": percent(share),
    }


def _between(points: list[_Point], epsilon: float) -> float:
    """Return the accuracy at ε, straight in log ε between two points."""
    above = next(index for index, (x, _) in enumerate(points) if x >= epsilon)
    right_x, right_y = points[above]
    if right_x == epsilon:
        return right_y
    left_x, left_y = points[above - 1]
    part = math.log(epsilon / left_x) / math.log(right_x / left_x)
    return left_y + part * (right_y - left_y)


def _measured(source: _Plain | None, accuracy: _Plain | None) -> dict[str, Any] | None:
    """Return what the run measured, from its own field or from the accuracy of the reward."""
    if source is None:
        source = {**(accuracy or {}), "accuracy": (accuracy or {}).get("value")}
    value = real("utility.measured", source.get("accuracy"))
    if value is None:
        return None
    ends = [real("utility.measured", end) for end in source.get("interval") or ()]
    known = [end for end in ends if end is not None]
    interval = known if len(known) == 2 else None  # noqa: PLR2004 (both ends, or none)
    detail = f"{percent(interval[0])} to {percent(interval[1])}" if interval else ""
    return {
        "value": value,
        "text": percent(value),
        "interval": interval,
        "detail": detail,
        "outside": interval is not None and not 0 <= interval[0] <= interval[1] <= 1,
    }


def _clearly_above(measured: _Plain | None, ceiling: float) -> bool:
    """Return whether all of the measured interval lies above what was assumed."""
    return bool(measured and measured["interval"] and measured["interval"][0] > ceiling)


def _sizes(source: _Plain, pairs: str, ceiling: float | None) -> str:
    """Return everything that the prediction was made from."""
    dimension = real("utility.effective_dimension", source.get("effective_dimension"))
    parts = [f"{pairs} labels"]
    parts += [] if dimension is None else [f"an effective dimension of {plain(dimension)}"]
    parts += (
        [] if ceiling is None else [f"an assumed accuracy of {percent(ceiling)} without privacy"]
    )
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
