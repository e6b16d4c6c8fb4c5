"""Drawing answers, and asking what they are worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from trl.models import unwrap_model_for_generation

from sordino.language.models._upstream import upstream
from sordino.language.models.completions import (
    Completions,
    answer_log_probabilities,
    evaluating,
    stacked,
)
from sordino.language.models.generation import sample_completions
from sordino.language.policies.rebel_config import RebelConfig
from sordino.language.policies.rollouts import Rollout
from sordino.language.rewards.reward_sums import RewardFunction, summed_rewards
from sordino.preferences.records import Text

__all__ = ["Collector"]


@dataclass(frozen=True)
class Collector:
    """Draws two answers to each prompt and asks what they are worth.

    Args:
        accelerator: Of the trainer.
        tokenizer: Of the policy.
        functions: The rewards.
        reference: Where the policy is pulled to; None where it is the policy without its adapter.
        settings: Of the training.
    """

    accelerator: Any
    tokenizer: Any
    functions: Sequence[RewardFunction]
    reference: Any
    settings: RebelConfig

    def collect(self, policy: Any, prompts: list[Text]) -> tuple[Rollout, dict[str, Any]]:
        """Return two answers to each prompt, and what the policy's own ones say of it.

        Raises:
            DataError: A reward is missing or not finite.
        """
        with evaluating(policy):
            drawn = self._drawn(policy, prompts)
            start = answer_log_probabilities(policy, drawn)
            with self._referring(policy) as reference:
                away = start - answer_log_probabilities(reference, drawn)
        rewards = self._rewards(drawn, prompts).to(start)
        own = slice(None if self.settings.samples == "on_policy" else len(prompts))
        lengths = drawn.completion_mask.sum(dim=1).to(start)
        found = {"reward": rewards, "kl": away, "length": lengths}
        rollout = Rollout(*drawn, start, rewards - self.settings.temperature * away)
        return rollout, {name: value[own].mean() for name, value in found.items()}

    def _rewards(self, drawn: Completions, prompts: list[Text]) -> Any:
        """Return what each answer is worth."""
        texts, ids = drawn.texts(self.tokenizer), drawn.token_lists()
        return torch.tensor(
            summed_rewards(self.functions, [*prompts, *prompts], texts, completion_ids=ids)
        )

    def _drawn(self, policy: Any, prompts: list[Text]) -> Completions:
        """Return two answers to each prompt: the policy's, and its own again or the reference's."""
        if self.settings.samples == "on_policy":
            return self._answers(policy, [*prompts, *prompts])
        first = self._answers(policy, prompts)
        with self._referring(policy) as reference:
            return stacked(first, self._answers(reference, prompts))

    def _answers(self, model: Any, prompts: list[Text]) -> Completions:
        """Return one answer of a model to each prompt."""
        with upstream(), unwrap_model_for_generation(model, self.accelerator) as whole:
            return sample_completions(
                whole,
                self.tokenizer,
                prompts,
                max_new_tokens=self.settings.max_completion_length,
                sampling_temperature=self.settings.sampling_temperature,
            )

    @contextmanager
    def _referring(self, policy: Any) -> Iterator[Any]:
        """Yield the reference, which may be the policy without its adapter."""
        if self.reference is not None:
            yield self.reference
            return
        with self.accelerator.unwrap_model(policy).disable_adapter():
            yield policy
