"""How a reward was fitted, what decides in it, and what a policy makes of its uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sordino.errors import DataError, PrivacyError
from sordino.reporting._numbers import at_least, at_most, percent, plain, real

__all__ = ["describe_confidence", "describe_decisive", "describe_examples", "describe_fit"]

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
    """Return the most decisive features, or None if there are none.

    Args:
        source: ``rows`` from ``decisive_features``, ``source`` (whose texts gave the spread:
            ``"public"``, ``"released"`` or ``"comparisons"``) and ``features`` (how many there
            are).
        texts_are_public: Whether the promise covers labels only.

    Raises:
        DataError: The source is not one of those.
        PrivacyError: The spread comes from texts that the promise protects.
    """
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
    """Return examples and where their texts come from, or None if there are none.

    Raises:
        DataError: The texts are neither declared public nor released before.
    """
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
    """Return what a policy makes of the reward's uncertainty, as names and sentences.

    Args:
        source: ``kind``, ``confidence``, ``scale``, ``heuristic``, ``radius``,
            ``mean_uncertainty`` and ``max_density_ratio``; None for a plain Gibbs policy.
    """
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
