"""Pretraining on public text: what makes a label-free reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from sordino._validate import integer, positive
from sordino.errors import DataError
from sordino.language.models.checkpoints import default_device
from sordino.language.models.loading import quiet
from sordino.language.models.tokens import DialogueTokens
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.records import Text

__all__ = ["both_answers", "pretrain"]

Progress = Callable[[int, int], None]


def both_answers(pairs: Comparisons) -> Iterator[tuple[Text, Text]]:
    """Yield each prompt with each of its two answers, in canonical order: no label is looked at."""
    # A model that is trained on this text is a label-free reference. One that saw only the answers
    # that people preferred gives every judgment away before any noise is drawn.
    for prompt, first, second in zip(pairs.prompts, pairs.first, pairs.second, strict=True):
        yield prompt, first
        yield prompt, second


def pretrain(
    model: Any,
    tokenizer: Any,
    dialogues: Sequence[tuple[Text, Text]],
    *,
    steps: int = 300,
    batch_size: int = 16,
    learning_rate: float = 2e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[float]:
    """Train a model to continue public dialogues; return every step's loss, in nats a token."""
    integer("steps", steps, at_least=1)
    positive("learning_rate", learning_rate)
    rows = _rows(tokenizer, dialogues, model.config.max_position_embeddings)
    device = default_device()
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    order, losses = torch.Generator().manual_seed(seed), []
    for step in range(steps):
        batch = [rows[i] for i in torch.randint(len(rows), (batch_size,), generator=order)]
        with quiet():
            loss = model(**_padded(batch, tokenizer.pad_token_id, device), use_cache=False).loss
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


def _rows(tokenizer: Any, dialogues: Sequence[tuple[Text, Text]], most: int) -> list[list[int]]:
    """Return the tokens of the dialogues that fit."""
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


def _padded(rows: list[list[int]], pad: int, device: str) -> dict[str, Any]:
    """Return a batch; padding is neither read nor predicted."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=device)
    lengths = torch.tensor([[len(row)] for row in rows], device=device)
    read = (torch.arange(longest, device=device) < lengths).long()
    return {"input_ids": ids, "attention_mask": read, "labels": ids.masked_fill(read == 0, -100)}
