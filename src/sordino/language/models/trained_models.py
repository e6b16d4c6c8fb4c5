"""Models as a trainer takes them and gives them back: with a tokenizer, a head, and adapters.

A model that stays as it is while the one that it was copied from goes on learning.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from sordino.errors import UsageError

from .checkpoints import load_tokenizer, ready_tokenizer
from .promises import PROMISED

HEAD = "score"
"""What transformers calls the head of a model that gives numbers."""

_PATCHES = ("forward", "_original_forward")  # what trl and 16-bit training lay over a model


def matching_tokenizer(model: Any, tokenizer: Any) -> Any:
    """Return a tokenizer that is ready, from the folder of the model if none is given."""
    if tokenizer is not None:
        return ready_tokenizer(tokenizer, name="processing_class")
    folder = Path(getattr(model.config, "_name_or_path", "") or "no folder")
    if not folder.is_dir():
        raise UsageError("The model knows no folder of a tokenizer: pass processing_class.")
    return load_tokenizer(folder)


def refuse_other_heads(model: Any) -> None:
    """Refuse a model that gives an answer anything but one number."""
    outputs = getattr(getattr(model, "config", None), "num_labels", None)
    if outputs != 1 or not hasattr(model, HEAD):
        raise UsageError(
            f"A reward model has one output, called {HEAD!r}; this {type(model).__name__} has "
            f"{outputs if hasattr(model, HEAD) else 'none of that name'}. Nothing was trained. "
            "Pass the folder of a causal model, which gets a new head."
        )


def with_head(peft_config: Any) -> Any:
    """Return settings of adapters, in a copy, that train and save the head as well."""
    if peft_config is None:
        return None
    settings = copy.deepcopy(peft_config)
    settings.modules_to_save = sorted({*(settings.modules_to_save or ()), HEAD})
    return settings


def is_adapted(model: Any) -> bool:
    """Return whether a model is another one with adapters of peft."""
    return hasattr(model, "peft_config") and hasattr(model, "merge_and_unload")


def refuse_unknown_adapters(model: Any) -> None:
    """Refuse adapters that were trained before, if nothing says on what."""
    if not is_adapted(model) or getattr(model.config, PROMISED, None):
        return
    trained = any(
        bool(weights.detach().any())
        for name, weights in model.named_parameters()
        if "lora_B" in name
    )
    if trained:
        raise UsageError(
            "The model comes with adapters that were trained before, and nothing says on what, so "
            "no promise could cover it. Nothing was trained. Go on from a checkpoint of ours with "
            "resume_from_checkpoint, or start from the folder that its save_model wrote; adapters "
            "that were trained on public text may be merged first (merge_and_unload)."
        )


def plain(model: Any) -> Any:
    """Return a model as transformers knows it, with adapters merged into a copy of its weights."""
    # Without adapters the weights are shared, not copied.
    whole = copy.deepcopy(model).merge_and_unload() if is_adapted(model) else copy.copy(model)
    for patched in _PATCHES:
        whole.__dict__.pop(patched, None)
    return whole


def own_copy(model: Any) -> Any:
    """Return a model as transformers knows it, adapters merged, in a copy of its weights."""
    # What is promised of a model is settled when it is handed out. If it shared its weights with a
    # trainer, every later step would show in it, and nothing would say so. Gradients stay behind:
    # torch copies none of them.
    return plain(model if is_adapted(model) else copy.deepcopy(model))
