"""Learning what people want while asking them, each answer randomized before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from sordino import _validate
from sordino.algorithms._online_answers import (
    asking,
    checked_world,
    coin_of,
    flip_probability_of,
    promise_of_rounds,
)
from sordino.algorithms._online_finite import FeatureReward, FiniteLearner
from sordino.algorithms._online_linear import LinearLearner
from sordino.algorithms._online_rounds import EXPLORATIONS, Exploration, Play, Transcript
from sordino.algorithms.online_run import OnlinePolicy, OnlineRun
from sordino.environments.online_worlds import Contexts, OnlineWorld, generator
from sordino.preferences.private_pairs import digest_of_answers
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards.model import RewardModel
from sordino.rewards.release_checks import entropy_of

__all__ = ["align_online"]


def align_online(  # noqa: PLR0913 (each is one choice of the user)
    world: OnlineWorld,
    *,
    rounds: int,
    epsilon: float,
    temperature: float,
    ledger: Ledger,
    exploration: Exploration = "optimistic",
    candidates: Mapping[str, FeatureReward] | None = None,
    ball: float = 1.0,
    ridge: float = 1.0,
    scale: float = 1.0,
    bonus_bound: float | None = None,
    confidence: float = 0.95,
    simulate_seed: int | None = None,
) -> OnlineRun:
    """Return what was learned by asking people about two actions in every round.

    The first action is drawn from the Gibbs policy of the estimate, the second from that of the
    estimate plus a bonus for what is not known yet, and one person says which is better. Only
    the randomized answer is used. Rounds in which both actions are the same ask nobody.

    Args:
        world: A :class:`~sordino.environments.online_worlds.PreferenceWorld`, or a
            :class:`~sordino.environments.online_worlds.DeviceWorld` whose devices randomize.
            Its contexts must not depend on answers.
        rounds: How many rounds.
        epsilon: Privacy loss of one label; infinity uses judgments as they are.
        temperature: KL strength in units of reward.
        ledger: Where the spend of all rounds is recorded before the first; its unit is
            ``"label"``.
        exploration: ``"optimistic"`` as above; ``"none"`` draws both actions without the bonus,
            ``"symmetric"`` both with it, ``"uniform"`` both from all actions alike.
        candidates: Name → reward in [0, 1] as a function of features, for a finite class that
            the truth is in; left out for rewards that are linear in the features.
        ball: Bound on the norm of a linear reward's weights, chosen before any answer.
        ridge: Strength of the quadratic penalty on a linear reward.
        scale: What the bonus is multiplied by; below 1 is a heuristic, and labeled as one.
        bonus_bound: Where the bonus is cut, in units of reward; below the largest error that an
            estimate can have (4 · feature bound · ball, or 2 for a finite class) it is a
            heuristic, and labeled as one. Left out, it is that error.
        confidence: How often the truth is in the confidence set in all rounds together.
        simulate_seed: A seed for study; the guarantee then says ``simulated``.

    Raises:
        UsageError: A setting is out of range, or the world has not the methods that are needed.
        DataError: The world gave contexts, a reference or judgments that cannot be used.
        PrivacyError: The ledger is about another unit, or promises that nobody sees judgments
            and the world is asked here.
        BudgetExceeded: The spend would pass the ledger's budget; nobody was asked.

    Guarantee:
        ε of one label, unit ``"label"``, ``REPLACE_ONE``, δ = 0, although questions depend on
        earlier answers: every label is randomized once, and questions are chosen by randomized
        answers only. Trust ``"local"`` where devices randomize, else ``"central"`` with the
        caveat ``randomized-at-ingestion``. A person who is asked in m rounds is protected with
        m·ε (caveat ``repeats-not-linked``: nobody is told apart here). One entry before the
        first round pays for all; after an interruption a new run pays again. Shown by
        tests/unit/algorithms/test_online_alignment.py.

    Source:
        PPKL, online algorithm, made tractable; docs/policy_optimization.md, "Online alignment".
    """
    _validate.integer("rounds", rounds, at_least=1)
    _validate.one_of("exploration", exploration, EXPLORATIONS)
    heat = _validate.positive("temperature", temperature)
    factor = _validate.non_negative("scale", scale)
    level = _validate.failure_probability("confidence", confidence, zero=False)
    most = None if bonus_bound is None else _validate.positive("bonus_bound", bonus_bound)
    entropy, coin = entropy_of(simulate_seed), coin_of(epsilon)
    contexts = Contexts(checked_world(world, coin), generator(simulate_seed))
    learner = _learner(
        contexts,
        candidates,
        ball=ball,
        ridge=ridge,
        flip_probability=flip_probability_of(coin),
        confidence=level,
    )
    promise = promise_of_rounds(world, coin, ledger, entropy)
    reservation = ledger.reserve(coin.event, promise=promise, details={"rounds": rounds})
    run = Play(
        contexts=contexts,
        learner=learner,
        ask=asking(contexts, coin, entropy),
        exploration=exploration,
        temperature=heat,
        scale=factor,
        bonus_bound=learner.largest_error if most is None else most,
        entropy=entropy,
    )
    run.play(rounds)
    artifact = _digest(run.transcript)
    reservation.commit(artifact)
    return _finished(run, learner, promise, reservation.release_id, artifact)


def _learner(
    contexts: Contexts,
    candidates: Mapping[str, FeatureReward] | None,
    *,
    ball: float,
    ridge: float,
    flip_probability: float,
    confidence: float,
) -> LinearLearner | FiniteLearner:
    """Return what learns, checked on the first context."""
    if candidates is not None:
        learner = FiniteLearner(
            candidates, flip_probability=flip_probability, confidence=confidence
        )
        learner.encode(contexts.peek(1))
        return learner
    return LinearLearner(
        contexts.shape[1],
        feature_bound=contexts.world.feature_bound,
        ball=_validate.positive("ball", ball),
        ridge=_validate.positive("ridge", ridge),
        flip_probability=flip_probability,
        confidence=confidence,
    )


def _digest(transcript: Transcript) -> str:
    """Return the SHA-256 of all questions and randomized answers."""
    questions = hashlib.sha256(b"sordino.online\n")
    for differences, actions in zip(transcript.questions, transcript.actions, strict=True):
        questions.update(actions.astype("<i8").tobytes())
        questions.update(differences.astype("<f8").tobytes())
    return digest_of_answers(questions.hexdigest(), np.concatenate(transcript.answers))


def _heuristic(run: Play) -> bool:
    """Return whether a bonus was used that is less than what the proof needs."""
    used = "optimistic" in EXPLORATIONS[run.exploration]
    return used and (run.scale < 1 or run.bonus_bound < run.learner.largest_error)


def _finished(
    run: Play,
    learner: LinearLearner | FiniteLearner,
    promise: Guarantee,
    release_id: str,
    artifact: str,
) -> OnlineRun:
    """Return the run with what it promises."""
    kept, belief = run.transcript, learner.belief
    return OnlineRun(
        policy=OnlinePolicy(learner, temperature=run.temperature),
        reward=_reward(learner, promise, release_id, artifact),
        name=learner.name if isinstance(learner, FiniteLearner) else None,
        possible=learner.possible if isinstance(learner, FiniteLearner) else (),
        guarantee=promise,
        release_ids=(release_id,),
        artifact=artifact,
        actions=np.concatenate(kept.actions),
        answers=np.concatenate(kept.answers),
        regrets=np.concatenate(kept.regrets) if kept.regrets else None,
        widths=np.concatenate(kept.widths),
        refits=len(kept.answers),
        radius=belief.radius,
        exploration=run.exploration,
        heuristic=_heuristic(run),
    )


def _reward(
    learner: LinearLearner | FiniteLearner, promise: Guarantee, release_id: str, artifact: str
) -> RewardModel | None:
    """Return the estimate of a linear reward as other policies take it.

    It carries no confidence set: that of a fixed design does not hold for questions that were
    chosen by earlier answers.
    """
    if isinstance(learner, FiniteLearner):
        return None
    return RewardModel(
        weights=learner.belief.weights,
        features=None,
        guarantee=promise,
        ridge=learner.ridge,
        ball=learner.ball,
        gradient_norm=learner.belief.gradient_norm,
        atol=learner.atol,
        pairs=learner.asked,
        release_ids=(release_id,),
        artifact=artifact,
    )
