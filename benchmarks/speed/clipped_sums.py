"""Time a step with gradients clipped per pair against one without.

Prints one JSON object. A step is a reward loss on 8 pairs of 48 tokens, its gradients, and AdamW,
on a Llama of width 192, all of it trained or adapters of rank 8. "ours" reads pairs one at a
time, clips the gradient of each and adds them up, as trainers on raw pairs do; noise is that of
the operating system. All take turns in one process on one thread, and the fastest of 15 steps
counts. Memory is what all tensors hold at most during a third step in a process of its own,
weights and AdamW's moments included.

    python benchmarks/speed/clipped_sums.py > benchmarks/results/clipped_sums.json
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any

import torch
from _shared import python, show, versions
from peft import LoraConfig, get_peft_model
from torch.nn.functional import softplus
from torch.profiler import profile
from transformers import LlamaConfig, LlamaForSequenceClassification

from sordino._random import entropy
from sordino.language.dp_sgd.clipping import ClippedSum, add_gradient_noise

DEFAULTS = {"pairs": 8, "tokens": 48, "repeats": 15}
BOUND = 1.0
PEER, OURS, NOISE = "non-private", "ours", ", noise"
KINDS = (PEER, OURS, OURS + NOISE)
CLOCKS = (time.perf_counter, time.process_time)
CASES = tuple(product(("LoRA", "full"), (4096, 32_000)))


class Steps:
    """Whole training steps of one kind on one model."""

    def __init__(self, kind: str, trained: str, words: int, given: Any) -> None:
        """Build the model, its optimizer and the batch."""
        self.kind, self.pairs, self.model = kind, given.pairs, built(trained, words)
        self.trained = [one for one in self.model.parameters() if one.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, fused=True)
        self.ids = torch.randint(1, words, (given.pairs, 2, given.tokens))

    def loss(self, pairs: Any) -> Any:
        """Return the sum of the losses of some pairs."""
        ids = pairs.flatten(0, 1)
        mask = torch.ones_like(ids)
        rewards = self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        preferred, other = rewards.view(-1, 2).unbind(1)
        return softplus(other - preferred).sum()

    def step(self) -> None:
        """Take one step."""
        if self.kind == PEER:
            self.loss(self.ids).backward()
        else:
            self.private()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def private(self) -> None:
        """Leave a sum of clipped gradients where the optimizer looks."""
        total = ClippedSum(self.model, BOUND)
        for pair in self.ids.split(1):
            total.add([partial(self.loss, pair)])
        sums = total.values()
        if self.kind.endswith(NOISE):
            add_gradient_noise(sums, 0.1 * BOUND, entropy=entropy(None))
        for one, found in zip(self.trained, sums, strict=True):
            one.grad = found.to(one)

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
        return float(most + sum(one.nbytes for one in lasting)) / 1e6


def built(trained: str, words: int) -> Any:
    """Return a Llama with a head for rewards."""
    torch.manual_seed(0)
    width = {"hidden_size": 192, "intermediate_size": 576, "num_attention_heads": 4}
    other = {"vocab_size": words, "num_hidden_layers": 3, "pad_token_id": 0, "num_labels": 1}
    model = LlamaForSequenceClassification(LlamaConfig(**width, **other))
    wanted = LoraConfig(r=8, target_modules="all-linear", task_type="SEQ_CLS")
    return (get_peft_model(model, wanted) if trained == "LoRA" else model).train()


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
    for kind in (PEER, OURS):
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
    used = versions("sordino", "torch", "transformers", "peft")
    sizes["date"] = datetime.now(UTC).date().isoformat()
    show({"name": "clipped-sums", **sizes, "results": results, "versions": used})


if __name__ == "__main__":
    main()
