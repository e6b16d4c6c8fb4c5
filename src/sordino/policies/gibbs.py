"""The reference policy tilted by reward over temperature, on finite candidate sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, overload, runtime_checkable

import numpy as np
from jaxtyping import Float, Int64, Integer

from sordino import _random, _validate
from sordino.errors import PrivacyError
from sordino.preferences.features import Features
from sordino.preferences.records import Text
from sordino.privacy.guarantee import Guarantee
from sordino.rewards.candidates import CandidateLists, Candidates, Prompts, ReferenceLists

from .withheld import WithheldEstimate, WithheldPolicy


@runtime_checkable
class ReleasedReward(Protocol):
    """A reward that was paid for, so that everything computed from it is free."""

    @property
    def features(self) -> Features | None:
        """Return what texts are read with; None for a reward of plain feature rows."""

    @property
    def guarantee(self) -> Guarantee:
        """Return what the release promises."""

    @property
    def release_ids(self) -> tuple[str, ...]:
        """Return the ledger entries that paid."""

    @property
    def artifact(self) -> str:
        """Return the SHA-256 of the private answers behind it."""

    @property
    def pairs(self) -> int | None:
        """Return how many comparisons were used; None where that is private."""

    def score(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
        """Return the reward of each answer to each prompt."""

    def score_features(self, rows: Any) -> Float[np.ndarray, " n"]:
        """Return the reward of each row of features."""

    def to_dict(self) -> dict[str, Any]:
        """Return the reward as JSON holds it."""


Scores: TypeAlias = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]
"""Two numbers for each candidate of each prompt."""


def tilt(
    scores: Float[np.ndarray, " m"],
    starts: Integer[np.ndarray, " n"],
    temperature: float,
    reference: Float[np.ndarray, " m"],
) -> Float[np.ndarray, " m"]:
    """Return reference · exp(score / temperature), normalized within every segment.

    Args:
        scores: Rewards of all candidates of all prompts, one after the other.
        starts: Where each prompt's candidates begin; no prompt has none.
        temperature: KL strength in units of reward, > 0.
        reference: Probabilities of the starting policy, summing to 1 within every segment.

    Source:
        The maximizer of E r − temperature · KL(π ‖ reference); KLDP, §2; PPKL, §2.
    """
    logits = scores / temperature
    sizes = np.diff(np.append(starts, len(scores)))
    logits = logits - np.repeat(np.maximum.reduceat(logits, starts), sizes)
    weights = reference * np.exp(logits)
    return np.asarray(weights / np.repeat(np.add.reduceat(weights, starts), sizes))


def drawn_indices(
    chances: Sequence[Float[np.ndarray, " k"]], simulate_seed: int | None
) -> Int64[np.ndarray, " n"]:
    """Return an index drawn with each list of probabilities; uniform numbers have 53 bits."""
    uniform = (_random.entropy(simulate_seed).words(len(chances)) >> np.uint64(11)) * 2.0**-53
    # what has probability 0 is never drawn, also where rounding leaves a sum below 1
    drawn = [
        min(int(np.searchsorted(np.cumsum(p), u, side="right")), int(np.flatnonzero(p)[-1]))
        for p, u in zip(chances, uniform, strict=True)
    ]
    return np.array(drawn, dtype=np.int64)


@dataclass(frozen=True)
class CandidatePolicy(ABC):
    """Choose among given candidates with probability ∝ reference · exp(score / temperature)."""

    # Kinds of policy differ in the score alone. Everything they do is computed from an already
    # private reward, so it costs nothing further, however often it is used.
    # Every method takes n prompts and n lists of candidates, of any lengths ≥ 1, and optionally n
    # lists of the starting policy's probabilities (uniform if left out). Where the reward was
    # fitted on feature differences, prompts are None and each entry of candidates is an array of
    # features, shape (k, d).

    reward: ReleasedReward  # the private reward
    # KL strength, in units of reward; small follows the reward, large stays with the reference.
    temperature: float = field(kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.reward, ReleasedReward):
            raise PrivacyError(
                f"A policy needs a RewardModel from fit_reward, got {type(self.reward).__name__}."
            )
        value = _validate.positive("temperature", self.temperature)
        object.__setattr__(self, "temperature", value)

    @abstractmethod
    def _scores(self, options: Candidates) -> Scores:
        """Return the scores that are tilted, and the estimated rewards behind them."""

    def to_dict(self) -> dict[str, Any]:
        """Return what makes this policy, as JSON holds it."""
        return {"reward": self.reward.to_dict(), "temperature": self.temperature}

    def _options(
        self, prompts: Prompts, candidates: CandidateLists, reference: ReferenceLists
    ) -> Candidates:
        return Candidates.of(
            prompts, candidates, reference=reference, features=self.reward.features
        )

    def _tilted(self, options: Candidates) -> Scores:
        """Return the probabilities of all candidates, and their estimated rewards."""
        scores, rewards = self._scores(options)
        return tilt(scores, options.starts, self.temperature, options.reference), rewards

    def probabilities(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> list[Float[np.ndarray, " k"]]:
        """Return, for every prompt, the probability of each of its candidates."""
        options = self._options(prompts, candidates, reference)
        return options.split(self._tilted(options)[0])

    def sample(
        self,
        prompts: Prompts,
        candidates: CandidateLists,
        *,
        reference: ReferenceLists = None,
        simulate_seed: int | None = None,
    ) -> Integer[np.ndarray, " n"]:
        """Return, for every prompt, the index of one candidate drawn from the policy."""
        return self.draw(prompts, candidates, reference=reference, simulate_seed=simulate_seed)[0]

    def draw(
        self,
        prompts: Prompts,
        candidates: CandidateLists,
        *,
        reference: ReferenceLists = None,
        simulate_seed: int | None = None,
    ) -> tuple[Integer[np.ndarray, " n"], list[Float[np.ndarray, " k"]]]:
        """Return what :meth:`sample` returns, and the probabilities that were drawn from."""
        chances = self.probabilities(prompts, candidates, reference=reference)
        return drawn_indices(chances, simulate_seed), chances

    def kl(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> Float[np.ndarray, " n"]:
        """Return KL(policy ‖ reference) for every prompt, in nats."""
        options = self._options(prompts, candidates, reference)
        chances, base = self._tilted(options)[0], options.reference
        # an underflow to 0 contributes 0, the limit of p log p
        ratio = np.log(chances / base, out=np.zeros_like(base), where=chances > 0)
        return np.asarray(np.maximum(options.means(ratio, chances), 0.0))

    def expected_reward(
        self, prompts: Prompts, candidates: CandidateLists, *, reference: ReferenceLists = None
    ) -> Float[np.ndarray, " n"]:
        """Return the policy's expected private reward for every prompt, without any bonus."""
        options = self._options(prompts, candidates, reference)
        chances, rewards = self._tilted(options)
        return options.means(rewards, chances)


@dataclass(frozen=True)
class GibbsPolicy(CandidatePolicy):
    """Choose among candidates with probability ∝ reference · exp(reward / temperature).

    Made by :func:`gibbs_policy`; it takes the reward at its word. See :class:`CandidatePolicy`
    for what its methods take.

    Attributes:
        reward: The private reward.
        temperature: KL strength, in units of reward; small follows the reward, large stays with
            the reference.
    """

    def _scores(self, options: Candidates) -> Scores:
        if options.given is not None:
            rewards = self.reward.score_features(options.given)
        else:
            rewards = self.reward.score(options.prompts, options.answers)
        return rewards, rewards


@overload
def gibbs_policy(reward: ReleasedReward, *, temperature: float) -> GibbsPolicy: ...
@overload
def gibbs_policy(reward: WithheldEstimate, *, temperature: float) -> WithheldPolicy: ...
def gibbs_policy(
    reward: ReleasedReward | WithheldEstimate, *, temperature: float
) -> GibbsPolicy | WithheldPolicy:
    """Return the policy that follows a reward as far as the temperature allows.

    π(a | x) ∝ reference(a | x) · exp(reward(x, a) / temperature). What KLDP writes as η is this
    temperature; PPKL's η is its inverse.

    Args:
        reward: A :class:`sordino.RewardModel`, or what :class:`sordino.FiniteRewards` fitted:
            everything computed from it is free. Or a :class:`sordino.WithheldReward`, of which
            every draw spends.
        temperature: KL strength in units of reward, finite and > 0.

    Raises:
        UsageError: The temperature is not finite and above 0.
        PrivacyError: The reward is neither released nor withheld by :func:`sordino.fit_reward`.

    Source:
        KLDP, §2; PPKL, §2.
    """
    if isinstance(reward, WithheldEstimate):
        return WithheldPolicy(reward, temperature=temperature)
    return GibbsPolicy(reward, temperature=temperature)
