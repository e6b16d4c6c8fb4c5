"""The numbers of a run, as ``result.json`` holds them; every one is already private or public."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino.environments.truth import TrueReward
from sordino.errors import DataError
from sordino.policies.gibbs import CandidatePolicy
from sordino.policies.pessimism import ConfidencePolicy
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.label_values import UNDECIDED
from sordino.privacy.ledger import Ledger
from sordino.reporting.decisive import decisive_features, feature_names, feature_spread
from sordino.reporting.examples import choose_examples
from sordino.reporting.summary import calibration_bins
from sordino.rewards import metrics
from sordino.rewards.design import HeldOut
from sordino.rewards.forecast import utility_curve
from sordino.rewards.model import RewardModel

__all__ = [
    "calibration",
    "describe_fit_settings",
    "describe_ledger_rows",
    "effective_dimension",
    "mean_kl",
    "measure_confidence",
    "measure_decisive",
    "measure_examples",
    "measure_policy",
    "measure_public",
    "measure_reward",
    "measure_truth",
    "predict_utility",
]

_CURVE = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0)
_ASSUMED = 0.65  # how well a perfect reward predicts one judgment
_SAMPLE = 2000  # rows that say enough about the directions of the features
_SEARCHED = 1000  # pairs among which examples are looked for


def measure_reward(held_out: HeldOut) -> dict[str, Any]:
    """Return debiased metrics of a reward on held-out randomized answers; they cost nothing."""
    given = (held_out.differences, held_out.answers, held_out.flip_probability)
    return metrics.RewardMetrics(
        accuracy=metrics.accuracy(*given, clusters=held_out.clusters),
        negative_log_likelihood=metrics.negative_log_likelihood(*given, clusters=held_out.clusters),
        calibration_slope=metrics.calibration_slope(*given, clusters=held_out.clusters),
    ).to_dict()


def measure_policy(held_out: HeldOut, temperature: float) -> dict[str, Any]:
    """Return how often a Gibbs policy on the two answers picks the preferred one, debiased."""
    chances = expit(held_out.differences / temperature)
    rate = metrics.win_rate(
        chances, held_out.answers, held_out.flip_probability, clusters=held_out.clusters
    )
    return {
        "temperature": temperature,
        **metrics.legible({"win_rate": rate.value, "win_rate_interval": [rate.lower, rate.upper]}),
        "kl": mean_kl(held_out.differences, temperature),
    }


def mean_kl(margins: Float[np.ndarray, " n"], temperature: float) -> float:
    """Return how far a Gibbs policy on two answers lies from choosing evenly, in nats.

    Args:
        margins: Reward of the first answer minus that of the second.
        temperature: Of the policy.
    """
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
    """Return how a reward was fitted, and how well a typical weight is known.

    Args:
        reward: The released reward.
        asked: The method that the user asked for.
    """
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
    """Return in about how many directions comparisons differ: between 1 and the features' number.

    It reads public feature differences only.

    Source:
        The participation ratio of their second moments, (tr G)²/tr G², G = Σ xᵢxᵢᵀ, here by the
        inner products of at most 2,000 evenly spaced rows.

    Args:
        differences: φ(first) − φ(second), shape (n, d), dense or sparse.

    Example:
        >>> effective_dimension(np.eye(3))
        3.0
        >>> effective_dimension(np.array([[1.0, 1.0], [2.0, 2.0]]))
        1.0
    """
    rows = differences[:: max(1, -(-differences.shape[0] // _SAMPLE))]
    products = rows @ rows.T
    products = np.asarray(products.toarray() if hasattr(products, "toarray") else products)
    square = float(np.sum(products**2))
    return float(np.trace(products)) ** 2 / square if square else 1.0


def predict_utility(
    pairs: int, differences: Any, *, chosen: float, way: str = "local", delta: float = 1e-6
) -> dict[str, Any]:
    """Return the accuracy foreseen at several epsilons, the chosen one among them.

    Args:
        pairs: How many there are; must be public.
        differences: Their public feature differences.
        chosen: The privacy loss of one label.
        way: Where the noise is, as :func:`sordino.estimate` names it.
        delta: Failure probability, for a way that has one.
    """
    dimension = effective_dimension(differences)
    inside = _CURVE[0] <= chosen <= _CURVE[-1]
    losses = sorted({*_CURVE, float(chosen)}) if inside else _CURVE
    rows = utility_curve(
        pairs,
        dimension=round(dimension),
        epsilons=losses,
        accuracy=_ASSUMED,
        way=way,
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
    """Return the most decisive features of a released reward.

    Args:
        reward: The released reward.
        differences: Feature differences of pairs whose texts may be known.
        source: Whose they are: ``"public"`` (declared so by the user), ``"released"`` (an answer
            file) or ``"comparisons"`` (this data set, where only its labels are protected).
        most: Largest number of features.
    """
    rows = decisive_features(
        reward.weights,
        spread=feature_spread(differences),
        names=feature_names(reward.features, len(reward.weights)),
        most=most,
    )
    return {"source": source, "features": len(reward.weights), "rows": rows}


def measure_confidence(policy: ConfidencePolicy, pairs: Comparisons) -> dict[str, Any]:
    """Return what a pessimistic or optimistic policy does with its uncertainty, on public texts.

    Args:
        policy: Made from a reward of texts.
        pairs: Comparisons whose texts are public; each prompt's two answers are the candidates.
    """
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
    """Return a few pairs with their probabilities before and after; None without texts.

    The first 1,000 pairs are looked at.

    Args:
        policy: Made from a released reward.
        pairs: Pairs that the user declared public, or that arrived as an answer file.
        source: Which of the two: ``"public"`` or ``"released"``.
        most: Largest number of examples.
    """
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
