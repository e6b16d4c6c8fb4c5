"""Traps of a trainer's defaults: the token that is read, what is sent, and half precision."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from _trap_training import plain_reward, reward_gaps, scores, settings
from _trap_worlds import for_reward, randomized, true_gaps, word_pairs
from datasets import Dataset
from transformers import TrainerCallback
from trl import DPOConfig, RewardConfig, RewardTrainer

from sordino.language.models.checkpoints import load_reward_checkpoint, load_tokenizer
from sordino.language.references.tiny import TinyModel, build_tiny, save_tiny

WAYS = {
    "off": (False, False),
    "bf16": (True, False),
    "gradient_checkpointing": (False, True),
    "both, as trl has it": (True, True),
}


def padding(folder: Path) -> dict[str, Any]:
    """Return what a reward reads if the padding token is the end token, and what that moves."""
    tokenizer, pool = load_tokenizer(folder), word_pairs(2000, seed=80)
    private = randomized(word_pairs(12_000, seed=8), None)
    result: dict[str, Any] = {}
    for name, end_pads in (
        ("padding token of its own", False),
        ("padding token = end token", True),
    ):
        model = _trained(folder, private, end_pads=end_pads)
        same, other = (
            _gaps(model, tokenizer, pool, end_pads=served) for served in (end_pads, not end_pads)
        )
        true = true_gaps(pool)
        result[f"trained with {name}"] = {
            "token_read": _token_read(model, tokenizer, end_pads=end_pads),
            "agrees_with_the_true_reward": _agreement(same, true),
            "agrees_if_served_the_other_way": _agreement(other, true),
            "slope_if_served_the_other_way": round(float(other @ same / (same @ same)), 3),
        }
    return result


def _trained(folder: Path, private: Any, *, end_pads: bool) -> Any:
    """Return a reward that trl trained on a tokenizer with or without a padding token."""

    def loaded(path: Path) -> Any:
        tokenizer = load_tokenizer(path)
        if end_pads:
            tokenizer.pad_token = None  # trl then takes the end token, and says nothing
        return tokenizer

    with (
        patch("_trap_training.load_tokenizer", loaded),
        patch(
            "_trap_training.for_reward", lambda pairs, _: for_reward(pairs, load_tokenizer(folder))
        ),
    ):
        return plain_reward(folder, private)


def _set(model: Any, tokenizer: Any, *, end_pads: bool) -> None:
    """Tell a model which token pads."""
    model.config.pad_token_id = tokenizer.eos_token_id if end_pads else tokenizer.pad_token_id


def _gaps(model: Any, tokenizer: Any, pool: Any, *, end_pads: bool) -> Any:
    """Return differences of rewards under one of the two ways to pad."""
    _set(model, tokenizer, end_pads=end_pads)
    if end_pads:
        tokenizer = type(tokenizer).from_pretrained(tokenizer.name_or_path)
        tokenizer.pad_token = tokenizer.eos_token
    first, second = (
        scores(model, tokenizer, pool.prompts, texts) for texts in (pool.first, pool.second)
    )
    return first - second


@torch.no_grad()
def _token_read(model: Any, tokenizer: Any, *, end_pads: bool) -> str:
    """Return the token whose position gives the score, found by comparing all positions."""
    _set(model, tokenizer, end_pads=end_pads)
    ids = tokenizer("a warm answer")["input_ids"] + [tokenizer.eos_token_id]
    given = torch.tensor([ids])
    whole = model.eval()(input_ids=given).logits[0, 0]
    each = model.score(model.model(input_ids=given).last_hidden_state)[0, :, 0]
    place = int((each - whole).abs().argmin())
    return f"{tokenizer.decode(ids[place])!r}, {len(ids) - 1 - place} before the end"


def _agreement(gaps: Any, true: Any) -> float:
    """Return how often the order of two answers is the true one, ties left out."""
    decided = true != 0
    return round(float(np.mean((gaps > 0)[decided] == (true > 0)[decided])), 3)


def defaults(folder: Path) -> dict[str, Any]:
    """Return what trl's trainer sends and sets unless told, and what that costs on a processor."""
    reward, dpo = RewardConfig("unused", use_cpu=True), DPOConfig("unused", use_cpu=True)
    return {
        "settings": {
            type(one).__name__: {
                name: getattr(one, name)
                for name in ("bf16", "gradient_checkpointing", "report_to", "max_length")
            }
            | (
                {"loss_type": one.loss_type, "label_smoothing": one.label_smoothing}
                if one is dpo
                else {}
            )
            for one in (reward, dpo)
        },
        "telemetry": _sent(folder),
        "step": _steps(folder),
        "bf16_on_a_processor": _halved(folder),
    }


def _halved(folder: Path) -> dict[str, float]:
    """Return how far 16-bit arithmetic moves differences of rewards."""
    tokenizer, pool = load_tokenizer(folder), word_pairs(2000, seed=81)
    model = plain_reward(folder, randomized(word_pairs(12_000, seed=8), None))
    exact = reward_gaps(model, tokenizer, pool)
    with torch.autocast("cpu", torch.bfloat16):
        moved = reward_gaps(model, tokenizer, pool)
    return {
        "relative_error_of_gaps": round(float(np.std(moved - exact) / np.std(exact)), 4),
        "orders_that_change": round(float(np.mean((moved > 0) != (exact > 0))), 4),
    }


def _sent(folder: Path) -> dict[str, Any]:
    """Return what is handed to the sender while a trainer is made; nothing leaves this machine."""
    calls: list[dict[str, Any]] = []
    with patch("trl.trainer.base_trainer.send_telemetry", lambda **given: calls.append(given)):
        _trainer(folder, 8)
    return {
        "calls": len(calls),
        "topic": calls[0]["topic"] if calls else None,
        "fields": sorted(calls[0]["user_agent"]) if calls else [],
    }


def _trainer(folder: Path, pairs: int) -> Any:
    """Return trl's reward trainer on a few pairs."""
    tokenizer = load_tokenizer(folder)
    return RewardTrainer(
        model=load_reward_checkpoint(folder, device="cpu"),
        args=RewardConfig(**settings()),
        train_dataset=for_reward(randomized(word_pairs(pairs, seed=3), None), tokenizer),
        processing_class=tokenizer,
    )


class Clock(TrainerCallback):
    """Notes the processor time of every step of a run."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.took: list[float] = []
        self.start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock."""
        self.start = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Read the clock."""
        self.took.append(time.process_time() - self.start)


def _steps(folder: Path, steps: int = 15) -> dict[str, Any]:
    """Return processor time of a step of one model under four settings: the fastest of a run."""
    size = TinyModel(vocabulary=320, width=192, layers=3, heads=4, context=64)
    larger = Path(tempfile.mkdtemp())
    tokenizer = load_tokenizer(folder)
    save_tiny(build_tiny(size, tokenizer), tokenizer, larger)
    ids = torch.randint(6, 300, (8, 2, 48), generator=torch.Generator().manual_seed(0)).tolist()
    rows = Dataset.from_list([{"chosen_ids": one, "rejected_ids": two} for one, two in ids])
    fastest = {}
    for name, (half, again) in WAYS.items():
        clock = Clock()
        RewardTrainer(
            model=load_reward_checkpoint(larger, device="cpu"),
            args=RewardConfig(
                **settings(
                    bf16=half,
                    gradient_checkpointing=again,
                    per_device_train_batch_size=8,
                    max_steps=steps,
                )
            ),
            train_dataset=rows,
            processing_class=tokenizer,
            callbacks=[clock],
        ).train()
        fastest[name] = min(clock.took)
    return {
        "milliseconds": {name: round(1000 * took, 1) for name, took in fastest.items()},
        "times_slower": {name: round(took / fastest["off"], 2) for name, took in fastest.items()},
    }
