"""A tiny language model built here from public text: what a demonstration runs on, offline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from sordino._validate import integer, one_of, positive
from sordino.errors import DataError
from sordino.language.models.checkpoints import default_device
from sordino.language.models.generation import padded
from sordino.language.models.loading import quiet
from sordino.language.models.promises import CARD_FILE, PROMISE_FILE
from sordino.language.models.tokens import DialogueTokens
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.records import Text

Architecture = Literal["llama", "gpt2"]
_BEGIN, _END, _PAD = "<|begin|>", "<|end|>", "<|pad|>"
_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
_LEFT_BY_REWARDS = ("uncertainty.safetensors", "training_log.json")
_ROLES = ("<|user|>", "<|assistant|>", "<|system|>")


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """The size of a model that is built here; the defaults read and write in seconds."""

    architecture: Architecture = "llama"  # `"llama"` or `"gpt2"`
    vocabulary: int = 2048  # tokens of the tokenizer
    width: int = 96  # numbers that stand for one token
    layers: int = 3  # how many blocks
    heads: int = 4  # attention heads of each; they divide the width
    context: int = 256  # most tokens that it reads
    seed: int = 0  # of the weights it starts with; they are public

    def __post_init__(self) -> None:
        one_of("architecture", self.architecture, get_args(Architecture))
        for name in ("vocabulary", "width", "layers", "heads", "context"):
            integer(name, getattr(self, name), at_least=2 if name != "layers" else 1)
        one_of("width % heads", self.width % self.heads, (0,))


def train_tokenizer(texts: Sequence[str], size: TinyModel) -> PreTrainedTokenizerBase:
    """Return a byte-level tokenizer with a chat template, learned from public texts."""
    special = [_PAD, _BEGIN, _END, *_ROLES]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size.vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_PAD,
        bos_token=_BEGIN,
        eos_token=_END,
        model_max_length=size.context,
        padding_side="right",
    )
    made.chat_template = _TEMPLATE
    return made


def build_tiny(size: TinyModel, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return a model of that size with random weights, on the processor."""
    ids = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    sizes = {  # as every architecture takes them
        "hidden_size": size.width,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "max_position_embeddings": size.context,
    }
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(size.seed)
        if size.architecture == "gpt2":
            return GPT2LMHeadModel(GPT2Config(**sizes, **ids))
        more = {"intermediate_size": 3 * size.width, "num_key_value_heads": size.heads}
        return LlamaForCausalLM(LlamaConfig(**sizes, **more, **ids))


def save_tiny(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write model and tokenizer as a checkpoint that transformers loads."""
    # What a private checkpoint left in the folder goes, its promise last: what it speaks of is
    # overwritten, and a label-free model must not carry it.
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if (folder / PROMISE_FILE).exists():
        for name in (CARD_FILE, *_LEFT_BY_REWARDS, PROMISE_FILE):
            (folder / name).unlink(missing_ok=True)


Progress = Callable[[int, int], None]


def both_answers(pairs: Comparisons) -> Iterator[tuple[Text, Text]]:
    """Yield each prompt with each of its two answers, in canonical order: no label is looked at."""
    # A model that is trained on this text is a label-free reference. One that saw only the answers
    # that people preferred gives every judgment away before any noise is drawn.
    for prompt, first, second in zip(pairs.prompts, pairs.first, pairs.second, strict=True):
        yield prompt, first
        yield prompt, second


def pretrain(  # noqa: PLR0913 (each is one choice of the user)
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dialogues: Sequence[tuple[Text, Text]],
    *,
    steps: int = 300,
    batch_size: int = 16,
    learning_rate: float = 2e-3,
    warm_up: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[float]:
    """Train a model to continue public dialogues; return every step's loss, in nats a token."""
    # A model of many layers needs some steps in which the rate grows.
    integer("steps", steps, at_least=1)
    positive("learning_rate", learning_rate)
    rows = _rows(tokenizer, dialogues, model.config.max_position_embeddings)
    device = default_device()
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, (step + 1) / (warm_up + 1)) * (1 + math.cos(math.pi * step / steps)) / 2
        ),
    )
    order, losses = torch.Generator().manual_seed(seed), []
    for step in range(steps):
        batch = [rows[i] for i in torch.randint(len(rows), (batch_size,), generator=order)]
        ids, read = padded(batch, tokenizer.pad_token_id, device)
        labels = ids.masked_fill(read == 0, -100)  # padding is neither read nor predicted
        with quiet():
            loss = model(input_ids=ids, attention_mask=read, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(step + 1, steps)
    model.eval()
    return losses


def _rows(
    tokenizer: PreTrainedTokenizerBase, dialogues: Sequence[tuple[Text, Text]], most: int
) -> list[list[int]]:
    encoder, rows = DialogueTokens(tokenizer, most), []
    for prompt, answer in dialogues:
        try:
            both = encoder.dialogue(prompt, answer)
        except DataError:
            continue  # too long or empty: this text only teaches the model to write
        rows.append([*both.prompt, *both.answer])
    if not rows:
        raise DataError("No text is left that fits the model. Nothing was trained.")
    return rows
