"""Layers whose own gradient is left to whoever listens: what came in, and what came back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch.nn.functional import embedding, layer_norm, linear
from transformers.pytorch_utils import Conv1D

from sordino.errors import UsageError

__all__ = ["Kind", "Listener", "tapped"]

Kind: TypeAlias = Literal["linear", "turned", "bias", "scale", "embedding"]
"""How a parameter enters: xWᵀ, xW, x + b, x ⊙ w, or a row of W for every token."""

Listener: TypeAlias = Callable[[nn.Parameter, Kind, Any, Any], None]
"""Told in the backward pass: the parameter, how it enters, its input and the gradient behind it."""


class _Linear(torch.autograd.Function):
    """A product with a matrix, as it stands or turned."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, turned: bool, tell: Listener) -> Any:  # noqa: FBT001
        """Return the product."""
        ctx.save_for_backward(x)
        ctx.weight, ctx.turned, ctx.tell = weight, turned, tell
        return x @ weight if turned else linear(x, weight)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, None, None, None]:
        """Tell, and pass on the gradient of the input alone."""
        (x,) = ctx.saved_tensors
        ctx.tell(ctx.weight, "turned" if ctx.turned else "linear", x, g)
        weight = ctx.weight.detach()
        back = g @ (weight.T if ctx.turned else weight) if ctx.needs_input_grad[0] else None
        return back, None, None, None


class _Bias(torch.autograd.Function):
    """A sum with a vector."""

    @staticmethod
    def forward(ctx: Any, x: Any, bias: Any, tell: Listener) -> Any:
        """Return the sum."""
        ctx.bias, ctx.tell = bias, tell
        return x + bias

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, None, None]:
        """Tell, and pass on the gradient."""
        ctx.tell(ctx.bias, "bias", None, g)
        return g, None, None


class _Scale(torch.autograd.Function):
    """A product with a vector, entry by entry."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, tell: Listener) -> Any:
        """Return the product."""
        ctx.save_for_backward(x)
        ctx.weight, ctx.tell = weight, tell
        return x * weight

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, None, None]:
        """Tell, and pass on the gradient of the input."""
        (x,) = ctx.saved_tensors
        ctx.tell(ctx.weight, "scale", x, g)
        return g * ctx.weight.detach(), None, None


class _Embedding(torch.autograd.Function):
    """A row of a matrix for every token."""

    @staticmethod
    def forward(ctx: Any, ids: Any, weight: Any, padding: int | None, tell: Listener) -> Any:
        """Return the rows."""
        ctx.save_for_backward(ids)
        ctx.weight, ctx.padding, ctx.tell = weight, padding, tell
        return embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[None, None, None, None]:
        """Tell; the row of the padding token is never trained."""
        (ids,) = ctx.saved_tensors
        if ctx.padding is not None:
            g = g.masked_fill((ids == ctx.padding)[:, :, None], 0.0)
        ctx.tell(ctx.weight, "embedding", ids, g)
        return None, None, None, None


def tapped(name: str, layer: Any, rows: int, tell: Listener) -> Callable[..., Any] | None:
    """Return a forward pass that tells of the layer's parameters, or None if none is trained.

    Args:
        name: Of the layer, for messages.
        layer: It is not changed.
        rows: Of the batch: an embedding of positions is read once for each of them.
        tell: Whom.

    Raises:
        UsageError: It is trained, and nothing is known of how its parameters enter.
    """
    trained = [one for one in layer.parameters(recurse=False) if one.requires_grad]
    if not trained:
        return None
    weight: Any = getattr(layer, "weight", None)
    bias: Any = getattr(layer, "bias", None)
    if _is(layer, nn.Linear) or _is(layer, Conv1D):
        return _linear(weight, bias, turned=isinstance(layer, Conv1D), tell=tell)
    if _is(layer, nn.Embedding) and layer.max_norm is None and not layer.scale_grad_by_freq:
        padding = layer.padding_idx
        return lambda ids: _Embedding.apply(ids.expand(rows, -1), weight, padding, tell)
    if _is(layer, nn.LayerNorm):
        shape, least = layer.normalized_shape, layer.eps
        return lambda x: _add(_multiply(layer_norm(x, shape, eps=least), weight, tell), bias, tell)
    if type(layer).__name__.endswith("RMSNorm") and hasattr(layer, "variance_epsilon"):
        least = float(layer.variance_epsilon)
        return lambda x: _multiply(
            x * torch.rsqrt(x.square().mean(-1, keepdim=True) + least), weight, tell
        )
    raise UsageError(
        f"The layer {name!r} is a {type(layer).__name__}, whose gradients cannot be clipped pair "
        "by pair here. Nothing was trained. Freeze it (requires_grad_(False)), or train adapters "
        "on linear layers instead."
    )


def _is(layer: Any, kind: Any) -> bool:
    """Tell whether a layer is of a kind, and no descendant with a forward pass of its own."""
    return isinstance(layer, kind) and type(layer).forward is kind.forward


def _linear(weight: Any, bias: Any, *, turned: bool, tell: Listener) -> Callable[..., Any]:
    """Return the forward pass of a linear layer, of which a part may be frozen."""

    def forward(x: Any) -> Any:
        if weight.requires_grad:
            product = _Linear.apply(x, weight, turned, tell)
        else:
            product = x @ weight if turned else linear(x, weight)
        return _add(product, bias, tell)

    return forward


def _add(x: Any, bias: Any, tell: Listener) -> Any:
    """Return a sum with a bias, if there is one, that is told of if it is trained."""
    if bias is None:
        return x
    return _Bias.apply(x, bias, tell) if bias.requires_grad else x + bias


def _multiply(x: Any, weight: Any, tell: Listener) -> Any:
    """Return a product with weights, if there are some, that is told of if they are trained."""
    if weight is None:
        return x
    return _Scale.apply(x, weight, tell) if weight.requires_grad else x * weight
