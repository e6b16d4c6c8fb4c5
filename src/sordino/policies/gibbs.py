"""The reference policy tilted by reward over temperature, on finite candidate sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from sordino import _random, _validate
from sordino.errors import DataError, PrivacyError
from sordino.preferences.records import Text
from sordino.rewards.model import RewardModel

__all__ = ["GibbsPolicy", "gibbs_policy", "tilt"]


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


@dataclass(frozen=True)
class GibbsPolicy:
    """Choose among candidates with probability ∝ reference · exp(reward / temperature).

    Made by :func:`gibbs_policy`. Everything it does is computed from an already private reward,
    so it costs nothing further, however often it is used.

    Attributes:
        reward: The private reward.
        temperature: KL strength, in units of reward; small follows the reward, large stays with
            the reference.
    """

    reward: RewardModel
    temperature: float = field(kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what is no released reward, or no temperature."""
        if not isinstance(self.reward, RewardModel):
            raise PrivacyError(
                f"A policy needs a RewardModel from fit_reward, got {type(self.reward).__name__}."
            )
        value = _validate.positive("temperature", self.temperature)
        object.__setattr__(self, "temperature", value)

    def _flat(
        self,
        prompts: Sequence[Text],
        candidates: Sequence[Sequence[Text]],
        reference: Sequence[Sequence[float]] | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return scores, segment starts and reference probabilities of all candidates."""
        sizes = np.array([len(options) for options in candidates], dtype=np.int64)
        if len(prompts) != len(sizes):
            raise DataError(f"{len(prompts)} prompts, but {len(sizes)} candidate lists.")
        if not len(sizes) or not sizes.all():
            index = int(np.flatnonzero(sizes == 0)[0]) if len(sizes) else 0
            raise DataError(f"candidates: entry {index} is empty; give at least one candidate.")
        repeated = [
            prompt for prompt, size in zip(prompts, sizes, strict=True) for _ in range(size)
        ]
        scores = self.reward.score(repeated, list(chain.from_iterable(candidates)))
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        return scores, starts, _reference(reference, sizes, starts)

    def probabilities(
        self,
        prompts: Sequence[Text],
        candidates: Sequence[Sequence[Text]],
        *,
        reference: Sequence[Sequence[float]] | None = None,
    ) -> list[Float[np.ndarray, " k"]]:
        """Return, for every prompt, the probability of each of its candidates.

        Args:
            prompts: n prompts.
            candidates: n lists of candidates, of any lengths ≥ 1.
            reference: n lists of probabilities; uniform if left out.

        Raises:
            DataError: Lengths disagree, a list is empty, or a reference is no distribution.
        """
        scores, starts, base = self._flat(prompts, candidates, reference)
        return np.split(tilt(scores, starts, self.temperature, base), starts[1:])

    def sample(
        self,
        prompts: Sequence[Text],
        candidates: Sequence[Sequence[Text]],
        *,
        reference: Sequence[Sequence[float]] | None = None,
        simulate_seed: int | None = None,
    ) -> Integer[np.ndarray, " n"]:
        """Return, for every prompt, the index of one candidate drawn from the policy.

        Args:
            prompts: n prompts.
            candidates: n lists of candidates.
            reference: n lists of probabilities; uniform if left out.
            simulate_seed: A seed, so that a study can be repeated; the reward is private
                already, so the draw has nothing to hide.

        Raises:
            DataError: As in :meth:`probabilities`.
        """
        return self.draw(prompts, candidates, reference=reference, simulate_seed=simulate_seed)[0]

    def draw(
        self,
        prompts: Sequence[Text],
        candidates: Sequence[Sequence[Text]],
        *,
        reference: Sequence[Sequence[float]] | None = None,
        simulate_seed: int | None = None,
    ) -> tuple[Integer[np.ndarray, " n"], list[Float[np.ndarray, " k"]]]:
        """Return what :meth:`sample` returns, and the probabilities that were drawn from."""
        chances = self.probabilities(prompts, candidates, reference=reference)
        uniform = (_random.entropy(simulate_seed).words(len(chances)) >> np.uint64(11)) * 2.0**-53
        drawn = [
            min(int(np.searchsorted(np.cumsum(p), u, side="right")), len(p) - 1)
            for p, u in zip(chances, uniform, strict=True)
        ]
        return np.array(drawn, dtype=np.int64), chances

    def kl(
        self,
        prompts: Sequence[Text],
        candidates: Sequence[Sequence[Text]],
        *,
        reference: Sequence[Sequence[float]] | None = None,
    ) -> Float[np.ndarray, " n"]:
        """Return KL(policy ‖ reference) for every prompt, in nats."""
        scores, starts, base = self._flat(prompts, candidates, reference)
        chances = tilt(scores, starts, self.temperature, base)
        # an underflow to 0 contributes 0, the limit of p log p
        ratio = np.log(chances / base, out=np.zeros_like(base), where=chances > 0)
        return np.maximum(np.add.reduceat(chances * ratio, starts), 0.0)

    def expected_reward(
        self,
        prompts: Sequence[Text],
        candidates: Sequence[Sequence[Text]],
        *,
        reference: Sequence[Sequence[float]] | None = None,
    ) -> Float[np.ndarray, " n"]:
        """Return the policy's expected private reward for every prompt."""
        scores, starts, base = self._flat(prompts, candidates, reference)
        return np.add.reduceat(tilt(scores, starts, self.temperature, base) * scores, starts)


def _reference(
    reference: Sequence[Sequence[float]] | None,
    sizes: Integer[np.ndarray, " n"],
    starts: Integer[np.ndarray, " n"],
) -> Float[np.ndarray, " m"]:
    """Return the reference probabilities of all candidates; uniform if left out."""
    if reference is None:
        return np.repeat(1.0 / sizes, sizes)
    if [len(row) for row in reference] != list(sizes):
        raise DataError("reference must have one probability for each candidate.")
    flat = _validate.finite_array("reference", list(chain.from_iterable(reference)), ndim=1)
    totals = np.add.reduceat(flat, starts)
    wrong = np.flatnonzero((np.minimum.reduceat(flat, starts) <= 0) | (abs(totals - 1) > 1e-6))  # noqa: PLR2004
    if len(wrong):
        raise DataError(f"reference: entry {wrong[0]} must be positive and sum to 1.")
    return flat


def gibbs_policy(reward: Any, *, temperature: float) -> GibbsPolicy:
    """Return the policy that follows a private reward as far as the temperature allows.

    π(a | x) ∝ reference(a | x) · exp(reward(x, a) / temperature). What KLDP writes as η is this
    temperature; PPKL's η is its inverse.

    Args:
        reward: A :class:`sordino.RewardModel`.
        temperature: KL strength in units of reward, finite and > 0.

    Raises:
        UsageError: The temperature is not finite and above 0.
        PrivacyError: The reward is not a released reward model.

    Source:
        KLDP, §2; PPKL, §2.
    """
    return GibbsPolicy(reward, temperature=temperature)
