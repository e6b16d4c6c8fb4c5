"""A forecast in plain words: what is assumed, what comes out, and what epsilon means."""

from __future__ import annotations

from sordino.reporting._numbers import at_least, belief_percent, percent, plain
from sordino.rewards.forecast import Forecast, Prediction, WayForecast

__all__ = ["describe_forecast"]


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
        rows |= {
            f"{name} way": _outcome(way),
            "worth": _worth(way.effective_judgments),
            "epsilon": _meaning(way),
            "one person": _person(way, forecast.labels_per_person),
            "delta": "0; --delta is for ways with a trusted curator, and is not used here",
        }
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
    return (
        f"{at_least(way.epsilon)} per {way.unit}: odds about it move by at most a factor of "
        f"{at_least(way.odds)}, a belief of 50% to at most {belief_percent(way.belief)}; "
        f"{plain(100 * way.flip_probability)}% of answers are flipped"
    )


def _person(way: WayForecast, labels: int | None) -> str:
    """Return what the labels of one person cost together."""
    if labels is None or way.person_epsilon is None:
        return "who gives m labels is protected with m times epsilon"
    return f"who gives {labels:,} labels is protected with epsilon {at_least(way.person_epsilon)}"


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
    needed = found.labels_needed or 0
    return (
        f"{at_least(needed)} labels"
        if needed >= _MANY
        else f"{needed:,} label{'s' * (needed != 1)}"
    )


_MANY = 10**9  # labels beyond which single ones do not matter
