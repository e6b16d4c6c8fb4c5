"""Traps of hooks that clip row by row: what opacus sees of the trainers of trl, and what not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from _trap_training import settings
from _trap_worlds import SIZE, for_dpo, for_reward, randomized, silence, word_pairs
from opacus.grad_sample import GradSampleHooks
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    LlamaConfig,
)
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer

from sordino.language.references.tiny import both_answers, train_tokenizer
from sordino.preferences.features import flatten

PAIRS, TEXTS, LENGTH, SPREAD = 8, 300, 6, 0.02


@cache
def words() -> Any:
    """Return a tokenizer of public pairs."""
    dialogues = both_answers(word_pairs(200, seed=9))
    return train_tokenizer(
        flatten([text for both in dialogues for text in both], "dialogues"), SIZE
    )


@cache
def private() -> Any:
    """Return eight pairs whose answers were not flipped."""
    silence()
    return randomized(word_pairs(PAIRS, seed=1), None)


def built(kind: Any, architecture: str = "llama", *, tied: bool = False) -> Any:
    """Return a tiny model as transformers starts it, the same in every run."""
    sizes = {
        "vocab_size": len(words()),
        "pad_token_id": words().pad_token_id,
        "eos_token_id": words().eos_token_id,
        "bos_token_id": None,
        "num_labels": 1,
        "tie_word_embeddings": tied,
    }
    if architecture == "gpt2":
        off = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
        config: Any = GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, **off, **sizes)
    else:
        config = LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=64, **sizes,
        )  # fmt: skip
    torch.manual_seed(0)
    return kind.from_config(config)


def reward_trainer(model: Any = None, **given: Any) -> Any:
    """Return trl's own trainer of rewards on the eight pairs."""
    with patch("trl.trainer.base_trainer.send_telemetry", lambda **_: None):
        return RewardTrainer(
            model=built(AutoModelForSequenceClassification) if model is None else model,
            args=RewardConfig(**settings(**given)),
            train_dataset=for_reward(private(), words()),
            processing_class=words(),
        )


def dpo_trainer(*, tied: bool) -> Any:
    """Return trl's own trainer of policies on the eight pairs, a little off its reference."""
    model = built(AutoModelForCausalLM, tied=tied)
    with patch("trl.trainer.base_trainer.send_telemetry", lambda **_: None):
        trainer = DPOTrainer(
            model=model,
            ref_model=copy.deepcopy(model),
            args=DPOConfig(**settings()),
            train_dataset=for_dpo(private()),
            processing_class=words(),
        )
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn_like(one), alpha=SPREAD)
    return trainer


def batch(trainer: Any, rows: Any) -> Any:
    """Return some pairs as trl stacks them: all preferred answers, then all others."""
    return trainer.data_collator([trainer.train_dataset[row] for row in rows])


@contextmanager
def hooked(model: Any) -> Iterator[None]:
    """Let opacus listen."""
    hooks = GradSampleHooks(model, loss_reduction="sum", strict=False)
    try:
        yield
    finally:
        hooks.cleanup()


def seen_by_hooks(model: Any, loss: Callable[[], Any]) -> dict[str, Any]:
    """Return what opacus calls the gradients of samples, by parameter; None where it has none."""
    model.train()
    with hooked(model):
        loss().backward()
        return {
            name: getattr(one, "grad_sample", None)
            for name, one in model.named_parameters()
            if one.requires_grad
        }


def by_pair(trainer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the gradients of pairs by hooks, rows added up, and by autograd one at a time."""
    model = trainer.model
    whole = batch(trainer, range(PAIRS))
    rows = seen_by_hooks(model, lambda: PAIRS * trainer.compute_loss(model, whole))
    alone: dict[str, list[Any]] = {}
    for pair in range(PAIRS):
        model.zero_grad()
        trainer.compute_loss(model, batch(trainer, [pair])).backward()
        for name, one in model.named_parameters():
            alone.setdefault(name, []).append(one.grad.clone())
    model.zero_grad()
    folded = {
        name: None if one is None or len(one) != 2 * PAIRS else one[:PAIRS] + one[PAIRS:]
        for name, one in rows.items()
    }
    return folded, {name: torch.stack(each) for name, each in alone.items()}


def fused_head(*, tied: bool) -> dict[str, Any]:
    """Return what is missing of the gradient of a pair in trl's DPO."""
    found, true = by_pair(dpo_trainer(tied=tied))
    errors, seen, whole = (torch.zeros(PAIRS, dtype=torch.float64) for _ in range(3))
    for name, right in true.items():
        mine = torch.zeros_like(right) if found[name] is None else found[name]
        errors += (mine - right).double().flatten(1).square().sum(1)
        seen += mine.double().flatten(1).square().sum(1)
        whole += right.double().flatten(1).square().sum(1)
    return {
        "error": round(float((errors / whole).sqrt().mean()), 2),
        "norm_seen": round(float((seen / whole).sqrt().mean()), 2),
        "without": [name for name, one in found.items() if one is None],
    }


def recomputed(*, reentrant: bool) -> dict[str, int]:
    """Return of how many parameters hooks see nothing once layers are recomputed."""
    how = {"use_reentrant": reentrant}
    trainer = reward_trainer(gradient_checkpointing=True, gradient_checkpointing_kwargs=how)
    trainer.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
    whole = batch(trainer, range(PAIRS))
    found = seen_by_hooks(trainer.model, lambda: trainer.compute_loss(trainer.model, whole))
    return {"parameters": len(found), "without": sum(one is None for one in found.values())}


def positions() -> dict[str, int]:
    """Return how many gradients of samples an embedding of positions has."""
    trainer = reward_trainer(built(AutoModelForSequenceClassification, "gpt2"))
    whole = batch(trainer, range(PAIRS))
    found = seen_by_hooks(trainer.model, lambda: trainer.compute_loss(trainer.model, whole))
    return {"rows": 2 * PAIRS, "seen": len(found["transformer.wpe.weight"])}


def late_adapters() -> str:
    """Return what opacus raises once adapters are added to a model that it listens to."""
    trainer = reward_trainer()
    whole = batch(trainer, range(PAIRS))
    with hooked(trainer.model):
        wanted = LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
        adapted = get_peft_model(trainer.model, wanted).train()
        try:
            trainer.compute_loss(adapted, whole).backward()
        except ValueError as error:
            return str(error).split(" for ")[0]
    return "nothing"


def row_clipping(trained: str) -> dict[str, float]:
    """Return how far a pair moves the sum, in bounds, if its two rows are clipped alone.

    Gradients of 300 texts are made and clipped by hooks. A pair that is made of two of them adds
    the difference of two vectors as long as the bound.

    Args:
        trained: ``"all weights"`` or ``"adapters"``.
    """
    model = built(AutoModelForSequenceClassification)
    if trained == "adapters":
        wanted = LoraConfig(r=2, target_modules="all-linear", task_type="SEQ_CLS")
        model = get_peft_model(model, wanted)
        for name, one in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(one, std=SPREAD)
    given = torch.Generator().manual_seed(3)
    ids = torch.randint(3, len(words()), (TEXTS, LENGTH), generator=given)
    read = {"input_ids": ids, "use_cache": False}
    rows = seen_by_hooks(model, lambda: sum(model(**read).logits))
    clipped = torch.nn.functional.normalize(torch.cat([one.flatten(1) for one in rows.values()], 1))
    apart = (2 - 2 * clipped @ clipped.T).clamp(min=0).sqrt()
    pairs = apart[torch.triu_indices(TEXTS, TEXTS, 1).unbind()]
    return {"median": round(float(pairs.median()), 2), "largest": round(float(pairs.max()), 2)}
