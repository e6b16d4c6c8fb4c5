"""Digests of what a language model's output depends on, wherever its files lie."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from sordino.privacy.ledger_chain import canonical_json

from .promises import PROMISED, TEXTS_READ

_NO_PART_OF_IT = {
    *("architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"),
    *(PROMISED, TEXTS_READ),  # what the weights were trained on is no part of what they compute
}
_CHANGED_BY_USE = {"padding", "truncation"}  # set anew at every call of a tokenizer


def weights_digest(model: Any) -> str:
    """Return a SHA-256 over a model's config and weights, the latter as 32-bit floats."""
    # It is the same before and after a model is saved, and on every device.
    config = json.loads(model.config.to_json_string(use_diff=False))
    known = {
        name: value
        for name, value in config.items()
        if name not in _NO_PART_OF_IT and not name.startswith("_")
    }
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().to("cpu", torch.float32).contiguous()
        digest.update(f"\0{name} {tuple(values.shape)}\0".encode())
        digest.update(memoryview(values.numpy()).cast("B") if values.numel() else b"")
    return digest.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str:
    """Return a SHA-256 over what decides how a tokenizer turns dialogues into tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = tokenizer.get_vocab() if backend is None else json.loads(backend.to_str())
    known = {name: value for name, value in rules.items() if name not in _CHANGED_BY_USE}
    special = [tokenizer.chat_template, tokenizer.eos_token_id, tokenizer.pad_token_id]
    return hashlib.sha256(canonical_json([known, special]).encode()).hexdigest()
