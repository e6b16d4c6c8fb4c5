"""Training a policy by regression on differences of rewards, with transformers' trainer.

transformers' trainer over answers that are drawn on the way, and used more than once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import PrinterCallback, Trainer

from sordino.errors import DataError, UsageError
from sordino.language.models.generation import answer_log_probabilities, prompt_room, prompt_texts
from sordino.language.models.loading import upstream
from sordino.language.models.promises import CARD_FILE, PROMISE_FILE, CheckpointPromise
from sordino.language.models.trained_models import is_adapted, plain
from sordino.language.rewards.reward_functions import RewardCallable, listed_functions
from sordino.language.training.policy_promises import (
    folder_promises,
    policy_promise,
    reward_promises,
)
from sordino.language.training.resuming import resumable
from sordino.preferences.records import Text

from .rollouts import Collection, CollectionOrder, Collector, RebelConfig, Rollout
from .starting_policies import starting_policy, with_reference


class CollectingTrainer(Trainer):
    """A trainer whose batches are prompts; who derives from it says what the loss is."""

    # A collection is in memory while it is used, and in a checkpoint that is written meanwhile.

    loss_is_scaled_for_ga = False
    promise: CheckpointPromise | None
    _collector: Collector

    def __init__(self, **named: Any) -> None:
        """Start without answers."""
        super().__init__(data_collator=list, **named)
        self.model_accepts_loss_kwargs = False  # the loss is the mean of a batch
        self.remove_callback(PrinterCallback)
        self._collection = Collection(self.args.gradient_accumulation_steps)
        self._metrics: dict[str, list[float]] = defaultdict(list)

    def _get_train_sampler(self, train_dataset: Any = None) -> CollectionOrder:
        """Return the order of the prompts: every collection as often as it is used."""
        args = self.args
        seed = args.seed if args.data_seed is None else args.data_seed
        size = self._train_batch_size * args.gradient_accumulation_steps * args.world_size
        n = len(self.train_dataset if train_dataset is None else train_dataset)
        return CollectionOrder(n, size=size, passes=args.steps_per_collection, seed=seed)

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> Any:  # noqa: FBT001 (transformers')
        """Train, from the start or from where a checkpoint stands; nothing is spent."""
        self._collection = Collection(self.args.gradient_accumulation_steps)
        folder, self.promise = resumable(resume_from_checkpoint, self.args.output_dir, self.promise)
        if self.promise is not None:
            self.promise.mark(self.accelerator.unwrap_model(self.model))
        with upstream():
            return super().train(resume_from_checkpoint=folder)

    def _rollout(self, prompts: list[Text]) -> Rollout:
        """Return answers to a batch: new ones at the start of a collection, else the same."""
        fresh = self.state.global_step % self.args.steps_per_collection == 0
        return self._collection.rollout(lambda: self._collect(prompts), fresh=fresh)

    def _collect(self, prompts: list[Text]) -> Rollout:
        """Return new answers, and remember what they say of the policy."""
        with torch.no_grad():
            rollout, found = self._collector.collect(self.model_wrapped, prompts)
        averages = self.accelerator.gather(torch.stack(list(found.values()))[None]).mean(dim=0)
        for name, value in zip(found, averages.tolist(), strict=True):
            self._metrics[name].append(value)
        return rollout

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log what transformers logs, and the means of all collections since the last log."""
        means = {name: fmean(values) for name, values in self._metrics.items()}
        self._metrics.clear()
        super().log({**logs, **means}, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:  # noqa: FBT001, FBT002 (transformers')
        """Write model, tokenizer and promise to a folder that transformers loads."""
        # An adapter is merged first, so that the folder stands alone. The checkpoints of a run keep
        # it apart, as resuming needs it.
        folder = Path(output_dir or self.args.output_dir)
        if self.promise is not None:
            self.promise.mark(self.accelerator.unwrap_model(self.model))
        elif self.args.should_save:  # what an earlier run promised is not about these weights
            for name in (PROMISE_FILE, CARD_FILE):
                (folder / name).unlink(missing_ok=True)
        chunked = self.is_fsdp_enabled or self.is_deepspeed_enabled
        with upstream():
            if _internal_call or chunked or not is_adapted(self.model):
                super().save_model(output_dir, _internal_call)
            elif self.args.should_save:
                plain(self.accelerator.unwrap_model(self.model)).save_pretrained(folder)
                self.processing_class.save_pretrained(folder)
        if self.promise is not None and self.args.should_save:
            self.promise.write(folder, title="A private policy")

    def _save_rng_state(self, output_dir: str) -> None:
        """Write the state of the generators, and the answers that are still in use."""
        super()._save_rng_state(output_dir)
        if self.state.global_step % self.args.steps_per_collection:
            self._collection.save(self._answers_file(output_dir))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Read what :meth:`_save_rng_state` wrote."""
        super()._load_rng_state(checkpoint)
        if checkpoint is not None and self._answers_file(checkpoint).is_file():
            self._collection.load(self._answers_file(checkpoint), self.args.device)

    def _answers_file(self, folder: str) -> Path:
        """Return where this process keeps its answers in a checkpoint."""
        return Path(folder) / f"rollouts_{self.args.process_index}.safetensors"


def rebel_loss(log_ratio_gap: Any, reward_gap: Any, *, step: float) -> Any:
    """Return the mean squared error of regressing differences of rewards on log-ratios."""
    # Source: docs/policy_optimization.md, "Updates", before a log-linear policy makes it linear:
    # mean of ((log_ratio_gap)/step − reward_gap)².
    return (log_ratio_gap / step - reward_gap).square().mean()


class RebelTrainer(CollectingTrainer):
    """Trains a policy on public prompts against a reward, by regression on relative rewards.

    In every round the policy π_t answers a batch of prompts twice (or once, and the reference
    once), and π is fitted so that the change of the log-odds of the two answers, over ``step``, is
    the difference of their rewards. The reward is less temperature · log(π_t/reference), so that
    the policy tends to reference · exp(reward / temperature). Dropout is off throughout: the
    policy that drew and the one that is fitted must be one function of the weights.

    Logged are ``loss`` (the regression), ``reward`` (mean, without the pull to the reference),
    ``kl`` (mean log-ratio of the policy's own answers, at sampling temperature 1 an unbiased
    estimate of the divergence from the reference, in nats) and ``length`` (mean, in tokens).

    Args:
        model: The folder of a causal language model, or such a model, which is changed in place.
        args: :class:`RebelConfig`.
        reward_funcs: One function or several, which are summed, as trl takes them: of (prompts,
            completions, **kwargs) to one finite number for each answer. An answer may be empty.
        train_dataset: Public prompts: texts or chat messages, or a data set with a column
            ``prompt``, of which no other column is read.
        processing_class: The tokenizer; that of the folder if left out.
        reference: Where the policy is pulled to: a folder or a model, which is not changed.
            Left out, it is the policy as it is now.
        peft_config: Train an adapter instead of all weights; the reference is then the model
            without it, and takes no memory of its own.
        promise: What the reward promises, where its functions do not say so themselves.
        callbacks: As for transformers.
        optimizers: As for transformers.

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

    def __init__(  # noqa: PLR0913 (those of trl's trainers)
        self,
        model: Any,
        args: RebelConfig | None = None,
        *,
        reward_funcs: RewardCallable | Sequence[RewardCallable],
        train_dataset: Any,
        processing_class: Any = None,
        reference: Any = None,
        peft_config: Any = None,
        promise: CheckpointPromise | None = None,
        callbacks: list[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        """Check everything that can be checked before an answer is drawn."""
        args = RebelConfig() if args is None else args
        if not isinstance(args, RebelConfig):
            raise UsageError(f"args must be a RebelConfig, got {type(args).__name__}.")
        functions = listed_functions(reward_funcs)
        prompts = _prompts(train_dataset)
        carried = [*reward_promises(functions), *folder_promises(model, reference)]
        self.promise = policy_promise(carried, promise, args.public_settings())
        policy, tokenizer = starting_policy(model, processing_class)
        prompt_room(policy, tokenizer, args.max_completion_length)
        policy, reference = with_reference(policy, reference, peft_config)
        super().__init__(
            model=policy,
            args=args,
            train_dataset=prompts,
            processing_class=tokenizer,
            callbacks=callbacks,
            optimizers=optimizers,
        )
        if reference is not None:
            reference = self.accelerator.prepare_model(reference, evaluation_mode=True)
        self._collector = Collector(self.accelerator, tokenizer, functions, reference, args)

    def compute_loss(
        self,
        model: Any,
        inputs: list[Text],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 (transformers' signature)
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """Return the regression loss of a batch of prompts, whose answers are drawn if need be."""
        rollout = self._rollout(inputs)
        grown = answer_log_probabilities(model, rollout.completions) - rollout.start
        loss = rebel_loss(_gap(grown), _gap(rollout.rewards), step=self.args.step)
        return (loss, {}) if return_outputs else loss


def _gap(both: Any) -> Any:
    """Return first answers less second ones."""
    first, second = both.chunk(2)
    return first - second


def _prompts(given: Any) -> list[Text]:
    """Return prompts as a list; refuse an empty one."""
    column = given["prompt"] if "prompt" in getattr(given, "column_names", ()) else given
    prompts = prompt_texts(column if isinstance(column, str) else list(column))
    if not prompts:
        raise DataError("train_dataset holds no prompt, so there is nothing to answer.")
    return prompts
