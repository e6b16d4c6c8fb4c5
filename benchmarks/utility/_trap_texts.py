"""Traps that sit in the texts: what was trained on before, what is cut, and where tokens end."""

from __future__ import annotations

import copy
import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from _trap_training import log_likelihoods, settings
from _trap_worlds import DATA
from datasets import Dataset
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer
from trl.data_utils import common_prefix_length

import sordino
from sordino.language.models.checkpoints import (
    load_causal_model,
    load_reward_checkpoint,
    load_tokenizer,
)
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

SIZE = TinyModel(vocabulary=2048, width=96, layers=3, heads=4, context=512)
READ = 256  # tokens that the attack on likelihoods reads


def raw(part: str) -> Any:
    """Return real pairs with their real labels."""
    return sordino.read_pairs(DATA / f"hh_helpful_{part}.jsonl.gz", drop=["identical"])


def hh_tokenizer(*parts: Any) -> Any:
    """Return a byte-level tokenizer that was trained on all texts, whoever preferred them."""
    texts = [text for pairs in parts for both in both_answers(pairs) for text in both]
    return train_tokenizer(flatten(texts, "texts"), SIZE)


def columns(part: str) -> list[dict[str, str]]:
    """Return real pairs as they are stored: prompt, chosen, rejected."""
    with gzip.open(DATA / f"hh_helpful_{part}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row["chosen"] != row["rejected"]]


def said() -> dict[str, list[str]]:
    """Return what the assistant says in the file of dialogues, by what it was asked."""
    found: dict[str, list[str]] = {}
    with gzip.open(DATA / "hh_dialogues.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            asked, answered = (turn["content"].strip() for turn in row["messages"][-2:])
            found.setdefault(asked, []).append(answered)
    return found


def repeated_prompts() -> dict[str, Any]:
    """Return in how many rows of real pairs the prompt is that of another row as well."""
    result = {}
    for part in ("a", "b"):
        counts = Counter(row["prompt"] for row in columns(part))
        result[f"hh_helpful_{part}"] = {
            "pairs": sum(counts.values()),
            "rows": sum(count for count in counts.values() if count > 1),
            "most": max(counts.values()),
        }
    return result


def sft_texts() -> dict[str, Any]:
    """Return how many labels are read off a file that is offered as text for fine-tuning."""
    known, result = said(), {}
    for part in ("a", "b"):
        rows = columns(part)
        matched = [
            tuple(
                any(
                    row[side].strip().startswith(text)
                    for text in known.get(row["prompt"].strip(), ())
                )
                for side in ("chosen", "rejected")
            )
            for row in rows
        ]
        right, wrong = matched.count((True, False)), matched.count((False, True))
        result[f"hh_helpful_{part}"] = {
            "pairs": len(rows),
            "only_the_chosen_occurs": right,
            "only_the_rejected_occurs": wrong,
            "both_occur": matched.count((True, True)),
            "neither_occurs": matched.count((False, False)),
            "labels_recovered": round((right + (len(rows) - right - wrong) / 2) / len(rows), 4),
        }
    return result


def likelihoods(pairs_each: int = 500, epochs: tuple[int, ...] = (1, 3)) -> dict[str, Any]:
    """Return how often the answer whose likelihood rose more is the one that people preferred."""
    everyone = raw("a")
    tokenizer = hh_tokenizer(everyone)
    pairs = _readable(everyone, tokenizer)
    base = build_tiny(SIZE, tokenizer)
    everything = list(both_answers(pairs))
    pretrain(base, tokenizer, everything, steps=250, batch_size=16)
    labels = np.asarray(pairs.labels)
    liked = [
        (prompt, first if label else second)
        for prompt, first, second, label in zip(
            pairs.prompts, pairs.first, pairs.second, labels, strict=True
        )
    ]
    before = _per_token(base, tokenizer, pairs)
    result: dict[str, Any] = {"trained": pairs_each, "held_out": len(labels) - pairs_each}
    for name, text in (
        ("on the chosen answers", liked[:pairs_each]),
        ("on both answers", everything[: 2 * pairs_each]),
    ):
        for times in epochs:
            model = copy.deepcopy(base)
            steps = times * len(text) // 16
            pretrain(model, tokenizer, text, steps=steps, batch_size=16, learning_rate=1e-3)
            gain = _per_token(model, tokenizer, pairs) - before
            guessed = (gain[0] > gain[1]) == (labels == 1)
            result[f"{name}, epochs: {times}"] = {
                "labels_recovered": round(float(guessed[:pairs_each].mean()), 3),
                "labels_recovered_of_held_out": round(float(guessed[pairs_each:].mean()), 3),
            }
    return result


def _readable(pairs: Any, tokenizer: Any) -> Any:
    """Return the pairs whose answers both fit."""
    _, _, rows = DialogueTokens(tokenizer, READ, overlong="drop").pairs(pairs)
    names = ("prompts", "first", "second", "labels")
    return SimpleNamespace(**{name: [getattr(pairs, name)[row] for row in rows] for name in names})


def _per_token(model: Any, tokenizer: Any, pairs: Any) -> Any:
    """Return the mean log-likelihood of a token of each first and each second answer."""
    both = []
    for texts in (pairs.first, pairs.second):
        total, count = log_likelihoods(model, tokenizer, pairs.prompts, texts, READ)
        both.append(total / count)
    return np.array(both)


def _messages(rows: list[dict[str, str]]) -> Dataset:
    """Return pairs as chat messages."""
    role = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
    return Dataset.from_list(
        [{k: [{"role": role[k], "content": row[k]}] for k in role} for row in rows]
    )


def overlong(lengths: tuple[int, ...] = (64, 128, 256)) -> dict[str, Any]:
    """Return what trl's trainers do to real pairs that are longer than ``max_length``."""
    rows = columns("b")
    tokenizer = hh_tokenizer(raw("b"))
    folder = Path(tempfile.mkdtemp())
    save_tiny(build_tiny(SIZE, tokenizer), tokenizer, folder)
    result: dict[str, Any] = {"pairs": len(rows), "longer_is_preferred": _longer(rows)}
    for length in lengths:
        result[f"max_length={length}"] = {
            "reward": _dropped(rows, folder, length),
            "dpo": _cut(rows, folder, length),
        }
    return result


def _longer(rows: list[dict[str, str]]) -> float:
    """Return how often the longer answer is the preferred one."""
    return round(float(np.mean([len(row["chosen"]) > len(row["rejected"]) for row in rows])), 3)


def _dropped(rows: list[dict[str, str]], folder: Path, length: int) -> dict[str, Any]:
    """Return which pairs are left to a reward."""
    data = _messages(rows).add_column("row", list(range(len(rows))))
    trainer = RewardTrainer(
        model=load_reward_checkpoint(folder, device="cpu"),
        args=RewardConfig(**settings(max_length=length)),
        train_dataset=data,
        processing_class=load_tokenizer(folder),
    )
    kept = [rows[row] for row in trainer.train_dataset["row"]]
    mean = float(np.mean([len(row[side]) for row in kept for side in ("chosen", "rejected")]))
    return {
        "kept": len(kept),
        "dropped": len(rows) - len(kept),
        "characters_of_a_kept_answer": round(mean, 1),
        "longer_is_preferred_among_kept": _longer(kept),
    }


def _cut(rows: list[dict[str, str]], folder: Path, length: int) -> dict[str, Any]:
    """Return which pairs are left to DPO, and what of them."""
    trainer = DPOTrainer(
        model=load_causal_model(folder, device="cpu"),
        args=DPOConfig(**settings(max_length=length)),
        train_dataset=_messages(rows),
        processing_class=load_tokenizer(folder),
    )
    data = trainer.train_dataset
    over = {
        side: np.array([len(row["prompt_ids"]) + len(row[f"{side}_ids"]) > length for row in data])
        for side in ("chosen", "rejected")
    }
    room = [length - len(row["prompt_ids"]) for row in data]
    same = [
        row["chosen_ids"][:r] == row["rejected_ids"][:r] for row, r in zip(data, room, strict=True)
    ]
    batch = trainer.data_collator([data[int(np.argmax(over["chosen"]))]])
    return {
        "dropped_because_of_the_prompt": len(rows) - len(data),
        "an_answer_lost_its_end": int((over["chosen"] | over["rejected"]).sum()),
        "only_the_chosen_lost_its_end": int((over["chosen"] & ~over["rejected"]).sum()),
        "only_the_rejected_lost_its_end": int((over["rejected"] & ~over["chosen"]).sum()),
        "answers_equal_after_the_cut": int(np.sum(same)),
        "longest_row_of_the_collator": int(batch["input_ids"].shape[1]),
    }


BORDERS = {
    "nothing": ("", ""),
    "a space before the answer": ("", " "),
    "an empty line": ("\n\n", ""),
    "'\\n\\nAssistant:', then a space": ("\n\nAssistant:", " "),
    "'\\n\\nAssistant: ' in the prompt": ("\n\nAssistant: ", ""),
}


def borders() -> dict[str, Any]:
    """Return in how many real pairs a token straddles the border of prompt and answer."""
    rows = columns("a")
    tokenizer = hh_tokenizer(raw("a"))
    return {"pairs": len(rows)} | {
        name: _straddled(rows, tokenizer, *border) for name, border in BORDERS.items()
    }


def _straddled(
    rows: list[dict[str, str]], tokenizer: Any, after: str, before: str
) -> dict[str, int]:
    """Return how the tokens of prompts differ once an answer follows, counted as trl does."""
    changed = unlike = 0
    for row in rows:
        prompt = row["prompt"] + after
        alone = tokenizer(prompt)["input_ids"]
        common = [
            common_prefix_length(alone, tokenizer(prompt + before + row[side])["input_ids"])
            for side in ("chosen", "rejected")
        ]
        changed += min(common) < len(alone)
        unlike += common[0] != common[1]
    return {"prompt_changed": changed, "prompts_of_the_two_answers_differ": unlike}
