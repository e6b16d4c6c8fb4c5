"""What a report says, as one plain dict: promise, spend, quality, caveats, provenance.

Everything in it was already released; building it reads no raw judgment and spends nothing.

How a reward was fitted, what decides in it, and what a policy makes of its uncertainty.

Who is ahead: the worth of every item that people ranked, and how settled the order is.

How good the result is: metrics with their intervals, or the reason why there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from sordino import _validate
from sordino._version import __version__
from sordino.auditing.findings import Audit
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.privacy.guarantee import CAVEATS, DECLARED_DISJOINT

from .audits import describe_audits
from .mechanism_words import describe_mechanism, describe_metrics, explain_missing, is_of_rankings
from .prediction import describe_prediction
from .wording import (
    METRICS_NOTES,
    NOISE_TEXTS,
    SIMULATED,
    at_least,
    at_most,
    describe_guarantee,
    describe_ledger,
    hides_texts,
    percent,
    plain,
    read_guarantee,
    real,
    whole,
)

_Plain = Mapping[str, Any]
_Rows = list[list[str]]

_METHODS = {
    "debiased": "Debiased logistic regression: every randomized answer is corrected for its "
    "known chance of having been flipped, so that the fit is right on average.",
    "mixture": "Debiased logistic regression, then refined by the likelihood of the randomized "
    "answers themselves, which makes more of the same answers where rewards are large.",
    "label-gaussian": "Logistic regression in which one noised sum stands for all labels, which "
    "is right on average.",
    "objective-perturbation": "Logistic regression with a random linear term in its loss; little "
    "noise on the weights then hides that the minimum was found to some tolerance only.",
    "ranking-gaussian": "The likelihood of choices, in which one noised sum stands for all "
    "ballots, which is right on average.",
    "randomized-choice": "The likelihood of choices; randomized first choices are corrected for "
    "their known chance of having been replaced.",
    "plackett-luce": "The likelihood of rankings (Plackett–Luce), with no noise at all.",
    "ranked-perturbation": "The likelihood of rankings (Plackett–Luce) with a random linear term "
    "in its loss; little noise on the weights then hides that the minimum was found to some "
    "tolerance only.",
}
_AUTO = {
    "debiased": "Automatically: refining the fit did not promise a clearly smaller error. The "
    "choice read randomized answers only, so it cost nothing.",
    "mixture": "Automatically: refining the fit promised a clearly smaller error. The choice "
    "read randomized answers only, so it cost nothing.",
}
_KINDS = {
    "pessimistic": "Pessimistic: every answer is rated down by as much as its reward may be "
    "wrong, so it prefers answers like those the reference gives wherever the comparisons say "
    "little.",
    "optimistic": "Optimistic: every answer is rated up by as much as its reward may be wrong, "
    "so the policy explores wherever the comparisons say little.",
}
_ORIGINS = {
    "public": "the file that the user declared public",
    "released": "an answer file that had been released before this run",
    "comparisons": "the texts of this data set, which the promise treats as public",
}
_SHOWABLE = ("public", "released")
_ADDRESS = "://"
_TINY = 0.001  # chances below it, and above its complement, are not written out


def describe_fit(reward: _Plain | None) -> _Rows | None:
    """Return how the reward was fitted, as names and sentences; None if it is not told."""
    method = str((reward or {}).get("method") or "")
    if reward is None or not method:
        return None
    rows = [["Likelihood", _METHODS.get(method, method)]]
    asked = reward.get("method_asked")
    if asked == "auto" and method in _AUTO:
        rows.append(["Chosen", _AUTO[method]])
    elif asked not in (None, "auto"):
        rows.append(["Chosen", "By the user."])
    if "weight_standard_error" in reward:
        rows.append(["Standard errors", _error(reward["weight_standard_error"], method)])
    return rows


def _error(value: Any, method: str) -> str:
    """Return how well a weight is known."""
    error = real("reward.weight_standard_error", value)
    if error is None and method == "objective-perturbation":
        return "Not available: prompts and answers are private, and would decide them."
    if error is None and method == "ranked-perturbation":
        return "Not available: ballots are private, and would decide them."
    if error is None:
        return "Not available: they are made for up to 1,024 features."
    noise = "noise" if method.endswith("-gaussian") else "randomization"
    what = "ballots" if method == "ranking-gaussian" else "pairs"
    return (
        f"Half of the weights have one below {plain(error)} (approximate, for many {what}; the "
        f"{noise} is counted in)."
    )


def describe_decisive(source: _Plain | None, *, texts_are_public: bool) -> dict[str, Any] | None:
    """Return the most decisive features, or None if there are none."""
    if source is None:
        return None
    origin = _origin("decisive", source.get("source"), tuple(_ORIGINS))
    if origin == "comparisons" and not texts_are_public:
        raise PrivacyError(
            "decisive.source is 'comparisons', but the promise covers the texts, so their spread "
            "may not be shown. No report was made. Take the spread of public pairs."
        )
    rows = [row for row in map(_feature, source.get("rows") or ()) if row]
    total = real("decisive.features", source.get("features"))
    if not rows:
        return None
    return {
        "rows": rows,
        "origin": _ORIGINS[origin],
        "total": None if total is None else f"{total:,.0f}",
        "groups": any(row["name"].startswith("word group ") for row in rows),
    }


def _origin(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Return where texts come from; refuse what is not known to be allowed."""
    if value not in known:
        raise DataError(
            f"{name}.source must be one of {', '.join(map(repr, known))}: texts of unknown origin "
            "are not used. No report was made."
        )
    return str(value)


def _feature(row: _Plain) -> dict[str, Any] | None:
    """Return one feature with its texts, or None if its effect is missing."""
    weight, effect = (real(f"decisive.{key}", row.get(key)) for key in ("weight", "effect"))
    if effect is None:
        return None
    return {
        "name": str(row.get("name") or "unnamed"),
        "weight_text": "—" if weight is None else _signed(weight),
        "effect": effect,
        "effect_text": _signed(effect),
    }


def _signed(value: float) -> str:
    """Return a number with its sign, in two digits that count."""
    return f"{'+' if value > 0 else ''}{plain(value, 2)}"


def describe_examples(source: _Plain | None) -> dict[str, Any] | None:
    """Return examples and where their texts come from, or None if there are none."""
    if source is None or not source.get("rows"):
        return None
    origin = _origin("examples", source.get("source"), _SHOWABLE)
    rows = [_example(row) for row in source["rows"]]
    shown = [row for row in rows if row]
    return {"rows": shown, "origin": _ORIGINS[origin]} if shown else None


def _example(row: _Plain) -> dict[str, Any] | None:
    """Return one example, or None if it holds an address or lacks a number."""
    answers = [_answer(answer) for answer in row["answers"]]
    texts = [str(row["prompt"]), *(str(answer["text"]) for answer in row["answers"])]
    if None in answers or any(_ADDRESS in text for text in texts):
        return None
    return {"prompt": texts[0], "answers": answers}


def _answer(answer: _Plain) -> dict[str, Any] | None:
    """Return one answer and its probabilities, or None if one is missing."""
    before = real("examples.reference", answer.get("reference"))
    after = real("examples.policy", answer.get("policy"))
    if before is None or after is None:
        return None
    return {
        "text": str(answer["text"]),
        "reference": before,
        "reference_text": _chance(before),
        "policy": after,
        "policy_text": _chance(after),
    }


def _chance(value: float) -> str:
    """Return a probability as a percentage that says 0 or 100 only where it is."""
    if 0 < value < _TINY:
        return f"under {percent(_TINY)}"
    return f"over {percent(1 - _TINY)}" if 1 - _TINY < value < 1 else percent(value)


def describe_confidence(source: _Plain | None) -> dict[str, Any] | None:
    """Return what a policy makes of the reward's uncertainty, as names and sentences."""
    if source is None:
        return None
    keys = ("confidence", "scale", "radius", "mean_uncertainty", "max_density_ratio")
    given = {key: real(f"pessimism.{key}", source.get(key)) for key in keys}
    scale = given["scale"]
    heuristic = bool(source.get("heuristic")) or (scale is not None and scale < 1)
    kind = str(source.get("kind") or "")
    rows = [
        ["Kind", _KINDS.get(kind, kind)] if kind else None,
        _validity(given, heuristic=heuristic),
    ]
    rows += [_radius(given["radius"]), _uncertainty(given["mean_uncertainty"])]
    rows += [_ratio(given["max_density_ratio"])]
    return {"heuristic": heuristic, "rows": [row for row in rows if row is not None]}


def _validity(given: Mapping[str, float | None], *, heuristic: bool) -> list[str] | None:
    """Return what is proved of the bonus."""
    level, scale = given["confidence"], given["scale"]
    if level is None:
        return None
    share = f"{at_most(float(Decimal(repr(level)) * 100), 6)}%"
    factor = "smaller than" if scale is None else f"{at_most(scale)} times"
    told = (
        f"Heuristic, nothing is proved: the bonus is {factor} the one that holds with {share} "
        "confidence. Smaller often works better."
        if heuristic
        else f"{share}: at least that often the true reward is among those considered, provided "
        "that it is linear in the features. The proof is conservative."
    )
    return ["Confidence", told]


def _radius(value: float | None) -> list[str] | None:
    """Return the size of the confidence set."""
    if value is None:
        return None
    return ["Radius", f"{at_least(value)}: what the width of an answer is multiplied by."]


def _uncertainty(value: float | None) -> list[str] | None:
    """Return how well the comparisons cover the policy."""
    if value is None:
        return None
    told = (
        f"{plain(value)} on average: about the number of directions that matter where the "
        "comparisons cover what the policy does, much larger where it acts on what nobody "
        "compared."
    )
    return ["Coverage", told]


def _ratio(value: float | None) -> list[str] | None:
    """Return how far a single answer was moved."""
    if value is None:
        return None
    return [
        "Largest shift",
        f"No answer became more than {at_least(value)} times as likely as under the reference.",
    ]


_AT_ONCE = 20  # items before the others are folded away
_NAMED = 3  # of those whose order is open
_EDGE = 3.0  # percent of a chart left free at each end
_TIGHT = 4  # a text beside zero takes up to this part of the axis
_SHORT = (
    "A ballot need not list all that it was offered: what it leaves out counts as tied for its "
    "last place. Not to know an item and to rank it last look alike, so short ballots shrink the "
    "worths by an unknown part, and no interval could be relied on."
)
_UNKNOWN = (
    "No intervals are known: ballots are private, and would decide them. How much of the order is "
    "settled cannot be said."
)
_NO_ERRORS = (
    "No intervals are known: there are too few ballots for this epsilon, or it is private whether "
    "they are complete. How much of the order is settled cannot be said."
)
_APPROXIMATE = (
    "Each 95% interval holds for one item by itself. The noise is counted in, and that the "
    "estimate is drawn towards the mean; worths are taken to be of size 3 or less, as a standard "
    "deviation."
)


def describe_items(result: _Plain, *, records: bool) -> dict[str, Any] | None:
    """Return what everybody ranked, the best first, or None if there is nothing of the kind."""
    chances = _chances(result.get("policy"))
    items = result.get("items") or ()
    rows = [row for item in items if (row := _row(item, chances))]
    if not rows:
        return None
    unknown = [str(item.get("name") or "unnamed") for item in items if item.get("worth") is None]
    known = all(row["ends"] for row in rows)
    groups = _grouped(rows) if known else [rows]
    for group in groups[1:]:
        group[0]["divided"] = True
    name = (result.get("mechanism") or {}).get("name")
    return {
        "rows": rows,
        "notes": [
            *([_order(groups), _APPROXIMATE] if known else [_UNKNOWN if records else _NO_ERRORS]),
            *([_SHORT] if name == "ranking-gaussian" and _may_be_short(result) else []),
            *([_no_data(unknown)] if unknown else []),
        ],
        "intervals": known,
        "choices": bool(chances),
        "groups": len(groups) > 1,
        "count": whole(len(rows)),
    }


def _may_be_short(result: _Plain) -> bool:
    """Return whether ballots may leave out what they were offered, as far as is public."""
    return "named-offered" not in (result.get("caveats") or ())


def _no_data(names: Sequence[str]) -> str:
    """Return that nothing is known of items that no ballot was offered."""
    more = len(names) - _AT_ONCE
    shown = [*names[:_AT_ONCE], *([f"{whole(more)} more"] if more > 0 else [])]
    return f"No data, because no ballot was offered it: {_listed(shown)}."


def _chances(policy: _Plain | None) -> dict[str, float]:
    """Return how likely a policy picks each item, as far as it is told."""
    told = {
        str(row.get("name")): real("choices.probability", row.get("probability"))
        for row in (policy or {}).get("choices") or ()
    }
    return {name: chance for name, chance in told.items() if chance is not None}


def _row(item: _Plain, chances: Mapping[str, float]) -> dict[str, Any] | None:
    """Return one item with its texts, or None if its worth is missing."""
    worth = real("items.worth", item.get("worth"))
    if worth is None:
        return None
    low, high = (real("items.interval", end) for end in item.get("interval") or (None, None))
    ends = None if low is None or high is None else [low, high]
    chance = chances.get(str(item.get("name")))
    return {
        "name": str(item.get("name") or "unnamed"),
        "worth": worth,
        "text": _signed_worth(worth),
        "ends": ends,
        "interval": "—"
        if ends is None
        else f"{_signed_worth(ends[0])} to {_signed_worth(ends[1])}",
        "chance": "—" if chance is None else percent(chance),
        "divided": False,
    }


def _signed_worth(value: float) -> str:
    """Return a worth with its sign, in two decimals; what rounds to nothing has a plus."""
    return f"{value:+.2f}".replace("-0.00", "+0.00").replace("-", "−")


def _listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _grouped(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the rows in groups: no interval of a group overlaps one of a later group."""
    lowest = accumulate((row["ends"][0] for row in rows), min)
    highest = [*accumulate((row["ends"][1] for row in reversed(rows)), max)][::-1]
    groups = [[rows[0]]]
    for row, above, below in zip(rows[1:], lowest, highest[1:], strict=False):
        if below < above:
            groups.append([])
        groups[-1].append(row)
    return groups


def _order(groups: Sequence[Sequence[_Plain]]) -> str:
    """Return how much of the order is settled."""
    first, *others = groups[0]
    near = [row["name"] for row in others if row["ends"][1] >= first["ends"][0]]
    more = len(near) - _NAMED
    names = [*near[:_NAMED], *([f"{whole(more)} more"] if more > 0 else [])]
    told = (
        f"It is not settled who is ahead: the interval of {first['name']} overlaps that of "
        f"{_listed(names)}."
        if near
        else f"{first['name']} is ahead: no other interval reaches up to this one's."
    )
    line = " Across a heavy line none overlap." if len(groups) > 1 else ""
    return f"{told} Where intervals overlap, the order of these is not settled.{line}"


def item_values(items: _Plain) -> dict[str, Any]:
    """Return what the template needs to draw the interval of every item on one common axis."""
    rows = items["rows"]
    ends = [end for row in rows for end in (row["worth"], *(row["ends"] or ()), 0.0)]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0

    def at(value: float) -> str:
        return f"{_EDGE + (100 - 2 * _EDGE) * (value - low) / span:.2f}%"

    drawn = [
        {**row, "x": at(row["worth"]), "range": row["ends"] and [at(end) for end in row["ends"]]}
        for row in rows
    ]
    return {
        "zero": at(0.0),
        "low": at(low),
        "low_text": _signed_worth(low) if low < -span / _TIGHT else "",
        "high": at(high),
        "high_text": _signed_worth(high) if high > span / _TIGHT else "",
        "first": drawn[:_AT_ONCE],
        "others": drawn[_AT_ONCE:],
    }


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


# of a 95% interval

_DUST = 1e-9  # share of a budget that rounding leaves


def calibration_bins(
    differences: Float[np.ndarray, " n"],
    targets: Shaped[np.ndarray, " n"],
    flip_probability: float,
    bins: int = 10,
) -> list[dict[str, Any]]:
    """Return how often the first answer won, next to how often it was predicted to win."""
    # Pairs are grouped by quantiles of the predicted probability σ(difference); equal predictions
    # share a group, whatever their order. In each group the randomized answers are debiased, ỹ =
    # (answer - flip) / (1 - 2 flip), so that the mean estimates the share of true labels without
    # bias; it may lie outside [0, 1]. The bins use nothing but randomized answers and public
    # inputs, so they spend nothing.
    # Source: Debiased answers: docs/local.md; Warner 1965. Intervals: Wilson 1927.
    differences = _validate.finite_array("differences", differences, ndim=1)
    targets = _checked_targets(targets, len(differences))
    flip = _validate.non_negative("flip_probability", flip_probability)
    if not flip < 0.5:  # noqa: PLR2004
        raise UsageError(f"flip_probability must be in [0, 0.5), got {flip_probability!r}.")
    count = _validate.integer("bins", bins, at_least=1)
    predicted = 0.5 * (1 + np.tanh(0.5 * differences))
    last = -(-len(differences) * np.arange(1, count) // count) - 1  # exact, unlike a float share
    edges = np.unique(np.sort(differences)[last])
    group = np.searchsorted(edges, differences, side="left")
    return [
        _bin(predicted[group == index], targets[group == index], flip) for index in np.unique(group)
    ]


def _checked_targets(targets: Any, n: int) -> np.ndarray:
    """Return the answers as an array of zeros and ones, one for each difference."""
    array = _validate.finite_array("targets", targets, ndim=1)
    if n == 0 or len(array) != n:
        raise DataError(
            f"targets must have one entry for each difference and at least one: got shapes "
            f"{array.shape} and ({n},)."
        )
    wrong = np.flatnonzero((array != 0) & (array != 1))
    if wrong.size:
        raise DataError(f"targets must be 0 or 1: row {int(wrong[0])} is neither.")
    return array


def _bin(predicted: np.ndarray, targets: np.ndarray, flip: float) -> dict[str, Any]:
    """Return one group of :func:`calibration_bins`."""
    pairs, share = len(targets), float(np.mean(targets))
    center = (share + _Z**2 / (2 * pairs)) / (1 + _Z**2 / pairs)
    half = math.sqrt(share * (1 - share) / pairs + (_Z / (2 * pairs)) ** 2)
    half *= _Z / (1 + _Z**2 / pairs)
    observed, low, high = (
        (value - flip) / (1 - 2 * flip) for value in (share, center - half, center + half)
    )
    return {
        "predicted": float(np.mean(predicted)),
        "observed": observed,
        "low": low,
        "high": high,
        "pairs": pairs,
    }


def summarize(
    result: _Plain,
    *,
    calibration: Sequence[_Plain] = (),
    ledger: _Plain | None = None,
    caveat_texts: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
    reasons: Mapping[str, str] | None = None,
    title: str | None = None,
    audits: Audit | Sequence[Audit] = (),
) -> dict[str, Any]:
    """Return everything that the report page says, as one JSON-like dict."""
    names = tuple(result.get("caveats") or ())
    guarantee = read_guarantee("result.guarantee", result.get("guarantee"), names)
    words = describe_guarantee(guarantee)
    counted = guarantee.neighbors.name != "ADD_OR_REMOVE_ONE"  # else the number is a secret
    spend = _spend(ledger, counted=counted) if ledger else None
    pairs_text, ballots_text = (
        _count(result, name) if counted else None for name in ("pairs", "ballots")
    )
    data = str(ledger["data"]) if ledger and ledger.get("data") is not None else None
    simulated = guarantee.simulated or "simulated" in names or bool(spend and spend["simulated"])
    noise = str(result.get("noise") or "")
    texts = {**CAVEATS, **(caveat_texts or {})}
    central = noise == "estimate"
    reasons = {**(explain_missing(result, guarantee) if central else {}), **(reasons or {})}
    reward = describe_reward(result.get("reward"), reasons)
    accuracy = reward["metrics"][0] if reward else None
    tried = describe_audits(audits)
    refuted = any(audit["refuted"] for audit in tried)
    return {
        "format": "sordino.summary",
        "version": 1,
        "title": title or (f"Privacy report: {data}" if data else "Privacy report"),
        "statement": _statement(
            result, words, _source(pairs_text, ballots_text), simulated=simulated, refuted=refuted
        ),
        "simulated": simulated,
        "simulated_text": SIMULATED,
        "data": data,
        "pairs": pairs_text,
        "ballots": ballots_text,
        "rankings": is_of_rankings(result),
        "worths": describe_items(result, records=hides_texts(guarantee)),
        "noise": noise,
        "noise_text": NOISE_TEXTS.get(noise, ""),
        "guarantee": words,
        "mechanism": describe_mechanism(result, guarantee, counted=counted),
        "spend": spend,
        "metrics_note": describe_metrics(result, guarantee, counted=counted)
        if central
        else METRICS_NOTES["labels" if noise == "labels" else "other"],
        "reward": reward,
        "fit": describe_fit(result.get("reward")),
        "calibration": _calibration(calibration, counted=counted),
        "prediction": describe_prediction(result.get("utility"), accuracy, pairs=pairs_text),
        "decisive": describe_decisive(
            result.get("decisive"), texts_are_public=not hides_texts(guarantee)
        ),
        "policy": describe_policy(result.get("policy"), reasons),
        "confidence": describe_confidence(_distrust(result.get("policy"))),
        "examples": describe_examples(result.get("examples")),
        "public": describe_public(result, reasons),
        "caveats": [
            _caveat(name, texts)
            for name in _caveat_names([*names, *_declared(ledger)], simulated=simulated)
        ],
        "provenance": _provenance(result, versions or {"sordino": __version__}, counted=counted),
        **({"audits": tried} if tried else {}),
    }


def _spend(ledger: _Plain, *, counted: bool) -> dict[str, Any]:
    """Return what was spent; no times of day where they would tell how many records there are."""
    told = describe_ledger(ledger)
    # all of it: no dust, and one number in one way
    if (told["share"] or 0) > 1 - _DUST and not told["over"]:
        told |= {"remaining_text": "0", "budget_epsilon_text": told["spent_text"]}
    if not counted:
        days = [{**entry, "time": entry["time"].partition(" ")[0]} for entry in told["entries"]]
        told["entries"] = days
    return told


def _distrust(policy: _Plain | None) -> _Plain | None:
    """Return what a policy makes of uncertainty; its settings alone where texts are private."""
    if policy is None or policy.get("pessimism") is not None:
        return (policy or {}).get("pessimism")
    return policy if policy.get("confidence") is not None else None


def _count(result: _Plain, name: str) -> str | None:
    """Return how many pairs or ballots there are, if it is told."""
    count = real(f"data.{name}", (result.get("data") or {}).get(name))
    return None if count is None else whole(count)


def _source(pairs: str | None, ballots: str | None) -> str:
    """Return what was learned from."""
    if ballots is not None:
        return f"{ballots} ballots"
    return "human judgments" if pairs is None else f"{pairs} pairs"


def _statement(
    result: _Plain, words: _Plain, source: str, *, simulated: bool, refuted: bool
) -> str:
    """Return the page in one line: what was learned, and what it can reveal."""
    parts = (("reward", "a reward model"), ("policy", "a policy"))
    learned = " and ".join(text for key, text in parts if result.get(key) is not None)
    opening = f"Learned from {source}: {learned}. " if learned else ""
    if not words["promise"]:
        return f"{opening}No promise is made about any judgment in the data."
    aside = "" if words["delta"] == 0 else f", apart from δ = {words['delta_text']}"
    nobody, can = ("Were the randomness real, nobody", "could") if simulated else ("Nobody", "can")
    if refuted:
        nobody = f"Claimed, and refuted by an audit: {nobody[0].lower()}{nobody[1:]}"
    return (
        f"{opening}{nobody} who sees what was released {can} shift the odds "
        f"{words['question']} by more than a factor of {words['factor_text']}{aside}."
    )


def _calibration(bins: Iterable[_Plain], *, counted: bool) -> list[dict[str, Any]]:
    """Return the bins whose numbers are all there, counts hidden where they are a secret."""
    keys = ("predicted", "observed", "low", "high")
    rows = []
    for row in bins:
        values = {key: real(f"calibration.{key}", row.get(key)) for key in keys}
        if None not in values.values():
            pairs = real("calibration.pairs", row.get("pairs")) if counted else None
            rows.append({**values, "pairs": pairs})
    return rows


def _caveat_names(names: Iterable[str], *, simulated: bool) -> list[str]:
    """Return the caveats in order, once each, with ``simulated`` first if it holds."""
    ordered = [str(name) for name in names]
    return list(dict.fromkeys(["simulated", *ordered] if simulated else ordered))


def _declared(ledger: Mapping[str, Any] | None) -> list[str]:
    """Return the caveat that the total of a ledger rests on a declaration, if it does."""
    told = ((ledger or {}).get("budget") or {}).get("caveats") or ()
    return [name for name in told if name == DECLARED_DISJOINT]


def _caveat(name: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return a caveat with its sentence."""
    return {"name": name, "text": texts.get(name, "No sentence is on file for this caveat.")}


def _provenance(result: _Plain, versions: Mapping[str, str], *, counted: bool) -> dict[str, Any]:
    """Return what a reader needs to check the run or to repeat it; a time tells a size."""
    reward, policy = result.get("reward") or {}, result.get("policy") or {}
    settings = {
        "noise": result.get("noise"),
        **{
            f"features {key}".replace("_", " "): value
            for key, value in (reward.get("features") or {}).items()
        },
        "method": reward.get("method"),
        "ridge": reward.get("ridge"),
        "gradient norm": reward.get("gradient_norm"),
        "temperature": policy.get("temperature"),
    }
    return {
        "settings": [[key, str(value)] for key, value in settings.items() if value is not None],
        "versions": [[str(name), str(versions[name])] for name in sorted(versions)],
        "seconds": real("seconds", result.get("seconds")) if counted else None,
    }
