"""Language models and tokenizers from a folder: nothing is fetched, no foreign code is run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from trl.trainer.reward_trainer import suppress_seqcls_warning

from sordino._files import explained
from sordino.errors import FileSystemError, UsageError

from .loading import offline, quiet, refuse_pickles, seeded

__all__ = [
    "CAUSAL",
    "checkpoint_folder",
    "context_length",
    "default_device",
    "load_causal_model",
    "load_reward_checkpoint",
    "load_tokenizer",
    "ready_tokenizer",
]

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
    folder = Path(path)
    if not os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where nothing may be looked at)
        raise FileSystemError(
            f"There is no folder {str(path)!r}. Nothing was loaded, and nothing is ever fetched: "
            "give the folder of a checkpoint on this machine, as save_pretrained writes it."
        )
    with explained(f"The folder {str(path)!r} cannot be read"):
        _refuse_other_kinds(folder, kinds)
        refuse_pickles(folder)
    return folder


def _refuse_other_kinds(folder: Path, kinds: tuple[str, ...]) -> None:
    """Refuse a folder without a config, with code of its own, or of another architecture."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        names = [str(name) for name in config.get("architectures") or []]
    except (FileNotFoundError, ValueError, AttributeError):
        config, names = {}, []
    if "auto_map" in config:
        raise UsageError(
            f"The checkpoint {str(folder)!r} brings code of its own, which is never run. Nothing "
            "was loaded. Choose a model of an architecture that transformers knows."
        )
    if not any(name.endswith(kinds) for name in names):
        wanted = " or ".join(f"*{kind}" for kind in kinds)
        raise UsageError(
            f"{str(folder)!r} holds no checkpoint that can be used here: its config.json must name "
            f"an architecture {wanted}, and it names {', '.join(names) or 'none'}. Nothing was "
            "loaded."
        )


def load_tokenizer(path: str | Path) -> Any:
    """Return the tokenizer of a checkpoint, which pads on the right with a token of its own."""
    # Where it has no padding token the end-of-text token pads, as is usual; a reward then reads the
    # last token before the end.
    folder = Path(path)
    try:
        with offline(), quiet():
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # a loader raises whatever it meets
        raise UsageError(f"The tokenizer of {str(folder)!r} cannot be loaded.") from error
    return ready_tokenizer(tokenizer, name=str(folder))


def ready_tokenizer(tokenizer: Any, *, name: str) -> Any:
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


def load_causal_model(path: str | Path, *, device: str | None = None) -> Any:
    """Return a language model in 32-bit floats on a device, an accelerator if there is one."""
    folder = checkpoint_folder(path, kinds=CAUSAL)
    return _loaded(AutoModelForCausalLM, folder, device)


def load_reward_checkpoint(path: str | Path, *, device: str | None = None) -> Any:
    """A model with one scalar head: of a reward checkpoint, or a new head on a causal one."""
    # A new head starts at 0, so that it says nothing before it is trained.
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
    if model.config.num_labels != 1 or not hasattr(model, "score"):
        raise UsageError(
            f"{str(folder)!r} is no reward model: it has {model.config.num_labels} outputs and a "
            "reward has one, called 'score'. Nothing was loaded."
        )
    if fresh:
        torch.nn.init.zeros_(model.score.weight)
    return model


def _loaded(kind: Any, folder: Path, device: str | None, **settings: Any) -> Any:
    """Return a model, or say in one line why there is none."""
    try:
        with offline(), quiet(), seeded():
            model = kind.from_pretrained(
                str(folder),
                local_files_only=True,
                use_safetensors=True,
                dtype=torch.float32,
                **settings,
            )
            return model.to(device or default_device())
    except Exception as error:  # a loader raises whatever it meets
        reason = (str(error).splitlines() or [""])[0]
        raise UsageError(
            f"The checkpoint {str(folder)!r} cannot be loaded on {device or default_device()!r}: "
            f"{type(error).__name__}: {reason}"
        ) from error


def context_length(model: Any, tokenizer: Any) -> int:
    """Return how many tokens a model reads at once: prompt and answer together."""
    text = model.config.get_text_config()
    limits = [getattr(text, "max_position_embeddings", None), tokenizer.model_max_length]
    return int(min(limit for limit in [*limits, _UNKNOWN_LENGTH] if limit is not None))
