"""A small Llama, a few pairs, and the time of a training step of two trainers in turns."""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from datasets import disable_progress_bars
from transformers.utils import logging

import sordino
from sordino.language.references.tiny import TinyModel, build_tiny, save_tiny, train_tokenizer

SIZE = TinyModel(vocabulary=2048, width=192, layers=3, heads=4, context=64)
FLIPS_AT = 1.0


def checkpoint() -> Path:
    """Write a Llama with random weights and return its folder."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    disable_progress_bars()
    warnings.simplefilter("ignore")
    texts = [f"{a * 7919 % 9973} {a * a % 9973} words of answer {a}" for a in range(20_000)]
    tokenizer = train_tokenizer(texts, SIZE)
    folder = Path(tempfile.mkdtemp())
    save_tiny(build_tiny(SIZE, tokenizer), tokenizer, folder)
    return folder


def raw_pairs(n: int) -> Any:
    """Return a few pairs; the steps that are timed read prepared batches instead."""
    records = [
        {"prompt": f"question {i}", "first": f"yes {i}", "second": f"no {i}", "label": i % 2}
        for i in range(n)
    ]
    return sordino.read_pairs(records)


def some_pairs(n: int) -> Any:
    """Return the same pairs, randomized."""
    budget = sordino.Guarantee(
        FLIPS_AT, delta=0.0, unit="label", neighbors=sordino.REPLACE_ONE, trust="central"
    )
    ledger = sordino.Ledger.open(Path(tempfile.mkdtemp()) / "spend.db", data="pairs", budget=budget)
    coin = sordino.RandomizedResponse(FLIPS_AT)
    return sordino.privatize(raw_pairs(n), coin, ledger=ledger)


def settings(pairs: int) -> dict[str, Any]:
    """Return what both trainers are given: full precision, no report, nothing recomputed."""
    return {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": pairs,
        "bf16": False,
        "gradient_checkpointing": False,
        "use_cpu": True,
        "report_to": "none",
        "dataloader_pin_memory": False,
    }


def batch(pairs: int, tokens: int) -> dict[str, Any]:
    """Return both answers of some pairs as tokens, without padding."""
    ids = torch.randint(8, 2000, (2 * pairs, tokens), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def fastest(trainers: dict[str, Any], given: dict[str, Any], *, repeats: int, steps: int) -> Any:
    """Return the fastest step of each trainer, taken in turns: (clock, processor) seconds.

    On a machine that others use as well the processor's seconds are the ones to compare.
    """
    for trainer in trainers.values():
        trainer.current_gradient_accumulation_steps = 1  # set by train(), which is not called
        trainer.model.train()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in trainers}
    for repeat in range(repeats + 1):  # the first warms up
        for name in sorted(trainers, reverse=bool(repeat % 2)):
            took = [_seconds(trainers[name], given) for _ in range(steps)]
            found[name] += took * bool(repeat)
    return {name: tuple(map(min, zip(*took, strict=True))) for name, took in found.items()}


def _seconds(trainer: Any, given: dict[str, Any]) -> tuple[float, float]:
    """Return the time of a step: both directions, without the optimizer, which is the same."""
    start = time.perf_counter(), time.process_time()
    trainer.training_step(trainer.model, dict(given))
    took = time.perf_counter() - start[0], time.process_time() - start[1]
    trainer.model.zero_grad()
    return took


def table(took: dict[str, tuple[float, float]], peer: str) -> dict[str, Any]:
    """Return milliseconds of a step, and how ours compare with the peer's, by both clocks."""
    return {
        "milliseconds": {name: round(1000 * clock, 2) for name, (clock, _) in took.items()},
        "processor_milliseconds": {name: round(1000 * own, 2) for name, (_, own) in took.items()},
        "ours_over_peer": {
            name: round(clock / took[peer][0], 3)
            for name, (clock, _) in took.items()
            if name != peer
        },
        "ours_over_peer_processor": {
            name: round(own / took[peer][1], 3) for name, (_, own) in took.items() if name != peer
        },
    }
