"""Trainers of trl and ours on the small worlds, and what the trained models say afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _trap_worlds import SIZE, for_dpo, for_reward
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer

from sordino.language.models.checkpoints import (
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
from sordino.language.models.tokens import Dialogue, DialogueTokens

BETA = 0.5


def settings(**given: Any) -> dict[str, Any]:
    """Return what all runs share, whoever trains: no trap but the one that is measured."""
    return {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": 128,
        "num_train_epochs": 1,
        "learning_rate": 4e-3,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 20,
        "bf16": False,
        "gradient_checkpointing": False,
        "use_cpu": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    } | given


def start(folder: Path, *, body: bool) -> Any:
    """Return a model with a head, of which the body learns as well, or the head alone."""
    model = load_reward_checkpoint(folder, device="cpu")
    model.model.requires_grad_(body)
    return model


def plain_reward(
    folder: Path, private: Any, *, callbacks: Any = None, body: bool = True, **given: Any
) -> Any:
    """Return a reward that trl's own trainer made of randomized answers."""
    tokenizer = load_tokenizer(folder)
    trainer = RewardTrainer(
        model=start(folder, body=body),
        args=RewardConfig(**settings(**given)),
        train_dataset=for_reward(private, tokenizer),
        processing_class=tokenizer,
        callbacks=callbacks,
    )
    trainer.train()
    return trainer.model


def private_reward(folder: Path, private: Any, *, body: bool = True, **given: Any) -> Any:
    """Return a reward that our trainer made of the same answers."""
    from sordino.language import PrivateRewardConfig, PrivateRewardTrainer

    trainer = PrivateRewardTrainer(
        model=start(folder, body=body),
        args=PrivateRewardConfig(**settings(**given)),
        train_dataset=private,
        processing_class=load_tokenizer(folder),
    )
    trainer.train()
    return trainer.model


def dpo(folder: Path, private: Any, **given: Any) -> Any:
    """Return a policy that trl's own trainer made of randomized answers."""
    trainer = DPOTrainer(
        model=load_causal_model(folder, device="cpu"),
        args=DPOConfig(**settings(learning_rate=2e-3, beta=BETA, **given)),
        train_dataset=for_dpo(private),
        processing_class=load_tokenizer(folder),
    )
    trainer.train()
    return trainer.model


def private_dpo(folder: Path, private: Any) -> Any:
    """Return a policy that our trainer made of the same answers."""
    from sordino.language import PrivateDPOConfig, PrivateDPOTrainer

    trainer = PrivateDPOTrainer(
        model=load_causal_model(folder, device="cpu"),
        args=PrivateDPOConfig(**settings(learning_rate=2e-3, beta=BETA)),
        train_dataset=private,
        processing_class=load_tokenizer(folder),
    )
    trainer.train()
    return trainer.model


def padded(rows: Sequence[Dialogue], pad: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return tokens, where they are read, and where they are part of an answer."""
    longest = max(len(row.prompt) + len(row.answer) for row in rows)
    ids = torch.full((len(rows), longest), pad)
    read, said = torch.zeros_like(ids), torch.zeros_like(ids)
    for place, row in enumerate(rows):
        length = len(row.prompt) + len(row.answer)
        ids[place, :length] = torch.tensor([*row.prompt, *row.answer])
        read[place, :length] = 1
        said[place, len(row.prompt) : length] = 1
    return ids, read, said


@torch.no_grad()
def scores(model: Any, tokenizer: Any, prompts: Sequence[str], answers: Sequence[str]) -> Any:
    """Return the reward of each answer."""
    encoder = DialogueTokens(tokenizer, SIZE.context)
    rows = [encoder.dialogue(*both) for both in zip(prompts, answers, strict=True)]
    ids, read, _ = padded(rows, tokenizer.pad_token_id)
    return model.eval()(input_ids=ids, attention_mask=read).logits[:, 0].double().numpy()


@torch.no_grad()
def log_likelihoods(
    model: Any, tokenizer: Any, prompts: Sequence[str], answers: Sequence[str], context: int
) -> tuple[Any, Any]:
    """Return the log-likelihood of each answer after its prompt, and its number of tokens."""
    encoder = DialogueTokens(tokenizer, context)
    total, count = [], []
    for start in range(0, len(prompts), 64):
        part = zip(prompts[start : start + 64], answers[start : start + 64], strict=True)
        ids, read, said = padded([encoder.dialogue(*both) for both in part], tokenizer.pad_token_id)
        logits = model.eval()(input_ids=ids, attention_mask=read, use_cache=False).logits
        each = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        total.append((each * said[:, 1:]).sum(1).double().numpy())
        count.append(said.sum(1).numpy())
    return np.concatenate(total), np.concatenate(count)


def reward_gaps(model: Any, tokenizer: Any, pairs: Any) -> Any:
    """Return the difference of rewards of each pair."""
    first, second = (
        scores(model, tokenizer, pairs.prompts, texts) for texts in (pairs.first, pairs.second)
    )
    return first - second


def implicit_gaps(model: Any, reference: Any, tokenizer: Any, pairs: Any) -> Any:
    """Return beta times the difference of log-ratios of each pair: the reward that DPO implies."""
    ratios = [
        log_likelihoods(model, tokenizer, pairs.prompts, texts, SIZE.context)[0]
        - log_likelihoods(reference, tokenizer, pairs.prompts, texts, SIZE.context)[0]
        for texts in (pairs.first, pairs.second)
    ]
    return BETA * (ratios[0] - ratios[1])
