"""Language models from a folder, and as a trainer takes them and gives them back.

Nothing is fetched, and no code that comes with a model is run.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from trl.trainer.reward_trainer import suppress_seqcls_warning

from sordino._files import explained
from sordino.errors import UsageError
from sordino.language.models.loading import existing_folder, refuse_pickles, safe_loading, upstream
from sordino.language.models.promises import PROMISED

CAUSAL = ("ForCausalLM", "LMHeadModel")
"""How the architectures of models end that can write."""
_REWARD = ("ForSequenceClassification",)
_UNKNOWN_LENGTH = 1 << 20  # tokenizers that know no limit report an enormous one


def default_device() -> str:
    """Return the accelerator of this machine if there is one, else the processor."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def checkpoint_folder(path: str | Path, *, kinds: tuple[str, ...] = CAUSAL + _REWARD) -> Path:
    """Return the folder of a checkpoint that can be loaded without trusting its author."""
    if not isinstance(path, str | Path):
        raise UsageError(f"A checkpoint must be the path of a folder, got {type(path).__name__}.")
    folder = existing_folder(path, "checkpoint", "save_pretrained")
    with explained(f"The folder {str(path)!r} cannot be read"):
        try:
            config = json.loads((folder / "config.json").read_bytes())
            names = [str(name) for name in config.get("architectures") or []]
        except (FileNotFoundError, ValueError, AttributeError):
            config, names = {}, []
        if "auto_map" in config:
            raise UsageError(
                f"The checkpoint {str(folder)!r} brings code of its own, which is never run. "
                "Nothing was loaded. Choose a model of an architecture that transformers knows."
            )
        if not any(name.endswith(kinds) for name in names):
            wanted = " or ".join(f"*{kind}" for kind in kinds)
            raise UsageError(
                f"{str(folder)!r} holds no checkpoint that can be used here: its config.json must "
                f"name an architecture {wanted}, and it names {', '.join(names) or 'none'}. "
                "Nothing was loaded."
            )
        refuse_pickles(folder)
    return folder


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a checkpoint, which pads on the right with a token of its own."""
    # Where it has no padding token the end-of-text token pads, as is usual; a reward then reads the
    # last token before the end.
    folder = Path(path)
    with safe_loading(f"The tokenizer of {str(folder)!r} cannot be loaded"):
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    return _ready_tokenizer(tokenizer, name=str(folder))


def _ready_tokenizer(tokenizer: PreTrainedTokenizerBase, *, name: str) -> PreTrainedTokenizerBase:
    """Return a tokenizer that is set, in place, to pad on the right with a token of its own."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.eos_token is None or tokenizer.pad_token is None:
        raise UsageError(
            f"The tokenizer of {name!r} lacks a token that ends or pads a text. Nothing was "
            "loaded. Set tokenizer.eos_token (and tokenizer.pad_token, if padding is to be told "
            "from the end), and save it again."
        )
    tokenizer.padding_side = "right"
    return tokenizer


def load_causal_model(
    path: str | Path | PreTrainedModel, *, device: str | None = None
) -> PreTrainedModel:
    """Return a language model in 32-bit floats on a device, an accelerator if there is one."""
    # A model is returned as it is, if it can answer.
    if isinstance(path, torch.nn.Module):
        if not (hasattr(path, "can_generate") and path.can_generate()):
            raise UsageError(
                f"{type(path).__name__} is no causal language model: it cannot answer."
            )
        return path
    folder = checkpoint_folder(path, kinds=CAUSAL)
    return _loaded(AutoModelForCausalLM, folder, device)


def load_reward_checkpoint(
    path: str | Path | PreTrainedModel, *, device: str | None = None
) -> PreTrainedModel:
    """A model with one scalar head: of a reward checkpoint, or a new head on a causal one."""
    # A new head starts at 0, so that it says nothing before it is trained. A model is returned as
    # it is, unless it gives an answer anything but one number.
    if isinstance(path, torch.nn.Module):
        refuse_other_heads(path)
        return path
    folder = checkpoint_folder(path)
    names = json.loads((folder / "config.json").read_bytes())["architectures"]
    fresh = not any(name.endswith(_REWARD) for name in names)
    with suppress_seqcls_warning():
        model = _loaded(
            AutoModelForSequenceClassification,
            folder,
            device,
            **({"num_labels": 1} if fresh else {}),
        )
    refuse_other_heads(model)
    if fresh:
        torch.nn.init.zeros_(model.score.weight)
    return model


def _loaded(kind: type[Any], folder: Path, device: str | None, **settings: int) -> PreTrainedModel:
    place = device or default_device()
    with safe_loading(f"The checkpoint {str(folder)!r} cannot be loaded on {place!r}"):
        model = kind.from_pretrained(
            str(folder),
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            **settings,
        )
        return model.to(place)


def context_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return how many tokens a model reads at once: prompt and answer together."""
    text = model.config.get_text_config()
    limits = [getattr(text, "max_position_embeddings", None), tokenizer.model_max_length]
    return int(min(limit for limit in [*limits, _UNKNOWN_LENGTH] if limit is not None))


def readable_length(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, wanted: int | None
) -> int:
    """Return how many tokens are to be read at once; refuse more than the model can."""
    most = context_length(model, tokenizer)
    if wanted is not None and wanted > most:
        raise UsageError(
            f"max_length (--max-length) must be at most the {most} tokens that the model reads, "
            f"got {wanted}. Nothing was done."
        )
    return wanted or most


HEAD = "score"
"""What transformers calls the head of a model that gives numbers."""

_PATCHES = ("forward", "_original_forward")  # what trl and 16-bit training lay over a model


def matching_tokenizer(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> PreTrainedTokenizerBase:
    """Return a tokenizer that is ready, from the folder of the model if none is given."""
    if tokenizer is not None:
        return _ready_tokenizer(tokenizer, name="processing_class")
    folder = Path(getattr(model.config, "_name_or_path", "") or "no folder")
    if not folder.is_dir():
        raise UsageError("The model knows no folder of a tokenizer: pass processing_class.")
    return load_tokenizer(folder)


def refuse_other_heads(model: PreTrainedModel) -> None:
    """Refuse a model that gives an answer anything but one number."""
    outputs = getattr(getattr(model, "config", None), "num_labels", None)
    if outputs != 1 or not hasattr(model, HEAD):
        raise UsageError(
            f"This is no reward model: that has one output, called {HEAD!r}, and this "
            f"{type(model).__name__} has {outputs if hasattr(model, HEAD) else 'none so called'}. "
            "Nothing was trained. Pass the folder of a causal model, which gets a new head."
        )


def is_adapted(model: object) -> bool:
    """Return whether a model is another one with adapters of peft."""
    return hasattr(model, "peft_config") and hasattr(model, "merge_and_unload")


def refuse_unknown_adapters(model: PreTrainedModel) -> None:
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


def own_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model as transformers knows it, adapters merged, in a copy of its weights."""
    # What is promised of a model is settled when it is handed out. If it shared its weights with a
    # trainer, every later step would show in it, and nothing would say so. Gradients stay behind:
    # torch copies none of them.
    whole = copy.deepcopy(model)
    whole = whole.merge_and_unload() if is_adapted(whole) else whole
    for patched in _PATCHES:
        whole.__dict__.pop(patched, None)
    return whole


def with_reference(
    policy: PreTrainedModel,
    reference: str | Path | PreTrainedModel | None,
    peft_config: PeftConfig | None,
) -> tuple[PreTrainedModel, PreTrainedModel | None]:
    """Return the policy that is to be trained, and its frozen reference, both without dropout."""
    if peft_config is not None and isinstance(policy, PeftModel):
        raise UsageError(
            "The model has an adapter already. Leave peft_config out to train that one, or merge "
            "it first (merge_and_unload)."
        )
    if (reference is None and peft_config is None) or reference is policy:
        fixed = copy.deepcopy(policy)
    else:
        fixed = None if reference is None else load_causal_model(reference)
    if fixed is not None:
        sizes = [one.config.get_text_config().vocab_size for one in (policy, fixed)]
        if sizes[0] != sizes[1]:
            raise UsageError(
                f"The reference reads {sizes[1]} different tokens and the policy {sizes[0]}, so "
                "their probabilities cannot be compared. Nothing was trained."
            )
        fixed = _without_dropout(fixed).eval().requires_grad_(False)
    if peft_config is not None:
        with upstream():
            policy = get_peft_model(policy, peft_config)
    return _without_dropout(policy), fixed


@contextmanager
def referring(fixed: PreTrainedModel | None, policy: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """Yield the reference; without one of its own it is the policy less its adapter."""
    if fixed is not None:
        yield fixed
        return
    with getattr(policy, "module", policy).disable_adapter():
        yield policy


def _without_dropout(model: PreTrainedModel) -> PreTrainedModel:
    """Return the same model, a function of its weights alone from now on."""
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
        elif isinstance(getattr(part, "attention_dropout", None), float):
            part.attention_dropout = 0.0
    return model
