"""Learning what people want while asking them, each answer randomized before it is used.

In every round a context comes, two policies draw an action each, and one person says which is
better. A learner knows what is still possible, of a finite class of rewards or of rewards that are
linear in the features; policies change only when it refits, so that the rounds between two refits
are drawn and asked together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Integer
from scipy.special import expit, xlogy

from sordino import _random, _validate
from sordino._validate import Integers, Numbers
from sordino.environments.preference_worlds import (
    ContextStream,
    DeviceWorld,
    KnownReward,
    OnlineWorld,
    PreferenceWorld,
    RecordedWorld,
    generator,
)
from sordino.environments.values import ActionFeatures, Actions, PerAction, gibbs_rows
from sordino.errors import DataError, PrivacyError, UsageError
from sordino.mechanisms.randomized_response import NonPrivate, RandomizedResponse
from sordino.preferences.features import CLASS
from sordino.preferences.pairs import digest_of_answers
from sordino.privacy.guarantee import REPLACE_ONE, Guarantee
from sordino.privacy.ledger import Charged, Ledger, Paid, provenance
from sordino.rewards.model import RewardModel
from sordino.rewards.pair_losses import DebiasedLogistic, answer_probability, debias
from sordino.rewards.release_checks import paying
from sordino.rewards.solver import minimize_ridge

Coin: TypeAlias = RandomizedResponse | NonPrivate
_FeatureReward: TypeAlias = Callable[[ActionFeatures], Any]
"""Features of all actions in, one reward in [0, 1] for each out, shape (n, k)."""

Exploration = Literal["optimistic", "none", "symmetric", "uniform"]
EXPLORATIONS: Mapping[str, tuple[str, str]] = {
    "optimistic": ("greedy", "optimistic"),
    "none": ("greedy", "greedy"),
    "symmetric": ("optimistic", "optimistic"),
    "uniform": ("uniform", "uniform"),
}
"""What the first and the second action are drawn from; regret is that of the second."""

_GROWTH = 0.04  # share of all rounds that are played on one estimate
_DOUBLED = math.log(2.0)


class _FiniteLearner:
    """Least squares on randomized answers over a finite class, with its exact confidence set."""

    # What was known at a refit stays as it is until the next.
    # Source: docs/policy_optimization.md, "Online alignment": squared loss of E z = κσ(Δ) + f;
    # widths are the largest disagreement of two rewards that are both still possible, by
    # enumeration.

    largest_error = 2.0  # of two differences of rewards in [0, 1]
    best: int  # which candidate has the least loss; ties go to the first
    kept: Bool[np.ndarray, " N"]  # which candidates are in the confidence set, shape (N,)

    def __init__(
        self,
        candidates: Mapping[str, _FeatureReward],
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
        self._functions = dict(sorted(given.items()))
        self.names = tuple(self._functions)  # in alphabetical order, which breaks ties
        self._flip = flip_probability
        # By how much the loss of the truth exceeds the least one at most, at all times. An answer
        # has range 1, so exp(2(loss of the truth − loss of another)) is a supermartingale however
        # questions are chosen (Hoeffding's lemma), and Ville's inequality bounds it at all times.
        # Source: docs/policy_optimization.md, "Online alignment": log(N/(1 − confidence))/2.
        self.radius = math.log(len(given) / (1 - confidence)) / 2
        self.losses = np.zeros(len(given))
        self.asked = 0
        self._refresh()

    def encode(self, features: ActionFeatures) -> Float[np.ndarray, "n k N"]:
        """Return the rewards of every action under all candidates."""
        columns = []
        for name, function in self._functions.items():
            what = f"The rewards of {name!r}"
            rewards = _validate.finite_array(what, function(features), ndim=2)
            if rewards.shape != features.shape[:2]:
                raise DataError(
                    f"{what} must have shape {features.shape[:2]}, got {rewards.shape}."
                )
            outside = np.flatnonzero(((rewards < 0) | (rewards > 1)).any(axis=1))
            if len(outside):
                raise DataError(
                    f"{what} must be in [0, 1]: row {outside[0]} is not. Nothing was clipped; "
                    "rescale the function."
                )
            columns.append(rewards)
        return np.stack(columns, axis=-1)

    def take(self, differences: Float[np.ndarray, "n N"]) -> int:
        """Return how many of the next questions are asked before the next refit: all."""
        return len(differences)

    def learn(self, differences: Float[np.ndarray, "n N"], answers: Integers) -> None:
        """Take in randomized answers to the questions that were taken."""
        chances = answer_probability(differences, self._flip)
        self.losses = self.losses + ((answers[:, None] - chances) ** 2).sum(axis=0)
        self.asked += len(answers)
        self._refresh()

    def _refresh(self) -> None:
        """Set what is known."""
        self.best = int(np.argmin(self.losses))
        self.kept = np.asarray(self.losses <= self.losses[self.best] + self.radius)

    def rewards(self, encoded: Float[np.ndarray, "n k N"]) -> PerAction:
        """Return the reward of every action under the candidate of least loss."""
        return np.asarray(encoded[..., self.best])

    def bonus(self, centered: Float[np.ndarray, "*size N"]) -> Float[np.ndarray, "*size"]:
        """Return how far two rewards that are still possible disagree at most on every row."""
        # the largest |r − r′| over all pairs is the largest less the least
        return np.asarray(np.ptp(centered[..., self.kept], axis=-1))

    widths = bonus  # on questions


class LinearLearner:
    """The debiased estimate inside a ball, with the matrix of all questions kept up to date."""

    # Between refits M⁻¹ takes one rank-one update a question, which is how a doubled determinant is
    # noticed; what policies use changes at refits only.
    # Source: docs/policy_optimization.md, "Online alignment": M = G + (Λ/γ)I; with an estimate of
    # round t0 the bonus is that of t0.

    weights: Float[np.ndarray, " d"]  # θ̂, the debiased minimizer inside the ball, shape (d,)
    root: Float[np.ndarray, "d d"]  # L with LLᵀ = M⁻¹, shape (d, d)
    radius: float  # β, so that ‖θ̂ − θ*‖_M ≤ β as often as stated
    gradient_norm: float  # the certificate of the fit

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
        self._curvature = slope * (1 - slope)
        self._confidence = confidence
        self._flip = flip_probability
        self._start = ridge / self._curvature
        self._gram = np.zeros((dimension, dimension))
        self._rows = np.empty((0, dimension))
        self._targets = np.empty(0)
        self.asked = 0
        self._refresh(np.zeros(dimension), 0.0)

    @property
    def atol(self) -> float:
        """Return what the certificate of the next fit must meet."""
        return 1e-7 * max(1, self.asked)  # of the gradient, for each answer; the radius covers it

    def encode(self, features: ActionFeatures) -> ActionFeatures:
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

    def learn(self, differences: Float[np.ndarray, "n d"], answers: Integers) -> None:
        """Take in randomized answers to the questions that were taken, and refit."""
        if not len(answers):
            return
        self._rows = np.concatenate([self._rows, differences])
        self._targets = np.concatenate([self._targets, debias(answers, self._flip)])
        self.asked = len(self._rows)
        self._gram += differences.T @ differences
        loss = DebiasedLogistic(self._rows, self._targets)
        solution = minimize_ridge(
            loss, ridge=self.ridge, ball=self.ball, atol=self.atol, start=self.weights
        )
        self._refresh(solution.theta, solution.gradient_norm)

    def _refresh(self, weights: Float[np.ndarray, " d"], gradient_norm: float) -> None:
        """Set what is known, with M⁻¹ computed anew."""
        d = len(weights)
        metric = self._gram + self._start * np.eye(d)
        root = np.linalg.inv(np.linalg.cholesky(metric)).T
        log_volume = -2 * float(np.log(np.diagonal(root) * math.sqrt(self._start)).sum())
        self._inverse, self._grown = root @ root.T, 0.0
        # How far the truth lies from the estimate at most, at all times together: unlike the radius
        # for a fixed design it holds for questions that were chosen by earlier answers.
        # Source: docs/policy_optimization.md, "Online alignment": (1/(2κγ))√(log det(I + γG/Λ) + 2
        # log(1/(1 − confidence))) + B√(Λ/γ), from the self-normalized bound of Abbasi-Yadkori, Pál
        # & Szepesvári 2011, Theorem 1; what the solver left of the gradient adds its norm/√(γΛ).
        kappa, curvature = 1 - 2 * self._flip, self._curvature
        noise = math.sqrt(max(0.0, log_volume) + 2 * math.log(1 / (1 - self._confidence)))
        left = gradient_norm / math.sqrt(curvature * self.ridge)
        bias = self.ball * math.sqrt(self.ridge / curvature)
        self.radius = noise / (2 * kappa * curvature) + bias + left
        self.weights, self.root, self.gradient_norm = weights, root, gradient_norm

    def rewards(self, encoded: ActionFeatures) -> PerAction:
        """Return the estimated reward of every action."""
        return np.asarray(encoded @ self.weights)

    def bonus(self, centered: ActionFeatures) -> PerAction:
        """Return by how much the truth may exceed the estimate along every row."""
        return np.asarray(self.radius * np.linalg.norm(centered @ self.root, axis=-1))

    def widths(self, differences: Float[np.ndarray, "n d"]) -> Numbers:
        """Return how far two rewards that are both still possible disagree at most."""
        return 2 * self.bonus(differences)


_Learner: TypeAlias = LinearLearner | _FiniteLearner


class Play:
    """One run: rounds between two refits are drawn and asked together."""

    # Policies change at refits only, so that this is the same as asking one by one.

    def __init__(  # noqa: PLR0913 (the settings of `align_online`)
        self,
        world: OnlineWorld,
        *,
        epsilon: float,
        temperature: float,
        exploration: Exploration = "optimistic",
        candidates: Mapping[str, _FeatureReward] | None = None,
        ball: float = 1.0,
        ridge: float = 1.0,
        scale: float = 1.0,
        bonus_bound: float | None = None,
        confidence: float = 0.95,
        world_seed: int | None = None,
        simulate_seed: int | None = None,
    ) -> None:
        """Check all settings; nobody is asked yet."""
        self.exploration = _validate.one_of("exploration", exploration, EXPLORATIONS)
        self.temperature = _validate.positive("temperature", temperature)
        self.scale = _validate.non_negative("scale", scale)
        level = _validate.failure_probability("confidence", confidence, zero=False)
        most = None if bonus_bound is None else _validate.positive("bonus_bound", bonus_bound)
        _random.entropy(simulate_seed)
        # of simulated people, whose contexts are drawn from a stream of their own; and of coins
        self.world_seed, self.simulate_seed = world_seed, simulate_seed
        self.coin: Coin = NonPrivate()  # randomizes a label, or says that nothing is hidden
        if _validate.non_negative("epsilon", epsilon) < math.inf:
            self.coin = RandomizedResponse(epsilon)
        flip = self.coin.flip_probability if isinstance(self.coin, RandomizedResponse) else 0.0
        if isinstance(world, DeviceWorld) and isinstance(self.coin, NonPrivate):
            raise UsageError(
                "epsilon must be finite where devices randomize, got inf. Nothing was spent. Use a "
                "world with prefer, which shows judgments as they are."
            )
        if not isinstance(world, DeviceWorld | PreferenceWorld | RecordedWorld):
            raise UsageError(
                "world needs feature_bound, contexts(rng, n) and prefer(contexts, first, second, "
                f"rng), or answer(contexts, first, second, epsilon); got {type(world).__name__}. "
                "Nothing was spent."
            )
        self.contexts = ContextStream(world, generator(world_seed))
        self.learner: _Learner
        if candidates is None:
            self.learner = LinearLearner(
                self.contexts.shape[1],
                feature_bound=world.feature_bound,
                ball=_validate.positive("ball", ball),
                ridge=_validate.positive("ridge", ridge),
                flip_probability=flip,
                confidence=level,
            )
        else:
            self.learner = _FiniteLearner(candidates, flip_probability=flip, confidence=level)
            # what cannot be scored is refused before anything is spent
            self.learner.encode(self.contexts.peek(1))
        self.bonus_bound = self.learner.largest_error if most is None else most
        # What is drawn between two refits, by its number: an interrupted run finds it again.
        self.once: Callable[[int, Callable[[], np.ndarray]], np.ndarray] = lambda _, draw: draw()
        # What happened so far, one array for all rounds between two refits.
        self.actions: list[Integer[np.ndarray, "n 2"]] = []  # of every round
        self.questions: list[Float[np.ndarray, "n m"]] = []  # how the two differ, as encoded
        # Randomized, −1 where both actions were the same and nobody was asked.
        self.answers: list[Integers] = []
        # How far two rewards that were still possible disagreed on the question.
        self.widths: list[Numbers] = []
        # What the second policy gave away in the round's context, where that is known.
        self.regrets: list[Numbers] = []

    def play(self, rounds: int) -> None:
        """Play so many rounds."""
        # Guarantee: That of the answers: everything else is computed from them and from public
        # contexts. Shown by tests/unit/algorithms/test_online_alignment.py.
        # Source: docs/policy_optimization.md, "Online alignment".
        done, which, world = 0, EXPLORATIONS[self.exploration], self.contexts.world
        while done < rounds:  # on one estimate until the next refit is due
            size = min(rounds - done, max(1, int(_GROWTH * done)))
            contexts = self.contexts.peek(size)
            encoded = self.learner.encode(contexts)
            policies = policies_of(
                self.learner,
                encoded,
                _reference_of(world, contexts),
                self.exploration,
                temperature=self.temperature,
                scale=self.scale,
                bonus_bound=self.bonus_bound,
            )

            def drawn(done: int = done, contexts: Any = contexts, encoded: Any = encoded) -> Any:
                entropy = _random.entropy_of_part(self.simulate_seed, f"rounds from {done}")
                pairs = [_drawn(policies[name], entropy) for name in which]  # noqa: B023 - at once
                actions, rows = np.stack(pairs, axis=1), np.arange(len(contexts))
                size = self.learner.take(
                    encoded[rows, actions[:, 0]] - encoded[rows, actions[:, 1]]
                )
                actions, answers = actions[:size], np.full(size, -1)
                asked = np.flatnonzero(actions[:, 0] != actions[:, 1])  # which is public
                if len(asked):
                    first, second = actions[asked].T
                    answers[asked] = self._answers(
                        done + asked, contexts[asked], first, second, entropy
                    )
                return np.column_stack([actions, answers])

            block = self.once(len(self.answers), drawn)
            actions, answers, size = block[:, :2], block[:, 2].astype(np.int8), len(block)
            rows, contexts = np.arange(size), contexts[:size]
            differences = encoded[rows, actions[:, 0]] - encoded[rows, actions[:, 1]]
            self.widths.append(self.learner.widths(differences))
            if isinstance(world, KnownReward):  # what is given away: temperature · KL to the best
                chances, rewards = policies[which[1]][:size], world.rewards(contexts)
                best = gibbs_rows(rewards, self.temperature, _reference_of(world, contexts))
                lost = xlogy(chances, chances / best).sum(axis=1)
                self.regrets.append(self.temperature * np.maximum(lost, 0.0))
            self.learner.learn(differences[answers >= 0], answers[answers >= 0])
            self.actions.append(actions)
            self.questions.append(differences)
            self.answers.append(answers)
            self.contexts.drop(size)
            done += size

    def learn_from(self, differences: Float[np.ndarray, "n m"], answers: Integers) -> None:
        """Take in questions that were chosen and answered before, all at once."""
        # The confidence set is as if they had come one by one: it needs their sum alone.
        self.widths.append(self.learner.widths(differences))
        self.learner.learn(differences, answers)
        self.actions.append(np.tile([0, 1], (len(answers), 1)))
        self.questions.append(differences)
        self.answers.append(answers)

    @property
    def heuristic(self) -> bool:
        """Return whether the bonus is less than what the proof needs."""
        less = self.scale < 1 or self.bonus_bound < self.learner.largest_error
        return less and "optimistic" in EXPLORATIONS[self.exploration]

    def _answers(
        self,
        rounds: Actions,
        features: ActionFeatures,
        first: Actions,
        second: Actions,
        entropy: _random.Entropy,
    ) -> Actions:
        """Return one randomized answer for each question; the spend is on the ledger."""
        world, coin = self.contexts.world, self.coin
        if isinstance(world, RecordedWorld):  # whose coins were tossed, once for each question
            return _checked(world.recorded(rounds, first), first, (0, 1))
        if isinstance(world, DeviceWorld) and isinstance(coin, RandomizedResponse):
            return _checked(world.answer(features, first, second, coin.epsilon), first, (0, 1))
        assert isinstance(world, PreferenceWorld)  # noqa: S101 (for the type checker)
        seed = self.world_seed
        people = generator(None if seed is None else (seed, int(rounds[0])))
        given = world.prefer(features, first, second, people)
        return coin.release(_checked(given, first, (0, 1, 2)), entropy=entropy)


def policies_of(
    learner: _Learner,
    encoded: Float[np.ndarray, "n k m"],
    reference: PerAction,
    exploration: Exploration,
    *,
    temperature: float,
    scale: float,
    bonus_bound: float,
) -> dict[str, PerAction]:
    """Return the probabilities of the policies that rounds are drawn from, by their names."""
    wanted = EXPLORATIONS[exploration]
    if "uniform" in wanted:
        return {"uniform": np.full(reference.shape, 1 / reference.shape[1])}
    rewards = learner.rewards(encoded)
    found = {"greedy": gibbs_rows(rewards, temperature, reference)}
    if "optimistic" in wanted:
        middle = np.einsum("nk,nkm->nm", found["greedy"], encoded)
        bonus = scale * learner.bonus(encoded - middle[:, None])
        hoped = rewards + np.minimum(bonus, bonus_bound)
        found["optimistic"] = gibbs_rows(hoped, temperature, reference)
    return found


def _reference_of(world: object, contexts: ActionFeatures) -> PerAction:
    """Return the world's starting policy, uniform if it has none."""
    own = getattr(world, "reference", None)
    if own is None:
        return np.full(contexts.shape[:2], 1 / contexts.shape[1])
    chances = _validate.finite_array("reference", own(contexts), ndim=2)
    fits = chances.shape == contexts.shape[:2] and bool((chances > 0).all())
    if not fits or not np.allclose(chances.sum(axis=1), 1.0, rtol=0, atol=1e-9):
        raise DataError(
            f"reference must be probabilities above 0 of shape {contexts.shape[:2]}, each row "
            "summing to 1."
        )
    return chances


def _drawn(chances: PerAction, entropy: _random.Entropy) -> Actions:
    """Return one action of every row; the uniform numbers of a draw have 53 bits."""
    uniform = (entropy.words(len(chances)) >> np.uint64(11)) * 2.0**-53
    reached = np.cumsum(chances, axis=1)[:, :-1] <= uniform[:, None]
    return np.asarray(reached.sum(axis=1))


@dataclass(frozen=True, eq=False)
class _OnlinePolicy:
    """The reference tilted by the final estimate over the temperature."""

    learner: _Learner = field(repr=False)  # what learned; only its final estimate is used
    temperature: float = field(kw_only=True)  # KL strength in units of reward

    def probabilities(
        self, features: ActionFeatures, *, reference: PerAction | None = None
    ) -> PerAction:
        """Return the probability of every action in n contexts; free, for answers were private."""
        # Source: KLDP, §2; PPKL, §2.
        rows = _validate.finite_array("features", features, ndim=3)
        base = np.full(rows.shape[:2], 1 / rows.shape[1]) if reference is None else reference
        rewards = self.learner.rewards(self.learner.encode(rows))
        return gibbs_rows(rewards, self.temperature, base)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class _OnlineRun:
    """What was learned in all rounds, with the promise that it carries."""

    policy: _OnlinePolicy  # the final policy, without any bonus
    # The final reward, which other policies take; of a finite class one that picks a candidate.
    reward: RewardModel
    name: str | None  # the final candidate of a finite class; None for a linear reward
    # Names of the candidates that are still possible; empty for a linear reward.
    possible: tuple[str, ...]
    guarantee: Guarantee  # what all answers promise
    release_ids: tuple[str, ...]  # ledger entries that paid
    artifact: str  # SHA-256 of all questions and randomized answers
    actions: Integer[np.ndarray, "t 2"]  # the two actions of every round
    # Randomized answers; −1 where both actions were the same, so that nobody was asked.
    answers: Integer[np.ndarray, " t"]
    # What the second policy gave away in each round's context; None where the world does not tell
    # its reward.
    regrets: Float[np.ndarray, " t"] | None
    # How far two rewards that were still possible disagreed at most on the question of each round;
    # 0 where there was none.
    widths: Float[np.ndarray, " t"]
    refits: int  # how many estimates were used
    radius: float  # size of the final confidence set
    run: Play  # the rounds themselves

    @property
    def heuristic(self) -> bool:
        """Return whether the bonus is less than what the proof needs."""
        return self.run.heuristic

    @property
    def told(self) -> dict[str, Any]:
        """Return in numbers what happened, as JSON holds it."""
        run = self.run
        return {
            "rounds": len(self.answers),
            "asked": self.asked,
            "refits": self.refits,
            "exploration": run.exploration,
            "scale": run.scale,
            "bonus_bound": run.bonus_bound,
            "largest_error": run.learner.largest_error,
            "heuristic": run.heuristic,
            "radius": self.radius,
            "possible": len(self.possible) or None,
            "regret": None if self.regrets is None else float(self.regrets.sum()),
        }

    def __repr__(self) -> str:
        kind = self.run.exploration + ", heuristic" * self.heuristic
        return f"OnlineRun({len(self.answers)} rounds, {kind}, {self.guarantee})"

    @property
    def regret(self) -> Float[np.ndarray, " t"] | None:
        """Return the regret up to every round, where the world tells its reward."""
        return None if self.regrets is None else np.cumsum(self.regrets)

    @property
    def asked(self) -> int:
        """Return in how many rounds somebody was asked."""
        return int((self.answers >= 0).sum())


def promise_of_rounds(run: Play, ledger: Ledger) -> Guarantee:
    """Return what all answers promise, with every caveat."""
    if ledger.budget.unit != "label":
        raise PrivacyError(
            f"align_online protects one label at a time; this ledger counts {ledger.budget.unit} "
            "changes. Nothing was spent. Use a ledger of unit='label': a person who is asked m "
            "times is protected with m times epsilon."
        )
    if isinstance(run.contexts.world, RecordedWorld):
        raise PrivacyError(
            "What a world has recorded is taken as it is, and this would promise that a coin is "
            "tossed for it. Nothing was spent. Give a world that asks: prefer, or answer."
        )
    local = isinstance(run.contexts.world, DeviceWorld)
    promise = run.coin.guarantee(
        unit="label", neighbors=REPLACE_ONE, trust="local" if local else "central"
    )
    caveats = ["repeats-not-linked", *([] if local else ["randomized-at-ingestion"])]
    named = promise.with_caveats(*caveats, *(ledger.accepted or ()))
    return named.drawn(_random.entropy(run.simulate_seed).randomness)


def _checked(given: object, first: Actions, allowed: tuple[int, ...]) -> Actions:
    """Return what a world said; refuse what is no judgment of every question."""
    values = np.asarray(given)
    if values.shape != first.shape or not np.isin(values, allowed).all():
        raise DataError(
            f"The world must return {len(first)} judgments, each one of {allowed}; it did not. "
            "Nothing was released; the entry on the ledger stays."
        )
    return values.astype(np.int8)


def align_online(  # noqa: PLR0913 (each is one choice of the user)
    world: OnlineWorld,
    *,
    rounds: int,
    epsilon: float,
    temperature: float,
    ledger: Ledger,
    exploration: Exploration = "optimistic",
    candidates: Mapping[str, _FeatureReward] | None = None,
    ball: float = 1.0,
    ridge: float = 1.0,
    scale: float = 1.0,
    bonus_bound: float | None = None,
    confidence: float = 0.95,
    world_seed: int | None = None,
    simulate_seed: int | None = None,
) -> _OnlineRun:
    """Return what was learned by asking people about two actions in every round.

    The first action is drawn from the Gibbs policy of the estimate, the second from that of the
    estimate plus a bonus for what is not known yet, and one person says which is better. Only
    the randomized answer is used. Rounds in which both actions are the same ask nobody.

    Args:
        world: A :class:`~sordino.environments.preference_worlds.PreferenceWorld`, or a
            :class:`~sordino.environments.preference_worlds.DeviceWorld` whose devices randomize.
            Its contexts must not depend on answers.
        rounds: How many rounds.
        epsilon: Privacy loss of one label; infinity uses judgments as they are.
        temperature: KL strength in units of reward.
        ledger: Where the spend of all rounds is recorded before the first; its unit is ``"label"``.
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
        world_seed: Of the world's contexts and of simulated people; ``simulate_seed`` if left out.
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
        answers only. Trust ``"local"`` where devices randomize, else ``"central"`` with the caveat
        ``randomized-at-ingestion``. A person who is asked in m rounds is protected with m·ε (caveat
        ``repeats-not-linked``: nobody is told apart here). One entry before the first round pays
        for all. What was drawn is stored as it is drawn where the ledger goes on with a command
        (and the world's contexts come from a seed, so that they come again); else a new run pays
        again. Shown by tests/unit/algorithms/test_online_alignment.py and tests/cli/test_online.py.

    Source:
        PPKL, online algorithm, made tractable; docs/policy_optimization.md, "Online alignment".
    """
    _validate.integer("rounds", rounds, at_least=1)
    run = Play(
        world,
        epsilon=epsilon,
        temperature=temperature,
        exploration=exploration,
        candidates=candidates,
        ball=ball,
        ridge=ridge,
        scale=scale,
        bonus_bound=bonus_bound,
        confidence=confidence,
        world_seed=simulate_seed if world_seed is None else world_seed,
        simulate_seed=simulate_seed,
    )
    promise = promise_of_rounds(run, paying(ledger, "Asking people spends", "asked"))
    reservation = ledger.reserve(run.coin.event, promise=promise, details={"rounds": rounds})
    run.once = lambda part, draw: reservation.drawn_once(draw, part=part)
    run.play(rounds)
    artifact = _digest(run)
    reservation.commit(artifact)
    return learned_in(run, Charged(run.answers, promise, (reservation.release_id,), artifact))


def learned_in(run: Play, answers: Paid) -> _OnlineRun:
    """Return what was learned in rounds that were played, with what their answers promise."""
    learner, possible, name = run.learner, tuple[str, ...](), None
    # Without a confidence set: that of a fixed design does not hold for questions that were chosen
    # by earlier answers.
    paid = provenance(answers)
    known: dict[str, Any] = {"features": None, "pairs": learner.asked or None, **paid}
    if isinstance(learner, _FiniteLearner):
        name, possible = learner.names[learner.best], tuple(compress(learner.names, learner.kept))
        weights = np.eye(len(learner.names))[learner.best]
        exact = dict.fromkeys(("ridge", "gradient_norm", "atol"), 0.0)
        known |= exact | {"ball": 1.0, "method": CLASS, "statistic": -learner.losses}
    else:
        weights = learner.weights
        sizes = ("ridge", "ball", "gradient_norm", "atol")
        known |= {size: getattr(learner, size) for size in sizes}
    return _OnlineRun(
        policy=_OnlinePolicy(learner, temperature=run.temperature),
        reward=RewardModel(weights=weights, **known),
        name=name,
        possible=possible,
        **paid,
        actions=np.concatenate(run.actions),
        answers=np.concatenate(run.answers),
        regrets=np.concatenate(run.regrets) if run.regrets else None,
        widths=np.concatenate(run.widths),
        refits=len(run.answers),
        radius=learner.radius,
        run=run,
    )


def _digest(run: Play) -> str:
    """Return the SHA-256 of all questions and randomized answers."""
    questions = hashlib.sha256(b"sordino.online\n")
    for differences, actions in zip(run.questions, run.actions, strict=True):
        questions.update(actions.astype("<i8").tobytes())
        questions.update(differences.astype("<f8").tobytes())
    return digest_of_answers(questions.hexdigest(), np.concatenate(run.answers))
