"""Policies straight from randomized answers: trl's DPO with the loss that knows the flips."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from peft import PeftConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_utils import TrainOutput
from trl import DPOConfig, DPOTrainer

from sordino.errors import PrivacyError, UsageError
from sordino.language.models.checkpoints import is_adapted, load_causal_model, matching_tokenizer
from sordino.language.models.generation import (
    Completions,
    answer_log_probabilities,
    evaluating,
    padded,
)
from sordino.language.models.loading import upstream
from sordino.language.models.tokens import Dialogue
from sordino.language.training.losses import debiased_preference_loss
from sordino.language.training.private_training import (
    LabelTraining,
    PrivateTrainingSettings,
    own_settings,
)
from sordino.preferences.pairs import PrivatePairs

_PLAIN = (
    "the loss is the debiased logistic loss of beta times the gap of log ratios and nothing else, "
    "which is checked when training starts"
)


@dataclass
class PrivateDPOConfig(PrivateTrainingSettings, DPOConfig):
    """Settings of :class:`PrivateDPOTrainer`; those of trl's ``DPOConfig``, less what is fixed.

    Args:
        beta: What the rest of the library calls the temperature: the KL strength, in units of
            reward. The policy that is aimed at is the reference tilted by reward / beta.
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

    def settle(self, flip_probability: float) -> None:
        """Set the loss from the pairs, or refuse one that is set otherwise.

        Args:
            flip_probability: Of the answers that are trained on.

        Raises:
            UsageError: Another loss or another flip probability was asked for.
        """
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


class PrivateDPOTrainer(LabelTraining, DPOTrainer):
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
        peft_config: Adapters to train instead of the whole model; without them it is the
            reference.
        callbacks: As in transformers.
        optimizers: An optimizer and a schedule, as in transformers.
        privacy: A :class:`~sordino.language.dp_sgd.privacy.CentralPrivacy`, to train on raw
            judgments instead: what comes back then is a ``CentralDPOTrainer``, which also takes the
            ``ledger`` that pays.

    Raises:
        PrivacyError: The pairs are raw judgments, and no ``privacy`` is given.
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

    kind = "policy"

    def __init__(  # noqa: PLR0913 (trl's)
        self,
        model: str | Path | PreTrainedModel,
        reference: str | Path | PreTrainedModel | None = None,
        args: PrivateDPOConfig | None = None,
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
        args = own_settings(args, PrivateDPOConfig)
        policy = load_causal_model(model)
        tokenizer = matching_tokenizer(policy, processing_class)
        self._start(policy, args, tokenizer)
        known = {"loss": "dpo", "temperature": args.beta}
        starts = (policy, reference or policy)
        rows, held_out = self._admit(train_dataset, eval_dataset, *starts, **known)
        args.settle(self._flips["train"])
        # The reference is a model that training the policy does not move.
        if reference is policy or reference is None:
            adapted = reference is None and (peft_config is not None or is_adapted(policy))
            stored = reference is None and args.precompute_ref_log_probs
            fixed = None if adapted or stored else copy.deepcopy(policy)
        else:
            fixed = load_causal_model(reference)
        with upstream():
            super().__init__(
                model=policy,
                ref_model=fixed,
                args=args,
                train_dataset=rows,
                eval_dataset=held_out,
                processing_class=tokenizer,
                peft_config=peft_config,
                callbacks=list(callbacks or []),
                optimizers=optimizers,
            )

    @staticmethod
    def _row(preferred: Dialogue, other: Dialogue) -> dict[str, list[int]]:
        return {
            "prompt_ids": preferred.prompt,
            "chosen_ids": preferred.answer,
            "rejected_ids": other.answer,
        }

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> TrainOutput:  # noqa: FBT001
        """Check the loss on one pair, then train as :meth:`LabelTraining.train` says."""
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
