"""What a curator added noise to, in plain words, and what it means for the numbers beside it."""

from __future__ import annotations

from collections.abc import Mapping

from sordino.mechanisms.catalogue import CURATOR_MECHANISMS, hides_ballots, is_noised_sum
from sordino.privacy.guarantee import Guarantee

from .wording import (
    Json,
    NumberRows,
    Rows,
    at_least,
    hides_counts,
    hides_texts,
    number_rows,
    pair_text,
    percent,
    plain,
    real,
    whole,
)

_ONE_SUM = (
    "One sum over all labels, with noise. A linear reward needs to know no more of them, so "
    "everything else is computed from it and costs nothing."
)
_SUMS_OF_BALLOTS = {
    "borda": "One sum of ranks over all ballots, with noise: how high every candidate was placed, "
    "added up.",
    "first-choice": "One sum of first choices over all ballots, with noise: what else a ballot "
    "says is not read.",
}
_OF_BALLOTS = "It is all that was read of them, so everything else is computed from it for free."
_BALLOT = "Is a whole ballot: its order, its ties, its length and whom it lists."
_NOISE = "Gaussian, of standard deviation {} in every coordinate of the tilt."
_RIDGE = "{}: part of the promise, chosen before any data were seen."
_MOVES = (
    "after a random linear term was added to the loss: the objective is tilted, and so its minimum "
    "moves at random."
)
_TILTED: Mapping[str, tuple[str, NumberRows]] = {
    "objective-perturbation": (
        "Weights that fit the records",
        (
            ("Noise", "standard_deviation", plain, _NOISE),
            ("Bound", "bound", plain, "A record of a length above {} is shrunk to that length."),
            ("Ridge", "ridge", plain, _RIDGE),
        ),
    ),
    "ranked-perturbation": (
        "Weights under which the ballots are likely,",
        (
            ("Noise", "standard_deviation", plain, _NOISE),
            (
                "Bound",
                "bound",
                plain,
                "Features of a candidate that are longer than {} are shrunk to it.",
            ),
            ("Candidates", "candidates", whole, "At most {} in one ballot: part of the promise."),
            ("Ridge", "ridge", plain, _RIDGE),
        ),
    ),
}
_NOT_FREE = "is no function of what was released; --metrics-epsilon buys it."
_PRIVATE = "Prompts, answers and labels are private, so every metric is a release:"
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


def is_of_rankings(result: Json) -> bool:
    """Return whether a run learned from rankings."""
    return hides_ballots((result.get("mechanism") or {}).get("name"))


def describe_mechanism(result: Json, guarantee: Guarantee) -> Rows | None:
    """Return what a curator released and how it is hidden, as names and sentences."""
    told, bought = result.get("mechanism") or {}, result.get("metrics")
    name = str(told.get("name"))
    if result.get("noise") == "labels":
        return _coin_rows(told, guarantee)
    if result.get("noise") != "estimate":
        return None
    if name in _TILTED:
        what, numbers = _TILTED[name]
        rows = [["What is released", f"{what} {_MOVES}"], *number_rows(numbers, told, "mechanism")]
        if told.get("second_moment"):
            moves = _moves("One record more or less", told.get("second_moment_mu")).strip()
            rows.append(["Second moment", f"Released too, for confidence sets. {moves}"])
    elif is_noised_sum(name) and not hides_ballots(name):
        rows = [["What is released", _ONE_SUM], *_sum_rows(told, guarantee, "label", "records")]
    elif is_noised_sum(name):
        known = _SUMS_OF_BALLOTS.get(str(told.get("statistic")))
        what = f"{known or 'One sum over all ballots, with noise.'} {_OF_BALLOTS}"
        rows = [["A label here", _BALLOT], ["What is released", what]]
        rows += _sum_rows(told, guarantee, "ballot", "ballots")
    else:
        return None
    if bought is not None:
        kept = f"{_held_out(bought, guarantee)} were kept from the fit"
        rows += [
            ["Reward alone", f"{_price(told)}."],
            ["Metrics alone", f"{_price(bought)}: {kept}, and metrics read those alone."],
        ]
    return rows


def _coin_rows(told: Json, guarantee: Guarantee) -> Rows | None:
    """Return what a promise to a whole person means for one of their labels; None for others."""
    label, flips = told.get("epsilon_per_label"), told.get("flip_probability")
    if guarantee.unit != "person" or not label or flips is None:
        return None
    most = round(guarantee.epsilon / label)
    return [
        ["One label", f"ε = {at_least(label)}: a coin turns {percent(flips)} of them around."],
        ["One person", f"At most {most:,} labels, ε = {at_least(guarantee.epsilon)} together."],
    ]


def _sum_rows(told: Json, guarantee: Guarantee, one: str, counted: str) -> Rows:
    """Return the noise of one sum, and how much of it is of one person."""
    most = real("mechanism.records_per_person", told.get("records_per_person"))
    change = f"Changing one {one}" if most is None else f"Changing all {one}s of one person"
    shape = "It is the same in every direction."
    if told.get("shaped"):
        shape = "It is shaped to the comparisons: less of it where they differ less."
    if told.get("longest"):
        shape += " Comparisons of very different answers count less: noise must hide the largest."
    if not guarantee.simulated:
        shape += f" It is drawn in exact whole numbers, so no rounding tells a {one}."
    noise = CURATOR_MECHANISMS[str(told.get("name"))].noise
    rows = [["Noise", f"{noise}. {_moves(change, told.get('mu'))}{shape}"]]
    cap = [] if most is None else [["Cap", f"At most {whole(most)} {counted} of a person count."]]
    return rows + cap


def _moves(change: str, mu: object) -> str:
    """Return how far one change moves a release, in units of its noise."""
    size = real("mechanism.mu", mu)
    if size is None:
        return ""
    return f"{change} moves it by at most {at_least(size)} of its standard deviation. "


def _price(told: Json) -> str:
    """Return ε and δ of a part in one phrase."""
    return pair_text(real("epsilon", told.get("epsilon")), real("delta", told.get("delta")))


def _held_out(told: Json, guarantee: Guarantee) -> str:
    """Return which part of the data was held out to be measured on."""
    share, pairs = (real(f"metrics.{name}", told.get(name)) for name in ("share", "pairs"))
    of = "some questions" if share is None else f"{percent(share, 0)} of the questions"
    if pairs is None or hides_counts(guarantee):
        return of
    return f"{of} ({whole(pairs)} pairs)"


def describe_metrics(result: Json, guarantee: Guarantee) -> str:
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
        f"{what} bought: {_held_out(bought, guarantee)} were kept from the fit, and one "
        f"noised sum over them was released, at {_price(bought)}. The promise above counts it in."
    )


def _in_pieces(result: Json) -> bool:
    """Return whether judgments were read in pieces, from many files."""
    return (result.get("data") or {}).get("files") is not None


def explain_missing(result: Json, guarantee: Guarantee) -> dict[str, str]:
    """Return why a metric of a curator's run is null, by its key."""
    bought, records = result.get("metrics") is not None, hides_texts(guarantee)
    slope = ("calibration_slope",)
    if is_of_rankings(result):
        return dict.fromkeys((*_SOLD, *slope, "kl"), _UNSCORED)
    if _in_pieces(result) and not bought:
        return dict.fromkeys((*_SOLD, *slope), _UNREAD_SHORT + ("" if records else _FOR_SALE))
    if not records:
        told = dict.fromkeys(slope, "No finite slope fits what was released.")
        return (
            told
            if bought
            else told
            | {
                "accuracy": f"Held-out accuracy {_NOT_FREE}",
                "win_rate": f"The win rate {_NOT_FREE}",
            }
        )
    sold = (
        "It was bought, and too few records are held out for it to stand out from the noise."
        if bought
        else f"{_PRIVATE} --metrics-epsilon buys it, or --evaluate a public file."
    )
    return dict.fromkeys(_SOLD, sold) | {
        "calibration_slope": f"{_PRIVATE} this one cannot be bought.",
        "kl": "It depends on prompts and answers, which are private.",
    }
