"""What makes a trainer private: it reads randomized answers, and says what was promised."""

from __future__ import annotations

import math
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.trainer_utils import TrainOutput

from sordino.errors import ConvergenceError, PrivacyError, UsageError
from sordino.language.dp_sgd.privacy import CentralPrivacy
from sordino.language.models.checkpoints import (
    context_length,
    is_adapted,
    plain,
    refuse_unknown_adapters,
)
from sordino.language.models.loading import upstream
from sordino.language.models.promises import CheckpointPromise, Kind, folder_promises, resumable
from sordino.language.models.tokens import Dialogue, DialogueTokens
from sordino.language.references.texts import TextsRead
from sordino.language.training.settings import PrivateTrainingSettings
from sordino.preferences.pairs import Pairs, PrivatePairs

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel


def _private_pairs(name: str, pairs: object) -> PrivatePairs:
    """Return pairs that a model may be trained on."""
    if isinstance(pairs, Pairs):
        raise PrivacyError(
            f"{name} holds raw judgments; a model trained on them would give them away. Nothing "
            "was trained. Randomize them first with sordino.privatize(pairs, "
            "sordino.RandomizedResponse(epsilon=...), ledger=...), or read a file that sordino "
            "privatize wrote; or train on them with clipped, noised gradients, with "
            "privacy=CentralPrivacy(...) and a ledger. To record an infinite spend instead, pass "
            "them through sordino.privatization.answers.use_unprotected(pairs, "
            "sordino.NonPrivate(), ledger=...) with a ledger whose budget is infinite."
        )
    if not isinstance(pairs, PrivatePairs):
        raise UsageError(
            f"{name} must be private pairs, from sordino.privatize or sordino.read_pairs, got "
            f"{type(pairs).__name__}. Nothing was trained."
        )
    return pairs


class PrivateTraining(Trainer):
    """What trainers of rewards and policies share: tokens, and the promise of what is written."""

    kind: ClassVar[Kind]
    _promise: CheckpointPromise
    _read: TextsRead  # without privacy
    _tokens: DialogueTokens

    def _start(
        self,
        model: PreTrainedModel,
        args: PrivateTrainingSettings,
        tokenizer: PreTrainedTokenizerBase,
    ) -> None:
        """Settle how texts become tokens."""
        refuse_unknown_adapters(model)
        length = context_length(model, tokenizer)
        if args.max_length is not None and args.max_length > length:
            raise UsageError(
                f"max_length must be at most the {length} tokens that the model reads, got "
                f"{args.max_length}."
            )
        self._tokens = DialogueTokens(tokenizer, args.max_length or length, args.overlong)

    def _send_telemetry(self) -> None:
        """Tell nobody."""

    def merged(self) -> PreTrainedModel:
        """Return the model as transformers knows it, adapters merged into a copy of its weights."""
        # Without adapters the weights are those of the trainer, not a copy.
        self._write_marks(self.model)
        return plain(self.accelerator.unwrap_model(self.model))

    def _as_reward(self, model: PreTrainedModel) -> TextRewardModel:
        """Return a model that no training reaches any more, for scoring texts."""
        from sordino.language.rewards.text_rewards import TextRewardModel  # noqa: PLC0415 (a stage)

        return TextRewardModel(
            model.eval(),
            self.processing_class,
            promise=self._promise,
            reward_bound=self.args.reward_bound,
            max_length=self._tokens.max_length,
        )

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:  # noqa: FBT001, FBT002 (transformers')
        """Write model, tokenizer, promise and model card to a folder that transformers loads."""
        # Adapters are merged first, so that the folder stands alone. The checkpoints of a run keep
        # them apart, as resuming needs them.
        partitioned = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if _internal_call or partitioned or not is_adapted(self.model):
            super().save_model(output_dir, _internal_call)
        elif self.args.should_save:
            self._write_marks(self.model)
            folder = Path(output_dir or self.args.output_dir)
            self.merged().save_pretrained(folder)
            self.processing_class.save_pretrained(folder)
            self._write_promise(folder)

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None
    ) -> None:
        """Write a checkpoint with its promise."""
        self._write_marks(self.accelerator.unwrap_model(self.model))
        with upstream():
            super()._save(output_dir, state_dict)
        if self.args.should_save:
            self._write_promise(Path(output_dir or self.args.output_dir))

    def create_model_card(self, *_: object, **__: object) -> None:
        """Write the promise where trl writes a card that says nothing about privacy."""
        if self.is_world_process_zero():
            self._write_promise(Path(self.args.output_dir))

    def _write_marks(self, model: PreTrainedModel) -> None:
        """Write into a model what it promises, and what it has read without privacy."""
        self._promise.mark(model)
        self._read.mark(model)

    def _write_promise(self, folder: Path) -> None:
        """Write promise and card."""
        self._write_marks(self.accelerator.unwrap_model(self.model))
        self._promise.write(folder, title=f"A private {self.kind}")


class LabelTraining(PrivateTraining):
    """A trainer of trl on randomized answers; trl's own comes after it."""

    # Labels enter as `PrivatePairs` and in no other way, so everything here is post-processing:
    # metrics, checkpoints and resuming spend nothing.

    _flips: dict[str, float]

    def __new__(cls, *given: Any, privacy: object = None, **named: Any) -> Any:
        """Return a trainer that clips gradients for raw pairs, where their promise is said."""
        if privacy is None:
            return super().__new__(cls)
        if not isinstance(privacy, CentralPrivacy):
            raise UsageError(
                "privacy must be CentralPrivacy(epsilon, delta, unit=..., neighbors=..., "
                f"sampling_probability=..., steps=..., expected_batch=...), got {privacy!r}: an "
                "epsilon alone promises nothing. Nothing was trained."
            )
        if named.get("ledger") is None:
            raise UsageError("Raw pairs are paid for: pass the ledger. Nothing was trained.")
        if named.pop("eval_dataset", None) is not None:
            raise PrivacyError(
                "A metric on raw pairs is a release of its own, and none is made here. Nothing was "
                "trained. Leave eval_dataset out, and measure on public pairs afterwards."
            )
        trainers = import_module("sordino.language.dp_sgd.trainers")  # which know this module
        kinds = {"reward": trainers.CentralRewardTrainer, "policy": trainers.CentralDPOTrainer}
        return kinds[cls.kind](*given, privacy=privacy, **named)

    def _admit(
        self,
        train: object,
        held_out: object,
        *starts: PreTrainedModel | str | Path,
        **training: Any,
    ) -> tuple[Dataset, Dataset | None]:
        """Return the rows of both sets of pairs, and settle what checkpoints promise."""
        # Models to start from, whose folders say what they were trained on, are part of it.
        pairs = _private_pairs("train_dataset", train)
        rows = self._rows(pairs)
        known = {"max_length": self._tokens.max_length, "pairs": len(rows)}
        read = TextsRead.on(*starts, self._tokens.tokenizer)
        self._read = read.with_those_of(TextsRead.of(pairs))
        promise = CheckpointPromise.of(pairs, kind=self.kind, **known, **training)
        self._promise = promise.with_those_of(*folder_promises(*starts))
        self._flips = {"train": pairs.flip_probability, "eval": pairs.flip_probability}
        return rows, None if held_out is None else self._held_out(held_out)

    def _held_out(self, held_out: object) -> Dataset:
        """Return the rows of pairs to measure on; from now on checkpoints speak for them too."""
        # Answers of the same release are covered already. Those of another one may be of the same
        # people, so the losses add up.
        pairs = _private_pairs("eval_dataset", held_out)
        if math.isinf(pairs.guarantee.epsilon) > math.isinf(self._promise.guarantee.epsilon):
            raise PrivacyError(
                "eval_dataset holds judgments that are not randomized, and a checkpoint carries "
                "the metrics on them. Nothing was trained. Randomize them as well, or measure the "
                "saved model with sordino.language.judging, where you alone see the result."
            )
        more = CheckpointPromise.of(pairs, kind=self.kind)
        self._promise = self._promise.with_those_of(more)
        self._flips["eval"] = pairs.flip_probability
        return self._rows(pairs)

    def _rows(self, pairs: PrivatePairs) -> Dataset:
        """Return a data set whose chosen answer is the one that the randomized label prefers."""
        first, second, kept = self._tokens.pairs(pairs)
        liked = pairs.answers[kept] == 1
        rows = [
            self._row(one, other) if prefers else self._row(other, one)
            for one, other, prefers in zip(first, second, liked, strict=True)
        ]
        return Dataset.from_dict({name: [each[name] for each in rows] for name in rows[0]})

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

    def _prepare_dataset(self, dataset: Dataset, *_: object) -> Dataset:
        """Return the rows as they are: trl would tokenize again and leave long ones out."""
        return dataset

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> TrainOutput:  # noqa: FBT001 (transformers')
        """Train, from the start or from where a checkpoint stands; nothing is spent."""
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
        """Return metrics on randomized answers, corrected for the flips; they are free."""
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
        """Log the means of the metrics, or stop if they are numbers no more."""
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
