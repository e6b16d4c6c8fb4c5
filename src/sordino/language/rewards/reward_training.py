"""Reward models from randomized answers: trl's trainer with a loss that knows the flips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import PeftConfig
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import RewardConfig, RewardTrainer

from sordino import _validate
from sordino.language.models.checkpoints import (
    HEAD,
    load_reward_checkpoint,
    matching_tokenizer,
    own_copy,
    refuse_other_heads,
    with_head,
)
from sordino.language.models.loading import upstream
from sordino.language.models.tokens import Dialogue
from sordino.language.training.losses import LOSSES
from sordino.language.training.private_training import (
    LabelTraining,
    PrivateTrainingSettings,
    own_settings,
)
from sordino.preferences.pairs import PrivatePairs

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel


@dataclass
class PrivateRewardConfig(PrivateTrainingSettings, RewardConfig):
    """Settings of :class:`PrivateRewardTrainer`; those of trl's ``RewardConfig`` and these.

    Args:
        loss: A name in ``losses.LOSSES``; the default is unbiased for the likelihood of the true
            labels.
        reward_bound: Rewards beyond ± this are pulled back while training, and clipped in use.
        head_epochs: For so many of the first epochs the head alone learns; then everything, or
            the adapters, learns with it.
        ddp_find_unused_parameters: As in transformers; True with ``head_epochs`` if left out.

    Raises:
        UsageError: A setting cannot be used.
    """

    loss: str = field(default="debiased")
    reward_bound: float = field(default=10.0)
    head_epochs: float = field(default=0.0)
    ddp_find_unused_parameters: bool | None = field(default=None)

    def check(self) -> None:
        """Refuse settings that cannot be used.

        Raises:
            UsageError: There is one.
        """
        super().check()
        _validate.non_negative("head_epochs", self.head_epochs)

    def __post_init__(self) -> None:
        if self.head_epochs and self.ddp_find_unused_parameters is None:
            self.ddp_find_unused_parameters = True
        super().__post_init__()


class _HeadFirst(TrainerCallback):
    """Lets everything but the head learn only after so many epochs."""

    # Where training stands decides, and nothing that is remembered, so a run that is resumed is in
    # the phase that it was killed in.

    def __init__(self, epochs: float) -> None:
        self._epochs = epochs
        self._body: list[torch.nn.Parameter] = []

    def on_init_end(self, *_: object, model: PreTrainedModel, **__: object) -> None:
        self._body = [
            weight
            for name, weight in model.named_parameters()
            if weight.requires_grad and HEAD not in name.split(".")
        ]

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        del args, control
        self._let(state.epoch >= self._epochs - 1e-9)  # epochs are sums of fractions

    def on_train_end(self, *_: object, **__: object) -> None:
        self._let(True)

    def _let(self, learn: bool) -> None:  # noqa: FBT001
        if self._body and self._body[0].requires_grad != learn:
            for weight in self._body:
                weight.requires_grad_(learn)


class PrivateRewardTrainer(LabelTraining, RewardTrainer):
    """Trains a reward on randomized answers, as fast as trl does on raw ones.

    The reward of an answer is a number that one linear head reads off the last token. Pairs come
    from :func:`sordino.privatize` or :func:`sordino.read_pairs`; how often their answers are
    flipped is read from them and cannot be set. The metrics ``accuracy`` and ``margin`` are
    corrected for the flips: they estimate what the true labels would say, and may therefore lie
    outside of their usual range.

    Args:
        model: The folder of a causal model, which gets a head that starts at 0, or of a reward;
            or such a model.
        args: Settings; defaults if left out.
        train_dataset: Private pairs of texts.
        eval_dataset: Private pairs to measure on; checkpoints then speak for these answers too.
        processing_class: The tokenizer; the one in the model's folder if left out.
        peft_config: Adapters to train instead of the whole model; the head is trained and saved
            with them.
        callbacks: As in transformers.
        optimizers: An optimizer and a schedule, as in transformers.
        privacy: A :class:`~sordino.language.dp_sgd.privacy.CentralPrivacy`, to train on raw
            judgments instead: what comes back then is a ``CentralRewardTrainer``, which also takes
            the ``ledger`` that pays.

    Raises:
        PrivacyError: The pairs are raw judgments, and no ``privacy`` is given.
        UsageError: A setting, the model or the tokenizer cannot be used.
        DataError: The pairs hold no texts, or an answer is empty or longer than the model reads.
        FileSystemError: There is no such folder.

    Guarantee:
        What ``train_dataset.guarantee`` says: training is post-processing. Answers of another
        release to measure on add theirs, and so does a checkpoint to start from. Shown by
        tests/language/test_label_training.py.

    Source:
        docs/local.md, "Debiased likelihood" and "Mixture likelihood".
    """

    kind = "reward"

    def __init__(  # noqa: PLR0913 (trl's)
        self,
        model: str | Path | PreTrainedModel,
        args: PrivateRewardConfig | None = None,
        *,
        train_dataset: PrivatePairs,
        eval_dataset: PrivatePairs | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: Sequence[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        privacy: None = None,  # noqa: ARG002 (where it is given, another trainer is made)
    ) -> None:
        """Set everything up; nothing is trained yet."""
        args = own_settings(args, PrivateRewardConfig)
        body = load_reward_checkpoint(model)
        refuse_other_heads(body)
        tokenizer = matching_tokenizer(body, processing_class)
        self._start(body, args, tokenizer)
        known = {"loss": args.loss, "reward_bound": float(args.reward_bound)}
        rows, held_out = self._admit(train_dataset, eval_dataset, body, **known)
        self._seen: dict[str, list[torch.Tensor]] = {"train": [], "eval": []}
        with upstream():
            super().__init__(
                model=body,
                args=args,
                train_dataset=rows,
                eval_dataset=held_out,
                processing_class=tokenizer,
                peft_config=with_head(peft_config),
                callbacks=[*(callbacks or []), _HeadFirst(args.head_epochs)],
                optimizers=optimizers,
            )

    @staticmethod
    def _row(preferred: Dialogue, other: Dialogue) -> dict[str, list[int]]:
        return {
            "chosen_ids": [*preferred.prompt, *preferred.answer],
            "rejected_ids": [*other.prompt, *other.answer],
        }

    def compute_loss(
        self,
        model: PreTrainedModel,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 (transformers')
        num_items_in_batch: object = None,  # noqa: ARG002
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Return the loss of a batch on randomized answers, and keep its metrics on the device.

        Source:
            docs/language_models.md, "Excess penalty", beside the loss (each in ``losses.LOSSES``
            has its own source); and trl's ``center_rewards_coefficient``.
        """
        outputs = model(**inputs, use_cache=False)
        rewards = outputs.logits.squeeze(-1).float()
        preferred, other = rewards.chunk(2)
        margins, flips = preferred - other, self._flips[self._mode]
        loss = LOSSES[self.args.loss](margins, flips).mean()
        loss = loss + _excess_penalty(rewards, flips, self.args.reward_bound)
        if self.args.center_rewards_coefficient is not None:
            loss = loss + self.args.center_rewards_coefficient * (preferred + other).square().mean()
        with torch.no_grad():  # read when it is logged: reading now would wait for the device
            agrees = margins.sign().mean()
            self._seen[self._mode].append(torch.stack([agrees, margins.mean(), rewards.mean()]))
        return (loss, outputs) if return_outputs else loss

    def _summaries(self, mode: str) -> dict[str, float]:
        if not self._seen[mode]:
            return {}
        kept = 1 - 2 * self._flips[mode]
        seen = torch.stack(self._seen[mode]).mean(0, keepdim=True)
        agrees, margin, reward = self.accelerator.gather(seen).mean(0).tolist()
        self._seen[mode].clear()
        # The mean sign is 2a − 1 for the share a that agrees, and (a − f)/κ = 1/2 + (a − 1/2)/κ.
        return {
            "accuracy": 0.5 + agrees / (2 * kept),
            "margin": margin / kept,
            "mean_reward": reward,
        }

    def text_reward(self) -> TextRewardModel:
        """Return the reward as it stands, for scoring texts; later steps do not show in it.

        Its weights are a copy: a checkpoint to resume from may add to what they promise.
        """
        return self._as_reward(own_copy(self.accelerator.unwrap_model(self.model)))


def _excess_penalty(rewards: torch.Tensor, flip_probability: float, bound: float) -> torch.Tensor:
    """Return what rewards beyond ± the bound cost, so that the debiased loss has a minimum."""
    # Alone it falls without end along a margin, with slope f/(1 − 2f). Here no pair gains by going
    # further than f/2, at most 1/4, beyond the bound.
    # Source: docs/local.md, "Debiased likelihood": Σ (|r| − bound)₊² / ((1 − 2f)n).
    excess = (rewards.abs() - bound).clamp(min=0)
    return excess.square().mean() * (2 / (1 - 2 * flip_probability))
