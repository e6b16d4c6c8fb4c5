"""Time and weigh a step of DP-SGD on an accelerator: ours, opacus, and trl without privacy.

Prints one JSON object. A step is that of a reward on 16 pairs of 256 tokens, its gradients and
AdamW, on a Llama with random weights: all of 110 million, or adapters of rank 16 on 1.2 billion.
All see the same prepared batch and the same weights, one after the other in one process. Ours is
the trainer itself, on a ledger, with noise of the operating system; but in place of the units that
its coins draw the whole batch takes part in every step. Opacus finds the gradient of every answer,
the two of a pair are added, and its optimizer clips them and adds noise of torch's generator. Only
the peer that is marked so rounds products to 16 bits. The fastest step counts; memory is what
tensors hold at most during the steps, weights and AdamW's moments included. Without an accelerator
only --tiny is worth trying, and memory is not measured.

    cd benchmarks/results
    python ../speed/accelerator.py > accelerator.json
    python ../speed/accelerator.py --pairs 64 --steps 2 > accelerator_64.json
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before trl is loaded: nothing here asks a hub or reports

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _shared import show, versions
from _trainers import batch, checkpoint, raw_pairs, settings
from datasets import Dataset
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from peft import LoraConfig, get_peft_model
from torch.nn.functional import softplus
from transformers import LlamaConfig, LlamaForSequenceClassification
from trl import RewardConfig, RewardTrainer

import sordino
from sordino._random import entropy
from sordino.errors import UsageError
from sordino.language import CentralPrivacy, CentralRewardConfig, CentralRewardTrainer
from sordino.language.dp_sgd.training import TokenPair
from sordino.language.models.checkpoints import default_device, load_tokenizer
from sordino.privacy.accounting import composed_epsilon

RECORDS, CLIP, RATE = 20_000, 1.0, 1e-4
BUDGET = sordino.Guarantee(
    8.0, delta=1e-6, unit="record", neighbors=sordino.ADD_OR_REMOVE_ONE, trust="central"
)
OURS, OPACUS, PEER, HALVES = "ours", "opacus", "trl, no privacy", "trl, no privacy, bf16 autocast"
HALF_BASE = "ours, bf16 base"


@dataclass(frozen=True)
class Case:
    """A size of model, and what of it is trained."""

    model: dict[str, int]
    rank: int | None = None
    kinds: tuple[str, ...] = (OURS, OPACUS, PEER, HALVES)

    def built(self, device: str) -> Any:
        """Return the same weights every time."""
        torch.manual_seed(0)
        with torch.device(device):
            return LlamaForSequenceClassification(
                LlamaConfig(**self.model, num_labels=1, pad_token_id=0, use_cache=False)
            )

    @property
    def adapters(self) -> LoraConfig | None:
        """Return what is trained beside the head, or None for everything."""
        if self.rank is None:
            return None
        named = {"target_modules": "all-linear", "modules_to_save": ["score"]}
        return LoraConfig(r=self.rank, lora_alpha=self.rank, task_type="SEQ_CLS", **named)


def llama(
    width: int, inner: int, layers: int, heads: tuple[int, int], words: int
) -> dict[str, Any]:
    """Return the size of a Llama."""
    return {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads[0], "num_key_value_heads": heads[1], "vocab_size": words,
    }  # fmt: skip


BASES = (*(OURS, OPACUS, PEER, HALVES), HALF_BASE)
CASES = {
    "all weights": Case(llama(768, 2048, 12, (12, 12), 32_000)),
    "adapters": Case(llama(2048, 8192, 16, (32, 8), 128_256), 16, BASES),
}
TINY = {
    "all weights": Case(llama(64, 128, 2, (4, 4), 2048)),
    "adapters": Case(llama(64, 128, 2, (4, 2), 2048), 4, BASES),
}


class WholeBatch(CentralRewardTrainer):
    """The trainer, in whose steps every unit takes part, whatever the coins say."""

    def _drawn(self, entropy: Any) -> Sequence[int]:
        super()._drawn(entropy)
        return range(len(self._units))


class Bench:
    """The batch, and the steps of every kind on it."""

    def __init__(self, given: argparse.Namespace) -> None:
        """Prepare what all share."""
        self.given, self.device = given, default_device()
        self.batch = batch(given.pairs, given.tokens)
        self.tokenizer = load_tokenizer(checkpoint())
        self.tokenizer.model_max_length = given.tokens
        chance = given.pairs / RECORDS
        self.privacy = CentralPrivacy(
            BUDGET.epsilon,
            BUDGET.delta,
            unit="record",
            neighbors=BUDGET.neighbors,
            sampling_probability=chance,
            steps=given.total_steps,
            expected_batch=float(given.pairs),
            clip=CLIP,
        )

    def measured(self, case: Case, kind: str) -> dict[str, Any]:
        """Return milliseconds and memory of a kind, or why there are none."""
        make = {OURS: self.ours, HALF_BASE: self.ours, OPACUS: self.opacus}.get(kind, self.peer)
        try:
            step, extra = make(case, kind)
            found = self.timed(step, self.given.steps)
            return found | (extra() if extra else {})
        except UsageError as error:
            return {"refused": str(error)}
        except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
            return {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"}

    def timed(self, step: Callable[[], object], steps: int) -> dict[str, Any]:
        """Return milliseconds of the fastest and the middle step, and the peak, after one more."""
        step()
        self.forget_peak()
        took = []
        for _ in range(steps):
            start = time.perf_counter()
            step()
            self.wait()
            took.append(1000 * (time.perf_counter() - start))
        fastest, middle = round(min(took), 2), round(statistics.median(took), 2)
        return {"milliseconds": fastest, "median_milliseconds": middle, "peak_gb": self.peak()}

    def wait(self) -> None:
        """Wait for the accelerator."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def forget_peak(self) -> None:
        """Measure memory from here on."""
        self.wait()
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> float | None:
        """Return the most gigabytes that tensors held since."""
        cuda = self.device == "cuda"
        return round(torch.cuda.max_memory_allocated() / 1e9, 2) if cuda else None

    def optimizer(self, model: Any) -> torch.optim.Optimizer:
        """Return AdamW on what is trained."""
        trained = [one for one in model.parameters() if one.requires_grad]
        return torch.optim.AdamW(trained, lr=RATE, fused=True)

    def ours(self, case: Case, kind: str) -> Any:
        """Return a step of the trainer on raw pairs, and how long its parts take."""
        pairs, model = self.given.pairs, case.built(self.device)
        if kind == HALF_BASE:
            model = model.to(torch.bfloat16)
        path = Path(tempfile.mkdtemp()) / "spend.db"
        usual = settings(pairs) | {"use_cpu": self.device == "cpu", "save_strategy": "no"}
        del usual["per_device_train_batch_size"]
        trainer = WholeBatch(
            model=model,
            args=CentralRewardConfig(**usual),
            train_dataset=raw_pairs(pairs),
            privacy=self.privacy,
            ledger=sordino.Ledger.open(path, data="pairs", budget=BUDGET),
            processing_class=self.tokenizer,
            peft_config=case.adapters,
            declare_unread=True,  # random weights
        )
        first, second = (half.tolist() for half in self.batch["input_ids"].chunk(2))
        trainer._units = [(TokenPair(*both, 1.0),) for both in zip(first, second, strict=True)]
        model = trainer.model.train()
        optimizer = self.optimizer(model)
        self.forget_peak()
        start = time.perf_counter()
        trainer._test(model)
        self.wait()
        check: dict[str, float | None] = {"check_seconds": round(time.perf_counter() - start, 2)}
        check["check_peak_gb"] = self.peak()

        def step() -> None:
            trainer.training_step(model, {})
            optimizer.step()
            optimizer.zero_grad()

        def parts() -> dict[str, Any]:
            chosen, coins = range(pairs), entropy(None)
            sums = trainer._clipped_sums(model, chosen)
            clipped = self.timed(lambda: trainer._clipped_sums(model, chosen), 2)
            noise = self.timed(lambda: trainer._add_noise(sums, coins), 2)
            named = {"clipped sum": clipped, "noise": noise}
            return {"parts": {name: one["milliseconds"] for name, one in named.items()}} | check

        return step, parts

    def opacus(self, case: Case, _: str) -> Any:
        """Return a step of opacus on gradients of answers, those of a pair added."""
        model = case.built(self.device)
        model = get_peft_model(model, case.adapters) if case.adapters else model
        model = GradSampleModule(model.train(), loss_reduction="sum")
        noise = {"noise_multiplier": self.privacy.noise_multiplier, "max_grad_norm": CLIP}
        usual = {"expected_batch_size": self.given.pairs, "loss_reduction": "sum"}
        optimizer = DPOptimizer(self.optimizer(model), **noise, **usual)
        trained = [one for one in model.parameters() if one.requires_grad]
        given = {name: one.to(self.device) for name, one in self.batch.items()}

        def step() -> None:
            preferred, other = model(**given).logits.squeeze(-1).chunk(2)
            softplus(other - preferred).sum().backward()
            for one in trained:
                one.grad_sample = torch.add(*one.grad_sample.chunk(2))
            optimizer.step()
            optimizer.zero_grad()

        return step, None

    def peer(self, case: Case, kind: str) -> Any:
        """Return a step of trl's trainer."""
        rows = [{"chosen_ids": [8, 9], "rejected_ids": [9, 8]}] * self.given.pairs
        usual = settings(self.given.pairs) | {"use_cpu": self.device == "cpu"}
        trainer = RewardTrainer(
            model=case.built(self.device),
            args=RewardConfig(**usual),
            train_dataset=Dataset.from_list(rows),
            processing_class=self.tokenizer,
            peft_config=case.adapters,
        )
        trainer.current_gradient_accumulation_steps = 1  # set by train(), which is not called
        model = trainer.model.train()
        optimizer = self.optimizer(model)
        rounded = partial(torch.autocast, self.device, torch.bfloat16)
        around = rounded if kind == HALVES else nullcontext

        def step() -> None:
            with around():
                trainer.training_step(model, dict(self.batch))
            optimizer.step()
            optimizer.zero_grad()

        return step, None


def sizes(case: Case) -> dict[str, int]:
    """Return how many weights there are, and how many are trained."""
    model = case.built("meta")
    total = sum(one.numel() for one in model.parameters())
    model = get_peft_model(model, case.adapters) if case.adapters else model
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    return {"weights": total, "trained": trained}


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5, help="steps that are timed")
    parser.add_argument("--total-steps", type=int, default=1000, help="steps that epsilon is of")
    parser.add_argument("--kinds", nargs="*", help="these of the peers alone")
    parser.add_argument("--cases", nargs="*", help="these of the sizes alone")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    given = parser.parse_args()
    if given.tiny:
        given.pairs, given.tokens = min(given.pairs, 3), min(given.tokens, 16)
    bench, results = Bench(given), {}
    for name, case in (TINY if given.tiny else CASES).items():
        if given.cases and name not in given.cases:
            continue
        found = {}
        for kind in given.kinds or case.kinds:
            found[kind] = bench.measured(case, kind)
            print(name, kind, found[kind], file=sys.stderr, flush=True)
            gc.collect()
            torch.cuda.empty_cache()
        usual = found.get(PEER, {}).get("milliseconds")
        for one in found.values():
            if usual and "milliseconds" in one:
                one["over_trl"] = round(one["milliseconds"] / usual, 2)
        results[name] = {"model": case.model, "rank": case.rank, **sizes(case), "kinds": found}
    privacy = bench.privacy
    paid = [(privacy.event(privacy.steps), 1)]
    spent = composed_epsilon(paid, neighbors=privacy.neighbors, delta=privacy.delta)
    cuda = bench.device == "cuda"
    show(
        {
            "name": "accelerator",
            "card": torch.cuda.get_device_name() if cuda else "none: the processor",
            "pairs": given.pairs,
            "tokens": given.tokens,
            "steps_each": given.steps,
            "privacy": privacy.to_dict() | {"records": RECORDS, "epsilon_of_all_steps": spent},
            "cases": results,
            "date": datetime.now(UTC).date().isoformat(),
            "versions": versions("sordino", "torch", "transformers", "trl", "peft", "opacus"),
        }
    )


if __name__ == "__main__":
    main()
