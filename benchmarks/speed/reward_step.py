"""Time a training step of a private reward against trl's own trainer on the same batch.

Prints one JSON object. A step is the loss and its gradients; both trainers see the same prepared
batch of 8 pairs, 48 tokens each, and take turns in one process on one thread. The fastest
step of 15 rounds counts. With debiasing the loss has two more terms of size n.

    python benchmarks/speed/reward_step.py > benchmarks/results/reward_step.json
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before trl is loaded: nothing here asks a hub or reports
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
from pathlib import Path

import torch
from _shared import show, versions
from _trainers import batch, checkpoint, fastest, settings, some_pairs, table
from datasets import Dataset
from trl import RewardConfig, RewardTrainer

from sordino.language import PrivateRewardConfig, PrivateRewardTrainer
from sordino.language.models.checkpoints import load_reward_checkpoint, load_tokenizer

PEER = "trl RewardTrainer"


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = checkpoint()
    trainers = {PEER: peer(folder, given.pairs)} | {
        loss: ours(folder, given.pairs, loss) for loss in ("debiased", "mixture")
    }
    rows = batch(given.pairs, given.tokens)
    took = fastest(trainers, rows, repeats=given.repeats, steps=given.steps)
    show(
        {
            "name": "reward-step",
            "pairs": given.pairs,
            "tokens": given.tokens,
            "model": "Llama, 3 layers, width 192",
            "threads": 1,
            "repeats": given.repeats,
            "steps_each": given.steps,
            **table(took, PEER),
            "versions": versions("sordino", "torch", "transformers", "trl"),
        }
    )


def ours(folder: str | Path, pairs: int, loss: str) -> PrivateRewardTrainer:
    """Return our trainer."""
    return PrivateRewardTrainer(
        model=load_reward_checkpoint(folder, device="cpu"),
        args=PrivateRewardConfig(loss=loss, **settings(pairs)),
        train_dataset=some_pairs(pairs),
        processing_class=load_tokenizer(folder),
    )


def peer(folder: str | Path, pairs: int) -> RewardTrainer:
    """Return trl's trainer."""
    rows = [{"chosen_ids": [8, 9], "rejected_ids": [9, 8]}] * pairs
    return RewardTrainer(
        model=load_reward_checkpoint(folder, device="cpu"),
        args=RewardConfig(**settings(pairs)),
        train_dataset=Dataset.from_list(rows),
        processing_class=load_tokenizer(folder),
    )


if __name__ == "__main__":
    main()
