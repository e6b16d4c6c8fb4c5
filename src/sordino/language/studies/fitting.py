"""Which texts a model can read, asked before anything is spent on the labels beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers import AutoConfig

from sordino.errors import DataError, UsageError
from sordino.language.models._loading import offline, quiet
from sordino.language.models.checkpoints import (
    CAUSAL,
    checkpoint_folder,
    context_length,
    load_tokenizer,
)
from sordino.language.models.tokens import DialogueTokens
from sordino.language.references.pretraining import both_answers
from sordino.language.references.tiny import TinyModel, train_tokenizer
from sordino.language.training.training_terms import TrainingTerms
from sordino.preferences.comparisons import Comparisons
from sordino.preferences.records import Text

__all__ = [
    "checkpoint_tokens",
    "count_fitting",
    "planned_tokens",
    "reference_tokenizer",
    "refuse_unreadable",
]


def checkpoint_tokens(model: Path, terms: TrainingTerms, *, writes: bool = False) -> DialogueTokens:
    """Return how training would turn texts into tokens; no weights are read.

    Args:
        model: A checkpoint, of which only config and tokenizer are read.
        terms: Of the training.
        writes: Whether it must be a model that writes: a reward's checkpoint will not do.

    Raises:
        FileSystemError: There is no such folder.
        UsageError: The checkpoint cannot be used, or ``max_length`` is more than it reads.
    """
    folder = checkpoint_folder(model, kinds=CAUSAL) if writes else checkpoint_folder(model)
    tokenizer = load_tokenizer(folder)
    with offline(), quiet():
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    most = context_length(SimpleNamespace(config=config), tokenizer)
    if terms.max_length is not None and terms.max_length > most:
        raise UsageError(
            f"max_length (--max-length) must be at most the {most} tokens that the model reads, "
            f"got {terms.max_length}. Nothing was done."
        )
    return DialogueTokens(tokenizer, terms.max_length or most, terms.overlong)


def count_fitting(
    pairs: Comparisons, model: Path, terms: TrainingTerms, *, writes: bool = False
) -> int:
    """Return how many pairs fit a model; what could not be trained on is refused beforehand.

    Args:
        pairs: Raw or randomized; only their texts are read.
        model: As for :func:`checkpoint_tokens`.
        terms: Of the training.
        writes: As for :func:`checkpoint_tokens`.

    Raises:
        DataError: An answer is empty or does not fit, and its pair is not to be left out.
        FileSystemError: There is no such folder.
        UsageError: The checkpoint cannot be used, or ``max_length`` is more than it reads.
    """
    return len(checkpoint_tokens(model, terms, writes=writes).pairs(pairs)[2])


def reference_tokenizer(pairs: Comparisons, size: TinyModel) -> Any:
    """Return the tokenizer of a tiny reference, a function of public texts alone.

    Args:
        pairs: Only their prompts and answers are read.
        size: Of the model.
    """
    return train_tokenizer([_plain(text) for both in both_answers(pairs) for text in both], size)


def _plain(text: Text) -> str:
    """Return what was said, without who said it."""
    return text if isinstance(text, str) else "\n".join(turn["content"] for turn in text)


def planned_tokens(pairs: Comparisons, size: TinyModel, terms: TrainingTerms) -> DialogueTokens:
    """Return how a tiny reference that is not built yet would turn texts into tokens."""
    return DialogueTokens(reference_tokenizer(pairs, size), size.context, terms.overlong)


def refuse_unreadable(
    tokens: DialogueTokens,
    pairs: Comparisons,
    parts: Mapping[str, Sequence[int]],
    *,
    answer_room: int,
) -> None:
    """Refuse texts that a study would stumble over after it has paid for their labels.

    Args:
        tokens: What turns the texts into tokens.
        pairs: All of them; only their texts are read.
        parts: Row numbers of each part, which must keep at least one pair.
        answer_room: Most tokens of an answer that will be drawn.

    Raises:
        DataError: An answer is empty, or no pair of a part fits.
        UsageError: Drawn answers would leave no room for a prompt.
    """
    if answer_room >= tokens.max_length:
        raise UsageError(
            f"The model reads {tokens.max_length} tokens, and answers of up to {answer_room} are "
            "drawn from it: no prompt would be left. Nothing was done. Choose a model that reads "
            "more."
        )
    kept = set(tokens.pairs(pairs)[2])
    for name, rows in parts.items():
        if kept.isdisjoint(rows):
            raise DataError(
                f"None of the {len(rows)} pairs of the part {name!r} has answers that fit the "
                f"{tokens.max_length} tokens that the model reads. Nothing was done. Choose a "
                "model that reads more."
            )
