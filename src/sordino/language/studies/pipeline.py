"""From randomized answers to a policy: one call for each stage, on the trainers of this package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sordino._files import write_json
from sordino.language.models.checkpoints import (
    default_device,
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.policies.dpo_training import PrivateDPOConfig, PrivateDPOTrainer
from sordino.language.policies.group_updates import group_trainer
from sordino.language.policies.rebel import RebelConfig, RebelTrainer
from sordino.language.references.pretraining import both_answers, pretrain
from sordino.language.references.texts_read import TextsRead
from sordino.language.references.tiny import TinyModel, build_tiny, save_tiny
from sordino.language.rewards.reward_functions import reward_function
from sordino.language.rewards.reward_training import PrivateRewardConfig, PrivateRewardTrainer
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.language.studies._training_runs import (
    Progress,
    adapters,
    log_of,
    save_policy,
    silence,
)
from sordino.language.studies.fitting import count_fitting, reference_tokenizer
from sordino.language.training.policy_promises import folder_promises, policy_promise
from sordino.language.training.training_terms import PolicyTerms, TrainingTerms
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.private_pairs import PrivatePairs
from sordino.preferences.records import Text

__all__ = [
    "TRAINING_LOG",
    "PolicyTerms",
    "TrainingTerms",
    "build_reference",
    "count_fitting",
    "improve_policy",
    "train_policy",
    "train_reward",
]

TRAINING_LOG = "training_log.json"
"""What training said of itself, beside the weights: randomized answers alone enter."""


def build_reference(
    pairs: Comparisons,
    size: TinyModel,
    folder: Path,
    *,
    steps: int = 300,
    progress: Progress | None = None,
) -> list[float]:
    """Write a tiny model that read both answers of every pair; return its loss at every step.

    It is a label-free reference: tokenizer and weights are functions of public texts.

    Args:
        pairs: Only their prompts and answers are read.
        size: Of the model.
        folder: Where the checkpoint goes.
        steps: Of pretraining.
        progress: Called with (steps done, steps).
    """
    dialogues = list(both_answers(pairs))
    tokenizer = reference_tokenizer(pairs, size)
    model = build_tiny(size, tokenizer)
    losses = pretrain(model, tokenizer, dialogues, steps=steps, seed=size.seed, progress=progress)
    for made in (model, tokenizer):
        TextsRead.of(pairs).mark(made)
    save_tiny(model, tokenizer, folder)
    return losses


def train_reward(
    private: PrivatePairs,
    model: Path,
    folder: Path,
    terms: TrainingTerms,
    *,
    held_out: PrivatePairs | None = None,
    uncertain: bool = True,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Write a reward that was trained on randomized answers; return the training log.

    Args:
        private: Randomized answers; nothing is spent on them here.
        model: Checkpoint of a language model, or of a reward to go on from.
        folder: Where the reward goes, with ``training_log.json``.
        terms: How it is trained.
        held_out: Randomized answers that it is measured on as it is trained.
        uncertain: Whether to measure how far it may be trusted, which pessimism needs.
        progress: Called with (steps done, steps).

    Guarantee:
        What ``private.guarantee`` says, and what the model it starts from promises, together:
        training is post-processing. Shown by tests/language/test_pipeline.py.
    """
    tokenizer, start = load_tokenizer(model), load_reward_checkpoint(model)
    given = _arguments(folder, terms, measured=held_out is not None)
    # The trainer counts the epochs of the head among all; here they come before the others.
    given["num_train_epochs"] = terms.head_epochs + terms.epochs
    config = PrivateRewardConfig(**given, loss=terms.loss, head_epochs=terms.head_epochs)
    trainer = PrivateRewardTrainer(
        start,
        config,
        train_dataset=private,
        eval_dataset=held_out,
        processing_class=tokenizer,
        peft_config=adapters(terms.lora, "SEQ_CLS"),
    )
    log = log_of(trainer, progress)
    reward = trainer.text_reward()
    if uncertain:
        reward = reward.with_uncertainty(private, overlong=terms.overlong)
    reward.save(folder, force=True)
    write_json(folder / TRAINING_LOG, log, force=True)
    return log


def train_policy(
    private: PrivatePairs,
    model: Path,
    folder: Path,
    terms: TrainingTerms,
    *,
    held_out: PrivatePairs | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Write a policy that DPO made of randomized answers; return the training log.

    Args:
        private: Randomized answers; nothing is spent on them here.
        model: Checkpoint of the reference, which must be label-free.
        folder: Where the policy goes, with ``training_log.json``.
        terms: How it is trained.
        held_out: Randomized answers that it is measured on as it is trained.
        progress: Called with (steps done, steps).

    Guarantee:
        What ``private.guarantee`` says, and what the model it starts from promises, together:
        training is post-processing. Shown by tests/language/test_pipeline.py.
    """
    tokenizer, start = load_tokenizer(model), load_causal_model(model)
    given = _arguments(folder, terms, measured=held_out is not None)
    trainer = PrivateDPOTrainer(
        start,
        args=PrivateDPOConfig(**given, beta=terms.temperature),
        train_dataset=private,
        eval_dataset=held_out,
        processing_class=tokenizer,
        peft_config=adapters(terms.lora, "CAUSAL_LM"),
    )
    log = log_of(trainer, progress)
    save_policy(trainer, folder)
    write_json(folder / TRAINING_LOG, log, force=True)
    return log


def improve_policy(
    reward: TextRewardModel,
    model: Path,
    prompts: Sequence[Text],
    folder: Path,
    terms: PolicyTerms,
    *,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Write a policy that a private reward prefers to its reference; return the training log.

    Args:
        reward: Trained on randomized answers.
        model: Checkpoint of the reference, which must be label-free.
        prompts: Public ones to try answers to.
        folder: Where the policy goes, with ``training_log.json``.
        terms: How it is improved.
        progress: Called with (steps done, steps).

    Guarantee:
        What ``reward.guarantee`` says, and what the model it starts from promises, together:
        optimizing against a released reward is post-processing. Shown by
        tests/language/test_pipeline.py.
    """
    carried = [reward.promise, *folder_promises(model)]
    settings = {"update": terms.update, "temperature": terms.temperature, "steps": terms.steps}
    promise = policy_promise(carried, None, settings)
    assert promise is not None  # noqa: S101 - for the type checker: the reward carries one
    tokenizer, start = load_tokenizer(model), load_causal_model(model)
    promise.mark(start)  # trainers of trl would write down what the start says alone
    make = _rebel if terms.update == "rebel" else _grouped
    trainer = make(reward, start, tokenizer, prompts, folder, terms)
    log = log_of(trainer, progress)
    save_policy(trainer, folder)
    promise.write(folder, title=f"A policy improved by {terms.update}")
    write_json(folder / TRAINING_LOG, log, force=True)
    return log


def _rebel(
    reward: TextRewardModel,
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Text],
    folder: Path,
    terms: PolicyTerms,
) -> Any:
    """Return our own trainer; a strong pull to the reference asks for short steps."""
    config = RebelConfig(
        output_dir=str(folder),
        max_steps=terms.steps,
        per_device_train_batch_size=terms.batch_size,
        learning_rate=terms.learning_rate,
        temperature=terms.temperature,
        step=min(1.0, 1 / terms.temperature),
        max_completion_length=terms.max_new_tokens,
        **silence(terms),
    )
    return RebelTrainer(
        model,
        config,
        reward_funcs=reward_function(reward, pessimism=terms.pessimism),
        train_dataset=prompts,
        processing_class=tokenizer,
        promise=reward.promise,
    )


def _grouped(
    reward: TextRewardModel,
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Text],
    folder: Path,
    terms: PolicyTerms,
) -> Any:
    """Return one of trl's."""
    assert terms.update != "rebel"  # noqa: S101 - for the type checker
    return group_trainer(
        terms.update,
        reward,
        model,
        tokenizer,
        prompts=prompts,
        pessimism=terms.pessimism,
        output_dir=str(folder),
        max_steps=terms.steps,
        per_device_train_batch_size=terms.batch_size,
        learning_rate=terms.learning_rate,
        temperature=terms.temperature,
        max_completion_length=terms.max_new_tokens,
        gradient_checkpointing=False,
        bf16=False,
        dataloader_pin_memory=default_device() != "cpu",
        **silence(terms),
    )


def _arguments(folder: Path, terms: TrainingTerms, *, measured: bool) -> dict[str, Any]:
    """Return what both trainers on randomized answers are told."""
    return {
        "output_dir": str(folder),
        "num_train_epochs": terms.epochs,
        "per_device_train_batch_size": terms.batch_size,
        "per_device_eval_batch_size": 2 * terms.batch_size,
        "learning_rate": terms.learning_rate,
        "max_length": terms.max_length,
        "overlong": terms.overlong,
        "eval_strategy": "steps" if measured else "no",
        **silence(terms),
    }
