"""How good the result is: metrics with their intervals, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sordino.reporting._numbers import percent, plain, real

__all__ = ["describe_policy", "describe_public", "describe_reward"]

_Plain = Mapping[str, Any]
_Z = 1.96  # a 95% interval, normal approximation
_GUESSING = f"log\u00a02\u00a0=\u00a0{math.log(2):.3f}"
_REASON = "This run did not release it: it was not measured, or measuring it would have cost more."
_FEW = "There are too few answers to tell: the standard error would be larger than what is told."
_EXPLAINED = {
    "accuracy": (
        "Accuracy",
        "How often the reward ranks a pair as the person did. Guessing gives 50%.",
    ),
    "negative_log_likelihood": (
        "Log loss",
        f"Average surprise per pair; lower is better. Guessing gives {_GUESSING}.",
    ),
    "calibration_slope": (
        "Calibration slope",
        "1 means that predicted odds hold. Below 1 they are too bold; above 1, too timid.",
    ),
    "win_rate": (
        "Win rate",
        "How often the policy picks the answer that was preferred. Choosing at random: 50%.",
    ),
    "kl": (
        "Distance from the reference",
        "KL divergence in nats: how far the policy has moved from where it started.",
    ),
    "temperature": (
        "Temperature",
        "In units of reward: the higher, the closer the policy stays to the reference.",
    ),
    "kl_regret": (
        "KL regret",
        "What the policy loses against the best policy at the same temperature; 0 is best.",
    ),
    "value": ("Value", "True regularized value of the policy."),
    "best_value": ("Best value", "True regularized value of the best policy."),
}
_PERCENT = {"accuracy", "win_rate"}
_FIXED = {"negative_log_likelihood"}


def _shown(key: str, value: float) -> str:
    """Return a metric in the form that suits it."""
    if key in _PERCENT:
        return percent(value)
    return f"{value:.3f}".replace("-", "−") if key in _FIXED else plain(value)


def _metric(source: _Plain, key: str, reasons: Mapping[str, str]) -> dict[str, Any]:
    """Return one metric: label, text, explanation, and a reason if there is no value."""
    value = real(key, source.get(key))
    label, explained = _EXPLAINED[key]
    vague = value is None and f"{key}_reason" in source
    missing = _FEW if vague else reasons.get(key, _REASON)
    return {
        "key": key,
        "label": label,
        "value": value,
        "text": ("too few to tell" if vague else "not available")
        if value is None
        else _shown(key, value),
        "reason": missing if value is None else "",
        "explained": explained,
        "interval": None,
        "detail": "",
    }


def _with_error(metric: dict[str, Any], source: _Plain) -> dict[str, Any]:
    """Return the metric with its 95% interval, from the standard error beside it."""
    name = f"{metric['key']}_standard_error"
    error, value = real(name, source.get(name)), metric["value"]
    if error is None or value is None:
        return metric
    half = _Z * error
    share = metric["key"] in _PERCENT
    size = f"{100 * half:.1f} points" if share else plain(half, 2)
    return {
        **metric,
        "interval": _possible(value - half, value + half, share=share),
        "detail": f"± {size} (95%)",
    }


def _possible(low: float, high: float, *, share: bool) -> list[float]:
    """Return an interval, within 0 and 1 where it is one of a share."""
    return [max(low, 0.0), min(high, 1.0)] if share else [low, high]


def _with_interval(metric: dict[str, Any], interval: Any) -> dict[str, Any]:
    """Return the metric with the interval that the run reported."""
    ends = [real(metric["key"], end) for end in interval or ()]
    if metric["value"] is None or len(ends) != 2 or None in ends:  # noqa: PLR2004
        return metric
    low, high = (percent(end) for end in ends if end is not None)
    return {**metric, "interval": ends, "detail": f"{low} to {high} (95%)"}


def describe_reward(source: _Plain | None, reasons: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the quality of the reward, or None if the run fitted none."""
    if source is None:
        return None
    keys = ("accuracy", "negative_log_likelihood", "calibration_slope")
    return {"metrics": [_with_error(_metric(source, key, reasons), source) for key in keys]}


def describe_policy(source: _Plain | None, reasons: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what the policy gains and how far it moved, or None if there is no policy."""
    if source is None:
        return None
    win = _with_interval(_metric(source, "win_rate", reasons), source.get("win_rate_interval"))
    return {"metrics": [win, *(_metric(source, key, reasons) for key in ("kl", "temperature"))]}


def describe_public(result: _Plain, reasons: Mapping[str, str]) -> dict[str, Any] | None:
    """Return metrics on public data and against a known truth, or None if there are neither."""
    public, truth = result.get("public_evaluation"), result.get("truth")
    if public is None and truth is None:
        return None
    keys = ("accuracy", "negative_log_likelihood", "win_rate")
    pairs = real("public_evaluation.pairs", (public or {}).get("pairs"))
    return {
        "pairs": None if pairs is None else f"{pairs:,.0f}",
        "metrics": [_metric(public, key, reasons) for key in keys] if public is not None else [],
        "truth": [_metric(truth, key, reasons) for key in ("kl_regret", "value", "best_value")]
        if truth is not None
        else [],
    }
