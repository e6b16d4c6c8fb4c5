"""What is refused where a model, a tokenizer and a promise are put together as a reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sordino._validate import integer
from sordino.errors import PrivacyError, UsageError
from sordino.language.models.checkpoints import context_length
from sordino.language.models.promises import CheckpointPromise

__all__ = ["promised", "usable_model", "usable_tokenizer"]


def usable_tokenizer(tokenizer: Any) -> None:
    """Refuse a tokenizer that cannot end or pad a text.

    Raises:
        UsageError: It lacks a token.
    """
    if tokenizer.eos_token_id is None or tokenizer.pad_token_id is None:
        raise UsageError(
            "The tokenizer lacks a token that ends or pads a text, so nothing can be scored. Load "
            "it with sordino.language.models.checkpoints.load_tokenizer."
        )


def usable_model(model: Any, tokenizer: Any, max_length: int) -> None:
    """Refuse a model that is no reward; tell it which token pads.

    Raises:
        UsageError: It has no scalar head or unmerged adapters, or reads fewer tokens.
    """
    if hasattr(model, "merge_and_unload"):
        raise UsageError(
            "The model has adapters beside it, which a saved reward would lose. Merge them first: "
            "model = model.merge_and_unload()."
        )
    if not hasattr(model, "score") or getattr(model.config, "num_labels", None) != 1:
        raise UsageError(
            f"{type(model).__name__} is no reward model: it needs one scalar head called 'score'. "
            "Load it with sordino.language.models.checkpoints.load_reward_checkpoint."
        )
    most = context_length(model, tokenizer)
    if integer("max_length", max_length, at_least=2) > most:
        raise UsageError(
            f"max_length must be at most {most}, which is what the model reads at once, got "
            f"{max_length}."
        )
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id


def promised(promise: Any, settings: Mapping[str, Any]) -> CheckpointPromise:
    """Return the promise of a reward, with the settings that its scores depend on.

    Raises:
        PrivacyError: It is none.
        UsageError: It is about a policy.
    """
    if not isinstance(promise, CheckpointPromise):
        raise PrivacyError(
            f"A reward needs the promise of the labels behind it, got {type(promise).__name__}. "
            "Nothing was made. Pass what the trainer holds, or "
            'CheckpointPromise.of(private_pairs, kind="reward").'
        )
    if promise.kind != "reward":
        raise UsageError(f"The promise is about a {promise.kind}, not about a reward.")
    return replace(promise, training={**promise.training, **settings})
