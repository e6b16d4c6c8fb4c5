"""How large a comparison of policies is: what is trained, how long, and what is measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from sordino.language.references.tiny import TinyModel
from sordino.language.training.training_terms import PolicyTerms, TrainingTerms

__all__ = ["FULL", "QUICK", "CentralSizes", "StudySizes"]

_REWARD_RATE, _POLICY_RATE = 1e-4, 1e-5  # for models that can speak already
_CENTRAL_RATE = 1e-4


@dataclass(frozen=True, kw_only=True)
class CentralSizes:
    """Public sizes of one run on raw judgments, whose gradients are clipped, summed and noised.

    Few steps with many records at a high rate: noise drowns what a few records say. All weights
    are trained, for adapters start at 0 and move little in so few steps.

    Attributes:
        steps: How many there are.
        expected_batch: Records that take part in a step, in the mean; at most all of them.
        clip: Bound on the norm of what one record adds.
        terms: The other settings.
    """

    steps: int
    expected_batch: int
    clip: float
    terms: TrainingTerms


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
        central: How a policy is trained by DPO on raw judgments.
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
    central: CentralSizes
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
            central=replace(
                self.central, terms=replace(self.central.terms, learning_rate=_CENTRAL_RATE)
            ),
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
    central=CentralSizes(
        steps=10,
        expected_batch=192,
        clip=1.0,
        terms=TrainingTerms(learning_rate=2e-3, overlong="drop"),
    ),
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
    central=CentralSizes(
        steps=40,
        expected_batch=1024,
        clip=1.0,
        terms=TrainingTerms(learning_rate=2e-3, overlong="drop"),
    ),
    seeds=5,
    prompts=1000,
    max_new_tokens=64,
)
"""Hours on two cores, for the tiny model."""
