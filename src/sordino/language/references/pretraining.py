"""Pretraining on public text: what makes a label-free reference.

Text that a reference is trained on: what in it the model is taught to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch

from sordino._validate import integer, positive
from sordino.errors import DataError
from sordino.language.models.checkpoints import default_device, quiet
from sordino.language.models.tokens import DialogueTokens
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.files import every_line, read_mappings
from sordino.preferences.records import Text, read_text

Progress = Callable[[int, int], None]


def both_answers(pairs: Comparisons) -> Iterator[tuple[Text, Text]]:
    """Yield each prompt with each of its two answers, in canonical order: no label is looked at.

    A model that is trained on this text is a label-free reference. One that saw only the answers
    that people preferred gives every judgment away before any noise is drawn.
    """
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
    """Train a model to continue public dialogues; return the loss of every step, in nats a token.

    Args:
        model: What :func:`build_tiny` returned, or any causal model; changed in place.
        tokenizer: Its tokenizer.
        dialogues: Prompts with answers, as :func:`both_answers` yields them.
        steps: Batches, drawn with replacement.
        batch_size: Dialogues in each.
        learning_rate: Of AdamW, the largest of a cosine schedule.
        seed: Of the order; it is public, for the text is.
        progress: Called with (steps done, steps).

    Raises:
        DataError: There is no dialogue that fits the model.
    """
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


Document: TypeAlias = Text | tuple[Text, Text] | Mapping[str, Any]
"""A text; chat messages; (prompt, answer); or an object with ``messages``, with ``text``, or with
``prompt`` and ``completion``."""

_ASKING = frozenset({"user", "human", "system", "developer", "tool"})
_BREAK = re.compile(r"\n|<\|[^|<>]{1,40}\|>|</?s>|\[/?INST\]")
_SPEAKER = re.compile(r"[\s#*]*\w{1,20}[\s*]*:[\s*]*")
_PAIR = ("prompt", "completion")
_LARGEST = 1 << 20  # characters of one block of a plain text
_WANTED = (
    "a text, chat messages, (prompt, answer), or an object with 'messages', with 'text', or with "
    "'prompt' and 'completion'"
)


class Spoken(NamedTuple):
    """What a document teaches a model to say.

    Attributes:
        texts: Everything that the model learns to say, to search in.
        pieces: Parts of it that may each be one whole answer.
    """

    texts: list[str]
    pieces: list[str]


def spoken(document: Document, where: str = "the document") -> Spoken:
    """Return what a document teaches a model to say.

    Of chat messages, that is every turn but those of who asks. A plain text does not say where an
    answer begins, so each of its lines may be one, with or without a speaker's name before it.

    Args:
        document: See :data:`Document`.
        where: Where it stands, for messages.

    Raises:
        DataError: It is none of these; nothing of it is quoted.
    """
    if isinstance(document, tuple) and len(document) == len(_PAIR):
        document = dict(zip(_PAIR, document, strict=True))
    row = document if isinstance(document, Mapping) else {"messages": document}
    named = [name for name in ("messages", "completion", "text") if name in row]
    if not named or ("completion" in row and "prompt" not in row):
        raise DataError(f"{where}: expected {_WANTED}.")
    parts = [_part(read_text(row, name, where), plain=name != "completion") for name in named]
    return Spoken(*(list(chain.from_iterable(column)) for column in zip(*parts, strict=True)))


def _part(text: Text, *, plain: bool) -> tuple[list[str], list[str]]:
    """Return what one field teaches to say, and the pieces of it."""
    if not isinstance(text, str):
        turns = [turn["content"] for turn in text if turn["role"] not in _ASKING]
        return turns, turns
    return [text], [text, *lines(text)] if plain else [text]


def lines(text: str) -> Iterator[str]:
    """Yield each line of a plain text as it is, and without the name of a speaker."""
    for line in _BREAK.split(text):
        if line and not line.isspace():
            yield line
            if speaker := _SPEAKER.match(line):
                yield line[speaker.end() :]


def read_documents(path: str | Path) -> Iterator[Document]:
    """Return the documents of a file, one at a time; ``.gz`` is unpacked.

    A name that ends in ``.txt`` (or that and ``.gz``) is plain text, whose documents stand apart
    by blank lines; every other is JSON Lines, with one object of :data:`Document` on each line.

    Raises:
        DataError: A line cannot be used (its number is named), or there is none at all.
        FileSystemError: The file cannot be read.
    """
    path = Path(path)
    if path.name.lower().removesuffix(".gz").endswith(".txt"):
        return _some(_blocks(every_line(path)))
    return _checked(read_mappings(path))


def _checked(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Document]:
    """Yield objects; refuse the first that teaches nothing that we can read."""
    for where, row in rows:
        spoken(row, where)
        yield row


def _blocks(lines: Iterable[tuple[int, bytes]]) -> Iterator[str]:
    """Yield what stands between blank lines, or 1 MiB of it."""
    block: list[str] = []
    size = 0
    for number, line in chain(lines, [(0, b"")]):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = None
        if text is None:
            raise DataError(f"line {number}: not valid UTF-8.")
        if block and (size > _LARGEST or not text.strip()):
            yield "".join(block)
            block, size = [], 0
        if text.strip():
            block.append(text)
            size += len(text)


def _some(blocks: Iterator[str]) -> Iterator[str]:
    """Yield blocks; refuse a text without any."""
    first = next(blocks, None)
    if first is None:
        raise DataError("The input is empty: no text in it.")
    yield first
    yield from blocks
