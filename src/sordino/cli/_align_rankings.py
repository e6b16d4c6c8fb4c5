"""Noise on the estimate with rankings: ballots of an election, or ordered answers to prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

from sordino.errors import UsageError
from sordino.mechanisms.ranking_objective_perturbation import RankingObjectivePerturbation
from sordino.mechanisms.ranking_sum import RankingGaussian
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.features import HashedText
from sordino.preferences.rankings import Rankings
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import describe_fit_settings, describe_guarantee_and_caveats
from sordino.rewards.estimation import fit_reward
from sordino.rewards.model import RewardModel
from sordino.rewards.ranking_release import ranking_promise
from sordino.rewards.release_checks import entropy_of, record_promise

from ._accounts import Limit, future_ledger, open_ledger, spending_limit, with_spend
from ._align_inputs import Inputs, Learned, questions_of_one_person
from ._align_settings import Settings
from ._options import Unit
from ._policy_choice import NO_METRICS, NO_WINS, describe_policy, make_policy

_ITEM = 1.0  # norm of the vector of an item that has one weight
Mechanism = RankingGaussian | RankingObjectivePerturbation


def plan(settings: Settings, inputs: Inputs) -> dict[str, Any]:
    """Return what a run would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left.
    """
    rankings = _rankings(inputs)
    mechanism = _mechanism(settings, rankings)
    ledger = future_ledger(
        settings.ledger_path,
        settings.data,
        _limit(settings),
        request=settings.request,
    )
    ledger.check_data(settings.data, None)
    promise = _promise(settings, rankings, mechanism, ledger)
    with_spend(ledger, mechanism.event, promise)
    return {
        "spend": promise.epsilon,
        "pairs": None,
        "ballots": _public_size(settings, rankings),
        "dropped_identical": None,
        "mechanism": _described(mechanism),
        "metrics": None,
        **describe_guarantee_and_caveats(promise),
    }


def open_account(settings: Settings, inputs: Inputs) -> Ledger:
    """Return the ledger of a run."""
    del inputs
    return open_ledger(settings.ledger_path, settings.data, _limit(settings))


def learn(settings: Settings, inputs: Inputs, ledger: Ledger) -> Learned:
    """Return what one noised sum of rankings, or a tilted fit of them, teaches."""
    rankings = _rankings(inputs)
    mechanism = _mechanism(settings, rankings)
    reward = fit_reward(
        rankings,
        mechanism=mechanism,
        ledger=ledger,
        features=None if rankings.items else HashedText(dimension=settings.dimension),
        ridge=None if settings.hides_texts else settings.ridge,
        ball=settings.ball,
        simulate_seed=settings.simulate_seed,
    )
    policy = make_policy(reward, **settings.policy_terms)
    parts = {
        "mechanism": _described(mechanism),
        "metrics": None,
        "data": _data(settings, rankings, reward, ledger.data),
        "reward": {**NO_METRICS, **describe_fit_settings(reward)},
        "policy": {
            **describe_policy(policy),
            "temperature": policy.temperature,
            "kl": None,
            **NO_WINS,
            "pessimism": None,
            "choices": _choices(policy, reward),
        },
        "items": _items(reward),
        "utility": None,
        "decisive": None,
        "examples": None,
        "calibration": [],
    }
    timed = not settings.hides_texts  # a time tells how many ballots there were, and how long
    return Learned(reward=reward, policy=policy, ledger=ledger, parts=parts, timed=timed)


def _rankings(inputs: Inputs) -> Rankings:
    """Return the rankings; this way is taken for nothing else."""
    assert isinstance(inputs.pairs, Rankings)  # noqa: S101 - for the type checker
    return inputs.pairs


def _mechanism(settings: Settings, rankings: Rankings) -> Mechanism:
    """Return what hides a ballot, all ballots of a person, or a whole record."""
    if settings.hides_texts:
        if rankings.items is None:
            raise UsageError(
                "--unit record needs a public list of items that everybody ranks; here every "
                "ballot has candidates of its own. Nothing was done. Use --unit label, or "
                "RankingObjectivePerturbation in Python with a public limit on candidates."
            )
        return RankingObjectivePerturbation(
            settings.total,
            delta=settings.failure,
            bound=_ITEM if settings.bound is None else settings.bound,
            candidates=len(rankings.items),
            dimension=len(rankings.items),
            neighbors=settings.relation,
            ridge=settings.ridge,
        )
    most = None
    if settings.unit is Unit.person:
        known = questions_of_one_person(rankings)
        most = settings.cap or known
    return RankingGaussian(
        settings.total, delta=settings.failure, statistic="borda", records_per_person=most
    )


def _described(mechanism: Mechanism) -> dict[str, Any]:
    """Return what is known of the noise."""
    common = {"epsilon": mechanism.epsilon, "delta": mechanism.delta}
    if isinstance(mechanism, RankingGaussian):
        return {
            "name": "ranking-gaussian",
            **common,
            "mu": mechanism.mu,
            "statistic": mechanism.statistic,
            "shaped": mechanism.shaped,
            "records_per_person": mechanism.records_per_person,
        }
    return {
        "name": "ranked-perturbation",
        **common,
        "bound": mechanism.bound,
        "candidates": mechanism.candidates,
        "dimension": mechanism.dimension,
        "ridge": mechanism.ridge,
        "standard_deviation": mechanism.standard_deviation,
    }


def _limit(settings: Settings) -> Limit:
    """Return the limit of a new ledger: what this run spends."""
    return spending_limit(
        settings.total,
        settings.budget,
        unit=settings.unit.whose,
        trust="central",
        delta=settings.failure,
        neighbors=settings.relation,
    )


def _promise(
    settings: Settings, rankings: Rankings, mechanism: Mechanism, ledger: Ledger
) -> Guarantee:
    """Return what the release would promise."""
    entropy = entropy_of(settings.simulate_seed)
    if isinstance(mechanism, RankingGaussian):
        return ranking_promise(rankings, mechanism, ledger, entropy)
    return record_promise(mechanism, ledger, entropy, n=len(rankings))


def _public_size(settings: Settings, rankings: Rankings) -> int | None:
    """Return how many ballots there are, where one change leaves that as it is."""
    return None if settings.relation == ADD_OR_REMOVE_ONE else len(rankings)


def _data(settings: Settings, rankings: Rankings, reward: RewardModel, name: str) -> dict[str, Any]:
    """Return what was used, in public numbers."""
    capped = None
    if not settings.hides_texts:
        capped = int(np.sum(rankings.first_rows())) - (reward.pairs or 0)
    return {
        "name": name,
        "pairs": None,
        "ballots": _public_size(settings, rankings),
        "items": None if rankings.items is None else len(rankings.items),
        "dropped_identical": None,
        "capped": capped,
    }


def _items(reward: RewardModel) -> list[dict[str, Any]] | None:
    """Return the items, best first, with 95% intervals where these are known; last without data."""
    if reward.items is None:
        return None
    return [
        {"name": name, "worth": worth, "interval": None if low is None else [low, high]}
        for name, worth, low, high in reward.worths()
    ]


def _choices(policy: CandidatePolicy, reward: RewardModel) -> list[dict[str, Any]] | None:
    """Return how often the policy picks each item, best first."""
    if reward.items is None or reward.features is not None:
        return None
    rows = np.eye(len(reward.items)) if reward.item_features is None else reward.item_features
    (chances,) = policy.probabilities(None, [rows])
    order = sorted(zip(reward.items, chances.tolist(), strict=True), key=lambda pair: -pair[1])
    return [{"name": name, "probability": chance} for name, chance in order]
