"""Traps of looking: accuracy on randomized answers, the best checkpoint, repeated questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from _trap_training import plain_reward, reward_gaps
from _trap_worlds import randomized, true_gaps, word_pairs
from transformers import TrainerCallback

import sordino
from sordino.language.models.checkpoints import load_tokenizer

EPSILONS = (0.5, 1.0, 2.0)


class Watch(TrainerCallback):
    """Notes the differences of rewards on public pairs while a reward is trained."""

    def __init__(self, tokenizer: Any, pairs: Any, every: int) -> None:
        """Keep what is looked at, and how often."""
        self.tokenizer, self.pairs, self.every = tokenizer, pairs, every
        self.seen: list[Any] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Look every so many steps."""
        del args, control
        if state.global_step % self.every == 0:
            model = given["model"]
            self.seen.append(reward_gaps(model, self.tokenizer, self.pairs))
            model.train()


def measured_accuracy(folder: Path) -> dict[str, Any]:
    """Return what one reward scores on true, on randomized and on debiased answers."""
    pool = word_pairs(20_000, seed=78)
    model = plain_reward(folder, randomized(word_pairs(12_000, seed=4), None))
    gaps = reward_gaps(model, load_tokenizer(folder), pool)
    result: dict[str, Any] = {
        "pairs": len(pool),
        "raw": round(float(np.mean((gaps > 0) == (np.asarray(pool.labels) == 1))), 4),
    }
    for epsilon in EPSILONS:
        private = randomized(pool, epsilon)
        flip = private.flip_probability
        seen = float(np.mean((gaps > 0) == (private.answers == 1)))
        result[f"epsilon={epsilon:g}"] = {
            "randomized": round(seen, 4),
            "debiased": round((seen - flip) / (1 - 2 * flip), 4),
            "an_accuracy_of_0.8_reads": round(0.8 * (1 - flip) + 0.2 * flip, 4),
        }
    return result


def checkpoint_choice(folder: Path, *, checkpoints: int = 8, draws: int = 2000) -> dict[str, Any]:
    """Return how often one changed label changes which checkpoint is best on raw labels."""
    pool = word_pairs(2000, seed=79)
    watch = Watch(load_tokenizer(folder), pool, every=12)
    plain_reward(
        folder,
        randomized(word_pairs(128 * 12 * checkpoints, seed=6), None),
        callbacks=[watch],
    )
    right = np.array(watch.seen) > 0
    true = 1 / (1 + np.exp(-true_gaps(pool)))
    rng = np.random.default_rng(0)
    result: dict[str, Any] = {"checkpoints": len(right), "draws": draws}
    for n in (100, 300, 1000):
        result[f"{n} validation pairs"] = round(
            float(np.mean([_moved(right, true, n, rng) for _ in range(draws)])), 3
        )
    return result


def _moved(right: Any, true: Any, n: int, rng: np.random.Generator) -> bool:
    """Return whether there is a label whose change alone changes the best checkpoint."""
    rows = rng.choice(len(true), n, replace=False)
    labels = rng.random(n) < true[rows]
    agree = right[:, rows] == labels  # checkpoint by pair
    counts = agree.sum(axis=1)
    after = counts[:, None] + np.where(agree, -1, 1)
    return bool(np.any(after.argmax(axis=0) != counts.argmax()))


def repeated_questions(folder: Path, *, questions: int = 300, people: int = 8) -> dict[str, Any]:
    """Return the accuracy of a reward that can only remember, by how validation is split off.

    What is preferred is drawn for each question by itself, so nothing about other questions can be
    learned: an honest accuracy is one half.
    """
    taste = np.random.default_rng(1).normal(scale=2.0, size=questions)
    asked = word_pairs(questions, seed=11)
    rows = np.repeat(np.arange(questions), people)
    rng = np.random.default_rng(2)
    labels = rng.random(len(rows)) < 1 / (1 + np.exp(-taste[rows]))
    by_row = rng.random(len(rows)) < 0.2
    by_question = (rng.random(questions) < 0.2)[rows]
    return {"questions": questions, "people": people} | {
        name: _accuracy(folder, asked, rows, labels, held)
        for name, held in (("split_by_row", by_row), ("split_by_question", by_question))
    }


def _accuracy(folder: Path, asked: Any, rows: Any, labels: Any, held: Any) -> float:
    """Return the accuracy on held-out rows of a reward that was trained on the others."""
    train, test = (_pairs(asked, rows[mask], labels[mask]) for mask in (~held, held))
    model = plain_reward(folder, randomized(train, None), num_train_epochs=20)
    gaps = reward_gaps(model, load_tokenizer(folder), test)
    return round(float(np.mean((gaps > 0) == (np.asarray(test.labels) == 1))), 3)


def _pairs(asked: Any, rows: Any, labels: Any) -> Any:
    """Return the pairs that people answered."""
    return sordino.read_pairs(
        [
            {"prompt": asked.prompts[row], "first": asked.first[row], "second": asked.second[row],
             "label": int(label)}
            for row, label in zip(rows, labels, strict=True)
        ]
    )  # fmt: skip
