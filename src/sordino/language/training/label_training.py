"""Rewards and policies from randomized answers: trl's trainers, with losses that know the flips.

Labels enter as :class:`~sordino.preferences.pairs.PrivatePairs` and in no other way, so everything
here is post-processing: metrics, checkpoints and resuming spend nothing.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from datasets import Dataset
from peft import PeftConfig
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import TrainOutput
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer

from sordino import _validate
from sordino.errors import ConvergenceError, PrivacyError, UsageError
from sordino.language.models.checkpoints import HEAD, is_adapted, load_causal_model
from sordino.language.models.generation import (
    Completions,
    answer_log_probabilities,
    evaluating,
    padded,
)
from sordino.language.models.loading import upstream
from sordino.language.models.promises import CheckpointPromise, folder_promises, resumable
from sordino.language.models.tokens import Dialogue
from sordino.language.references.texts import TextsRead
from sordino.language.training.losses import LOSSES, debiased_preference_loss
from sordino.language.training.private_training import (
    PrivateTraining,
    PrivateTrainingSettings,
    RewardTraining,
    own_settings,
)
from sordino.preferences.pairs import Pairs, PrivatePairs


def _private_pairs(name: str, pairs: object) -> PrivatePairs:
    if isinstance(pairs, Pairs):
        raise PrivacyError(
            f"{name} holds raw judgments; a model trained on them would give them away. Nothing "
            "was trained. Randomize them first with sordino.privatize(pairs, "
            "sordino.RandomizedResponse(epsilon=...), ledger=...), or read a file that sordino "
            "privatize wrote; or train on them with clipped, noised gradients, with "
            "CentralRewardTrainer or CentralDPOTrainer. To record an infinite spend instead, pass "
            "them through sordino.privatization.answers.use_unprotected(pairs, "
            "sordino.NonPrivate(), ledger=...) with a ledger whose budget is infinite."
        )
    if not isinstance(pairs, PrivatePairs):
        raise UsageError(
            f"{name} must be private pairs, from sordino.privatize or sordino.read_pairs, got "
            f"{type(pairs).__name__}. Nothing was trained."
        )
    return pairs


class _LabelTraining(PrivateTraining):
    """A trainer of trl on randomized answers; trl's own comes after it."""

    settings: ClassVar[type[PrivateTrainingSettings]]
    _flips: dict[str, float]
    # Adds to what trl's trainer is given, from settings and model.
    _settle: Callable[[Any, PreTrainedModel, dict[str, Any]], None]
    # The columns that trl's collator reads of a preferred answer and the other one.
    _row: Callable[[Dialogue, Dialogue], dict[str, list[int]]]
    _summaries: Callable[[str], dict[str, float]]  # means of what was seen since the last log

    def __init__(  # noqa: PLR0913 (trl's)
        self,
        model: str | Path | PreTrainedModel,
        args: PrivateTrainingSettings | None = None,
        *,
        train_dataset: PrivatePairs,
        eval_dataset: PrivatePairs | None = None,
        reference: str | Path | PreTrainedModel | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        peft_config: PeftConfig | None = None,
        callbacks: Sequence[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        """Set everything up; nothing is trained yet."""
        args = own_settings(args, self.settings)
        start, adapters = self._start(model, args, processing_class, peft_config, reference)
        pairs = _private_pairs("train_dataset", train_dataset)
        rows = self._rows(pairs)
        # Models to start from, whose folders say what they were trained on, promise something too.
        starts = (start, self._reference)
        read = TextsRead.on(*starts, self._tokens.tokenizer)
        self._read = read.with_those_of(TextsRead.of(pairs))
        known = {"max_length": self._tokens.max_length, "pairs": len(rows)}
        promise = CheckpointPromise.of(pairs, kind=self.kind, **known, **args.public_settings())
        self._promise = promise.with_those_of(*folder_promises(*starts))
        self._flips = {"train": pairs.flip_probability, "eval": pairs.flip_probability}
        held_out = None if eval_dataset is None else self._held_out(eval_dataset)
        given = {"peft_config": adapters, "callbacks": list(callbacks or [])}
        self._settle(args, start, given)
        with upstream():
            super().__init__(
                model=start,
                args=args,
                train_dataset=rows,
                eval_dataset=held_out,
                processing_class=self._tokens.tokenizer,
                optimizers=optimizers,
                **given,
            )

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

    @property
    def _mode(self) -> str:
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


_PLAIN = (
    "the loss is the debiased logistic loss of beta times the gap of log ratios and nothing else, "
    "which is checked when training starts"
)


@dataclass
class PrivateDPOConfig(PrivateTrainingSettings, DPOConfig):
    """Settings of :class:`PrivateDPOTrainer`; those of trl's ``DPOConfig``, less what is fixed.

    ``beta`` is what the rest of the library calls the temperature: the KL strength, in units of
    reward. The policy that is aimed at is the reference tilted by reward / beta.

    Args:
        loss_type: ``["robust"]``, trl's name of the debiased loss.
        label_smoothing: Left out; the trainer sets it to the flip probability of the pairs.

    Raises:
        UsageError: A setting cannot be used.
    """

    loss_type: list[str] = field(default_factory=lambda: ["robust"])
    label_smoothing: float | None = field(default=None)

    refused: ClassVar[Mapping[str, tuple[Any, str]]] = {
        **PrivateTrainingSettings.refused,
        "loss_weights": (None, _PLAIN),
        "use_weighting": (False, _PLAIN),
        "f_divergence_type": ("reverse_kl", _PLAIN),
        "ld_alpha": (None, _PLAIN),
        "sync_ref_model": (False, "the KL strength counts from one fixed reference"),
    }

    def public_settings(self) -> dict[str, object]:
        """Return what a reader of a checkpoint needs to know."""
        return {"loss": "dpo", "temperature": self.beta}

    def settle(self, flip_probability: float) -> None:
        """Set the loss from the flips of the pairs, or refuse one that is set otherwise."""
        asked = list(self.loss_type)
        if asked != ["robust"] and (asked != ["sigmoid"] or flip_probability > 0):
            raise UsageError(
                f"loss_type={asked!r} does not correct for labels that are flipped with "
                f"probability {flip_probability:.6g}: of trl's losses only 'robust' does, and "
                "'sigmoid' does not read label_smoothing at all. Nothing was trained. Leave "
                "loss_type out."
            )
        given = self.label_smoothing
        if given is not None and not math.isclose(given, flip_probability, rel_tol=1e-9):
            raise UsageError(
                f"label_smoothing={given!r} is not the probability {flip_probability:.9g} with "
                "which the labels of these pairs are flipped. Nothing was trained. Leave it out: "
                "it is read from the pairs."
            )
        self.loss_type, self.label_smoothing = ["robust"], flip_probability


_GAPS = (-1.5, 0.5, 3.0)  # of the rewards of a pair; two would do to tell one loss from another
_LOOKED_AT = 64  # pairs, of which the shortest is taken
_ATOL = 1e-3
_PROMPT, _ANSWERS = "prompt_ids", ("chosen_ids", "rejected_ids")


def _refuse_other_losses(trainer: DPOTrainer, flip_probability: float) -> None:
    """Compare the loss of a trainer with the debiased one, where the answer is known."""
    # The log-probabilities of one short pair are computed in another way than trl computes them,
    # and the reference is set so that the gap of the rewards is a given number. With DeepSpeed the
    # weights are in pieces before training starts, and nothing is checked.
    # Source: docs/local.md, "Debiased likelihood", with Δ = beta times the gap of the log ratios.
    if trainer.is_deepspeed_enabled:
        return
    rows = trainer.train_dataset.select_columns([_PROMPT, *_ANSWERS])
    some = rows.select(range(min(_LOOKED_AT, len(rows))))
    row = min(some, key=lambda row: sum(map(len, row.values())))
    model, flips, found = trainer.model, flip_probability, []
    device = next(model.parameters()).device
    prompts = padded([row[_PROMPT]] * 2, 0, device)
    both = Completions(*prompts, *padded([row[name] for name in _ANSWERS], 0, device))
    batch = {name: part.to(device) for name, part in trainer.data_collator([row]).items()}
    before = trainer.aux_loss_enabled, trainer.precompute_ref_logps
    trainer.aux_loss_enabled, trainer.precompute_ref_logps = False, True
    try:
        with upstream(), torch.no_grad(), evaluating(model):
            chosen, rejected = answer_log_probabilities(model, both).float().chunk(2)
            for gap in _GAPS:
                batch["ref_chosen_logps"] = chosen - gap / trainer.beta
                batch["ref_rejected_logps"] = rejected
                found.append(float(trainer.compute_loss(model, dict(batch))))
    finally:
        trainer.aux_loss_enabled, trainer.precompute_ref_logps = before
        trainer._metrics["eval"].clear()  # noqa: SLF001 (they are of the check)
    size = float(chosen.abs() + rejected.abs()) * torch.finfo(model.dtype).eps
    slope = (2 - 2 * flips) / (1 - 2 * flips)  # how fast the loss may change with the gap
    for gap, loss in zip(_GAPS, found, strict=True):
        meant = float(debiased_preference_loss(torch.tensor(gap), flips))
        if not abs(loss - meant) <= slope * (_ATOL + 4 * trainer.beta * size):
            raise PrivacyError(
                f"At a gap of {gap:g} the trainer's loss is {loss:.6g}, and the debiased loss of "
                f"labels that are flipped with probability {flips:.6g} is {meant:.6g}. Nothing was "
                "trained. Use a version of trl that this library was tested with."
            )


class PrivateDPOTrainer(_LabelTraining, DPOTrainer):
    """Trains a policy on randomized answers by direct preference optimization.

    The loss is trl's ``"robust"`` with the flip probability of the pairs, which is the debiased
    loss; without flips it is the ordinary one. Before the first step it is compared with
    :func:`~sordino.language.training.losses.debiased_preference_loss` on one pair of the data. No
    pair is left out and no answer is cut without being asked for, and no token straddles the
    border between prompt and answer. The metrics ``rewards/accuracies`` and ``rewards/margins`` are
    corrected for the flips; all others are of the answers that the randomized labels prefer.

    Args:
        model: The folder of a causal model, or such a model.
        reference: What the policy stays close to: a folder, a model, or the model as it is now
            if left out. It must not have been trained on the preferred answers alone.
        args: Settings; defaults if left out.
        train_dataset: Private pairs of texts.
        eval_dataset: Private pairs to measure on; checkpoints then speak for these answers too.
        processing_class: The tokenizer; the one in the model's folder if left out.
        peft_config: Adapters to train instead of the whole model; without them it is the reference.
        callbacks: As in transformers.
        optimizers: An optimizer and a schedule, as in transformers.

    Raises:
        PrivacyError: The pairs are raw judgments.
        UsageError: A setting, the model or the tokenizer cannot be used.
        DataError: The pairs hold no texts, or an answer is empty or longer than the model reads.
        FileSystemError: There is no such folder.

    Guarantee:
        What ``train_dataset.guarantee`` says: training is post-processing. Answers of another
        release to measure on add theirs, and so do checkpoints to start from and to stay near.
        Shown by tests/language/test_label_training.py.

    Source:
        docs/local.md, "Debiased likelihood", with Δ = beta times the gap of the log ratios.
    """

    kind, settings = "policy", PrivateDPOConfig

    def _settle(
        self, args: PrivateDPOConfig, policy: PreTrainedModel, given: dict[str, Any]
    ) -> None:
        args.settle(self._flips["train"])
        # The reference is a model that training the policy does not move.
        reference = self._reference
        if reference is policy or reference is None:
            adapted = reference is None and (given["peft_config"] or is_adapted(policy))
            stored = reference is None and args.precompute_ref_log_probs
            given["ref_model"] = None if adapted or stored else copy.deepcopy(policy)
        else:
            given["ref_model"] = load_causal_model(reference)

    @staticmethod
    def _row(preferred: Dialogue, other: Dialogue) -> dict[str, list[int]]:
        return {
            "prompt_ids": preferred.prompt,
            "chosen_ids": preferred.answer,
            "rejected_ids": other.answer,
        }

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> TrainOutput:  # noqa: FBT001
        """Check the loss on one pair, then train as :meth:`_LabelTraining.train` says."""
        _refuse_other_losses(self, self._flips["train"])
        return super().train(resume_from_checkpoint)

    def compute_loss(
        self,
        model: PreTrainedModel,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 (transformers')
        num_items_in_batch: object = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Return trl's robust loss of a batch, with the flips of the pairs it comes from.

        Source:
            docs/local.md, "Debiased likelihood".
        """
        self.loss_types, self.label_smoothing = ["robust"], self._flips[self._mode]
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _summaries(self, mode: str) -> dict[str, float]:
        flips = self._flips[mode]
        means = {
            name: float(torch.tensor(values, dtype=torch.float64).mean())
            for name, values in self._metrics[mode].items()
        }
        if "rewards/margins" in means:
            means["rewards/margins"] /= 1 - 2 * flips
            means["rewards/accuracies"] = (means["rewards/accuracies"] - flips) / (1 - 2 * flips)
        return means


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

    def public_settings(self) -> dict[str, object]:
        """Return what a reader of a checkpoint needs to know."""
        return {"loss": self.loss, "reward_bound": float(self.reward_bound)}

    def check(self) -> None:
        """Refuse settings that cannot be used."""
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


class PrivateRewardTrainer(_LabelTraining, RewardTraining, RewardTrainer):
    """Trains a reward on randomized answers, as fast as trl does on raw ones.

    The reward of an answer is a number that one linear head reads off the last token. Pairs come
    from :func:`sordino.privatize` or :func:`sordino.read_pairs`; how often their answers are
    flipped is read from them and cannot be set. The metrics ``accuracy`` and ``margin`` are
    corrected for the flips: they estimate what the true labels would say, and may therefore lie
    outside of their usual range.

    Args:
        model: The folder of a causal model, which gets a head that starts at 0, or of a reward;
            or such a model.
        args: Settings; defaults if left out. This and what follows is as for
            :class:`PrivateDPOTrainer`, and so is what is raised: the head is trained and saved
            with adapters.

    Guarantee:
        What ``train_dataset.guarantee`` says: training is post-processing. Answers of another
        release to measure on add theirs, and so does a checkpoint to start from. Shown by
        tests/language/test_label_training.py.

    Source:
        docs/local.md, "Debiased likelihood" and "Mixture likelihood".
    """

    settings = PrivateRewardConfig

    def _settle(self, args: PrivateRewardConfig, _: PreTrainedModel, given: dict[str, Any]) -> None:
        self._seen: dict[str, list[torch.Tensor]] = {"train": [], "eval": []}
        given["callbacks"].append(_HeadFirst(args.head_epochs))

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


def _excess_penalty(rewards: torch.Tensor, flip_probability: float, bound: float) -> torch.Tensor:
    """Return what rewards beyond ± the bound cost, so that the debiased loss has a minimum."""
    # Alone it falls without end along a margin, with slope f/(1 − 2f). Here no pair gains by going
    # further than f/2, at most 1/4, beyond the bound.
    # Source: docs/local.md, "Debiased likelihood": Σ (|r| − bound)₊² / ((1 − 2f)n).
    excess = (rewards.abs() - bound).clamp(min=0)
    return excess.square().mean() * (2 / (1 - 2 * flip_probability))
