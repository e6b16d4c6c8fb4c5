"""Labels behind one noised sum: prompts, answers and persons are public, and used as such.

Whole records behind a tilted fit: nothing is told that prompts, answers or labels decide.

Noise on the estimate: a curator reads raw judgments and releases one noised estimate of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Bool

from sordino.errors import BudgetExceeded
from sordino.mechanisms.gaussian import GaussianMechanism
from sordino.mechanisms.label_sum import LabelGaussian
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.pairs import Pairs
from sordino.privacy.guarantee import ADD_OR_REMOVE_ONE, Guarantee, merge
from sordino.privacy.ledger import Ledger
from sordino.reporting.result import (
    describe_fit_settings,
    describe_guarantee_and_caveats,
    mean_kl,
    measure_decisive,
    predict_utility,
)
from sordino.rewards.estimation import fit_released, fit_reward
from sordino.rewards.label_release import (
    ReleasedLabels,
    countable_rows,
    label_promise,
    release_labels,
)
from sordino.rewards.metrics import legible, measure_statistic
from sordino.rewards.model import RewardModel
from sordino.rewards.private_metric_releases import measure_labels, measure_records
from sordino.rewards.private_metrics import PrivateMetrics, held_out_rows, refuse_one_sided
from sordino.rewards.release_checks import entropy_of, record_promise

from ._accounts import Limit, future_ledger, open_ledger, spending_limit, with_spend
from ._align_inputs import Inputs, Learned, Noise, records_of
from ._align_settings import Settings
from ._options import Unit
from ._policy_choice import (
    NO_METRICS,
    NO_WINS,
    describe_distrust,
    describe_policy,
    make_policy,
    show_examples,
)


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
) -> PrivateMetrics | None:
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
    reward: RewardModel, paid: PrivateMetrics, ledger: Ledger
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
    """Return the policy, and what the page shows besides metrics, from public vectors."""
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
        noise="label-estimate",
        delta=settings.failure,
    )


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
    paid = _bought_of_records(settings, reward, pairs, noise, ledger)
    return describe_learned(settings, reward, paid, noise, ledger, public=public)


def describe_learned(
    settings: Settings,
    reward: RewardModel,
    paid: PrivateMetrics | None,
    noise: Noise,
    ledger: Ledger,
    *,
    public: Pairs | None,
) -> Learned:
    """Return what is told of a fit of records, and of what was bought besides."""
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


def _bought_of_records(
    settings: Settings, reward: RewardModel, pairs: Pairs, noise: Noise, ledger: Ledger
) -> PrivateMetrics | None:
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


def plan(settings: Settings, inputs: Inputs) -> dict[str, Any]:
    """Return what a run would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left.
        DataError: Nothing could be held out for metrics.
    """
    pairs = _raw(inputs)
    noise = Noise.of(settings, pairs)
    ledger = planned_ledger(settings, noise)
    if noise.metrics is not None and not settings.hides_texts:
        refuse_one_sided(held_out_rows(pairs))
    promise = _promise(settings, pairs, noise, ledger)
    check_spends(noise, ledger, promise)
    counted = settings.relation != ADD_OR_REMOVE_ONE
    return {
        "spend": promise.epsilon,
        "pairs": len(pairs) + (pairs.dropped if settings.hides_texts else 0) if counted else None,
        "dropped_identical": None if settings.hides_texts else pairs.dropped,
        "mechanism": noise.describe(),
        "metrics": noise.describe_metrics(),
        **describe_guarantee_and_caveats(promise),
    }


def open_account(settings: Settings, inputs: Inputs) -> Ledger:
    """Return the ledger of a run."""
    return opened_ledger(settings, Noise.of(settings, _raw(inputs)))


def learn(settings: Settings, inputs: Inputs, ledger: Ledger) -> Learned:
    """Return what one noised estimate teaches."""
    pairs = _raw(inputs)
    noise = Noise.of(settings, pairs)
    if settings.hides_texts:
        return learn_from_records(settings, pairs, noise, ledger, public=inputs.public)
    return learn_from_labels(settings, pairs, noise, ledger, public=inputs.public)


def _raw(inputs: Inputs) -> Pairs:
    """Return the raw judgments; reading refused all others."""
    assert isinstance(inputs.pairs, Pairs)  # noqa: S101 - for the type checker
    return inputs.pairs


def planned_ledger(settings: Settings, noise: Noise) -> Ledger:
    """Return the ledger of a run as it would be, for planning: nothing on disk is touched."""
    limit = _limit(settings, noise)
    ledger = future_ledger(settings.ledger_path, settings.data, limit, request=settings.request)
    ledger.check_data(settings.data, None)
    return ledger


def opened_ledger(settings: Settings, noise: Noise) -> Ledger:
    """Return the ledger of a run, made if there is none."""
    limit = _limit(settings, noise)
    return open_ledger(settings.ledger_path, settings.data, limit)


def check_spends(noise: Noise, ledger: Ledger, promise: Guarantee) -> None:
    """Refuse what a ledger has no room for."""
    after = with_spend(ledger, noise.estimate.event, promise)
    if noise.metrics is not None:
        with_spend(after, noise.metrics.event, promise)


def _limit(settings: Settings, noise: Noise) -> Limit:
    """Return the limit of a new ledger: what this run spends."""
    return spending_limit(
        noise.epsilon(settings),
        settings.budget,
        unit=settings.unit.whose,
        trust="central",
        delta=settings.failure,
        neighbors=settings.relation,
    )


def _promise(settings: Settings, pairs: Pairs, noise: Noise, ledger: Ledger) -> Guarantee:
    """Return what everything together would promise."""
    entropy = entropy_of(settings.simulate_seed)
    if isinstance(noise.estimate, LabelGaussian):
        alone = label_promise(pairs, noise.estimate, ledger, entropy)
    else:
        alone = record_promise(noise.estimate, ledger, entropy, n=len(pairs) + pairs.dropped)
    return promise_together(settings, noise, ledger, alone)


def promise_together(
    settings: Settings, noise: Noise, ledger: Ledger, alone: Guarantee
) -> Guarantee:
    """Return what a reward promises together with its metrics, from what it promises alone."""
    # a reward and metrics are stated together, at the delta of the ledger that paid for both
    delta = settings.failure if noise.metrics is None else ledger.budget.delta
    epsilon = noise.epsilon(settings, delta)
    if math.isinf(epsilon):
        raise BudgetExceeded(
            f"A reward and its metrics have no finite epsilon at the delta={delta!r} of "
            f"{ledger.path.name}. Nothing was released. Leave --metrics-epsilon out, or raise the "
            "limit with --budget-delta, which the ledger records."
        )
    return merge([alone], epsilon=epsilon, delta=delta)
