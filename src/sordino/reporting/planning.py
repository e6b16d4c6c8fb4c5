"""A forecast in plain words: what is assumed, what comes out, and what epsilon means."""

from __future__ import annotations

from sordino.privacy.conversions import group_approximate
from sordino.reporting._numbers import at_least, belief_percent, percent, plain
from sordino.rewards.forecast import Forecast, Prediction, WayForecast

__all__ = ["describe_forecast"]

_MANY = 10**9  # labels beyond which single ones do not matter
_NEEDS = (
    "central label privacy needs a curator who sees the labels and delta above 0; local needs "
    "neither"
)
_UNITS = {"label": "label", "record": "record (prompt, answers and label; used, or made empty)"}


def describe_forecast(forecast: Forecast) -> dict[str, str]:
    """Return a forecast as sentences, by topic, in the order in which they are read.

    Args:
        forecast: What ``sordino.estimate`` returned.
    """
    rows = {
        "question": f"{forecast.n:,} labels, {forecast.dimension:,} features",
        "assumption": f"the true reward predicts {percent(forecast.assumed_accuracy)} of "
        "judgments (--accuracy; guessing predicts 50%), so that its differences spread by "
        f"{plain(forecast.reward_spread, 2)}",
        "without privacy": _outcome(forecast.non_private),
    }
    for name, way in forecast.ways.items():
        rows[f"{name} way"] = f"{_outcome(way)}; {_worth(way.effective_judgments)}"
        rows[f"{name} epsilon"] = _meaning(way)
    rows |= {f"{name} way": reason for name, reason in forecast.left_out.items()}
    rows["compared"] = _compared(forecast)
    rows["one person"] = _person(forecast)
    if forecast.target is not None:
        rows[f"accuracy {plain(forecast.target, 6)}"] = _needed(forecast)
    return rows | {"touched": "nothing: no data were read, nothing was spent"}


def _outcome(found: Prediction) -> str:
    """Return accuracy and standard error."""
    return (
        f"accuracy {found.accuracy:.3f}; an estimated reward difference is off by "
        f"± {plain(found.standard_error, 2)}"
    )


def _worth(value: float) -> str:
    """Return how many judgments without privacy tell as much; the number need not be whole."""
    if value < 1:
        return "less than one judgment without privacy"
    return f"about as much as {plain(value)} judgments without privacy"


def _meaning(way: WayForecast) -> str:
    """Return what epsilon bounds, never rounded down, and how often an answer is flipped."""
    slack = "delta 0" if way.delta == 0 else f"apart from the slack delta = {at_least(way.delta)}"
    flips = (
        "the curator sees answers as they are"
        if way.flip_probability is None
        else f"{plain(100 * way.flip_probability)}% of answers are flipped"
    )
    return (
        f"{at_least(way.epsilon)} per {_UNITS[way.unit]}: odds about it move by at most a factor "
        f"of {at_least(way.odds)}, a belief of 50% to at most {belief_percent(way.belief)}, "
        f"{slack}; {flips}"
    )


def _compared(forecast: Forecast) -> str:
    """Return which way is foreseen to be best, from where on, and what a curator's way needs."""
    best, local = forecast.ways[forecast.best], forecast.ways["local"]
    parts = [f"{forecast.best} is best here"]
    if (gain := best.accuracy - local.accuracy) > 0:
        parts[0] += f", by {plain(100 * gain, 2)} points of accuracy over local"
    if forecast.break_even is not None:
        parts.append(f"label-central errs less than local from {_count(forecast.break_even)} on")
    return "; ".join([*parts, _NEEDS])


def _person(forecast: Forecast) -> str:
    """Return what the labels of one person cost together, in each way."""
    labels = forecast.labels_per_person
    if labels is None:
        curator = "; in a central way less well (--labels-per-person)" * (len(forecast.ways) > 1)
        return f"who gives m labels is protected with m times epsilon in the local way{curator}"
    parts = [_together(name, way, labels) for name, way in forecast.ways.items()]
    return f"who gives {labels:,} label{'s' * (labels != 1)} is protected with " + ", ".join(parts)


def _together(name: str, way: WayForecast, labels: int) -> str:
    """Return what one person's labels cost in one way.

    Where no epsilon is known at the same delta, it is that of a group at the group's delta.
    """
    epsilon, delta = way.person_epsilon, way.delta
    if epsilon is None:
        epsilon, delta = group_approximate(way.epsilon, way.delta, labels)
    if delta >= 1:
        return f"nothing in the {name} way (only single {way.unit}s are)"
    where = f"in the {name} way"
    return f"epsilon {at_least(epsilon)} {where}" + (
        f" (delta {at_least(delta)})" if delta > 0 else ""
    )


def _needed(forecast: Forecast) -> str:
    """Return how many labels a target needs, in each way."""
    if not forecast.reachable:
        return (
            "no number of labels reaches it: even the true reward predicts only "
            f"{percent(forecast.assumed_accuracy)}"
        )
    ways = [f"{_labels(way)} in the {name} way" for name, way in forecast.ways.items()]
    return "needs " + ", ".join([*ways, f"{_labels(forecast.non_private)} without privacy"])


def _labels(found: Prediction) -> str:
    """Return how many labels are needed."""
    return _count(found.labels_needed or 0)


def _count(needed: int) -> str:
    """Return a number of labels, rounded up where there are very many."""
    return (
        f"{at_least(needed)} labels"
        if needed >= _MANY
        else f"{needed:,} label{'s' * (needed != 1)}"
    )
