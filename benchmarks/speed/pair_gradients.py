"""Time a step with gradients clipped per pair against one without, beside opacus hooks.

Prints one JSON object. A step is a reward loss on 8 pairs of 48 tokens, its gradients, and AdamW,
on a Llama of width 192, all of it trained or adapters of rank 8. "ours" clips by norms of pairs,
"opacus" folds what its hooks find for rows; noise is apart. All take turns in one process on one
thread, and the fastest of 15 steps counts. Memory is what all tensors hold at most during a
third step in a process of its own, weights and AdamW's moments included.

    python benchmarks/speed/pair_gradients.py > benchmarks/results/pair_gradients.json
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from itertools import product
from typing import Any

import torch
from _shared import python, show, versions
from opacus.grad_sample import GradSampleHooks
from peft import LoraConfig, get_peft_model
from torch.nn.functional import softplus
from torch.profiler import profile
from transformers import LlamaConfig, LlamaForSequenceClassification

from sordino.language.clipping.pair_gradients import PairGradients, rows_of_pairs

DEFAULTS = {"pairs": 8, "tokens": 48, "repeats": 15}
BOUND = 1.0
PEER, OURS, OPACUS, NOISE = "non-private", "ours", "opacus", ", noise"
KINDS = (PEER, OURS, OPACUS, OURS + NOISE, OPACUS + NOISE)
CLOCKS = (time.perf_counter, time.process_time)
CASES = tuple(product(("LoRA", "full"), (4096, 32_000)))


class Steps:
    """Whole training steps of one kind on one model."""

    def __init__(self, kind: str, trained: str, words: int, given: Any) -> None:
        """Build the model, its optimizer and the batch."""
        self.kind, self.pairs, self.model = kind, given.pairs, built(trained, words)
        self.trained = [one for one in self.model.parameters() if one.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, fused=True)
        ids = torch.randint(1, words, (2 * given.pairs, given.tokens))
        self.rows = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
        if kind.startswith(OPACUS):
            GradSampleHooks(self.model, loss_reduction="sum")

    def losses(self) -> Any:
        """Return the loss of each pair."""
        preferred, other = self.model(**self.rows).logits[:, 0].chunk(2)
        return softplus(other - preferred)

    def step(self) -> None:
        """Take one step."""
        if self.kind.startswith(OURS):
            units = PairGradients(self.model, rows_of_pairs(self.pairs))
            with units.listening():
                self.losses().sum().backward()
            units.add_clipped(BOUND)
        else:
            self.losses().sum().backward()
        if self.kind.startswith(OPACUS):
            fold(self.trained)
        if self.kind.endswith(NOISE):
            for one in self.trained:
                one.grad.add_(torch.randn_like(one), alpha=0.1 * BOUND)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def peak(self) -> float:
        """Return megabytes of all tensors where they are most, in a third step."""
        self.step()
        self.step()
        moments = [one for state in self.optimizer.state.values() for one in state.values()]
        lasting = [*self.model.parameters(), *self.model.buffers(), *moments]
        with profile(profile_memory=True) as seen:
            self.step()
        now = most = 0
        for event in seen.profiler.kineto_results.events():
            now += event.nbytes() * (event.name() == "[memory]")
            most = max(most, now)
        return (most + sum(one.nbytes for one in lasting)) / 1e6


def built(trained: str, words: int) -> Any:
    """Return a Llama with a head for rewards."""
    torch.manual_seed(0)
    width = {"hidden_size": 192, "intermediate_size": 576, "num_attention_heads": 4}
    other = {"vocab_size": words, "num_hidden_layers": 3, "pad_token_id": 0, "num_labels": 1}
    model = LlamaForSequenceClassification(LlamaConfig(**width, **other))
    wanted = LoraConfig(r=8, target_modules="all-linear", task_type="SEQ_CLS")
    return (get_peft_model(model, wanted) if trained == "LoRA" else model).train()


@torch.no_grad()
def fold(trained: list[Any]) -> None:
    """Replace gradients by clipped sums of those of pairs, which are two rows each."""
    pairs = [sum(one.grad_sample.chunk(2)).flatten(1) for one in trained]
    norms = torch.stack([one.norm(dim=1) for one in pairs]).norm(dim=0)
    factors = BOUND / norms.clamp(min=BOUND)
    for one, apart in zip(trained, pairs, strict=True):
        one.grad, one.grad_sample = (factors @ apart).view_as(one), None


def fastest(steps: dict[str, Steps], given: Any) -> dict[str, Any]:
    """Return milliseconds of the fastest step of each kind, and ratios by both clocks."""
    found: dict[str, list[list[float]]] = {kind: [] for kind in steps}
    for repeat in range(given.repeats + 1):  # the first warms up
        for kind in sorted(steps, reverse=bool(repeat % 2)):
            start = [clock() for clock in CLOCKS]
            steps[kind].step()
            took = [clock() - one for clock, one in zip(CLOCKS, start, strict=True)]
            found[kind] += [took] * bool(repeat)
    clock, processor = (
        {kind: 1000 * min(one[at] for one in took) for kind, took in found.items()} for at in (0, 1)
    )
    rounded = {kind: round(took, 2) for kind, took in clock.items()}
    by_both = {"over_non_private": ratios(clock), "over_non_private_processor": ratios(processor)}
    return {"milliseconds": rounded, **by_both}


def ratios(found: dict[str, float]) -> dict[str, float]:
    """Return all others over the one without privacy."""
    return {kind: round(one / found[PEER], 3) for kind, one in found.items() if kind != PEER}


def memory(trained: str, words: int) -> dict[str, Any]:
    """Return the peak of each kind, in a process of its own."""
    found = {}
    for kind in (PEER, OURS, OPACUS):
        command = python(*sys.argv, "--peak", kind, trained, str(words))
        found[kind] = round(float(subprocess.check_output(command, stderr=subprocess.DEVNULL)), 1)
    return {"megabytes": found, "over_non_private": ratios(found)}


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--peak", nargs=3, help="a kind, what is trained, words: print its peak")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if given.peak:
        kind, trained, words = given.peak
        print(Steps(kind, trained, int(words), given).peak())
        return
    results = {}
    for trained, words in CASES:
        steps = {kind: Steps(kind, trained, words, given) for kind in KINDS}
        memories = {"memory": memory(trained, words)}
        results[f"{trained}, {words} words"] = fastest(steps, given) | memories
    sizes = {name: getattr(given, name) for name in DEFAULTS} | {"threads": 1}
    used = versions("sordino", "torch", "transformers", "peft", "opacus")
    show({"name": "pair-gradients", **sizes, "results": results, "versions": used})


if __name__ == "__main__":
    main()
