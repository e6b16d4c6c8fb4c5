"""Where policy training starts: a policy with its tokenizer, and the reference beside it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model

from sordino.errors import UsageError
from sordino.language.models.checkpoints import load_causal_model, load_tokenizer
from sordino.language.models.loading import upstream
from sordino.language.models.trained_models import matching_tokenizer, refuse_unknown_adapters

__all__ = ["starting_policy", "with_reference"]


def starting_policy(model: Any, tokenizer: Any = None) -> tuple[Any, Any]:
    """Return a causal language model and its tokenizer."""
    if isinstance(model, str | Path):
        return load_causal_model(model), tokenizer or load_tokenizer(model)
    if not (hasattr(model, "can_generate") and model.can_generate()):
        raise UsageError(f"{type(model).__name__} is no causal language model: it cannot answer.")
    refuse_unknown_adapters(model)
    return model, tokenizer or matching_tokenizer(model, None)


def with_reference(policy: Any, reference: Any, peft_config: Any) -> tuple[Any, Any]:
    """Return the policy that is to be trained, and its frozen reference, both without dropout."""
    if peft_config is not None and isinstance(policy, PeftModel):
        raise UsageError(
            "The model has an adapter already. Leave peft_config out to train that one, or merge "
            "it first (merge_and_unload)."
        )
    if isinstance(reference, str | Path):
        reference = load_causal_model(reference)
    elif (reference is None and peft_config is None) or reference is policy:
        reference = copy.deepcopy(policy)
    if reference is not None:
        _refuse_other_tokens(policy, reference)
        reference = _without_dropout(reference).eval().requires_grad_(False)
    if peft_config is not None:
        with upstream():
            policy = get_peft_model(policy, peft_config)
    return _without_dropout(policy), reference


def _refuse_other_tokens(policy: Any, reference: Any) -> None:
    """Refuse a reference that gives its probabilities to other tokens."""
    sizes = [one.config.get_text_config().vocab_size for one in (policy, reference)]
    if sizes[0] != sizes[1]:
        raise UsageError(
            f"The reference reads {sizes[1]} different tokens and the policy {sizes[0]}, so their "
            "probabilities cannot be compared. Nothing was trained."
        )


def _without_dropout(model: Any) -> Any:
    """Return the same model, a function of its weights alone from now on."""
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
        elif isinstance(getattr(part, "attention_dropout", None), float):
            part.attention_dropout = 0.0
    return model
