"""Measures what each trap of a trainer library costs on randomized labels; writes one JSON file.

The trainers are trl's own, with one setting each as they come; where it says "ours", the private
trainer saw the same randomized answers. Coins come from the operating system, so runs differ.
Needs the extra ``language``; real texts are in the folder ``shared/data`` beside this checkout.

    python benchmarks/utility/language_traps.py --out benchmarks/results/language_traps.json
    python benchmarks/utility/language_traps.py --out FILE --only borders padding
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before trl is loaded: nothing here asks a hub or reports

import argparse
import json
import platform
import statistics
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _trap_metrics import checkpoint_choice, measured_accuracy, repeated_questions
from _trap_texts import borders, likelihoods, overlong, repeated_prompts, sft_texts
from _trap_trainers import defaults, padding
from _trap_training import (
    dpo,
    implicit_gaps,
    plain_reward,
    private_dpo,
    private_reward,
    reward_gaps,
)
from _trap_worlds import randomized, silence, slope, tiny_checkpoint, true_gaps, word_pairs

from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.references.tiny import save_tiny

EPSILONS = (1.0, 0.5)


def _summary(values: Sequence[float]) -> dict[str, float]:
    """Return mean and standard deviation over the runs."""
    return {
        "mean": round(statistics.mean(values), 3),
        "standard_deviation": round(statistics.stdev(values), 3),
    }


def scale(
    folder: Path, runs: int, n: int, gaps: Callable[[Any, Any], Any], ways: dict[str, Any]
) -> dict[str, Any]:
    """Return the slope of estimated on true differences of rewards, of every way of training.

    Args:
        folder: The tiny checkpoint that all start from.
        runs: With labels and coins of their own.
        n: Pairs that are trained on, once each.
        gaps: From a model and pairs to differences of rewards.
        ways: How to train, by name; called with folder and private pairs. The first one is
            trained on labels that were not flipped as well.
    """
    fresh = word_pairs(2000, seed=77)
    found: dict[str, list[float]] = {}

    def note(name: str, train: Any, private: Any) -> None:
        found.setdefault(name, []).append(
            slope(gaps(train(folder, private), fresh), true_gaps(fresh))
        )

    for run in range(runs):
        raw = word_pairs(n, seed=run)
        note("labels that were not flipped", next(iter(ways.values())), randomized(raw, None))
        for epsilon in EPSILONS:
            private = randomized(raw, epsilon)
            for name, train in ways.items():
                note(f"{name}, epsilon={epsilon:g}", train, private)
    clean = statistics.mean(found["labels that were not flipped"])
    return {
        "pairs": n,
        "runs": runs,
        "slope": {name: _summary(values) for name, values in found.items()},
        "share_of_unflipped": {
            name: round(statistics.mean(values) / clean, 3) for name, values in found.items()
        },
    }


def reward_scale(folder: Path) -> dict[str, Any]:
    """Return how much a plain loss shrinks a reward, and ours does not: of a head alone.

    The body is that of a reward of other pairs, which count as public; the head starts at 0, so
    one pass is enough at both epsilons.
    """
    warm = Path(tempfile.mkdtemp())
    public = plain_reward(folder, randomized(word_pairs(12_000, seed=50), None))
    torch.nn.init.zeros_(public.score.weight)
    save_tiny(public, load_tokenizer(folder), warm)
    return _reward_scale(warm, body=False, learning_rate=1e-2)


def reward_scale_all_weights(folder: Path) -> dict[str, Any]:
    """Return the same where all weights learn, from a body that never saw a reward."""
    return _reward_scale(folder)


def _reward_scale(folder: Path, **given: Any) -> dict[str, Any]:
    """Return slopes of the plain and of our loss."""
    tokenizer = load_tokenizer(folder)
    return scale(
        folder,
        3,
        24_000,
        lambda model, pairs: reward_gaps(model, tokenizer, pairs),
        {
            "plain": partial(plain_reward, **given),
            "ours, debiased": partial(private_reward, **given),
        },
    )


def dpo_scale(folder: Path) -> dict[str, Any]:
    """Return how much DPO with its default loss shrinks the reward that it implies."""
    tokenizer, reference = load_tokenizer(folder), load_causal_model(folder, device="cpu")

    def smoothed(folder: Path, private: Any) -> Any:
        return dpo(folder, private, label_smoothing=private.flip_probability)

    return scale(
        folder,
        2,
        16_000,
        lambda model, pairs: implicit_gaps(model, reference, tokenizer, pairs),
        {"sigmoid with label_smoothing": smoothed, "ours, robust": private_dpo},
    ) | {"smoothing_is_ignored": same_weights(folder)}


def same_weights(folder: Path) -> bool:
    """Return whether the default loss gives the same weights with and without label_smoothing."""
    private = randomized(word_pairs(640, seed=5), 1.0)
    with_it, without = (
        dpo(folder, private, label_smoothing=given).state_dict()
        for given in (private.flip_probability, 0.0)
    )
    return all(torch.equal(value, without[name]) for name, value in with_it.items())


TRAPS: dict[str, Callable[[Path], Any]] = {
    "dpo_scale": dpo_scale,
    "reward_scale": reward_scale,
    "reward_scale_all_weights": reward_scale_all_weights,
    "sft_texts": lambda _: sft_texts(),
    "likelihoods": lambda _: likelihoods(),
    "overlong": lambda _: overlong(),
    "borders": lambda _: borders(),
    "padding": padding,
    "defaults": defaults,
    "accuracy": measured_accuracy,
    "checkpoint_choice": checkpoint_choice,
    "repeated_prompts": lambda _: repeated_prompts(),
    "repeated_questions": repeated_questions,
}


def main() -> None:
    """Measure what is asked for, and keep the rest of the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=sorted(TRAPS), default=list(TRAPS))
    given = parser.parse_args()
    silence()
    np.set_printoptions(precision=3)
    folder = tiny_checkpoint(Path(tempfile.mkdtemp()))
    for name in given.only:
        measured = TRAPS[name](folder)
        stored = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {}
        stored = {"name": "language-traps"} | stored | {name: measured, "versions": versions()}
        given.out.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
        print(name, json.dumps(measured), flush=True)


def versions() -> dict[str, str]:
    """Return the versions of what was measured."""
    names = ("sordino", "trl", "transformers", "torch", "tokenizers", "huggingface-hub")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


if __name__ == "__main__":
    main()
