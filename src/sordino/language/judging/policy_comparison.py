"""A policy against its reference: answers of both to public prompts, and a judge between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from sordino.language.judging.contests import Judge, WinRate, win_rate
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.models.generation import sample_answers
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.preferences.records import Text
from sordino.privacy.guarantee import Guarantee

__all__ = ["RewardJudge", "compare_policies", "draw_answers"]


@dataclass(frozen=True)
class RewardJudge:
    """A reward as a judge of what a model wrote: an answer that cannot be read loses."""

    # A model may end before it has said anything. A reward gives no score to an empty answer; here
    # it stands below every other.

    reward: TextRewardModel  # it must not have learned from what the policy did

    @property
    def guarantee(self) -> Guarantee:
        """Return what the labels that the judge learned from were promised."""
        return self.reward.guarantee

    def score(self, prompts: Sequence[Text], answers: Sequence[Text]) -> Float[np.ndarray, " n"]:
        """Return a score for each answer, the least for those that cannot be read."""
        readable = [
            row
            for row, both in enumerate(zip(prompts, answers, strict=True))
            if self.reward.can_read(*both)
        ]
        scores = np.full(len(prompts), -self.reward.reward_bound - 1.0)
        if readable:
            asked = [prompts[row] for row in readable]
            scores[readable] = self.reward.score(asked, [answers[row] for row in readable])
        return scores


def draw_answers(
    folder: Path, prompts: Sequence[Text], *, max_new_tokens: int, seed: int
) -> list[str]:
    """Return one answer of a checkpoint to each prompt."""
    model: Any = load_causal_model(folder)
    return sample_answers(
        model, load_tokenizer(folder), prompts, max_new_tokens=max_new_tokens, seed=seed
    )


def compare_policies(
    policy: Path,
    reference: Path,
    prompts: Sequence[Text],
    judge: Judge,
    *,
    max_new_tokens: int = 64,
    seed: int = 0,
) -> WinRate:
    """Return how often a judge prefers what a policy answers to what its reference does."""
    drawn, others = (
        draw_answers(folder, prompts, max_new_tokens=max_new_tokens, seed=2 * seed + side)
        for side, folder in enumerate((policy, reference))
    )
    return win_rate(judge, prompts, drawn, others)
