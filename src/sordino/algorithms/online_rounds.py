"""The rounds themselves: two policies, two actions, one randomized answer, and again.

What a run of online alignment leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from jaxtyping import Float, Integer
from scipy.special import xlogy

from sordino import _random, _validate
from sordino.environments.online_worlds import Contexts, KnownReward
from sordino.environments.values import gibbs_rows
from sordino.errors import DataError
from sordino.privacy.guarantee import Guarantee
from sordino.rewards.model import RewardModel

Exploration = Literal["optimistic", "none", "symmetric", "uniform"]
Ask: TypeAlias = Callable[
    [Float[np.ndarray, "n k d"], Integer[np.ndarray, " n"], Integer[np.ndarray, " n"]],
    Integer[np.ndarray, " n"],
]
"""Contexts and two different actions of each in, one randomized answer for each out."""

EXPLORATIONS = MappingProxyType(
    {
        "optimistic": ("greedy", "optimistic"),
        "none": ("greedy", "greedy"),
        "symmetric": ("optimistic", "optimistic"),
        "uniform": ("uniform", "uniform"),
    }
)
"""What the first and the second action are drawn from; regret is that of the second."""

_GROWTH = 0.04  # share of all rounds that are played on one estimate


class Belief(Protocol):
    """What is known at a refit, on encoded actions."""

    @property
    def radius(self) -> float:
        """Return the size of the confidence set."""
        ...

    def rewards(self, encoded: Float[np.ndarray, "n k m"]) -> Float[np.ndarray, "n k"]:
        """Return the estimated reward of every action."""
        ...

    def bonus(self, centered: Float[np.ndarray, "n k m"]) -> Float[np.ndarray, "n k"]:
        """Return by how much the truth may exceed the estimate along every row."""
        ...

    def widths(self, differences: Float[np.ndarray, "n m"]) -> Float[np.ndarray, " n"]:
        """Return how far two rewards that are still possible disagree on every question."""
        ...


class Learner(Protocol):
    """What learns from questions and answers: a linear reward, or one of a finite class."""

    belief: Any  # what is known since the last refit
    largest_error: float  # by how much an estimated difference can be wrong, whatever the answers
    asked: int  # how many answers there were

    def encode(self, features: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k m"]:
        """Return what rewards are computed from."""
        ...

    def take(self, differences: Float[np.ndarray, "n m"]) -> int:
        """Return how many of the next questions are asked before the next refit."""
        ...

    def learn(
        self, differences: Float[np.ndarray, "n m"], answers: Integer[np.ndarray, " n"]
    ) -> None:
        """Take in randomized answers to the questions that were taken, and refit."""
        ...


@dataclass
class Transcript:
    """What happened in every round, in blocks between refits."""

    # The two actions of every round.
    actions: list[Integer[np.ndarray, "n 2"]] = field(default_factory=list)
    # How the two differ, as the learner encodes them.
    questions: list[Float[np.ndarray, "n m"]] = field(default_factory=list)
    # Randomized answers, −1 where both actions were the same and nobody was asked.
    answers: list[Integer[np.ndarray, " n"]] = field(default_factory=list)
    # How far two rewards that were still possible disagreed on the question.
    widths: list[Float[np.ndarray, " n"]] = field(default_factory=list)
    # What the second policy gave away in the round's context, where that is known.
    regrets: list[Float[np.ndarray, " n"]] = field(default_factory=list)


@dataclass(kw_only=True)
class Play:
    """One run: rounds between two refits are drawn and asked together."""

    # Policies change at refits only, so that this is the same as asking one by one.

    contexts: Contexts  # where contexts come from
    learner: Learner  # what learns
    ask: Ask  # gets randomized answers
    exploration: Exploration  # which policies the two actions are drawn from
    temperature: float  # KL strength in units of reward
    scale: float  # what the bonus is multiplied by
    bonus_bound: float  # where the bonus is cut
    entropy: _random.Entropy  # source of the words that actions are drawn with
    transcript: Transcript = field(default_factory=Transcript)  # what happened so far

    def play(self, rounds: int) -> None:
        """Play so many rounds.

        Guarantee:
            That of the answers: everything else is computed from them and from public contexts.
            Shown by tests/unit/algorithms/test_online_alignment.py.
        """
        # Source: docs/policy_optimization.md, "Online alignment".
        done = 0
        while done < rounds:
            block = min(rounds - done, max(1, int(_GROWTH * done)))
            done += self._block(block)

    def _block(self, size: int) -> int:
        """Play on one estimate until the next refit is due; return how many rounds it was."""
        contexts = self.contexts.peek(size)
        encoded = self.learner.encode(contexts)
        policies = self._policies(contexts, encoded)
        which = EXPLORATIONS[self.exploration]
        actions = np.stack([_drawn(policies[name], self.entropy) for name in which], axis=1)
        rows = np.arange(size)
        differences = encoded[rows, actions[:, 0]] - encoded[rows, actions[:, 1]]
        size = self.learner.take(differences)
        differences, actions = differences[:size], actions[:size]
        self.transcript.widths.append(self.learner.belief.widths(differences))
        self._note_regret(contexts[:size], policies[which[1]][:size])
        self._learn(contexts[:size], actions, differences)
        self.contexts.drop(size)
        return size

    def _policies(
        self, contexts: Float[np.ndarray, "n k d"], encoded: Float[np.ndarray, "n k m"]
    ) -> dict[str, Float[np.ndarray, "n k"]]:
        """Return the probabilities of the policies that this run draws from."""
        wanted = EXPLORATIONS[self.exploration]
        if "uniform" in wanted:
            return {"uniform": np.full(contexts.shape[:2], 1 / contexts.shape[1])}
        reference = reference_of(self.contexts.world, contexts)
        rewards = self.learner.belief.rewards(encoded)
        found = {"greedy": gibbs_rows(rewards, self.temperature, reference)}
        if "optimistic" in wanted:
            middle = np.einsum("nk,nkm->nm", found["greedy"], encoded)
            bonus = self.scale * self.learner.belief.bonus(encoded - middle[:, None])
            hoped = rewards + np.minimum(bonus, self.bonus_bound)
            found["optimistic"] = gibbs_rows(hoped, self.temperature, reference)
        return found

    def _note_regret(
        self, contexts: Float[np.ndarray, "n k d"], chances: Float[np.ndarray, "n k"]
    ) -> None:
        """Note what a policy gives away in every context: temperature · KL to the best one."""
        world = self.contexts.world
        if isinstance(world, KnownReward):
            reference = reference_of(world, contexts)
            best = gibbs_rows(world.rewards(contexts), self.temperature, reference)
            lost = xlogy(chances, chances / best).sum(axis=1)
            self.transcript.regrets.append(self.temperature * np.maximum(lost, 0.0))

    def _learn(
        self,
        contexts: Float[np.ndarray, "n k d"],
        actions: Integer[np.ndarray, "n 2"],
        differences: Float[np.ndarray, "n m"],
    ) -> None:
        """Ask where the two actions differ, which is public, and learn from the answers."""
        asked = np.flatnonzero(actions[:, 0] != actions[:, 1])
        answers = np.full(len(actions), -1, dtype=np.int8)
        if len(asked):
            first, second = actions[asked].T
            answers[asked] = self.ask(contexts[asked], first, second)
        self.learner.learn(differences[asked], answers[asked])
        self.transcript.actions.append(actions)
        self.transcript.questions.append(differences)
        self.transcript.answers.append(answers)


def reference_of(world: object, contexts: Float[np.ndarray, "n k d"]) -> Float[np.ndarray, "n k"]:
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


def _drawn(
    chances: Float[np.ndarray, "n k"], entropy: _random.Entropy
) -> Integer[np.ndarray, " n"]:
    """Return one action of every row; the uniform numbers of a draw have 53 bits."""
    uniform = (entropy.words(len(chances)) >> np.uint64(11)) * 2.0**-53
    reached = np.cumsum(chances, axis=1)[:, :-1] <= uniform[:, None]
    return np.asarray(reached.sum(axis=1))


@dataclass(frozen=True, eq=False)
class OnlinePolicy:
    """The reference tilted by the final estimate over the temperature."""

    learner: Learner = field(repr=False)  # what learned; only its final estimate is used
    temperature: float = field(kw_only=True)  # KL strength in units of reward

    def probabilities(
        self,
        features: Float[np.ndarray, "n k d"],
        *,
        reference: Float[np.ndarray, "n k"] | None = None,
    ) -> Float[np.ndarray, "n k"]:
        """Return the probability of every action in n contexts; free, for answers were private."""
        # Source: KLDP, §2; PPKL, §2.
        rows = _validate.finite_array("features", features, ndim=3)
        base = np.full(rows.shape[:2], 1 / rows.shape[1]) if reference is None else reference
        rewards = self.learner.belief.rewards(self.learner.encode(rows))
        return gibbs_rows(rewards, self.temperature, base)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class OnlineRun:
    """What was learned in all rounds, with the promise that it carries."""

    policy: OnlinePolicy  # the final policy, without any bonus
    # The final linear reward, which other policies take; None for a finite class.
    reward: RewardModel | None
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
    exploration: Exploration  # which rule chose the actions
    heuristic: bool  # whether the bonus is less than what the proof needs

    def __repr__(self) -> str:
        """Return the size and the promise."""
        kind = f"{self.exploration}, heuristic" if self.heuristic else self.exploration
        return f"OnlineRun({len(self.answers)} rounds, {kind}, {self.guarantee})"

    @property
    def regret(self) -> Float[np.ndarray, " t"] | None:
        """Return the regret up to every round, where the world tells its reward."""
        return None if self.regrets is None else np.cumsum(self.regrets)

    @property
    def asked(self) -> int:
        """Return in how many rounds somebody was asked."""
        return int((self.answers >= 0).sum())

    def surprising_rounds(self, threshold: float) -> int:
        """Return in how many rounds rewards that were still possible disagreed by more."""
        # However long a run is, a class of small eluder dimension allows few.
        # Source: Russo & Van Roy 2013, Proposition 3; docs/policy_optimization.md, "Online
        # alignment".
        return int((self.widths > _validate.positive("threshold", threshold)).sum())
