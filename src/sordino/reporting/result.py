"""The numbers of a run, as ``result.json`` holds them; every one is already private or public.

And what they amount to, in one of four words: from what was released or is public alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from scipy.special import expit

from sordino._markup import harmless
from sordino.environments.annotators import TrueReward
from sordino.environments.values import measured_policy
from sordino.errors import DataError, UsageError
from sordino.mechanisms.randomized_response import label_shares
from sordino.policies.gibbs import CandidatePolicy, ConfidencePolicy
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import SIGNALS, Features, HashedText, Intercept, Matrix
from sordino.preferences.pairs import Pairs
from sordino.preferences.records import Text
from sordino.privacy.guarantee import WEAKEST_EPSILON, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards.forecast import WAYS, Way, World, utility_curve
from sordino.rewards.metrics import REACH, Estimate, HeldOut, legible, measure_predictions
from sordino.rewards.model import RewardModel

from .wording import SAID, Json, at_least, judged, percent, plain, read_guarantee, real, whole

USABLE, FEW, WEAK = "usable", "too few answers", "too weak a promise"
GUESS = "not better than a guess"
MEANINGLESS: Final = frozenset({FEW, GUESS})
"""With these words the numbers of a result say nothing, and are folded away."""

ENOUGH: Final = 0.6
"""So many judgments a reward has to predict if a perfect one predicts :data:`ASSUMED`."""
ASSUMED: Final = 0.65
_HALF = 0.5
_STAYED = ", and less than half may be for a policy that is called usable."
_USUAL_DIMENSION = 12  # directions that text features teach, as `sordino estimate` takes them
_HOPELESS = 100  # times as many ballots: then items may as well be equal
_VAGUE = 0.1  # the least standard error with which no accuracy is told
_FLAT = 1.1  # odds that no policy needs
_DIGITS = 2  # of a number of answers that is about right


class _Measured(NamedTuple):
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
    if not promise.hides_counts:
        n = _count(result, *(("persons",) if promise.unit == "person" else ("pairs", "ballots")))
    if says := promise.weakness(n):
        return {"word": WEAK, "says": says}
    if result.get("noise") == "draws":
        found = {"word": USABLE, "says": "Nothing was released yet: every draw spends."}
    elif (bound := real("odds_bound", result.get("odds_bound"))) is not None:
        told = "odds_bound" if math.log(bound) <= WEAKEST_EPSILON else "no_odds_bound"
        says = SAID[told].format(at_least(bound))
        found = {"word": GUESS if bound <= _FLAT else USABLE, "says": says}
    else:
        shown = next((name for name in _VERDICTS if result.get(name)), None)
        found = _of_reward(result, promise) if shown is None else _VERDICTS[shown](result)
    if promise.delta and n is None and found["word"] == USABLE:
        found["says"] += SAID["untold_count"].format(unit=promise.unit)
    return found


def _count(result: Json, *names: str) -> int | None:
    """Return the first of some numbers of judgments that a result tells."""
    data = result.get("data")
    known = data if isinstance(data, Mapping) else {}  # of draws it is a name
    counts = (real(f"data.{name}", known.get(name)) for name in names)
    return next((int(count) for count in counts if count is not None), None)


def _of_reward(result: Json, promise: Guarantee) -> dict[str, Any]:
    """Return the verdict on a reward: by what was measured, else by what was to be expected."""
    n = None if promise.hides_counts else _count(result, "pairs", "ballots")
    measured, outlook = _measured(result), _outlook(result)
    if measured is not None and measured.above:
        return {"word": USABLE, "says": measured.told}
    among = result.get("class") or {"candidates": 0}
    left = (result.get("online") or among).get("possible") or 0
    if measured is None and 1 < left == among["candidates"]:
        return {"word": FEW, "says": f"Each of {whole(left)} candidates may still be the true one."}
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
    single = judged(result) == "answers"
    peer = _Peer.of(reward, single=single)
    if accuracy is not None and error is not None:
        return _of_accuracy("Held-out accuracy", accuracy, error, peer, scales=True)
    share, pairs = real("accuracy", public.get("accuracy")), real("pairs", public.get("pairs"))
    if share is not None and pairs:
        error = _HALF / math.sqrt(pairs)  # the largest that there is
        peer = _Peer.of(public, single=single)
        return _of_accuracy("Accuracy on public data", share, error, peer, scales=False)
    if loss is None or spread is None:
        return None
    half = REACH * spread
    told = f"Log loss {plain(loss)} ± {plain(half, 2)} (95%); {peer.says} {plain(peer.loss())}."
    return _Measured(told=told, above=loss + half < peer.loss(peer.error))


class _Peer(NamedTuple):
    """What a reward has to be better than: a guess, or of single answers the better constant."""

    share: float = _HALF  # of judgments that it predicts
    error: float = 0.0  # its standard error
    says: str = "guessing gives"

    @classmethod
    def of(cls, source: Json, *, single: bool) -> _Peer:
        """Return the peer by the share of likes that was released, or is public."""
        if not single:
            return cls()
        likes, error = (real(name, source.get(name)) for name in ("likes", "likes_standard_error"))
        if likes is None:
            return cls(says="what always the same answer gives is not told, and guessing gives")
        share = min(max(likes, 1 - likes), 1.0)
        return cls(share=share, error=error or 0.0, says="always the same answer gives")

    def loss(self, error: float = 0.0) -> float:
        """Return the log loss of that chance for every answer, the least within some errors."""
        share = min(self.share + REACH * error, 1.0)
        return -sum(chance * math.log(chance) for chance in (share, 1 - share) if chance)


def _of_accuracy(name: str, value: float, error: float, peer: _Peer, *, scales: bool) -> _Measured:
    half, gap = REACH * error, REACH * math.hypot(error, peer.error)
    told = f"{name} {percent(value)} ± {100 * half:.1f} points (95%); {peer.says} "
    above = value - gap > peer.share
    told += f"{percent(peer.share)}." if peer.error else f"{percent(peer.share, 0)}."
    return _Measured(told=told, above=above, reach=half if scales else None)


def _outlook(result: Json) -> Way | None:
    """Return what could be foreseen of a reward like this one, from public numbers."""
    if result.get("class"):  # nothing is foreseen of one
        return None
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
        world = World.of(max(1, round(dimension)), ASSUMED)
        return WAYS[way](world, loss, delta)
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


def _of_plan(result: Json) -> dict[str, Any]:
    """Return the verdict on a plan: whether anything is certain, or how many answers it takes."""
    told = result["plan"]
    if not told["vacuous"]:
        proved = (
            "" if told["radius_scale"] >= 1 else " Heuristic: the radius is not the proved one."
        )
        lost, confidence = plain(told["suboptimality"]), percent(told["confidence"], 0)
        terms = {"value": plain(told["value"]), "confidence": confidence, "lost": lost}
        return {"word": USABLE, "says": SAID["planned"].format(**terms, proved=proved)}
    says = f"{told['said']} The plan is the reference policy."
    needed = told["answers_needed"]
    return {"word": FEW, "says": says} | ({} if needed is None else {"answers_needed": needed})


def _of_training(result: Json) -> dict[str, Any]:
    """Return the verdict on a trained policy: by the truth where it is made up, else by noise."""
    trained, truth = result["trained"], result.get("truth")
    lengths, errors = trained["lengths"], trained["errors"]
    drowned = sum(e is None or e >= size for e, size in zip(errors, lengths, strict=True))
    told = f"Noise was larger than the update in {drowned or 'none'} of {len(errors)} batches."
    if truth is not None:
        start, end = truth["suboptimality"][0], truth["output"]
        told = f"In this made-up world {percent(end / start)} of what could be gained is left"
        good = end < start * _HALF
        return {"word": USABLE if good else GUESS, "says": f"{told}{'.' if good else _STAYED}"}
    if 2 * drowned > len(errors):
        return {"word": GUESS, "says": f"{told} Fewer batches, or more people, would do better."}
    return {"word": USABLE, "says": f"{told} How good the policy is was not measured."}


def _of_board(result: Json) -> dict[str, Any]:
    """Return the verdict on a leaderboard: whether any order is settled, and who may be first."""
    rated = [item for item in result["leaderboard"]["items"] if item["rating"] is not None]
    if not any(item["rank"][0] > 1 for item in rated):
        known = (item for item in rated if None not in item["interval"])
        worths = [item | {"worth": item["rating"]} for item in known]
        if not worths:
            return {"word": FEW, "says": "There are too few votes to rate any item."}
        return _of_items({"data": result.get("data"), "items": worths}, "votes")
    first = [item for item in rated if item["rank"][0] == 1]
    if len({item.get("component") for item in rated}) > 1:
        says = "Some items never met the others, so there are several boards in one."
    elif len(first) == 1:
        says = f"{first[0]['name']} is ahead of all others."
    else:
        says = f"Who is ahead is one of {whole(len(first))} items; which, is not settled."
    return {"word": USABLE, "says": says}


def _of_items(result: Json, what: str = "ballots") -> dict[str, Any]:
    """Return the verdict on worths: whether any two intervals lie apart."""
    known = [item for item in result["items"] if item["worth"] is not None and item["interval"]]
    if not known:
        return {"word": USABLE, "says": "How much of the order is settled cannot be said."}
    ends = [item["interval"] for item in known]
    if max(low for low, _ in ends) > min(high for _, high in ends):
        return {"word": USABLE, "says": "95% intervals of some worths lie apart."}
    n = _count(result, "ballots", "pairs")
    best, worst = (choose(known, key=lambda item: item["worth"]) for choose in (max, min))
    gap = best["worth"] - worst["worth"]
    reach = sum(high - low for low, high in (best["interval"], worst["interval"])) / 2
    apart = "The 95% intervals of all worths overlap"
    if n is None or gap * math.sqrt(_HOPELESS) < reach:
        return {"word": GUESS, "says": f"{apart}, so no item is shown to be ahead."}
    needed = _about(n * (reach / gap) ** 2)
    return _too_few(f"{whole(n)} {what}", needed, f"say who is ahead. {apart}.")


_VERDICTS: Final[Mapping[str, Callable[[Json], dict[str, Any]]]] = {
    "trained": _of_training,
    "plan": _of_plan,
    "rows": _of_policies,
    "leaderboard": _of_board,
    "items": _of_items,
}
"""By the field that a result is about, the first that it has; a reward where there is none."""

_ENTRY = ("sequence", "data", "kind", "time", "release_id", "event", "count", "scope")
_LONGEST = 400  # characters of a text that are shown
_CURVE = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0)
_SAMPLE = 2000  # rows that say enough about the directions of the features
_SEARCHED = 1000  # pairs among which examples are looked for


def _feature_names(features: Features | None, dimension: int) -> list[str]:
    """Return what each weight is about, as a reader would call it."""
    if isinstance(features, Intercept):
        own = [f"intercept of {family}" if family else "intercept" for family in features.families]
        return _feature_names(features.features, dimension - len(own)) + own
    if isinstance(features, HashedText):
        named = list(SIGNALS)[: features.signals]
        return named + [f"word group {place}" for place in range(len(named), dimension)]
    given = [str(name) for name in getattr(features, "names", ())]
    return given if len(given) == dimension else [f"feature {place}" for place in range(dimension)]


def measure_decisive(
    reward: RewardModel, differences: Matrix, *, source: str, most: int = 10
) -> dict[str, Any]:
    """Return the features that move a released reward most, the largest effect first."""
    # An effect is a weight times what two answers to one prompt usually differ by in its feature:
    # the root of the mean square, because which answer stands first means nothing. There are no
    # intervals: what shrinks the weights moves each by an unknown part of the truth.
    spread = np.sqrt(np.asarray((differences**2).mean(axis=0), dtype=np.float64).ravel())
    names = _feature_names(reward.features, len(reward.weights))
    effects = reward.weights * spread
    order = np.argsort(-np.abs(effects), kind="stable")[:most]
    rows = [
        {"name": names[at], "weight": float(reward.weights[at]), "effect": float(effects[at])}
        for at in order
        if effects[at] != 0
    ]
    return {"source": source, "features": len(reward.weights), "rows": rows}


def measure_examples(
    policy: CandidatePolicy, pairs: Comparisons, *, source: str, most: int = 3
) -> dict[str, Any] | None:
    """Return a few pairs with their probabilities before and after; None without texts."""
    # The rule is public and reads no label: of the first 1,000 questions without an address in any
    # text, each once, those at evenly spaced ranks of the policy's shift, from the largest to the
    # smallest. Three are the largest, the median and the smallest.
    if not pairs.prompts:
        return None
    columns = [column[:_SEARCHED] for column in (pairs.prompts, pairs.first, pairs.second)]
    questions: dict[tuple[str, ...], int] = {}
    for index, texts in enumerate(zip(*columns, strict=True)):
        flat = tuple(_flat(text).strip() for text in texts)
        if all(flat) and not any("://" in text for text in flat):
            questions.setdefault((flat[0], *sorted(flat[1:])), index)
    prompts, first, second = columns
    both = policy.probabilities(prompts, list(zip(first, second, strict=True)))
    chances = [float(chance[0]) for chance in both]
    order = sorted(questions.values(), key=lambda index: -abs(chances[index] - 0.5))
    ranks = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)
    rows = []
    for index in (order[rank] for rank in ranks):
        prompt, *answers = (_flat(column[index], clean=True) for column in columns)
        if len(prompt) > _LONGEST:  # cut at its beginning: a chat ends with what was asked
            prompt = f"…{prompt[-_LONGEST:].lstrip()}"
        told = []
        for text, chance in zip(answers, (chances[index], 1 - chances[index]), strict=True):
            shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()}…"
            told.append({"text": shown, "reference": 0.5, "policy": chance})
        rows.append({"prompt": prompt, "answers": told})
    return {"source": source, "rows": rows}


def _flat(text: Text, *, clean: bool = False) -> str:
    """Return a text or a chat as one string in which it shows who speaks."""
    # Clean, no character changes how others read.
    if not isinstance(text, str):
        text = "\n".join(f"{turn.get('role')}: {turn.get('content')}" for turn in text)
    if not clean:
        return text
    lines = harmless(text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def measure_reward(held_out: HeldOut, *, single: bool = False) -> dict[str, Any]:
    """Return debiased metrics of a reward on held-out randomized answers; they cost nothing."""
    told = measure_predictions(held_out, widening=held_out.widening).to_dict()
    return told | (_measure_likes(held_out) if single else {})


def _measure_likes(answers: HeldOut) -> dict[str, float]:
    """Return the share of single answers that are liked, debiased: what a constant is held to."""
    always = replace(answers, differences=np.ones(len(answers.answers)))
    return describe_likes(measure_predictions(always).accuracy)


def describe_likes(share: Estimate | None) -> dict[str, float]:
    """Return the share of answers that are liked as a result holds it; nothing without one."""
    if share is None or not math.isfinite(share.standard_error):
        return {}
    return {"likes": share.value, "likes_standard_error": share.standard_error}


def measure_policy(held_out: HeldOut, temperature: float) -> dict[str, Any]:
    """Return how often a Gibbs policy on the two answers picks the preferred one, debiased."""
    widening = held_out.widening
    rate = measure_predictions(held_out, temperature=temperature, widening=widening).win_rate
    assert rate is not None  # noqa: S101 - for the type checker: there is a temperature
    return {
        "temperature": temperature,
        **legible({"win_rate": rate.value, "win_rate_interval": rate.share_interval}),
        "kl": mean_kl(held_out.differences, temperature),
    }


def mean_kl(margins: Float[np.ndarray, " n"], temperature: float) -> float:
    """Return how far a Gibbs policy on two answers lies from choosing evenly, in nats."""
    chances = expit(margins / temperature)
    both = np.stack([chances, 1 - chances])
    logs = np.log(2 * both, out=np.zeros_like(both), where=both > 0)
    return float((both * logs).sum(axis=0).mean())


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
    n, flip = len(differences), flip_probability
    predicted = 0.5 * (1 + np.tanh(0.5 * differences))
    last = -(-n * np.arange(1, bins) // bins) - 1  # exact, unlike a float share
    edges = np.unique(np.sort(differences)[last])
    group = np.searchsorted(edges, differences, side="left")
    rows = []
    for index in np.unique(group):
        inside = group == index
        pairs, share = int(inside.sum()), float(np.mean(targets[inside]))
        center = (share + REACH**2 / (2 * pairs)) / (1 + REACH**2 / pairs)
        half = math.sqrt(share * (1 - share) / pairs + (REACH / (2 * pairs)) ** 2)
        half *= REACH / (1 + REACH**2 / pairs)
        shares = {"observed": share, "low": center - half, "high": center + half}
        row = {name: (value - flip) / (1 - 2 * flip) for name, value in shares.items()}
        rows.append({"predicted": float(np.mean(predicted[inside])), **row, "pairs": pairs})
    return rows


def measure_public(reward: RewardModel, pairs: Pairs, temperature: float) -> dict[str, Any]:
    """Return metrics on judgments that the user declared public."""
    shares = label_shares(pairs.labels)
    decided = np.flatnonzero(shares != 0.5)  # noqa: PLR2004 (public, so this may be seen)
    if not len(decided):
        raise DataError("No pair is left to evaluate on: every public judgment is undecided.")
    gaps = np.asarray(pairs.differences(reward.features) @ reward.weights)[decided]
    liked = (shares[decided] > 0.5).astype(np.int8)  # noqa: PLR2004 (a rating above the middle)
    public = HeldOut(differences=gaps, answers=liked, flip_probability=0.0)
    measured = measure_predictions(public, temperature=temperature)
    names = ("accuracy", "negative_log_likelihood", "win_rate")
    told = {name: getattr(measured, name).value for name in names}
    single = {"win_rate": None, **_measure_likes(public)} if pairs.alone else {}
    return {"pairs": len(decided), **told, **single}


def measure_truth(
    policy: CandidatePolicy, pairs: Comparisons, truth: TrueReward
) -> dict[str, float]:
    """Return the policy's regret under the true reward of a simulation."""
    chances = policy.probabilities(pairs.prompts, list(zip(pairs.first, pairs.second, strict=True)))
    scores = np.stack([truth.score(pairs.first), truth.score(pairs.second)], axis=1)
    even = np.full(scores.shape, 0.5)
    return measured_policy(np.stack(chances), scores, policy.temperature, even)


def describe_fit_settings(reward: RewardModel, *, asked: str = "auto") -> dict[str, Any]:
    """Return how a reward was fitted, and how well a typical weight is known."""
    errors = reward.standard_errors
    return {
        "method": reward.method,
        "method_asked": asked,
        "weight_standard_error": None if errors is None else float(np.median(errors)),
        "ridge": reward.ridge,
        "gradient_norm": reward.gradient_norm,
        "features": None if reward.features is None else reward.features.to_dict(),
    }


def effective_dimension(differences: Matrix) -> float:
    """In about how many directions comparisons differ: between 1 and the features' number."""
    # It reads public feature differences only.
    # Source: The participation ratio of their second moments, (tr G)²/tr G², G = Σ xᵢxᵢᵀ, here by
    # the inner products of at most 2,000 evenly spaced rows.
    rows = differences[:: max(1, -(-differences.shape[0] // _SAMPLE))]
    products = rows @ rows.T
    products = np.asarray(products.toarray() if hasattr(products, "toarray") else products)
    square = float(np.sum(products**2))
    return float(np.trace(products)) ** 2 / square if square else 1.0


def predict_utility(
    pairs: int, differences: Matrix, *, chosen: float, noise: str = "labels", delta: float = 1e-6
) -> dict[str, Any]:
    """Return the accuracy foreseen at several epsilons, the chosen one among them."""
    dimension = effective_dimension(differences)
    inside = _CURVE[0] <= chosen <= _CURVE[-1]
    losses = sorted({*_CURVE, float(chosen)}) if inside else _CURVE
    size = round(dimension)
    way: dict[str, Any] = {"epsilons": losses, "accuracy": ASSUMED, "noise": noise, "delta": delta}
    rows = utility_curve(pairs, dimension=size, **way)
    return {
        "curve": rows,
        "assumed_accuracy": ASSUMED,
        "effective_dimension": size,
        "chosen_epsilon": chosen if inside else None,
    }


def measure_confidence(policy: CandidatePolicy, pairs: Comparisons) -> dict[str, Any] | None:
    """Return what a policy that knows its uncertainty does with it on public texts, or None."""
    if not isinstance(policy, ConfidencePolicy):
        return None
    pairs = pairs.choices
    candidates = list(zip(pairs.first, pairs.second, strict=True))
    known = getattr(policy.reward, "ellipsoid", None)
    some = slice(None, None, max(1, -(-len(candidates) // _SAMPLE)))
    return {
        "kind": policy.kind,
        "confidence": policy.confidence,
        "scale": policy.scale,
        "heuristic": policy.scale < 1,
        "radius": None if known is None else known.radius(policy.confidence),
        **(
            {}
            if not candidates
            else policy.coverage(pairs.prompts, candidates)
            | {"effect": policy.effect(pairs.prompts[some], candidates[some]).to_dict()}
        ),
    }


def describe_guarantee_and_caveats(guarantee: Guarantee) -> dict[str, Any]:
    """Return the two fields in which every result states its promise."""
    return {"guarantee": guarantee.to_dict(), "caveats": list(guarantee.caveats)}


def describe_ledger_rows(ledger: Ledger) -> dict[str, Any]:
    """Return what a report and ``ledger show`` say of a ledger."""
    limited = bool(ledger.budgets)  # a new project has no budget yet
    total = ledger.total()
    # A budget has no caveats of its own: it limits promises like those that were made.
    caveats = {} if total is None else {"caveats": list(total.caveats)}
    return {
        "data": ledger.data,
        "data_sets": list(ledger.data_sets),
        "budget": ledger.budget.to_dict() | caveats if limited else None,
        "total": None if total is None else total.to_dict(),
        "accounts": {unit: held.to_dict() for unit, held in ledger.accounts().items()},
        "remaining_epsilon": ledger.remaining_epsilon() if limited else None,
        "head": ledger.head.digest,
        "rows": ledger.head.rows,
        "entries": [
            {name: getattr(row, name) for name in _ENTRY}
            | {
                "parameters": json.loads(row.parameters),
                "details": json.loads(row.payload).get("details", {}),
            }
            for row in ledger.rows
        ],
    }
