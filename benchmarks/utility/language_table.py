"""Prints as JSON the table of language models: each way to learn, by epsilon of the judgments.

A Llama is trained from scratch on answers of ``judged_answers`` and on ``hh_dialogues`` (texts; no
judgment), on four of five prompts of the first. It is the row SFT. Judgments are pairs of answers
to those prompts, which of the two the file's judge prefers; each is randomized once for every
epsilon, and what is learned from the randomized labels are a reward, a policy that follows it
(REBEL), and a policy by DPO. All is measured on the other prompts, three times, with intervals over
prompts: on held-out pairs, how often the reward of the better answer is larger (``accuracy``; the
reward of a policy is its log-ratio to the reference); over the answers in the file, what the
judge's own preference is of the one with the largest reward (``chosen``); and how often answers
that are drawn win against those of the reference (``win``), before a judge that is a reward trained
on judgments of the held-out prompts. Best of n draws n answers of the reference. Beside them stand
a rule that prefers the longer answer (``longer``) and a linear reward of hashed words.

Columns run side by side, each in a process of its own, and what is there is written after every
row. The judge of the file is a model, not people; answers that do not fit the context are left out.

    python benchmarks/utility/language_table.py [--tiny] [--out FOLDER] [--data FOLDER]
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before trl is loaded: nothing here asks a hub or reports

import argparse
import gzip
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit
from transformers.utils import logging

import sordino
from sordino.language.judging import RewardJudge, win_rate
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.models.generation import (
    Completions,
    answer_log_probabilities,
    padded,
    sample_answers,
)
from sordino.language.models.tokens import DialogueTokens
from sordino.language.references.tiny import (
    TinyModel,
    build_tiny,
    pretrain,
    save_tiny,
    train_tokenizer,
)
from sordino.language.rewards.text_rewards import TextRewardModel
from sordino.language.studies.pipeline import improve_policy, train
from sordino.language.training.private_training import PolicyTerms, TrainingTerms
from sordino.privatization.answers import use_unprotected

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
EPSILONS = (math.inf, 2.0, 0.5, 0.1)
BEST_OF_N, REBEL, DPO = "reward, best of n", "reward, then REBEL", "DPO"
LINEAR = "linear reward of hashed words"  # no language model
HELD_OUT = 0.2  # of the prompts
STARTED = time.perf_counter()


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is."""

    model: TinyModel
    prompts: int | None  # of the file; None for all
    dialogues: int | None  # likewise
    pretraining: int  # steps
    batch: int  # of pretraining
    rate: float  # of pretraining
    warm_up: int  # likewise
    pairs: int  # judgments that are learned from
    judge_pairs: int  # judgments of held-out prompts that the judge learns from
    measured: int  # held-out pairs of each prompt
    reward: TrainingTerms
    dpo: TrainingTerms
    policy: PolicyTerms
    draws: int  # answers of each policy to each prompt
    best_of: int  # n


FULL = Sizes(
    model=TinyModel(vocabulary=8192, width=768, layers=12, heads=12, context=256),
    prompts=None,
    dialogues=None,
    pretraining=800,
    batch=64,
    rate=6e-4,
    warm_up=80,
    pairs=8000,
    judge_pairs=3000,
    measured=40,
    reward=TrainingTerms(batch_size=32, learning_rate=1e-4, overlong="drop"),
    dpo=TrainingTerms(batch_size=32, learning_rate=5e-5, overlong="drop"),
    policy=PolicyTerms(steps=64, batch_size=32, learning_rate=5e-5, max_new_tokens=96),
    draws=4,
    best_of=8,
)
_FEW = TrainingTerms(batch_size=8, learning_rate=1e-3, overlong="drop")
TINY = Sizes(
    model=TinyModel(vocabulary=512, width=32, layers=2, heads=2, context=192),
    prompts=40,
    dialogues=50,
    pretraining=20,
    batch=8,
    rate=2e-3,
    warm_up=2,
    pairs=120,
    judge_pairs=40,
    measured=6,
    reward=_FEW,
    dpo=_FEW,
    policy=PolicyTerms(steps=4, batch_size=4, learning_rate=1e-3, max_new_tokens=12),
    draws=2,
    best_of=2,
)


@dataclass(frozen=True)
class Candidate:
    """An answer in the file."""

    prompt: str
    text: str
    preference: float  # of the judge, over one fixed answer to the same prompt


def read_lines(path: Path, most: int | None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, or the first of them."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if most is not None and number >= most:
                return
            yield json.loads(line)


def candidates(data: Path, sizes: Sizes) -> tuple[list[list[Candidate]], list[list[Candidate]]]:
    """Return the answers to each prompt that is learned from, and to each that is held out."""
    prompts = [
        [Candidate(row["prompt"], one["text"], one["preference"]) for one in row["answers"]]
        for row in read_lines(data / "judged_answers.jsonl.gz", sizes.prompts)
    ]
    prompts = [[one for one in each if one.text.strip()] for each in prompts]
    order = np.random.default_rng(0).permutation(len(prompts)).tolist()
    cut = round(HELD_OUT * len(prompts))
    return [prompts[i] for i in order[cut:]], [prompts[i] for i in order[:cut]]


def fitting(each: list[list[Candidate]], tokens: DialogueTokens) -> list[list[Candidate]]:
    """Return the answers that the model reads whole, with at least one token of their prompt."""
    most = tokens.max_length - 1
    texts = [one.text for some in each for one in some]
    ids = iter(tokens.tokenizer(texts, verbose=False)["input_ids"])
    found = [[one for one in some if len(next(ids)) < most] for some in each]
    return [some for some in found if len(some) > 1]


def drawn_pairs(
    each: list[list[Candidate]], n: int, seed: int
) -> list[tuple[Candidate, Candidate]]:
    """Return n different pairs of answers to one prompt that the judge likes differently."""
    generator, tries = np.random.default_rng(seed), 0
    found: dict[tuple[int, int, int], tuple[Candidate, Candidate]] = {}
    while len(found) < n and tries < 50 * n:
        tries += 1
        at = int(generator.integers(len(each)))
        one, other = (int(i) for i in generator.choice(len(each[at]), 2, replace=False))
        first, second = each[at][one], each[at][other]
        if first.preference != second.preference and first.text != second.text:
            found.setdefault((at, min(one, other), max(one, other)), (first, second))
    return list(found.values())


def as_pairs(drawn: Sequence[tuple[Candidate, Candidate]]) -> Any:
    """Return judgments as the library reads them."""
    return sordino.read_pairs(
        [
            {
                "prompt": first.prompt,
                "first": first.text,
                "second": second.text,
                "label": int(first.preference > second.preference),
            }
            for first, second in drawn
        ]
    )


def released(pairs: Any, epsilon: float, folder: Path) -> Any:
    """Return judgments after their coins, paid for on a ledger of their own."""
    budget = sordino.Guarantee.per_label(epsilon)
    ledger = sordino.Ledger.open(folder / "spend.db", data="judged answers", budget=budget)
    if math.isinf(epsilon):
        return use_unprotected(pairs, sordino.NonPrivate(), ledger=ledger)
    return sordino.privatize(pairs, sordino.RandomizedResponse(epsilon), ledger=ledger)


def mean_over_prompts(values: Sequence[float]) -> dict[str, Any]:
    """Return a mean with Student's interval of 95 percent."""
    n, mean = len(values), float(np.mean(values))
    reach = float(stdtrit(n - 1, 0.975) * np.std(values, ddof=1)) / math.sqrt(n)
    return {"mean": mean, "low": mean - reach, "high": mean + reach, "n": n}


@dataclass(frozen=True)
class Bench:
    """What all rows are measured with."""

    folder: Path
    sizes: Sizes
    learned: list[list[Candidate]]
    held_out: list[list[Candidate]]
    tokens: DialogueTokens

    @classmethod
    def of(cls, data: Path, folder: Path, sizes: Sizes) -> Bench:
        """Return it for a reference that is there."""
        tokens = DialogueTokens(load_tokenizer(folder / "reference"), sizes.model.context)
        learned, held_out = (fitting(each, tokens) for each in candidates(data, sizes))
        return cls(folder, sizes, learned, held_out, tokens)

    @property
    def reference(self) -> Path:
        """Return where the reference lies."""
        return self.folder / "reference"

    @property
    def texts(self) -> tuple[list[str], list[str]]:
        """Return the prompt and text of every answer to a held-out prompt."""
        every = [one for some in self.held_out for one in some]
        return [one.prompt for one in every], [one.text for one in every]

    @property
    def asked(self) -> list[str]:
        """Return each held-out prompt, as often as it is answered."""
        return [some[0].prompt for some in self.held_out for _ in range(self.sizes.draws)]

    @property
    def of_reference(self) -> dict[str, list[str]]:
        """Return what the reference answers, once it has."""
        wait_for(self.folder / "answers.json")
        answers: dict[str, list[str]] = json.loads((self.folder / "answers.json").read_text())
        return answers

    def by_scores(self, scores: np.ndarray) -> dict[str, Any]:
        """Return accuracy, and what is chosen, by a score of every held-out answer."""
        table = dict(zip(zip(*self.texts, strict=True), scores.tolist(), strict=True))

        def score(prompts: Sequence[Any], answers: Sequence[Any]) -> np.ndarray:
            return np.array([table[key] for key in zip(prompts, answers, strict=True)])

        n = self.sizes.measured * len(self.held_out)
        pairs = [
            sorted(pair, key=lambda one: one.preference)
            for pair in drawn_pairs(self.held_out, n, seed=1)
        ]
        worse, better = ([one.text for one in some] for some in zip(*pairs, strict=True))
        won = win_rate(score, [one.prompt for one, _ in pairs], better, worse)
        chosen = []
        for some in self.held_out:
            mine = np.array([table[one.prompt, one.text] for one in some])
            best = np.flatnonzero(mine == mine.max())
            chosen.append(float(np.mean([some[i].preference for i in best])))
        share = {name: getattr(won, name) for name in ("mean", "low", "high", "n")}
        return {"accuracy": share, "chosen": mean_over_prompts(chosen)}

    def log_probabilities(self, model: Any) -> np.ndarray:
        """Return how likely every held-out answer is, in nats."""
        rows = [self.tokens.dialogue(*one) for one in zip(*self.texts, strict=True)]
        padding = self.tokens.tokenizer.pad_token_id
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].prompt) + len(rows[i].answer))
        found = np.empty(len(rows))
        for start in range(0, len(order), 64):
            where = order[start : start + 64]
            prompts = padded([rows[i].prompt for i in where], padding, model.device, left=True)
            answers = padded([rows[i].answer for i in where], padding, model.device)
            with torch.no_grad():
                said = answer_log_probabilities(model.eval(), Completions(*prompts, *answers))
            found[where] = said.double().cpu().numpy()
        return found

    def drawn(self, model: Any, prompts: Sequence[str], seed: int) -> list[str]:
        """Return an answer to each prompt."""
        settings = {"max_new_tokens": self.sizes.policy.max_new_tokens, "batch_size": 256}
        return sample_answers(model, self.tokens.tokenizer, prompts, seed=seed, **settings)

    def won(self, answers: Sequence[str]) -> dict[str, Any]:
        """Return how often answers win against those of the reference."""
        others = self.of_reference["reference"]
        judge = RewardJudge(loaded_reward(self.folder / "judge"))
        found = win_rate(judge, self.asked, answers, others).to_dict()
        return {name: found[name] for name in found if name != "judge_guarantee"}

    def policy_row(self, folder: Path) -> dict[str, Any]:
        """Return how a policy fares."""
        wait_for(self.folder / "answers.json")
        model, before = load_causal_model(folder), np.load(self.folder / "reference.npy")
        scores = self.log_probabilities(model) - before
        return self.by_scores(scores) | {"win": self.won(self.drawn(model, self.asked, seed=3))}


def loaded_reward(folder: Path) -> TextRewardModel:
    """Return a reward that reads many answers at once."""
    return TextRewardModel.load(folder, batch_size=128)


def wait_for(path: Path) -> None:
    """Wait until another process has written a file."""
    while not path.exists():
        time.sleep(0.2)


def prepare(data: Path, folder: Path, sizes: Sizes, said: dict[str, Any]) -> Bench:
    """Build the reference, the judge, and what both say of held-out prompts."""
    learned, _ = candidates(data, sizes)
    texts = [(one.prompt, one.text) for some in learned for one in some]
    texts = [both for both in texts if len(both[1]) < 6 * sizes.model.context]  # others do not fit
    for row in read_lines(data / "hh_dialogues.jsonl.gz", sizes.dialogues):
        turns = [turn["content"] for turn in row["messages"]]
        texts.append((turns[0], turns[1]))
    vocabulary = data / "language_table_vocabulary"  # learned from the same texts before, or here
    tokenizer = (
        load_tokenizer(vocabulary)
        if vocabulary.exists() and sizes.prompts is None
        else train_tokenizer([part for both in texts for part in both], sizes.model)
    )
    model = build_tiny(sizes.model, tokenizer)
    told("vocabulary and weights")
    with on_card(lambda: torch.autocast("cuda", torch.bfloat16)):
        losses = pretrain(
            model, tokenizer, texts, steps=sizes.pretraining, batch_size=sizes.batch,
            learning_rate=sizes.rate, warm_up=sizes.warm_up,
        )  # fmt: skip
    save_tiny(model, tokenizer, folder / "reference")
    weights = sum(one.numel() for one in model.parameters())
    said |= {"weights": weights, "texts": len(texts), "loss": float(np.mean(losses[-50:]))}
    told(f"reference: loss {said['loss']:.3f}")
    (folder / "begun").touch()
    bench = Bench.of(data, folder, sizes)
    pairs = as_pairs(drawn_pairs(bench.held_out, sizes.judge_pairs, seed=2))
    (folder / "judged").mkdir()
    private = released(pairs, math.inf, folder / "judged")
    train("reward", private, bench.reference, folder / "judge", sizes.reward, uncertain=False)
    told("judge")
    said |= {"prompts": len(bench.learned), "held_out_prompts": len(bench.held_out)}
    said |= {"held_out_answers": len(bench.texts[0]), "judge_pairs": len(pairs)}
    scores = loaded_reward(folder / "judge").score(*bench.texts)
    said["longer"] = bench.by_scores(np.array([float(len(text)) for text in bench.texts[1]]))
    said["judge"] = bench.by_scores(scores)  # on the prompts of its own judgments
    model = load_causal_model(bench.reference)
    np.save(folder / "reference.npy", bench.log_probabilities(model))
    many = [prompt for prompt in bench.asked for _ in range(sizes.best_of)]
    answers = {"reference": bench.drawn(model, bench.asked, seed=1)}
    answers["more"] = bench.drawn(model, many, seed=2)
    (folder / "unfinished").write_text(json.dumps(answers))
    (folder / "unfinished").rename(folder / "answers.json")
    told(f"judge {said['judge']['accuracy']['mean']:.3f}, and answers")
    same = bench.by_scores(
        np.zeros(len(scores))
    )  # of no answer the reference says more than of another
    again = bench.won(answers["more"][:: sizes.best_of])
    keep(folder, {"row": "SFT", "epsilon": None} | same | {"win": again})
    return bench


def column(bench: Bench, epsilon: float) -> None:
    """Train and measure the three rows of one epsilon, and keep each when it is there."""
    sizes, place = bench.sizes, bench.folder / f"column-{epsilon:g}"
    place.mkdir()
    private = released(as_pairs(drawn_pairs(bench.learned, sizes.pairs, seed=3)), epsilon, place)
    known = {"epsilon": epsilon if math.isfinite(epsilon) else None}
    known |= {"flip_probability": private.flip_probability, "pairs": len(private)}

    def row(name: str, measured: Callable[[], Mapping[str, Any]]) -> None:
        start = time.monotonic()
        found = {"row": name, **known, **measured()}
        keep(bench.folder, found | {"seconds": round(time.monotonic() - start, 1)})
        told(f"{name}, epsilon {epsilon:g}: {found['accuracy']['mean']:.3f}")

    def best_of_n() -> Mapping[str, Any]:
        told(f"epsilon {epsilon:g}: randomized")
        train("reward", private, bench.reference, place / "reward", sizes.reward, uncertain=False)
        told(f"epsilon {epsilon:g}: reward trained")
        reward = loaded_reward(place / "reward")
        answers = bench.of_reference["more"]
        many = [prompt for prompt in bench.asked for _ in range(sizes.best_of)]
        worth = RewardJudge(reward)(many, answers).reshape(-1, sizes.best_of)
        best = worth.argmax(1) + sizes.best_of * np.arange(len(worth))
        won = bench.won([answers[i] for i in best])
        return bench.by_scores(reward.score(*bench.texts)) | {"win": won}

    def dpo() -> Mapping[str, Any]:
        torch.set_float32_matmul_precision("highest")  # its loss is compared before the first step
        train("policy", private, bench.reference, place / "dpo", sizes.dpo)
        on_card(lambda: torch.set_float32_matmul_precision("high"))
        told(f"epsilon {epsilon:g}: DPO trained")
        return bench.policy_row(place / "dpo")

    def rebel() -> Mapping[str, Any]:
        asked = [some[0].prompt for some in bench.learned]
        reward = loaded_reward(place / "reward")
        log = improve_policy(reward, bench.reference, asked, place / "rebel", sizes.policy)
        told(f"epsilon {epsilon:g}: REBEL trained")
        steps = [one for one in log if "kl" in one]
        return bench.policy_row(place / "rebel") | {"kl": steps[-1]["kl"] if steps else None}

    def linear() -> Mapping[str, Any]:
        reward = sordino.fit_reward(private, features=sordino.HashedText())
        return bench.by_scores(reward.score(*bench.texts))

    for name, measured in ((LINEAR, linear), (BEST_OF_N, best_of_n), (DPO, dpo), (REBEL, rebel)):
        try:
            row(name, measured)
        except Exception:  # noqa: BLE001 (one row less)
            told(f"{name}, epsilon {epsilon:g}, failed: {traceback.format_exc()}")
        on_card(torch.cuda.empty_cache)
    shutil.rmtree(place)


def keep(folder: Path, row: Mapping[str, Any]) -> None:
    """Write one row."""
    name = f"{row['row']}-{row['epsilon']}.json".replace(" ", "-").replace(",", "")
    unfinished = folder / "rows" / f".{name}"
    unfinished.write_text(json.dumps(row))
    unfinished.rename(folder / "rows" / name)


def told(line: str) -> None:
    """Say where the work stands."""
    print(f"{time.perf_counter() - STARTED:.0f} s: {line}", file=sys.stderr, flush=True)


def on_card(make: Callable[[], Any]) -> Any:
    """Return something for accelerators alone."""
    return make() if torch.cuda.is_available() else nullcontext()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, help="where language_table.json is written")
    parser.add_argument("--at-once", type=int, default=4, help="columns side by side")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="when it ends at the latest"
    )
    parser.add_argument("--pretraining", type=int, help="steps")
    parser.add_argument("--pairs", type=int, help="judgments that are learned from")
    parser.add_argument("--column", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    on_card(lambda: torch.set_float32_matmul_precision("high"))
    sizes = TINY if given.tiny else FULL
    asked = {name: getattr(given, name) for name in ("pretraining", "pairs")}
    sizes = replace(sizes, **{name: value for name, value in asked.items() if value})
    if given.column is not None:
        wait_for(given.work / "begun")
        column(Bench.of(given.data, given.work, sizes), given.column)
        return
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as name:
        folder, said = Path(name), dict[str, Any]()
        (folder / "rows").mkdir()
        own = [sys.executable, __file__, "--work", name, "--data", str(given.data)]
        own += ["--tiny"] * given.tiny + ["--pairs", str(sizes.pairs)]
        columns = [[*own, "--column", str(epsilon)] for epsilon in EPSILONS]
        waiting, running = columns[given.at_once :], list[subprocess.Popen[bytes]]()
        try:
            running += map(subprocess.Popen, columns[: given.at_once])
            prepare(given.data, folder, sizes, said)
            on_card(torch.cuda.empty_cache)
            text = ""
            while running and time.monotonic() < end:
                time.sleep(1)
                running = [one for one in running if one.poll() is None]
                while waiting and len(running) < given.at_once:
                    running.append(subprocess.Popen(waiting.pop(0)))
                before, text = text, json.dumps(table(sizes, said, folder / "rows"), indent=1)
                if given.out is not None and text != before:
                    (given.out / "language_table.json").write_text(f"{text}\n")
        finally:
            for one in running:
                one.kill()
        print(text)


def table(sizes: Sizes, said: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return everything that is there as JSON holds it."""
    rows = [json.loads(one.read_text()) for one in folder.glob("[!.]*")]
    order = ["SFT", LINEAR, BEST_OF_N, DPO, REBEL]
    rows.sort(key=lambda one: (order.index(one["row"]), -(one["epsilon"] or math.inf)))
    cuda = torch.cuda.is_available()
    return {
        "name": "language-table",
        "card": torch.cuda.get_device_name() if cuda else "none: the processor",
        "unit": "label",
        "noise": "labels",
        "delta": 0.0,
        **said,
        "sizes": asdict(sizes),
        "rows": rows,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("torch", "transformers", "trl")},
    }


if __name__ == "__main__":
    main()
