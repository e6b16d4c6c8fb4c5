"""Public settings of training: on randomized answers, and against a private reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sordino._validate import integer, non_negative, one_of, positive
from sordino.language.models.tokens import Overlong

__all__ = ["PolicyTerms", "TrainingTerms", "Update"]

Update = Literal["rebel", "rloo", "grpo"]


@dataclass(frozen=True, kw_only=True)
class TrainingTerms:
    """Public settings of training on randomized answers.

    Attributes:
        loss: ``"debiased"`` or ``"mixture"``.
        epochs: Passes over the pairs.
        head_epochs: Passes before them that train the head of a reward alone.
        batch_size: Pairs in each step.
        learning_rate: Of AdamW, at its largest.
        max_length: Most tokens of prompt and answer; None for the model's context.
        overlong: What happens to a pair with an answer that does not fit.
        lora: Rank of low-rank adapters; 0 trains every weight.
        temperature: KL strength of DPO, in units of reward.
        seed: Of the order of the pairs, which is public.
        log_every: Steps between two entries of the log; held-out answers are measured as often.
    """

    loss: str = "debiased"
    epochs: float = 1.0
    head_epochs: float = 0.0
    batch_size: int = 16
    learning_rate: float = 1e-4
    max_length: int | None = None
    overlong: Overlong = "refuse"
    lora: int = 0
    temperature: float = 0.1
    seed: int = 0
    log_every: int = 10

    def __post_init__(self) -> None:
        """Refuse what nothing can be trained with."""
        one_of("loss", self.loss, ("debiased", "mixture"))
        one_of("overlong", self.overlong, get_args(Overlong))
        for name in ("epochs", "learning_rate", "temperature"):
            positive(name, getattr(self, name))
        non_negative("head_epochs", self.head_epochs)
        for name, least in {"batch_size": 1, "lora": 0, "seed": 0, "log_every": 1}.items():
            integer(name, getattr(self, name), at_least=least)


@dataclass(frozen=True, kw_only=True)
class PolicyTerms:
    """Public settings of improving a policy on a private reward.

    Attributes:
        update: ``"rebel"``, ``"rloo"`` or ``"grpo"``.
        temperature: KL strength, in units of reward.
        pessimism: How much the reward is lowered where answers are unlike those compared.
        steps: Updates.
        batch_size: Prompts in each step of REBEL; answers in each step of the others.
        learning_rate: Of AdamW, at its largest.
        max_new_tokens: Longest answer that is tried.
        seed: Of what is tried, which is public.
        log_every: Steps between two entries of the log.
    """

    update: Update = "rebel"
    temperature: float = 0.1
    pessimism: float = 0.0
    steps: int = 100
    batch_size: int = 16
    learning_rate: float = 1e-5
    max_new_tokens: int = 64
    seed: int = 0
    log_every: int = 10

    def __post_init__(self) -> None:
        """Refuse what nothing can be improved with."""
        one_of("update", self.update, get_args(Update))
        for name in ("temperature", "learning_rate"):
            positive(name, getattr(self, name))
        non_negative("pessimism", self.pessimism)
        for name in ("steps", "batch_size", "max_new_tokens", "log_every"):
            integer(name, getattr(self, name), at_least=1)
        integer("seed", self.seed, at_least=0)
