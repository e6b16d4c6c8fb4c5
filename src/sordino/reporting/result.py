"""The numbers of a run, as ``result.json`` holds them; every one is already private or public.

Which features decide: the released weights, in the size of what really differs.

Before and after: a few pairs of texts that may be shown, picked by a fixed rule.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino import _validate
from sordino._markup import harmless
from sordino.environments.annotators import TrueReward
from sordino.errors import DataError
from sordino.policies.gibbs import CandidatePolicy
from sordino.policies.pessimism import ConfidencePolicy
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.features import SIGNALS, Features, HashedText
from sordino.preferences.pairs import Pairs
from sordino.preferences.records import Text
from sordino.privacy.events import UNDECIDED
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards import metrics
from sordino.rewards.evidence import HeldOut
from sordino.rewards.forecast import utility_curve
from sordino.rewards.model import RewardModel

from .summary import calibration_bins


def feature_names(features: Features | None, dimension: int) -> list[str]:
    """Return what each weight is about, as a reader would call it."""
    if isinstance(features, HashedText):
        named = list(SIGNALS)[: features.signals]
        return named + [f"word group {place}" for place in range(len(named), dimension)]
    given = [str(name) for name in getattr(features, "names", ())]
    if len(given) == dimension:
        return given
    return [f"feature {place}" for place in range(dimension)]


def feature_spread(differences: Any) -> Float[np.ndarray, " d"]:
    """Return by how much two answers to one prompt usually differ in each feature."""
    # The root of the mean square, because which answer stands first means nothing.
    squares = np.asarray((differences**2).mean(axis=0), dtype=np.float64)
    return np.sqrt(squares.ravel())


def decisive_features(
    weights: Float[np.ndarray, " d"],
    *,
    spread: Float[np.ndarray, " d"],
    names: Sequence[str],
    most: int = 10,
) -> list[dict[str, Any]]:
    """Return the features that move the reward most, the largest effect first."""
    # There are no intervals: what shrinks the weights moves each by an unknown part of the truth.
    _validate.integer("most", most, at_least=1)
    weights = _validate.finite_array("weights", weights, ndim=1)
    spread = _validate.finite_array("spread", spread, ndim=1)
    for name, column in {"spread": spread, "names": names}.items():
        if len(column) != len(weights):
            raise DataError(f"{name} must have {len(weights)} entries, got {len(column)}.")
    effects = weights * spread
    order = [int(place) for place in np.argsort(-np.abs(effects), kind="stable")[:most]]
    return [
        {
            "name": str(names[place]),
            "weight": float(weights[place]),
            "effect": float(effects[place]),
        }
        for place in order
        if effects[place] != 0
    ]


_LONGEST = 400  # characters of a text that are shown
_ADDRESS = "://"


def choose_examples(
    prompts: Sequence[Text],
    first: Sequence[Text],
    second: Sequence[Text],
    *,
    probabilities: Float[np.ndarray, " n"],
    most: int = 3,
) -> list[dict[str, Any]]:
    """Return pairs of answers with their probability before and after, in plain text."""
    # The rule is public and reads no label: of the questions without an address in any text, each
    # once, those at evenly spaced ranks of the policy's shift, from the largest to the smallest.
    # Three are the largest, the median and the smallest.
    _validate.integer("most", most, at_least=1)
    chances = _checked(probabilities, prompts, first, second)
    usable = _distinct(prompts, first, second)
    order = sorted(usable, key=lambda index: -abs(chances[index] - 0.5))
    ranks = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)
    chosen = [order[rank] for rank in ranks]
    return [
        _example(prompts[index], (first[index], second[index]), float(chances[index]))
        for index in chosen
    ]


def _checked(probabilities: Any, *columns: Sequence[Text]) -> Float[np.ndarray, " n"]:
    """Return the probabilities; refuse other numbers and other lengths."""
    chances = _validate.finite_array("probabilities", probabilities, ndim=1)
    if any(len(column) != len(chances) for column in columns):
        raise DataError(f"Texts and probabilities must be as many: got {len(chances)} of these.")
    if not ((chances >= 0) & (chances <= 1)).all():
        raise DataError("probabilities must be in [0, 1].")
    return chances


def _distinct(*columns: Sequence[Text]) -> list[int]:
    """Return the rows that may be shown, each question once."""
    seen: dict[tuple[str, ...], int] = {}
    for index, texts in enumerate(zip(*columns, strict=True)):
        plain = tuple(_flat(text).strip() for text in texts)
        if all(plain) and not any(_ADDRESS in text for text in plain):
            seen.setdefault((plain[0], *sorted(plain[1:])), index)
    return list(seen.values())


def _flat(text: Text) -> str:
    """Return a text or a chat as one string in which it shows who speaks."""
    if isinstance(text, str):
        return text
    return "\n".join(f"{turn.get('role')}: {turn.get('content')}" for turn in text)


def _example(prompt: Text, answers: tuple[Text, Text], chance: float) -> dict[str, Any]:
    """Return one pair as the page shows it."""
    shown = [_beginning(_clean(answer)) for answer in answers]
    return {
        "prompt": _end(_clean(prompt)),
        "answers": [
            {"text": text, "reference": 0.5, "policy": policy}
            for text, policy in zip(shown, (chance, 1 - chance), strict=True)
        ],
    }


def _clean(text: Text) -> str:
    """Return a text in which no character changes how others read."""
    lines = harmless(_flat(text).replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def _beginning(text: str) -> str:
    """Return a text, cut at its end if it is long."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()}…"


def _end(text: str) -> str:
    """Return a text, cut at its beginning if it is long: a chat ends with what was asked."""
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:].lstrip()}"


_CURVE = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0)
_ASSUMED = 0.65  # how well a perfect reward predicts one judgment
_SAMPLE = 2000  # rows that say enough about the directions of the features
_SEARCHED = 1000  # pairs among which examples are looked for


def measure_reward(held_out: HeldOut) -> dict[str, Any]:
    """Return debiased metrics of a reward on held-out randomized answers; they cost nothing."""
    given = (held_out.differences, held_out.answers, held_out.flip_probability)
    who, wider = held_out.clusters, held_out.widening
    slope = metrics.calibration_slope(*given, clusters=who)
    return metrics.RewardMetrics(
        accuracy=metrics.accuracy(*given, clusters=who).widened(wider),
        negative_log_likelihood=metrics.negative_log_likelihood(*given, clusters=who).widened(
            wider
        ),
        calibration_slope=None if slope is None else slope.widened(wider),
    ).to_dict()


def measure_policy(held_out: HeldOut, temperature: float) -> dict[str, Any]:
    """Return how often a Gibbs policy on the two answers picks the preferred one, debiased."""
    chances = expit(held_out.differences / temperature)
    rate = metrics.win_rate(
        chances, held_out.answers, held_out.flip_probability, clusters=held_out.clusters
    )
    rate = rate.widened(held_out.widening).interval(lower=0.0, upper=1.0)
    return {
        "temperature": temperature,
        **metrics.legible({"win_rate": rate.value, "win_rate_interval": [rate.lower, rate.upper]}),
        "kl": mean_kl(held_out.differences, temperature),
    }


def mean_kl(margins: Float[np.ndarray, " n"], temperature: float) -> float:
    """Return how far a Gibbs policy on two answers lies from choosing evenly, in nats."""
    return float(_kl_from_uniform(expit(margins / temperature)).mean())


def _kl_from_uniform(chances: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return KL of (p, 1 − p) from (½, ½), in nats."""
    both = np.stack([chances, 1 - chances])
    logs = np.log(2 * both, out=np.zeros_like(both), where=both > 0)
    return np.asarray((both * logs).sum(axis=0))


def calibration(held_out: HeldOut) -> list[dict[str, Any]]:
    """Return predicted against debiased observed shares, for the calibration plot."""
    return calibration_bins(held_out.differences, held_out.answers, held_out.flip_probability)


def measure_public(reward: RewardModel, pairs: Pairs, temperature: float) -> dict[str, Any]:
    """Return metrics on judgments that the user declared public."""
    decided = np.flatnonzero(pairs.labels != UNDECIDED)  # they are public, so this may be seen
    if not len(decided):
        raise DataError("No pair is left to evaluate on: every public judgment is undecided.")
    gaps = np.asarray(pairs.differences(reward.features) @ reward.weights)[decided]
    labels = pairs.labels[decided]
    given = (gaps, labels, 0.0)
    return {
        "pairs": len(decided),
        "accuracy": metrics.accuracy(*given).value,
        "negative_log_likelihood": metrics.negative_log_likelihood(*given).value,
        "win_rate": metrics.win_rate(expit(gaps / temperature), labels, 0.0).value,
    }


def measure_truth(
    policy: CandidatePolicy, pairs: Comparisons, truth: TrueReward
) -> dict[str, float]:
    """Return the policy's regret under the true reward of a simulation."""
    chances = policy.probabilities(pairs.prompts, list(zip(pairs.first, pairs.second, strict=True)))
    scores = np.stack([truth.score(pairs.first), truth.score(pairs.second)], axis=1)
    return truth.value(np.stack(chances), scores, policy.temperature)


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


def effective_dimension(differences: Any) -> float:
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
    pairs: int, differences: Any, *, chosen: float, noise: str = "labels", delta: float = 1e-6
) -> dict[str, Any]:
    """Return the accuracy foreseen at several epsilons, the chosen one among them."""
    dimension = effective_dimension(differences)
    inside = _CURVE[0] <= chosen <= _CURVE[-1]
    losses = sorted({*_CURVE, float(chosen)}) if inside else _CURVE
    rows = utility_curve(
        pairs,
        dimension=round(dimension),
        epsilons=losses,
        accuracy=_ASSUMED,
        noise=noise,
        delta=delta,
    )
    return {
        "curve": [{key: row[key] for key in ("epsilon", "accuracy")} for row in rows],
        "assumed_accuracy": _ASSUMED,
        "effective_dimension": round(dimension),
        "chosen_epsilon": chosen if inside else None,
    }


def measure_decisive(
    reward: RewardModel, differences: Any, *, source: str, most: int = 10
) -> dict[str, Any]:
    """Return the most decisive features of a released reward."""
    rows = decisive_features(
        reward.weights,
        spread=feature_spread(differences),
        names=feature_names(reward.features, len(reward.weights)),
        most=most,
    )
    return {"source": source, "features": len(reward.weights), "rows": rows}


def measure_confidence(policy: ConfidencePolicy, pairs: Comparisons) -> dict[str, Any]:
    """Return what a pessimistic or optimistic policy does with its uncertainty, on public texts."""
    candidates = list(zip(pairs.first, pairs.second, strict=True))
    known = getattr(policy.reward, "ellipsoid", None)
    return {
        "kind": policy.kind,
        "confidence": policy.confidence,
        "scale": policy.scale,
        "heuristic": policy.heuristic,
        "radius": None if known is None else known.radius(policy.confidence),
        **policy.coverage(pairs.prompts, candidates).to_dict(),
    }


def measure_examples(
    policy: CandidatePolicy, pairs: Comparisons, *, source: str, most: int = 3
) -> dict[str, Any] | None:
    """Return a few pairs with their probabilities before and after; None without texts."""
    # The first 1,000 pairs are looked at.
    if not pairs.prompts:
        return None
    prompts, first, second = (
        column[:_SEARCHED] for column in (pairs.prompts, pairs.first, pairs.second)
    )
    chances = policy.probabilities(prompts, list(zip(first, second, strict=True)))
    probabilities = np.array([chance[0] for chance in chances])
    rows = choose_examples(prompts, first, second, probabilities=probabilities, most=most)
    return {"source": source, "rows": rows}


def describe_guarantee_and_caveats(guarantee: Guarantee) -> dict[str, Any]:
    """Return the two fields in which every result states its promise."""
    return {"guarantee": guarantee.to_dict(), "caveats": list(guarantee.caveats)}


def describe_ledger_rows(ledger: Ledger) -> dict[str, Any]:
    """Return what a report and ``ledger show`` say of a ledger."""
    total = ledger.total()
    # A budget has no caveats of its own: it limits promises like those that were made.
    caveats = {} if total is None else {"caveats": list(total.caveats)}
    return {
        "data": ledger.data,
        "budget": ledger.budget.to_dict() | caveats,
        "total": None if total is None else total.to_dict(),
        "remaining_epsilon": ledger.remaining_epsilon(),
        "head": ledger.head.digest,
        "rows": ledger.head.rows,
        "entries": [
            {
                "sequence": row.sequence,
                "kind": row.kind,
                "time": row.time,
                "release_id": row.release_id,
                "event": row.event,
                "parameters": json.loads(row.parameters),
                "count": row.count,
                "scope": row.scope,
                "details": json.loads(row.payload).get("details", {}),
            }
            for row in ledger.rows
        ],
    }
