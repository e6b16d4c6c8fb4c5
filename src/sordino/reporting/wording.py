"""Words that the pages share: numbers as people read them, a guarantee, and what was spent.

A bound never looks smaller than it is, and what is left never larger. Last: what a curator added
noise to, in plain words, and what it means for the numbers beside it.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from importlib.resources import files
from typing import Any

from sordino.errors import DataError
from sordino.mechanisms.catalogue import BALLOTS, CURATOR_MECHANISMS
from sordino.mechanisms.label_sum import SumMechanism
from sordino.mechanisms.randomized_response import KaryRandomizedResponse
from sordino.preferences.schemas import TRAJECTORIES
from sordino.privacy.guarantee import CAVEATS, Guarantee, float_from_json, float_to_json

Json = Mapping[str, Any]
"""A part of a result or of a summary, as JSON holds it."""
Rows = list[list[str]]
"""Names, each with its sentence."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LARGEST_PLAIN = 6  # powers of ten beyond this one are written as such
_SMALLEST_PLAIN = -4


def real(name: str, value: object) -> float | None:
    """Return value as a float, None if it is missing, NaN or infinite."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{name} must be a number or null, got {type(value).__name__}.")
    return float(value) if math.isfinite(value) else None


def both_ends(name: str, interval: Sequence[object] | None) -> list[float] | None:
    """Return an interval as two numbers, None if it is missing or an end of it is."""
    ends = [end for value in interval or () if (end := real(name, value)) is not None]
    return ends if len(ends) == 2 else None  # noqa: PLR2004


def _written(number: Decimal) -> str:
    """Return a decimal without trailing zeros, as a power of ten when it is long."""
    number = number.normalize()
    exponent = number.adjusted()
    if number and not _SMALLEST_PLAIN <= exponent < _LARGEST_PLAIN:
        mantissa = f"{number.scaleb(-exponent).normalize():f}"
        return f"{mantissa} × 10{str(exponent).translate(_SUPERSCRIPTS)}".replace("-", "−")
    return f"{number:,f}".replace("-", "−")


def _rounded(value: float, digits: int, rounding: str) -> str:
    """Return value in at most ``digits`` significant digits, rounded as told."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    with localcontext(prec=digits, rounding=rounding) as context:
        return _written(context.create_decimal(repr(float(value))))


def at_least(value: float, digits: int = 4) -> str:
    """Return an upper bound as text that is never smaller than the bound."""
    return _rounded(value, digits, ROUND_CEILING)


def at_most(value: float, digits: int = 4) -> str:
    """Return what is left as text that is never larger than it is."""
    return _rounded(value, digits, ROUND_FLOOR)


def plain(value: float, digits: int = 3) -> str:
    """Return a measured number, rounded to the nearest."""
    return _rounded(value, digits, ROUND_HALF_EVEN)


def percent(value: float, decimals: int = 1) -> str:
    """Return a measured share as a percentage."""
    return f"{100 * value:.{decimals}f}%".replace("-", "−")


def whole(value: float) -> str:
    """Return a count with separators."""
    return f"{value:,.0f}"


def belief_percent(value: float) -> str:
    """Return the bound on a belief as a percentage, rounded up, short of 100 if it is."""
    share = Decimal(repr(value)) * 100
    for decimals in range(1, 7):  # decimals after which a percentage may show as 100
        shown = share.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING)
        if shown < 100:  # noqa: PLR2004
            return f"{_written(shown)}%"
    return "100%"


_FORMS: Mapping[str, Callable[[float], str]] = {
    "at least": at_least,
    "plain": plain,
    "whole": whole,
}


def number_rows(kind: str, source: Json, place: str) -> Rows:
    """Return name and sentence of each number of a kind that a source tells."""
    rows = []
    for name, key, form, said in WORDS["numbers"][kind]:
        value = real(f"{place}.{key}", source.get(key))
        if value is not None:
            rows.append([name, SAID[said].format(_FORMS[form](value))])
    return rows


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters; where it was cut there is an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}…"


WORDS: Mapping[str, Any] = tomllib.loads(
    files("sordino.reporting").joinpath("words.toml").read_text("utf-8")
)
"""Sentences that are the same in every report, by where they stand."""
SAID: Mapping[str, str] = WORDS["said"]
_LABEL_SETS = "labels of a person"  # what a promise to a person is about where texts are public
_DUST = 1e-9  # share of a budget that rounding leaves


def read_guarantee(name: str, values: Json | None, caveats: tuple[str, ...] = ()) -> Guarantee:
    """Return the guarantee that a plain dict holds."""
    required = ("epsilon", "delta", "unit", "neighbors", "trust", "randomness")
    missing = [key for key in required if key not in (values or {})]
    if values is None or missing:
        raise DataError(f"{name} lacks {', '.join(missing)}; no report was made.")
    names = caveats or tuple(values.get("caveats") or ())
    return Guarantee.from_dict(values, [caveat for caveat in names if caveat in CAVEATS])


def describe_guarantee(guarantee: Guarantee, result: Json | None = None) -> dict[str, Any]:
    """Return a guarantee, of a run if there was one, as plain values and sentences."""
    label_sets = guarantee.unit == "person" and "labels-only" in guarantee.caveats
    words = WORDS["units"][_LABEL_SETS if label_sets else guarantee.unit]
    question = WORDS["questions"][guarantee.neighbors.name].format(**words)
    promise, exact = not math.isinf(guarantee.epsilon), guarantee.delta == 0
    belief = 1 / (1 + math.exp(-guarantee.epsilon))  # the most that a prior of one half can reach
    odds = SAID["odds" if promise else "no_odds"].format(
        question=question,
        factor=at_least(guarantee.odds),
        aside="" if exact else " (apart from the slack δ)",
        belief="A belief" if exact else "With the same exception, a belief",
        after=belief_percent(belief),
    )
    replaced = guarantee.neighbors.name == "REPLACE_ONE"
    # What the promise does not cover, one sentence each.
    if guarantee.hides_texts:
        gaps = [] if guarantee.hides_counts else WORDS["gaps"]["record"]
    else:
        run = result or {}
        steps = (run.get("data") or {}).get("judged") == TRAJECTORIES
        public = "items" if run.get("leaderboard") or run.get("items") else "texts"
        others = WORDS["gaps"][_LABEL_SETS if label_sets else "label"]
        gaps = [SAID[f"public_{'steps' if steps else public}"], *others]
    several = () if guarantee.unit == "person" else (SAID["several"].format(unit=guarantee.unit),)
    return {
        **guarantee.to_dict(),
        "epsilon": float_to_json(guarantee.epsilon),
        "epsilon_text": at_least(guarantee.epsilon),
        "delta_text": at_least(guarantee.delta),
        "factor_text": at_least(guarantee.odds),
        "promise": promise,
        "belief": belief,
        "belief_text": belief_percent(belief),
        "question": question,
        "odds": odds,
        "slack": "δ = 0: the bound has no exceptions."
        if exact
        else f"δ = {at_least(guarantee.delta)}: every probability may exceed the bound by at most "
        "this much.",
        "between": ""
        if replaced or not promise
        else f"Between two {words['values']}, the odds can shift by that factor squared.",
        "change": guarantee.change,
        "trust_text": WORDS["trust"][guarantee.trust].format(
            seen="records" if guarantee.hides_texts else "labels"
        ),
        "unprotected": [*gaps, *several, SAID["crowd"]],
        "simulated": guarantee.simulated,
    }


def _pair_text(epsilon: float | None, delta: float | None) -> str:
    """Return ε and δ in one phrase; what is not told stays a question mark."""
    sizes = ("?" if size is None else at_least(size) for size in (epsilon, delta))
    return "ε = {}, δ = {}".format(*sizes)


def describe_ledger(ledger: Json, *, counted: bool = True) -> dict[str, Any]:
    """Return budget, spend and entries, rounded so that nothing looks cheaper than it was."""
    # Where the number of records is a secret, so are the times of day, which would tell it.
    budget = read_guarantee("ledger.budget", ledger["budget"])
    total = ledger["total"] and read_guarantee("ledger.total", ledger["total"])
    entries, limit = ledger["entries"], budget.epsilon
    spent: float = total.epsilon if total else 0.0
    share, over = (spent / limit if limit > 0 else 1.0), spent > limit
    spent_text, limit_text = at_least(spent), at_most(limit)
    left_text = at_most(max(0.0, float_from_json(ledger["remaining_epsilon"])))
    if share > 1 - _DUST and not over:  # all of it: no dust, and one number in one way
        limit_text, left_text = spent_text, "0"
    return {
        "budget_text": _pair_text(limit, budget.delta),
        "budget_epsilon_text": limit_text,
        "unit": budget.unit,
        "change": budget.change,
        "spent": float_to_json(spent),
        "spent_text": spent_text,
        "accounts": [
            (str(unit), str(held["says"])) for unit, held in (ledger.get("accounts") or {}).items()
        ],
        "remaining_text": left_text,
        "share": min(1.0, share) if math.isfinite(limit) else None,
        "over": over,
        "head": str(ledger["head"]),
        "rows": whole(ledger["rows"]),
        "entries": [_entry(entry, counted=counted) for entry in entries],
        "simulated": any(part.simulated for part in (budget, total) if part)
        or any(entry.get("randomness") == "simulated" for entry in entries),
    }


def _entry(entry: Json, *, counted: bool) -> dict[str, str]:
    time = str(entry.get("time") or "").replace("T", " ").replace("Z", " UTC")
    release = str(entry.get("release_id") or "")
    parameters = [
        f"{key} {value if isinstance(value, str) else json.dumps(value, sort_keys=True)}"
        for key, value in (entry.get("parameters") or {}).items()
    ]
    return {
        **{key: str(entry.get(key) or "") for key in ("kind", "event", "count", "scope")},
        "sequence": str(entry.get("sequence", "")),
        "time": time if counted else time.partition(" ")[0],
        "parameters": ", ".join(parameters),
        "release": release,
        "release_text": shortened(release, 12),  # characters of a release id that a table shows
    }


def is_noised_sum(name: object) -> bool:
    """Return whether a mechanism of this name releases one sum with noise."""
    return issubclass(CURATOR_MECHANISMS.get(str(name), object), SumMechanism)


def hides_ballots(name: object) -> bool:
    """Return whether a mechanism of this name is for rankings."""
    randomized = name == KaryRandomizedResponse.name
    return randomized or issubclass(CURATOR_MECHANISMS.get(str(name), object), BALLOTS)


def is_of_rankings(result: Json) -> bool:
    """Return whether a run learned from rankings."""
    return hides_ballots((result.get("mechanism") or {}).get("name"))


def describe_mechanism(result: Json, guarantee: Guarantee) -> Rows | None:
    """Return what a curator released and how it is hidden, as names and sentences."""
    told, bought = result.get("mechanism") or {}, result.get("metrics")
    name = str(told.get("name"))
    label, flips = told.get("epsilon_per_label"), told.get("flip_probability")
    if result.get("noise") == "labels":  # what a promise to a person means for one of their labels
        if guarantee.unit != "person" or not label or flips is None:
            return None
        turns = f"a coin turns {percent(flips)} of them around."
        if hides_ballots(name):
            turns = f"the first choice of a ballot, of which a die replaces {percent(flips)}."
        return person_rows(label, guarantee.epsilon, f": {turns}")
    if result.get("noise") != "estimate":
        return None
    if what := WORDS["tilted"].get(name):
        rows = [["What is released", f"{what} {SAID['moves']}"]]
        rows += number_rows(name, told, "mechanism")
        if told.get("second_moment"):
            moves = _moves("One record more or less", told.get("second_moment_mu")).strip()
            rows.append(["Second moment", f"Released too, for confidence sets. {moves}"])
    elif is_noised_sum(name) and not hides_ballots(name):
        rows = [
            ["What is released", SAID["one_sum"]],
            *_sum_rows(told, guarantee, "label", "records"),
        ]
    elif is_noised_sum(name):
        known = WORDS["sums_of_ballots"].get(str(told.get("statistic")))
        what = f"{known or 'One sum over all ballots, with noise.'} {SAID['all_of_ballots']}"
        rows = [["A label here", SAID["whole_ballot"]], ["What is released", what]]
        rows += _sum_rows(told, guarantee, "ballot", "ballots")
    else:
        return None
    if bought is not None:
        rows.append(["Reward alone", f"{_price(told)}."])
    return rows


def person_rows(label: float, person: float, more: str = ".") -> Rows:
    """Return what one label of a person costs, and all of them."""
    return [
        ["One label", f"ε = {at_least(label)}{more}"],
        ["One person", f"At most {round(person / label):,}, ε = {at_least(person)} together."],
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
    return _pair_text(real("epsilon", told.get("epsilon")), real("delta", told.get("delta")))


def _held_out(result: Json, told: Json, guarantee: Guarantee) -> str:
    """Return which part of the data was held out to be measured on."""
    share, pairs = (real(f"metrics.{name}", told.get(name)) for name in ("share", "pairs"))
    of = "some questions" if share is None else f"{percent(share, 0)} of the questions"
    if pairs is None or guarantee.hides_counts:
        return of
    return f"{of} ({whole(pairs)} {judged(result)})"


def judged(result: Json) -> str:
    """Return what was judged: ballots, votes, single answers or pairs."""
    if is_of_rankings(result):
        return "ballots"
    single = (result.get("data") or {}).get("judged") == "answers"
    return "votes" if result.get("leaderboard") else "answers" if single else "pairs"


def describe_metrics(result: Json, guarantee: Guarantee, *, measured: bool) -> str:
    """Return where metrics come from, what they cost, and what buys those that are not there."""
    noise, bought, records = result.get("noise"), result.get("metrics"), guarantee.hides_texts
    if is_of_rankings(result):
        return SAID["unscored"]
    if noise != "estimate":
        return SAID["of_answers" if noise == "labels" else "of_releases"] if measured else ""
    if bought is None and (result.get("data") or {}).get("files") is not None:  # read in pieces
        return SAID["unread"] + ("" if records else SAID["for_sale"])
    if bought is None:
        return SAID["private_records" if records else "free"]
    held_out = _held_out(result, bought, guarantee)
    return SAID["bought"].format(held_out=held_out, price=_price(bought))
