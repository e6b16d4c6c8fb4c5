"""What a curator added noise to, in plain words, and what it means for the numbers beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sordino.privacy.guarantee import Guarantee

from .wording import at_least, hides_texts, percent, plain, real, whole

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
_TILTED_RANKINGS = (
    "Weights under which the ballots are likely, after a random linear term was added to the loss: "
    "the objective is tilted, and so its minimum moves at random."
)
_TILT_NOISE = "Gaussian, of standard deviation {} in every coordinate of the tilt."
_RIDGE = "{}: part of the promise, chosen before any data were seen."
_RANKINGS = ("ranking-gaussian", "ranked-perturbation")
_SUMS = {
    "borda": "One sum of ranks over all ballots, with noise: how high every candidate was placed, "
    "added up.",
    "first-choice": "One sum of first choices over all ballots, with noise: what else a ballot "
    "says is not read.",
}
_BALLOT = "Is a whole ballot: its order, its ties, its length and whom it lists."
_SUM_OF_RANKINGS = "One sum over all ballots, with noise."
_OF_BALLOTS = "It is all that was read of them, so everything else is computed from it for free."
_UNSCORED = "Rankings are not scored here: nothing was measured, and no metric can be bought."
_FREE = (
    "Log loss and calibration slope come from the one noised sum that was released. It is split "
    "into two independent parts: a reward is fitted to one, and the other judges it. That costs no "
    "further privacy. Held-out accuracy and win rate are no function of that sum, and were not "
    "bought."
)
_UNREAD = (
    "The judgments were read in pieces, from many files, and nothing is measured on those for "
    "free: it would take very many more passes over them. A reward can be held against public "
    "judgments in memory."
)
_UNREAD_SHORT = "Nothing is free on files that are read in pieces."
_FOR_SALE = " --metrics-epsilon buys what held-out labels say."
_SOLD = ("accuracy", "negative_log_likelihood", "win_rate")


def describe_mechanism(result: _Plain, guarantee: Guarantee, *, counted: bool) -> _Rows | None:
    """Return what a curator released and how it is hidden, as names and sentences."""
    told = result.get("mechanism") or {}
    if result.get("noise") == "labels":
        return _coin_rows(told, guarantee)
    if result.get("noise") != "estimate":
        return None
    if told.get("name") == "label-gaussian":
        rows = _label_rows(told, simulated=guarantee.simulated)
    elif told.get("name") == "objective-perturbation":
        rows = _record_rows(told)
    elif told.get("name") == "ranking-gaussian":
        rows = _ranking_rows(told, simulated=guarantee.simulated)
    elif told.get("name") == "ranked-perturbation":
        rows = _ranked_rows(told)
    else:
        return None
    return [*rows, *_cost_rows(told, result.get("metrics"), counted=counted)]


def _coin_rows(told: _Plain, guarantee: Guarantee) -> _Rows | None:
    """Return what a promise to a whole person means for one of their labels; None for others."""
    label, flips = told.get("epsilon_per_label"), told.get("flip_probability")
    if guarantee.unit != "person" or not label or flips is None:
        return None
    most = round(guarantee.epsilon / label)
    return [
        ["One label", f"ε = {at_least(label)}: a coin turns {percent(flips)} of them around."],
        ["One person", f"At most {most:,} labels, ε = {at_least(guarantee.epsilon)} together."],
    ]


def is_of_rankings(result: _Plain) -> bool:
    """Return whether a run learned from rankings."""
    return (result.get("mechanism") or {}).get("name") in _RANKINGS


def _in_pieces(result: _Plain) -> bool:
    """Return whether judgments were read in pieces, from many files."""
    return (result.get("data") or {}).get("files") is not None


def _label_rows(told: _Plain, *, simulated: bool) -> _Rows:
    """Return the rows of one noised sum of labels."""
    return _sum_rows(told, _ONE_SUM, one="label", counted="records", simulated=simulated)


def _ranking_rows(told: _Plain, *, simulated: bool) -> _Rows:
    """Return the rows of one noised sum of rankings."""
    what = f"{_SUMS.get(str(told.get('statistic')), _SUM_OF_RANKINGS)} {_OF_BALLOTS}"
    rows = _sum_rows(told, what, one="ballot", counted="ballots", simulated=simulated)
    return [["A label here", _BALLOT], *rows]


def _sum_rows(told: _Plain, what: str, *, one: str, counted: str, simulated: bool) -> _Rows:
    """Return the rows of one noised sum, of whatever it is."""
    most = real("mechanism.records_per_person", told.get("records_per_person"))
    shape = (
        "It is shaped to the comparisons: less of it where they differ less."
        if told.get("shaped")
        else "It is the same in every direction."
    )
    if told.get("longest"):
        shape += " Comparisons of very different answers count less: noise must hide the largest."
    exact = (
        "" if simulated else f" It is drawn in exact whole numbers, so no rounding tells a {one}."
    )
    change = f"Changing one {one}" if most is None else f"Changing all {one}s of one person"
    cap = [] if most is None else [["Cap", f"At most {whole(most)} {counted} of a person count."]]
    return [
        ["What is released", what],
        ["Noise", f"Gaussian. {_moves(change, told.get('mu'))}{shape}{exact}"],
        *cap,
    ]


def _ranked_rows(told: _Plain) -> _Rows:
    """Return the rows of a minimizer of a tilted objective of rankings."""
    names = ("standard_deviation", "bound", "candidates", "ridge")
    noise, bound, candidates, ridge = (real(f"mechanism.{name}", told.get(name)) for name in names)
    rows = [
        ["What is released", _TILTED_RANKINGS],
        None if noise is None else ["Noise", _TILT_NOISE.format(plain(noise))],
        ["Bound", f"Features of a candidate that are longer than {plain(bound)} are shrunk to it."]
        if bound is not None
        else None,
        ["Candidates", f"At most {whole(candidates)} in one ballot: part of the promise."]
        if candidates is not None
        else None,
        None if ridge is None else ["Ridge", _RIDGE.format(plain(ridge))],
    ]
    return [row for row in rows if row is not None]


def _record_rows(told: _Plain) -> _Rows:
    """Return the rows of a minimizer whose objective was tilted."""
    names = ("standard_deviation", "bound", "ridge", "second_moment_mu")
    noise, bound, ridge, mu = (real(f"mechanism.{name}", told.get(name)) for name in names)
    rows = [
        ["What is released", _TILTED],
        None if noise is None else ["Noise", _TILT_NOISE.format(plain(noise))],
        ["Bound", f"A record of a length above {plain(bound)} is shrunk to that length."]
        if bound is not None
        else None,
        None if ridge is None else ["Ridge", _RIDGE.format(plain(ridge))],
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
    """Return where the metrics of a curator's run come from, and what they cost."""
    bought, records = result.get("metrics"), hides_texts(guarantee)
    if is_of_rankings(result):
        return _UNSCORED
    if _in_pieces(result) and bought is None:
        return _UNREAD + ("" if records else _FOR_SALE)
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
    if is_of_rankings(result):
        return dict.fromkeys((*_SOLD, "calibration_slope", "kl"), _UNSCORED)
    if _in_pieces(result) and not bought:
        why = _UNREAD_SHORT + ("" if hides_texts(guarantee) else _FOR_SALE)
        return dict.fromkeys((*_SOLD, "calibration_slope"), why)
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
