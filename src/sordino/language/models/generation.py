"""Answers drawn from a language model as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig

from sordino._validate import integer, non_negative
from sordino.errors import UsageError
from sordino.language.models.checkpoints import context_length
from sordino.language.models.completions import Completions, evaluating
from sordino.language.models.tokens import DialogueTokens
from sordino.preferences.records import Text, read_text

__all__ = [
    "prompt_room",
    "prompt_texts",
    "sample_answers",
    "sample_completions",
]


def prompt_texts(prompts: Sequence[Any]) -> list[Text]:
    """Return prompts as texts or chat messages, every one of them checked.

    Raises:
        DataError: A prompt is neither; its index is named.
        UsageError: This is one text, not a sequence of them.
    """
    if isinstance(prompts, str):
        raise UsageError("prompts must be a sequence of texts, got one text. Put it in a list.")
    return [read_text({"prompt": one}, "prompt", f"prompt {i}") for i, one in enumerate(prompts)]


def prompt_room(model: Any, tokenizer: Any, max_new_tokens: int) -> DialogueTokens:
    """Return what turns prompts into tokens that leave room for an answer.

    Raises:
        UsageError: Such an answer would leave no room for a prompt, or no token ends a text.
    """
    context = context_length(model, tokenizer)
    integer("the length of an answer", max_new_tokens, at_least=1, at_most=context - 1)
    if tokenizer.eos_token_id is None:
        raise UsageError("The tokenizer has no token that ends a text. Set tokenizer.eos_token.")
    return DialogueTokens(tokenizer, context)


def sample_answers(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Text],
    *,
    max_new_tokens: int,
    sampling_temperature: float = 1.0,
    batch_size: int = 32,
    seed: int | None = None,
) -> list[str]:
    """Return one answer to each prompt, in the order of the prompts, without special tokens.

    A prompt longer than the model's context less ``max_new_tokens`` loses its beginning. Mode of
    the model, its settings for generation and the tokenizer are left as they were.

    Args:
        model: A causal language model; answers are drawn on its device.
        tokenizer: Its tokenizer; whichever side it pads on, prompts are padded on the left here.
        prompts: Texts or chat messages.
        max_new_tokens: Most tokens of an answer, its end included.
        sampling_temperature: 1 draws from the model as it is, 0 takes the likeliest token.
        batch_size: Prompts at once; those of similar length go together.
        seed: Of the draws, which then neither read nor change PyTorch's generator.

    Raises:
        DataError: A prompt is no text; its index is named.
        UsageError: A setting cannot be used.
    """
    encoder = prompt_room(model, tokenizer, max_new_tokens)
    rows = _token_rows(encoder, prompt_texts(prompts), max_new_tokens)
    settings = _settings(model, tokenizer, max_new_tokens, sampling_temperature)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]), reverse=True)
    size, answers = integer("batch_size", batch_size, at_least=1), [""] * len(rows)
    with _seeded(seed, model.device):
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            drawn = _drawn(model, [rows[i] for i in batch], settings)
            for i, text in zip(batch, drawn.texts(tokenizer), strict=True):
                answers[i] = text
    return answers


def sample_completions(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Text],
    *,
    max_new_tokens: int,
    sampling_temperature: float = 1.0,
) -> Completions:
    """Return one answer to each prompt (at least one) as tokens, all drawn at once.

    Arguments are those of :func:`sample_answers`.
    """
    rows = _token_rows(prompt_room(model, tokenizer, max_new_tokens), prompts, max_new_tokens)
    return _drawn(model, rows, _settings(model, tokenizer, max_new_tokens, sampling_temperature))


def _token_rows(encoder: DialogueTokens, prompts: Sequence[Text], room: int) -> list[list[int]]:
    """Return the tokens of each prompt; one without any starts at the end of another text."""
    eos = int(encoder.tokenizer.eos_token_id)
    return [encoder.prompt(prompt, room=room) or [eos] for prompt in prompts]


def _settings(model: Any, tokenizer: Any, most: int, temperature: float) -> GenerationConfig:
    """Return what draws from the model as it is: nothing is cut off and nothing penalized."""
    heat = non_negative("sampling_temperature", temperature)
    drawn = {"do_sample": True, "temperature": heat, "top_k": 0, "top_p": 1.0}
    ends, end = {int(tokenizer.eos_token_id)}, model.generation_config.eos_token_id
    ends.update(end if isinstance(end, list | tuple) else [] if end is None else [end])
    padding = tokenizer.pad_token_id
    return GenerationConfig(
        **(drawn if heat > 0 else {"do_sample": False}),
        max_new_tokens=most,
        eos_token_id=sorted(ends),
        pad_token_id=int(tokenizer.eos_token_id if padding is None else padding),
        use_cache=True,
    )


def _drawn(model: Any, rows: list[list[int]], settings: GenerationConfig) -> Completions:
    """Return one answer to each row of tokens."""
    longest = max(map(len, rows))
    padded = [[settings.pad_token_id] * (longest - len(row)) + row for row in rows]
    ids = torch.tensor(padded, device=model.device)
    lengths = torch.tensor([[len(row)] for row in rows], device=model.device)
    mask = (torch.arange(longest, device=model.device) >= longest - lengths).long()
    with evaluating(model), _generating_by(model, settings):
        whole = model.generate(input_ids=ids, attention_mask=mask)
    said = whole[:, longest:]
    ended = torch.isin(said, torch.tensor(settings.eos_token_id, device=said.device)).long()
    return Completions(ids, mask, said, (ended.cumsum(dim=1) - ended == 0).long())


@contextmanager
def _generating_by(model: Any, settings: GenerationConfig) -> Iterator[None]:
    """Replace the settings that came with a checkpoint, which fill in whatever is not set."""
    owner = model.get_base_model() if hasattr(model, "get_base_model") else model
    before, owner.generation_config = owner.generation_config, settings
    try:
        yield
    finally:
        owner.generation_config = before


@contextmanager
def _seeded(seed: int | None, device: Any) -> Iterator[None]:
    """Draw by a seed, if there is one, and leave PyTorch's generator as it was."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
