"""Reward models from randomized answers: trl's trainer with a loss that knows the flips."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from trl import RewardTrainer

from sordino.language.models._model_copies import own_copy
from sordino.language.models._trained_models import (
    matching_tokenizer,
    refuse_other_heads,
    with_head,
)
from sordino.language.models._upstream import upstream
from sordino.language.models.checkpoints import load_reward_checkpoint
from sordino.language.models.tokens import Dialogue
from sordino.language.rewards._head_first import HeadFirst
from sordino.language.rewards.reward_settings import PrivateRewardConfig
from sordino.language.training._private_training import PrivateTraining
from sordino.language.training._training_settings import own_settings
from sordino.language.training.central_choice import central_trainer
from sordino.language.training.losses import LOSSES
from sordino.preferences.private_pairs import PrivatePairs

if TYPE_CHECKING:
    from sordino.language.rewards.text_rewards import TextRewardModel

__all__ = ["PrivateRewardConfig", "PrivateRewardTrainer", "excess_penalty"]


class PrivateRewardTrainer(PrivateTraining, RewardTrainer):
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
        privacy: A :class:`~sordino.language.central.privacy_terms.CentralPrivacy`, to train on raw
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
        tests/language/test_reward_training.py.

    Source:
        docs/local.md, "Debiased likelihood" and "Mixture likelihood".
    """

    kind = "reward"

    def __new__(cls, *given: Any, privacy: Any = None, **named: Any) -> Any:
        """Return a trainer of raw pairs where it is said what they are promised."""
        if privacy is None:
            return super().__new__(cls)
        return central_trainer(cls.kind, *given, privacy=privacy, **named)

    def __init__(  # noqa: PLR0913 (trl's)
        self,
        model: Any,
        args: PrivateRewardConfig | None = None,
        *,
        train_dataset: PrivatePairs,
        eval_dataset: PrivatePairs | None = None,
        processing_class: Any = None,
        peft_config: Any = None,
        callbacks: Sequence[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        privacy: None = None,  # noqa: ARG002 (where it is given, another trainer is made)
    ) -> None:
        """Set everything up; nothing is trained yet."""
        args = own_settings(args, PrivateRewardConfig)
        body = load_reward_checkpoint(model) if isinstance(model, str | Path) else model
        refuse_other_heads(body)
        tokenizer = matching_tokenizer(body, processing_class)
        self._start(body, args, tokenizer)
        known = {"loss": args.loss, "reward_bound": float(args.reward_bound)}
        rows, held_out = self._admit(train_dataset, eval_dataset, body, **known)
        self._seen: dict[str, list[Any]] = {"train": [], "eval": []}
        with upstream():
            super().__init__(
                model=body,
                args=args,
                train_dataset=rows,
                eval_dataset=held_out,
                processing_class=tokenizer,
                peft_config=with_head(peft_config),
                callbacks=[*(callbacks or []), HeadFirst(args.head_epochs)],
                optimizers=optimizers,
            )

    @staticmethod
    def _row(preferred: Dialogue, other: Dialogue) -> dict[str, list[int]]:
        """Return whole dialogues."""
        return {
            "chosen_ids": [*preferred.prompt, *preferred.answer],
            "rejected_ids": [*other.prompt, *other.answer],
        }

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 (transformers')
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> Any:
        """Return the loss of a batch on randomized answers, and keep its metrics on the device.

        Source:
            docs/local.md, "Debiased likelihood" and "Mixture likelihood", plus
            :func:`excess_penalty` and trl's ``center_rewards_coefficient``.
        """
        outputs = model(**inputs, use_cache=False)
        rewards = outputs.logits.squeeze(-1).float()
        preferred, other = rewards.chunk(2)
        margins, flips = preferred - other, self._flips[self._mode]
        loss = LOSSES[self.args.loss](margins, flips).mean()
        loss = loss + excess_penalty(rewards, flips, self.args.reward_bound)
        if self.args.center_rewards_coefficient is not None:
            loss = loss + self.args.center_rewards_coefficient * (preferred + other).square().mean()
        with torch.no_grad():  # read when it is logged: reading now would wait for the device
            agrees = margins.sign().mean()
            self._seen[self._mode].append(torch.stack([agrees, margins.mean(), rewards.mean()]))
        return (loss, outputs) if return_outputs else loss

    def _summaries(self, mode: str) -> dict[str, float]:
        """Return accuracy and margin, corrected for the flips, and the mean reward."""
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

    def _handed_out(self) -> Any:
        """Return a copy of the model, which no training reaches any more."""
        return own_copy(self.accelerator.unwrap_model(self.model))

    def text_reward(self) -> TextRewardModel:
        """Return the reward as it stands, for scoring texts; later steps do not show in it.

        Its weights are a copy: a checkpoint to resume from may add to what they promise.
        """
        from sordino.language.rewards.text_rewards import TextRewardModel  # noqa: PLC0415 (a stage of its own)

        return TextRewardModel(
            self._handed_out().eval(),
            self.processing_class,
            promise=self._promise,
            reward_bound=self.args.reward_bound,
            max_length=self._tokens.max_length,
        )


def excess_penalty(rewards: Any, flip_probability: float, bound: float) -> Any:
    """Return what rewards beyond ± the bound cost, so that the debiased loss has a minimum.

    Alone it falls without end along a margin, with slope f/(1 − 2f). Here no pair gains by going
    further than f/2, at most 1/4, beyond the bound.

    Args:
        rewards: Of both answers of n pairs, shape (2n,).
        flip_probability: f, in [0, 1/2).
        bound: What is free.

    Source:
        docs/local.md, "Debiased likelihood": Σ (|r| − bound)₊² / ((1 − 2f)n).
    """
    excess = (rewards.abs() - bound).clamp(min=0)
    return excess.square().mean() * (2 / (1 - 2 * flip_probability))
