"""What a result amounts to, in one of four words: from what was released or is public alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sordino.errors import UsageError
from sordino.privacy.guarantee import Guarantee
from sordino.rewards.forecast import WAYS, Outlook, World
from sordino.rewards.metrics import REACH

from .wording import Json, at_least, hides_counts, percent, plain, read_guarantee, real, whole

USABLE, FEW, WEAK = "usable", "too few answers", "too weak a promise"
GUESS = "not better than a guess"
MEANINGLESS: Final = frozenset({FEW, GUESS})
"""With these words the numbers of a result say nothing, and are folded away."""

ENOUGH: Final = 0.6
"""So many judgments a reward has to predict if a perfect one predicts :data:`ASSUMED`."""
ASSUMED: Final = 0.65
_HALF = 0.5
_USUAL_DIMENSION = 12  # directions that text features teach, as `sordino estimate` takes them
_HOPELESS = 100  # times as many ballots: then items may as well be equal
_VAGUE = 0.1  # the least standard error with which no accuracy is told
_FLAT = 1.1  # odds that no policy needs
_DIGITS = 2  # of a number of answers that is about right


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """What was released of how good a reward is."""

    told: str  # with its 95% interval
    above: bool  # whether all of the interval is better than a guess
    reach: float | None = None  # half of the width of the interval, if more answers narrow it


def judge(result: Json) -> dict[str, Any]:
    """Return the verdict on a result, which is nothing but a function of what it tells."""
    # It holds `word`, `says` and, with too few answers, `answers_needed`: about how many.
    # Source: docs/files.md, "Verdict".
    caveats = tuple(result.get("caveats") or ())
    promise = read_guarantee("result.guarantee", result.get("guarantee"), caveats)
    n = None  # units, where their number is public
    if not hides_counts(promise):
        n = _count(result, *(("persons",) if promise.unit == "person" else ("pairs", "ballots")))
    if says := promise.weakness(n):
        return {"word": WEAK, "says": says}
    if result.get("noise") == "draws":
        found = {"word": USABLE, "says": "Nothing was released yet: every draw spends."}
    elif (bound := real("odds_bound", result.get("odds_bound"))) is not None:
        says = (
            "Whatever the logs say, the odds of two arms stay within a factor of "
            f"{at_least(bound)} of the reference's."
        )
        found = {"word": GUESS if bound <= _FLAT else USABLE, "says": says}
    elif "rows" in result:
        found = _of_policies(result)
    elif result.get("items"):
        found = _of_items(result)
    else:
        found = _of_reward(result, promise)
    if promise.delta and n is None and found["word"] == USABLE:
        found["says"] += (
            f" How many {promise.unit}s there are is not told, so nobody held δ against 1 in them."
        )
    return found


def _count(result: Json, *names: str) -> int | None:
    """Return the first of some numbers of judgments that a result tells."""
    data = result.get("data")
    known = data if isinstance(data, Mapping) else {}  # of draws it is a name
    counts = (real(f"data.{name}", known.get(name)) for name in names)
    return next((int(count) for count in counts if count is not None), None)


def _of_reward(result: Json, promise: Guarantee) -> dict[str, Any]:
    """Return the verdict on a reward: by what was measured, else by what was to be expected."""
    n = None if hides_counts(promise) else _count(result, "pairs", "ballots")
    measured, outlook = _measured(result), _outlook(result)
    if measured is not None and measured.above:
        return {"word": USABLE, "says": measured.told}
    expected = None if outlook is None else outlook.labels_needed(ENOUGH)
    needed = _about(expected or 1)
    if measured is not None and measured.reach and n:
        needed = max(needed, _about(n * (measured.reach / (ENOUGH - _HALF)) ** 2))
    if n is not None and n < needed:
        told = "" if measured is None else f" {measured.told}"
        return _too_few(f"{whole(n)} answers", needed, f"tell a good reward from a guess.{told}")
    if measured is not None:
        enough = f" About {whole(needed)} answers should have done, so more may not help."
        enough = enough if n is not None and expected is not None else ""
        return {"word": GUESS, "says": f"{measured.told}{enough}"}
    says = "Nothing was measured."
    if outlook is not None and expected is not None:
        says += (
            f" About {whole(needed)} answers would do; how many there are is not told."
            if n is None
            else f" Foreseen: a reward predicts {percent(outlook.accuracy(n))} of judgments, if "
            f"the best one predicts {percent(ASSUMED, 0)}."
        )
    return {"word": USABLE, "says": says}


def _too_few(there: str, needed: int, purpose: str) -> dict[str, Any]:
    says = f"{there} are too few to {purpose} About {whole(needed)} would do."
    return {"word": FEW, "says": says, "answers_needed": needed}


def _about(number: float) -> int:
    """Return a number of answers, rounded up to what can be meant."""
    scale: int = 10 ** max(0, len(str(math.ceil(number))) - _DIGITS)
    return math.ceil(number / scale) * scale


def _measured(result: Json) -> _Measured | None:
    """Return what decides whether a reward is better than a guess; None if nothing was released."""
    reward, public = result.get("reward") or {}, result.get("public_evaluation") or {}
    accuracy, error, loss, spread = (
        real(name, reward.get(name))
        for metric in ("accuracy", "negative_log_likelihood")
        for name in (metric, f"{metric}_standard_error")
    )
    if accuracy is None and "accuracy_reason" in reward:
        told = "What was measured is too vague to be told."
        return _Measured(told=told, above=False, reach=REACH * (_VAGUE if error is None else error))
    if accuracy is not None and error is not None:
        return _of_accuracy("Held-out accuracy", accuracy, error, scales=True)
    share, pairs = real("accuracy", public.get("accuracy")), real("pairs", public.get("pairs"))
    if share is not None and pairs:
        error = _HALF / math.sqrt(pairs)  # the largest that there is
        return _of_accuracy("Accuracy on public data", share, error, scales=False)
    if loss is None or spread is None:
        return None
    half, guess = REACH * spread, math.log(2)
    told = f"Log loss {plain(loss)} ± {plain(half, 2)} (95%); guessing gives {plain(guess)}."
    return _Measured(told=told, above=loss + half < guess)


def _of_accuracy(name: str, value: float, error: float, *, scales: bool) -> _Measured:
    half = REACH * error
    told = f"{name} {percent(value)} ± {100 * half:.1f} points (95%); guessing gives 50%."
    return _Measured(told=told, above=value - half > _HALF, reach=half if scales else None)


def _outlook(result: Json) -> Outlook | None:
    """Return what could be foreseen of a reward like this one, from public numbers."""
    mechanism, utility = result.get("mechanism") or {}, result.get("utility") or {}
    name, delta = str(mechanism.get("name")), real("delta", mechanism.get("delta")) or 0.0
    way, epsilon = {
        "randomized-response": ("labels", mechanism.get("epsilon_per_label")),
        "label-gaussian": ("label-estimate", mechanism.get("epsilon")),
        "objective-perturbation": ("record-estimate", mechanism.get("epsilon")),
    }.get(name, ("", None))
    loss = real("mechanism.epsilon", epsilon)
    if loss is None:
        return None
    # the noise is for all labels of a person together
    loss /= real("records_per_person", mechanism.get("records_per_person")) or 1.0
    dimension = real("effective_dimension", utility.get("effective_dimension")) or _USUAL_DIMENSION
    with suppress(UsageError):  # no noise is known that keeps it
        world = World.of(max(1, round(dimension)), ASSUMED, "debiased")
        return WAYS[way](world, loss, delta).outlook
    return None


def _of_policies(result: Json) -> dict[str, Any]:
    """Return the verdict on a table of policies: whether a judge prefers any to the reference."""
    central = result.get("central") or {}
    if central.get("guarantee") and (weak := judge(central))["word"] == WEAK:
        return weak
    wins = [row["win_rate"]["low"] for row in result["rows"] if row["method"] != "reference"]
    ahead = sum(low > _HALF for low in wins)
    says = f"{ahead} of {len(wins)} policies beat the reference: their 95% intervals are above 50%."
    return {"word": USABLE if ahead else GUESS, "says": says}


def _of_items(result: Json) -> dict[str, Any]:
    """Return the verdict on worths: whether any two intervals lie apart."""
    known = [item for item in result["items"] if item["worth"] is not None and item["interval"]]
    if not known:
        return {"word": USABLE, "says": "How much of the order is settled cannot be said."}
    ends = [item["interval"] for item in known]
    if max(low for low, _ in ends) > min(high for _, high in ends):
        return {"word": USABLE, "says": "95% intervals of some worths lie apart."}
    n = _count(result, "ballots")
    best, worst = (choose(known, key=lambda item: item["worth"]) for choose in (max, min))
    gap = best["worth"] - worst["worth"]
    reach = sum(high - low for low, high in (best["interval"], worst["interval"])) / 2
    apart = "The 95% intervals of all worths overlap"
    if n is None or gap * math.sqrt(_HOPELESS) < reach:
        return {"word": GUESS, "says": f"{apart}, so no item is shown to be ahead."}
    needed = _about(n * (reach / gap) ** 2)
    return _too_few(f"{whole(n)} ballots", needed, f"say who is ahead. {apart}.")
