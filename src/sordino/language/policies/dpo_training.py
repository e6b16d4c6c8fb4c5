"""Policies straight from randomized answers: trl's DPO with the loss that knows the flips."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from trl import DPOTrainer

from sordino.language.models._trained_models import is_adapted, matching_tokenizer
from sordino.language.models._upstream import upstream
from sordino.language.models.checkpoints import load_causal_model
from sordino.language.models.tokens import Dialogue
from sordino.language.policies.dpo_settings import PrivateDPOConfig
from sordino.language.training._known_gaps import refuse_other_losses
from sordino.language.training._private_training import PrivateTraining
from sordino.language.training._training_settings import own_settings
from sordino.language.training.central_choice import central_trainer
from sordino.preferences.private_pairs import PrivatePairs

__all__ = ["PrivateDPOConfig", "PrivateDPOTrainer"]


class PrivateDPOTrainer(PrivateTraining, DPOTrainer):
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
        privacy: A :class:`~sordino.language.central.privacy_terms.CentralPrivacy`, to train on raw
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
        Shown by tests/language/test_dpo_training.py.

    Source:
        docs/local.md, "Debiased likelihood", with Δ = beta times the gap of the log ratios.
    """

    kind = "policy"

    def __new__(cls, *given: Any, privacy: Any = None, **named: Any) -> Any:
        """Return a trainer of raw pairs where it is said what they are promised."""
        if privacy is None:
            return super().__new__(cls)
        return central_trainer(cls.kind, *given, privacy=privacy, **named)

    def __init__(  # noqa: PLR0913 (trl's)
        self,
        model: Any,
        reference: Any = None,
        args: PrivateDPOConfig | None = None,
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
        args = own_settings(args, PrivateDPOConfig)
        policy = load_causal_model(model) if isinstance(model, str | Path) else model
        tokenizer = matching_tokenizer(policy, processing_class)
        self._start(policy, args, tokenizer)
        known = {"loss": "dpo", "temperature": args.beta}
        starts = (policy, reference or policy)
        rows, held_out = self._admit(train_dataset, eval_dataset, *starts, **known)
        args.settle(self._flips["train"])
        adapted = peft_config is not None or is_adapted(policy)
        with upstream():
            super().__init__(
                model=policy,
                ref_model=_fixed(
                    reference, policy, needed=not (adapted or args.precompute_ref_log_probs)
                ),
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
        """Return the prompt, which both answers share, and the answers."""
        return {
            "prompt_ids": preferred.prompt,
            "chosen_ids": preferred.answer,
            "rejected_ids": other.answer,
        }

    def train(self, resume_from_checkpoint: str | Path | bool | None = None) -> Any:  # noqa: FBT001
        """Check the loss on one pair, then train as :meth:`PrivateTraining.train` says."""
        refuse_other_losses(self, self._flips["train"])
        return super().train(resume_from_checkpoint)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 (transformers')
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return trl's robust loss of a batch, with the flips of the pairs it comes from.

        Source:
            docs/local.md, "Debiased likelihood".
        """
        self.loss_types, self.label_smoothing = ["robust"], self._flips[self._mode]
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _summaries(self, mode: str) -> dict[str, float]:
        """Return trl's metrics, with accuracy and margin corrected for the flips."""
        flips = self._flips[mode]
        means = {
            name: float(torch.tensor(values, dtype=torch.float64).mean())
            for name, values in self._metrics[mode].items()
        }
        if "rewards/margins" in means:
            means["rewards/margins"] /= 1 - 2 * flips
            means["rewards/accuracies"] = (means["rewards/accuracies"] - flips) / (1 - 2 * flips)
        return means


def _fixed(reference: Any, policy: Any, *, needed: bool) -> Any:
    """Return a reference that training the policy does not move."""
    if isinstance(reference, str | Path):
        return load_causal_model(reference)
    if reference is None and not needed:
        return None
    return copy.deepcopy(policy) if reference is None or reference is policy else reference
