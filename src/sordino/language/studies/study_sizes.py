"""How large a comparison of policies is: what is trained, how long, and what is measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from sordino.language.references.tiny import TinyModel
from sordino.language.training.training_terms import PolicyTerms, TrainingTerms

__all__ = ["FULL", "QUICK", "StudySizes"]

_REWARD_RATE, _POLICY_RATE = 1e-4, 1e-5  # for models that can speak already


@dataclass(frozen=True, kw_only=True)
class StudySizes:
    """Public sizes of a comparison.

    Attributes:
        model: The tiny reference that is built where no checkpoint is given.
        pretraining: Steps of it.
        judge: How the judge is trained.
        dpo: How a policy is trained by DPO.
        reward: How a private reward is trained.
        policy: How a policy follows it.
        seeds: Releases at each epsilon.
        prompts: Held-out prompts that are answered.
        max_new_tokens: Longest answer.
    """

    model: TinyModel
    pretraining: int
    judge: TrainingTerms
    dpo: TrainingTerms
    reward: TrainingTerms
    policy: PolicyTerms
    seeds: int
    prompts: int
    max_new_tokens: int

    def for_checkpoint(self) -> StudySizes:
        """Return the same sizes with smaller steps, for a checkpoint that was trained before."""
        return replace(
            self,
            judge=replace(self.judge, learning_rate=_REWARD_RATE),
            reward=replace(self.reward, learning_rate=_REWARD_RATE),
            dpo=replace(self.dpo, learning_rate=_POLICY_RATE),
            policy=replace(self.policy, learning_rate=_POLICY_RATE),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return every size as JSON holds it."""
        return asdict(self)


QUICK = StudySizes(
    model=TinyModel(vocabulary=1024, width=64, layers=2, heads=4, context=192),
    pretraining=400,
    judge=TrainingTerms(epochs=2, learning_rate=3e-4, overlong="drop"),
    dpo=TrainingTerms(epochs=2, learning_rate=5e-4, overlong="drop", log_every=15),
    reward=TrainingTerms(epochs=2, learning_rate=3e-4, overlong="drop", log_every=15),
    policy=PolicyTerms(steps=80, learning_rate=5e-4, max_new_tokens=40, log_every=8),
    seeds=3,
    prompts=200,
    max_new_tokens=40,
)
"""Minutes on two cores."""

FULL = StudySizes(
    model=TinyModel(),
    pretraining=2000,
    judge=TrainingTerms(epochs=2, learning_rate=3e-4, overlong="drop"),
    dpo=TrainingTerms(epochs=3, learning_rate=5e-4, overlong="drop", log_every=20),
    reward=TrainingTerms(epochs=3, learning_rate=3e-4, overlong="drop", log_every=20),
    policy=PolicyTerms(steps=400, learning_rate=5e-4),
    seeds=5,
    prompts=1000,
    max_new_tokens=64,
)
"""Hours on two cores, for the tiny model."""
