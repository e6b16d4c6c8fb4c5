"""A policy trained against a reward by regression on differences of rewards (REBEL)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, get_args

import torch
from peft import PeftConfig
from torch.utils.data import Sampler
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_utils import TrainOutput
from trl.models import unwrap_model_for_generation

from sordino._validate import integer, non_negative, one_of, positive
from sordino.errors import DataError, UsageError
from sordino.language.models.checkpoints import (
    load_causal_model,
    matching_tokenizer,
    referring,
    refuse_unknown_adapters,
    with_reference,
)
from sordino.language.models.generation import (
    Completions,
    answer_log_probabilities,
    evaluating,
    prompt_room,
    prompt_texts,
    sample_completions,
    stacked,
)
from sordino.language.models.loading import upstream
from sordino.language.models.promises import (
    CARD_FILE,
    PROMISE_FILE,
    CheckpointPromise,
    folder_promises,
    policy_promise,
    resumable,
    reward_promises,
)
from sordino.language.rewards.text_rewards import RewardCallable, listed_functions, summed_rewards
from sordino.language.training.private_training import PrivateTraining
from sordino.preferences.records import Text


class _Rollout(NamedTuple):
    """Two answers to each of n prompts: rows i and n + i answer prompt i."""

    completions: Completions  # 2n rows
    # Log-probability of each answer under the policy that the regression starts from.
    start: torch.Tensor
    # What each answer is worth, less what it costs to be far from the reference.
    rewards: torch.Tensor


class _Collection:
    """The rollouts of one collection, batch by batch, gone over as often as it is used."""

    def __init__(self, batches: int) -> None:
        """Start without any."""
        self.batches, self.place = batches, 0
        self.rollouts: list[_Rollout] = []

    def rollout(self, make: Callable[[], _Rollout], *, fresh: bool) -> _Rollout:
        """Return the rollout of the next batch: made now, or, if there is one, as before."""
        place, self.place = self.place, (self.place + 1) % self.batches
        if fresh and place == 0:
            self.rollouts.clear()
        if place == len(self.rollouts):
            self.rollouts.append(make())
        return self.rollouts[place]


class _CollectionOrder(Sampler):  # type: ignore[type-arg, unused-ignore]
    """Yields which prompts come when: whole collections, each as often as it is used."""

    def __init__(self, n: int, *, size: int, passes: int, seed: int) -> None:
        self.n, self.size, self.passes, self.seed, self.epoch = n, size, passes, seed, 0

    def set_epoch(self, epoch: int) -> None:
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
        samples: Who gives the second answer: the current policy (``"on_policy"``) or the reference.
        steps_per_collection: Optimizer steps for each collection.

    Raises:
        UsageError: A setting cannot be used.
    """

    temperature: float = field(default=0.1, metadata={"help": "Pull to the reference."})
    step: float = field(default=1.0, metadata={"help": "Log-odds per unit of reward."})
    max_completion_length: int = field(default=128, metadata={"help": "Tokens of an answer."})
    samples: str = field(default="on_policy", metadata={"help": "on_policy or reference."})
    steps_per_collection: int = field(default=4, metadata={"help": "Steps for each collection."})

    learning_rate: float = field(default=1e-6, metadata={"help": "Of the optimizer."})
    logging_steps: float = field(default=10, metadata={"help": "Steps between two logs."})
    report_to: str | list[str] | None = field(default="none", metadata={"help": "Nobody."})
    disable_tqdm: bool | None = field(default=True, metadata={"help": "Print nothing."})
    dataloader_pin_memory: bool = field(default=False, metadata={"help": "Prompts are texts."})
    remove_unused_columns: bool | None = field(default=False, metadata={"help": "There are none."})

    def __post_init__(self) -> None:
        positive("step", self.step)
        integer("max_completion_length", self.max_completion_length, at_least=1)
        integer("steps_per_collection", self.steps_per_collection, at_least=1)
        one_of("samples", self.samples, get_args(Samples))
        if not non_negative("temperature", self.temperature) * self.step <= 1:
            raise UsageError(
                f"step={self.step!r} passes its target at temperature={self.temperature!r}: the "
                "pull to the reference alone would throw the policy to the other side. Choose "
                "step at most 1/temperature."
            )
        if self.push_to_hub:
            raise UsageError(
                "Nothing is ever uploaded from here: leave push_to_hub=False, and call "
                "sordino.language.push_to_hub on what was saved."
            )
        on_cpu = self.use_cpu or not torch.cuda.is_available()
        if on_cpu and (self.bf16 or self.fp16):
            raise UsageError(
                "16-bit training needs an accelerator, and this runs on the processor. Leave bf16 "
                "and fp16 off."
            )
        super().__post_init__()

    def public_settings(self) -> dict[str, Any]:
        """Return what a reader of the model card needs to know of the training."""
        names = ("temperature", "step", "samples", "max_completion_length")
        return {"method": "rebel", **{name: getattr(self, name) for name in names}}


class RebelTrainer(PrivateTraining):
    """Trains a policy on public prompts against a reward, by regression on relative rewards.

    In every round the policy π_t answers a batch of prompts twice (or once, and the reference
    once), and π is fitted so that the change of the log-odds of the two answers, over ``step``, is
    the difference of their rewards. The reward is less temperature · log(π_t/reference), so that
    the policy tends to reference · exp(reward / temperature). Dropout is off throughout: the
    policy that drew and the one that is fitted must be one function of the weights.

    Logged are ``loss`` (the regression), ``reward`` (mean, without the pull to the reference),
    ``kl`` (mean log-ratio of the policy's own answers, an unbiased estimate of the divergence from
    the reference, in nats) and ``length`` (mean, in tokens). A run that goes on from a checkpoint
    within a collection draws its answers anew.

    Args:
        model: The folder of a causal language model, or such a model, which is changed in place.
            What is not named here is as for :class:`~sordino.language.PrivateDPOTrainer`.
        reward_funcs: One function or several, which are summed, as trl takes them: of (prompts,
            completions, **kwargs) to one finite number for each answer. An answer may be empty.
        train_dataset: Public prompts: texts or chat messages, or a data set with a column
            ``prompt``, of which no other column is read.
        reference: Where the policy is pulled to: a folder or a model, which is not changed.
            Left out, it is the policy as it is now.
        peft_config: Train an adapter instead of all weights; the reference is then the model
            without it, and takes no memory of its own.
        promise: What the reward promises, where its functions do not say so themselves.

    Raises:
        DataError: There is no prompt, or one is no text; its index is named.
        PrivacyError: The promises of the rewards cannot be put into one.
        UsageError: A setting cannot be used.

    Guarantee:
        That of the randomized answers behind the reward: prompts are public and a private reward
        has been paid for, so training spends nothing. Shown by tests/language/test_rebel.py.

    Example:
        >>> trainer = RebelTrainer(  # doctest: +SKIP
        ...     "models/base", RebelConfig("out"), reward_funcs=reward_function(reward),
        ...     train_dataset=prompts,
        ... )
        >>> trainer.train()  # doctest: +SKIP
    """

    kind, loss_is_scaled_for_ga = "policy", False
    promise: CheckpointPromise | None

    def __init__(  # noqa: PLR0913 (those of trl's trainers)
        self,
        model: str | Path | PreTrainedModel,
        args: RebelConfig | None = None,
        *,
        reward_funcs: RewardCallable | Sequence[RewardCallable],
        train_dataset: Any,  # prompts, or a data set of them
        processing_class: PreTrainedTokenizerBase | None = None,
        reference: str | Path | PreTrainedModel | None = None,
        peft_config: PeftConfig | None = None,
        promise: CheckpointPromise | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        """Check everything that can be checked before an answer is drawn."""
        args = RebelConfig() if args is None else args
        if not isinstance(args, RebelConfig):
            raise UsageError(f"args must be a RebelConfig, got {type(args).__name__}.")
        functions = listed_functions(reward_funcs)
        named = "prompt" in getattr(train_dataset, "column_names", ())
        column = train_dataset["prompt"] if named else train_dataset
        prompts = prompt_texts(column if isinstance(column, str) else list(column))
        if not prompts:
            raise DataError("train_dataset holds no prompt, so there is nothing to answer.")
        carried = [*reward_promises(functions), *folder_promises(model, reference)]
        self.promise = policy_promise(carried, promise, args.public_settings())
        policy = load_causal_model(model)
        refuse_unknown_adapters(policy)
        tokenizer = processing_class or matching_tokenizer(policy, None)
        prompt_room(policy, tokenizer, args.max_completion_length)
        policy, reference = with_reference(policy, reference, peft_config)
        super().__init__(
            model=policy,
            args=args,
            data_collator=list,
            train_dataset=prompts,
            processing_class=tokenizer,
            callbacks=callbacks,
            optimizers=optimizers,
        )
        self.model_accepts_loss_kwargs = False  # the loss is the mean of a batch
        self.remove_callback(PrinterCallback)
        self._collection = _Collection(args.gradient_accumulation_steps)
        self._metrics: dict[str, list[float]] = defaultdict(list)
        if reference is not None:
            reference = self.accelerator.prepare_model(reference, evaluation_mode=True)
        # None where it is the policy without its adapter
        self._reference, self._functions = reference, functions

    def _get_train_sampler(self, train_dataset: Sequence[Text] | None = None) -> _CollectionOrder:
        args = self.args
        seed = args.seed if args.data_seed is None else args.data_seed
        size = self._train_batch_size * args.gradient_accumulation_steps * args.world_size
        n = len(self.train_dataset if train_dataset is None else train_dataset)
        return _CollectionOrder(n, size=size, passes=args.steps_per_collection, seed=seed)

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> TrainOutput:  # noqa: FBT001 (transformers')
        """Train, from the start or from where a checkpoint stands; nothing is spent."""
        self._collection = _Collection(self.args.gradient_accumulation_steps)
        folder, self.promise = resumable(resume_from_checkpoint, self.args.output_dir, self.promise)
        self._write_marks(self.accelerator.unwrap_model(self.model))
        with upstream():
            return super().train(resume_from_checkpoint=folder)

    def _collect(self, prompts: list[Text]) -> _Rollout:
        """Return two answers to each prompt; what the policy's own ones say of it is logged."""
        policy, both = self.model_wrapped, [*prompts, *prompts]
        on_policy = self.args.samples == "on_policy"
        with torch.no_grad(), evaluating(policy):
            if on_policy:
                drawn = self._answers(policy, both)
            else:
                first = self._answers(policy, prompts)
                with referring(self._reference, policy) as reference:
                    drawn = stacked(first, self._answers(reference, prompts))
            start = answer_log_probabilities(policy, drawn)
            with referring(self._reference, policy) as reference:
                away = start - answer_log_probabilities(reference, drawn)
        texts, ids = drawn.texts(self.processing_class), drawn.token_lists()
        worth = summed_rewards(self._functions, both, texts, completion_ids=ids)
        rewards = torch.tensor(worth).to(start)
        own = slice(None if on_policy else len(prompts))
        lengths = drawn.completion_mask.sum(dim=1).to(start)
        said = {"reward": rewards, "kl": away, "length": lengths}
        means = torch.stack([value[own].mean() for value in said.values()])
        for name, value in zip(said, self.accelerator.gather(means[None]).mean(dim=0), strict=True):
            self._metrics[name].append(float(value))
        return _Rollout(drawn, start, rewards - self.args.temperature * away)

    def _answers(self, model: PreTrainedModel, prompts: list[Text]) -> Completions:
        with upstream(), unwrap_model_for_generation(model, self.accelerator) as whole:
            return sample_completions(
                whole,
                self.processing_class,
                prompts,
                max_new_tokens=self.args.max_completion_length,
            )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log what transformers logs, and the means of all collections since the last log."""
        means = {name: fmean(values) for name, values in self._metrics.items()}
        self._metrics.clear()
        super().log({**logs, **means}, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:  # noqa: FBT001, FBT002 (transformers')
        """Write model, tokenizer and promise to a folder that transformers loads."""
        if self.promise is None and self.args.should_save:
            # what an earlier run promised is not about these weights
            for name in (PROMISE_FILE, CARD_FILE):
                (Path(output_dir or self.args.output_dir) / name).unlink(missing_ok=True)
        super().save_model(output_dir, _internal_call)

    def _write_marks(self, model: PreTrainedModel) -> None:
        if self.promise is not None:
            self.promise.mark(model)

    def _write_promise(self, folder: Path) -> None:
        if self.promise is not None:
            self.promise.write(folder, title=f"A private {self.kind}")

    def compute_loss(
        self,
        model: PreTrainedModel,
        inputs: list[Text],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 (transformers' signature)
        num_items_in_batch: object = None,  # noqa: ARG002
    ) -> torch.Tensor | tuple[torch.Tensor, dict[str, Any]]:
        """Return the regression loss of a batch of prompts, whose answers are drawn if need be."""
        # Answers are new at the start of a collection, and afterwards the same.
        fresh = self.state.global_step % self.args.steps_per_collection == 0
        rollout = self._collection.rollout(lambda: self._collect(inputs), fresh=fresh)
        grown = answer_log_probabilities(model, rollout.completions) - rollout.start
        first, second = grown.chunk(2)
        better, worse = rollout.rewards.chunk(2)
        # Source: docs/policy_optimization.md, "Updates", before a log-linear policy makes it
        # linear: mean of (log_ratio_gap/step − reward_gap)².
        loss = ((first - second) / self.args.step - (better - worse)).square().mean()
        return (loss, {}) if return_outputs else loss
