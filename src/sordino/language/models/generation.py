"""Answers drawn from a language model as it is, and how likely a model finds them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import pad
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from sordino._validate import integer, non_negative
from sordino.errors import UsageError
from sordino.language.models.checkpoints import context_length
from sordino.language.models.tokens import DialogueTokens
from sordino.preferences.records import Text, read_text


class Completions(NamedTuple):
    """Prompts with drawn answers, as tokens; row i of each part belongs to answer i."""

    prompt_ids: torch.Tensor  # tokens of the prompts, shape (n, p), padded on the left
    prompt_mask: torch.Tensor  # 1 where `prompt_ids` is not padding
    completion_ids: torch.Tensor  # tokens of the answers, shape (n, c), padded on the right
    completion_mask: torch.Tensor  # 1 up to the token that ends the answer, which is part of it

    def token_lists(self) -> list[list[int]]:
        """Return the tokens of each answer, without padding."""
        rows = zip(self.completion_ids, self.completion_mask, strict=True)
        return [ids[mask.bool()].tolist() for ids, mask in rows]

    def texts(self, tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """Return each answer as text, without special tokens."""
        return [
            str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
            for ids in self.token_lists()
        ]


def padded(
    rows: Sequence[Sequence[int]], padding: int, device: torch.device | str, *, left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of tokens, padded on one side, and 1 where there is no padding."""
    longest = max(map(len, rows))
    gaps = [longest - len(row) for row in rows]
    ids, mask = [], []
    for row, gap in zip(rows, gaps, strict=True):
        pads, zeros, ones = [padding] * gap, [0] * gap, [1] * len(row)
        ids.append([*pads, *row] if left else [*row, *pads])
        mask.append([*zeros, *ones] if left else [*ones, *zeros])
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def stacked(first: Completions, second: Completions) -> Completions:
    """Return the rows of both, the first ones above, each part padded to the wider of the two."""
    left = max(first.prompt_ids.shape[1], second.prompt_ids.shape[1])
    right = max(first.completion_ids.shape[1], second.completion_ids.shape[1])
    wide = [
        [
            *(pad(part, (left - part.shape[1], 0)) for part in one[:2]),
            *(pad(part, (0, right - part.shape[1])) for part in one[2:]),
        ]
        for one in (first, second)
    ]
    return Completions(*map(torch.cat, zip(*wide, strict=True)))


def answer_log_probabilities(model: PreTrainedModel, completions: Completions) -> torch.Tensor:
    """Return the log-probability of each answer given its prompt, in nats, shape (n,)."""
    # Every answer's tokens count, its end included; padding is neither read nor counted. Logits are
    # taken where an answer is predicted and nowhere else, and no log-softmax over the whole
    # vocabulary is kept.
    prompts, prompt_mask, answers, answer_mask = completions
    read = torch.cat([prompt_mask, answer_mask], dim=1)
    # what is padding goes to the end, so that positions count from 0 in every architecture
    order = torch.argsort(read, dim=1, descending=True, stable=True)
    order = order[:, : int(read.sum(dim=1).max())]
    ids = torch.cat([prompts, answers], dim=1).gather(1, order)
    said = torch.cat([torch.zeros_like(prompt_mask), answer_mask], dim=1).gather(1, order)
    most = max(ids.shape[1] - int(prompt_mask.sum(dim=1).min()), 1)
    inner = getattr(model, "module", model)
    inner = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
    few = "logits_to_keep" in inspect.signature(inner.forward).parameters
    last = {"logits_to_keep": most + 1} if few else {}
    mask = read.gather(1, order)
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False, **last).logits
    return (
        _chosen(logits[:, -most - 1 : -1], ids[:, -most:])
        .masked_fill(said[:, -most:] == 0, 0.0)
        .sum(dim=1)
    )


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Let no dropout act for a while; every part of the model then gets its own mode back."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """Leave the generators of PyTorch, of the processor and of a device, as they were found."""
    devices = [] if device.type == "cpu" else [device]  # the processor's is always kept
    with torch.random.fork_rng(devices, device_type=device.type if devices else None):
        yield


def _chosen(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of each token in 32 bits or more, one row at a time."""
    exact = torch.promote_types(logits.dtype, torch.float32)
    rows = zip((row.to(exact) for row in logits), ids, strict=True)
    return torch.stack(
        [row.gather(-1, token[:, None])[:, 0] - row.logsumexp(-1) for row, token in rows]
    )


def prompt_texts(prompts: Sequence[object]) -> list[Text]:
    """Return prompts as texts or chat messages, every one of them checked."""
    if isinstance(prompts, str):
        raise UsageError("prompts must be a sequence of texts, got one text. Put it in a list.")
    return [read_text({"prompt": one}, "prompt", f"prompt {i}") for i, one in enumerate(prompts)]


def prompt_room(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_new_tokens: int
) -> DialogueTokens:
    """Return what turns prompts into tokens that leave room for an answer."""
    context = context_length(model, tokenizer)
    integer("the length of an answer", max_new_tokens, at_least=1, at_most=context - 1)
    if tokenizer.eos_token_id is None:
        raise UsageError("The tokenizer has no token that ends a text. Set tokenizer.eos_token.")
    return DialogueTokens(tokenizer, context)


def sample_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Text],
    *,
    max_new_tokens: int,
    sampling_temperature: float = 1.0,
    batch_size: int = 32,
    seed: int | None = None,
) -> list[str]:
    """Return one answer to each prompt, in the order of the prompts, without special tokens."""
    # A prompt longer than the model's context less `max_new_tokens` loses its beginning. Mode of
    # the model, its settings for generation and the tokenizer are left as they were.
    encoder, texts = prompt_room(model, tokenizer, max_new_tokens), prompt_texts(prompts)
    lengths = [max(1, len(encoder.prompt(text, room=max_new_tokens))) for text in texts]
    order = sorted(range(len(texts)), key=lengths.__getitem__, reverse=True)
    size, answers = integer("batch_size", batch_size, at_least=1), [""] * len(texts)
    heat = non_negative("sampling_temperature", sampling_temperature)
    complete = partial(sample_completions, max_new_tokens=max_new_tokens, sampling_temperature=heat)
    with nullcontext() if seed is None else generators_kept(model.device):
        if seed is not None:
            torch.manual_seed(seed)
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            drawn = complete(model, tokenizer, [texts[i] for i in batch])
            for i, text in zip(batch, drawn.texts(tokenizer), strict=True):
                answers[i] = text
    return answers


def sample_completions(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Text],
    *,
    max_new_tokens: int,
    sampling_temperature: float = 1.0,
) -> Completions:
    """Return one answer to each prompt (at least one) as tokens, all drawn at once."""
    # Arguments are those of `sample_answers`. It draws from the model as it is: nothing is cut off,
    # and nothing penalized.
    encoder, eos = prompt_room(model, tokenizer, max_new_tokens), int(tokenizer.eos_token_id)
    rows = [encoder.prompt(prompt, room=max_new_tokens) or [eos] for prompt in prompts]
    heat = non_negative("sampling_temperature", sampling_temperature)
    drawn = {"do_sample": True, "temperature": heat, "top_k": 0, "top_p": 1.0}
    end, padding = model.generation_config.eos_token_id, tokenizer.pad_token_id
    settings = GenerationConfig(
        **(drawn if heat > 0 else {"do_sample": False}),
        max_new_tokens=max_new_tokens,
        eos_token_id=sorted({eos, *np.ravel([] if end is None else end).astype(int).tolist()}),
        pad_token_id=int(eos if padding is None else padding),
        use_cache=True,
    )
    ids, mask = padded(rows, settings.pad_token_id, model.device, left=True)
    # The settings that came with a checkpoint fill in whatever is not set, so they stand aside.
    owner = model.get_base_model() if hasattr(model, "get_base_model") else model
    before, owner.generation_config = owner.generation_config, settings
    try:
        with evaluating(model):
            whole = model.generate(input_ids=ids, attention_mask=mask)
    finally:
        owner.generation_config = before
    said = whole[:, ids.shape[1] :]
    ended = torch.isin(said, torch.tensor(settings.eos_token_id, device=said.device)).long()
    return Completions(ids, mask, said, (ended.cumsum(dim=1) - ended == 0).long())
