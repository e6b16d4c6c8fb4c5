"""Learning what people want while asking them, each answer randomized before it is used.

The private side of online alignment: who is asked, what is promised, how answers randomize.

A finite class of rewards: which of them are still possible while questions are chosen.

Rewards that are linear in the features: what is known of them while questions are chosen.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import expit

from sordino import _random, _validate
from sordino.environments.online_worlds import (
    Contexts,
    DeviceWorld,
    OnlineWorld,
    PreferenceWorld,
    generator,
)
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.no_privacy import NonPrivate
from sordino.mechanisms.randomized_response import RandomizedResponse
from sordino.preferences.pairs import digest_of_answers
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Ledger
from sordino.rewards.model import RewardModel
from sordino.rewards.pair_losses import DebiasedLogistic, answer_probability, debias
from sordino.rewards.release_checks import entropy_of
from sordino.rewards.solver import Solution, minimize_ridge

from .online_rounds import EXPLORATIONS, Ask, Exploration, OnlinePolicy, OnlineRun, Play, Transcript

Coin: TypeAlias = RandomizedResponse | NonPrivate
Features: TypeAlias = Float[np.ndarray, "n k d"]
Actions: TypeAlias = Integer[np.ndarray, " n"]


def coin_of(epsilon: float) -> Coin:
    """Return the coin of one label; none at infinity."""
    if _validate.non_negative("epsilon", epsilon) == math.inf:
        return NonPrivate()
    return RandomizedResponse(epsilon)


def flip_probability_of(coin: Coin) -> float:
    """Return how often an answer is not the judgment."""
    return 0.0 if isinstance(coin, NonPrivate) else coin.flip_probability


def checked_world(world: Any, coin: Coin) -> OnlineWorld:
    """Return the world; refuse one that cannot be asked."""
    if isinstance(world, DeviceWorld) and isinstance(coin, NonPrivate):
        raise UsageError(
            "epsilon must be finite where devices randomize, got inf. Nothing was spent. Use a "
            "world with prefer, which shows judgments as they are."
        )
    if not isinstance(world, DeviceWorld | PreferenceWorld):
        raise UsageError(
            "world needs feature_bound, contexts(rng, n) and prefer(contexts, first, second, "
            f"rng), or answer(contexts, first, second, epsilon); got {type(world).__name__}. "
            "Nothing was spent."
        )
    return world


def promise_of_rounds(
    world: OnlineWorld, coin: Coin, ledger: Ledger, entropy: _random.Entropy
) -> Guarantee:
    """Return what all answers promise, with every caveat."""
    if ledger.budget.unit != "label":
        raise PrivacyError(
            f"align_online protects one label at a time; this ledger counts {ledger.budget.unit} "
            "changes. Nothing was spent. Use a ledger of unit='label': a person who is asked m "
            "times is protected with m times epsilon."
        )
    local = isinstance(world, DeviceWorld)
    promise = coin.guarantee(
        unit="label", neighbors=REPLACE_ONE, trust="local" if local else "central"
    )
    caveats = {
        "randomized-at-ingestion": not local,
        "repeats-not-linked": True,
        "simulated": entropy.randomness == "simulated",
    }
    named = promise.with_caveats(*(name for name, applies in caveats.items() if applies))
    return replace(named, randomness=entropy.randomness)


def asking(contexts: Contexts, coin: Coin, entropy: _random.Entropy) -> Ask:
    """Return what gets randomized answers; call it only when the spend is on the ledger.

    Guarantee:
        ε of the coin for every label, each of which is randomized once. Shown by
        tests/unit/algorithms/test_online_alignment.py.
    """
    world: Any = contexts.world
    epsilon = coin.epsilon if isinstance(coin, RandomizedResponse) else math.inf

    def on_devices(features: Features, first: Actions, second: Actions) -> Actions:
        return _checked(world.answer(features, first, second, epsilon), first, (0, 1))

    def here(features: Features, first: Actions, second: Actions) -> Actions:
        given = world.prefer(features, first, second, contexts.rng)
        return coin.release(_checked(given, first, (0, 1, 2)), entropy=entropy)

    return on_devices if isinstance(world, DeviceWorld) else here


def _checked(given: Any, first: Actions, allowed: tuple[int, ...]) -> Actions:
    """Return what a world said; refuse what is no judgment of every question."""
    values = np.asarray(given)
    if values.shape != first.shape or not np.isin(values, allowed).all():
        raise DataError(
            f"The world must return {len(first)} judgments, each one of {allowed}; it did not. "
            "Nothing was released; the entry on the ledger stays."
        )
    return values.astype(np.int8)


FeatureReward: TypeAlias = Callable[[Float[np.ndarray, "n k d"]], Any]
"""Features of all actions in, one reward in [0, 1] for each out, shape (n, k)."""


def loss_gap(confidence: float, *, candidates: int) -> float:
    """Return by how much the true reward's loss exceeds the least one at most, at all times."""
    # Source: docs/policy_optimization.md, "Online alignment": log(N/(1 − confidence))/2. An answer
    # has range 1, so exp(2(loss of the truth − loss of another)) is a supermartingale however
    # questions are chosen (Hoeffding's lemma), and Ville's inequality bounds it at all times.
    return math.log(candidates / (1 - confidence)) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteBelief:
    """What was known at a refit; it stays as it is until the next."""

    # Source: docs/policy_optimization.md, "Online alignment": widths are the largest disagreement
    # of two rewards that are both still possible, by enumeration.

    best: int  # which candidate has the least loss; ties go to the first
    possible: Bool[np.ndarray, " N"]  # which candidates are in the confidence set, shape (N,)
    radius: float  # the loss gap that the set allows

    def rewards(self, encoded: Float[np.ndarray, "n k N"]) -> Float[np.ndarray, "n k"]:
        """Return the reward of every action under the candidate of least loss."""
        return np.asarray(encoded[..., self.best])

    def bonus(self, centered: Float[np.ndarray, "n k N"]) -> Float[np.ndarray, "n k"]:
        """Return how far two rewards that are still possible disagree at most on every action."""
        return self._spread(centered)

    def widths(self, differences: Float[np.ndarray, "n N"]) -> Float[np.ndarray, " n"]:
        """Return how far two rewards that are still possible disagree at most on questions."""
        return self._spread(differences)

    def _spread(self, values: Float[np.ndarray, "*size N"]) -> Float[np.ndarray, "*size"]:
        # the largest |r − r′| over all pairs is the largest less the least
        kept = values[..., self.possible]
        return np.asarray(kept.max(axis=-1) - kept.min(axis=-1))


class FiniteLearner:
    """Least squares on randomized answers over a finite class, with its exact confidence set."""

    # Source: docs/policy_optimization.md, "Online alignment": squared loss of E z = κσ(Δ) + f.

    largest_error = 2.0  # of two differences of rewards in [0, 1]

    def __init__(
        self,
        candidates: Mapping[str, FeatureReward],
        *,
        flip_probability: float,
        confidence: float,
    ) -> None:
        """Know nothing yet: every candidate is possible."""
        given = candidates if isinstance(candidates, Mapping) else {}
        named = all(isinstance(name, str) and name for name in given)
        if not given or not named or not all(map(callable, given.values())):
            raise UsageError(
                "candidates must be a dict of at least one name and function of features, such "
                "as {'first': lambda features: features[..., 0]}."
            )
        self._functions = {name: given[name] for name in sorted(given)}
        self._flip = flip_probability
        self._gap = loss_gap(confidence, candidates=len(given))
        self.losses = np.zeros(len(given))
        self.asked = 0
        self._refresh()

    @property
    def names(self) -> tuple[str, ...]:
        """The names in alphabetical order, which breaks ties."""
        return tuple(self._functions)

    @property
    def name(self) -> str:
        """The candidate of least loss."""
        return self.names[self.belief.best]

    @property
    def possible(self) -> tuple[str, ...]:
        """The candidates that are still in the confidence set."""
        return tuple(
            name for name, kept in zip(self.names, self.belief.possible, strict=True) if kept
        )

    def encode(self, features: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k N"]:
        """Return the rewards of every action under all candidates."""
        return np.stack([self._scored(name, features) for name in self._functions], axis=-1)

    def _scored(self, name: str, features: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return one candidate's rewards, checked."""
        what = f"The rewards of {name!r}"
        rewards = _validate.finite_array(what, self._functions[name](features), ndim=2)
        if rewards.shape != features.shape[:2]:
            raise DataError(f"{what} must have shape {features.shape[:2]}, got {rewards.shape}.")
        outside = np.flatnonzero(((rewards < 0) | (rewards > 1)).any(axis=1))
        if len(outside):
            raise DataError(
                f"{what} must be in [0, 1]: row {outside[0]} is not. Nothing was clipped; "
                "rescale the function."
            )
        return rewards

    def take(self, differences: Float[np.ndarray, "n N"]) -> int:
        """Return how many of the next questions are asked before the next refit: all."""
        return len(differences)

    def learn(
        self, differences: Float[np.ndarray, "n N"], answers: Integer[np.ndarray, " n"]
    ) -> None:
        """Take in randomized answers to the questions that were taken."""
        chances = answer_probability(differences, self._flip)
        self.losses = self.losses + ((answers[:, None] - chances) ** 2).sum(axis=0)
        self.asked += len(answers)
        self._refresh()

    def _refresh(self) -> None:
        """Set what is known."""
        best = int(np.argmin(self.losses))
        self.belief = FiniteBelief(
            best=best,
            possible=self.losses <= self.losses[best] + self._gap,
            radius=self._gap,
        )


_DOUBLED = math.log(2.0)
_ATOL = 1e-7  # of the gradient, for each answer; the radius covers it


def self_normalized_radius(
    log_volume: float,
    *,
    kappa: float,
    curvature: float,
    ridge: float,
    ball: float,
    confidence: float,
    gradient_norm: float = 0.0,
) -> float:
    """Return how far the truth lies from the estimate at most, at all times together."""
    # Unlike the radius for a fixed design it holds for questions that were chosen by earlier
    # answers.
    # Source: docs/policy_optimization.md, "Online alignment": (1/(2κγ))√(log det(I + γG/Λ) + 2
    # log(1/(1 − confidence))) + B√(Λ/γ), from the self-normalized bound of Abbasi-Yadkori, Pál &
    # Szepesvári 2011, Theorem 1; what the solver left of the gradient adds its norm/√(γΛ).
    noise = math.sqrt(log_volume + 2 * math.log(1 / (1 - confidence)))
    left = gradient_norm / math.sqrt(curvature * ridge)
    return noise / (2 * kappa * curvature) + ball * math.sqrt(ridge / curvature) + left


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearBelief:
    """What was known at a refit; it stays as it is until the next."""

    # Source: docs/policy_optimization.md, "Online alignment": with an estimate of round t0 the
    # bonus is that of t0.

    weights: Float[np.ndarray, " d"]  # θ̂, the debiased minimizer inside the ball, shape (d,)
    root: Float[np.ndarray, "d d"]  # L with LLᵀ = M⁻¹, shape (d, d)
    radius: float  # β, so that ‖θ̂ − θ*‖_M ≤ β as often as stated
    gradient_norm: float  # the certificate of the fit

    def rewards(self, encoded: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return the estimated reward of every action."""
        return np.asarray(encoded @ self.weights)

    def bonus(self, centered: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
        """Return by how much the truth may exceed the estimate along every row."""
        return np.asarray(self.radius * np.linalg.norm(centered @ self.root, axis=-1))

    def widths(self, differences: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return how far two rewards that are both still possible disagree at most."""
        return 2 * self.bonus(differences)


class LinearLearner:
    """The debiased estimate inside a ball, with the matrix of all questions kept up to date."""

    # Between refits M⁻¹ takes one rank-one update a question, which is how a doubled determinant is
    # noticed; what policies use changes at refits only.
    # Source: docs/policy_optimization.md, "Online alignment": M = G + (Λ/γ)I.

    def __init__(
        self,
        dimension: int,
        *,
        feature_bound: float,
        ball: float,
        ridge: float,
        flip_probability: float,
        confidence: float,
    ) -> None:
        """Know nothing yet: the estimate is 0."""
        slope = float(expit(2 * feature_bound * ball))
        self.largest_error = 4 * feature_bound * ball
        self.ball, self.ridge = ball, ridge
        self._settings = {
            "kappa": 1 - 2 * flip_probability,
            "curvature": slope * (1 - slope),
            "ridge": ridge,
            "ball": ball,
            "confidence": confidence,
        }
        self._flip = flip_probability
        self._start = ridge / self._settings["curvature"]
        self._gram = np.zeros((dimension, dimension))
        self._rows = np.empty((64, dimension))
        self._targets = np.empty(64)
        self.asked = 0
        self._refresh(np.zeros(dimension), 0.0)

    @property
    def atol(self) -> float:
        """Return what the certificate of the next fit must meet."""
        return _ATOL * max(1, self.asked)

    def encode(self, features: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k d"]:
        """Return the features: a reward is linear in them."""
        return features

    def take(self, differences: Float[np.ndarray, "n d"]) -> int:
        """Return how many of the next questions are asked before the next refit."""
        # They are taken into M; the last of them doubled its determinant, unless all are asked.
        for index, row in enumerate(differences):
            column = self._inverse @ row
            lift = 1 + float(row @ column)
            self._inverse -= np.outer(column, column / lift)
            self._grown += math.log(lift)
            if self._grown > _DOUBLED:
                return index + 1
        return len(differences)

    def learn(
        self, differences: Float[np.ndarray, "n d"], answers: Integer[np.ndarray, " n"]
    ) -> None:
        """Take in randomized answers to the questions that were taken, and refit."""
        if len(answers):
            self._keep(differences, debias(answers, self._flip))
            self._gram += differences.T @ differences
            found = self._fit()
            self._refresh(found.theta, found.gradient_norm)

    def _keep(
        self, differences: Float[np.ndarray, "n d"], targets: Float[np.ndarray, " n"]
    ) -> None:
        """Append rows; the room doubles when it is full."""
        end = self.asked + len(targets)
        while end > len(self._targets):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._targets = np.concatenate([self._targets, np.empty_like(self._targets)])
        self._rows[self.asked : end] = differences
        self._targets[self.asked : end] = targets
        self.asked = end

    def _fit(self) -> Solution:
        """Return the minimizer inside the ball on all answers, from the last one on."""
        loss = DebiasedLogistic(self._rows[: self.asked], self._targets[: self.asked])
        return minimize_ridge(
            loss,
            ridge=self.ridge,
            ball=self.ball,
            atol=self.atol,
            start=self.belief.weights,
        )

    def _refresh(self, weights: Float[np.ndarray, " d"], gradient_norm: float) -> None:
        """Set what is known, with M⁻¹ computed anew."""
        d = len(weights)
        metric = self._gram + self._start * np.eye(d)
        root = np.linalg.inv(np.linalg.cholesky(metric)).T
        log_volume = -2 * float(np.log(np.diagonal(root) * math.sqrt(self._start)).sum())
        self._inverse, self._grown = root @ root.T, 0.0
        self.belief = LinearBelief(
            weights=weights,
            root=root,
            radius=self_normalized_radius(
                max(0.0, log_volume), gradient_norm=gradient_norm, **self._settings
            ),
            gradient_norm=gradient_norm,
        )


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

    def played() -> Play:
        run.play(rounds)
        return run

    released = ledger.charge(
        coin.event,
        played,
        digest=lambda run: _digest(run.transcript),
        promise=promise,
        stored=False,
        details={"rounds": rounds},
    )
    return _finished(run, learner, promise, released.release_id, released.artifact)


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
    """Return the estimate of a linear reward as other policies take it."""
    # It carries no confidence set: that of a fixed design does not hold for questions that were
    # chosen by earlier answers.
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
