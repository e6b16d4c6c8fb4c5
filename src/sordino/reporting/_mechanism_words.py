"""What a curator added noise to, in plain words, and what it means for the numbers beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sordino.privacy.guarantee import Guarantee
from sordino.reporting._numbers import at_least, percent, plain, real, whole
from sordino.reporting.wording import hides_texts

__all__ = ["describe_mechanism", "describe_metrics", "explain_missing"]

_Plain = Mapping[str, Any]
_Rows = list[list[str]]

_NOT_FREE = "is no function of what was released; --metrics-epsilon buys it."
_PRIVATE = "Prompts, answers and labels are private, so every metric is a release:"
_ONE_SUM = (
    "One sum over all labels, with noise. A linear reward needs to know no more of them, so "
    "everything else is computed from it and costs nothing."
)
_TILTED = (
    "Weights that fit the records after a random linear term was added to the loss: the objective "
    "is tilted, and so its minimum moves at random."
)
_FREE = (
    "Log loss and calibration slope come from the one noised sum that was released. It is split "
    "into two independent parts: a reward is fitted to one, and the other judges it. That costs no "
    "further privacy. Held-out accuracy and win rate are no function of that sum, and were not "
    "bought."
)
_SOLD = ("accuracy", "negative_log_likelihood", "win_rate")


def describe_mechanism(result: _Plain, guarantee: Guarantee, *, counted: bool) -> _Rows | None:
    """Return what a curator released and how it is hidden, as names and sentences.

    Args:
        result: The run; only one of the central way has such rows.
        guarantee: What it promises.
        counted: Whether the number of records is public.

    Returns:
        None if the run does not say, or if it did something else.
    """
    told = result.get("mechanism") or {}
    if result.get("way") != "central":
        return None
    if told.get("name") == "label-gaussian":
        rows = _label_rows(told, simulated=guarantee.simulated)
    elif told.get("name") == "objective-perturbation":
        rows = _record_rows(told)
    else:
        return None
    return [*rows, *_cost_rows(told, result.get("metrics"), counted=counted)]


def _label_rows(told: _Plain, *, simulated: bool) -> _Rows:
    """Return the rows of one noised sum of labels."""
    most = real("mechanism.records_per_person", told.get("records_per_person"))
    shape = (
        "It is shaped to the comparisons: less of it where they differ less."
        if told.get("shaped")
        else "It is the same in every direction."
    )
    exact = (
        "" if simulated else " It is drawn in exact whole numbers, so no rounding tells a label."
    )
    change = "Changing one label" if most is None else "Changing all labels of one person"
    return [
        ["What is released", _ONE_SUM],
        ["Noise", f"Gaussian. {_moves(change, told.get('mu'))}{shape}{exact}"],
        *([] if most is None else [["Cap", f"At most {whole(most)} records of a person count."]]),
    ]


def _record_rows(told: _Plain) -> _Rows:
    """Return the rows of a minimizer whose objective was tilted."""
    names = ("standard_deviation", "bound", "ridge", "second_moment_mu")
    noise, bound, ridge, mu = (real(f"mechanism.{name}", told.get(name)) for name in names)
    rows = [
        ["What is released", _TILTED],
        [
            "Noise",
            f"Gaussian, of standard deviation {plain(noise)} in every coordinate of the tilt.",
        ]
        if noise is not None
        else None,
        ["Bound", f"A record of a length above {plain(bound)} is shrunk to that length."]
        if bound is not None
        else None,
        ["Ridge", f"{plain(ridge)}: part of the promise, chosen before any data were seen."]
        if ridge is not None
        else None,
        [
            "Second moment",
            f"Released too, for confidence sets. {_moves('One record more or less', mu).strip()}",
        ]
        if told.get("second_moment")
        else None,
    ]
    return [row for row in rows if row is not None]


def _moves(change: str, mu: Any) -> str:
    """Return how far one change moves a release, in units of its noise."""
    size = real("mechanism.mu", mu)
    if size is None:
        return ""
    return f"{change} moves it by at most {at_least(size)} of its standard deviation. "


def _pair(told: _Plain) -> str:
    """Return ε and δ in one phrase; what is not told stays a question mark."""
    epsilon, delta = (real(name, told.get(name)) for name in ("epsilon", "delta"))
    sizes = ("?" if size is None else at_least(size) for size in (epsilon, delta))
    return "ε = {}, δ = {}".format(*sizes)


def _cost_rows(told: _Plain, bought: _Plain | None, *, counted: bool) -> _Rows:
    """Return what the reward and its metrics cost, each by itself, if metrics were bought."""
    if bought is None:
        return []
    kept = f"{_held_out(bought, counted=counted)} were kept from the fit"
    return [
        ["Reward alone", f"{_pair(told)}."],
        ["Metrics alone", f"{_pair(bought)}: {kept}, and metrics read those alone."],
    ]


def _held_out(told: _Plain, *, counted: bool) -> str:
    """Return which part of the data was held out to be measured on."""
    share, pairs = (real(f"metrics.{name}", told.get(name)) for name in ("share", "pairs"))
    of = "some questions" if share is None else f"{percent(share, 0)} of the questions"
    return of + (f" ({whole(pairs)} pairs)" if counted and pairs is not None else "")


def describe_metrics(result: _Plain, guarantee: Guarantee, *, counted: bool) -> str:
    """Return where the metrics of a curator's run come from, and what they cost.

    Args:
        result: The run.
        guarantee: What it promises.
        counted: Whether the number of records is public.
    """
    bought, records = result.get("metrics"), hides_texts(guarantee)
    if bought is None:
        return "No metric was bought, and none is free." if records else _FREE
    what = "All but the calibration slope was" if records else "Every metric below was"
    return (
        f"{what} bought: {_held_out(bought, counted=counted)} were kept from the fit, and one "
        f"noised sum over them was released, at {_pair(bought)}. The promise above counts it in."
    )


def explain_missing(result: _Plain, guarantee: Guarantee) -> dict[str, str]:
    """Return why a metric of a curator's run is null, by its key."""
    bought = result.get("metrics") is not None
    if not hides_texts(guarantee):
        slope = {"calibration_slope": "No finite slope fits what was released."}
        unbought = {
            "accuracy": f"Held-out accuracy {_NOT_FREE}",
            "win_rate": f"The win rate {_NOT_FREE}",
        }
        return slope if bought else slope | unbought
    sold = (
        "It was bought, and too few records are held out for it to stand out from the noise."
        if bought
        else f"{_PRIVATE} --metrics-epsilon buys it, or --evaluate a public file."
    )
    return dict.fromkeys(_SOLD, sold) | {
        "calibration_slope": f"{_PRIVATE} this one cannot be bought.",
        "kl": "It depends on prompts and answers, which are private.",
    }
