"""What was foreseen before anything was spent: accuracy against ε, from sizes alone."""

from __future__ import annotations

import math
from typing import Any

from sordino.privacy.guarantee import float_from_json

from .wording import Json, at_least, both_ends, percent, plain, real

_Points = list[tuple[float, float]]


def describe_prediction(
    source: Json | None, accuracy: Json | None, *, pairs: str | None
) -> dict[str, Any] | None:
    """Return the privacy–utility curve in words and numbers, or None if there is none."""
    source = source or {}
    shares: dict[float, float] = {}
    for row in source.get("curve") or ():  # rows without both numbers are left out
        epsilon, share = _epsilon(row.get("epsilon")), _share("accuracy", row.get("accuracy"))
        if epsilon is not None and share is not None:
            shares[epsilon] = share
    points = sorted(shares.items())
    if pairs is None or len(points) < 2:  # noqa: PLR2004 (a line has two ends)
        return None
    ceiling = _share("assumed_accuracy", source.get("assumed_accuracy"))
    measured = _measured(source.get("measured"), accuracy)
    interval = measured["interval"] if measured else None
    dimension = real("utility.effective_dimension", source.get("effective_dimension"))
    sizes = [f"{pairs} labels"]
    if dimension is not None:
        sizes.append(f"an effective dimension of {plain(dimension)}")
    if ceiling is not None:
        sizes.append(f"an assumed accuracy of {percent(ceiling)} without privacy")
    return {
        "points": [list(point) for point in points],
        "ceiling": ceiling,
        "ceiling_text": None if ceiling is None else percent(ceiling),
        "sizes": " and ".join(filter(None, [", ".join(sizes[:-1]), sizes[-1]])),
        "chosen": _chosen(points, _epsilon(source.get("chosen_epsilon"))),
        "measured": measured,
        "above": interval is not None and ceiling is not None and interval[0] > ceiling,
        "rows": [{"epsilon": at_least(x), "accuracy": percent(y)} for x, y in points],
    }


def _epsilon(value: object) -> float | None:
    """Return an ε that a logarithmic axis can show, or None."""
    number = real("utility.epsilon", float_from_json(value) if value == "inf" else value)
    return number if number is not None and number > 0 else None


def _share(name: str, value: object) -> float | None:
    """Return a number in [0, 1], or None."""
    number = real(f"utility.{name}", value)
    return number if number is not None and 0 <= number <= 1 else None


def _chosen(points: _Points, epsilon: float | None) -> dict[str, Any] | None:
    """Return the prediction at the chosen ε: straight in log ε between two points."""
    if epsilon is None or not points[0][0] <= epsilon <= points[-1][0]:
        return None
    above = next(index for index, (x, _) in enumerate(points) if x >= epsilon)
    right, share = points[above]
    if right != epsilon:
        left, lower = points[above - 1]
        share = lower + math.log(epsilon / left) / math.log(right / left) * (share - lower)
    return {
        "epsilon": epsilon,
        "epsilon_text": at_least(epsilon),
        "accuracy": share,
        "text": percent(share),
    }


def _measured(source: Json | None, accuracy: Json | None) -> dict[str, Any] | None:
    """Return what the run measured, from its own field or from the accuracy of the reward."""
    if source is None:
        source = {**(accuracy or {}), "accuracy": (accuracy or {}).get("value")}
    value = real("utility.measured", source.get("accuracy"))
    if value is None:
        return None
    interval = both_ends("utility.measured", source.get("interval"))
    return {
        "value": value,
        "text": percent(value),
        "interval": interval,
        "detail": " to ".join(map(percent, interval)) if interval else "",
        "outside": interval is not None and not 0 <= interval[0] <= interval[1] <= 1,
    }
