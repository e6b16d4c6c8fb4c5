"""How a model stands while gradients are clipped: without dropout, wherever layers recompute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.modeling_layers import GradientCheckpointingLayer

__all__ = ["without_dropout"]


@contextmanager
def without_dropout(model: Any) -> Iterator[None]:
    """Switch dropout off, and let layers that save memory go on recomputing themselves.

    They do so only while they stand in training, so those layers alone do.
    """
    before = [(layer, layer.training) for layer in model.modules()]
    model.eval()
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.training = bool(layer.gradient_checkpointing)
    try:
        yield
    finally:
        for layer, training in before:
            layer.training = training
