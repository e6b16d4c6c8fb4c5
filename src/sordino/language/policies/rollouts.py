"""What one collection holds: prompts, two answers to each, and what they were worth.

The settings of policy training by regression on rewards.

Drawing answers, and asking what they are worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import Sampler
from transformers import TrainingArguments
from trl.models import unwrap_model_for_generation

from sordino._validate import integer, non_negative, one_of, positive
from sordino.errors import UsageError
from sordino.language.models.generation import (
    Completions,
    answer_log_probabilities,
    evaluating,
    sample_completions,
    stacked,
)
from sordino.language.models.loading import upstream
from sordino.language.rewards.reward_functions import RewardCallable, summed_rewards
from sordino.preferences.records import Text


class Rollout(NamedTuple):
    """Two answers to each of n prompts: rows i and n + i answer prompt i."""

    prompt_ids: Any  # as in `Completions`, as are the next three; 2n rows
    prompt_mask: Any  # 1 where there is no padding
    completion_ids: Any  # tokens of the answers
    completion_mask: Any  # 1 where there is no padding
    start: Any  # log-probability of each answer under the policy that the regression starts from
    rewards: Any  # what each answer is worth, less what it costs to be far from the reference

    @property
    def completions(self) -> Completions:
        """Return the answers alone."""
        return Completions(*self[:4])


class Collection:
    """The rollouts of one collection, batch by batch, gone over as often as it is used."""

    def __init__(self, batches: int) -> None:
        """Start without any."""
        self.batches, self.place = batches, 0
        self.rollouts: list[Rollout] = []

    def rollout(self, make: Callable[[], Rollout], *, fresh: bool) -> Rollout:
        """Return the rollout of the next batch: made now, or, if there is one, as before."""
        place, self.place = self.place, (self.place + 1) % self.batches
        if fresh and place == 0:
            self.rollouts.clear()
        if place == len(self.rollouts):
            self.rollouts.append(make())
        return self.rollouts[place]

    def save(self, path: Path) -> None:
        """Write the rollouts beside a checkpoint, so that a resumed run goes on with them."""
        named = {
            f"{i:04d}.{name}": part.contiguous()
            for i, rollout in enumerate(self.rollouts)
            for name, part in rollout._asdict().items()
        }
        save_file(named, path)

    def load(self, path: Path, device: Any) -> None:
        """Read what :meth:`save` wrote."""
        found = {name: part.to(device) for name, part in load_file(path).items()}
        batches = sorted({name.split(".")[0] for name in found})
        self.rollouts = [
            Rollout(**{name: found[f"{batch}.{name}"] for name in Rollout._fields})
            for batch in batches
        ]


class CollectionOrder(Sampler):  # type: ignore[type-arg, unused-ignore]
    """Yields which prompts come when: whole collections, each as often as it is used."""

    def __init__(self, n: int, *, size: int, passes: int, seed: int) -> None:
        """Start before the first epoch."""
        self.n, self.size, self.passes, self.seed, self.epoch = n, size, passes, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, the same whenever a run arrives there."""
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(self.n / self.size) * self.size * self.passes

    def __iter__(self) -> Iterator[int]:
        chance = torch.Generator().manual_seed(self.seed + self.epoch)
        order = cycle(torch.randperm(self.n, generator=chance).tolist())
        for _ in range(math.ceil(self.n / self.size)):
            yield from list(islice(order, self.size)) * self.passes


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


@dataclass(frozen=True)
class Collector:
    """Draws two answers to each prompt and asks what they are worth."""

    accelerator: Any  # of the trainer
    tokenizer: Any  # of the policy
    functions: Sequence[RewardCallable]  # the rewards
    reference: Any  # where the policy is pulled to; None where it is the policy without its adapter
    settings: RebelConfig  # of the training

    def collect(self, policy: Any, prompts: list[Text]) -> tuple[Rollout, dict[str, Any]]:
        """Return two answers to each prompt, and what the policy's own ones say of it."""
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
