"""Time a training step of private DPO against trl's own trainer on the same batch.

Prints one JSON object. A step is the loss and its gradients, reference included; both trainers see
the same prepared batch of 8 pairs, 48 tokens each, and take turns in one process on one thread. The
fastest of the repeats counts. The peer has its default loss.

    python benchmarks/speed/dpo_step.py > benchmarks/results/dpo_step.json
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
from trl import DPOConfig, DPOTrainer

from sordino.language import PrivateDPOConfig, PrivateDPOTrainer
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer

PEER, PROMPT = "trl DPOTrainer", 16


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
    trainers = {PEER: peer(folder, given.pairs), "ours": ours(folder, given.pairs)}
    rows = batch(given.pairs, given.tokens)
    answers = rows["attention_mask"].clone()
    answers[:, :PROMPT] = 0
    rows |= {"completion_mask": answers}
    took = fastest(trainers, rows, repeats=given.repeats, steps=given.steps)
    show(
        {
            "name": "dpo-step",
            "pairs": given.pairs,
            "tokens": given.tokens,
            "prompt_tokens": PROMPT,
            "model": "Llama, 3 layers, width 192",
            "threads": 1,
            "repeats": given.repeats,
            "steps_each": given.steps,
            **table(took, PEER),
            "versions": versions("sordino", "torch", "transformers", "trl"),
        }
    )


def ours(folder: str | Path, pairs: int) -> PrivateDPOTrainer:
    """Return our trainer."""
    return PrivateDPOTrainer(
        model=load_causal_model(folder, device="cpu"),
        args=PrivateDPOConfig(**settings(pairs)),
        train_dataset=some_pairs(pairs),
        processing_class=load_tokenizer(folder),
    )


def peer(folder: str | Path, pairs: int) -> DPOTrainer:
    """Return trl's trainer."""
    row = {
        "prompt": [{"role": "user", "content": "question"}],
        "chosen": [{"role": "assistant", "content": "yes"}],
        "rejected": [{"role": "assistant", "content": "no"}],
    }
    return DPOTrainer(
        model=load_causal_model(folder, device="cpu"),
        args=DPOConfig(**settings(pairs)),
        train_dataset=Dataset.from_list([row] * pairs),
        processing_class=load_tokenizer(folder),
    )


if __name__ == "__main__":
    main()
