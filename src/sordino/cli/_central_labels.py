"""Labels behind one noised sum: prompts, answers and persons are public, and used as such."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool

from sordino.cli._inputs import Learned
from sordino.cli._noise import Noise
from sordino.cli._options import Unit
from sordino.cli._policy import (
    NO_WINS,
    describe_distrust,
    describe_policy,
    make_policy,
    show_examples,
)
from sordino.cli._settings import Settings
from sordino.mechanisms.label_gaussian import LabelGaussian
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.pairs import Pairs
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import (
    describe_fit_settings,
    mean_kl,
    measure_decisive,
    predict_utility,
)
from sordino.rewards.label_estimation import fit_released
from sordino.rewards.label_metrics import measure_statistic
from sordino.rewards.label_release import ReleasedLabels, countable_rows, release_labels
from sordino.rewards.metrics import legible
from sordino.rewards.model import RewardModel
from sordino.rewards.paid_label_metrics import measure_labels
from sordino.rewards.paid_metrics import PaidMetrics, held_out_rows

__all__ = ["describe_findings", "learn_from_labels", "with_bought"]


def learn_from_labels(
    settings: Settings, pairs: Pairs, noise: Noise, ledger: Ledger, *, public: Pairs | None
) -> Learned:
    """Return what one noised sum of labels teaches, and what is free or was bought besides."""
    held_out = None if noise.metrics is None else held_out_rows(pairs)
    released = _released(settings, pairs, noise, ledger, held_out)
    asked: dict[str, Any] = {"ridge": settings.ridge, "ball": settings.ball}
    reward = fit_released(released, **asked)
    paid = _bought(settings, reward, pairs, noise, ledger, held_out)
    if paid is None:
        measured = legible(measure_statistic(released.evidence, **asked))
        wins = {**NO_WINS}
    else:
        reward, measured, wins = with_bought(reward, paid, ledger)
    policy = make_policy(reward, **settings.policy_terms)
    differences = pairs.differences(reward.features)
    findings = describe_findings(settings, policy, reward, differences, n=len(pairs))
    findings["policy"] |= {**wins, "pessimism": describe_distrust(policy, pairs)}
    findings["examples"] = show_examples(policy, public=public, released=None)
    parts = {
        "mechanism": noise.describe(),
        "metrics": noise.describe_metrics(paid),
        "data": _data(ledger.data, pairs, len(released.evidence), held_out),
        "reward": {**measured, **describe_fit_settings(reward)},
        **findings,
    }
    return Learned(reward=reward, policy=policy, ledger=ledger, parts=parts, timed=True)


def _released(
    settings: Settings,
    pairs: Pairs,
    noise: Noise,
    ledger: Ledger,
    held_out: Bool[np.ndarray, " n"] | None,
) -> ReleasedLabels:
    """Return the noised sum of the labels that the fit may see."""
    assert isinstance(noise.estimate, LabelGaussian)  # noqa: S101 - for the type checker
    return release_labels(
        pairs,
        noise.estimate,
        ledger=ledger,
        features=settings.features(len(pairs)),
        held_out=held_out,
        simulate_seed=settings.simulate_seed,
    )


def _bought(
    settings: Settings,
    reward: RewardModel,
    pairs: Pairs,
    noise: Noise,
    ledger: Ledger,
    held_out: Bool[np.ndarray, " n"] | None,
) -> PaidMetrics | None:
    """Return metrics on labels that the fit did not see, if the user pays for them."""
    if held_out is None or not isinstance(noise.metrics, LabelGaussian):
        return None
    return measure_labels(
        reward,
        pairs,
        noise.metrics,
        held_out=held_out,
        ledger=ledger,
        temperature=settings.temperature,
        simulate_seed=settings.other_seed,
    )


def with_bought(
    reward: RewardModel, paid: PaidMetrics, ledger: Ledger
) -> tuple[RewardModel, dict[str, Any], dict[str, Any]]:
    """Return the reward with the promise of both, what is said of it, and of its policy's wins."""
    measured = paid.to_dict()
    wins = {name: measured.pop(name) for name in NO_WINS}
    return paid.attached(reward, ledger), measured, wins


def _data(
    name: str, pairs: Pairs, used: int, held_out: Bool[np.ndarray, " n"] | None
) -> dict[str, Any]:
    """Return what was used, in public numbers."""
    rows = countable_rows(pairs)
    seen = len(rows) if held_out is None else int((~held_out[rows]).sum())
    capped = seen - used
    people = {} if pairs.persons is None else {"persons": len(set(pairs.persons))}
    return {
        "name": name,
        "pairs": len(pairs) - capped,
        "dropped_identical": pairs.dropped,
        "capped": capped,
        **people,
    }


def describe_findings(
    settings: Settings, policy: CandidatePolicy, reward: RewardModel, differences: Any, *, n: int
) -> dict[str, Any]:
    """Return the policy, and what the page shows besides metrics, from public vectors.

    Args:
        settings: What the user asked for.
        policy: Made from the reward.
        reward: The released reward.
        differences: Public feature differences of all pairs, or of evenly spaced ones.
        n: How many pairs there are.
    """
    margins = np.asarray(differences @ reward.weights)
    return {
        "policy": {
            **describe_policy(policy),
            "kl": mean_kl(margins, policy.temperature),
            "temperature": policy.temperature,
            **NO_WINS,
            "pessimism": None,
        },
        "utility": _utility(settings, n, differences),
        "decisive": measure_decisive(reward, differences, source="comparisons"),
        "examples": None,
        "calibration": [],
    }


def _utility(settings: Settings, pairs: int, differences: Any) -> dict[str, Any] | None:
    """Return the accuracy foreseen at several epsilons; None for persons, who give any number."""
    if settings.unit is Unit.person:
        return None
    return predict_utility(
        pairs,
        differences,
        chosen=settings.total,
        way="label-central",
        delta=settings.failure,
    )
