"""transformers' trainer over answers that are drawn on the way, and used more than once."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import PrinterCallback, Trainer

from sordino.language.models._trained_models import is_adapted, plain
from sordino.language.models._upstream import upstream
from sordino.language.models.promises import CARD_FILE, PROMISE_FILE, CheckpointPromise
from sordino.language.policies.collector import Collector
from sordino.language.policies.rollouts import Collection, CollectionOrder, Rollout
from sordino.language.training._resuming import resumable
from sordino.preferences.records import Text

__all__ = ["CollectingTrainer"]


class CollectingTrainer(Trainer):
    """A trainer whose batches are prompts; who derives from it says what the loss is.

    A collection is in memory while it is used, and in a checkpoint that is written meanwhile.
    """

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
        """Train, from the start or from where a checkpoint stands; nothing is spent.

        Args:
            resume_from_checkpoint: The folder of a checkpoint of this run, or True for the last
                one in ``args.output_dir``.

        Raises:
            DataError: A reward is missing or not finite.
            PrivacyError: The checkpoint was made with another reward.
            UsageError: There is no checkpoint, or it was made with other settings.
        """
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
        """Write model, tokenizer and promise to a folder that transformers loads.

        An adapter is merged first, so that the folder stands alone. The checkpoints of a run keep
        it apart, as resuming needs it.
        """
        folder = Path(output_dir or self.args.output_dir)
        if self.promise is not None:
            self.promise.mark(self.accelerator.unwrap_model(self.model))
        elif self.args.should_save:  # what an earlier run promised is not about these weights
            for name in (PROMISE_FILE, CARD_FILE):
                (folder / name).unlink(missing_ok=True)
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        with upstream():
            if _internal_call or sharded or not is_adapted(self.model):
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
