"""Whole records behind a tilted fit: nothing is told that prompts, answers or labels decide."""

from __future__ import annotations

from typing import Any

from sordino.cli._inputs import Learned
from sordino.cli._noise import Noise, records_of
from sordino.cli._policy import (
    NO_METRICS,
    NO_WINS,
    describe_policy,
    make_policy,
    show_examples,
)
from sordino.cli._settings import Settings
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.pairs import Pairs
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_fit_settings, measure_decisive
from sordino.rewards.estimation import fit_reward
from sordino.rewards.model import RewardModel
from sordino.rewards.paid_metrics import PaidMetrics, held_out_rows
from sordino.rewards.paid_record_metrics import measure_records

__all__ = ["describe_learned", "learn_from_records"]


def learn_from_records(
    settings: Settings, pairs: Pairs, noise: Noise, ledger: Ledger, *, public: Pairs | None
) -> Learned:
    """Return what a tilted fit of records teaches, and what was bought besides."""
    reward = fit_reward(
        pairs,
        mechanism=noise.estimate,
        second_moment=noise.second_moment,
        ledger=ledger,
        features=settings.features(records_of(settings, pairs)),
        ball=settings.ball,
        ellipsoid=settings.confidence is not None,
        held_out=None if noise.metrics is None else held_out_rows(pairs),
        simulate_seed=settings.simulate_seed,
    )
    paid = _bought(settings, reward, pairs, noise, ledger)
    return describe_learned(settings, reward, paid, noise, ledger, public=public)


def describe_learned(
    settings: Settings,
    reward: RewardModel,
    paid: PaidMetrics | None,
    noise: Noise,
    ledger: Ledger,
    *,
    public: Pairs | None,
) -> Learned:
    """Return what is told of a fit of records, and of what was bought besides.

    Args:
        settings: What the user asked for.
        reward: The fit.
        paid: Metrics, or None.
        noise: What was added.
        ledger: What paid.
        public: Judgments that may be shown, or None.
    """
    measured = {**NO_METRICS, **NO_WINS}
    if paid is not None:
        reward, measured = paid.attached(reward, ledger), paid.to_dict()
    policy = make_policy(reward, **settings.policy_terms)
    wins = {name: measured.pop(name) for name in NO_WINS}
    parts = {
        "mechanism": noise.describe(),
        "metrics": noise.describe_metrics(paid),
        "data": {
            "name": ledger.data,
            "pairs": reward.pairs,
            "dropped_identical": None,
            "capped": None,
        },
        "reward": {**measured, **describe_fit_settings(reward)},
        **_findings(policy, reward, wins, public),
    }
    # a time tells how many records there were, and how long their texts
    return Learned(reward=reward, policy=policy, ledger=ledger, parts=parts, timed=False)


def _bought(
    settings: Settings, reward: RewardModel, pairs: Pairs, noise: Noise, ledger: Ledger
) -> PaidMetrics | None:
    """Return metrics on records that the fit did not see, if the user pays for them."""
    if not isinstance(noise.metrics, GaussianMechanism):
        return None
    return measure_records(
        reward,
        pairs,
        noise.metrics,
        held_out=held_out_rows(pairs),
        ledger=ledger,
        temperature=settings.temperature,
        simulate_seed=settings.other_seed,
    )


def _findings(
    policy: CandidatePolicy, reward: RewardModel, wins: dict[str, Any], public: Pairs | None
) -> dict[str, Any]:
    """Return the policy, and what the page shows besides metrics, from a public file alone."""
    decisive = None
    if public is not None:
        differences = public.differences(reward.features)
        decisive = measure_decisive(reward, differences, source="public")
    return {
        "policy": {
            **describe_policy(policy),
            "temperature": policy.temperature,
            **wins,
            "kl": None,
            "pessimism": None,
        },
        "utility": None,
        "decisive": decisive,
        "examples": show_examples(policy, public=public, released=None),
        "calibration": [],
    }
