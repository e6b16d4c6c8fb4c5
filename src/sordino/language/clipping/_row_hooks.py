"""Hooks of opacus on one forward and one backward pass, watched so that they miss no row."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import torch
from opacus.grad_sample import GradSampleHooks, compute_embedding_grad_sample
from opacus.grad_sample.gsm_base import OPACUS_PARAM_MONKEYPATCH_ATTRS
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from sordino.errors import UsageError

__all__ = ["Taker", "row_hooks"]

Taker: TypeAlias = Callable[[nn.Parameter, Any], None]
"""Given, in the backward pass, a parameter and its gradients by row, shape (rows, ...)."""

_HANDLES: Final = "autograd_grad_sample_hooks"
_ON_LAYERS: Final = ("activations", "max_batch_len", "ft_compute_sample_grad")


@contextmanager
def row_hooks(model: nn.Module, batch: int, take: Taker) -> Iterator[None]:
    """Tell of gradients by row while a forward and a backward pass run within.

    Args:
        model: It is left as it was: without hooks, and without what they note on it.
        batch: How many rows it reads.
        take: Whom to tell; more than once for a parameter that is used in several passes.

    Raises:
        UsageError: A trained layer is not one whose rows opacus tells apart, layers recompute
            themselves, or a gradient of a layer that was used did not come back.
    """
    if _HANDLES in vars(model):
        raise UsageError(
            "Hooks of opacus are on the model already. Nothing was trained. Take them off."
        )
    hooks = None
    try:
        with warnings.catch_warnings():  # the first trained layer passes no gradient on
            warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
            hooks = _RowHooks(model, batch, take)
            yield
        hooks.refuse_missing()
    finally:
        if hooks is not None:
            hooks.disable_hooks()  # a graph that is still there would call them
        _forget(model)


class _RowHooks(GradSampleHooks):
    """Hooks that record layers in any mode, and refuse what they would get wrong."""

    def __init__(self, model: nn.Module, batch: int, take: Taker) -> None:
        self._batch, self._take = batch, take
        self._names = {layer: name for name, layer in model.named_modules()}
        self.GRAD_SAMPLERS = {**GradSampleHooks.GRAD_SAMPLERS, nn.Embedding: _of_words}
        for name, layer in model.named_modules():
            _refuse_recomputing(name, layer)
        for layer in self.iterate_submodules(model):
            self._refuse_unknown(layer)
        super().__init__(model, loss_reduction="sum")
        for layer in self.iterate_submodules(model):
            before = layer.register_forward_pre_hook(self._before, with_kwargs=True)
            self.autograd_grad_sample_hooks.append(before)

    def refuse_missing(self) -> None:
        """Refuse parameters of which a use was seen, and no gradient of that use."""
        for name, one in self._module.named_parameters():
            if one.requires_grad and one._forward_counter:  # noqa: SLF001 (opacus')
                raise UsageError(
                    f"{name!r} was used where no gradient came back by rows: the loss leaves that "
                    "use out, or a layer recomputes itself. Nothing was trained. Switch "
                    "checkpointing off, or use clipping='ghost'."
                )

    def capture_activations_hook(self, module: nn.Module, forward_input: Any, output: Any) -> None:
        """Record a use, also in a layer that does not stand in training."""
        if torch.is_grad_enabled() and not self._is_by_row(output):
            raise self._unknown(module, "what comes out does not start with the rows of the batch")
        training, module.training = module.training, True
        try:
            super().capture_activations_hook(module, forward_input, output)
        finally:
            module.training = training

    def capture_backprops_hook(self, module: nn.Module, *given: Any, **named: Any) -> None:
        """Hand on what is found, so that nothing is kept by row."""
        super().capture_backprops_hook(module, *given, **named)
        for one in module.parameters():
            found = getattr(one, "grad_sample", None)
            if found is not None:
                one.grad_sample = None
                for sample in found if isinstance(found, list) else [found]:
                    self._take(one, sample)

    def _get_module_type(self, module: nn.Module) -> Any:
        """Return the type, or one without a formula of its own where that formula is wrong."""
        wrong = isinstance(module, nn.LayerNorm) and module.bias is None
        wrong |= getattr(module, "padding_mode", "zeros") != "zeros"
        return nn.Module if wrong else type(module)

    def _before(self, layer: nn.Module, given: tuple[Any, ...], named: Any) -> Any:
        """Refuse inputs that are not one value by row; read positions once for every row."""
        if not torch.is_grad_enabled():
            return None
        if named or len(given) != 1 or not isinstance(given[0], torch.Tensor):
            raise self._unknown(layer, "it reads more than one value, or reads it by name")
        if isinstance(layer, nn.Embedding) and given[0].shape[0] == 1:
            return (given[0].expand(self._batch, *given[0].shape[1:]),), named
        if not self._is_by_row(given[0]):
            raise self._unknown(layer, "what it reads does not start with the rows of the batch")
        return None

    def _is_by_row(self, value: Any) -> bool:
        """Tell whether a value is one tensor whose first axis is the batch."""
        return isinstance(value, torch.Tensor) and value.shape[:1] == (self._batch,)

    def _refuse_unknown(self, layer: nn.Module) -> None:
        """Refuse layers whose gradients are not sums over rows, or that hooks cannot be put on."""
        if any(True for _ in layer.buffers()) or isinstance(layer, nn.EmbeddingBag):
            raise self._unknown(layer, "it has buffers, or reads bags of words")
        if isinstance(layer, nn.Embedding) and _scales(layer):
            raise self._unknown(layer, "its rows are scaled by what is in the batch")
        if any(hasattr(layer, name) for name in _ON_LAYERS):
            raise self._unknown(layer, "it has attributes that opacus takes for its own")

    def _unknown(self, layer: nn.Module, why: str) -> UsageError:
        """Return the refusal of a layer."""
        return UsageError(
            f"The layer {self._names.get(layer, '')!r} is a {type(layer).__name__}, whose "
            f"gradients opacus cannot tell apart by row: {why}. Nothing was trained. Freeze it "
            "(requires_grad_(False)), put a layer of opacus.layers in its place, or train adapters "
            "on linear layers instead."
        )


def _of_words(layer: nn.Embedding, given: Any, g: Any) -> Any:
    """Return gradients by row of an embedding, whose padding token is never trained."""
    if layer.padding_idx is not None:
        g = g.masked_fill((given[0] == layer.padding_idx)[..., None], 0.0)
    return compute_embedding_grad_sample(layer, given, g)


def _scales(layer: nn.Embedding) -> bool:
    """Tell whether rows of an embedding, or their gradients, depend on the batch as a whole."""
    return layer.max_norm is not None or layer.scale_grad_by_freq


def _refuse_recomputing(name: str, layer: nn.Module) -> None:
    """Refuse layers that run a second time in the backward pass."""
    if isinstance(layer, GradientCheckpointingLayer) and layer.gradient_checkpointing:
        if not layer.training:
            return
        raise UsageError(
            f"The layer {name!r} recomputes itself in the backward pass, and hooks of opacus would "
            "count it twice. Nothing was trained. Switch gradient checkpointing off, or use "
            "clipping='ghost'."
        )


def _forget(model: nn.Module) -> None:
    """Take off every hook, and everything that was noted on layers and parameters."""
    for handle in vars(model).pop(_HANDLES, ()):
        handle.remove()
    for one in model.parameters():
        for name in OPACUS_PARAM_MONKEYPATCH_ATTRS:
            vars(one).pop(name, None)
    for layer in model.modules():
        for name in _ON_LAYERS:
            vars(layer).pop(name, None)
