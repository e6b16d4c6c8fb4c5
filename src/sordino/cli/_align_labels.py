"""Noise on labels: what a run may spend, what it would, and the randomization itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sordino.errors import DataError, UsageError
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.policies.gibbs import CandidatePolicy
from sordino.preferences.features import HashedText
from sordino.preferences.pairs import Pairs, PrivatePairs, read_manifest
from sordino.privacy.guarantee import never_less
from sordino.privacy.ledger import Ledger
from sordino.privatization.memory import plan_pairs, privatize
from sordino.privatization.randomization import Randomization
from sordino.reporting.result import (
    calibration,
    describe_fit_settings,
    describe_guarantee_and_caveats,
    measure_decisive,
    measure_policy,
    measure_reward,
    predict_utility,
)
from sordino.rewards.answer_fit import cross_fit
from sordino.rewards.estimation import fit_answers
from sordino.rewards.evidence import Design, HeldOut
from sordino.rewards.model import RewardModel

from ._accounts import Limit, future_ledger, open_ledger, spending_limit
from ._align_inputs import Inputs, Learned, questions_of_one_person
from ._align_settings import Settings
from ._app import Bar
from ._options import Unit, choose_coin
from ._policy_choice import describe_distrust, describe_policy, make_policy, show_examples

_LEAST_LEFT = 12


def _coin(settings: Settings, pairs: Pairs) -> RandomizedResponse:
    """Return the coin for raw labels: what one label may cost."""
    return choose_coin(
        settings.total,
        unit=settings.unit,
        cap=settings.cap,
        most=lambda: questions_of_one_person(pairs),
    )


def plan(settings: Settings, inputs: Inputs) -> dict[str, Any]:
    """Return what a run would spend; nothing is touched.

    Raises:
        BudgetExceeded: The ledger has not enough left.
    """
    pairs = _pairs(inputs)
    limit = _limit(settings, pairs)
    ledger = future_ledger(settings.ledger_path, settings.data, limit, request=settings.request)
    ledger.check_data(settings.data, None)
    if isinstance(pairs, PrivatePairs):
        return _plan_received(settings, pairs)
    randomization = Randomization.of(
        _coin(settings, pairs),
        ledger,
        on_device=False,
        simulate_seed=settings.simulate_seed,
        cap=settings.cap,
    )
    planned = plan_pairs(pairs, randomization, data=settings.data)
    _refuse_few_left(planned, pairs, settings.cap)
    return planned


def _pairs(inputs: Inputs) -> Pairs | PrivatePairs:
    """Return judgments of pairs; this way is taken for nothing else."""
    assert isinstance(inputs.pairs, Pairs | PrivatePairs)  # noqa: S101 - for the type checker
    return inputs.pairs


def _plan_received(settings: Settings, pairs: PrivatePairs) -> dict[str, Any]:
    """Return what answers cost that are private already: nothing."""
    promise = pairs.guarantee
    wanted = []
    if settings.epsilon is not None and settings.epsilon < promise.epsilon:
        wanted.append(f"--epsilon {settings.epsilon!r}")
    if settings.unit is Unit.person and promise.unit != "person":
        wanted.append("--unit person")
    if wanted:
        raise UsageError(
            f"These answers were randomized with epsilon={never_less(promise.epsilon)} per "
            f"{promise.unit}; {' and '.join(wanted)} cannot be promised of them any more. Nothing "
            f"was done. Leave {' and '.join(text.partition(' ')[0] for text in wanted)} out."
        )
    if settings.cap is not None:
        raise UsageError(
            "--cap chooses among raw judgments, before they are randomized; these answers are "
            "randomized already. Nothing was done. Leave it out."
        )
    counts = {"pairs": len(pairs), "dropped_identical": pairs.dropped}
    return {"spend": 0.0, **counts, **describe_guarantee_and_caveats(promise)}


def _refuse_few_left(planned: Mapping[str, Any], pairs: Pairs, cap: int | None) -> None:
    """Refuse a cap that leaves too few answers to hold any out, whichever are chosen."""
    if not cap or not planned["capped_questions"]:
        return
    left = len(set(zip(pairs.persons or (), pairs.keys, strict=True))) - planned["capped_questions"]
    if left < _LEAST_LEFT:
        raise DataError(
            f"A cap of {cap} leaves {left} answers of {planned['persons']} persons, which are too "
            "few to measure anything on held-out ones; a dozen is the least. Nothing was spent. "
            "Raise --cap, or take in more people."
        )


def open_account(settings: Settings, inputs: Inputs) -> Ledger:
    """Return the ledger of a run."""
    limit = _limit(settings, _pairs(inputs))
    return open_ledger(settings.ledger_path, settings.data, limit)


def learn(settings: Settings, inputs: Inputs, ledger: Ledger) -> Learned:
    """Return what randomized answers teach; raw ones are randomized first."""
    pairs = _pairs(inputs)
    private = _crossed(settings, inputs, ledger)
    asked: dict[str, Any] = {
        "ridge": settings.ridge,
        "ball": settings.ball,
        "method": settings.fitted_by,
    }
    with Bar.shown("Fitting") as bar:
        reward, design = fit_answers(
            private, features=HashedText(dimension=settings.dimension), **asked
        )
        held_out = cross_fit(design, **asked, progress=bar)
    policy = make_policy(reward, **settings.policy_terms)
    parts = {
        "mechanism": {
            "name": "randomized-response",
            "flip_probability": private.flip_probability,
            "epsilon_per_label": private.label_epsilon,
        },
        "data": _data(ledger.data, pairs, private),
        "reward": {
            **measure_reward(held_out),
            **describe_fit_settings(reward, asked=settings.method),
        },
        "policy": _policy(held_out, policy, private),
        **_findings(inputs, policy, reward, design, private),
        "calibration": calibration(held_out),
    }
    return Learned(reward=reward, policy=policy, ledger=ledger, parts=parts, timed=True)


def _crossed(settings: Settings, inputs: Inputs, ledger: Ledger) -> PrivatePairs:
    """Return private answers, tied to the entry of the ledger that says where they come from."""
    pairs = _pairs(inputs)
    if isinstance(pairs, PrivatePairs):
        assert inputs.source is not None  # noqa: S101 - for the type checker: answers have a file
        return pairs.received(ledger.receive(inputs.source, read_manifest(inputs.source)))
    return privatize(
        pairs,
        _coin(settings, pairs),
        ledger=ledger,
        cap=settings.cap,
        simulate_seed=settings.simulate_seed,
    )


def _data(name: str, pairs: Pairs | PrivatePairs, private: PrivatePairs) -> dict[str, Any]:
    """Return what was used, in public numbers."""
    people = {} if private.persons is None else {"persons": len(set(private.persons))}
    return {
        "name": name,
        "pairs": len(private),
        "dropped_identical": private.dropped,
        "capped": len(pairs) - len(private),
        **people,
    }


def _policy(held_out: HeldOut, policy: CandidatePolicy, private: PrivatePairs) -> dict[str, Any]:
    """Return what the policy is and does."""
    # Between two answers pessimism changes nothing: both lie equally far from their mean.
    return {
        **describe_policy(policy),
        **measure_policy(held_out, policy.temperature),
        "pessimism": describe_distrust(policy, private),
    }


def _findings(
    inputs: Inputs,
    policy: CandidatePolicy,
    reward: RewardModel,
    design: Design,
    private: PrivatePairs,
) -> dict[str, Any]:
    """Return what the page shows besides metrics, from released weights and public texts."""
    arrived = private if isinstance(inputs.pairs, PrivatePairs) else None
    return {
        "utility": predict_utility(len(design), design.differences, chosen=private.label_epsilon),
        "decisive": measure_decisive(reward, design.differences, source="comparisons"),
        "examples": show_examples(policy, public=inputs.public, released=arrived),
    }


def _limit(settings: Settings, pairs: Pairs | PrivatePairs) -> Limit:
    """Return the limit of a new ledger: the first spend, or what arrived private."""
    if isinstance(pairs, PrivatePairs):
        found = pairs.guarantee
        return spending_limit(found.epsilon, settings.budget, unit=found.unit, trust=found.trust)
    unit = settings.unit.counted
    return spending_limit(settings.total, settings.budget, unit=unit, trust="central")
