"""Small worlds in which the damage of a trap can be measured: known rewards, tiny models, coins."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, disable_progress_bars
from transformers.utils import logging

import sordino
from sordino.language.models.tokens import DialogueTokens
from sordino.language.references.tiny import (
    TinyModel,
    both_answers,
    build_tiny,
    pretrain,
    save_tiny,
    train_tokenizer,
)
from sordino.preferences.features import flatten

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
GOOD, BAD = ("kind", "clear", "useful", "warm"), ("rude", "vague", "wrong", "cold")
PLAIN = ("the", "answer", "is", "about", "bread", "music", "water", "paper")
SIZE = TinyModel(vocabulary=320, width=32, layers=2, heads=2, context=64)


def silence() -> None:
    """Leave standard output to the result."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    disable_progress_bars()
    warnings.simplefilter("ignore")


def liking(answer: str) -> float:
    """Return what the simulated people like: good words, not bad ones."""
    words = answer.split()
    return sum((word in GOOD) - (word in BAD) for word in words) / 2


def word_pairs(n: int, seed: int) -> Any:
    """Return pairs whose labels follow Bradley-Terry with :func:`liking` as the reward."""
    rng = np.random.default_rng(seed)
    records: list[dict[str, Any]] = []
    while len(records) < n:
        words = rng.choice([*GOOD, *BAD, *PLAIN, *PLAIN], size=(2, 5))
        first, second = (" ".join(row[: rng.integers(2, 6)]) for row in words)
        if first == second:
            continue
        label = rng.random() < 1 / (1 + np.exp(liking(second) - liking(first)))
        prompt = f"tell me about {rng.choice(PLAIN)}"
        records.append({"prompt": prompt, "first": first, "second": second, "label": int(label)})
    return sordino.read_pairs(records)


def randomized(pairs: Any, epsilon: float | None) -> Any:
    """Return private pairs from fresh coins; None flips nothing and protects nobody."""
    budget = sordino.Guarantee(
        float("inf") if epsilon is None else epsilon,
        delta=0.0,
        unit="label",
        neighbors=sordino.REPLACE_ONE,
        trust="central",
    )
    with tempfile.TemporaryDirectory() as folder:
        ledger = sordino.Ledger.open(Path(folder) / "spend.db", data="words", budget=budget)
        if epsilon is None:
            from sordino.privatization.answers import use_unprotected

            return use_unprotected(pairs, sordino.NonPrivate(), ledger=ledger)
        return sordino.privatize(pairs, sordino.RandomizedResponse(epsilon), ledger=ledger)


def tiny_checkpoint(folder: Path, *, steps: int = 300) -> Path:
    """Write a tiny model that was pretrained on both answers of public pairs; return its folder."""
    dialogues = list(both_answers(word_pairs(1000, seed=9)))
    tokenizer = train_tokenizer(
        flatten([text for both in dialogues for text in both], "dialogues"), SIZE
    )
    model = build_tiny(SIZE, tokenizer)
    pretrain(model, tokenizer, dialogues, steps=steps, batch_size=32, learning_rate=5e-3)
    save_tiny(model, tokenizer, folder)
    return folder


def ordered(private: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """Return prompts and answers as tokens; chosen is what the randomized label prefers."""
    first, second, rows = DialogueTokens(tokenizer, SIZE.context).pairs(private)
    return [
        {
            "prompt": one.prompt,
            "chosen": (one if private.answers[row] else other).answer,
            "rejected": (other if private.answers[row] else one).answer,
        }
        for one, other, row in zip(first, second, rows, strict=True)
    ]


def for_reward(private: Any, tokenizer: Any) -> Dataset:
    """Return what trl's reward trainer takes as tokenized."""
    return Dataset.from_list(
        [
            {key + "_ids": row["prompt"] + row[key] for key in ("chosen", "rejected")}
            for row in ordered(private, tokenizer)
        ]
    )


def for_dpo(private: Any) -> Dataset:
    """Return what trl's DPO trainer takes: chat messages."""
    rows = zip(private.prompts, private.first, private.second, private.answers, strict=True)
    return Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": prompt}],
                "chosen": [{"role": "assistant", "content": first if answer else second}],
                "rejected": [{"role": "assistant", "content": second if answer else first}],
            }
            for prompt, first, second, answer in rows
        ]
    )


def true_gaps(pairs: Any) -> Any:
    """Return the true difference of rewards of each pair."""
    both = zip(pairs.first, pairs.second, strict=True)
    return np.array([liking(first) - liking(second) for first, second in both])


def slope(estimated: np.ndarray, true: np.ndarray) -> float:
    """Return how much of a true difference of rewards an estimated one shows; 1 is calibrated."""
    return float(estimated @ true / (true @ true))
