"""Models in which people would show who are not clipped: refused by what is public of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sordino.errors import UsageError

__all__ = ["refuse_few_embeddings", "refuse_shared_positions"]

_BY_LENGTH: Final = ("longrope", "dynamic")
"""Codes of positions that depend on the longest row of a batch."""


def refuse_few_embeddings(model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer with more tokens than a model: whoever used one would stop the run.

    Raises:
        UsageError: It has.
    """
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        raise UsageError(
            f"The tokenizer has {len(tokenizer)} tokens and the model {known}: a text with one of "
            "the others could not be read, and that a run fails would tell of it. Nothing was "
            "trained. Resize the embeddings first (model.resize_token_embeddings)."
        )


def refuse_shared_positions(model: Any, max_length: int) -> None:
    """Refuse positions that are coded by the longest row of a batch, within lengths where they are.

    One long record would change the gradients of all others that are read with it, and each of
    them is clipped alone.

    Args:
        model: Of which the configuration is read.
        max_length: Most tokens that are read.

    Raises:
        UsageError: There are such positions.
    """
    config = model.config.get_text_config()
    for terms in _codes(getattr(config, "rope_parameters", None)):
        if terms.get("rope_type") in _BY_LENGTH:
            usual = terms.get("original_max_position_embeddings")
            safe = int(usual or getattr(config, "max_position_embeddings", None) or 0)
            if max_length > safe:
                raise UsageError(
                    f"This model codes positions ({terms['rope_type']}) by the longest text of a "
                    f"batch if one has more than {safe} tokens, so that one long text changes the "
                    "gradients of all others. Nothing was trained. Set max_length to at most "
                    f"{safe}."
                )


def _codes(found: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the codes of a model: one, or one for each kind of its layers."""
    if isinstance(found, Mapping):
        if "rope_type" in found:
            yield found
        for part in found.values():
            yield from _codes(part)
