"""The numbers of a run, as ``result.json`` holds them; every one is already private or public."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from sordino.environments.annotators import TrueReward
from sordino.policies.gibbs import GibbsPolicy
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.reporting.summary import calibration_bins
from sordino.rewards import metrics
from sordino.rewards.estimation import HeldOut
from sordino.rewards.model import RewardModel

__all__ = [
    "calibration",
    "describe_ledger_rows",
    "measure_policy",
    "measure_public",
    "measure_reward",
    "measure_truth",
]


def measure_reward(held_out: HeldOut) -> dict[str, Any]:
    """Return debiased metrics of a reward on held-out randomized answers; they cost nothing."""
    given = (held_out.differences, held_out.answers, held_out.flip_probability)
    accuracy = metrics.accuracy(*given, clusters=held_out.clusters)
    likelihood = metrics.negative_log_likelihood(*given, clusters=held_out.clusters)
    slope = metrics.calibration_slope(*given, clusters=held_out.clusters)
    return {
        "accuracy": accuracy.value,
        "accuracy_standard_error": accuracy.standard_error,
        "negative_log_likelihood": likelihood.value,
        "negative_log_likelihood_standard_error": likelihood.standard_error,
        "calibration_slope": None if slope is None else slope.value,
        "calibration_slope_standard_error": None if slope is None else slope.standard_error,
    }


def measure_policy(held_out: HeldOut, temperature: float) -> dict[str, Any]:
    """Return how often a Gibbs policy on the two answers picks the preferred one, debiased."""
    chances = expit(held_out.differences / temperature)
    rate = metrics.win_rate(
        chances, held_out.answers, held_out.flip_probability, clusters=held_out.clusters
    )
    return {
        "temperature": temperature,
        "win_rate": rate.value,
        "win_rate_interval": [rate.lower, rate.upper],
        "kl": float(_kl_from_uniform(chances).mean()),
    }


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
    gaps = np.asarray(pairs.differences(reward.features) @ reward.weights)
    given = (gaps, pairs.labels, 0.0)
    return {
        "pairs": len(pairs),
        "accuracy": metrics.accuracy(*given).value,
        "negative_log_likelihood": metrics.negative_log_likelihood(*given).value,
        "win_rate": metrics.win_rate(expit(gaps / temperature), pairs.labels, 0.0).value,
    }


def measure_truth(policy: GibbsPolicy, pairs: Comparisons, truth: TrueReward) -> dict[str, float]:
    """Return the policy's regret under the true reward of a simulation."""
    gaps = policy.reward.score(pairs.prompts, pairs.first) - policy.reward.score(
        pairs.prompts, pairs.second
    )
    first = expit(gaps / policy.temperature)
    scores = np.stack([truth.score(pairs.first), truth.score(pairs.second)], axis=1)
    return truth.value(np.stack([first, 1 - first], axis=1), scores, policy.temperature)


def describe_guarantee_and_caveats(guarantee: Guarantee) -> dict[str, Any]:
    """Return the two fields in which every result states its promise."""
    return {"guarantee": guarantee.to_dict(), "caveats": list(guarantee.caveats)}


def describe_ledger_rows(ledger: Ledger) -> dict[str, Any]:
    """Return what a report and ``ledger show`` say of a ledger."""
    total = ledger.total()
    return {
        "data": ledger.data,
        "budget": ledger.budget.to_dict(),
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
