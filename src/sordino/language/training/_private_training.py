"""What makes a trainer of trl private: it reads randomized answers, and says what they promise."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

from transformers import Trainer

from sordino.errors import ConvergenceError, UsageError
from sordino.language.models._trained_models import is_adapted, plain, refuse_unknown_adapters
from sordino.language.models._upstream import upstream
from sordino.language.models.checkpoints import context_length
from sordino.language.models.promises import CheckpointPromise, Kind
from sordino.language.models.tokens import Dialogue, DialogueTokens
from sordino.language.references.texts_read import TextsRead
from sordino.language.training._preference_rows import (
    covering,
    preference_rows,
    private_pairs,
)
from sordino.language.training._resuming import resumable
from sordino.language.training._training_settings import PrivateTrainingSettings
from sordino.language.training.policy_promises import folder_promises
from sordino.preferences.private_pairs import PrivatePairs

__all__ = ["PrivateTraining"]


class PrivateTraining(Trainer):
    """The part that trainers of rewards and of policies share; trl's trainer comes after it.

    Labels enter as :class:`~sordino.preferences.private_pairs.PrivatePairs` and in no other way,
    so everything here is post-processing: metrics, checkpoints and resuming spend nothing.
    """

    kind: ClassVar[Kind]
    _promise: CheckpointPromise
    _read: TextsRead  # without privacy
    _tokens: DialogueTokens
    _flips: dict[str, float]

    def _start(self, model: Any, args: PrivateTrainingSettings, tokenizer: Any) -> None:
        """Settle how texts become tokens."""
        refuse_unknown_adapters(model)
        length = context_length(model, tokenizer)
        if args.max_length is not None and args.max_length > length:
            raise UsageError(
                f"max_length must be at most the {length} tokens that the model reads, got "
                f"{args.max_length}."
            )
        self._tokens = DialogueTokens(tokenizer, args.max_length or length, args.overlong)

    def _admit(self, train: Any, held_out: Any, *starts: Any, **training: Any) -> tuple[Any, Any]:
        """Return the rows of both sets of pairs, and settle what checkpoints promise.

        Models to start from, whose folders say what they were trained on, are part of it.
        """
        pairs = private_pairs("train_dataset", train)
        rows = preference_rows(pairs, self._tokens, self._row)
        known = {"max_length": self._tokens.max_length, "pairs": len(rows)}
        read = TextsRead.on(*starts, self._tokens.tokenizer)
        self._read = read.with_those_of(TextsRead.of(pairs))
        promise = CheckpointPromise.of(pairs, kind=self.kind, **known, **training)
        self._promise = promise.with_those_of(*folder_promises(*starts))
        self._flips = {"train": pairs.flip_probability, "eval": pairs.flip_probability}
        return rows, None if held_out is None else self._held_out(held_out)

    def _held_out(self, held_out: Any) -> Any:
        """Return the rows of pairs to measure on; from now on checkpoints speak for them too."""
        pairs = private_pairs("eval_dataset", held_out)
        self._promise = covering(self._promise, pairs)
        self._flips["eval"] = pairs.flip_probability
        return preference_rows(pairs, self._tokens, self._row)

    @staticmethod
    def _row(preferred: Dialogue, other: Dialogue) -> dict[str, list[int]]:
        """Return the columns that trl's collator reads."""
        raise NotImplementedError

    def _summaries(self, mode: str) -> dict[str, float]:
        """Return the means of what was seen since the last log."""
        raise NotImplementedError

    @property
    def _mode(self) -> str:
        """Return whether the model learns or is measured."""
        return "train" if self.model.training else "eval"

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Return the rows as they are: trl would tokenize again and leave long ones out."""
        return dataset

    def _send_telemetry(self) -> None:
        """Tell nobody."""

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> Any:  # noqa: FBT001 (transformers')
        """Train, from the start or from where a checkpoint stands; nothing is spent.

        Args:
            resume_from_checkpoint: The folder of a checkpoint of this run, or True for the last
                complete one in ``args.output_dir``.

        Raises:
            PrivacyError: The checkpoint was made with other answers.
            UsageError: There is no checkpoint, or it was made with other settings.
            ConvergenceError: The loss is not finite any more.
        """
        folder, promise = resumable(resume_from_checkpoint, self.args.output_dir, self._promise)
        model = self.accelerator.unwrap_model(self.model)
        # another trainer may have trained the same object since this one was made
        self._promise = (promise or self._promise).with_those_of(*folder_promises(model))
        self._write_marks(model)
        with upstream():
            return super().train(resume_from_checkpoint=folder)

    def evaluate(
        self,
        eval_dataset: PrivatePairs | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Return metrics on randomized answers, corrected for the flips; they are free.

        Args:
            eval_dataset: Private pairs, or None for those that the trainer was made with.
            ignore_keys: As in transformers.
            metric_key_prefix: What the names of the metrics start with.

        Raises:
            PrivacyError: The pairs are not private.
            UsageError: There are none.
        """
        if eval_dataset is None and self.eval_dataset is None:
            raise UsageError("There are no pairs to evaluate on: pass eval_dataset.")
        before = self._flips["eval"]
        try:
            rows = None if eval_dataset is None else self._held_out(eval_dataset)
            with upstream():
                return dict(super().evaluate(rows, ignore_keys, metric_key_prefix))
        finally:
            self._flips["eval"] = before

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the means of the metrics, or stop if they are numbers no more.

        Raises:
            ConvergenceError: A metric is not finite.
        """
        means = self._summaries(self._mode)
        wrong = [name for name, value in means.items() if not math.isfinite(value)]
        if wrong:
            raise ConvergenceError(
                f"{wrong[0]} is not finite any more, so training stopped at step "
                f"{self.state.global_step}. Lower learning_rate, or start from an earlier "
                "checkpoint."
            )
        self._metrics[self._mode] = defaultdict(list, {name: [means[name]] for name in means})
        super().log(logs, start_time)

    def merged(self) -> Any:
        """Return the model as transformers knows it, adapters merged into a copy of its weights.

        Without adapters the weights are those of the trainer, not a copy.
        """
        self._write_marks(self.model)
        return plain(self.accelerator.unwrap_model(self.model))

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:  # noqa: FBT001, FBT002 (transformers')
        """Write model, tokenizer, promise and model card to a folder that transformers loads.

        Adapters are merged first, so that the folder stands alone. The checkpoints of a run keep
        them apart, as resuming needs them.
        """
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if _internal_call or sharded or not is_adapted(self.model):
            super().save_model(output_dir, _internal_call)
        elif self.args.should_save:
            self._write_marks(self.model)
            folder = Path(output_dir or self.args.output_dir)
            self.merged().save_pretrained(folder)
            self.processing_class.save_pretrained(folder)
            self._write_promise(folder)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Write a checkpoint with its promise."""
        self._write_marks(self.accelerator.unwrap_model(self.model))
        with upstream():
            super()._save(output_dir, state_dict)
        if self.args.should_save:
            self._write_promise(Path(output_dir or self.args.output_dir))

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write the promise where trl writes a card that says nothing about privacy."""
        if self.is_world_process_zero():
            self._write_promise(Path(self.args.output_dir))

    def _write_marks(self, model: Any) -> None:
        """Write into a model what it promises, and what it has read without privacy."""
        self._promise.mark(model)
        self._read.mark(model)

    def _write_promise(self, folder: Path) -> None:
        """Write promise and card."""
        self._write_marks(self.accelerator.unwrap_model(self.model))
        self._promise.write(folder, title=f"A private {self.kind}")
