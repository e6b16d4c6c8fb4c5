"""The settings of policy training by regression on rewards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from transformers import TrainingArguments

from sordino._validate import integer, non_negative, one_of, positive
from sordino.errors import UsageError

__all__ = ["RebelConfig"]

Samples = Literal["on_policy", "reference"]


@dataclass
class RebelConfig(TrainingArguments):
    """Settings of :class:`sordino.language.RebelTrainer`; the others are those of transformers.

    One collection is ``per_device_train_batch_size`` times ``gradient_accumulation_steps`` prompts
    (on each device) with two answers each. It is drawn by the policy of that moment and used for
    ``steps_per_collection`` optimizer steps, each of which goes over all of it. In one epoch every
    prompt is collected once; where the last collection is not full, prompts of that epoch fill it.

    Nothing is uploaded or reported unless ``report_to`` says so, and nothing is printed unless
    ``disable_tqdm=False`` asks for it: metrics are in ``trainer.state.log_history``.

    Args:
        temperature: Strength of the pull to the reference, in units of reward; the policy tends
            to reference · exp(reward / temperature). 0 pulls not at all.
        step: How far one collection moves the policy, per unit of reward: log-odds of two answers
            are to change by step times the difference of their rewards. At most 1/temperature.
        max_completion_length: Most tokens of an answer, its end included.
        sampling_temperature: 1 draws from the policy as it is.
        samples: Who gives the second answer: the current policy (``"on_policy"``) or the
            reference.
        steps_per_collection: Optimizer steps for each collection.

    Raises:
        UsageError: A setting cannot be used.
    """

    temperature: float = field(default=0.1, metadata={"help": "Pull to the reference."})
    step: float = field(default=1.0, metadata={"help": "Log-odds per unit of reward."})
    max_completion_length: int = field(default=128, metadata={"help": "Tokens of an answer."})
    sampling_temperature: float = field(default=1.0, metadata={"help": "1: the policy as it is."})
    samples: str = field(default="on_policy", metadata={"help": "on_policy or reference."})
    steps_per_collection: int = field(default=4, metadata={"help": "Steps for each collection."})

    learning_rate: float = field(default=1e-6, metadata={"help": "Of the optimizer."})
    logging_steps: float = field(default=10, metadata={"help": "Steps between two logs."})
    report_to: str | list[str] | None = field(default="none", metadata={"help": "Nobody."})
    disable_tqdm: bool | None = field(default=True, metadata={"help": "Print nothing."})
    dataloader_pin_memory: bool = field(default=False, metadata={"help": "Prompts are texts."})
    remove_unused_columns: bool | None = field(default=False, metadata={"help": "There are none."})

    def __post_init__(self) -> None:
        """Refuse what cannot be used."""
        positive("step", self.step)
        positive("sampling_temperature", self.sampling_temperature)
        integer("max_completion_length", self.max_completion_length, at_least=1)
        integer("steps_per_collection", self.steps_per_collection, at_least=1)
        one_of("samples", self.samples, get_args(Samples))
        if not non_negative("temperature", self.temperature) * self.step <= 1:
            raise UsageError(
                f"step={self.step!r} passes its target at temperature={self.temperature!r}: the "
                "pull to the reference alone would throw the policy to the other side. Choose "
                "step at most 1/temperature."
            )
        self._refuse_what_no_run_should_do()
        super().__post_init__()

    def public_settings(self) -> dict[str, Any]:
        """Return what a reader of the model card needs to know of the training."""
        names = ("temperature", "step", "samples", "sampling_temperature", "max_completion_length")
        return {"method": "rebel", **{name: getattr(self, name) for name in names}}

    def _refuse_what_no_run_should_do(self) -> None:
        """Refuse uploads, and floats that the machine is slow and wrong with."""
        if self.push_to_hub:
            raise UsageError("Nothing is ever uploaded from here: leave push_to_hub=False.")
        on_cpu = self.use_cpu or not torch.cuda.is_available()
        if on_cpu and (self.bf16 or self.fp16):
            raise UsageError(
                "16-bit training needs an accelerator, and this runs on the processor. Leave bf16 "
                "and fp16 off."
            )
